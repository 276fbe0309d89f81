"""Memory of a large model on each GPU, term by term."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from gpudemand._array import FloatArray
from gpudemand.cost.graph_features import OPTIMIZERS
from gpudemand.cost.job import TrainingRun
from gpudemand.cost.parallel import Parallel
from gpudemand.cost.transformer import Transformer
from gpudemand.units import GIB

#: Terms of one run, a mapping, or of many, a table with a row each.
Terms: TypeAlias = Any
#: Bytes of a number in activations, and in single precision.
_HALF, _SINGLE = 2.0, 4.0
#: Bytes of an element of the scores of unfused attention while a layer is recomputed, beyond those saved; stacks with
#: fused softmax need none.
_SCORES = 6.0
#: Layers whose activations are on the GPU while the others wait in the memory of the host: one in use, one on its way.
_OFFLOADED_LAYERS = 2


def stage_layers(run: TrainingRun) -> int:
    """Layers of the fullest stage."""
    return math.ceil(run.model.depth / run.layout.pipeline)


def layer_saved_bytes(run: TrainingRun, *, sparse: bool, level: bool | str) -> tuple[float, float]:
    """Bytes that a layer saves for one token and its backward pass: what tensor parallelism divides, and the rest."""
    model, heads = run.model, run.model.heads
    attended = run.seq_len * (1.0 + model.source_share)
    scores = 5.0 * heads * attended if run.job.attention == "eager" and not model.mixer else _SINGLE * heads
    if level == "full":
        return 0.0, _HALF * model.hidden
    if level == "selective" and not run.is_tuned:
        return _HALF * _every_second_product(model, sparse=sparse), _HALF * model.hidden
    wide = sum(width * times for width, times in _widths(model, sparse=sparse))
    factor = (3.0 if model.gated else 2.0) if level is False else (2.0 if model.gated else 1.0)
    outer = (4.0 if level is False else 2.0) * model.hidden
    scores = scores if level is False else _SINGLE * heads
    adapters = run.job.adapter.input_bytes(model, sparse=sparse) if run.job.adapter is not None else 0.0
    routed = 2.0 * model.expert_width * model.active_experts if sparse else 0.0
    outer *= 1.5 if model.source_share else 1.0
    mixed = _mixed_width(model) if level is False or not model.kv_rank else _compressed_width(model)
    return _HALF * (mixed + factor * wide + routed) + scores + adapters, _HALF * outer


def _every_second_product(model: Transformer, *, sparse: bool) -> float:
    """Numbers of a token that PyTorch's selective checkpointing keeps: of attention and every second product."""
    outputs = sum(matrix.outputs * matrix.active for matrix in model.matrices(sparse=sparse))
    return model.value_width + outputs / 2.0


def _mixed_width(model: Transformer) -> float:
    """Numbers that a layer saves of a token between the matrices that mix tokens."""
    if model.mixer:
        return float(sum(matrix.outputs for matrix in model.mixer[:-1]) + model.mixer[-1].inputs)
    both = model.query_width + model.value_width
    return both + 2 * model.kv_width + (both + 2 * model.kv_width * model.source_share) * bool(model.source_share)


def _compressed_width(model: Transformer) -> int:
    """The same where queries, keys and values are made anew from what latent attention compresses them to.

    DeepSeek-AI, "DeepSeek-V3 technical report", arXiv:2412.19437, section 3.2.3; ``mla_up_proj`` of Megatron.
    """
    return model.value_width + model.q_rank + model.kv_rank + model.rope_dim


def _widths(model: Transformer, *, sparse: bool) -> list[tuple[int, int]]:
    """Widths of feed-forward layers, and how often a token passes one."""
    return [(model.expert_ffn, model.active_experts), (model.shared_ffn, 1)] if sparse else [(model.ffn, 1)]


def saved_activations(run: TrainingRun, share: float, level: bool | str) -> float:
    """Bytes that a share of the layers of all stacks save."""
    return share * sum(_stack_activations(one, level) for one in run.stacks)


def _stack_activations(run: TrainingRun, level: bool | str) -> float:
    layout, total = run.layout, 0.0
    for sparse, count in run.model.layer_kinds:
        divided, rest = layer_saved_bytes(run, sparse=sparse, level=level)
        divided -= _expert_outputs(run) if sparse and run.is_tuned and level != "full" else 0.0
        by = layout.tensor if layout.sequence else 1
        total += count * (divided / layout.tensor + rest / by)
    return total * run.tokens_at_once * (1.0 if run.is_mixed else 2.0)


def _expert_outputs(run: TrainingRun) -> float:
    """Bytes that experts put out for a token, which fused stacks do not keep.

    They weigh the experts before the last product, as Megatron Core since 0.13 ("memory efficient token permutation").
    """
    return _HALF * run.model.expert_width * run.model.active_experts


