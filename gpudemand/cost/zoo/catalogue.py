"""Every network of the zoo: its name, its family, and the function that describes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gpudemand.cost.zoo import inception, mobile, plain, residual, sequences
from gpudemand.cost.zoo.nasnet import nasnet_mobile
from gpudemand.cost.zoo.net import Net, Value


@dataclass(frozen=True)
class Entry:
    """One network.

    Parameters
    ----------
    family : str
        Networks of one family share their building block; a family is left out as a whole to test on the unseen.
    describe : callable
        Takes the net under construction and its input, returns the output.
    kind : {"image", "tokens"}
        What goes in.
    """

    family: str
    describe: Callable[[Net, Value], Value]
    kind: str = "image"


CATALOGUE: dict[str, Entry] = {
    "lenet": Entry("lenet", plain.lenet),
    "alexnet": Entry("alexnet", plain.alexnet),
    "vgg11": Entry("vgg", partial(plain.vgg, convs=(1, 1, 2, 2, 2))),
    "vgg13": Entry("vgg", partial(plain.vgg, convs=(2, 2, 2, 2, 2))),
    "vgg16": Entry("vgg", partial(plain.vgg, convs=(2, 2, 3, 3, 3))),
    "vgg19": Entry("vgg", partial(plain.vgg, convs=(2, 2, 4, 4, 4))),
    "resnet18": Entry("resnet", partial(residual.resnet, blocks=(2, 2, 2, 2))),
    "resnet34": Entry("resnet", partial(residual.resnet, blocks=(3, 4, 6, 3))),
    "resnet50": Entry("resnet", partial(residual.bottleneck_resnet, blocks=(3, 4, 6, 3))),
    "resnet101": Entry("resnet", partial(residual.bottleneck_resnet, blocks=(3, 4, 23, 3))),
    "resnet152": Entry("resnet", partial(residual.bottleneck_resnet, blocks=(3, 8, 36, 3))),
    "preact_resnet18": Entry("resnet", partial(residual.preact_resnet, blocks=(2, 2, 2, 2))),
    "se_resnet18": Entry("resnet", partial(residual.resnet, blocks=(2, 2, 2, 2), squeeze=True)),
    "wide_resnet16_4": Entry("resnet", partial(residual.preact_resnet, blocks=(2, 2, 2), first=16)),
    "wide_resnet50_2": Entry("resnet", partial(residual.bottleneck_resnet, blocks=(3, 4, 6, 3), inner=128)),
    "resnext29": Entry("resnext", residual.resnext29),
    "resnext50": Entry("resnext", partial(residual.bottleneck_resnet, blocks=(3, 4, 6, 3), inner=128, groups=32)),
    "regnetx_400mf": Entry(
        "resnext", partial(residual.regnet, blocks=(1, 2, 7, 12), widths=(32, 64, 160, 400), group=16)
    ),
    "densenet121": Entry("densenet", partial(residual.densenet, blocks=(6, 12, 24, 16))),
    "densenet169": Entry("densenet", partial(residual.densenet, blocks=(6, 12, 32, 32))),
    "densenet201": Entry("densenet", partial(residual.densenet, blocks=(6, 12, 48, 32))),
    "googlenet": Entry("inception", inception.googlenet),
    "inception_v3": Entry("inception", inception.inception_v3),
    "xception": Entry("xception", inception.xception),
    "nasnet_mobile": Entry("nasnet", nasnet_mobile),
    "squeezenet": Entry("squeezenet", plain.squeezenet),
    "mobilenet_v1": Entry("mobilenet", mobile.mobilenet_v1),
    "mobilenet_v2": Entry("mobilenet", mobile.mobilenet_v2),
    "mobilenet_v3_small": Entry("mobilenet", partial(mobile.mobilenet_v3, rows=mobile.V3_SMALL, hidden=1024)),
    "mobilenet_v3_large": Entry("mobilenet", partial(mobile.mobilenet_v3, rows=mobile.V3_LARGE, hidden=1280)),
    "mnasnet": Entry("mobilenet", mobile.mnasnet),
    "efficientnet_b0": Entry("mobilenet", mobile.efficientnet_b0),
    "shufflenet_v2": Entry("shufflenet", mobile.shufflenet_v2),
    "convnext_tiny": Entry("convnext", sequences.convnext),
    "vit_tiny": Entry("transformer", partial(sequences.vit, heads=3)),
    "vit_small": Entry("transformer", partial(sequences.vit, heads=6)),
    "vit_base": Entry("transformer", partial(sequences.vit, heads=12)),
    "bert": Entry("transformer", sequences.bert, "tokens"),
    "gpt": Entry("transformer", sequences.gpt, "tokens"),
    "lstm": Entry("recurrent", partial(sequences.recurrent, kind="lstm"), "tokens"),
    "gru": Entry("recurrent", partial(sequences.recurrent, kind="gru"), "tokens"),
}
