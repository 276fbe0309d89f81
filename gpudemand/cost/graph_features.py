"""Features of operator graphs: operations, bytes, kernels of a step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray
from gpudemand.cost.graph import OpGraph, check_graph, per_graph
from gpudemand.cost.operators import (
    BACKWARD,
    CLASS_OF,
    CONVOLUTION_KINDS,
    HALF_TYPES,
    HALF_WIDTH,
    KERNEL_OF,
    KINDS,
    Kernel,
    autocast_width,
)

#: Classes of operators, convolutions split by `CONVOLUTION_KINDS`.
OPERATOR_CLASSES = (
    *(f"conv_{kind}" for kind in CONVOLUTION_KINDS),
    *("conv_transpose", "gemm", "matmul", "attention", "recurrent", "batch_norm", "layer_norm", "activation"),
    *("softmax", "dropout", "pool", "elementwise", "reduce", "move", "other"),
)


class Optimizer(NamedTuple):
    """Bytes a parameter of states; beside weights in half precision, most keep a copy in single precision."""

    states: float
    keeps_master: bool = True


OPTIMIZERS = {
    "sgd": Optimizer(0.0),
    "momentum": Optimizer(4.0),
    "rmsprop": Optimizer(4.0),
    "adagrad": Optimizer(4.0),
    "adam": Optimizer(8.0),
    "adamw": Optimizer(8.0),
    "adamw_bf16": Optimizer(4.0, keeps_master=False),
    "adamw_8bit": Optimizer(2.0, keeps_master=False),
    "adafactor": Optimizer(0.02, keeps_master=False),
    "muon": Optimizer(4.0),
}
#: Optimizers of traced networks -> state tensors, in single precision.
OPTIMIZER_STATES = {
    name: int(OPTIMIZERS[name].states) // 4 for name in ("sgd", "momentum", "rmsprop", "adagrad", "adam", "adamw")
}


def operator_classes(nodes: pd.DataFrame) -> pd.Series:
    """Class of each operator (of `OPERATOR_CLASSES`) in a table with the columns ``type`` and ``kind``."""
    groups = [
        f"conv_{kind or CONVOLUTION_KINDS[1]}" if name == "Conv" else CLASS_OF[name]
        for name, kind in zip(nodes["type"], nodes["kind"], strict=True)
    ]
    return pd.Series(groups, index=nodes.index, dtype=object)


def graph_features(graph: OpGraph) -> pd.Series:
    """Totals of a graph, and amounts by operator class, per sample.

    Totals are ``flops``, ``bytes``, ``saved_bytes``, ``parameters``, ``depth``, ...; amounts ``flops_<class>``,
    ``bytes_<class>``, ``saved_bytes_<class>`` and ``calls_<class>`` for each of `OPERATOR_CLASSES`.

    >>> from gpudemand.cost.graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> features = graph_features(OpGraph.from_operators([dense], [], n_parameters=650))
    >>> features[["flops_gemm", "bytes", "calls_attention"]].tolist()
    [1280.0, 296.0, 0.0]
    """
    nodes = check_graph(graph).nodes
    table = pd.DataFrame(
        {
            "flops": nodes["flops"],
            "bytes": nodes["bytes_read"] + nodes["bytes_written"],
            "saved_bytes": nodes["saved_bytes"],
            "calls": 1.0,
        }
    )
    by_class = table.groupby(operator_classes(nodes)).sum().reindex(list(OPERATOR_CLASSES), fill_value=0.0)
    parts = {f"{amount}_{group}": by_class.loc[group, amount] for amount in table.columns for group in OPERATOR_CLASSES}
    return pd.Series({**_totals(graph, table), **parts}, dtype=float)


@per_graph
def features_by_name(graph: OpGraph) -> dict[str, float]:
    """Memoized `graph_features` as a dict; not to be modified."""
    return {str(name): float(value) for name, value in graph_features(graph).items()}


def _totals(graph: OpGraph, table: pd.DataFrame) -> dict[str, float]:
    totals = table.sum()
    return {
        "flops": totals["flops"],
        "bytes": totals["bytes"],
        "weight_bytes": graph.nodes["weight_bytes"].sum(),
        "saved_bytes": totals["saved_bytes"],
        "largest_output_bytes": graph.nodes["bytes_written"].max() if len(graph.nodes) else 0.0,
        "parameters": graph.n_parameters,
        "trainable_parameters": graph.n_trainable,
        "parameter_bytes": graph.parameter_bytes,
        "operators": len(graph.nodes),
        "edges": len(graph.edges),
        "depth": graph.depth,
        "layers": graph.n_layers,
    }


@per_graph
def autocast_widths(graph: OpGraph) -> FloatArray:
    """Width of each operator's output under autocast, as a share of single precision.

    Once a single-precision parameter enters a residual stream, it stays single. Other networks are left as they are.
    """
    widths = np.ones(len(graph.nodes))
    if not graph.is_single:
        return widths
    columns = (graph.nodes[name] for name in ("type", "operator", "weight_bytes", "parameters"))
    for i, (type_, operator, weight_bytes, parameters) in enumerate(zip(*columns, strict=True)):
        inputs = [widths[j] for j in graph.producers[i]]
        widths[i] = autocast_width(type_, operator, inputs, weight_bytes > 0 or parameters > 0)
    return widths


def autocast_bytes(graph: OpGraph) -> pd.DataFrame:
    """Bytes a sample that each operator moves under autocast, of a network in another precision as it is.

    Returns ``read`` and ``written``; ``cast``, moved to cast the single-precision inputs of half-precision operators;
    ``sliced``, read by operators that take a part of what their producers wrote; ``saved`` for the backward pass.
    """
    nodes = check_graph(graph).nodes
    read, written, saved = (nodes[name].to_numpy(float) for name in ("bytes_read", "bytes_written", "saved_bytes"))
    output = autocast_widths(graph)
    supplied, input_width = _inputs(graph, written, output)
    half = nodes["type"].isin(HALF_TYPES).to_numpy() & graph.is_single
    single_share = np.where(half, (input_width - HALF_WIDTH) / (1.0 - HALF_WIDTH), 0.0)
    width = np.where(half, HALF_WIDTH, input_width)
    return pd.DataFrame(
        {
            "read": read * width,
            "written": written * output,
            # A cast reads single and writes half precision.
            "cast": read * single_share * (1.0 + HALF_WIDTH),
            "sliced": np.where((read > 0) & (read < 0.99 * supplied), read, 0.0) * input_width,
            "saved": saved * width,
        }
    )


def _inputs(graph: OpGraph, written: FloatArray, output: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bytes written by the producers of each operator, and the mean width of these bytes under autocast."""
    producers, consumers = graph.edges.T
    supplied = np.bincount(consumers, written[producers], minlength=len(written)).astype(float)
    narrowed = np.bincount(consumers, (written * output)[producers], minlength=len(written))
    width: FloatArray = np.divide(narrowed, supplied, out=np.ones(len(written)), where=supplied > 0)
    return supplied, width


