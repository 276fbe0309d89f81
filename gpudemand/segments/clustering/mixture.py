"""Spherical Gaussian mixtures fitted by k-means."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from gpudemand._linalg import one_thread
from gpudemand._typing import FloatArray, IntArray


def fit_kmeans(points: FloatArray, n_clusters: int, rng: np.random.Generator, n_init: int = 1) -> KMeans:
    """Fit k-means in one thread, which is faster than several for tables of users."""
    seed = int(rng.integers(2**31))
    with ignore_convergence_warnings(), one_thread():
        return KMeans(n_clusters, n_init=n_init, random_state=seed).fit(points)


@contextmanager
def ignore_convergence_warnings() -> Iterator[None]:
    """Suppress scikit-learn's warning for fewer distinct points than clusters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


class SphericalMixture:
    """Gaussian mixture with one spherical covariance and equal weights.

    Parameters
    ----------
    n_components : int
    """

    def __init__(self, n_components: int) -> None:
        self.n_components = n_components

    def fit(self, points: FloatArray, rng: np.random.Generator) -> SphericalMixture:
        """Estimate the means by k-means and the variance from its inertia."""
        kmeans = fit_kmeans(points, self.n_components, rng, n_init=20)
        self.means_: FloatArray = kmeans.cluster_centers_
        degrees_of_freedom = max(len(points) - self.n_components, 1) * points.shape[1]
        self.variance_ = max(float(kmeans.inertia_) / degrees_of_freedom, 1e-12)
        return self

    def predict_proba(self, points: FloatArray) -> FloatArray:
        """Return the posterior of the components, shape (n_users, n_components)."""
        squares = ((points[:, None, :] - self.means_[None]) ** 2).sum(axis=2)
        weights = np.exp((squares.min(axis=1, keepdims=True) - squares) / (2.0 * self.variance_))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def canonical_order(values: FloatArray) -> IntArray:
    """Return a row order by the temporal moments of the rows, independent of their present order and of their scale."""
    filled = np.nan_to_num(values)
    time = np.arange(1.0, filled.shape[1] + 1) / filled.shape[1]
    size = np.abs(filled).sum(axis=1)
    share = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    moments = [((filled * power).sum(axis=1) * share).round(9) for power in (time**3, time**2, time)]
    return np.lexsort(moments)
