"""Networks that are measured, in Keras."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

from benchmarks.zoo.networks import Net, Size, Value


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

    `embedding`: layer whose table is shared.
    """

    def __init__(self, embedding: Any) -> None:
        super().__init__()
        self.embedding = embedding

    def call(self, x: Any) -> Any:
        """Apply the layer to ``(batch, length, channels)``."""
        return ops.matmul(x, ops.transpose(ops.cast(self.embedding.embeddings, x.dtype)))


class KerasNet(Net):
    """Builds a functional ``keras.Model``; its images are ``(batch, height, width, channels)``."""

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self._inputs: Any = None
        self._table: Any = None

    def input(self) -> Value:
        """See `Net.input`; tokens are int32, images channels last."""
        shape = self.size.input_shape
        tokens = len(shape) == 1
        self._inputs = keras.Input(shape if tokens else (*shape[1:], shape[0]), dtype="int32" if tokens else None)
        return self._inputs

    def model(self, output: Value, name: str) -> Any:
        """Return the functional ``keras.Model``."""
        return keras.Model(self._inputs, output, name=name)

    def channels(self, x: Value) -> int:
        """See `Net.channels`."""
        return int(x.shape[-1])

    def height(self, x: Value) -> int:
        """See `Net.height`."""
        return int(x.shape[1])

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
        """See `Net.conv`; a depthwise one is a ``DepthwiseConv2D``."""
        padding = _padding(same)
        if groups == self.channels(x) == filters and groups > 1:
            return layers.DepthwiseConv2D(kernel, stride, padding, use_bias=bias)(x)
        return layers.Conv2D(filters, kernel, stride, padding, groups=groups, use_bias=bias)(x)

    def batch_norm(self, x: Value) -> Value:
        """See `Net.batch_norm`; momentum and epsilon are equivalent to the defaults of PyTorch."""
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)

    def layer_norm(self, x: Value) -> Value:
        """See `Net.layer_norm`; epsilon is the default of PyTorch."""
        return layers.LayerNormalization(epsilon=1e-5)(x)

    def activation(self, x: Value, kind: str) -> Value:
        """See `Net.activation`."""
        return layers.Activation(kind)(x)

    def max_pool(self, x: Value, kernel: int, stride: int, *, same: bool = True) -> Value:
        """See `Net.max_pool`."""
        return layers.MaxPooling2D(kernel, stride, _padding(same))(x)

    def avg_pool(self, x: Value, kernel: int, stride: int) -> Value:
        """See `Net.avg_pool`."""
        return layers.AveragePooling2D(kernel, stride, "same")(x)

    def global_pool(self, x: Value, *, keep: bool = False) -> Value:
        """See `Net.global_pool`."""
        return layers.GlobalAveragePooling2D(keepdims=keep)(x)

    def dense(self, x: Value, units: int) -> Value:
        """See `Net.dense`."""
        return layers.Dense(units)(x)

    def dropout(self, x: Value, rate: float) -> Value:
        """See `Net.dropout`."""
        return layers.Dropout(rate)(x)

    def flatten(self, x: Value) -> Value:
        """See `Net.flatten`; channels vary fastest."""
        return layers.Flatten()(x)

    def add(self, x: Value, y: Value) -> Value:
        """See `Net.add`."""
        return layers.Add()([x, y])

    def multiply(self, x: Value, y: Value) -> Value:
        """See `Net.multiply`."""
        return layers.Multiply()([x, y])

    def concat(self, *xs: Value) -> Value:
        """See `Net.concat`."""
        return layers.Concatenate()(list(xs))

    def halves(self, x: Value) -> tuple[Value, Value]:
        """See `Net.halves`."""
        first, second = ops.split(x, 2, axis=-1)
        return first, second

    def shuffle(self, x: Value) -> Value:
        """See `Net.shuffle`."""
        _, height, width, channels = x.shape
        apart = ops.reshape(x, (-1, height, width, 2, channels // 2))
        return ops.reshape(ops.transpose(apart, (0, 1, 2, 4, 3)), (-1, height, width, channels))

    def shift(self, x: Value) -> Value:
        """See `Net.shift`."""
        return ops.pad(x[:, 1:, 1:], ((0, 0), (0, 1), (0, 1), (0, 0)))

    def scale(self, x: Value) -> Value:
        """See `Net.scale`."""
        return Scale()(x)

    def sequence(self, x: Value) -> Value:
        """See `Net.sequence`."""
        return layers.Reshape((-1, self.channels(x)))(x)

    def class_token(self, x: Value) -> Value:
        """See `Net.class_token`."""
        return ClassToken()(x)

    def positions(self, x: Value) -> Value:
        """See `Net.positions`."""
        return Positions()(x)

    def embedding(self, x: Value, units: int) -> Value:
        """See `Net.embedding`; the layer is kept for `unembedding`."""
        self._table = layers.Embedding(self.size.vocabulary, units)
        return self._table(x)

    def unembedding(self, x: Value) -> Value:
        """See `Net.unembedding`."""
        return Unembedding(self._table)(x)

    def attention(self, x: Value, heads: int, *, causal: bool) -> Value:
        """See `Net.attention`."""
        return layers.MultiHeadAttention(heads, self.channels(x) // heads)(x, x, use_causal_mask=causal)

    def recurrent(self, x: Value, units: int, kind: str) -> Value:
        """See `Net.recurrent`."""
        cell = {"lstm": layers.LSTM, "gru": layers.GRU}[kind]
        return cell(units, return_sequences=True)(x)

    def token(self, x: Value, place: int) -> Value:
        """See `Net.token`."""
        return x[:, place]


def _padding(same: bool) -> str:
    return "same" if same else "valid"
