"""ResNet and its variants, RegNet and DenseNet."""

from __future__ import annotations

from gpudemand.cost.zoo.blocks import classify, conv_norm, norm_act_conv, squeeze_excite, stem
from gpudemand.cost.zoo.net import Net, Value


def resnet(net: Net, x: Value, blocks: tuple[int, ...], *, squeeze: bool = False) -> Value:
    """ResNet of two-convolution blocks (arXiv 1512.03385); with `squeeze` SE-ResNet (arXiv 1709.01507)."""
    x = stem(net, x, net.wide(64))
    for stage, repeats in enumerate(blocks):
        for block in range(net.deep(repeats)):
            x = _basic(net, x, net.wide(64 * 2**stage), _halve_first(stage, block), squeeze)
    return classify(net, x)


def bottleneck_resnet(net: Net, x: Value, blocks: tuple[int, ...], inner: int = 64, groups: int = 1) -> Value:
    """ResNet of three-convolution blocks; with `groups` ResNeXt (arXiv 1611.05431), with more `inner` Wide ResNet."""
    x = stem(net, x, net.wide(64))
    for stage, repeats in enumerate(blocks):
        for block in range(net.deep(repeats)):
            middle, out = net.wide(inner * 2**stage, max(8, groups)), net.wide(256 * 2**stage)
            x = _bottleneck(net, x, middle, out, _halve_first(stage, block), groups)
    return classify(net, x)


def resnext29(net: Net, x: Value) -> Value:
    """ResNeXt-29 with 32 groups of 4 channels (arXiv 1611.05431)."""
    x = stem(net, x, net.wide(64))
    for stage in range(3):
        for block in range(net.deep(3)):
            middle, out = net.wide(128 * 2**stage, 32), net.wide(256 * 2**stage)
            x = _bottleneck(net, x, middle, out, _halve_first(stage, block), 32)
    return classify(net, x)


def preact_resnet(net: Net, x: Value, blocks: tuple[int, ...], inner: int = 64, first: int = 64) -> Value:
    """Pre-activation ResNet (arXiv 1603.05027), and in three stages Wide ResNet (arXiv 1605.07146)."""
    x = stem(net, x, net.wide(first), norm=False)
    for stage, repeats in enumerate(blocks):
        for block in range(net.deep(repeats)):
            x = _preact(net, x, net.wide(inner * 2**stage), _halve_first(stage, block))
    return classify(net, net.activation(net.batch_norm(x), "relu"))


def regnet(net: Net, x: Value, blocks: tuple[int, ...], widths: tuple[int, ...], group: int) -> Value:
    """RegNetX (arXiv 2003.13678)."""
    x = conv_norm(net, x, net.wide(32), 3, net.stride())
    for repeats, width in zip(blocks, widths, strict=True):
        out, stride = net.wide(width, group), net.stride()
        for block in range(net.deep(repeats)):
            x = _bottleneck(net, x, out, out, stride if block == 0 else 1, out // group)
    return classify(net, x)


def densenet(net: Net, x: Value, blocks: tuple[int, ...], growth: int = 32) -> Value:
    """DenseNet-BC (arXiv 1608.06993)."""
    x = stem(net, x, net.wide(2 * growth))
    for stage, repeats in enumerate(blocks):
        if stage:
            x = net.avg_pool(norm_act_conv(net, x, net.channels(x) // 2), 2, 2)
        for _ in range(net.deep(repeats)):
            new = norm_act_conv(net, x, net.wide(4 * growth))
            x = net.concat(x, norm_act_conv(net, new, net.wide(growth), 3))
    return classify(net, net.activation(net.batch_norm(x), "relu"))


def _halve_first(stage: int, block: int) -> int:
    return 2 if stage > 0 and block == 0 else 1


def _basic(net: Net, x: Value, filters: int, stride: int, squeeze: bool) -> Value:
    y = conv_norm(net, x, filters, 3, stride)
    y = conv_norm(net, y, filters, 3, act=None)
    y = squeeze_excite(net, y, filters // 16) if squeeze else y
    return net.activation(net.add(y, _shortcut(net, x, filters, stride)), "relu")


def _bottleneck(net: Net, x: Value, inner: int, out: int, stride: int, groups: int) -> Value:
    y = conv_norm(net, x, inner)
    y = conv_norm(net, y, inner, 3, stride, groups=groups)
    y = conv_norm(net, y, out, act=None)
    return net.activation(net.add(y, _shortcut(net, x, out, stride)), "relu")


def _shortcut(net: Net, x: Value, filters: int, stride: int) -> Value:
    if stride == 1 and net.channels(x) == filters:
        return x
    return conv_norm(net, x, filters, stride=stride, act=None)


def _preact(net: Net, x: Value, filters: int, stride: int) -> Value:
    active = net.activation(net.batch_norm(x), "relu")
    same = stride == 1 and net.channels(x) == filters
    shortcut = x if same else net.conv(active, filters, 1, stride)
    y = norm_act_conv(net, net.conv(active, filters, 3, stride), filters, 3)
    return net.add(y, shortcut)
