"""Persistence of the slow ups and downs of usage: the peaks of its weekly level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.segments.base.compiled import compiled
from gpudemand.segments.base.transformer import ScaleFreeTransformer, over_rows
from gpudemand.segments.base.usage_matrix import Matrix
from gpudemand.segments.features.days import compressed, moving_mean, without_gaps
from gpudemand.segments.features.rhythm import by_day, check_days
from gpudemand.segments.topology.sweep import pair, turning_points

_WEEK = 7
#: A usual value of each trait, and the difference that counts as one step between two users.
WAVE_TRAITS: Mapping[str, tuple[float, float]] = {"waves": (0.12, 0.13), "second_wave": (0.65, 1.0)}


class WeeklyPersistence(ScaleFreeTransformer):
    """Persistence of the peaks of the weekly level: the moving mean over seven days of compressed usage.

    Attributes
    ----------
    n_timestamps_ : int
        Length of the series at ``fit``; nothing else is learned.

    Notes
    -----
    Usage by day is compressed as in `UsageRhythm`, so that nights, weekends and single huge days do not count, and
    lifetimes are shares of the highest level. ``waves`` is their sum per recorded week without the essential pair,
    ``second_wave`` the largest of them: 1 for projects that come back at full height after a pause, 0 for a single one.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> days = pd.date_range("2026-03-02", periods=112, freq="D")
    >>> twice = np.repeat([8.0, 0.0, 8.0, 0.0], 28) * np.tile([1.0, 0.2], 56)
    >>> once = np.repeat([8.0, 8.0, 0.0, 0.0], 28)
    >>> block = WeeklyPersistence().set_output(transform="pandas")
    >>> block.fit_transform(pd.DataFrame([twice, once], columns=days))["second_wave"].round(1).tolist()
    [1.0, 0.0]
    """

    _non_negative = True

    def _learn(self, matrix: Matrix) -> None:
        check_days(matrix)

    def _features(self, matrix: Matrix) -> FloatArray:
        return over_rows(wave_rows, by_day(matrix)[0], len(WAVE_TRAITS))

    def _names(self) -> Sequence[str]:
        return list(WAVE_TRAITS)


@compiled
def wave_rows(values: FloatArray, out: FloatArray) -> None:
    """Write the sum per week and the largest of the lifetimes of the peaks of each row's weekly level."""
    out[:] = 0.0
    n_days = values.shape[1]
    turns, births, deaths = np.empty(n_days), np.empty(n_days), np.empty(n_days)
    for row in range(len(values)):
        if not (values[row] > 0).any():
            continue
        level = moving_mean(compressed(without_gaps(values[row])), _WEEK)
        level /= -level.max()
        # Differences of running totals leave rounding behind, and it would have peaks.
        level = np.round(level, 9)
        n_pairs = pair(turns[: turning_points(level, turns)[0]], births, deaths)
        weeks = max(n_days - np.isnan(values[row]).sum(), _WEEK) / _WEEK
        for i in range(n_pairs):
            lifetime = deaths[i] - births[i]
            out[row, 0] += lifetime / weeks
            out[row, 1] = max(out[row, 1], lifetime)
