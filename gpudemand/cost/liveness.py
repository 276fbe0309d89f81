"""Which tensors of a training step are alive when.

Forward, an output lives until its last reader is done, or the call of a module that was given it returns, and a saved
tensor until the gradient of the operator that saved it first has been computed. Backward, operators run in reverse; the
gradient of an output lives until it has been used, gradients of several readers are accumulated in place where nothing
else refers to them, and additions and concatenations pass their gradient on without a copy. Which tensors an operator
saves follows from the bytes saved in the trace.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gpudemand._array import FloatArray, IntArray
from gpudemand._validation import check_choice
from gpudemand.cost.graph import OpGraph
from gpudemand.cost.graph_features import OPTIMIZER_STATES, autocast_widths
from gpudemand.cost.operators import HALF_TYPES, HALF_WIDTH, RECURRENT_STATE, SAVES, channels_of, runs_in_single

#: Least operators in a block.
_MIN_OPERATORS = 4
_NUMBER = re.compile(r"\d+$")


def checkpoint_blocks(names: Sequence[str], producers: Sequence[Sequence[int]]) -> list[int]:
    """Assign operators to blocks: the innermost numbered module around them that is one of a stack.

    The modules of a stack have several operators each and follow one another, unlike the experts or the projections of
    a layer, and are most of the module around them, unlike the layers of a perceptron within a block. Operators outside
    such modules belong to none. A network with fewer than two of them is cut into pieces of equal length, the square
    root of the number of its operators. Blocks are numbered from 0; -1 is none.

    Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174, 2016.
    """
    stacked = _stacked(names, producers)
    modules = [next((path for path in _numbered_prefixes(name) if path in stacked), "") for name in names]
    numbers = {module: number for number, module in enumerate(dict.fromkeys(filter(None, modules)))}
    if len(numbers) < 2:
        length = max(math.ceil(math.sqrt(len(names))), 1)
        return [position // length for position in range(len(names))]
    return [numbers.get(module, -1) for module in modules]


def _stacked(names: Sequence[str], producers: Sequence[Sequence[int]]) -> set[str]:
    """Paths of the modules that belong to a stack."""
    operators: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        for path in _numbered_prefixes(name):
            operators.setdefault(path, []).append(position)
    stacks: dict[str, list[str]] = {}
    for path, positions in operators.items():
        if len(positions) >= _MIN_OPERATORS:
            stacks.setdefault(_NUMBER.sub("", path), []).append(path)
    found = set()
    for stack, paths in stacks.items():
        around = next((len(operators[path]) for path in _numbered_prefixes(stack.rpartition(".")[0])), 0)
        most = 2 * sum(len(operators[path]) for path in paths) > around
        if most and _follow(operators[paths[0]], operators[paths[-1]], producers):
            found.update(paths)
    return found


def _follow(first: Sequence[int], last: Sequence[int], producers: Sequence[Sequence[int]]) -> bool:
    """Whether some of the last operators read what follows from the first; others than these are needed."""
    reached, ends = set(first), set(last) - set(first)
    for position in range(min(first), max(last) + 1):
        if not reached.isdisjoint(producers[position]):
            if position in ends:
                return True
            reached.add(position)
    return False


def _numbered_prefixes(name: str) -> list[str]:
    """Paths of the numbered modules around an operator, innermost first."""
    parts = name.split(".")
    paths = [".".join(parts[: depth + 1]) for depth in range(len(parts)) if _NUMBER.search(parts[depth])]
    return paths[::-1]


#: Categories of memory.
PARTS = ("parameters", "gradients", "optimizer_state", "buckets", "input", "activations", "transient", "workspace")
#: Bytes as (fixed, per sample).
Size = tuple[float, float]


@dataclass(frozen=True)
class AllocationEvents:
    """Allocations and frees of tensors, in order; a tensor takes ``fixed + per_sample * batch`` bytes."""

    #: Number of the tensor and +1 (allocated) or -1 (freed), shape (n_events,).
    tensor: IntArray
    sign: IntArray
    #: Bytes, and position in `PARTS`, shape (n_tensors,).
    fixed: FloatArray
    per_sample: FloatArray
    part: IntArray
    #: First event of the step; before it, weights, optimizer state and the batch are allocated.
    start: int

    def sizes(self, batch_size: float, block: int = 1) -> FloatArray:
        """Bytes of each tensor, rounded up to whole blocks."""
        return np.asarray(np.ceil((self.fixed + self.per_sample * batch_size) / block) * block)

    def allocated(self, batch_size: float, block: int = 1) -> FloatArray:
        """Bytes allocated after each event, shape (n_events,)."""
        return np.asarray(np.cumsum(self.sizes(batch_size, block)[self.tensor] * self.sign))

    def allocated_by_part(self, batch_size: float, position: int) -> FloatArray:
        """Bytes allocated for each of `PARTS` after the event at `position`."""
        alive = np.bincount(self.tensor[: position + 1], self.sign[: position + 1], minlength=self.fixed.size)
        return np.asarray(np.bincount(self.part, alive * self.sizes(batch_size), minlength=len(PARTS)), dtype=float)


class Tape:
    """Records allocation events of reference-counted tensors."""

    def __init__(self) -> None:
        self.references: list[int] = []
        self._tensor: list[int] = []
        self._sign: list[int] = []
        self._sizes: list[Size] = []
        self._part: list[int] = []

    def __len__(self) -> int:
        return len(self._tensor)

    def allocate(self, part: str, size: Size) -> int:
        """Allocate a tensor with one reference; return its number."""
        number = len(self._sizes)
        self._sizes.append(size)
        self._part.append(PARTS.index(part))
        self.references.append(1)
        self._record(number, 1)
        return number

    def retain(self, number: int) -> int:
        """Add a reference."""
        self.references[number] += 1
        return number

    def release(self, number: int) -> None:
        """Remove a reference; the last one frees the tensor."""
        self.references[number] -= 1
        if not self.references[number]:
            self._record(number, -1)

    def allocate_and_free(self, part: str, size: Size) -> None:
        """Allocate a tensor and free it at once; nothing if it is empty."""
        if any(size):
            self.release(self.allocate(part, size))

    def events(self, start: int) -> AllocationEvents:
        """Return what was recorded; `start` is the first event of the step."""
        sizes = np.array(self._sizes, dtype=float).reshape(-1, 2)
        tensor, sign, part = (np.array(values, dtype=np.int64) for values in (self._tensor, self._sign, self._part))
        return AllocationEvents(tensor, sign, sizes[:, 0], sizes[:, 1], part, start)

    def _record(self, number: int, sign: int) -> None:
        self._tensor.append(number)
        self._sign.append(sign)


#: Batch size of the trace, at which amounts are compared.
_TRACED = 2.0
_IN_PLACE = ("setitem", "iadd", "isub", "imul", "idiv", "itruediv", "ipow", "iand", "ior", "ixor")
#: Types that save statistics of channels, independent of the batch, beside activations.
_CHANNEL_STATISTICS = ("BatchNormalization",)
#: Types that never save what they write.
_SAVE_NO_OUTPUT = ("Dropout", "BatchNormalization", "Conv", "ConvTranspose", "Gemm", "MatMul", "MaxPool")
#: Types that sum half precision in single, without a copy of what they read.
_SUMS = ("ReduceSum",)
#: Memory that oneDNN saves for an LSTM, relative to what its gradient needs; measured.
_ONEDNN_LSTM = 2.4
#: Relative tolerance of comparisons of bytes.
_ROUNDING = 1e-9


class Layer(NamedTuple):
    """Tensors of one operator call."""

    type: str
    #: Layers whose outputs it reads, each once, in order.
    inputs: tuple[int, ...]
    #: Layer whose output has the storage of this one's: itself, unless it works in place.
    storage_owner: int
    output: Size
    #: Storage owners that it is the first to save for the backward pass, ...
    saves: tuple[int, ...]
    #: ... and what it saves beside those, such as a dropout mask.
    saved_extra: Size
    #: Copies of what it reads in the precision that it runs in, under autocast, and whether it saves these.
    copies: Size
    saves_copies: bool
    #: Bytes of trainable parameters that it is the first to use, and whether their gradient is only of rows looked up.
    weights: float
    is_sparse: bool
    requires_grad: bool
    #: Width of its output under autocast, as a share of single precision.
    width: float
    #: Scratch memory of the forward pass, and of the backward pass, where it is known.
    workspace: Size

    @property
    def gradient(self) -> Size:
        """Bytes of the gradient of its parameters."""
        return self.output if self.is_sparse else (self.weights, 0.0)

    @property
    def saved_copies(self) -> Size:
        """Bytes of the copies that it saves."""
        return self.copies if self.saves_copies else (0.0, 0.0)

    @property
    def passing_copies(self) -> Size:
        """Bytes of the copies that are freed when it is done, as are those of its gradient."""
        return (0.0, 0.0) if self.saves_copies else self.copies


class _Reader:
    """Reads the rows of a graph once, in order."""

    def __init__(self, graph: OpGraph, mixed_precision: bool, cpu: bool) -> None:
        self._rows: list[Any] = list(graph.nodes.itertuples(index=False))
        self._inputs = graph.producers
        self._item = graph.parameter_bytes / graph.n_parameters if graph.n_parameters else 4.0
        self._trained = graph.n_trainable / graph.n_parameters if graph.n_parameters else 0.0
        self._sparse = _sparse_tables(graph)
        mixed_precision = mixed_precision and graph.is_single  # autocast leaves the others as they are
        self._width = (autocast_widths(graph) if mixed_precision else np.ones(len(self._rows))).tolist()
        self._mixed_precision, self._cpu = mixed_precision, cpu
        self._requires_grad: list[bool] = []
        self._owner: list[int] = []
        self._saved: set[int] = set()

    def read(self) -> Iterator[Layer]:
        """Yield the tensors of each operator call, in the order of the graph."""
        for position, row in enumerate(self._rows):
            inputs = self._inputs[position]
            self._owner.append(self._storage_owner(position, row))
            has_weights = row.weight_bytes > 0 or row.parameters > 0
            self._requires_grad.append(has_weights or any(self._requires_grad[j] for j in inputs))
            yield self._layer(position, row)

    def _layer(self, position: int, row: Any) -> Layer:
        saves, extra = self._first_saved(position, row)
        precision = self._cast_to(row)
        copies, saves_copies = self._copies(position, row, precision), precision == HALF_WIDTH or SAVES[row.type].inputs
        if any(copies) and saves_copies:  # instead of the inputs in another precision
            saves = tuple(owner for owner in saves if self._width[owner] == precision)
        return Layer(
            type=row.type,
            inputs=tuple(self._inputs[position]),
            storage_owner=self._owner[position],
            output=self._size(position),
            saves=saves,
            saved_extra=self._extra(row, extra, precision),
            copies=copies,
            saves_copies=saves_copies,
            weights=row.parameters * self._item * self._trained,
            is_sparse=position in self._sparse,
            requires_grad=self._requires_grad[position],
            width=self._width[position],
            workspace=self._workspace(row),
        )

    def _workspace(self, row: Any) -> Size:
        """Copies of weights and activations in oneDNN's layouts; in cuDNN's recurrent layers another state."""
        if self._cpu and row.type.startswith("Conv"):
            return row.weight_bytes, row.bytes_read + row.bytes_written
        if not self._cpu and _is_recurrent_layer(row):
            return row.weight_bytes, RECURRENT_STATE[row.type] * row.bytes_written
        return 0.0, 0.0

    def _extra(self, row: Any, traced: Size, precision: float | None) -> Size:
        """What is saved beside known tensors, of what the trace saves in single precision."""
        fixed, rest = (size * (precision or 1.0) for size in traced)
        rest *= self._extra_factor(row)
        if row.type in _CHANNEL_STATISTICS:  # mean and deviation of each channel
            statistics = min(rest, 2.0 * 4.0 * channels_of(row) / _TRACED)
            fixed, rest = fixed + statistics * _TRACED, rest - statistics
        if self._is_fused(row):  # a number a row
            rest = min(rest, 4.0 * math.prod(row.output_shape[:-1]))
        return fixed, rest

    def _is_fused(self, row: Any) -> bool:
        """Whether a GPU runs one kernel where a CPU may run several: not for attention without an axis of heads."""
        is_attention = row.type == "Attention" and len(row.output_shape) == 4
        return not self._cpu and (is_attention or row.type == "RMSNormalization")

    def _extra_factor(self, row: Any) -> float:
        """Ratio to the trace of what is saved beside activations: its dropout masks are a CPU's, 4 bytes an element."""
        if self._cpu:
            return _ONEDNN_LSTM if row.type == "LSTM" and _is_recurrent_layer(row) else 1.0
        return 0.25 if row.type == "Dropout" else 1.0

    def _storage_owner(self, position: int, row: Any) -> int:
        if not (row.operator.endswith("_") or row.operator in _IN_PLACE):
            return position
        enough = _written(row) * (1 - _ROUNDING)
        same = [j for j in self._inputs[position] if _written(self._rows[j]) >= enough]
        unsaved = [j for j in same if self._owner[j] not in self._saved]
        return self._owner[max(unsaved or same)] if same else position

    def _size(self, position: int) -> Size:
        row, width = self._rows[position], self._width[position]
        return row.fixed_bytes_written * width, row.bytes_written * width

    def _cast_to(self, row: Any) -> float | None:
        """Precision that autocast casts what an operator reads to, as a share of single; none if it does not."""
        if not self._mixed_precision:
            return None
        if row.type in HALF_TYPES:
            return HALF_WIDTH
        return 1.0 if runs_in_single(row.type, row.operator.lower()) and row.type not in _SUMS else None

    def _copies(self, position: int, row: Any, precision: float | None) -> Size:
        """Copies of inputs that have another precision, and of weights."""
        if precision is None:
            return 0.0, 0.0
        inputs = self._inputs[position]
        if precision < 1.0 and not any(self._owner[j] in self._saved for j in inputs):
            inputs = []  # what no operator saved so far, a frozen layer does not, either
        cast = [j for j in inputs if self._width[j] != precision]
        sizes = [[size * precision / self._width[j] for size in self._size(j)] for j in cast]
        fixed, per_sample = (sum(size[axis] for size in sizes) for axis in (0, 1))
        return fixed + row.weight_bytes * precision * (precision < 1.0), per_sample

    def _first_saved(self, position: int, row: Any) -> tuple[tuple[int, ...], Size]:
        """Tensors that an operator is the first to save, by the bytes it saves; and the bytes left over."""
        fixed, rest, found = float(row.fixed_saved_bytes), float(row.saved_bytes), list[int]()
        if not self._inputs[position] and rest >= row.bytes_read:
            rest -= row.bytes_read  # the batch, which is allocated anyway
        for owner in self._candidates(position, row, fixed / _TRACED + rest):
            size, enough = self._rows[owner], 1 + _ROUNDING
            fits = size.fixed_bytes_written <= fixed * enough and size.bytes_written <= rest * enough
            if owner not in self._saved and fits and _written(size):
                self._saved.add(owner)
                found.append(owner)
                fixed, rest = max(fixed - size.fixed_bytes_written, 0.0), max(rest - size.bytes_written, 0.0)
        return tuple(found), (fixed, rest)

    def _candidates(self, position: int, row: Any, remaining: float) -> list[int]:
        """Tensors that an operator may save, the likeliest first."""
        rule = SAVES[row.type]
        inputs, own = [self._owner[j] for j in self._inputs[position]], self._owner[position]
        if rule.output and not rule.inputs:
            return list(dict.fromkeys([own, *inputs]))
        if row.type in _SAVE_NO_OUTPUT:
            return list(dict.fromkeys(inputs))
        with_own = rule.output or abs(remaining - _written(row)) <= _ROUNDING * _written(row)
        return list(dict.fromkeys([*inputs, own] if with_own else inputs))


