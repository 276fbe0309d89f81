"""The rhythm of a user in days: how much of the time, which days, how regular, growing or not; never how many GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.segments._pulse import TRAITS, pulse_rows
from gpudemand.segments._transformer import SeriesTransformer, over_rows
from gpudemand.segments.matrix import Matrix, sampling_step

_DAY = pd.Timedelta("1D")


class UsageRhythm(SeriesTransformer):
    """Seventeen traits of the days from a user's first use to the last.

    Attributes
    ----------
    n_timestamps_ : int
        Length of the series at ``fit``; nothing else is learned.

    Notes
    -----
    Series finer than a day are summed to days of the columns' time zone. Amounts enter as logarithms, or compressed as
    log(1 + usage / median of the days in use): most of a user's GPU-hours can fall on a handful of days, which would
    drown the rhythm of all the others. ``span`` is log(share of the recorded days between first and last use + 0.02),
    ``density`` a log-odds of use on a day in between, ``gap_excess`` compares the longest gap with the one expected of
    as many days at random, and ``clumping`` the weekly counts with those of a coin. Missing values count as no use. A
    user without any use has zeros.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> days = pd.date_range("2026-03-02", periods=56, freq="D")
    >>> office, steady = np.tile([8.0, 8, 8, 8, 8, 0, 0], 8), np.full(56, 8.0)
    >>> block = UsageRhythm().set_output(transform="pandas")
    >>> block.fit_transform(pd.DataFrame([office, steady], columns=days))["weekday_days"].round(1).tolist()
    [1.1, 0.0]
    """

    _non_negative = True

    @property
    def scale_free(self) -> bool:
        """Whether multiplying a series by a positive constant leaves its features as they are: always."""
        return True

    def _learn(self, matrix: Matrix) -> None:
        _days(matrix)

    def _features(self, matrix: Matrix) -> FloatArray:
        daily, weekdays = _days(matrix)
        return over_rows(pulse_rows, daily, len(TRAITS), weekdays)

    def _names(self) -> Sequence[str]:
        return TRAITS


def _days(matrix: Matrix) -> tuple[FloatArray, IntArray]:
    """Return usage by day, NaN where nothing was recorded, and the weekday of each day."""
    step = sampling_step(matrix.ds)
    if matrix.ds is None or step is None:
        raise InputError(
            "a rhythm of days needs times as columns, two at least; make the matrix with gpudemand.to_wide."
        )
    if step > _DAY:
        raise InputError(
            f"a rhythm of days needs bins of a day or less; these are {step}. Make the usage with freq='D'."
        )
    days = matrix.ds.floor("D") if matrix.ds.tz is None else matrix.ds.tz_localize(None).floor("D")
    starts = np.flatnonzero(np.append(True, days[1:] != days[:-1]))
    weekdays = np.asarray(days[starts].day_of_week, dtype=np.int64)
    return _sums(matrix.values, starts), weekdays


def _sums(values: FloatArray, starts: IntArray) -> FloatArray:
    if len(starts) == values.shape[1]:
        return values
    recorded = np.add.reduceat(~np.isnan(values), starts, axis=1)
    total = np.add.reduceat(np.nan_to_num(values), starts, axis=1)
    return np.where(recorded > 0, total, np.nan)
