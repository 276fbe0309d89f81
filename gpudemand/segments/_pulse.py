"""Compiled: the rhythm of one daily series in seventeen numbers, between its first and its last day of use."""

from __future__ import annotations

import math

import numpy as np

from gpudemand._typing import FloatArray, IntArray
from gpudemand.segments._sweep import compiled

TRAITS = (
    "span",
    "density",
    "weekday_days",
    "weekday_usage",
    "longest_gap",
    "gap_excess",
    "long_gaps",
    "clumping",
    "swing",
    "trend",
    "level_trend",
    "level_spread",
    "level_step",
    "plateaus",
    "activity_acf_1",
    "usage_acf_1",
    "usage_acf_7",
)
_SATURDAY = 5


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
def autocorrelation(series: FloatArray, lag: int) -> float:
    """Return the autocorrelation at a lag; 0 for a series that is constant or too short to tell."""
    if series.size < lag + 3:
        return 0.0
    centred = series - series.mean()
    power = (centred * centred).mean()
    return (centred[lag:] * centred[:-lag]).mean() / power if power > 1e-12 else 0.0


@compiled
def contrast(series: FloatArray, weekdays: IntArray, prior: float) -> float:
    """Return the mean from Monday to Friday minus that of the weekend, each with `prior` days of the overall mean."""
    mean = series.mean()
    sums, counts = np.full(2, prior * mean), np.full(2, prior)
    for place in range(series.size):
        side = 1 if weekdays[place] >= _SATURDAY else 0
        sums[side] += series[place]
        counts[side] += 1.0
    return sums[0] / counts[0] - sums[1] / counts[1] if weekdays[0] >= 0 and counts.min() > 0 else 0.0


@compiled
def presence(active: FloatArray, weekdays: IntArray, n_days: int, out: FloatArray) -> None:
    """Write the traits of the days in use: how many, which, and how they clump."""
    share = active.mean()
    out[0] = math.log(active.size / max(n_days, active.size) + 0.02)
    out[1] = math.log(share / (1.0 - share + 0.02) + 0.01)
    out[2] = contrast(active, weekdays, 1.0) / max(math.sqrt(share), 0.1)
    longest, gap, long_gaps = 0, 0, 0
    for value in active:
        long_gaps += 1 if value > 0 and gap >= 7 else 0
        gap = 0 if value > 0 else gap + 1
        longest = max(longest, gap)
    # The longest gap of so many days placed at random.
    expected = math.log(max(active.sum(), 2.0)) / max(-math.log(max(1.0 - share, 0.01)), 0.05)
    out[4] = math.log1p(longest)
    out[5] = math.log((longest + 1.0) / (expected + 1.0))
    out[6] = long_gaps / max(active.size / 30.0, 1.0)
    out[7] = moving_mean(active, 7).std() / max(math.sqrt(share * (1.0 - share) / 7.0), 0.05)
    out[14] = autocorrelation(active, 1)


@compiled
def flow(usage: FloatArray, weekdays: IntArray, out: FloatArray) -> None:
    """Write the traits of compressed usage, in which one huge day cannot drown the others."""
    mean = usage.mean()
    time = np.linspace(-1.0, 1.0, usage.size) if usage.size > 1 else np.zeros(1)
    out[3] = contrast(usage, weekdays, 0.0) / mean
    out[8] = moving_mean(usage, 14).std() / mean
    out[9] = (time * usage).mean() / mean
    out[15] = autocorrelation(usage, 1)
    out[16] = autocorrelation(usage, 7)


@compiled
def levels(usage: FloatArray, out: FloatArray) -> None:
    """Write the traits of the amounts on the days in use: how they drift, spread, jump and stay."""
    when = np.flatnonzero(usage > 0)
    logs = np.log(usage[when])
    if logs.size > 1:
        out[12] = np.abs(np.diff(logs)).mean()
        out[11] = np.percentile(logs, 75) - np.percentile(logs, 25)
        follows = np.diff(when) == 1
        same = (np.abs(np.diff(logs)) < 1e-6) & follows
        out[13] = math.sqrt(same.sum() / (logs.size - 1))
    if logs.size > 4:
        time = 2.0 * when / (usage.size - 1.0) - 1.0
        time = time - time.mean()
        out[10] = (time * logs).sum() / max((time * time).sum(), 1e-9)


@compiled
def pulse_rows(values: FloatArray, weekdays: IntArray, out: FloatArray) -> None:
    """Write the traits of each row of daily usage, NaN being a day not recorded; zeros without use."""
    out[:] = 0.0
    for row in range(len(values)):
        used = np.flatnonzero(values[row] > 0)
        if not used.size:
            continue
        first, last = used[0], used[-1] + 1
        usage = np.maximum(np.nan_to_num(values[row, first:last]), 0.0)
        n_days = values.shape[1] - np.isnan(values[row]).sum()
        presence((usage > 0).astype(np.float64), weekdays[first:last], n_days, out[row])
        flow(np.log1p(usage / np.median(usage[usage > 0])), weekdays[first:last], out[row])
        levels(usage, out[row])
