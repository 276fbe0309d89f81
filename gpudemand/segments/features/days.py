"""Traits of the days from a user's first use to the last, compiled."""

from __future__ import annotations

import math

import numpy as np

from gpudemand._typing import FloatArray, IntArray
from gpudemand.segments.base.compiled import compiled

#: Traits of days, in the order in which `day_rows` writes them.
DAY_TRAITS = (
    "days",
    "weekdays",
    "weekend_off",
    "pause",
    "uneven_pauses",
    "spread",
    "growth",
    "memory",
    "trend",
    "rise",
    "clumping",
)
_SATURDAY, _WEEK = 5, 7
#: Pauses, days in use and days after which a trait that they make counts half.
_PAUSES_TO_TRUST, _USED_TO_TRUST, _DAYS_TO_TRUST = 3.0, 15.0, 30.0


@compiled
def without_gaps(usage: FloatArray) -> FloatArray:
    """Return usage in double precision, nothing being used where nothing was recorded."""
    return np.maximum(np.nan_to_num(usage.astype(np.float64)), 0.0)


@compiled
def span_of_use(row: FloatArray) -> tuple[int, int]:
    """Return the first bin in use and the one after the last; the same twice where there is none."""
    used = np.flatnonzero(row > 0)
    return (used[0], used[-1] + 1) if used.size else (0, 0)


@compiled
def compressed(usage: FloatArray) -> FloatArray:
    """Return log(1 + usage / median of what is above zero), in which one huge day cannot drown the others."""
    return np.log1p(usage / np.median(usage[usage > 0]))


@compiled
def moving_mean(series: FloatArray, width: int) -> FloatArray:
    """Return the centred moving mean; at the ends, over what is there."""
    total = np.zeros(series.size + 1)
    for place in range(series.size):
        total[place + 1] = total[place] + series[place]
    out = np.empty(series.size)
    for place in range(series.size):
        low, high = max(place - width // 2, 0), min(place + (width + 1) // 2, series.size)
        out[place] = (total[high] - total[low]) / (high - low)
    return out


@compiled
def ranks(series: FloatArray) -> FloatArray:
    """Return the rank of each value, that of equal ones being the mean of theirs."""
    order = np.argsort(series)
    out = np.empty(series.size)
    begin = 0
    for place in range(1, series.size + 1):
        if place == series.size or series[order[place]] != series[order[begin]]:
            out[order[begin:place]] = 0.5 * (begin + place - 1)
            begin = place
    return out


@compiled
def correlation(left: FloatArray, right: FloatArray) -> float:
    """Return the correlation of two series; 0 where one of them is constant."""
    left, right = left - left.mean(), right - right.mean()
    size = math.sqrt((left * left).sum() * (right * right).sum())
    return (left * right).sum() / size if size > 1e-9 * left.size else 0.0


@compiled
def share_on(active: FloatArray, weekdays: IntArray, out: FloatArray) -> None:
    """Write the share of weekdays in use, and how far that of weekends is below it; each with one day like the rest."""
    sums, counts = np.full(2, active.mean()), np.ones(2)
    for place in range(active.size):
        side = 1 if weekdays[place] >= _SATURDAY else 0
        sums[side] += active[place]
        counts[side] += 1.0
    out[0] = sums[0] / counts[0]
    out[1] = out[0] - sums[1] / counts[1]


@compiled
def pauses(active: FloatArray, out: FloatArray) -> None:
    """Write how long the idle stretches between first and last use are, and how uneven."""
    count, total, squares, gap = 0.0, 0.0, 0.0, 0.0
    for value in active:
        if value == 0:
            gap += 1.0
        elif gap > 0:
            count, total, squares, gap = count + 1, total + gap, squares + gap * gap, 0.0
    mean = total / max(count, 1.0)
    out[0] = math.log((total + 1.0) / (count + 1.0))
    if count > 1:
        uneven = math.sqrt(max(squares / count - mean * mean, 0.0)) / mean
        out[1] = uneven * count / (count + _PAUSES_TO_TRUST)


@compiled
def amounts(usage: FloatArray, time: FloatArray, out: FloatArray) -> None:
    """Write the spread of the amounts on the days in use, and whether they grow."""
    used = usage > 0
    logs = np.log(usage[used])
    out[0] = np.percentile(logs, 90) - np.percentile(logs, 10)
    out[1] = correlation(time[used], logs) * logs.size / (logs.size + _USED_TO_TRUST)


@compiled
def memory(level: FloatArray) -> float:
    """Return how much usage on one day says about the next: the correlation of the two, less of it for short series."""
    centred, variance = level - level.mean(), level.var()
    if level.size < _WEEK or variance < 1e-18:
        return 0.0
    return (centred[1:] * centred[:-1]).mean() / variance * level.size / (level.size + _DAYS_TO_TRUST)


@compiled
def clumping(active: FloatArray) -> float:
    """Return the log of the variance of the days in use among seven in a row, over that of a coin; 0 for fewer."""
    if active.size < _WEEK:
        return 0.0
    share = active.mean()
    return math.log((moving_mean(active, _WEEK).var() * _WEEK + 0.1) / (share * (1.0 - share) + 0.1))


@compiled
def day_rows(values: FloatArray, weekdays: IntArray, out: FloatArray) -> None:
    """Write the traits of each row of daily usage, NaN being a day not recorded; zeros without use."""
    out[:] = 0.0
    for row in range(len(values)):
        first, last = span_of_use(values[row])
        if first == last:
            continue
        usage = without_gaps(values[row, first:last])
        active: FloatArray = (usage > 0).astype(np.float64)
        time: FloatArray = np.arange(usage.size, dtype=np.float64) - 0.5 * (usage.size - 1)
        level, n_used = compressed(usage), active.sum()
        out[row, 0] = math.log(n_used)
        share_on(active, weekdays[first:last], out[row, 1:3])
        pauses(active, out[row, 3:5])
        amounts(usage, time, out[row, 5:7])
        out[row, 7] = memory(level)
        out[row, 8] = 2.0 * (time * level).mean() / (level.mean() * usage.size)
        out[row, 9] = correlation(time, ranks(usage)) * n_used / (n_used + _USED_TO_TRUST)
        out[row, 10] = clumping(active)
