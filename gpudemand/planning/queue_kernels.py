"""Compiled event loop of the queue: nodes, backfilling, reservations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpudemand._array import FloatArray, IntArray, compiled, compiled_in_place, inlined


class Timeline(NamedTuple):
    """Jobs by time, the soonest last."""

    time: IntArray  # (n_jobs,), of each job
    job: NDArray[np.int32]  # (n_jobs,), jobs in order, short numbers as they are moved
    n: IntArray  # (1,), number of jobs in it


def empty_timeline(n_jobs: int) -> Timeline:
    """A timeline with room for `n_jobs`."""
    return Timeline(np.empty(n_jobs, np.int64), np.empty(n_jobs, np.int32), np.zeros(1, np.int64))


@compiled_in_place
def _place_of(line: Timeline, time: int) -> int:
    """Place of the first job that is not later than a time."""
    # Most jobs are short, and so near the end: the search begins there.
    low, high, reach = line.n[0] - 1, line.n[0], 1
    while low >= 0 and line.time[line.job[low]] <= time:
        low, high, reach = low - reach, low, 2 * reach
    low = max(low + 1, 0)
    while low < high:
        middle = (low + high) // 2
        if line.time[line.job[middle]] > time:
            low = middle + 1
        else:
            high = middle
    return low


@compiled_in_place
def insert(line: Timeline, time: int, job: int) -> None:
    """Insert a job; of jobs with the same time, the first inserted is the soonest."""
    place, end = _place_of(line, time), np.uint64(line.n[0])
    # Places without a sign: for others Numba looks whether they are negative, which takes most of the simulation.
    for moved in range(end - np.uint64(place)):
        line.job[end - moved] = line.job[end - moved - np.uint64(1)]
    line.time[job], line.job[place] = time, job
    line.n[0] += 1


@compiled_in_place
def remove(line: Timeline, job: int) -> None:
    """Remove a job."""
    place = _place_of(line, line.time[job])
    while line.job[place] != job:
        place += 1
    line.n[0] -= 1
    first = np.uint64(place)
    for moved in range(np.uint64(line.n[0]) - first):
        line.job[first + moved] = line.job[first + moved + np.uint64(1)]


#: GPUs are sums of shares such as 0.1.
TOLERANCE = 1e-9


@compiled_in_place
def whole_nodes(gpus: float, node_gpus: float) -> tuple[int, float]:
    """Whole nodes of a job, and the GPUs that it needs on one further node."""
    if gpus < node_gpus - TOLERANCE:
        return 0, gpus
    whole = int(gpus / node_gpus + TOLERANCE)
    rest = gpus - whole * node_gpus
    return whole, rest if rest > TOLERANCE else 0.0


@compiled_in_place
def fits(free: FloatArray, gpus: float, node_gpus: float) -> bool:
    """Whether a job can be placed: its whole nodes are empty, and the rest has room on another."""
    whole, rest = whole_nodes(gpus, node_gpus)
    empty, partly = 0, 0
    for gpus_free in free:
        if gpus_free > node_gpus - TOLERANCE:
            empty += 1
        elif gpus_free > rest - TOLERANCE:
            partly += 1
    return empty >= whole and (rest == 0 or partly > 0 or empty > whole)


@compiled_in_place
def place(free: FloatArray, gpus: float, node_gpus: float, following: IntArray) -> tuple[int, int]:
    """Take a job's GPUs from `free`: the first empty nodes, and for the rest the node that it fits best.

    Returns `first, partly`, first whole node, which `following` links to the others, and the node of the rest; -1 for
    none. A rest that fits nowhere goes where most is free, which leaves less than nothing there.
    """
    whole, rest = whole_nodes(gpus, node_gpus)
    first, partly = -1, -1
    for node in range(len(free)):
        if whole > 0 and free[node] > node_gpus - TOLERANCE:
            following[node], first = first, node
            free[node] -= node_gpus
            whole -= 1
    if rest > 0:
        for node in range(len(free)):
            if free[node] > rest - TOLERANCE and (partly < 0 or free[node] < free[partly]):
                partly = node
        partly = int(free.argmax()) if partly < 0 else partly
        free[partly] -= rest
    return first, partly


@compiled_in_place
def add_gpus(
    free: FloatArray, gpus: float, node_gpus: float, first: int, partly: int, following: IntArray, sign: int
) -> None:
    """Add a placed job's GPUs to `free` (`sign` 1), or take them (-1)."""
    node = first
    while node >= 0:
        free[node] += sign * node_gpus
        node = following[node]
    if partly >= 0:
        free[partly] += sign * whole_nodes(gpus, node_gpus)[1]


