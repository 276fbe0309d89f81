"""Holt-Winters smoothing with a damped trend and an additive season: its compiled recursions, and their fit."""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np
from scipy.optimize import minimize

from gpudemand._compiled import compiled
from gpudemand._typing import FloatArray

#: Values that the initial level and trend are fitted to, and most seasons that the initial season is the mean of.
START, _START_SEASONS = 10, 5
#: Range of the damping: the default bounds of statsmodels' ``ExponentialSmoothing``.
_DAMPING = (0.8, 0.995)
#: Where the search for parameters begins: in the middle of their ranges.
_START_PLACE = np.full(4, 0.5)
#: So tight that the fit does not depend on rounding.
_TOLERANCE = {"xtol": 1e-6, "ftol": 1e-12}


def fit_and_forecast(y: FloatArray, h: int, season: int) -> FloatArray:
    """Forecast with the parameters of the smallest squared errors one step ahead.

    Parameters
    ----------
    y : ndarray of shape (n_times,)
        At least `START` values, and two seasons more with a season.
    h : int
    season : int
        Bins in a season; 1 for none.

    Returns
    -------
    ndarray of shape (h,)
    """
    level, trend, seasonal, damping = _fitted(np.asarray(y, dtype=float).tobytes(), season)
    steps = np.arange(h)
    return level + trend * np.cumsum(damping ** (steps + 1)) + seasonal[(len(y) + steps) % season]


@lru_cache(maxsize=1024)
def _fitted(values: bytes, season: int) -> tuple[float, float, FloatArray, float]:
    """Level, trend and season after the last value, and the damping; windows of a backtest share earlier origins."""
    y = np.frombuffer(values).copy()
    state, seasonal = initial_state(y, season)
    weights = fit_parameters(y, state, seasonal)
    level, trend, seasonal, _ = smooth(y, state, seasonal, weights)
    return level, trend, seasonal, weights[3]


def fit_parameters(y: FloatArray, state: FloatArray, seasonal: FloatArray) -> tuple[float, float, float, float]:
    """Weights of level, trend and season, and the damping, of the least sum of squared errors."""
    place = minimize(partial(_loss, y, state, seasonal), _START_PLACE, method="Powell", options=_TOLERANCE).x
    return parameters(place, len(seasonal))


def initial_state(y: FloatArray, season: int) -> tuple[FloatArray, FloatArray]:
    """Level and trend, shape (2,), and season, shape (season,), before the first value.

    The season is the mean deviation of each phase from the centred moving average over a season, whose first values are
    regressed on time.

    References
    ----------
    Hyndman, Koehler, Ord and Snyder, "Forecasting with Exponential Smoothing" (2008), section 2.6.1.
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
