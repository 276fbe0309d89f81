"""Builder of PyTorch models as ``torch.fx`` graphs."""

from __future__ import annotations

import math
import operator
from functools import partial
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from benchmarks.zoo.networks import Net, Size, Value

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "hard_silu": nn.Hardswish,
    "hard_sigmoid": nn.Hardsigmoid,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}


class TorchNet(Net):
    """Builds a ``torch.fx.GraphModule``; its images are ``(batch, channels, height, width)``."""

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self._graph = fx.Graph()
        self._root = nn.Module()
        self._count = 0
        self._embedding: fx.Node | None = None

    def input(self) -> Value:
        """See `Net.input`; a placeholder that carries the shape of one sample."""
        return _shaped(self._graph.placeholder("x"), self.size.input_shape)

    def model(self, output: Value, name: str) -> fx.GraphModule:
        """Return the ``torch.fx.GraphModule``, whose class is called `name`."""
        self._graph.output(output)
        return fx.GraphModule(self._root, self._graph, class_name=name)

    def channels(self, x: Value) -> int:
        """See `Net.channels`."""
        shape = _shape(x)
        return shape[0] if len(shape) == 3 else shape[-1]

    def height(self, x: Value) -> int:
        """See `Net.height`."""
        return _shape(x)[1]

    def conv(
        self,
        x: Value,
        filters: int,
        kernel: int | tuple[int, int] = 1,
        stride: int = 1,
        *,
        groups: int = 1,
        bias: bool = False,
        same: bool = True,
    ) -> Value:
        """See `Net.conv`."""
        window = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (window[0] // 2, window[1] // 2) if same else (0, 0)
        conv = nn.Conv2d(self.channels(x), filters, window, stride, padding, groups=groups, bias=bias)
        return self._layer(conv, x, (filters, *_windows(x, window, stride, same)))

    def batch_norm(self, x: Value) -> Value:
        """See `Net.batch_norm`."""
        return self._layer(nn.BatchNorm2d(self.channels(x)), x)

    def layer_norm(self, x: Value) -> Value:
        """See `Net.layer_norm`; an image is permuted to channels last and back."""
        norm = nn.LayerNorm(self.channels(x))
        if len(_shape(x)) == 2:
            return self._layer(norm, x)
        last = self._method("permute", x, 0, 2, 3, 1, shape=_shape(x))
        return self._method("permute", self._layer(norm, last), 0, 3, 1, 2, shape=_shape(x))

    def activation(self, x: Value, kind: str) -> Value:
        """See `Net.activation`."""
        return self._layer(ACTIVATIONS[kind](), x)

    def max_pool(self, x: Value, kernel: int, stride: int, *, same: bool = True) -> Value:
        """See `Net.max_pool`."""
        return self._pool(nn.MaxPool2d, x, kernel, stride, same=same)

    def avg_pool(self, x: Value, kernel: int, stride: int) -> Value:
        """See `Net.avg_pool`."""
        return self._pool(partial(nn.AvgPool2d, count_include_pad=False), x, kernel, stride, same=True)

    def _pool(self, pool: Any, x: fx.Node, kernel: int, stride: int, *, same: bool) -> fx.Node:
        # An even kernel has no symmetric padding: instead a last, partial window counts.
        odd = kernel % 2 == 1
        layer = pool(kernel, stride, kernel // 2 if same and odd else 0, ceil_mode=same and not odd)
        return self._layer(layer, x, (self.channels(x), *_windows(x, (kernel, kernel), stride, same)))

    def global_pool(self, x: Value, *, keep: bool = False) -> Value:
        """See `Net.global_pool`."""
        pooled = self._layer(nn.AdaptiveAvgPool2d(1), x, (self.channels(x), 1, 1))
        return pooled if keep else self.flatten(pooled)

    def dense(self, x: Value, units: int) -> Value:
        """See `Net.dense`."""
        return self._layer(nn.Linear(self.channels(x), units), x, (*_shape(x)[:-1], units))

    def dropout(self, x: Value, rate: float) -> Value:
        """See `Net.dropout`."""
        return self._layer(nn.Dropout(rate), x)

    def flatten(self, x: Value) -> Value:
        """See `Net.flatten`; the width varies fastest, channels slowest."""
        return self._layer(nn.Flatten(), x, (math.prod(_shape(x)),))

    def add(self, x: Value, y: Value) -> Value:
        """See `Net.add`."""
        return self._function(torch.add, x, y, shape=_shape(x))

    def multiply(self, x: Value, y: Value) -> Value:
        """See `Net.multiply`."""
        return self._function(torch.mul, x, y, shape=_shape(x))

    def concat(self, *xs: Value) -> Value:
        """See `Net.concat`."""
        return self._function(torch.cat, list(xs), 1, shape=(sum(map(self.channels, xs)), *_shape(xs[0])[1:]))

    def halves(self, x: Value) -> tuple[Value, Value]:
        """See `Net.halves`."""
        shape = (self.channels(x) // 2, *_shape(x)[1:])
        both = self._function(torch.chunk, x, 2, 1, shape=shape)
        first, second = (self._function(operator.getitem, both, i, shape=shape) for i in (0, 1))
        return first, second

    def shuffle(self, x: Value) -> Value:
        """See `Net.shuffle`."""
        return self._layer(nn.ChannelShuffle(2), x)

    def shift(self, x: Value) -> Value:
        """See `Net.shift`."""
        return self._function(functional.pad, x, (-1, 1, -1, 1), shape=_shape(x))

    def scale(self, x: Value) -> Value:
        """See `Net.scale`."""
        return self._function(torch.mul, x, self._parameter(torch.ones(self.channels(x), 1, 1)), shape=_shape(x))

    def sequence(self, x: Value) -> Value:
        """See `Net.sequence`."""
        channels, height, width = _shape(x)
        flat = self._method("flatten", x, 2, shape=(channels, height * width))
        return self._method("transpose", flat, 1, 2, shape=(height * width, channels))

    def class_token(self, x: Value) -> Value:
        """See `Net.class_token`."""
        length, width = _shape(x)
        rows = self._function(getattr, x, "shape", shape=())
        batch = self._function(operator.getitem, rows, 0, shape=())
        token = self._method("expand", self._parameter(torch.zeros(1, 1, width)), batch, -1, -1, shape=(1, width))
        return self._function(torch.cat, [token, x], 1, shape=(length + 1, width))

    def positions(self, x: Value) -> Value:
        """See `Net.positions`."""
        return self._function(torch.add, x, self._parameter(torch.randn(1, *_shape(x)) * 0.02), shape=_shape(x))

    def embedding(self, x: Value, units: int) -> Value:
        """See `Net.embedding`; the node is kept for `unembedding`."""
        self._embedding = self._layer(nn.Embedding(self.size.vocabulary, units), x, (*_shape(x), units))
        return self._embedding

    def unembedding(self, x: Value) -> Value:
        """See `Net.unembedding`; raises RuntimeError without an earlier `embedding`."""
        if self._embedding is None:
            raise RuntimeError("unembedding shares the table of an embedding, which comes first")
        table = self._graph.get_attr(f"{self._embedding.target}.weight")
        return self._function(functional.linear, x, table, shape=(*_shape(x)[:-1], self.size.vocabulary))

    def attention(self, x: Value, heads: int, *, causal: bool) -> Value:
        """See `Net.attention`."""
        length, width = _shape(x)
        query, key, value = (self._heads(self.dense(x, width), heads) for _ in range(3))
        attend = functional.scaled_dot_product_attention
        mixed = self._graph.call_function(attend, (query, key, value), {"is_causal": causal})
        tokens = self._method("transpose", mixed, 1, 2, shape=(length, heads, width // heads))
        return self.dense(self._method("flatten", tokens, 2, shape=(length, width)), width)

    def _heads(self, x: fx.Node, heads: int) -> fx.Node:
        length, width = _shape(x)
        split = self._method("unflatten", x, 2, (heads, width // heads), shape=(length, heads, width // heads))
        return self._method("transpose", split, 1, 2, shape=(heads, length, width // heads))

    def recurrent(self, x: Value, units: int, kind: str) -> Value:
        """See `Net.recurrent`; the second bias of an LSTM is zero and not trained."""
        cell = {"lstm": nn.LSTM, "gru": nn.GRU}[kind](self.channels(x), units, batch_first=True)
        if kind == "lstm":
            # PyTorch has two biases where Keras has one: the second is frozen at zero.
            nn.init.zeros_(cell.bias_hh_l0).requires_grad_(False)
        shape = (_shape(x)[0], units)
        return self._function(operator.getitem, self._layer(cell, x, shape), 0, shape=shape)

    def token(self, x: Value, place: int) -> Value:
        """See `Net.token`."""
        return self._method("select", x, 1, place, shape=_shape(x)[1:])

    def _layer(self, module: nn.Module, x: fx.Node, shape: tuple[int, ...] | None = None) -> fx.Node:
        name = self._place(type(module).__name__.lower(), module)
        return _shaped(self._graph.call_module(name, (x,)), _shape(x) if shape is None else shape)

    def _parameter(self, values: torch.Tensor) -> fx.Node:
        return self._graph.get_attr(self._place("parameter", nn.Parameter(values)))

    def _place(self, noun: str, part: nn.Module | nn.Parameter) -> str:
        name = f"{noun}_{self._count}"
        setattr(self._root, name, part)
        self._count += 1
        return name

    def _function(self, function: Any, *args: Any, shape: tuple[int, ...]) -> fx.Node:
        return _shaped(self._graph.call_function(function, args), shape)

    def _method(self, name: str, *args: Any, shape: tuple[int, ...]) -> fx.Node:
        return _shaped(self._graph.call_method(name, args), shape)


def _shaped(node: fx.Node, shape: tuple[int, ...]) -> fx.Node:
    node.meta["zoo_shape"] = shape
    return node


def _shape(node: fx.Node) -> tuple[int, ...]:
    """Shape of one sample; images are channels first."""
    shape: tuple[int, ...] = node.meta["zoo_shape"]
    return shape


def _windows(x: fx.Node, window: tuple[int, int], stride: int, same: bool) -> tuple[int, int]:
    """Height and width after a sliding window."""
    shrink = (1, 1) if same else window
    _, height, width = _shape(x)
    return (height - shrink[0]) // stride + 1, (width - shrink[1]) // stride + 1
