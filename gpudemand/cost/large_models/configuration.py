"""A `Transformer` from a model's configuration: a dictionary, a ``config.json``, or a configuration object."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpudemand._validation import InputError, check_number, nearest, shorten
from gpudemand.cost.large_models.architecture import Transformer

#: Size -> its keys in configurations, the first found counts.
_KEYS = {
    "hidden": ("hidden_size", "n_embd", "d_model", "hidden"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "multi_query_group_num", "kv_heads"),
    "head_dim": ("head_dim", "kv_channels"),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "ffn"),
    "vocab": ("vocab_size", "padded_vocab_size", "vocab"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts", "experts"),
    "active_experts": ("num_experts_per_tok", "active_experts"),
    "expert_ffn": ("moe_intermediate_size", "expert_ffn"),
    "shared_ffn": ("shared_expert_intermediate_size",),
    "dense_layers": ("first_k_dense_replace",),
    "q_rank": ("q_lora_rank",),
    "kv_rank": ("kv_lora_rank",),
    "rope_dim": ("qk_rope_head_dim",),
    "value_dim": ("v_head_dim",),
    "window": ("sliding_window",),
}
_LAYER_NORM = {"norm_bias": True}
_GPT: dict[str, Any] = {**_LAYER_NORM, "biases": "all", "gated": False}
_BERT = {**_GPT, "causal": False, "outer_norms": 1, "tied": True, "head_layer": True}
_ALTERNATING = {"norms": 4, "tied": True}
#: ``model_type`` -> what its configuration leaves unsaid.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "mixtral": {"tied": False},
    "qwen": {"biases": "qkv", "fused": True},
    "qwen2": {"biases": "qkv"},
    "qwen2_moe": {"biases": "qkv", "shared_gate": True},
    "qwen3": {"qk_norm": 1},
    "qwen3_moe": {"qk_norm": 1},
    "gpt2": {**_GPT, "fused": True, "tied": True},
    "gpt_neox": {**_GPT, "fused": True},
    "opt": {**_GPT, "tied": True},
    "bloom": {**_GPT, "fused": True, "tied": True, "outer_norms": 2},
    "falcon": {**_LAYER_NORM, "gated": False, "fused": True, "tied": True, "norms": 1},
    "mpt": {"gated": False, "fused": True, "tied": True},
    "gemma": {"tied": True},
    "gemma2": _ALTERNATING,
    "gemma3_text": {**_ALTERNATING, "qk_norm": 1},
    "phi": {**_GPT, "norms": 1, "head_bias": True},
    "phi3": {"fused": True},
    "starcoder2": {**_GPT, "tied": True},
    "stablelm": _LAYER_NORM,
    "olmo": {"norms": 0, "outer_norms": 0},
    "olmo2": {"qk_norm": 2},
    "olmoe": {"qk_norm": 2},
    "cohere": {"norms": 1, "tied": True},
    "nemotron": {**_LAYER_NORM, "gated": False},
    "granite": {},
    "internlm2": {"fused": True},
    "internlm3": {},
    "baichuan": {"fused": True},
    "chatglm": {"biases": "qkv", "fused": True},
    "glm4": {"biases": "qkv", "fused": True, "norms": 4},
    "glm4_moe": {"biases": "qkv"},
    "deepseek_v2": {},
    "deepseek_v3": {},
    "kimi_k2": {},
    "gpt_oss": {"biases": "attention", "router_bias": True, "sinks": True},
    "bert": {**_BERT, "head_bias": True},
    "roberta": {**_BERT, "head_bias": True},
}
_ALIKE = {
    "gemma3": "gemma3_text",
    "mistral3": "mistral",
    "smollm3": "llama",
    "yi": "llama",
    "olmo3": "olmo2",
    "cohere2": "cohere",
}
#: Sizes that published configurations leave out where they are those of the class in transformers.
_DEFAULTS = {"gemma3_text": {"heads": 8, "kv_heads": 4, "head_dim": 256, "vocab": 262208}}
#: Width of the feed-forward layer as a multiple of the hidden width, where a configuration gives none.
_FFN = 4
#: Switch of a configuration -> matrices with biases.
_BIASES = {"attention_bias": "attention", "use_qkv_bias": "qkv", "qkv_bias": "qkv"}
#: OPT keeps two positions for padding.
_OPT_OFFSET = 2


def read_configuration(source: Any) -> Transformer:
    """Sizes of a model from its configuration.

    Parameters
    ----------
    source : Transformer, mapping, path-like or configuration object
        As ``config.json`` of a model has it; of an object, what its ``to_dict()`` returns. With a mapping of sizes
        only (``hidden``, ``layers``, ``heads``, ``ffn``, ``vocab`` ...), a Llama-like decoder.

    Returns
    -------
    Transformer

    Raises
    ------
    InputError
        For a file that is no such configuration, a missing size, or a kind of model that is no plain transformer.

    Examples
    --------
    >>> sizes = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 50257}
    >>> read_configuration({"model_type": "gpt2", **sizes, "n_positions": 1024}).n_parameters
    124439808
    """
    if isinstance(source, Transformer):
        return source
    config = _as_mapping(source)
    if isinstance(config.get("text_config"), Mapping):
        config = {**config["text_config"], "model_type": config["text_config"].get("model_type", "llama")}
    kind = str(config.get("model_type") or "llama")
    traits = FAMILIES.get(_ALIKE.get(kind, kind))
    if traits is None:
        raise InputError(
            f"model_type={shorten(kind)!r} is not a transformer that is known here.{nearest(kind, FAMILIES)} Give its "
            "sizes with model_type='llama' if it is alike, or trace the module with TrainingJob."
        )
    name = str(config.get("name") or Path(str(config.get("_name_or_path") or kind)).name)
    return Transformer(**{**traits, **_sizes(config, kind), "name": name})


def _as_mapping(source: Any) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    if hasattr(source, "to_dict"):
        return dict(source.to_dict())
    if not isinstance(source, (str, os.PathLike)):
        raise InputError(f"a configuration is a mapping, a path or a configuration; got {type(source).__name__}.")
    path = Path(str(source).removeprefix("hf:"))
    path = path / "config.json" if path.is_dir() else path
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as the configuration of a model: {error}.") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold one JSON object with the sizes of a model; got {type(found).__name__}.")
    return found


def _sizes(config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    given = {name: value for name, keys in _KEYS.items() if (value := _size(config, *keys)) is not None}
    sizes = {**_DEFAULTS.get(_ALIKE.get(kind, kind), {}), **given}
    missing = [f"{name} ({', '.join(_KEYS[name][:2])})" for name in ("hidden", "layers", "heads") if name not in sizes]
    if missing:
        raise InputError(f"the configuration lacks {', '.join(missing)}; give what config.json of the model has.")
    if "vocab" not in sizes:
        raise InputError("the configuration lacks vocab_size, the rows of the embedding.")
    sizes.setdefault("ffn", _FFN * sizes["hidden"])
    switches = {"tied": "tie_word_embeddings", "shared_gate": "shared_gate", "gated": "gated"}
    flags = {name: bool(config[key]) for name, key in switches.items() if config.get(key) is not None}
    special = _SPECIAL.get(_ALIKE.get(kind, kind), _plain)
    return {**sizes, **flags, **_window_share(config), **special(config, sizes)}


def _window_share(config: Mapping[str, Any]) -> dict[str, float]:
    kinds = list(config.get("layer_types") or ())
    return {"window_share": kinds.count("sliding_attention") / len(kinds)} if kinds else {}


def _size(config: Mapping[str, Any], *keys: str) -> int | None:
    """The first size of some keys; those that are there without a value count as missing."""
    for key in keys:
        if (value := config.get(key)) is not None:
            return int(check_number(key, value, 0, integer=True))
    return None


def _plain(config: Mapping[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    """Decoders whose configuration names their biases."""
    found: dict[str, Any] = {}
    named = [name for key, name in _BIASES.items() if config.get(key)]
    if config.get("mlp_bias"):
        named = ["all" if named else "mlp"]
    if named and FAMILIES.get(str(config.get("model_type")), {}).get("biases") is None:
        found["biases"] = named[0]
    if not config.get("use_sliding_window", True):
        found["window"] = 0
    if sizes.get("experts") and not sizes.get("expert_ffn"):
        found["expert_ffn"] = sizes["ffn"]
    if sizes.get("experts") and "dense_layers" not in sizes:
        found["dense_layers"] = _dense_layers(config, sizes["layers"])
    return found


def _dense_layers(config: Mapping[str, Any], layers: int) -> int:
    """Layers without experts, of configurations that name them or give a step."""
    step, named = _size(config, "decoder_sparse_step") or 1, set(config.get("mlp_only_layers") or ())
    return sum(place in named or (place + 1) % step > 0 for place in range(layers))


def _multiplied_shared(config: Mapping[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    """DeepSeek and its like: shared experts are given by their number, widths of heads by their parts."""
    found = _plain(config, sizes)
    found["shared_ffn"] = sizes.get("expert_ffn", 0) * (_size(config, "n_shared_experts") or 0)
    if sizes.get("kv_rank"):
        content = _size(config, "qk_nope_head_dim")
        if content is None or "rope_dim" not in sizes:
            raise InputError("the configuration lacks qk_nope_head_dim or qk_rope_head_dim, the parts of a head.")
        found["head_dim"] = content + sizes["rope_dim"]
    elif config.get("use_qk_norm"):
        found["qk_norm"] = 1
    return found


def _learned_positions(config: Mapping[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    return {"positions": _size(config, "n_positions", "max_position_embeddings") or 0}


def _opt(config: Mapping[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    found = {"positions": (_size(config, "max_position_embeddings") or 0) + _OPT_OFFSET}
    narrow = config.get("word_embed_proj_dim") or sizes["hidden"]
    if narrow != sizes["hidden"]:
        raise InputError("an OPT whose embedding is narrower than its layers is not known here; trace the module.")
    return found


def _bert(config: Mapping[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    places = (_size(config, key) or 0 for key in ("max_position_embeddings", "type_vocab_size"))
    return {"positions": sum(places)}


def _falcon(config: Mapping[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    biases = {"biases": "all" if config.get("bias") else "none"}
    if config.get("new_decoder_architecture"):
        return {**biases, "norms": _size(config, "num_ln_in_parallel_attn") or 2}
    norms = 1 if config.get("parallel_attn", True) else 2
    return {**biases, "norms": norms, "kv_heads": 1 if config.get("multi_query", True) else sizes["heads"]}


def _cohere(config: Mapping[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    return {**_plain(config, sizes), "qk_norm": 2 if config.get("use_qk_norm") else 0}


def _qwen(config: Mapping[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    """The first Qwen counts gate and up together."""
    return {"ffn": sizes["ffn"] // 2}


def _alternating(every: int) -> Callable[[Mapping[str, Any], dict[str, Any]], dict[str, Any]]:
    """Decoders in which one layer of so many attends to everything, unless the configuration says otherwise."""

    def windows(config: Mapping[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
        pattern = _size(config, "sliding_window_pattern", "_sliding_window_pattern") or every
        return {**_plain(config, sizes), "window_share": 1.0 - 1.0 / pattern, **_window_share(config)}

    return windows


def _stablelm(config: Mapping[str, Any], sizes: dict[str, Any]) -> dict[str, Any]:
    norms = 1 if config.get("use_parallel_residual") else 2
    return {**_plain(config, sizes), "norms": norms, "qk_norm": 2 if config.get("qk_layernorm") else 0}


_SPECIAL = {
    "gpt2": _learned_positions,
    "opt": _opt,
    "bert": _bert,
    "roberta": _bert,
    "falcon": _falcon,
    "cohere": _cohere,
    "qwen": _qwen,
    "stablelm": _stablelm,
    "gemma2": _alternating(2),
    "gemma3_text": _alternating(6),
    "gpt_oss": _alternating(2),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe"), _multiplied_shared),
}
