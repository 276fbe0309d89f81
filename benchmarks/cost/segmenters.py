"""Semantic segmentation: dilated ResNets with pyramid pooling, UPerNet, and U-Nets in two and three dimensions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.cost.libraries import timm_model, torchvision_model
from benchmarks.cost.regions import Built


def _conv(inputs: int, outputs: int, kernel: int = 3) -> nn.Sequential:
    parts = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    return nn.Sequential(*parts)


def _stages(name: str, *, dilated: bool) -> list[nn.Module]:
    """Stem of three convolutions and four stages of a ResNet, the last two dilated."""
    options = {"replace_stride_with_dilation": [False, True, True]} if dilated and name != "resnet18" else {}
    net = torchvision_model(name, **options)
    stem = nn.Sequential(_conv(3, 64), _conv(64, 64), _conv(64, 64), nn.MaxPool2d(3, 2, 1))
    stem[0][0].stride = (2, 2)
    stages = [net.layer1, net.layer2, net.layer3, net.layer4]
    if dilated and name == "resnet18":
        for stage in stages[2:]:
            stage[0].conv1.stride = stage[0].downsample[0].stride = (1, 1)
    return [stem, *stages]


class PyramidPooling(nn.Module):
    """PSPNet: four pooled grids beside the last stage, and an auxiliary head on the third."""

    def __init__(self, name: str, classes: int) -> None:
        super().__init__()
        self.stages = nn.ModuleList(_stages(name, dilated=True))
        width = 512 if name == "resnet18" else 2048
        self.pools = nn.ModuleList(nn.Sequential(nn.AdaptiveAvgPool2d(n), _conv(width, 512, 1)) for n in (1, 2, 3, 6))
        self.head = nn.Sequential(_conv(width + 4 * 512, 512), nn.Dropout2d(0.1), nn.Conv2d(512, classes, 1))
        self.aux = nn.Sequential(_conv(width // 2, width // 4), nn.Dropout2d(0.1), nn.Conv2d(width // 4, classes, 1))

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        size = x.shape[-2:]
        for stage in self.stages[:-1]:
            x = stage(x)
        aux, x = x, self.stages[-1](x)
        pooled = [functional.interpolate(pool(x), size=x.shape[-2:], mode="bilinear") for pool in self.pools]
        out = self.head(torch.cat([x, *pooled], 1)), self.aux(aux)
        return [functional.interpolate(one, size=size, mode="bilinear") for one in out]


class UnifiedParsing(nn.Module):
    """UPerNet: pyramid pooling, then a feature pyramid that is fused at a quarter of the size."""

    def __init__(self, name: str, classes: int = 150, width: int = 512) -> None:
        super().__init__()
        self.stages = nn.ModuleList(_stages(name, dilated=False))
        self.pools = nn.ModuleList(nn.Sequential(nn.AdaptiveAvgPool2d(n), _conv(2048, 512, 1)) for n in (1, 2, 3, 6))
        self.last = _conv(2048 + 4 * 512, width)
        self.sides = nn.ModuleList(_conv(n, width, 1) for n in (256, 512, 1024))
        self.smooth = nn.ModuleList(_conv(width, width) for _ in range(3))
        self.head = nn.Sequential(_conv(4 * width, width), nn.Conv2d(width, classes, 1))

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        pooled = [functional.interpolate(pool(x), size=x.shape[-2:], mode="bilinear") for pool in self.pools]
        levels = [self.last(torch.cat([x, *pooled], 1))]
        for side, level in zip(reversed(self.sides), reversed(maps[1:4]), strict=True):
            levels.insert(0, side(level) + functional.interpolate(levels[0], size=level.shape[-2:], mode="bilinear"))
        levels = [*[smooth(level) for smooth, level in zip(self.smooth, levels[:3], strict=True)], levels[-1]]
        size = levels[0].shape[-2:]
        return self.head(torch.cat([functional.interpolate(one, size=size, mode="bilinear") for one in levels], 1))


class MobilePooling(nn.Module):
    """MobileNetV2 dilated to an eighth of the size, with pyramid pooling or one convolution."""

    def __init__(self, *, pooled: bool, classes: int = 150) -> None:
        super().__init__()
        self.body = timm_model("mobilenetv2_100", 0, fused_attention=False)
        for block in self.body.modules():
            if isinstance(block, nn.Conv2d) and block.stride == (2, 2) and block.in_channels >= 192:
                block.stride = (1, 1)
        self.pools = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(n), _conv(320, 512, 1)) for n in ((1, 2, 3, 6) if pooled else ())
        )
        inputs = 320 + 512 * len(self.pools)
        self.head = nn.Sequential(_conv(inputs, 512 if pooled else 80), nn.Conv2d(512 if pooled else 80, classes, 1))

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        x = self.body.blocks(self.body.bn1(self.body.conv_stem(x)))
        pooled = [functional.interpolate(pool(x), size=x.shape[-2:], mode="bilinear") for pool in self.pools]
        return self.head(torch.cat([x, *pooled], 1))


class PlainHead(nn.Module):
    """ResNet-18 dilated to an eighth of the size and one convolution."""

    def __init__(self, classes: int = 150) -> None:
        super().__init__()
        self.body = nn.Sequential(*_stages("resnet18", dilated=True))
        self.head = nn.Sequential(_conv(512, 128), nn.Conv2d(128, classes, 1))

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        return self.head(self.body(x))


class UNet(nn.Module):
    """U-Net: two convolutions a level, strided or pooled on the way down, transposed on the way up."""

    def __init__(
        self, dim: int, inputs: int, widths: tuple[int, ...], classes: int, norm: bool = True, padding: int = 1
    ) -> None:
        super().__init__()
        conv, up = (nn.Conv2d, nn.ConvTranspose2d) if dim == 2 else (nn.Conv3d, nn.ConvTranspose3d)
        normal = nn.InstanceNorm2d if dim == 2 else nn.InstanceNorm3d
        strided = norm

        def block(a: int, b: int, stride: int = 1) -> nn.Sequential:
            layers: list[nn.Module] = []
            for n, s in ((a, stride), (b, 1)):
                layers += [conv(n, b, 3, s, padding)] + ([normal(b, affine=True)] if norm else [])
                layers += [nn.LeakyReLU(0.01) if norm else nn.ReLU()]
            return nn.Sequential(*layers)

        pairs = list(zip((inputs, *widths[:-1]), widths, strict=True))
        self.down = nn.ModuleList(block(a, b, 2 if i and strided else 1) for i, (a, b) in enumerate(pairs))
        self.pool = None if strided else nn.MaxPool2d(2)
        back = list(reversed(widths))
        self.up = nn.ModuleList(up(a, b, 2, 2) for a, b in pairwise(back))
        self.join = nn.ModuleList(block(2 * b, b) for b in back[1:])
        self.head = conv(back[-1], classes, 1)

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        maps = []
        for i, block in enumerate(self.down):
            x = block(self.pool(x) if i and self.pool is not None else x)
            maps.append(x)
        for up, join, level in zip(self.up, self.join, reversed(maps[:-1]), strict=True):
            x = up(x)
            cut = (level.shape[-1] - x.shape[-1]) // 2
            x = join(torch.cat([level[..., cut : cut + x.shape[-2], cut : cut + x.shape[-1]] if cut else level, x], 1))
        return self.head(x)


_NN_UNET_3D, _NN_UNET_2D = (32, 64, 128, 256, 320, 320), (32, 64, 128, 256, 512, 512)


def _square(make: Callable[[], nn.Module], size: int) -> Built:
    return make(), (3, size, size), None


def _scene(make: Callable[[], nn.Module], size: int) -> Built:
    """Images of 4:3, padded to eighths."""
    return make(), (3, size, -(-int(size * 4 / 3) // 8) * 8), None


def _street(make: Callable[[], nn.Module], size: int) -> Built:
    return make(), (3, size, 2 * size), None


NETWORKS: dict[str, Callable[[int], Built]] = {
    **{f"pspnet_r{n}": partial(_square, partial(PyramidPooling, f"resnet{n}", 150)) for n in (50, 101)},
    "pspnet_r101_wide": partial(_street, partial(PyramidPooling, "resnet101", 19)),
    **{f"ppm_r{n}": partial(_scene, partial(PyramidPooling, f"resnet{n}", 150)) for n in (18, 50, 101)},
    **{f"upernet_r{n}": partial(_scene, partial(UnifiedParsing, f"resnet{n}")) for n in (50, 101)},
    "c1_r18": partial(_scene, PlainHead),
    "c1_mobilenetv2": partial(_scene, partial(MobilePooling, pooled=False)),
    "ppm_mobilenetv2": partial(_scene, partial(MobilePooling, pooled=True)),
    "nnunet_2d": lambda size: (UNet(2, 5, _NN_UNET_2D, 4), (5, size, size * 5 // 6), None),
    "nnunet_3d": lambda size: (UNet(3, 5, _NN_UNET_3D, 4), (5, size, size, size), None),
    "unet3d": lambda size: (UNet(3, 4, _NN_UNET_3D, 4), (4, size, size, size), None),
    "unet": lambda size: (UNet(2, 1, (64, 128, 256, 512, 1024), 2, norm=False, padding=0), (1, size, size), None),
    "tiny_unet": lambda size: (UNet(2, 1, (32, 32, 64, 128, 256), 1, norm=False), (1, size, size), None),
}
