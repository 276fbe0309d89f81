"""Networks over sequences, graphs and pairs of views behind published training scripts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.cost.libraries import torchvision_model
from benchmarks.cost.regions import Built


class WordModel(nn.Module):
    """Recurrent language model of the Penn Treebank."""

    def __init__(self, width: int, vocabulary: int = 10000) -> None:
        super().__init__()
        self.tokens, self.drop = nn.Embedding(vocabulary, width), nn.Dropout(0.5)
        self.layers, self.head = nn.LSTM(width, width, 2, batch_first=True), nn.Linear(width, vocabulary)

    def forward(self, tokens: Any) -> Any:
        """Forward pass."""
        return self.head(self.drop(self.layers(self.drop(self.tokens(tokens)))[0]))


class Seq2Seq(nn.Module):
    """Recurrent encoder (half of its layers bidirectional) and decoder with multiplicative attention."""

    def __init__(self, width: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.encoder = nn.LSTM(width, width // 2, layers, batch_first=True, bidirectional=True, dropout=0.2)
        self.decoder = nn.LSTM(width, width, layers, batch_first=True, dropout=0.2)
        self.key, self.join = nn.Linear(width, width, bias=False), nn.Linear(2 * width, width, bias=False)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Any) -> Any:
        """Forward pass."""
        memory, x = self.encoder(self.source(tokens))[0], self.decoder(self.target(tokens))[0]
        context = (x @ self.key(memory).transpose(1, 2)).softmax(-1) @ memory
        return self.head(torch.tanh(self.join(torch.cat([x, context], -1))))


class GraphLayers(nn.Module):
    """Two graph convolutions, or two layers of attention over edges, on a whole graph of a citation network."""

    def __init__(self, nodes: int, edges: int, features: int, classes: int, *, attention: bool) -> None:
        super().__init__()
        self.nodes, self.attention = nodes, attention
        heads = 8 if attention else 1
        sizes = [(features, 64 if attention else 16, heads), (64 if attention else 16, classes, 1)]
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b, _ in sizes)
        self.scores = nn.ParameterList(nn.Parameter(torch.zeros(2, h, b // h)) for _, b, h in sizes)
        self.heads, self.drop = [h for _, _, h in sizes], nn.Dropout(0.6 if attention else 0.5)
        for name in ("sources", "targets"):
            self.register_buffer(name, torch.zeros(edges, dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        x = x[0]
        for i, (layer, score, heads) in enumerate(zip(self.layers, self.scores, self.heads, strict=True)):
            x = layer(self.drop(x)).unflatten(1, (heads, -1))
            sent = x.index_select(0, self.sources)
            if self.attention:
                sent = sent * self._weights(x, score)
            x = torch.zeros_like(x).index_add(0, self.targets, sent).flatten(1)
            x = torch.relu(x) if i == 0 else x
        return x

    def _weights(self, x: Any, score: Any) -> Any:
        left, right = (x * score[0]).sum(-1), (x * score[1]).sum(-1)
        logits = left.index_select(0, self.sources) + right.index_select(0, self.targets)
        power = self.drop(nn.functional.leaky_relu(logits, 0.2).exp())
        total = torch.zeros_like(left).index_add(0, self.targets, power)
        return (power / total.index_select(0, self.targets)).unsqueeze(-1)


#: Nodes, edges with one to each node itself, features and classes.
_GRAPHS = {
    "cora": (2708, 13264, 1433, 7),
    "citeseer": (3327, 12431, 3703, 6),
    "pubmed": (19717, 108365, 500, 3),
}


def _graph(name: str, attention: bool, _: int) -> Built:
    sizes = _GRAPHS[name]
    return GraphLayers(*sizes, attention=attention), (sizes[0], sizes[2]), None


class Contrast(nn.Module):
    """MoCo: a ResNet-50 that is trained and one that follows it, and a queue of keys."""

    def __init__(self, queue: int = 65536) -> None:
        super().__init__()
        self.queries, self.keys = (torchvision_model("resnet50", num_classes=128) for _ in range(2))
        self.keys.requires_grad_(False)
        self.register_buffer("queue", torch.zeros(128, queue))

    def forward(self, views: Any) -> Any:
        """Forward pass."""
        query = nn.functional.normalize(self.queries(views[:, 0]))
        with torch.no_grad():
            key = nn.functional.normalize(self.keys(views[:, 1]))
        return torch.cat([(query * key).sum(1, keepdim=True), query @ self.queue], 1)


class SmallResidual(nn.Module):
    """ResNet for 32 x 32 images, of two convolutions a block, or of bottlenecks before which it is normalised."""

    def __init__(self, blocks: int, *, bottleneck: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.blocks, self.skips, inputs, self.before = nn.ModuleList(), nn.ModuleList(), 16, bottleneck
        for stage in range(3):
            for i in range(blocks):
                outputs = 64 * 2**stage if bottleneck else 16 * 2**stage
                middle = (16 if stage == 0 else 32 * 2**stage) if bottleneck else outputs
                stride = 2 if stage and i == 0 else 1
                self.blocks.append(self._block(inputs, middle, outputs, stride))
                self.skips.append(nn.Conv2d(inputs, outputs, 1, stride) if inputs != outputs else nn.Identity())
                inputs = outputs
        self.head = nn.Linear(inputs, 10)

    def _block(self, a: int, m: int, b: int, stride: int) -> nn.Sequential:
        def conv(n: int, k: int, size: int, step: int = 1) -> list[nn.Module]:
            return [nn.Conv2d(n, k, size, step, size // 2)]

        def norm(n: int) -> list[nn.Module]:
            return [nn.BatchNorm2d(n), nn.ReLU()]

        if self.before:
            parts = [*norm(a), *conv(a, m, 1, stride), *norm(m), *conv(m, m, 3), *norm(m), *conv(m, b, 1)]
            return nn.Sequential(*parts)
        return nn.Sequential(*conv(a, b, 3, stride), *norm(b), *conv(b, b, 3), nn.BatchNorm2d(b))

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        x = self.stem(x)
        for block, skip in zip(self.blocks, self.skips, strict=True):
            x = skip(x) + block(x)
            x = x if self.before else torch.relu(x)
        return self.head(x.mean((2, 3)))


def _tokens(module: Any, length: int) -> Built:
    return module(), (length,), "int64"


def _small(make: Callable[[], nn.Module], size: int) -> Built:
    return make(), (3, size, size), None


NETWORKS: dict[str, Callable[[int], Built]] = {
    "lstm_lm_small": partial(_tokens, lambda: WordModel(200)),
    "lstm_lm_large": partial(_tokens, lambda: WordModel(1500)),
    "seq2seq_512": partial(_tokens, lambda: Seq2Seq(512, 2, 12000)),
    "seq2seq_1024": partial(_tokens, lambda: Seq2Seq(1024, 4, 32000)),
    **{f"gcn_{name}": partial(_graph, name, False) for name in _GRAPHS},
    **{f"gat_{name}": partial(_graph, name, True) for name in _GRAPHS},
    "moco_r50": lambda size: (Contrast(), (2, 3, size, size), None),
    **{
        f"cifar_resnet{6 * n + 2}": partial(_small, partial(SmallResidual, n, bottleneck=False))
        for n in (3, 5, 7, 9, 18)
    },
    **{f"cifar_resnet{9 * n + 2}v2": partial(_small, partial(SmallResidual, n, bottleneck=True)) for n in (6, 12)},
}
