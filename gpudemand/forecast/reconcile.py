"""Reconciliation of hierarchical forecasts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray
from gpudemand._validation import InputError, check_choice, check_columns, shorten
from gpudemand.metrics import KEYS, check_forecast, forecast_names

METHODS = ("mint", "structural", "bottom_up")
#: Most rounds of the active-set method that keeps forecasts non-negative.
_ROUNDS = 20


def reconcile(
    forecast: pd.DataFrame,
    summing: pd.DataFrame,
    backtest: pd.DataFrame | None = None,
    *,
    method: str = "mint",
    model: str | None = None,
) -> pd.DataFrame:
    """Make the forecasts of all levels of a hierarchy coherent, by generalized least squares.

    The bottom level is fitted to the base forecasts of all nodes, weighted by the inverse covariance of their errors,
    with no user below zero; the levels above are its sums.

    Parameters
    ----------
    forecast : DataFrame
        ``unique_id``, ``ds``, a model's column and its bounds, for every node of the hierarchy.
    summing : DataFrame, shape (n_nodes, n_bottom + 1)
        Summing matrix with the node in ``unique_id``, as `gpudemand.usage.series.aggregate_usage` returns it.
    backtest : DataFrame, optional
        ``unique_id``, ``ds``, ``cutoff``, ``y`` and the model's column, as `cross_validation` returns them; needed
        by ``"mint"``.
    method : {"mint", "structural", "bottom_up"}, default="mint"
        Covariance of the errors: ``"mint"`` estimates it from the backtest, shrunk towards a diagonal, and is
        ``"structural"`` where that has no errors; ``"structural"`` is proportional to the number of users below a node;
        ``"bottom_up"`` sums the users and ignores the other nodes.
    model : str, optional
        Column to reconcile; by default the first model.

    Returns
    -------
    DataFrame
        Like `forecast`. The bounds of a node keep their distance from its point forecast, less where that fell in
        proportion to it, and are not negative. They hold for each node by itself and do not add up, as quantiles do
        not.

    Raises
    ------
    InputError
        If a node lacks a forecast, or ``"mint"`` a backtest.

    References
    ----------
    Wickramasuriya, Athanasopoulos and Hyndman, "Optimal Forecast Reconciliation for Hierarchical and Grouped Time
    Series Through Trace Minimization", JASA 2019; Schäfer and Strimmer, "A Shrinkage Approach to Large-Scale Covariance
    Matrix Estimation", 2005.

    Examples
    --------
    The total is forecast at 12, its two users at 4 and 6:

    >>> summing = pd.DataFrame({"unique_id": ["total", "ada", "bob"], "ada": [1.0, 1, 0], "bob": [1.0, 0, 1]})
    >>> ds = pd.Timestamp("2026-03-01")
    >>> forecast = pd.DataFrame({"unique_id": ["total", "ada", "bob"], "ds": ds, "Naive": [12.0, 4.0, 6.0]})
    >>> reconcile(forecast, summing, method="structural")["Naive"].round(2).tolist()
    [11.0, 4.5, 6.5]
    """
    check_choice("method", method, METHODS)
    forecast = check_forecast(forecast)
    column = forecast_names(forecast)[0] if model is None else model
    nodes, sums = _matrix(summing)
    base = _wide(forecast, column, nodes)
    if method == "mint" and backtest is None:
        raise InputError('method="mint" needs backtest=, the errors of cross_validation; "structural" does without.')
    weights = _weights(method, sums, None if backtest is None else _errors(backtest, column, nodes))
    coherent = sums @ _bottom_level(base.to_numpy(), sums, weights)
    return _reconciled_frame(forecast, column, base, pd.DataFrame(coherent, index=base.index, columns=base.columns))


def _matrix(summing: pd.DataFrame) -> tuple[pd.Index, FloatArray]:
    matrix = check_columns(summing, ("unique_id",), "summing").set_index("unique_id")
    return matrix.index, matrix.to_numpy(dtype=float)


def _wide(frame: pd.DataFrame, column: str, nodes: pd.Index) -> pd.DataFrame:
    wide = frame.pivot(index="unique_id", columns="ds", values=column)
    missing = nodes.difference(wide.index)
    if len(missing) or wide.loc[nodes].isna().any(axis=None):
        name = missing[0] if len(missing) else wide.index[wide.isna().any(axis=1)][0]
        raise InputError(f"the forecast of node {shorten(str(name))!r} is missing or has holes; forecast every node.")
    return wide.loc[nodes]


def _errors(backtest: pd.DataFrame, column: str, nodes: pd.Index) -> FloatArray:
    """Backtest errors, shape (n_nodes, n_errors), at the times at which all nodes have one."""
    frame = check_columns(backtest, (*KEYS, column), "backtest")
    frame = frame.assign(error=frame["y"] - frame[column])
    wide = frame.pivot(index="unique_id", columns=["cutoff", "ds"], values="error").reindex(nodes).dropna(axis=1)
    if wide.shape[1] < 2:
        raise InputError("the backtest has fewer than 2 times at which every node has an error; use more windows.")
    return wide.to_numpy(dtype=float)


def _weights(method: str, sums: FloatArray, errors: FloatArray | None) -> FloatArray:
    """Covariance of the errors of the nodes, shape (n_nodes, n_nodes)."""
    if method == "mint" and errors is not None and errors.any():
        # Only ratios of weights count, and the squares of tiny errors are zero.
        return shrunk_covariance(errors / np.abs(errors).max())
    counts = np.abs(sums).sum(axis=1)
    # Bottom up: the variances of the users are negligible.
    return np.diag(np.where(counts > 1, 1e12, 1.0) if method == "bottom_up" else counts)


def shrunk_covariance(errors: FloatArray) -> FloatArray:
    """Covariance of `errors`, (n_nodes, n_errors), shrunk by the intensity of Schäfer and Strimmer."""
    n = errors.shape[1]
    size = np.sqrt(np.square(errors).mean(axis=1))
    # A node without errors would get an infinite weight.
    size = np.maximum(size, 1e-3 * size.max() or 1.0)
    unit = errors / size[:, None]
    correlation = unit @ unit.T / n
    noise = (np.square(unit) @ np.square(unit).T / n - np.square(correlation)) / max(n - 1, 1)
    off_diagonal = ~np.eye(len(errors), dtype=bool)
    total = np.square(correlation[off_diagonal]).sum()
    intensity = float(np.clip(noise[off_diagonal].sum() / total, 0.02, 1.0)) if total > 0 else 1.0
    shrunk: FloatArray = np.asarray((1 - intensity) * correlation, dtype=float)
    np.fill_diagonal(shrunk, 1.0)
    return shrunk * np.outer(size, size)


def _bottom_level(base: FloatArray, sums: FloatArray, weights: FloatArray) -> FloatArray:
    """Forecasts of the users, shape (n_bottom, n_times), not negative unless a base forecast is."""
    users = _least_squares(base, sums, weights)
    if base.min(initial=0.0) < 0:
        return users
    for time in np.flatnonzero(users.min(axis=0) < 0):
        free = users[:, time] > 0
        for _ in range(_ROUNDS):
            found = _least_squares(base[:, [time]], sums[:, free], weights)[:, 0]
            if found.min(initial=0.0) >= 0:
                break
            free[free] = found > 0
        users[:, time] = 0.0
        users[free, time] = np.maximum(found, 0.0)
    return users


def _least_squares(base: FloatArray, sums: FloatArray, weights: FloatArray) -> FloatArray:
    root = np.linalg.cholesky(weights)
    left, right = np.linalg.solve(root, sums), np.linalg.solve(root, base)
    solved: FloatArray = np.linalg.lstsq(left, right, rcond=None)[0]
    return solved


def _reconciled_frame(forecast: pd.DataFrame, column: str, base: pd.DataFrame, coherent: pd.DataFrame) -> pd.DataFrame:
    """The frame with its model's column replaced and the bounds moved with it."""
    out, keys = forecast.copy(), pd.MultiIndex.from_frame(forecast[["unique_id", "ds"]])
    point = coherent.stack(future_stack=True).reindex(keys).to_numpy(dtype=float)
    old = base.stack(future_stack=True).reindex(keys).to_numpy(dtype=float)
    # A forecast of nearly nothing that became more says nothing about how far off that may be.
    ratio = np.minimum(np.divide(point, old, out=np.ones_like(point), where=old > 0), 1.0)
    for name in forecast.columns:
        if str(name).startswith((f"{column}-lo-", f"{column}-hi-")):
            bound = point + (forecast[name].to_numpy(dtype=float) - old) * ratio
            out[name] = np.where(old >= 0, np.maximum(bound, 0.0), bound)
    return out.assign(**{column: point})
