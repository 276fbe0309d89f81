"""Faster, Mask, Keypoint and Cascade R-CNN with the backbones of the model zoos."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from torch.nn import functional

from benchmarks.cost.libraries import torchvision_model, vision

Built = tuple[nn.Module, Any, Any]
#: Blocks of the four stages, groups and width of a group.
RESNETS = {
    "r50": ([3, 4, 6, 3], 1, 64),
    "r101": ([3, 4, 23, 3], 1, 64),
    "x101_32x4d": ([3, 4, 23, 3], 32, 4),
    "x101_64x4d": ([3, 4, 23, 3], 64, 4),
    "x101_32x8d": ([3, 4, 23, 3], 32, 8),
}
#: Long over short side of a batch of COCO, whose images are 4:3 and 3:2 alike: padded to the wider of two.
_ASPECT = 1.46


def resnet(name: str, *, frozen: bool, dilated: bool = False) -> list[nn.Module]:
    """Stem and four stages; frozen are statistics everywhere, and the weights of the stem and of stage one."""
    module, _ = vision()
    blocks, groups, width = RESNETS[name]
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


def convolutions(inputs: int, width: int, n: int, norm: bool = False) -> nn.Sequential:
    """Convolutions of 3 x 3, each with a ReLU, and normalised over groups of channels if `norm`."""
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
    """R-CNN with a feature pyramid: heads for boxes, once or in cascade, for masks or key points, or none."""

    def __init__(self, backbone: str, heads: tuple[str, ...], boxes: int = 512) -> None:
        super().__init__()
        self.stages = nn.ModuleList(resnet(backbone, frozen=True))
        self.pyramid = Pyramid((256, 512, 1024, 2048), convolutions=False)
        self.propose, self.boxes = _proposals(256, 256, 3), boxes
        count = heads.count("box")
        self.box = nn.ModuleList(_box_head(256) for _ in range(count))
        self.masks = nn.ModuleList(
            nn.Sequential(
                convolutions(256, 256, 4), nn.ConvTranspose2d(256, 256, 2, 2), nn.ReLU(), nn.Conv2d(256, 81, 1)
            )
            for _ in range(heads.count("mask"))
        )
        if "points" in heads:
            self.masks.append(nn.Sequential(convolutions(256, 512, 8), nn.ConvTranspose2d(512, 17, 4, 2, 1)))

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
    """R-CNN without a pyramid: regions of the fourth stage through the fifth (C4), or of a dilated fifth (DC5)."""

    def __init__(self, backbone: str, *, mask: bool, dilated: bool, boxes: int = 512) -> None:
        super().__init__()
        stages = resnet(backbone, frozen=True, dilated=dilated)
        width = 2048 if dilated else 1024
        self.body, self.fifth = nn.Sequential(*stages[: 5 if dilated else 4]), None if dilated else stages[4]
        self.propose, self.boxes, self.dilated = _proposals(width, width, 15), boxes, dilated
        self.box = _box_head(2048) if dilated else nn.Linear(2048, 81 * 5)
        upper = [nn.ConvTranspose2d(256 if dilated else 2048, 256, 2, 2), nn.ReLU(), nn.Conv2d(256, 81, 1)]
        self.mask = nn.Sequential(*([convolutions(2048, 256, 4)] * dilated), *upper) if mask else None

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


def wide_image(size: int) -> tuple[int, int, int]:
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


def _network(make: Callable[[], nn.Module], size: int) -> Built:
    return make(), wide_image(size), None


def _pyramid(name: str, heads: tuple[str, ...]) -> Callable[[int], Built]:
    return partial(_network, partial(PyramidRegions, name, heads))


def _stage(name: str, **options: Any) -> Callable[[int], Built]:
    return partial(_network, partial(StageRegions, name, **options))


NETWORKS: dict[str, Callable[[int], Built]] = {
    **{f"{head}_rcnn_{name}_fpn": _pyramid(name, heads) for head, heads in _HEADS.items() for name in RESNETS},
    "cascade_rcnn_r50_fpn_mask": _pyramid("r50", ("box",) * 3 + ("mask",)),
    **{
        f"{head}_rcnn_{name}_{last}": _stage(name, mask=head == "mask", dilated=last == "dc5")
        for head in ("faster", "mask")
        for name in ("r50", "r101")
        for last in ("c4", "dc5")
    },
    "faster_rcnn_r50_c4_64": _stage("r50", mask=False, dilated=False, boxes=64),
    "faster_rcnn_r101_c4_128": _stage("r101", mask=False, dilated=False, boxes=128),
    "mask_rcnn_r50_c4_256": _stage("r50", mask=True, dilated=False, boxes=256),
    "faster_rcnn_vgg16": partial(_network, VggRegions),
}