def _sparse_tables(graph: OpGraph) -> set[int]:
    """Positions of the look-ups whose tables have sparse gradients: of all tables the largest that add up to these."""
    left, found = graph.n_sparse, set[int]()
    tables = graph.nodes["parameters"].where(graph.nodes["type"] == "Gather", 0)
    for position, size in tables.sort_values(ascending=False, kind="stable").items():
        if 0 < size <= left:
            left -= int(size)
            found.add(int(position))
    return found


def _is_recurrent_layer(row: Any) -> bool:
    """Whether a library runs all time steps at once, not a cell one of them."""
    return row.type in RECURRENT_STATE and not row.operator.lower().endswith("cell")


def _written(row: Any) -> float:
    """Bytes that an operator writes in the trace, by sample."""
    return float(row.fixed_bytes_written / _TRACED + row.bytes_written)


def read_layers(graph: OpGraph, *, mixed_precision: bool = False, cpu: bool = False) -> list[Layer]:
    """Read the layers of a graph, in order."""
    return list(_Reader(graph, mixed_precision, cpu).read())


#: Types whose backward pass passes the gradient on, whole or as views, without allocating a new one.
_GRADIENT_PASSES = ("Add", "Sub", "Concat", "Cast")
#: Types whose parameters are factors of many elements each.
_BROADCASTS = ("Mul", "Div")
#: Operators whose parameters are whole at a time where they are sharded: the one in use and the next.
_GATHERED = 2


