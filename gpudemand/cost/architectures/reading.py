"""Sizes by their keys in configurations, which differ from family to family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpudemand._validation import InputError, check_number

Config = Mapping[str, Any]
#: What a family adds to the sizes that `sizes_of` finds: of its configuration and these sizes.
Variant = Callable[[Config, dict[str, Any]], dict[str, Any]]
#: Size -> its keys in configurations, the first found counts.
KEYS = {
    "hidden": ("hidden_size", "n_embd", "d_model", "dim", "hidden"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "layers"),
    "heads": (
        "num_attention_heads",
        "n_head",
        "n_heads",
        "num_heads",
        "decoder_attention_heads",
        "attention_heads",
        "heads",
    ),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "multi_query_group_num", "kv_heads"),
    "head_dim": ("head_dim", "kv_channels", "d_kv"),
    "ffn": (
        "intermediate_size",
        "n_inner",
        "ffn_dim",
        "ffn_hidden_size",
        "d_ff",
        "decoder_ffn_dim",
        "hidden_dim",
        "ffn",
    ),
    "vocab": ("vocab_size", "padded_vocab_size", "vocab"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "experts"),
    "active_experts": ("num_experts_per_tok", "moe_k", "moe_top_k", "active_experts"),
    "expert_ffn": ("moe_intermediate_size", "expert_ffn"),
    "shared_ffn": ("shared_expert_intermediate_size",),
    "dense_layers": ("first_k_dense_replace",),
    "q_rank": ("q_lora_rank",),
    "kv_rank": ("kv_lora_rank",),
    "rope_dim": ("qk_rope_head_dim",),
    "value_dim": ("v_head_dim",),
    "window": ("sliding_window",),
    "embed_width": ("embedding_size", "word_embed_proj_dim"),
}
#: Width of the feed-forward layer as a multiple of the hidden width, where a configuration gives none.
_FFN = 4
#: Switch of a configuration -> matrices with biases.
_BIASES = {"attention_bias": "attention", "use_qkv_bias": "qkv", "qkv_bias": "qkv", "use_bias": "all"}


def size_of(config: Config, *keys: str) -> int | None:
    """The first size of some keys; those that are there without a value count as missing."""
    for key in keys:
        if (value := config.get(key)) is not None:
            return int(check_number(key, value, 0, integer=True))
    return None


def sizes_of(config: Config, known: Config) -> dict[str, Any]:
    """Sizes that a configuration gives, over those that are `known` of its family.

    Raises
    ------
    InputError
        If one of those that no model is without is missing.
    """
    given = {name: value for name, keys in KEYS.items() if (value := size_of(config, *keys)) is not None}
    if "layers" not in given and config.get("layers_block_type"):
        given["layers"] = len(config["layers_block_type"])
    sizes = {**known, **given}
    missing = [f"{name} ({', '.join(KEYS[name][:2])})" for name in ("hidden", "layers", "heads") if name not in sizes]
    if missing:
        raise InputError(f"the configuration lacks {', '.join(missing)}; give what config.json of the model has.")
    if "vocab" not in sizes:
        raise InputError("the configuration lacks vocab_size, the rows of the embedding.")
    sizes.setdefault("ffn", _FFN * sizes["hidden"])
    switches = {"tied": "tie_word_embeddings", "shared_gate": "shared_gate", "gated": "gated"}
    return {**sizes, **{name: bool(config[key]) for name, key in switches.items() if config.get(key) is not None}}


def plain(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Decoders whose configuration names their biases."""
    found: dict[str, Any] = {}
    named = [name for key, name in _BIASES.items() if config.get(key)]
    if config.get("mlp_bias"):
        named = ["all" if named else "mlp"]
    if named and "biases" not in sizes:
        found["biases"] = named[0]
    if not config.get("use_sliding_window", True):
        found["window"] = 0
    if sizes.get("experts") and not sizes.get("expert_ffn"):
        found["expert_ffn"] = sizes["ffn"]
    if sizes.get("experts") and "dense_layers" not in sizes:
        found["dense_layers"] = _dense_layers(config, sizes["layers"])
    kinds = list(config.get("layer_types") or ())
    local = sum(kind in ("sliding_attention", "chunked_attention") for kind in kinds)
    return {**found, "window_share": local / len(kinds)} if kinds else found


def _dense_layers(config: Config, layers: int) -> int:
    """Layers without experts, of configurations that name them or give a step."""
    step, named = size_of(config, "decoder_sparse_step") or 1, set(config.get("mlp_only_layers") or ())
    return sum(place in named or (place + 1) % step > 0 for place in range(layers))


def learned_positions(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Decoders with a learned vector a position."""
    return {"positions": size_of(config, "n_positions", "max_position_embeddings") or 0}


def labels_of(config: Config) -> int:
    """Classes of a classifier; two if a configuration names none, as in transformers."""
    return size_of(config, "num_labels") or len(config.get("id2label") or ()) or 2