@compiled_in_place
def set_capacity(free: FloatArray, installed: FloatArray, gpus: float, node_gpus: float) -> None:
    """Set the GPUs in service, node after node; where jobs hold more, `free` is negative until they end."""
    left = gpus
    for node in range(len(free)):
        now = min(left, node_gpus)
        free[node] += now - installed[node]
        installed[node] = now
        left -= now


@compiled
def nodes_of(gpus: float, node_gpus: float) -> FloatArray:
    """GPUs of each node."""
    free = np.zeros(int(np.ceil(gpus / node_gpus)))
    set_capacity(free, np.zeros(len(free)), gpus, node_gpus)
    return free


@compiled_in_place
def total_free(free: FloatArray) -> float:
    """Free GPUs of all nodes that have any."""
    total = 0.0
    for gpus_free in free:
        total += max(gpus_free, 0.0)
    return total


@compiled_in_place
def take_minimum(first: FloatArray, second: FloatArray, result: FloatArray) -> None:
    """Write the lesser of two arrays, node by node, into a third; of an array and itself, a copy."""
    for node in range(len(result)):
        result[node] = min(first[node], second[node])


NEVER = np.iinfo(np.int64).max


class WaitingJobs(NamedTuple):
    """Least GPUs and least requested time of the waiting jobs below each node of the tree."""

    gpus: FloatArray  # (2 * size,), infinite where no job waits; the leaves are the last `size` values
    requested: IntArray  # (2 * size,)


def no_waiting_jobs(n_jobs: int) -> WaitingJobs:
    """An empty queue for `n_jobs` jobs."""
    size = 1
    while size < n_jobs:
        size *= 2
    return WaitingJobs(np.full(2 * size, np.inf), np.full(2 * size, NEVER))


@compiled_in_place
def set_waiting(queue: WaitingJobs, job: int, gpus: float, requested: int) -> None:
    """Add a job to the queue; with infinite `gpus`, remove it."""
    node = len(queue.gpus) // 2 + job
    queue.gpus[node], queue.requested[node] = gpus, requested
    while node > 1:
        node //= 2
        least = min(queue.gpus[2 * node], queue.gpus[2 * node + 1])
        shortest = min(queue.requested[2 * node], queue.requested[2 * node + 1])
        if least == queue.gpus[node] and shortest == queue.requested[node]:
            return
        queue.gpus[node], queue.requested[node] = least, shortest


@compiled_in_place
def next_waiting(queue: WaitingJobs, job: int, free: float, window: int, spare: float) -> int:
    """First waiting job from `job` on, of at most `free` GPUs, with a request in `window` or GPUs in `spare`; or -1."""
    size = len(queue.gpus) // 2
    if job >= size or queue.gpus[1] - TOLERANCE > free:
        return -1
    node = size + job if job else 1
    while node > 0:
        gpus = queue.gpus[node] - TOLERANCE
        if gpus <= free and (queue.requested[node] <= window or gpus <= spare) and gpus < np.inf:
            if node >= size:
                return node - size
            node *= 2
        else:
            while node % 2:
                node //= 2
            node += node > 0
    return -1


class Profile(NamedTuple):
    """Free GPUs from each time on, a step function, and the starts that are reserved in it."""

    time: IntArray  # (n_steps,), ascending; only the first `n` are in use
    free: FloatArray  # (n_steps,)
    n: IntArray  # (1,)
    reserved: IntArray  # (n_jobs,), `NEVER` for none


def empty_profile(n_jobs: int) -> Profile:
    """A profile with room for `n_jobs` that run or wait."""
    # Each reservation has two ends, and two more when it moves.
    size = 4 * n_jobs + 1
    return Profile(np.empty(size, np.int64), np.empty(size), np.zeros(1, np.int64), np.full(n_jobs, NEVER))


@compiled_in_place
def set_running(profile: Profile, now: int, free: float, expected: Timeline, gpus: FloatArray) -> None:
    """Set a profile to the free GPUs if no further job started."""
    profile.time[0], profile.free[0], profile.n[0] = now, free, 1
    for place in range(expected.n[0] - 1, -1, -1):
        last = profile.n[0] - 1
        job = expected.job[place]
        if expected.time[job] > profile.time[last]:
            profile.time[last + 1], profile.free[last + 1] = expected.time[job], profile.free[last]
            profile.n[0] += 1
        profile.free[profile.n[0] - 1] += gpus[job]


@compiled_in_place
def add_reservation(profile: Profile, start: int, length: int, gpus: float) -> None:
    """Take `gpus` from the profile for a while; negative ones give them back."""
    first, last = _step_at(profile, start), _step_at(profile, start + length)
    for step in range(first, last):
        profile.free[step] -= gpus


