"""Waits that are expected at other capacities, and what of the recorded waits GPUs explain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray
from gpudemand._validation import InputError, check_list, check_number, told
from gpudemand.jobs.table import check_jobs, gave_up, seconds_since, start_times
from gpudemand.jobs.times import parse_timestamp
from gpudemand.planning.queue import run_seconds, simulate_queue
from gpudemand.units import DAY, WEEK
from gpudemand.usage.series import end_of_record


@told("Simulating queues")
def expected_queueing(
    jobs: pd.DataFrame,
    capacities: Sequence[float],
    *,
    growth: float = 1.0,
    policy: str = "easy",
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
    listed = check_list("capacities", capacities, "numbers of GPUs")
    log = with_expected_ends(check_jobs(jobs))
    log = log[(log["gpus"] > 0).to_numpy() & ~gave_up(log)]
    if log.empty:
        raise InputError("no job of the log held a GPU, so there is nothing to simulate.")
    begin = log["submit"].min()
    log = log if growth == 1 else _grown(log, growth, begin)
    rows = [_waits(log, check_number("capacities", gpus, 0, open_low=True), policy, begin) for gpus in listed]
    return pd.DataFrame(rows, index=pd.Index(listed, name="capacity"))


def with_expected_ends(jobs: pd.DataFrame, until: pd.Timestamp | None = None) -> pd.DataFrame:
    """The log, rows 0, 1, ..., with expected ends where it has none; jobs that wait start at `until` or later."""
    log = jobs.reset_index(drop=True)
    unfinished, begin = log["end"].isna(), start_times(log)
    run = pd.to_timedelta(pd.Series(run_seconds(log), log.index), unit="s")
    end_of_log = end_of_record(log) if until is None else until
    start, end = log["start"].mask(begin.isna(), end_of_log), log["end"].fillna(begin.fillna(end_of_log) + run)
    return log.assign(start=start, end=end, status=log["status"].mask(unfinished, "completed"))


def _grown(jobs: pd.DataFrame, growth: float, begin: pd.Timestamp) -> pd.DataFrame:
    """`growth` times the number of jobs, submitted from `begin` on at the same times of other weeks or days."""
    rng = np.random.default_rng(0)
    count = np.floor(growth) + (rng.random(len(jobs)) < growth % 1)
    copies = jobs.loc[jobs.index.repeat(count.astype(int))]
    is_copy = copies.index.duplicated()
    span = jobs["submit"].max() - begin
    step = WEEK if span >= 2 * WEEK else DAY
    n_steps = max(int(np.ceil(span / step)), 1)
    shift = np.where(is_copy, rng.integers(0, n_steps, len(copies)), 0)
    since = copies["submit"] - begin
    moved = (since + shift * step) % (n_steps * step) - since
    times = {name: copies[name] + moved for name in ("submit", "start", "end")}
    return copies.assign(**times, job_id=np.arange(len(copies)).astype(str)).reset_index(drop=True)


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
        **mean_and_p95(wait),
        "share_over_1h": float((wait > 3600).mean()),
        "never": never,
    }


def mean_and_p95(wait_s: FloatArray) -> dict[str, float]:
    """Mean and 95 % quantile of waits."""
    return {"mean_wait_s": float(wait_s.mean()), "p95_wait_s": float(np.quantile(wait_s, 0.95))}


def _utilization(jobs: pd.DataFrame, capacity: float, begin: pd.Timestamp, until: pd.Timestamp) -> float:
    length = max((until - begin).total_seconds(), 1.0)
    first, last = (np.clip(seconds_since(jobs[name], begin), 0, length) for name in ("start", "end"))
    return float(np.nansum((last - first) * jobs["gpus"].to_numpy(dtype=float)) / (capacity * length))


#: Least share of the installed GPUs that is considered, and the precision of the share.
_LEAST, _PRECISION = 0.3, 0.005


@told("Simulating queues")
def effective_capacity(
    jobs: pd.DataFrame,
    installed: float,
    *,
    start: object,
    until: object,
    policy: str = "easy",
) -> float:
    """GPUs with which a simulation gives the mean wait that a log records over a period.

    They are fewer than those installed where nodes are down, reserved or limited, or GPUs are fragmented: simulated on
    all of them, waits come out too short. The result is what to simulate other jobs of that cluster with.

    Parameters
    ----------
    jobs : DataFrame
        Job table with ``submit`` and ``start``.
    installed : float
        GPUs installed.
    start, until : time-like
        Period of the submissions, some weeks. Jobs that ran or waited at its start do so in the simulation too.
    policy : {"easy", "conservative", "fifo", "eager"}, default="easy"
        See `simulate_queue`.

    Returns
    -------
    float
        From 30 % of `installed` to all. Jobs that are larger are taken to request all there are; those that have not
        started by `until`, in the log or simulated, to have waited until then.

    Raises
    ------
    InputError
        If no job that was submitted in the period has started.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> submit = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(np.sort(rng.integers(0, 86400, 300)), unit="s")
    >>> log = pd.DataFrame({"submit": submit, "end": submit + pd.Timedelta("1h"), "gpus": 1.0})
    >>> log = simulate_queue(log, 13)
    >>> round(effective_capacity(log, 20, start="2026-03-01", until="2026-03-02"))
    13
    """
    most = check_number("installed", installed, 0, open_low=True)
    begin, end = parse_timestamp(start, name="start"), parse_timestamp(until, name="until")
    log = with_expected_ends(check_jobs(jobs))
    log = log[(log["submit"] < end) & ((log["end"] > begin) | (log["submit"] >= begin)) & ~gave_up(log)]
    # With expected ends, what waits at the beginning, and still does at the end, would else seem to run.
    log = log.assign(status=log["status"].mask(log["start"].isna(), "pending"))
    recorded = mean_wait_s(log, begin, end)
    if np.isnan(recorded):
        raise InputError(f"no job submitted from {begin} to {end} has started; choose another period.")
    low, high = _LEAST * most, most
    if _simulated_wait_s(log, high, begin, end, policy) >= recorded:
        return most
    while high - low > _PRECISION * most:
        middle = (low + high) / 2
        is_too_long = _simulated_wait_s(log, middle, begin, end, policy) > recorded
        low, high = (middle, high) if is_too_long else (low, middle)
    return high


def mean_wait_s(jobs: pd.DataFrame, begin: pd.Timestamp, until: pd.Timestamp | None = None) -> float:
    """Mean wait (s) of the jobs with GPUs that were submitted from `begin` on and have started; NaN without any.

    With `until`, as far as they have waited by then, and also of those that still do: of the jobs of a queue that
    grows, those that have started are the ones that waited for a short time.
    """
    counted = jobs[(jobs["submit"] >= begin) & (jobs["gpus"] > 0)]
    started = counted["start"].notna()
    if not started.any():
        return np.nan
    start = counted["start"][started] if until is None else counted["start"].fillna(until).clip(upper=until)
    return float(np.mean(seconds_since(start, counted["submit"].loc[start.index])))


def _simulated_wait_s(jobs: pd.DataFrame, gpus: float, begin: pd.Timestamp, until: pd.Timestamp, policy: str) -> float:
    able = jobs.assign(gpus=np.minimum(jobs["gpus"], gpus))
    return mean_wait_s(simulate_queue(able, gpus, policy, start=begin), begin, until)
