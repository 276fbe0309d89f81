"""Series as clouds of points: delay embedding by sliding windows, and few points that stand for all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError, check_number
from gpudemand.segments.base.usage_matrix import as_matrix
from gpudemand.segments.topology.sublevel import as_series
from gpudemand.segments.topology.sweep import spread_out


def takens_embedding(y: object, *, dimension: int = 50, time_delay: int = 1, stride: int = 1) -> FloatArray:
    """Return the sliding windows of a series as points.

    Parameters
    ----------
    y : array-like, shape (n_timestamps,)
        The series; NaN stays in the points that it falls into.
    dimension : int, default=50
        Values in a window, which is the dimension of the points; 50 days in Rivera-Castro et al.
    time_delay : int, default=1
        Steps between the values of a window.
    stride : int, default=1
        Steps between windows. The last window ends at the last value, as in giotto-tda.

    Returns
    -------
    ndarray, shape (n_points, dimension)
        A read-only view of the series.

    Raises
    ------
    InputError
        If the series is shorter than one window, or a parameter is no positive whole number.

    References
    ----------
    F. Takens, *Detecting strange attractors in turbulence*, Lecture Notes in Mathematics 898, 1981.

    Examples
    --------
    >>> takens_embedding([0, 1, 2, 3, 4, 5, 6, 7], dimension=3, stride=2).astype(int).tolist()
    [[1, 2, 3], [3, 4, 5], [5, 6, 7]]
    """
    series = as_series(y)
    return _windows(series[None], dimension, time_delay, stride)[0]


def _windows(values: FloatArray, dimension: int, time_delay: int, stride: int) -> FloatArray:
    size = window_length(dimension, time_delay, stride)
    n_timestamps = values.shape[1]
    if n_timestamps < size:
        raise InputError(
            f"a series of {n_timestamps} values is shorter than one window of {size}; "
            "lower dimension or time_delay, or take a finer freq."
        )
    windows = np.lib.stride_tricks.sliding_window_view(values, size, axis=1)
    return windows[:, (n_timestamps - size) % int(stride) :: int(stride), :: int(time_delay)]


def window_length(dimension: int, time_delay: int, stride: int = 1) -> int:
    """Return how many values a window spans, or complain about a parameter.

    Examples
    --------
    >>> window_length(3, 2)
    5
    """
    for name, number in (("dimension", dimension), ("time_delay", time_delay), ("stride", stride)):
        check_number(name, number, 1, integer=True)
    return (int(dimension) - 1) * int(time_delay) + 1


class TakensEmbedding(TransformerMixin, BaseEstimator):
    """Each series as a cloud of points, in the shape of giotto-tda's transformer of the same name.

    Parameters
    ----------
    time_delay : int, default=1
        Steps between the values of a window.
    dimension : int, default=50
        Values in a window. giotto-tda's default is 2.
    stride : int, default=1
        Steps between windows.

    Attributes
    ----------
    n_timestamps_ : int
        Length of the series at ``fit``.

    Examples
    --------
    >>> TakensEmbedding(dimension=2).fit_transform([[0, 1, 2], [5, 5, 5]]).shape
    (2, 2, 2)
    """

    def __init__(self, time_delay: int = 1, dimension: int = 50, stride: int = 1) -> None:
        self.time_delay = time_delay
        self.dimension = dimension
        self.stride = stride

    @property
    def scale_free(self) -> bool:
        """Whether multiplying a series by a constant leaves its points as they are: never."""
        return False

    def fit(self, X: object, y: object = None) -> TakensEmbedding:
        """Check that the series are as long as a window.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_users, n_timestamps)
        y : None
            Ignored.

        Raises
        ------
        InputError
            If `X` is no usage matrix, or its series are shorter than one window.
        """
        self.n_timestamps_ = as_matrix(X).values.shape[1]
        self.transform(X)
        return self

    def transform(self, X: object) -> FloatArray:
        """Return the windows of each series.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_users, n_timestamps)

        Returns
        -------
        ndarray, shape (n_users, n_points, dimension)
            A read-only view.
        """
        return _windows(as_matrix(X).values, self.dimension, self.time_delay, self.stride)


class Landmarks(NamedTuple):
    """Points that stand for a cloud: their ``indices``, ``distances`` between them, and the covering ``radius``."""

    indices: IntArray
    distances: FloatArray
    radius: float


def maxmin_landmarks(points: object, n_landmarks: int | None = 64) -> Landmarks:
    """Choose points so that every point has one near: each next one is the farthest from those before.

    Parameters
    ----------
    points : array-like, shape (n_points, n_dimensions)
        The cloud.
    n_landmarks : int or None, default=64
        How many at most; None takes every distinct point. Copies of a point are never taken.

    Returns
    -------
    indices : ndarray of int, shape (n_landmarks,)
        Rows of `points`, the first one first.
    distances : ndarray, shape (n_landmarks, n_landmarks)
        Euclidean distances between them.
    radius : float
        No point is farther than this from its nearest landmark; 0 when every distinct point is one.

    Raises
    ------
    InputError
        If there are no points, or they are not finite.

    Notes
    -----
    The Hausdorff distance of cloud and landmarks is at most `radius`, so the bottleneck distance of their Vietoris-Rips
    diagrams (with the diameter as filtration value) is at most twice that, in every dimension.

    References
    ----------
    T. F. Gonzalez, *Clustering to minimize the maximum intercluster distance*, Theoretical Computer Science 38, 1985;
    F. Chazal, V. de Silva, S. Oudot, *Persistence stability for geometric complexes*, Geometriae Dedicata 173, 2014.

    Examples
    --------
    >>> landmarks = maxmin_landmarks([[0.0], [1.0], [10.0], [10.0]], n_landmarks=2)
    >>> landmarks.indices.tolist(), landmarks.radius
    ([0, 2], 1.0)
    """
    cloud = np.asarray(points, dtype=float)
    if cloud.ndim != 2 or not cloud.size or not np.isfinite(cloud).all():
        raise InputError(f"points must be finite numbers, shape (n_points, n_dimensions); got shape {cloud.shape}.")
    limit = len(cloud)
    if n_landmarks is not None:
        limit = min(limit, int(check_number("n_landmarks", n_landmarks, 1, integer=True)))
    indices, rows = np.empty(limit, dtype=np.int64), np.empty((limit, len(cloud)))
    count, radius = spread_out(np.ascontiguousarray(cloud.T), indices, rows)
    indices = indices[:count]
    return Landmarks(indices, rows[:count][:, indices], radius)
