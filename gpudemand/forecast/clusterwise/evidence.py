"""Backtest forecasts and actuals at earlier origins, as normal equations of every user."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpudemand._typing import FloatArray, IntArray
from gpudemand.forecast.clusterwise.base_forecasts import by_horizon
from gpudemand.forecast.clusterwise.exchange import NormalEquations
from gpudemand.forecast.clusterwise.loss_comparison import mean_square, naive_scale

#: Effective number of independent errors at one origin.
_EFFECTIVE_ERRORS = 2.0


class Evidence(NamedTuple):
    """Forecasts from earlier origins, actuals, and the normal equations of their regressions.

    Attributes
    ----------
    past : ndarray of shape (n_users, n_origins, h, n_forecasts)
    actual : ndarray of shape (n_users, n_origins, h)
    equations : NormalEquations
        Of every user at every origin.
    shared : ndarray of shape (n_columns,)
        Coefficients of one regression for all users.
    """

    past: FloatArray
    actual: FloatArray
    equations: NormalEquations
    shared: FloatArray

    @classmethod
    def of(cls, y: FloatArray, past: FloatArray, origins: IntArray, season: int, penalty: float) -> Evidence:
        """Compare forecasts from `origins` with a history, shape (n_users, n_times); `penalty` is on coefficients."""
        actual = np.stack([y[:, origin : origin + past.shape[2]] for origin in origins], axis=1)
        scales = _scales(y, past, actual, origins, season)
        x, target = by_horizon(past) / scales[..., None, None], actual / scales[..., None]
        equations = NormalEquations.of(x.reshape(-1, *x.shape[2:]), target.reshape(-1, actual.shape[2]))
        # The prior is the factorization, at all steps.
        prior = np.zeros(equations.right.shape[1])
        prior[[0, prior.size // 2]] = 1.0
        return cls(past, actual, equations, equations.fit(np.ones((len(equations.size), 1)), penalty, prior)[0])


def _scales(y: FloatArray, past: FloatArray, actual: FloatArray, origins: IntArray, season: int) -> FloatArray:
    """Scale of the errors of each user at each origin, shape (n_users, n_origins)."""
    h = actual.shape[2]
    # Scales use data before the origin only, to avoid leakage.
    scales = np.column_stack([naive_scale(y[:, :origin], season) for origin in origins])
    # Adding the squared error of the factorization keeps bursts from dominating.
    misfit = mean_square((actual - past[..., 0]).reshape(len(y), -1))[:, None]
    return np.asarray(np.sqrt(np.square(scales) + misfit) * np.sqrt(h / min(_EFFECTIVE_ERRORS, h)))
