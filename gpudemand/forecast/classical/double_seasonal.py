"""`DoubleSeasonalSmoothing`: exponential smoothing with two seasons and autocorrelated errors, by grid search."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from gpudemand._typing import FloatArray, IntArray
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.seasonality import Seasonality, group_by_seasonality
from gpudemand.forecast.base.windows import begun, fill_missing

#: Grid of the smoothing parameters of level, season and week, and of the autocorrelation of the errors.
_LEVEL, _SEASON, _WEEK, _AR = (0.005, 0.03, 0.1, 0.3), (0.03, 0.1, 0.25), (0.05, 0.2), (0.0, 0.8, 0.95)
#: Bins with demand at which the losses of a series weigh as much as those of all series in the selection.
_PRIOR_EVENTS = 100
#: Series x settings filtered at once; bounds memory only.
_LANES = 40_000


class DoubleSeasonalSmoothing(Forecaster):
    """Double seasonal exponential smoothing (Holt-Winters-Taylor) with AR(1) errors.

    A level, a daily and a weekly pattern are corrected by every new value; the error that remains in the next bin is an
    autoregression of order one. All settings of a small grid are filtered in one pass for all series. Each series takes
    the setting with the smallest squared errors at leads of up to the whole horizon, shrunk towards the setting that is
    best for all series where it has seen little demand.

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
    Nights and Sundays are quiet, and the level has risen:

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
        for seasonality, chosen in group_by_seasonality(origins, self.season_length_, self.panel_.freq):
            known = y[:, : origins[chosen].max()]
            filled, n_events = fill_missing(known, seasonality.season), np.cumsum(np.nan_to_num(known) != 0, axis=1)
            grid = _grid(seasonality)
            width = max(_LANES // len(grid.level), 1)
            for start in range(0, len(y), width):
                rows = slice(start, start + width)
                for origin, path in _filter(filled[rows], n_events[rows], seasonality, grid, origins[chosen], h):
                    out[rows, origins == origin] = path[:, None]
        return np.where(begun(y, origins)[..., None], out, 0.0)


class _Grid(NamedTuple):
    """Smoothing parameters of all settings, shape (n_settings, 1) each."""

    level: FloatArray
    season: FloatArray
    week: FloatArray
    ar: FloatArray


def _grid(seasonality: Seasonality) -> _Grid:
    season = _SEASON if seasonality.season > 1 else (0.0,)
    week = _WEEK if seasonality.week > seasonality.season else (0.0,)
    return _Grid(*np.array(list(product(_LEVEL, season, week, _AR))).T[..., None])


class _State(NamedTuple):
    """State of the filter under all settings, updated in place."""

    #: Shape (n_settings, n_series).
    level: FloatArray
    #: Shape (season, n_settings, n_series).
    days: FloatArray
    #: Shape (week, n_settings, n_series).
    weeks: FloatArray
    #: Error of the last bin, shape (n_settings, n_series).
    error: FloatArray


def _filter(
    y: FloatArray, n_events: IntArray, seasonality: Seasonality, grid: _Grid, origins: IntArray, h: int
) -> Iterator[tuple[int, FloatArray]]:
    """Filter a history under all settings; yield each origin with the forecasts, (n_series, h), of the best so far.

    `n_events`, shape (n_series, n_times), counts the bins with demand up to every time.
    """
    n_settings, (n, n_times) = len(grid.level), y.shape
    season, week = seasonality
    state = _initial_state(y[:, :season], week, n_settings)
    loss = np.zeros((n_settings, n))
    leads = sorted({max(h // 4, 1), max(h // 2, 1), h})
    pending = {lead: np.zeros((lead, n_settings, n)) for lead in leads}
    wanted = set(origins.tolist())
    for now in range(n_times + 1):
        if now in wanted:
            best = _best_settings(loss, n_events[:, now - 1])
            yield now, _forecast(state, grid, best, now, h)
        if now == n_times or now < season:
            continue
        value = y[:, now]
        for lead in leads:
            if now >= 2 * week + lead:
                loss += np.square(value - pending[lead][now % lead])
        _update(state, grid, value, now)
        for lead in leads:
            to = now + lead
            smoothed = state.level + state.days[to % season] + state.weeks[to % week]
            pending[lead][to % lead] = smoothed + grid.ar**lead * state.error


def _initial_state(head: FloatArray, week: int, n_settings: int) -> _State:
    """Mean and daily pattern of the first season, shape (n_series, season); no weekly pattern, no error."""
    mean = head.mean(axis=1)
    level = np.repeat(mean[None], n_settings, axis=0)
    days = np.repeat((head - mean[:, None]).T[:, None], n_settings, axis=1)
    return _State(level, days, np.zeros((week, *level.shape)), np.zeros_like(level))


def _update(state: _State, grid: _Grid, value: FloatArray, now: int) -> None:
    """Correct the state by the values of one bin, shape (n_series,)."""
    at_day, at_week = now % len(state.days), now % len(state.weeks)
    error = value - (state.level + state.days[at_day] + state.weeks[at_week])
    innovation = error - grid.ar * state.error
    state.level[...] += grid.level * innovation
    state.days[at_day] += grid.season * innovation
    state.weeks[at_week] += grid.week * innovation
    state.error[...] = error


def _forecast(state: _State, grid: _Grid, setting: IntArray, now: int, h: int) -> FloatArray:
    """Forecasts of each series under its setting for the `h` bins from `now` on, shape (n_series, h)."""
    steps, series = np.arange(1, h + 1), np.arange(setting.size)
    ahead = now + steps - 1
    remaining = grid.ar[setting, 0] ** steps[:, None] * state.error[setting, series]
    days, weeks = (pattern[ahead % len(pattern)][:, setting, series] for pattern in (state.days, state.weeks))
    return (state.level[setting, series] + (days + weeks) + remaining).T


def _best_settings(loss: FloatArray, n_events: IntArray) -> IntArray:
    """Setting of each series with the smallest relative loss, shrunk towards the mean of all series, (n_series,)."""
    typical = loss.mean(axis=0)
    relative = np.divide(loss, typical, out=np.ones_like(loss), where=typical > 0)
    pooled = np.average(relative, axis=1, weights=n_events + 1e-9)
    return (n_events * relative + _PRIOR_EVENTS * pooled[:, None]).argmin(axis=0)
