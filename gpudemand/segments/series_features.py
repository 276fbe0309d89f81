"""Features of usage series: days, rhythm, spectrum, persistence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from gpudemand._array import BoolArray, FloatArray, IntArray, compiled
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


def without_gaps(usage: FloatArray) -> FloatArray:
    """Return usage in double precision with zeros for missing and negative values."""
    return np.where(usage > 0, usage, 0.0).astype(np.float64, copy=False)


def quantiles(ascending: FloatArray, counts: IntArray, share: float) -> FloatArray:
    """Return a quantile of the first `counts` values of each row, by linear interpolation."""
    rank = (counts - 1) * share
    low = rank.astype(np.int64)
    high, weight, rows = np.minimum(low + 1, counts - 1), rank - low, np.arange(len(ascending))
    return np.asarray(ascending[rows, low] * (1.0 - weight) + ascending[rows, high] * weight)


def positive_values(usage: FloatArray) -> FloatArray:
    """Return the positive values of each row in ascending order, then infinity."""
    return np.sort(np.where(usage > 0, usage, np.inf), axis=1)


def log_scaled(usage: FloatArray, positive: FloatArray) -> FloatArray:
    """Return log(1 + usage / median of the `positive_values` of the row); each row has one."""
    return np.log1p(usage / quantiles(positive, np.isfinite(positive).sum(axis=1), 0.5)[:, None])


def moving_means(
    values: FloatArray | BoolArray, width: int, first: IntArray | int = 0, after: IntArray | None = None
) -> FloatArray:
    """Return the centred moving mean of each row over its values from `first` to before `after`, fewer at the ends."""
    n = values.shape[1]
    total = np.zeros((len(values), n + 1))
    np.cumsum(values, axis=1, out=total[:, 1:])
    begin, end = np.reshape(first, (-1, 1)), np.reshape(n if after is None else after, (-1, 1))
    low, high = (np.clip(np.arange(n) + shift, begin, end) for shift in (-(width // 2), (width + 1) // 2))
    sums = np.take_along_axis(total, high, axis=1) - np.take_along_axis(total, low, axis=1)
    return np.asarray(sums / np.maximum(high - low, 1))


def correlations(left: FloatArray, right: FloatArray, among: BoolArray) -> FloatArray:
    """Return the Pearson correlation of each row over the values of a mask; 0 where one is constant."""
    n = among.sum(axis=1)
    left, right = (
        np.where(among, side - (np.where(among, side, 0.0).sum(axis=1) / n)[:, None], 0.0) for side in (left, right)
    )
    size = np.sqrt((left * left).sum(axis=1) * (right * right).sum(axis=1))
    varies = size > 1e-9 * n
    return np.where(varies, (left * right).sum(axis=1) / np.where(varies, size, 1.0), 0.0)


class _Spans:
    """Rows of usage, none without use, between first and last use; zeros outside."""

    def __init__(self, values: FloatArray) -> None:
        self.usage = without_gaps(values)
        self.active = self.usage > 0
        self.n_active = self.active.sum(axis=1)
        self.first = self.active.argmax(axis=1)
        self.after = values.shape[1] - self.active[:, ::-1].argmax(axis=1)
        self.size = self.after - self.first
        place = np.arange(values.shape[1])
        self.inside = (place >= self.first[:, None]) & (place < self.after[:, None])
        self.positive = positive_values(self.usage)
        self.level = log_scaled(self.usage, self.positive)

    def centred(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Deviations from the mean of each span, zeros outside, and their variances."""
        mean = np.where(self.inside, values, 0.0).sum(axis=1) / self.size
        deviations = np.where(self.inside, values - mean[:, None], 0.0)
        return deviations, (deviations**2).sum(axis=1) / self.size

    def weekday_frequency(self, weekdays: IntArray) -> tuple[FloatArray, FloatArray]:
        """Share of active weekdays and its excess over weekends, each with one pseudo-day at their mean."""
        mean = self.n_active / self.size
        shares = [
            (self.active[:, days].sum(axis=1) + mean) / (self.inside[:, days].sum(axis=1) + 1.0)
            for days in (weekdays < SATURDAY, weekdays >= SATURDAY)
        ]
        return shares[0], shares[0] - shares[1]

    def idle_runs(self) -> tuple[FloatArray, FloatArray]:
        """Log mean length of the idle runs, with one pseudo-run, and their shrunk coefficient of variation."""
        row, day = np.nonzero(self.active)
        run, same = np.diff(day) - 1.0, np.diff(row) == 0
        row, run = row[1:][same & (run > 0)], run[same & (run > 0)]
        count, total, squares = (np.bincount(row, run**power, len(self.active)) for power in range(3))
        n = np.maximum(count, 1.0)
        mean = total / n
        deviation = np.sqrt(np.maximum(squares / n - mean**2, 0.0))
        variation = np.where(count > 1, deviation / np.maximum(mean, 1.0) * count / (count + _PRIOR_RUNS), 0.0)
        return np.log((total + 1.0) / (count + 1.0)), variation

    def amounts(self, time: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log ratio of the 90th to the 10th percentile of active days, and the trend of their logarithms."""
        ordered = np.log(self.positive)
        ratio = quantiles(ordered, self.n_active, 0.9) - quantiles(ordered, self.n_active, 0.1)
        logs = np.log(np.where(self.active, self.usage, 1.0))
        return ratio, correlations(time, logs, self.active) * shrinkage(self.n_active, _PRIOR_ACTIVE_DAYS)

    def lag1_autocorrelation(self) -> FloatArray:
        """Autocorrelation of the level at one day, shrunk for short spans; 0 for less than a week or a constant."""
        centred, variance = self.centred(self.level)
        known = (self.size >= WEEK) & (variance >= 1e-18)
        products = (centred[:, 1:] * centred[:, :-1]).sum(axis=1) / np.maximum(self.size - 1, 1)
        return np.where(known, products / np.where(known, variance, 1.0) * shrinkage(self.size, _PRIOR_DAYS), 0.0)

    def weekly_dispersion(self) -> FloatArray:
        """Log ratio of the variance of active days in seven to the binomial one; 0 for less than a week."""
        share = self.n_active / self.size
        variance = self.centred(moving_means(self.active, WEEK, self.first, self.after))[1]
        dispersion = np.log((variance * WEEK + 0.1) / (share * (1.0 - share) + 0.1))
        return np.where(self.size < WEEK, 0.0, dispersion)


def shrinkage(n: IntArray, prior: float) -> FloatArray:
    """Return the weight of a statistic of `n` values beside `prior` pseudo-values at zero."""
    return np.asarray(n / (n + prior))


def daily_rows(values: FloatArray, weekdays: IntArray, out: FloatArray) -> None:
    """Write the `DAILY_FEATURES` of each row of daily usage, NaN being missing; zeros for rows without use."""
    out[:] = 0.0
    used = (values > 0).any(axis=1)
    spans = _Spans(values[used])
    place = np.arange(values.shape[1])
    time = place - spans.first[:, None] - 0.5 * (spans.size[:, None] - 1)
    ranks = rankdata(np.where(spans.inside, spans.usage, np.inf), axis=1)
    level = spans.level.sum(axis=1)
    out[used] = np.column_stack(
        [
            np.log(spans.n_active),
            *spans.weekday_frequency(weekdays),
            *spans.idle_runs(),
            *spans.amounts(time),
            spans.lag1_autocorrelation(),
            2.0 * (time * spans.level).sum(axis=1) / (level * spans.size),
            correlations(time, ranks, spans.inside) * shrinkage(spans.n_active, _PRIOR_ACTIVE_DAYS),
            spans.weekly_dispersion(),
        ]
    )


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


def hourly_rows(values: FloatArray, angle: FloatArray, step_h: float, out: FloatArray) -> None:
    """Write the `HOURLY_FEATURES` of each row; `angle` is the time of day of each bin on the circle."""
    out[:] = 0.0
    used = (values > 0).any(axis=1)
    spans = _Spans(values[used])
    # A span begins with use, so that its first run is no rise.
    runs = 1.0 + (spans.active[:, 1:] & ~spans.active[:, :-1]).sum(axis=1) - (spans.first > 0)
    level, weight = spans.level.sum(axis=1), shrinkage(runs, _PRIOR_RUNS)
    out[used] = np.column_stack(
        [
            weight * (spans.level * np.cos(angle)).sum(axis=1) / level,
            weight * (spans.level * np.sin(angle)).sum(axis=1) / level,
            np.log((spans.n_active * step_h + 1.0) / (runs + 1.0)),
            daily_variance_share(spans, angle, step_h),
        ]
    )


def daily_variance_share(spans: _Spans, angle: FloatArray, step_h: float) -> FloatArray:
    """Return the share of the variance at one to four cycles a day; 0 for less than two days."""
    centred, power = spans.centred(spans.level)
    known = (spans.size * step_h >= 48) & (power >= 1e-12)
    squares = np.zeros(len(centred))
    for harmonic in range(1, _DAILY_HARMONICS + 1):
        for wave in (np.cos(harmonic * angle), np.sin(harmonic * angle)):
            squares += ((centred * wave).sum(axis=1) / spans.size) ** 2
    return np.where(known, np.minimum(2.0 * squares / np.where(known, power, 1.0), 1.0), 0.0)


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


def weekly_rows(values: FloatArray, out: FloatArray) -> None:
    """Write the `WEEKLY_FEATURES` of each row of daily usage."""
    out[:] = 0.0
    used = (values > 0).any(axis=1)
    usage = without_gaps(values[used])
    level = moving_means(log_scaled(usage, positive_values(usage)), WEEK)
    # Remove the rounding of differences of cumulative sums, which would have extrema.
    level = np.round(level / -level.max(axis=1, keepdims=True), 9)
    lifetimes = np.zeros((len(level), len(WEEKLY_FEATURES)))
    sum_and_largest(level, lifetimes)
    weeks = np.maximum((~np.isnan(values[used])).sum(axis=1), WEEK) / WEEK
    out[used] = lifetimes / np.column_stack([weeks, np.ones(len(level))])


@compiled
def sum_and_largest(levels: FloatArray, out: FloatArray) -> None:
    """Write sum and maximum of the sublevel lifetimes of each row, without the essential pair."""
    births, deaths = np.empty(levels.shape[1], dtype=np.int64), np.empty(levels.shape[1], dtype=np.int64)
    for row in range(len(levels)):
        level = levels[row]
        for i in range(pair(level, births, deaths)):
            lifetime = level[deaths[i]] - level[births[i]]
            out[row, 0] += lifetime
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


def multiscale_rows(values: FloatArray, weekdays: IntArray, out: FloatArray) -> None:
    """Write the `MULTISCALE_FEATURES` of each row of daily usage."""
    out[:] = 0.0
    used = (values > 0).any(axis=1)
    usage = without_gaps(values[used])
    level = log_scaled(usage, positive_values(usage))
    level /= level.max(axis=1, keepdims=True)
    features, column = np.zeros((len(level), out.shape[1])), 0
    for place, width in enumerate(WIDTHS):
        # Remove the rounding of differences of cumulative sums, which would have extrema.
        smooth = np.round(moving_means(level, width), 9)
        for side in (smooth, -smooth):
            column = lifetime_rows(side, weekdays, place < _WEEKLY, features, column)
    gap_rows(usage > 0, features[:, column:])
    out[used] = features


@compiled
def lifetime_rows(sides: FloatArray, weekdays: IntArray, weekly: bool, out: FloatArray, column: int) -> int:
    """Write the statistics of one filtration of each row from a column on; return the next one."""
    births, deaths = np.empty(sides.shape[1], dtype=np.int64), np.empty(sides.shape[1], dtype=np.int64)
    for row in range(len(sides)):
        side = sides[row]
        n_pairs = pair(side, births, deaths)
        lifetimes = side[deaths[:n_pairs]] - side[births[:n_pairs]]
        lifetime_statistics(lifetimes, births, weekdays, weekly, out[row], column)
    return column + len(_LIFETIMES) + (len(_WEEKDAYS) if weekly else 0)


@compiled
def lifetime_statistics(
    lifetimes: FloatArray, births: IntArray, weekdays: IntArray, weekly: bool, out: FloatArray, column: int
) -> None:
    """Write the statistics of the pairs of one filtration from a column on."""
    n, n_days = lifetimes.size, weekdays.size
    if n == 0 or lifetimes.max() < _LEAST:
        return
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


def gap_rows(active: BoolArray, out: FloatArray) -> None:
    """Write the statistics of the idle gaps between the active days of each row, the lifetimes of their times."""
    n_days = active.shape[1]
    row, day = np.nonzero(active)
    gap = np.diff(day)
    idle = (gap > 1) & (np.diff(row) == 0)
    row, gap = row[1:][idle], gap[idle].astype(np.float64)
    count, total = np.bincount(row, minlength=len(active)), np.bincount(row, gap, len(active))
    mean = total / np.maximum(count, 1)
    deviation = np.sqrt(np.bincount(row, (gap - mean[row]) ** 2, len(active)) / np.maximum(count, 1))
    longest = np.zeros(len(active))
    np.maximum.at(longest, row, gap)
    first, after = active.argmax(axis=1), n_days - active[:, ::-1].argmax(axis=1)
    out[:, 0], out[:, 1], out[:, 2] = np.log1p(mean), deviation / np.maximum(mean, 1.0), np.log1p(longest)
    out[:, 3], out[:, 4], out[:, 5] = count / n_days * WEEK, active.mean(axis=1), (after - 1 - first) / n_days