@dataclass(frozen=True)
class Setting:
    """Options of a training step that its memory depends on.

    `optimizer`: one of `gpudemand.cost.graph_features.OPTIMIZER_STATES`. `mixed_precision`: autocast: products in
    half precision, weights in single. `checkpointing`: blocks of layers save only their inputs and are recomputed in
    the backward pass. `device`: {"cuda", "cpu"}; on a CPU, convolutions copy into oneDNN's layouts, and optimizers
    update one weight at a time. `inference`: a forward pass that saves nothing, without loss, gradients or optimizer.
    `loss`: whether a cross-entropy of the outputs is computed; else their gradients are given.
    `shards`: GPUs that optimizer states, gradients and parameters are each divided over (ZeRO, FSDP). Gradients are
    whole, operator by operator, until they are reduced; so are the parameters of the operator in use and of the next
    one. `accumulate`: passes whose gradients are added up before an update; from the second on, those of all earlier
    ones are held beside the activations, in Keras also beside those of the last. `buckets`: bytes of the buckets that
    gradients are copied to, to be reduced.
    """

    optimizer: str = "sgd"
    mixed_precision: bool = False
    checkpointing: bool = False
    device: str = "cuda"
    inference: bool = False
    shards: tuple[int, int, int] = (1, 1, 1)
    loss: bool = True
    accumulate: int = 1
    buckets: float = 0.0

    @property
    def states(self) -> int:
        """State tensors of the optimizer per parameter."""
        if self.inference:
            return 0
        return OPTIMIZER_STATES[check_choice("optimizer", self.optimizer, OPTIMIZER_STATES)]

    def optimizer_workspace(self, weights: Sequence[float]) -> float:
        """Scratch bytes: a copy of all weights on a GPU (multi-tensor kernels), of one on a CPU; none for SGD."""
        if self.device == "cuda":
            return 0.0 if self.optimizer in ("sgd", "momentum") else float(sum(weights))
        return 2.0 * max(weights, default=0.0) if self.optimizer.startswith("adam") else 0.0


