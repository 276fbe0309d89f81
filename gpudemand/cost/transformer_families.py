"""Configurations of families of transformers: decoders, encoder-decoders, hybrids, towers."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gpudemand._tables import keyed_rows
from gpudemand._validation import InputError, shorten
from gpudemand.cost.transformer import Config, Matrix, Transformer, count_of, labels_of, size_of

F = TypeVar("F", bound=Callable[..., Any])
#: What a family adds to the sizes that its configuration gives: of the configuration and these sizes.
Variant = Callable[[Config, dict[str, Any]], dict[str, Any]]
#: Those of one formula; `_of` enters the others.
_VARIANTS: dict[str, Variant] = {
    # Two more normalisations, one of the width of the feed-forward layer.
    "bitnet": lambda config, sizes: {"norms": 3, "extra": sizes["ffn"]},
    "cohere": lambda config, sizes: {"qk_norm": 2 if config.get("use_qk_norm") else 0},
    "gpt_bigcode": lambda config, sizes: {"kv_heads": 1} if config.get("multi_query", True) else {},
    "mamba": lambda config, sizes: {**_mamba(config, sizes["hidden"]), "ffn": 0},
    "mamba2": lambda config, sizes: {**_mamba2(config, sizes["hidden"]), "ffn": 0},
    "mpnet": lambda config, sizes: {"outer": count_of(config, "relative_attention_num_buckets") * sizes["heads"]},
    # The first Qwen counts gate and up together.
    "qwen": lambda config, sizes: {"ffn": sizes["ffn"] // 2},
    "stablelm": lambda config, sizes: {
        "norms": 1 if config.get("use_parallel_residual") else 2,
        "qk_norm": 2 if config.get("qk_layernorm") else 0,
    },
}
#: Kind of tower -> its sizes, of its configuration and width.
_TOWERS: dict[str, Callable[[Config, int], dict[str, Any]]] = {
    "clip_vision_model": lambda config, hidden: {**_image(config, hidden, bias=False), "outer_norms": 2},
    **dict.fromkeys(
        ("idefics3", "smolvlm", "smolvlm_vision", "idefics3_vision"),
        lambda config, hidden: _image(config, hidden, tokens=0),
    ),
}


class Family(NamedTuple):
    """A row of ``transformer_families.csv``: what configurations of a ``model_type`` leave unsaid.

    `traits`: fields of `Transformer`, unless a configuration says otherwise. `sizes`: further ones as sums of keys of
    the configuration, ``|`` between keys of which the first counts. `variant`: what is left to code.
    """

    traits: dict[str, Any]
    sizes: dict[str, str]
    variant: Variant


@functools.cache
def families() -> dict[str, Family]:
    """Families by ``model_type``; some have the layers of another one."""
    rows = keyed_rows(Path(__file__).with_suffix(".csv"))
    of = {kind: row["like"] or kind for kind, row in rows.items()}
    return {
        kind: Family(
            read_pairs(rows[name]["traits"]),
            read_pairs(rows[name]["sizes"]),
            _VARIANTS.get(name, lambda config, sizes: {}),
        )
        for kind, name in of.items()
    }


def read_pairs(text: str) -> dict[str, Any]:
    """Keys and values of ``key=value;key=value``.

    >>> read_pairs("layers=2;gated=false;biases=all")
    {'layers': 2, 'gated': False, 'biases': 'all'}
    """
    pairs = (part.split("=") for part in filter(None, text.split(";")))
    return {key: _value(value) for key, value in pairs}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def summed(config: Config, keys: str) -> int:
    """Sum of keys of a configuration, and of numbers; see `Family`."""
    return sum(int(part) if part.isdigit() else count_of(config, *part.split("|")) for part in keys.split("+"))


def _named(table: dict[str, Any], *kinds: str) -> Callable[[F], F]:
    """Decorator that enters a function into a table."""

    def enter(function: F) -> F:
        """Enter it under each of its names."""
        table.update(dict.fromkeys(kinds, function))
        return function

    return enter


_of, _tower = functools.partial(_named, _VARIANTS), functools.partial(_named, _TOWERS)


@_of("deepseek_v2", "deepseek_v3", "glm4_moe")
def _multiplied_shared(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Shared experts are given by their number, widths of heads by their parts."""
    shared = {"shared_ffn": sizes.get("expert_ffn", 0) * count_of(config, "n_shared_experts")}
    if not sizes.get("kv_rank"):
        return {**shared, "qk_norm": int(bool(config.get("use_qk_norm")))}
    content = size_of(config, "qk_nope_head_dim")
    if content is None or "rope_dim" not in sizes:
        raise InputError("the configuration lacks qk_nope_head_dim or qk_rope_head_dim, the parts of a head.")
    return {**shared, "head_dim": content + sizes["rope_dim"]}


