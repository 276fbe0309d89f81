"""Features of the daily and hourly pattern of usage, invariant to its scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from gpudemand._compiled import compiled
from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.segments.base.transformer import SeriesTransformer, map_rows
from gpudemand.segments.base.usage_matrix import Matrix, sampling_step
from gpudemand.segments.features.daily import DAILY_FEATURES, active_span, daily_rows, log_scaled, zero_filled

_DAY = pd.Timedelta("1D")
_HOUR = pd.Timedelta("1h")

#: Location and scale of each feature.
HOURLY_FEATURES: Mapping[str, tuple[float, float]] = {
    "hour_cos": (0.0, 0.15),
    "hour_sin": (0.0, 0.13),
    "log_active_run": (2.3, 0.85),
    "daily_variance_share": (0.05, 0.09),
}
#: Pseudo-count of the shrinkage n / (n + pseudo-count) of the mean direction, in active runs.
_PRIOR_RUNS = 3.0
_HARMONICS = 4


class UsageRhythm(SeriesTransformer):
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

    _non_negative = True

    def _learn(self, matrix: Matrix) -> None:
        self.hourly_ = sampling_step(check_days(matrix)) < _DAY

    def _features(self, matrix: Matrix) -> FloatArray:
        daily, weekdays = by_day(matrix)
        days = map_rows(daily_rows, daily, len(DAILY_FEATURES), weekdays)
        return np.hstack([days, _hours(matrix)]) if self.hourly_ else days

    def _names(self) -> Sequence[str]:
        return [*DAILY_FEATURES, *(HOURLY_FEATURES if self.hourly_ else ())]


def check_days(matrix: Matrix) -> pd.DatetimeIndex:
    """Return the times of `matrix`, at most a day apart.

    Raises
    ------
    InputError
        If the columns are not times, or more than a day apart.
    """
    step = sampling_step(matrix.ds)
    if matrix.ds is None or step is None:
        raise InputError("daily features need at least two times as columns; make the matrix with gpudemand.to_wide.")
    if step > _DAY:
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
    if ds is None or step is None or step >= _DAY:
        return np.tile([location for location, _ in HOURLY_FEATURES.values()], (len(matrix.values), 1))
    angle = 2 * np.pi * np.asarray(ds.hour * 60 + ds.minute, dtype=float) / 1440
    return map_rows(hourly_rows, matrix.values, len(HOURLY_FEATURES), angle, step / _HOUR)


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
    for harmonic in range(1, _HARMONICS + 1):
        cosine = (centred * np.cos(harmonic * angle)).mean()
        sine = (centred * np.sin(harmonic * angle)).mean()
        share += 2.0 * (cosine * cosine + sine * sine) / power
    return min(share, 1.0)
