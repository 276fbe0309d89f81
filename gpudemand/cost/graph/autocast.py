"""Bytes moved and precision of each operator under automatic mixed precision."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.cost.graph.cache import per_graph
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.graph.structural_matrix import check_graph
from gpudemand.cost.operators.precision import HALF_TYPES, HALF_WIDTH, autocast_width


@per_graph
def autocast_widths(graph: OpGraph) -> FloatArray:
    """Width of each operator's output under autocast, as a share of single precision.

    Types propagate along the edges of a graph traced in single precision: once a single-precision parameter enters a
    residual stream, it stays single. Shape (n_operators,); see `gpudemand.cost.operators.precision.autocast_width`.
    """
    widths = np.ones(len(graph.nodes))
    columns = (graph.nodes[name] for name in ("type", "operator", "weight_bytes", "parameters"))
    for i, (type_, operator, weight_bytes, parameters) in enumerate(zip(*columns, strict=True)):
        inputs = [widths[j] for j in graph.producers[i]]
        widths[i] = autocast_width(type_, operator, inputs, weight_bytes > 0 or parameters > 0)
    return widths


def autocast_bytes(graph: OpGraph) -> pd.DataFrame:
    """Bytes that each operator of a network moves under autocast.

    Parameters
    ----------
    graph : OpGraph
        Traced in single precision.

    Returns
    -------
    DataFrame
        A row an operator of `graph.nodes`, bytes per sample: ``read`` and ``written``; ``cast``, bytes moved to cast
        the single-precision inputs of half-precision operators; ``sliced``, read by operators that take a part of what
        their producers wrote; ``saved`` for the backward pass.

    References
    ----------
    PyTorch, "Automatic Mixed Precision package", CUDA op-specific behavior.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "a", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    >>> norm = Operator("LayerNormalization", "", "b", "layer_norm", (1, 10), 0.0, 20, 80.0, 40.0, 40.0, 40.0)
    >>> autocast_bytes(OpGraph.from_operators([dense, norm], [(0, 1)]))[["read", "written", "cast"]]
        read  written   cast
    0  128.0     20.0  384.0
    1   20.0     40.0    0.0
    """
    nodes = check_graph(graph).nodes
    read, written, saved = (nodes[name].to_numpy(float) for name in ("bytes_read", "bytes_written", "saved_bytes"))
    output = autocast_widths(graph)
    supplied, input_width = _inputs(graph, written, output)
    half = nodes["type"].isin(HALF_TYPES).to_numpy()
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
