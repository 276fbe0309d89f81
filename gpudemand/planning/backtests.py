"""Backtests of demand from jobs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from sklearn.base import clone

from gpudemand.forecast.backtest import cross_validation
from gpudemand.forecast.forecaster import Forecaster
from gpudemand.jobs.table import check_jobs
from gpudemand.planning.demand import JobDemandModel


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
