"""Workspace of convolutions on a GPU, by algorithm.

Which algorithm cuDNN selects depends on its heuristics or on a benchmark; what each would need follows from the shapes.
The amounts are candidate features for a predictor.
"""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.cost.graph.op_graph import OpGraph

#: Winograd F(4x4, 3x3): 6 x 6 numbers for each tile of 4 x 4 positions, and for each filter of 3 x 3.
_WINOGRAD = (6 / 4) ** 2
_WINOGRAD_WEIGHTS = 36 / 9
#: FFT on tiles of 32 x 32, of which 28 x 28 are output: numbers a transformed tile, half of it by symmetry, complex.
_FFT_TILE = 32 * 17
_FFT_OUTPUT = 28**2


def conv_workspace(graph: OpGraph) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Bytes that each algorithm would need for each operator, as (fixed, per sample), shape (n_operators,) each.

    Zero where an algorithm does not apply, and for all but convolutions. ``layout``: activations copied into
    channels-last order. ``columns``: the input unfolded into a matrix (im2col). ``winograd``: tiles of 4 x 4 positions.
    ``fourier``: tiles of 32 x 32, and transformed weights.

    References
    ----------
    Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016; Mathieu, Henaff, LeCun, "Fast Training
    of Convolutional Networks through FFTs", ICLR 2014.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> conv = Operator("Conv", "3x3", "", "conv2d", (1, 8, 4, 4), 18432.0, 576, 2304.0, 512.0, 512.0, 0.0)
    >>> workspace = conv_workspace(OpGraph.from_operators([conv], []))
    >>> {name: (float(fixed[0]), float(each[0])) for name, (fixed, each) in workspace.items()}["columns"]
    (0.0, 4608.0)
    """
    nodes = graph.nodes
    is_conv, kind = (nodes["type"] == "Conv").to_numpy(), nodes["kind"].to_numpy()
    shapes = list(nodes["output_shape"])
    channels = np.array([shape[1] if len(shape) > 1 else 1 for shape in shapes], dtype=float)
    positions = np.array([np.prod(shape[2:]) if len(shape) > 2 else 1.0 for shape in shapes], dtype=float)
    weights, moved = nodes["weight_bytes"].to_numpy(), (nodes["bytes_read"] + nodes["bytes_written"]).to_numpy()
    dense, square = is_conv & (kind != "depthwise"), is_conv & (kind == "3x3")
    wide = is_conv & np.isin(kind, ("3x3", "large"))
    unfolded = nodes["flops"].to_numpy() / (2 * np.maximum(channels, 1)) * 4
    taps = np.where(kind == "large", 25.0, 9.0)
    tiles = np.ceil(positions / _FFT_OUTPUT) * _FFT_TILE / np.maximum(positions, 1)
    return {
        "layout": (weights * dense, moved * dense),
        "columns": (np.zeros(len(nodes)), unfolded * (dense & (kind != "1x1"))),
        "winograd": (_WINOGRAD_WEIGHTS * weights * square, _WINOGRAD * moved * square),
        "fourier": (2 * _FFT_TILE / taps * weights * wide, 2 * tiles * moved * wide),
    }
