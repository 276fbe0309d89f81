"""Backtests of demand and of plans."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.base import clone

from gpudemand._array import FloatArray
from gpudemand._validation import check_columns, check_number
from gpudemand.forecast.backtest import cross_validation
from gpudemand.forecast.forecaster import Forecaster
from gpudemand.jobs.table import check_jobs
from gpudemand.metrics import forecast_names
from gpudemand.planning.demand import JobDemandModel
from gpudemand.planning.quantiles import QuantileTable


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
    return cross_validation(_OfJobs(model, check_jobs(jobs)), usage, h, n_windows, step_size, level)


class _OfJobs(Forecaster):
    """A `JobDemandModel` with its jobs, as a forecaster of usage."""

    def __init__(self, model: JobDemandModel, jobs: pd.DataFrame) -> None:
        self.model = model
        self.jobs = jobs

    def column_name(self) -> str:
        """Name of the column of forecasts."""
        return type(self.model).__name__

    def fit(self, usage: pd.DataFrame, freq: object = None) -> _OfJobs:
        """Fit to the jobs as of the end of the usage."""
        self.model_ = clone(self.model).fit(self.jobs, usage, freq)
        return self

    def predict(self, h: int, level: Sequence[float] | float | None = None) -> pd.DataFrame:
        """Forecast the next bins."""
        return self.model_.predict(h, level)


def plan_backtest(backtest: pd.DataFrame, service_levels: Sequence[float] = (0.90, 0.95)) -> pd.DataFrame:
    """Coverage, idle GPUs and shortage of the capacity plans that forecasts would have led to.

    The plan of each cutoff is that of `plan_capacity` at full utilization: the highest quantile of demand, at the
    service level, in the window. The plan of hindsight is the highest demand in the window.

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
    0     M            0.9       1.0   1.0   0.2    0.0     0.0
    """
    backtest = check_columns(backtest, ("unique_id", "ds", "cutoff", "y"), "backtest")
    rows = {
        (model, share): _score_plan(backtest, model, check_number("service_levels", share, 0.5, 0.9999, open_low=True))
        for model in forecast_names(backtest, "backtest")
        for share in service_levels
    }
    table = pd.DataFrame.from_dict(rows, orient="index")
    table.index = pd.MultiIndex.from_tuples(rows, names=["model", "service_level"])
    return table


def _score_plan(backtest: pd.DataFrame, model: str, share: float) -> dict[str, float]:
    known = backtest[backtest["y"].notna() & backtest[model].notna()]
    quantile = QuantileTable.from_forecast(known, model).quantile(share)
    y = known["y"].to_numpy(dtype=float)
    window = known.groupby(["unique_id", "cutoff"], sort=False).ngroup()
    plan = pd.Series(quantile).groupby(window.to_numpy()).transform("max").to_numpy()
    hindsight = pd.Series(y).groupby(window.to_numpy()).transform("max").to_numpy()
    return {
        "coverage": float((y <= quantile).mean()),
        "held": float((y <= plan).mean()),
        "idle": _relative(np.maximum(plan - y, 0), y),
        "short": _relative(np.maximum(y - plan, 0), y),
        "regret": _relative(np.abs(plan - hindsight), y),
    }


def _relative(amount: FloatArray, y: FloatArray) -> float:
    return float(amount.sum() / y.sum()) if y.sum() > 0 else np.nan
