"""Step time of a large model, term by term."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from gpudemand._array import FloatArray
from gpudemand.cost.job import TrainingRun
from gpudemand.cost.large_memory import Terms, layer_activations, layer_saved_bytes, parameter_bytes
from gpudemand.cost.roofline import LAUNCH_S, all_to_all_seconds, ring_seconds
from gpudemand.cost.transformer import Matrix

#: Bytes of a number in half precision.
_HALF = 2.0
#: Kernels of a layer, forward and backward: of stacks with fused ones, and as PyTorch dispatches a gated layer in
#: mixed precision; and those of an adapter (benchmarks/cost/llm_kernels.py counts the latter two).
_FUSED_KERNELS, _KERNELS, _ADAPTER_KERNELS = (18.0, 36.0), (50.0, 81.0), (8.0, 9.0)
#: Kernels of a router and grouped experts; of a router before a loop, and of each expert in it (same script); the
#: latter of fused stacks, which sort tokens first: two products and a gated activation.
_GROUPED, _LOOP, _EACH, _FUSED_EACH = (28.0, 37.0), (16.0, 14.0), (13.0, 23.0), (3.0, 5.0)
#: Of each expert in the grouped layers of Transformer Engine, whose products are kernels of cuBLAS, one an expert.
_PRODUCTS = (2.0, 4.0)
#: Share of a forward pass that PyTorch's selective checkpointing recomputes, which keeps every second product;
#: Megatron's recomputes attention and element-wise work only.
_SELECTIVE = 0.5
#: Bytes a weight of making its copy in half precision and reading it: in one kernel, and in the element-wise ones of
#: GPTQ, which shift to 4 bytes, mask in 1, subtract zeros and multiply by scales that they look up.
_DEQUANTISED = {"bitsandbytes": 4.5, "gptq": 23.0}
#: Bytes a weight of the norm of its sum with an adapter, as PEFT makes it: the adapter's product is written, scaled,
#: added to the weight, and read once more.
_DECOMPOSED = 14.0
#: FlashAttention-2 uses none of what is new since Ampere: 73 % of the peak of an A100 (Dao, arXiv:2307.08691), 35 % of
#: that of an H100 (Shah et al., arXiv:2407.08608).
_AFTER_AMPERE, _PLAIN_FLASH = ("Hopper", "Blackwell"), 0.73 / 0.35
#: Architecture -> share of the peak that large products reach, over that on an H100: an MI300X 668.4 of 1300 TFLOP/s,
#: an H100 794.5 of 989 (github.com/stas00/ml-engineering, compute/accelerator, measured by its mamf-finder, 2025).
_SUSTAINED = {"CDNA 3": (668.4 / 1300.0) / (794.5 / 989.0)}
#: Exponentials of a multiprocessor in a clock, of NVIDIA's since Volta: softmax takes one a score, whatever the width
#: of a head, and no longer hides behind products on newer matrix units (Shah et al., arXiv:2407.08608).
_EXPONENTIALS = 16.0


def compute_terms(run: TrainingRun) -> dict[str, float]:
    """Seconds by kind of kernel, of a run without unknown options, all stacks; see `step_seconds`."""
    share, head = _slowest_stage(run)
    found = [_stack_terms(one, share, head) for one in run.stacks]
    return {name: sum(terms[name] for terms in found) for name in found[0]}


def _stack_terms(run: TrainingRun, share: float, head: float) -> dict[str, float]:
    """Seconds by kind of kernel of one stack, of which the slowest stage has a share of the layers."""
    model, layout = run.model, run.layout
    tokens = run.tokens_at_once
    products, attention = _passes(run)
    each = products * tokens * share
    sizes = [(count, matrix) for sparse, count in model.layer_kinds for matrix in model.matrices(sparse=sparse)]
    dense = sum(2.0 * count * matrix.size * matrix.active for count, matrix in sizes if matrix.copies == 1)
    routed = sum(2.0 * count * matrix.size * matrix.active for count, matrix in sizes if matrix.copies > 1)
    # Without sequence parallelism each GPU sends all its tokens to the experts.
    sharing = layout.tensor if layout.sequence else layout.expert_tensor_degree
    peak, half = matrix_peak(run, quantised=run.is_quantised), matrix_peak(run)
    moved = products * tokens / layout.pipeline * _layer_bytes(run) / run.job.hardware.bandwidth
    return {
        "products": (each * dense + tokens * share * _remade(run)) / layout.tensor / peak,
        "experts": each * routed / sharing / peak,
        "head": (1.0 + _backward(run)) * tokens * head * model.head_flops / layout.tensor / half,
        **_attention(run, attention * tokens * share * model.layers / layout.tensor / half),
        "elementwise": moved + _weight_traffic(run) / run.job.hardware.bandwidth,
        "dequantise": _dequantised(run) / run.job.hardware.bandwidth,
        "launch": _kernels(run) / layout.pipeline * LAUNCH_S,
        "launch, routed": _routed_kernels(run) / layout.pipeline * LAUNCH_S,
        "narrow": each * routed / sharing / peak / max(model.expert_ffn, 1),
    }


def _remade(run: TrainingRun) -> float:
    """Operations of making queries, keys and values of a token anew, where selective checkpointing drops them.

    Queries that no rank compresses are made from what enters the layer.
    """
    if not (run.model.kv_rank and run.is_tuned and run.checkpointing == "selective"):
        return 0.0
    dropped = ("q_b_proj" if run.model.q_rank else "q_proj", "kv_b_proj")
    up = [one for one in run.model.matrices(sparse=False) if one.name in dropped]
    return 2.0 * run.model.layers * sum(matrix.size for matrix in up)


def matrix_peak(run: TrainingRun, *, quantised: bool = False) -> float:
    """Operations a second of matrix units: 8-bit ones of the linear layers, if the run has them."""
    device, precision = run.job.hardware, "bf16" if run.is_quantised and not quantised else run.job.precision
    # Cards before Ampere train in fp16 where newer ones use bf16.
    known = quantised or precision in device.precisions
    return _SUSTAINED.get(device.architecture, 1.0) * device.peak(precision if known else "fp16")


def _passes(run: TrainingRun) -> tuple[float, float]:
    """Forward passes that a step's products and its attention are worth; a frozen weight has no gradient."""
    recomputed = {"full": 1.0, "selective": 0.0 if run.is_tuned else _SELECTIVE}.get(str(run.checkpointing), 0.0)
    eager = 1.0 if run.checkpointing == "selective" and run.job.attention == "eager" else 0.0
    # Fused attention recomputes its scores in the backward pass.
    return 1.0 + _backward(run) + recomputed, 3.0 + 0.5 * (run.flash_version > 0) + recomputed + eager


