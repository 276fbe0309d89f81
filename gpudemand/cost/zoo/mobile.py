"""Mobile networks: MobileNets, MnasNet, EfficientNet and ShuffleNet."""

from __future__ import annotations

from dataclasses import dataclass

from gpudemand.cost.zoo.blocks import classify, conv_norm, depthwise_norm, squeeze_excite
from gpudemand.cost.zoo.net import Net, Value


@dataclass(frozen=True)
class Stage:
    """A stage of inverted residuals: kernel, ``expand`` in channels of the input, output channels, stride, repeats."""

    kernel: int
    expand: float
    out: int
    stride: int
    repeats: int = 1
    act: str = "relu"
    squeeze: float = 0.0
    gate: str = "sigmoid"


def mobilenet_v1(net: Net, x: Value) -> Value:
    """MobileNet (arXiv 1704.04861)."""
    x = conv_norm(net, x, net.wide(32), 3, net.stride())
    for filters, stride, repeats in ((64, 1, 1), (128, 2, 2), (256, 2, 2), (512, 2, 6), (1024, 2, 2)):
        step = net.stride(stride)
        for block in range(net.deep(repeats)):
            x = conv_norm(net, depthwise_norm(net, x, 3, 1 if block else step), net.wide(filters))
    return classify(net, x)


def mobilenet_v2(net: Net, x: Value) -> Value:
    """MobileNet v2 (arXiv 1801.04381)."""
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 2, 3), (6, 64, 2, 4), (6, 96, 1, 3), (6, 160, 2, 3), (6, 320, 1, 1))
    x = conv_norm(net, x, net.wide(32), 3, net.stride(), act="relu6")
    x = _stages(net, x, [Stage(3, expand, out, stride, repeats, "relu6") for expand, out, stride, repeats in rows])
    return classify(net, conv_norm(net, x, net.wide(1280), act="relu6"), dropout=0.2)


def mnasnet(net: Net, x: Value) -> Value:
    """MnasNet-B1 (arXiv 1807.11626)."""
    x = depthwise_norm(net, conv_norm(net, x, net.wide(32), 3, net.stride()), 3)
    x = conv_norm(net, x, net.wide(16), act=None)
    rows = (
        (3, 3, 24, 2, 3), (5, 3, 40, 2, 3), (5, 6, 80, 2, 3), (3, 6, 96, 1, 2), (5, 6, 192, 2, 4), (3, 6, 320, 1, 1),
    )  # fmt: skip
    x = _stages(net, x, [Stage(*row) for row in rows])
    return classify(net, conv_norm(net, x, net.wide(1280)), dropout=0.2)


def efficientnet_b0(net: Net, x: Value) -> Value:
    """EfficientNet-B0 without stochastic depth (arXiv 1905.11946)."""
    rows = (
        (3, 1, 16, 1, 1), (3, 6, 24, 2, 2), (5, 6, 40, 2, 2), (3, 6, 80, 2, 3),
        (5, 6, 112, 1, 3), (5, 6, 192, 2, 4), (3, 6, 320, 1, 1),
    )  # fmt: skip
    x = conv_norm(net, x, net.wide(32), 3, net.stride(), act="silu")
    x = _stages(net, x, [Stage(*row, act="silu", squeeze=0.25 / row[1]) for row in rows])
    return classify(net, conv_norm(net, x, net.wide(1280), act="silu"), dropout=0.2)


#: MobileNet v3: kernel, expanded channels, output channels, stride, whether squeezed, activation.
V3_SMALL = (
    (3, 16, 16, 2, True, "relu"), (3, 72, 24, 2, False, "relu"), (3, 88, 24, 1, False, "relu"),
    (5, 96, 40, 2, True, "hard_silu"), (5, 240, 40, 1, True, "hard_silu"), (5, 240, 40, 1, True, "hard_silu"),
    (5, 120, 48, 1, True, "hard_silu"), (5, 144, 48, 1, True, "hard_silu"), (5, 288, 96, 2, True, "hard_silu"),
    (5, 576, 96, 1, True, "hard_silu"), (5, 576, 96, 1, True, "hard_silu"),
)  # fmt: skip
V3_LARGE = (
    (3, 16, 16, 1, False, "relu"), (3, 64, 24, 2, False, "relu"), (3, 72, 24, 1, False, "relu"),
    (5, 72, 40, 2, True, "relu"), (5, 120, 40, 1, True, "relu"), (5, 120, 40, 1, True, "relu"),
    (3, 240, 80, 2, False, "hard_silu"), (3, 200, 80, 1, False, "hard_silu"), (3, 184, 80, 1, False, "hard_silu"),
    (3, 184, 80, 1, False, "hard_silu"), (3, 480, 112, 1, True, "hard_silu"), (3, 672, 112, 1, True, "hard_silu"),
    (5, 672, 160, 2, True, "hard_silu"), (5, 960, 160, 1, True, "hard_silu"), (5, 960, 160, 1, True, "hard_silu"),
)  # fmt: skip
V3Row = tuple[int, int, int, int, bool, str]


