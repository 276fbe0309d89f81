"""Trace a Keras model on shapes alone.

The model is called once inside a TensorFlow graph, symbolically, so functional, sequential and subclassed models and
plain TensorFlow inside layers are treated alike. Layers and functions that are one operator but many graph operations
(normalisations, recurrent layers, GELU, ...) are recorded as spans; all other operators are read off the graph.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import re
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from gpudemand._validation import InputError
from gpudemand.cost._keras_control import called, static_value, trips
from gpudemand.cost._surroundings import left_as_found, replaced
from gpudemand.cost.operators import (
    KERAS_TYPES,
    OTHER,
    RECURRENT_STATE,
    SAVES,
    TENSORFLOW_VIEWS,
    Operator,
    convolution_kind,
    einsum_flops,
    product_flops,
    tensorflow_type,
)
from gpudemand.cost.tracing import (
    BATCH,
    Caveat,
    InputSpec,
    Recorder,
    Traced,
    batch_of,
    call_error,
    first_line,
    input_caveats,
    input_fields,
    most_common_type,
    quiet_tensorflow,
    read_inputs,
    user_line,
    value_error,
    with_batch,
)

#: Types of matrix products and convolutions.
_PRODUCTS = ("Gemm", "MatMul", "Conv", "ConvTranspose")
#: Type of a reduction that leaves only the channels of an image.
_GLOBAL = {"ReduceMean": "GlobalAveragePool", "AveragePool": "GlobalAveragePool", "ReduceMax": "GlobalMaxPool"}


class Span(NamedTuple):
    """Graph operations that form one operator: a single one, or the range of them that a layer made."""

    #: Positions among the operations of the graph.
    start: int
    stop: int
    #: Canonical type, scope in the graph, and name in Keras.
    type: str
    name: str
    operator: str
    outputs: list[Any]
    #: First input and kernels, which determine the floating-point operations.
    source: Any
    weights: list[Any]
    #: Axis of the channels of images.
    axis: int


def span_of(op: Any, position: int, has_weight: bool) -> Span:
    """Span of a single graph operation; `has_weight`: whether a parameter is among its inputs."""
    type_ = operation_type(op, has_weight)
    source = op.inputs[-1 if type_ == "ConvTranspose" else 0]
    kernels = [op.inputs[1]] if type_ in ("Conv", "ConvTranspose") else []
    scope = op.name.rpartition("/")[0]
    is_first = b"data_format" in op.node_def.attr and op.get_attr("data_format").startswith(b"NC")
    axis = 1 if is_first else -1
    return Span(position, position + 1, type_, scope, op.type, list(op.outputs), source, kernels, axis)


def operation_type(op: Any, has_weight: bool) -> str:
    """Canonical type of a graph operation; a product with a weight is a dense layer."""
    type_ = tensorflow_type(op.type)
    if type_ == "MatMul" and has_weight:
        return "Gemm"
    if op.type == "TensorListStack":
        return "Concat"
    return _GLOBAL.get(type_, type_) if _is_global(op.inputs[0].shape, op.outputs[0].shape) else type_


def _is_global(source: Any, result: Any) -> bool:
    """Whether all positions of an image or a volume are reduced to one."""
    return (source.rank or 0) > 3 and _elements(result) == (source[0] or 1) * (source[-1] or 1) < _elements(source)


def _elements(shape: Any) -> int:
    """Elements of a shape; open extents, as of texts that are split, count as one."""
    return math.prod(extent or 1 for extent in shape) if getattr(shape, "rank", 0) is not None else 1


def is_view(op: Any) -> bool:
    """Whether an operation only renames, slices or describes data, or casts indices."""
    if op.type == "Cast":
        return not (op.inputs[0].dtype.is_floating and op.outputs[0].dtype.is_floating)
    return op.type in TENSORFLOW_VIEWS


def span_kind(span: Span) -> str:
    """Class of a convolution, whose kernel is (spatial axes..., channels of a group, filters); otherwise empty."""
    if span.type not in ("Conv", "ConvTranspose") or not span.weights:
        return ""
    *spatial, per_group, _ = span.weights[0].shape
    channels = span.source.shape[span.axis]
    groups = channels if _is_depthwise(span) else channels // per_group if span.type == "Conv" else 1
    return convolution_kind(spatial, groups, channels)


def span_channels(span: Span) -> tuple[int, int]:
    """Output channels of a convolution or a batch normalisation, and input channels of a group; otherwise zeros."""
    if span.type not in ("Conv", "ConvTranspose", "BatchNormalization"):
        return 0, 0
    *_, last_but_one, last = span.weights[0].shape if span.weights else (0, 0)
    inner = 1 if _is_depthwise(span) else last_but_one if span.type == "Conv" else last
    return int(span.outputs[0].shape[span.axis] or 0), int(inner)


def _is_depthwise(span: Span) -> bool:
    return span.operator.lower().startswith("depthwise")


def span_flops(span: Span, operations: Sequence[Any]) -> float:
    """Floating-point operations of an operator for the whole batch; zero if it is no matrix product or convolution."""
    _check_known(span)
    if span.type in ("Gemm", "MatMul"):
        return _product_flops(operations[0])
    sizes = sum(math.prod(kernel.shape) for kernel in span.weights)
    if span.type == "Conv":
        filters = math.prod(span.weights[0].shape[-2:] if _is_depthwise(span) else span.weights[0].shape[-1:])
        return product_flops(math.prod(span.outputs[0].shape) / filters, sizes)
    if span.type in RECURRENT_STATE and len(span.source.shape) > 3:
        return product_flops(_steps_and_positions(span), sizes)
    if span.type == "ConvTranspose" or span.type in RECURRENT_STATE:
        return product_flops(math.prod(span.source.shape) / span.source.shape[span.axis], sizes)
    return 0.0


def function_flops(graph: Any) -> float:
    """Floating-point operations of a function, by its matrix products and convolutions."""
    spans = [span_of(op, 0, has_weight=False) for op in graph.get_operations() if tensorflow_type(op.type) in _PRODUCTS]
    within = [function_flops(inner) for op in graph.get_operations() for inner in called(op)]
    return sum(span_flops(span, [span.outputs[0].op]) for span in spans) + sum(within)


def _has_product(operations: Sequence[Any]) -> bool:
    return any(tensorflow_type(op.type) in _PRODUCTS for op in operations)


def _has_rank(tensor: Any) -> bool:
    return getattr(getattr(tensor, "shape", None), "rank", 0) is not None


def _check_known(span: Span) -> None:
    # What runs plain Python has results of unknown shape, which ensure_shape is told afterwards.
    tensors = [span.source] if span.type == OTHER else [span.source, span.outputs[0]]
    if not all(map(_has_rank, tensors)):
        raise InputError(
            f"{span.operator} in {span.name or 'the call'} works on a tensor of unknown shape; give that its shape by "
            "tf.ensure_shape, or trace the model without that line."
        )
    if span.type in (*_PRODUCTS, *RECURRENT_STATE) and None in [*span.source.shape, *span.outputs[0].shape]:
        raise InputError(
            f"{span.name} computes on a tensor of the open shape {tuple(span.source.shape)}; take the layers before it "
            "that split text or make ragged tensors out of the model, and trace it on their results."
        )


def _steps_and_positions(span: Span) -> float:
    """Samples x steps x positions of the state of a recurrent layer that convolves; its last kernel is the state's."""
    steps, filters = span.source.shape[1], span.weights[-1].shape[-2]
    returned = steps if len(span.outputs[0].shape) == len(span.source.shape) else 1
    return float(steps * math.prod(span.outputs[0].shape) / returned / filters)


