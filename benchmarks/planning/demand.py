"""GPUs held over the next day, from jobs: errors, coverage and processor time on four logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.forecast.sources import LOGS
from benchmarks.planning import venus
from gpudemand.datasets import load_jobs_sample
from gpudemand.forecast import SeasonallyAdjustedNaive
from gpudemand.metrics import evaluate
from gpudemand.planning.demand import JobDemandModel
from gpudemand.planning.run_time import RunTimeModel
from gpudemand.usage.series import usage_series

_H, _WINDOWS, _STEP = 24, 8, 120
#: Days in which all jobs were recorded; the others begin two weeks in, when the jobs that ran at first have left.
_PHILLY = ("2017-10-01", "2017-12-14")


def _hourly(jobs: pd.DataFrame, start: object = None, until: object = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    submit = jobs["submit"]
    start = (submit.min() + pd.Timedelta("14D")).ceil("D") if start is None else start
    until = submit.max().floor("D") if until is None else until
    return jobs, usage_series(jobs, by=None, freq="h", value="gpus", start=start, until=until)


def _venus(data: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    jobs = venus.load(data)
    return jobs, venus.held(jobs, "2020-09-01")


#: Readers of jobs and of the GPUs held by hour.
SOURCES: dict[str, Callable[[Path], tuple[pd.DataFrame, pd.DataFrame]]] = {
    "sample": lambda data: _hourly(load_jobs_sample()),
    "KTH-SP2": lambda data: _hourly(LOGS["KTH-SP2"](data)),
    "Philly": lambda data: _hourly(LOGS["Philly"](data), *_PHILLY),
    "Venus": _venus,
}

#: What is compared: as it is, with run times learned from more rows by more trees, and without run times.
MODELS: dict[str, Callable[[], JobDemandModel]] = {
    "JobDemandModel": JobDemandModel,
    "700,000 rows, 100 trees": lambda: JobDemandModel(run_time=RunTimeModel(history_keys=("group", "user"))),
    "running unknown": lambda: JobDemandModel(running=False),
}


def run(data: Path, models: Mapping[str, Any] | None = None, logs: tuple[str, ...] = tuple(SOURCES)) -> pd.DataFrame:
    """WAPE, bias, coverage and seconds of a fit and a forecast, by log and model; eight origins, five days apart."""
    tables = {log: scores(*SOURCES[log](data), models or MODELS) for log in logs}
    return pd.concat(tables, names=["log"])


def scores(jobs: pd.DataFrame, usage: pd.DataFrame, models: Mapping[str, Any], windows: int = _WINDOWS) -> pd.DataFrame:
    """Errors, coverage and seconds of models at origins five days apart, beside last value and profile."""
    parts, seconds = [], dict.fromkeys([*models, "SeasonallyAdjustedNaive"], 0.0)
    for place in range(windows):
        end = len(usage) - _H - _STEP * (windows - 1 - place)
        known, window = usage.iloc[:end], usage.iloc[end : end + _H].assign(cutoff=usage["ds"].iloc[end - 1])
        for name in seconds:
            began = time.process_time()
            own = models[name]().fit(jobs, known) if name in models else SeasonallyAdjustedNaive().fit(known)
            forecast = own.predict(_H, level=[80, 95])
            seconds[name] += (time.process_time() - began) / windows
            forecast.columns = forecast.columns.str.replace(type(own).__name__, name)
            window = window.merge(forecast, on=["unique_id", "ds"])
        parts.append(window)
    table = evaluate(pd.concat(parts, ignore_index=True), ["wape", "bias", "pinball", "coverage"])
    return table.assign(seconds=pd.Series(seconds))
