"""`DoubleSeasonalSmoothing`: level, day and week smoothed exponentially, for many series and settings at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from gpudemand._typing import FloatArray, IntArray
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.seasonality import Clock, by_clock
from gpudemand.forecast.base.windows import without_gaps

_LEVEL, _SEASON, _WEEK = (0.005, 0.03, 0.1, 0.3), (0.03, 0.1, 0.25), (0.05, 0.2)
#: How much of an error lasts to the next bin.
_LASTING = (0.0, 0.8, 0.95)
#: Bins with demand after which a series' own errors count as much as those of all series in the choice of a setting.
_ENOUGH = 100
#: Series x settings that are filtered at once: what the processor's cache holds.
_LANES = 40_000


class DoubleSeasonalSmoothing(Forecaster):
    """Exponential smoothing of a level, a day and a week, and of errors that last.

    The sum of a level, a daily and a weekly pattern is corrected by every new value; what is left of an error in the
    next bin is an autoregression of order one. All settings of a small grid are run over the whole history, in one pass
    for all series, and each series takes the one whose forecasts up to a whole horizon ahead have erred least so far
    (where little has happened yet, the one that has served all series). That is what matters for a day ahead, and
    differs much from what does for an hour ahead.

    Parameters
    ----------
    season_length : int, optional
        Bins in the shorter season; by default a day for bins below a day, a week for days, a year above. A history that
        is shorter than two seasons or three weeks is smoothed without them.

    References
    ----------
    Taylor, "Short-term electricity demand forecasting using double seasonal exponential smoothing", Journal of the
    Operational Research Society 54 (2003).

    Examples
    --------
    Nights and Sundays are quiet, and the level rose lately:

    >>> import pandas as pd
    >>> hours, rng = np.arange(24 * 7 * 8), np.random.default_rng(0)
    >>> y = 50 + 10 * (hours % 24 > 8) * (hours // 24 % 7 != 6) + 20 * (hours > 24 * 49) + rng.normal(0, 1, hours.size)
    >>> ds = pd.date_range("2026-03-02", periods=hours.size, freq="h")
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": ds, "y": y})
    >>> forecast = DoubleSeasonalSmoothing().fit(usage).predict(h=24 * 7)["DoubleSeasonalSmoothing"]
    >>> monday, sunday = forecast[12], forecast[24 * 6 + 12]
    >>> bool(75 < monday < 85), bool(65 < sunday < 75)
    (True, True)
    """

    _allow_missing = True

    def __init__(self, season_length: int | None = None) -> None:
        self.season_length = season_length

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        out = np.empty((len(y), origins.size, h))
        for clock, chosen in by_clock(origins, self.season_length_, self.panel_.freq):
            last = origins[chosen].max()
            filled = without_gaps(y[:, :last], clock.season)
            settings = _settings(clock)
            width = max(_LANES // len(settings.level), 1)
            for start in range(0, len(y), width):
                rows = slice(start, start + width)
                paths = _filter(filled[rows], clock, settings, origins[chosen], h)
                for origin, path in paths:
                    out[rows, origins == origin] = path[:, None]
        return out


class _Settings(NamedTuple):
    """Smoothing weights, shape (n_settings, 1) each."""

    level: FloatArray
    season: FloatArray
    week: FloatArray
    lasting: FloatArray


def _settings(clock: Clock) -> _Settings:
    season = _SEASON if clock.season > 1 else (0.0,)
    week = _WEEK if clock.week > clock.season else (0.0,)
    grid = np.array(list(product(_LEVEL, season, week, _LASTING)))
    return _Settings(*(grid[:, [column]] for column in range(4)))


def _filter(y: FloatArray, clock: Clock, by: _Settings, origins: IntArray, h: int) -> Iterator[tuple[int, FloatArray]]:
    """Run all settings over a history, and yield each origin with the forecasts, (n_series, h), of the best so far."""
    n_settings, (n, n_times) = len(by.level), y.shape
    season, week = clock
    head = y[:, :season]
    level = np.repeat(head.mean(axis=1)[None], n_settings, axis=0)
    days = np.repeat((head - head.mean(axis=1, keepdims=True)).T[:, None], n_settings, axis=1)
    weeks = np.zeros((week, n_settings, n))
    error, missed = np.zeros((n_settings, n)), np.zeros((n_settings, n))
    leads = sorted({max(h // 4, 1), max(h // 2, 1), h})
    promised = {lead: np.zeros((lead, n_settings, n)) for lead in leads}
    waiting, steps = {int(origin) for origin in origins}, np.arange(1, h + 1)
    for now in range(n_times + 1):
        if now in waiting:
            best, series = _best(missed, np.count_nonzero(y[:, :now], axis=1)), np.arange(n)
            ahead = now + steps - 1
            lasting = by.lasting[best, 0] ** steps[:, None] * error[best, series]
            seasonal = days[ahead % season][:, best, series] + weeks[ahead % week][:, best, series]
            yield now, (level[best, series] + seasonal + lasting).T
        if now == n_times or now < season:
            continue
        value, at_day, at_week = y[:, now], now % season, now % week
        for lead in leads:
            if now >= 2 * week + lead:
                missed += np.square(value - promised[lead][now % lead])
        fresh = value - (level + days[at_day] + weeks[at_week])
        surprise = fresh - by.lasting * error
        level = level + by.level * surprise
        days[at_day] += by.season * surprise
        weeks[at_week] += by.week * surprise
        error = fresh
        for lead in leads:
            to = now + lead
            promised[lead][to % lead] = level + days[to % season] + weeks[to % week] + by.lasting**lead * error


def _best(missed: FloatArray, events: IntArray) -> IntArray:
    """Setting of each series that has missed least, (n_series,); where little has happened, that of all series."""
    typical = missed.mean(axis=0)
    shares = np.divide(missed, typical, out=np.ones_like(missed), where=typical > 0)
    of_all = np.average(shares, axis=1, weights=events + 1e-9)
    return (events * shares + _ENOUGH * of_all[:, None]).argmin(axis=0)
