"""What can be said of the next bins without asking anybody else: a few forecasts to be weighed against one another."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.forecast.base.forecaster import last_known
from gpudemand.forecast.base.panel import known_mean
from gpudemand.forecast.classical.baselines import mean_profile

#: How far the level of all forecasts may be moved.
_LEVELS = (0.5, 2.0)
_CHANCE = 0.1


def summaries(y: FloatArray, h: int, season: int, week: int, *, n_profiles: int = 7) -> FloatArray:
    """Plain forecasts from each series' own past.

    The newest value; the values one season and one week ago; the mean season, and its value at the newest bin (the
    three make up "newest value, moved along the profile"); the means of one season, of four, and of everything.

    Parameters
    ----------
    y : ndarray of shape (n_series, n_times)
        NaN where missing.
    h : int
    season, week : int
        Bins; `week` counts when it is longer than `season`.
    n_profiles : int, default=7
        Seasons in the mean season.

    Returns
    -------
    ndarray of shape (n_series, h, n_forecasts)
        As many for every history, so that weights learned at one origin can be used at another.
    """
    newest = last_known(y)
    filled = np.where(np.isnan(y), known_mean(y), y)
    profile = _profile(filled, season, n_profiles)
    flat = [newest, profile[:, -1:], *(known_mean(y[:, -n:]) for n in (season, 4 * season, y.shape[1]))]
    paths = [_again(filled, season, h), profile[:, np.arange(h) % season]]
    if week > season:
        paths.append(_again(filled, week, h))
    return np.stack([*(np.repeat(column, h, axis=1) for column in flat), *paths], axis=-1)


def by_horizon(forecasts: FloatArray) -> FloatArray:
    """Let a forecast weigh more early or late: each one fading out and fading in, shape (..., h, 2 * n_forecasts)."""
    h = forecasts.shape[-2]
    late = (np.arange(h) / max(h - 1, 1))[:, None]
    return np.concatenate([forecasts * (1 - late), forecasts * late], axis=-1)


def mixed(forecasts: FloatArray, weights: FloatArray, odds: FloatArray) -> FloatArray:
    """Forecast of each user by the clusters she may be in.

    Parameters
    ----------
    forecasts : ndarray of shape (n_series, ..., h, n_forecasts)
    weights : ndarray of shape (n_clusters, 2 * n_forecasts)
    odds : ndarray of shape (n_series, n_clusters)

    Returns
    -------
    ndarray of shape (n_series, ..., h)
    """
    return np.asarray(np.einsum("n...p,np->n...", by_horizon(forecasts), odds @ weights, optimize=True))


def level_factor(truth: FloatArray, path: FloatArray) -> float:
    """What forecasts of the past must be multiplied by to sum to what came: regressions that mind no burst fall short.

    One number for all, within bounds; 1 where it would be within a tenth of that, and where series are negative.
    """
    said = np.where(np.isnan(truth), 0.0, np.maximum(path, 0.0)).sum()
    if said <= 0 or np.nanmin(truth) < 0:
        return 1.0
    factor = float(np.clip(np.nansum(truth) / said, *_LEVELS))
    # Small differences are chance, and moving steady users by a few per cent costs them much.
    return factor if abs(np.log(factor)) > _CHANCE else 1.0


def agreed_factor(truth: FloatArray, path: FloatArray, unit: FloatArray) -> float:
    """`level_factor` as far as it lowers squared errors, too: the sum of a few bursts says nothing of the others.

    Parameters
    ----------
    truth, path : ndarray of shape (n_series, ...)
        NaN in `truth` where it is unknown.
    unit : ndarray of shape (n_series, ...)
        Of each series' errors; infinite for one that does not count.

    Examples
    --------
    All of 50 users buy half of what was said; then one user does as all did before, fiftyfold:

    >>> said, one = np.ones((50, 4)), np.ones((50, 1))
    >>> agreed_factor(said / 2, said, one)
    0.5
    >>> burst, unit = said.copy(), one.copy()
    >>> burst[0, 0], unit[0] = 51, 25
    >>> level_factor(burst, said), round(agreed_factor(burst, said, unit), 2)
    (1.25, 1.0)
    """
    if np.isnan(truth).all():
        return 1.0
    factor = level_factor(truth, path)
    said = np.where(np.isnan(truth), 0.0, np.maximum(path, 0.0)) / unit
    slope = float((np.nan_to_num(truth) / unit * said).sum() / max(np.square(said).sum(), np.finfo(float).tiny))
    return float(np.clip(slope, min(1.0, factor), max(1.0, factor)))


def _again(y: FloatArray, season: int, h: int) -> FloatArray:
    last = y[:, -min(season, y.shape[1]) :]
    return last[:, np.arange(h) % last.shape[1]]


def _profile(y: FloatArray, season: int, n_profiles: int) -> FloatArray:
    whole = min(y.shape[1] // season, n_profiles)
    return mean_profile(y[:, -whole * season :], season) if whole else np.repeat(known_mean(y), season, axis=1)
