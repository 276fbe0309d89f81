"""Conservative backfilling: every waiting job has a reservation, which no other may delay."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpudemand._compiled import compiled, compiled_in_place
from gpudemand._typing import FloatArray, IntArray
from gpudemand.planning.queue.nodes import TOLERANCE
from gpudemand.planning.queue.timeline import Timeline
from gpudemand.planning.queue.waiting import NEVER


class Profile(NamedTuple):
    """Free GPUs from each time on, a step function.

    Attributes
    ----------
    time : ndarray of int, shape (n_steps,)
        Ascending; only the first `n` are in use.
    free : ndarray of shape (n_steps,)
    n : ndarray of int, shape (1,)
    """

    time: IntArray
    free: FloatArray
    n: IntArray


@compiled
def empty_profile(n_jobs: int) -> Profile:
    """A profile with room for `n_jobs` that run or wait."""
    # Each reservation has two ends, and two more when it moves.
    size = 4 * n_jobs + 1
    return Profile(np.empty(size, np.int64), np.empty(size), np.zeros(1, np.int64))


@compiled_in_place
def set_running(profile: Profile, now: int, free: float, expected: Timeline, gpus: FloatArray) -> None:
    """Set a profile to the free GPUs if no further job started."""
    profile.time[0], profile.free[0], profile.n[0] = now, free, 1
    for place in range(expected.n[0] - 1, -1, -1):
        last = profile.n[0] - 1
        if expected.time[place] > profile.time[last]:
            profile.time[last + 1], profile.free[last + 1] = expected.time[place], profile.free[last]
            profile.n[0] += 1
        profile.free[profile.n[0] - 1] += gpus[expected.job[place]]


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
