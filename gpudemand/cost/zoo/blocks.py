"""Blocks shared by several families."""

from __future__ import annotations

from gpudemand.cost.zoo.net import Net, Value


def conv_norm(
    net: Net,
    x: Value,
    filters: int,
    kernel: int | tuple[int, int] = 1,
    stride: int = 1,
    *,
    groups: int = 1,
    act: str | None = "relu",
    same: bool = True,
) -> Value:
    """Convolution, batch norm and, unless `act` is None, activation."""
    x = net.batch_norm(net.conv(x, filters, kernel, stride, groups=groups, same=same))
    return net.activation(x, act) if act else x


def norm_act_conv(net: Net, x: Value, filters: int, kernel: int = 1) -> Value:
    """Pre-activation: batch norm, ReLU, convolution."""
    return net.conv(net.activation(net.batch_norm(x), "relu"), filters, kernel)


def depthwise_norm(net: Net, x: Value, kernel: int, stride: int = 1, *, act: str | None = "relu") -> Value:
    """Depthwise convolution, batch norm, activation."""
    channels = net.channels(x)
    return conv_norm(net, x, channels, kernel, stride, groups=channels, act=act)


def separable(net: Net, x: Value, filters: int, kernel: int, stride: int = 1) -> Value:
    """Separable convolution: depthwise, pointwise, batch norm."""
    x = net.conv(x, net.channels(x), kernel, stride, groups=net.channels(x))
    return conv_norm(net, x, filters, act=None)


def squeeze_excite(net: Net, x: Value, squeezed: int, *, act: str = "relu", gate: str = "sigmoid") -> Value:
    """Squeeze-and-excitation: channels weighted by a function of their means."""
    means = net.global_pool(x, keep=True)
    inner = net.activation(net.conv(means, squeezed, bias=True), act)
    return net.multiply(x, net.activation(net.conv(inner, net.channels(x), bias=True), gate))


def stem(net: Net, x: Value, filters: int, *, norm: bool = True) -> Value:
    """Stem of ImageNet networks, a 7 x 7 convolution and a pool of stride 2; a 3 x 3 convolution for small inputs."""
    x = net.conv(x, filters, 3 if net.small else 7, net.stride())
    x = net.activation(net.batch_norm(x), "relu") if norm else x
    return net.max_pool(x, 3, 2) if net.stride() == 2 else x


def classify(net: Net, x: Value, dropout: float = 0.0) -> Value:
    """Global average pooling and a linear classifier."""
    x = net.global_pool(x)
    return net.dense(net.dropout(x, dropout) if dropout else x, net.size.n_classes)
