"""The rhythm of a user: which days and hours, how even, how long, growing or not; never how many GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.segments._sweep import compiled
from gpudemand.segments._transformer import ScaleFreeTransformer, over_rows
from gpudemand.segments.matrix import Matrix, sampling_step

_DAY = pd.Timedelta("1D")
_HOUR = pd.Timedelta("1h")

#: A usual value of each trait, and the difference that counts as one step between two users.
DAY_TRAITS: Mapping[str, tuple[float, float]] = {
    "short_lived": (0.2, 0.26),
    "pause": (0.9, 1.5),
    "uneven_pauses": (0.5, 0.25),
    "long_pause": (0.25, 0.53),
    "weekend_off": (0.1, 0.15),
    "spread": (3.6, 1.05),
    "peaks": (0.45, 0.135),
    "jumps": (1.0, 0.16),
    "clumping": (0.2, 0.7),
    "trend": (0.0, 0.22),
}
HOUR_TRAITS: Mapping[str, tuple[float, float]] = {
    "midnight": (0.0, 0.15),
    "morning": (0.0, 0.13),
    "run": (2.3, 0.85),
    "daily": (0.05, 0.09),
}
_SATURDAY, _MONTH = 5, 28
#: Shares of the table below which a user was there for a while only, and above which all along.
_WHILE, _ALL_ALONG = 0.3, 0.6
#: Logarithms of the longest pause: nine days is none to speak of, 23 and more is one.
_SOME_DAYS, _WEEKS = 2.3, 3.2
_RUNS_TO_TRUST, _PAUSES_TO_TRUST, _DAYS_TO_TRUST = 3.0, 2.0, 14.0
_OVERTONES = 4


class UsageRhythm(ScaleFreeTransformer):
    """Ten traits of the days from a user's first use to the last and, for bins below a day, four of the hours.

    Attributes
    ----------
    hourly_ : bool
        Whether there are traits of hours.
    n_timestamps_ : int
        Length of the series at ``fit``; nothing else is learned.

    Notes
    -----
    Amounts enter as logarithms, or compressed as log(1 + usage / median of the days in use): most of a user's GPU-hours
    can fall on a handful of days, which would drown the rhythm of all the others. Missing values count as no use, and a
    user without any use has zeros. The traits of days are

    - ``short_lived``: 1 where first and last use are less than 30 % of the recorded days apart, 0 from 60 % on;
    - ``pause``: log of the mean number of idle days in a row; ``uneven_pauses``: their coefficient of variation
      (towards 0 where there are few);
      ``long_pause``: 0 where none is longer than nine days, 1 from 23 days on;
    - ``weekend_off``: share of days in use from Monday to Friday, minus that of weekends;
    - ``spread``: log of the 90th over the 10th percentile of the days in use; ``peaks``: share of the largest tenth of
      them in all usage;
    - ``jumps``: standard deviation of the change from one day to the next, over that of the days (compressed usage;
      1.4 is noise, 0 a slow drift), drawn towards 1 where there are few days;
    - ``clumping``: log of the variance of the days in use in four weeks, over that of a coin;
    - ``trend``: from -1 (all at the beginning) to 1 (all at the end), compressed usage.

    Those of hours are ``midnight`` and ``morning`` (mean direction of usage on the clock: 1 is all at 0:00, or at 6:00,
    and -1 is all at noon, or at 18:00), ``run`` (log of the mean hours in use in a row) and ``daily`` (share of the
    variance that repeats every day).

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> days = pd.date_range("2026-03-02", periods=56, freq="D")
    >>> office, steady = np.tile([8.0, 8, 8, 8, 8, 0, 0], 8), np.full(56, 8.0)
    >>> block = UsageRhythm().set_output(transform="pandas")
    >>> block.fit_transform(pd.DataFrame([office, steady], columns=days))["weekend_off"].round(1).tolist()
    [0.9, 0.0]
    """

    _non_negative = True

    def _learn(self, matrix: Matrix) -> None:
        self.hourly_ = sampling_step(check_days(matrix)) < _DAY

    def _features(self, matrix: Matrix) -> FloatArray:
        daily, weekdays = by_day(matrix)
        days = over_rows(day_rows, daily, len(DAY_TRAITS), weekdays)
        return np.hstack([days, _hours(matrix)]) if self.hourly_ else days

    def _names(self) -> Sequence[str]:
        return [*DAY_TRAITS, *(HOUR_TRAITS if self.hourly_ else ())]


def check_days(matrix: Matrix) -> pd.DatetimeIndex:
    """Return the times of `matrix` if they tell days apart.

    Raises
    ------
    InputError
        If the columns are no times, or more than a day apart.
    """
    step = sampling_step(matrix.ds)
    if matrix.ds is None or step is None:
        raise InputError(
            "a rhythm of days needs times as columns, two at least; make the matrix with gpudemand.to_wide."
        )
    if step > _DAY:
        raise InputError(
            f"a rhythm of days needs bins of a day or less; these are {step}. Make the usage with freq='D'."
        )
    return matrix.ds


def by_day(matrix: Matrix) -> tuple[FloatArray, IntArray]:
    """Return usage by day, NaN where nothing was recorded, and the weekday of each day; raises as `check_days`."""
    days = check_days(matrix).tz_localize(None).floor("D")
    starts = np.flatnonzero(np.append(True, days[1:] != days[:-1]))
    weekdays = np.asarray(days[starts].day_of_week, dtype=np.int64)
    return _sums(matrix.values, starts), weekdays


def _sums(values: FloatArray, starts: IntArray) -> FloatArray:
    if len(starts) == values.shape[1]:
        return values
    recorded = np.add.reduceat(~np.isnan(values), starts, axis=1)
    total = np.add.reduceat(np.nan_to_num(values), starts, axis=1)
    return np.where(recorded > 0, total, np.nan)


def _hours(matrix: Matrix) -> FloatArray:
    ds, step = matrix.ds, sampling_step(matrix.ds)
    if ds is None or step is None or step >= _DAY:
        return np.tile([middle for middle, _ in HOUR_TRAITS.values()], (len(matrix.values), 1))
    clock = 2 * np.pi * np.asarray(ds.hour * 60 + ds.minute, dtype=float) / 1440
    return over_rows(hour_rows, matrix.values, len(HOUR_TRAITS), clock, step / _HOUR)


@compiled
def without_gaps(usage: FloatArray) -> FloatArray:
    """Return usage in double precision, nothing being used where nothing was recorded."""
    return np.maximum(np.nan_to_num(usage.astype(np.float64)), 0.0)


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
def between(value: float, low: float, high: float) -> float:
    """Return 0 below `low`, 1 above `high`, and the share of the way in between."""
    return min(max((value - low) / (high - low), 0.0), 1.0)


@compiled
def pauses(active: FloatArray, out: FloatArray) -> None:
    """Write how long the idle stretches between first and last use are, how uneven, and how long the longest one."""
    count, total, squares, longest, gap = 0.0, 0.0, 0.0, 0.0, 0.0
    for value in active:
        if value == 0:
            gap += 1.0
        elif gap > 0:
            count, total, squares, longest, gap = count + 1, total + gap, squares + gap * gap, max(longest, gap), 0.0
    mean = total / max(count, 1.0)
    out[0] = math.log((total + 1.0) / (count + 1.0))
    if count > 1:
        uneven = math.sqrt(max(squares / count - mean * mean, 0.0)) / mean
        out[1] = uneven * count / (count + _PAUSES_TO_TRUST)
    out[2] = between(math.log1p(longest), _SOME_DAYS, _WEEKS)


@compiled
def weekend_off(active: FloatArray, weekdays: IntArray) -> float:
    """Return the share of days in use on weekdays minus that on weekends, each with one more day of the overall one."""
    sums, counts = np.full(2, active.mean()), np.ones(2)
    for place in range(active.size):
        side = 1 if weekdays[place] >= _SATURDAY else 0
        sums[side] += active[place]
        counts[side] += 1.0
    return sums[0] / counts[0] - sums[1] / counts[1]


@compiled
def amounts(used: FloatArray, out: FloatArray) -> None:
    """Write the spread of the amounts on the days in use, and the share of the largest tenth of them."""
    logs = np.log(used)
    out[0] = np.percentile(logs, 90) - np.percentile(logs, 10)
    most = max(math.ceil(0.1 * used.size), 1)
    out[1] = np.sort(used)[used.size - most :].sum() / used.sum()


@compiled
def course(usage: FloatArray, active: FloatArray, out: FloatArray) -> None:
    """Write how usage jumps from day to day, how the days in use clump in months, and where all of it tends."""
    spread, share = usage.std(), active.mean()
    out[0] = 1.0
    if usage.size > 2:
        ratio = np.diff(usage).std() / spread if spread > 1e-9 else 0.0
        out[0] = 1.0 + (ratio - 1.0) * usage.size / (usage.size + _DAYS_TO_TRUST)
    if usage.size >= _MONTH:
        months = moving_mean(active, _MONTH).var() * _MONTH
        out[1] = math.log((months + 0.1) / (share * (1.0 - share) + 0.1))
    if usage.size > 1:
        out[2] = (np.linspace(-1.0, 1.0, usage.size) * usage).mean() / usage.mean()


@compiled
def day_rows(values: FloatArray, weekdays: IntArray, out: FloatArray) -> None:
    """Write the traits of each row of daily usage, NaN being a day not recorded; zeros without use."""
    out[:] = 0.0
    for row in range(len(values)):
        used = np.flatnonzero(values[row] > 0)
        if not used.size:
            continue
        first, last = used[0], used[-1] + 1
        n_days = values.shape[1] - np.isnan(values[row]).sum()
        usage = without_gaps(values[row, first:last])
        active = (usage > 0).astype(np.float64)
        out[row, 0] = between(-(last - first) / max(n_days, last - first), -_ALL_ALONG, -_WHILE)
        pauses(active, out[row, 1:4])
        out[row, 4] = weekend_off(active, weekdays[first:last])
        amounts(usage[usage > 0], out[row, 5:7])
        course(compressed(usage), active, out[row, 7:10])


@compiled
def hour_rows(values: FloatArray, clock: FloatArray, step_h: float, out: FloatArray) -> None:
    """Write the traits of the hours of each row; `clock` is the time of day of each bin as an angle."""
    out[:] = 0.0
    for row in range(len(values)):
        used = np.flatnonzero(values[row] > 0)
        if not used.size:
            continue
        first, last = used[0], used[-1] + 1
        usage = compressed(without_gaps(values[row, first:last]))
        angle = clock[first:last]
        active = (usage > 0).astype(np.float64)
        runs = 1.0 + (np.diff(active) > 0).sum()
        trust = runs / (runs + _RUNS_TO_TRUST)
        out[row, 0] = trust * (usage * np.cos(angle)).sum() / usage.sum()
        out[row, 1] = trust * (usage * np.sin(angle)).sum() / usage.sum()
        out[row, 2] = math.log((used.size * step_h + 1.0) / (runs + 1.0))
        out[row, 3] = repeated(usage - usage.mean(), angle, step_h)


@compiled
def repeated(centred: FloatArray, angle: FloatArray, step_h: float) -> float:
    """Return the share of the variance at one to four cycles a day; 0 for less than two days."""
    power = (centred * centred).mean()
    if centred.size * step_h < 48 or power < 1e-12:
        return 0.0
    share = 0.0
    for overtone in range(1, _OVERTONES + 1):
        cosine = (centred * np.cos(overtone * angle)).mean()
        sine = (centred * np.sin(overtone * angle)).mean()
        share += 2.0 * (cosine * cosine + sine * sine) / power
    return min(share, 1.0)
