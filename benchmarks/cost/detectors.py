"""Detectors of the published sizes: SSD300 and Mask R-CNN on ResNet-50, YOLOv3 on Darknet-53."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.cost.libraries import torchvision_model

Built = tuple[nn.Module, Any, Any]


def _backbone() -> list[nn.Module]:
    """The stem and the four stages of ResNet-50."""
    net = torchvision_model("resnet50")
    stem = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool)
    return [stem, net.layer1, net.layer2, net.layer3, net.layer4]


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int | None = None) -> nn.Module:
    place = kernel // 2 if padding is None else padding
    parts = nn.Conv2d(inputs, outputs, kernel, stride, place, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1)
    return nn.Sequential(*parts)


class SingleShot(nn.Module):
    """SSD300: the third stage kept at 38 x 38, five extra steps down, two heads on each of six maps."""

    def __init__(self) -> None:
        super().__init__()
        *stages, third, _ = _backbone()
        for part in (third[0].conv1, third[0].conv2, third[0].downsample[0]):
            part.stride = (1, 1)
        self.backbone = nn.Sequential(*stages, third)
        widths, middles = [1024, 512, 512, 256, 256, 256], [256, 256, 128, 128, 128]
        self.steps = nn.ModuleList(
            nn.Sequential(_conv(a, m, 1), _conv(m, b, 3, 2 if i < 3 else 1, 1 if i < 3 else 0))
            for i, ((a, b), m) in enumerate(zip(pairwise(widths), middles, strict=True))
        )
        boxes = [4, 6, 6, 6, 4, 4]
        self.heads = nn.ModuleList(nn.Conv2d(w, n * (4 + 81), 3, padding=1) for w, n in zip(widths, boxes, strict=True))

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        maps = [self.backbone(x)]
        for step in self.steps:
            maps.append(step(maps[-1]))
        return torch.cat([head(x).flatten(1) for head, x in zip(self.heads, maps, strict=True)], dim=1)


class MaskRegions(nn.Module):
    """Mask R-CNN with a feature pyramid; as many regions as training samples, cut out by resizing."""

    def __init__(self, boxes: int = 512, masks: int = 128) -> None:
        super().__init__()
        self.boxes, self.masks = boxes, masks
        self.stages = nn.ModuleList(_backbone())
        self.sides = nn.ModuleList(nn.Conv2d(w, 256, 1) for w in (256, 512, 1024, 2048))
        self.smooth = nn.ModuleList(nn.Conv2d(256, 256, 3, padding=1) for _ in range(4))
        self.propose = nn.Sequential(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, 15, 1))
        self.box = nn.Sequential(nn.Linear(256 * 49, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
        self.box_head = nn.Linear(1024, 81 * 5)
        convs = [part for _ in range(4) for part in (nn.Conv2d(256, 256, 3, padding=1), nn.ReLU())]
        self.mask = nn.Sequential(*convs, nn.ConvTranspose2d(256, 256, 2, 2), nn.ReLU(), nn.Conv2d(256, 81, 1))

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        pyramid = self._pyramid(maps[1:])
        proposals = [self.propose(level) for level in [*pyramid, functional.max_pool2d(pyramid[-1], 1, 2)]]
        box = self.box_head(self.box(self._regions(pyramid[0], self.boxes, 7).flatten(1)))
        return proposals, box, self.mask(self._regions(pyramid[0], self.masks, 14))

    def _pyramid(self, maps: list[Any]) -> list[Any]:
        levels = [self.sides[-1](maps[-1])]
        for side, level in zip(reversed(self.sides[:-1]), reversed(maps[:-1]), strict=True):
            lateral = side(level)
            levels.insert(0, lateral + functional.interpolate(levels[0], size=lateral.shape[-2:]))
        return [smooth(level) for smooth, level in zip(self.smooth, levels, strict=True)]

    @staticmethod
    def _regions(level: Any, n: int, size: int) -> Any:
        pooled = functional.interpolate(level, size=(n * size, size), mode="bilinear")
        return pooled.unflatten(2, (n, size)).transpose(1, 2).flatten(0, 1)


class Darknet(nn.Module):
    """YOLOv3: Darknet-53 and three detection branches, with pooling at three sizes before the first if `pooled`."""

    def __init__(self, classes: int = 20, *, pooled: bool = False) -> None:
        super().__init__()
        self.stem = _conv(3, 32, 3)
        widths = [(32, 64, 1), (64, 128, 2), (128, 256, 8), (256, 512, 8), (512, 1024, 4)]
        self.down = nn.ModuleList(_conv(a, b, 3, 2) for a, b, _ in widths)
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Sequential(_conv(b, b // 2, 1), _conv(b // 2, b, 3)) for _ in range(n))
            for _, b, n in widths
        )
        self.branches = nn.ModuleList(self._branch(a, b) for a, b in [(1024, 512), (768, 256), (384, 128)])
        self.pools = nn.ModuleList(nn.MaxPool2d(n, 1, n // 2) for n in (5, 9, 13) if pooled)
        self.squeeze = nn.Sequential(_conv(1024, 512, 1), _conv(2048, 1024, 1)) if pooled else None
        self.ups = nn.ModuleList([_conv(512, 256, 1), _conv(256, 128, 1)])
        self.heads = nn.ModuleList(
            nn.Sequential(_conv(w, 2 * w, 3), nn.Conv2d(2 * w, 3 * (5 + classes), 1)) for w in (512, 256, 128)
        )

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        maps, x = [], self.stem(x)
        for down, blocks in zip(self.down, self.blocks, strict=True):
            x = down(x)
            for block in blocks:
                x = x + block(x)
            maps.append(x)
        if self.squeeze is not None:
            x = self.squeeze[0](x)
            x = self.squeeze[1](torch.cat([x, *[pool(x) for pool in self.pools]], dim=1))
        out = []
        for i, (branch, head) in enumerate(zip(self.branches, self.heads, strict=True)):
            x = branch(x)
            out.append(head(x))
            if i < 2:
                x = torch.cat([functional.interpolate(self.ups[i](x), scale_factor=2.0), maps[3 - i]], dim=1)
        return out

    @staticmethod
    def _branch(inputs: int, width: int) -> nn.Module:
        return nn.Sequential(
            _conv(inputs, width, 1), _conv(width, 2 * width, 3), _conv(2 * width, width, 1),
            _conv(width, 2 * width, 3), _conv(2 * width, width, 1),
        )  # fmt: skip


def small_resnet(size: int) -> Built:
    """ResNet-18 as it is used on small images: a stem of stride one, no pool."""
    net = torchvision_model("resnet18", num_classes=10)
    net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    return net, (3, size, size), None


def _mask_rcnn(size: int) -> Built:
    return MaskRegions(), (3, size, 1344), None


NETWORKS = {
    "resnet18_cifar": small_resnet,
    "ssd300": lambda size: (SingleShot(), (3, size, size), None),
    "maskrcnn": _mask_rcnn,
    "yolov3_spp": lambda size: (Darknet(80, pooled=True), (3, size, size), None),
    "yolov3": lambda size: (Darknet(), (3, size, size), None),
}
