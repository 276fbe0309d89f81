"""Exponential smoothing: ETS, Holt-Winters, double seasonal and intermittent demand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from gpudemand import _parallel
from gpudemand._array import FloatArray, IntArray, compiled
from gpudemand._validation import check_number
from gpudemand.forecast.forecaster import Forecaster, SeasonalForecaster, positive_int
from gpudemand.forecast.panel import Seasonality, fill_gaps, fill_missing, row_means

#: Values that the initial level and trend are fitted to, and most seasons that the initial season is the mean of.
START, _START_SEASONS = 10, 5
#: Range of the damping: the default bounds of statsmodels' ``ExponentialSmoothing``.
_DAMPING = (0.8, 0.995)
#: Where the search for parameters begins: in the middle of their ranges.
_START_PLACE = np.full(4, 0.5)
#: Where the search for parameters ends.
_TOLERANCE = {"xtol": 1e-4, "ftol": 1e-8}
#: Growth of a series after which earlier origins have parameters of their own. Interval scores on 42 public panels are
#: then those of a fit at each origin (80 %: +.5 % with a standard error of .3, 95 %: +.2 with .4); with 1.25 1.3 and
#: 2.0 %, with 2 6 and 8 % larger (``python -m benchmarks.forecast --track intervals``).
_GROWTH = 1.1

#: Weights of level, trend and season, and the damping.
Weights = tuple[float, float, float, float]


@lru_cache(maxsize=1024)
def _fitted(values: bytes, season: int) -> Weights:
    """Weights of a series, fitted once for points, intervals and samples."""
    y = np.frombuffer(values).copy()
    return fit_parameters(y, *initial_state(y, season))


def _smooth_and_forecast(y: FloatArray, h: int, season: int, weights: Weights) -> FloatArray:
    level, trend, seasonal, _ = smooth(y, *initial_state(y, season), weights)
    steps = np.arange(h)
    return level + trend * np.cumsum(weights[3] ** (steps + 1)) + seasonal[(len(y) + steps) % season]


def fit_parameters(y: FloatArray, state: FloatArray, seasonal: FloatArray) -> Weights:
    """Weights of level, trend and season, and the damping, of the least sum of squared errors."""
    place = minimize(partial(_loss, y, state, seasonal), _START_PLACE, method="Powell", options=_TOLERANCE).x
    return parameters(place, len(seasonal))


def initial_state(y: FloatArray, season: int) -> tuple[FloatArray, FloatArray]:
    """Level and trend, and season, before the first value, as in Hyndman et al. (2008), section 2.6.1.

    The season is the mean deviation of each phase from the centred moving average over a season, whose first values are
    regressed on time.
    """
    seasonal, half = np.zeros(season), season // 2
    if season > 1:
        n_seasons = max(min(_START_SEASONS, len(y) // season), -(-(START + 2 * half) // season))
        weights = np.full(2 * half + 1, 1.0)
        weights[[0, -1]] = 1.0 if season % 2 else 0.5
        average = np.convolve(y[: n_seasons * season], weights / season, "valid")
        deviation = np.full(n_seasons * season, np.nan)
        deviation[half : half + len(average)] = y[half : half + len(average)] - average
        seasonal = np.nanmean(deviation.reshape(n_seasons, season), axis=0)
        y, seasonal = average, seasonal - seasonal.mean()
    times = np.arange(1, START + 1)
    trend, level = np.polyfit(times, y[:START], 1)
    return np.array([level, trend]), seasonal


@compiled
def parameters(place: FloatArray, season: int) -> tuple[float, float, float, float]:
    """Weights of level, trend and season and the damping, of a place in unbounded space.

    The weight of the trend is at most that of the level, and that of the season what the level leaves of 1.
    """
    level = _between(0.0, 1.0, place[0])
    of_season = _between(0.0, 1.0 - level, place[2]) if season > 1 else 0.0
    return level, _between(0.0, level, place[1]), of_season, _between(_DAMPING[0], _DAMPING[1], place[3])


@compiled
def _between(low: float, high: float, place: float) -> float:
    return low + (high - low) * (1 - math.cos(math.pi * place)) / 2


@compiled
def smooth(
    y: FloatArray, state: FloatArray, initial: FloatArray, weights: tuple[float, float, float, float]
) -> tuple[float, float, FloatArray, float]:
    """Level, trend and season after the last value, and the sum of squared errors one step ahead."""
    level, trend, seasonal, loss, phase = state[0], state[1], initial.copy(), 0.0, 0
    of_level, of_trend, of_season, damping = weights
    for value in y:
        trend *= damping
        error = value - level - trend - seasonal[phase]
        level += trend + of_level * error
        trend += of_trend * of_level * error
        seasonal[phase] += of_season * error
        loss += error * error
        phase = (phase + 1) % len(seasonal)
    return level, trend, seasonal, loss


@compiled
def _loss(y: FloatArray, state: FloatArray, seasonal: FloatArray, place: FloatArray) -> float:
    return smooth(y, state, seasonal, parameters(place, len(seasonal)))[3]


class ETS(Forecaster):
    """Exponential smoothing with a damped trend and an additive season, fitted by least squares.

    Parameters
    ----------
    season_length : int, optional
        Bins in a season; by default a day for bins below a day, a week for days, a year above. A history of fewer than
        two seasons and ten values is smoothed without one: its first state is estimated from as many.
    max_seasons : int, default=24
        Only the newest seasons are fitted, and at least two and ten values; the cost grows with their number.
    n_jobs : int, optional
        Series fitted in parallel; None is 1.

    Notes
    -----
    For the errors behind intervals, parameters are fitted anew where a history has grown by a tenth since the last fit;
    between, only the state is updated. Fitted at each origin, intervals take three times as long and are no better
    (``python -m benchmarks.forecast --track intervals``).

    References
    ----------
    Hyndman, Koehler, Ord and Snyder, "Forecasting with Exponential Smoothing" (2008). The model is statsmodels'
    ``ExponentialSmoothing`` with its heuristic initial state; the tests compare the two.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-02", periods=56, freq="D")
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": ds, "y": np.tile([5.0, 5, 5, 5, 5, 1, 1], 8)})
    >>> ETS().fit(usage).predict(h=7)["ETS"].round(1).tolist()
    [5.0, 5.0, 5.0, 5.0, 5.0, 1.0, 1.0]
    """

    _max_origins = 16

    def __init__(self, season_length: int | None = None, max_seasons: int = 24, n_jobs: int | None = None) -> None:
        self.season_length = season_length
        self.max_seasons = max_seasons
        self.n_jobs = n_jobs

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        return self._past_paths(y, np.array([y.shape[1]]), h)[:, 0]

    def _past_paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        season, max_seasons = self.season_length_, positive_int("max_seasons", self.max_seasons)
        newest = max(season * max_seasons, _fewest(season)) if season > 1 else y.shape[1]
        smooth = partial(_ets_paths, origins=origins, h=h, season=season, newest=newest)
        return np.stack(_parallel.run(smooth, list(fill_gaps(y, season)), n_jobs=self.n_jobs))


def _fewest(season: int) -> int:
    """Values that a season needs to be fitted."""
    return 2 * season + START


def _ets_paths(y: FloatArray, origins: IntArray, h: int, season: int, newest: int) -> FloatArray:
    """Forecasts of one series from all origins, (n_origins, h), fitted anew at the last and where it has grown."""
    paths, y, n_fitted, period = np.zeros((origins.size, h)), y[: origins[-1]], 0, 0
    y = y[~np.isnan(y)]
    for path, n in zip(paths, np.maximum(origins - (origins[-1] - y.size), 0), strict=True):
        recent = y[max(n - newest, 0) : n]
        path[:] = recent[-1] if n else 0.0
        if recent.size < START or np.ptp(recent) == 0:
            continue
        shown = season if recent.size >= _fewest(season) else 1
        if n >= _GROWTH * n_fitted or shown != period or n == y.size:
            n_fitted, period, weights = n, shown, _fitted(recent.tobytes(), shown)
        found = _smooth_and_forecast(recent, h, period, weights)
        path[:] = found if np.isfinite(found).all() else path
    return paths


#: Grid of the smoothing parameters of level, season and week, and of the autocorrelation of the errors.
_LEVEL, _SEASON, _WEEK, _AR = (0.005, 0.03, 0.1, 0.3), (0.03, 0.1, 0.25), (0.05, 0.2), (0.0, 0.8, 0.95)
#: Bins with demand at which the losses of a series weigh as much as those of all series in the selection.
_PRIOR_EVENTS = 100
#: Series x settings filtered at once; bounds memory only.
_LANES = 40_000


class DoubleSeasonalSmoothing(SeasonalForecaster):
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

    def __init__(self, season_length: int | None = None) -> None:
        self.season_length = season_length

    def _seasonal_paths(self, y: FloatArray, origins: IntArray, h: int, seasonality: Seasonality) -> FloatArray:
        out, grid = np.empty((len(y), origins.size, h)), _grid(seasonality)
        filled, n_events = fill_missing(y, seasonality.season), np.cumsum(np.nan_to_num(y) != 0, axis=1)
        width = max(_LANES // len(grid.level), 1)
        for start in range(0, len(y), width):
            rows = slice(start, start + width)
            for origin, path in _filter(filled[rows], n_events[rows], seasonality, grid, origins, h):
                out[rows, origins == origin] = path[:, None]
        return out


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

    level: FloatArray  # (n_settings, n_series)
    days: FloatArray  # (season, n_settings, n_series)
    weeks: FloatArray  # (week, n_settings, n_series)
    error: FloatArray  # of the last bin, (n_settings, n_series)


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


class Zero(Forecaster):
    """Zero, the forecast that absolute errors prefer wherever most bins are empty; its bias is minus one.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-01", periods=4, freq="D")
    >>> Zero().fit(pd.DataFrame({"unique_id": "ada", "ds": ds, "y": [0.0, 0, 8, 0]})).predict(h=2)["Zero"].tolist()
    [0.0, 0.0]
    """

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        return np.zeros((len(y), h))


class HistoricMean(Forecaster):
    """Mean of the newest bins.

    Parameters
    ----------
    window : int, optional
        Number of bins; all by default.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-01", periods=4, freq="D")
    >>> usage = pd.DataFrame({"unique_id": "ada", "ds": ds, "y": [0.0, 0, 8, 0]})
    >>> HistoricMean().fit(usage).predict(h=2)["HistoricMean"].tolist()
    [2.0, 2.0]
    """

    def __init__(self, window: int | None = None) -> None:
        self.window = window

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        width = y.shape[1] if self.window is None else positive_int("window", self.window)
        return np.repeat(row_means(y[:, -width:]), h, axis=1)


class TSB(Forecaster):
    """Teunter-Syntetos-Babai: size of demand times its probability, each smoothed exponentially.

    The probability decays while there is no demand, so users who leave are forgotten.

    Parameters
    ----------
    size_weight, probability_weight : float in (0, 1], default=0.1
        Smoothing parameters of the size of demand, and of whether there is any.

    References
    ----------
    Teunter, Syntetos and Babai, "Intermittent demand: linking forecasting to inventory obsolescence", European Journal
    of Operational Research 214 (2011).

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-01", periods=60, freq="D")
    >>> usage = pd.DataFrame({"unique_id": "ada", "ds": ds, "y": [0.0, 0, 8] * 10 + [0.0] * 30})
    >>> tsb, sba = (model.fit(usage).predict(h=1).iloc[0, -1] for model in (TSB(), SBA()))
    >>> bool(tsb < 0.2), bool(sba > 2)
    (True, True)
    """

    def __init__(self, size_weight: float = 0.1, probability_weight: float = 0.1) -> None:
        self.size_weight = size_weight
        self.probability_weight = probability_weight

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        alpha, beta = _weights(self.size_weight, self.probability_weight)
        size, probability = _initial_size(y), _initial_probability(y)
        for now in y.T:
            known, some = ~np.isnan(now), np.nan_to_num(now) != 0
            probability += beta * known * (some - probability)
            size += np.where(some, alpha * (now - size), 0.0)
        return np.repeat((size * probability)[:, None], h, axis=1)


class SBA(Forecaster):
    """Syntetos-Boylan approximation of Croston's method: size of demand over the interval between demands.

    It is updated only by demand, so users who leave are never forgotten; `TSB` forgets them.

    Parameters
    ----------
    size_weight, interval_weight : float in (0, 1], default=0.1
        Smoothing parameters of the size of demand, and of the interval between demands.

    References
    ----------
    Syntetos and Boylan, "The accuracy of intermittent demand estimates", International Journal of Forecasting 21
    (2005).
    """

    def __init__(self, size_weight: float = 0.1, interval_weight: float = 0.1) -> None:
        self.size_weight = size_weight
        self.interval_weight = interval_weight

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        alpha, beta = _weights(self.size_weight, self.interval_weight)
        size, interval = _initial_size(y), 1 / np.maximum(_initial_probability(y), 1 / y.shape[1])
        elapsed = np.ones(len(y))
        for now in y.T:
            some = np.nan_to_num(now) != 0
            size += np.where(some, alpha * (now - size), 0.0)
            interval += np.where(some, beta * (elapsed - interval), 0.0)
            elapsed = np.where(some, 1.0, elapsed + ~np.isnan(now))
        return np.repeat(((1 - beta / 2) * size / interval)[:, None], h, axis=1)


def _weights(*given: float) -> list[float]:
    return [check_number("a smoothing weight", value, 0, 1, open_low=True) for value in given]


def _initial_size(y: FloatArray) -> FloatArray:
    """First non-zero demand of every series, shape (n_series,); 0 where there is none."""
    y = np.nan_to_num(y)
    return y[np.arange(len(y)), (y != 0).argmax(axis=1)]


def _initial_probability(y: FloatArray) -> FloatArray:
    """Inverse of the time to the first demand, shape (n_series,)."""
    some = np.nan_to_num(y) != 0
    began = (~np.isnan(y)).argmax(axis=1)
    return np.where(some.any(axis=1), 1 / (some.argmax(axis=1) - began + 1), 0.0)