def _backward(run: TrainingRun) -> float:
    """Forward passes that the products of a backward pass are worth."""
    return 2.0 if run.job.adapter is None else 1.0 + 2.0 * run.trained_share


def _slowest_stage(run: TrainingRun) -> tuple[float, float]:
    """Share of all layers in the stage that the others wait for, a fuller one or the last, and 1 if it has the head."""
    depth, stages = run.model.depth, run.layout.pipeline
    layers = sum(one.model.layer_flops(one.seq_len) * one.seq_len for one in run.stacks)
    head = run.model.head_flops * run.stacks[0].seq_len / (layers / depth)
    full, last = math.ceil(depth / stages), depth // stages
    return (full / depth, 0.0) if stages > 1 and full > last + head else (last / depth, 1.0)


def _multiprocessors(run: TrainingRun) -> float:
    return 0.0 if math.isnan(run.job.hardware.sms) else run.job.hardware.sms


def _attention(run: TrainingRun, seconds: float) -> dict[str, float]:
    """Seconds of attention, of its exponentials, and those of FlashAttention-1 again.

    `seconds`: of one operation of a token and layer.
    FlashAttention-1 has one multiprocessor for each head of a sample, and others idle where these are fewer.
    """
    found = seconds * _attention_flops(run)
    busy = (run.micro_batch or 1) * run.model.heads / run.layout.tensor
    idle = _multiprocessors(run) / (_multiprocessors(run) + busy) if run.flash_version == 1 else 0.0
    return {"attention": found, "attention, first": found * idle, "exponentials": found * _exponential_share(run)}


