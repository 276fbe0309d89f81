"""Segments as centres in space: nearby users, and how probable each segment is for someone in between."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from gpudemand._linalg import one_thread
from gpudemand._typing import FloatArray, IntArray


def nearest_centres(positions: FloatArray, n_centres: int, rng: np.random.Generator, n_starts: int = 1) -> KMeans:
    """Return k-means on one core, which is faster than several for tables of users."""
    seed = int(rng.integers(2**31))
    with alike_users_allowed(), one_thread():
        return KMeans(n_centres, n_init=n_starts, random_state=seed).fit(positions)


@contextmanager
def alike_users_allowed() -> Iterator[None]:
    """Keep scikit-learn from warning where users alike to the last bit leave fewer distinct positions than centres."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


class Centres:
    """Segments around centres, all equally wide: a Gaussian mixture with one spherical covariance and equal weights.

    Parameters
    ----------
    n_segments : int
    """

    def __init__(self, n_segments: int) -> None:
        self.n_segments = n_segments

    def fit(self, positions: FloatArray, rng: np.random.Generator) -> Centres:
        """Find the centres by k-means from twenty starts, and how wide segments are in a dimension."""
        means = nearest_centres(positions, self.n_segments, rng, n_starts=20)
        self.centres_: FloatArray = means.cluster_centers_
        freedom = max(len(positions) - self.n_segments, 1) * positions.shape[1]
        self.variance_ = max(float(means.inertia_) / freedom, 1e-12)
        return self

    def probabilities(self, positions: FloatArray) -> FloatArray:
        """Return how probable each segment is, shape (n_users, n_segments)."""
        squares = ((positions[:, None, :] - self.centres_[None]) ** 2).sum(axis=2)
        weights = np.exp((squares.min(axis=1, keepdims=True) - squares) / (2.0 * self.variance_))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def canonical_order(values: FloatArray) -> IntArray:
    """Return an order of the rows that depends on neither their present order nor their units, only on their shape."""
    filled = np.nan_to_num(values)
    time = np.arange(1.0, filled.shape[1] + 1) / filled.shape[1]
    size = np.abs(filled).sum(axis=1)
    share = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    moments = [((filled * power).sum(axis=1) * share).round(9) for power in (time**3, time**2, time)]
    return np.lexsort(moments)
