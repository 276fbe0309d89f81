"""Kernels of a training step: as recorded from the framework, or derived from the operators of the forward pass."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.cost.graph.autocast import autocast_bytes
from gpudemand.cost.graph.cache import per_graph
from gpudemand.cost.graph.features import operator_classes
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.operators.kernel import KINDS, Kernel

#: Operator class, or canonical type where it differs from its class -> kind of kernel.
_KIND_OF_CLASS = {"recurrent": "gemm", "dropout": "random", "activation": "pointwise", "elementwise": "pointwise"}
_KIND_OF_TYPE = {
    "GroupNormalization": "group_norm",
    "Gather": "gather",
    "Scatter": "gather",
    "TopK": "sort",
    "Dropout": "random",
}
#: Kind -> operations, bytes and calls of the backward pass as multiples of the forward pass: medians over the PyTorch
#: networks of the zoo, by ``python -m scripts.derive_backward_kernels``.
_BACKWARD = {
    "attention": (2.5, 2.0, 1.0),
    "batch_norm": (0.0, 1.5, 1.0),
    "conv_1x1": (2.0, 1.9, 1.0),
    "conv_3x3": (2.0, 2.0, 1.0),
    "conv_depthwise": (2.0, 1.7, 1.0),
    "conv_grouped": (2.0, 1.9, 1.0),
    "conv_large": (1.0, 1.1, 1.0),
    "gather": (0.0, 8.3, 1.0),
    "gemm": (2.0, 2.0, 2.0),
    "layer_norm": (0.0, 1.5, 1.0),
    "move": (0.0, 0.5, 0.8),
    "pointwise": (0.0, 1.5, 0.7),
    "pool": (0.0, 1.6, 1.0),
    "random": (0.0, 0.0, 0.0),
    "reduce": (0.0, 0.0, 1.0),
}
#: Kinds that the zoo lacks: two products for the gradients of a product's operands, and the traffic of an activation.
_BACKWARD_OTHER = (2.0, 1.5, 1.0)


@per_graph
def step_kernels(graph: OpGraph) -> pd.DataFrame:
    """Kernels of a training step of a graph, a row for each group of equal ones; columns are the fields of `Kernel`.

    Those that PyTorch dispatches where they were recorded; else each operator is a forward kernel, and a backward
    kernel whose work is a multiple of it by kind.

    Examples
    --------
    >>> from gpudemand.cost.operators.operator import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> step_kernels(OpGraph.from_operators([dense], []))[["kind", "backward", "is_autocast", "flops", "calls"]]
       kind  backward  is_autocast   flops  calls
    0  gemm     False        False  1280.0    1.0
    1  cast     False         True     0.0    1.0
    2  gemm      True        False  1280.0    2.0
    3  cast      True         True     0.0    1.0
    """
    # Graphs that were stored by earlier versions have no operations that are independent of the batch.
    return (
        _derived(graph)
        if graph.kernels is None
        else graph.kernels.reindex(columns=list(Kernel._fields), fill_value=0.0)
    )


def kernel_kinds(nodes: pd.DataFrame) -> FloatArray:
    """Kind of the kernel of each operator, one of `KINDS`."""
    classes = operator_classes(nodes)
    by_class = classes.map(lambda name: _KIND_OF_CLASS.get(name, name if name in KINDS else "pointwise"))
    return nodes["type"].map(_KIND_OF_TYPE).fillna(by_class).to_numpy(dtype=object)


def _derived(graph: OpGraph) -> pd.DataFrame:
    nodes, half = graph.nodes, autocast_bytes(graph)
    steps, fixed = _time_steps(nodes), nodes[["weight_bytes", "fixed_bytes_read", "fixed_bytes_written"]].sum(axis=1)
    forward = pd.DataFrame(0.0, index=nodes.index, columns=list(Kernel._fields)).assign(
        kind=kernel_kinds(nodes),
        backward=False,
        is_autocast=False,
        is_direct=(nodes["type"] == "Conv") & (nodes["output_shape"].map(len) != 4),
        flops=nodes["flops"] / steps,
        bytes=(nodes["bytes_read"] + nodes["bytes_written"]) / steps,
        half_bytes=(half["read"] + half["written"]) / steps,
        fixed_flops=nodes["fixed_flops"],
        fixed_bytes=fixed,
        fixed_half_bytes=fixed / 2.0,
        calls=steps,
    )
    forward[["channels", "inner", "weights"]] = _extents(graph)
    casts = forward[half["cast"] > 0].assign(kind="cast", is_autocast=True, flops=0.0, fixed_bytes=0.0)
    casts["half_bytes"] = casts["bytes"] = half["cast"]
    casts["fixed_half_bytes"], casts["calls"] = 1.5 * nodes["weight_bytes"], 1.0
    both = pd.concat([forward, casts], ignore_index=True)
    return pd.concat([both, _backward(both)], ignore_index=True)


def _time_steps(nodes: pd.DataFrame) -> FloatArray:
    """Products of a recurrent layer with its state, one after the other; 1 for other operators."""
    products = 2.0 * nodes["weight_bytes"].to_numpy() / 4.0  # operations of a step: two a weight
    steps = np.round(nodes["flops"].to_numpy() / np.maximum(products, 1.0))
    return np.where(operator_classes(nodes) == "recurrent", np.maximum(steps, 1.0), 1.0)


def _backward(forward: pd.DataFrame) -> pd.DataFrame:
    """Backward kernels of forward ones; amounts are those of one call."""
    ratios = np.array([_BACKWARD.get(kind, _BACKWARD_OTHER) for kind in forward["kind"]]).reshape(-1, 3)
    flops, moved, calls = ratios[ratios[:, 2] > 0].T
    forward = forward[ratios[:, 2] > 0]
    scaled = {"flops": forward["flops"] * flops / calls}
    scaled |= {name: forward[name] * moved / calls for name in forward.columns if name.endswith("bytes")}
    return forward.assign(backward=True, calls=forward["calls"] * calls, **scaled)


def _extents(graph: OpGraph) -> FloatArray:
    """Channels, inner extent and number of weights of the products of operators, shape (n_operators, 3)."""
    nodes = graph.nodes
    image = nodes["type"].isin(["Conv", "ConvTranspose"]).to_numpy()
    product = image | nodes["type"].isin(["Gemm", "MatMul"]).to_numpy()
    sizes = [_channels(shape) for shape in nodes["output_shape"]]
    channels, outputs = np.array(sizes, dtype=float), nodes["output_shape"].map(np.prod).to_numpy(dtype=float)
    inner = nodes["flops"].to_numpy() / 2.0 / np.maximum(outputs, 1.0)
    inner = np.where(image, np.minimum(inner, _source_channels(graph, channels)), inner)
    weights = np.where(image, nodes["weight_bytes"].to_numpy() / 4.0, 0.0)
    return np.column_stack([np.where(product, channels, 0.0), np.where(product, inner, 0.0), weights])


def _source_channels(graph: OpGraph, channels: FloatArray) -> FloatArray:
    """Channels of the operator before each, or of the input of the network."""
    found = np.full(len(channels), next((shape[0] for shape in graph.input_shapes if shape), np.inf), dtype=float)
    found[graph.edges[:, 1]] = channels[graph.edges[:, 0]]
    return found


def _channels(shape: tuple[int, ...]) -> int:
    return (shape[1] if len(shape) > 2 else shape[-1]) if shape else 1