def _exponential_share(run: TrainingRun) -> float:
    """Seconds of the exponentials of fused attention over those of its products."""
    rate = _EXPONENTIALS * _multiprocessors(run) * run.job.hardware.boost_clock_mhz * 1e6
    if not (rate > 0 and run.flash_version and run.model.heads):
        return 0.0
    return matrix_peak(run) / rate / (2.0 * (run.model.query_width + run.model.value_width) / run.model.heads)


def _attention_flops(run: TrainingRun) -> float:
    """Operations of attention of a layer for one token: without a fused kernel those of the whole square."""
    model = run.model
    if run.flash_version:
        slower = run.job.hardware.architecture in _AFTER_AMPERE and run.flash_version < 3
        return model.attention_flops(run.seq_len) * (_PLAIN_FLASH if slower else 1.0)
    whole = 2.0 * (model.query_width + model.value_width) * run.seq_len * (1.0 + model.source_share)
    # Matrix units take rows of multiples of eight numbers.
    return whole * (1.0 if model.head_dim % 8 == 0 else matrix_peak(run) / run.job.hardware.peak("fp32"))


def _kernels(run: TrainingRun) -> float:
    """Kernels of a forward and a backward pass of all layers, and of another forward pass if layers are recomputed."""
    plain = np.array(_FUSED_KERNELS if run.is_fused else _KERNELS)
    total = 0.0
    for sparse, count in run.model.layer_kinds:
        matrices = run.model.matrices(sparse=sparse)
        adapters = sum(run.job.adapter.covers(matrix) for matrix in matrices) if run.job.adapter is not None else 0
        total += count * float(_kernel_passes(run) @ (plain + adapters * np.array(_ADAPTER_KERNELS)))
    return total


def _routed_kernels(run: TrainingRun) -> float:
    """Kernels of routers and experts, of the same passes."""
    each = np.array(_GROUPED)
    if run.loops_over_experts:
        each = np.array(_LOOP) + run.local_experts * np.array(_FUSED_EACH if run.is_tuned else _EACH)
    elif run.layout.expert_degree > 1:  # sorted by GPU, and on each by expert
        each = 2.0 * each
    if run.is_tuned and not run.loops_over_experts:
        each = each + run.local_experts * np.array(_PRODUCTS)
    return run.model.sparse_layers * float(_kernel_passes(run) @ each)


def _kernel_passes(run: TrainingRun) -> FloatArray:
    """Forward and backward passes."""
    return np.array([1.0 + (run.checkpointing == "full"), 1.0])


def _layer_bytes(run: TrainingRun) -> float:
    """Bytes that all layers and the loss read and write for one token, forward."""
    total = 0.0
    for sparse, count in run.model.layer_kinds:
        divided, rest = layer_saved_bytes(run, sparse=sparse, level=False)
        total += 2.0 * count * (divided / run.layout.tensor + rest / (run.layout.tensor if run.layout.sequence else 1))
    # A fused loss overwrites the logits instead of copying them. Where nothing is said of the loss, the coefficients,
    # which are fitted to such runs, hold what it saves.
    passes = 2.0 if run.job.cross_entropy in ("fused", "fused_linear") else 4.0
    return total + passes * _HALF * run.model.vocab / run.layout.tensor


def _weight_traffic(run: TrainingRun) -> float:
    """Bytes of weights and their gradients that each micro-batch reads and writes."""
    gradients = 3.0 if run.job.adapter is None else 0.0
    norms = _norm_traffic(run) / run.layout.tensor / run.layout.pipeline
    return _HALF * (_passes(run)[0] + gradients) * sum(_local_parameters(run)) + norms


def _norm_traffic(run: TrainingRun) -> float:
    """Bytes of making the norms of all decomposed weights (DoRA), in each forward pass."""
    if run.job.adapter is None or not run.job.adapter.dora:
        return 0.0
    return float(_kernel_passes(run)[0]) * _DECOMPOSED * run.job.adapter.covered_weights(run.model)