def layer_activations(run: TrainingRun) -> float:
    """Bytes that the layers of a stage save of one micro-batch."""
    return saved_activations(run, stage_layers(run) / run.model.depth, run.checkpointing or False)


def _recomputed_layer(run: TrainingRun) -> float:
    """Bytes of the layer that is recomputed, with the scores that it makes beyond those it saves."""
    scores = _SCORES * run.model.heads * run.seq_len if run.job.attention == "eager" and not run.is_tuned else 0.0
    scores *= run.tokens_at_once / run.layout.tensor
    return _stack_activations(run, False) / run.model.layers + scores * (1.0 if run.is_mixed else 2.0)


def layers_in_flight(run: TrainingRun, stage: int) -> float:
    """Layers whose activations a stage holds at once, in the one-forward-one-backward schedule."""
    layout, layers = run.layout, stage_layers(run)
    if run.job.offload == "activations":
        return min(layers, _OFFLOADED_LAYERS)
    if layout.pipeline == 1:
        return layers
    times = run.accumulate or 1
    behind = layout.pipeline - stage
    if layout.virtual_degree == 1:
        return layers * min(times, behind)
    parts = layout.virtual_degree
    chunks = min(times * parts, 2 * (behind - 1) + (parts - 1) * layout.pipeline + 1)
    return layers * chunks / parts


#: Elements that DeepSpeed's buckets of gradients, and of gathered parameters, hold by default.
_BUCKET = 5e8
#: Parts of a step's memory in the order in which they print.
PARTS = (
    *("parameters", "gradients", "optimizer states", "activations", "logits"),
    *("gathered layers", "buffers", "fragmentation", "context"),
)
#: Readings of memory, and whether they count what the allocator keeps, and what a process holds beside it: PyTorch's
#: ``max_memory_allocated`` and ``max_memory_reserved``, and what nvidia-smi shows.
READINGS = {"allocated": (0.0, 0.0), "reserved": (1.0, 0.0), "device": (1.0, 1.0)}
#: Coefficient -> its prior mean and standard deviation of its logarithm; of fragmentation, the average over eight large
#: models (Guo et al., GMLake, arXiv:2401.08156), known as a mean of eight is (.5 over their root), and again where
#: layers are gathered and freed without a plan.
MEMORY_PRIORS = {
    "activations": (1.15, 0.15),
    "activations, fused": (1.0, 0.125),
    "logits": (12.0, 0.15),
    "logits, fused": (4.0, 0.2),
    "fragmentation": (0.15, 0.18),
    "fragmentation, fsdp": (0.15, 0.18),
    "context": (1.0, 0.2),
    "communicators": (0.7, 0.25),
}
MEMORY_MEANS = {name: mean for name, (mean, _) in MEMORY_PRIORS.items()}


def memory_terms(run: TrainingRun) -> dict[str, float]:
    """Bytes of each kind on the GPU that holds most, of a run without unknown options.

    Returns ``parameters``, ``gradients``, ``states``, ``activations``, ``logits`` (a byte an element), ``gathered``,
    ``buffers``; ``transient`` (1 where gradients are freed before activations are made), ``fused``, ``fused_loss``,
    ``several``, ``eager_fsdp``; ``allocator`` and ``process``, 1 where these count (`READINGS`); ``capacity``, bytes of
    the device.

    Rajbhandari et al., ZeRO, arXiv:1910.02054; Korthikanti et al., Reducing Activation Recomputation in Large
    Transformer Models, arXiv:2205.05198; Narayanan et al., arXiv:2104.04473.
    """
    last = run.layout.pipeline - 1
    stages = [_stage_terms(run, stage) for stage in ({0, last} if last else {0})]
    return max(stages, key=lambda terms: float(memory_bytes(terms, MEMORY_MEANS)))


def memory_bytes(terms: Terms, coefficients: Mapping[str, float]) -> FloatArray:
    """Bytes at the peak of a step, by coefficients of the terms of `memory_terms`."""
    return np.asarray(sum(memory_parts(terms, coefficients).values()))


def memory_parts(terms: Terms, coefficients: Mapping[str, float]) -> dict[str, FloatArray]:
    """Bytes by purpose (`PARTS`) at the peak of a step."""
    column = {name: np.asarray(terms[name], dtype=float) for name in terms}
    passing = _passing(column, coefficients)
    # Gradients are made as activations are freed: the peak is at the loss or after the backward pass.
    late = column["transient"] * column["gradients"] > passing["activations"] + passing["logits"]
    gradients = np.where((column["transient"] > 0) & ~late, 0.0, column["gradients"])
    parts = {
        "parameters": column["parameters"],
        "gradients": gradients,
        "optimizer states": column["states"],
        "activations": np.where(late, 0.0, passing["activations"]),
        "logits": np.where(late, 0.0, passing["logits"]),
        "gathered layers": column["gathered"],
        "buffers": column["buffers"],
    }
    share = coefficients["fragmentation"] + coefficients["fragmentation, fsdp"] * column["eager_fsdp"]
    needed = np.asarray(sum(parts.values()))
    context = GIB * (coefficients["context"] + coefficients["communicators"] * column["several"])
    # An allocator that finds no room frees the blocks that it keeps.
    room = np.maximum(column["capacity"] - context - needed, 0.0)
    parts["fragmentation"] = column["allocator"] * np.minimum(share * needed, room)
    parts["context"] = column["process"] * context
    return parts


