"""Video networks: TSN, TSM, I3D, SlowOnly, SlowFast, R(2+1)D."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.cost.libraries import torchvision_model, vision
from benchmarks.cost.regions import Built


class Shift(nn.Module):
    """Move an eighth of the channels one frame ahead and another one back, then a convolution."""

    def __init__(self, conv: nn.Module, frames: int) -> None:
        super().__init__()
        self.conv, self.frames = conv, frames

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        clip, n = x.unflatten(0, (-1, self.frames)), x.shape[1] // 8
        out = torch.zeros_like(clip)
        out[:, :-1, :n] = clip[:, 1:, :n]
        out[:, 1:, n : 2 * n] = clip[:, :-1, n : 2 * n]
        out[:, :, 2 * n :] = clip[:, :, 2 * n :]
        return self.conv(out.flatten(0, 1))


class Segments(nn.Module):
    """ResNet-50 on every frame, averaged; with shifted channels in each block if `shifted`."""

    def __init__(self, frames: int, *, shifted: bool) -> None:
        super().__init__()
        self.net = torchvision_model("resnet50", num_classes=400)
        for stage in (self.net.layer1, self.net.layer2, self.net.layer3, self.net.layer4) if shifted else ():
            for block in stage:
                block.conv1 = Shift(block.conv1, frames)

    def forward(self, clip: Any) -> Any:
        """Forward pass."""
        return self.net(clip.flatten(0, 1)).unflatten(0, clip.shape[:2]).mean(1)


def _conv(inputs: int, outputs: int, kernel: tuple[int, int, int], stride: tuple[int, int, int] = (1, 1, 1)) -> Any:
    padding = tuple(size // 2 for size in kernel)
    return [nn.Conv3d(inputs, outputs, kernel, stride, padding, bias=False), nn.BatchNorm3d(outputs)]


class Bottleneck(nn.Module):
    """Bottleneck whose first convolution spans three frames if `inflated`."""

    def __init__(self, inputs: int, width: int, stride: int, *, inflated: bool) -> None:
        super().__init__()
        self.parts = nn.Sequential(
            *_conv(inputs, width, (3 if inflated else 1, 1, 1)), nn.ReLU(),
            *_conv(width, width, (1, 3, 3), (1, stride, stride)), nn.ReLU(), *_conv(width, 4 * width, (1, 1, 1)),
        )  # fmt: skip
        same = inputs == 4 * width and stride == 1
        self.skip = nn.Identity() if same else nn.Sequential(*_conv(inputs, 4 * width, (1, 1, 1), (1, stride, stride)))
        self.act = nn.ReLU()

    def forward(self, x: Any) -> Any:
        """Forward pass."""
        return self.act(self.parts(x) + self.skip(x))


class Pathway(nn.Module):
    """ResNet-50 in three dimensions, with `more` channels added before every stage."""

    def __init__(self, width: int, kernel: int, inflated: tuple[Any, ...], stride: int = 1, more: int = 0) -> None:
        super().__init__()
        stem = [*_conv(3, width, (kernel, 7, 7), (stride, 2, 2)), nn.ReLU()]
        self.stem = nn.Sequential(*stem, nn.MaxPool3d((1, 3, 3), (stride, 2, 2), (0, 1, 1)))
        self.stages, inputs = nn.ModuleList(), width
        for i, n in enumerate((3, 4, 6, 3)):
            blocks = []
            for j in range(n):
                wide = inputs + (more * inputs if j == 0 else 0) // width if j == 0 else inputs
                step, every = 2 if i and j == 0 else 1, inflated[i]
                blocks.append(Bottleneck(wide, width * 2**i, step, inflated=every[j % len(every)]))
                inputs = 4 * width * 2**i
            self.stages.append(nn.Sequential(*blocks))


class Inflated(nn.Module):
    """One pathway and a classifier."""

    def __init__(self, pathway: Pathway) -> None:
        super().__init__()
        self.pathway, self.head = pathway, nn.Linear(2048, 400)

    def forward(self, clip: Any) -> Any:
        """Forward pass."""
        x = self.pathway.stem(clip)
        for stage in self.pathway.stages:
            x = stage(x)
        return self.head(x.mean((2, 3, 4)))


class SlowFast(nn.Module):
    """A slow pathway on every eighth frame, and a thin fast one that is fused into it before each stage."""

    def __init__(self, ratio: int = 8) -> None:
        super().__init__()
        self.ratio, self.slow = ratio, Pathway(64, 1, ((0,), (0,), (1,), (1,)), more=16)
        self.fast = Pathway(8, 5, ((1,),) * 4)
        self.fuse = nn.ModuleList(
            nn.Sequential(*_conv(n, 2 * n, (5, 1, 1), (ratio, 1, 1)), nn.ReLU()) for n in (8, 32, 64, 128)
        )
        self.head = nn.Linear(2048 + 256, 400)

    def forward(self, clip: Any) -> Any:
        """Forward pass."""
        slow, fast = self.slow.stem(clip[:, :, :: self.ratio]), self.fast.stem(clip)
        for fuse, first, second in zip(self.fuse, self.slow.stages, self.fast.stages, strict=True):
            slow = first(torch.cat([slow, fuse(fast)], 1))
            fast = second(fast)
        return self.head(torch.cat([slow.mean((2, 3, 4)), fast.mean((2, 3, 4))], 1))


#: Which blocks of a stage span frames.
_I3D = ((1, 1, 1), (1, 0), (1, 0), (0, 1))


def _factorised(frames: int) -> Built:
    resnet = vision()[0].models.video.resnet
    convs = [resnet.Conv2Plus1D] * 4
    net = resnet.VideoResNet(resnet.BasicBlock, convs, [3, 4, 6, 3], resnet.R2Plus1dStem, num_classes=400)
    net.stem.append(nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1)))
    return net, (3, frames, 224, 224), None


def _clip(make: Any, frames: int) -> Built:
    return make(), (3, frames, 224, 224), None


NETWORKS: dict[str, Any] = {
    "tsn_r50": lambda frames: (Segments(frames, shifted=False), (frames, 3, 224, 224), None),
    "tsm_r50": lambda frames: (Segments(frames, shifted=True), (frames, 3, 224, 224), None),
    "i3d_r50": partial(_clip, lambda: Inflated(Pathway(64, 5, _I3D, stride=2))),
    "i3d_r50_heavy": partial(_clip, lambda: Inflated(Pathway(64, 5, _I3D))),
    "slowonly_r50": partial(_clip, lambda: Inflated(Pathway(64, 1, ((0,), (0,), (1,), (1,))))),
    "slowfast_r50": partial(_clip, SlowFast),
    "r2plus1d_r34": _factorised,
}