def _dequantised(run: TrainingRun) -> float:
    """Bytes of quantised weights, each time they are used."""
    if run.job.adapter is None or run.job.adapter.bits == 16:
        return 0.0
    model, each = run.model, _DEQUANTISED[run.job.adapter.quantizer]
    layers = model.n_parameters - model.embedding_parameters - model.head_parameters
    return _passes(run)[0] * each * layers / run.layout.tensor / run.layout.pipeline


#: Coefficient -> prior mean (a multiple of the datasheet's bound; of narrow experts, the width that doubles it), and
#: standard deviation of its logarithm.
TIME_PRIORS = {
    "products": (1.2, 0.2),
    "peak exponent": (0.05, 0.5),
    "fp4 products": (2.0, 0.3),
    "expert products": (1.1, 0.2),
    "expert products, plain": (1.5, 0.5),
    "narrow experts": (300.0, 0.5),
    "attention": (2.0, 0.3),
    "elementwise": (1.5, 0.4),
    "launch": (1.0, 0.5),
    "launch, grouped": (2.0, 0.5),
    "data": (1.5, 0.4),
    "data, fused": (1.1, 0.3),
    "bubble": (1.0, 0.2),
    "year, fused": (0.04, 0.7),
    "year, experts": (0.15, 0.7),
}
#: Peak of a matrix unit to which `peak exponent` is relative: of the A100.
_REFERENCE = 312e12
#: Year of the software, where nothing is said.
USUAL_YEAR = 2024.0
#: Newton-Schulz iterations of Muon (Jordan et al., kellerjordan.github.io/posts/muon, 2024).
_NEWTON_SCHULZ = 5.0
#: Bytes a second of an optimizer in the memory of a host, a GPU: eight GPUs share some 200 GB/s.
_HOST = 25e9


def time_terms(run: TrainingRun) -> dict[str, float]:
    """Seconds of one micro-batch by kind of work, at the peaks of the datasheet, and of what happens once a step."""
    terms = compute_terms(run) | _communication(run) | _once(run)
    layout = run.layout
    bubble = (layout.pipeline - 1) / (layout.virtual_degree * (run.accumulate or 1))
    peak = matrix_peak(run, quantised=run.is_quantised)
    return terms | {
        "micro_batches": float(run.accumulate or 1),
        "bubble": bubble,
        "peak": math.log(peak / _REFERENCE),
        "tuned": float(run.is_tuned),
        "years": (run.job.stack_year or USUAL_YEAR) - USUAL_YEAR,
        "fp4": float(run.job.precision == "fp4"),
        "plain_grouped": float(not (run.is_tuned or run.loops_over_experts)),
        "bound": terms["products"] + terms["experts"] + terms["head"] + terms["attention"],
    }


