"""Memory of a training step, simulated from a graph: nothing is run, no GPU is needed, nothing is allocated.

Three things are called memory. *Allocated* is what tensors take, *reserved* what PyTorch's caching allocator has taken
from the GPU for them, *device* what the driver says the process takes: reserved, and the context of CUDA and its
libraries. The first two are simulated here; `MemoryModel` learns the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import check_number
from gpudemand.cost.graph.cache import per_graph
from gpudemand.cost.graph.features import features_by_name
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.graph.structural_matrix import check_graph
from gpudemand.cost.memory.allocator import BLOCK, CachingAllocator, replay
from gpudemand.cost.memory.events import PARTS, Events
from gpudemand.cost.memory.liveness import Setting, step_events
from gpudemand.cost.memory.workspace import conv_extents, conv_workspace

#: Amounts whose shares by operator class describe a network.
_SHARED = ("saved_bytes", "bytes")
_STATE = PARTS.index("optimizer_state")
#: Batches that memory is simulated for where many are asked about.
_KNOTS = np.unique(np.outer([1, 3], 2 ** np.arange(26)).ravel())
#: Batches between which the memory of a network is a line, near enough, in a summary.
SUMMARY_BATCHES = (1, 4, 16, 64, 256)


class SimulatedMemory(NamedTuple):
    """Peaks of a training step, in bytes.

    Attributes
    ----------
    allocated : float
        Most that tensors take at one moment, weights and the batch among them.
    reserved : float
        What the caching allocator holds after two steps.
    parts : dict of str to float
        What the memory allocated at the peak is for, by `gpudemand.cost.memory.events.PARTS`.
    when : float
        Position of the peak in the step, from 0 to 1.
    """

    allocated: float
    reserved: float
    parts: dict[str, float]
    when: float


def simulate_memory(graph: OpGraph, batch_size: int, setting: Setting | None = None) -> SimulatedMemory:
    """Simulate the memory of a training step.

    Parameters
    ----------
    graph : OpGraph
        The network.
    batch_size : int
        Samples in a batch.
    setting : Setting, optional
        Optimizer, precision, checkpointing and kind of device; plain SGD in single precision on a GPU by default.

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


def allocated_bytes(events: Events, batch_sizes: Iterable[float]) -> FloatArray:
    """Peak of the memory allocated, in bytes, for each of several batch sizes."""
    return np.array([events.held(batch, BLOCK).max(initial=0.0) for batch in batch_sizes])


def _simulate(events: Events, batch_size: float) -> SimulatedMemory:
    held = events.held(batch_size, BLOCK)
    peak = int(held.argmax())
    parts = dict(zip(PARTS, events.held_by_part(batch_size, peak).tolist(), strict=True))
    return SimulatedMemory(float(held[peak]), _reserved(events, batch_size), parts, peak / len(held))


def _reserved(events: Events, batch_size: float) -> float:
    """Bytes reserved after two steps; optimizer state is made by the first of them, in the gaps it leaves."""
    sizes, step = events.sizes(batch_size, BLOCK), np.arange(len(events.tensor)) >= events.start
    state = ~step & (events.part[events.tensor] == _STATE)
    pool = CachingAllocator()
    for part in (~step & ~state, step, state, step):
        replay(events.tensor[part], events.sign[part], sizes, pool)
    return float(pool.reserved)


def memory_features(graph: OpGraph, batch_sizes: Iterable[int], setting: Setting | None = None) -> pd.DataFrame:
    """Describe the memory of a training step for `MemoryModel`, at several batch sizes.

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
        A row a batch size: what `simulate_memory` says (bytes, ``part:<name>``), scratch memory that algorithms of
        convolutions would need (``workspace:<algorithm>``), the largest convolutions of each kind
        (``conv:<kind>_<extent>``), and shares of the activations by operator class (``share:<amount>_<class>``).

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> graph = OpGraph.from_operators([dense], [], n_parameters=650, n_trainable=650, parameter_bytes=2600.0)
    >>> memory_features(graph, [32, 64])[["batch_size", "allocated", "share:bytes_gemm"]].to_numpy().tolist()
    [[32.0, 9216.0, 1.0], [64.0, 13312.0, 1.0]]
    """
    return pd.DataFrame([_features(check_graph(graph), setting or Setting(), float(batch)) for batch in batch_sizes])


def interpolated_features(graph: OpGraph, batch_sizes: Iterable[int], setting: Setting | None = None) -> pd.DataFrame:
    """Describe memory as `memory_features` does, simulated for a few batch sizes only.

    Amounts grow with the batch in straight lines, but for the steps in which an allocator takes memory. So they are
    simulated for batches of 1, 2, 3, 4, 6, 8, 12, ... and interpolated for those between; once for each network.

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
        A row a batch size, columns as in `memory_features`.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> graph = OpGraph.from_operators([dense], [], n_parameters=650, n_trainable=650, parameter_bytes=2600.0)
    >>> interpolated_features(graph, [32, 40])[["batch_size", "part:activations"]].to_numpy().tolist()
    [[32.0, 2560.0], [40.0, 3200.0]]
    """
    wanted = np.array(list(batch_sizes), dtype=float)
    right = np.searchsorted(_KNOTS, wanted)
    left = np.where(_KNOTS[right] == wanted, right, right - 1)
    knots = _KNOTS[np.unique([left, right])]
    exact = memory_features(graph, knots, setting)
    return pd.DataFrame({name: np.interp(wanted, knots, values) for name, values in exact.items()})


@per_graph
def _features(graph: OpGraph, setting: Setting, batch: float) -> dict[str, float]:
    found, scratch = _simulate(_events(graph, setting), batch), _scratch(graph)
    needs = {f"workspace:{name}": (fixed + each * batch).max(initial=0.0) for name, (fixed, each) in scratch.items()}
    return {
        "batch_size": batch,
        "allocated": found.allocated,
        "reserved": found.reserved,
        "when": found.when,
        **{f"part:{name}": value for name, value in found.parts.items()},
        **needs,
        **{f"conv:{name}": value * batch for name, value in _extents(graph).items()},
        **_fixed_features(graph),
    }


_events, _scratch, _extents = per_graph(step_events), per_graph(conv_workspace), per_graph(conv_extents)


def memory_summary(graph: OpGraph) -> dict[str, float]:
    """Summarise the simulated memory of a training step on a CPU by numbers, for tables that hold no graph.

    Parameters
    ----------
    graph : OpGraph
        The network.

    Returns
    -------
    dict of str to float
        ``allocated_<batch>``: bytes allocated at the peak of a plain step, for each batch of `SUMMARY_BATCHES`;
        ``workspace_<algorithm>``: most scratch bytes for a sample that any convolution would need.
    """
    held = allocated_bytes(_events(check_graph(graph), Setting(device="cpu")), SUMMARY_BATCHES)
    scratch = {f"workspace_{name}": float(each.max(initial=0.0)) for name, (_, each) in _scratch(graph).items()}
    return {f"allocated_{batch}": value for batch, value in zip(SUMMARY_BATCHES, held.tolist(), strict=True)} | scratch


@per_graph
def _fixed_features(graph: OpGraph) -> dict[str, float]:
    features = features_by_name(graph)
    shares: dict[str, float] = {"operators": features["operators"]}
    for amount in _SHARED:
        part = {name: value for name, value in features.items() if name.startswith(f"{amount}_")}
        total = max(sum(part.values()), 1.0)
        shares |= {f"share:{name}": value / total for name, value in part.items()}
    return shares
