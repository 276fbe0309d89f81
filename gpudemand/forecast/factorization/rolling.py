"""Forecasts of one fitted factorization from many later origins, its states filtered with the new data."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand.forecast.base.panel import Panel
from gpudemand.forecast.factorization.residual_ar import ResidualAR, filter_step, one_step_ahead
from gpudemand.forecast.factorization.trmf import Factors, Penalties
from gpudemand.forecast.regression.autoregression import extrapolate


def rolling_paths(
    factors: Factors, residual_ar: ResidualAR, y: FloatArray, h: int, origins: IntArray, penalties: Penalties
) -> FloatArray:
    """Forecasts from origins after the training period, shape (n_series, n_origins, h).

    At every new time the latent state is predicted and corrected by the data as far as their penalty allows; the
    residuals follow. Later data also correct imputed values, so a forecast is made when the filter is at its origin.

    Parameters
    ----------
    factors : Factors
    residual_ar : ResidualAR
    y : ndarray of shape (n_series, n_new)
        Data after training, NaN where missing.
    h : int
    origins : ndarray of int
        Columns of `y` known at each origin, ascending.
    penalties : Penalties
    """
    n_seen, n_residuals = factors.latent.shape[1], residual_ar.values.shape[1]
    latent = np.concatenate([factors.latent, np.empty((len(factors.latent), y.shape[1]))], axis=1)
    values = np.concatenate([residual_ar.values, np.nan_to_num(y)], axis=1)
    known = np.concatenate([residual_ar.known, ~np.isnan(y)], axis=1)
    path = np.empty((len(y), origins.size, h))
    for new in range(int(origins[-1]) + 1):
        past, residuals = latent[:, : n_seen + new], values[:, : n_residuals + new]
        for place in np.flatnonzero(origins == new):
            ahead = extrapolate(past, factors.weights, factors.lags, h)
            path[:, place] = factors.loadings @ ahead
            path[:, place] += extrapolate(residuals, residual_ar.weights, residual_ar.lags, h)
        if new < y.shape[1]:
            time, predicted = n_residuals + new, one_step_ahead(residuals, residual_ar.weights, residual_ar.lags)
            state = one_step_ahead(past, factors.weights, factors.lags)
            state = _corrected(factors, state, values[:, time] - predicted, known[:, time], penalties)
            latent[:, n_seen + new] = state
            values[:, time] -= factors.intercepts + factors.loadings @ state
            filter_step(values, known, time, predicted, residual_ar.weights, residual_ar.lags)
    return path + factors.intercepts[:, None, None]


def _corrected(
    factors: Factors, state: FloatArray, y: FloatArray, known: BoolArray, penalties: Penalties
) -> FloatArray:
    """Ridge estimate of the latent state from the data, with the predicted state as its prior mean."""
    loadings = factors.loadings[known]
    innovation = y[known] - factors.intercepts[known] - loadings @ state
    gram = loadings.T @ loadings + penalties.latent * np.eye(state.size)
    return state + np.linalg.solve(gram, loadings.T @ innovation)


def backtest_frame(
    panel: Panel, times: pd.DatetimeIndex, origins: IntArray, y: FloatArray, columns: dict[str, FloatArray]
) -> pd.DataFrame:
    """Columns of shape (n_series, n_origins, h) as a backtest: ``unique_id, ds, cutoff, y`` and the columns.

    `times` are the end of the training period, and every bin after it, with the data `y`, shape (n_series, n_new).
    """
    n, _, h = next(iter(columns.values())).shape
    ahead = origins[:, None] + np.arange(h)
    keys = {
        "unique_id": panel.ids.repeat(ahead.size),
        "ds": times[np.tile(ahead.ravel() + 1, n)],
        "cutoff": times[np.tile(origins.repeat(h), n)],
    }
    frame = pd.DataFrame({**keys, "y": y[:, ahead].ravel(), **{name: path.ravel() for name, path in columns.items()}})
    frame.attrs = dict(panel.attrs)
    return frame
