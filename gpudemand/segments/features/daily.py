"""Compiled features of daily usage between a user's first and last active day."""

from __future__ import annotations

import math

import numpy as np

from gpudemand._compiled import compiled
from gpudemand._typing import FloatArray, IntArray

#: Features in the order in which `daily_rows` writes them.
DAILY_FEATURES = (
    "log_active_days",
    "weekday_frequency",
    "weekend_drop",
    "log_idle_run",
    "idle_run_cv",
    "log_p90_p10",
    "amount_trend",
    "lag1_autocorrelation",
    "trend",
    "rank_trend",
    "weekly_dispersion",
)
_SATURDAY, _WEEK = 5, 7
#: Pseudo-counts of the shrinkage n / (n + pseudo-count): idle runs, active days, days.
_PRIOR_RUNS, _PRIOR_ACTIVE_DAYS, _PRIOR_DAYS = 3.0, 15.0, 30.0


@compiled
def zero_filled(usage: FloatArray) -> FloatArray:
    """Return usage in double precision with zeros for missing and negative values."""
    out = np.zeros(usage.size)
    for i in range(usage.size):
        if usage[i] > 0:
            out[i] = usage[i]
    return out


@compiled
def active_span(row: FloatArray) -> tuple[int, int]:
    """Return the first active bin and the one after the last; (0, 0) if there is none."""
    first, last = row.size, 0
    for i in range(row.size):
        if row[i] > 0:
            first, last = min(first, i), i + 1
    return min(first, last), last


@compiled
def quantile(values: FloatArray, share: float) -> float:
    """Return a quantile by linear interpolation (numba takes seconds to compile `np.median` and `np.percentile`)."""
    ordered = values[np.argsort(values)]
    rank = (ordered.size - 1) * share
    low = min(int(rank), ordered.size - 1)
    high, weight = min(low + 1, ordered.size - 1), rank - low
    return ordered[low] * (1.0 - weight) + ordered[high] * weight


@compiled
def log_scaled(usage: FloatArray) -> FloatArray:
    """Return log(1 + usage / median of the positive values)."""
    return np.log1p(usage / quantile(usage[usage > 0], 0.5))


@compiled
def moving_mean(series: FloatArray, width: int) -> FloatArray:
    """Return the centred moving mean, over the available values at the ends."""
    total = np.zeros(series.size + 1)
    for i in range(series.size):
        total[i + 1] = total[i] + series[i]
    out = np.empty(series.size)
    for i in range(series.size):
        low, high = max(i - width // 2, 0), min(i + (width + 1) // 2, series.size)
        out[i] = (total[high] - total[low]) / (high - low)
    return out


@compiled
def ranks(series: FloatArray) -> FloatArray:
    """Return the ranks from 0, ties sharing their mean rank."""
    order = np.argsort(series)
    out = np.empty(series.size)
    begin = 0
    for i in range(1, series.size + 1):
        if i == series.size or series[order[i]] != series[order[begin]]:
            out[order[begin:i]] = 0.5 * (begin + i - 1)
            begin = i
    return out


@compiled
def correlation(left: FloatArray, right: FloatArray) -> float:
    """Return the Pearson correlation; 0 where a series is constant."""
    left, right = left - left.mean(), right - right.mean()
    size = math.sqrt((left * left).sum() * (right * right).sum())
    return (left * right).sum() / size if size > 1e-9 * left.size else 0.0


@compiled
def weekday_frequencies(active: FloatArray, weekdays: IntArray, out: FloatArray) -> None:
    """Write the share of active weekdays and its excess over weekends, each with one pseudo-day at their mean."""
    sums, counts = np.full(2, active.mean()), np.ones(2)
    for i in range(active.size):
        side = 1 if weekdays[i] >= _SATURDAY else 0
        sums[side] += active[i]
        counts[side] += 1.0
    out[0] = sums[0] / counts[0]
    out[1] = out[0] - sums[1] / counts[1]


@compiled
def idle_runs(active: FloatArray, out: FloatArray) -> None:
    """Write the log mean length of the idle runs (with one pseudo-run) and their shrunk coefficient of variation."""
    count, total, squares, run = 0.0, 0.0, 0.0, 0.0
    for value in active:
        if value == 0:
            run += 1.0
        elif run > 0:
            count, total, squares, run = count + 1, total + run, squares + run * run, 0.0
    mean = total / max(count, 1.0)
    out[0] = math.log((total + 1.0) / (count + 1.0))
    if count > 1:
        variation = math.sqrt(max(squares / count - mean * mean, 0.0)) / mean
        out[1] = variation * count / (count + _PRIOR_RUNS)


@compiled
def amounts(usage: FloatArray, time: FloatArray, out: FloatArray) -> None:
    """Write the log ratio of the 90th to the 10th percentile of active days, and the trend of their logarithms."""
    active = usage > 0
    logs = np.log(usage[active])
    out[0] = quantile(logs, 0.9) - quantile(logs, 0.1)
    out[1] = correlation(time[active], logs) * logs.size / (logs.size + _PRIOR_ACTIVE_DAYS)


@compiled
def lag1_autocorrelation(level: FloatArray) -> float:
    """Return the autocorrelation at one day, shrunk for short series; 0 for less than a week or a constant."""
    centred, variance = level - level.mean(), level.var()
    if level.size < _WEEK or variance < 1e-18:
        return 0.0
    return (centred[1:] * centred[:-1]).mean() / variance * level.size / (level.size + _PRIOR_DAYS)


@compiled
def weekly_dispersion(active: FloatArray) -> float:
    """Return the log ratio of the variance of active days in seven to the binomial one; 0 for less than a week."""
    if active.size < _WEEK:
        return 0.0
    share = active.mean()
    return math.log((moving_mean(active, _WEEK).var() * _WEEK + 0.1) / (share * (1.0 - share) + 0.1))


@compiled
def daily_rows(values: FloatArray, weekdays: IntArray, out: FloatArray) -> None:
    """Write the `DAILY_FEATURES` of each row of daily usage, NaN being missing; zeros for rows without use."""
    out[:] = 0.0
    for row in range(len(values)):
        first, last = active_span(values[row])
        if first == last:
            continue
        usage = zero_filled(values[row, first:last])
        active: FloatArray = (usage > 0).astype(np.float64)
        time: FloatArray = np.arange(usage.size, dtype=np.float64) - 0.5 * (usage.size - 1)
        level, n_active = log_scaled(usage), active.sum()
        out[row, 0] = math.log(n_active)
        weekday_frequencies(active, weekdays[first:last], out[row, 1:3])
        idle_runs(active, out[row, 3:5])
        amounts(usage, time, out[row, 5:7])
        out[row, 7] = lag1_autocorrelation(level)
        out[row, 8] = 2.0 * (time * level).mean() / (level.mean() * usage.size)
        out[row, 9] = correlation(time, ranks(usage)) * n_active / (n_active + _PRIOR_ACTIVE_DAYS)
        out[row, 10] = weekly_dispersion(active)
