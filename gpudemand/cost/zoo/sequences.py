"""Transformers, recurrent networks and ConvNeXt."""

from __future__ import annotations

from gpudemand.cost.zoo.net import Net, Value

#: Channels of an attention head; the width of a transformer is its number of heads.
HEAD = 64


def convnext(net: Net, x: Value, blocks: tuple[int, ...] = (3, 3, 9, 3)) -> Value:
    """ConvNeXt-tiny without stochastic depth; patches of 2 pixels instead of 4 for small inputs (arXiv 2201.03545)."""
    for stage, repeats in enumerate(blocks):
        patch = (2 if net.small else 4) if stage == 0 else 2
        x = x if stage == 0 else net.layer_norm(x)
        x = net.conv(x, net.wide(96 * 2**stage), patch, patch, bias=True, same=False)
        x = net.layer_norm(x) if stage == 0 else x
        for _ in range(net.deep(repeats)):
            x = _convnext_block(net, x)
    return net.dense(net.flatten(net.layer_norm(net.global_pool(x, keep=True))), net.size.n_classes)


def _convnext_block(net: Net, x: Value) -> Value:
    channels = net.channels(x)
    y = net.layer_norm(net.conv(x, channels, 7, groups=channels, bias=True))
    y = net.activation(net.conv(y, 4 * channels, bias=True), "gelu")
    return net.add(x, net.scale(net.conv(y, channels, bias=True)))


def vit(net: Net, x: Value, heads: int, blocks: int = 12) -> Value:
    """Vision transformer; patches of 16 pixels, of 8 below 128 and of 4 below 64 (arXiv 2010.11929)."""
    heads, patch = _heads(net, heads), 16 if net.side >= 128 else 4 if net.small else 8
    x = net.sequence(net.conv(x, heads * HEAD, patch, patch, bias=True, same=False))
    x = net.positions(net.class_token(x))
    for _ in range(net.deep(blocks)):
        x = _pre_norm(net, x, heads, causal=False)
    return net.dense(net.token(net.layer_norm(x), 0), net.size.n_classes)


def bert(net: Net, x: Value, heads: int = 4, blocks: int = 4) -> Value:
    """BERT without segments, of size "mini"; three times as wide and deep it is "base" (arXiv 1810.04805)."""
    heads = _heads(net, heads)
    x = net.dropout(net.layer_norm(net.positions(net.embedding(x, heads * HEAD))), 0.1)
    for _ in range(net.deep(blocks)):
        x = net.layer_norm(net.add(x, net.dropout(net.attention(x, heads, causal=False), 0.1)))
        x = net.layer_norm(net.add(x, net.dropout(_feed_forward(net, x), 0.1)))
    pooled = net.activation(net.dense(net.token(x, 0), heads * HEAD), "tanh")
    return net.dense(net.dropout(pooled, 0.1), net.size.n_classes)


def gpt(net: Net, x: Value, heads: int = 4, blocks: int = 4) -> Value:
    """GPT-2, a third of "small" in width and depth, with a language-modelling head."""
    heads = _heads(net, heads)
    x = net.dropout(net.positions(net.embedding(x, heads * HEAD)), 0.1)
    for _ in range(net.deep(blocks)):
        x = _pre_norm(net, x, heads, causal=True)
    return net.unembedding(net.layer_norm(x))


def recurrent(net: Net, x: Value, kind: str, units: int = 256, layers: int = 2) -> Value:
    """Embedding, a stack of LSTM or GRU layers, and a classifier on the last output."""
    x = net.embedding(x, net.wide(units))
    for _ in range(net.deep(layers)):
        x = net.recurrent(x, net.wide(units), kind)
    return net.dense(net.dropout(net.token(x, -1), 0.1), net.size.n_classes)


def _heads(net: Net, heads: int) -> int:
    return max(1, round(heads * net.size.width))


def _feed_forward(net: Net, x: Value) -> Value:
    channels = net.channels(x)
    return net.dense(net.activation(net.dense(x, 4 * channels), "gelu"), channels)


def _pre_norm(net: Net, x: Value, heads: int, *, causal: bool) -> Value:
    """Pre-norm transformer block."""
    x = net.add(x, net.attention(net.layer_norm(x), heads, causal=causal))
    return net.add(x, _feed_forward(net, net.layer_norm(x)))
