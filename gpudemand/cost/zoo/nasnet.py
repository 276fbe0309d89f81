"""NASNet-A (arXiv 1707.07012)."""

from __future__ import annotations

from gpudemand.cost.zoo.blocks import classify, conv_norm, separable
from gpudemand.cost.zoo.net import Net, Value


def nasnet_mobile(net: Net, x: Value, repeats: int = 4, filters: int = 44) -> Value:
    """NASNet-A (4 @ 1056); the inputs of a cell are the two cells before it."""
    width = net.wide(filters)
    x, previous = conv_norm(net, x, net.wide(32), 3, net.stride(), act=None), None
    if net.stride() == 2:
        x, previous = _reduction(net, x, previous, width // 4), x
    x, previous = _reduction(net, x, previous, width // 2), x
    for stage in range(3):
        if stage:
            x = _reduction(net, x, previous, width * 2**stage)
        for _ in range(net.deep(repeats)):
            x, previous = _normal(net, x, previous, width * 2**stage), x
    return classify(net, net.activation(x, "relu"))


def _twice(net: Net, x: Value, filters: int, kernel: int, stride: int = 1) -> Value:
    """ReLU and separable convolution, twice."""
    x = separable(net, net.activation(x, "relu"), filters, kernel, stride)
    return separable(net, net.activation(x, "relu"), filters, kernel)


def _project(net: Net, x: Value, filters: int) -> Value:
    return conv_norm(net, net.activation(x, "relu"), filters, act=None)


def _fit(net: Net, previous: Value | None, x: Value, filters: int) -> Value:
    """Match the shape of the cell before the last to that of the last."""
    if previous is None:
        return x
    if net.height(previous) != net.height(x):
        return _shrink(net, previous, filters)
    return previous if net.channels(previous) == filters else _project(net, previous, filters)


def _shrink(net: Net, x: Value, filters: int) -> Value:
    """Factorized reduction: two strided paths, offset by one pixel."""
    x = net.activation(x, "relu")
    even = net.conv(net.avg_pool(x, 1, 2), filters // 2)
    odd = net.conv(net.avg_pool(net.shift(x), 1, 2), filters // 2)
    return net.batch_norm(net.concat(even, odd))


def _normal(net: Net, x: Value, previous: Value | None, filters: int) -> Value:
    p, h = _fit(net, previous, x, filters), _project(net, x, filters)
    return net.concat(
        p,
        net.add(_twice(net, h, filters, 5), _twice(net, p, filters, 3)),
        net.add(_twice(net, p, filters, 5), _twice(net, p, filters, 3)),
        net.add(net.avg_pool(h, 3, 1), p),
        net.add(net.avg_pool(p, 3, 1), net.avg_pool(p, 3, 1)),
        net.add(_twice(net, h, filters, 3), h),
    )


def _reduction(net: Net, x: Value, previous: Value | None, filters: int) -> Value:
    p, h = _fit(net, previous, x, filters), _project(net, x, filters)
    first = net.add(_twice(net, h, filters, 5, 2), _twice(net, p, filters, 7, 2))
    second = net.add(net.max_pool(h, 3, 2), _twice(net, p, filters, 7, 2))
    third = net.add(net.avg_pool(h, 3, 2), _twice(net, p, filters, 5, 2))
    fourth = net.add(net.avg_pool(first, 3, 1), second)
    fifth = net.add(_twice(net, first, filters, 3), net.max_pool(h, 3, 2))
    return net.concat(second, third, fourth, fifth)
