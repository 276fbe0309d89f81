"""Superlevel set persistence of the weekly moving mean of usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpudemand._compiled import compiled
from gpudemand._typing import FloatArray
from gpudemand.segments.base.transformer import SeriesTransformer, map_rows
from gpudemand.segments.base.usage_matrix import Matrix
from gpudemand.segments.features.daily import log_scaled, moving_mean, zero_filled
from gpudemand.segments.features.rhythm import by_day, check_days
from gpudemand.segments.topology.sweep import pair, turning_points

_WEEK = 7
#: Location and scale of each feature.
WEEKLY_FEATURES: Mapping[str, tuple[float, float]] = {"sum": (0.12, 0.13), "largest": (0.65, 1.0)}


class WeeklyPersistence(SeriesTransformer):
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

    _non_negative = True

    def _learn(self, matrix: Matrix) -> None:
        check_days(matrix)

    def _features(self, matrix: Matrix) -> FloatArray:
        return map_rows(weekly_rows, by_day(matrix)[0], len(WEEKLY_FEATURES))

    def _names(self) -> Sequence[str]:
        return list(WEEKLY_FEATURES)


@compiled
def weekly_rows(values: FloatArray, out: FloatArray) -> None:
    """Write the `WEEKLY_FEATURES` of each row of daily usage."""
    out[:] = 0.0
    n_days = values.shape[1]
    turns, births, deaths = np.empty(n_days), np.empty(n_days), np.empty(n_days)
    for row in range(len(values)):
        if not (values[row] > 0).any():
            continue
        level = moving_mean(log_scaled(zero_filled(values[row])), _WEEK)
        level /= -level.max()
        # Remove the rounding of differences of cumulative sums, which would have extrema.
        level = np.round(level, 9)
        n_pairs = pair(turns[: turning_points(level, turns)[0]], births, deaths)
        weeks = max(n_days - np.isnan(values[row]).sum(), _WEEK) / _WEEK
        for i in range(n_pairs):
            lifetime = deaths[i] - births[i]
            out[row, 0] += lifetime / weeks
            out[row, 1] = max(out[row, 1], lifetime)
