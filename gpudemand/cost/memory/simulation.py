"""Simulated memory of a training step, from the operator graph alone.

*Allocated* memory is that of tensors, *reserved* memory what PyTorch's caching allocator has taken from the device,
*device* memory what the driver reports for the process: reserved memory and the context of CUDA and its libraries. The
first two are simulated here; `MemoryModel` predicts the third.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import check_number
from gpudemand.cost.graph.cache import per_graph
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.graph.structural_matrix import check_graph
from gpudemand.cost.memory.allocator import BLOCK, OWN_SEGMENT, ROUND, CachingAllocator, replay
from gpudemand.cost.memory.events import PARTS, AllocationEvents
from gpudemand.cost.memory.liveness import Setting, step_events
from gpudemand.cost.memory.resident import resident_bytes
from gpudemand.cost.memory.workspace import conv_workspace

_STATE = PARTS.index("optimizer_state")
#: Parts from here on are allocated in the step.
_STEP = PARTS.index("input")
#: Number of tensors in the feature ``largest``.
_LARGEST = 4
#: Batch sizes at which memory is simulated for interpolation.
_KNOTS = np.unique(np.outer([1, 3], 2 ** np.arange(26)).ravel())
#: Batch sizes of `memory_summary`.
SUMMARY_BATCHES = (1, 4, 16, 64, 256)


class SimulatedMemory(NamedTuple):
    """Peak memory of a training step, bytes.

    Attributes
    ----------
    allocated : float
        Peak of the memory of tensors, including weights and the batch.
    reserved : float
        Reserved by the caching allocator after two steps.
    parts : dict of str to float
        Memory allocated at the peak by category, `gpudemand.cost.memory.events.PARTS`.
    """

    allocated: float
    reserved: float
    parts: dict[str, float]


def simulate_memory(graph: OpGraph, batch_size: int, setting: Setting | None = None) -> SimulatedMemory:
    """Simulate the memory of a training step.

    Parameters
    ----------
    graph : OpGraph
        The network.
    batch_size : int
        Samples in a batch.
    setting : Setting, optional
        Optimizer, precision, checkpointing and kind of device; SGD in single precision on a GPU by default.

    Returns
    -------
    SimulatedMemory

    Raises
    ------
    InputError
        If the batch size is not a positive whole number.

    References
    ----------
    Gao et al., "Estimating GPU Memory Consumption of Deep Learning Models" (DNNMem), ESEC/FSE 2020.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> graph = OpGraph.from_operators([dense], [], n_parameters=650, n_trainable=650, parameter_bytes=2600.0)
    >>> memory = simulate_memory(graph, 32, Setting("adam"))
    >>> memory.allocated, memory.reserved
    (15360.0, 2097152.0)
    """
    samples = check_number("batch_size", batch_size, 1, integer=True)
    return _simulate(_events(check_graph(graph), setting or Setting()), samples)


def allocated_bytes(events: AllocationEvents, batch_sizes: Iterable[float]) -> FloatArray:
    """Peak of allocated memory for each batch size, bytes."""
    return np.array([events.allocated(batch, BLOCK).max(initial=0.0) for batch in batch_sizes])


def _simulate(events: AllocationEvents, batch_size: float) -> SimulatedMemory:
    allocated = events.allocated(batch_size, BLOCK)
    peak = int(allocated.argmax())
    parts = dict(zip(PARTS, events.allocated_by_part(batch_size, peak).tolist(), strict=True))
    return SimulatedMemory(float(allocated[peak]), _reserved(events, batch_size), parts)


def _reserved(events: AllocationEvents, batch_size: float) -> float:
    """Bytes reserved after two steps; the first step ends with the allocation of optimizer state."""
    sizes, step = events.sizes(batch_size, BLOCK), np.arange(len(events.tensor)) >= events.start
    state = ~step & (events.part[events.tensor] == _STATE)
    pool = CachingAllocator()
    for part in (~step & ~state, step, state, step):
        replay(events.tensor[part], events.sign[part], sizes, pool)
    return float(pool.reserved)


def memory_features(graph: OpGraph, batch_sizes: Iterable[int], setting: Setting | None = None) -> pd.DataFrame:
    """Features of the memory of a training step, at several batch sizes: the input of `MemoryModel`.

    Amounts never decrease with the batch.

    Parameters
    ----------
    graph : OpGraph
        The network.
    batch_sizes : iterable of int
        Samples in a batch.
    setting : Setting, optional
        As for `simulate_memory`.

    Returns
    -------
    DataFrame
        A row a batch size; bytes: ``allocated`` and ``part:<name>`` of `simulate_memory`; ``segments``, the same with
        large tensors in segments of the caching allocator; ``largest``, the four largest tensors together;
        ``workspace:<algorithm>`` of convolutions; ``resident``, the lower bound of `resident_bytes`. And ``operators``.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> graph = OpGraph.from_operators([dense], [], n_parameters=650, n_trainable=650, parameter_bytes=2600.0)
    >>> memory_features(graph, [32, 64])[["batch_size", "allocated", "resident"]].to_numpy().tolist()
    [[32.0, 9216.0, 6480.0], [64.0, 13312.0, 7760.0]]
    """
    chosen, batches = setting or Setting(), [float(batch) for batch in batch_sizes]
    table = pd.DataFrame([_features(check_graph(graph), chosen, batch) for batch in batches])
    return table.assign(resident=resident_bytes(graph, batches, chosen))


def interpolated_features(graph: OpGraph, batch_sizes: Iterable[int], setting: Setting | None = None) -> pd.DataFrame:
    """`memory_features`, simulated at batch sizes 1, 2, 3, 4, 6, 8, 12, ... and interpolated linearly between them.

    Amounts are convex in the batch but for the granularity of the allocator. Simulations are memoized.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> graph = OpGraph.from_operators([dense], [], n_parameters=650, n_trainable=650, parameter_bytes=2600.0)
    >>> interpolated_features(graph, [32, 40])[["batch_size", "part:activations"]].to_numpy().tolist()
    [[32.0, 2560.0], [40.0, 3200.0]]
    """
    sizes = np.array(list(batch_sizes), dtype=float)
    right = np.searchsorted(_KNOTS, sizes)
    left = np.where(_KNOTS[right] == sizes, right, right - 1)
    knots = _KNOTS[np.unique([left, right])]
    exact = memory_features(graph, knots, setting)
    table = pd.DataFrame({name: np.interp(sizes, knots, values) for name, values in exact.items()})
    return table.assign(resident=resident_bytes(graph, sizes, setting or Setting()))  # convex: not interpolated


@per_graph
def _features(graph: OpGraph, setting: Setting, batch: float) -> dict[str, float]:
    events = _events(graph, setting)
    allocated, sizes = events.allocated(batch, BLOCK), events.sizes(batch, BLOCK)
    parts = events.allocated_by_part(batch, int(allocated.argmax()))
    segments = np.where(sizes >= OWN_SEGMENT, np.ceil(sizes / ROUND) * ROUND, sizes)
    scratch = {name: (fixed + each * batch).max(initial=0.0) for name, (fixed, each) in _workspace(graph).items()}
    return {
        "batch_size": batch,
        "operators": float(len(graph.nodes)),
        "allocated": float(allocated.max()),
        "segments": float(np.cumsum(segments[events.tensor] * events.sign).max()),
        "largest": float(np.sort(sizes[events.part >= _STEP])[-_LARGEST:].sum()),
        **{f"part:{name}": value for name, value in zip(PARTS, parts.tolist(), strict=True)},
        **{f"workspace:{name}": value for name, value in scratch.items()},
    }


_events, _workspace = per_graph(step_events), per_graph(conv_workspace)


def memory_summary(graph: OpGraph) -> dict[str, float]:
    """Simulated memory of a training step on a CPU as a few numbers, for feature tables without graphs.

    ``allocated_<batch>``: peak of allocated bytes with SGD, for each batch size of `SUMMARY_BATCHES`;
    ``workspace_<algorithm>``: largest workspace of a convolution, bytes per sample.
    """
    peaks = allocated_bytes(_events(check_graph(graph), Setting(device="cpu")), SUMMARY_BATCHES)
    scratch = {f"workspace_{name}": float(each.max(initial=0.0)) for name, (_, each) in _workspace(graph).items()}
    return {f"allocated_{batch}": peak for batch, peak in zip(SUMMARY_BATCHES, peaks.tolist(), strict=True)} | scratch