def step_seconds(terms: Terms, coefficients: Mapping[str, float]) -> FloatArray:
    """Seconds of a step, by coefficients of the terms of `time_terms`.

    Kernels of a micro-batch follow one another, no faster than they are launched; communication of data parallelism,
    and swapping activations with the host, overlap with them as far as they last; the pipeline fills and drains once a
    step. What has no coefficient takes the time of the datasheet: a fitted one predicts held-out projects no better.
    """
    column = {name: np.asarray(terms[name], dtype=float) for name in terms}
    c, tuned = coefficients, column["tuned"] > 0
    slower = np.where(column["fp4"] > 0, c["fp4 products"], c["products"]) * np.exp(c["peak exponent"] * column["peak"])
    # Grouped products of plain stacks are kernels of Triton or CUTLASS, not of cuBLAS.
    grouped = column["plain_grouped"] > 0
    experts = np.where(grouped, c["expert products, plain"], c["expert products"])
    routed = experts * (column["experts"] + c["narrow experts"] * column["narrow"])
    work = slower * (column["products"] + routed) + c["products"] * column["head"]
    work = work + c["attention"] * (column["attention"] + column["attention, first"]) + column["exponentials"]
    work = work + c["elementwise"] * column["elementwise"] + column["dequantise"]
    # Routers tell the host how many tokens each expert has before it launches more.
    launch = np.where(grouped, c["launch, grouped"], c["launch"])
    work = np.hypot(work, c["launch"] * column["launch"]) + launch * column["launch, routed"]
    # Since 2024 fused stacks send parts of a product while they compute others.
    hidden = tuned & (column["years"] >= 0)
    work = work + np.where(hidden, _exposed(column["tensor"], work), column["tensor"])
    work = work + column["expert"] + column["context"] + column["pipeline"]
    data = np.where(tuned, c["data, fused"], c["data"])
    work = work + _exposed(data * column["gather"], work) + _exposed(column["swap"], work) + column["host"]
    every = column["micro_batches"] * work * (1.0 + c["bubble"] * column["bubble"])
    last = _exposed(data * column["reduce"], work) + column["update"] + c["products"] * column["orthogonalise"]
    faster = np.where(column["experts"] > 0, c["year, experts"], c["year, fused"]) * tuned
    return np.asarray((every + last) * np.exp(-faster * column["years"]))


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
    model, layout, device = run.model, run.layout, run.job.hardware
    tokens = run.tokens_at_once
    layers, t = model.layers / layout.pipeline, layout.tensor
    hidden = _HALF * tokens * model.hidden
    reduce = ring_seconds(device, hidden, t)
    keys = 2.0 * _HALF * tokens * (model.kv_rank or model.kv_width / t)
    sent = _HALF * tokens * model.expert_width / t
    shared = layout.expert_tensor_degree if layout.expert_degree > 1 else 1
    groups = model.expert_groups, model.active_groups
    routed = all_to_all_seconds(device, sent, layout.expert_degree, model.active_experts, shared, groups)
    # What arrives is gathered among those that share an expert's matrices, and their sums are scattered.
    received = sent * model.active_experts * shared
    routed += ring_seconds(device, received, shared, passes=1.0)
    send = ring_seconds(device, hidden / t, 2, t * layout.context * (layout.data or 1), passes=1.0)
    return {
        "tensor": passes * _reduces(run) / layout.pipeline * reduce,
        "context": passes * layers * ring_seconds(device, keys * layout.context, layout.context, t, passes=1.0),
        "expert": 2.0 * passes * model.sparse_layers / layout.pipeline * routed,
        "pipeline": 2.0 * layout.virtual_degree * send * (layout.pipeline > 1),
    }


def _reduces(run: TrainingRun) -> float:
    """Sums over the GPUs of tensor parallelism in a pass of all layers: of attention, and of a feed-forward part.

    Routed experts that GPUs share take the tokens as they are divided.
    """
    model = run.model
    divided = model.sparse_layers if run.layout.expert_degree > 1 and not model.shared_ffn else 0
    return 2.0 * model.layers - divided


def _gathering(run: TrainingRun, passes: float) -> dict[str, float]:
    """Seconds in which parameters are gathered and activations swapped with the host, in each micro-batch."""
    layout, device = run.layout, run.job.hardware
    kept = _HALF if run.is_mixed else 4.0
    weight = _weight_bytes(run) if run.job.adapter is None else run.job.adapter.bits / 8.0
    terms = {"gather": 0.0, "host": 0.0, "swap": 0.0}
    if layout.shards_parameters:
        each = passes * weight + kept * run.trained_share
        for parameters, size in zip(_local_parameters(run), _replicas(run), strict=True):
            size = layout.shard_size(size, device.node_gpus)
            terms["gather"] += ring_seconds(device, each * parameters, size, layout.tensor, passes=1.0)
    if run.job.offload in ("parameters", "all"):
        terms["host"] = passes * weight * sum(_local_parameters(run)) / (layout.data or 1) / _host_link(run)
    if run.job.offload == "activations":
        terms["swap"] = 2.0 * layer_activations(run) / _host_link(run)
    return terms


def _weight_bytes(run: TrainingRun) -> float:
    """Bytes of a weight that is gathered: fused stacks gather those of products in 8 bits as such."""
    return 1.0 if run.is_quantised and run.is_tuned else _HALF if run.is_mixed else 4.0


