"""Step time at the peaks of a device, its parts, and data parallelism.

Each kernel moves bytes, computes and is launched; the datasheet bounds the time of each. Nothing is fitted here:
`StepTimeModel` learns the ratio of real hardware to these bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand._array import BoolArray, FloatArray
from gpudemand._validation import InputError, check_columns, check_length
from gpudemand.cost.graph import OpGraph, per_graph
from gpudemand.cost.graph_features import step_kernels, time_steps
from gpudemand.cost.host import LAUNCHES, STEP_LAUNCHES, TENSOR_LAUNCHES
from gpudemand.cost.operators import KINDS, MATRIX_KINDS

if TYPE_CHECKING:
    from gpudemand.datasets.devices import Device


#: GB/s between machines of unknown bandwidth: 10 Gbit Ethernet.
_NETWORK_GB_S = 1.25
#: GB/s of a link of unknown bandwidth: PCIe 4.0 x16.
_LINK_GB_S = 32.0
#: Bytes of gradients that PyTorch's DistributedDataParallel reduces together (``bucket_cap_mb``).
_BUCKET_BYTES = 25 * 2**20
#: Share of the step, at the peaks, behind which reduction hides: eight GPUs are predicted alike with 0.1 to 0.5.
_HIDING = 0.25
#: Share of the step by which the slowest GPU is later, per doubling, before its coefficient.
_STRAGGLE = 0.01
#: Columns of `parallel_terms`.
PARALLEL_TERMS = ("allreduce", "network", "messages", "straggle")
#: Seconds from one kernel launch to the next when nothing else takes time.
LAUNCH_S = 1e-5


def parallel_terms(graph: OpGraph, jobs: pd.DataFrame, compute: FloatArray) -> dict[str, FloatArray]:
    """Seconds that data parallelism adds at the peaks of the links; zero on one GPU.

    In a ring all-reduce each GPU sends and receives ``2 (n - 1) / n`` times the gradients; between machines, over the
    network. Gradients are reduced in buckets while the backward pass goes on; the last one has nothing to hide behind.

    `graph`: the network. `jobs`: ``n_gpus``, ``device_interconnect_gb_s`` and, with several machines, ``n_nodes``
    and, where it is known, ``network_gb_s`` between them. `compute`: shape (n_jobs,); seconds of the rest of the step
    at the peaks, behind which reduction hides and with which stragglers scale. Returns ``allreduce``, ``network``
    (what the backward pass does not hide), ``messages`` (a launch per layer and doubling of GPUs), ``straggle`` (of
    the slowest GPU, per doubling).

    Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69, 2009.
    Li et al., "PyTorch Distributed: experiences on accelerating data parallel training", VLDB 13(12), 2020.
    """
    gpus = jobs["n_gpus"].to_numpy(dtype=float)
    nodes = jobs["n_nodes"].to_numpy(dtype=float) if "n_nodes" in jobs.columns else np.ones(len(jobs))
    link = np.nan_to_num(jobs["device_interconnect_gb_s"].to_numpy(dtype=float), nan=_LINK_GB_S) * 1e9 / 2.0
    between = 1e9 * (jobs["network_gb_s"].to_numpy(dtype=float) if "network_gb_s" in jobs.columns else _NETWORK_GB_S)
    gradients = graph.parameter_width * (graph.n_trainable - graph.n_sparse)
    doublings = np.log2(np.maximum(gpus, 1.0))
    allreduce, network = gradients * _ring(gpus) / link, gradients * _ring(nodes) / between
    exposed = _exposed(allreduce + network, gradients, compute)
    messages, straggle = LAUNCH_S * graph.n_layers * doublings, _STRAGGLE * compute * doublings
    return dict(zip(PARALLEL_TERMS, (exposed * allreduce, exposed * network, messages, straggle), strict=True))


def _exposed(reduction: FloatArray, gradients: float, compute: FloatArray) -> FloatArray:
    """Share of the reduction that the backward pass does not hide: at least that of the last bucket."""
    last = min(1.0, _BUCKET_BYTES / gradients) if gradients else 1.0
    return np.maximum(last, 1.0 - _HIDING * compute / np.where(reduction > 0, reduction, np.inf))


def _ring(members: FloatArray) -> FloatArray:
    return 2.0 * (members - 1.0) / np.maximum(members, 1.0)


#: Prefix of the columns of `step_terms`.
WORK = "work:"
#: Column of the optimizer's update of the parameters.
UPDATE = f"{WORK}update"
#: Columns of `step_terms`; a table has those of the kinds that occur in it.
WORK_TERMS = tuple(
    f"{WORK}{name}"
    for name in (
        *(f"{kind}:{term}" for kind in KINDS for term in ("bytes", "flops", "launch")),
        *(f"{kind}:tiles" for kind in MATRIX_KINDS),
        *("conv_depthwise:filters", "batch_norm:channels", "layout", "update", "start", *PARALLEL_TERMS),
    )
)
#: Columns that `step_terms` reads.
STEP_COLUMNS = (
    *("batch_size", "precision", "layout", "mode", "optimizer_states", "n_gpus", "device_peak_tflops"),
    *("device_fp32_tflops", "device_bandwidth_gb_s", "device_l2_mib", "device_sms", "device_interconnect_gb_s"),
)
#: Column of `step_terms` with the least time that physics allows, in seconds.
LOWER_BOUND = "lower_bound_s"
#: Multiplications that minimal filtering of 3x3 kernels saves (Winograd; Lavin and Gray, CVPR 2016). cuDNN has it in
#: single precision for images and without dilation only (NVIDIA, "cuDNN API Reference", convolution algorithms).
_WINOGRAD = 2.25
#: Reads and writes of a tensor of parameters in an update, by state tensors: PyTorch's own optimizers make a pass over
#: all tensors for each of their operations (``torch.optim``, ``foreach=True``), compiled ones a single pass.
_PASSES = {0: 3.0, 1: 8.0, 2: 18.0}
#: Seconds of a step without any work.
_START_S = 1e-3
#: Side of the tiles that products in matrix units are cut into: of cuBLAS and CUTLASS the most used (NVIDIA, "Matrix
#: Multiplication Background User's Guide").
_TILE = 128
#: Share of the peak of matrix units that fused attention sustains: 0.5 to 0.73 on A100s (Dao, "FlashAttention-2", ICLR
#: 2024), 0.35 to 0.4 on H100s (Shah et al., "FlashAttention-3", 2024), where large products reach 0.8 to 0.9.
_ATTENTION_SHARE = 0.5
#: Share of the peak of single precision that depthwise convolutions with wide filters sustain (an RTX 2080 Ti, 13x13 to
#: 31x31: Ding et al., "Scaling Up Your Kernels to 31x31", CVPR 2022, table 1), and the longest side of the filters of
#: the networks that coefficients are fitted on.
_WIDE_SHARE, _WIDEST = 0.12, 11
#: Cache of a device that does not say how much it has: that of most GPUs from 2017 to 2021.
_USUAL_L2_MIB = 6.0
_HALF = ("fp16", "bf16")
#: Precisions whose convolutions run in matrix units, which take batches in channels last.
_TENSOR_CORES = (*_HALF, "tf32")


def step_terms(jobs: pd.DataFrame, graphs: Sequence[OpGraph]) -> pd.DataFrame:
    """Work of each job's step by kind, in seconds at the peaks of its device.

    `jobs`: `STEP_COLUMNS`, as `gpudemand.cost.features_from_jobs` makes them; ``mode`` is ``train`` or ``infer``.
    ``checkpointing`` (0 or 1) is optional. `graphs`: the network of each row. Rows of the same network should share
    one object, which is analysed once. Returns index of `jobs`; columns ``work:<kind>:<term>``, seconds. Terms:
    ``bytes`` over bandwidth, without those read from the cache; ``flops`` over the peak of matrix units (of fused
    attention, the share that it sustains), of depthwise convolutions over that of single precision; ``tiles``, flops
    of products padded to tiles; ``launch``; ``filters``, gradients of depthwise filters; ``channels``, statistics of
    batch norms. Further columns: ``layout`` (bytes of convolutions converted to channels last), ``update`` (of the
    parameters), ``start``, and those of `gpudemand.cost.roofline`. `LOWER_BOUND`, not a term, is the time at the peaks
    with perfect overlap: operations over peak, or bytes of the parameters over bandwidth, whichever is longer. Training
    includes the backward pass, checkpointing a second forward pass.

    Williams, Waterman, Patterson, "Roofline", Communications of the ACM 52, 2009.
    """
    jobs = check_columns(jobs, STEP_COLUMNS, "jobs")
    check_length("graphs", graphs, len(jobs))
    keys = pd.DataFrame({"graph": [id(graph) for graph in graphs], "half": jobs["precision"].isin(_HALF).to_numpy()})
    parts = [
        _terms(graphs[rows[0]], bool(half), jobs.iloc[rows]).set_axis(rows)
        for (_, half), rows in keys.groupby(["graph", "half"], sort=False).indices.items()
    ]
    return pd.concat(parts).sort_index().fillna(0.0).set_axis(jobs.index)


def _terms(graph: OpGraph, half: bool, jobs: pd.DataFrame) -> pd.DataFrame:
    training = (jobs["mode"] == "train").to_numpy(dtype=float)
    recomputed = jobs["checkpointing"].to_numpy(dtype=float) if "checkpointing" in jobs.columns else 0.0
    passes = {False: 1.0 + training * recomputed, True: training}
    columns: dict[str, FloatArray] = {}
    moved = _moved(graph, half, jobs)
    for (kind, backward, is_double), amounts in _totals(graph, half).iterrows():
        own = moved[kind, backward, is_double]
        for term, seconds in _kind_terms(kind, is_double, amounts, own, jobs).items():
            name = f"{WORK}{kind}:{term}"
            columns[name] = columns.get(name, 0.0) + passes[backward] * seconds
    columns |= _depthwise_terms(graph, jobs, training)
    columns |= _layout_terms(columns, jobs)
    columns |= _channel_terms(graph, jobs, training)
    columns[LOWER_BOUND] = _lower_bound(graph, half, jobs, passes)
    compute = sum(seconds for name, seconds in columns.items() if name.endswith((":bytes", ":flops")))
    byte_s = 1e-9 / jobs["device_bandwidth_gb_s"].to_numpy(dtype=float)
    on_gpu, states = _on_gpu(jobs), jobs["optimizer_states"].astype(float)
    copies = np.where(_eager(jobs) & on_gpu, states.map(_PASSES), 3.0 + 2.0 * states)
    # Unknown states: the step was timed without the optimizer.
    copies = np.nan_to_num(copies)
    columns[UPDATE] = graph.parameter_width * (graph.n_trainable - graph.n_sparse) * copies * byte_s * training
    columns[f"{WORK}start"] = np.where(on_gpu, 0.0, _START_S)
    columns[LAUNCHES] = _launches(graph, half, jobs, passes) * on_gpu
    parallel = parallel_terms(graph, jobs, np.asarray(compute + np.zeros(len(jobs))))
    return pd.DataFrame(columns | {f"{WORK}{name}": seconds for name, seconds in parallel.items()})


def _launches(graph: OpGraph, half: bool, jobs: pd.DataFrame, passes: dict[bool, Any]) -> FloatArray:
    """Launches of an eager step in PyTorch; others are compiled, and their launches are part of the work."""
    calls = _totals(graph, half)["launches"]
    kernels = sum(passes[backward] * calls.xs(backward, level=1).sum() for backward in calls.index.unique(1))
    training = passes[True] * (STEP_LAUNCHES + TENSOR_LAUNCHES * graph.n_tensors)
    return np.asarray(_eager(jobs) * (kernels + training), dtype=float)


def _eager(jobs: pd.DataFrame) -> BoolArray:
    known = [jobs[name] == value for name, value in (("framework", "torch"), ("execution", "eager")) if name in jobs]
    return np.logical_and.reduce([np.ones(len(jobs), dtype=bool), *known])


def _on_gpu(jobs: pd.DataFrame) -> BoolArray:
    return (jobs["device"] != "cpu").to_numpy() if "device" in jobs.columns else np.ones(len(jobs), dtype=bool)


@per_graph
def _totals(graph: OpGraph, half: bool) -> pd.DataFrame:
    """Amounts by kind, pass and whether in double precision: per sample, and fixed."""
    rows = _active(graph, half)
    tiles = np.ceil(rows[["channels", "inner"]] / _TILE).prod(axis=1) * _TILE**2
    used = (rows["channels"] * rows["inner"]).where(rows["kind"].isin(MATRIX_KINDS), 0.0)
    is_direct = rows["is_direct"].astype(bool) | rows["is_double"].astype(bool)
    padding = (tiles / used.where(used > 0)).fillna(0.0)
    amounts = pd.DataFrame(
        {
            "flops": rows["flops"],
            "slow": rows["flops"] * _slowdown(rows),
            "direct": rows["flops"].where((rows["kind"] == "conv_3x3") & is_direct, 0.0),
            "transformed": rows["flops"] * _transform_savings(rows),
            "fixed_flops": rows["fixed_flops"],
            "tiles": rows["flops"] * padding,
            "fixed_tiles": rows["fixed_flops"] * padding,
            "fixed_bytes": rows["fixed_half_bytes" if half else "fixed_bytes"],
            "calls": 1.0,
            "launches": _share_launched(graph, rows),
        }
    )
    weighted = amounts.mul(rows["calls"], axis=0)
    return weighted.groupby(_groups(rows)).sum()


def _groups(rows: pd.DataFrame) -> list[pd.Series]:
    """Kind of each kernel, whether it is one of the backward pass, and whether it is in double precision."""
    return [rows["kind"].astype(object), rows["backward"].astype(bool), rows["is_double"].astype(bool)]


def _share_launched(graph: OpGraph, rows: pd.DataFrame) -> FloatArray:
    """Launches for each recorded call: libraries run all time steps of a recurrent layer at once (cuDNN)."""
    steps = max(time_steps(graph), default=1.0)
    return np.where((steps > 1.0) & (rows["calls"] >= steps), 1.0 / steps, 1.0)


def _slowdown(rows: pd.DataFrame) -> FloatArray:
    """Time beyond that at the peak, as a multiple of it, of depthwise convolutions with wide filters.

    Of the backward pass that of the gradient of the input; the filters' has a term of its own.
    """
    is_wide = (rows["kind"] == "conv_depthwise") & (rows["width"] > _WIDEST)
    passes = np.where(rows["backward"].astype(bool), 0.5, 1.0)
    return np.asarray(is_wide * passes * (1.0 / _WIDE_SHARE - 1.0), dtype=float)


def _transform_savings(rows: pd.DataFrame) -> FloatArray:
    """Share of the operations of convolutions with wide filters that Fourier transforms save at most.

    A product of spectra takes four operations a position and pair of channels, a filter two for each of its weights
    (Mathieu, Henaff, LeCun, "Fast training of convolutional networks through FFTs", ICLR 2014).
    """
    taps = rows["weights"] / (rows["channels"] * rows["inner"]).clip(lower=1)
    return np.where(rows["kind"] == "conv_large", 1.0 - 2.0 / np.maximum(taps, 2.0), 0.0)


def _active(graph: OpGraph, half: bool) -> pd.DataFrame:
    """Kernels that run in a precision: casts of autocast only in half precision."""
    rows = step_kernels(graph)
    return rows if half else rows[~rows["is_autocast"].astype(bool)]


def _moved(graph: OpGraph, half: bool, jobs: pd.DataFrame) -> dict[tuple[str, bool, bool], FloatArray]:
    """Bytes between memory and the kernels of each kind and pass, without those that are in the cache.

    A kernel reads what the one before wrote. Half of its bytes are read, and half of the cache keeps them.
    """
    rows, precision = _active(graph, half), "half_bytes" if half else "bytes"
    cache = jobs["device_l2_mib"].astype(float).fillna(_USUAL_L2_MIB) * 2**20
    cases, which = np.unique(np.column_stack([jobs["batch_size"], cache]), axis=0, return_inverse=True)
    amounts = cases[:, :1] * rows[precision].to_numpy() + rows[f"fixed_{precision}"].to_numpy()
    moved = (amounts - np.minimum(amounts, cases[:, 1:]) / 2.0) * rows["calls"].to_numpy()
    groups = rows.groupby(_groups(rows)).indices
    return {key: moved[:, places].sum(axis=1)[which.ravel()] for key, places in groups.items()}


def _kind_terms(
    kind: str, is_double: bool, amounts: pd.Series, moved: FloatArray, jobs: pd.DataFrame
) -> dict[str, FloatArray]:
    peak = _double_peak(jobs) if is_double else _peak(kind, jobs)
    batch = jobs["batch_size"].to_numpy(dtype=float)
    byte_s = 1e-9 / jobs["device_bandwidth_gb_s"].to_numpy(dtype=float)
    terms = {
        "bytes": moved * byte_s,
        # Time steps of a recurrent layer wait for one another even where a library launches them at once.
        "launch": LAUNCH_S * np.full(len(jobs), amounts["calls"]),
    }
    for name in ("flops", "tiles"):
        if amounts[name] or amounts[f"fixed_{name}"]:
            slow = amounts["slow"] + _unfiltered(jobs) * amounts["direct"] if name == "flops" else 0.0
            terms[name] = (batch * (amounts[name] + slow) + amounts[f"fixed_{name}"]) * 1e-12 / peak
    return terms


def _unfiltered(jobs: pd.DataFrame) -> FloatArray:
    """What 3x3 convolutions take longer without minimal filtering, as a multiple of their time with it."""
    return (_WINOGRAD - 1.0) * ((jobs["precision"] == "fp32").to_numpy() & _on_gpu(jobs))


def _lower_bound(graph: OpGraph, half: bool, jobs: pd.DataFrame, passes: dict[bool, Any]) -> FloatArray:
    """Seconds of all operations at the peak, or of the parameters' traffic, whichever is longer."""
    batch = jobs["batch_size"].to_numpy(dtype=float)
    byte_s = 1e-9 / jobs["device_bandwidth_gb_s"].to_numpy(dtype=float)
    flop_s = 1e-12 / np.fmax(jobs["device_peak_tflops"], jobs["device_fp32_tflops"]).to_numpy(dtype=float)
    compute = moved = np.zeros(len(jobs))
    for (kind, backward, is_double), amounts in _totals(graph, half).iterrows():
        saved = 1.0 - 1.0 / _WINOGRAD if kind == "conv_3x3" else 0.0
        # On whichever units are fastest: libraries run some grouped convolutions in matrix units.
        transformed = np.where(jobs["precision"] == "fp32", amounts["transformed"], 0.0)  # cuDNN has no others
        flops = batch * (amounts["flops"] - saved * (amounts["flops"] - amounts["direct"]) - transformed)
        flops = flops + (1.0 - saved) * amounts["fixed_flops"]
        compute = compute + passes[backward] * flops * (1e-12 / _double_peak(jobs) if is_double else flop_s)
        if kind in MATRIX_KINDS:
            moved = moved + passes[backward] * amounts["fixed_bytes"] * byte_s
    return np.maximum(compute, moved)


