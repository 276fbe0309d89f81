"""Event simulation of the queue of a cluster with interchangeable GPUs."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.jobs.as_of import seconds_since, start_times
from gpudemand.jobs.table import check_jobs

POLICIES = ("fifo", "backfill")
#: Waiting jobs that a backfilling scheduler considers.
_DEPTH = 100


def simulate_starts(
    submit_s: FloatArray, run_s: FloatArray, gpus: FloatArray, capacity: float, policy: str = "backfill"
) -> FloatArray:
    """Start times of jobs on a number of interchangeable GPUs.

    Parameters
    ----------
    submit_s, run_s, gpus : ndarray of shape (n_jobs,)
        Submissions in ascending order, run times (s) and GPUs.
    capacity : float
        GPUs installed.
    policy : {"backfill", "fifo"}, default="backfill"
        ``fifo`` starts jobs in order of submission, so that a large one blocks those behind it. ``backfill`` starts any
        of the first 100 waiting jobs that fits (aggressive backfilling), which may starve large jobs.

    Returns
    -------
    ndarray of shape (n_jobs,)
        Seconds; infinite for jobs that request more than `capacity`.

    Examples
    --------
    >>> simulate_starts(np.array([0.0, 0, 0]), np.array([10.0, 10, 5]), np.array([2.0, 4, 2]), 4, "fifo")
    array([ 0., 10., 20.])
    >>> simulate_starts(np.array([0.0, 0, 0]), np.array([10.0, 10, 5]), np.array([2.0, 4, 2]), 4)
    array([ 0., 10.,  0.])
    """
    check_choice("policy", policy, POLICIES)
    check_number("capacity", capacity, 0, open_low=True)
    starts = np.full(len(submit_s), np.inf)
    depth = 1 if policy == "fifo" else _DEPTH
    free, ends, waiting = float(capacity), [], []  # type: float, list[tuple[float, float]], list[int]
    for job in [*np.flatnonzero(gpus <= capacity), -1]:
        now = float(submit_s[job]) if job >= 0 else np.inf
        while ends and ends[0][0] <= now and (waiting or np.isfinite(now)):
            time = ends[0][0]
            while ends and ends[0][0] <= time:
                free += heapq.heappop(ends)[1]
            free = _start(waiting, starts, time, free, run_s, gpus, ends, depth)
        if job >= 0:
            waiting.append(int(job))
            free = _start(waiting, starts, now, free, run_s, gpus, ends, depth)
    return starts


def _start(
    waiting: list[int],
    starts: FloatArray,
    now: float,
    free: float,
    run_s: FloatArray,
    gpus: FloatArray,
    ends: list[tuple[float, float]],
    depth: int,
) -> float:
    """Start the waiting jobs that fit; return the GPUs that stay free."""
    place = 0
    while place < min(depth, len(waiting)) and free > 0:
        job = waiting[place]
        if gpus[job] <= free + 1e-9:
            starts[job] = now
            free -= float(gpus[job])
            heapq.heappush(ends, (now + float(run_s[job]), float(gpus[job])))
            del waiting[place]
        else:
            place += 1
    return free


def expected_queueing(
    jobs: pd.DataFrame, capacities: Sequence[float], *, growth: float = 1.0, policy: str = "backfill"
) -> pd.DataFrame:
    """Simulated waits of the jobs of a log at several capacities.

    Parameters
    ----------
    jobs : DataFrame
        Canonical table of a representative period, such as the last four weeks; unfinished jobs are left out.
    capacities : sequence of float
        GPUs installed.
    growth : float, default=1.0
        Rate of submissions relative to the log's.
    policy : {"backfill", "fifo"}

    Returns
    -------
    DataFrame
        Index ``capacity``; ``utilization``, ``mean_wait_s``, ``p95_wait_s``, ``share_over_1h`` (share of jobs that wait
        longer than an hour), ``never`` (share of jobs too large to run).

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster
    >>> jobs, _ = make_cluster(n_users=10, n_days=28, random_state=0)
    >>> waits = expected_queueing(jobs, [32, 128])["mean_wait_s"]
    >>> bool(waits[128] < waits[32])
    True
    """
    check_number("growth", growth, 0, 1000, open_low=True)
    jobs = check_jobs(jobs)
    ended = jobs[jobs["end"].notna() & (jobs["gpus"] > 0)].sort_values("submit", kind="stable")
    if ended.empty:
        raise InputError("no job of the log has ended, so nothing can be simulated.")
    submit = seconds_since(ended["submit"], ended["submit"].iloc[0]) / growth
    run = seconds_since(ended["end"], start_times(ended))
    gpus = ended["gpus"].to_numpy(dtype=float)
    rows = [_waits(submit, run, gpus, capacity, policy) for capacity in capacities]
    return pd.DataFrame(rows, index=pd.Index(list(capacities), name="capacity"))


def _waits(submit: FloatArray, run: FloatArray, gpus: FloatArray, capacity: float, policy: str) -> dict[str, float]:
    starts = simulate_starts(submit, run, gpus, capacity, policy)
    ran = np.isfinite(starts)
    if not ran.any():
        return {"utilization": 0.0, "mean_wait_s": np.nan, "p95_wait_s": np.nan, "share_over_1h": 1.0, "never": 1.0}
    wait = starts[ran] - submit[ran]
    until = max(float(submit[-1]), 1.0)
    busy = np.clip(np.minimum(starts + run, until) - starts, 0, None)[ran] * gpus[ran]
    return {
        "utilization": float(busy.sum() / (capacity * until)),
        "mean_wait_s": float(wait.mean()),
        "p95_wait_s": float(np.quantile(wait, 0.95)),
        "share_over_1h": float((wait > 3600).mean()),
        "never": float((~ran).mean()),
    }
