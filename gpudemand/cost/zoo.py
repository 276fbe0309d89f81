"""Networks that are measured, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.cost import zoo_networks as inception
from gpudemand.cost import zoo_networks as mobile
from gpudemand.cost import zoo_networks as plain
from gpudemand.cost import zoo_networks as residual
from gpudemand.cost import zoo_networks as sequences
from gpudemand.cost.tracing import quiet_tensorflow
from gpudemand.cost.zoo_networks import Net, Size, Value, nasnet_mobile


class Entry(NamedTuple):
    """One network: ``define(net, input) -> output`` adds its operators to a `Net`; `kind` is that of its input."""

    define: Callable[[Net, Value], Value]
    kind: str = "image"


CATALOGUE: dict[str, Entry] = {
    "lenet": Entry(plain.lenet),
    "alexnet": Entry(plain.alexnet),
    "vgg11": Entry(partial(plain.vgg, convs=(1, 1, 2, 2, 2))),
    "vgg13": Entry(partial(plain.vgg, convs=(2, 2, 2, 2, 2))),
    "vgg16": Entry(partial(plain.vgg, convs=(2, 2, 3, 3, 3))),
    "vgg19": Entry(partial(plain.vgg, convs=(2, 2, 4, 4, 4))),
    "resnet18": Entry(partial(residual.resnet, blocks=(2, 2, 2, 2))),
    "resnet34": Entry(partial(residual.resnet, blocks=(3, 4, 6, 3))),
    "resnet50": Entry(partial(residual.bottleneck_resnet, blocks=(3, 4, 6, 3))),
    "resnet101": Entry(partial(residual.bottleneck_resnet, blocks=(3, 4, 23, 3))),
    "resnet152": Entry(partial(residual.bottleneck_resnet, blocks=(3, 8, 36, 3))),
    "preact_resnet18": Entry(partial(residual.preact_resnet, blocks=(2, 2, 2, 2))),
    "se_resnet18": Entry(partial(residual.resnet, blocks=(2, 2, 2, 2), squeeze=True)),
    "wide_resnet16_4": Entry(partial(residual.preact_resnet, blocks=(2, 2, 2), first=16)),
    "wide_resnet50_2": Entry(partial(residual.bottleneck_resnet, blocks=(3, 4, 6, 3), inner=128)),
    "resnext29": Entry(residual.resnext29),
    "resnext50": Entry(partial(residual.bottleneck_resnet, blocks=(3, 4, 6, 3), inner=128, groups=32)),
    "regnetx_400mf": Entry(partial(residual.regnet, blocks=(1, 2, 7, 12), widths=(32, 64, 160, 400), group=16)),
    "densenet121": Entry(partial(residual.densenet, blocks=(6, 12, 24, 16))),
    "densenet169": Entry(partial(residual.densenet, blocks=(6, 12, 32, 32))),
    "densenet201": Entry(partial(residual.densenet, blocks=(6, 12, 48, 32))),
    "googlenet": Entry(inception.googlenet),
    "inception_v3": Entry(inception.inception_v3),
    "xception": Entry(inception.xception),
    "nasnet_mobile": Entry(nasnet_mobile),
    "squeezenet": Entry(plain.squeezenet),
    "mobilenet_v1": Entry(mobile.mobilenet_v1),
    "mobilenet_v2": Entry(mobile.mobilenet_v2),
    "mobilenet_v3_small": Entry(partial(mobile.mobilenet_v3, rows=mobile.V3_SMALL, hidden=1024)),
    "mobilenet_v3_large": Entry(partial(mobile.mobilenet_v3, rows=mobile.V3_LARGE, hidden=1280)),
    "mnasnet": Entry(mobile.mnasnet),
    "efficientnet_b0": Entry(mobile.efficientnet_b0),
    "shufflenet_v2": Entry(mobile.shufflenet_v2),
    "convnext_tiny": Entry(sequences.convnext),
    "vit_tiny": Entry(partial(sequences.vit, heads=3)),
    "vit_small": Entry(partial(sequences.vit, heads=6)),
    "vit_base": Entry(partial(sequences.vit, heads=12)),
    "bert": Entry(sequences.bert, "tokens"),
    "gpt": Entry(sequences.gpt, "tokens"),
    "lstm": Entry(partial(sequences.recurrent, kind="lstm"), "tokens"),
    "gru": Entry(partial(sequences.recurrent, kind="gru"), "tokens"),
}


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

    `name`: one of `names`.

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

    `name`: one of `names`. `framework`: {"torch", "keras"}; library. Under ``with torch.device("meta")`` a torch
    network takes no memory. `input_shape`: ``(channels, height, width)`` of an image whatever the framework's own
    layout (Keras models take ``(height, width, channels)``), or ``(length,)`` of a token sequence. Default: (3, 32,
    32) or (128,). `n_classes`: outputs of the classifier; ``gpt`` ignores it: its outputs are the vocabulary, after
    each token. `width`, `depth`: factors on the channels, and on the blocks of each stage. `vocabulary`: distinct
    tokens; ignored for images. Returns the outputs are logits.

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
            from gpudemand.cost._torch_zoo import TorchNet

            return TorchNet
        with quiet_tensorflow():
            from gpudemand.cost._keras_zoo import KerasNet
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
