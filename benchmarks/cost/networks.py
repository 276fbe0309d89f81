"""Networks behind public measurements, built by key; see `benchmarks.cost.traced`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import zoo
from benchmarks.cost import detectors, one_stage, regions, segmenters, sequences, speech, texts, videos
from benchmarks.cost.libraries import timm_model, torchvision_model
from benchmarks.cost.on_gpu.decoders import Decoder
from benchmarks.cost.on_gpu.foreign import transformers_model
from benchmarks.cost.on_gpu.operators import OneOperator
from benchmarks.measure.meter import configuration_from_row
from gpudemand.cost.feature_table import ARCHITECTURE

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


def _zoo(name: str) -> tuple[Any, Any, Any]:
    row = dict(zip(ARCHITECTURE, ["torch", *name.split(",")], strict=True))
    job = configuration_from_row({"batch_size": 1, **row})
    return job.build(zoo), job.input_shape, None if job.channels else "int64"


def _decoder(name: str) -> tuple[Any, Any, Any]:
    hidden, layers, tokens, attention, lora = name.split(",")
    found = Decoder(int(hidden), int(layers), int(tokens), attention, lora=int(lora))
    return found.build(), (found.tokens,), "int64"


def _operator(name: str) -> tuple[Any, Any, Any]:
    kind, *sizes = name.split(",")
    found = OneOperator(kind, *map(int, sizes), batch_size=1, precision="fp32")
    return found.build(), found.shape, None


#: Of our own measurements, whose names tell all of a network; see `benchmarks.cost.h200`.
_MEASURED: dict[str, Callable[[str], tuple[Any, Any, Any]]] = {
    "zoo": _zoo,
    "decoders": _decoder,
    "operators": _operator,
    "transformers": transformers_model,
}


def build(key: str) -> tuple[Any, Any, Any]:
    """Return the module of a key, the shape of its input without the batch, and the type of its input."""
    library, _, rest = key.partition(":")
    name, _, size = rest.rpartition("@")
    if library in _MEASURED:
        return _MEASURED[library](name)
    if library == "own":
        return OWN[name](int(size))
    if library == "torchvision":
        shape = (3, 8, 112, 112) if name in _VIDEOS else (3, int(size), int(size))
        return torchvision_model(name, **_options(name)), shape, None
    module = timm_model(name, int(size), fused_attention=library == "timm-sdpa")
    pixels = int(size) or module.default_cfg["input_size"][-1]
    return module, (3, pixels, pixels), None


_VIDEOS = ("r3d_18",)


def _options(name: str) -> dict[str, Any]:
    if name.startswith(("fcn", "deeplab", "lraspp")):
        return {"weights_backbone": None}
    return {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