class _Step:
    """Records the allocation events of one training step."""

    def __init__(
        self,
        layers: Sequence[Layer],
        names: Sequence[str],
        setting: Setting,
        *,
        blocks: Sequence[int] | None,
        adds_in_place: bool = True,
    ) -> None:
        self._layers, self._setting, self._adds_in_place = layers, setting, adds_in_place
        self._block = [-1] * len(layers) if blocks is None else list(blocks)
        self._tape = Tape()
        self._alive: dict[int, int] = {}  # storage owner -> tensor, while the forward pass may still read it
        self._saved: list[list[int]] = [[] for _ in layers]  # tensors that live until a layer's backward pass is done
        self._gradient: dict[int, int] = {}  # layer -> tensor
        self._weight_gradients: list[int] = []
        self._outputs = _outputs(layers)
        self._unread: list[list[int]] = [[] for _ in layers]  # storage owners that nothing refers to after a layer
        for owner, position in enumerate(_last_references(layers, self._outputs, names)):
            if position is not None:
                self._unread[position].append(owner)

    def run(self, stored: Sequence[float], batch: Size, kept: float = 0.0) -> AllocationEvents:
        """Allocate parameters (`stored`, bytes), other state (`kept`), optimizer state and batch, then run a step."""
        tape, (for_states, _, for_parameters) = self._tape, self._setting.shards
        trained = [layer.weights / for_states for layer in self._layers if layer.weights]
        for size in stored:
            tape.allocate("parameters", (size / for_parameters, 0.0))
        if kept:
            tape.allocate("parameters", (kept, 0.0))
        for size in trained * self._setting.states:
            tape.allocate("optimizer_state", (size, 0.0))
        if self._setting.buckets:
            tape.allocate("buckets", (self._setting.buckets, 0.0))
        tape.allocate("input", batch)
        start = len(tape)
        if not self._setting.inference:
            self._keep_gradients(self._setting.accumulate - 1)
        for size in sorted(stored)[-_GATHERED:] if for_parameters > 1 else []:
            tape.allocate("parameters", (size, 0.0))
        for position in range(len(self._layers)):
            self._forward(position, recomputed=self._block[position] >= 0)
        if self._setting.inference:
            self._release(list(self._alive.values()))
        else:
            self._update(trained)
        return tape.events(start)

    def _keep_gradients(self, passes: int) -> None:
        """Gradients of earlier passes: added up, or of look-ups in sparse tables one after the other."""
        for layer in self._layers if passes else ():
            if layer.weights:
                times = passes if layer.is_sparse else 1.0 / self._setting.shards[1]
                size = times * layer.gradient[0], times * layer.gradient[1]
                self._weight_gradients.append(self._tape.allocate("gradients", size))

    def _update(self, trained: Sequence[float]) -> None:
        """Loss, backward pass and optimizer."""
        self._loss()
        self._backward()
        self._tape.allocate_and_free("transient", (self._setting.optimizer_workspace(trained), 0.0))
        self._release(self._weight_gradients)

    def _release(self, tensors: Sequence[int]) -> None:
        for tensor in tensors:
            self._tape.release(tensor)

    def _forward(self, position: int, *, recomputed: bool) -> None:
        layer, tape = self._layers[position], self._tape
        if layer.storage_owner == position:
            self._alive[position] = tape.allocate("activations", layer.output)
        if self._setting.inference:
            self._without_saving(layer)
        else:
            tape.allocate_and_free("workspace", layer.workspace)
            tape.allocate_and_free("transient", layer.passing_copies)
            save = self._save_block_inputs if recomputed else self._save
            save(position, layer)
        for owner in self._unread[position]:
            if owner in self._alive:
                tape.release(self._alive.pop(owner))

    def _save(self, position: int, layer: Layer) -> None:
        saved = self._saved[position]
        saved += [self._tape.retain(self._alive[owner]) for owner in layer.saves if owner in self._alive]
        extras = (layer.saved_extra, self._kept_copies(layer))
        saved += [self._tape.allocate("activations", size) for size in extras if any(size)]

    def _kept_copies(self, layer: Layer) -> Size:
        """Copies in another precision that the backward pass finds; those of sharded parameters are gathered anew."""
        fixed, per_sample = layer.saved_copies
        return (max(fixed - HALF_WIDTH * layer.weights, 0.0) if self._setting.shards[2] > 1 else fixed), per_sample

    def _without_saving(self, layer: Layer) -> None:
        """Scratch of inference: the output in another layout, and copies in another precision, none of them cached."""
        fixed, per_sample = layer.workspace
        self._tape.allocate_and_free("workspace", (fixed, min(per_sample, layer.output[1])))
        self._tape.allocate_and_free("transient", layer.copies)

    def _save_block_inputs(self, position: int, layer: Layer) -> None:
        """Save what a block reads from outside until the backward pass of its first layer is done."""
        block = self._block[position]
        outside = [self._layers[j].storage_owner for j in layer.inputs if self._block[j] != block]
        self._saved[self._block.index(block)] += [
            self._tape.retain(self._alive[o]) for o in outside if o in self._alive
        ]

    def _loss(self) -> None:
        """Cross-entropy of each output: save the log-softmax, then compute the gradient of the output from its own.

        Both are in single precision. Gradients that are given live on, as they are not the step's own.
        """
        tape, outputs = self._tape, [self._layers[position] for position in self._outputs]
        if not self._setting.loss:
            given = [tape.retain(tape.allocate("input", layer.output)) for layer in outputs]
            self._gradient = dict(zip(self._outputs, given, strict=True))
            return
        single = [(layer.output[0] / layer.width, layer.output[1] / layer.width) for layer in outputs]
        log_softmax = [tape.allocate("activations", size) for size in single]
        for position, size, saved in zip(self._outputs[::-1], single[::-1], log_softmax[::-1], strict=True):
            inner = tape.allocate("transient", size)
            self._gradient[position] = tape.allocate("transient", self._layers[position].output)
            self._release([inner, saved])

    def _backward(self) -> None:
        recomputed = None
        for position in range(len(self._layers) - 1, -1, -1):
            block = self._block[position]
            if block >= 0 and block != recomputed:
                recomputed = block
                self._recompute(block)
            self._backward_of(position, self._layers[position])
        self._release(list(self._alive.values()))

    def _recompute(self, block: int) -> None:
        outer, self._alive = self._alive, {}
        for position, own in enumerate(self._block):
            owner = self._layers[position].storage_owner
            if own == block and (owner in self._alive or owner == position):
                self._forward(position, recomputed=False)
        self._release(list(self._alive.values()))
        self._alive = outer

    def _backward_of(self, position: int, layer: Layer) -> None:
        gradient = self._gradient.pop(position, None)
        made: list[tuple[int, int]] = []
        if gradient is not None:
            made = self._input_gradients(layer, gradient)
            if layer.weights:
                self._make_weight_gradient(layer)
            self._tape.allocate_and_free("workspace", layer.workspace)
            self._tape.allocate_and_free("transient", layer.passing_copies)
            self._tape.release(gradient)
        self._release(self._saved[position])
        for producer, tensor in made:
            self._accumulate(producer, tensor)

    def _make_weight_gradient(self, layer: Layer) -> None:
        if layer.type in _BROADCASTS:  # its terms, before they are summed up
            self._tape.allocate_and_free("transient", layer.output)
        shards, (fixed, per_sample) = self._setting.shards[1], layer.gradient
        self._tape.allocate_and_free("gradients", (fixed * (shards > 1), 0.0))
        gradient = self._tape.allocate("gradients", (fixed / shards, per_sample))
        if self._setting.accumulate > 1 and self._adds_in_place and not layer.is_sparse:
            self._tape.release(gradient)  # added to those of earlier passes
        else:
            self._weight_gradients.append(gradient)

    def _input_gradients(self, layer: Layer, gradient: int) -> list[tuple[int, int]]:
        made = []
        for producer in layer.inputs:
            if self._layers[producer].requires_grad:
                size = self._layers[producer].output
                passed = layer.type in _GRADIENT_PASSES and (layer.type == "Concat" or size == layer.output)
                tensor = self._tape.retain(gradient) if passed else self._tape.allocate("transient", size)
                made.append((producer, tensor))
        return made

    def _accumulate(self, producer: int, tensor: int) -> None:
        before = self._gradient.get(producer)
        if before is None:
            self._gradient[producer] = tensor
            return
        if self._tape.references[before] > 1:
            self._gradient[producer] = self._tape.allocate("transient", self._layers[producer].output)
            self._tape.release(before)
        self._tape.release(tensor)