def mobilenet_v3(net: Net, x: Value, rows: tuple[V3Row, ...], hidden: int) -> Value:
    """MobileNet v3 (arXiv 1905.02244); the depth factor applies to blocks that keep their shape."""
    x = conv_norm(net, x, net.wide(16), 3, net.stride(), act="hard_silu")
    before = 16
    for kernel, expanded, out, stride, squeezed, act in rows:
        repeats = net.deep(1) if stride == 1 and before == out else 1
        squeeze = 0.25 if squeezed else 0.0
        stage = Stage(kernel, expanded / before, out, stride, repeats, act, squeeze, "hard_sigmoid")
        x, before = _stages(net, x, [stage]), out
    x = conv_norm(net, x, net.wide(rows[-1][1]), act="hard_silu")
    x = net.activation(net.dense(net.global_pool(x), net.wide(hidden)), "hard_silu")
    return net.dense(net.dropout(x, 0.2), net.size.n_classes)


def _stages(net: Net, x: Value, stages: list[Stage]) -> Value:
    for stage in stages:
        stride = net.stride(stage.stride)
        for block in range(net.deep(stage.repeats) if stage.repeats > 1 else 1):
            x = _inverted_residual(net, x, stage, 1 if block else stride)
    return x


def _inverted_residual(net: Net, x: Value, stage: Stage, stride: int) -> Value:
    channels, out = net.channels(x), net.wide(stage.out)
    expanded = round(channels * stage.expand)
    y = conv_norm(net, x, expanded, act=stage.act) if expanded != channels else x
    y = depthwise_norm(net, y, stage.kernel, stride, act=stage.act)
    if stage.squeeze:
        y = squeeze_excite(net, y, _squeezed(expanded, stage), act=_inner(stage), gate=stage.gate)
    y = conv_norm(net, y, out, act=None)
    return net.add(y, x) if stride == 1 and channels == out else y


def _squeezed(expanded: int, stage: Stage) -> int:
    """MobileNet v3 rounds to multiples of eight but never down by more than a tenth; EfficientNet does not round."""
    width = int(expanded * stage.squeeze)
    if stage.act == "silu":
        return max(1, width)
    rounded = max(8, (width + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * width else rounded + 8


def _inner(stage: Stage) -> str:
    return "silu" if stage.act == "silu" else "relu"


def shufflenet_v2(net: Net, x: Value) -> Value:
    """ShuffleNet v2 1.0 (arXiv 1807.11164)."""
    x = conv_norm(net, x, net.wide(24), 3, net.stride())
    x = net.max_pool(x, 3, 2) if net.stride() == 2 else x
    for filters, repeats in ((116, 4), (232, 8), (464, 4)):
        x = _shuffle_down(net, x, net.wide(filters) // 2)
        for _ in range(net.deep(repeats - 1)):
            identity, branch = net.halves(x)
            x = net.shuffle(net.concat(identity, _shuffle_branch(net, branch, net.channels(branch), 1)))
    return classify(net, conv_norm(net, x, net.wide(1024)))


def _shuffle_down(net: Net, x: Value, filters: int) -> Value:
    shortcut = conv_norm(net, depthwise_norm(net, x, 3, 2, act=None), filters)
    return net.shuffle(net.concat(shortcut, _shuffle_branch(net, x, filters, 2)))


def _shuffle_branch(net: Net, x: Value, filters: int, stride: int) -> Value:
    x = depthwise_norm(net, conv_norm(net, x, filters), 3, stride, act=None)
    return conv_norm(net, x, filters)
