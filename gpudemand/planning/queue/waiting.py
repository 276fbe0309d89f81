"""Waiting jobs as a segment tree over the order of the queue: the next one within bounds is found in O(log n)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpudemand._compiled import compiled, compiled_in_place
from gpudemand._typing import FloatArray, IntArray
from gpudemand.planning.queue.nodes import TOLERANCE

NEVER = np.iinfo(np.int64).max


class WaitingJobs(NamedTuple):
    """Least GPUs and least requested time of the waiting jobs below each node of the tree.

    Attributes
    ----------
    gpus : ndarray of shape (2 * size,)
        Infinite where no job waits; the leaves are the last `size` values.
    requested : ndarray of int, shape (2 * size,)
    """

    gpus: FloatArray
    requested: IntArray


@compiled
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
