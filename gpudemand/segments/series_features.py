"""Features of usage series: days, rhythm, spectrum, persistence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray, IntArray, compiled
from gpudemand._validation import InputError, check_number
from gpudemand.segments.topology import pair
from gpudemand.segments.usage_matrix import DAY, HOUR, Matrix, SeriesTransformer, map_rows, sampling_step

#: Days in a week, and the first of the weekend, counted from Monday as 0.
WEEK, SATURDAY = 7, 5
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
#: Pseudo-counts of the shrinkage n / (n + pseudo-count): runs (idle or active), active days, days.
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
        side = 1 if weekdays[i] >= SATURDAY else 0
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
    if level.size < WEEK or variance < 1e-18:
        return 0.0
    return (centred[1:] * centred[:-1]).mean() / variance * level.size / (level.size + _PRIOR_DAYS)


@compiled
def weekly_dispersion(active: FloatArray) -> float:
    """Return the log ratio of the variance of active days in seven to the binomial one; 0 for less than a week."""
    if active.size < WEEK:
        return 0.0
    share = active.mean()
    return math.log((moving_mean(active, WEEK).var() * WEEK + 0.1) / (share * (1.0 - share) + 0.1))


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


#: Location and scale of each feature.
HOURLY_FEATURES: Mapping[str, tuple[float, float]] = {
    "hour_cos": (0.0, 0.15),
    "hour_sin": (0.0, 0.13),
    "log_active_run": (2.3, 0.85),
    "daily_variance_share": (0.05, 0.09),
}
_DAILY_HARMONICS = 4


class _DailyTransformer(SeriesTransformer):
    """Base class of the features of days, which need bins of a day or less."""

    _non_negative = True

    def _learn(self, matrix: Matrix) -> None:
        check_days(matrix)


class UsageRhythm(_DailyTransformer):
    """Eleven features of the days between first and last use and, for bins below a day, four of the hours.

    Attributes
    ----------
    hourly_ : bool
        Whether there are hourly features.
    n_timestamps_ : int
        Length of the series at ``fit``; nothing else is learned.

    Notes
    -----
    GPU-hours of a user are heavy-tailed, so amounts enter as logarithms, as ranks, or as the *level* log(1 + usage /
    median of the active days). Missing values count as zero; a user without use has zeros. Statistics of few days are
    shrunk towards zero. The daily features are

    - ``log_active_days``: log of the number of active days;
    - ``weekday_frequency``: share of active days from Monday to Friday; ``weekend_drop``: its excess over weekends;
    - ``log_idle_run``, ``idle_run_cv``: log mean and coefficient of variation of the lengths of idle runs;
    - ``log_p90_p10``: log ratio of the 90th to the 10th percentile of active days; ``amount_trend``: correlation of the
      logarithms of their amounts with time;
    - ``lag1_autocorrelation``: of the level;
    - ``trend``: temporal centroid of the level, -1 (all at the beginning) to 1 (all at the end); ``rank_trend``: rank
      correlation of all days with time;
    - ``weekly_dispersion``: log ratio of the variance of the active days in seven to the binomial variance.

    The hourly ones are ``hour_cos`` and ``hour_sin`` (mean direction on the 24-hour circle), ``log_active_run`` (log
    mean length of the active runs, in hours) and ``daily_variance_share`` (share of the variance at one to four cycles
    a day).

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> days = pd.date_range("2026-03-02", periods=56, freq="D")
    >>> office, steady = np.tile([8.0, 8, 8, 8, 8, 0, 0], 8), np.full(56, 8.0)
    >>> block = UsageRhythm().set_output(transform="pandas")
    >>> block.fit_transform(pd.DataFrame([office, steady], columns=days))["weekend_drop"].round(1).tolist()
    [0.9, 0.0]
    """

    def _learn(self, matrix: Matrix) -> None:
        self.hourly_ = sampling_step(check_days(matrix)) < DAY

    def _features(self, matrix: Matrix) -> FloatArray:
        daily, weekdays = by_day(matrix)
        days = map_rows(daily_rows, daily, len(DAILY_FEATURES), weekdays)
        return np.hstack([days, _hours(matrix)]) if self.hourly_ else days

    def _names(self) -> Sequence[str]:
        return [*DAILY_FEATURES, *(HOURLY_FEATURES if self.hourly_ else ())]


def check_days(matrix: Matrix) -> pd.DatetimeIndex:
    """Return the times of `matrix`, at most a day apart."""
    step = sampling_step(matrix.ds)
    if matrix.ds is None or step is None:
        raise InputError("daily features need at least two times as columns; make the matrix with gpudemand.to_wide.")
    if step > DAY:
        raise InputError(f"daily features need bins of a day or less; these are {step}. Make the usage with freq='D'.")
    return matrix.ds


def by_day(matrix: Matrix) -> tuple[FloatArray, IntArray]:
    """Return daily sums, NaN where nothing was recorded, and the weekday of each day; raises as `check_days`."""
    days = check_days(matrix).tz_localize(None).floor("D")
    starts = np.flatnonzero(np.append(True, days[1:] != days[:-1]))
    weekdays = np.asarray(days[starts].day_of_week, dtype=np.int64)
    if len(starts) == matrix.values.shape[1]:
        return matrix.values, weekdays
    recorded = np.add.reduceat(~np.isnan(matrix.values), starts, axis=1)
    total = np.add.reduceat(np.nan_to_num(matrix.values), starts, axis=1)
    return np.where(recorded > 0, total, np.nan), weekdays


def _hours(matrix: Matrix) -> FloatArray:
    ds, step = matrix.ds, sampling_step(matrix.ds)
    if ds is None or step is None or step >= DAY:
        return np.tile([location for location, _ in HOURLY_FEATURES.values()], (len(matrix.values), 1))
    angle = 2 * np.pi * np.asarray(ds.hour * 60 + ds.minute, dtype=float) / 1440
    return map_rows(hourly_rows, matrix.values, len(HOURLY_FEATURES), angle, step / HOUR)


@compiled
def hourly_rows(values: FloatArray, angle: FloatArray, step_h: float, out: FloatArray) -> None:
    """Write the `HOURLY_FEATURES` of each row; `angle` is the time of day of each bin on the circle."""
    out[:] = 0.0
    for row in range(len(values)):
        first, last = active_span(values[row])
        if first == last:
            continue
        usage = log_scaled(zero_filled(values[row, first:last]))
        place = angle[first:last]
        active = (usage > 0).astype(np.float64)
        runs = 1.0 + (active[1:] > active[:-1]).sum()
        weight = runs / (runs + _PRIOR_RUNS)
        out[row, 0] = weight * (usage * np.cos(place)).sum() / usage.sum()
        out[row, 1] = weight * (usage * np.sin(place)).sum() / usage.sum()
        out[row, 2] = math.log((active.sum() * step_h + 1.0) / (runs + 1.0))
        out[row, 3] = daily_variance_share(usage - usage.mean(), place, step_h)


@compiled
def daily_variance_share(centred: FloatArray, angle: FloatArray, step_h: float) -> float:
    """Return the share of the variance at one to four cycles a day; 0 for less than two days."""
    power = (centred * centred).mean()
    if centred.size * step_h < 48 or power < 1e-12:
        return 0.0
    share = 0.0
    for harmonic in range(1, _DAILY_HARMONICS + 1):
        cosine = (centred * np.cos(harmonic * angle)).mean()
        sine = (centred * np.sin(harmonic * angle)).mean()
        share += 2.0 * (cosine * cosine + sine * sine) / power
    return min(share, 1.0)


# Lower bound of the amplitudes (white noise has 1), which keeps their logarithms from being outliers.
_FLOOR = 0.05
# Harmonics of the day, down to a period of two hours.
_HARMONICS = 12


class LogSpectrum(SeriesTransformer):
    """Log-amplitudes of the standardised series at fixed frequencies.

    Parameters
    ----------
    n_frequencies : int, default=80
        Maximum number of frequencies: first the week, the day and their harmonics, then the lowest Fourier frequencies
        of the span seen at ``fit``.

    Attributes
    ----------
    frequencies_ : ndarray of float
        Cycles per day, ascending; cycles per bin if the columns are not times.
    n_timestamps_ : int
        Length of the series at ``fit``.

    Notes
    -----
    The span is cut to whole weeks, so that day and week lie on the grid. The transform is evaluated on this grid over
    the recorded values, so that other lengths, other steps and missing values are comparable. Amplitudes are divided by
    the root of the number of values: white noise has mean square 1 at any length. They are invariant to circular shifts
    if the table covers whole weeks. A constant series has the lower bound, 0.05, everywhere.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> days = pd.date_range("2026-03-02", periods=56, freq="D")
    >>> weekly = pd.DataFrame([np.tile([3.0, 3, 3, 3, 3, 0, 0], 8)], columns=days)
    >>> block = LogSpectrum().fit(weekly)
    >>> round(1 / float(block.frequencies_[block.transform(weekly)[0].argmax()]), 6)  # days
    7.0
    """

    def __init__(self, n_frequencies: int = 80) -> None:
        self.n_frequencies = n_frequencies

    def _learn(self, matrix: Matrix) -> None:
        wanted = int(check_number("n_frequencies", self.n_frequencies, 1, integer=True))
        step = sampling_step(matrix.ds)
        days = 1.0 if step is None else step / DAY
        self.frequencies_ = _grid(self.n_timestamps_, days, wanted, calendar=step is not None)

    def _features(self, matrix: Matrix) -> FloatArray:
        angles = 2 * np.pi * np.outer(_days(matrix), self.frequencies_)
        waves = np.hstack([np.cos(angles), np.sin(angles)])
        return map_rows(_log_amplitudes, matrix.values, self.frequencies_.size, waves)

    def _names(self) -> list[str]:
        return [f"amplitude_{frequency:.5g}" for frequency in self.frequencies_]


def _days(matrix: Matrix) -> FloatArray:
    if matrix.ds is None:
        return np.arange(matrix.values.shape[1], dtype=float)
    return np.asarray((matrix.ds - matrix.ds[0]) / DAY, dtype=float)


def _grid(n_timestamps: int, days: float, wanted: int, *, calendar: bool) -> FloatArray:
    """Return at most `wanted` frequencies up to Nyquist, ascending; harmonics of week and day are chosen first."""
    span = n_timestamps * days
    span = span // WEEK * WEEK if calendar and span >= WEEK else span
    highest = 0.5 / days
    # In whole cycles per span, so that frequencies are distinct.
    cycles = np.arange(1, max(int(highest * span + 1e-9), 1) + 1)
    first = np.zeros(cycles.size, dtype=bool)
    if calendar and span >= WEEK:
        weeks = round(span / WEEK)
        first = (cycles % weeks == 0) & (cycles < WEEK * weeks)
        first |= (cycles % (WEEK * weeks) == 0) & (cycles <= _HARMONICS * WEEK * weeks)
    chosen = np.argsort(~first, kind="stable")[:wanted]
    return np.sort(cycles[chosen]) / span


def _log_amplitudes(values: FloatArray, waves: FloatArray, out: FloatArray) -> None:
    recorded = ~np.isnan(values)
    n = np.maximum(recorded.sum(axis=1, keepdims=True), 1).astype(float)
    filled = np.where(recorded, values, 0.0).astype(float)
    size = np.abs(filled).max(axis=1, keepdims=True)
    filled /= np.where(size > 0, size, 1.0)
    centred = np.where(recorded, filled - filled.sum(axis=1, keepdims=True) / n, 0.0)
    spread = np.sqrt((centred**2).sum(axis=1, keepdims=True) / n)
    flat = spread <= 1e-12
    parts = np.where(flat, 0.0, centred / np.where(flat, 1.0, spread)) @ waves
    cosine, sine = np.split(parts, 2, axis=1)
    out[:] = np.log(np.maximum(np.hypot(cosine, sine) / np.sqrt(n), _FLOOR))


#: Location and scale of each feature.
WEEKLY_FEATURES: Mapping[str, tuple[float, float]] = {"sum": (0.12, 0.13), "largest": (0.65, 1.0)}


class WeeklyPersistence(_DailyTransformer):
    """Superlevel persistence of the weekly level: the moving mean over seven days of log-scaled usage.

    Attributes
    ----------
    n_timestamps_ : int
        Length of the series at ``fit``; nothing else is learned.

    Notes
    -----
    Daily usage is log-scaled as in `UsageRhythm`, and lifetimes are shares of the maximum level. ``sum`` is the total
    lifetime per recorded week and ``largest`` the largest lifetime, both without the essential pair: ``largest`` is 1
    for use that returns to full height after an idle period, 0 for a single project.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> days = pd.date_range("2026-03-02", periods=112, freq="D")
    >>> twice = np.repeat([8.0, 0.0, 8.0, 0.0], 28) * np.tile([1.0, 0.2], 56)
    >>> once = np.repeat([8.0, 8.0, 0.0, 0.0], 28)
    >>> block = WeeklyPersistence().set_output(transform="pandas")
    >>> block.fit_transform(pd.DataFrame([twice, once], columns=days))["largest"].round(1).tolist()
    [1.0, 0.0]
    """

    _feature_names = tuple(WEEKLY_FEATURES)

    def _features(self, matrix: Matrix) -> FloatArray:
        return map_rows(weekly_rows, by_day(matrix)[0], len(WEEKLY_FEATURES))


@compiled
def weekly_rows(values: FloatArray, out: FloatArray) -> None:
    """Write the `WEEKLY_FEATURES` of each row of daily usage."""
    out[:] = 0.0
    n_days = values.shape[1]
    births, deaths = np.empty(n_days, dtype=np.int64), np.empty(n_days, dtype=np.int64)
    for row in range(len(values)):
        if not (values[row] > 0).any():
            continue
        level = moving_mean(log_scaled(zero_filled(values[row])), WEEK)
        level /= -level.max()
        # Remove the rounding of differences of cumulative sums, which would have extrema.
        level = np.round(level, 9)
        n_pairs = pair(level, births, deaths)
        weeks = max(n_days - np.isnan(values[row]).sum(), WEEK) / WEEK
        for i in range(n_pairs):
            lifetime = level[deaths[i]] - level[births[i]]
            out[row, 0] += lifetime / weeks
            out[row, 1] = max(out[row, 1], lifetime)


#: Days in the moving means; the weekdays of the pairs are features of the first `_WEEKLY` of them.
WIDTHS = (1, 3, 7, 28)
_WEEKLY = 2
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


class MultiscalePersistence(_DailyTransformer):
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

    _feature_names = MULTISCALE_FEATURES

    def _features(self, matrix: Matrix) -> FloatArray:
        daily, weekdays = by_day(matrix)
        return map_rows(multiscale_rows, daily, len(MULTISCALE_FEATURES), weekdays)


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
                n_pairs = pair(side, births, deaths)
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
        cosine += share * math.cos(2 * math.pi * day / WEEK)
        sine += share * math.sin(2 * math.pi * day / WEEK)
        weekend += share * (day >= SATURDAY)
    out[column], out[column + 1], out[column + 2] = lifetimes.max(), total / n_days * WEEK, total / n
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
    out[3], out[4] = gaps.size / n_days * WEEK, active.size / n_days
    out[5] = (active[-1] - active[0]) / n_days
