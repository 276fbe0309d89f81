"""Peak memory of a training step, by simulation of the allocator.

Which algorithm cuDNN selects depends on its heuristics or on a benchmark; what each would need follows from the shapes.
The amounts are candidate features for a predictor.

*Allocated* memory is that of tensors, *reserved* memory what PyTorch's caching allocator has taken from the device,
*device* memory what the driver reports for the process: reserved memory and the context of CUDA and its libraries. The
first two are simulated here; `MemoryModel` predicts the third.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._array import STRING, FloatArray, IntArray
from gpudemand._tables import aligned, titled_html
from gpudemand._validation import check_number
from gpudemand.cost.graph import OpGraph, check_graph, per_graph
from gpudemand.cost.liveness import PARTS, AllocationEvents, Layer, Setting, read_layers, step_events
from gpudemand.units import GIB, format_gib

#: Bytes of an element of the batch; token ids may take twice as many.
_ITEM = 4.0


def resident_bytes(graph: OpGraph, batch_sizes: Iterable[float], setting: Setting | None = None) -> FloatArray:
    """Lower bound on the memory of a training step, bytes, shape (n_batch_sizes,).

    Weights and other state, optimizer state and the batch, and beside them the largest of: all dense gradients,
    which the optimizer reads; inputs and outputs of one operator; the gradients of the weights of an operator and
    of those after it, with the gradient of its output. Where passes are accumulated, all dense gradients are always
    there, beside the gradient of the weights of one operator. Recomputed activations, allocators and libraries are left
    out. In inference, only weights, batch, and inputs and outputs of one operator. On a CPU without weights and
    batch, which memory before the step includes.
    """
    fixed, per_sample = _candidates(check_graph(graph), setting or Setting())
    return np.array([(fixed + per_sample * batch).max() for batch in batch_sizes])


@per_graph
def _candidates(graph: OpGraph, setting: Setting) -> FloatArray:
    """What may be the least memory, bytes (fixed, per sample), shape (2, n_candidates)."""
    layers = read_layers(graph, mixed_precision=setting.mixed_precision, cpu=setting.device == "cpu")
    for_states, for_gradients, for_parameters = setting.shards
    trained = np.array([0.0 if setting.inference else layer.weights for layer in layers])
    always = np.array([trained.sum() / for_states * setting.states, 0.0])
    if setting.device != "cpu":
        always += (
            graph.parameter_bytes / for_parameters + graph.state_bytes + graph.fixed_input_bytes + setting.buckets,
            sum(_ITEM * math.prod(shape) for shape in graph.input_shapes),
        )
    dense = [0.0 if layer.is_sparse else 1.0 for layer in layers]
    trained = trained * dense / for_gradients
    at_once = [(float(trained.sum()), 0.0), *(_read_and_written(layer, layers) for layer in layers)]
    later = np.cumsum(trained[::-1])[::-1]
    if setting.accumulate > 1:
        always[0] += trained.sum()
        at_once, later = at_once[1:] or [(0.0, 0.0)], trained
    at_once += [
        (later[i] + layer.output[0], layer.output[1]) for i, layer in enumerate(layers) if layer.weights and later[i]
    ]
    return np.array(at_once).T + always[:, None]


def _read_and_written(layer: Layer, layers: list[Layer]) -> tuple[float, float]:
    """Bytes (fixed, per sample) of the tensors that an operator reads and writes, each storage once."""
    owners = {layer.storage_owner, *(layers[j].storage_owner for j in layer.inputs)}
    fixed, per_sample = np.sum([layers[owner].output for owner in owners], axis=0).tolist()
    return fixed, per_sample


#: Winograd F(4x4, 3x3): 6 x 6 numbers for each tile of 4 x 4 positions, and for each filter of 3 x 3.
_WINOGRAD = (6 / 4) ** 2
_WINOGRAD_WEIGHTS = 36 / 9
#: FFT on tiles of 32 x 32, of which 28 x 28 are output: numbers a transformed tile, half of it by symmetry, complex.
_FFT_TILE = 32 * 17
_FFT_OUTPUT = 28**2


def conv_workspace(graph: OpGraph) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Bytes that each algorithm would need for each operator, as (fixed, per sample), shape (n_operators,) each.

    Zero where an algorithm does not apply, and for all but convolutions. ``layout``: activations copied into
    channels-last order. ``columns``: the input unfolded into a matrix (im2col). ``winograd``: tiles of 4 x 4 positions.
    ``fourier``: tiles of 32 x 32, and transformed weights.

    Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016; Mathieu, Henaff, LeCun, "Fast Training
    of Convolutional Networks through FFTs", ICLR 2014.

    >>> from gpudemand.cost.graph import Operator
    >>> conv = Operator("Conv", "3x3", "", "conv2d", (1, 8, 4, 4), 18432.0, 576, 2304.0, 512.0, 512.0, 0.0)
    >>> workspace = conv_workspace(OpGraph.from_operators([conv], []))
    >>> {name: (float(fixed[0]), float(each[0])) for name, (fixed, each) in workspace.items()}["columns"]
    (0.0, 4608.0)
    """
    nodes = graph.nodes
    is_conv, kind = (nodes["type"] == "Conv").to_numpy(), nodes["kind"].to_numpy()
    channels = graph.channels
    positions = np.array([np.prod(shape[1:]) for shape in nodes["output_shape"]], dtype=float) / channels
    weights, moved = nodes["weight_bytes"].to_numpy(), (nodes["bytes_read"] + nodes["bytes_written"]).to_numpy()
    dense, square = is_conv & (kind != "depthwise"), is_conv & (kind == "3x3")
    wide = is_conv & np.isin(kind, ("3x3", "large"))
    unfolded = nodes["flops"].to_numpy() / (2 * np.maximum(channels, 1)) * 4
    taps = np.where(kind == "large", 25.0, 9.0)
    tiles = np.ceil(positions / _FFT_OUTPUT) * _FFT_TILE / np.maximum(positions, 1)
    return {
        "layout": (weights * dense, moved * dense),
        "columns": (np.zeros(len(nodes)), unfolded * (dense & (kind != "1x1"))),
        "winograd": (_WINOGRAD_WEIGHTS * weights * square, _WINOGRAD * moved * square),
        "fourier": (2 * _FFT_TILE / taps * weights * wide, 2 * tiles * moved * wide),
    }


