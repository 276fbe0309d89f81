"""Networks that are measured, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from benchmarks.zoo import networks
from benchmarks.zoo.networks import Net, Size, Value
from gpudemand._validation import check_choice, check_number
from gpudemand.cost.networks import check_input_shape
from gpudemand.cost.tracing import quiet_tensorflow


class Entry(NamedTuple):
    """One network: ``define(net, input) -> output`` adds its operators to a `Net`; `kind` is that of its input."""

    define: Callable[[Net, Value], Value]
    kind: str = "image"


CATALOGUE: dict[str, Entry] = {
    "lenet": Entry(networks.lenet),
    "alexnet": Entry(networks.alexnet),
    "vgg11": Entry(partial(networks.vgg, convs=(1, 1, 2, 2, 2))),
    "vgg13": Entry(partial(networks.vgg, convs=(2, 2, 2, 2, 2))),
    "vgg16": Entry(partial(networks.vgg, convs=(2, 2, 3, 3, 3))),
    "vgg19": Entry(partial(networks.vgg, convs=(2, 2, 4, 4, 4))),
    "resnet18": Entry(partial(networks.resnet, blocks=(2, 2, 2, 2))),
    "resnet34": Entry(partial(networks.resnet, blocks=(3, 4, 6, 3))),
    "resnet50": Entry(partial(networks.bottleneck_resnet, blocks=(3, 4, 6, 3))),
    "resnet101": Entry(partial(networks.bottleneck_resnet, blocks=(3, 4, 23, 3))),
    "resnet152": Entry(partial(networks.bottleneck_resnet, blocks=(3, 8, 36, 3))),
    "preact_resnet18": Entry(partial(networks.preact_resnet, blocks=(2, 2, 2, 2))),
    "se_resnet18": Entry(partial(networks.resnet, blocks=(2, 2, 2, 2), squeeze=True)),
    "wide_resnet16_4": Entry(partial(networks.preact_resnet, blocks=(2, 2, 2), first=16)),
    "wide_resnet50_2": Entry(partial(networks.bottleneck_resnet, blocks=(3, 4, 6, 3), inner=128)),
    "resnext29": Entry(networks.resnext29),
    "resnext50": Entry(partial(networks.bottleneck_resnet, blocks=(3, 4, 6, 3), inner=128, groups=32)),
    "regnetx_400mf": Entry(partial(networks.regnet, blocks=(1, 2, 7, 12), widths=(32, 64, 160, 400), group=16)),
    "densenet121": Entry(partial(networks.densenet, blocks=(6, 12, 24, 16))),
    "densenet169": Entry(partial(networks.densenet, blocks=(6, 12, 32, 32))),
    "densenet201": Entry(partial(networks.densenet, blocks=(6, 12, 48, 32))),
    "googlenet": Entry(networks.googlenet),
    "inception_v3": Entry(networks.inception_v3),
    "xception": Entry(networks.xception),
    "nasnet_mobile": Entry(networks.nasnet_mobile),
    "squeezenet": Entry(networks.squeezenet),
    "mobilenet_v1": Entry(networks.mobilenet_v1),
    "mobilenet_v2": Entry(networks.mobilenet_v2),
    "mobilenet_v3_small": Entry(partial(networks.mobilenet_v3, rows=networks.V3_SMALL, hidden=1024)),
    "mobilenet_v3_large": Entry(partial(networks.mobilenet_v3, rows=networks.V3_LARGE, hidden=1280)),
    "mnasnet": Entry(networks.mnasnet),
    "efficientnet_b0": Entry(networks.efficientnet_b0),
    "shufflenet_v2": Entry(networks.shufflenet_v2),
    "convnext_tiny": Entry(networks.convnext),
    "vit_tiny": Entry(partial(networks.vit, heads=3)),
    "vit_small": Entry(partial(networks.vit, heads=6)),
    "vit_base": Entry(partial(networks.vit, heads=12)),
    "bert": Entry(networks.bert, "tokens"),
    "gpt": Entry(networks.gpt, "tokens"),
    "lstm": Entry(partial(networks.recurrent, kind="lstm"), "tokens"),
    "gru": Entry(partial(networks.recurrent, kind="gru"), "tokens"),
}


FRAMEWORKS = ("keras", "torch")


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
        check_input_shape(input_shape, name, entry.kind),
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
            from benchmarks.zoo.torch_net import TorchNet

            return TorchNet
        with quiet_tensorflow():
            from benchmarks.zoo.keras_net import KerasNet
    except ImportError as error:
        extra = "torch" if framework == "torch" else "tensorflow"
        raise ImportError(f"building {framework} networks needs it: pip install 'gpudemand[{extra}]'") from error
    return KerasNet
