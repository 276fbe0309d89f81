"""Ensembles of regression trees as plain arrays, stored without pickle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingRegressor

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError

#: Rows predicted at a time; bounds the memory.
_CHUNK = 2000


class Trees(NamedTuple):
    """A sum of regression trees: a constant, the root of each tree, and the nodes of all trees.

    A row goes to `left` if its `feature` is at most the `threshold`, else to `right`; a leaf is its own child, and its
    `value` is added.
    """

    start: FloatArray
    roots: IntArray
    left: IntArray
    right: IntArray
    feature: IntArray
    threshold: FloatArray
    value: FloatArray

    @staticmethod
    def stored(prefix: str) -> dict[str, str]:
        """Types and shapes of the arrays of an ensemble, for `check_arrays`."""
        nodes = {name: ("f" if name in ("threshold", "value") else "i") for name in Trees._fields[2:]}
        sizes = {"start": "f 1", "roots": f"i {prefix}trees"}
        return {f"{prefix}{name}": sizes.get(name, f"{nodes.get(name)} {prefix}nodes") for name in Trees._fields}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], prefix: str, n_features: int) -> Trees:
        """Restore an ensemble; raises `InputError` unless every walk from a root ends at a leaf."""
        trees = cls(*(np.asarray(arrays[f"{prefix}{name}"]) for name in cls._fields))
        own = np.arange(len(trees.left))
        leaf = (trees.left == own) & (trees.right == own)
        later = (trees.left > own) & (trees.right > own) & (np.maximum(trees.left, trees.right) < len(own))
        roots = (trees.roots >= 0) & (trees.roots < len(own))
        features = (trees.feature >= 0) & (trees.feature < n_features)
        if not ((leaf | later).all() and roots.all() and features.all()):
            raise InputError(f"{prefix.rstrip('_')} holds no regression trees over {n_features} features.")
        return trees

    def predict(self, X: FloatArray) -> FloatArray:
        """Predict rows of shape (n_rows, n_features)."""
        # scikit-learn grows trees on single precision.
        rows = np.asarray(X, dtype=np.float32)
        parts = [rows[start : start + _CHUNK] for start in range(0, max(len(rows), 1), _CHUNK)]
        return np.concatenate([self._predict(part) for part in parts])

    def _predict(self, rows: NDArray[np.float32]) -> FloatArray:
        n_trees = len(self.roots)
        at = np.tile(self.roots, len(rows))
        walking = np.arange(at.size)
        while walking.size:
            node = at[walking]
            low = rows[walking // n_trees, self.feature[node]] <= self.threshold[node]
            after = np.where(low, self.left[node], self.right[node])
            at[walking] = after
            walking = walking[after != node]
        return np.asarray(self.start[0] + self.value[at].reshape(len(rows), n_trees).sum(axis=1))


def grow_boosted(X: FloatArray, y: FloatArray, *, n_trees: int, depth: int, random_state: int) -> Trees:
    """Gradient boosting of the absolute error.

    Examples
    --------
    >>> X = np.arange(40.0)[:, None]
    >>> trees = grow_boosted(X, np.where(X[:, 0] < 20, -1.0, 1.0), n_trees=50, depth=2, random_state=0)
    >>> trees.predict(X[[0, 39]]).round(1).tolist()
    [-1.0, 1.0]
    """
    model = GradientBoostingRegressor(
        loss="absolute_error",
        n_estimators=n_trees,
        learning_rate=0.1,
        max_depth=depth,
        subsample=0.7,
        max_features=0.2,
        min_samples_leaf=5,
        random_state=random_state,
    ).fit(X, y)
    return _flat(model.estimators_[:, 0], float(model.init_.constant_.ravel()[0]), model.learning_rate)


def _flat(members: Sequence[Any], start: float, weight: float) -> Trees:
    trees = [member.tree_ for member in members]
    roots = np.concatenate([[0], np.cumsum([tree.node_count for tree in trees])]).astype(np.int64)
    parts = [_nodes(tree, root, weight) for tree, root in zip(trees, roots[:-1].tolist(), strict=True)]
    return Trees(np.array([start]), roots[:-1], *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _nodes(tree: Any, root: int, weight: float) -> tuple[Any, ...]:
    is_leaf, own = tree.children_left < 0, np.arange(tree.node_count)
    left, right = (np.where(is_leaf, own, children) + root for children in (tree.children_left, tree.children_right))
    values = np.where(is_leaf, weight * tree.value[:, 0, 0], 0.0)
    return left, right, np.maximum(tree.feature, 0), tree.threshold, values
