"""Compiled event loop of the queue for GPUs of several types: alternatives, elastic jobs, jobs that yield."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpudemand._array import BoolArray, FloatArray, IntArray, compiled_in_place, inlined
from gpudemand.planning.queue_kernels import (
    NEVER,
    TOLERANCE,
    Timeline,
    WaitingJobs,
    empty_timeline,
    insert,
    next_waiting,
    no_waiting_jobs,
    remove,
    set_waiting,
)


class Fleet(NamedTuple):
    """GPUs of several types, and what jobs take of each."""

    capacity: FloatArray  # (n_types,), GPUs
    gpus: FloatArray  # (n_jobs, n_types), that a job takes of a type
    least: FloatArray  # (n_jobs, n_types), the fewest that it starts on, for as much longer
    run: IntArray  # (n_jobs, n_types), as of `QueuedJobs`
    requested: IntArray  # (n_jobs, n_types)
    kind: IntArray  # (n_jobs,), row of `order`
    order: IntArray  # (n_kinds, n_types), types that jobs of a kind may take, the preferred first, then -1
    yields: BoolArray  # (n_kinds,), whether jobs of a kind are stopped where others wait
    lost: IntArray  # (n_jobs,), time whose work a job loses each time it is stopped


class _FleetState(NamedTuple):
    fleet: Fleet
    # By kind of job.
    waiting_gpus: FloatArray
    waiting_requested: IntArray
    ends: Timeline
    expected: Timeline
    # By job: the first start, the last one, the share of its work that was left then, and the GPUs that it holds.
    starts: IntArray
    began: IntArray
    left: FloatArray
    held: FloatArray
    types: IntArray
    n_waiting: IntArray
    # By type: what is free, what is held by jobs that yield, what the head of the queue leaves, until when it does not
    # need it, and GPUs held times time within the span that counts.
    free: FloatArray
    yielding: FloatArray
    spare: FloatArray
    window: IntArray
    busy: FloatArray
    span: IntArray


class FleetRuns(NamedTuple):
    """First starts, ends, types and GPUs of jobs on a fleet, and GPUs held times time within a span, by type."""

    starts: IntArray
    ends: IntArray
    types: IntArray
    gpus: FloatArray
    busy: FloatArray


def simulate_fleet(fleet: Fleet, submit: IntArray, patience: int, span: tuple[int, int] = (0, NEVER)) -> FleetRuns:
    """Runs of jobs in the order of submission, each on the first type that it may take and that fits.

    Backfilling is EASY's, with one reservation on each type: the first job that waits for it gets one where it could
    start first. Jobs that yield come after all others, and are stopped, the last started first, where these need their
    GPUs; they wait again at their place. `patience`: longest wait; who has waited so long takes a rented GPU (type
    `n_types`), of which there are enough. `span`: times within which GPUs are busy that are summed up. Jobs that never
    start have the start `NEVER` and the type -1.
    """
    n, n_types = fleet.run.shape
    size = len(no_waiting_jobs(n).gpus)
    state = _FleetState(
        fleet,
        np.full((len(fleet.order), size), np.inf),
        np.full((len(fleet.order), size), NEVER),
        empty_timeline(n),
        empty_timeline(n),
        np.full(n, NEVER),
        np.full(n, NEVER),
        np.ones(n),
        np.zeros(n),
        np.full(n, -1),
        np.zeros(1, np.int64),
        fleet.capacity.copy(),
        np.zeros(n_types),
        np.zeros(n_types),
        np.zeros(n_types, np.int64),
        np.zeros(n_types),
        np.array(span),
    )
    _handle_fleet_events(state, submit, patience)
    return FleetRuns(state.starts, state.ends.time, state.types, state.held, state.busy)


@compiled_in_place
def _handle_fleet_events(state: _FleetState, submit: IntArray, patience: int) -> None:
    """Handle ends, submissions and the ends of patience one at a time, in order."""
    arrived, ends, first = 0, state.ends, 0
    any_yields = state.fleet.yields.any()
    while True:
        end = ends.time[ends.job[ends.n[0] - 1]] if ends.n[0] else NEVER
        came = submit[arrived] if arrived < len(submit) else NEVER
        while patience < NEVER and first < arrived and state.starts[first] < NEVER:
            first += 1
        leaves = submit[first] + patience if patience < NEVER and first < arrived else NEVER
        now = min(end, came, leaves)
        if now == NEVER:
            return
        if now == end:
            _release(state, ends.job[ends.n[0] - 1], now)
        elif now == came:
            _set_waiting(state, arrived, True)
            arrived += 1
        else:
            _set_waiting(state, first, False)
            state.starts[first], state.types[first] = now, len(state.free)
        if state.n_waiting[0]:
            _start_on_fleet(state, now, False)
        if any_yields and state.n_waiting[0]:
            _start_on_fleet(state, now, True)


@compiled_in_place
def _release(state: _FleetState, job: int, now: int) -> None:
    """Take a job off its GPUs."""
    type_, gpus = state.types[job], state.held[job]
    remove(state.ends, job)
    remove(state.expected, job)
    state.free[type_] += gpus
    state.busy[type_] += gpus * max(min(now, state.span[1]) - max(state.began[job], state.span[0]), 0)
    if state.fleet.yields[state.fleet.kind[job]]:
        state.yielding[type_] -= gpus


@compiled_in_place
def _stop(state: _FleetState, type_: int, now: int) -> None:
    """Stop the job that started last of those that yield on a type, and let it wait for the rest of its work."""
    last, expected = -1, state.expected
    for place_ in range(expected.n[0]):
        job = expected.job[place_]
        is_later = last < 0 or (state.began[job], job) > (state.began[last], last)
        if is_later and state.types[job] == type_ and state.fleet.yields[state.fleet.kind[job]]:
            last = job
    done = max(now - state.began[last] - state.fleet.lost[last], 0)
    state.left[last] *= 1.0 - done / max(state.ends.time[last] - state.began[last], 1)
    _release(state, last, now)
    _set_waiting(state, last, True)


@compiled_in_place
def _set_waiting(state: _FleetState, job: int, waits: bool) -> None:
    """Add a job to the queue of its kind, or remove it."""
    fleet, kind = state.fleet, state.fleet.kind[job]
    gpus, requested = np.inf, NEVER
    for type_ in fleet.order[kind]:
        if waits and type_ >= 0:
            gpus = min(gpus, fleet.least[job, type_])
            requested = min(requested, _longer(fleet.requested[job, type_], state.left[job]))
    set_waiting(WaitingJobs(state.waiting_gpus[kind], state.waiting_requested[kind]), job, gpus, requested)
    state.n_waiting[0] += 1 if waits else -1


@inlined
def _longer(time: int, times: float) -> int:
    """A time that is so many times as long."""
    return time if times == 1.0 else int(np.ceil(time * times))


@compiled_in_place
def _start_on_fleet(state: _FleetState, now: int, yields: bool) -> None:
    """Start waiting jobs, in order, where they fit and delay no reservation; those that do not reserve a type."""
    fleet = state.fleet
    for type_ in range(len(state.free)):
        state.window[type_], state.spare[type_] = NEVER, _room(state, type_, yields)
    job = _next_on_fleet(state, 0, yields)
    while job >= 0:
        soonest, best = NEVER, -1
        for type_ in fleet.order[fleet.kind[job]]:
            if type_ < 0:
                break
            gpus = _granted(state, job, type_, yields)
            if gpus > 0.0:
                _run_on_fleet(state, job, type_, now, gpus)
                best = -1
                break
            if state.window[type_] == NEVER:
                time = _time_free(state, job, type_, yields)
                if time < soonest:
                    soonest, best = time, type_
        if best >= 0:
            state.window[best] = max(soonest, now) - now
            state.spare[best] = _left_at(state, job, best, soonest, yields)
        job = _next_on_fleet(state, job + 1, yields)


@inlined
def _room(state: _FleetState, type_: int, yields: bool) -> float:
    """GPUs of a type that a job can have now: others may have those of jobs that yield."""
    return float(state.free[type_] if yields else state.free[type_] + state.yielding[type_])


@inlined
def _granted(state: _FleetState, job: int, type_: int, yields: bool) -> float:
    """GPUs of a type that a job may start on now without delaying a reservation; 0 for none."""
    fleet, room = state.fleet, _room(state, type_, yields)
    gpus, least = fleet.gpus[job, type_], fleet.least[job, type_] - TOLERANCE
    some = gpus if gpus <= room + TOLERANCE else np.floor(room + TOLERANCE)
    if some >= least and least < np.inf:
        requested = _longer(fleet.requested[job, type_], state.left[job] * gpus / some)
        if requested <= state.window[type_]:
            return float(some)
        room = min(room, state.spare[type_])
        some = gpus if gpus <= room + TOLERANCE else np.floor(room + TOLERANCE)
        return float(some) if some >= least else 0.0
    return 0.0


@inlined
def _run_on_fleet(state: _FleetState, job: int, type_: int, now: int, gpus: float) -> None:
    fleet = state.fleet
    _set_waiting(state, job, False)
    times = state.left[job] * fleet.gpus[job, type_] / gpus
    run, requested = _longer(fleet.run[job, type_], times), _longer(fleet.requested[job, type_], times)
    state.free[type_] -= gpus
    if requested > state.window[type_] or state.window[type_] == NEVER:
        state.spare[type_] -= gpus
    state.starts[job], state.began[job] = min(state.starts[job], now), now
    state.types[job], state.held[job] = type_, gpus
    insert(state.ends, now + run, job)
    insert(state.expected, now + requested, job)
    if fleet.yields[fleet.kind[job]]:
        state.yielding[type_] += gpus
    while state.free[type_] < -TOLERANCE:
        _stop(state, type_, now)


@inlined
def _next_on_fleet(state: _FleetState, job: int, yields: bool) -> int:
    """First waiting job, from `job` on, that could start, or reserve a type; or -1. `yields`: of those that yield."""
    found = -1
    for kind in range(len(state.fleet.order)):
        if state.fleet.yields[kind] != yields:
            continue
        free, window, spare = -1.0, 0, -1.0
        for type_ in state.fleet.order[kind]:
            if type_ >= 0:
                is_reserved = state.window[type_] < NEVER
                free = max(free, _room(state, type_, yields)) if is_reserved else np.inf
                window, spare = max(window, state.window[type_]), max(spare, state.spare[type_])
                if not is_reserved:
                    break
        queue = WaitingJobs(state.waiting_gpus[kind], state.waiting_requested[kind])
        next_ = next_waiting(queue, job, free, window, spare)
        found = next_ if found < 0 or 0 <= next_ < found else found
    return found


@inlined
def _time_free(state: _FleetState, job: int, type_: int, yields: bool) -> int:
    """Time at which a type has enough free GPUs for a job if others run as long as requested; `NEVER` if at none."""
    free, expected, fleet = _room(state, type_, yields), state.expected, state.fleet
    for place_ in range(expected.n[0] - 1, -1, -1):
        other = expected.job[place_]
        if state.types[other] == type_ and (yields or not fleet.yields[fleet.kind[other]]):
            free += state.held[other]
            if free > fleet.least[job, type_] - TOLERANCE:
                return int(expected.time[other])
    return NEVER


@inlined
def _left_at(state: _FleetState, job: int, type_: int, time: int, yields: bool) -> float:
    """GPUs of a type that are free at a time, without those of a job that starts then."""
    fleet, expected = state.fleet, state.expected
    left = _room(state, type_, yields) - fleet.least[job, type_]
    for place_ in range(expected.n[0] - 1, -1, -1):
        other = expected.job[place_]
        if expected.time[other] > time:
            break
        if state.types[other] == type_ and (yields or not fleet.yields[fleet.kind[other]]):
            left += state.held[other]
    return left
