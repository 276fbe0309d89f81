"""Classic networks in PyTorch and Keras, built from one definition, with scalable width and depth.

Examples
--------
>>> from gpudemand.cost import zoo
>>> zoo.kind("resnet50"), zoo.kind("gpt")
('image', 'tokens')
"""

from __future__ import annotations

from gpudemand.cost.zoo.build import build, kind, names

__all__ = ["build", "kind", "names"]
