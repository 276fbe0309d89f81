"""Read the TensorFlow graph of a Keras model as operators."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from gpudemand.cost.operators.operator import Operator
from gpudemand.cost.operators.vocabulary import OTHER, RECURRENT_STATE, SAVES
from gpudemand.cost.tracing._keras_calls import Span, bytes_of, is_view, item_size, span_flops, span_kind, span_of
from gpudemand.cost.tracing.recorder import Recorder

#: Operations on a weight alone that are attributed to the weight itself.
_WEIGHT_STEPS = ("Transpose", "Cast")


class GraphReader:
    """Reads operations in order of creation and records operators; data is identified by tensor name.

    `weights` are the parameters of the model by the placeholder that the graph reads them from, `layers` the names of
    its layers.
    """

    def __init__(self, recorder: Recorder, weights: dict[str, Any], layers: set[str]) -> None:
        self._recorder, self._layers = recorder, layers
        self._weights = dict(weights)
        self._storage: dict[str, str] = {}
        self._needs_gradient = {name for name, variable in weights.items() if variable.trainable}
        for name in weights:
            recorder.feed(name, batched=False)

    def read(self, operations: Sequence[Any], spans: Sequence[Span]) -> None:
        """Record `operations`; each of `spans` is one operator."""
        starts = {span.start: span for span in spans if span.stop > span.start}
        position = 0
        while position < len(operations):
            span = starts.get(position)
            if span is None:
                self._operation(operations[position], position)
            else:
                self._span(span, operations[span.start : span.stop])
            position = span.stop if span else position + 1

    def _operation(self, op: Any, position: int) -> None:
        live = self._live(op.inputs)
        if not live or not op.outputs:
            return
        weights = [tensor for tensor in live if tensor.name in self._weights]
        if is_view(op) or (len(weights) == len(live) and op.type in _WEIGHT_STEPS):
            self._alias(op.outputs, live[0])
        elif self._is_bias(op, live, weights):
            self._fuse_bias(op, live, weights[0])
        else:
            self._record(span_of(op, position, bool(weights)), [op], live)

    def _span(self, span: Span, operations: Sequence[Any]) -> None:
        inner = {tensor.name for op in operations for tensor in op.outputs}
        # A weight becomes an input of the graph where it is first read, possibly inside the span.
        read = [tensor for op in operations for tensor in op.inputs]
        live = self._live([tensor for tensor in read if tensor.name in self._weights or tensor.name not in inner])
        if live and span.outputs:
            self._record(span, operations, live)

    def _live(self, tensors: Sequence[Any]) -> list[Any]:
        distinct = {tensor.name: tensor for tensor in tensors}
        return [tensor for name, tensor in distinct.items() if self._recorder.is_live(name)]

    def _alias(self, tensors: Sequence[Any], of: Any) -> None:
        for tensor in tensors:
            self._recorder.alias(tensor.name, of=of.name)
            self._storage[tensor.name] = self._storage.get(of.name, of.name)
            if of.name in self._weights:
                self._weights[tensor.name] = self._weights[of.name]
            if of.name in self._needs_gradient:
                self._needs_gradient.add(tensor.name)

    def _is_bias(self, op: Any, live: Sequence[Any], weights: Sequence[Any]) -> bool:
        """Whether an addition is the bias of a product in the same layer."""
        if op.type not in ("BiasAdd", "Add", "AddV2") or len(live) != 2 or len(weights) != 1:
            return False
        into = self._recorder.producer(next(t for t in live if t.name not in self._weights).name)
        if into is None or into.type not in ("Conv", "ConvTranspose", "Gemm"):
            return False
        return op.type == "BiasAdd" or into.name == self._path(op.name.rpartition("/")[0])

    def _fuse_bias(self, op: Any, live: Sequence[Any], bias: Any) -> None:
        into = next(tensor for tensor in live if tensor.name not in self._weights)
        counts, n_bytes = self._used([bias])
        self._recorder.fuse(op.outputs[0].name, into.name, counts, n_bytes)
        self._storage[op.outputs[0].name] = self._storage.get(into.name, into.name)
        if {into.name, bias.name} & self._needs_gradient:
            self._needs_gradient.add(op.outputs[0].name)

    def _path(self, scope: str) -> str:
        """Path of a layer inside its model, without the number that TensorFlow appends to further calls of a layer."""
        parts = [(part, re.sub(r"_\d+$", "", part)) for part in scope.split("/")[1:]]
        return "/".join(bare if bare in self._layers else part for part, bare in parts)

    def _used(self, weights: Sequence[Any]) -> tuple[dict[Any, int], float]:
        """Elements of each distinct variable, and the bytes of all."""
        variables = {id(self._weights[tensor.name]): self._weights[tensor.name] for tensor in weights}
        counts = {key: math.prod(variable.shape) for key, variable in variables.items()}
        sizes = (math.prod(variable.shape) * item_size(variable) for variable in variables.values())
        return counts, float(sum(sizes))

    def _record(self, span: Span, operations: Sequence[Any], live: Sequence[Any]) -> None:
        counts, weight_bytes = self._used([tensor for tensor in live if tensor.name in self._weights])
        activations = [tensor for tensor in live if tensor.name not in self._weights]
        call = Operator(
            span.type,
            span_kind(span),
            self._path(span.name) or span.operator,
            span.operator,
            tuple(span.outputs[0].shape),
            flops=span_flops(span, operations),
            weight_bytes=weight_bytes,
            bytes_read=bytes_of(activations),
            bytes_written=bytes_of(span.outputs),
        )
        reads, writes = [tensor.name for tensor in live], [tensor.name for tensor in span.outputs]
        self._recorder.add(call, reads=reads, writes=writes, parameters=counts)
        if any(tensor.name in self._needs_gradient for tensor in live):
            self._needs_gradient.update(writes)
            self._save(span.type, activations, span.outputs)

    def _save(self, type_: str, activations: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Record what an operator saves for the backward pass, by the rules of `SAVES`."""
        rule = SAVES.get(type_, SAVES[OTHER])
        if type_ in RECURRENT_STATE:
            hidden = outputs[-1].shape[-1] or 0
            steps = math.prod(activations[0].shape[:-1])
            self._recorder.save(object(), steps * hidden * RECURRENT_STATE[type_] * item_size(outputs[0]))
        for tensor in [*(activations if rule.inputs else []), *(outputs if rule.output else [])]:
            self._recorder.save(self._storage.get(tensor.name, tensor.name), bytes_of([tensor]))
        if rule.extra:
            self._recorder.save(object(), rule.extra * math.prod(outputs[0].shape))