def needed_bytes(terms: Terms, coefficients: Mapping[str, float]) -> FloatArray:
    """Bytes without which a step fails: an allocator frees the blocks that it keeps before it does."""
    return memory_bytes(terms, {**coefficients, "fragmentation": 0.0, "fragmentation, fsdp": 0.0})


def _passing(column: Mapping[str, FloatArray], coefficients: Mapping[str, float]) -> dict[str, FloatArray]:
    """Bytes of activations and logits, when the loss is computed or when the last layer is recomputed after it."""
    factor = {
        name: np.where(column[kind] > 0, coefficients[f"{name}, fused"], coefficients[name])
        for name, kind in (("activations", "fused"), ("logits", "fused_loss"))
    }
    # Logits are gone when the last layer is recomputed.
    logits, recomputed = factor["logits"] * column["logits"], factor["activations"] * column["recomputed"]
    return {
        "activations": factor["activations"] * column["activations"] + np.where(recomputed > logits, recomputed, 0.0),
        "logits": np.where(recomputed > logits, 0.0, logits),
    }


def _stage_terms(run: TrainingRun, stage: int) -> dict[str, float]:
    trained = _trained(run, stage)
    weight, gradient, state = parameter_bytes(run)
    layout, node = run.layout, run.job.hardware.node_gpus

    def held(amounts: tuple[float, float], what: str) -> float:
        """Of dense and expert amounts, what one GPU holds."""
        if ("states", "gradients", "parameters").index(what) >= layout.divided:
            return sum(amounts)
        dense, experts = (layout.shard_size(size, node) for size in (layout.replicas, layout.expert_replicas))
        return amounts[0] / dense + amounts[1] / experts

    parameters = weight * held(_stage_parameters(run, stage), "parameters") + _adapter_bytes(run, trained)
    # Sharded gradients go where the optimizer is, with ZeRO-Offload (Ren et al., arXiv:2101.06840) and FSDP.
    away = run.job.offload in ("optimizer", "all") and layout.sharding != "none"
    return {
        "parameters": 0.0 if run.job.offload in ("parameters", "all") else parameters,
        "gradients": 0.0 if away else gradient * held(trained, "gradients"),
        "states": 0.0 if run.job.offload in ("optimizer", "all") else state * held(trained, "states"),
        "activations": saved_activations(
            run, layers_in_flight(run, stage) / run.model.depth, run.checkpointing or False
        ),
        "recomputed": max(map(_recomputed_layer, run.stacks)) if run.checkpointing == "full" else 0.0,
        "logits": _logits(run, stage),
        "gathered": _gathered(run),
        "buffers": _buffers(run, sum(trained), gradient),
        **_properties(run),
    }


def _properties(run: TrainingRun) -> dict[str, float]:
    """What holds (1) or does not (0), and bytes of the device."""
    eager = run.layout.sharding in ("fsdp", "hsdp") and run.job.execution != "compiled"
    transient = (run.accumulate or 1) == 1 and not _keeps_half_weights(run) and run.job.adapter is None
    return {
        "transient": float(transient),
        "fused": float(run.is_fused),
        "fused_loss": float(fuses_loss(run)),
        "several": float(run.n_gpus > 1),
        "eager_fsdp": float(eager),
        "allocator": 1.0,
        "process": 1.0,
        "capacity": run.job.hardware.usable_memory_gib * GIB,
    }


def fuses_loss(run: TrainingRun) -> bool:
    """Whether logits are held once, rather than with copies in single precision."""
    if run.job.cross_entropy is None:
        return run.is_tuned and run.job.attention != "eager"
    return run.job.cross_entropy == "fused"


def parameter_bytes(run: TrainingRun) -> tuple[float, float, float]:
    """Bytes a parameter of weights, gradients and of optimizer states with weights in single precision."""
    state, keeps_master = OPTIMIZERS[run.optimizer or "adamw"]
    if run.job.adapter is not None:
        weight = _SINGLE if not run.is_mixed else run.job.adapter.bits / 8.0
        return weight, _SINGLE, state
    if not run.is_mixed:
        return _SINGLE, _SINGLE, state
    if not keeps_master and not run.is_tuned:
        return _HALF, _HALF, state
    if run.layout.sharding in ("fsdp", "hsdp") or not _keeps_half_weights(run):
        return _SINGLE, _SINGLE, state
    # Megatron adds gradients up in single precision, DeepSpeed in half.
    return _HALF, _SINGLE if run.is_tuned else _HALF, state + _SINGLE


