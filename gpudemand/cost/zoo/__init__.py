"""The classic networks, in PyTorch and in Keras from one description, with knobs for their size.

Examples
--------
>>> from gpudemand.cost import zoo
>>> zoo.family("resnet50"), zoo.kind("resnet50")
('resnet', 'image')
"""

from __future__ import annotations

from gpudemand.cost.zoo.build import build, family, kind, names

__all__ = ["build", "family", "kind", "names"]
