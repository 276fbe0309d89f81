"""Simulation of a cluster's queue: the start and end that the jobs of a log would have had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, as_numbers, check_choice, require_names, shorten
from gpudemand.jobs.as_of import gave_up, seconds_since, start_times, to_nanoseconds
from gpudemand.jobs.schema import LATEST
from gpudemand.jobs.table import check_jobs
from gpudemand.jobs.time_parser import parse_timestamp
from gpudemand.planning.queue.events import POLICIES, QueuedJobs, simulate_events
from gpudemand.planning.queue.nodes import fits, nodes_of
from gpudemand.planning.queue.pools import Capacity, Pool, pools_of
from gpudemand.planning.queue.waiting import NEVER
from gpudemand.planning.runtime.run_time import RunTimeModel
from gpudemand.units import format_number_of, plural

#: Longer requests (30 years) plan nothing.
_LONGEST_S = 1e9
#: Rows of the log that expected run times are learned from by default; few jobs have no end.
_MOST_ROWS = 50_000


def simulate_queue(
    jobs: pd.DataFrame,
    capacity: Capacity,
    policy: str = "easy",
    *,
    start: object = None,
    priority: str | None = None,
    gpus_per_node: float | Mapping[str, float] | None = None,
    run_time: RunTimeModel | None = None,
) -> pd.DataFrame:
    """Start and end that jobs would have had on a number of GPUs.

    Parameters
    ----------
    jobs : DataFrame
        Job table; see `gpudemand.jobs.table.check_jobs`. ``requested_time`` is what the scheduler plans with, at least
        the time that a job runs, which it is where the request is unknown.
    capacity : number, Series or mapping
        GPUs in service. A Series with times as its index is the number from each time on (deliveries, outages; the
        first also before): jobs that run stay when it falls. A mapping gives either for each pool, by ``gpu_type``,
        ``partition`` or ``cluster``, whichever column its keys are the names of.
    policy : {"easy", "conservative", "fifo", "eager"}, default="easy"
        ``fifo`` starts jobs strictly in order. ``easy`` reserves GPUs for the head of the queue, at the time they are
        free if all jobs run as long as requested, and lets others pass that do not delay it. ``conservative`` gives
        every job a reservation that none may delay, earlier ones in order when a job ends early. ``eager`` starts
        every job that fits, without reservations, and may starve large ones.
    start : time-like, optional
        Jobs that started before keep their times: they hold their GPUs at the beginning, and others may wait already.
        By default every job is queued.
    priority : str, optional
        Column of numbers; jobs with higher ones are ahead in the queue, the others in order of submission.
    gpus_per_node : number or mapping of str to number, optional
        GPUs of a node, for all pools or by pool. A job of less needs them on one node, the one that it fits best, a
        larger one whole empty nodes and one for the rest. By default GPUs are interchangeable.
    run_time : RunTimeModel, optional
        Expects how long jobs without an end run; by default one that is fitted to `jobs`.

    Returns
    -------
    DataFrame
        `jobs` with other ``start``, ``end`` and, for jobs without an end, ``status``. Jobs that the capacity does not
        suffice for after some time stay ``pending``. Jobs without GPUs, and those cancelled while they waited, are as
        they were.

    Raises
    ------
    InputError
        For a capacity below the largest job, and other arguments that cannot be used.

    Notes
    -----
    Events are handled one at a time, ends before submissions. With n jobs, of which w wait and r run at a time, a
    simulation takes O(n (log n + r)) steps, ``conservative`` O(n w (w + r)), so that it is for queues of hundreds. Code
    is compiled on first use, which takes some seconds once.

    References
    ----------
    Mu'alem and Feitelson, "Utilization, predictability, workloads, and user runtime estimates in scheduling the IBM
    SP2 with backfilling", IEEE TPDS 12 (2001), for EASY and conservative backfilling.

    Examples
    --------
    >>> submit = pd.to_datetime(["2026-03-01 00:00", "2026-03-01 00:01", "2026-03-01 00:02"], utc=True)
    >>> run = pd.to_timedelta([60, 60, 30], unit="min")
    >>> log = pd.DataFrame({"submit": submit, "end": submit + run, "gpus": [4, 8, 4]})
    >>> for policy in ("fifo", "easy"):
    ...     print(simulate_queue(log, 8, policy)["start"].dt.strftime("%H:%M").tolist())
    ['00:00', '01:00', '02:00']
    ['00:00', '01:00', '00:02']
    """
    check_choice("policy", policy, POLICIES)
    log = check_jobs(jobs)
    table = log.reset_index(drop=True)
    if policy == "conservative" and gpus_per_node is not None:
        raise InputError("conservative reservations are for interchangeable GPUs; drop gpus_per_node, or use 'easy'.")
    begin = None if start is None else parse_timestamp(start, name="start")
    run_s = run_seconds(table, run_time)
    queued, place = _queue(table, run_s, begin), _queue_places(table, priority)
    needs = (table["gpus"] > 0).to_numpy() & ~gave_up(table)
    starts = np.full(len(table), NEVER)
    for pool in pools_of(table, capacity, gpus_per_node):
        rows = pool.rows[needs[pool.rows]]
        rows = rows[np.argsort(place[rows])]
        if rows.size:
            _check_sizes(table, rows, pool)
            starts[rows] = _simulate(QueuedJobs._make(column[rows] for column in queued), pool, POLICIES.index(policy))
    return _with_times(table, starts, run_s, needs & (queued.started == NEVER)).set_axis(log.index)


def run_seconds(jobs: pd.DataFrame, run_time: RunTimeModel | None = None) -> FloatArray:
    """Run times of jobs (s); of those without an end as a `RunTimeModel` expects them, by default fitted to `jobs`."""
    run_s = seconds_since(jobs["end"], start_times(jobs).fillna(jobs["submit"])).copy()
    unfinished = jobs[jobs["end"].isna()]
    if len(unfinished):
        model = RunTimeModel(max_rows=_MOST_ROWS).fit(jobs) if run_time is None else run_time
        runs = (start_times(unfinished) < model.until_).to_numpy(dtype=bool)
        if runs.any():
            running = model.predict_remaining(unfinished[runs])
            run_s[unfinished.index[runs]] = running["elapsed_s"] + running["mean_remaining_s"]
        if not runs.all():
            run_s[unfinished.index[~runs]] = model.predict(unfinished[~runs])["mean_run_time_s"]
    return run_s


def _queue(jobs: pd.DataFrame, run_s: FloatArray, begin: pd.Timestamp | None) -> QueuedJobs:
    """All jobs as the simulation takes them; those that started before `begin` have their start."""
    submit, run = to_nanoseconds(jobs["submit"]), _whole(run_s)
    request = np.minimum(jobs["requested_time"].fillna(0.0).to_numpy(dtype=float), _LONGEST_S)
    requested = np.maximum(_whole(request), run)
    started = np.full(len(jobs), NEVER)
    if begin is not None:
        first = to_nanoseconds(pd.Series([begin]))[0]
        held = start_times(jobs).fillna(begin)
        before = (held < begin).to_numpy()
        started[before] = to_nanoseconds(held[before])
        submit = np.maximum(submit, first)
    return QueuedJobs(submit, run, requested, started, jobs["gpus"].to_numpy(dtype=float, copy=True))


def _whole(seconds: FloatArray) -> IntArray:
    """Whole nanoseconds."""
    return np.round(seconds * 1e9).astype(np.int64)


def _queue_places(jobs: pd.DataFrame, priority: str | None) -> IntArray:
    """Place of each job in the queue if all waited at once."""
    keys: list[Any] = [to_nanoseconds(jobs["submit"])]
    if priority is not None:
        require_names(jobs.columns, [priority], "jobs")
        keys.append(-as_numbers(jobs[priority], f"jobs[{priority!r}]"))
    return np.argsort(np.lexsort(keys))


def _check_sizes(jobs: pd.DataFrame, rows: IntArray, pool: Pool) -> None:
    """Raise for jobs that no time's capacity suffices for."""
    highest = float(pool.gpus.max())
    sizes = np.unique(jobs["gpus"].to_numpy()[rows])
    nodes = np.array([highest]) if np.isinf(pool.node_gpus) else nodes_of(highest, pool.node_gpus)
    too_large = sizes[[not fits(nodes, gpus, pool.node_gpus) for gpus in sizes]]
    if too_large.size:
        count = int(np.isin(jobs["gpus"].to_numpy()[rows], too_large).sum())
        pool_name = f" of {shorten(pool.name)!r}" if pool.name else ""
        raise InputError(
            f"{format_number_of('job', count)} of up to {too_large.max():g} {plural('GPU', too_large.max())} can never "
            f"start on the {highest:g} {plural('GPU', highest)}{pool_name}; give more, or leave these jobs out."
        )


