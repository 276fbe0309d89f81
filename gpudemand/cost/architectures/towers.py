"""Stacks that read images or sound: alone, with a tower for text beside them, or before a decoder."""

from __future__ import annotations

from typing import Any

from gpudemand._validation import InputError, shorten
from gpudemand.cost.architectures.architecture import Transformer
from gpudemand.cost.architectures.reading import Config, Variant, labels_of, size_of

_PLAIN: dict[str, Any] = {"vocab": 0, "tied": True, "causal": False, "gated": False, "norm_bias": True, "biases": "all"}


def image_sizes(config: Config, hidden: int, *, tokens: int = 1, masks: int = 0, bias: bool = True) -> dict[str, int]:
    """Tokens of an image, and parameters of its patches, positions and further tokens.

    Parameters
    ----------
    config : mapping
    hidden : int
    tokens, masks : int
        Learned vectors that stand before the patches, and that replace masked ones.
    bias : bool, default=True
        Of the patches.
    """
    side, patch = (_side(config, name, default) for name, default in (("image_size", 224), ("patch_size", 16)))
    places = (side // patch) ** 2 + tokens
    pixels = (size_of(config, "num_channels", "in_channels", "in_chans") or 3) * patch * patch
    return {"vocab": 0, "tokens": places, "outer": hidden * (pixels + bias + places + tokens + masks)}


def _side(config: Config, name: str, default: int) -> int:
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
    grid = _side(config, "image_size", 224) // _side(config, "patch_size", 16)
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
    """The stack that reads images for another one.

    Raises
    ------
    InputError
        For a kind that is not known.
    """
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
