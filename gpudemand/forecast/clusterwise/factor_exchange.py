"""Clusters of users with latent series of their own, by the exchange algorithm of Späth, one user at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpudemand._typing import FloatArray, IntArray

#: Gain that an exchange must bring, relative to the sum of squares.
_LEAST_GAIN = 1e-9


class ExchangedClusters(NamedTuple):
    """Labels of the users, and the factorization of each cluster.

    Attributes
    ----------
    labels : ndarray of int, shape (n_users,)
    latent : ndarray of shape (n_clusters, n_factors, n_times)
    objective : tuple of float
        At the start and after each pass; never rising.
    start : int
        Place of the best start.
    n_moved : int
        Users who have left its clusters.
    """

    labels: IntArray
    latent: FloatArray
    objective: tuple[float, ...]
    start: int
    n_moved: int


def exchange_users(
    y: FloatArray,
    starts: Sequence[IntArray],
    n_factors: int,
    penalty: float,
    *,
    max_passes: int = 10,
    random_state: int = 0,
) -> ExchangedClusters:
    """Factorize the users of each cluster by factors of its own, and exchange users one at a time.

    Minimises, over clusters, loadings f and latent series X of each cluster, the sum over users of
    ``|y - f X|^2 + penalty |f|^2``, plus ``penalty |X|^2``. Users are visited in random order. A user moves to the
    cluster where the objective falls most, both clusters' latent series solved anew, until a pass moves nobody.

    Parameters
    ----------
    y : ndarray of shape (n_users, n_times)
        Of about unit variance, without missing values.
    starts : sequence of ndarray of int, shape (n_users,)
        Initial labels, consecutive from 0; the start with the lowest objective in the end is returned.
    n_factors : int
        Factors of a cluster.
    penalty : float
    max_passes : int, default=10
        Most passes over all users.
    random_state : int, default=0

    Returns
    -------
    ExchangedClusters

    Notes
    -----
    With the other loadings fixed, leaving a cluster lowers the objective by ``e^2 / (1 - h) + penalty |f|^2``, with the
    residual e and the leverage h of the user, and joining one raises it by ``e^2 / (1 + h) + penalty |f|^2``.

    References
    ----------
    H. Späth, "Algorithm 39: Clusterwise linear regression", Computing 22 (1979).

    Examples
    --------
    Two kinds of users with a factor each, from a start at random:

    >>> rng = np.random.default_rng(0)
    >>> kinds = np.repeat([0, 1], 20)
    >>> y = rng.normal(size=(2, 60))[kinds] * rng.uniform(1, 2, (40, 1)) + rng.normal(0, 0.1, (40, 60))
    >>> labels = exchange_users(y, [rng.integers(0, 2, 40)], n_factors=1, penalty=0.1).labels
    >>> len(set(labels[:20])), len(set(labels))
    (1, 2)
    """
    n_clusters = int(max(start.max() for start in starts)) + 1
    runs = [_Exchange(y, start, n_clusters, n_factors, penalty) for start in starts]
    values = [run.run(max_passes, random_state) for run in runs]
    best = int(np.argmin([value[-1] for value in values]))
    run = runs[best]
    return ExchangedClusters(run.labels, run.latent, tuple(values[best]), best, int((run.labels != starts[best]).sum()))


def cheapest_cluster(y: FloatArray, latent: FloatArray, penalty: float) -> IntArray:
    """Return the cluster whose latent series fit each user best, shape (n_users,), for users outside the exchange.

    Parameters
    ----------
    y : ndarray of shape (n_users, n_times)
    latent : ndarray of shape (n_clusters, n_factors, n_times)
    penalty : float
        On the squared loadings.
    """
    right = np.einsum("kft,nt->knf", latent, y)
    inverse = np.linalg.inv(latent @ latent.swapaxes(1, 2) + penalty * np.eye(latent.shape[1]))
    return np.asarray(np.einsum("knf,kfg,kng->nk", right, inverse, right).argmax(axis=1))


class _Exchange:
    """Loadings, latent series and the normal equations of the latent series of every cluster."""

    def __init__(self, y: FloatArray, labels: IntArray, n_clusters: int, n_factors: int, penalty: float) -> None:
        self.y, self.labels, self.penalty = y, labels.copy(), penalty
        self.ridge = penalty * np.eye(n_factors)
        self.loadings = np.zeros((len(y), n_factors))
        self.gram = np.tile(self.ridge, (n_clusters, 1, 1))
        self.right = np.zeros((n_clusters, n_factors, y.shape[1]))
        self.latent, self.outer = np.zeros_like(self.right), np.zeros_like(self.gram)
        self.size = float(np.square(y).sum())
        for cluster in range(n_clusters):
            self._start(cluster)

    def run(self, max_passes: int, random_state: int) -> list[float]:
        """Visit all users until none moves; return the objective at the start and after each pass."""
        rng, objective = np.random.default_rng(random_state), [self.objective()]
        for _ in range(max_passes):
            moved = [self._visit(user) for user in rng.permutation(len(self.y))]
            self._refit()
            objective.append(self.objective())
            if not any(moved):
                break
        return objective

    def objective(self) -> float:
        """Sum of squared errors, and of the penalised factors."""
        fitted = np.einsum("nf,nft->nt", self.loadings, self.latent[self.labels])
        sizes = np.square(self.loadings).sum() + np.square(self.latent).sum()
        return float(np.square(self.y - fitted).sum() + self.penalty * sizes)

    def _start(self, cluster: int) -> None:
        rows = np.flatnonzero(self.labels == cluster)
        left, size, _ = np.linalg.svd(self.y[rows], full_matrices=False)
        n = min(len(size), self.latent.shape[1])
        # Loadings and latent series share the singular values less their penalty, the minimum of the objective.
        share = np.sqrt(np.maximum(size[:n] - self.penalty, 0.0))
        self.loadings[rows, :n] = left[:, :n] * share
        self._collect(cluster)

    def _collect(self, cluster: int) -> None:
        rows = self.labels == cluster
        self.gram[cluster] = self.ridge + self.loadings[rows].T @ self.loadings[rows]
        self.right[cluster] = self.loadings[rows].T @ self.y[rows]
        self._solve(cluster)

    def _refit(self) -> None:
        """Exact updates of all loadings, then of all latent series."""
        for cluster, latent in enumerate(self.latent):
            rows = self.labels == cluster
            self.loadings[rows] = np.linalg.solve(latent @ latent.T + self.ridge, latent @ self.y[rows].T).T
            self._collect(cluster)

    def _visit(self, user: int) -> bool:
        """Move a user to the cluster where the objective falls most, if it falls; return whether the user moved."""
        own, loading = self.labels[user], self.loadings[user].copy()
        before = self._leave(user)
        loadings, costs = self._joining_costs(self.y[user])
        best = int(costs.argmin())
        moves = best != own and costs[best] < before - _LEAST_GAIN * self.size
        self._join(user, *((best, loadings[best]) if moves else (own, loading)))
        return moves

    def _leave(self, user: int) -> float:
        """Take a user out of a cluster; return by how much the objective falls."""
        y, cluster, loading = self.y[user], self.labels[user], self.loadings[user]
        leverage = loading @ np.linalg.solve(self.gram[cluster], loading)
        error = np.square(y - loading @ self.latent[cluster]).sum()
        self._update(user, -1.0)
        return float(error / max(1.0 - leverage, 1e-12) + self.penalty * loading @ loading)

    def _joining_costs(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Loadings of a series in each cluster, (n_clusters, n_factors), and by how much the objective would rise."""
        right = self.latent @ y
        loadings = np.asarray(np.linalg.solve(self.outer, right[..., None])[..., 0], dtype=np.float64)
        leverage = np.einsum("kf,kf->k", loadings, np.linalg.solve(self.gram, loadings[..., None])[..., 0])
        size = np.square(loadings).sum(axis=1)
        # |y - f X|^2 = |y|^2 - f X y' - penalty |f|^2 for the f that solves the ridge problem.
        error = y @ y - np.einsum("kf,kf->k", loadings, right) - self.penalty * size
        return loadings, error / (1.0 + leverage) + self.penalty * size

    def _join(self, user: int, cluster: int, loading: FloatArray) -> None:
        self.labels[user], self.loadings[user] = cluster, loading
        self._update(user, 1.0)

    def _update(self, user: int, sign: float) -> None:
        """Add a user's loadings to a cluster, or take them out, and solve for its latent series."""
        cluster, loading = self.labels[user], self.loadings[user]
        self.gram[cluster] += sign * np.outer(loading, loading)
        self.right[cluster] += sign * np.outer(loading, self.y[user])
        self._solve(cluster)

    def _solve(self, cluster: int) -> None:
        latent: FloatArray = np.linalg.solve(self.gram[cluster], self.right[cluster])
        self.latent[cluster] = latent
        self.outer[cluster] = latent @ latent.T + self.ridge
