"""Simulated queues: published waits of a log, waits of coming weeks, and run time."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.planning.speed import START, million_jobs
from benchmarks.planning.wait_backtest import WaitBacktest, wait_backtest
from gpudemand.jobs.read import read_jobs
from gpudemand.jobs.table import as_jobs
from gpudemand.planning.queue import simulate_queue
from gpudemand.planning.queue_kernels import POLICIES
from gpudemand.planning.waits import effective_capacity, mean_wait_s
from gpudemand.usage.waits import bounded_slowdown

KTH = "traces/swf-kth-sp2/KTH-SP2-1996-2.swf.gz"


def kth_sp2(data: Path) -> pd.DataFrame:
    """Mean wait and bounded slowdown (10 s) by policy; published for EASY: 114 min and 90 (Tsafrir et al., 2007)."""
    jobs = read_jobs(data / KTH, format="swf")
    tables = {"recorded": jobs} | {policy: simulate_queue(jobs, 100, policy) for policy in POLICIES}
    return pd.DataFrame({name: _waits(table) for name, table in tables.items()}).T


def _waits(jobs: pd.DataFrame) -> dict[str, float]:
    wait = (jobs["start"] - jobs["submit"]).dt.total_seconds()
    run = (jobs["end"] - jobs["start"]).dt.total_seconds()
    return {"mean wait, min": wait.mean() / 60, "mean bounded slowdown": bounded_slowdown(wait, run).mean()}


def coming_windows(data: Path) -> WaitBacktest:
    """Waits of each 28 days of KTH-SP2, the one log here that records waits, predicted."""
    return wait_backtest(read_jobs(data / KTH, format="swf"), 100)


def _wait_s(jobs: pd.DataFrame, gpus: float, begin: pd.Timestamp, end: pd.Timestamp) -> float:
    log = jobs[(jobs["submit"] < end) & ((jobs["end"] > begin) | (jobs["submit"] >= begin))]
    able = log.assign(gpus=np.minimum(log["gpus"], gpus))
    return mean_wait_s(simulate_queue(able, gpus, start=begin), begin)


def changed_capacity(n_clusters: int = 100) -> pd.DataFrame:
    """Mean waits (min) after a change of the capacity by -20 to +40 %, on clusters with untold policy and outages."""
    return pd.DataFrame([_changed_cluster(seed) for seed in range(n_clusters)])


def _changed_cluster(seed: int, n_days: int = 84) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    n = 700 * n_days // 7
    submit = START + pd.to_timedelta(np.sort(rng.integers(0, n_days, n) * 24 + rng.normal(14, 5, n) % 24), unit="h")
    run = pd.to_timedelta(np.exp(rng.normal(8.5, 1.2, n)).clip(10, 2 * 86400).round(), unit="s")
    frame = pd.DataFrame({"submit": submit.round("s"), "end": submit.round("s") + run})
    frame["requested_time"] = run.total_seconds() * rng.uniform(1, 5, n)
    jobs = as_jobs(frame.assign(gpus=rng.choice([1.0, 2.0, 4.0, 8.0], n)), kind="synthetic")
    offered = (run.total_seconds() * jobs["gpus"]).sum() / (n_days * 86400)
    installed, change = round(offered / rng.uniform(0.7, 0.95)), rng.uniform(0.8, 1.4)
    begin, middle, end = START, START + pd.Timedelta(days=n_days // 2), START + pd.Timedelta(days=n_days)
    hours = pd.date_range(begin, end, freq="h")
    down = np.repeat(rng.choice([0.0, 0.1, 0.25], len(hours) // 24 + 1, p=[0.7, 0.2, 0.1]), 24)[: len(hours)]
    capacity = np.ceil(installed * np.where(hours < middle, 1.0, change) * (1 - down)).clip(8)
    true = simulate_queue(jobs, pd.Series(capacity, hours), rng.choice(POLICIES))
    able = effective_capacity(true, installed, start=begin + pd.Timedelta("7D"), until=middle)
    return {
        "recorded": mean_wait_s(true, middle) / 60,
        "as before": mean_wait_s(true[true["submit"] < middle], begin + pd.Timedelta("7D")) / 60,
        "EASY": _wait_s(true, installed * change, middle, end) / 60,
        "calibrated": _wait_s(true, able * change, middle, end) / 60,
    }


def within_factor(table: pd.DataFrame, factor: float = 1.5) -> pd.Series:
    """Share of each prediction within a factor of the recorded wait; a minute is added to both."""
    predicted = table.drop(columns="recorded")
    return (np.log((predicted + 1).div(table["recorded"] + 1, axis=0)).abs() <= np.log(factor)).mean()


def million_jobs_seconds() -> pd.DataFrame:
    """CPU and wall time by policy and load; code is compiled before."""
    jobs, rows = million_jobs(), {}
    held = ((jobs["end"] - jobs["submit"]).dt.total_seconds() * jobs["gpus"]).sum()
    offered = held / (jobs["submit"].max() - jobs["submit"].min()).total_seconds()
    for policy in ("fifo", "easy", "eager"):
        simulate_queue(jobs.head(10), 8, policy)
        for load in (0.9, 1.0, 1.1):
            begin = time.process_time(), time.perf_counter()
            table = simulate_queue(jobs, round(offered / load), policy)
            spent = time.process_time() - begin[0], time.perf_counter() - begin[1]
            rows[policy, load] = (*spent, _waits(table)["mean wait, min"])
    return pd.DataFrame.from_dict(rows, orient="index", columns=["CPU s", "wall s", "mean wait, min"])
