"""Compiled kernels: persistence pairs of a series, their summary statistics, and max-min landmarks."""

from __future__ import annotations

import math

import numpy as np

from gpudemand._compiled import compiled
from gpudemand._typing import FloatArray, IntArray

#: The columns that `summarise` writes.
STATISTICS = ("count", "largest", "distinct", "long_lived", "mean", "sum", "std", "entropy")
#: Long-lived: at least this share of the largest lifetime (Rivera-Castro et al., arXiv:2009.03661).
_LONG_LIVED = 0.8
# Tolerances for rounding, relative to the largest lifetime, distance or value.
_SAME = 1e-9
_FLAT = 1e-12


@compiled
def turning_points(series: FloatArray, out: FloatArray) -> tuple[int, int]:
    """Write the endpoints and strict local extrema of `series` to the front of `out`, skipping NaN and plateaus.

    Returns
    -------
    n_turns, n_recorded : int
        Values written, and values that are not missing.
    """
    n, recorded = 0, 0
    for value in series:
        if math.isnan(value):
            continue
        recorded += 1
        if n > 0 and value == out[n - 1]:
            continue
        if n > 1 and (out[n - 1] > out[n - 2]) == (value > out[n - 1]):
            n -= 1
        out[n] = value
        n += 1
    return n, recorded


@compiled
def centre_and_width(series: FloatArray, scale: int) -> tuple[float, float]:
    """Return location and scale of a series; a width of zero means that it is constant.

    Code 1 scales by the mean, 2 is the z-score, 3 scales the range above the minimum to one.
    """
    low, high, total, n = np.inf, -np.inf, 0.0, 0
    for value in series:
        if not math.isnan(value):
            low, high, total, n = min(low, value), max(high, value), total + value, n + 1
    if scale == 0 or n == 0:
        return 0.0, 1.0
    mean, width = total / n, high - low
    size = max(abs(low), abs(high))
    if scale == 1:
        width = abs(mean)
    if width <= _FLAT * size:
        return low, 0.0
    if scale != 2:
        return (low if scale == 3 else 0.0), width
    squares = 0.0
    for value in series:
        if not math.isnan(value):
            squares += ((value - mean) / width) ** 2
    return mean, width * math.sqrt(squares / n)


@compiled
def pair(turns: FloatArray, births: FloatArray, deaths: FloatArray) -> int:
    """Write the finite sublevel pairs of `turns` to `births` and `deaths`; return how many there are.

    `turns` alternates between minima and maxima. At a maximum lower than the maxima on both sides two components merge,
    and the one with the higher minimum dies (elder rule). In a sweep from left to right the maxima not yet exceeded
    descend, so that a stack holds them and each is pushed and popped once: linear time without sorting.
    """
    n = turns.size
    if n < 2:
        return 0
    floors, walls = np.empty(n), np.empty(n)
    n_pairs, top = 0, 0
    first = 0 if turns[0] < turns[1] else 1
    floor = turns[first]
    for i in range(first + 1, n + 1, 2):
        # The series is bounded by an infinite wall on the right.
        wall = turns[i] if i < n - 1 else np.inf
        while top > 0 and walls[top - 1] <= wall:
            top -= 1
            births[n_pairs] = max(floors[top], floor)
            deaths[n_pairs] = walls[top]
            floor = min(floors[top], floor)
            n_pairs += 1
        if i < n - 1:
            floors[top], walls[top] = floor, wall
            top += 1
            floor = turns[i + 1]
    return n_pairs


@compiled
def summarise(lifetimes: FloatArray, same: float, out: FloatArray) -> None:
    """Write the `STATISTICS` of `lifetimes` to `out`, zeros if there are none; sorts `lifetimes` in place.

    Lifetimes that differ by at most `same` times the largest one count as one.
    """
    out[:] = 0.0
    n = lifetimes.size
    if n == 0:
        return
    lifetimes.sort()
    largest = lifetimes[n - 1]
    total, squares, distinct, long_lived = 0.0, 0.0, 1, 0
    for i in range(n):
        total += lifetimes[i]
        distinct += i > 0 and lifetimes[i] - lifetimes[i - 1] > same * largest
        long_lived += lifetimes[i] >= (1.0 - same) * _LONG_LIVED * largest
    mean = total / n
    entropy = 0.0
    for lifetime in lifetimes:
        squares += (lifetime - mean) ** 2
        entropy -= lifetime / total * math.log2(lifetime / total)
    out[0], out[1], out[2], out[3] = n, largest, distinct, long_lived
    out[4], out[5], out[6], out[7] = mean, total, math.sqrt(squares / n), max(entropy, 0.0)


