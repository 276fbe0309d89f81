"""Single operators at the shapes where the predictor is least sure.

    python -m benchmarks.cost.on_gpu.operators --device H200 --out data/cost/plans/operators.csv

draws shapes of every kind of operator, and writes those whose predicted intervals are widest, an equal number a kind.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.cost.on_gpu.session import predicted_job
from gpudemand import CostModel
from gpudemand._validation import InputError

N_ROWS, CANDIDATES = 200, 30
#: Predicted seconds of a candidate, and most bytes of one of its tensors.
SECONDS, MOST_BYTES = (3e-4, 0.1), 2e9
Sizes = tuple[int, int, int]


class _Apply(nn.Module):
    """A function of an input that is itself made by a product with a vector, so that its gradient is needed."""

    def __init__(self, function: Callable[[Tensor], Tensor], channels: int) -> None:
        super().__init__()
        self.scale, self.function = nn.Parameter(torch.ones(channels)), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x * self.scale)


class _First(nn.Module):
    """Outputs of a recurrent layer, without its last state."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        return self.cell(x)[0]


class _Attend(nn.Module):
    def __init__(self, width: int, head: int, *, causal: bool) -> None:
        super().__init__()
        self.inputs, self.head, self.causal = nn.Linear(width, 3 * width, bias=False), head, causal

    def forward(self, x: Tensor) -> Tensor:
        parts = (part.unflatten(-1, (-1, self.head)).transpose(1, 2) for part in self.inputs(x).chunk(3, -1))
        return functional.scaled_dot_product_attention(*parts, is_causal=self.causal).transpose(1, 2).flatten(2)


class _Scatter(nn.Module):
    """Sums of rows by an index, as in graph networks."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[1]
        index = torch.arange(rows, device=x.device).mul(7919).remainder(max(rows // 8, 1))[None, :, None].expand_as(x)
        return torch.zeros_like(x).scatter_add(1, index, (x * self.scale).to(x.dtype))


def _image(channels: int, size: int, *_: int) -> tuple[int, ...]:
    return channels, size, size


def _rows(width: int, rows: int, *_: int) -> tuple[int, ...]:
    return rows, width


def _conv(channels: int, size: int, kernel: int, groups: int = 1) -> nn.Module:
    del size
    return nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=groups, bias=False)


_CHANNELS, _IMAGES, _WIDTHS, _ROWS = (24, 64, 96, 160, 384, 768), (7, 14, 28, 56, 112), (96, 512, 768, 1536, 4096), (
    49, 197, 512, 2048, 8192)  # fmt: skip
#: Kind -> module from three sizes, shape of a sample from them, and the values of each size.
OPERATORS: dict[str, tuple[Callable[..., nn.Module], Callable[..., tuple[int, ...]], tuple[tuple[int, ...], ...]]] = {
    "linear": (lambda a, b, c: nn.Linear(a, c), _rows, (_WIDTHS, _ROWS, (16, 100, 1000, 3072, 32_000))),
    "conv": (lambda a, b, c: _conv(a, b, c), _image, (_CHANNELS, _IMAGES, (1, 3, 5, 7))),
    "grouped conv": (lambda a, b, c: _conv(a, b, 3, a // c), _image, (_CHANNELS, _IMAGES, (8,))),
    "depthwise conv": (lambda a, b, c: _conv(a, b, c, a), _image, (_CHANNELS, _IMAGES, (3, 7, 13, 31))),
    "transposed conv": (lambda a, b, c: nn.ConvTranspose2d(a, a // 2, c, 2), _image, (_CHANNELS, _IMAGES, (2, 4))),
    "attention": (lambda a, b, c: _Attend(a, c, causal=False), _rows, ((512, 768, 1536), _ROWS, (32, 64, 128))),
    "causal attention": (lambda a, b, c: _Attend(a, c, causal=True), _rows, ((512, 1536), _ROWS, (64, 128))),
    "lstm": (lambda a, b, c: _First(nn.LSTM(a, a, c, batch_first=True)), _rows, (_WIDTHS, (49, 512), (1, 2))),
    "gru": (lambda a, b, c: _First(nn.GRU(a, a, c, batch_first=True)), _rows, (_WIDTHS, (49, 512), (1, 2))),
    "layer norm": (lambda a, b, c: nn.LayerNorm(a), _rows, (_WIDTHS, _ROWS, (1,))),
    "batch norm": (lambda a, b, c: nn.BatchNorm2d(a), _image, (_CHANNELS, _IMAGES, (1,))),
    "group norm": (lambda a, b, c: nn.GroupNorm(c, a), _image, (_CHANNELS, _IMAGES, (4, 8))),
    "softmax": (lambda a, b, c: _Apply(nn.Softmax(-1), a), _rows, (_WIDTHS, _ROWS, (1,))),
    "gelu": (lambda a, b, c: _Apply(nn.GELU(), a), _rows, (_WIDTHS, _ROWS, (1,))),
    "scatter": (lambda a, b, c: _Scatter(a), _rows, (_WIDTHS, _ROWS, (1,))),
    "fft": (lambda a, b, c: _Apply(lambda x: torch.fft.rfft2(x.float()).real, a), _rows, (_WIDTHS, _ROWS, (1,))),
}


@dataclass(frozen=True)
class OneOperator:
    """An operator of `OPERATORS` at three sizes."""

    kind: str
    a: int
    b: int
    c: int
    batch_size: int
    precision: str
    optimizer: str = "sgd"

    def build(self) -> nn.Module:
        """The module that is measured."""
        return OPERATORS[self.kind][0](self.a, self.b, self.c)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a sample."""
        return OPERATORS[self.kind][1](self.a, self.b, self.c)

    def inputs(self) -> list[Tensor]:
        """A random batch."""
        return [torch.randn(self.batch_size, *self.shape)]

    def traced(self) -> dict[str, Any]:
        """Module and shape of the `TrainingJob`."""
        with torch.device("meta"):
            return {"model": self.build(), "input_shape": self.shape}