def _product_flops(op: Any) -> float:
    shapes, outputs = [tuple(tensor.shape) for tensor in op.inputs], math.prod(op.outputs[0].shape)
    if op.type == "Einsum":
        return einsum_flops(op.get_attr("equation").decode(), shapes, outputs)
    transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
    return product_flops(outputs, shapes[0][-2 if transposed else -1])


def item_size(tensor: Any) -> int:
    """Bytes of one element of a tensor or a variable."""
    import tensorflow as tf

    return int(tf.as_dtype(tensor.dtype).size)


def bytes_of(tensors: Sequence[Any]) -> float:
    """Bytes of several tensors."""
    return float(sum(_elements(tensor.shape) * item_size(tensor) for tensor in tensors))


#: Operations on a weight alone that are attributed to the weight itself.
_WEIGHT_STEPS = ("Transpose", "Cast")
#: Operations that put their last operand into a list.
_WRITES = ("TensorListSetItem", "TensorListPushBack")
#: Operations that are read of a loop, at most; runs beyond them are counted, not listed.
_MOST_READ = 10_000


class GraphReader:
    """Reads operations in order of creation and records operators; data is identified by the name of its tensor.

    `weights`: parameters of the model by the placeholder that the graph reads them from. `layers`: names of its layers.
    `spans`: of each graph, those that are one operator. `caveats`: what could not be read.
    """

    def __init__(
        self, recorder: Recorder, weights: dict[str, Any], layers: set[str], spans: Mapping[Any, Sequence[Span]]
    ) -> None:
        self._recorder, self._layers, self._spans = recorder, layers, spans
        self._weights = dict(weights)
        self._storage: dict[str, str] = {}
        self._needs_gradient = {name for name, variable in weights.items() if variable.trainable}
        #: Of the names of tensors in the function that is read, which may be called several times.
        self._prefix, self._calls = "", 0
        #: Times that each operation stands for, operations read so far, and those that may not run, by reason.
        self._times, self._flops = 1.0, 0.0
        self._optional: dict[str, float] = {}
        for name in weights:
            recorder.feed(name, batched=False)

    @property
    def caveats(self) -> list[Caveat]:
        """What runs as values of tensors say, and the factor that it makes at most."""
        least = {text: max(self._flops - flops, 0.0) for text, flops in self._optional.items()}
        return [Caveat(text, self._flops / flops if flops else math.inf) for text, flops in least.items()]

    def read(self, graph: Any, used: set[Any]) -> None:
        """Record those operations of a graph that are `used`."""
        operations = graph.get_operations()
        starts = {span.start: span for span in self._spans.get(graph, ()) if span.stop > span.start}
        position = 0
        while position < len(operations):
            span = starts.get(position)
            inside = operations[position : span.stop if span else position + 1]
            if not used.isdisjoint(inside):
                self._operation(inside[0], position) if span is None else self._span(span, inside)
            position += len(inside)

    def _operation(self, op: Any, position: int) -> None:
        live = self._live(op.inputs)
        functions = called(op) if live else []
        if functions:
            self._control(op, functions)
        elif live and op.outputs:
            self._one(op, position, live)

    def _one(self, op: Any, position: int, live: Sequence[Any]) -> None:
        weights = [tensor for tensor in live if self._is_weight(tensor)]
        if is_view(op) or (len(weights) == len(live) and op.type in _WEIGHT_STEPS):
            source = live[-1 if op.type in _WRITES else 0]
            names = [self._key(tensor) for tensor in op.outputs]
            self._alias(names, self._key(source), is_detached=op.type == "StopGradient")
        elif self._is_bias(op, live, weights):
            self._fuse_bias(op, live, weights[0])
        else:
            self._record(span_of(op, position, bool(weights)), [op], live)

    def _control(self, op: Any, functions: Sequence[Any]) -> None:
        """Read the functions that an operation calls, and take their results for its own."""
        given = [self._key(tensor) for tensor in op.inputs]
        if "While" in op.type:
            results = self._loop(op, functions[0], given)
        elif len(functions) > 1:
            results = self._branch(op, functions, given[1:])
        else:
            results = self._enter(functions[0], given)
        for tensor, result in zip(op.outputs, results, strict=True):
            self._alias([self._key(tensor)], result)

    def _enter(self, graph: Any, given: Sequence[str]) -> list[str]:
        """Read a function on data; returns its results."""
        outer, self._calls = self._prefix, self._calls + 1
        self._prefix = f"{self._calls}:"
        for tensor, name in zip(graph.inputs, given, strict=True):
            self._alias([self._key(tensor)], name)
        self.read(graph, _used(graph, graph.outputs))
        results = [self._key(tensor) for tensor in graph.outputs]
        self._prefix = outer
        return results

    def _loop(self, op: Any, body: Any, state: list[str]) -> list[str]:
        times, is_exact = trips(op)
        runs = min(1 if times is None else times, max(1, _MOST_READ // len(body.get_operations())))
        before, outer = self._flops, self._times
        self._times *= (times or 1) / max(runs, 1)
        for _ in range(runs):
            state = self._enter(body, state)
        self._times = outer
        name = f"the loop {self._path(op.name)} runs as often as values of tensors say"
        if times is None:
            self._optional[f"{name}, and counts once; give it a fixed number, as in keras.ops.fori_loop"] = math.inf
        elif not is_exact:
            self._optional[f"{name}, and counts {times} times, the most"] = self._flops - before
        return state

    def _branch(self, op: Any, branches: Sequence[Any], given: Sequence[str]) -> list[str]:
        """Read the branch with the most operations, or the one that is taken in any case."""
        chosen = static_value(op.inputs[0])
        if chosen is not None:
            # An If has the branch of True first.
            return self._enter(branches[int(chosen) if "Case" in op.type else 1 - int(chosen)], given)
        work = [function_flops(graph) for graph in branches]
        largest = max(range(len(branches)), key=lambda place: (work[place], len(branches[place].get_operations())))
        before = self._flops
        results = self._enter(branches[largest], given)
        share = 1.0 - min(work) / max(work) if max(work) else 0.0
        if share:
            text = f"which branch of {self._path(op.name)} runs depends on values of tensors; the largest counts"
            self._optional[text] = (self._flops - before) * share
        return results

    def _span(self, span: Span, operations: Sequence[Any]) -> None:
        inner = {tensor.name for op in operations for tensor in op.outputs}
        # A weight becomes an input of the graph where it is first read, possibly inside the span.
        read = [tensor for op in operations for tensor in op.inputs]
        live = self._live([tensor for tensor in read if self._is_weight(tensor) or tensor.name not in inner])
        if live and span.outputs:
            self._record(span, operations, live)

    def _key(self, tensor: Any) -> str:
        return f"{self._prefix}{tensor.name}"

    def _is_weight(self, tensor: Any) -> bool:
        return self._key(tensor) in self._weights

    def _live(self, tensors: Sequence[Any]) -> list[Any]:
        distinct = {tensor.name: tensor for tensor in tensors}
        return [tensor for tensor in distinct.values() if self._recorder.is_live(self._key(tensor))]

    def _alias(self, names: Sequence[str], of: str, *, is_detached: bool = False) -> None:
        for name in names:
            self._recorder.alias(name, of=of)
            self._storage[name] = self._storage.get(of, of)
            if of in self._weights:
                self._weights[name] = self._weights[of]
            if of in self._needs_gradient and not is_detached:
                self._needs_gradient.add(name)

    def _is_bias(self, op: Any, live: Sequence[Any], weights: Sequence[Any]) -> bool:
        """Whether an addition is the bias of a product in the same layer."""
        if op.type not in ("BiasAdd", "Add", "AddV2") or len(live) != 2 or len(weights) != 1:
            return False
        into = self._recorder.producer(self._key(next(t for t in live if not self._is_weight(t))))
        if into is None or into.type not in ("Conv", "ConvTranspose", "Gemm"):
            return False
        return op.type == "BiasAdd" or into.name == self._path(op.name.rpartition("/")[0])

    def _fuse_bias(self, op: Any, live: Sequence[Any], bias: Any) -> None:
        into = self._key(next(tensor for tensor in live if not self._is_weight(tensor)))
        counts, n_bytes = self._used([bias])
        result = self._key(op.outputs[0])
        self._recorder.fuse(result, into, counts, n_bytes)
        self._storage[result] = self._storage.get(into, into)
        if {into, self._key(bias)} & self._needs_gradient:
            self._needs_gradient.add(result)

    def _path(self, scope: str) -> str:
        """Path of a layer inside its model, without the number that TensorFlow appends to further calls of a layer."""
        parts = [(part, re.sub(r"_\d+$", "", part)) for part in scope.split("/")[1:]]
        return "/".join(bare if bare in self._layers else part for part, bare in parts)

    def _used(self, weights: Sequence[Any]) -> tuple[dict[Any, int], float]:
        """Elements of each distinct variable, and the bytes of all."""
        variables = {id(variable): variable for variable in (self._weights[self._key(one)] for one in weights)}
        counts = {key: math.prod(variable.shape) for key, variable in variables.items()}
        sizes = (math.prod(variable.shape) * item_size(variable) for variable in variables.values())
        return counts, float(sum(sizes))

    def _record(self, span: Span, operations: Sequence[Any], live: Sequence[Any]) -> None:
        _check_known(span)
        counts, weight_bytes = self._used([tensor for tensor in live if self._is_weight(tensor)])
        activations = [tensor for tensor in live if not self._is_weight(tensor)]
        channels, inner = span_channels(span)
        call = Operator(
            span.type,
            span_kind(span),
            self._path(span.name) or span.operator,
            span.operator,
            tuple(span.outputs[0].shape) if _has_rank(span.outputs[0]) else (),
            flops=span_flops(span, operations) * self._times,
            weight_bytes=weight_bytes,
            bytes_read=bytes_of(activations) * self._times,
            bytes_written=bytes_of(span.outputs) * self._times,
            channels=channels,
            inner=inner,
            frozen=self._frozen(span.type, live),
        )
        self._flops += call.flops
        reads, writes = ([self._key(tensor) for tensor in tensors] for tensors in (live, span.outputs))
        self._recorder.add(call, reads=reads, writes=writes, parameters=counts)
        if not self._needs_gradient.isdisjoint(reads):
            self._needs_gradient.update(writes)
            self._save(span.type, activations, span.outputs)

    def _frozen(self, type_: str, live: Sequence[Any]) -> float:
        """Share of the backward pass that no trained weight needs: of a product that of each operand is a half."""
        is_needed = [self._key(tensor) in self._needs_gradient for tensor in live]
        if type_ not in _PRODUCTS or not any(is_needed):
            return 1.0 - any(is_needed)
        return 1.0 - sum(is_needed) / len(is_needed)

    def _save(self, type_: str, activations: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Record what an operator saves for the backward pass, by the rules of `SAVES`."""
        rule = SAVES[type_]
        if type_ in RECURRENT_STATE:
            hidden = outputs[-1].shape[-1] or 0
            steps = _elements(activations[0].shape[:-1])
            self._save_bytes(object(), steps * hidden * RECURRENT_STATE[type_] * item_size(outputs[0]))
        for tensor in [*(activations if rule.inputs else []), *(outputs if rule.output else [])]:
            name = self._key(tensor)
            self._save_bytes(self._storage.get(name, name), bytes_of([tensor]))
        if rule.extra:
            self._save_bytes(object(), rule.extra * _elements(outputs[0].shape))

    def _save_bytes(self, key: Hashable, n_bytes: float) -> None:
        self._recorder.save(key, n_bytes * self._times)


class SpanRecorder:
    """Collects spans while a model is traced; nested spans are dropped."""

    def __init__(self) -> None:
        self._graph: Any = None
        #: Spans by graph: that of the call, and those of functions in it.
        self.spans: dict[Any, list[Span]] = {}
        #: Whether a part of the model asks for its activations to be recomputed.
        self.recomputes = False
        self._inside = False

    def without_recomputation(self) -> contextlib.AbstractContextManager[None]:
        """Run what `keras.remat` wraps as it is; gradients, which TensorFlow adds to it, are no part of a trace."""
        import tensorflow as tf

        def unwrapped(function: Any) -> Any:
            """Note that a function is to be recomputed, and return it."""
            self.recomputes = True
            return function

        return replaced(tf, "recompute_grad", unwrapped)

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
                    self._patch(stack, layer, "call", type_, type(layer).__name__, _kernels(layer, type_))
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

    def _is_traced(self, graph: Any) -> bool:
        """Whether a graph is that of the call, or of a function in it, such as the body of a loop."""
        while graph is not None and graph is not self._graph:
            graph = getattr(graph, "outer_graph", None)
        return graph is not None

    def _recorded(self, function: Callable[..., Any], type_: str, operator: str, weights: Any) -> Callable[..., Any]:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            """Call `function` and, unless within another recorded call, record the operations it adds to the graph."""
            import tensorflow as tf

            graph = tf.compat.v1.get_default_graph()
            if self._inside or not self._is_traced(graph):
                return function(*args, **kwargs)
            self._inside, start = True, len(graph.get_operations())
            try:
                result = function(*args, **kwargs)
            finally:
                self._inside = False
            operations, scope = graph.get_operations()[start:], tf.get_current_name_scope()
            if type_ not in (*_PRODUCTS, *RECURRENT_STATE) and _has_product(operations):
                return result  # more than its type says, as an embedding that scores with its table: read one by one
            stop = start + len(operations)
            outputs = [tensor for tensor in tf.nest.flatten(result) if tf.is_tensor(tensor)]
            given = [*args, *kwargs.values()]
            axis = _axis(given, getattr(function, "__self__", None))
            kernels = weights if weights is not None else given[1:2] if type_.startswith("Conv") else []
            span = Span(start, stop, type_, scope, operator, outputs, given[0], kernels, axis)
            self.spans.setdefault(graph, []).append(span)
            return result

        return recorded


def _kernels(layer: Any, type_: str) -> list[Any]:
    """Weights that a layer multiplies with; of a cell that names them otherwise all matrices."""
    named = [weight for weight in layer.weights if "kernel" in weight.name]
    if named or type_ not in RECURRENT_STATE:
        return named
    return [weight for weight in layer.trainable_weights if len(weight.shape) > 1]


def _axis(arguments: list[Any], layer: Any) -> int:
    """Axis of the channels, by the layout that a function is given or the axis that a layer normalises."""
    if any(isinstance(value, str) and value == "channels_first" for value in arguments):
        return 1
    axis = getattr(layer, "axis", -1)
    return axis if isinstance(axis, int) else -1


def _layer_type(layer: Any) -> str | None:
    """Canonical type of a layer that is one operator, or None; an ``RNN`` has the type of its cells."""
    names = [parent.__name__ for parent in type(layer).__mro__ if parent.__module__.startswith("keras.")]
    type_ = next((KERAS_TYPES[name] for name in names if name in KERAS_TYPES), None)
    if type_ is None and "RNN" in names:
        cell = repr(type(layer.cell)) + repr([type(part) for part in getattr(layer.cell, "cells", [])])
        return next((gated for gated in ("LSTM", "GRU") if gated in cell), "RNN")
    return type_


#: What to do about models that take other things than tensors.
_WRAP = "wrap it in a keras.Model whose call(self, inputs) takes a tensor, or a list or dict of tensors"
_GIVE_SHAPE = "pass input_shape, the shape of one sample without the batch"


def trace(model: Any, input_shape: Any = None, *, input_dtype: Any = None, train: bool = True) -> Traced:
    """Trace `model`; see `OpGraph.from_keras`."""
    _check_model(model)
    specs = _declared(model) if input_shape is None else read_inputs(input_shape, input_dtype)
    spans = SpanRecorder()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph, inputs, results = _make_graph(model, specs, spans, train)
    except Exception as error:
        _raise_input_error(model, specs, error)
    specs, used = _with_batch_of_results(specs, results), _used(graph, [*results, *model.losses])
    recorder = Recorder(batch_of(specs))
    for spec, tensor in zip(specs, inputs, strict=True):
        recorder.feed(tensor.name, batched=spec.axis is not None)
    return _read(model, specs, spans, graph, used, recorder)


def _check_model(model: Any) -> None:
    try:
        with quiet_tensorflow():
            import keras
            import tensorflow  # noqa: F401
    except ImportError as error:
        raise InputError("Keras is not installed; install it with pip install 'gpudemand[tensorflow]'.") from error
    if isinstance(model, type):
        raise InputError(f"model must be an instance of keras.Model; got the class {model.__name__}: call it.")
    if not isinstance(model, keras.Layer):
        hint = " Use OpGraph.from_torch for PyTorch modules." if hasattr(model, "named_parameters") else ""
        raise InputError(f"model must be a Keras 3 model or layer; got {type(model).__name__}.{hint}")
    if keras.backend.backend() != "tensorflow":
        raise InputError(
            f"from_keras reads the TensorFlow backend and Keras runs on {keras.backend.backend()!r}; "
            "set the environment variable KERAS_BACKEND=tensorflow before keras is imported."
        )


def _declared(model: Any) -> list[InputSpec]:
    """Inputs that the model declares, or that it was built with."""
    tensors = getattr(model, "inputs", None) or []
    if not tensors:
        return [_declared_spec(model, shape, None) for shape in _built_shapes(model)]
    structure = getattr(model, "_inputs_struct", None)
    named = structure.items() if isinstance(structure, Mapping) else ()
    # Of nested inputs Keras takes a flat list, too.
    is_flat = named and all(hasattr(tensor, "shape") for _, tensor in named)
    pairs = named if is_flat else zip(itertools.repeat(None), tensors)
    return [_declared_spec(model, t.shape, t.dtype)._replace(name=name) for name, t in pairs]


def _built_shapes(model: Any) -> list[Any]:
    config = model.get_build_config() or {}
    shape = config.get("input_shape") or list((config.get("shapes_dict") or {}).values())
    if not shape:
        raise InputError(f"the input shape of {model.name} is unknown because it has not been built; {_GIVE_SHAPE}.")
    return list(shape) if isinstance(shape[0], (list, tuple)) else [shape]


def _declared_spec(model: Any, shape: Sequence[int | None], dtype: str | None) -> InputSpec:
    if any(extent is None for extent in shape[1:]):
        raise InputError(f"{model.name} declares the input shape {tuple(shape)}, which is open; {_GIVE_SHAPE}.")
    return InputSpec(None, (BATCH, *(int(extent or 0) for extent in shape[1:])), None, dtype)


def _make_graph(
    model: Any, specs: Sequence[InputSpec], spans: SpanRecorder, train: bool
) -> tuple[Any, list[Any], list[Any]]:
    """The graph of a call, its inputs and its results."""
    import tensorflow as tf

    # Layers that are not built have no kernels yet, nor the layers that they will make.
    is_built = all(layer.built for layer in model._flatten_layers())
    for recorder in [spans] if is_built else [None, spans]:
        graph = tf.__internal__.FuncGraph("trace")
        with contextlib.ExitStack() as stack:
            if recorder is not None:
                stack.enter_context(left_as_found(model, set()))
                stack.enter_context(recorder.patched(model, graph))
            stack.enter_context(_functions_inlined())
            stack.enter_context(spans.without_recomputation())
            stack.enter_context(graph.as_default())
            tensors = [tf.compat.v1.placeholder(_dtype(model, spec), spec.shape) for spec in specs]
            args, kwargs = _arguments(model, specs, tensors)
            results = model(*args, **kwargs, **_mode(model, train))
    return graph, tensors, tf.nest.flatten(results, expand_composites=True)


def _with_batch_of_results(specs: Sequence[InputSpec], results: Sequence[Any]) -> list[InputSpec]:
    """Examples that do not all begin with the same batch with that which the results begin with, if they hold it."""
    rows = {tensor.shape[0] for tensor in results if getattr(getattr(tensor, "shape", None), "rank", None)}
    batch = rows.pop() if len(rows) == 1 else None
    if batch is None or all(spec.axis is not None for spec in specs):
        return list(specs)
    found = with_batch(specs, batch, (0, 1))
    return found if any(spec.axis is not None for spec in found) else list(specs)


def _used(graph: Any, results: Sequence[Any]) -> set[Any]:
    """Operations that results and changes of state depend on; others TensorFlow does not run.

    All of them where a result is an object, as tensors may be anywhere in it.
    """
    import tensorflow as tf

    operations = graph.get_operations()
    is_plain = all(tf.is_tensor(one) or not hasattr(one, "__dict__") for one in results)
    waiting = [one.op for one in results if is_plain and getattr(one, "graph", None) is graph]
    waiting = [*waiting, *(op for op in operations if op.op_def.is_stateful)] if waiting else operations
    found = set[Any]()
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting += [*(tensor.op for tensor in op.inputs), *op.control_inputs]
    return found


@contextlib.contextmanager
def _functions_inlined() -> Iterator[None]:
    """Run functions decorated with ``tf.function`` as plain Python, so that their operations are in the graph."""
    import tensorflow as tf

    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def _dtype(model: Any, spec: InputSpec) -> str:
    if spec.dtype or spec.example is None:
        return spec.dtype or model.compute_dtype
    return str(spec.example.dtype).removeprefix("torch.").removeprefix("<dtype: '").removesuffix("'>")


def _arguments(model: Any, specs: Sequence[InputSpec], tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arrange tensors as the model takes them: one, a dict, a list, or several arguments, by name or in order."""
    parameters = inspect.signature(model.call).parameters.values()
    named = {str(spec.name): tensor for spec, tensor in zip(specs, tensors, strict=True) if spec.name is not None}
    # A mask is an argument of the model's own where an example is called so, and else one that Keras hands on.
    no_examples = {"training", "mask"} - named.keys()
    taken = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in no_examples]
    if named:
        return ([], named) if len(taken) > 1 and named.keys() <= set(taken) else ([named], {})
    return (list(tensors) if len(taken) >= len(tensors) else [list(tensors)]), {}


def _mode(model: Any, train: bool) -> dict[str, bool]:
    return {"training": train} if model._call_has_training_arg else {}


def _read(
    model: Any, specs: Sequence[InputSpec], spans: SpanRecorder, graph: Any, used: set[Any], recorder: Recorder
) -> Traced:
    parameters = _parameters(model)
    handles = {id(variable.value.handle): variable for variable in parameters}
    captured = {inside.name: handles[id(outside)] for outside, inside in graph.captures if id(outside) in handles}
    names = {layer.name for layer in model._flatten_layers()}
    reader = GraphReader(recorder, captured, names, spans.spans)
    reader.read(graph, used)
    sizes = [(variable, math.prod(variable.shape)) for variable in parameters]
    traced = recorder.traced(
        name=model.name,
        framework="keras",
        **input_fields(specs),
        n_parameters=sum(size for _, size in sizes),
        n_trainable=sum(size for variable, size in sizes if variable.trainable),
        parameter_bytes=float(sum(size * item_size(variable) for variable, size in sizes)),
        state_bytes=bytes_of(_state(model, parameters, graph)),
        n_tensors=sum(variable.trainable for variable, _ in sizes),
        compute_dtype=_compute_dtype(model),
    )
    return traced._replace(caveats=reader.caveats + [_RECOMPUTED] * spans.recomputes + input_caveats(specs))


#: A step whose activations are all recomputed makes three passes and one more.
_RECOMPUTED = Caveat("it recomputes activations, which counts neither as less memory nor as more time", 4.0 / 3.0)


def _compute_dtype(model: Any) -> str:
    """Type that its layers cast most of the weights to, by their policies."""
    return most_common_type(
        (str(layer.compute_dtype), math.prod(variable.shape))
        for layer in model._flatten_layers()
        for variable in [*layer._trainable_variables, *layer._non_trainable_variables]
    )


def _parameters(model: Any) -> list[Any]:
    """Weights, frozen and quantized ones too, without running statistics and seeds."""
    from keras import layers

    found: dict[int, Any] = {}
    for layer in model._flatten_layers():
        weights = list(layer._trainable_variables)
        if not isinstance(layer, (layers.BatchNormalization, layers.Normalization, layers.SpectralNormalization)):
            weights += layer._non_trainable_variables
        found |= {id(weight): weight for weight in weights}
    return list(found.values())


def _state(model: Any, parameters: Sequence[Any], graph: Any) -> list[Any]:
    """What a model keeps beside its parameters, without running statistics: constants and variables of TensorFlow."""
    weights = {id(weight): weight for weight in [*model.variables, *parameters]}
    handles = {id(weight.value.handle) for weight in weights.values()}
    constants = [outside for outside, _ in graph.captures if outside.dtype != "resource"]
    return [*constants, *(variable for variable in graph._watched_variables if id(variable.handle) not in handles)]


def _raise_input_error(model: Any, specs: Sequence[InputSpec], error: Exception) -> NoReturn:
    import keras
    import tensorflow as tf

    place = user_line(error, __file__, keras.__file__, tf.__file__)
    if isinstance(error, tf.errors.OperatorNotAllowedInGraphError) or "as a Python `bool`" in str(error):
        instead = "range in place of tf.range" if "terating" in str(error) else "keras.ops.where"
        raise value_error(f"the call of {model.name}", place, instead) from error
    # Keras wraps the original message, in bold, in the description of the call.
    bold = re.search(r"\x1b\[1m(.*?)\x1b\[0m", str(error), re.DOTALL)
    reason = first_line(error, bold.group(1) if bold else None)
    if isinstance(error, NotImplementedError) and "call" in str(error):
        raise InputError(
            f"{model.name} has no call, as networks that only train_step runs; trace its parts, such as generator and "
            "discriminator, each by itself, or write a call that runs what a step runs."
        ) from error
    raise call_error(f"the call of {model.name}", specs, place, reason, error, _WRAP) from error
