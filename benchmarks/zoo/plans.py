"""Plans of what to measure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd

from benchmarks import zoo
from benchmarks.measure.meter import CHOICES, PLAN_COLUMNS, Configuration
from gpudemand._files import replace_file
from gpudemand._validation import InputError, check_choice, check_columns, check_number

#: Draws of a row before the one with the smallest estimated step time is taken.
MAX_DRAWS = 20
#: Slowdown of grouped convolutions, which TensorFlow on CPUs compiles by XLA, and the networks that have them.
GROUPED_KERAS_ON_CPU, GROUPED = 100.0, ("resnext", "regnet")


@dataclass(frozen=True)
class Design:
    """Ranges of a random design for one kind of device.

    Frameworks have equal shares (one that is listed twice has twice the share); `pixels` and `tokens` are input sizes;
    `batch` is log-uniform between two ends; `widths` and `depths` are factors; `layouts` are those of PyTorch. Rows are
    drawn again if their step takes longer than `max_step_s`, estimated at `flops_per_s`.
    """

    device: str
    frameworks: tuple[str, ...]
    pixels: tuple[int, ...]
    tokens: tuple[int, ...]
    batch: tuple[int, int]
    widths: tuple[float, ...]
    depths: tuple[float, ...]
    vocabularies: tuple[int, ...]
    precisions: tuple[str, ...]
    layouts: tuple[str, ...]
    threads: int
    max_step_s: float
    flops_per_s: float


DESIGNS = {
    "cpu": Design(
        device="cpu",
        # A Keras row takes about three times as long as a PyTorch row, mostly for tracing.
        frameworks=("torch", "torch", "keras"),
        pixels=(28, 32, 40, 48, 64),
        tokens=(32, 64, 96, 128),
        batch=(4, 64),
        widths=(0.5, 0.75, 1.0, 1.25),
        depths=(0.5, 1.0, 1.0),
        vocabularies=(1000, 5000, 20000),
        precisions=("fp32",),
        layouts=("contiguous",),
        threads=2,
        max_step_s=0.6,
        flops_per_s=100e9,
    ),
    "cuda": Design(
        device="cuda",
        frameworks=("torch",),
        pixels=(32, 64, 128, 224),
        tokens=(128, 256, 512, 1024, 2048),
        batch=(8, 2048),
        widths=(0.5, 1.0, 1.0, 2.0),
        depths=(0.5, 1.0, 1.0),
        vocabularies=(1000, 8000, 50000),
        precisions=("fp32", "tf32", "bf16"),
        layouts=("contiguous", "channels_last"),
        threads=0,
        max_step_s=0.4,
        flops_per_s=30e12,
    ),
}
CLASSES = (2, 10, 100, 1000)


def make_plan(
    n_rows: int = 1600,
    *,
    device: str = "cpu",
    networks: Sequence[str] | None = None,
    frameworks: Sequence[str] | None = None,
    n_repeated: int = 120,
    n_compiled: int = 0,
    random_state: int = 0,
) -> pd.DataFrame:
    """Draw a random design over all networks.

    Networks have equal shares of the rows, frameworks those of the design; batch size, input size, classes, width,
    depth, optimizer, precision and layout are drawn at random. Needs PyTorch to count floating-point operations, which
    bound the step time.

    Parameters
    ----------
    n_rows : int, default=1600
        Rows of the plan, repetitions among them.
    device : {"cpu", "cuda"}
        Key of `DESIGNS`.
    networks : sequence of str, optional
        Names of the zoo; all by default.
    frameworks : sequence of str, optional
        By default those of the design.
    n_repeated : int, default=120
        Configurations measured twice, for the noise floor.
    n_compiled : int, default=0
        Copies of eager PyTorch rows with ``torch.compile``.
    random_state : int, default=0
        Seed of the draw.

    Returns
    -------
    DataFrame
        Columns of `Configuration`, a row a job.

    Raises
    ------
    InputError
        For unknown names, or more repetitions than rows to repeat.

    Examples
    --------
    >>> plan = make_plan(6, networks=["lenet"], frameworks=["torch"], n_repeated=2)
    >>> len(plan), int(plan["repeat"].sum())
    (6, 2)
    """
    design = DESIGNS[check_choice("device", device, DESIGNS)]
    names = [check_choice("networks", name, zoo.names()) for name in networks or zoo.names()]
    n_first = int(check_number("n_rows", n_rows, 1, integer=True)) - n_repeated - n_compiled
    if min(n_repeated, n_compiled) < 0 or max(n_repeated, n_compiled) > n_first:
        raise InputError(
            f"n_repeated={n_repeated} and n_compiled={n_compiled} need as many rows to copy, but n_rows={n_rows} "
            f"leaves {n_first}; raise n_rows or lower the number of copies."
        )
    random = np.random.default_rng(random_state)
    cells = [(name, framework) for name in names for framework in frameworks or design.frameworks]
    jobs = [_affordable(cells[i % len(cells)], design, random) for i in range(n_first)]
    again = [replace(jobs[i], repeat=1) for i in random.choice(n_first, n_repeated, replace=False)]
    eager = [i for i, job in enumerate(jobs) if job.execution == "eager"][:n_first]
    compiled = [replace(jobs[i], execution="compiled") for i in random.permutation(eager)[:n_compiled]]
    return pd.DataFrame([asdict(job) for job in jobs + again + compiled], columns=list(PLAN_COLUMNS))


def _affordable(cell: tuple[str, str], design: Design, random: np.random.Generator) -> Configuration:
    draws: list[tuple[float, Configuration]] = []
    while not draws or (draws[-1][0] > design.max_step_s and len(draws) < MAX_DRAWS):
        job = _draw(cell, design, random)
        draws.append((estimated_step_s(job, design.flops_per_s), job))
    return min(draws, key=lambda draw: draw[0])[1]


def _draw(cell: tuple[str, str], design: Design, random: np.random.Generator) -> Configuration:
    name, framework = cell
    image, keras = zoo.kind(name) == "image", framework == "keras"
    low, high = np.log2(design.batch)
    size = int(random.choice(design.pixels if image else design.tokens))
    return Configuration(
        framework,
        name,
        input_size=size,
        channels=(int(random.choice((1, 3))) if size == 28 else 3) if image else 0,
        n_classes=int(random.choice(CLASSES)),
        vocabulary=0 if image else int(random.choice(design.vocabularies)),
        width=float(random.choice(design.widths)),
        depth=float(random.choice(design.depths)),
        batch_size=round(2 ** random.uniform(low, high)),
        optimizer=str(random.choice(CHOICES["optimizer"])),
        precision=str(random.choice(design.precisions)),
        layout="channels_last" if keras else str(random.choice(design.layouts)) if image else "contiguous",
        execution="compiled" if keras else "eager",
        device=design.device,
        threads=design.threads,
        seed=int(random.integers(1000)),
    )


def estimated_step_s(job: Configuration, flops_per_s: float) -> float:
    """Rough estimate of the step time from floating-point operations alone, at an assumed speed.

    Examples
    --------
    >>> job = Configuration("torch", "resnet50", 224, batch_size=64)
    >>> round(estimated_step_s(job, 30e12), 3)  # 3 x 64 x 2 x 4.09e9 / 30e12
    0.052
    """
    shape = (3, job.input_size, job.input_size) if job.channels else (job.input_size,)
    forward = _forward_flops(job.network, shape) * job.width**2 * job.depth
    grouped = job.framework == "keras" and job.device == "cpu" and job.network.startswith(GROUPED)
    return 3 * job.batch_size * forward / flops_per_s * (GROUPED_KERAS_ON_CPU if grouped else 1)


@lru_cache(maxsize=1024)
def _forward_flops(name: str, shape: tuple[int, ...]) -> float:
    """Floating-point operations of a forward pass of one sample at the published width and depth."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        network = zoo.build(name, "torch", shape)
        # Two samples: batch norm does not train on a single value per channel.
        network(torch.zeros(2, *shape, dtype=torch.float32 if len(shape) == 3 else torch.long))
    return counter.get_total_flops() / 2


def write_plan(plan: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a plan as CSV.

    Parameters
    ----------
    plan : DataFrame
        What `make_plan` returns.
    path : path-like
        The file.
    """
    table = check_columns(plan, PLAN_COLUMNS, "plan")
    with replace_file(path) as new:
        table.to_csv(new, index=False, columns=list(PLAN_COLUMNS), lineterminator="\n")
