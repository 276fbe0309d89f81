"""Configurations of families of transformers: decoders, encoder-decoders, hybrids, towers."""

from __future__ import annotations

from typing import Any

from gpudemand._validation import InputError, shorten
from gpudemand.cost.transformer import (
    Config,
    Matrix,
    Transformer,
    Variant,
    labels_of,
    learned_positions,
    plain,
    size_of,
)

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


#: Samples of sound that two convolutions make one token of, and width of their kernels.
_KERNEL = 3


def _with_encoder(sizes: dict[str, Any], encoder: dict[str, Any], **decoder: Any) -> dict[str, Any]:
    """A decoder, and an encoder of the same width without embedding and head of its own."""
    alike: dict[str, Any] = {
        name: sizes[name] for name in ("hidden", "heads", "ffn", "head_dim", "gated") if name in sizes
    }
    own: dict[str, Any] = {"vocab": 0, "tied": True, "causal": False, "layers": sizes["layers"]}
    return {**decoder, "source_share": 1.0, "parts": (Transformer(**{**alike, **own, **encoder}),)}


def _t5(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Positions are biases of the scores by distance, of the first layer of each stack, or of each layer."""
    buckets = (size_of(config, "relative_attention_num_buckets") or 32) * sizes["heads"]
    kind = config.get("model_type")
    every = kind == "umt5"
    biases = {"extra": buckets} if every else {"outer": buckets}
    gated = bool(config.get("is_gated_act")) or str(
        config.get("feed_forward_proj", kind != "t5" and "gated")
    ).startswith("gated")
    shape = {**sizes, "gated": gated}
    layers = size_of(config, "num_decoder_layers") or sizes["layers"]
    return _with_encoder(shape, {"norms": 2, **biases}, gated=gated, layers=layers, **biases)


def _bart(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Both stacks end in a normalisation or begin with one; positions are learned, sinusoids, or none that count."""
    kind = str(config.get("model_type"))
    offset = 2 if kind in ("bart", "mbart", "plbart", "mvp") else 0
    places = 0 if kind == "m2m_100" else (size_of(config, "max_position_embeddings") or 0) + offset
    norms = {"mbart": 2, "marian": 0}.get(kind, 1)
    common = {"norm_bias": True, "biases": "all", "gated": False, "positions": places, "outer_norms": norms}
    return _with_encoder(
        sizes, {**common, **_side_sizes(config, "encoder")}, **common, **_side_sizes(config, "decoder")
    )


def _side_sizes(config: Config, side: str) -> dict[str, Any]:
    keys = {"layers": f"{side}_layers", "heads": f"{side}_attention_heads", "ffn": f"{side}_ffn_dim"}
    return {name: value for name, key in keys.items() if (value := size_of(config, key)) is not None}


def _whisper(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Two convolutions make half as many tokens of the frames of 30 seconds."""
    hidden, bands = sizes["hidden"], size_of(config, "num_mel_bins") or 80
    tokens = size_of(config, "max_source_positions") or 1500
    stem = _KERNEL * hidden * (bands + hidden) + 2 * hidden
    common = {"norm_bias": True, "biases": "keyless", "gated": False}
    encoder = {**common, "positions": tokens, "tokens": tokens, "outer": stem, **_side_sizes(config, "encoder")}
    decoder = {"positions": size_of(config, "max_target_positions") or 448, **_side_sizes(config, "decoder")}
    return _with_encoder(sizes, encoder, **common, **decoder)


#: ``model_type`` -> what it adds to its sizes.
ENCODER_DECODERS: dict[str, Variant] = {
    **dict.fromkeys(("t5", "mt5", "umt5"), _t5),
    **dict.fromkeys(("bart", "mbart", "blenderbot", "m2m_100", "pegasus"), _bart),
    "whisper": _whisper,
}


#: Tokens of a chunk of linear attention, as its kernels take them.
_CHUNK = 256


def _mamba(config: Config, hidden: int, **traits: Any) -> dict[str, Any]:
    """Sizes of a layer of Mamba: its matrices, and convolution, decays and skip a channel."""
    state = size_of(config, "state_size", "mamba_d_state") or 16
    width = float(config.get("expand") or config.get("mamba_expand") or 2)
    inner = (size_of(config, "intermediate_size") if "state_size" in config else None) or int(width * hidden)
    rank = config.get("time_step_rank") or config.get("mamba_dt_rank")
    rank = rank if isinstance(rank, int) else -(-hidden // 16)
    kernel = (size_of(config, "conv_kernel", "mamba_d_conv") or 4) + _with(config, "use_conv_bias", "mamba_conv_bias")
    mixer = (
        Matrix("in_proj", hidden, 2 * inner),
        Matrix("x_proj", inner, rank + 2 * state),
        Matrix("dt_proj", rank, inner),
        Matrix("out_proj", inner, hidden),
    )
    biases = (2 * inner + hidden) * _with(config, "use_bias", "mamba_proj_bias", default=False)
    extra = inner * (kernel + state + 2) + biases
    return {"hidden": hidden, "mixer": mixer, "extra": extra, "heads": 0, "window": 2 * state, **traits}


def _mamba2(config: Config, hidden: int, **traits: Any) -> dict[str, Any]:
    """Sizes of a layer of Mamba-2: heads share their decay, and groups of heads keys and queries."""
    state = size_of(config, "state_size", "mamba_d_state", "ssm_state_size") or 128
    heads = size_of(config, "mamba_n_heads", "mamba_num_heads", "num_heads") or 1
    head = size_of(config, "mamba_d_head", "mamba_head_dim", "head_dim") or 64
    inner = size_of(config, "mamba_d_ssm") or heads * head
    shared = 2 * state * (size_of(config, "n_groups", "mamba_n_groups") or 1)
    kernel = size_of(config, "conv_kernel", "mamba_d_conv") or 4
    kernel += _with(config, "use_conv_bias", "mamba_conv_bias")
    mixer = (Matrix("in_proj", hidden, 2 * inner + shared + heads), Matrix("out_proj", inner, hidden))
    biased = _with(config, "use_bias", "mamba_proj_bias", "projectors_bias", default=False)
    norm = inner * _with(config, "mamba_rms_norm")
    extra = (inner + shared) * kernel + 3 * heads + norm + (2 * inner + shared + heads + hidden) * biased
    window = (size_of(config, "chunk_size", "mamba_chunk_size") or _CHUNK) // 4 + state
    return {
        "hidden": hidden,
        "mixer": mixer,
        "extra": extra,
        "heads": heads,
        "head_dim": head,
        "window": window,
        **traits,
    }


def _with(config: Config, *keys: str, default: bool = True) -> bool:
    return bool(next((config[key] for key in keys if config.get(key) is not None), default))


def _stack(**sizes: Any) -> Transformer:
    """Layers that stand among others: no embedding, no head."""
    return Transformer(**{"vocab": 0, "tied": True, "outer_norms": 0, "ffn": 0, **sizes})


def _only_mamba(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    return {**_mamba(config, sizes["hidden"]), "ffn": 0}


def _only_mamba2(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    return {**_mamba2(config, sizes["hidden"]), "ffn": 0}


def _jamba(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """One layer of so many has attention, one of so many experts."""
    layers, several = range(sizes["layers"]), (sizes.get("experts") or 1) > 1
    attention = _every(config, "attn_layer_offset", "attn_layer_period", layers)
    sparse = _every(config, "expert_layer_offset", "expert_layer_period", layers) if several else set()
    shared = {name: sizes[name] for name in ("experts", "active_experts", "ffn") if name in sizes} if several else {}
    kinds = {"expert_ffn": sizes["ffn"]} if several else {"experts": 0, "active_experts": 0}
    hidden, mixed = sizes["hidden"], set(layers) - attention
    state, rank = size_of(config, "mamba_d_state") or 16, config.get("mamba_dt_rank")
    norms = 2 * state + (rank if isinstance(rank, int) else -(-hidden // 16))
    mamba = _mamba(
        config, hidden, layers=len(mixed), dense_layers=len(mixed - sparse), **{"ffn": sizes["ffn"], **shared}
    )
    mamba["extra"] += norms
    own = {"layers": len(attention), "dense_layers": len(attention - sparse)}
    return {**kinds, **own, "parts": (_stack(**{**mamba, **kinds}),)}


def _every(config: Config, offset: str, period: str, layers: range) -> set[int]:
    first, step = (size_of(config, key) or _USUAL[key] for key in (offset, period))
    return {place for place in layers if place % step == first}


#: Of Jamba, where a configuration leaves them out.
_USUAL = {"attn_layer_offset": 4, "attn_layer_period": 8, "expert_layer_offset": 1, "expert_layer_period": 2}


def _interleaved(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Attention in the layers that are named, Mamba-2 in the others, both with the same feed-forward part."""
    kinds = list(config.get("layers_block_type") or config.get("layer_types") or ())
    named = config.get("attn_layer_indices") or [place for place, kind in enumerate(kinds) if kind != "mamba"]
    found = _experts(config, sizes) if config.get("model_type") in ("granitemoehybrid", "granitemoe") else {}
    both = _feed_forward({**sizes, **found})
    mamba = _stack(**_mamba2(config, sizes["hidden"], layers=sizes["layers"] - len(named), **both))
    if not named:  # nothing but Mamba-2: the head and the embedding are of its stack
        return {**found, **_mamba2(config, sizes["hidden"])}
    return {
        **plain(config, sizes),
        **found,
        "layers": len(named),
        "parts": (mamba,) if len(named) < sizes["layers"] else (),
    }


def _feed_forward(sizes: dict[str, Any], *further: str) -> dict[str, Any]:
    names = ("ffn", "experts", "active_experts", "expert_ffn", "shared_ffn", "dense_layers", "gated", *further)
    return {name: sizes[name] for name in names if name in sizes}


def _experts(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Granite: the width is that of an expert, and a shared one may stand beside them, or alone."""
    shared, several = size_of(config, "shared_intermediate_size") or 0, bool(sizes.get("experts"))
    if several:
        return {**plain(config, sizes), "expert_ffn": sizes["ffn"], "shared_ffn": shared, "dense_layers": 0}
    return {**plain(config, sizes), "ffn": shared or sizes["ffn"], "experts": 0, "active_experts": 0}


def _parallel(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Falcon-H1: attention and Mamba-2 side by side in each layer."""
    beside = {"mamba_rms_norm": False, **config}
    mamba = _stack(**_mamba2(beside, sizes["hidden"], layers=sizes["layers"], norms=0))
    return {**plain(config, sizes), "parts": (mamba,)}


def _pattern(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Nemotron-H: layers of one kind each, attention (*), Mamba-2 (M), feed-forward (-) or experts (E)."""
    shown, hidden = str(config.get("hybrid_override_pattern") or ""), sizes["hidden"]
    shown = shown or "".join(_LETTERS.get(kind, "?") for kind in config.get("layers_block_type") or ())
    routed: dict[str, Any] = {
        name: sizes[name] for name in ("experts", "active_experts", "expert_ffn") if name in sizes
    }
    routed["shared_ffn"] = size_of(config, "moe_shared_expert_intermediate_size") or 0
    traits = {"norms": 1, "gated": False, "hidden": hidden}
    kinds: dict[str, dict[str, Any]] = {
        "M": _mamba2({**config, "expand": None}, hidden, norms=1),
        "-": {"heads": 0, "ffn": sizes["ffn"], **traits},
        "E": {"heads": 0, "ffn": 0, **routed, **traits},
    }
    parts = tuple(_stack(**layer, layers=shown.count(kind)) for kind, layer in kinds.items() if kind in shown)
    none = dict.fromkeys(("experts", "active_experts", "expert_ffn", "shared_ffn"), 0)
    return {**none, "layers": max(shown.count("*"), 1), "ffn": 0, "parts": parts}


_LETTERS = {"attention": "*", "full_attention": "*", "mamba": "M", "linear_attention": "M", "mlp": "-", "moe": "E"}


def _delta_net(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Qwen3-Next: gated delta net in most layers, and attention with a gate as wide as its queries."""
    hidden, keys, values = sizes["hidden"], *(_linear_width(config, name) for name in ("key", "value"))
    heads, width = size_of(config, "linear_num_value_heads") or 1, size_of(config, "linear_value_head_dim") or 1
    mixer = (
        Matrix("in_proj_qkvz", hidden, 2 * keys + 2 * values),
        Matrix("in_proj_ba", hidden, 2 * heads),
        Matrix("out_proj", values, hidden),
    )
    extra = (2 * keys + values) * (size_of(config, "linear_conv_kernel_dim") or 4) + 2 * heads + width
    found = plain(config, sizes)
    kinds = list(config.get("layer_types") or ["linear_attention"] * 3 + ["full_attention"])
    linear = round(kinds.count("linear_attention") / len(kinds) * sizes["layers"])
    shared = _feed_forward({**sizes, **found}, "shared_gate")
    stack = {"layers": linear, "heads": heads, "head_dim": width, "window": _CHUNK // 4 + width, "extra": extra}
    delta = _stack(hidden=hidden, mixer=mixer, **{**shared, **stack})
    return {**found, "layers": sizes["layers"] - linear, "attention_gate": True, "parts": (delta,)}


def _linear_width(config: Config, name: str) -> int:
    return (size_of(config, f"linear_num_{name}_heads") or 1) * (size_of(config, f"linear_{name}_head_dim") or 1)


def _lightning(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """MiniMax: linear attention with a gate in most layers."""
    kinds, found = list(config.get("layer_types") or ()), plain(config, sizes)
    linear, hidden = kinds.count("linear_attention"), sizes["hidden"]
    width = sizes["heads"] * (sizes.get("head_dim") or hidden // sizes["heads"])
    mixer = (
        Matrix("qkv_proj", hidden, 3 * width),
        Matrix("output_gate", hidden, width),
        Matrix("out_proj", width, hidden),
    )
    shared = _feed_forward({**sizes, **found})
    both = {"heads": sizes["heads"], "head_dim": width // sizes["heads"], "window": _CHUNK, "extra": width}
    parts = (_stack(hidden=hidden, layers=linear, mixer=mixer, **{**shared, **both}),) if linear else ()
    return {**found, "layers": sizes["layers"] - linear, "window_share": 0.0, "parts": parts}


#: ``model_type`` -> what it adds to its sizes.
HYBRIDS: dict[str, Variant] = {
    "mamba": _only_mamba,
    "mamba2": _only_mamba2,
    "jamba": _jamba,
    "bamba": _interleaved,
    "granitemoe": _experts,
    "granitemoehybrid": _interleaved,
    "falcon_h1": _parallel,
    "nemotron_h": _pattern,
    "qwen3_next": _delta_net,
    "minimax": _lightning,
}


_PLAIN: dict[str, Any] = {"vocab": 0, "tied": True, "causal": False, "gated": False, "norm_bias": True, "biases": "all"}


def image_sizes(config: Config, hidden: int, *, tokens: int = 1, masks: int = 0, bias: bool = True) -> dict[str, int]:
    """Tokens of an image, and parameters of its patches, positions and further tokens.

    `tokens`, `masks`: learned vectors that stand before the patches, and that replace masked ones. `bias`: of the
    patches.
    """
    side, patch = (_image_side(config, name, default) for name, default in (("image_size", 224), ("patch_size", 16)))
    places = (side // patch) ** 2 + tokens
    pixels = (size_of(config, "num_channels", "in_channels", "in_chans") or 3) * patch * patch
    return {"vocab": 0, "tokens": places, "outer": hidden * (pixels + bias + places + tokens + masks)}


def _image_side(config: Config, name: str, default: int) -> int:
    value = config.get(name)
    return int((value[0] if isinstance(value, (list, tuple)) else value) or default)


def _classifier(config: Config, hidden: int, width: int = 1) -> int:
    return labels_of(config) * (width * hidden + 1)


def _vit(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    hidden, kind = sizes["hidden"], str(config.get("model_type"))
    found = image_sizes(config, hidden, tokens={"ijepa": 0, "deit": 2}.get(kind, 1))
    return {**found, "outer": found["outer"] + _classifier(config, hidden)}


def _beit(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Scales of each layer's outputs; positions are biases of the scores, or learned."""
    hidden, heads = sizes["hidden"], sizes["heads"]
    found = image_sizes(config, hidden, masks=int(bool(config.get("use_mask_token"))))
    grid = _image_side(config, "image_size", 224) // _image_side(config, "patch_size", 16)
    table = ((2 * grid - 1) ** 2 + 3) * heads
    scales = 2 * hidden * bool(config.get("layer_scale_init_value"))
    absent = 0 if config.get("use_absolute_position_embeddings") else -found["tokens"] * hidden
    shared = table * bool(config.get("use_shared_relative_position_bias"))
    outer = found["outer"] + _classifier(config, hidden) + absent + shared
    return {**found, "outer": outer, "extra": scales + table * bool(config.get("use_relative_position_bias"))}


def _dinov2(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Scales of each layer's outputs; classes are read from two vectors of an image."""
    hidden, registers = sizes["hidden"], size_of(config, "num_register_tokens") or 0
    ratio = config.get("mlp_ratio") or 4
    found = image_sizes(config, hidden, masks=int(bool(config.get("use_mask_token", True))))
    outer = found["outer"] + registers * hidden + _classifier(config, hidden, 2)
    gated = bool(config.get("use_swiglu_ffn"))
    wide = int(hidden * ratio)
    width = (int(wide * 2 / 3) + 7) // 8 * 8 if gated else wide
    fused = {"gated": True, "fused": True} if gated else {}
    return {**found, "tokens": found["tokens"] + registers, "outer": outer, "extra": 2 * hidden, "ffn": width, **fused}


def _sound(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Convolutions of the wave, a convolution of positions, and letters."""
    hidden, kernels = sizes["hidden"], list(config.get("conv_kernel") or ())
    widths, biased = [1, *(config.get("conv_dim") or ())], bool(config.get("conv_bias"))
    stem = sum(k * a * b + b * biased for k, a, b in zip(kernels, widths, widths[1:], strict=False))
    layered = config.get("feat_extract_norm") == "layer"
    stem += 2 * (sum(widths[1:]) if layered else widths[1])
    width, groups = (
        size_of(config, "num_conv_pos_embeddings") or 128,
        size_of(config, "num_conv_pos_embedding_groups") or 16,
    )
    positions = width * hidden * hidden // groups + hidden + width
    normed = 2 * widths[-1] if config.get("feat_proj_layer_norm", True) else 0
    projection = normed + (widths[-1] + 1) * hidden
    mask = hidden
    letters = (size_of(config, "vocab_size") or 32) * (hidden + 1)
    return {"vocab": 0, "outer": stem + positions + projection + mask + letters}


def _two_towers(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """CLIP and SigLIP: text and images, each projected, and a temperature."""
    kind, vision = str(config.get("model_type")), dict(config.get("vision_config") or {})
    text = dict(config.get("text_config") or {})
    rows = sum(size_of(text, name) or 0 for name in ("vocab_size", "max_position_embeddings"))
    tower = vision_tower({"model_type": f"{kind}_vision_model", **vision})
    if kind == "siglip":
        width = size_of(text, "projection_size") or sizes["hidden"]
        return {"parts": (tower,), "positions": rows, "vocab": 0, "outer": sizes["hidden"] * width + width + 2}
    width = size_of(config, "projection_dim") or 512
    projections = (tower.hidden + sizes["hidden"]) * width + 1
    return {"parts": (tower,), "positions": rows, "vocab": 0, "causal": True, "outer": projections}


def vision_tower(config: Config) -> Transformer:
    """The stack that reads images for another one."""
    kind = str(config.get("model_type"))
    make = _TOWERS.get(kind)
    if make is None:
        raise InputError(
            f"the vision_config of {shorten(kind)!r} is not known here; leave vision_config out to count the decoder "
            "only, or trace the module with TrainingJob."
        )
    hidden = size_of(config, "embed_dim", "hidden_size", "d_model") or 1
    layers, heads = (size_of(config, *keys) or 1 for keys in _DEPTH)
    ffn = size_of(config, "intermediate_size", "mlp_dim") or int(hidden * float(config.get("mlp_ratio") or 4))
    return Transformer(
        **{**_PLAIN, "hidden": hidden, "layers": layers, "heads": heads, "ffn": ffn, **make(config, hidden)}
    )


_DEPTH = (("depth", "num_hidden_layers", "layers"), ("num_heads", "num_attention_heads", "heads"))


def _clip_tower(config: Config, hidden: int) -> dict[str, Any]:
    return {**image_sizes(config, hidden, bias=False), "outer_norms": 2}


def _siglip_tower(config: Config, hidden: int) -> dict[str, Any]:
    """With a head in which a learned vector attends to all patches."""
    found = image_sizes(config, hidden, tokens=0)
    ffn = size_of(config, "intermediate_size") or 4 * hidden
    pool = hidden + 4 * hidden * (hidden + 1) + 2 * hidden + 2 * hidden * ffn + ffn + hidden
    return {**found, "outer": found["outer"] + pool * bool(config.get("vision_use_head", True))}


def _plain_tower(config: Config, hidden: int) -> dict[str, Any]:
    return image_sizes(config, hidden, tokens=0)


def _pixtral_tower(config: Config, hidden: int) -> dict[str, Any]:
    patch = size_of(config, "patch_size") or 16
    patches = (size_of(config, "num_channels") or 3) * patch**2 * hidden
    return {
        "gated": True,
        "norm_bias": False,
        "biases": "none",
        "outer": patches,
        "head_dim": size_of(config, "head_dim") or 0,
    }


def _qwen_tower(config: Config, hidden: int) -> dict[str, Any]:
    """Patches of two images in a row, and a merger of four patches into a token of the decoder."""
    kind = str(config.get("model_type"))
    patches, merged = _patches(config, hidden), hidden * (size_of(config, "spatial_merge_size") or 2) ** 2
    out = size_of(config, "out_hidden_size", "hidden_size") or hidden
    merger = merged * (merged + 1) + (merged + 1) * out
    if kind.startswith("qwen3"):
        count = len(config.get("deepstack_visual_indexes") or ())
        places = (size_of(config, "num_position_embeddings") or 0) * hidden
        mergers = merger + 2 * hidden + count * (merger + 2 * merged)
        return {"outer_norms": 0, "outer": patches + hidden + places + mergers, "fused": True}
    newer = kind.startswith("qwen2_5")
    traits = {"gated": True, "norm_bias": False} if newer else {"fused": True}
    return {"outer_norms": 0, "outer": patches + merger + (1 if newer else 2) * hidden, **traits}


def _patches(config: Config, hidden: int) -> int:
    pixels = (size_of(config, "in_channels", "in_chans") or 3) * (size_of(config, "temporal_patch_size") or 2)
    return pixels * (size_of(config, "patch_size") or 14) ** 2 * hidden


def _intern_tower(config: Config, hidden: int) -> dict[str, Any]:
    """Scales of each layer's outputs, and normalised queries and keys."""
    found = image_sizes(config, hidden, masks=int(bool(config.get("use_mask_token", True))))
    absent = 0 if config.get("use_absolute_position_embeddings", True) else -found["tokens"] * hidden
    traits = {
        "outer_norms": 0 if config.get("use_mean_pooling", True) else 1,
        "biases": "all" if config.get("attention_bias") else "output",
        "extra": 2 * hidden + 2 * hidden * bool(config.get("use_qk_norm")),
        "norm_bias": config.get("norm_type", "layer_norm") == "layer_norm",
    }
    return {**found, "outer": found["outer"] + absent, **traits}


def _llama4_tower(config: Config, hidden: int) -> dict[str, Any]:
    """Patches without biases, and an adapter of two layers."""
    found = image_sizes(config, hidden, bias=False)
    ffn = size_of(config, "intermediate_size") or 4 * hidden
    into, out = (size_of(config, name) or hidden for name in ("projector_input_dim", "projector_output_dim"))
    return {**found, "outer": found["outer"] + ffn * into + out * out, "outer_norms": 2}


#: ``model_type`` of a whole -> that of its tower, where a configuration leaves it out.
TOWER_OF = {
    **dict.fromkeys(("gemma3", "paligemma"), "siglip_vision_model"),
    **dict.fromkeys(("llava", "llava_next"), "clip_vision_model"),
    "internvl": "internvl_vision",
    "llama4": "llama4_vision_model",
    "mistral3": "pixtral",
}
_TOWERS = {
    "clip_vision_model": _clip_tower,
    "siglip_vision_model": _siglip_tower,
    **dict.fromkeys(("idefics3", "smolvlm", "smolvlm_vision", "idefics3_vision"), _plain_tower),
    "pixtral": _pixtral_tower,
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"), _qwen_tower),
    "internvl_vision": _intern_tower,
    "llama4_vision_model": _llama4_tower,
}


def connector_parameters(config: Config, vision: Transformer, text: Transformer) -> int:
    """Parameters between the tower of images and the decoder."""
    kind, v, t = str(config.get("model_type")), vision.hidden, text.hidden
    if kind.startswith("qwen"):
        return 0  # the merger is counted with the tower
    if kind.startswith(("llava", "vipllava")):
        several = config.get("vision_feature_layer")
        wide = v * len(several) if isinstance(several, (list, tuple)) else v
        return wide * t + t * t + 2 * t * bool(config.get("multimodal_projector_bias", True)) + t * (kind != "llava")
    if kind == "mistral3":
        merged = (size_of(config, "spatial_merge_size") or 2) ** 2 * v * v
        return v + merged + v * t + t * t + 2 * t * bool(config.get("multimodal_projector_bias"))
    if kind == "internvl":
        wide = v * int(1 / float(config.get("downsample_ratio") or 0.5)) ** 2
        return 2 * wide + wide * t + t + t * t + t
    if kind == "paligemma":
        return (v + 1) * (size_of(config, "projection_dim") or t)
    if kind == "gemma3":
        return v * t + v
    if kind in ("idefics3", "smolvlm"):
        return v * (size_of(config, "scale_factor") or 2) ** 2 * t
    if kind == "llama4":
        return (size_of(dict(config["vision_config"]), "vision_output_dim") or v) * t
    raise InputError(
        f"what joins images and text in {shorten(kind)!r} is not known here; leave vision_config out to count the "
        "decoder only, or trace the module with TrainingJob."
    )


#: ``model_type`` -> what it adds to its sizes.
TOWERS: dict[str, Variant] = {
    "vit": _vit,
    "beit": _beit,
    "dinov2": _dinov2,
    "wav2vec2": _sound,
    "clip": _two_towers,
    "siglip": _two_towers,
}