@per_graph
def step_kernels(graph: OpGraph) -> pd.DataFrame:
    """Kernels of a training step of a graph, a row for each group of equal ones; columns are the fields of `Kernel`.

    Those that PyTorch dispatched, if recorded; else each operator is a forward kernel and, by kind, its backward.
    """
    # Graphs that were stored by earlier versions have no operations that are independent of the batch.
    return (
        _derived(graph)
        if graph.kernels is None
        else graph.kernels.reindex(columns=list(Kernel._fields), fill_value=0.0)
    )


def kernel_kinds(nodes: pd.DataFrame) -> FloatArray:
    """Kind of the kernel of each operator, one of `KINDS`."""
    names = zip(nodes["type"], operator_classes(nodes), strict=True)
    found = [KERNEL_OF[type_] or (name if name in KINDS else "pointwise") for type_, name in names]
    return np.array(found, dtype=object)


def _derived(graph: OpGraph) -> pd.DataFrame:
    nodes, half = graph.nodes, autocast_bytes(graph)
    steps, fixed = time_steps(graph), nodes[["weight_bytes", "fixed_bytes_read", "fixed_bytes_written"]].sum(axis=1)
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
        fixed_half_bytes=fixed * (HALF_WIDTH if graph.is_single else 1.0),
        calls=steps,
        is_double=graph.compute_dtype == "float64",
    )
    forward[["channels", "inner", "weights"]] = _extents(graph)
    moved = {"bytes": half["cast"], "half_bytes": half["cast"], "fixed_half_bytes": 1.5 * nodes["weight_bytes"]}
    casts = forward.assign(kind="cast", is_autocast=True, flops=0.0, fixed_bytes=0.0, calls=1.0, **moved)
    both = pd.concat([forward, casts[half["cast"] > 0]], ignore_index=True)
    trained = 1.0 - pd.concat([nodes["frozen"], nodes["frozen"][half["cast"] > 0]]).to_numpy()
    return pd.concat([both, _backward(both, trained)], ignore_index=True)


