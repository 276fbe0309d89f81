"""What forecasts from earlier origins of a history have shown, whatever users are then put together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpudemand._typing import FloatArray, IntArray
from gpudemand.forecast.clusterwise.exchange import Moments
from gpudemand.forecast.clusterwise.loss_comparison import mean_square, naive_unit
from gpudemand.forecast.combination.base_forecasts import by_horizon

#: What errors of neighbouring bins are worth together at one origin: they repeat one another.
_INDEPENDENT = 2.0


class Evidence(NamedTuple):
    """Forecasts from earlier origins, what came, and what regressions of the one on the other need.

    Attributes
    ----------
    past : ndarray of shape (n_users, n_origins, h, n_forecasts)
    truth : ndarray of shape (n_users, n_origins, h)
    moments : Moments
        Of every user at every origin.
    shared : ndarray of shape (n_columns,)
        Weights of one regression for all.
    """

    past: FloatArray
    truth: FloatArray
    moments: Moments
    shared: FloatArray

    @classmethod
    def of(cls, y: FloatArray, past: FloatArray, origins: IntArray, season: int, penalty: float) -> Evidence:
        """Compare forecasts from `origins` with a history, shape (n_users, n_times); `penalty` is on the weights."""
        truth = np.stack([y[:, origin : origin + past.shape[2]] for origin in origins], axis=1)
        units = _units(y, past, truth, origins, season)
        x, target = by_horizon(past) / units[..., None, None], truth / units[..., None]
        moments = Moments.of(x.reshape(-1, *x.shape[2:]), target.reshape(-1, truth.shape[2]))
        plain = np.zeros(moments.right.shape[1])
        plain[[0, plain.size // 2]] = 1.0
        return cls(past, truth, moments, moments.fit(np.ones((len(moments.size), 1)), penalty, plain)[0])


def _units(y: FloatArray, past: FloatArray, truth: FloatArray, origins: IntArray, season: int) -> FloatArray:
    """Unit of each user's errors at each origin, shape (n_users, n_origins)."""
    h = truth.shape[2]
    # In units of what was known at each origin: units that know the target would hush up every surprise.
    units = np.column_stack([naive_unit(y[:, :origin], season) for origin in origins])
    # What nobody could foresee makes a unit larger, so that no burst outweighs everybody else.
    surprise = mean_square((truth - past[..., 0]).reshape(len(y), -1))[:, None]
    return np.asarray(np.sqrt(np.square(units) + surprise) * np.sqrt(h / min(_INDEPENDENT, h)))
