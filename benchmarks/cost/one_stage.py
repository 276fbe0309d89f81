"""Detectors of one stage: RetinaNet, FCOS, SSD, EfficientDet, DETR."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from torch.nn import functional

from benchmarks.cost.libraries import timm_model, vision
from benchmarks.cost.regions import RESNETS, Built, Pyramid, convolutions, resnet, wide_image


class OneStage(nn.Module):
    """RetinaNet, or FCOS with group normalisation and one box a place."""

    def __init__(self, backbone: str, anchors: int = 9, *, norm: bool = False, frozen: bool = True) -> None:
        super().__init__()
        self.stages = nn.ModuleList(resnet(backbone, frozen=frozen))
        self.pyramid = Pyramid((512, 1024, 2048), convolutions=True)
        self.classes = nn.Sequential(convolutions(256, 256, 4, norm), nn.Conv2d(256, 80 * anchors, 3, padding=1))
        self.boxes = nn.Sequential(convolutions(256, 256, 4, norm), nn.Conv2d(256, (4 + norm) * anchors, 3, padding=1))

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return [head(level) for level in self.pyramid(maps[2:]) for head in (self.classes, self.boxes)]


class VggShots(nn.Module):
    """SSD on VGG-16."""

    def __init__(self) -> None:
        super().__init__()
        module, _ = vision()
        net = module.models.detection.ssd300_vgg16(weights=None, weights_backbone=None)
        self.backbone, self.head = net.backbone, net.head

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        return list(self.head(list(self.backbone(x).values())).values())


class SetPrediction(nn.Module):
    """DETR: a transformer of six and six layers over the last stage, 100 queries."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*resnet("r50", frozen=True))
        self.project, self.queries = nn.Conv2d(2048, 256, 1), nn.Embedding(100, 256)
        self.transformer = nn.Transformer(256, 8, 6, 6, 2048, batch_first=True)
        self.classes = nn.Linear(256, 92)
        self.boxes = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        x = self.project(self.body(x)).flatten(2).transpose(1, 2)
        out = self.transformer(x, self.queries.weight.expand(len(x), -1, -1))
        return self.classes(out), self.boxes(out)


def _separable(width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False), nn.Conv2d(width, outputs, 1))


class EfficientDetector(nn.Module):
    """EfficientDet-D0: EfficientNet-B0, three rounds of fusion up and down over five levels, separable heads."""

    def __init__(self, width: int = 64, rounds: int = 3) -> None:
        super().__init__()
        self.body = timm_model("efficientnet_b0", 0, fused_attention=False)
        self.sides = nn.ModuleList(
            nn.Sequential(nn.Conv2d(n, width, 1), nn.BatchNorm2d(width)) for n in (40, 112, 320, 320)
        )
        self.fuse = nn.ModuleList(
            nn.ModuleList(nn.Sequential(nn.SiLU(), _separable(width, width), nn.BatchNorm2d(width)) for _ in range(8))
            for _ in range(rounds)
        )
        self.heads = nn.ModuleList(
            nn.Sequential(
                *[part for _ in range(3) for part in (_separable(width, width), nn.BatchNorm2d(width), nn.SiLU())],
                _separable(width, outputs),
            )
            for outputs in (9 * 90, 9 * 4)
        )

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        x, maps = self.body.bn1(self.body.conv_stem(x)), []
        for i, block in enumerate(self.body.blocks):
            x = block(x)
            if i in (2, 4, 6):
                maps.append(x)
        levels = [side(level) for side, level in zip(self.sides, [*maps, x], strict=True)]
        levels[3] = functional.max_pool2d(levels[3], 3, 2, 1)
        levels.append(functional.max_pool2d(levels[3], 3, 2, 1))
        for nodes in self.fuse:
            levels = self._round(levels, nodes)
        return [head(level) for level in levels for head in self.heads]

    @staticmethod
    def _round(levels: list[Any], nodes: Any) -> list[Any]:
        down = [levels[-1]]
        for node, level in zip(nodes[:4], reversed(levels[:-1]), strict=True):
            down.insert(0, node(level + functional.interpolate(down[0], size=level.shape[-2:])))
        up = [down[0]]
        for node, level, other in zip(nodes[4:], down[1:], levels[1:], strict=True):
            up.append(node(level + other + functional.max_pool2d(up[-1], 3, 2, 1)))
        return up


def _network(make: Callable[[], nn.Module], size: int) -> Built:
    return make(), wide_image(size), None


def _square(make: Callable[[], nn.Module], size: int) -> Built:
    return make(), (3, size, size), None


NETWORKS: dict[str, Callable[[int], Built]] = {
    **{f"retinanet_{name}": partial(_network, partial(OneStage, name)) for name in RESNETS},
    "fcos_r50": partial(_network, partial(OneStage, "r50", 1, norm=True)),
    "detr_r50": partial(_network, SetPrediction),
    "ssd_resnet50_fpn": partial(_square, partial(OneStage, "r50", 6, frozen=False)),
    "ssd_vgg16": partial(_square, VggShots),
    "efficientdet_d0": partial(_square, EfficientDetector),
}
