"""Abstract network builder: one method per operator, implemented for each framework."""

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
