"""Standard networks in PyTorch; see `gpudemand.cost.networks.build`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

#: Below this many pixels a side networks are their CIFAR versions.
SMALL = 64
#: Convolutions of each stage of VGG, blocks of each stage of ResNet, and channels of an attention head.
VGG = {"vgg11": (1, 1, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3)}
RESNET = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}
HEAD = 64
#: Stages of MobileNet v2: expansion, channels, stride, blocks.
MOBILENET_V2 = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 2, 3), (6, 64, 2, 4), (6, 96, 1, 3), (6, 160, 2, 3), (6, 320, 1, 1),
)  # fmt: skip


def build(name: str, shape: tuple[int, ...], n_classes: int, vocabulary: int) -> nn.Module:
    """Build the network of a name and of checked sizes; its class, after which its graph is named, has that name."""
    network = _build(name, shape, n_classes, vocabulary)
    network.__class__ = type(name, (type(network),), {})
    return network


def _build(name: str, shape: tuple[int, ...], n_classes: int, vocabulary: int) -> nn.Module:
    if name in VGG:
        return nn.Sequential(*_vgg(VGG[name], shape, n_classes))
    if name in RESNET:
        return nn.Sequential(*_resnet(RESNET[name], shape, n_classes, bottleneck=name == "resnet50"))
    if name == "mobilenet_v2":
        return nn.Sequential(*_mobilenet_v2(shape, n_classes))
    return ViT(shape, n_classes) if name == "vit_tiny" else Bert(shape[0], n_classes, vocabulary)


class Residual(nn.Module):
    """The sum of a body and of a shortcut, which is the input itself unless another is given."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Add the two."""
        y = self.body(x)
        return torch.add(y, x if self.shortcut is None else self.shortcut(x))


def _conv_norm(
    inputs: int, outputs: int, kernel: int, stride: int = 1, act: Any = nn.ReLU, groups: int = 1
) -> Iterator[nn.Module]:
    yield nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    yield nn.BatchNorm2d(outputs)
    if act is not None:
        yield act()


