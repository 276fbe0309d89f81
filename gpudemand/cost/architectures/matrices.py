"""`Matrix`: the weight matrices of a layer of a `Transformer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpudemand.cost.architectures.architecture import Transformer


class Matrix(NamedTuple):
    """A weight matrix of a layer: its name, its sides, how many there are, and how many a token passes."""

    name: str
    inputs: int
    outputs: int
    copies: int = 1
    active: float = 1

    @property
    def size(self) -> int:
        """Weights in one copy."""
        return self.inputs * self.outputs


def mixer_matrices(model: Transformer) -> list[Matrix]:
    """Matrices of what mixes the tokens of a layer: attention, also to an encoder, or what the model has instead."""
    if model.mixer:
        return list(model.mixer)
    return attention_matrices(model) + (cross_matrices(model) if model.source_share else []) if model.heads else []


def attention_matrices(model: Transformer) -> list[Matrix]:
    """Matrices of attention among the tokens."""
    h, out = model.hidden, Matrix("o_proj", model.value_width, model.hidden)
    if model.kv_rank:
        plain = [Matrix("q_proj", h, model.query_width)]
        low = [Matrix("q_a_proj", h, model.q_rank), Matrix("q_b_proj", model.q_rank, model.query_width)]
        nope = model.head_dim - model.rope_dim
        keys = [
            Matrix("kv_a_proj_with_mqa", h, model.kv_rank + model.rope_dim),
            Matrix("kv_b_proj", model.kv_rank, model.heads * nope + model.value_width),
        ]
        return [*(low if model.q_rank else plain), *keys, out]
    kv = model.kv_width
    if model.fused:
        return [Matrix("qkv_proj", h, model.query_width + 2 * kv), out]
    queries = model.query_width * (1 + model.attention_gate)
    return [Matrix("q_proj", h, queries), Matrix("k_proj", h, kv), Matrix("v_proj", h, kv), out]


def cross_matrices(model: Transformer) -> list[Matrix]:
    """Matrices of attention to an encoder, whose tokens pass those of keys and values."""
    keys, source = (model.source_width or model.hidden, model.kv_width), model.source_share
    own = (model.hidden, model.query_width)
    sides = {"q_proj": (own, 1.0), "k_proj": (keys, source), "v_proj": (keys, source), "o_proj": (own[::-1], 1.0)}
    return [Matrix(name, *size, active=share) for name, (size, share) in sides.items()]


def feed_forward_matrices(model: Transformer, *, sparse: bool) -> list[Matrix]:
    """Matrices of the feed-forward part of a dense or of a sparse layer."""
    if not sparse:
        return _mlp(model, model.ffn) if model.ffn else []
    routed = _mlp(model, model.expert_ffn, model.experts, model.active_experts)
    shared = _mlp(model, model.shared_ffn) if model.shared_ffn else []
    gate = [Matrix("shared_gate", model.hidden, 1)] if model.shared_gate else []
    return [Matrix("router", model.hidden, model.experts), *routed, *shared, *gate]


def _mlp(model: Transformer, width: int, copies: int = 1, active: int = 1) -> list[Matrix]:
    up = [("gate_up_proj", 2)] if model.gated and model.fused else [("gate_proj", 1)] * model.gated + [("up_proj", 1)]
    first = [Matrix(name, model.hidden, times * width, copies, active) for name, times in up]
    return [*first, Matrix("down_proj", width, model.hidden, copies, active)]


def biased(model: Transformer, mixer: list[Matrix], others: list[Matrix]) -> list[Matrix]:
    """Those of the matrices of a layer that have biases."""
    every = [*mixer, *others]
    named = {
        "none": [],
        "qkv": mixer[:-1],
        "attention": mixer,
        "mlp": others,
        "output": [matrix for matrix in every if matrix.name not in ("q_proj", "k_proj", "v_proj", "qkv_proj")],
        "keyless": [matrix for matrix in every if matrix.name != "k_proj"],
        "all": every,
    }
    return named[model.biases]
