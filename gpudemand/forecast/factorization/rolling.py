"""Many origins, one fit: a factorization that follows what becomes known, and forecasts from every step."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand.forecast.base.panel import Panel
from gpudemand.forecast.factorization.residual_ar import Leftover, expected, take_in
from gpudemand.forecast.factorization.trmf import Factors, Penalties
from gpudemand.forecast.regression.autoregression import run_forward


def paths(now: Factors, own: Leftover, y: FloatArray, h: int, origins: IntArray, penalties: Penalties) -> FloatArray:
    """Forecast from origins after the training period, each with what is known there.

    Every new time is foreseen first; what the data then say otherwise moves the latent series as far as their penalty
    lets it, and the rest is each series' own. Later data correct earlier guesses of what is missing, so a forecast is
    made at its origin, not afterwards.

    Parameters
    ----------
    now : Factors
    own : Leftover
    y : ndarray of shape (n_series, n_new)
        What came after training, NaN where missing.
    h : int
    origins : ndarray of int
        How many columns of `y` each origin knows, ascending.
    penalties : Penalties

    Returns
    -------
    ndarray of shape (n_series, n_origins, h)
    """
    seen, own_seen = now.latent.shape[1], own.values.shape[1]
    latent = np.concatenate([now.latent, np.empty((len(now.latent), y.shape[1]))], axis=1)
    values = np.concatenate([own.values, np.nan_to_num(y)], axis=1)
    known = np.concatenate([own.known, ~np.isnan(y)], axis=1)
    path = np.empty((len(y), origins.size, h))
    for new in range(int(origins[-1]) + 1):
        past, left = latent[:, : seen + new], values[:, : own_seen + new]
        for place in np.flatnonzero(origins == new):
            common = run_forward(past, now.weights, now.lags, h)
            path[:, place] = now.loadings @ common + run_forward(left, own.weights, own.lags, h)
        if new < y.shape[1]:
            time, foreseen = own_seen + new, expected(left, own.weights, own.lags)
            state = expected(past, now.weights, now.lags)
            state = _corrected(now, state, values[:, time] - foreseen, known[:, time], penalties)
            latent[:, seen + new] = state
            values[:, time] -= now.intercepts + now.loadings @ state
            take_in(values, known, time, foreseen, own.weights, own.lags)
    return path + now.intercepts[:, None, None]


def _corrected(now: Factors, state: FloatArray, y: FloatArray, known: BoolArray, penalties: Penalties) -> FloatArray:
    """Latent values between their autoregression and the data, as the penalty weighs them."""
    loadings = now.loadings[known]
    surprise = y[known] - now.intercepts[known] - loadings @ state
    curve = loadings.T @ loadings + penalties.latent * np.eye(state.size)
    return state + np.linalg.solve(curve, loadings.T @ surprise)


def long_frame(
    panel: Panel, times: pd.DatetimeIndex, origins: IntArray, y: FloatArray, columns: dict[str, FloatArray]
) -> pd.DataFrame:
    """What `paths` returns as a backtest: ``unique_id, ds, cutoff, y`` and a column a forecast.

    Parameters
    ----------
    panel : Panel
        Of the training period.
    times : DatetimeIndex
        The end of the training period, and every bin after it.
    origins : ndarray of int
    y : ndarray of shape (n_series, len(times) - 1)
    columns : dict of str to ndarray of shape (n_series, n_origins, h)
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
