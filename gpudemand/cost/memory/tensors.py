"""The tensors behind the rows of an `OpGraph`: which of them an operator writes, and which it is the first to keep."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.operators.vocabulary import OTHER, SAVES

#: Samples in the batch that a graph was traced with: amounts that do not grow with the batch were divided by it.
_TRACED = 2.0
_IN_PLACE = ("setitem", "iadd", "isub", "imul", "idiv", "itruediv", "ipow", "iand", "ior", "ixor")
#: Operators that keep statistics of channels, which do not grow with the batch, beside activations.
_CHANNEL_STATISTICS = ("BatchNormalization",)
#: Operators that mixed precision runs in 16 bits, and those that it runs in 32.
_HALF = frozenset(["Conv", "ConvTranspose", "Gemm", "MatMul", "Attention", "LSTM", "GRU", "RNN"])
_FULL = frozenset(
    (
        *("LayerNormalization", "GroupNormalization", "RMSNormalization", "InstanceNormalization", "LpNormalization"),
        *("Softmax", "LogSoftmax", "Loss", "Exp", "Log", "Pow", "ReduceSum", "Softplus"),
    )
)

#: oneDNN keeps so many times what the gradient of an LSTM needs.
_ONEDNN_RECURRENT = 2.4

#: Bytes as (fixed, for each sample).
Size = tuple[float, float]


class Layer(NamedTuple):
    """One operator call, as far as memory is concerned.

    Attributes
    ----------
    type : str
        Canonical type.
    inputs : tuple of int
        Layers whose outputs it reads, each once, in order.
    home : int
        Layer whose output holds this one's: itself, unless it works in place.
    output : Size
        Its output.
    keeps : tuple of int
        Homes that it is the first to keep for the backward pass.
    extra : Size
        What it keeps beside those, such as a mask.
    copies : Size
        Copies of its weights and inputs in 16 bits, kept for the backward pass; only in mixed precision.
    weights : float
        Bytes of trained parameters that it is the first to use.
    trains : bool
        Whether a gradient flows through it.
    workspace : Size
        Scratch memory of the forward pass, and of the backward pass; only on a CPU, where it is known.
    """

    type: str
    inputs: tuple[int, ...]
    home: int
    output: Size
    keeps: tuple[int, ...]
    extra: Size
    copies: Size
    weights: float
    trains: bool
    workspace: Size


class _Reader:
    """Goes through the rows of a graph once, in order."""

    def __init__(self, graph: OpGraph, half: bool, cpu: bool) -> None:
        self._rows: list[Any] = list(graph.nodes.itertuples(index=False))
        self._inputs: list[list[int]] = [[] for _ in self._rows]
        for producer, consumer in graph.edges.tolist():
            self._inputs[consumer].append(producer)
        self._item = graph.parameter_bytes / graph.n_parameters if graph.n_parameters else 4.0
        self._trained = graph.n_trainable / graph.n_parameters if graph.n_parameters else 0.0
        self._half, self._cpu = half, cpu
        self._batched: list[bool] = []
        self._narrow: list[bool] = []
        self._trains: list[bool] = []
        self._home: list[int] = []
        self._kept: set[int] = set()

    def read(self) -> Iterator[Layer]:
        for position, row in enumerate(self._rows):
            inputs = self._inputs[position]
            self._home.append(self._home_of(position, row))
            self._batched.append(self._is_batched(row, inputs))
            self._narrow.append(self._is_narrow(row, inputs))
            self._trains.append(row.weight_bytes > 0 or row.parameters > 0 or any(self._trains[j] for j in inputs))
            yield self._layer(position, row)

    def _layer(self, position: int, row: Any) -> Layer:
        keeps, rest = self._first_kept(position, row)
        rest = self._own_bytes(row, rest)
        channel = row.type in _CHANNEL_STATISTICS or not self._batched[position]
        return Layer(
            type=row.type,
            inputs=tuple(self._inputs[position]),
            home=self._home[position],
            output=self._size(position),
            keeps=keeps,
            extra=(rest * _TRACED, 0.0) if channel else (0.0, rest),
            copies=self._copies(position, row),
            weights=row.parameters * self._item * self._trained,
            trains=self._trains[position],
            workspace=self._workspace(row),
        )

    def _workspace(self, row: Any) -> Size:
        """Copies of weights and activations in oneDNN's own layouts."""
        if not self._cpu or not row.type.startswith("Conv"):
            return 0.0, 0.0
        return row.weight_bytes, row.bytes_read + row.bytes_written

    def _own_bytes(self, row: Any, rest: float) -> float:
        """What an operator keeps beside activations: the trace is of a CPU, whose dropout mask has 4 bytes a number."""
        if self._cpu:
            return rest * _ONEDNN_RECURRENT if row.type == "LSTM" else rest
        return rest / 4 if row.type == "Dropout" else rest

    def _is_batched(self, row: Any, inputs: list[int]) -> bool:
        """Whether the output grows with the batch; what is made of weights alone, such as a bias table, does not."""
        if any(self._batched[j] for j in inputs):
            return True
        read = sum(self._rows[j].bytes_written for j in inputs)
        if row.type == "Gather":
            return bool(row.bytes_written > 0.75 * self._item * math.prod(row.output_shape))
        return bool(row.bytes_read > read * (1 + 1e-9) or not (inputs or row.weight_bytes))

    def _is_narrow(self, row: Any, inputs: list[int]) -> bool:
        if not self._half or row.type in _FULL:
            return False
        return row.type in _HALF or (bool(inputs) and all(self._narrow[j] for j in inputs))

    def _home_of(self, position: int, row: Any) -> int:
        if not (row.operator.endswith("_") or row.operator in _IN_PLACE):
            return position
        same = [j for j in self._inputs[position] if self._rows[j].bytes_written >= row.bytes_written * (1 - 1e-9)]
        free = [j for j in same if self._home[j] not in self._kept]
        return self._home[max(free or same)] if same else position

    def _size(self, position: int) -> Size:
        written = self._rows[position].bytes_written * (0.5 if self._narrow[position] else 1.0)
        return (0.0, written) if self._batched[position] else (written * _TRACED, 0.0)

    def _copies(self, position: int, row: Any) -> Size:
        if not self._half or row.type not in _HALF:
            return 0.0, 0.0
        sizes = [self._size(j) for j in self._inputs[position] if not self._narrow[j]]
        return (row.weight_bytes + sum(size[0] for size in sizes)) / 2, sum(size[1] for size in sizes) / 2

    def _first_kept(self, position: int, row: Any) -> tuple[tuple[int, ...], float]:
        """Find the tensors in the bytes that an operator is the first to keep; the rest is its own."""
        left, found = float(row.saved_bytes), list[int]()
        if not self._inputs[position] and left >= row.bytes_read:
            left -= row.bytes_read  # the batch itself, which is there anyway
        for home in self._candidates(position, row, left):
            size = self._rows[home].bytes_written
            if home not in self._kept and 0 < size <= left * (1 + 1e-9):
                self._kept.add(home)
                found.append(home)
                left = max(left - size, 0.0)
        return tuple(found), left

    def _candidates(self, position: int, row: Any, left: float) -> list[int]:
        """Tensors that an operator may keep, the likeliest first."""
        rule = SAVES.get(row.type, SAVES[OTHER])
        inputs, own = [self._home[j] for j in self._inputs[position]], self._home[position]
        if rule.output:
            return list(dict.fromkeys([*inputs, own] if rule.inputs else [own, *inputs]))
        exactly_own = abs(left - row.bytes_written) <= 1e-9 * row.bytes_written
        return list(dict.fromkeys([*inputs, own] if exactly_own else inputs))


def read_layers(graph: OpGraph, *, half: bool = False, cpu: bool = False) -> list[Layer]:
    """Read the layers of a graph, in order; `half` is mixed precision, `cpu` where it runs.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> relu = Operator("Relu", "", "act", "relu_", (1, 10), 0.0, 0, 0.0, 40.0, 40.0, 40.0)
    >>> about = {"n_parameters": 650, "n_trainable": 650, "parameter_bytes": 2600.0}
    >>> graph = OpGraph.from_operators([dense, relu], [(0, 1)], **about)
    >>> [(layer.home, layer.keeps, layer.weights) for layer in read_layers(graph)]
    [(0, (), 2600.0), (0, (0,), 0.0)]
    """
    return list(_Reader(graph, half, cpu).read())
