"""What the zoo needs and Keras does not have: learned scales, tokens and positions, and the shuffling of channels."""

from __future__ import annotations

from typing import Any

from keras import layers, ops


class Scale(layers.Layer):
    """Multiply each channel by a learned number."""

    def build(self, input_shape: Any) -> None:
        """Make the numbers: ones."""
        self.factors = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="factors")

    def call(self, x: Any) -> Any:
        """Apply the layer to ``(batch, ..., channels)``."""
        return x * self.factors


class ClassToken(layers.Layer):
    """Put one learned token in front of a sequence."""

    def build(self, input_shape: Any) -> None:
        """Make the token: zeros."""
        self.token = self.add_weight(shape=(1, 1, input_shape[-1]), initializer="zeros", name="token")

    def call(self, x: Any) -> Any:
        """Apply the layer to ``(batch, length, channels)``."""
        token = ops.cast(self.token, x.dtype)
        return ops.concatenate([ops.broadcast_to(token, (ops.shape(x)[0], 1, x.shape[-1])), x], axis=1)


class Positions(layers.Layer):
    """Add a learned vector to each token according to its place."""

    def build(self, input_shape: Any) -> None:
        """Make the vectors: small random numbers."""
        self.table = self.add_weight(shape=(1, *input_shape[1:]), initializer="random_normal", name="table")

    def call(self, x: Any) -> Any:
        """Apply the layer to ``(batch, length, channels)``."""
        return x + self.table


class Unembedding(layers.Layer):
    """Score every token of the vocabulary with the table of an embedding layer.

    Parameters
    ----------
    embedding : keras.layers.Embedding
        The layer whose table is shared.
    """

    def __init__(self, embedding: Any) -> None:
        super().__init__()
        self.embedding = embedding

    def call(self, x: Any) -> Any:
        """Apply the layer to ``(batch, length, channels)``."""
        return ops.matmul(x, ops.transpose(ops.cast(self.embedding.embeddings, x.dtype)))


class Halves(layers.Layer):
    """Split the channels into two halves."""

    def call(self, x: Any) -> Any:
        """Apply the layer to ``(batch, height, width, channels)``."""
        return ops.split(x, 2, axis=-1)


class ChannelShuffle(layers.Layer):
    """Interleave the two halves of the channels."""

    def call(self, x: Any) -> Any:
        """Apply the layer to ``(batch, height, width, channels)``."""
        _, height, width, channels = x.shape
        apart = ops.reshape(x, (-1, height, width, 2, channels // 2))
        return ops.reshape(ops.transpose(apart, (0, 1, 2, 4, 3)), (-1, height, width, channels))


class Shift(layers.Layer):
    """Move an image up and left by one pixel, zeros coming in."""

    def call(self, x: Any) -> Any:
        """Apply the layer to ``(batch, height, width, channels)``."""
        return ops.pad(x[:, 1:, 1:], ((0, 0), (0, 1), (0, 1), (0, 0)))
