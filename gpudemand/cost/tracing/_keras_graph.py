"""Read a TensorFlow graph of a Keras model as operators."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from gpudemand.cost.operators.vocabulary import OTHER, RECURRENT_STATE, SAVES
from gpudemand.cost.tracing._keras_calls import Span, bytes_of, is_plumbing, item_size, span_flops, span_kind, span_of
from gpudemand.cost.tracing.recorder import Costs, Label, Recorder, looked_up

#: Operations that leave a weight a weight: what they return is attributed to the weight itself.
_WEIGHT_STEPS = ("Transpose", "Cast")


class GraphReader:
    """Walks a graph in the order of its making and records operators.

    Data is known by tensor name; what is read from a variable is known by the variable.

    Parameters
    ----------
    recorder : Recorder
        Receives the operators.
    weights : dict of handle name -> variable
        Parameters of the model, by the placeholder through which the graph reads them.
    layers : set of str
        Names of all layers of the model.
    """

    def __init__(self, recorder: Recorder, weights: dict[str, Any], layers: set[str]) -> None:
        self._recorder, self._layers = recorder, layers
        self._weights = dict(weights)
        self._memory: dict[str, str] = {}
        self._needs_gradient = {name for name, variable in weights.items() if variable.trainable}
        for name in weights:
            recorder.feed(name, batched=False)

    def read(self, operations: Sequence[Any], spans: Sequence[Span]) -> None:
        """Record all of `operations`; those inside a span are one operator."""
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
        if is_plumbing(op) or (len(weights) == len(live) and op.type in _WEIGHT_STEPS):
            self._alias(op.outputs, live[0])
        elif self._is_bias(op, live, weights):
            self._absorb(op, live, weights[0])
        else:
            self._record(span_of(op, position, bool(weights)), [op], live)

    def _span(self, span: Span, operations: Sequence[Any]) -> None:
        inner = {tensor.name for op in operations for tensor in op.outputs}
        # A weight becomes an input of the graph where it is first read, which may be inside.
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
            self._memory[tensor.name] = self._memory.get(of.name, of.name)
            if of.name in self._weights:
                self._weights[tensor.name] = self._weights[of.name]
            if of.name in self._needs_gradient:
                self._needs_gradient.add(tensor.name)

    def _is_bias(self, op: Any, live: Sequence[Any], weights: Sequence[Any]) -> bool:
        """Whether an addition is the bias of the product before it, in the same layer."""
        if op.type not in ("BiasAdd", "Add", "AddV2") or len(live) != 2 or len(weights) != 1:
            return False
        into = self._recorder.producer(next(t for t in live if t.name not in self._weights).name)
        if into is None or into.type not in ("Conv", "ConvTranspose", "Gemm"):
            return False
        return op.type == "BiasAdd" or into.name == self._path(op.name.rpartition("/")[0])

    def _absorb(self, op: Any, live: Sequence[Any], bias: Any) -> None:
        into = next(tensor for tensor in live if tensor.name not in self._weights)
        counts, n_bytes = self._used([bias])
        self._recorder.absorb(op.outputs[0].name, into.name, counts, n_bytes)
        self._memory[op.outputs[0].name] = self._memory.get(into.name, into.name)
        if {into.name, bias.name} & self._needs_gradient:
            self._needs_gradient.add(op.outputs[0].name)

    def _path(self, scope: str) -> str:
        """Path of a layer inside its model; TensorFlow numbers the calls of a layer, which is taken off again."""
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
        name, shape = self._path(span.name) or span.operator, tuple(span.outputs[0].shape)
        label = Label(span.type, span_kind(span), name, span.operator, shape)
        flops = span_flops(span, operations)
        costs = looked_up(span.type, Costs(flops, bytes_of(activations), bytes_of(span.outputs), weight_bytes))
        reads, writes = [tensor.name for tensor in live], [tensor.name for tensor in span.outputs]
        self._recorder.add(label, costs, reads=reads, writes=writes, parameters=counts)
        if any(tensor.name in self._needs_gradient for tensor in live):
            self._needs_gradient.update(writes)
            self._save(span.type, activations, span.outputs)

    def _save(self, found: str, activations: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Note what the gradient of an operator needs, by the rules of the vocabulary."""
        rule = SAVES.get(found, SAVES[OTHER])
        if found in RECURRENT_STATE:
            hidden = outputs[-1].shape[-1] or 0
            steps = math.prod(activations[0].shape[:-1])
            self._recorder.save(object(), steps * hidden * RECURRENT_STATE[found] * item_size(outputs[0]))
        kept = [*(activations if rule.inputs else []), *(outputs if rule.output else [])]
        for tensor in kept:
            self._recorder.save(self._memory.get(tensor.name, tensor.name), bytes_of([tensor]))
        if rule.extra:
            self._recorder.save(object(), rule.extra * math.prod(outputs[0].shape))
