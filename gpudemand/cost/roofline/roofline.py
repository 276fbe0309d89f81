"""Roofline terms of a training step: seconds of every kind of work at the peaks of a device.

Each operator call moves bytes, computes and is launched; the datasheet bounds the time of each. Nothing is fitted here:
`StepTimeModel` learns the ratio of real hardware to these bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudemand._typing import BoolArray, FloatArray
from gpudemand._validation import InputError, check_columns
from gpudemand.cost.graph.autocast import autocast_bytes
from gpudemand.cost.graph.cache import per_graph
from gpudemand.cost.graph.features import operator_classes
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.graph.structural_matrix import check_graphs
from gpudemand.cost.roofline.data_parallel import LAUNCH_S, parallel_terms

#: Prefix of the columns of `step_terms`.
WORK = "work:"
#: Columns that `step_terms` reads.
NEEDED = (
    *("batch_size", "precision", "layout", "mode", "optimizer_states", "n_gpus", "device_peak_tflops"),
    *("device_bandwidth_gb_s", "device_sms", "device_boost_clock_mhz", "device_interconnect_gb_s"),
)
#: Seconds of a step without any work.
_START_S = 1e-3
_CONVOLUTIONS = ("conv_1x1", "conv_3x3", "conv_large", "conv_grouped", "conv_depthwise", "conv_transpose")
_PRODUCTS = (*_CONVOLUTIONS, "gemm")
#: Upper bounds of the classes of few channels, where products run at lower speeds.
_NARROW = (24, 48, 96, 192)
#: Side of the output tile of a multiprocessor, and the multiple that channels are padded to.
_TILE, _PAD = 128, 32
#: Bytes that a multiprocessor loads or stores per cycle.
_BYTES_PER_CYCLE = 8.0
#: Boost clock in MHz of a device that states none.
_CLOCK_MHZ = 1500.0
_KERNEL_AREA = {"conv_3x3": 9.0, "conv_large": 25.0, "conv_grouped": 9.0}
#: Kinds finer than `OPERATOR_CLASSES` -> canonical types.
_SPLIT = {
    "group_norm": "GroupNormalization",
    "pointwise": "Pow Sqrt Exp Log Erf Sin Abs Max Where Cast",
    "global_pool": "GlobalAveragePool GlobalMaxPool",
    "gather": "Gather Scatter",
    "gate": "Sigmoid HardSigmoid Tanh Softplus",
}
SPLIT_KINDS = (*_SPLIT, "affine", "broadcast")
_KIND_OF = {name: kind for kind, names in _SPLIT.items() for name in names.split()}
_HALF = ("fp16", "bf16")


def step_terms(jobs: pd.DataFrame, graphs: Sequence[OpGraph]) -> pd.DataFrame:
    """Work of each job's training step by kind, in seconds at the peaks of its device.

    Parameters
    ----------
    jobs : DataFrame
        `NEEDED` columns, as `gpudemand.cost.features_from_jobs` makes them; ``mode`` is ``train`` or ``infer``.
    graphs : sequence of OpGraph
        The network of each row. Rows of the same network should share one object, which is analysed once.

    Returns
    -------
    DataFrame
        Index of `jobs`; columns ``work:<kind>:<term>``, seconds. Terms: ``bytes`` over bandwidth, ``issue`` (bytes over
        the load/store throughput of multiprocessors), ``flops`` over peak, ``launch``; of products also ``bytes<48``
        and ``flops<48`` (of few channels), ``pad`` (flops of padding), ``odd`` (flops of sizes not aligned to 8),
        ``waves`` (flops lost in the last wave of tiles), ``filters`` (gradients of depthwise filters), ``transpose``
        (bytes converted to channels last). ``work:back:...`` are the same amounts for training steps, zero otherwise.
        Further terms: ``weights``, ``cast``, ``slice``, ``update`` (of the parameters), ``start``, and those of
        `gpudemand.cost.roofline.data_parallel`.

    Raises
    ------
    InputError
        If a column is missing, or the numbers of graphs and jobs differ.

    References
    ----------
    Williams, Waterman, Patterson, "Roofline", Communications of the ACM 52, 2009.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "a", "linear", (1, 512), 524288.0, 262144, 1048576.0, 2048.0, 2048.0, 2048.0)
    >>> job = {"batch_size": 64, "precision": "fp32", "layout": "contiguous", "mode": "infer", "optimizer_states": 0,
    ...        "n_gpus": 1, "device_peak_tflops": 10.0, "device_bandwidth_gb_s": 500.0, "device_sms": 80,
    ...        "device_boost_clock_mhz": 1500.0, "device_interconnect_gb_s": 32.0}
    >>> terms = step_terms(pd.DataFrame([job]), [OpGraph.from_operators([dense], [])])
    >>> terms[["work:gemm:flops", "work:gemm:bytes"]].round(9).to_numpy().tolist()
    [[3.355e-06, 5.24e-07]]
    """
    jobs = check_columns(jobs, NEEDED, "jobs")
    if len(graphs) != len(jobs):
        raise InputError(f"graphs has {len(graphs)} networks for {len(jobs)} jobs; pass one for each row.")
    half = jobs["precision"].isin(_HALF).to_numpy()
    keys = pd.DataFrame({"graph": [id(graph) for graph in check_graphs(graphs)], "half": half})
    parts = []
    for (_, is_half), rows in keys.groupby(["graph", "half"], sort=False).indices.items():
        graph = graphs[rows[0]]
        parts.append(_terms(_calls(graph, bool(is_half)), graph, jobs.iloc[rows]).set_axis(rows))
    return pd.concat(parts).sort_index().fillna(0.0).set_axis(jobs.index)


def operator_kinds(nodes: pd.DataFrame) -> FloatArray:
    """Kinds of operators by their use of the hardware; finer than `gpudemand.cost.graph.features.operator_classes`.

    Element-wise operators are ``affine`` (with a parameter, whose gradient is a reduction), ``broadcast`` (one input is
    smaller than the other, as in squeeze-and-excitation), or ``elementwise``.
    """
    kinds = operator_classes(nodes).to_numpy(dtype=object)
    special = nodes["type"].map(_KIND_OF)
    kinds = np.where(special.notna(), special, kinds)
    plain = kinds == "elementwise"
    read, written = nodes["bytes_read"].to_numpy(dtype=float), nodes["bytes_written"].to_numpy(dtype=float)
    kinds[plain & (read > 1.0001 * written) & (read < 1.9 * written)] = "broadcast"
    kinds[plain & (nodes["weight_bytes"] > 0).to_numpy()] = "affine"
    return kinds


@per_graph
def _calls(graph: OpGraph, half: bool) -> pd.DataFrame:
    """Operator calls of a graph and what their time depends on; ``n`` equal calls are one row."""
    nodes, moved = graph.nodes, autocast_bytes(graph, half)
    kinds = operator_kinds(nodes)
    image = nodes["type"].isin(["Conv", "ConvTranspose"])
    sizes = [_sizes(shape, spatial) for shape, spatial in zip(nodes["output_shape"], image, strict=True)]
    outputs, channels = np.array(sizes, dtype=float).reshape(-1, 2).T
    inner = nodes["flops"].to_numpy() / 2.0 / np.maximum(outputs, 1.0)
    convolution = np.isin(kinds, _CONVOLUTIONS)
    calls = pd.DataFrame(
        {
            "kind": kinds,
            "flops": nodes["flops"].to_numpy(),
            "bytes": (moved["read"] + moved["written"]).to_numpy(),
            "weights": nodes["weight_bytes"].to_numpy(),
            "cast": moved["cast"].to_numpy(),
            # Slices are copied before they are convolved; other products read them in place.
            "slice": np.where(convolution, 2.0 * moved["sliced"], 0.0),
            "positions": outputs / np.maximum(channels, 1.0),
            "channels": channels,
            "inner": inner,
        }
    )
    return calls.groupby(list(calls.columns), as_index=False, sort=False).size().rename(columns={"size": "n"})


def _sizes(shape: tuple[int, ...], spatial: bool) -> tuple[float, float]:
    """Elements and channels of an output."""
    channels = shape[1] if spatial and len(shape) > 1 else shape[-1] if shape else 1
    return float(np.prod(shape, dtype=float)), float(channels)


def _terms(calls: pd.DataFrame, graph: OpGraph, jobs: pd.DataFrame) -> pd.DataFrame:
    batch = jobs["batch_size"].to_numpy(dtype=float)
    bandwidth, peak = (jobs[f"device_{name}"].to_numpy(dtype=float) for name in ("bandwidth_gb_s", "peak_tflops"))
    byte_s, flop_s = 1e-9 / bandwidth, 1e-12 / peak
    training = (jobs["mode"] == "train").to_numpy(dtype=float)
    columns: dict[str, FloatArray] = {}
    for kind, rows in calls.groupby("kind", sort=False):
        for term, amount in _kind_terms(str(kind), rows, jobs, batch * byte_s, batch * flop_s).items():
            columns[f"{WORK}{kind}:{term}"] = amount
    n = calls["n"].to_numpy(dtype=float)
    for term in ("cast", "slice"):
        columns[f"{WORK}{term}"] = float(n @ calls[term].to_numpy()) * batch * byte_s
    columns[f"{WORK}weights"] = float(n @ calls["weights"].to_numpy()) * byte_s
    back = {name.replace(WORK, f"{WORK}back:"): amount * training for name, amount in columns.items()}
    # Unknown states: the step was timed without the optimizer.
    passes = np.nan_to_num(3.0 + 2.0 * jobs["optimizer_states"].to_numpy(dtype=float))
    update = 4.0 * graph.n_trainable * passes * byte_s * training
    columns |= back | {f"{WORK}update": update, f"{WORK}start": np.full(len(jobs), _START_S)}
    gpu = sum(amount for name, amount in columns.items() if name.endswith((":bytes", ":flops")))
    columns |= {f"{WORK}{name}": amount for name, amount in parallel_terms(graph, jobs, np.asarray(gpu)).items()}
    return pd.DataFrame(columns)


def _kind_terms(
    kind: str, calls: pd.DataFrame, jobs: pd.DataFrame, byte_s: FloatArray, flop_s: FloatArray
) -> dict[str, FloatArray]:
    n = calls["n"].to_numpy(dtype=float)
    moved, flops = calls["bytes"].to_numpy() * n, calls["flops"].to_numpy() * n
    terms = {
        "bytes": moved.sum() * byte_s,
        "issue": moved.sum() * byte_s * _memory_to_issue_ratio(jobs),
        "launch": np.full(len(jobs), n.sum() * LAUNCH_S),
    }
    if flops.any():
        terms["flops"] = flops.sum() * flop_s
    if kind in _PRODUCTS:
        terms |= _shape_terms(kind, calls, moved, flops, byte_s, flop_s)
        terms["waves"] = _last_wave(calls, flops, jobs) * flop_s
    if kind == "conv_depthwise":
        terms["filters"] = _filter_gradients(calls, jobs, byte_s)
    if kind in _CONVOLUTIONS:
        converted = jobs["precision"].isin(_HALF) & (jobs["layout"] == "contiguous")
        terms["transpose"] = moved.sum() * byte_s * converted.to_numpy(dtype=float)
    return terms


def _filter_gradients(calls: pd.DataFrame, jobs: pd.DataFrame, byte_s: FloatArray) -> FloatArray:
    """Gradients of depthwise filters: each weight is a sum over all positions on a single multiprocessor."""
    multiprocessors = _multiprocessors(jobs)
    weights = (calls["channels"] * calls["inner"]).to_numpy()
    waves = np.ceil(weights[None, :] / (4.0 * multiprocessors[:, None]))
    positions = (4.0 * calls["positions"] * calls["n"]).to_numpy()
    return (waves @ positions) * multiprocessors * byte_s


def _memory_to_issue_ratio(jobs: pd.DataFrame) -> FloatArray:
    """Memory bandwidth over the load/store throughput of all multiprocessors."""
    clock = np.nan_to_num(jobs["device_boost_clock_mhz"].to_numpy(dtype=float), nan=_CLOCK_MHZ) * 1e6
    bandwidth = jobs["device_bandwidth_gb_s"].to_numpy(dtype=float) * 1e9
    return bandwidth / (_multiprocessors(jobs) * clock * _BYTES_PER_CYCLE)


def _multiprocessors(jobs: pd.DataFrame) -> FloatArray:
    return np.nan_to_num(jobs["device_sms"].to_numpy(dtype=float), nan=1.0)


def _shape_terms(
    kind: str, calls: pd.DataFrame, moved: FloatArray, flops: FloatArray, byte_s: FloatArray, flop_s: FloatArray
) -> dict[str, FloatArray]:
    channels, inner = calls["channels"].to_numpy(), calls["inner"].to_numpy()
    area = _KERNEL_AREA.get(kind, 1.0)
    width = np.minimum(channels, inner / area)
    terms: dict[str, FloatArray] = {}
    for low, high in zip((0, *_NARROW), _NARROW, strict=False):
        rows: BoolArray = (width > low) & (width <= high)
        terms[f"bytes<{high}"] = moved[rows].sum() * byte_s
        if kind != "conv_depthwise":
            terms[f"flops<{high}"] = flops[rows].sum() * flop_s
    if kind != "conv_depthwise":
        padded = _padded(channels) * _padded(np.ceil(inner / area / 8.0) * 8.0 * area)
        terms["pad"] = (flops * (padded / np.maximum(channels * inner, 1.0) - 1.0)).sum() * flop_s
        terms["odd"] = flops[(channels % 8 != 0) | (inner % 8 != 0)].sum() * flop_s
    return terms


def _padded(amount: FloatArray) -> FloatArray:
    return np.ceil(amount / _PAD) * _PAD


def _last_wave(calls: pd.DataFrame, flops: FloatArray, jobs: pd.DataFrame) -> FloatArray:
    """Operations lost on multiprocessors that idle in the last wave of tiles."""
    positions = np.outer(jobs["batch_size"].to_numpy(dtype=float), calls["positions"].to_numpy())
    tiles = np.ceil(positions / _TILE) * np.ceil(calls["channels"].to_numpy() / _TILE)
    waves = tiles / _multiprocessors(jobs)[:, None]
    return (np.ceil(waves) / waves - 1.0) @ flops
