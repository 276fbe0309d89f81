"""Weights of forecasts from their past losses, and the weighted trimmed mean of the forecasts."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray

#: Exponent of the inverse loss, and disjoint horizons at which the losses of a series weigh as much as those of all.
#: Both lie on a plateau of the development half of the panels track: 2 to 5, and 3 to 100, change its WAPE by 1 %.
_POWER, _PRIOR_HORIZONS = 3.0, 3.0
#: Share of the weight that is trimmed at either end; .25, and .5 (the median), have .2 to .4 % larger errors there.
_TRIMMED = 1 / 3


def inverse_loss_weights(losses: FloatArray, n_horizons: FloatArray, scales: FloatArray) -> FloatArray:
    """Weights that fall with the cube of the past loss of a forecast, relative to the others.

    The relative losses of a series are shrunk towards those of all scaled series, the more the less it has seen.

    Parameters
    ----------
    losses : ndarray of shape (n_forecasts, n_series)
        Sums of absolute errors at the same past times for all forecasts; 0 where there are none.
    n_horizons : ndarray of shape (n_series,)
        Disjoint horizons in those times.
    scales : ndarray of shape (n_series,)
        Units of the losses of each series in the sum of all; infinite for a series without weight in it.

    Returns
    -------
    ndarray of shape (n_forecasts, n_series)
        The best forecast of each series has weight one; all are equal without any past.

    Examples
    --------
    The first series has a long past, the second none:

    >>> inverse_loss_weights(np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([1e9, 0.0]), np.ones(2)).round(4).tolist()
    [[1.0, 1.0], [0.125, 0.125]]
    """
    prior = _relative((losses / scales).sum(axis=1, keepdims=True))
    shrunk = prior + n_horizons / (n_horizons + _PRIOR_HORIZONS) * (_relative(losses) - prior)
    best = shrunk.min(axis=0)
    return np.where(best > 0, best / np.where(shrunk > 0, shrunk, 1.0), shrunk <= 0) ** _POWER


def weighted_trimmed_mean(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted mean of the values in the middle, without a third of the weight at either end.

    Parameters
    ----------
    values : ndarray of shape (m, ...)
    weights : ndarray
        Not negative, not all zero; broadcast against `values`.

    Returns
    -------
    ndarray of shape (...)

    Examples
    --------
    >>> values = np.array([1.0, 2.0, 9.0, 10.0])
    >>> [float(weighted_trimmed_mean(values, np.array(weights)).round(6)) for weights in ([1, 1, 1, 1], [1, 1, 1, 9])]
    [5.5, 10.0]
    """
    order = np.argsort(values, axis=0, kind="stable")
    ascending = np.take_along_axis(values, order, axis=0)
    above = np.cumsum(np.take_along_axis(np.broadcast_to(weights, values.shape), order, axis=0), axis=0)
    inside = np.diff(
        np.clip(above, above[-1] * _TRIMMED, above[-1] * (1 - _TRIMMED)), axis=0, prepend=above[-1:] * _TRIMMED
    )
    middle = ascending[len(values) // 2]
    return middle + (inside * (ascending - middle)).sum(axis=0) / inside.sum(axis=0)


def _relative(losses: FloatArray) -> FloatArray:
    """Losses relative to the mean of all forecasts; 1 where there are none."""
    mean = losses.mean(axis=0)
    return np.divide(losses, mean, out=np.ones_like(losses), where=mean > 0)
