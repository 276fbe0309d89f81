"""Networks that are measured, in operators of no framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeAlias

#: A tensor of the back end: a node of `torch.fx`, or a symbolic Keras tensor.
Value: TypeAlias = Any

#: Below this many pixels a side the first two downsampling layers have stride 1, as in CIFAR versions.
SMALL = 64


@dataclass(frozen=True)
class Size:
    """Size of a network.

    `input_shape` is ``(channels, height, width)`` of an image, or ``(length,)`` of tokens; `width` is a factor on
    the channels (in transformers on the heads of 64 channels), `depth` on the blocks of each stage.
    """

    input_shape: tuple[int, ...]
    n_classes: int
    width: float
    depth: float
    vocabulary: int


class Net(ABC):
    """A network under construction.

    Shapes are ``(channels, height, width)`` in every back end. ``same`` padding keeps ``ceil(n / stride)`` pixels, the
    same in both frameworks for odd kernels; without it, nothing is padded.
    """

    def __init__(self, size: Size) -> None:
        self.size = size
        self.side = min(size.input_shape[-2:])
        self.small = self.side < SMALL
        self._strides_to_skip = 2 if self.small else 0

    def stride(self, nominal: int = 2) -> int:
        """Return `nominal`, or 1 for the first two downsampling layers of small inputs."""
        if nominal > 1 and self._strides_to_skip:
            self._strides_to_skip -= 1
            return 1
        return nominal

    def wide(self, channels: float, multiple: int = 8) -> int:
        """`channels` times the width, rounded to a `multiple`; as published when the width is 1."""
        if self.size.width == 1:
            return int(channels)
        return max(multiple, round(channels * self.size.width / multiple) * multiple)

    def deep(self, repeats: int) -> int:
        """`repeats` times the depth, at least one."""
        return max(1, round(repeats * self.size.depth))

    @abstractmethod
    def input(self) -> Value:
        """Return the input: an image, or integer tokens."""

    @abstractmethod
    def model(self, output: Value, name: str) -> Any:
        """Return the finished model of the framework."""

    @abstractmethod
    def channels(self, x: Value) -> int:
        """Channels of an image, features of a vector or of each token."""

    @abstractmethod
    def height(self, x: Value) -> int:
        """Height of an image in pixels."""

    @abstractmethod
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
        """Two-dimensional convolution; depthwise with as many groups as channels."""

    @abstractmethod
    def batch_norm(self, x: Value) -> Value:
        """Batch normalization."""

    @abstractmethod
    def layer_norm(self, x: Value) -> Value:
        """Layer normalization over the channels."""

    @abstractmethod
    def activation(self, x: Value, kind: str) -> Value:
        """Apply one of relu, relu6, silu, gelu, hard_silu, hard_sigmoid, sigmoid or tanh."""

    @abstractmethod
    def max_pool(self, x: Value, kernel: int, stride: int, *, same: bool = True) -> Value:
        """Max pooling."""

    @abstractmethod
    def avg_pool(self, x: Value, kernel: int, stride: int) -> Value:
        """Average pooling without the padding."""

    @abstractmethod
    def global_pool(self, x: Value, *, keep: bool = False) -> Value:
        """Global average pooling to a vector, or with `keep` to an image of one pixel."""

    @abstractmethod
    def dense(self, x: Value, units: int) -> Value:
        """Linear layer with bias on a vector or each token."""

    @abstractmethod
    def dropout(self, x: Value, rate: float) -> Value:
        """Dropout."""

    @abstractmethod
    def flatten(self, x: Value) -> Value:
        """Flatten an image to a vector."""

    @abstractmethod
    def add(self, x: Value, y: Value) -> Value:
        """Add two tensors of one shape."""

    @abstractmethod
    def multiply(self, x: Value, y: Value) -> Value:
        """Multiply element-wise; `y` may be an image of one pixel."""

    @abstractmethod
    def concat(self, *xs: Value) -> Value:
        """Concatenate images along their channels."""

    @abstractmethod
    def halves(self, x: Value) -> tuple[Value, Value]:
        """Split an image into the first and the second half of its channels."""

    @abstractmethod
    def shuffle(self, x: Value) -> Value:
        """Interleave the two halves of the channels."""

    @abstractmethod
    def shift(self, x: Value) -> Value:
        """Shift an image up and left by one pixel, padded with zeros."""

    @abstractmethod
    def scale(self, x: Value) -> Value:
        """Multiply each channel by a learned number."""

    @abstractmethod
    def sequence(self, x: Value) -> Value:
        """Flatten the pixels of an image to tokens."""

    @abstractmethod
    def class_token(self, x: Value) -> Value:
        """Prepend a learned token."""

    @abstractmethod
    def positions(self, x: Value) -> Value:
        """Add learned position embeddings."""

    @abstractmethod
    def embedding(self, x: Value, units: int) -> Value:
        """Embed tokens of the vocabulary."""

    @abstractmethod
    def unembedding(self, x: Value) -> Value:
        """Logits of the vocabulary by the transposed table of `embedding`."""

    @abstractmethod
    def attention(self, x: Value, heads: int, *, causal: bool) -> Value:
        """Multi-head self-attention with its four projections."""

    @abstractmethod
    def recurrent(self, x: Value, units: int, kind: str) -> Value:
        """Output sequence of an ``lstm`` or a ``gru`` over the tokens."""

    @abstractmethod
    def token(self, x: Value, place: int) -> Value:
        """Select one token: 0 is the first, -1 the last."""


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
