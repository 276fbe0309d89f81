"""Decoder-only transformers: hidden size, depth, sequence, attention, checkpointing and adapters in a random design."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCABULARY, HEAD, RANK = 32_000, 128, 16
SIZES = {"hidden": (1024, 2048, 4096, 8192), "layers": (2, 4, 8), "tokens": (512, 1024, 2048, 4096, 8192)}


@dataclass(frozen=True)
class Decoder:
    """A decoder and how it is trained; `tokens` are those of a sample."""

    hidden: int
    layers: int
    tokens: int
    attention: str = "flash"
    checkpointing: int = 0
    lora: int = 0
    batch_size: int = 1
    precision: str = "bf16"
    optimizer: str = "adamw"

    def build(self) -> nn.Module:
        """The module that is measured."""
        return _Decoder(self)

    def inputs(self) -> list[Tensor]:
        """A batch of tokens."""
        return [torch.randint(VOCABULARY, (self.batch_size, self.tokens))]

    def traced(self) -> dict[str, Any]:
        """Module, shapes and options of the `TrainingJob`; checkpointing is an option of it."""
        with torch.device("meta"):
            net = _Decoder(replace(self, checkpointing=0))
        options: dict[str, Any] = {"checkpointing": "full"} if self.checkpointing else {}
        return {"model": net, "input_shape": (self.tokens,), "input_dtype": "int64", **options}


class _Linear(nn.Module):
    """A product, with an adapter beside it if asked."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs, bias=False).requires_grad_(rank == 0)
        pair = [nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)] if rank else []
        self.adapter = nn.Sequential(*pair)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.adapter(x) if len(self.adapter) else self.base(x)


class _Block(nn.Module):
    """Attention and a gated feed-forward layer (Touvron et al., "Llama", 2023), without rotary positions."""

    def __init__(self, design: Decoder) -> None:
        super().__init__()
        width, rank, inner = design.hidden, RANK * design.lora, 8 * design.hidden // 3 // HEAD * HEAD
        self.fused = design.attention == "flash"
        self.norms = nn.ModuleList(nn.RMSNorm(width).requires_grad_(rank == 0) for _ in range(2))
        self.inputs = nn.ModuleList(_Linear(width, width, rank) for _ in range(3))
        self.output = _Linear(width, width, rank)
        self.up = nn.ModuleList(_Linear(width, inner, rank) for _ in range(2))
        self.down = _Linear(inner, width, rank)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norms[0](x)
        query, key, value = (part(normed).unflatten(-1, (-1, HEAD)).transpose(1, 2) for part in self.inputs)
        x = x + self.output(self._attend(query, key, value).transpose(1, 2).flatten(2))
        gate, up = (part(self.norms[1](x)) for part in self.up)
        return x + self.down(functional.silu(gate) * up)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self.fused:
            return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        scores = query @ key.transpose(-1, -2) * HEAD**-0.5
        masked = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        return scores.masked_fill(masked, float("-inf")).softmax(-1).to(value.dtype) @ value


class _Decoder(nn.Module):
    def __init__(self, design: Decoder) -> None:
        super().__init__()
        trains, self.checkpointing = not design.lora, bool(design.checkpointing)
        self.embedding = nn.Embedding(VOCABULARY, design.hidden).requires_grad_(trains)
        self.blocks = nn.ModuleList(_Block(design) for _ in range(design.layers))
        self.head = nn.Sequential(nn.RMSNorm(design.hidden), nn.Linear(design.hidden, VOCABULARY, bias=False))
        self.head.requires_grad_(trains)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        return self.head(x)


def plan(n_rows: int = 60, random_state: int = 0) -> list[Decoder]:
    """A random design; about 8,000 tokens a step, and written-out attention on no more than 4,096 at once."""
    random, designs = np.random.default_rng(random_state), []
    while len(designs) < n_rows:
        sizes = {name: int(random.choice(values)) for name, values in SIZES.items()}
        options = dict(zip(("checkpointing", "lora"), map(int, random.integers(0, 2, 2)), strict=True))
        attention = str(random.choice(["flash", "eager"] if sizes["tokens"] <= 4096 else ["flash"]))
        batch = max(1, 8192 // sizes["tokens"] // int(random.choice([1, 2, 4])))
        design = Decoder(**sizes, attention=attention, **options, batch_size=batch)
        if design not in designs:
            designs.append(design)
    return designs
