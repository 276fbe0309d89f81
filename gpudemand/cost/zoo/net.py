"""The vocabulary in which every network is described once, and that each framework speaks in its own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeAlias

#: A handle on what flows between operators; only the back end that made it looks inside.
Value: TypeAlias = Any

#: Below this many pixels a side, networks leave out their first two halvings, as their CIFAR versions do.
SMALL = 64


@dataclass(frozen=True)
class Size:
    """The knobs of a network.

    Parameters
    ----------
    input_shape : tuple of int
        ``(channels, height, width)`` of an image, or ``(length,)`` of a token sequence; no batch dimension.
    n_classes : int
        Outputs of a classifier.
    width : float
        Multiplies channels (transformers: heads of 64 channels).
    depth : float
        Multiplies the blocks of each stage.
    vocabulary : int
        Distinct tokens; of no effect on images.
    """

    input_shape: tuple[int, ...]
    n_classes: int
    width: float
    depth: float
    vocabulary: int


class Net(ABC):
    """A network under construction: knobs, and one method per operator.

    Channels are counted in ``(channels, height, width)`` whatever the back end's own layout. ``same`` padding keeps
    ``ceil(n / stride)`` pixels, which both frameworks agree on for odd kernels; without it, nothing is padded.

    Parameters
    ----------
    size : Size
        The knobs.
    """

    def __init__(self, size: Size) -> None:
        self.size = size
        self.side = min(size.input_shape[-2:])
        self._halvings_to_skip = 2 if self.side < SMALL else 0

    @property
    def small(self) -> bool:
        """Whether the input has fewer than `SMALL` pixels a side."""
        return self.side < SMALL

    def stride(self, nominal: int = 2) -> int:
        """Return the stride to use where the network published for 224 pixels has `nominal`: 1 for the first two."""
        if nominal > 1 and self._halvings_to_skip:
            self._halvings_to_skip -= 1
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
        """Return the finished model of the framework, under a name."""

    @abstractmethod
    def channels(self, x: Value) -> int:
        """Channels of an image, features of a vector or of each token."""

    @abstractmethod
    def height(self, x: Value) -> int:
        """Pixels of an image from top to bottom."""

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
        """Convolve in two dimensions; as many groups as channels make it depthwise."""

    @abstractmethod
    def batch_norm(self, x: Value) -> Value:
        """Normalize over the batch, with scale and offset."""

    @abstractmethod
    def layer_norm(self, x: Value) -> Value:
        """Normalize over the channels, with scale and offset."""

    @abstractmethod
    def activation(self, x: Value, kind: str) -> Value:
        """Apply one of relu, relu6, silu, gelu, hard_silu, hard_sigmoid, sigmoid or tanh."""

    @abstractmethod
    def max_pool(self, x: Value, kernel: int, stride: int, *, same: bool = True) -> Value:
        """Take the maximum over windows."""

    @abstractmethod
    def avg_pool(self, x: Value, kernel: int, stride: int, *, same: bool = True) -> Value:
        """Take the mean over windows; padding does not count."""

    @abstractmethod
    def global_pool(self, x: Value, *, keep: bool = False) -> Value:
        """Average an image to a vector, or with `keep` to an image of one pixel."""

    @abstractmethod
    def dense(self, x: Value, units: int) -> Value:
        """Map a vector, or each token, linearly, with offset."""

    @abstractmethod
    def dropout(self, x: Value, rate: float) -> Value:
        """Drop values at random while training."""

    @abstractmethod
    def flatten(self, x: Value) -> Value:
        """Turn an image into a vector."""

    @abstractmethod
    def add(self, x: Value, y: Value) -> Value:
        """Sum two values of one shape."""

    @abstractmethod
    def multiply(self, x: Value, y: Value) -> Value:
        """Multiply elementwise; `y` may be an image of one pixel."""

    @abstractmethod
    def concat(self, *xs: Value) -> Value:
        """Stack images along their channels."""

    @abstractmethod
    def halves(self, x: Value) -> tuple[Value, Value]:
        """Split an image into the first and the second half of its channels."""

    @abstractmethod
    def shuffle(self, x: Value) -> Value:
        """Interleave the two halves of the channels."""

    @abstractmethod
    def shift(self, x: Value) -> Value:
        """Move an image up and left by one pixel, zeros coming in."""

    @abstractmethod
    def scale(self, x: Value) -> Value:
        """Multiply each channel by a learned number."""

    @abstractmethod
    def sequence(self, x: Value) -> Value:
        """Read the pixels of an image as tokens."""

    @abstractmethod
    def class_token(self, x: Value) -> Value:
        """Put one learned token in front."""

    @abstractmethod
    def positions(self, x: Value) -> Value:
        """Add a learned vector to each token according to its place."""

    @abstractmethod
    def embedding(self, x: Value, units: int) -> Value:
        """Look up a learned vector for each token of the vocabulary."""

    @abstractmethod
    def unembedding(self, x: Value) -> Value:
        """Score every token of the vocabulary with the transposed table of `embedding`."""

    @abstractmethod
    def attention(self, x: Value, heads: int, *, causal: bool) -> Value:
        """Let tokens attend to one another: query, key and value maps, attention, output map."""

    @abstractmethod
    def recurrent(self, x: Value, units: int, kind: str) -> Value:
        """Run an ``lstm`` or a ``gru`` over the tokens; an output for each of them."""

    @abstractmethod
    def token(self, x: Value, place: int) -> Value:
        """Take one token: 0 is the first, -1 the last."""
