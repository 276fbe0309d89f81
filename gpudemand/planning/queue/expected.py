"""Waits of the jobs of a log at several capacities, simulated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudemand._validation import InputError, check_number
from gpudemand.jobs.as_of import gave_up, seconds_since, start_times
from gpudemand.jobs.table import check_jobs
from gpudemand.jobs.time_parser import parse_timestamp
from gpudemand.planning.queue.simulate import run_seconds, simulate_queue
from gpudemand.planning.runtime.run_time import RunTimeModel
from gpudemand.usage.series import end_of_record

_WEEK, _DAY = pd.Timedelta("7D"), pd.Timedelta("1D")


def expected_queueing(
    jobs: pd.DataFrame,
    capacities: Sequence[float],
    *,
    growth: float = 1.0,
    policy: str = "easy",
    start: object = None,
    run_time: RunTimeModel | None = None,
    random_state: int = 0,
) -> pd.DataFrame:
    """Simulated waits of the jobs of a log at several capacities.

    Parameters
    ----------
    jobs : DataFrame
        Job table of a representative period, such as the last four weeks.
    capacities : sequence of float
        GPUs installed.
    growth : float, default=1.0
        Number of submissions relative to the log's. Copies of jobs are submitted whole weeks (in a shorter log, days)
        before or after them, so that days and weeks keep their shape.
    policy : {"easy", "conservative", "fifo", "eager"}, default="easy"
        See `simulate_queue`.
    start : time-like, optional
        Jobs that started before it hold their GPUs at the beginning, and are not among the waits. By default the
        cluster is empty at first.
    run_time : RunTimeModel, optional
        Expects how long jobs without an end run; by default one that is fitted to `jobs`.
    random_state : int, default=0
        Seed of the jobs that `growth` draws.

    Returns
    -------
    DataFrame
        Index ``capacity``; ``utilization``, ``mean_wait_s``, ``p95_wait_s``, ``share_over_1h`` (share of jobs that wait
        longer than an hour), ``never`` (share of jobs too large to run, which are left out).

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster
    >>> jobs, _ = make_cluster(n_users=10, n_days=28, random_state=0)
    >>> waits = expected_queueing(jobs, [32, 128])["mean_wait_s"]
    >>> bool(waits[128] < waits[32])
    True
    """
    check_number("growth", growth, 0, 1000, open_low=True)
    log = with_expected_ends(check_jobs(jobs), run_time)
    log = log[(log["gpus"] > 0).to_numpy() & ~gave_up(log)]
    if log.empty:
        raise InputError("no job of the log held a GPU, so there is nothing to simulate.")
    begin = log["submit"].min() if start is None else parse_timestamp(start, name="start")
    log = log if growth == 1 else _grown(log, growth, begin, np.random.default_rng(random_state))
    rows = [_waits(log, check_number("capacities", gpus, 0, open_low=True), policy, begin) for gpus in capacities]
    return pd.DataFrame(rows, index=pd.Index(list(capacities), name="capacity"))


def with_expected_ends(
    jobs: pd.DataFrame, run_time: RunTimeModel | None = None, until: pd.Timestamp | None = None
) -> pd.DataFrame:
    """The log with the expected ends of jobs that had none, in new rows 0, 1, ...; see `run_seconds`.

    Those that wait start at its end, `until`, at the earliest.
    """
    log = jobs.reset_index(drop=True)
    unfinished, begin = log["end"].isna(), start_times(log)
    run = pd.to_timedelta(pd.Series(run_seconds(log, run_time), log.index), unit="s")
    end_of_log = end_of_record(log) if until is None else until
    start, end = log["start"].mask(begin.isna(), end_of_log), log["end"].fillna(begin.fillna(end_of_log) + run)
    return log.assign(start=start, end=end, status=log["status"].mask(unfinished, "completed"))


def _grown(jobs: pd.DataFrame, growth: float, begin: pd.Timestamp, rng: np.random.Generator) -> pd.DataFrame:
    """The jobs submitted from `begin` on in `growth` times their number, at the same times of other weeks or days."""
    later = jobs[jobs["submit"] >= begin]
    count = np.floor(growth) + (rng.random(len(later)) < growth % 1)
    copies = later.loc[later.index.repeat(count.astype(int))]
    is_copy = copies.index.duplicated()
    span = later["submit"].max() - begin
    step = _WEEK if span >= 2 * _WEEK else _DAY
    n_steps = max(int(np.ceil(span / step)), 1)
    shift = np.where(is_copy, rng.integers(0, n_steps, len(copies)), 0)
    since = copies["submit"] - begin
    moved = (since + shift * step) % (n_steps * step) - since
    copies = copies.assign(**{name: copies[name] + moved for name in ("submit", "start", "end")}, job_id=None)
    return pd.concat([jobs[jobs["submit"] < begin], copies], ignore_index=True)


def _waits(jobs: pd.DataFrame, capacity: float, policy: str, begin: pd.Timestamp) -> dict[str, float]:
    able = jobs[jobs["gpus"] <= capacity]
    never = 1 - len(able) / len(jobs)
    ran = simulate_queue(able, capacity, policy, start=begin) if len(able) else able
    counted = ran[(ran["submit"] >= begin) & ran["start"].notna()]
    if counted.empty:
        return {"utilization": 0.0, "mean_wait_s": np.nan, "p95_wait_s": np.nan, "share_over_1h": 1.0, "never": never}
    wait = seconds_since(counted["start"], counted["submit"])
    return {
        "utilization": _utilization(ran, capacity, begin, counted["submit"].max()),
        "mean_wait_s": float(wait.mean()),
        "p95_wait_s": float(np.quantile(wait, 0.95)),
        "share_over_1h": float((wait > 3600).mean()),
        "never": never,
    }


def _utilization(jobs: pd.DataFrame, capacity: float, begin: pd.Timestamp, until: pd.Timestamp) -> float:
    length = max((until - begin).total_seconds(), 1.0)
    first, last = (np.clip(seconds_since(jobs[name], begin), 0, length) for name in ("start", "end"))
    return float(np.nansum((last - first) * jobs["gpus"].to_numpy(dtype=float)) / (capacity * length))
