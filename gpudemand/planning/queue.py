"""`simulate_queue`: when jobs start on a number of GPUs, as one pool or several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpudemand._array import STRING, BoolArray, FloatArray, IntArray
from gpudemand._validation import (
    InputError,
    as_numbers,
    check_choice,
    check_number,
    nearest,
    require_names,
    shorten,
    told,
)
from gpudemand.jobs.schema import LATEST
from gpudemand.jobs.table import check_jobs, gave_up, seconds_since, start_times, to_nanoseconds
from gpudemand.jobs.times import parse_timestamp
from gpudemand.planning.fleet_kernels import Fleet, simulate_fleet
from gpudemand.planning.queue_kernels import NEVER, POLICIES, QueuedJobs, fits, nodes_of, simulate_events
from gpudemand.units import format_number_of, plural
from gpudemand.usage.runs import Runs

#: GPUs: a number, or a number from each time on.
Gpus: TypeAlias = float | pd.Series
#: GPUs of the cluster, or of each pool.
Capacity: TypeAlias = Gpus | Mapping[str, Gpus]

POOLED_BY = ("gpu_type", "partition", "cluster")


class Pool(NamedTuple):
    """Interchangeable GPUs, and the jobs that wait for them."""

    name: str  # empty if there is only one
    rows: IntArray  # (n_jobs,), of the job table
    change_at: IntArray  # (n_changes,), times in nanoseconds since 1970, ascending, from which on `gpus` holds
    gpus: FloatArray  # (n_changes,)
    node_gpus: float  # infinite for GPUs that are not on nodes


def pools_of(
    jobs: pd.DataFrame, capacity: Capacity, gpus_per_node: float | Mapping[str, float] | None = None
) -> list[Pool]:
    """Split jobs (``partition`` where pools are partitions) into pools with their capacity over time."""
    by_pool: dict[str, Any] = {"": capacity}
    names = np.full(len(jobs), "", dtype=object)
    if _is_mapping(capacity):
        by_pool = dict(capacity)
        names = pool_names(jobs, by_pool)
    pools = []
    for name, gpus in by_pool.items():
        label = f"capacity[{name!r}]" if name else "capacity"
        nodes = gpus_per_node.get(name) if isinstance(gpus_per_node, Mapping) else gpus_per_node
        size = np.inf if nodes is None else check_number("gpus_per_node", nodes, 0, open_low=True)
        pools.append(Pool(str(name), np.flatnonzero(names == str(name)), *_over_time(label, gpus), size))
    return pools


def _is_mapping(capacity: Capacity) -> TypeGuard[Mapping[str, Gpus]]:
    is_over_time = isinstance(capacity, pd.Series) and isinstance(capacity.index, pd.DatetimeIndex)
    return isinstance(capacity, (Mapping, pd.Series)) and not is_over_time


def pool_names(jobs: pd.DataFrame, pools: Iterable[str]) -> NDArray[np.object_]:
    """Pool of each job, from the first column of `POOLED_BY` whose names are all pools."""
    known, missing = {str(name) for name in pools}, {}
    for column in POOLED_BY:
        if column in jobs and jobs[column].notna().any():
            names = jobs[column].fillna("unknown").astype(str)
            strange = names[~names.isin(known)]
            if strange.empty:
                return names.to_numpy(dtype=object)
            missing[column] = strange
    if not missing:
        raise InputError(f"capacity is given by pool, but no job has a {' or '.join(POOLED_BY)}; give one number.")
    column = min(missing, key=lambda name: len(missing[name]))
    name = missing[column].iloc[0]
    hint = nearest(name, known)
    raise InputError(f"capacity says nothing about {column} {shorten(name)!r}.{hint} It needs a number for each pool.")


def _over_time(label: str, gpus: Gpus) -> tuple[IntArray, FloatArray]:
    if not isinstance(gpus, pd.Series):
        return np.array([np.iinfo(np.int64).min]), np.array([check_number(label, gpus, 0, open_low=True)])
    if not isinstance(gpus.index, pd.DatetimeIndex) or gpus.index.tz is None:
        raise InputError(f"{label} over time needs times with a zone as its index; use .tz_localize.")
    numbers = as_numbers(gpus, label)
    if not len(gpus) or not (numbers >= 0).all() or not numbers.any() or not gpus.index.is_unique:
        raise InputError(f"{label} over time needs numbers of at least 0, one of them above, at distinct times.")
    order = np.argsort(gpus.index.asi8, kind="stable")
    change_at = to_nanoseconds(pd.Series(gpus.index))[order]
    change_at[0] = np.iinfo(np.int64).min
    return change_at, numbers[order]


#: Longer requests (30 years) plan nothing.
_LONGEST_S = 1e9


@told("Simulating a queue")
def simulate_queue(
    jobs: pd.DataFrame,
    capacity: Capacity,
    policy: str = "easy",
    *,
    start: object = None,
    priority: str | None = None,
    gpus_per_node: float | Mapping[str, float] | None = None,
    alternatives: Mapping[str, Mapping[str, float]] | None = None,
    elastic: str | None = None,
    interruptible: str | None = None,
) -> pd.DataFrame:
    """Start and end that jobs would have had on a number of GPUs.

    Parameters
    ----------
    jobs : DataFrame
        Job table; see `gpudemand.jobs.table.check_jobs`. ``requested_time`` is what the scheduler plans with, at least
        the time that a job runs, which it is where the request is unknown. Jobs without an end run for the share of
        their request that others took, or as long as others of as many GPUs that ran at least as long.
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
    alternatives : mapping of str to mapping of str to number, optional
        GPU type -> types that its jobs may take too, the preferred first, and their run times there relative to those
        on their own, which comes before all where `capacity` has it. For ``easy``, a number of GPUs of each type, and
        all jobs queued. The result names the type that a job ran on.
    elastic : str, optional
        Column of the fewest GPUs that a job can start on, where it runs for as much longer, and keeps them; jobs
        without a number take all. The result has the ``gpus`` that it ran on. For ``easy``, as `alternatives`.
    interruptible : str, optional
        Column of the seconds of work that a job loses each time it is stopped: jobs that have a number come after all
        others, which take their GPUs, and go on later; their ``end`` is that of all their parts. As `elastic`.

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

    On a faster GPU of another type, the second job need not wait:

    >>> log["gpu_type"] = "A100"
    >>> fleet = {"A100": 8, "H100": 8}
    >>> other = simulate_queue(log, fleet, alternatives={"A100": {"H100": 0.5}})
    >>> other["gpu_type"].tolist(), other["end"].dt.strftime("%H:%M").tolist()
    (['A100', 'H100', 'A100'], ['01:00', '00:31', '00:32'])

    Where the first job yields, the second need not wait either:

    >>> log["lost_s"] = [600, None, None]
    >>> other = simulate_queue(log, 8, interruptible="lost_s")
    >>> other["start"].dt.strftime("%H:%M").tolist(), other["end"].dt.strftime("%H:%M").tolist()
    (['00:00', '00:01', '01:01'], ['02:01', '01:01', '01:31'])
    """
    check_choice("policy", policy, POLICIES)
    log = check_jobs(jobs)
    table = log.reset_index(drop=True)
    if alternatives is not None or elastic is not None or interruptible is not None:
        if policy != "easy" or start is not None or priority is not None or gpus_per_node is not None:
            raise InputError(
                "alternatives, elastic and interruptible are for policy='easy', without start, priority and "
                "gpus_per_node."
            )
        return _on_fleet(table, capacity, alternatives, elastic, interruptible).set_axis(log.index)
    if policy == "conservative" and gpus_per_node is not None:
        raise InputError("conservative reservations are for interchangeable GPUs; drop gpus_per_node, or use 'easy'.")
    begin = None if start is None else parse_timestamp(start, name="start")
    run_s = run_seconds(table)
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


def _on_fleet(
    jobs: pd.DataFrame,
    capacity: Capacity,
    alternatives: Mapping[str, Mapping[str, float]] | None,
    elastic: str | None,
    interruptible: str | None,
) -> pd.DataFrame:
    """Jobs with the times, types and GPUs that they would have had on GPUs of several types."""
    by_type = isinstance(capacity, Mapping)
    if alternatives is not None and not by_type:
        raise InputError("alternatives need capacity by GPU type, such as {'A100': 64, 'H100': 32}.")
    given: Mapping[str, Gpus] = dict(capacity) if isinstance(capacity, Mapping) else {"": capacity}
    types = [str(name) for name in given]
    gpus = np.array(
        [check_number(f"capacity[{n!r}]" if n else "capacity", gpus, 0, open_low=True) for n, gpus in given.items()]
    )
    least, lost = _least_share(jobs, elastic), _lost(jobs, interruptible)
    queued = _queue(jobs, run_seconds(jobs), None)
    rows = np.flatnonzero((jobs["gpus"] > 0).to_numpy() & ~gave_up(jobs))
    rows = rows[np.argsort(queued.submit[rows], kind="stable")]
    own = pd.Series("", jobs.index) if not by_type else jobs.get("gpu_type", pd.Series(pd.NA, jobs.index))
    kinds, kind = np.unique(own.astype(object).fillna("unknown").astype(str).to_numpy()[rows], return_inverse=True)
    ratios = np.array([_ratios_of(str(name), types, alternatives or {}) for name in kinds]).reshape(-1, len(types))
    columns = QueuedJobs._make(column[rows] for column in queued)
    order = _preferred(kinds, types, alternatives or {})
    fleet = fleet_of(columns, gpus, ratios[kind], kind, order, least=least[rows, None], lost=1e9 * lost[rows])
    never = np.isinf(np.where(np.isnan(ratios[kind]), np.inf, fleet.least)).all(axis=1)
    if never.any():
        raise _too_large(columns.gpus[never], "any GPU type that they may take")
    found = simulate_fleet(fleet, columns.submit, NEVER)
    began, ran_s, on = np.full(len(jobs), NEVER), np.zeros(len(jobs)), jobs["gpus"].to_numpy(dtype=float, copy=True)
    ran = found.types >= 0
    began[rows], on[rows[ran]] = found.starts, found.gpus[ran]
    ran_s[rows[ran]] = (found.ends - found.starts)[ran] / 1e9
    result = _with_times(jobs, began, ran_s, np.isin(np.arange(len(jobs)), rows))
    if by_type:
        took = jobs.get("gpu_type", pd.Series(pd.NA, jobs.index)).astype(object).to_numpy(copy=True)
        took[rows[ran]] = np.array(types, dtype=object)[found.types[ran]]
        result = result.assign(gpu_type=pd.array(took, dtype=STRING))
    result = result if elastic is None else result.assign(gpus=on)
    result.attrs = dict(jobs.attrs)
    return result


def _least_share(jobs: pd.DataFrame, elastic: str | None) -> FloatArray:
    """Share of its GPUs that each job can start on."""
    if elastic is None:
        return np.ones(len(jobs))
    require_names(jobs.columns, [elastic], "jobs")
    fewest = as_numbers(jobs[elastic], f"jobs[{elastic!r}]")
    if (fewest <= 0).any():
        raise InputError(f"jobs[{elastic!r}] holds the fewest GPUs that a job can start on, which are above 0.")
    gpus = jobs["gpus"].to_numpy(dtype=float)
    return np.fmin(np.divide(fewest, gpus, out=np.ones(len(jobs)), where=gpus > 0), 1.0)


def _lost(jobs: pd.DataFrame, interruptible: str | None) -> FloatArray:
    """Seconds of work that each job loses when it is stopped; NaN for those that are not."""
    if interruptible is None:
        return np.full(len(jobs), np.nan)
    require_names(jobs.columns, [interruptible], "jobs")
    lost = as_numbers(jobs[interruptible], f"jobs[{interruptible!r}]")
    if (lost < 0).any():
        raise InputError(f"jobs[{interruptible!r}] holds seconds of work that are lost, which are at least 0.")
    return np.minimum(lost, _LONGEST_S)


def _ratios_of(own: str, types: list[str], alternatives: Mapping[str, Mapping[str, float]]) -> list[float]:
    """Run time of jobs of a type on each of some, relative to that on their own; NaN where they may not run."""
    others = {str(name): ratio for name, ratio in alternatives.get(own, {}).items()}
    for name, ratio in others.items():
        check_choice(f"type in alternatives[{own!r}]", name, types)
        check_number(f"alternatives[{own!r}][{name!r}]", ratio, 0, open_low=True)
    found = [others.get(name, 1.0 if name == own else np.nan) for name in types]
    if np.isnan(found).all():
        raise InputError(f"jobs of type {own!r} may run nowhere; capacity lacks that type, and so does alternatives.")
    return found


def _preferred(kinds: Iterable[str], types: list[str], alternatives: Mapping[str, Mapping[str, float]]) -> IntArray:
    """Types that jobs of each kind may take, their own first, as `Fleet.order`."""
    order = np.full((len(list(kinds)), len(types)), -1)
    for row, own in enumerate(kinds):
        names = dict.fromkeys([name for name in (own, *map(str, alternatives.get(own, {}))) if name in types])
        order[row, : len(names)] = [types.index(name) for name in names]
    return order


def fleet_of(
    jobs: QueuedJobs,
    capacity: FloatArray,
    ratios: FloatArray,
    kind: IntArray,
    order: IntArray,
    cards: Any = 1.0,
    least: Any = 1.0,
    lost: FloatArray | None = None,
) -> Fleet:
    """Jobs on GPUs of several types; those larger than all of a type that they may take never get these.

    `ratios`: shape (n_jobs, n_types); run time relative to that of `jobs`, NaN where they may not run. `kind`, `order`:
    as of `Fleet`. `cards`: shape (n_jobs, n_types); GPUs that take the place of one. `least`: shape (n_jobs, 1); share
    of its GPUs that a job can start on. `lost`: shape (n_jobs,); time of work lost by a stop, NaN for jobs that none
    stops.
    """
    gpus = jobs.gpus[:, None] * np.broadcast_to(cards, ratios.shape)
    fewest = fewest_of(gpus, least, capacity)
    gpus = np.where(np.isinf(fewest), np.inf, gpus)
    longer = np.nan_to_num(ratios, nan=1.0)
    run, requested = (np.round(longer * time[:, None]).astype(np.int64) for time in (jobs.run, jobs.requested))
    yields = np.zeros(len(kind), dtype=bool) if lost is None else ~np.isnan(lost)
    pairs, kind = np.unique(2 * kind + yields, return_inverse=True)
    work = np.zeros(len(kind), np.int64) if lost is None else np.nan_to_num(lost).astype(np.int64)
    return Fleet(capacity, gpus, fewest, run, np.maximum(requested, run), kind, order[pairs // 2], pairs % 2 == 1, work)


def fewest_of(gpus: FloatArray, least: Any, capacity: FloatArray) -> FloatArray:
    """GPUs of each type that jobs can start on, infinite where a type has fewer; shapes as of `fleet_of`."""
    fewest = np.minimum(gpus, np.ceil(least * gpus - 1e-9))
    return np.where(fewest <= capacity + 1e-9, fewest, np.inf)


def run_seconds(jobs: pd.DataFrame) -> FloatArray:
    """Run times of jobs (s), of those without an end as `Runs.expected` has them; without GPUs, it does not matter."""
    run_s = seconds_since(jobs["end"], start_times(jobs).fillna(jobs["submit"])).copy()
    if jobs["end"].notna().all():
        return run_s
    if np.isnan(run_s).all():
        raise InputError("no job in the log has ended, so nothing says how long jobs run.")
    runs = Runs.of(jobs)
    newest = max(int(times.max()) for times in (runs.submit, runs.begin, runs.end))
    places, lengths = runs.expected(newest + 1)
    run_s = np.nan_to_num(run_s)
    run_s[places] = lengths / 1e6
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
    gpus = jobs["gpus"].to_numpy()[rows]
    sizes = np.unique(gpus)
    nodes = np.array([highest]) if np.isinf(pool.node_gpus) else nodes_of(highest, pool.node_gpus)
    too_large = sizes[[not fits(nodes, size, pool.node_gpus) for size in sizes]]
    if too_large.size:
        pool_name = f" of {shorten(pool.name)!r}" if pool.name else ""
        raise _too_large(gpus[np.isin(gpus, too_large)], f"the {highest:g} {plural('GPU', highest)}{pool_name}")


def _too_large(gpus: FloatArray, where: str) -> InputError:
    """Error for jobs of some GPUs, which can start nowhere."""
    most = gpus.max()
    return InputError(
        f"{format_number_of('job', len(gpus))} of up to {most:g} {plural('GPU', most)} can never start on {where}; "
        "give more, or leave these jobs out."
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
