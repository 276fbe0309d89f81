"""Placement of jobs on the nodes of a cluster; interchangeable GPUs are one node of any size."""

from __future__ import annotations

import numpy as np

from gpudemand._compiled import compiled, compiled_in_place
from gpudemand._typing import FloatArray, IntArray

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

    Returns
    -------
    first, partly : int
        First whole node, which `following` links to the others, and the node of the rest; -1 for none. A rest that fits
        nowhere goes where most is free, which leaves less than nothing there.
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