def candidates(random_state: int = 0) -> list[OneOperator]:
    """Random shapes of every kind, without those whose tensors are too large."""
    random, found = np.random.default_rng(random_state), []
    for kind, (_, _, values) in OPERATORS.items():
        for _ in range(CANDIDATES):
            sizes = [int(random.choice(each)) for each in values]
            precision = str(random.choice(["fp32", "tf32", "bf16"]))
            design = OneOperator(kind, *sizes, round(2 ** random.uniform(2, 10)), precision)
            if 4.0 * design.batch_size * np.prod(design.shape) * max(design.c // design.a, 1) < MOST_BYTES:
                found.append(design)
    return list(dict.fromkeys(found))


def least_sure(device: str, n_rows: int = N_ROWS) -> pd.DataFrame:
    """Operators with the widest predicted intervals, an equal number a kind."""
    model, rows = CostModel.load(), []
    for design in candidates():
        try:
            cost = model.predict([predicted_job(design, device)]).iloc[0]
        except InputError as error:
            print(f"{design}: {error}")
            continue
        width = np.log(cost["step_time_s-hi-90"] / cost["step_time_s-lo-90"])
        if SECONDS[0] <= cost["step_time_s"] <= SECONDS[1]:
            rows.append({**asdict(design), "log_width": width})
    table = pd.DataFrame(rows).sort_values("log_width", ascending=False)
    place = table.groupby("kind").cumcount()
    return table.iloc[np.argsort(place, kind="stable")[:n_rows]].drop(columns="log_width")


def plan(path: Path) -> list[OneOperator]:
    """The operators of a plan file."""
    names = [field.name for field in fields(OneOperator)]
    return [OneOperator(**row) for row in pd.read_csv(path)[names].to_dict("records")]


def main() -> None:
    """Write the plan."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="H200")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    least_sure(options.device).to_csv(options.out, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