def _double_peak(jobs: pd.DataFrame) -> FloatArray:
    """TFLOP/s in double precision, of whichever units are fastest."""
    peak = jobs["device_fp64_tflops"].to_numpy(dtype=float) if "device_fp64_tflops" in jobs else np.array([math.nan])
    if np.isnan(peak).any():
        raise InputError(
            "the network computes in double precision, and the peak of a device in it is not known; give the Device "
            "its fp64_tflops, or convert the network to single precision."
        )
    return peak


def _peak(kind: str, jobs: pd.DataFrame) -> FloatArray:
    """TFLOP/s of the units that a kind of kernel runs on."""
    peak = jobs["device_peak_tflops"].to_numpy(dtype=float)
    if kind in MATRIX_KINDS:
        return peak * _ATTENTION_SHARE if kind == "attention" else peak
    single = jobs["device_fp32_tflops"].to_numpy(dtype=float)
    return np.where(np.isfinite(single), single, peak)


def _depthwise_terms(graph: OpGraph, jobs: pd.DataFrame, training: FloatArray) -> dict[str, FloatArray]:
    """Gradients of depthwise filters: each weight is a sum over all positions on a single multiprocessor."""
    rows = step_kernels(graph)
    rows = rows[(rows["kind"] == "conv_depthwise") & rows["backward"].astype(bool) & (rows["weights"] > 0)]
    if rows.empty:
        return {}
    multiprocessors = np.nan_to_num(jobs["device_sms"].to_numpy(dtype=float), nan=1.0)
    weights = rows["weights"].to_numpy(dtype=float)
    # Operations of both gradients, two a weight and position each.
    positions = (rows["flops"] * rows["calls"]).to_numpy() / (4.0 * weights)
    waves = np.ceil(weights[None, :] / (4.0 * multiprocessors[:, None]))
    byte_s = 1e-9 / jobs["device_bandwidth_gb_s"].to_numpy(dtype=float)
    batch = jobs["batch_size"].to_numpy(dtype=float)
    return {f"{WORK}conv_depthwise:filters": (waves @ (4.0 * positions)) * multiprocessors * batch * byte_s * training}


