"""How far each user's own held-out time bears several forecasts of her out."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.forecast.combination.stacking import minimise_on_simplex


def own_trust(errors: FloatArray, prior: FloatArray, strength: float) -> FloatArray:
    """Weights of several forecasts of each user: those that would have served her best, pulled towards given ones.

    Parameters
    ----------
    errors : ndarray of shape (n_users, n_times, n_forecasts)
        On held-out time; NaN where the truth is unknown.
    prior : ndarray of shape (n_forecasts,)
        Weights of a user of whom nothing is known, which sum to one.
    strength : float
        Pull towards them, as a share of the squared error of her best forecast.

    Returns
    -------
    ndarray of shape (n_users, n_forecasts)
        Not negative, summing to one; the same in whatever unit a user's errors are.

    Examples
    --------
    One user has been forecast better by the first, of the other nothing is known:

    >>> errors = np.array([[[1.0, -4.0], [-1.0, -4.0]], [[np.nan, np.nan], [np.nan, np.nan]]])
    >>> own_trust(errors, np.array([0.5, 0.5]), 0.3).round(2).tolist()
    [[0.93, 0.07], [0.5, 0.5]]
    """
    known = np.nan_to_num(errors)
    form = known.swapaxes(1, 2) @ known / max(errors.shape[1], 1)
    own = np.diagonal(form, axis1=1, axis2=2)
    pull = strength * own.min(axis=1)[:, None]
    weights = minimise_on_simplex(form + pull[..., None] * np.eye(prior.size), pull * prior)
    # Forecasts that have never been wrong say nothing of one another.
    return np.where(own.max(axis=1)[:, None] > 0, weights, prior)
