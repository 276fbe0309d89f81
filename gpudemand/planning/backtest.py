"""Rolling-origin evaluation of `JobDemandModel`, and of the capacity plans that forecasts lead to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.base import clone

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_columns, check_number, check_usage
from gpudemand.jobs.table import check_jobs
from gpudemand.metrics import model_names
from gpudemand.planning.capacity.quantiles import QuantileTable
from gpudemand.planning.demand.job_demand import JobDemandModel


def demand_cross_validation(
    model: JobDemandModel,
    jobs: pd.DataFrame,
    usage: pd.DataFrame,
    h: int,
    n_windows: int = 1,
    step_size: int | None = None,
    level: Sequence[float] | None = None,
) -> pd.DataFrame:
    """Rolling-origin cross-validation of a `JobDemandModel`, refitted at each origin.

    The counterpart of `gpudemand.forecast.cross_validation`; at each origin the log is used as of that time.

    Parameters
    ----------
    model : JobDemandModel
    jobs, usage : DataFrame
        As for `JobDemandModel.fit`.
    h : int
        Horizon in bins.
    n_windows : int, default=1
    step_size : int, optional
        Bins between origins; `h` by default.
    level : sequence of float, optional
        Interval levels in percent.

    Returns
    -------
    DataFrame
        ``unique_id``, ``ds``, ``cutoff`` (the last bin of the training data), ``y``, and the columns of the model.
    """
    jobs, usage = check_jobs(jobs), check_usage(usage)
    h, n_windows = (
        int(check_number(name, value, 1, integer=True)) for name, value in (("h", h), ("n_windows", n_windows))
    )
    step = h if step_size is None else int(check_number("step_size", step_size, 1, integer=True))
    times = pd.DatetimeIndex(np.sort(usage["ds"].unique()))
    first = len(times) - h - step * (n_windows - 1)
    if first < 3:
        raise InputError(f"{n_windows} windows of h={h} need more than the {len(times)} bins there are; use fewer.")
    windows = []
    for origin in range(first, len(times) - h + 1, step):
        fitted = clone(model).fit(jobs, usage[usage["ds"] < times[origin]])
        forecast = fitted.predict(h, level=level).assign(cutoff=times[origin - 1])
        windows.append(usage[["unique_id", "ds", "y"]].merge(forecast, on=["unique_id", "ds"]))
    backtest = pd.concat(windows, ignore_index=True)
    backtest.attrs = dict(usage.attrs)
    return backtest[["unique_id", "ds", "cutoff", "y", *(c for c in forecast.columns if c.startswith("JobDemand"))]]


def plan_backtest(backtest: pd.DataFrame, service_levels: Sequence[float] = (0.90, 0.95)) -> pd.DataFrame:
    """Coverage, idle GPUs and shortage of the capacity plans that forecasts would have led to.

    The plan of each cutoff is that of `plan_capacity` at full utilization: the highest quantile of demand, at the
    service level, in the window. The plan of hindsight is the quantile of the actual demand over the window's bins.

    Parameters
    ----------
    backtest : DataFrame
        GPUs held: as returned by `cross_validation` or `demand_cross_validation` with levels, of one or more models.
    service_levels : sequence of float, default=(0.9, 0.95)

    Returns
    -------
    DataFrame
        A row a model and service level: ``coverage``, the share of bins with demand at or below that bin's quantile
        (nominally the level); ``held``, the share of bins with demand at or below the plan; ``idle`` and
        ``short``, GPUs planned beyond demand and demand beyond the plan, relative to demand; ``regret``, the
        absolute difference from the plan of hindsight, relative to demand.

    Raises
    ------
    InputError
        If columns are missing, or a model has no intervals.

    Examples
    --------
    >>> ds = pd.date_range("2026-03-01", periods=2, freq="D")
    >>> frame = pd.DataFrame({"unique_id": "total", "ds": ds, "cutoff": ds[0] - pd.Timedelta("1D"), "y": [8.0, 12.0],
    ...     "M": [10.0, 10.0], "M-lo-80": [8.0, 8.0], "M-hi-80": [12.0, 12.0]})
    >>> plan_backtest(frame, [0.9]).reset_index().round(3)
      model  service_level  coverage  held  idle  short  regret
    0     M            0.9       1.0   1.0   0.2    0.0    0.04
    """
    backtest = check_columns(backtest, ("unique_id", "ds", "cutoff", "y"), "backtest")
    rows = {
        (model, share): _score(backtest, model, check_number("service_levels", share, 0.5, 0.9999, open_low=True))
        for model in model_names(backtest)
        for share in service_levels
    }
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(rows, names=["model", "service_level"])
    return table


def _score(backtest: pd.DataFrame, model: str, share: float) -> dict[str, float]:
    known = backtest[backtest["y"].notna() & backtest[model].notna()]
    quantile = QuantileTable.from_forecast(known, model).quantile(share)
    y = known["y"].to_numpy(dtype=float)
    window = known.groupby(["unique_id", "cutoff"], sort=False).ngroup()
    plan = pd.Series(quantile).groupby(window.to_numpy()).transform("max").to_numpy()
    hindsight = pd.Series(y).groupby(window.to_numpy()).transform(lambda demand: demand.quantile(share)).to_numpy()
    return {
        "coverage": float((y <= quantile).mean()),
        "held": float((y <= plan).mean()),
        "idle": _relative(np.maximum(plan - y, 0), y),
        "short": _relative(np.maximum(y - plan, 0), y),
        "regret": _relative(np.abs(plan - hindsight), y),
    }


def _relative(amount: FloatArray, y: FloatArray) -> float:
    return float(amount.sum() / y.sum()) if y.sum() > 0 else np.nan
