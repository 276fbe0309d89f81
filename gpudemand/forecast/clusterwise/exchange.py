"""Clusterwise linear regression by alternating fits and reassignments, with a cost of switching clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpudemand._linalg import solve_each
from gpudemand._typing import FloatArray, IntArray

_MAX_ITERATIONS = 30


class NormalEquations(NamedTuple):
    """Normal equations of each unit.

    Attributes
    ----------
    gram : ndarray of shape (n_units, n_columns, n_columns)
    right : ndarray of shape (n_units, n_columns)
    size : ndarray of shape (n_units,)
        Sum of squared targets.
    """

    gram: FloatArray
    right: FloatArray
    size: FloatArray

    @classmethod
    def of(cls, x: FloatArray, y: FloatArray) -> NormalEquations:
        """Of regressors `x`, shape (n_units, n_rows, n_columns), and targets `y`; missing targets are left out."""
        known = ~np.isnan(y)
        x, y = x * known[..., None], np.where(known, y, 0.0)
        transposed = x.swapaxes(1, 2)
        right = (transposed @ y[..., None])[..., 0]
        return cls(transposed @ x, right, np.square(y).sum(axis=1))

    def losses(self, weights: FloatArray) -> FloatArray:
        """Sum of squared errors of each unit under each cluster's weights, shape (n_units, n_clusters)."""
        fitted = np.einsum("npq,kp,kq->nk", self.gram, weights, weights, optimize=True)
        return np.maximum(self.size[:, None] - 2 * self.right @ weights.T + fitted, 0.0)

    def fit(self, members: FloatArray, penalty: float, towards: FloatArray) -> FloatArray:
        """Ridge weights of each cluster, shape (n_clusters, n_columns), shrunk towards given ones.

        Parameters
        ----------
        members : ndarray of shape (n_units, n_clusters)
            Membership of each unit in each cluster.
        penalty : float
        towards : ndarray of shape (n_columns,)
        """
        ridge = penalty * np.eye(towards.size)
        gram = np.einsum("nk,npq->kpq", members, self.gram, optimize=True) + ridge
        right = members.T @ self.right + penalty * towards
        return solve_each(gram, right)


@dataclass(frozen=True)
class Clusters:
    """Regressions and members of the clusters.

    Attributes
    ----------
    weights : ndarray of shape (n_clusters, n_columns)
    reassigned : ndarray of int, shape (n_users,)
        Cluster to which a user was reassigned, -1 for users in the cluster of their segment.
    objective : tuple of float
        After each iteration; never rising.
    """

    weights: FloatArray
    reassigned: IntArray
    objective: tuple[float, ...]


def exchange(
    equations: NormalEquations,
    segments: IntArray,
    n_clusters: int,
    *,
    switching_cost: float,
    penalty: float,
    towards: FloatArray,
) -> Clusters:
    """Alternate between fitting the regressions and reassigning all users at once, until no user moves.

    A user is in the cluster of the segment, which may differ between origins, or is reassigned to one cluster. The
    objective, which neither step can raise, is half the squared errors, plus `switching_cost` for every reassigned
    user, plus the penalty on weights.

    Parameters
    ----------
    equations : NormalEquations
        Of every user at every origin, ``n_users * n_origins`` of them.
    segments : ndarray of int, shape (n_users, n_origins)
        Segment of each user at each origin.
    n_clusters : int
    switching_cost : float
        Cost of reassigning a user; with infinity none is.
    penalty : float
        On the squared distance of a cluster's weights from `towards`.
    towards : ndarray of shape (n_columns,)

    Returns
    -------
    Clusters

    References
    ----------
    H. Späth, "Algorithm 39: Clusterwise linear regression", Computing 22 (1979), which moves one unit at a time.
    """
    reassigned, values = np.full(len(segments), -1), []
    for _ in range(_MAX_ITERATIONS):
        labels = np.where(reassigned[:, None] >= 0, reassigned[:, None], segments)
        weights = equations.fit(np.eye(n_clusters)[labels.ravel()], penalty, towards)
        cost = membership_costs(equations, weights, segments, switching_cost)
        values.append(float(cost.min(axis=1).sum() + penalty * np.square(weights - towards).sum() / 2))
        moved = cost.argmin(axis=1) - 1
        if (moved == reassigned).all():
            break
        reassigned = moved
    return Clusters(weights, reassigned, tuple(values))


def membership_costs(
    equations: NormalEquations, weights: FloatArray, segments: IntArray, switching_cost: float
) -> FloatArray:
    """Cost of staying with the segment and of each cluster, shape (n_users, 1 + n_clusters)."""
    loss = equations.losses(weights).reshape(*segments.shape, -1) / 2
    stay = np.take_along_axis(loss, segments[..., None], axis=2).sum(axis=1)
    return np.concatenate([stay, loss.sum(axis=1) + switching_cost], axis=1)


def membership_posterior(cost: FloatArray, segment: IntArray) -> FloatArray:
    """Posterior probability of each cluster for each user, given the costs and the current segment."""
    posterior = np.exp(cost.min(axis=1, keepdims=True) - cost)
    posterior /= posterior.sum(axis=1, keepdims=True)
    return posterior[:, 1:] + posterior[:, :1] * np.eye(cost.shape[1] - 1)[segment]
