"""Scaled, bounded losses of users at different levels, and selection of a method by their significance."""

from __future__ import annotations

import numpy as np
from scipy.stats import t as student_t

from gpudemand._typing import FloatArray
from gpudemand.forecast.base.panel import row_means

#: Smallest scale of the errors of a series, as a share of its level.
_MIN_SHARE = 0.05
#: Confidence of the test of a gain.
_CONFIDENCE = 0.95


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


def select_method(losses: FloatArray, pooled: FloatArray) -> int:
    """Index of the method with the lowest mean loss among those significantly better than the first one, else 0.

    The loss must be lower by a t-test over blocks of time (users share the events of a block, so that they are no
    independent evidence), and the pooled error lower on average.

    Parameters
    ----------
    losses : ndarray of shape (n_blocks, n_methods)
        Mean loss of the users in each block of time.
    pooled : ndarray of shape (n_blocks, n_methods)
        Pooled squared error in each block.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> plain = rng.uniform(1, 2, 6)
    >>> noisy, better = plain * rng.uniform(0.7, 1.2, 6), plain * rng.uniform(0.85, 0.95, 6)
    >>> select_method(np.stack([plain, noisy], axis=1), np.stack([plain, noisy], axis=1))
    0
    >>> select_method(np.stack([plain, better], axis=1), np.stack([plain, better], axis=1))
    1
    """
    gain = _gains(losses)
    n_blocks = len(gain)
    if n_blocks < 2:
        return 0
    error = gain.std(axis=0, ddof=1) / np.sqrt(n_blocks)
    better = gain.mean(axis=0) > student_t.ppf(_CONFIDENCE, n_blocks - 1) * error
    better &= _gains(pooled).mean(axis=0) > 0
    return int(np.where(better, losses.mean(axis=0), np.inf).argmin()) if better.any() else 0


def _gains(losses: FloatArray) -> FloatArray:
    """Relative gain of each method on the first one, shape (n_blocks, n_methods)."""
    first = losses[:, :1]
    return np.divide(first - losses, first, out=np.zeros_like(losses), where=first > 0)