def _simulate(jobs: QueuedJobs, pool: Pool, policy: int) -> IntArray:
    """Starts of the jobs of one pool, which come in the order of the queue."""
    running = jobs.started < NEVER
    over = running & (jobs.started + np.where(running, jobs.run, 0) <= jobs.submit)
    # The largest of the jobs that run at the beginning come first, since others may leave them no whole node.
    arrivals = np.lexsort((np.where(running, -jobs.gpus, 0.0), ~running, jobs.submit))
    arrivals = arrivals[~over[arrivals]]
    starts = simulate_events(jobs, arrivals, pool.change_at, pool.gpus, pool.node_gpus, policy)
    if (running & ~over & (starts == NEVER)).any():
        raise InputError(
            f"the jobs that run at the start have no room on nodes of {pool.node_gpus:g} "
            f"{plural('GPU', pool.node_gpus)}; give more nodes, or no gpus_per_node."
        )
    return starts


def _with_times(jobs: pd.DataFrame, starts: IntArray, run_s: FloatArray, simulated: BoolArray) -> pd.DataFrame:
    """The table with the simulated starts, and ends as long after them as the jobs run."""
    started = simulated & (starts < NEVER)
    # Beyond 2262 nanoseconds since 1970 begin anew.
    if ((starts > LATEST.value) | (starts < to_nanoseconds(jobs["submit"])))[started].any():
        raise InputError(f"some jobs would start after {LATEST.year} only; give more GPUs.")
    begun = pd.Series(np.where(started, starts, 0).view("datetime64[ns]"), jobs.index).dt.tz_localize("UTC")
    end = begun + pd.to_timedelta(np.where(started, _whole(run_s), 0), unit="ns")
    unfinished = jobs["end"].isna()
    status = jobs["status"].mask(unfinished & started, "completed").mask(simulated & ~started, "pending")
    result = jobs.assign(
        start=jobs["start"].mask(simulated).fillna(begun.where(started)),
        end=jobs["end"].mask(simulated).fillna(end.where(started)),
        status=status,
    )
    result.attrs = dict(jobs.attrs)
    return result