def _layout_terms(columns: dict[str, FloatArray], jobs: pd.DataFrame) -> dict[str, FloatArray]:
    """Bytes of convolutions in matrix units that are converted from the contiguous layout to channels last."""
    moved = [seconds for name, seconds in columns.items() if ":conv_" in name and name.endswith(":bytes")]
    converted = (jobs["precision"].isin(_TENSOR_CORES) & (jobs["layout"] == "contiguous")).to_numpy(dtype=float)
    return {f"{WORK}layout": np.sum(moved, axis=0) * converted} if moved else {}


def _channel_terms(graph: OpGraph, jobs: pd.DataFrame, training: FloatArray) -> dict[str, FloatArray]:
    """Statistics of batch norms in training: in the contiguous layout a single multiprocessor sums up each channel.

    With fewer channels than multiprocessors the others are idle. Sums are in single precision.
    """
    is_norm = (graph.nodes["type"] == "BatchNormalization").to_numpy()
    if not is_norm.any():
        return {}
    channels, shapes = graph.channels[is_norm], graph.nodes["output_shape"][is_norm]
    positions = np.array([math.prod(shape[1:]) for shape in shapes], dtype=float) / channels
    multiprocessors = np.nan_to_num(jobs["device_sms"].to_numpy(dtype=float), nan=1.0)
    elements = np.maximum(channels, multiprocessors[:, None]) @ positions * jobs["batch_size"].to_numpy(dtype=float)
    byte_s = 1e-9 / jobs["device_bandwidth_gb_s"].to_numpy(dtype=float)
    contiguous = (_on_gpu(jobs) & (jobs["layout"] == "contiguous")).to_numpy(dtype=float)
    return {f"{WORK}batch_norm:channels": 4.0 * elements * byte_s * training * contiguous}


