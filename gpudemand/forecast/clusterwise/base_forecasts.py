"""Simple base forecasts of single series, their mixture by cluster, and corrections of the common level."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.forecast.base.forecaster import last_known
from gpudemand.forecast.base.panel import row_means
from gpudemand.forecast.classical.baselines import seasonal_profile

#: Bounds of the level factor, and the absolute log factor below which it is 1.
_BOUNDS = (0.5, 2.0)
_DEADBAND = 0.1
#: Seasons in the mean season.
_SEASONS = 7


def base_forecasts(y: FloatArray, h: int, season: int, week: int) -> FloatArray:
    """Simple forecasts of each series from its own history.

    The newest value; the values one season and one week ago; the mean season and its value at the newest bin (whose
    difference, added to the newest value, is `SeasonallyAdjustedNaive`); the means of one season, of four, and of all.

    Parameters
    ----------
    y : ndarray of shape (n_series, n_times)
        NaN where missing.
    h : int
    season, week : int
        Bins; `week` counts when it is longer than `season`.

    Returns
    -------
    ndarray of shape (n_series, h, n_forecasts)
        The number of forecasts does not depend on the length of the history.
    """
    newest = last_known(y)
    filled = np.where(np.isnan(y), row_means(y), y)
    profile = _profile(filled, season)
    flat = [newest, profile[:, -1:], *(row_means(y[:, -n:]) for n in (season, 4 * season, y.shape[1]))]
    paths = [_repeated(filled, season, h), profile[:, np.arange(h) % season]]
    if week > season:
        paths.append(_repeated(filled, week, h))
    return np.stack([*(np.repeat(column, h, axis=1) for column in flat), *paths], axis=-1)


def by_horizon(forecasts: FloatArray) -> FloatArray:
    """Forecasts times weights that fall, and rise, linearly with the step, shape (..., h, 2 * n_forecasts)."""
    h = forecasts.shape[-2]
    late = (np.arange(h) / max(h - 1, 1))[:, None]
    return np.concatenate([forecasts * (1 - late), forecasts * late], axis=-1)


def mixture_forecast(forecasts: FloatArray, weights: FloatArray, probabilities: FloatArray) -> FloatArray:
    """Forecast of each user by the regressions of the clusters, averaged over the membership probabilities.

    Parameters
    ----------
    forecasts : ndarray of shape (n_series, ..., h, n_forecasts)
    weights : ndarray of shape (n_clusters, 2 * n_forecasts)
    probabilities : ndarray of shape (n_series, n_clusters)

    Returns
    -------
    ndarray of shape (n_series, ..., h)
    """
    return np.asarray(np.einsum("n...p,np->n...", by_horizon(forecasts), probabilities @ weights, optimize=True))


def level_factor(actual: FloatArray, path: FloatArray) -> float:
    """Ratio of the sums of actuals and forecasts: regressions on bounded errors under-forecast bursts.

    Clipped to [0.5, 2]; 1 where it is within ten percent of that, and where series are negative.
    """
    total = np.where(np.isnan(actual), 0.0, np.maximum(path, 0.0)).sum()
    if total <= 0 or np.nanmin(actual) < 0:
        return 1.0
    factor = float(np.clip(np.nansum(actual) / total, *_BOUNDS))
    return factor if abs(np.log(factor)) > _DEADBAND else 1.0


def _repeated(y: FloatArray, season: int, h: int) -> FloatArray:
    last = y[:, -min(season, y.shape[1]) :]
    return last[:, np.arange(h) % last.shape[1]]


def _profile(y: FloatArray, season: int) -> FloatArray:
    whole = min(y.shape[1] // season, _SEASONS)
    return seasonal_profile(y[:, -whole * season :], season) if whole else np.repeat(row_means(y), season, axis=1)