def _local_parameters(run: TrainingRun) -> tuple[float, float]:
    """Parameters of a GPU, before data parallelism divides them: without the routed experts, and these."""
    model, layout = run.model, run.layout
    experts = model.routed_parameters
    dense = (model.n_parameters - experts) / layout.tensor
    return dense / layout.pipeline, experts / layout.expert_split / layout.pipeline


def _replicas(run: TrainingRun) -> tuple[int, int]:
    """GPUs that hold the same parameters, of all but the experts and of these."""
    return run.layout.replicas, run.layout.expert_replicas


def _host_link(run: TrainingRun) -> float:
    link = run.job.hardware.pcie_bandwidth / 2.0
    return 16e9 if math.isnan(link) else link


def _orthogonalising(run: TrainingRun) -> float:
    """Seconds of Muon's iterations, in half precision, once a step.

    Each GPU works on what it holds of the matrices of the layers, and on all of it unless the states are divided:
    then whole matrices are dealt out to the replicas, as Megatron's layer-wise optimizer does.
    """
    if run.optimizer != "muon":
        return 0.0
    layout, device = run.layout, run.job.hardware
    split, replicas = (layout.tensor, layout.expert_split), _replicas(run) if layout.divided else (1, 1)
    sizes = [
        (matrix.copies > 1, count * matrix.copies * _iterations(sides))
        for stack, sparse, count in run.model.all_layers
        for matrix in stack.matrices(sparse=sparse)
        for sides in _trained_sides(run, matrix)
    ]
    held = sum(flops / split[routed] / replicas[routed] for routed, flops in sizes) / layout.pipeline
    half = "bf16" if "bf16" in device.precisions else "fp16"
    return held / _SUSTAINED.get(device.architecture, 1.0) / device.peak(half)


def _trained_sides(run: TrainingRun, matrix: Matrix) -> list[tuple[int, int]]:
    """Sides of what is trained of a matrix: itself, or its adapter's two."""
    if run.job.adapter is None:
        return [(matrix.inputs, matrix.outputs)]
    rank = run.job.adapter.rank
    return [(matrix.inputs, rank), (rank, matrix.outputs)] if run.job.adapter.covers(matrix) else []


def _iterations(sides: tuple[int, int]) -> float:
    """Operations of the Newton-Schulz iterations of a matrix, three products each, all as wide as its short side."""
    short, long = sorted(sides)
    return _NEWTON_SCHULZ * (4.0 * short**2 * long + 2.0 * short**3)


def _once(run: TrainingRun) -> dict[str, float]:
    """Seconds once a step: reducing gradients and gathering updated parameters, and the update."""
    layout, device = run.layout, run.job.hardware
    replicas = _replicas(run)
    trained = [amount * run.trained_share for amount in _local_parameters(run)]
    held = sum(amount / size for amount, size in zip(trained, replicas, strict=True))
    _, gradient, state = parameter_bytes(run)
    divided = sum(trained) if layout.sharding == "none" else held
    moved = 2.0 * state + gradient + 10.0
    terms = {"reduce": 0.0, "update": divided * moved / device.bandwidth, "orthogonalise": _orthogonalising(run)}
    if not layout.shards_parameters:
        passes, weight = (2.0, 0.0) if layout.sharding == "none" else (1.0, _weight_bytes(run))
        for amount, size in zip(trained, replicas, strict=True):
            terms["reduce"] += ring_seconds(device, gradient * amount, size, layout.tensor, passes)
            terms["reduce"] += ring_seconds(device, weight * amount, size, layout.tensor, passes=1.0)
    elif layout.sharding == "hsdp":
        nodes = max(replicas[0] // int(device.node_gpus), 1)
        share = gradient * sum(trained) / min(replicas[0], device.node_gpus)
        terms["reduce"] = ring_seconds(device, share, nodes, int(device.node_gpus))
    if run.job.offload in ("optimizer", "all"):
        terms["update"] = divided * ((gradient + _HALF) / _host_link(run) + (2 * state + 12.0) / _HOST)
    return terms
