"""Networks of the zoo: name, kind of input, and the function that defines it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gpudemand.cost.zoo import inception, mobile, plain, residual, sequences
from gpudemand.cost.zoo.nasnet import nasnet_mobile
from gpudemand.cost.zoo.net import Net, Value


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
