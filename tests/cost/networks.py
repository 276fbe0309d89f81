"""Small networks written as a user would write them, for the tests of the operator graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Basic block of ResNet-18."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.short = None
        if stride != 1 or inside != outside:
            self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.short is None else self.short(x)
        return self.relu(y)


def resnet18(n_classes: int = 1000) -> nn.Module:
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    widths = (64, 64, 128, 256, 512)
    blocks = [
        Block(widths[i] if first else widths[i + 1], widths[i + 1], 2 if first and i else 1)
        for i in range(4)
        for first in (True, False)
    ]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, n_classes))


class Inverted(nn.Module):
    """Depthwise convolutions, squeeze and excitation, and five kinds of activation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.Hardswish())
        self.depth = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.BatchNorm2d(16), nn.ReLU6(inplace=True))
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 4, 1), nn.SiLU(), nn.Conv2d(4, 16, 1), nn.Sigmoid()
        )
        self.head = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(16 * 16, 10))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.depth(x)
        return functional.log_softmax(self.head(functional.gelu(x + y * self.squeeze(y))), dim=-1)


class Decoder(nn.Module):
    """A GPT with attention written out and the output tied to the embedding."""

    def __init__(self, vocabulary: int = 200, length: int = 16, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.heads = heads
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).bool())

    def forward(self, tokens: Tensor) -> Tensor:
        batch, length = tokens.shape
        x = self.tokens(tokens) + self.places(torch.arange(length, device=tokens.device))
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        scores = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(~self.mask[:length, :length], float("-inf"))
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1))
        x = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return self.head(x)


class Encoder(nn.Module):
    """PyTorch's own encoder layers under a causal mask, then attention that returns its weights."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pool = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x = self.layers(x, mask=mask)
        return self.pool(x, x, x)[0].mean(1)


class Recurrent(nn.Module):
    """Embedding, recurrent layers, classifier."""

    def __init__(self, cell: Any = nn.LSTM, **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 16)
        self.cell = cell(16, 24, batch_first=True, **options)
        self.head = nn.Linear(48 if options.get("bidirectional") else 24, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.cell(self.embedding(tokens))[0][:, -1])


class Volume(nn.Module):
    """Three-dimensional convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv3d(1, 8, 3, padding=1), nn.GroupNorm(4, 8)
        self.up, self.head = nn.ConvTranspose3d(8, 4, 2, 2), nn.Linear(4 * 8 * 8 * 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.max_pool3d(functional.elu(self.norm(self.conv(x))), 2)
        return self.head(functional.leaky_relu(self.up(y)).flatten(1))


class Shuffle(nn.Module):
    """One grouped convolution called three times, channels shuffled in between."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for _ in range(3):
            x = torch.tanh(self.conv(x))
            batch, channels, height, width = x.shape
            x = x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(batch, channels, height, width)
        return x.mean((2, 3))


class Pair(nn.Module):
    """Two inputs, one of tokens, one of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.numbers = nn.Embedding(10, 4), nn.Linear(3, 4)

    def forward(self, tokens: Tensor, numbers: Tensor) -> Tensor:
        return torch.cat([self.embedding(tokens).mean(1), self.numbers(numbers)], dim=1)
