"""Tracer of Keras 3 models on the TensorFlow backend.

The model is called once inside a TensorFlow graph, symbolically, so functional, sequential and subclassed models and
plain TensorFlow inside layers are treated alike. Layers and functions that are one operator but many graph operations
(normalisations, recurrent layers, GELU, ...) are recorded as spans; all other operators are read off the graph.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from gpudemand._validation import InputError
from gpudemand.cost.tracing._keras_calls import item_size
from gpudemand.cost.tracing._keras_graph import GraphReader
from gpudemand.cost.tracing._keras_watch import SpanRecorder
from gpudemand.cost.tracing.inputs import (
    BATCH,
    InputSpec,
    batch_of,
    call_error,
    first_line,
    read_inputs,
    user_line,
    value_error,
)
from gpudemand.cost.tracing.quiet import quiet_tensorflow
from gpudemand.cost.tracing.recorder import Recorder, Traced

_GIVE_SHAPE = "pass input_shape, the shape of one sample without the batch"


def trace(model: Any, input_shape: Any = None, *, input_dtype: Any = None, train: bool = True) -> Traced:
    """Trace `model`; see `OpGraph.from_keras`."""
    _check_model(model)
    specs = _declared(model) if input_shape is None else read_inputs(input_shape, input_dtype)
    spans = SpanRecorder()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph, inputs = _make_graph(model, specs, spans, train)
    except Exception as error:
        _raise_input_error(model, specs, error)
    return _read(model, specs, spans, graph, inputs)


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
    names = list(structure) if isinstance(structure, Mapping) else [None] * len(tensors)
    flat = [structure[name] for name in names] if isinstance(structure, Mapping) else tensors
    return [_declared_spec(model, t.shape, t.dtype)._replace(name=name) for name, t in zip(names, flat, strict=True)]


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


def _make_graph(model: Any, specs: Sequence[InputSpec], spans: SpanRecorder, train: bool) -> tuple[Any, list[Any]]:
    import tensorflow as tf

    graph = tf.__internal__.FuncGraph("trace")
    with _functions_inlined(), graph.as_default(), spans.patched(model, graph):
        tensors = [tf.compat.v1.placeholder(_dtype(model, spec), spec.shape) for spec in specs]
        model(*_arguments(model, specs, tensors), **_mode(model, train))
    return graph, tensors


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


def _arguments(model: Any, specs: Sequence[InputSpec], tensors: Sequence[Any]) -> list[Any]:
    """Arrange tensors as the model takes them: one, a dict, a list, or several arguments."""
    if specs[0].name is not None:
        return [{spec.name: tensor for spec, tensor in zip(specs, tensors, strict=True)}]
    if len(tensors) == 1:
        return [tensors[0]]
    parameters = inspect.signature(model.call).parameters.values()
    required = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    return list(tensors) if len(required) >= len(tensors) else [list(tensors)]


def _mode(model: Any, train: bool) -> dict[str, bool]:
    return {"training": train} if model._call_has_training_arg else {}


def _read(model: Any, specs: Sequence[InputSpec], spans: SpanRecorder, graph: Any, inputs: Sequence[Any]) -> Traced:
    recorder = Recorder(batch_of(specs))
    for tensor in inputs:
        recorder.feed(tensor.name, batched=True)
    parameters = _parameters(model)
    handles = {id(variable.value.handle): variable for variable in parameters}
    captured = {inside.name: handles[id(outside)] for outside, inside in graph.captures if id(outside) in handles}
    names = {layer.name for layer in model._flatten_layers()}
    GraphReader(recorder, captured, names).read(graph.get_operations(), spans.spans)
    sizes = [(variable, math.prod(variable.shape)) for variable in parameters]
    return recorder.traced(
        name=model.name,
        framework="keras",
        input_shapes=tuple(spec.shape[1:] for spec in specs),
        n_parameters=sum(size for _, size in sizes),
        n_trainable=sum(size for variable, size in sizes if variable.trainable),
        parameter_bytes=float(sum(size * item_size(variable) for variable, size in sizes)),
    )


def _parameters(model: Any) -> list[Any]:
    """Trainable and frozen weights, without running statistics and seeds."""
    found = {id(weight): weight for layer in model._flatten_layers() for weight in layer._trainable_variables}
    return list(found.values())


def _raise_input_error(model: Any, specs: Sequence[InputSpec], error: Exception) -> NoReturn:
    import keras
    import tensorflow as tf

    place = user_line(error, __file__, keras.__file__, tf.__file__)
    if isinstance(error, tf.errors.OperatorNotAllowedInGraphError) or "as a Python `bool`" in str(error):
        raise value_error(f"the call of {model.name}", place, "keras.ops.where") from error
    # Keras wraps the original message, in bold, in the description of the call.
    bold = re.search(r"\x1b\[1m(.*?)\x1b\[0m", str(error), re.DOTALL)
    reason = first_line(error, bold.group(1) if bold else None)
    raise call_error(f"the call of {model.name}", specs, place, reason) from error