#: Bytes a second of a link of unknown bandwidth, a direction: sixteen lanes of PCIe 4.0.
_LINK = 32e9
#: Seconds of a message, by NCCL's own figures: between kernels within a node, and over the network.
_LATENCY = (1e-5, 3e-5)


def group_bandwidth(device: Device, size: int, stride: int = 1) -> float:
    """Bytes a second, a GPU and direction, of a ring among `size` GPUs, every `stride`-th of the cluster.

    Between machines the GPUs of one machine in the group share the traffic, each with its own network card.

    >>> from gpudemand.datasets.devices import device
    >>> [round(group_bandwidth(device("H100"), size, 8 // size) / 1e9) for size in (2, 8)]
    [450, 450]
    >>> round(group_bandwidth(device("H100"), 16) / 1e9), round(group_bandwidth(device("H100"), 16, 8) / 1e9)
    (400, 50)
    """
    # A bridge joins pairs, and not every card has one.
    link = (device.pcie_bandwidth if device.interconnect == "nvlink bridge" else device.interconnect_bandwidth) / 2.0
    link = _LINK if math.isnan(link) or link <= 0 else link
    node = int(device.node_gpus)
    if size * stride <= node:
        return link
    neighbours = max(node // stride, 1)
    return min(link, neighbours * device.network_bandwidth)


def ring_seconds(device: Device, n_bytes: float, size: int, stride: int = 1, passes: float = 2.0) -> float:
    """Seconds of a ring: an all-reduce passes the data twice, an all-gather or reduce-scatter once."""
    if size <= 1:
        return 0.0
    latency = _LATENCY[int(size * stride > device.node_gpus)] * math.log2(size)
    return passes * (n_bytes * (size - 1) / size / group_bandwidth(device, size, stride) + latency)


def all_to_all_seconds(
    device: Device, n_bytes: float, size: int, copies: int, stride: int = 1, groups: tuple[int, int] = (0, 0)
) -> float:
    """Seconds in which each of `size` GPUs, every `stride`-th, sends its tokens to others that it draws, once to each.

    `copies`: draws of each token; those that fall on the same GPU, or on the same machine, are sent once. `groups`: how
    many the GPUs are divided into, and in how many of them the draws of a token may be; 0 for any.
    """
    if size <= 1:
        return 0.0
    node = min(max(int(device.node_gpus) // stride, 1), size)
    nodes = max(size // node, 1)
    latency = _LATENCY[int(nodes > 1)] * math.log2(size)
    places = _drawn(min(node, _within_reach(size, *groups)), copies), _drawn(_within_reach(nodes, *groups), copies)
    within = places[0] * (node - 1) / node / group_bandwidth(device, node, stride)
    return n_bytes * (within + places[1] * (nodes - 1) / nodes / device.network_bandwidth) + latency


def _within_reach(places: int, groups: int, active: int) -> float:
    """Most of some equal places that can be drawn of as many groups as are active; a place may hold several groups."""
    return min(places, active * max(places / groups, 1.0)) if groups > active > 0 else places


def _drawn(places: float, draws: int) -> float:
    """Mean number of different places that so many draws fall on."""
    return places * (1.0 - (1.0 - 1.0 / places) ** draws)
