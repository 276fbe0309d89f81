"""Venus (Helios): errors of run times, of GPUs held over the next day, and of capacity plans."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpudemand.forecast import CombinedForecaster, Naive, RidgeAutoregression, SeasonallyAdjustedNaive, cross_validation
from gpudemand.jobs.read import read_jobs
from gpudemand.metrics import evaluate, model_names, pinball
from gpudemand.planning.backtests import demand_cross_validation
from gpudemand.planning.demand import JobDemandModel
from gpudemand.planning.quantiles import QuantileTable
from gpudemand.planning.run_time import RunTimeModel
from gpudemand.usage.series import usage_series

ZONE = "Asia/Shanghai"
FILE = "traces/helios-venus-gpu-jobs/helios_trace.csv.gz"
#: Earlier weeks contain only jobs that were still running at this time.
BEGIN = "2020-04-02"
SHARES = {0.1: "-lo-80", 0.25: "-lo-50", 0.5: "", 0.75: "-hi-50", 0.9: "-hi-80"}


def load(data: Path) -> pd.DataFrame:
    """The log of Venus."""
    return read_jobs(data / FILE, format="simulator", origin="2020-03-18 04:01:39", tz=ZONE)


def held(jobs: pd.DataFrame, until: str) -> pd.DataFrame:
    """GPUs held by hour."""
    return usage_series(jobs, by=None, freq="h", value="gpus", start=BEGIN, until=until, tz=ZONE)


def run_times(jobs: pd.DataFrame, month: str) -> pd.DataFrame:
    """Errors of the run times of a month's jobs, trained on all earlier ones, beside a constant forecast."""
    begin = pd.Timestamp(month, tz=ZONE)
    model = RunTimeModel(tz=ZONE).fit(jobs, until=begin)
    new = jobs[(jobs["submit"] >= begin) & (jobs["submit"] < begin + pd.offsets.MonthBegin())]
    past = jobs[jobs["end"] < begin]
    known, run = ((part["end"] - part["submit"]).dt.total_seconds() for part in (past, new))
    online = model.predict(new, level=[50, 80])
    # History frozen at the start of the month: no outcomes within it are used.
    frozen = model.predict(new.assign(end=new["end"].mask(new["end"].notna())), level=[50, 80])
    constant = pd.DataFrame({f"run_time_s{end}": known.quantile(share) for share, end in SHARES.items()}, new.index)
    mean = (known * past["gpus"]).sum() / past["gpus"].sum()
    constant["gpu_hours"] = mean / 3600 * new["gpus"]
    tables = {"RunTimeModel": online, "RunTimeModel, history frozen": frozen, "constant": constant}
    return pd.DataFrame({name: _run_time_row(table, run, new) for name, table in tables.items()}).T


def _run_time_row(table: pd.DataFrame, run: pd.Series, jobs: pd.DataFrame) -> dict[str, float]:
    day = jobs["submit"].dt.tz_convert(ZONE).dt.date
    true = (run * jobs["gpus"] / 3600).groupby(day).sum()
    predicted = table["gpu_hours"].groupby(day).sum()
    losses = [pinball(run.to_numpy(), table[f"run_time_s{end}"].to_numpy(), share) for share, end in SHARES.items()]
    return {
        "mae_s": float((run - table["run_time_s"]).abs().mean()),
        "pinball_s": float(np.mean(losses)),
        "daily_wape": float((predicted - true).abs().sum() / true.sum()),
        "lowest_s": float(table.filter(like="run_time_s").min().min()),
    }


def next_day(jobs: pd.DataFrame, until: str, n_windows: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Errors over the next 24 h from every midnight, and the resulting plans."""
    usage = held(jobs, until)
    level = [80, 90, 95]
    backtest = cross_validation(
        [Naive(), SeasonallyAdjustedNaive(), RidgeAutoregression(), CombinedForecaster()],
        usage,
        24,
        n_windows,
        level=level,
    )
    models: dict[str, Any] = {
        "jobs, bottom-up only": JobDemandModel(combine=False),
        "jobs, running unknown": JobDemandModel(running=False),
        "JobDemandModel": JobDemandModel(),
    }
    for name, model in models.items():
        own = demand_cross_validation(model, jobs, usage, 24, n_windows, level=level)
        columns = {column: column.replace("JobDemandModel", name) for column in own.columns}
        backtest = backtest.merge(own.rename(columns=columns).drop(columns="y"), on=["unique_id", "ds", "cutoff"])
    return evaluate(backtest, ["wape", "bias", "pinball", "coverage"]), plan_backtest(backtest)


def plan_backtest(backtest: pd.DataFrame, service_levels: Sequence[float] = (0.90, 0.95)) -> pd.DataFrame:
    """Coverage, idle GPUs and shortage of the capacity plans that forecasts would have led to.

    The plan of each cutoff is that of `plan_capacity` at full utilization: the highest quantile of demand, at the
    service level, in the window. The plan of hindsight is the highest demand in the window.

    `backtest` is that of `cross_validation` or `demand_cross_validation` with levels. By model and service level:
    ``coverage``, the share of bins with demand at or below that bin's quantile (nominally the level); ``held``, the
    share of bins with demand at or below the plan; ``idle`` and ``short``, GPUs planned beyond demand and demand beyond
    the plan, relative to demand; ``regret``, the absolute difference from the plan of hindsight, relative to demand.
    """
    pairs = itertools.product(model_names(backtest), service_levels)
    rows = {(model, share): _score_plan(backtest, model, share) for model, share in pairs}
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


def _relative(amount: np.ndarray, y: np.ndarray) -> float:
    return float(amount.sum() / y.sum()) if y.sum() > 0 else np.nan
