"""Extremely randomised trees as plain arrays: grown by scikit-learn, stored without pickle."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor

from gpudemand._typing import FloatArray, IntArray

_TREES, _LEAST, _TRIED = 100, 2, 0.2
_CHUNK = 2000


class Forest(NamedTuple):
    """Nodes of all trees in one row: the roots are at `roots`, a leaf is its own child.

    Attributes
    ----------
    roots, left, right, feature : ndarray of int
    threshold, value : ndarray of float
        Rows at most `threshold` go left; `value` is what a leaf predicts.
    """

    roots: IntArray
    left: IntArray
    right: IntArray
    feature: IntArray
    threshold: NDArray[np.float32]
    value: FloatArray

    def predict(self, X: FloatArray) -> FloatArray:
        """Average of the trees, shape (n_rows,)."""
        parts = [X[start : start + _CHUNK] for start in range(0, max(len(X), 1), _CHUNK)]
        return np.concatenate([self._predict(part.astype(np.float32)) for part in parts])

    def _predict(self, X: NDArray[np.float32]) -> FloatArray:
        at = np.tile(self.roots, (len(X), 1))
        rows = np.arange(len(X))[:, None]
        while True:
            below = np.where(X[rows, self.feature[at]] <= self.threshold[at], self.left[at], self.right[at])
            if (below == at).all():
                return np.asarray(self.value[at].mean(axis=1), dtype=float)
            at = below


def grow(X: FloatArray, y: FloatArray, random_state: int, n_trees: int = _TREES) -> Forest:
    """Grow trees that predict `y`, and flatten them."""
    model = ExtraTreesRegressor(n_trees, min_samples_leaf=_LEAST, max_features=_TRIED, random_state=random_state)
    trees = [member.tree_ for member in model.fit(X.astype(np.float32), y).estimators_]
    starts = np.concatenate([[0], np.cumsum([tree.node_count for tree in trees])])
    own = np.arange(starts[-1])
    left, right = (
        np.concatenate([getattr(tree, side) + start for tree, start in zip(trees, starts, strict=False)])
        for side in ("children_left", "children_right")
    )
    leaf = np.concatenate([tree.children_left < 0 for tree in trees])
    return Forest(
        roots=starts[:-1].astype(np.int64),
        left=np.where(leaf, own, left),
        right=np.where(leaf, own, right),
        feature=np.where(leaf, 0, np.concatenate([tree.feature for tree in trees])),
        threshold=np.concatenate([tree.threshold for tree in trees]).astype(np.float32),
        value=np.concatenate([tree.value[:, 0, 0] for tree in trees]),
    )
