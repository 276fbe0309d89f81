"""Detectors in two and one stages with the backbones of the model zoos: R-CNNs, RetinaNet, FCOS, SSD, EfficientDet, DETR."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.cost.libraries import timm_model, torchvision_model, vision

Built = tuple[nn.Module, Any, Any]
#: Blocks of the four stages, groups and width of a group.
_RESNETS = {
    "r50": ([3, 4, 6, 3], 1, 64),
    "r101": ([3, 4, 23, 3], 1, 64),
    "x101_32x4d": ([3, 4, 23, 3], 32, 4),
    "x101_64x4d": ([3, 4, 23, 3], 64, 4),
    "x101_32x8d": ([3, 4, 23, 3], 32, 8),
}
#: Long over short side of a batch of COCO, whose images are 4:3 and 3:2 alike: padded to the wider of two.
_ASPECT = 1.46


def _resnet(name: str, *, frozen: bool, dilated: bool = False) -> list[nn.Module]:
    """Stem and four stages; frozen as detectors are fine-tuned: statistics everywhere, weights of stem and stage one."""
    module, _ = vision()
    blocks, groups, width = _RESNETS[name]
    norm = module.ops.FrozenBatchNorm2d if frozen else nn.BatchNorm2d
    net = module.models.resnet.ResNet(
        module.models.resnet.Bottleneck,
        blocks,
        groups=groups,
        width_per_group=width,
        norm_layer=norm,
        replace_stride_with_dilation=[False, False, dilated],
    )
    stages = [nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool), net.layer1, net.layer2, net.layer3, net.layer4]
    for stage in stages[: 2 if frozen else 0]:
        stage.requires_grad_(False)
    return stages


class Pyramid(nn.Module):
    """Feature pyramid of five levels: one more by pooling, or two by convolutions of the last stage."""

    def __init__(self, widths: tuple[int, ...], *, convolutions: bool) -> None:
        super().__init__()
        self.sides = nn.ModuleList(nn.Conv2d(width, 256, 1) for width in widths)
        self.smooth = nn.ModuleList(nn.Conv2d(256, 256, 3, padding=1) for _ in widths)
        more = [nn.Conv2d(widths[-1], 256, 3, 2, 1), nn.Conv2d(256, 256, 3, 2, 1)]
        self.more = nn.ModuleList(more if convolutions else [])

    def forward(self, maps: list[Any]) -> list[Any]:
        """Forward pass."""
        levels = [self.sides[-1](maps[-1])]
        for side, level in zip(reversed(self.sides[:-1]), reversed(maps[:-1]), strict=True):
            lateral = side(level)
            levels.insert(0, lateral + functional.interpolate(levels[0], size=lateral.shape[-2:]))
        levels = [smooth(level) for smooth, level in zip(self.smooth, levels, strict=True)]
        x = maps[-1]
        for i, conv in enumerate(self.more):
            x = conv(functional.relu(x) if i else x)
            levels.append(x)
        return levels if self.more else [*levels, functional.max_pool2d(levels[-1], 1, 2)]


def _regions(level: Any, n: int, size: int) -> Any:
    """As many regions as training samples, cut out by resizing."""
    pooled = functional.interpolate(level, size=(n * size, size), mode="bilinear")
    return pooled.unflatten(2, (n, size)).transpose(1, 2).flatten(0, 1)


def _convs(inputs: int, width: int, n: int, norm: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(n):
        layers += [nn.Conv2d(inputs if i == 0 else width, width, 3, padding=1)]
        layers += [nn.GroupNorm(32, width)] * norm + [nn.ReLU()]
    return nn.Sequential(*layers)


def _proposals(inputs: int, width: int, anchors: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 5 * anchors, 1))


def _box_head(inputs: int, classes: int = 81) -> nn.Sequential:
    layers = [nn.Flatten(), nn.Linear(inputs * 49, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, classes * 5))


class PyramidRegions(nn.Module):
    """Faster R-CNN with a feature pyramid, with heads for masks or key points or three boxes in cascade, or proposals alone."""

    def __init__(self, backbone: str, heads: tuple[str, ...], boxes: int = 512) -> None:
        super().__init__()
        self.stages = nn.ModuleList(_resnet(backbone, frozen=True))
        self.pyramid = Pyramid((256, 512, 1024, 2048), convolutions=False)
        self.propose, self.boxes = _proposals(256, 256, 3), boxes
        count = heads.count("box")
        self.box = nn.ModuleList(_box_head(256) for _ in range(count))
        self.masks = nn.ModuleList(
            nn.Sequential(_convs(256, 256, 4), nn.ConvTranspose2d(256, 256, 2, 2), nn.ReLU(), nn.Conv2d(256, 81, 1))
            for _ in range(heads.count("mask"))
        )
        if "points" in heads:
            self.masks.append(nn.Sequential(_convs(256, 512, 8), nn.ConvTranspose2d(512, 17, 4, 2, 1)))

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        levels = self.pyramid(maps[1:])
        out = [self.propose(level) for level in levels]
        out += [head(_regions(levels[0], self.boxes, 7)) for head in self.box]
        return out + [head(_regions(levels[0], self.boxes // 4, 14)) for head in self.masks]


class StageRegions(nn.Module):
    """Faster or Mask R-CNN without a pyramid: regions of the fourth stage through the fifth (C4), or of a dilated fifth (DC5)."""

    def __init__(self, backbone: str, *, mask: bool, dilated: bool, boxes: int = 512) -> None:
        super().__init__()
        stages = _resnet(backbone, frozen=True, dilated=dilated)
        width = 2048 if dilated else 1024
        self.body, self.fifth = nn.Sequential(*stages[: 5 if dilated else 4]), None if dilated else stages[4]
        self.propose, self.boxes, self.dilated = _proposals(width, width, 15), boxes, dilated
        self.box = _box_head(2048) if dilated else nn.Linear(2048, 81 * 5)
        upper = [nn.ConvTranspose2d(256 if dilated else 2048, 256, 2, 2), nn.ReLU(), nn.Conv2d(256, 81, 1)]
        self.mask = nn.Sequential(*([_convs(2048, 256, 4)] * dilated), *upper) if mask else None

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        x = self.body(x)
        out = [self.propose(x)]
        if self.fifth is None:
            out.append(self.box(_regions(x, self.boxes, 7)))
            return out if self.mask is None else [*out, self.mask(_regions(x, self.boxes // 4, 14))]
        regions = self.fifth(_regions(x, self.boxes, 14))
        out.append(self.box(regions.mean((2, 3))))
        return out if self.mask is None else [*out, self.mask(regions[: len(regions) // 4])]


class OneStage(nn.Module):
    """RetinaNet, or FCOS with group normalisation and one box a place; `stride` 1 for weights that are all trained."""

    def __init__(self, backbone: str, anchors: int = 9, *, norm: bool = False, frozen: bool = True) -> None:
        super().__init__()
        self.stages = nn.ModuleList(_resnet(backbone, frozen=frozen))
        self.pyramid = Pyramid((512, 1024, 2048), convolutions=True)
        self.classes = nn.Sequential(_convs(256, 256, 4, norm), nn.Conv2d(256, 80 * anchors, 3, padding=1))
        self.boxes = nn.Sequential(_convs(256, 256, 4, norm), nn.Conv2d(256, (4 + norm) * anchors, 3, padding=1))

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return [head(level) for level in self.pyramid(maps[2:]) for head in (self.classes, self.boxes)]


class VggRegions(nn.Module):
    """Faster R-CNN on VGG-16, whose first two blocks are frozen."""

    def __init__(self, boxes: int = 256) -> None:
        super().__init__()
        net = torchvision_model("vgg16")
        self.body, self.boxes = net.features[:-1], boxes
        for layer in self.body[:10]:
            layer.requires_grad_(False)
        self.propose, self.top, self.box = _proposals(512, 512, 9), net.classifier[:6], nn.Linear(4096, 81 * 5)

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        x = self.body(x)
        return self.propose(x), self.box(self.top(_regions(x, self.boxes, 7).flatten(1)))


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
        self.body = nn.Sequential(*_resnet("r50", frozen=True))
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


def _wide(size: int) -> tuple[int, int, int]:
    """An image of that short side, both sides padded to multiples of 32."""
    return 3, -(-size // 32) * 32, -(-int(size * _ASPECT) // 32) * 32


_HEADS = {
    "rpn": (),
    "faster": ("box",),
    "mask": ("box", "mask"),
    "keypoint": ("box", "points"),
    "cascade": ("box",) * 3,
    "cascade_mask": ("box",) * 3 + ("mask",) * 3,
}
NETWORKS: dict[str, Any] = {
    **{
        f"{head}_rcnn_{name}_fpn": partial(lambda name, heads, size: (PyramidRegions(name, heads), _wide(size), None), name, heads)
        for head, heads in _HEADS.items()
        for name in _RESNETS
    },
    **{
        f"{'mask' if mask else 'faster'}_rcnn_{name}_{'dc5' if dilated else 'c4'}": partial(
            lambda name, mask, dilated, size: (StageRegions(name, mask=mask, dilated=dilated), _wide(size), None), name, mask, dilated
        )
        for name in ("r50", "r101")
        for mask in (False, True)
        for dilated in (False, True)
    },
    **{f"retinanet_{name}": partial(lambda name, size: (OneStage(name), _wide(size), None), name) for name in _RESNETS},
    "cascade_rcnn_r50_fpn_mask": lambda size: (PyramidRegions("r50", ("box",) * 3 + ("mask",)), _wide(size), None),
    "faster_rcnn_r50_c4_64": lambda size: (StageRegions("r50", mask=False, dilated=False, boxes=64), _wide(size), None),
    "faster_rcnn_r101_c4_128": lambda size: (StageRegions("r101", mask=False, dilated=False, boxes=128), _wide(size), None),
    "mask_rcnn_r50_c4_256": lambda size: (StageRegions("r50", mask=True, dilated=False, boxes=256), _wide(size), None),
    "faster_rcnn_vgg16": lambda size: (VggRegions(), _wide(size), None),
    "fcos_r50": lambda size: (OneStage("r50", 1, norm=True), _wide(size), None),
    "ssd_resnet50_fpn": lambda size: (OneStage("r50", 6, frozen=False), (3, size, size), None),
    "ssd_vgg16": lambda size: (VggShots(), (3, size, size), None),
    "efficientdet_d0": lambda size: (EfficientDetector(), (3, size, size), None),
    "detr_r50": lambda size: (SetPrediction(), _wide(size), None),
}  # fmt: skip
