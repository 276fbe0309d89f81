"""Boosted trees as plain arrays: they can be stored without pickle, and predict without the library that grew them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor

from gpudemand._typing import FloatArray, IntArray


class Trees(NamedTuple):
    """A sum of regression trees.

    Attributes
    ----------
    start : ndarray of shape (1,)
        What the sum starts from.
    roots : ndarray of shape (n_trees,)
        Node at which each tree begins.
    left, right : ndarray of shape (n_nodes,)
        Node to go to if the feature is at most the threshold, and if not; a leaf goes to itself.
    feature, threshold, value : ndarray of shape (n_nodes,)
        What is asked at a node, and what a leaf adds.
    """

    start: FloatArray
    roots: IntArray
    left: IntArray
    right: IntArray
    feature: IntArray
    threshold: FloatArray
    value: FloatArray

    def predict(self, X: FloatArray) -> FloatArray:
        """Sum the trees up for rows of shape (n_rows, n_features)."""
        # The trees were grown on single precision: a threshold must see the same number again.
        rows = np.asarray(X, dtype=np.float32)
        at = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        which = np.arange(len(rows))[:, None]
        while True:
            after = np.where(rows[which, self.feature[at]] <= self.threshold[at], self.left[at], self.right[at])
            if (after == at).all():
                return np.asarray(self.start[0] + self.value[at].sum(axis=1))
            at = after


def grow(X: FloatArray, y: FloatArray, *, n_trees: int, depth: int, random_state: int) -> Trees:
    """Grow boosted trees on the absolute error.

    Examples
    --------
    >>> X = np.arange(40.0)[:, None]
    >>> trees = grow(X, np.where(X[:, 0] < 20, -1.0, 1.0), n_trees=50, depth=2, random_state=0)
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
    return _flat(model, float(model.init_.constant_.ravel()[0]))


def _flat(model: Any, start: float) -> Trees:
    trees = [stage.tree_ for stage in model.estimators_[:, 0]]
    roots = np.concatenate([[0], np.cumsum([tree.node_count for tree in trees])]).astype(np.int64)
    parts = [_nodes(tree, root, model.learning_rate) for tree, root in zip(trees, roots[:-1].tolist(), strict=True)]
    return Trees(np.array([start]), roots[:-1], *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _nodes(tree: Any, root: int, rate: float) -> tuple[Any, ...]:
    is_leaf, own = tree.children_left < 0, np.arange(tree.node_count)
    left, right = (np.where(is_leaf, own, children) + root for children in (tree.children_left, tree.children_right))
    return left, right, np.maximum(tree.feature, 0), tree.threshold, np.where(is_leaf, rate * tree.value[:, 0, 0], 0.0)