def _storage_touched(layer: Layer, layers: Sequence[Layer]) -> list[int]:
    """Owners of the storage that a layer reads or writes."""
    return [*(layers[j].storage_owner for j in layer.inputs), layer.storage_owner]


def _outputs(layers: Sequence[Layer]) -> list[int]:
    """Outputs of the network: what is trained and no layer reads, as auxiliary heads; else the last layer."""
    read = {j for layer in layers for j in layer.inputs}
    found = [position for position, layer in enumerate(layers) if layer.requires_grad and position not in read]
    return found or list(range(len(layers)))[-1:]


def _last_references(layers: Sequence[Layer], outputs: Sequence[int], names: Sequence[str]) -> list[int | None]:
    """Layer after which nothing refers to the output of each; none for those that live to the end of the step."""
    last, calls = list(range(len(layers))), _calls(names)
    for position, layer in enumerate(layers):
        for owner in _storage_touched(layer, layers):
            # Whoever calls a module refers to what it gives it until it returns,
            ends = (end for start, end in calls[position] if owner < start)
            last[owner] = max(last[owner], next(ends, position))
        if layer.type == "Concat":  # and a list to its tensors, until the call that it is made in returns.
            for owner in (layers[j].storage_owner for j in layer.inputs):
                last[owner] = max(last[owner], calls[position][-1][1])
    to_the_end = {layers[position].storage_owner for position in outputs}  # the loss and variables refer to them
    return [None if owner in to_the_end else position for owner, position in enumerate(last)]


