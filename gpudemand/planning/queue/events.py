"""Event simulation of a queue under the policies of batch schedulers, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpudemand._compiled import compiled, compiled_in_place, inlined
from gpudemand._typing import FloatArray, IntArray
from gpudemand.planning.queue.conservative import Profile, add_reservation, earliest_start, empty_profile, set_running
from gpudemand.planning.queue.nodes import add_gpus, fits, place, set_capacity, take_minimum, total_free
from gpudemand.planning.queue.timeline import Timeline, empty_timeline, insert, remove
from gpudemand.planning.queue.waiting import NEVER, WaitingJobs, next_waiting, no_waiting_jobs, set_waiting

POLICIES = ("fifo", "easy", "conservative", "eager")
_FIFO, _EASY, _CONSERVATIVE, _EAGER = range(4)


class QueuedJobs(NamedTuple):
    """Jobs in the order of the queue; times are whole units, since any origin.

    Attributes
    ----------
    submit, run, requested : ndarray of int, shape (n_jobs,)
        `requested` is at least `run`.
    started : ndarray of int, shape (n_jobs,)
        Start of jobs that run at the beginning, else `NEVER`.
    gpus : ndarray of shape (n_jobs,)
    """

    submit: IntArray
    run: IntArray
    requested: IntArray
    started: IntArray
    gpus: FloatArray


def within(jobs: QueuedJobs, gpus: float) -> QueuedJobs:
    """Jobs of at most some GPUs, larger ones for as much longer."""
    longer = np.maximum(jobs.gpus / gpus, 1.0)
    run, requested = (np.minimum(longer * time, NEVER / 8).astype(np.int64) for time in (jobs.run, jobs.requested))
    return jobs._replace(gpus=np.minimum(jobs.gpus, gpus), run=run, requested=requested)


class _State(NamedTuple):
    jobs: QueuedJobs
    waiting: WaitingJobs
    ends: Timeline
    expected: Timeline
    starts: IntArray
    reserved: IntArray
    n_waiting: IntArray
    node_gpus: float
    free: FloatArray
    first: IntArray
    partly: IntArray
    following: IntArray
    # Room for what is worked out anew at an event.
    ahead: FloatArray
    spare: FloatArray
    trial: FloatArray
    trial_following: IntArray
    profile: Profile


@compiled
def simulate_events(
    jobs: QueuedJobs, arrivals: IntArray, change_at: IntArray, capacity: FloatArray, node_gpus: float, policy: int
) -> IntArray:
    """Start times of jobs; `NEVER` for jobs that the GPUs never suffice for.

    Parameters
    ----------
    jobs : QueuedJobs
    arrivals : ndarray of int, shape (n_jobs,)
        The jobs by submission, those that run at the beginning first.
    change_at : ndarray of int, shape (n_changes,)
        Times, ascending, from which on `capacity` (GPUs in service) holds; the first is that of the beginning.
    capacity : ndarray of shape (n_changes,)
    node_gpus : float
        GPUs of a node; infinite for interchangeable GPUs.
    policy : int
        Place in `POLICIES`.

    Returns
    -------
    ndarray of int, shape (n_jobs,)
    """
    state = _initial_state(jobs, capacity.max(), node_gpus, policy)
    _handle_events(state, arrivals, change_at, capacity, np.zeros(len(state.free)), policy)
    return state.starts


@compiled_in_place
def _handle_events(
    state: _State, arrivals: IntArray, change_at: IntArray, capacity: FloatArray, installed: FloatArray, policy: int
) -> None:
    """Handle the ends, changes of the capacity and submissions one at a time, in order."""
    arrived, changed, wake = 0, 0, NEVER
    while True:
        end = state.ends.time[state.ends.n[0] - 1] if state.ends.n[0] else NEVER
        change = change_at[changed] if changed < len(change_at) else NEVER
        submit = state.jobs.submit[arrivals[arrived]] if arrived < len(arrivals) else NEVER
        now = min(end, change, submit, wake)
        early = False
        if now == NEVER:
            return
        if now == end:
            early = _end_job(state)
        elif now == change:
            set_capacity(state.free, installed, capacity[changed], state.node_gpus)
            changed += 1
        elif now == submit:
            _arrive(state, arrivals[arrived])
            arrived += 1
        if not state.n_waiting[0]:
            wake = NEVER
        elif policy == _CONSERVATIVE:
            wake = _start_by_reservation(state, now, early, now < end and now == change)
        else:
            _start_in_order(state, now, policy)


@compiled
def _initial_state(jobs: QueuedJobs, highest: float, node_gpus: float, policy: int) -> _State:
    n, n_nodes = len(jobs.gpus), 1 if node_gpus == np.inf else int(np.ceil(highest / node_gpus))
    return _State(
        jobs,
        no_waiting_jobs(n),
        empty_timeline(n),
        empty_timeline(n),
        np.full(n, NEVER),
        np.full(n if policy == _CONSERVATIVE else 0, NEVER),
        np.zeros(1, np.int64),
        node_gpus,
        np.zeros(n_nodes),
        # Written when a job starts, and read after that.
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.full(n_nodes, -1),
        np.zeros(n_nodes),
        np.zeros(n_nodes),
        np.zeros(n_nodes),
        np.full(n_nodes, -1),
        empty_profile(n if policy == _CONSERVATIVE else 0),
    )


@inlined
def _end_job(state: _State) -> bool:
    """End the job that is the first to be over; return whether it was expected to run longer."""
    place_ = state.ends.n[0] - 1
    job, end = state.ends.job[place_], state.ends.time[place_]
    state.ends.n[0] -= 1
    expected = state.starts[job] + state.jobs.requested[job]
    remove(state.expected, expected, job)
    _add_gpus(state, state.free, job, 1)
    return expected > end


@inlined
def _add_gpus(state: _State, free: FloatArray, job: int, sign: int) -> None:
    gpus, first, partly = state.jobs.gpus[job], state.first[job], state.partly[job]
    add_gpus(free, gpus, state.node_gpus, first, partly, state.following, sign)


@inlined
def _arrive(state: _State, job: int) -> None:
    """Queue a job, or let it run if it has started already, or nobody waits and it fits."""
    gpus, started = state.jobs.gpus[job], state.jobs.started[job]
    can_run = fits(state.free, gpus, state.node_gpus)
    if started < NEVER:
        if can_run or state.node_gpus == np.inf:
            _run(state, job, started, state.free)
    elif can_run and not state.n_waiting[0]:
        _run(state, job, state.jobs.submit[job], state.free)
    else:
        set_waiting(state.waiting, job, gpus, state.jobs.requested[job])
        state.n_waiting[0] += 1


@inlined
def _start(state: _State, job: int, now: int, room: FloatArray) -> None:
    """Start a waiting job on nodes with `room`."""
    set_waiting(state.waiting, job, np.inf, NEVER)
    state.n_waiting[0] -= 1
    _run(state, job, now, room)


@inlined
def _run(state: _State, job: int, start: int, room: FloatArray) -> None:
    gpus = state.jobs.gpus[job]
    take_minimum(room, room, state.trial)
    state.first[job], state.partly[job] = place(state.trial, gpus, state.node_gpus, state.following)
    _add_gpus(state, state.free, job, -1)
    state.starts[job] = start
    insert(state.ends, start + state.jobs.run[job], job)
    insert(state.expected, start + state.jobs.requested[job], job)


@inlined
def _start_in_order(state: _State, now: int, policy: int) -> None:
    """Start jobs from the head of the queue while they fit, then those that the policy lets pass."""
    head = next_waiting(state.waiting, 0, np.inf, NEVER, np.inf)
    while head >= 0 and fits(state.free, state.jobs.gpus[head], state.node_gpus):
        _start(state, head, now, state.free)
        head = next_waiting(state.waiting, head + 1, np.inf, NEVER, np.inf)
    if head < 0 or policy == _FIFO:
        return
    job = next_waiting(state.waiting, head + 1, total_free(state.free), NEVER, np.inf)
    if job >= 0 and policy == _EASY:
        _backfill(state, now, head, job)
    while job >= 0 and policy == _EAGER:
        if fits(state.free, state.jobs.gpus[job], state.node_gpus):
            _start(state, job, now, state.free)
        job = next_waiting(state.waiting, job + 1, total_free(state.free), NEVER, np.inf)


@inlined
def _backfill(state: _State, now: int, head: int, job: int) -> None:
    """Start jobs, from `job` on, that end before the head's reservation or leave it the GPUs that it needs."""
    jobs, ahead, spare = state.jobs, state.ahead, state.spare
    window = max(_reserve(state, head), now) - now
    take_minimum(state.free, ahead, spare)
    while job >= 0:
        is_short = jobs.requested[job] <= window
        room = state.free if is_short else spare
        if fits(room, jobs.gpus[job], state.node_gpus):
            _start(state, job, now, room)
            if not is_short:
                _add_gpus(state, ahead, job, -1)
            take_minimum(state.free, ahead, spare)
        job = next_waiting(state.waiting, job + 1, total_free(state.free), window, total_free(spare))


