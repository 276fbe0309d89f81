"""Scratch memory that the algorithms of a convolution on a GPU ask for.

Which algorithm cuDNN takes depends on its heuristics, or on a search; what each would need follows from the shapes.
These are the candidates, for a predictor to weigh.
"""

from __future__ import annotations

import numpy as np

from gpudemand._typing import BoolArray, FloatArray
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.operators.vocabulary import CONVOLUTION_KINDS

#: Tiles of 4 x 4 places hold 6 x 6 numbers each, and so do filters of 3 x 3.
_WINOGRAD = (6 / 4) ** 2
_WINOGRAD_WEIGHTS = 36 / 9
#: Complex numbers of a transformed tile for each of its places, and for each weight.
_TILE = 32 * 17


def conv_workspace(graph: OpGraph) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Bytes that each algorithm would need for each operator, as (fixed, for each sample).

    Parameters
    ----------
    graph : OpGraph
        The network.

    Returns
    -------
    dict of str to (ndarray, ndarray)
        Algorithm -> two arrays of shape (n_operators,); zero where it does not apply, and for all but convolutions.
        ``layout``: activations copied into the order that tensor cores read. ``columns``: the input unfolded into a
        matrix. ``winograd``: tiles of 4 x 4 places. ``fourier``: tiles of 32 x 32, weights transformed as well.

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
    is_conv = (nodes["type"] == "Conv").to_numpy()
    kind = nodes["kind"].to_numpy()
    channels = np.array([shape[1] if len(shape) > 1 else 1 for shape in nodes["output_shape"]], dtype=float)
    weights, moved = nodes["weight_bytes"].to_numpy(), (nodes["bytes_read"] + nodes["bytes_written"]).to_numpy()
    dense, square = is_conv & (kind != "depthwise"), is_conv & (kind == "3x3")
    unfolded = nodes["flops"].to_numpy() / (2 * np.maximum(channels, 1)) * 4
    places = np.array([np.prod(shape[2:]) if len(shape) > 2 else 1.0 for shape in nodes["output_shape"]], dtype=float)
    wide = is_conv & np.isin(kind, ("3x3", "large"))
    taps = np.where(kind == "large", 25.0, 9.0)
    tiles = np.ceil(places / 28**2) * _TILE / np.maximum(places, 1)
    return {
        "layout": (weights * dense, moved * dense),
        "columns": (np.zeros(len(nodes)), unfolded * (dense & (kind != "1x1"))),
        "winograd": (_WINOGRAD_WEIGHTS * weights * square, _WINOGRAD * moved * square),
        "fourier": (2 * _TILE / taps * weights * wide, 2 * tiles * moved * wide),
    }


#: Convolutions that cuDNN treats alike; ``stem`` reads the image.
_STEM = "stem"
CONVOLUTIONS = (_STEM, *CONVOLUTION_KINDS)
#: What the scratch memory of a convolution grows with: all that it moves, what it writes, its unfolded input.
EXTENTS = ("moved", "written", "unfolded")


def conv_extents(graph: OpGraph) -> dict[str, float]:
    """Return the largest extents of the convolutions of each kind, in bytes for each sample.

    Parameters
    ----------
    graph : OpGraph
        The network.

    Returns
    -------
    dict of str to float
        ``<kind>_<extent>`` for each of `CONVOLUTIONS` and `EXTENTS`; zero where a network has none of the kind.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> conv = Operator("Conv", "3x3", "", "conv2d", (1, 8, 4, 4), 18432.0, 576, 2304.0, 512.0, 512.0, 0.0)
    >>> extents = conv_extents(OpGraph.from_operators([conv], []))
    >>> extents["stem_moved"], extents["3x3_moved"]
    (1024.0, 0.0)
    """
    nodes = graph.nodes
    kinds = nodes["kind"].astype(object).to_numpy().copy()
    is_first = np.ones(len(nodes), dtype=bool)
    is_first[graph.edges[:, 1]] = False
    kinds[is_first] = _STEM
    is_conv = (nodes["type"] == "Conv").to_numpy(dtype=bool)
    written = nodes["bytes_written"].to_numpy()
    columns = (nodes["bytes_read"].to_numpy() + written, written, conv_workspace(graph)["columns"][1])
    return {
        f"{kind}_{extent}": _largest(values, is_conv & (kinds == kind))
        for kind in CONVOLUTIONS
        for extent, values in zip(EXTENTS, columns, strict=True)
    }


def _largest(values: FloatArray, where: BoolArray) -> float:
    return float(values[where].max(initial=0.0))
