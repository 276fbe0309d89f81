"""Scaled, bounded losses of users at different levels, and selection of a method by their significance."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.forecast.base.panel import row_means

#: Smallest scale of the errors of a series, as a share of its level.
_MIN_SHARE = 0.05
#: Standard errors that a gain must exceed; larger than for one test, as several methods are compared.
_Z = 2.5


def naive_scale(y: FloatArray, season: int) -> FloatArray:
    """Root mean squared error of naive forecasts of each series, bounded below, shape (n_series,)."""
    errors = [mean_square(y[:, lag:] - y[:, :-lag]) for lag in {1, season} if lag < y.shape[1]]
    level = np.abs(np.nan_to_num(y)).mean(axis=1)
    scale = np.sqrt(np.min(errors, axis=0) + np.square(_MIN_SHARE * level))
    return np.where(scale > 0, scale, 1.0)


def mean_square(y: FloatArray) -> FloatArray:
    """Mean square of each row without missing values, shape (n_rows,); 0 for rows without a value."""
    return row_means(np.square(y))[:, 0]


def bounded_losses(errors: FloatArray, scale: FloatArray) -> FloatArray:
    """Mean squared errors of several methods, each user's scaled by their mean over methods and a given scale.

    The scaled losses are bounded by the number of methods, so that no single user decides.

    Parameters
    ----------
    errors : ndarray of shape (n_methods, n_users)
    scale : ndarray of shape (n_users,)

    Returns
    -------
    ndarray of shape (n_methods, n_users)
    """
    return errors / (np.square(scale) + errors.mean(axis=0))


def select_method(losses: FloatArray, pooled: FloatArray | None = None) -> int:
    """Index of the method with the lowest mean loss if it is significantly better than the first one, else 0.

    Parameters
    ----------
    losses : ndarray of shape (n_methods, n_users)
    pooled : ndarray of shape (n_methods,), optional
        Pooled errors; methods with larger ones than the first are excluded.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> plain = rng.random(200)
    >>> select_method(np.stack([plain, plain + rng.normal(0, 0.1, 200)])), select_method(np.stack([plain, 0.8 * plain]))
    (0, 1)
    """
    mean = losses.mean(axis=1)
    best = int((mean if pooled is None else np.where(pooled <= pooled[0], mean, np.inf)).argmin())
    gain = losses[0] - losses[best]
    error = gain.std() / np.sqrt(gain.size)
    return best if gain.mean() > _Z * error else 0