@compiled
def summarise_rows(values: FloatArray, scale: int, out: FloatArray) -> None:
    """Write, for each row, the `STATISTICS` of its sublevel and superlevel pairs and the number of recorded values."""
    size, n = values.shape[1], len(STATISTICS)
    turns, births, deaths = np.empty(size), np.empty(size), np.empty(size)
    for row in range(values.shape[0]):
        n_turns, n_recorded = turning_points(values[row], turns)
        width = centre_and_width(values[row], scale)[1]
        out[row] = 0.0
        out[row, 2 * n] = n_recorded
        if width == 0.0:
            continue
        for side in range(2):
            n_pairs = pair(turns[:n_turns], births, deaths)
            for i in range(n_pairs):
                deaths[i] = (deaths[i] - births[i]) / width
            summarise(deaths[:n_pairs], _SAME, out[row, side * n : (side + 1) * n])
            turns[:n_turns] *= -1.0


@compiled
def maxmin_indices(coordinates: FloatArray, indices: IntArray, distances: FloatArray) -> tuple[int, float]:
    """Choose landmarks by the max-min rule; write their `indices` and their `distances` to all points.

    Parameters
    ----------
    coordinates : ndarray, shape (n_dimensions, n_points)
    indices : ndarray, shape (n_landmarks,)
    distances : ndarray, shape (n_landmarks, n_points)

    Returns
    -------
    count, radius : int, float
        Landmarks chosen (at most the number of distinct points), and the covering radius.
    """
    nearest = np.full(coordinates.shape[1], np.inf)
    farthest, radius, largest = 0, np.inf, 0.0
    for count in range(indices.size):
        if radius <= _SAME * largest:
            return count, 0.0
        row = distances[count]
        row[:] = 0.0
        for axis in coordinates:
            row += (axis - axis[farthest]) ** 2
        row[:] = np.sqrt(row)
        indices[count] = farthest
        largest = max(largest, row.max())
        farthest, radius = 0, 0.0
        for i in range(row.size):
            nearest[i] = min(nearest[i], row[i])
            # Ties go to the first point, independent of rounding.
            if nearest[i] > radius * (1.0 + _SAME):
                farthest, radius = i, nearest[i]
    return indices.size, radius if radius > _SAME * largest else 0.0


@compiled
def _turning_places(series: FloatArray) -> IntArray:
    """Places of the first value, of the last, and of the minima and maxima between them; the first of a plateau."""
    turns, n = np.empty(series.size, dtype=np.int64), 0
    for i in range(series.size):
        if n > 0 and series[i] == series[turns[n - 1]]:
            continue
        if n > 1 and (series[turns[n - 1]] > series[turns[n - 2]]) == (series[i] > series[turns[n - 1]]):
            n -= 1
        turns[n] = i
        n += 1
    return turns[:n]


@compiled
def pair_places(series: FloatArray, births: IntArray, deaths: IntArray) -> int:
    """Write the places of the finite sublevel pairs of a series; return how many there are.

    A pair is born at the place of a minimum and dies at that of the maximum where it merges (of a plateau, the first
    place). The values there are those that `pair` writes.
    """
    turns = _turning_places(series)
    n = turns.size
    if n < 2:
        return 0
    floors, walls = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    n_pairs, top = 0, 0
    first = 0 if series[turns[0]] < series[turns[1]] else 1
    floor = turns[first]
    for i in range(first + 1, n + 1, 2):
        inside = i < n - 1
        while top > 0 and (not inside or series[walls[top - 1]] <= series[turns[i]]):
            top -= 1
            dies, lives = floors[top], floor
            if series[dies] < series[lives]:
                dies, lives = lives, dies
            births[n_pairs], deaths[n_pairs] = dies, walls[top]
            floor = lives
            n_pairs += 1
        if inside:
            floors[top], walls[top] = floor, turns[i]
            top += 1
            floor = turns[i + 1]
    return n_pairs