def time_steps(graph: OpGraph) -> FloatArray:
    """Products of a recurrent layer with its state, one after the other; 1 for other operators."""
    nodes = graph.nodes
    products = 2.0 * nodes["weight_bytes"].to_numpy() / graph.parameter_width  # operations of a step: two a weight
    steps = np.round(nodes["flops"].to_numpy() / np.maximum(products, 1.0))
    return np.where(operator_classes(nodes) == "recurrent", np.maximum(steps, 1.0), 1.0)


def _backward(forward: pd.DataFrame, trained: FloatArray) -> pd.DataFrame:
    """Backward kernels of forward ones, of each the share that is `trained`; amounts are those of one call."""
    ratios = np.array([BACKWARD[kind] for kind in forward["kind"]]).reshape(-1, 3)
    used = (ratios[:, 2] > 0) & (trained > 0)
    flops, moved, calls = ratios[used].T
    forward = forward[used]
    scaled = {"flops": forward["flops"] * flops / calls}
    scaled |= {name: forward[name] * moved / calls for name in forward.columns if name.endswith("bytes")}
    return forward.assign(backward=True, calls=forward["calls"] * calls * trained[used], **scaled)


def _extents(graph: OpGraph) -> FloatArray:
    """Channels, inner extent and number of weights of the products of operators, shape (n_operators, 3)."""
    nodes = graph.nodes
    image = nodes["type"].isin(["Conv", "ConvTranspose"]).to_numpy()
    product = image | nodes["type"].isin(["Gemm", "MatMul"]).to_numpy()
    last = np.array([(shape or (1,))[-1] for shape in nodes["output_shape"]], dtype=float)
    channels, outputs = graph.channels, nodes["output_shape"].map(np.prod).to_numpy(dtype=float)
    inner = nodes["flops"].to_numpy() / 2.0 / np.maximum(outputs, 1.0)
    of_group = np.where(nodes["inner"] > 0, nodes["inner"], _source_channels(graph, channels))
    inner = np.where(image, np.minimum(inner, of_group), inner)
    channels = np.where(image, channels, last)
    weights = np.where(image, nodes["weight_bytes"].to_numpy() / graph.parameter_width, 0.0)
    return np.column_stack([np.where(product, channels, 0.0), np.where(product, inner, 0.0), weights])


def _source_channels(graph: OpGraph, channels: FloatArray) -> FloatArray:
    """Channels of the operator before each, or of the input of the network."""
    found = np.full(len(channels), next((shape[0] for shape in graph.input_shapes if shape), np.inf), dtype=float)
    found[graph.edges[:, 1]] = channels[graph.edges[:, 0]]
    return found
