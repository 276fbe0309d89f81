"""Transformers, a translation and a recommendation model of the published sizes."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

Built = tuple[nn.Module, Any, Any]


class Attention(nn.Module):
    """Multi-head attention without fused kernels."""

    def __init__(self, width: int, heads: int, inner: int | None = None) -> None:
        super().__init__()
        inner = inner or width
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, inner) for _ in range(3))
        self.out = nn.Linear(inner, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Any, memory: Any = None) -> Any:
        """Forward pass."""
        memory = x if memory is None else memory
        q, k, v = self._split(self.query(x)), self._split(self.key(memory)), self._split(self.value(memory))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        weights = self.drop((scores + torch.zeros_like(scores[:1, :1])).softmax(-1))
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    def _split(self, x: Any) -> Any:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Block(nn.Module):
    """Attention and a feed-forward layer, each with dropout, residual and normalisation."""

    def __init__(self, width: int, heads: int, feed: nn.Module, *, before: bool, cross: bool = False) -> None:
        super().__init__()
        self.attention, self.feed, self.before = Attention(width, heads), feed, before
        self.cross = Attention(width, heads) if cross else None
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 + cross))
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Any, memory: Any = None) -> Any:
        """Forward pass."""
        x = self._add(0, self.attention, x)
        if self.cross is not None:
            x = self._add(2, partial(self.cross, memory=memory), x)
        return self._add(1, self.feed, x)

    def _add(self, i: int, part: Any, x: Any) -> Any:
        if self.before:
            return x + self.drop(part(self.norms[i](x)))
        return self.norms[i](x + self.drop(part(x)))


class NewGelu(nn.Module):
    """The tanh approximation of GELU of GPT-2, without fused kernels."""

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        return 0.5 * x * (1.0 + torch.tanh(0.79788456 * (x + 0.044715 * torch.pow(x, 3.0))))


def feed_forward(width: int, inner: int, activation: nn.Module) -> nn.Module:
    """Two dense layers."""
    return nn.Sequential(nn.Linear(width, inner), activation, nn.Linear(inner, width))


class Experts(nn.Module):
    """Switch routing with even shares: each expert takes its part of the tokens."""

    def __init__(self, width: int, inner: int, n_experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, n_experts, bias=False)
        self.experts = nn.ModuleList(feed_forward(width, inner, nn.ReLU()) for _ in range(n_experts))

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        gate = self.router(x).softmax(-1).amax(-1, keepdim=True)
        parts = x.chunk(len(self.experts), dim=1)
        return gate * torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)], dim=1)


class Transformer(nn.Module):
    """Embedding, blocks, head over the vocabulary (or over `classes`)."""

    def __init__(self, vocabulary: int, positions: int, blocks: list[nn.Module], width: int, classes: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(width, classes, bias=False)

    def forward(self, tokens: Any) -> Any:
        """Forward pass."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.norm(self.tokens(tokens) + self.positions(places)))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Shape(NamedTuple):
    """Sizes of a transformer."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    classes: int
    activation: type[nn.Module]
    before: bool
    feed: int = 4


SHAPES = {
    "bert_base": Shape(12, 768, 12, 30522, 2, nn.GELU, False),
    "bert_large": Shape(24, 1024, 16, 30522, 2, nn.GELU, False),
    "bert_large_lm": Shape(24, 1024, 16, 30522, 30522, nn.GELU, False),
    "gpt2_large": Shape(36, 1280, 20, 50257, 50257, NewGelu, True),
    "gpt3_xl": Shape(24, 2048, 16, 50257, 50257, NewGelu, True),
    "gpt3_27": Shape(32, 2560, 32, 50257, 50257, NewGelu, True),
    "opt_13": Shape(24, 2048, 32, 50272, 50272, nn.ReLU, True),
}


def transformer(shape: Shape, length: int) -> Built:
    """Build an encoder or a decoder; both cost the same."""
    blocks: list[nn.Module] = [
        Block(
            shape.width,
            shape.heads,
            feed_forward(shape.width, shape.feed * shape.width, shape.activation()),
            before=shape.before,
        )
        for _ in range(shape.layers)
    ]
    return Transformer(shape.vocabulary, max(length, 512), blocks, shape.width, shape.classes), (length,), "int64"


class EncoderDecoder(nn.Module):
    """Encoder and decoder over the same tokens, with cross-attention."""

    def __init__(self, encoder: nn.Module, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.encoder, self.blocks = encoder, nn.ModuleList(blocks)

    def forward(self, tokens: Any) -> Any:
        """Forward pass."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = memory = self.encoder.tokens(tokens) + self.encoder.positions(places)
        for block in self.encoder.blocks:
            memory = block(memory)
        for block in self.blocks:
            x = block(x, memory)
        return self.encoder.head(x)


def switch(length: int, layers: int = 24, width: int = 1024, inner: int = 16384, n_experts: int = 4) -> Built:
    """Switch Transformer: every second feed-forward layer is `n_experts` experts."""

    def feed(i: int) -> nn.Module:
        return Experts(width, inner, n_experts) if i % 2 else feed_forward(width, inner, nn.ReLU())

    encoder = Transformer(32128, max(length, 512), [], width, 32128)
    encoder.blocks = nn.ModuleList(Block(width, 32, feed(i), before=True) for i in range(layers))
    decoder: list[nn.Module] = [Block(width, 32, feed(i), before=True, cross=True) for i in range(layers)]
    return EncoderDecoder(encoder, decoder), (length,), "int64"


