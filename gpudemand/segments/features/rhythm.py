"""The rhythm of a user: which days and hours, how even, how long, growing or not; never how many GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.segments.base.compiled import compiled
from gpudemand.segments.base.transformer import ScaleFreeTransformer, over_rows
from gpudemand.segments.base.usage_matrix import Matrix, sampling_step
from gpudemand.segments.features.days import DAY_TRAITS, compressed, day_rows, span_of_use, without_gaps

_DAY = pd.Timedelta("1D")
_HOUR = pd.Timedelta("1h")

#: A usual value of each trait, and the difference that counts as one step between two users.
HOUR_TRAITS: Mapping[str, tuple[float, float]] = {
    "midnight": (0.0, 0.15),
    "morning": (0.0, 0.13),
    "run": (2.3, 0.85),
    "daily": (0.05, 0.09),
}
_RUNS_TO_TRUST = 3.0
_OVERTONES = 4


class UsageRhythm(ScaleFreeTransformer):
    """Eleven traits of the days from a user's first use to the last and, for bins below a day, four of the hours.

    Attributes
    ----------
    hourly_ : bool
        Whether there are traits of hours.
    n_timestamps_ : int
        Length of the series at ``fit``; nothing else is learned.

    Notes
    -----
    Amounts enter as logarithms, as ranks, or compressed as log(1 + usage / median of the days in use): most of a user's
    GPU-hours can fall on a handful of days, which would drown the rhythm of all the others. Missing values count as no
    use, and a user without any use has zeros. What few days tell is drawn towards zero. The traits of days are

    - ``days``: log of the days in use;
    - ``weekdays``: share of the days from Monday to Friday in use; ``weekend_off``: how far that of weekends is below;
    - ``pause``: log of the mean number of idle days in a row; ``uneven_pauses``: their coefficient of variation;
    - ``spread``: log of the 90th over the 10th percentile of the days in use; ``growth``: correlation of the logarithms
      of their amounts with time;
    - ``memory``: correlation of one day with the next (compressed usage);
    - ``trend``: from -1 (all at the beginning) to 1 (all at the end), compressed usage; ``rise``: correlation of the
      ranks of all days with time;
    - ``clumping``: log of the variance of the days in use among seven in a row, over that of a coin.

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
def hour_rows(values: FloatArray, clock: FloatArray, step_h: float, out: FloatArray) -> None:
    """Write the traits of the hours of each row; `clock` is the time of day of each bin as an angle."""
    out[:] = 0.0
    for row in range(len(values)):
        first, last = span_of_use(values[row])
        if first == last:
            continue
        usage = compressed(without_gaps(values[row, first:last]))
        angle = clock[first:last]
        active = (usage > 0).astype(np.float64)
        runs = 1.0 + (np.diff(active) > 0).sum()
        trust = runs / (runs + _RUNS_TO_TRUST)
        out[row, 0] = trust * (usage * np.cos(angle)).sum() / usage.sum()
        out[row, 1] = trust * (usage * np.sin(angle)).sum() / usage.sum()
        out[row, 2] = math.log((active.sum() * step_h + 1.0) / (runs + 1.0))
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