# Bytes; the constants of c10/cuda/CUDACachingAllocator.cpp.
#: Every block is a multiple of this.
BLOCK = 512
_MIB = 2**20
#: Up to this, blocks come from segments of `_SMALL_SEGMENT`.
_SMALL = _MIB
_SMALL_SEGMENT, _LARGE_SEGMENT = 2 * _MIB, 20 * _MIB
#: From this on, a block has a segment of its own, rounded up to `ROUND`.
OWN_SEGMENT, ROUND = 10 * _MIB, 2 * _MIB
_FIRST_ADDRESS = 2**44


class CachingAllocator:
    """Allocates blocks from segments and caches freed blocks, as ``torch.cuda`` does with its default settings.

    Sizes are rounded up to 512 bytes. Blocks of at most 1 MiB come from segments of 2 MiB, larger ones from segments
    of 20 MiB, and from 10 MiB on from segments of their own. The smallest free block that is large enough is taken
    (best fit) and split if more than 1 MiB (of a small one, 512 bytes) would remain. Free neighbours are merged;
    segments are never returned to the device.

    PyTorch, "CUDA semantics: memory management"; constants of PyTorch 1.12 to 2.9.
    """

    def __init__(self) -> None:
        self.allocated = self.reserved = self.peak_allocated = 0
        self._free: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
        self._size: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._is_free: set[int] = set()
        self._large: dict[int, bool] = {}
        self._next_segment = _FIRST_ADDRESS

    def malloc(self, size: float) -> int:
        """Allocate a block; return its address."""
        rounded = max(BLOCK, -(-int(size) // BLOCK) * BLOCK)
        large = rounded > _SMALL
        address = self._take(rounded, large)
        self._split(address, rounded, large)
        self.allocated += self._size[address]
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return address

    def free(self, address: int) -> None:
        """Free a block."""
        size, large = self._size[address], self._large[address]
        self.allocated -= size
        after = address + size
        if after in self._is_free:
            size += self._unlist(after)
            self._forget(after)
        before = self._before.get(address)
        if before is not None and before in self._is_free:
            size += self._unlist(before)
            self._forget(address)
            address = before
        self._put(address, size, large)

    def _take(self, size: int, large: bool) -> int:
        blocks = self._free[large]
        place = bisect_left(blocks, (size, 0))
        if place == len(blocks):
            return self._new_segment(size, large)
        _, address = blocks.pop(place)
        self._is_free.remove(address)
        return address

    def _new_segment(self, block: int, large: bool) -> int:
        own = -(-block // ROUND) * ROUND
        size = (_LARGE_SEGMENT if block < OWN_SEGMENT else own) if large else _SMALL_SEGMENT
        address = self._next_segment
        # Segments do not touch, so that their blocks never merge.
        self._next_segment += size + BLOCK
        self.reserved += size
        self._size[address], self._large[address] = size, large
        return address

    def _split(self, address: int, size: int, large: bool) -> None:
        rest = self._size[address] - size
        if rest <= _SMALL if large else rest < BLOCK:
            return
        remainder, after = address + size, address + size + rest
        self._size[address] = size
        self._before[remainder] = address
        if after in self._before:
            self._before[after] = remainder
        self._put(remainder, rest, large)

    def _unlist(self, address: int) -> int:
        """Remove a block from the free list, to merge it with a neighbour; return its size."""
        size = self._size[address]
        blocks = self._free[self._large[address]]
        del blocks[bisect_left(blocks, (size, address))]
        self._is_free.remove(address)
        return size

    def _forget(self, address: int) -> None:
        """Delete the records of a block that was merged into the one before it."""
        del self._size[address], self._before[address], self._large[address]

    def _put(self, address: int, size: int, large: bool) -> None:
        self._size[address], self._large[address] = size, large
        if address + size in self._before:
            self._before[address + size] = address
        insort(self._free[large], (size, address))
        self._is_free.add(address)


def replay(
    tensor: IntArray, sign: IntArray, sizes: FloatArray, pool: CachingAllocator | None = None
) -> CachingAllocator:
    """Run allocations (`sign` +1) and frees (-1) of tensors of `sizes` bytes through an allocator; return it."""
    pool = CachingAllocator() if pool is None else pool
    addresses: dict[int, int] = {}
    for number, direction in zip(tensor.tolist(), sign.tolist(), strict=True):
        if direction > 0:
            addresses[number] = pool.malloc(sizes[number])
        else:
            pool.free(addresses.pop(number))
    return pool


_STATE = PARTS.index("optimizer_state")
#: Parts from here on are allocated in the step.
_STEP = PARTS.index("input")
#: Number of tensors in the feature ``largest``.
_LARGEST = 4
#: Largest batch that memory is predicted of.
MOST_SAMPLES = 2**40
#: Batch sizes at which memory is simulated for interpolation.
_KNOTS = np.unique([1.0, *np.outer([1.0, 1.5], 2.0 ** np.arange(1, math.log2(MOST_SAMPLES) + 1)).ravel()])
#: Batch sizes of `memory_summary`.
SUMMARY_BATCHES = (1, 4, 16, 64, 256)


class SimulatedMemory(NamedTuple):
    """Peak memory of a training step, bytes.

    `allocated`: tensors, with weights and batch. `reserved`: after two steps. `parts`: at the peak, by `PARTS`.
    """

    allocated: float
    reserved: float
    parts: dict[str, float]


def simulate_memory(graph: OpGraph, batch_size: int, setting: Setting | None = None) -> SimulatedMemory:
    """Simulate the memory of a training step with a batch of samples, a positive whole number.

    Gao et al., "Estimating GPU Memory Consumption of Deep Learning Models" (DNNMem), ESEC/FSE 2020.

    >>> from gpudemand.cost.graph import Operator
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
    """Features of the memory of a training step, the input of `MemoryModel`: a row a batch size.

    In bytes, none of which decreases with the batch: ``allocated`` and ``part:<name>`` of `simulate_memory`;
    ``segments``, the same with large tensors in segments of the caching allocator; ``largest``, the four largest
    tensors together; ``workspace:<algorithm>`` of convolutions; ``resident``, the lower bound of `resident_bytes`.

    >>> from gpudemand.cost.graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> graph = OpGraph.from_operators([dense], [], n_parameters=650, n_trainable=650, parameter_bytes=2600.0)
    >>> memory_features(graph, [32, 64])[["batch_size", "allocated", "resident"]].to_numpy().tolist()
    [[32.0, 9216.0, 6480.0], [64.0, 13312.0, 7760.0]]
    """
    batches = [float(batch) for batch in batch_sizes]
    table = pd.DataFrame([_features(check_graph(graph), setting or Setting(), batch) for batch in batches])
    return table.assign(resident=resident_bytes(graph, batches, setting))


def interpolated_features(graph: OpGraph, batch_sizes: Iterable[int], setting: Setting | None = None) -> pd.DataFrame:
    """`memory_features`, simulated at batch sizes 1, 2, 3, 4, 6, 8, 12, ... and interpolated linearly between them.

    Amounts are convex in the batch but for the granularity of the allocator. Simulations are memoized.
    """
    sizes = np.array(list(batch_sizes), dtype=float)
    check_number("batch_size", sizes.max(initial=1.0), 1, MOST_SAMPLES)
    right = np.searchsorted(_KNOTS, sizes)
    left = np.where(_KNOTS[right] == sizes, right, right - 1)
    knots = _KNOTS[np.unique([left, right])]
    exact = memory_features(graph, knots, setting)
    table = pd.DataFrame({name: np.interp(sizes, knots, values) for name, values in exact.items()})
    return table.assign(resident=resident_bytes(graph, sizes, setting))  # convex: not interpolated


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


#: Default workspace of cuBLAS, ``:4096:2:16:8`` KiB, allocated at the first matrix product.
_CUBLAS = 8.125 * 2**20
#: Parts as they print; workspaces have a row of their own.
_NAMES = {name: name.replace("_", " ") for name in PARTS if name not in ("workspace", "buckets")}
_NAMES |= {"input": "the batch"}


@dataclass(frozen=True, eq=False, repr=False)
class MemoryBreakdown:
    """Memory at the peak of a training step by category.

    Parameters
    ----------
    parts : DataFrame
        Columns ``part`` and ``gib``, which add up to `device_gib`.
    allocated_gib : float
        Memory of tensors at the peak.
    reserved_gib : float
        Memory that the caching allocator has taken from the device.
    device_gib : float
        Device memory of the process.
    title : str
        Network, batch size, optimizer and precision.
    """

    parts: pd.DataFrame
    allocated_gib: float
    reserved_gib: float
    device_gib: float
    title: str

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of `parts`."""
        return self.parts.copy()

    def __repr__(self) -> str:
        return f"{self.title}\n\n{aligned(self._table())}\n\n{self._totals()}"

    def _repr_html_(self) -> str:
        return titled_html(self.title, self._table(), self._totals())

    def _table(self) -> pd.DataFrame:
        share = 100 * self.parts["gib"] / max(self.parts["gib"].sum(), 1e-12)
        columns = {"part": self.parts["part"], "": "", "memory": self.parts["gib"].map(format_gib)}
        return pd.DataFrame({**columns, "share": share.map("{:.0f} %".format)}).astype(str)

    def _totals(self) -> str:
        totals = (self.allocated_gib, self.reserved_gib, self.device_gib)
        return "allocated {}, reserved {}, on the device {}".format(*map(format_gib, totals))


def memory_breakdown(
    graph: OpGraph,
    batch_size: int,
    setting: Setting | None = None,
    precision: str = "fp32",
    *,
    context_gib: float = 0.5,
) -> MemoryBreakdown:
    """Simulate the memory of a training step, or of inference, on a GPU, by category.

    Not fitted to measurements; `MemoryModel` predicts the total more accurately. `precision` is what the title says.
    `context_gib` is the memory of driver and libraries before the first tensor: 0.3 on old cards to 0.9 on new ones,
    more without lazy loading of kernels.

    >>> from gpudemand.cost.graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 4096), 3.4e7, 2**24, 2.0**26, 16384.0, 16384.0, 16384.0)
    >>> sizes = {"n_parameters": 2**24, "n_trainable": 2**24, "parameter_bytes": 2.0**26, "name": "Head"}
    >>> memory_breakdown(OpGraph.from_operators([dense], [], **sizes), 1024, Setting("adam"))
    Head, a batch of 1,024, adam, fp32
    <BLANKLINE>
    part                 memory  share
    parameters           64 MiB    7 %
    gradients            64 MiB    7 %
    optimizer state     128 MiB   14 %
    the batch             0 MiB    0 %
    activations           0 MiB    0 %
    transient            64 MiB    7 %
    workspace          8.12 MiB    1 %
    allocator slack    57.9 MiB    6 %
    context             512 MiB   57 %
    <BLANKLINE>
    allocated 320 MiB, reserved 386 MiB, on the device 898 MiB
    """
    setting, context = setting or Setting(), check_number("context_gib", context_gib, 0)
    peak = simulate_memory(check_graph(graph), batch_size, setting)
    parts = {label: peak.parts[name] for name, label in _NAMES.items()}
    parts |= {"buckets": setting.buckets} if setting.buckets else {}
    parts["workspace"] = _workspace_bytes(graph, batch_size)
    parts["allocator slack"] = max(peak.reserved - peak.allocated - parts["workspace"], 0.0)
    parts["context"] = context * GIB
    table = pd.DataFrame({"part": pd.Series(list(parts), dtype=STRING), "gib": [b / GIB for b in parts.values()]})
    total = sum(parts.values()) / GIB
    what = "inference" if setting.inference else setting.optimizer
    title = f"{graph.name}, a batch of {batch_size:,}, {what}, {precision}"
    return MemoryBreakdown(table, peak.allocated / GIB, total - context, total, title)


def _workspace_bytes(graph: OpGraph, batch_size: int) -> float:
    fixed, per_sample = conv_workspace(graph)["layout"]
    products = graph.nodes["type"].isin(["Gemm", "MatMul"]).any()
    return float((fixed + per_sample * batch_size).max(initial=0.0)) + (_CUBLAS if products else 0.0)
