"""Running jobs sorted by a time: when they will end, or when the scheduler expects them to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpudemand._compiled import compiled, compiled_in_place
from gpudemand._typing import IntArray


class Timeline(NamedTuple):
    """Jobs with the soonest last; an insertion moves those that are sooner.

    Attributes
    ----------
    time, job : ndarray of int, shape (n_jobs,)
    n : ndarray of int, shape (1,)
        Number of jobs in it.
    """

    time: IntArray
    job: IntArray
    n: IntArray


@compiled
def empty_timeline(n_jobs: int) -> Timeline:
    """A timeline with room for `n_jobs`."""
    return Timeline(np.empty(n_jobs, np.int64), np.empty(n_jobs, np.int64), np.zeros(1, np.int64))


@compiled_in_place
def insert(line: Timeline, time: int, job: int) -> None:
    """Insert a job; of jobs with the same time, the first inserted is the soonest."""
    place = line.n[0]
    while place > 0 and line.time[place - 1] <= time:
        line.time[place], line.job[place] = line.time[place - 1], line.job[place - 1]
        place -= 1
    line.time[place], line.job[place] = time, job
    line.n[0] += 1


@compiled_in_place
def remove(line: Timeline, time: int, job: int) -> None:
    """Remove a job whose time is known."""
    low, high = 0, line.n[0]
    while low < high:  # first job not later than `time`
        middle = (low + high) // 2
        if line.time[middle] > time:
            low = middle + 1
        else:
            high = middle
    while line.job[low] != job:
        low += 1
    line.n[0] -= 1
    for place in range(low, line.n[0]):
        line.time[place], line.job[place] = line.time[place + 1], line.job[place + 1]
