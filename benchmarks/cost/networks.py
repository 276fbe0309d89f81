"""Networks behind public measurements, built by key; see `benchmarks.cost.traced`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.cost import detectors, one_stage, regions, segmenters, sequences, speech, texts, videos
from benchmarks.cost.libraries import timm_model, torchvision_model

#: Our own re-implementations: name -> builder of (module, input shape, input type) from a size.
OWN: dict[str, Callable[[int], tuple[Any, Any, Any]]] = {
    **texts.NETWORKS,
    **detectors.NETWORKS,
    **regions.NETWORKS,
    **one_stage.NETWORKS,
    **segmenters.NETWORKS,
    **videos.NETWORKS,
    **sequences.NETWORKS,
    **speech.NETWORKS,
}


def build(key: str) -> tuple[Any, Any, Any]:
    """Return the module of a key, the shape of its input without the batch, and the type of its input."""
    library, _, rest = key.partition(":")
    name, _, size = rest.rpartition("@")
    if library == "own":
        return OWN[name](int(size))
    if library == "torchvision":
        return torchvision_model(name, **_options(name)), (3, int(size), int(size)), None
    module = timm_model(name, int(size), fused_attention=library == "timm-sdpa")
    pixels = int(size) or module.default_cfg["input_size"][-1]
    return module, (3, pixels, pixels), None


def _options(name: str) -> dict[str, Any]:
    return {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