class RelativeAttention(nn.Module):
    """Attention of Transformer-XL: content and position terms over tokens and a memory as long."""

    def __init__(self, width: int, heads: int, head: int) -> None:
        super().__init__()
        self.heads, self.head = heads, head
        self.qkv = nn.Linear(width, 3 * heads * head, bias=False)
        self.position = nn.Linear(width, heads * head, bias=False)
        self.out, self.norm = nn.Linear(heads * head, width, bias=False), nn.LayerNorm(width)
        self.content_bias, self.position_bias = (nn.Parameter(torch.zeros(heads, 1, head)) for _ in range(2))
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Any, places: Any) -> Any:
        """Forward pass."""
        n = x.shape[1] // 2  # the first half is the memory
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, self.head)).permute(2, 0, 3, 1, 4)
        q = q[:, :, n:]
        r = self.position(places).unflatten(-1, (self.heads, self.head)).transpose(0, 1)
        content = (q + self.content_bias) @ k.transpose(-1, -2)
        position = (q + self.position_bias) @ r.transpose(-1, -2)
        shifted = functional.pad(position, (1, 0)).flatten(2)[..., n:].unflatten(-1, (n, -1))
        scores = (content + shifted) * self.head**-0.5
        weights = self.drop(scores.masked_fill(scores.new_zeros(n, 2 * n, dtype=torch.bool), -1e4).softmax(-1))
        return self.norm(x[:, n:] + self.drop(self.out((weights @ v).transpose(1, 2).flatten(2))))


class TransformerXL(nn.Module):
    """Segments of tokens, with a memory of the previous segment in each layer."""

    def __init__(self, layers: int, width: int, heads: int, head: int, inner: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(267735, width // 4)
        self.project = nn.Linear(width // 4, width)
        self.attentions = nn.ModuleList(RelativeAttention(width, heads, head) for _ in range(layers))
        self.feeds = nn.ModuleList(feed_forward(width, inner, nn.ReLU()) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(width, 20002)

    def forward(self, tokens: Any) -> Any:
        """Forward pass."""
        x = self.drop(self.project(self.tokens(tokens)))
        places = x.new_zeros(2 * x.shape[1], x.shape[2])
        for attention, feed, norm in zip(self.attentions, self.feeds, self.norms, strict=True):
            x = attention(torch.cat([x.detach(), x], dim=1), places)
            x = norm(x + self.drop(feed(x)))
        return self.head(x)


class Translator(nn.Module):
    """GNMT v2: recurrent encoder (first layer bidirectional) and decoder with one attention."""

    def __init__(self, vocabulary: int = 31794, width: int = 1024) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.both = nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.encoder = nn.ModuleList(nn.LSTM(2 * width if i == 0 else width, width, batch_first=True) for i in range(3))
        self.first = nn.LSTM(width, width, batch_first=True)
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.score = nn.Parameter(torch.zeros(width))
        self.decoder = nn.ModuleList(nn.LSTM(2 * width, width, batch_first=True) for _ in range(3))
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(width, vocabulary)

    def forward(self, tokens: Any) -> Any:
        """Forward pass."""
        memory = self._stack(self.encoder, self.both(self.drop(self.tokens(tokens)))[0])
        x = self.first(self.drop(self.tokens(tokens)))[0]
        scores = torch.tanh(self.query(x).unsqueeze(2) + self.key(memory).unsqueeze(1)) @ self.score
        context = scores.softmax(-1) @ memory
        for layer in self.decoder:
            x = layer(self.drop(torch.cat([x, context], dim=-1)))[0]
        return self.head(x)

    def _stack(self, layers: Any, x: Any) -> Any:
        for layer in layers:
            y = layer(self.drop(x))[0]
            x = y if y.shape != x.shape else y + x
        return x


class Recommender(nn.Module):
    """NeuMF: matrix factorization and dense layers."""

    def __init__(self, users: int = 138493, items: int = 26744, factors: int = 64) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.dense_users, self.dense_items = nn.Embedding(users, 128), nn.Embedding(items, 128)
        layers = [[nn.Linear(a, b), nn.ReLU(), nn.Dropout(0.5)] for a, b in [(256, 256), (256, 128), (128, 64)]]
        self.dense = nn.Sequential(*[part for layer in layers for part in layer])
        self.head = nn.Linear(factors + 64, 1)

    def forward(self, pair: Any) -> Any:
        """Forward pass."""
        user, item = pair[:, 0], pair[:, 1]
        product = self.users(user) * self.items(item)
        dense = self.dense(torch.cat([self.dense_users(user), self.dense_items(item)], dim=-1))
        return self.head(torch.cat([product, dense], dim=-1))


def _transformer_xl(layers: int, width: int, heads: int, head: int, inner: int, length: int) -> Built:
    return TransformerXL(layers, width, heads, head, inner), (length,), "int64"


NETWORKS = {
    **{name: partial(transformer, shape) for name, shape in SHAPES.items()},
    "switchxl4": switch,
    "transformerxl_base": partial(_transformer_xl, 16, 512, 8, 64, 2048),
    "transformerxl_large": partial(_transformer_xl, 18, 1024, 16, 64, 4096),
    "gnmt": lambda length: (Translator(), (length,), "int64"),
    "ncf": lambda _: (Recommender(), (2,), "int64"),
}