def _vgg(convs: tuple[int, ...], shape: tuple[int, ...], n_classes: int) -> Iterator[nn.Module]:
    """VGG (arXiv 1409.1556); for small inputs with batch norm and one dense layer, as is common on CIFAR."""
    channels, height, width = shape
    small = min(height, width) < SMALL
    for filters, repeats in zip((64, 128, 256, 512, 512), convs, strict=True):
        for _ in range(repeats):
            if small:
                yield from _conv_norm(channels, filters, 3)
            else:
                yield from (nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU())
            channels = filters
        yield nn.MaxPool2d(2, 2, ceil_mode=True)
        height, width = -(-height // 2), -(-width // 2)
    yield nn.Flatten()
    inputs = channels * height * width
    for units in () if small else (4096, 4096):
        yield from (nn.Linear(inputs, units), nn.ReLU(), nn.Dropout(0.5))
        inputs = units
    yield nn.Linear(inputs, n_classes)


def _resnet(
    blocks: tuple[int, ...], shape: tuple[int, ...], n_classes: int, *, bottleneck: bool
) -> Iterator[nn.Module]:
    """ResNet of two or, with `bottleneck`, three convolutions a block (arXiv 1512.03385)."""
    small, channels = min(shape[1:]) < SMALL, 64
    yield from _conv_norm(shape[0], channels, 3 if small else 7, 1 if small else 2)
    if not small:
        yield nn.MaxPool2d(3, 2, 1)
    for stage, repeats in enumerate(blocks):
        inner = 64 * 2**stage
        outputs = 4 * inner if bottleneck else inner
        for block in range(repeats):
            stride = 2 if stage > 0 and block == 0 else 1
            yield _resnet_block(channels, inner, outputs, stride, bottleneck=bottleneck)
            yield nn.ReLU()
            channels = outputs
    yield from _classifier(channels, n_classes)


def _resnet_block(channels: int, inner: int, outputs: int, stride: int, *, bottleneck: bool) -> nn.Module:
    if bottleneck:
        body = [*_conv_norm(channels, inner, 1), *_conv_norm(inner, inner, 3, stride)]
        body += _conv_norm(inner, outputs, 1, act=None)
    else:
        body = [*_conv_norm(channels, inner, 3, stride), *_conv_norm(inner, outputs, 3, act=None)]
    same = stride == 1 and channels == outputs
    shortcut = None if same else nn.Sequential(*_conv_norm(channels, outputs, 1, stride, act=None))
    return Residual(nn.Sequential(*body), shortcut)


def _mobilenet_v2(shape: tuple[int, ...], n_classes: int) -> Iterator[nn.Module]:
    """MobileNet v2 (arXiv 1801.04381)."""
    small, channels = min(shape[1:]) < SMALL, 32
    yield from _conv_norm(shape[0], channels, 3, 1 if small else 2, nn.ReLU6)
    for expansion, outputs, step, repeats in MOBILENET_V2:
        for block in range(repeats):
            stride = step if block == 0 and not (small and outputs == 24) else 1
            expanded = expansion * channels
            body = [] if expansion == 1 else [*_conv_norm(channels, expanded, 1, act=nn.ReLU6)]
            body += _conv_norm(expanded, expanded, 3, stride, nn.ReLU6, groups=expanded)
            inverted = nn.Sequential(*body, *_conv_norm(expanded, outputs, 1, act=None))
            yield Residual(inverted) if stride == 1 and channels == outputs else inverted
            channels = outputs
    yield from _conv_norm(channels, 1280, 1, act=nn.ReLU6)
    yield from _classifier(1280, n_classes, dropout=0.2)


def _classifier(channels: int, n_classes: int, dropout: float = 0.0) -> Iterator[nn.Module]:
    yield from (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    if dropout:
        yield nn.Dropout(dropout)
    yield nn.Linear(channels, n_classes)


class Attention(nn.Module):
    """Multi-head self-attention with its four projections."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Attend over all tokens."""
        split = (
            layer(x).unflatten(2, (x.shape[2] // HEAD, HEAD)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(*split)
        return self.output(mixed.transpose(1, 2).flatten(2))


def _feed_forward(width: int) -> list[nn.Module]:
    return [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)]


class ViT(nn.Module):
    """Vision transformer "tiny"; patches of 16 pixels, of 8 below 128 and of 4 below 64 (arXiv 2010.11929)."""

    def __init__(self, shape: tuple[int, ...], n_classes: int, width: int = 3 * HEAD, blocks: int = 12) -> None:
        super().__init__()
        side = min(shape[1:])
        patch = 16 if side >= 128 else 4 if side < SMALL else 8
        tokens = 1 + (shape[1] // patch) * (shape[2] // patch)
        self.patches = nn.Conv2d(shape[0], width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, tokens, width) * 0.02)
        layers: list[nn.Module] = []
        for _ in range(blocks):
            layers.append(Residual(nn.Sequential(nn.LayerNorm(width), Attention(width))))
            layers.append(Residual(nn.Sequential(nn.LayerNorm(width), *_feed_forward(width))))
        self.blocks = nn.Sequential(*layers, nn.LayerNorm(width))
        self.classifier = nn.Linear(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Classify images."""
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(tokens.shape[0], -1, -1), tokens], 1)
        return self.classifier(self.blocks(torch.add(tokens, self.positions)).select(1, 0))


class Bert(nn.Module):
    """BERT without segments, of size "mini" (arXiv 1810.04805)."""

    def __init__(self, length: int, n_classes: int, vocabulary: int, width: int = 4 * HEAD, blocks: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(1, length, width) * 0.02)
        layers: list[nn.Module] = [nn.LayerNorm(width), nn.Dropout(0.1)]
        for _ in range(blocks):
            layers += [Residual(nn.Sequential(Attention(width), nn.Dropout(0.1))), nn.LayerNorm(width)]
            layers += [Residual(nn.Sequential(*_feed_forward(width), nn.Dropout(0.1))), nn.LayerNorm(width)]
        self.blocks = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(width, width), nn.Tanh(), nn.Dropout(0.1), nn.Linear(width, n_classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Classify sequences of tokens by the first one."""
        tokens = self.blocks(torch.add(self.embedding(x), self.positions))
        return self.classifier(tokens.select(1, 0))
