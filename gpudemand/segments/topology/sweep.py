"""Compiled sweeps over one series: its persistence pairs, and what is made of them without keeping them."""

from __future__ import annotations

import math

import numpy as np

from gpudemand._typing import FloatArray, IntArray
from gpudemand.segments.base.compiled import compiled

#: The columns that `summarise` writes.
STATISTICS = ("count", "largest", "distinct", "long_lived", "mean", "sum", "std", "entropy")
_LONG_LIVED = 0.8
# Differences by rounding only, relative to the largest lifetime, distance or value, are none.
_SAME = 1e-9
_FLAT = 1e-12


@compiled
def turning_points(series: FloatArray, out: FloatArray) -> tuple[int, int]:
    """Write the ends and strict local extremes of `series` to the front of `out`, skipping NaN and plateaus.

    Returns
    -------
    n_turns, n_recorded : int
        How many values were written, and how many are not missing.
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
    """Return what to subtract from a series and what to divide it by; a width of zero says that it is constant.

    Scale 1 is the mean, 2 the standard deviation around the mean, 3 the range above the minimum.
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

    `turns` rises and falls in turn. A peak that is lower than the peaks on both its sides is where two valleys meet
    first, and the shallower of them ends there. Sweeping from left to right, the peaks not yet overtopped descend, so
    a stack holds them, and every peak is pushed and popped once: linear time, no sorting.
    """
    n = turns.size
    if n < 2:
        return 0
    floors, walls = np.empty(n), np.empty(n)
    n_pairs, top = 0, 0
    first = 0 if turns[0] < turns[1] else 1
    floor = turns[first]
    for i in range(first + 1, n + 1, 2):
        # Behind the last valley, or a peak at the end, stands a wall without limit.
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
    """Write the `STATISTICS` of `lifetimes` (which it sorts) to `out`; all are zero where there are none.

    Lifetimes that differ by no more than `same` times the largest one count as one.
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
    """Write, for every row, the `STATISTICS` of valleys, those of peaks, and the number of recorded values to `out`."""
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
def _scaled_pairs(
    series: FloatArray, sign: float, scale: int, turns: FloatArray, births: FloatArray, deaths: FloatArray
) -> int:
    n_turns = turning_points(series, turns)[0]
    centre, width = centre_and_width(series, scale)
    if width == 0.0:
        return 0
    for i in range(n_turns):
        turns[i] = sign * ((turns[i] - centre) / width)
    return pair(turns[:n_turns], births, deaths)


@compiled
def spread_out(coordinates: FloatArray, indices: IntArray, distances: FloatArray) -> tuple[int, float]:
    """Choose points by the max-min rule; write their `indices` and their `distances` to all points.

    Parameters
    ----------
    coordinates : ndarray, shape (n_dimensions, n_points)
    indices : ndarray, shape (n_landmarks,)
    distances : ndarray, shape (n_landmarks, n_points)

    Returns
    -------
    count, radius : int, float
        Landmarks chosen (fewer when the points are used up), and the largest distance of a point to the nearest one.
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
            # Of points as far as each other the first one is taken, whatever the rounding.
            if nearest[i] > radius * (1.0 + _SAME):
                farthest, radius = i, nearest[i]
    return indices.size, radius if radius > _SAME * largest else 0.0


@compiled
def bounds_rows(values: FloatArray, sign: float, scale: int, out: FloatArray) -> None:
    """Write the lowest birth and the highest death of every row to `out`; NaN where there are no pairs."""
    size = values.shape[1]
    turns, births, deaths = np.empty(size), np.empty(size), np.empty(size)
    for row in range(values.shape[0]):
        n_pairs = _scaled_pairs(values[row], sign, scale, turns, births, deaths)
        out[row] = np.nan
        if n_pairs > 0:
            out[row, 0], out[row, 1] = births[:n_pairs].min(), deaths[:n_pairs].max()


@compiled
def curve_rows(values: FloatArray, sign: float, scale: int, grid: FloatArray, out: FloatArray) -> None:
    """Write how many pairs of every row live at each threshold of the ascending `grid`: the Betti curve."""
    size = values.shape[1]
    turns, births, deaths = np.empty(size), np.empty(size), np.empty(size)
    for row in range(values.shape[0]):
        out[row] = 0.0
        for i in range(_scaled_pairs(values[row], sign, scale, turns, births, deaths)):
            first, last = np.searchsorted(grid, births[i]), np.searchsorted(grid, deaths[i])
            out[row, first:last] += 1.0


@compiled
def landscape_rows(
    values: FloatArray, sign: float, scale: int, grid: FloatArray, n_layers: int, out: FloatArray
) -> None:
    """Write, for every row, the highest tents over each threshold of `grid`, layer after layer: the landscape."""
    size, n_bins = values.shape[1], grid.size
    turns, births, deaths = np.empty(size), np.empty(size), np.empty(size)
    for row in range(values.shape[0]):
        out[row] = 0.0
        for i in range(_scaled_pairs(values[row], sign, scale, turns, births, deaths)):
            for column in range(np.searchsorted(grid, births[i]), np.searchsorted(grid, deaths[i])):
                height = min(grid[column] - births[i], deaths[i] - grid[column])
                for place in range(column, n_layers * n_bins, n_bins):
                    if height > out[row, place]:
                        height, out[row, place] = out[row, place], height


@compiled
def _mass(edges: FloatArray, centre: float, sigma: float, out: FloatArray) -> None:
    below = math.erf((edges[0] - centre) / (sigma * math.sqrt(2.0)))
    for i in range(out.size):
        above = math.erf((edges[i + 1] - centre) / (sigma * math.sqrt(2.0)))
        out[i] = (above - below) / 2.0
        below = above


@compiled
def image_rows(
    values: FloatArray, sign: float, scale: int, edges: FloatArray, heights: FloatArray, sigma: float, out: FloatArray
) -> None:
    """Write, for every row, a Gaussian for each pair, as heavy as its lifetime: the persistence image.

    Lines of the image are births between `edges`, its columns lifetimes between `heights`, and a pixel holds the mass
    that falls into it.
    """
    size, n_bins = values.shape[1], heights.size - 1
    turns, births, deaths = np.empty(size), np.empty(size), np.empty(size)
    down, along = np.empty(edges.size - 1), np.empty(n_bins)
    for row in range(values.shape[0]):
        out[row] = 0.0
        for i in range(_scaled_pairs(values[row], sign, scale, turns, births, deaths)):
            lifetime = deaths[i] - births[i]
            _mass(edges, births[i], sigma, down)
            _mass(heights, lifetime, sigma, along)
            for line in range(down.size):
                out[row, line * n_bins : (line + 1) * n_bins] += lifetime * down[line] * along