@compiled_in_place
def _step_at(profile: Profile, time: int) -> int:
    """Step that begins at a time, which is inserted if there is none."""
    count = profile.n[0]
    step = int(np.searchsorted(profile.time[:count], time))
    if step < count and profile.time[step] == time:
        return step
    for place in range(count, step, -1):
        profile.time[place], profile.free[place] = profile.time[place - 1], profile.free[place - 1]
    profile.time[step], profile.free[step] = time, profile.free[step - 1]
    profile.n[0] += 1
    return step


@compiled_in_place
def earliest_start(profile: Profile, length: int, gpus: float) -> int:
    """First time from which `gpus` are free for `length`; `NEVER` if there is none."""
    start = NEVER
    for step in range(profile.n[0]):
        if start < NEVER and profile.time[step] >= start + length and profile.time[step] > start:
            return start
        if profile.free[step] < gpus - TOLERANCE:
            start = NEVER
        elif start == NEVER:
            start = profile.time[step]
    return start


POLICIES = ("fifo", "easy", "conservative", "eager")
_FIFO, _EASY, _CONSERVATIVE, _EAGER = range(4)


class QueuedJobs(NamedTuple):
    """Jobs in the order of the queue, (n_jobs,) each; times are whole units, since any origin."""

    submit: IntArray
    run: IntArray
    requested: IntArray  # at least `run`
    started: IntArray  # of jobs that run at the beginning, else `NEVER`
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


def simulate_events(
    jobs: QueuedJobs, arrivals: IntArray, change_at: IntArray, capacity: FloatArray, node_gpus: float, policy: int
) -> IntArray:
    """Start times of jobs; `NEVER` for jobs that the GPUs never suffice for.

    `arrivals`: shape (n_jobs,); the jobs by submission, those that run at the beginning first. `change_at`: shape
    (n_changes,); times, ascending, from which on `capacity` (GPUs in service) holds; the first is that of the
    beginning. `capacity`: shape (n_changes,). `node_gpus`: GPUs of a node; infinite for interchangeable GPUs.
    `policy`: place in `POLICIES`. Returns ndarray of int, shape (n_jobs,).
    """
    state = _initial_state(jobs, capacity.max(), node_gpus)
    # The code of reservations is only compiled where there is a profile.
    profile = empty_profile(len(jobs.gpus)) if policy == _CONSERVATIVE else None
    _handle_events(state, profile, arrivals, change_at, capacity, np.zeros(len(state.free)), policy)
    return state.starts


@compiled_in_place
def _handle_events(
    state: _State,
    profile: Profile | None,
    arrivals: IntArray,
    change_at: IntArray,
    capacity: FloatArray,
    installed: FloatArray,
    policy: int,
) -> None:
    """Handle the ends, changes of the capacity and submissions one at a time, in order."""
    arrived, changed, wake = 0, 0, NEVER
    while True:
        end = state.ends.time[state.ends.job[state.ends.n[0] - 1]] if state.ends.n[0] else NEVER
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
        elif profile is not None:
            wake = _start_by_reservation(state, profile, now, early, now < end and now == change)
        else:
            _start_in_order(state, now, policy)


def _initial_state(jobs: QueuedJobs, highest: float, node_gpus: float) -> _State:
    n, n_nodes = len(jobs.gpus), 1 if node_gpus == np.inf else int(np.ceil(highest / node_gpus))
    return _State(
        jobs,
        no_waiting_jobs(n),
        empty_timeline(n),
        empty_timeline(n),
        np.full(n, NEVER),
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
    )


@inlined
def _end_job(state: _State) -> bool:
    """End the job that is the first to be over; return whether it was expected to run longer."""
    state.ends.n[0] -= 1
    job = state.ends.job[state.ends.n[0]]
    remove(state.expected, job)
    _add_gpus(state, state.free, job, 1)
    return state.expected.time[job] > state.ends.time[job]


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
        job = expected.job[place_]
        if expected.time[job] > time:
            break
        _add_gpus(state, ahead, job, 1)
        total += gpus[job]
        if time == NEVER and total > gpus[head] - 1e-6 and fits(ahead, gpus[head], state.node_gpus):
            time = expected.time[job]
    if time < NEVER:
        place(ahead, gpus[head], state.node_gpus, state.trial_following)
    return time


@compiled_in_place
def _start_by_reservation(state: _State, profile: Profile, now: int, early: bool, changed: bool) -> int:
    """Give waiting jobs reservations, in order, earlier ones if a job ended early; return the time of the next."""
    jobs, reserved = state.jobs, profile.reserved
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
