"""Keras layers of the zoo: learned scales, class tokens and positions, and a tied output embedding."""

from __future__ import annotations

from typing import Any

from keras import layers, ops


class Scale(layers.Layer):
    """Multiply each channel by a learned factor."""

    def build(self, input_shape: Any) -> None:
        """Create the factors: ones."""
        self.factors = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="factors")

    def call(self, x: Any) -> Any:
        """Apply the layer to ``(batch, ..., channels)``."""
        return x * self.factors


class ClassToken(layers.Layer):
    """Prepend a learned token to a sequence."""

    def build(self, input_shape: Any) -> None:
        """Create the token: zeros."""
        self.token = self.add_weight(shape=(1, 1, input_shape[-1]), initializer="zeros", name="token")

    def call(self, x: Any) -> Any:
        """Apply the layer to ``(batch, length, channels)``."""
        token = ops.cast(self.token, x.dtype)
        return ops.concatenate([ops.broadcast_to(token, (ops.shape(x)[0], 1, x.shape[-1])), x], axis=1)


class Positions(layers.Layer):
    """Add learned position embeddings."""

    def build(self, input_shape: Any) -> None:
        """Create the embeddings: small random numbers."""
        self.table = self.add_weight(shape=(1, *input_shape[1:]), initializer="random_normal", name="table")

    def call(self, x: Any) -> Any:
        """Apply the layer to ``(batch, length, channels)``."""
        return x + self.table


class Unembedding(layers.Layer):
    """Logits of the vocabulary by the table of an embedding layer.

    Parameters
    ----------
    embedding : keras.layers.Embedding
        Layer whose table is shared.
    """

    def __init__(self, embedding: Any) -> None:
        super().__init__()
        self.embedding = embedding

    def call(self, x: Any) -> Any:
        """Apply the layer to ``(batch, length, channels)``."""
        return ops.matmul(x, ops.transpose(ops.cast(self.embedding.embeddings, x.dtype)))
