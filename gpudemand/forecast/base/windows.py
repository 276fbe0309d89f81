"""Backward-looking rolling means, seasonal means and lags of many series."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import BoolArray, FloatArray, IntArray


def fill_missing(y: FloatArray, season: int) -> FloatArray:
    """Fill missing values with the same phase of the previous season, else with the previous value.

    Values before the first one are backfilled, so that a series has not `begun` at origins before it; a series without
    any value is 0.

    Examples
    --------
    >>> fill_missing(np.array([[np.nan, 1.0, 2.0, 3.0, np.nan]]), season=2)
    array([[1., 1., 2., 3., 2.]])
    """
    if not np.isnan(y).any():
        return y
    n, n_times = y.shape
    filled = _forward_fill(_by_phase(y, season, np.nan), axis=1).reshape(n, -1)[:, :n_times]
    filled = _forward_fill(filled, axis=1)
    return np.nan_to_num(_forward_fill(filled[:, ::-1], axis=1)[:, ::-1])


def begun(y: FloatArray, origins: IntArray) -> BoolArray:
    """Whether each series has a value before each origin, shape (n_series, n_origins).

    Examples
    --------
    >>> begun(np.array([[np.nan, 1.0, 2.0]]), np.array([1, 2, 3]))
    array([[False,  True,  True]])
    """
    return np.asarray(np.logical_or.accumulate(~np.isnan(y), axis=1)[:, origins - 1])


def _by_phase(y: FloatArray, season: int, padding: float) -> FloatArray:
    """Series as (n_series, n_seasons, season), the last season padded."""
    n, n_times = y.shape
    pad = np.full((n, -n_times % season), padding)
    return np.concatenate([y, pad], axis=1).reshape(n, -1, season)


def _forward_fill(y: FloatArray, axis: int) -> FloatArray:
    shape = [1] * y.ndim
    shape[axis] = -1
    newest = np.where(np.isnan(y), 0, np.arange(y.shape[axis]).reshape(shape))
    return np.take_along_axis(y, np.maximum.accumulate(newest, axis=axis), axis=axis)


def rolling_mean(y: FloatArray, width: int) -> FloatArray:
    """Mean of the newest `width` values at every time, of fewer at the beginning.

    Examples
    --------
    >>> rolling_mean(np.array([[1.0, 3.0, 5.0]]), 2)
    array([[1., 2., 4.]])
    """
    total = np.concatenate([np.zeros((len(y), 1)), np.cumsum(y, axis=1)], axis=1)
    stop = np.arange(1, y.shape[1] + 1)
    start = np.maximum(stop - width, 0)
    return (total[:, stop] - total[:, start]) / (stop - start)


def phase_mean(y: FloatArray, season: int, n_seasons: int) -> FloatArray:
    """Mean, at every time, of the newest `n_seasons` values of the same phase, the current one included.

    Examples
    --------
    >>> phase_mean(np.array([[1.0, 2.0, 3.0, 4.0]]), season=2, n_seasons=2)
    array([[1., 2., 2., 3.]])
    """
    n, n_times = y.shape
    flat = _by_phase(y, season, 0.0).transpose(0, 2, 1).reshape(n * season, -1)
    means = rolling_mean(flat, n_seasons).reshape(n, season, -1).transpose(0, 2, 1)
    return means.reshape(n, -1)[:, :n_times]


def shifted(y: FloatArray, lag: int) -> FloatArray:
    """Value `lag` bins before every time; the first value where there is none."""
    if lag == 0:
        return y
    lag = min(lag, y.shape[1])
    return np.concatenate([np.repeat(y[:, :1], lag, axis=1), y[:, : y.shape[1] - lag]], axis=1)
