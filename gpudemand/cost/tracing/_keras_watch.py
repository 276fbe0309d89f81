"""Spans of the layers and functions of Keras that are one operator but many operations of a TensorFlow graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from gpudemand.cost.operators.vocabulary import KERAS_TYPES
from gpudemand.cost.tracing._keras_calls import Span


class SpanRecorder:
    """Collects spans while a model is traced; nested spans are dropped."""

    def __init__(self) -> None:
        self._graph: Any = None
        self.spans: list[Span] = []
        self._inside = False

    @contextlib.contextmanager
    def patched(self, model: Any, graph: Any) -> Iterator[None]:
        """Patch the layers of `model` and functions of Keras and TensorFlow to record their spans in `graph`."""
        import tensorflow as tf
        from keras.src import backend

        self._graph = graph
        with contextlib.ExitStack() as stack:
            for layer in model._flatten_layers():
                type_ = _layer_type(layer)
                if type_:
                    weights = [weight for weight in layer.weights if "kernel" in weight.name]
                    self._patch(stack, layer, "call", type_, type(layer).__name__, weights)
            for module in (backend.nn, tf.nn):
                for name in KERAS_TYPES.keys() & dir(module):
                    self._patch(stack, module, name, KERAS_TYPES[name], name, None)
            yield

    def _patch(self, stack: Any, owner: Any, attribute: str, type_: str, operator: str, weights: Any) -> None:
        original = getattr(owner, attribute)
        was_own = attribute in vars(owner)
        object.__setattr__(owner, attribute, self._recorded(original, type_, operator, weights))
        if was_own:
            stack.callback(object.__setattr__, owner, attribute, original)
        else:
            stack.callback(object.__delattr__, owner, attribute)

    def _recorded(self, function: Callable[..., Any], type_: str, operator: str, weights: Any) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            """Call `function` and, unless within another recorded call, record the operations it adds to the graph."""
            import tensorflow as tf

            if self._inside or tf.compat.v1.get_default_graph() is not self._graph:
                return function(*args, **kwargs)
            self._inside, start = True, len(self._graph.get_operations())
            try:
                result = function(*args, **kwargs)
            finally:
                self._inside = False
            stop, scope = len(self._graph.get_operations()), tf.get_current_name_scope()
            outputs = [tensor for tensor in tf.nest.flatten(result) if tf.is_tensor(tensor)]
            given = [*args, *kwargs.values()]
            kernels = weights if weights is not None else given[1:2] if type_.startswith("Conv") else []
            self.spans.append(Span(start, stop, type_, scope, operator, outputs, given[0], kernels, _channels(given)))
            return result

        return recorded


def _channels(arguments: list[Any]) -> int:
    shape = getattr(arguments[0], "shape", None) or (0, 0)
    is_first = any(isinstance(value, str) and value == "channels_first" for value in arguments)
    return int(shape[1 if is_first else -1] or 0)


def _layer_type(layer: Any) -> str | None:
    """Canonical type of a layer that is one operator, or None; an ``RNN`` has the type of its cells."""
    names = [parent.__name__ for parent in type(layer).__mro__ if parent.__module__.startswith("keras.")]
    type_ = next((KERAS_TYPES[name] for name in names if name in KERAS_TYPES), None)
    if type_ is None and "RNN" in names:
        cell = repr(type(layer.cell)) + repr([type(part) for part in getattr(layer.cell, "cells", [])])
        return next((gated for gated in ("LSTM", "GRU") if gated in cell), "RNN")
    return type_
