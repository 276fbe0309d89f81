"""Seconds of a training step: compute, communication, pipeline bubble, recomputation and update, at the peaks."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.cost.large_models.activations import layer_activations
from gpudemand.cost.large_models.compute import compute_terms, matrix_peak
from gpudemand.cost.large_models.memory import parameter_bytes
from gpudemand.cost.large_models.run import TrainingRun
from gpudemand.cost.roofline.interconnect import all_to_all_seconds, ring_seconds

#: Coefficient -> prior mean (a multiple of the datasheet's bound), and standard deviation of its logarithm.
TIME_PRIORS = {
    "products": (1.2, 0.2),
    "peak exponent": (0.05, 0.5),
    "fp8 products": (1.3, 0.2),
    "expert products": (1.1, 0.2),
    "expert products, plain": (1.5, 0.5),
    "attention": (2.0, 0.3),
    "elementwise": (1.5, 0.4),
    "elementwise, fused": (1.0, 0.3),
    "dequantise": (2.0, 0.5),
    "dequantise, gptq": (1.5, 0.4),
    "launch": (1.0, 0.5),
    "adapters": (3.0, 0.4),
    "replica": (1.0, 0.4),
    "data": (1.3, 0.4),
    "bubble": (1.0, 0.2),
    "update": (1.5, 0.4),
    "host": (1.5, 0.5),
    "scale": (0.01, 0.7),
}
#: Bytes of a number in half precision.
_HALF = 2.0
#: Peak of a matrix unit to which `peak exponent` is relative: of the A100.
_REFERENCE = 312e12
#: Bytes a second of an optimizer in the memory of a host, a GPU: eight GPUs share some 200 GB/s.
_HOST = 25e9


def time_terms(run: TrainingRun) -> dict[str, float]:
    """Seconds of one micro-batch by kind of work, at the peaks of the datasheet, and of what happens once a step.

    Parameters
    ----------
    run : TrainingRun
        Without unknown options.

    Returns
    -------
    dict of str to float
        See `step_seconds`.
    """
    terms = compute_terms(run) | _communication(run) | _once(run)
    layout = run.layout
    bubble = (layout.pipeline - 1) / (layout.virtual_pipeline * (run.accumulate or 1))
    peak = matrix_peak(run, quantised=run.precision == "fp8")
    return terms | {
        "micro_batches": float(run.accumulate or 1),
        "bubble": bubble,
        "peak": math.log(peak / _REFERENCE),
        "fused": float(run.is_tuned or run.compiled),
        "fp8": float(run.precision == "fp8"),
        "plain_grouped": float(not (run.is_tuned or run.loops_over_experts)),
        "doublings": math.log2(run.n_gpus),
        "bound": terms["products"] + terms["experts"] + terms["head"] + terms["attention"],
    }


def step_seconds(terms: pd.DataFrame, coefficients: Mapping[str, float]) -> FloatArray:
    """Seconds of a step, by coefficients of the terms of `time_terms`.

    Kernels of a micro-batch follow one another, no faster than they are launched; gathering and reducing over data
    parallelism, and swapping activations with the host, overlap with them as far as they last; the pipeline fills and
    drains once a step.
    """
    column = {name: terms[name].to_numpy(dtype=float) for name in terms.columns}
    c, fused = coefficients, terms["fused"].to_numpy(dtype=float) > 0
    slower = np.exp(c["peak exponent"] * column["peak"]) * np.where(column["fp8"] > 0, c["fp8 products"], c["products"])
    # Grouped products of plain stacks are kernels of Triton or CUTLASS, not of cuBLAS.
    experts = np.where(column["plain_grouped"] > 0, c["expert products, plain"], c["expert products"])
    work = slower * (column["products"] + column["waves"] + experts * column["experts"])
    work = work + c["products"] * column["head"] + c["attention"] * column["attention"]
    work = work + np.where(fused, c["elementwise, fused"], c["elementwise"]) * column["elementwise"]
    work = work + c["adapters"] * column["adapters"]
    work = work + c["dequantise"] * column["dequantise"] + c["dequantise, gptq"] * column["dequantise, gptq"]
    # Routers tell the host how many tokens each expert has before it launches more.
    work = np.hypot(work, c["launch"] * column["launch"]) + c["launch"] * column["launch, routed"]
    work = work + c["replica"] * sum(column[name] for name in ("tensor", "context", "expert", "pipeline"))
    exposed = _exposed(c["data"] * column["gather"], work) + _exposed(c["host"] * column["swap"], work)
    work = work + exposed + c["host"] * column["host"]
    every = column["micro_batches"] * work * (1.0 + c["bubble"] * column["bubble"])
    last = _exposed(c["data"] * column["reduce"], 0.6 * work) + c["update"] * column["update"]
    return np.asarray((every + last + c["host"] * column["host_update"]) * (1.0 + c["scale"] * column["doublings"]))


def _exposed(communication: FloatArray, compute: FloatArray) -> FloatArray:
    """Seconds of communication that compute does not hide, smooth in both."""
    return communication**2 / np.maximum(communication + compute, 1e-12)


def _communication(run: TrainingRun) -> dict[str, float]:
    """Seconds of a micro-batch within a replica, and of gathering parameters that are sharded."""
    passes = 2.0 + (run.checkpointing == "full")
    found = [_within_replica(one, passes) for one in run.stacks]
    return {name: sum(terms[name] for terms in found) for name in found[0]} | _gathering(run, passes)


def _within_replica(run: TrainingRun, passes: float) -> dict[str, float]:
    """Seconds of a micro-batch of one stack."""
    model, layout, device = run.model, run.layout, run.device
    tokens = run.tokens_at_once
    layers, t = model.layers / layout.pipeline, layout.tensor
    hidden = _HALF * tokens * model.hidden
    reduce = ring_seconds(device, hidden, t)
    keys = 2.0 * _HALF * tokens * (model.kv_rank or model.kv_width / t)
    routed = all_to_all_seconds(device, hidden / t, layout.expert, model.active_experts)
    send = ring_seconds(device, hidden / t, 2, t * layout.context * (layout.data or 1), passes=1.0)
    return {
        "tensor": 2.0 * passes * layers * reduce,
        "context": passes * layers * ring_seconds(device, keys * layout.context, layout.context, t, passes=1.0),
        "expert": 2.0 * passes * model.sparse_layers / layout.pipeline * routed,
        "pipeline": 2.0 * layout.virtual_pipeline * send * (layout.pipeline > 1),
    }


def _gathering(run: TrainingRun, passes: float) -> dict[str, float]:
    """Seconds in which parameters are gathered and activations swapped with the host, in each micro-batch."""
    layout, device = run.layout, run.device
    kept = _HALF if run.is_mixed else 4.0
    weight = kept if run.adapter is None else run.adapter.bits / 8.0
    terms = {"gather": 0.0, "host": 0.0, "swap": 0.0}
    if layout.shards_parameters:
        each = passes * weight + kept * run.trained_share
        for parameters, size in zip(_local_parameters(run), _replicas(run), strict=True):
            size = min(size, int(device.node_gpus)) if layout.sharding == "hsdp" else size
            terms["gather"] += ring_seconds(device, each * parameters, size, layout.tensor, passes=1.0)
    if run.offload in ("parameters", "all"):
        terms["host"] = passes * weight * sum(_local_parameters(run)) / (layout.data or 1) / _host_link(run)
    if run.offload == "activations":
        terms["swap"] = 2.0 * layer_activations(run) / _host_link(run)
    return terms


def _local_parameters(run: TrainingRun) -> tuple[float, float]:
    """Parameters of a GPU, before data parallelism divides them: without the routed experts, and these."""
    model, layout = run.model, run.layout
    kinds = [(stack, sparse, count) for stack in model.stacks for sparse, count in stack.layer_kinds]
    experts = sum(count * stack.expert_parameters(sparse=sparse) for stack, sparse, count in kinds)
    split = layout.expert if layout.expert > 1 else layout.tensor
    return (model.n_parameters - experts) / layout.tensor / layout.pipeline, experts / split / layout.pipeline


def _replicas(run: TrainingRun) -> tuple[int, int]:
    """GPUs that hold the same parameters, of all but the experts and of these."""
    layout = run.layout
    size = (layout.data or 1) * layout.context
    return size, max(size * layout.tensor // layout.expert, 1) if layout.expert > 1 else size


def _host_link(run: TrainingRun) -> float:
    link = run.device.pcie_bandwidth / 2.0
    return 16e9 if math.isnan(link) else link


def _once(run: TrainingRun) -> dict[str, float]:
    """Seconds once a step: reducing gradients, gathering updated parameters, and the update."""
    layout, device = run.layout, run.device
    replicas = _replicas(run)
    trained = [amount * run.trained_share for amount in _local_parameters(run)]
    held = sum(amount / size for amount, size in zip(trained, replicas, strict=True))
    _, gradient, state = parameter_bytes(run)
    divided = sum(trained) if layout.sharding == "none" else held
    moved = 2.0 * state + gradient + 10.0
    terms = {"reduce": 0.0, "update": divided * moved / device.bandwidth, "host_update": 0.0}
    if not layout.shards_parameters:
        both = gradient + (_HALF if layout.sharding != "none" else gradient)
        for amount, size in zip(trained, replicas, strict=True):
            terms["reduce"] += ring_seconds(device, both * amount, size, layout.tensor, passes=1.0)
    elif layout.sharding == "hsdp":
        nodes = max(replicas[0] // int(device.node_gpus), 1)
        share = gradient * sum(trained) / min(replicas[0], device.node_gpus)
        terms["reduce"] = ring_seconds(device, share, nodes, int(device.node_gpus))
    if run.offload in ("optimizer", "all"):
        terms["host_update"] = divided * ((gradient + _HALF) / _host_link(run) + (2 * state + 12.0) / _HOST)
        terms["update"] = 0.0
    return terms
