"""Type, kind and cost of operators in a TensorFlow graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from gpudemand.cost.operators.arithmetic import einsum_flops, matmul_flops, weighted_flops
from gpudemand.cost.operators.vocabulary import RECURRENT_STATE, TENSORFLOW_VIEWS, convolution_kind, tensorflow_type

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
    #: Channels of `source`, in either layout.
    channels: int


def span_of(op: Any, position: int, has_weight: bool) -> Span:
    """Span of a single graph operation; `has_weight`: whether a parameter is among its inputs."""
    type_ = operation_type(op, has_weight)
    source = op.inputs[-1 if type_ == "ConvTranspose" else 0]
    kernels = [op.inputs[1]] if type_ in ("Conv", "ConvTranspose") else []
    scope = op.name.rpartition("/")[0]
    is_first = bool(kernels) and op.get_attr("data_format").startswith(b"NC")
    channels = int(source.shape[1 if is_first else -1]) if kernels else 0
    return Span(position, position + 1, type_, scope, op.type, list(op.outputs), source, kernels, channels)


def operation_type(op: Any, has_weight: bool) -> str:
    """Canonical type of a graph operation; a product with a weight is a dense layer."""
    type_ = tensorflow_type(op.type)
    if type_ == "MatMul" and has_weight:
        return "Gemm"
    return _GLOBAL.get(type_, type_) if _is_global(op.inputs[0].shape, op.outputs[0].shape) else type_


def _is_global(source: Any, result: Any) -> bool:
    """Whether all positions of an image or a volume are reduced to one."""
    return len(source) > 3 and math.prod(result) == source[0] * source[-1] < math.prod(source)


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
    groups = span.channels if _is_depthwise(span) else span.channels // per_group if span.type == "Conv" else 1
    return convolution_kind(spatial, groups, span.channels)


def _is_depthwise(span: Span) -> bool:
    return span.operator.lower().startswith("depthwise")


def span_flops(span: Span, operations: Sequence[Any]) -> float:
    """Floating-point operations of an operator for the whole batch; zero if it is no matrix product or convolution."""
    if span.type in ("Gemm", "MatMul"):
        return _product_flops(operations[0])
    sizes = sum(math.prod(kernel.shape) for kernel in span.weights)
    if span.type == "Conv":
        filters = math.prod(span.weights[0].shape[-2:] if _is_depthwise(span) else span.weights[0].shape[-1:])
        return weighted_flops(math.prod(span.outputs[0].shape) / filters, sizes)
    if span.type == "ConvTranspose" or span.type in RECURRENT_STATE:
        return weighted_flops(math.prod(span.source.shape) / span.channels, sizes)
    return 0.0


def _product_flops(op: Any) -> float:
    shapes = [tuple(tensor.shape) for tensor in op.inputs]
    if op.type == "Einsum":
        return einsum_flops(op.get_attr("equation").decode(), shapes)
    transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
    return matmul_flops(math.prod(op.outputs[0].shape), shapes[0][-2 if transposed else -1])


def item_size(tensor: Any) -> int:
    """Bytes of one element of a tensor or a variable."""
    import tensorflow as tf

    return int(tf.as_dtype(tensor.dtype).size)


def bytes_of(tensors: Sequence[Any]) -> float:
    """Bytes of several tensors."""
    return float(sum(math.prod(tensor.shape) * item_size(tensor) for tensor in tensors))
