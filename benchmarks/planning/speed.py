"""Run time of a plan and of a scenario from a million jobs, and of whole studies with their reports."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from gpudemand.cli.report import sample_log
from gpudemand.jobs.table import as_jobs
from gpudemand.planning.capacity import plan_capacity
from gpudemand.planning.demand import JobDemandModel
from gpudemand.planning.scenarios import Growth, RemoveGroup, WhatIf
from gpudemand.report.build import build_report
from gpudemand.usage.series import usage_series
from gpudemand.widgets import what_if

START = pd.Timestamp("2025-01-01", tz="UTC")


def million_jobs(n_jobs: int = 1_000_000, n_users: int = 500, n_days: int = 180) -> pd.DataFrame:
    """Simulated log with heavy-tailed run times."""
    rng = np.random.default_rng(0)
    submit = START + pd.to_timedelta(np.sort(rng.integers(0, n_days * 86400, n_jobs)), unit="s")
    run = pd.to_timedelta(np.exp(rng.normal(6.5, 2.2, n_jobs)).clip(1, 7 * 86400).round(), unit="s")
    user = np.array([f"user{number:04d}" for number in range(n_users)])[rng.integers(0, n_users, n_jobs)]
    frame = pd.DataFrame({"user": user, "submit": submit, "end": submit + run})
    return as_jobs(frame.assign(gpus=rng.choice([1.0, 2.0, 4.0, 8.0], n_jobs)), kind="synthetic")


def plan_seconds(jobs: pd.DataFrame) -> pd.DataFrame:
    """Seconds of each step, CPU time and wall time; on a busy machine only the first is comparable."""
    times = [_now()]
    usage = usage_series(jobs, by=None, freq="D", value="gpus", until=START + pd.Timedelta("170D"))
    times.append(_now())
    forecast = JobDemandModel().fit(jobs, usage).predict(28, level=[80, 95])
    times.append(_now())
    plan = plan_capacity(forecast, installed=2000)
    times.append(_now())
    scenarios = WhatIf(jobs, forecast, installed=2000)
    times.append(_now())
    scenarios.plan([Growth(1.5), RemoveGroup("user0001")])
    times.append(_now())
    widget = what_if(plan, usage)
    times.append(_now())
    widget.sliders["growth"].value = 1.2
    times.append(_now())
    steps = ["usage", "demand model", "plan", "what-if, set-up", "scenario", "widget, set-up", "widget, update"]
    return pd.DataFrame(np.diff(times, axis=0), steps, ["CPU s", "wall s"])


def study_seconds() -> pd.DataFrame:
    """Seconds of processor by step of a report with a target for waits, after one that compiles, and the peak memory.

    Of the bundled sample, and of a million jobs of 10,000 users.
    """
    sample = sample_log()
    _report_seconds(sample)
    columns = {"sample": _report_seconds(sample), "million": _report_seconds(million_jobs(n_users=10_000))}
    return pd.DataFrame(columns)


def _report_seconds(jobs: pd.DataFrame) -> pd.Series:
    steps, times = ["reading settings"], [_now()[0]]

    def begin(step: str) -> None:
        steps.append(step)
        times.append(_now()[0])

    with tempfile.TemporaryDirectory() as folder:
        build_report(jobs, Path(folder, "report"), wait="1h", progress=begin)
    seconds = pd.Series(np.diff([*times, _now()[0]]), steps)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return pd.concat([seconds, pd.Series({"all": seconds.sum(), "peak GiB so far": peak})])


def _now() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()
