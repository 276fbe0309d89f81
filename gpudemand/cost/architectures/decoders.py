"""What families of decoders and of encoders of text add to the sizes of their configurations."""

from __future__ import annotations

from typing import Any

from gpudemand._validation import InputError
from gpudemand.cost.architectures.reading import Config, Variant, learned_positions, plain, size_of

#: OPT and its like keep two positions for padding.
_OFFSET = 2


def _multiplied_shared(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """DeepSeek and its like: shared experts are given by their number, widths of heads by their parts."""
    found = plain(config, sizes)
    found["shared_ffn"] = sizes.get("expert_ffn", 0) * (size_of(config, "n_shared_experts") or 0)
    if sizes.get("kv_rank"):
        content = size_of(config, "qk_nope_head_dim")
        if content is None or "rope_dim" not in sizes:
            raise InputError("the configuration lacks qk_nope_head_dim or qk_rope_head_dim, the parts of a head.")
        found["head_dim"] = content + sizes["rope_dim"]
    elif config.get("use_qk_norm"):
        found["qk_norm"] = 1
    return found


def _opt(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """With a narrow embedding there are projections, and positions keep the width of the layers."""
    hidden, width = sizes["hidden"], sizes.get("embed_width") or sizes["hidden"]
    places = (size_of(config, "max_position_embeddings") or 0) + _OFFSET
    final = 1 if config.get("do_layer_norm_before", True) and not config.get("_remove_final_layer_norm") else 0
    if width == hidden:
        return {"positions": places, "outer_norms": final}
    return {"outer": places * hidden + 2 * width * hidden, "outer_norms": final}


def _biogpt(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    return {"positions": (size_of(config, "max_position_embeddings") or 0) + _OFFSET}


def _places(config: Config) -> int:
    return sum(size_of(config, key) or 0 for key in ("max_position_embeddings", "type_vocab_size"))


def _bert(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    return {"positions": _places(config)}


def _electra(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """An embedding narrower than the layers, as of ALBERT, and a square layer of its width in the head."""
    hidden, width = sizes["hidden"], sizes["embed_width"]
    between = (hidden + 1) * width + 2 * width  # and its normalisation
    into = (width + 1) * hidden if width != hidden else 0
    return {"positions": _places(config), "outer_norms": 0, "outer": 2 * width + into + between}


def _albert(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """All layers share their parameters: those of one are there."""
    found, hidden, ffn = _electra(config, sizes), sizes["hidden"], sizes["ffn"]
    layer = 4 * hidden * (hidden + 1) + 2 * hidden * ffn + hidden + ffn + 4 * hidden
    into = 0 if sizes["embed_width"] != hidden else (hidden + 1) * hidden
    repeated = sizes["layers"] - (size_of(config, "num_hidden_groups") or 1)
    return {**found, "outer": found["outer"] + into - repeated * layer}


def _distilbert(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    return {"positions": size_of(config, "max_position_embeddings") or 0}


def _deberta(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Attention to positions has matrices of its own, and a table beside the embedding; of the second, shared ones."""
    hidden, kinds = sizes["hidden"], str(config.get("pos_att_type") or "").replace("|", " ")
    types, limit = size_of(config, "type_vocab_size") or 0, int(config.get("max_relative_positions") or -1)
    places = size_of(config, "max_position_embeddings") or 0
    positions = types + places * bool(config.get("position_biased_input", True))
    second = config.get("model_type") == "deberta-v2"
    found: dict[str, Any] = {"positions": positions, "embed_width": 0}
    if not config.get("relative_attention"):
        return found
    buckets = int(config.get("position_buckets") or -1) if second else -1
    rows = buckets if buckets > 0 else limit if limit > 0 else places
    table = 2 * rows * hidden + (2 * hidden if second and "layer_norm" in str(config.get("norm_rel_ebd")) else 0)
    kernel = size_of(config, "conv_kernel_size") or 0
    table += kernel * hidden * hidden + 3 * hidden if second and kernel else 0
    shared = second and config.get("share_att_key")
    keys = ("c2p" in kinds) * (hidden + second) * hidden
    queries = ("p2c" in kinds) * (hidden + 1) * hidden
    return {**found, "outer": table, "extra": 0 if shared else keys + queries}


def _mpnet(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    places = size_of(config, "max_position_embeddings") or 0
    return {"positions": places, "outer": (size_of(config, "relative_attention_num_buckets") or 0) * sizes["heads"]}


def _modern_bert(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """The first layer has one normalisation less; a square layer stands before the head."""
    every = size_of(config, "global_attn_every_n_layers") or 1
    window = {"window": size_of(config, "local_attention") or 0, "window_share": 1.0 - 1.0 / every}
    return {**plain(config, sizes), **window, "outer_norms": 2, "outer": sizes["hidden"] ** 2}


def _falcon(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    biases = {"biases": "all" if config.get("bias") else "none"}
    if config.get("new_decoder_architecture"):
        return {**biases, "norms": size_of(config, "num_ln_in_parallel_attn") or 2}
    norms = 1 if config.get("parallel_attn", True) else 2
    return {**biases, "norms": norms, "kv_heads": 1 if config.get("multi_query", True) else sizes["heads"]}


def _cohere(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    return {**plain(config, sizes), "qk_norm": 2 if config.get("use_qk_norm") else 0}


def _qwen(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """The first Qwen counts gate and up together."""
    return {"ffn": sizes["ffn"] // 2}


def _alternating(every: int) -> Variant:
    """Decoders in which one layer of so many attends to everything, unless the configuration says otherwise."""

    def _windows(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
        pattern = size_of(config, "sliding_window_pattern", "_sliding_window_pattern") or every
        return {"window_share": 1.0 - 1.0 / pattern, **plain(config, sizes)}

    return _windows


def _stablelm(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    norms = 1 if config.get("use_parallel_residual") else 2
    return {**plain(config, sizes), "norms": norms, "qk_norm": 2 if config.get("qk_layernorm") else 0}


def _gpt_neo(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Every second layer attends to a window."""
    local = {"window": size_of(config, "window_size") or 0, "window_share": 0.5}
    return {**learned_positions(config, sizes), **local}


def _multi_query(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    shared = {"kv_heads": 1} if config.get("multi_query", True) else {}
    return {**learned_positions(config, sizes), **shared}


def _bitnet(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Two more normalisations in a layer, one of the width of the feed-forward layer."""
    return {"norms": 3, "extra": sizes["ffn"]}


def _ernie_experts(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    first = size_of(config, "moe_layer_start_index") or 0
    shared = sizes.get("expert_ffn", 0) * (size_of(config, "moe_num_shared_experts") or 0)
    corrections = (sizes["layers"] - first) * sizes.get("experts", 0)
    return {**plain(config, sizes), "dense_layers": first, "shared_ffn": shared, "outer": corrections}


def _phi_experts(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    return {**plain(config, sizes), "head_bias": bool(config.get("lm_head_bias"))}


def _dbrx(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    inner, attention = dict(config.get("ffn_config") or {}), dict(config.get("attn_config") or {})
    kinds = {"experts": "moe_num_experts", "active_experts": "moe_top_k", "expert_ffn": "ffn_hidden_size"}
    return {
        **{name: size_of(inner, key) or 1 for name, key in kinds.items()},
        "kv_heads": attention.get("kv_n_heads", 1),
    }


def _llama4(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """One layer of so many has experts, one of them shared; the others have a width of their own."""
    dense = size_of(config, "intermediate_size_mlp") or sizes["ffn"]
    step, layers = size_of(config, "interleave_moe_layer_step") or 1, sizes["layers"]
    named = config.get("moe_layers")
    sparse = layers // step if named is None else len(named)
    local = {"window": size_of(config, "attention_chunk_size") or 0, "window_share": 0.75}
    width = {"expert_ffn": sizes["ffn"], "shared_ffn": sizes["ffn"], "ffn": dense, "dense_layers": layers - sparse}
    return {**local, **plain(config, {**sizes, **width}), **width}


#: ``model_type`` -> what it adds to its sizes.
DECODERS: dict[str, Variant] = {
    "gpt2": learned_positions,
    "openai-gpt": learned_positions,
    "gpt_neo": _gpt_neo,
    "gpt_bigcode": _multi_query,
    "opt": _opt,
    "biogpt": _biogpt,
    "bert": _bert,
    "roberta": _bert,
    "electra": _electra,
    "albert": _albert,
    "distilbert": _distilbert,
    "deberta": _deberta,
    "deberta-v2": _deberta,
    "mpnet": _mpnet,
    "modernbert": _modern_bert,
    "falcon": _falcon,
    "cohere": _cohere,
    "qwen": _qwen,
    "stablelm": _stablelm,
    "bitnet": _bitnet,
    "ernie4_5_moe": _ernie_experts,
    "phimoe": _phi_experts,
    "dbrx": _dbrx,
    "llama4_text": _llama4,
    "gemma2": _alternating(2),
    "gemma3_text": _alternating(6),
    "gpt_oss": _alternating(2),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "glm4_moe"), _multiplied_shared),
}
