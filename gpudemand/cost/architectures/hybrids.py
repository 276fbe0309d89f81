"""Decoders of which some layers, or all, are state-space layers or linear attention: a stack of each kind."""

from __future__ import annotations

from typing import Any

from gpudemand.cost.architectures.architecture import Transformer
from gpudemand.cost.architectures.matrices import Matrix
from gpudemand.cost.architectures.reading import Config, Variant, plain, size_of

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
    both = {name: {**sizes, **found}[name] for name in _FEED_FORWARD if name in {**sizes, **found}}
    mamba = _stack(**_mamba2(config, sizes["hidden"], layers=sizes["layers"] - len(named), **both))
    if not named:  # nothing but Mamba-2: the head and the embedding are of its stack
        return {**found, **_mamba2(config, sizes["hidden"])}
    return {
        **plain(config, sizes),
        **found,
        "layers": len(named),
        "parts": (mamba,) if len(named) < sizes["layers"] else (),
    }


_FEED_FORWARD = ("ffn", "experts", "active_experts", "expert_ffn", "shared_ffn", "dense_layers", "gated")


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
    shared = {name: {**sizes, **found}[name] for name in (*_FEED_FORWARD, "shared_gate") if name in {**sizes, **found}}
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
    shared = {name: {**sizes, **found}[name] for name in _FEED_FORWARD if name in {**sizes, **found}}
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
