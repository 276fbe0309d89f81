"""Build networks of the zoo by name in either framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.cost.tracing.quiet import quiet_tensorflow
from gpudemand.cost.zoo.catalogue import CATALOGUE
from gpudemand.cost.zoo.net import Net, Size

FRAMEWORKS = ("keras", "torch")
DEFAULT_SHAPES = {"image": (3, 32, 32), "tokens": (128,)}
#: Smallest image: fewer pixels a side vanish before the last stage.
MIN_SIDE = 16


def names() -> list[str]:
    """Names of all networks.

    Examples
    --------
    >>> names()[:3], len(names())
    (['lenet', 'alexnet', 'vgg11'], 41)
    """
    return list(CATALOGUE)


def kind(name: str) -> str:
    """Kind of input of a network: ``"image"`` or ``"tokens"``.

    Parameters
    ----------
    name : str
        One of `names`.

    Examples
    --------
    >>> kind("resnet50"), kind("gpt")
    ('image', 'tokens')
    """
    return CATALOGUE[check_choice("name", name, CATALOGUE)].kind


def build(
    name: str,
    framework: str = "torch",
    input_shape: Sequence[int] | None = None,
    n_classes: int = 10,
    *,
    width: float = 1.0,
    depth: float = 1.0,
    vocabulary: int = 1000,
) -> Any:
    """Build a network, untrained.

    One definition serves both frameworks, so that both have the same trainable parameters and operators. With 224
    pixels, 1,000 classes and both factors at 1 they are the published networks; below 64 pixels the first two
    downsampling layers have stride 1, as in the usual CIFAR versions.

    Parameters
    ----------
    name : str
        One of `names`.
    framework : {"torch", "keras"}
        Library. Under ``with torch.device("meta")`` a torch network takes no memory.
    input_shape : sequence of int, optional
        ``(channels, height, width)`` of an image whatever the framework's own layout (Keras models take
        ``(height, width, channels)``), or ``(length,)`` of a token sequence. Default: (3, 32, 32) or (128,).
    n_classes : int, default=10
        Outputs of the classifier; ``gpt`` ignores it: its outputs are the vocabulary, after each token.
    width, depth : float, default=1.0
        Factors on the channels, and on the blocks of each stage.
    vocabulary : int, default=1000
        Distinct tokens; ignored for images.

    Returns
    -------
    torch.fx.GraphModule or keras.Model
        The outputs are logits.

    Raises
    ------
    InputError
        For an unknown name or framework, an input shape of the wrong kind, or a number out of range.
    ImportError
        If the framework is not installed.

    Examples
    --------
    >>> build("resnet18", input_shape=(3, 224, 224), width=-1)
    Traceback (most recent call last):
    gpudemand._validation.InputError: width must be a number above 0 and at most 16; got -1.
    """
    entry = CATALOGUE[check_choice("name", name, CATALOGUE)]
    net_class = _back_end(check_choice("framework", framework, FRAMEWORKS))
    size = Size(
        _check_shape(input_shape, name, entry.kind),
        int(check_number("n_classes", n_classes, 1, integer=True)),
        check_number("width", width, 0, 16, open_low=True),
        check_number("depth", depth, 0, 16, open_low=True),
        int(check_number("vocabulary", vocabulary, 1, integer=True)),
    )
    net: Net = net_class(size)
    return net.model(entry.define(net, net.input()), name)


def _back_end(framework: str) -> type[Net]:
    try:
        if framework == "torch":
            from gpudemand.cost.zoo._torch import TorchNet

            return TorchNet
        with quiet_tensorflow():
            from gpudemand.cost.zoo._keras import KerasNet
    except ImportError as error:
        extra = "torch" if framework == "torch" else "tensorflow"
        raise ImportError(f"building {framework} networks needs it: pip install 'gpudemand[{extra}]'") from error
    return KerasNet


def _check_shape(input_shape: Sequence[int] | None, name: str, kind: str) -> tuple[int, ...]:
    shape = DEFAULT_SHAPES[kind] if input_shape is None else tuple(input_shape)
    if len(shape) != len(DEFAULT_SHAPES[kind]):
        layout = "(channels, height, width)" if kind == "image" else "(length,)"
        raise InputError(f"{name} takes {kind}: input_shape must be {layout} without the batch; got {shape}.")
    sizes = [check_number("each size in input_shape", size, 1, integer=True) for size in shape]
    if kind == "image" and min(sizes[1:]) < MIN_SIDE:
        raise InputError(f"{name} needs at least {MIN_SIDE} x {MIN_SIDE} pixels; got {shape}.")
    return tuple(int(size) for size in sizes)
