"""Tensors behind the rows of an `OpGraph`: what each operator writes, and what it is the first to save for autograd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from gpudemand.cost.graph.autocast import autocast_widths
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.memory.events import Size
from gpudemand.cost.operators.precision import HALF_TYPES, HALF_WIDTH
from gpudemand.cost.operators.vocabulary import OTHER, SAVES

#: Batch size of the trace, at which amounts are compared.
_TRACED = 2.0
_IN_PLACE = ("setitem", "iadd", "isub", "imul", "idiv", "itruediv", "ipow", "iand", "ior", "ixor")
#: Types that save statistics of channels, independent of the batch, beside activations.
_CHANNEL_STATISTICS = ("BatchNormalization",)
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
    #: ... what it saves beside those, such as a dropout mask, ...
    saved_extra: Size
    #: ... and half-precision copies of its weights and inputs, under autocast.
    half_copies: Size
    #: Bytes of trainable parameters that it is the first to use.
    weights: float
    requires_grad: bool
    #: Scratch memory of the forward pass, and of the backward pass; only on a CPU, where it is known.
    workspace: Size


class _Reader:
    """Reads the rows of a graph once, in order."""

    def __init__(self, graph: OpGraph, mixed_precision: bool, cpu: bool) -> None:
        self._rows: list[Any] = list(graph.nodes.itertuples(index=False))
        self._inputs = graph.producers
        self._item = graph.parameter_bytes / graph.n_parameters if graph.n_parameters else 4.0
        self._trained = graph.n_trainable / graph.n_parameters if graph.n_parameters else 0.0
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
        saves, (fixed, rest) = self._first_saved(position, row)
        if self._mixed_precision and row.type in HALF_TYPES:
            # Of a single-precision input, the half-precision copy is saved instead.
            saves = tuple(owner for owner in saves if self._width[owner] == HALF_WIDTH)
        rest *= self._extra_factor(row)
        if row.type in _CHANNEL_STATISTICS:
            fixed, rest = fixed + rest * _TRACED, 0.0
        return Layer(
            type=row.type,
            inputs=tuple(self._inputs[position]),
            storage_owner=self._owner[position],
            output=self._size(position),
            saves=saves,
            saved_extra=(fixed, rest),
            half_copies=self._half_copies(position, row),
            weights=row.parameters * self._item * self._trained,
            requires_grad=self._requires_grad[position],
            workspace=self._workspace(row),
        )

    def _workspace(self, row: Any) -> Size:
        """Copies of weights and activations in oneDNN's layouts."""
        if not self._cpu or not row.type.startswith("Conv"):
            return 0.0, 0.0
        return row.weight_bytes, row.bytes_read + row.bytes_written

    def _extra_factor(self, row: Any) -> float:
        """Ratio to the trace of what is saved beside activations: its dropout masks are a CPU's, 4 bytes an element."""
        if self._cpu:
            return _ONEDNN_LSTM if row.type == "LSTM" else 1.0
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

    def _half_copies(self, position: int, row: Any) -> Size:
        if not self._mixed_precision or row.type not in HALF_TYPES:
            return 0.0, 0.0
        sizes = [self._size(j) for j in self._inputs[position] if self._width[j] > HALF_WIDTH]
        fixed, per_sample = (sum(size[axis] for size in sizes) for axis in (0, 1))
        return (row.weight_bytes + fixed) * HALF_WIDTH, per_sample * HALF_WIDTH

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
        rule = SAVES.get(row.type, SAVES[OTHER])
        inputs, own = [self._owner[j] for j in self._inputs[position]], self._owner[position]
        if rule.output and not rule.inputs:
            return list(dict.fromkeys([own, *inputs]))
        with_own = rule.output or abs(remaining - _written(row)) <= _ROUNDING * _written(row)
        return list(dict.fromkeys([*inputs, own] if with_own else inputs))


def _written(row: Any) -> float:
    """Bytes that an operator writes in the trace, by sample."""
    return float(row.fixed_bytes_written / _TRACED + row.bytes_written)


def read_layers(graph: OpGraph, *, mixed_precision: bool = False, cpu: bool = False) -> list[Layer]:
    """Read the layers of a graph, in order.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> relu = Operator("Relu", "", "act", "relu_", (1, 10), 0.0, 0, 0.0, 40.0, 40.0, 40.0)
    >>> sizes = {"n_parameters": 650, "n_trainable": 650, "parameter_bytes": 2600.0}
    >>> graph = OpGraph.from_operators([dense, relu], [(0, 1)], **sizes)
    >>> [(layer.storage_owner, layer.saves, layer.weights) for layer in read_layers(graph)]
    [(0, (), 2600.0), (0, (0,), 0.0)]
    """
    return list(_Reader(graph, mixed_precision, cpu).read())
