"""Clusterwise regression by exchange: every unit moves to the cluster whose regression explains it best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpudemand._linalg import solve_each
from gpudemand._typing import FloatArray, IntArray

_MOST_ROUNDS = 30


class Moments(NamedTuple):
    """Everything least squares needs of each unit: products of its rows with one another and with what they explain.

    Attributes
    ----------
    gram : ndarray of shape (n_units, n_columns, n_columns)
    right : ndarray of shape (n_units, n_columns)
    size : ndarray of shape (n_units,)
        Sum of squares of what is explained.
    """

    gram: FloatArray
    right: FloatArray
    size: FloatArray

    @classmethod
    def of(cls, x: FloatArray, y: FloatArray) -> Moments:
        """Take rows `x`, shape (n_units, n_rows, n_columns), that explain `y`; rows with a missing `y` do not count."""
        known = ~np.isnan(y)
        x, y = x * known[..., None], np.where(known, y, 0.0)
        turned = x.swapaxes(1, 2)
        right = (turned @ y[..., None])[..., 0]
        return cls(turned @ x, right, np.square(y).sum(axis=1))

    def losses(self, weights: FloatArray) -> FloatArray:
        """Sum of squared errors of each unit under each cluster's weights, shape (n_units, n_clusters)."""
        curve = np.einsum("npq,kp,kq->nk", self.gram, weights, weights, optimize=True)
        return np.maximum(self.size[:, None] - 2 * self.right @ weights.T + curve, 0.0)

    def fit(self, members: FloatArray, penalty: float, towards: FloatArray) -> FloatArray:
        """Ridge weights of each cluster, shape (n_clusters, n_columns), shrunk towards given ones.

        Parameters
        ----------
        members : ndarray of shape (n_units, n_clusters)
            How much of each unit belongs to each cluster.
        penalty : float
        towards : ndarray of shape (n_columns,)
        """
        ridge = penalty * np.eye(towards.size)
        gram = np.einsum("nk,npq->kpq", members, self.gram, optimize=True) + ridge
        right = members.T @ self.right + penalty * towards
        return solve_each(gram, right)


@dataclass(frozen=True)
class Clusters:
    """Regressions of the clusters, and who is in them.

    Attributes
    ----------
    weights : ndarray of shape (n_clusters, n_columns)
    settled : ndarray of int, shape (n_users,)
        Cluster in which a user stays whatever her segment, -1 for those who follow their segments.
    objective : tuple of float
        After each round; never rising.
    """

    weights: FloatArray
    settled: IntArray
    objective: tuple[float, ...]


def exchange(
    moments: Moments, segments: IntArray, n_clusters: int, *, reluctance: float, penalty: float, towards: FloatArray
) -> Clusters:
    """Fit regressions and move users in turn, until nobody moves.

    A user follows her segment, which may have been another one at an earlier origin, or settles in one cluster.
    Minimises half the squared errors (in units in which they are about one), plus `reluctance` for every user who has
    settled, plus the penalty on weights; neither step can raise it.

    Parameters
    ----------
    moments : Moments
        Of every user at every origin, ``n_users * n_origins`` of them.
    segments : ndarray of int, shape (n_users, n_origins)
        As they could be told at each origin.
    n_clusters : int
    reluctance : float
        What settling costs; with infinity everybody follows. A user of whom little is known has little to say against
        her segment.
    penalty : float
        On the squared distance of a cluster's weights from `towards`.
    towards : ndarray of shape (n_columns,)

    Returns
    -------
    Clusters

    References
    ----------
    H. Späth, "Algorithm 39: Clusterwise linear regression", Computing 22 (1979).
    """
    settled, values = np.full(len(segments), -1), []
    for _ in range(_MOST_ROUNDS):
        labels = np.where(settled[:, None] >= 0, settled[:, None], segments)
        weights = moments.fit(np.eye(n_clusters)[labels.ravel()], penalty, towards)
        cost = costs(moments, weights, segments, reluctance)
        values.append(float(cost.min(axis=1).sum() + penalty * np.square(weights - towards).sum() / 2))
        moved = cost.argmin(axis=1) - 1
        if (moved == settled).all():
            break
        settled = moved
    return Clusters(weights, settled, tuple(values))


def costs(moments: Moments, weights: FloatArray, segments: IntArray, reluctance: float) -> FloatArray:
    """What following costs each user, and what settling in each cluster does, shape (n_users, 1 + n_clusters)."""
    loss = moments.losses(weights).reshape(*segments.shape, -1) / 2
    follow = np.take_along_axis(loss, segments[..., None], axis=2).sum(axis=1)
    return np.concatenate([follow, loss.sum(axis=1) + reluctance], axis=1)


def gate(cost: FloatArray, segment: IntArray) -> FloatArray:
    """Probability of each cluster for each user now in a segment, from what following and settling would cost."""
    odds = np.exp(cost.min(axis=1, keepdims=True) - cost)
    odds /= odds.sum(axis=1, keepdims=True)
    return odds[:, 1:] + odds[:, :1] * np.eye(cost.shape[1] - 1)[segment]