@inlined
def _reserve(state: _State, head: int) -> int:
    """Time at which the head fits if jobs run as long as requested; what is free then, without the head, in `ahead`."""
    expected, gpus, ahead = state.expected, state.jobs.gpus, state.ahead
    take_minimum(state.free, state.free, ahead)
    total, time = ahead.sum(), NEVER
    for place_ in range(expected.n[0] - 1, -1, -1):
        if expected.time[place_] > time:
            break
        _add_gpus(state, ahead, expected.job[place_], 1)
        total += gpus[expected.job[place_]]
        if time == NEVER and total > gpus[head] - 1e-6 and fits(ahead, gpus[head], state.node_gpus):
            time = expected.time[place_]
    if time < NEVER:
        place(ahead, gpus[head], state.node_gpus, state.trial_following)
    return time


@compiled_in_place
def _start_by_reservation(state: _State, now: int, early: bool, changed: bool) -> int:
    """Give waiting jobs reservations, in order, earlier ones if a job ended early; return the time of the next."""
    jobs, reserved, profile = state.jobs, state.reserved, state.profile
    if not state.n_waiting[0]:
        return NEVER
    set_running(profile, now, state.free[0], state.expected, jobs.gpus)
    job, wake = next_waiting(state.waiting, 0, np.inf, NEVER, np.inf), NEVER
    while job >= 0:
        if changed:
            reserved[job] = NEVER
        elif reserved[job] < NEVER:
            add_reservation(profile, reserved[job], jobs.requested[job], jobs.gpus[job])
        job = next_waiting(state.waiting, job + 1, np.inf, NEVER, np.inf)
    job = next_waiting(state.waiting, 0, np.inf, NEVER, np.inf)
    while job >= 0:
        if early or reserved[job] == NEVER:
            if reserved[job] < NEVER:
                add_reservation(profile, reserved[job], jobs.requested[job], -jobs.gpus[job])
            reserved[job] = earliest_start(profile, jobs.requested[job], jobs.gpus[job])
            if reserved[job] < NEVER:
                add_reservation(profile, reserved[job], jobs.requested[job], jobs.gpus[job])
        if reserved[job] <= now:
            _start(state, job, now, state.free)
        else:
            wake = min(wake, reserved[job])
        job = next_waiting(state.waiting, job + 1, np.inf, NEVER, np.inf)
    return wake
