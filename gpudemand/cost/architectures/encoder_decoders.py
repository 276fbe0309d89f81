"""Decoders that attend to an encoder: of text (T5, BART and their like) and of sound (Whisper)."""

from __future__ import annotations

from typing import Any

from gpudemand.cost.architectures.architecture import Transformer
from gpudemand.cost.architectures.reading import Config, Variant, size_of

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
    return _with_encoder(sizes, {**common, **_side(config, "encoder")}, **common, **_side(config, "decoder"))


def _side(config: Config, side: str) -> dict[str, Any]:
    keys = {"layers": f"{side}_layers", "heads": f"{side}_attention_heads", "ffn": f"{side}_ffn_dim"}
    return {name: value for name, key in keys.items() if (value := size_of(config, key)) is not None}


def _whisper(config: Config, sizes: dict[str, Any]) -> dict[str, Any]:
    """Two convolutions make half as many tokens of the frames of 30 seconds."""
    hidden, bands = sizes["hidden"], size_of(config, "num_mel_bins") or 80
    tokens = size_of(config, "max_source_positions") or 1500
    stem = _KERNEL * hidden * (bands + hidden) + 2 * hidden
    common = {"norm_bias": True, "biases": "keyless", "gated": False}
    encoder = {**common, "positions": tokens, "tokens": tokens, "outer": stem, **_side(config, "encoder")}
    decoder = {"positions": size_of(config, "max_target_positions") or 448, **_side(config, "decoder")}
    return _with_encoder(sizes, encoder, **common, **decoder)


#: ``model_type`` -> what it adds to its sizes.
ENCODER_DECODERS: dict[str, Variant] = {
    **dict.fromkeys(("t5", "mt5", "umt5"), _t5),
    **dict.fromkeys(("bart", "mbart", "blenderbot", "m2m_100", "pegasus"), _bart),
    "whisper": _whisper,
}
