"""Bytes of activations that a training run saves for its backward pass, by layer, stack and stage."""

from __future__ import annotations

import math

from gpudemand.cost.architectures.architecture import Transformer
from gpudemand.cost.large_models.run import TrainingRun

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


def saved_bytes(run: TrainingRun, *, sparse: bool, level: bool | str) -> tuple[float, float]:
    """Bytes that a layer saves for one token and its backward pass: what tensor parallelism divides, and the rest."""
    model, heads = run.model, run.model.heads
    attended = run.seq_len * (1.0 + model.source_share)
    scores = 5.0 * heads * attended if run.attention == "eager" and not model.mixer else _SINGLE * heads
    if level == "full":
        return 0.0, _HALF * model.hidden
    if level == "selective" and not run.is_tuned:
        return _HALF * _every_second_product(model, sparse=sparse), _HALF * model.hidden
    wide = sum(width * times for width, times in _widths(model, sparse=sparse))
    factor = (3.0 if model.gated else 2.0) if level is False else (2.0 if model.gated else 1.0)
    outer = (4.0 if level is False else 2.0) * model.hidden
    scores = scores if level is False else _SINGLE * heads
    adapters = run.adapter.input_bytes(model, sparse=sparse) if run.adapter is not None else 0.0
    routed = 2.0 * model.hidden * model.active_experts if sparse else 0.0
    outer *= 1.5 if model.source_share else 1.0
    return _HALF * (_mixed_width(model) + factor * wide + routed) + scores + adapters, _HALF * outer


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


def _widths(model: Transformer, *, sparse: bool) -> list[tuple[int, int]]:
    """Widths of feed-forward layers, and how often a token passes one."""
    return [(model.expert_ffn, model.active_experts), (model.shared_ffn, 1)] if sparse else [(model.ffn, 1)]


def saved_activations(run: TrainingRun, share: float, level: bool | str) -> float:
    """Bytes that a share of the layers of all stacks save."""
    return share * sum(_stack_activations(one, level) for one in run.stacks)


def _stack_activations(run: TrainingRun, level: bool | str) -> float:
    layout, total = run.layout, 0.0
    for sparse, count in run.model.layer_kinds:
        divided, rest = saved_bytes(run, sparse=sparse, level=level)
        by = layout.tensor if layout.sequence else 1
        total += count * (divided / layout.tensor + rest / by)
    return total * run.tokens_at_once * (1.0 if run.is_mixed else 2.0)


def layer_activations(run: TrainingRun) -> float:
    """Bytes that the layers of a stage save of one micro-batch."""
    return saved_activations(run, stage_layers(run) / run.model.depth, run.checkpointing or False)


def recomputed_bytes(run: TrainingRun) -> float:
    """Bytes of the layer that is recomputed, if layers are, with the scores that it makes beyond those it saves."""
    return max(map(_recomputed_layer, run.stacks)) if run.checkpointing == "full" else 0.0


def _recomputed_layer(run: TrainingRun) -> float:
    scores = _SCORES * run.model.heads * run.seq_len if run.attention == "eager" and not run.is_tuned else 0.0
    scores *= run.tokens_at_once / run.layout.tensor
    return _stack_activations(run, False) / run.model.layers + scores * (1.0 if run.is_mixed else 2.0)


def layers_in_flight(run: TrainingRun, stage: int) -> float:
    """Layers whose activations a stage holds at once, in the one-forward-one-backward schedule."""
    layout, layers = run.layout, stage_layers(run)
    if run.offload == "activations":
        return min(layers, _OFFLOADED_LAYERS)
    if layout.pipeline == 1:
        return layers
    times = run.accumulate or 1
    behind = layout.pipeline - stage
    if layout.virtual_pipeline == 1:
        return layers * min(times, behind)
    parts = layout.virtual_pipeline
    chunks = min(times * parts, 2 * (behind - 1) + (parts - 1) * layout.pipeline + 1)
    return layers * chunks / parts
