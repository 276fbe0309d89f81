"""Which activations of a network are halves under automatic mixed precision, and what the casts between cost."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.graph.structural_matrix import check_graph

#: What autocast runs in half precision, ...
_HALF = frozenset(["Conv", "ConvTranspose", "Gemm", "MatMul", "Attention", "LSTM", "GRU", "RNN"])
#: ... what it runs in single precision, ...
_SINGLE = frozenset(
    [
        *("LayerNormalization", "GroupNormalization", "RMSNormalization", "LpNormalization", "Softmax", "LogSoftmax"),
        *("Loss", "Pow", "Exp", "Log", "Sqrt", "ReduceSum", "Softplus", "Gather"),
    ]
)
#: ... and what keeps the type of its input although its parameters are single; everything else takes the widest.
_KEEPS = frozenset(["BatchNormalization", "InstanceNormalization"])
_HALVED, _WHOLE = 0.5, 1.0


def autocast_bytes(graph: OpGraph, enabled: bool = True) -> pd.DataFrame:
    """Bytes that each operator of a network moves when matrix products are done in half precision.

    Autocast chooses a type operator by operator: products give halves, normalisations and softmax singles, the rest
    follows its widest input. Types run along the edges of the graph, so that a residual stream that a single-precision
    parameter once touched stays single, as it does in PyTorch.

    Parameters
    ----------
    graph : OpGraph
        Traced in single precision.
    enabled : bool, default=True
        False: everything stays as traced, and no cast is needed.

    Returns
    -------
    DataFrame
        A row an operator of `graph.nodes`, bytes per sample: ``read`` and ``written``; ``cast``, read and written again
        because a product found singles where it wants halves; ``sliced``, read by operators that take only a part of
        what their producers wrote; ``saved`` for the backward pass.

    References
    ----------
    PyTorch, "Automatic Mixed Precision package", the op-specific behaviour of ``torch.amp``.

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
    read, written = nodes["bytes_read"].to_numpy(dtype=float), nodes["bytes_written"].to_numpy(dtype=float)
    source, sliced = _sources(graph, written)
    sliced = np.where((read > 0) & (read < 0.99 * sliced), read, 0.0)
    into, out = _types(graph, written, source) if enabled else (np.ones(len(nodes)), np.ones(len(nodes)))
    half = nodes["type"].isin(list(_HALF)).to_numpy() & enabled
    single = np.where(half, (into - _HALVED) / (_WHOLE - _HALVED), 0.0)
    width = np.where(half, _HALVED, into)
    return pd.DataFrame(
        {
            "read": read * width,
            "written": written * out,
            # A cast reads singles and writes halves.
            "cast": read * single * (_WHOLE + _HALVED),
            "sliced": sliced * into,
            "saved": nodes["saved_bytes"].to_numpy(dtype=float) * width,
        }
    )


def _sources(graph: OpGraph, written: FloatArray) -> tuple[list[list[int]], FloatArray]:
    """Producers of each operator, and the bytes that they wrote."""
    source: list[list[int]] = [[] for _ in range(len(written))]
    total = np.zeros(len(written))
    for producer, consumer in graph.edges:
        source[consumer].append(int(producer))
        total[consumer] += written[producer]
    return source, total


def _types(graph: OpGraph, written: FloatArray, source: list[list[int]]) -> tuple[FloatArray, FloatArray]:
    """Width of what each operator reads and writes, as a share of single precision."""
    into, out = np.ones(len(written)), np.ones(len(written))
    weighted = (graph.nodes["weight_bytes"] > 0).to_numpy()
    for i, name in enumerate(graph.nodes["type"]):
        before = source[i]
        total = sum(written[j] for j in before)
        if total > 0:
            into[i] = sum(written[j] * out[j] for j in before) / total
        out[i] = _width(name, into[i], max((out[j] for j in before), default=_WHOLE), bool(weighted[i]))
    return into, out


def _width(name: str, into: float, widest: float, weighted: bool) -> float:
    if name in _HALF:
        return _HALVED
    if name in _KEEPS:
        return into
    return _WHOLE if name in _SINGLE or weighted else widest
