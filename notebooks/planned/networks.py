"""Two networks that are planned to be trained, as the code of their teams builds them."""

from __future__ import annotations

from typing import Any


def tagger() -> Any:
    """A ResNet-50 that tags images, in PyTorch."""
    from gpudemand.cost import networks

    return networks.build("resnet50", input_shape=(3, 224, 224), n_classes=1000)


def ranker() -> Any:
    """A network that ranks offers, in Keras."""
    import keras

    layers = [keras.layers.Dense(2048, activation="relu") for _ in range(6)]
    return keras.Sequential([keras.Input((1024,)), *layers, keras.layers.Dense(1)], name="ranker")
