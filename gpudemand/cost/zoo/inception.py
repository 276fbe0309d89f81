"""GoogLeNet, Inception-v3 and Xception."""

from __future__ import annotations

from gpudemand.cost.zoo.blocks import classify, conv_norm, separable, stem
from gpudemand.cost.zoo.net import Net, Value

#: Below this many pixels Inception-v3 pads where the published network does not.
INCEPTION_SIDE = 128

#: Filters of GoogLeNet's modules by stage: 1 x 1; 3 x 3 reduction and output; second 3 x 3 likewise; pool projection.
GOOGLENET = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    ((192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64),
     (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128)),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)  # fmt: skip


def googlenet(net: Net, x: Value) -> Value:
    """GoogLeNet with batch norm and without auxiliary outputs (arXiv 1409.4842)."""
    x = conv_norm(net, stem(net, x, net.wide(64)), net.wide(64))
    x = conv_norm(net, x, net.wide(192), 3)
    for stage in GOOGLENET:
        x = net.max_pool(x, 3, 2)
        for module in (stage[0], *stage[1:-1] * net.deep(1), stage[-1]):
            x = _googlenet_module(net, x, *map(net.wide, module))
    return classify(net, x, dropout=0.2)


def _googlenet_module(
    net: Net, x: Value, one: int, narrow: int, wide: int, narrow2: int, wide2: int, pool: int
) -> Value:
    return net.concat(
        conv_norm(net, x, one),
        conv_norm(net, conv_norm(net, x, narrow), wide, 3),
        conv_norm(net, conv_norm(net, x, narrow2), wide2, 3),
        conv_norm(net, net.max_pool(x, 3, 1), pool),
    )


def inception_v3(net: Net, x: Value) -> Value:
    """Inception-v3 without the auxiliary output (arXiv 1512.00567)."""
    same = net.side < INCEPTION_SIDE
    x = _inception_stem(net, x, same)
    for pool in (32, *[64] * net.deep(2)):
        x = _inception_a(net, x, net.wide(pool))
    x = _narrow(net, x, same)
    for inner in (128, *[160] * net.deep(2), 192):
        x = _inception_b(net, x, net.wide(inner), net.wide(192))
    x = _widen(net, x, same)
    for _ in range(net.deep(2)):
        x = _inception_c(net, x)
    return classify(net, x, dropout=0.5)


def _inception_stem(net: Net, x: Value, same: bool) -> Value:
    x = conv_norm(net, x, net.wide(32), 3, net.stride(), same=same)
    x = conv_norm(net, conv_norm(net, x, net.wide(32), 3, same=same), net.wide(64), 3)
    x = net.max_pool(x, 3, 2, same=same) if net.stride() == 2 else x
    x = conv_norm(net, conv_norm(net, x, net.wide(80)), net.wide(192), 3, same=same)
    return net.max_pool(x, 3, 2, same=same)


def _chain(net: Net, x: Value, *layers: tuple[int, int | tuple[int, int]]) -> Value:
    """Sequence of convolutions, each given by its filters and kernel."""
    for filters, kernel in layers:
        x = conv_norm(net, x, net.wide(filters), kernel)
    return x


def _inception_a(net: Net, x: Value, pool: int) -> Value:
    return net.concat(
        _chain(net, x, (64, 1)),
        _chain(net, x, (48, 1), (64, 5)),
        _chain(net, x, (64, 1), (96, 3), (96, 3)),
        conv_norm(net, net.avg_pool(x, 3, 1), pool),
    )


def _narrow(net: Net, x: Value, same: bool) -> Value:
    return net.concat(
        conv_norm(net, x, net.wide(384), 3, 2, same=same),
        conv_norm(net, _chain(net, x, (64, 1), (96, 3)), net.wide(96), 3, 2, same=same),
        net.max_pool(x, 3, 2, same=same),
    )


def _inception_b(net: Net, x: Value, inner: int, out: int) -> Value:
    once, twice = x, x
    for filters, kernel in ((inner, 1), (inner, (1, 7)), (out, (7, 1))):
        once = conv_norm(net, once, filters, kernel)
    for filters, kernel in ((inner, 1), (inner, (7, 1)), (inner, (1, 7)), (inner, (7, 1)), (out, (1, 7))):
        twice = conv_norm(net, twice, filters, kernel)
    pooled = conv_norm(net, net.avg_pool(x, 3, 1), out)
    return net.concat(conv_norm(net, x, out), once, twice, pooled)


def _widen(net: Net, x: Value, same: bool) -> Value:
    return net.concat(
        conv_norm(net, _chain(net, x, (192, 1)), net.wide(320), 3, 2, same=same),
        conv_norm(net, _chain(net, x, (192, 1), (192, (1, 7)), (192, (7, 1))), net.wide(192), 3, 2, same=same),
        net.max_pool(x, 3, 2, same=same),
    )


def _inception_c(net: Net, x: Value) -> Value:
    once, twice = _chain(net, x, (384, 1)), _chain(net, x, (448, 1), (384, 3))
    return net.concat(
        _chain(net, x, (320, 1)),
        *(_chain(net, y, (384, kernel)) for y in (once, twice) for kernel in ((1, 3), (3, 1))),
        conv_norm(net, net.avg_pool(x, 3, 1), net.wide(192)),
    )


def xception(net: Net, x: Value) -> Value:
    """Xception (arXiv 1610.02357)."""
    x = conv_norm(net, x, net.wide(32), 3, net.stride())
    x = conv_norm(net, x, net.wide(64), 3)
    for stage, filters in enumerate((128, 256, 728)):
        x = _xception_block(net, x, (filters, filters), net.stride(), active_first=stage > 0)
    for _ in range(net.deep(8)):
        x = _xception_block(net, x, (728, 728, 728), 1)
    x = _xception_block(net, x, (728, 1024), 2)
    for filters in (1536, 2048):
        x = net.activation(separable(net, x, net.wide(filters), 3), "relu")
    return classify(net, x)


def _xception_block(net: Net, x: Value, filters: tuple[int, ...], stride: int, active_first: bool = True) -> Value:
    widths, y = [net.wide(width) for width in filters], x
    for place, width in enumerate(widths):
        y = net.activation(y, "relu") if place or active_first else y
        y = separable(net, y, width, 3)
    y = net.max_pool(y, 3, stride) if stride == 2 else y
    if stride == 1 and net.channels(x) == widths[-1]:
        return net.add(y, x)
    return net.add(y, conv_norm(net, x, widths[-1], 1, stride, act=None))
