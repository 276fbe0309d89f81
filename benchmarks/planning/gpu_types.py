"""How often the intervals of GPU types, as plans by type count on them, cover the days that come."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from benchmarks.forecast import load
from gpudemand import Study
from gpudemand.datasets import load_jobs_sample
from gpudemand.metrics import evaluate, model_names
from gpudemand.study.usage_tables import MEAN

#: Days ahead, days between origins, and days before the first one.
_H, _STEP, _FIRST = 28, 7, 84
_LEVELS = (80, 95)


def logs(data: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """Jobs of a simulated cluster, and hours of the six types of a real one."""
    yield "sample, wanted", load_jobs_sample()
    panel = load.spot(data)[1]
    wide = pd.DataFrame(panel.values.T, panel.times.tz_localize("UTC").rename("ds"), panel.ids)
    yield "spot, held", wide.melt(var_name="unique_id", value_name="y", ignore_index=False).reset_index()


def coverage(data: Path) -> pd.DataFrame:
    """Share of the days within the intervals of the mean of each type, and WAPE, by log; and of all types, by log."""
    rows = {}
    for name, log in logs(data):
        windows = pd.concat(_windows(log), ignore_index=True)
        every = evaluate(windows, ["wape", "coverage"], by="unique_id").droplevel(0)
        every.loc["all"] = evaluate(windows, ["wape", "coverage"]).iloc[0]
        rows[name] = every.assign(origins=windows["cutoff"].nunique())
    return pd.concat(rows, names=["log"])


def _windows(log: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The mean of each type over the days after each origin, forecast by a study of what was known at it."""
    whole = Study(log, by="gpu_type").source
    usage = whole.usage("gpu_type", "D", whole.demand)
    days = usage["ds"].drop_duplicates()
    for origin in days.iloc[_FIRST : len(days) - _H + 1 : _STEP]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of histories that are short for the horizon
            study = Study(log, by="gpu_type", until=origin, horizon=_H)
            plans = study.gpu_type_plans.plans
        rows = pd.concat({name: plan.forecast for name, plan in plans.items()}, names=["type"]).reset_index("type")
        mean = rows[rows["unique_id"] == MEAN].drop(columns="unique_id").rename(columns={"type": "unique_id"})
        (model,) = model_names(mean)
        columns = {f"{model}{bound}": f"type{bound}" for bound in ("", *_bounds())}
        mean = mean.rename(columns=columns)[["unique_id", "ds", *columns.values()]]
        yield usage.merge(mean, on=["unique_id", "ds"]).assign(cutoff=origin)


def _bounds() -> list[str]:
    return [f"-{side}-{level}" for level in _LEVELS for side in ("lo", "hi")]
