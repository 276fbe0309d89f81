"""Per-user combination weights from held-out errors."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.forecast.combination.simplex import minimise_on_simplex


def combination_weights(errors: FloatArray, prior: FloatArray, strength: float) -> FloatArray:
    """Combination weights of each user with the smallest squared error, shrunk towards prior weights.

    Parameters
    ----------
    errors : ndarray of shape (n_users, n_times, n_forecasts)
        On held-out time; NaN where the actual is unknown.
    prior : ndarray of shape (n_forecasts,)
        Prior weights, which sum to one.
    strength : float
        Shrinkage towards them, relative to the squared error of the best forecast of a user.

    Returns
    -------
    ndarray of shape (n_users, n_forecasts)
        Not negative, summing to one; independent of the units of a user.

    Examples
    --------
    The first forecast of one user was better; the other user has no data:

    >>> errors = np.array([[[1.0, -4.0], [-1.0, -4.0]], [[np.nan, np.nan], [np.nan, np.nan]]])
    >>> combination_weights(errors, np.array([0.5, 0.5]), 0.3).round(2).tolist()
    [[0.93, 0.07], [0.5, 0.5]]
    """
    known = np.nan_to_num(errors)
    form = known.swapaxes(1, 2) @ known / max(errors.shape[1], 1)
    own = np.diagonal(form, axis1=1, axis2=2)
    pull = strength * own.min(axis=1)[:, None]
    weights = minimise_on_simplex(form + pull[..., None] * np.eye(prior.size), pull * prior)
    return np.where(own.max(axis=1)[:, None] > 0, weights, prior)
