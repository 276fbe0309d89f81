"""Holt-Winters smoothing with a damped trend and an additive season: its recursions and their fit, compiled."""

from __future__ import annotations

import math

import numpy as np

from gpudemand._compiled import compiled
from gpudemand._typing import FloatArray

#: Values that the initial level and trend are fitted to, and most seasons that the initial season is the mean of.
START, _START_SEASONS = 10, 5
#: Range of the damping, that of statsmodels.
_DAMPING = (0.8, 0.995)
#: Side of the first simplex, the relative spread of its losses at which the search ends, and its most steps.
_SIDE, _SPREAD, _STEPS = 0.25, 1e-6, 400


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
    state, seasonal = initial_state(y, season)
    weights = parameters(minimize_loss(y, state, seasonal), season)
    level, trend, seasonal, _ = smooth(y, state, seasonal, weights)
    steps = np.arange(h)
    return level + trend * np.cumsum(weights[3] ** (steps + 1)) + seasonal[(len(y) + steps) % season]


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


@compiled
def _moved(
    y: FloatArray, state: FloatArray, seasonal: FloatArray, simplex: FloatArray, corner: int, way: float, to: FloatArray
) -> float:
    """Loss at `to`: a corner of the simplex moved to the centre of the others, and a multiple of that way beyond."""
    for axis in range(4):
        own, others = simplex[corner, axis], -simplex[corner, axis]
        for other in range(5):
            others += simplex[other, axis]
        to[axis] = others / 4 + way * (others / 4 - own)
    return _loss(y, state, seasonal, to)


@compiled
def _replace_worst(
    y: FloatArray, state: FloatArray, seasonal: FloatArray, simplex: FloatArray, loss: FloatArray
) -> None:
    """One step of the search: the worst corner mirrored, then further if it is good, or halfway; or all shrink."""
    best, worst, place, other, n_worse = int(loss.argmin()), int(loss.argmax()), np.empty(4), np.empty(4), 0
    found = _moved(y, state, seasonal, simplex, worst, 1.0, place)
    for value in loss:
        n_worse += value > found
    if found < loss[best] or n_worse < 2:
        way = 2.0 if found < loss[best] else (0.5 if n_worse else -0.5)
        found_there = _moved(y, state, seasonal, simplex, worst, way, other)
        if found_there < found:
            found, place = found_there, other
    shrinks = found >= loss[worst]
    for corner in range(5):
        if shrinks or corner == worst:
            for axis in range(4):
                simplex[corner, axis] = (simplex[corner, axis] + simplex[best, axis]) / 2 if shrinks else place[axis]
            loss[corner] = _loss(y, state, seasonal, simplex[corner])


@compiled
def minimize_loss(y: FloatArray, state: FloatArray, seasonal: FloatArray) -> FloatArray:
    """Place of the least sum of squared errors, shape (4,), by a simplex search.

    References
    ----------
    Nelder and Mead, "A simplex method for function minimization", The Computer Journal 7 (1965).
    """
    simplex, loss = np.full((5, 4), 0.5), np.empty(5)
    for corner in range(5):
        if corner < 4:
            simplex[corner, corner] += _SIDE
        loss[corner] = _loss(y, state, seasonal, simplex[corner])
    for _ in range(_STEPS):
        if loss[loss.argmax()] <= (1 + _SPREAD) * loss[loss.argmin()]:
            break
        _replace_worst(y, state, seasonal, simplex, loss)
    return simplex[loss.argmin()]
