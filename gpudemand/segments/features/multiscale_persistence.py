"""Persistence of daily usage at several smoothings: lifetimes, when they occur, and idle times between active days."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gpudemand._compiled import compiled
from gpudemand._typing import FloatArray, IntArray
from gpudemand.segments.base.transformer import SeriesTransformer, map_rows
from gpudemand.segments.base.usage_matrix import Matrix
from gpudemand.segments.features.daily import log_scaled, moving_mean, zero_filled
from gpudemand.segments.features.rhythm import by_day, check_days
from gpudemand.segments.topology.sweep import pair_places

#: Days in the moving means; the weekdays of the pairs are features of the first `_WEEKLY` of them.
WIDTHS = (1, 3, 7, 28)
_WEEKLY, _SATURDAY, _WEEK = 2, 5, 7
_LIFETIMES = ("largest", "sum", "mean", "entropy", "count", "time_mean", "time_std")
_WEEKDAYS = ("weekday_concentration", "weekend_share")
_EVENTS = ("log_gap", "gap_cv", "log_longest_gap", "gaps_per_week", "active_share", "active_span")
#: Pairs of a shorter lifetime, relative to the range, are rounding.
_LEAST = 1e-6


def _feature_names() -> tuple[str, ...]:
    names = []
    for place, width in enumerate(WIDTHS):
        for filtration in ("sublevel", "superlevel"):
            kinds = _LIFETIMES + (_WEEKDAYS if place < _WEEKLY else ())
            names += [f"{filtration}_{width}d_{name}" for name in kinds]
    return (*names, *(f"events_{name}" for name in _EVENTS))


MULTISCALE_FEATURES = _feature_names()


class MultiscalePersistence(SeriesTransformer):
    """Sublevel and superlevel persistence of log usage at several smoothings: lifetimes, and when they occur.

    Attributes
    ----------
    n_timestamps_ : int
        Length of the series at ``fit``; nothing else is learned.

    Notes
    -----
    Daily usage is log-scaled as in `UsageRhythm`, divided by its maximum, and smoothed by moving means of 1, 3, 7 and
    28 days. For each of them and each filtration: the largest lifetime, their sum per week, mean and entropy, the log
    of their number relative to that of the days, and mean and standard deviation of the times of birth, weighted by
    lifetime, as shares of the span. At 1 and 3 days also the concentration of the births on a day of the week (length
    of the mean direction) and the share of those on weekends. The persistence of the times of the active days, whose
    lifetimes are the gaps between them, gives log mean, coefficient of variation and log maximum of the gaps, their
    number per week, and share and span of the active days. A user without use has zeros.

    References
    ----------
    J. A. Perea and J. Harer, *Sliding windows and persistence: an application of topological methods to signal
    analysis*, Foundations of Computational Mathematics 15, 2015.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> days = pd.date_range("2026-03-02", periods=56, freq="D")
    >>> office, steady = np.tile([8.0, 8, 8, 8, 8, 0, 0], 8), np.full(56, 8.0)
    >>> block = MultiscalePersistence().set_output(transform="pandas")
    >>> found = block.fit_transform(pd.DataFrame([office, steady], columns=days))
    >>> found["sublevel_1d_weekend_share"].round(2).tolist()
    [1.0, 0.0]
    """

    _non_negative = True

    def _learn(self, matrix: Matrix) -> None:
        check_days(matrix)

    def _features(self, matrix: Matrix) -> FloatArray:
        daily, weekdays = by_day(matrix)
        return map_rows(multiscale_rows, daily, len(MULTISCALE_FEATURES), weekdays)

    def _names(self) -> Sequence[str]:
        return MULTISCALE_FEATURES


@compiled
def multiscale_rows(values: FloatArray, weekdays: IntArray, out: FloatArray) -> None:
    """Write the `MULTISCALE_FEATURES` of each row of daily usage."""
    out[:] = 0.0
    births, deaths = np.empty(values.shape[1], dtype=np.int64), np.empty(values.shape[1], dtype=np.int64)
    for row in range(len(values)):
        usage = zero_filled(values[row])
        active = np.flatnonzero(usage > 0)
        if active.size == 0:
            continue
        level = log_scaled(usage)
        level /= level.max()
        column = 0
        for place in range(len(WIDTHS)):
            # Remove the rounding of differences of cumulative sums, which would have extrema.
            smooth = np.round(moving_mean(level, WIDTHS[place]), 9)
            for sign in (1.0, -1.0):
                side = sign * smooth
                n_pairs = pair_places(side, births, deaths)
                lifetimes = side[deaths[:n_pairs]] - side[births[:n_pairs]]
                column = lifetime_statistics(lifetimes, births, weekdays, place < _WEEKLY, out[row], column)
        gap_statistics(active, level.size, out[row, column:])


@compiled
def lifetime_statistics(
    lifetimes: FloatArray, births: IntArray, weekdays: IntArray, weekly: bool, out: FloatArray, column: int
) -> int:
    """Write the statistics of the pairs of one filtration from a column on; return the next one."""
    n, n_days = lifetimes.size, weekdays.size
    after = column + len(_LIFETIMES) + (len(_WEEKDAYS) if weekly else 0)
    if n == 0 or lifetimes.max() < _LEAST:
        return after
    total, cosine, sine, weekend, mean, square, entropy = lifetimes.sum(), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        share, time, day = lifetimes[i] / total, births[i] / n_days, weekdays[births[i]]
        mean += share * time
        square += share * time * time
        entropy -= share * math.log(share)
        cosine += share * math.cos(2 * math.pi * day / _WEEK)
        sine += share * math.sin(2 * math.pi * day / _WEEK)
        weekend += share * (day >= _SATURDAY)
    out[column], out[column + 1], out[column + 2] = lifetimes.max(), total / n_days * _WEEK, total / n
    out[column + 3], out[column + 4] = entropy, math.log1p(n) / math.log1p(n_days)
    out[column + 5], out[column + 6] = mean, math.sqrt(max(square - mean * mean, 0.0))
    if weekly:
        out[column + 7], out[column + 8] = math.hypot(cosine, sine), weekend
    return after


@compiled
def gap_statistics(active: IntArray, n_days: int, out: FloatArray) -> None:
    """Write the statistics of the idle gaps between active days, the lifetimes of their times."""
    gaps = np.diff(active)
    gaps = gaps[gaps > 1].astype(np.float64)
    if gaps.size > 0:
        mean = gaps.mean()
        out[0], out[1], out[2] = math.log1p(mean), gaps.std() / mean, math.log1p(gaps.max())
    out[3], out[4] = gaps.size / n_days * _WEEK, active.size / n_days
    out[5] = (active[-1] - active[0]) / n_days
