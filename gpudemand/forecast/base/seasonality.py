"""Which seasons a history is long enough to show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._typing import BoolArray, IntArray
from gpudemand.forecast.base.panel import week_length


class Clock(NamedTuple):
    """Bins of a season and of a week; equal where there is no second season, and 1 where there is none."""

    season: int
    week: int


def clock_of(n_times: int, season: int, freq: pd.offsets.BaseOffset) -> Clock:
    """Seasons that a history of `n_times` bins shows: a season twice, a week three times.

    Examples
    --------
    >>> hourly = pd.tseries.frequencies.to_offset("h")
    >>> [tuple(clock_of(n, 24, hourly)) for n in (30, 60, 600)]
    [(1, 1), (24, 24), (24, 168)]
    """
    season = season if n_times >= 2 * season else 1
    week = week_length(freq)
    return Clock(season, week if 1 < season < week and 3 * week <= n_times else season)


def by_clock(origins: IntArray, season: int, freq: pd.offsets.BaseOffset) -> Iterator[tuple[Clock, BoolArray]]:
    """Origins that show the same seasons: each clock, and which of the origins have it."""
    clocks = [clock_of(int(origin), season, freq) for origin in origins]
    for clock in dict.fromkeys(clocks):
        yield clock, np.array([other == clock for other in clocks])
