"""Any table of jobs or usage that a person brings gives what the plain pandas frame of it gives, and stays as it was."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gpudemand as gd
from gpudemand import planning
from gpudemand._validation import InputError
from gpudemand.jobs.table import as_jobs, check_jobs

BEGIN = pd.Timestamp("2026-03-02", tz="UTC")
ORIGIN = BEGIN + pd.Timedelta("20D")
TIMES, TEXT = ("start", "end"), ("user",)


def minimal_log(n=300):
    """Only what is needed: user, start, end, gpus. No two jobs start at once, so their order is no matter of taste."""
    rng = np.random.default_rng(0)
    start = BEGIN + pd.to_timedelta(np.sort(rng.choice(28 * 1440, n, replace=False)), "min")
    users = np.array(["ada", "bob", "eve"])[rng.integers(3, size=n)]
    end = start + pd.to_timedelta(rng.integers(10, 2000, n), "min")
    return pd.DataFrame({"user": users, "start": start, "end": end, "gpus": rng.integers(1, 5, n)})


LOG = minimal_log()
#: What predicted costs need beside.
TRAINING = LOG.assign(network="net", batch_size=16, epochs=2, samples=1000, gpu_type="A100", precision="fp32")


class Costs:
    """Step times from the columns of the table, in place of a fitted `CostModel`."""

    def costs(self, jobs):
        step = jobs["batch_size"].to_numpy(dtype=float) / np.where(jobs["gpu_type"] == "A100", 100, 200)
        return pd.DataFrame({"step_time_s": step, "memory_gib": 1.0, "fits": 0.5}, index=jobs.index)

    def predict(self, jobs):
        return pd.DataFrame({"step_time_s": 0.1, "memory_gib": 1.0}, index=range(len(jobs)))

    def fits(self, job):
        return 0.5


def step_time(jobs):
    return Costs().costs(jobs)["step_time_s"].to_numpy()


def cost_step_time():
    return planning.CostStepTime(Costs(), {"net": (gd.OpGraph([], []), (3, 8, 8))})


def run_time_model():
    return planning.RunTimeModel(max_rows=2000).fit(LOG, until=ORIGIN)


def forecast():
    ds = pd.date_range(ORIGIN, periods=3, freq="D")
    return pd.DataFrame({"unique_id": "total", "ds": ds, "M": 5.0, "M-lo-90": 4.0, "M-hi-90": 6.0})


def held():
    return gd.usage_series(LOG, by=None, freq="D", value="gpus", partial=False)


def written(write, suffix):
    def run(jobs, folder):
        write(jobs, folder / f"log{suffix}")
        return (folder / f"log{suffix}").read_text()

    return run


def report(jobs, folder):
    page = gd.build_report(jobs, folder, horizon=5, lead_time="5D")
    return pd.read_parquet(page.parent / "tables" / "usage_shares.parquet")


#: Public callables that take a job table -> a call whose result can be compared.
CALLS = {
    "usage_series": lambda jobs, _: gd.usage_series(jobs, freq="6h"),
    "write_jobs": written(gd.write_jobs, ".csv"),
    "write_swf": written(gd.write_swf, ".swf"),
    "expected_queueing": lambda jobs, _: gd.expected_queueing(jobs, [6, 12]),
    "forecast_submissions": lambda jobs, _: planning.forecast_submissions(jobs, np.ones(len(LOG)), ORIGIN),
    "WhatIf": lambda jobs, _: gd.WhatIf(jobs, forecast(), installed=8).compare({"base": []}),
    "RunTimeModel.fit": lambda jobs, _: planning.RunTimeModel(max_rows=2000).fit(jobs).predict(LOG.head(9)),
    "RunTimeModel.predict": lambda jobs, _: run_time_model().predict(jobs),
    "RunTimeModel.curves": lambda jobs, _: run_time_model().curves(jobs).mean(),
    "RunTimeModel.predict_remaining": lambda jobs, _: run_time_model().predict_remaining(jobs).sort_values("elapsed_s"),
    "JobDemandModel.fit": lambda jobs, _: gd.JobDemandModel().fit(jobs, held()).predict(h=2),
    "demand_cross_validation": lambda jobs, _: gd.demand_cross_validation(gd.JobDemandModel(), jobs, held(), h=2),
    "build_report": report,
    "CostStepTime.costs": lambda jobs, _: cost_step_time().costs(jobs),
    "CostStepTime.__call__": lambda jobs, _: cost_step_time()(jobs),
    "TrainingRunTime.fit": lambda jobs, _: gd.TrainingRunTime(step_time).fit(jobs).predict(TRAINING),
    "TrainingRunTime.predict": lambda jobs, _: gd.TrainingRunTime(step_time).fit(TRAINING).predict(jobs),
    "fits_on_cards": lambda jobs, _: gd.fits_on_cards(jobs, Costs()),
    "predicted_times": lambda jobs, _: np.hstack(planning.predicted_times(jobs, ["A100", "H100"], Costs())),
}
NEED_NETWORKS = {name for name in CALLS if name.startswith(("CostStep", "TrainingRun", "fits_on", "predicted_t"))}
A_ROW_A_JOB = {"RunTimeModel.predict", "RunTimeModel.curves", "TrainingRunTime.predict", "predicted_times"} | {
    name for name in CALLS if name.startswith("CostStep")
}
SLOW = {"build_report", "demand_cross_validation", "JobDemandModel.fit"}


def public_names():
    """Every public name of the package and of its folders."""
    folders = [gd, *(importlib.import_module(f"gpudemand.{m.name}") for m in pkgutil.iter_modules(gd.__path__) if m.ispkg)]
    return {name: getattr(folder, name) for folder in folders for name in getattr(folder, "__all__", [])}


def takes_a_job_table(function):
    parameter = inspect.signature(function).parameters.get("jobs")
    return parameter is not None and "pd.DataFrame" in str(parameter.annotation)


def entry_points():
    found = set()
    for name, thing in public_names().items():
        if inspect.isclass(thing):
            methods = inspect.getmembers(thing, inspect.isfunction)
            public = [(m, f) for m, f in methods if not m.startswith("_") or m in ("__init__", "__call__")]
            found |= {f"{name}.{m}".removesuffix(".__init__") for m, f in public if takes_a_job_table(f)}
        elif callable(thing) and takes_a_job_table(thing):
            found.add(name)
    return found


def test_no_entry_point_is_forgotten():
    assert entry_points() == set(CALLS)
