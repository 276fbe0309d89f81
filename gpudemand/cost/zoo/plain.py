"""LeNet, AlexNet, VGG and SqueezeNet."""

from __future__ import annotations

from gpudemand.cost.zoo.blocks import conv_norm
from gpudemand.cost.zoo.net import Net, Value


def lenet(net: Net, x: Value) -> Value:
    """LeNet-5 with ReLU and max pools; 28-pixel inputs are padded to 32 as in the original (Lecun et al. 1998)."""
    x = net.activation(net.conv(x, net.wide(6), 5, bias=True, same=net.side <= 28), "relu")
    x = net.activation(net.conv(net.max_pool(x, 2, 2), net.wide(16), 5, bias=True, same=False), "relu")
    x = net.flatten(net.max_pool(x, 2, 2))
    for units in [net.wide(120)] + [net.wide(84)] * net.deep(1):
        x = net.activation(net.dense(x, units), "relu")
    return net.dense(x, net.size.n_classes)


def alexnet(net: Net, x: Value) -> Value:
    """AlexNet in one tower (Krizhevsky 2014, arXiv 1404.5997)."""
    x = net.conv(x, net.wide(64), 3 if net.small else 11, 1 if net.small else 4, bias=True)
    x = net.max_pool(net.activation(x, "relu"), 3, 2, same=net.small)
    x = net.activation(net.conv(x, net.wide(192), 5, bias=True), "relu")
    x = net.max_pool(x, 3, 2, same=net.small)
    for filters in [384] * net.deep(1) + [256] * net.deep(2):
        x = net.activation(net.conv(x, net.wide(filters), 3, bias=True), "relu")
    return _two_hidden(net, net.max_pool(x, 3, 2, same=net.small))


def vgg(net: Net, x: Value, convs: tuple[int, ...]) -> Value:
    """VGG (arXiv 1409.1556); for small inputs with batch norm and one dense layer, as is common on CIFAR."""
    for filters, repeats in zip((64, 128, 256, 512, 512), convs, strict=True):
        for _ in range(net.deep(repeats)):
            x = _vgg_conv(net, x, net.wide(filters))
        x = net.max_pool(x, 2, 2)
    return net.dense(net.flatten(x), net.size.n_classes) if net.small else _two_hidden(net, x)


def _vgg_conv(net: Net, x: Value, filters: int) -> Value:
    if net.small:
        return conv_norm(net, x, filters, 3)
    return net.activation(net.conv(x, filters, 3, bias=True), "relu")


def _two_hidden(net: Net, x: Value) -> Value:
    x = net.flatten(x)
    for _ in range(2):
        x = net.dropout(net.activation(net.dense(x, net.wide(4096)), "relu"), 0.5)
    return net.dense(x, net.size.n_classes)


def squeezenet(net: Net, x: Value) -> Value:
    """SqueezeNet 1.1 (arXiv 1602.07360)."""
    x = net.activation(net.conv(x, net.wide(64), 3, net.stride(), bias=True), "relu")
    for stage in ((16,), (32,), (48, 64)):
        x = net.max_pool(x, 3, 2) if net.stride() == 2 else x
        for squeezed in (width for width in stage for _ in range(net.deep(2))):
            x = _fire(net, x, net.wide(squeezed), net.wide(4 * squeezed))
    x = net.activation(net.conv(net.dropout(x, 0.5), net.size.n_classes, bias=True), "relu")
    return net.global_pool(x)


def _fire(net: Net, x: Value, squeezed: int, expanded: int) -> Value:
    x = net.activation(net.conv(x, squeezed, bias=True), "relu")
    branches = (net.activation(net.conv(x, expanded, kernel, bias=True), "relu") for kernel in (1, 3))
    return net.concat(*branches)
