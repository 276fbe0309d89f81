"""Simulated queues: published waits of a log, and run time."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.planning.speed import million_jobs
from gpudemand.jobs.readers import read_jobs
from gpudemand.planning.queue.events import POLICIES
from gpudemand.planning.queue.simulate import simulate_queue

KTH = "traces/swf-kth-sp2/KTH-SP2-1996-2.swf.gz"


def kth_sp2(data: Path) -> pd.DataFrame:
    """Mean wait and bounded slowdown (10 s) by policy; published for EASY: 114 min and 90 (Tsafrir et al., 2007)."""
    jobs = read_jobs(data / KTH, format="swf")
    tables = {"recorded": jobs} | {policy: simulate_queue(jobs, 100, policy) for policy in POLICIES}
    return pd.DataFrame({name: _waits(table) for name, table in tables.items()}).T


def _waits(jobs: pd.DataFrame) -> dict[str, float]:
    wait = (jobs["start"] - jobs["submit"]).dt.total_seconds()
    run = (jobs["end"] - jobs["start"]).dt.total_seconds()
    slowdown = np.maximum((wait + run) / np.maximum(run, 10), 1)
    return {"mean wait, min": wait.mean() / 60, "mean bounded slowdown": slowdown.mean()}


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
