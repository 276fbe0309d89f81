"""Forecasts of users, groups, clusters and their total that add up."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, check_columns, shorten
from gpudemand.metrics import KEYS, model_names

METHODS = ("mint", "structural", "bottom_up")
#: Rounds of putting negative users at zero and reconciling the rest again.
_ROUNDS = 20


def reconcile(
    forecast: pd.DataFrame,
    summing: pd.DataFrame,
    backtest: pd.DataFrame | None = None,
    *,
    method: str = "mint",
    model: str | None = None,
) -> pd.DataFrame:
    """Make forecasts of every level of a hierarchy add up.

    The users' forecasts are moved so that the levels' own forecasts are met as well as possible, those least that have
    erred least; every level above is then their sum. No user is forecast below zero.

    Parameters
    ----------
    forecast : DataFrame
        ``unique_id``, ``ds``, a model's column and its bounds, for every node of the hierarchy.
    summing : DataFrame, shape (n_nodes, n_bottom + 1)
        Summing matrix with the node in ``unique_id``, as `gpudemand.usage.hierarchy.aggregate_usage` returns it.
    backtest : DataFrame, optional
        ``unique_id``, ``ds``, ``cutoff``, ``y`` and the model's column, as `cross_validation` returns them: past
        errors, which ``"mint"`` needs.
    method : {"mint", "structural", "bottom_up"}, default="mint"
        ``"mint"`` weighs nodes by the covariance of their past errors, shrunk towards none between nodes;
        ``"structural"`` by how many users are below; ``"bottom_up"`` adds the users up and ignores the rest.
    model : str, optional
        Column to reconcile; by default the first one that is no key and no bound.

    Returns
    -------
    DataFrame
        Like `forecast`. A node's bounds keep their distance from its point forecast, scaled as that is, and end at
        zero: the uncertainty of a total is less than the sum of its parts' and comes from its own past errors. Bounds
        are therefore right for each node by itself and need not add up, as quantiles do not.

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
    The total says 12, its two users 4 and 6: everybody gives way.

    >>> summing = pd.DataFrame({"unique_id": ["total", "ada", "bob"], "ada": [1.0, 1, 0], "bob": [1.0, 0, 1]})
    >>> ds = pd.Timestamp("2026-03-01")
    >>> forecast = pd.DataFrame({"unique_id": ["total", "ada", "bob"], "ds": ds, "Naive": [12.0, 4.0, 6.0]})
    >>> reconcile(forecast, summing, method="structural")["Naive"].round(2).tolist()
    [11.0, 4.5, 6.5]
    """
    check_choice("method", method, METHODS)
    column = _model(forecast) if model is None else model
    nodes, sums = _matrix(summing)
    base = _wide(forecast, column, nodes)
    if method == "mint" and backtest is None:
        raise InputError('method="mint" needs backtest=, the errors of cross_validation; "structural" does without.')
    weights = _weights(method, sums, None if backtest is None else _errors(backtest, column, nodes))
    coherent = sums @ _users(base.to_numpy(), sums, weights)
    return _moved(forecast, column, base, pd.DataFrame(coherent, index=base.index, columns=base.columns))


def _model(forecast: pd.DataFrame) -> str:
    check_columns(forecast, ("unique_id", "ds"), "forecast")
    names = model_names(forecast)
    if not names:
        raise InputError(f"the forecast has no model's column; it has {', '.join(map(str, forecast.columns))}.")
    return names[0]


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
    """Past errors, shape (n_nodes, n_errors), of the times at which all nodes have one."""
    frame = check_columns(backtest, (*KEYS, column), "backtest")
    frame = frame.assign(error=frame["y"] - frame[column])
    wide = frame.pivot(index="unique_id", columns=["cutoff", "ds"], values="error").reindex(nodes).dropna(axis=1)
    if wide.shape[1] < 2:
        raise InputError("the backtest has fewer than 2 times at which every node has an error; use more windows.")
    return wide.to_numpy(dtype=float)


def _weights(method: str, sums: FloatArray, errors: FloatArray | None) -> FloatArray:
    """Covariance of the nodes' errors, shape (n_nodes, n_nodes), or what stands for it."""
    if method == "mint" and errors is not None:
        return shrunk_covariance(errors)
    counts = np.abs(sums).sum(axis=1)
    # Users who are never wrong, beside anything that could be: their sum is what counts.
    return np.diag(np.where(counts > 1, 1e12, 1.0) if method == "bottom_up" else counts)


def shrunk_covariance(errors: FloatArray) -> FloatArray:
    """Mean products of errors, those between nodes shrunk as far as their sampling error asks for.

    Parameters
    ----------
    errors : ndarray of shape (n_nodes, n_errors)

    Returns
    -------
    ndarray of shape (n_nodes, n_nodes)
        Positive definite.
    """
    n = errors.shape[1]
    size = np.sqrt(np.square(errors).mean(axis=1))
    # A node that was never wrong is not infinitely right.
    size = np.maximum(size, np.maximum(1e-3 * size.max(), np.finfo(float).tiny))
    unit = errors / size[:, None]
    correlation = unit @ unit.T / n
    noise = (np.square(unit) @ np.square(unit).T / n - np.square(correlation)) / max(n - 1, 1)
    apart = ~np.eye(len(errors), dtype=bool)
    total = np.square(correlation[apart]).sum()
    share = float(np.clip(noise[apart].sum() / total, 0.02, 1.0)) if total > 0 else 1.0
    shrunk: FloatArray = np.asarray((1 - share) * correlation, dtype=float)
    np.fill_diagonal(shrunk, 1.0)
    return shrunk * np.outer(size, size)


def _users(base: FloatArray, sums: FloatArray, weights: FloatArray) -> FloatArray:
    """Users' forecasts, shape (n_bottom, n_times), none below zero unless some base forecast is."""
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


def _moved(forecast: pd.DataFrame, column: str, base: pd.DataFrame, coherent: pd.DataFrame) -> pd.DataFrame:
    """The frame with its model's column replaced and the bounds beside it."""
    out, keys = forecast.copy(), pd.MultiIndex.from_frame(forecast[["unique_id", "ds"]])
    point = coherent.stack(future_stack=True).reindex(keys).to_numpy(dtype=float)
    old = base.stack(future_stack=True).reindex(keys).to_numpy(dtype=float)
    ratio = np.divide(point, old, out=np.ones_like(point), where=old > 0)
    for name in forecast.columns:
        if str(name).startswith((f"{column}-lo-", f"{column}-hi-")):
            bound = point + (forecast[name].to_numpy(dtype=float) - old) * ratio
            out[name] = np.where(old >= 0, np.maximum(bound, 0.0), bound)
    return out.assign(**{column: point})