def _calls(names: Sequence[str]) -> list[list[tuple[int, int]]]:
    """First and last operator of the calls of modules that each operator is in, outermost first."""
    paths, found = [name.split(".") for name in names], [list[tuple[int, int]]() for _ in names]
    for depth in range(1, max(map(len, paths), default=0) + 1):
        modules = [path[:depth] for path in paths]
        for module, run in itertools.groupby(range(len(names)), modules.__getitem__):
            call = list(run)
            if len(module) == depth:
                for position in call:
                    found[position].append((call[0], call[-1]))
    return found


def step_events(graph: OpGraph, setting: Setting | None = None) -> AllocationEvents:
    """Allocation events of one training step (forward, loss, backward, optimizer), or of a forward pass."""
    setting = setting or Setting()
    layers = read_layers(graph, mixed_precision=setting.mixed_precision, cpu=setting.device == "cpu")
    item = graph.parameter_bytes / graph.n_parameters if graph.n_parameters else 4.0
    stored = [count * item for count in graph.nodes["parameters"].tolist() if count]
    unused = graph.parameter_bytes - sum(stored)
    # Token ids take 8 bytes, numbers 4.
    batch = float(sum(np.prod(shape) * (8.0 if len(shape) == 1 else 4.0) for shape in graph.input_shapes))
    stored += [unused] if unused > 0 else []
    names = graph.nodes["name"].tolist()
    blocks = checkpoint_blocks(names, graph.producers) if setting.checkpointing else None
    # Compiled steps have no calls of modules, nor variables.
    frames = names if graph.framework == "pytorch" else [str(position) for position in range(len(names))]
    # Keras has variables for the sums, and adds all gradients to them once the backward pass is done.
    step = _Step(layers, frames, setting, blocks=blocks, adds_in_place=graph.framework != "keras")
    return step.run(stored, (graph.fixed_input_bytes, batch), graph.state_bytes)
