"""Seasons that a history is long enough to show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._typing import BoolArray, IntArray
from gpudemand.forecast.base.panel import week_length


class Seasonality(NamedTuple):
    """Lengths of a season and of a week in bins; equal where there is no second season, and 1 where there is none."""

    season: int
    week: int

    @classmethod
    def observable(cls, n_times: int, season: int, freq: pd.offsets.BaseOffset) -> Seasonality:
        """Seasons shown by a history of `n_times` bins: a season twice, a week three times.

        Examples
        --------
        >>> hourly = pd.tseries.frequencies.to_offset("h")
        >>> [tuple(Seasonality.observable(n, 24, hourly)) for n in (30, 60, 600)]
        [(1, 1), (24, 24), (24, 168)]
        """
        season = season if n_times >= 2 * season else 1
        week = week_length(freq)
        return cls(season, week if 1 < season < week and 3 * week <= n_times else season)


def group_by_seasonality(
    origins: IntArray, season: int, freq: pd.offsets.BaseOffset
) -> Iterator[tuple[Seasonality, BoolArray]]:
    """Group origins by the seasons that can be observed there: each seasonality and a mask of its origins."""
    observed = [Seasonality.observable(int(origin), season, freq) for origin in origins]
    for seasonality in dict.fromkeys(observed):
        yield seasonality, np.array([other == seasonality for other in observed])
