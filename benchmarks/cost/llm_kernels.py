"""Kernels that PyTorch launches for a layer of a gated transformer in mixed precision, its adapters and experts.

    python -m benchmarks.cost.llm_kernels

Counts what is dispatched, but views, of a layer as plain stacks write it: norms in single precision, rotary positions,
scaled dot-product attention, a gated feed-forward layer, and adapters with dropout. Experts are those of a layer
beside the feed-forward part that they replace: one by one, each on the tokens that chose it, or all in one product of
tokens that are sorted by them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

#: Operators that launch nothing.
_VIEWS = frozenset(
    (
        *("view", "_unsafe_view", "_reshape_alias", "reshape", "transpose", "t", "permute", "expand", "as_strided"),
        *("slice", "select", "split", "split_with_sizes", "unbind", "squeeze", "unsqueeze", "alias", "detach"),
        *("empty", "empty_like", "empty_strided", "ones_like"),
    )
)
#: Operators of dropout on a CPU beyond its one kernel on a GPU, and products of a layer.
_DROPOUT, _PRODUCTS = 2, 7
_HIDDEN, _HEADS, _FFN, _TOKENS, _ACTIVE = 64, 4, 128, 16, 2


class _Kernels(TorchDispatchMode):
    """Counts operators that launch a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.__name__.split(".")[0] not in _VIEWS
        return func(*args, **(kwargs or {}))


class _Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(_HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class _Linear(nn.Module):
    """A product, beside it an adapter if asked."""

    def __init__(self, inputs: int, outputs: int, *, adapted: bool) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs, bias=False).requires_grad_(not adapted)
        ways = [nn.Dropout(0.05), nn.Linear(inputs, 4, bias=False), nn.Linear(4, outputs, bias=False)]
        self.adapter = nn.Sequential(*ways) if adapted else None

    def forward(self, x: Tensor) -> Tensor:
        out = self.base(x)
        return out if self.adapter is None else out + 2.0 * self.adapter(x.to(torch.float32))


class _Layer(nn.Module):
    def __init__(self, *, adapted: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList([_Norm().requires_grad_(not adapted) for _ in range(2)])
        sizes = [(_HIDDEN, _HIDDEN)] * 4 + [(_HIDDEN, _FFN)] * 2 + [(_FFN, _HIDDEN)]
        self.products = nn.ModuleList([_Linear(*size, adapted=adapted) for size in sizes])

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        query, key, value, out, gate, up, down = self.products
        normed, shape = self.norms[0](x), (len(x), _TOKENS, _HEADS, -1)
        q, k, v = (product(normed).view(shape).transpose(1, 2) for product in (query, key, value))
        turned = [part * cosine + _swapped(part) * sine for part in (q, k)]
        mixed = functional.scaled_dot_product_attention(*turned, v, is_causal=True)
        x = x + out(mixed.transpose(1, 2).reshape(x.shape))
        normed = self.norms[1](x)
        return x + down(functional.silu(gate(normed)) * up(normed))


class _Experts(nn.Module):
    """A router, and gated experts in a loop (Transformers' Mixtral) or in grouped products (torchtitan)."""

    def __init__(self, count: int, *, grouped: bool) -> None:
        super().__init__()
        self.router, self.grouped = nn.Linear(_HIDDEN, count, bias=False), grouped
        sizes = [(_HIDDEN, _FFN), (_HIDDEN, _FFN), (_FFN, _HIDDEN)]
        if grouped:
            self.products = nn.ParameterList([nn.Parameter(torch.ones(count, *size)) for size in sizes])
        else:
            parts = [nn.ModuleList([nn.Linear(*size, bias=False) for size in sizes]) for _ in range(count)]
            self.experts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        chance = functional.softmax(self.router(x), dim=-1, dtype=torch.float32)
        weights, chosen = torch.topk(chance, _ACTIVE, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        return self._at_once(x, weights, chosen) if self.grouped else self._one_by_one(x, weights, chosen)

    def _one_by_one(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        mask = functional.one_hot(chosen, len(self.experts)).permute(2, 1, 0)
        for number, (gate, up, down) in enumerate(self.experts):
            place, token = torch.where(mask[number])
            own = x[token]
            out.index_add_(0, token, down(functional.silu(gate(own)) * up(own)) * weights[token, place, None])
        return out

    def _at_once(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        order = torch.argsort(chosen.flatten(), stable=True)
        torch.bincount(chosen.flatten(), minlength=len(self.products[0])).cumsum(0)
        own = x[order // _ACTIVE].view(len(self.products[0]), -1, _HIDDEN)
        gate, up, down = (weight.to(x.dtype) for weight in self.products)
        made = (functional.silu(own @ gate) * (own @ up)) @ down
        made = made.view(-1, _HIDDEN) * weights.flatten()[order, None]
        return torch.zeros_like(x).index_add(0, order // _ACTIVE, made)


def _swapped(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def count_kernels(*, adapted: bool) -> tuple[int, int]:
    """Kernels of the forward and of the backward pass of a layer.

    Examples
    --------
    >>> forward, backward = count_kernels(adapted=False)
    >>> forward < backward
    True
    """
    layer, half = _Layer(adapted=adapted), torch.bfloat16
    angles = torch.ones(_TOKENS, _HIDDEN // _HEADS, dtype=half)
    x = torch.ones(1, _TOKENS, _HIDDEN, dtype=half, requires_grad=True)
    with torch.autocast("cpu", dtype=half), _Kernels() as forward:
        out = layer(x, angles, angles)
    with _Kernels() as backward:
        out.backward(torch.ones_like(out))
    return forward.count - _DROPOUT * _PRODUCTS * adapted, backward.count


def adapter_kernels() -> tuple[float, float]:
    """Kernels that an adapter adds to each pass; its frozen product has no gradient of weights."""
    plain, adapted = count_kernels(adapted=False), count_kernels(adapted=True)
    return (adapted[0] - plain[0]) / _PRODUCTS, (adapted[1] - plain[1]) / _PRODUCTS + 1.0


def expert_kernels(count: int, *, grouped: bool) -> tuple[int, int]:
    """Kernels of the forward and of the backward pass of the experts of a layer, with their router."""
    experts, half = _Experts(count, grouped=grouped), torch.bfloat16
    x = torch.ones(_TOKENS * count, _HIDDEN, dtype=half, requires_grad=True)
    with torch.autocast("cpu", dtype=half), _Kernels() as forward:
        out = experts(x + torch.randn_like(x))
    with _Kernels() as backward:
        out.backward(torch.ones_like(out))
    return forward.count, backward.count


if __name__ == "__main__":
    print(f"layer, forward and backward: {count_kernels(adapted=False)}; an adapter: {adapter_kernels()}")
    few, many = (np.array(expert_kernels(count, grouped=False)) for count in (8, 16))
    print(
        f"experts in a loop: {2 * few - many}, and {(many - few) / 8} each; grouped: {expert_kernels(8, grouped=True)}"
    )