@_of("opt")
def _opt(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """With a narrow embedding there are projections, and positions keep the width of the layers."""
    hidden, width = sizes["hidden"], sizes.get("embed_width") or sizes["hidden"]
    places = count_of(config, "max_position_embeddings") + 2  # for padding
    final = 1 if config.get("do_layer_norm_before", True) and not config.get("_remove_final_layer_norm") else 0
    if width == hidden:
        return {"positions": places, "reserved": 2, "outer_norms": final}
    return {"outer": places * hidden + 2 * width * hidden, "outer_norms": final}


@_of("electra")
def _electra(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """An embedding narrower than the layers, as of ALBERT, and a square layer of its width in the head."""
    hidden, width = sizes["hidden"], sizes["embed_width"]
    between = (hidden + 1) * width + 2 * width  # and its normalisation
    into = (width + 1) * hidden if width != hidden else 0
    return {"outer_norms": 0, "outer": 2 * width + into + between}


@_of("albert")
def _albert(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """All layers share their parameters: those of one are there."""
    found, hidden, ffn = _electra(config, sizes), sizes["hidden"], sizes["ffn"]
    layer = 4 * hidden * (hidden + 1) + 2 * hidden * ffn + hidden + ffn + 4 * hidden
    into = 0 if sizes["embed_width"] != hidden else (hidden + 1) * hidden
    repeated = sizes["layers"] - count_of(config, "num_hidden_groups", usual=1)
    return {**found, "outer": found["outer"] + into - repeated * layer}


@_of("deberta", "deberta-v2")
def _deberta(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Attention to positions has matrices of its own, and a table beside the embedding; of the second, shared ones."""
    hidden, kinds = sizes["hidden"], str(config.get("pos_att_type") or "").replace("|", " ")
    types, limit = count_of(config, "type_vocab_size"), int(config.get("max_relative_positions") or -1)
    places = count_of(config, "max_position_embeddings")
    positions = types + places * bool(config.get("position_biased_input", True))
    second = config.get("model_type") == "deberta-v2"
    found: dict[str, Any] = {"positions": positions, "reserved": types, "embed_width": 0}
    if not config.get("relative_attention"):
        return found
    buckets = int(config.get("position_buckets") or -1) if second else -1
    rows = buckets if buckets > 0 else limit if limit > 0 else places
    table = 2 * rows * hidden + (2 * hidden if second and "layer_norm" in str(config.get("norm_rel_ebd")) else 0)
    kernel = count_of(config, "conv_kernel_size")
    table += kernel * hidden * hidden + 3 * hidden if second and kernel else 0
    shared = second and config.get("share_att_key")
    keys = ("c2p" in kinds) * (hidden + second) * hidden
    queries = ("p2c" in kinds) * (hidden + 1) * hidden
    return {**found, "outer": table, "extra": 0 if shared else keys + queries}


@_of("modernbert")
def _modern_bert(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """The first layer has one normalisation less; a square layer stands before the head."""
    every = count_of(config, "global_attn_every_n_layers", usual=1)
    window = {"window": count_of(config, "local_attention"), "window_share": 1.0 - 1.0 / every}
    return {**window, "outer_norms": 2, "outer": sizes["hidden"] ** 2}


@_of("falcon")
def _falcon(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    biases = {"biases": "all" if config.get("bias") else "none"}
    if config.get("new_decoder_architecture"):
        return {**biases, "norms": count_of(config, "num_ln_in_parallel_attn", usual=2)}
    norms = 1 if config.get("parallel_attn", True) else 2
    return {**biases, "norms": norms, "kv_heads": 1 if config.get("multi_query", True) else sizes["heads"]}


@_of("gemma2", "gemma3_text", "gpt_oss")
def _alternating(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Decoders in which one layer of so many attends to everything, unless a configuration lists its layers."""
    pattern = count_of(config, "sliding_window_pattern", "_sliding_window_pattern")
    return {"window_share": 1.0 - 1.0 / pattern} if pattern and not config.get("layer_types") else {}


@_of("ernie4_5_moe")
def _ernie_experts(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    first = count_of(config, "moe_layer_start_index")
    shared = sizes.get("expert_ffn", 0) * count_of(config, "moe_num_shared_experts")
    corrections = (sizes["layers"] - first) * sizes.get("experts", 0)
    return {"dense_layers": first, "shared_ffn": shared, "outer": corrections}


@_of("dbrx")
def _dbrx(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    inner, attention = dict(config.get("ffn_config") or {}), dict(config.get("attn_config") or {})
    kinds = {"experts": "moe_num_experts", "active_experts": "moe_top_k", "expert_ffn": "ffn_hidden_size"}
    return {
        **{name: count_of(inner, key, usual=1) for name, key in kinds.items()},
        "kv_heads": attention.get("kv_n_heads", 1),
    }


@_of("llama4_text")
def _llama4(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """One layer of so many has experts, one of them shared; the others have a width of their own."""
    ffn, layers, named = sizes["ffn"], sizes["layers"], config.get("moe_layers")
    dense = count_of(config, "intermediate_size_mlp", usual=ffn)
    sparse = layers // count_of(config, "interleave_moe_layer_step", usual=1) if named is None else len(named)
    return {"expert_ffn": ffn, "shared_ffn": ffn, "ffn": dense, "dense_layers": layers - sparse}


def _with_encoder(sizes: dict[str, Any], encoder: dict[str, Any], **decoder: Any) -> dict[str, Any]:
    """A decoder, and an encoder of the same width without embedding and head of its own."""
    alike = _some(sizes, "hidden", "layers", "heads", "ffn", "head_dim", "gated")
    own = {"vocab": 0, "tied": True, "causal": False}
    return {**decoder, "source_share": 1.0, "parts": (Transformer(**{**alike, **own, **encoder}),)}


def _some(sizes: dict[str, Any], *names: str) -> dict[str, Any]:
    """Those of some sizes that are there."""
    return {name: sizes[name] for name in names if name in sizes}


@_of("t5", "mt5", "umt5")
def _t5(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Positions are biases of the scores by distance, of the first layer of each stack, or of each layer."""
    buckets = count_of(config, "relative_attention_num_buckets", usual=32) * sizes["heads"]
    kind = config.get("model_type")
    biases = {"extra" if kind == "umt5" else "outer": buckets}
    projection = str(config.get("feed_forward_proj", "relu" if kind == "t5" else "gated"))
    gated = bool(config.get("is_gated_act")) or projection.startswith("gated")
    layers = count_of(config, "num_decoder_layers", usual=sizes["layers"])
    return _with_encoder({**sizes, "gated": gated}, {"norms": 2, **biases}, gated=gated, layers=layers, **biases)


@_of("bart", "mbart", "blenderbot", "m2m_100", "pegasus")
def _bart(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Both stacks end in a normalisation or begin with one; positions are learned, sinusoids, or none that count."""
    kind = str(config.get("model_type"))
    offset = 2 if kind in ("bart", "mbart", "plbart", "mvp") else 0
    places = 0 if kind == "m2m_100" else count_of(config, "max_position_embeddings") + offset
    norms = {"mbart": 2, "marian": 0}.get(kind, 1)
    common = {"norm_bias": True, "biases": "all", "gated": False, "outer_norms": norms}
    common |= {"positions": places, "reserved": min(offset, places)}
    encoder, decoder = ({**common, **_side_sizes(config, side)} for side in ("encoder", "decoder"))
    return _with_encoder(sizes, encoder, **decoder)


def _side_sizes(config: Config, side: str) -> dict[str, Any]:
    keys = {"layers": f"{side}_layers", "heads": f"{side}_attention_heads", "ffn": f"{side}_ffn_dim"}
    return {name: value for name, key in keys.items() if (value := size_of(config, key)) is not None}


@_of("whisper")
def _whisper(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Two convolutions make half as many tokens of the frames of 30 seconds."""
    hidden, bands = sizes["hidden"], count_of(config, "num_mel_bins", usual=80)
    tokens = count_of(config, "max_source_positions", usual=1500)
    stem = 3 * hidden * (bands + hidden) + 2 * hidden  # kernels are three frames wide
    common = {"norm_bias": True, "biases": "keyless", "gated": False}
    encoder = {**common, "positions": tokens, "tokens": tokens, "outer": stem, **_side_sizes(config, "encoder")}
    decoder = {"positions": count_of(config, "max_target_positions", usual=448), **_side_sizes(config, "decoder")}
    return _with_encoder(sizes, encoder, **common, **decoder)


#: Tokens of a chunk of linear attention, as its kernels take them.
_CHUNK = 256


def _mamba(config: Config, hidden: int) -> dict[str, Any]:
    """Sizes of a layer of Mamba: its matrices, and convolution, decays and skip a channel."""
    state = count_of(config, "state_size", "mamba_d_state", usual=16)
    width = float(config.get("expand") or config.get("mamba_expand") or 2)
    inner = (size_of(config, "intermediate_size") if "state_size" in config else None) or int(width * hidden)
    rank, kernel = _rank(config, hidden), count_of(config, "conv_kernel", "mamba_d_conv", usual=4)
    kernel += _with(config, "use_conv_bias", "mamba_conv_bias")
    mixer = (
        Matrix("in_proj", hidden, 2 * inner),
        Matrix("x_proj", inner, rank + 2 * state),
        Matrix("dt_proj", rank, inner),
        Matrix("out_proj", inner, hidden),
    )
    biases = (2 * inner + hidden) * _with(config, "use_bias", "mamba_proj_bias", default=False)
    extra = inner * (kernel + state + 2) + biases
    return {"hidden": hidden, "mixer": mixer, "extra": extra, "heads": 0, "window": 2 * state}


def _rank(config: Config, hidden: int) -> int:
    rank = config.get("time_step_rank") or config.get("mamba_dt_rank")
    return rank if isinstance(rank, int) else -(-hidden // 16)


def _mamba2(config: Config, hidden: int) -> dict[str, Any]:
    """Sizes of a layer of Mamba-2: heads share their decay, and groups of heads keys and queries."""
    state = count_of(config, "state_size", "mamba_d_state", "ssm_state_size", usual=128)
    heads = count_of(config, "mamba_n_heads", "mamba_num_heads", "num_heads", usual=1)
    head = count_of(config, "mamba_d_head", "mamba_head_dim", "head_dim", usual=64)
    inner = count_of(config, "mamba_d_ssm", usual=heads * head)
    shared = 2 * state * count_of(config, "n_groups", "mamba_n_groups", usual=1)
    kernel = count_of(config, "conv_kernel", "mamba_d_conv", usual=4)
    kernel += _with(config, "use_conv_bias", "mamba_conv_bias")
    mixer = (Matrix("in_proj", hidden, 2 * inner + shared + heads), Matrix("out_proj", inner, hidden))
    biased = _with(config, "use_bias", "mamba_proj_bias", "projectors_bias", default=False)
    norm = inner * _with(config, "mamba_rms_norm")
    extra = (inner + shared) * kernel + 3 * heads + norm + (2 * inner + shared + heads + hidden) * biased
    window = count_of(config, "chunk_size", "mamba_chunk_size", usual=_CHUNK) // 4 + state
    return {"hidden": hidden, "mixer": mixer, "extra": extra, "heads": heads, "head_dim": head, "window": window}


def _with(config: Config, *keys: str, default: bool = True) -> bool:
    return bool(next((config[key] for key in keys if config.get(key) is not None), default))


def _stack(**sizes: Any) -> Transformer:
    """Layers that stand among others: no embedding, no head."""
    return Transformer(**{"vocab": 0, "tied": True, "outer_norms": 0, "ffn": 0, **sizes})


@_of("jamba")
def _jamba(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """One layer of so many has attention, one of so many experts."""
    layers, several = set(range(sizes["layers"])), (sizes.get("experts") or 1) > 1
    attention = _every(config, "attn", layers)
    sparse = _every(config, "expert", layers) if several else set()
    kinds = {"expert_ffn": sizes["ffn"]} if several else {"experts": 0, "active_experts": 0}
    shared = {**_some(sizes, "ffn", "experts", "active_experts"), **kinds}
    others, mamba = layers - attention, _mamba(config, sizes["hidden"])
    # Steps, inputs and outputs of the state are normalised.
    mamba["extra"] += 2 * count_of(config, "mamba_d_state", usual=16) + _rank(config, sizes["hidden"])
    part = _stack(**{**mamba, **shared, "layers": len(others), "dense_layers": len(others - sparse)})
    return {**kinds, "layers": len(attention), "dense_layers": len(attention - sparse), "parts": (part,)}


def _every(config: Config, name: str, layers: set[int]) -> set[int]:
    first, step = {"attn": (4, 8), "expert": (1, 2)}[name]
    first = count_of(config, f"{name}_layer_offset", usual=first)
    step = count_of(config, f"{name}_layer_period", usual=step)
    return {place for place in layers if place % step == first}


@_of("bamba", "granitemoehybrid")
def _interleaved(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Attention in the layers that are named, Mamba-2 in the others, both with the same feed-forward part."""
    kinds = list(config.get("layers_block_type") or config.get("layer_types") or ())
    named = config.get("attn_layer_indices") or [place for place, kind in enumerate(kinds) if kind != "mamba"]
    found = _experts(config, sizes) if config.get("model_type") == "granitemoehybrid" else {}
    mamba, others = _mamba2(config, sizes["hidden"]), sizes["layers"] - len(named)
    if not named:  # nothing but Mamba-2: the head and the embedding are of its stack
        return {**found, **mamba}
    parts = (_stack(**mamba, layers=others, **_feed_forward({**sizes, **found})),) if others else ()
    return {**found, "layers": len(named), "parts": parts}


def _feed_forward(sizes: dict[str, Any], *further: str) -> dict[str, Any]:
    names = ("ffn", "experts", "active_experts", "expert_ffn", "shared_ffn", "dense_layers", "gated")
    return _some(sizes, *names, *further)


@_of("granitemoe")
def _experts(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Granite: the width is that of an expert, and a shared one may stand beside them, or alone."""
    shared, several = count_of(config, "shared_intermediate_size"), bool(sizes.get("experts"))
    if several:
        return {"expert_ffn": sizes["ffn"], "shared_ffn": shared, "dense_layers": 0}
    return {"ffn": shared or sizes["ffn"], "experts": 0, "active_experts": 0}


@_of("falcon_h1")
def _parallel(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Falcon-H1: attention and Mamba-2 side by side in each layer."""
    mamba = _mamba2({"mamba_rms_norm": False, **config}, sizes["hidden"])
    return {"parts": (_stack(**mamba, layers=sizes["layers"], norms=0),)}


@_of("nemotron_h")
def _pattern(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Nemotron-H: layers of one kind each, attention (*), Mamba-2 (M), feed-forward (-) or experts (E)."""
    shown, hidden = str(config.get("hybrid_override_pattern") or ""), sizes["hidden"]
    shown = shown or "".join(_LETTERS.get(kind, "?") for kind in config.get("layers_block_type") or ())
    routed = _some(sizes, "experts", "active_experts", "expert_ffn", "expert_hidden")
    routed["shared_ffn"] = count_of(config, "moe_shared_expert_intermediate_size")
    plain = {"norms": 1, "gated": False, "hidden": hidden, "heads": 0}
    kinds = {
        "M": {**_mamba2({**config, "expand": None}, hidden), "norms": 1},
        "-": {**plain, "ffn": sizes["ffn"]},
        "E": {**plain, **routed},
    }
    parts = tuple(_stack(**layer, layers=shown.count(kind)) for kind, layer in kinds.items() if kind in shown)
    return {**dict.fromkeys(routed, 0), "layers": max(shown.count("*"), 1), "ffn": 0, "parts": parts}


_LETTERS = {"attention": "*", "full_attention": "*", "mamba": "M", "linear_attention": "M", "mlp": "-", "moe": "E"}


@_of("qwen3_next")
def _delta_net(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Qwen3-Next: gated delta net in most layers, and attention with a gate as wide as its queries."""
    (groups, size), (heads, width) = (
        [count_of(config, key, usual=1) for key in (f"linear_num_{name}_heads", f"linear_{name}_head_dim")]
        for name in ("key", "value")
    )
    hidden, keys, values = sizes["hidden"], groups * size, heads * width
    mixer = (
        Matrix("in_proj_qkvz", hidden, 2 * keys + 2 * values),
        Matrix("in_proj_ba", hidden, 2 * heads),
        Matrix("out_proj", values, hidden),
    )
    extra = (2 * keys + values) * count_of(config, "linear_conv_kernel_dim", usual=4) + 2 * heads + width
    kinds = list(config.get("layer_types") or ["linear_attention"] * 3 + ["full_attention"])
    linear = round(kinds.count("linear_attention") / len(kinds) * sizes["layers"])
    delta = {"hidden": hidden, "mixer": mixer, "heads": heads, "head_dim": width, "extra": extra}
    shared = {"layers": linear, "window": _CHUNK // 4 + width, **_feed_forward(sizes, "shared_gate")}
    return {"layers": sizes["layers"] - linear, "attention_gate": True, "parts": (_stack(**delta, **shared),)}


@_of("minimax")
def _lightning(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """MiniMax: linear attention with a gate in most layers."""
    linear, hidden = list(config.get("layer_types") or ()).count("linear_attention"), sizes["hidden"]
    width = sizes["heads"] * (sizes.get("head_dim") or hidden // sizes["heads"])
    mixer = (
        Matrix("qkv_proj", hidden, 3 * width),
        Matrix("output_gate", hidden, width),
        Matrix("out_proj", width, hidden),
    )
    own = {"hidden": hidden, "mixer": mixer, "heads": sizes["heads"], "head_dim": width // sizes["heads"]}
    shared = {"layers": linear, "window": _CHUNK, "extra": width, **_feed_forward(sizes)}
    parts = (_stack(**own, **shared),) if linear else ()
    return {"layers": sizes["layers"] - linear, "window_share": 0.0, "parts": parts}


def _image(
    config: Config, hidden: int, *, tokens: int = 1, masks: bool = False, bias: bool = True, outer: int = 0
) -> dict[str, Any]:
    """Tokens of an image; parameters of patches, with or without a bias, positions, tokens and masks, and others."""
    side, patch = _image_sides(config)
    places = (side // patch) ** 2 + tokens
    pixels = count_of(config, "num_channels", "in_channels", "in_chans", usual=3) * patch * patch
    return {"vocab": 0, "tokens": places, "outer": hidden * (pixels + bias + places + tokens + masks) + outer}


def _image_sides(config: Config) -> tuple[int, int]:
    """Pixels along a side of the image and of a patch."""
    side, patch = (
        int((given[0] if isinstance(given, (list, tuple)) else given) or usual)
        for given, usual in ((config.get("image_size"), 224), (config.get("patch_size"), 16))
    )
    return side, patch


def _classifier(config: Config, width: int) -> int:
    return labels_of(config) * (width + 1)


@_of("vit")
def _vit(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    hidden, tokens = sizes["hidden"], {"ijepa": 0, "deit": 2}.get(str(config.get("model_type")), 1)
    return _image(config, hidden, tokens=tokens, outer=_classifier(config, hidden))


@_of("beit")
def _beit(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Scales of each layer's outputs; positions are biases of the scores, or learned."""
    hidden, (side, patch) = sizes["hidden"], _image_sides(config)
    table = ((2 * (side // patch) - 1) ** 2 + 3) * sizes["heads"]
    outer = _classifier(config, hidden) + table * _with(config, "use_shared_relative_position_bias", default=False)
    found = _image(config, hidden, masks=_with(config, "use_mask_token", default=False), outer=outer)
    if not config.get("use_absolute_position_embeddings"):
        found["outer"] -= found["tokens"] * hidden
    extra = 2 * hidden * bool(config.get("layer_scale_init_value"))
    return {**found, "extra": extra + table * bool(config.get("use_relative_position_bias"))}


@_of("dinov2")
def _dinov2(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Scales of each layer's outputs; classes are read from two vectors of an image."""
    hidden, registers = sizes["hidden"], count_of(config, "num_register_tokens")
    outer = registers * hidden + _classifier(config, 2 * hidden)
    found = _image(config, hidden, masks=bool(config.get("use_mask_token", True)), outer=outer)
    found |= {"tokens": found["tokens"] + registers, "extra": 2 * hidden}
    wide = int(hidden * (config.get("mlp_ratio") or 4))
    if not config.get("use_swiglu_ffn"):
        return {**found, "ffn": wide}
    return {**found, "ffn": (int(wide * 2 / 3) + 7) // 8 * 8, "gated": True, "fused": True}


@_of("wav2vec2")
def _sound(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Convolutions of the wave, a convolution of positions, and letters."""
    hidden, kernels = sizes["hidden"], list(config.get("conv_kernel") or ())
    widths, biased = [1, *(config.get("conv_dim") or ())], bool(config.get("conv_bias"))
    stem = sum(k * a * b + b * biased for k, a, b in zip(kernels, widths, widths[1:], strict=False))
    stem += 2 * (sum(widths[1:]) if config.get("feat_extract_norm") == "layer" else widths[1])
    width = count_of(config, "num_conv_pos_embeddings", usual=128)
    positions = width * hidden * hidden // count_of(config, "num_conv_pos_embedding_groups", usual=16) + hidden + width
    projection = 2 * widths[-1] * bool(config.get("feat_proj_layer_norm", True)) + (widths[-1] + 1) * hidden
    letters = count_of(config, "vocab_size", usual=32) * (hidden + 1)
    return {"vocab": 0, "outer": stem + positions + projection + letters + hidden}  # and a mask


@_of("clip", "siglip")
def _two_towers(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """CLIP and SigLIP: text and images, each projected, and a temperature."""
    kind, vision = str(config.get("model_type")), dict(config.get("vision_config") or {})
    text = dict(config.get("text_config") or {})
    words, places = (count_of(text, name) for name in ("vocab_size", "max_position_embeddings"))
    tower = vision_tower({"model_type": f"{kind}_vision_model", **vision})
    found = {"parts": (tower,), "positions": words + places, "reserved": words, "vocab": 0, "causal": kind == "clip"}
    if kind == "siglip":
        width = count_of(text, "projection_size", usual=sizes["hidden"])
        return {**found, "outer": sizes["hidden"] * width + width + 2}
    return {**found, "outer": (tower.hidden + sizes["hidden"]) * count_of(config, "projection_dim", usual=512) + 1}


def vision_tower(config: Config) -> Transformer:
    """The stack that reads images for another one."""
    kind = str(config.get("model_type"))
    make = _TOWERS.get(kind)
    if make is None:
        raise InputError(
            f"the vision_config of {shorten(kind)!r} is not known here; leave vision_config out to count the decoder "
            "only, or trace the module."
        )
    hidden = count_of(config, "embed_dim", "hidden_size", "d_model", usual=1)
    found = {
        "hidden": hidden,
        "layers": count_of(config, "depth", "num_hidden_layers", "layers", usual=1),
        "heads": count_of(config, "num_heads", "num_attention_heads", "heads", usual=1),
        "ffn": size_of(config, "intermediate_size", "mlp_dim") or int(hidden * float(config.get("mlp_ratio") or 4)),
    }
    return Transformer(**{**families()["vit"].traits, **found, **make(config, hidden)})


@_tower("siglip_vision_model")
def _siglip_tower(config: Config, hidden: int) -> dict[str, Any]:
    """With a head in which a learned vector attends to all patches."""
    ffn = count_of(config, "intermediate_size", usual=4 * hidden)
    pool = hidden + 4 * hidden * (hidden + 1) + 2 * hidden + 2 * hidden * ffn + ffn + hidden
    return _image(config, hidden, tokens=0, outer=pool * bool(config.get("vision_use_head", True)))


@_tower("pixtral")
def _pixtral_tower(config: Config, hidden: int) -> dict[str, Any]:
    patches = count_of(config, "num_channels", usual=3) * count_of(config, "patch_size", usual=16) ** 2 * hidden
    traits = {"gated": True, "norm_bias": False, "biases": "none"}
    return {**traits, "outer": patches, "head_dim": count_of(config, "head_dim")}


@_tower("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
def _qwen_tower(config: Config, hidden: int) -> dict[str, Any]:
    """Patches of two images in a row, and a merger of four patches into a token of the decoder."""
    kind = str(config.get("model_type"))
    pixels = count_of(config, "in_channels", "in_chans", usual=3) * count_of(config, "temporal_patch_size", usual=2)
    patches = pixels * count_of(config, "patch_size", usual=14) ** 2 * hidden
    merged = hidden * count_of(config, "spatial_merge_size", usual=2) ** 2
    out = count_of(config, "out_hidden_size", "hidden_size", usual=hidden)
    merger = merged * (merged + 1) + (merged + 1) * out
    if kind.startswith("qwen3"):
        count = len(config.get("deepstack_visual_indexes") or ())
        places = count_of(config, "num_position_embeddings") * hidden
        mergers = merger + 2 * hidden + count * (merger + 2 * merged)
        return {"outer_norms": 0, "outer": patches + hidden + places + mergers, "fused": True}
    newer = kind.startswith("qwen2_5")
    traits = {"gated": True, "norm_bias": False} if newer else {"fused": True}
    return {"outer_norms": 0, "outer": patches + merger + (1 if newer else 2) * hidden, **traits}


@_tower("internvl_vision")
def _intern_tower(config: Config, hidden: int) -> dict[str, Any]:
    """Scales of each layer's outputs, and normalised queries and keys."""
    found = _image(config, hidden, masks=bool(config.get("use_mask_token", True)))
    if not config.get("use_absolute_position_embeddings", True):
        found["outer"] -= found["tokens"] * hidden
    return {
        **found,
        "outer_norms": 0 if config.get("use_mean_pooling", True) else 1,
        "biases": "all" if config.get("attention_bias") else "output",
        "extra": 2 * hidden + 2 * hidden * bool(config.get("use_qk_norm")),
        "norm_bias": config.get("norm_type", "layer_norm") == "layer_norm",
    }


@_tower("llama4_vision_model")
def _llama4_tower(config: Config, hidden: int) -> dict[str, Any]:
    """Patches without biases, and an adapter of two layers."""
    ffn = count_of(config, "intermediate_size", usual=4 * hidden)
    into, out = (count_of(config, name, usual=hidden) for name in ("projector_input_dim", "projector_output_dim"))
    return {**_image(config, hidden, bias=False, outer=ffn * into + out * out), "outer_norms": 2}


#: ``model_type`` of a whole -> that of its tower, where a configuration leaves it out.
TOWER_OF = {
    **dict.fromkeys(("gemma3", "paligemma"), "siglip_vision_model"),
    **dict.fromkeys(("llava", "llava_next"), "clip_vision_model"),
    "internvl": "internvl_vision",
    "llama4": "llama4_vision_model",
    "mistral3": "pixtral",
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
        merged = count_of(config, "spatial_merge_size", usual=2) ** 2 * v * v
        return v + merged + v * t + t * t + 2 * t * bool(config.get("multimodal_projector_bias"))
    if kind == "internvl":
        wide = v * int(1 / float(config.get("downsample_ratio") or 0.5)) ** 2
        return 2 * wide + wide * t + t + t * t + t
    if kind == "paligemma":
        return (v + 1) * count_of(config, "projection_dim", usual=t)
    if kind == "gemma3":
        return v * t + v
    if kind in ("idefics3", "smolvlm"):
        return v * count_of(config, "scale_factor", usual=2) ** 2 * t
    if kind == "llama4":
        return count_of(config["vision_config"], "vision_output_dim", usual=v) * t
    raise InputError(
        f"what joins images and text in {shorten(kind)!r} is not known here; leave vision_config out to count the "
        "decoder only, or trace the module."
    )
