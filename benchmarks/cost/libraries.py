"""timm and torchvision with a CPU build of PyTorch."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

#: Operators that torchvision registers shapes for and a CPU build lacks; never called here.
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


@lru_cache(maxsize=1)
def vision() -> Any:
    """Import torchvision after registering missing operators; cached, as the library must stay alive."""
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    # A build for CUDA defines them itself.
    for schema in () if torch.version.cuda else _SCHEMAS:
        try:
            library.define(schema)
        except RuntimeError:  # this build has it
            continue
    import torchvision

    return torchvision, library


def torchvision_model(name: str, **options: Any) -> Any:
    """Build a torchvision classifier without weights, on the current device."""
    module, _ = vision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return module.models.get_model(name, weights=None, **options)


def timm_model(name: str, size: int, *, fused_attention: bool) -> Any:
    """Build a timm network for images of `size` (0: its own), as timm's benchmark does; timm maps old names."""
    vision()
    import timm
    from timm.layers import set_fused_attn

    set_fused_attn(fused_attention)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return timm.create_model(name, **({"img_size": size} if size else {}))
        except TypeError:  # convolutional networks take any size
            return timm.create_model(name)