def _keeps_half_weights(run: TrainingRun) -> bool:
    """Weights in half precision beside the optimizer's copy (Megatron, DeepSpeed), rather than cast when used."""
    return run.is_tuned or str(run.layout.sharding).startswith("zero")


def _stage_parameters(run: TrainingRun, stage: int) -> tuple[float, float]:
    """Parameters on a GPU of a stage: without the routed experts, and these."""
    layout, share = run.layout, stage_layers(run) / run.model.depth
    kinds = run.model.all_layers
    shared = share * sum(count * stack.shared_parameters(sparse=sparse) for stack, sparse, count in kinds)
    experts = share * run.model.routed_parameters
    before, after = _ends(run)
    # In another stage than the embedding a tied head is a copy.
    after += run.model.vocab * run.model.hidden if run.model.tied and layout.pipeline > 1 else 0
    ends = before * (stage == 0) + after * (stage == layout.pipeline - 1)
    return (shared + ends) / layout.tensor, experts / layout.expert_split


def _ends(run: TrainingRun) -> tuple[int, int]:
    """Parameters before and after the layers."""
    stacks = run.model.stacks
    return sum(stack.embedding_parameters for stack in stacks), sum(stack.head_parameters for stack in stacks)


def _trained(run: TrainingRun, stage: int) -> tuple[float, float]:
    if run.job.adapter is None:
        return _stage_parameters(run, stage)
    return run.job.adapter.n_parameters(run.model) / run.layout.pipeline / run.layout.tensor, 0.0


def _adapter_bytes(run: TrainingRun, trained: tuple[float, float]) -> float:
    """Adapters themselves, and what quantisation leaves alone: embedding and head.

    PEFT casts these to single precision before it trains on quantised weights; FSDP takes them as they are.
    """
    if run.job.adapter is None:
        return 0.0
    layout, node = run.layout, run.job.hardware.node_gpus
    by = layout.shard_size(layout.replicas, node) if layout.shards_parameters else 1
    ends, kept = sum(_ends(run)), _SINGLE if by == 1 else _HALF
    beyond = kept - run.job.adapter.bits / 8.0 if run.is_mixed and run.job.adapter.bits < 16 else 0.0
    return (_SINGLE * trained[0] + beyond * ends / layout.tensor / layout.pipeline) / by


def _logits(run: TrainingRun, stage: int) -> float:
    """Elements of the logits that are held at once, on the last stage.

    Fused with the head they are made in chunks as large as its input (Hsu et al., Liger Kernel, arXiv:2410.10989).
    """
    if stage != run.layout.pipeline - 1:
        return 0.0
    width = min(run.model.hidden, run.model.vocab) if run.job.cross_entropy == "fused_linear" else run.model.vocab
    return run.tokens_at_once * width / run.layout.tensor


def _gathered(run: TrainingRun) -> float:
    """Weights of two layers, embedding and head, and gradients of a layer, whole for their use."""
    if not run.layout.shards_parameters:
        return 0.0
    layout, ends = run.layout, sum(_ends(run))
    sizes = [(stack.shared_parameters, stack.expert_parameters, bool(stack.experts)) for stack in run.model.stacks]
    t, e = layout.tensor, layout.expert_split
    layer = max(own(sparse=sparse) / t + routed(sparse=sparse) / e for own, routed, sparse in sizes)
    gradients = 1.0 if run.job.adapter is None else 0.0
    quantised = 1.0 if run.job.adapter is None else run.job.adapter.bits / 16.0
    itemsize = _HALF if run.is_mixed else _SINGLE
    return itemsize * (layer * (2.0 * quantised + gradients) + ends / t * (1.0 + gradients))


def _buffers(run: TrainingRun, trained: float, gradient: float) -> float:
    """Buckets of data parallelism: of DDP as large as the gradients, of DeepSpeed of fixed size.

    DDP has no experts that GPUs share.
    """
    if run.n_gpus == 1 or (run.layout.data or 1) == 1 or run.is_tuned:
        return 0.0
    if run.layout.sharding == "none" and run.layout.expert_degree > 1:
        return 0.0
    return bucket_bytes(run.layout, trained, gradient)


def bucket_bytes(layout: Parallel, trained: float, gradient: float) -> float:
    """Bytes of the buckets in which several GPUs reduce `trained` gradients of so many bytes each; FSDP has none."""
    if layout.sharding in ("fsdp", "hsdp"):
        return 0.0
    return gradient * trained if layout.sharding == "none" else 2.0 * _HALF * min(trained, _BUCKET)
