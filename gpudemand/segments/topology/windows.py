"""Point clouds of series: sliding-window (Takens) embedding and max-min landmarks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError, check_number
from gpudemand.segments.topology.sublevel import as_series
from gpudemand.segments.topology.sweep import maxmin_indices


def takens_embedding(y: object, *, dimension: int = 50, time_delay: int = 1, stride: int = 1) -> FloatArray:
    """Embed a series by its sliding windows.

    Parameters
    ----------
    y : array-like, shape (n_timestamps,)
        The series; NaN is propagated to the windows that contain it.
    dimension : int, default=50
        Values in a window, the dimension of the points; 50 days in Rivera-Castro et al.
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
    series, size = as_series(y), window_length(dimension, time_delay, stride)
    if series.size < size:
        raise InputError(
            f"a series of {series.size} values is shorter than one window of {size}; "
            "lower dimension or time_delay, or take a finer freq."
        )
    windows = np.lib.stride_tricks.sliding_window_view(series, size)
    return windows[(series.size - size) % int(stride) :: int(stride), :: int(time_delay)]


def window_length(dimension: int, time_delay: int, stride: int = 1) -> int:
    """Return the number of values that a window spans; raises `InputError` for invalid parameters.

    Examples
    --------
    >>> window_length(3, 2)
    5
    """
    for name, number in (("dimension", dimension), ("time_delay", time_delay), ("stride", stride)):
        check_number(name, number, 1, integer=True)
    return (int(dimension) - 1) * int(time_delay) + 1


class Landmarks(NamedTuple):
    """A subset of a point cloud: ``indices``, pairwise ``distances`` and covering ``radius``."""

    indices: IntArray
    distances: FloatArray
    radius: float


def maxmin_landmarks(points: object, n_landmarks: int | None = 64) -> Landmarks:
    """Choose landmarks by farthest-point sampling: each next one is the farthest from those before.

    Parameters
    ----------
    points : array-like, shape (n_points, n_dimensions)
        The point cloud.
    n_landmarks : int or None, default=64
        At most so many; None takes every distinct point. Duplicates are never chosen.

    Returns
    -------
    indices : ndarray of int, shape (n_landmarks,)
        Rows of `points`, the first one first.
    distances : ndarray, shape (n_landmarks, n_landmarks)
        Euclidean distances between them.
    radius : float
        Largest distance of a point to its nearest landmark; 0 when every distinct point is one.

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
    count, radius = maxmin_indices(np.ascontiguousarray(cloud.T), indices, rows)
    indices = indices[:count]
    return Landmarks(indices, rows[:count][:, indices], radius)
