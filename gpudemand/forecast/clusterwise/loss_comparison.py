"""Errors of very different users on one scale, and whether one method is clearly better than another on it."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.forecast.base.panel import known_mean

#: Share of a series' level below which its errors do not count as small.
_LEAST = 0.05
#: Standard errors that a difference has to exceed; several methods are compared at once.
_CLEAR = 2.5


def naive_unit(y: FloatArray, season: int) -> FloatArray:
    """How far naive forecasts of each series are off, and never far below its level, shape (n_series,)."""
    wrong = [mean_square(y[:, lag:] - y[:, :-lag]) for lag in {1, season} if lag < y.shape[1]]
    level = np.abs(np.nan_to_num(y)).mean(axis=1)
    unit = np.sqrt(np.min(wrong, axis=0) + np.square(_LEAST * level))
    return np.where(unit > 0, unit, 1.0)


def mean_square(y: FloatArray) -> FloatArray:
    """Mean square of each row over what is known, shape (n_rows,); 0 where nothing is."""
    return known_mean(np.square(y))[:, 0]


def bounded_losses(wrong: FloatArray, unit: FloatArray) -> FloatArray:
    """Mean squared errors of several methods in units that no burst can exceed.

    What all methods get wrong together is part of a user's unit, so that no single user decides.

    Parameters
    ----------
    wrong : ndarray of shape (n_methods, n_users)
    unit : ndarray of shape (n_users,)

    Returns
    -------
    ndarray of shape (n_methods, n_users)
    """
    return wrong / (np.square(unit) + wrong.mean(axis=0))


def best_of(losses: FloatArray, pooled: FloatArray | None = None) -> int:
    """Method with the lowest mean loss where it is clearly better than the first one, and the first one otherwise.

    Parameters
    ----------
    losses : ndarray of shape (n_methods, n_users)
    pooled : ndarray of shape (n_methods,), optional
        Errors in which nothing that is worse than the first method can be the best.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> plain = rng.random(200)
    >>> best_of(np.stack([plain, plain + rng.normal(0, 0.1, 200)])), best_of(np.stack([plain, 0.8 * plain]))
    (0, 1)
    """
    mean = losses.mean(axis=1)
    best = int((mean if pooled is None else np.where(pooled <= pooled[0], mean, np.inf)).argmin())
    gain = losses[0] - losses[best]
    error = gain.std() / np.sqrt(gain.size)
    return best if gain.mean() > _CLEAR * error else 0
