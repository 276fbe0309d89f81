"""Step time of training jobs in a simulated cluster: a small roofline model over published figures.

It defines the ground truth of simulated logs and does not predict real hardware; `gpudemand.cost` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, as_numbers, check_choice, check_columns


class Network(NamedTuple):
    """Figures of a network at its usual input size, and usual training settings."""

    gmacs: float  #: multiply-adds of the forward pass of one sample, in billions
    activations_m: float  #: values written by the forward pass of one sample, in millions
    params_m: float  #: parameters, in millions
    operators: int  #: operators of the forward pass, one kernel launch each
    batch: int  #: usual batch size per GPU
    samples: int  #: usual size of the training set


class Gpu(NamedTuple):
    """Figures of a GPU from its data sheet (dense matrix arithmetic)."""

    fp32: float  #: peak in TFLOP/s
    tf32: float  #: 0 where not supported
    half: float  #: fp16 and bf16
    bf16: bool  #: whether bf16 is supported
    bandwidth: float  #: of the memory, GB/s
    link: float  #: between the GPUs of one machine, GB/s in one direction


#: Sources: torchvision and timm tables (images of 224 px); BERT at 128 and GPT-2 at 1,024 tokens from their layers.
NETWORKS: dict[str, Network] = {
    "resnet18": Network(1.82, 2.48, 11.7, 60, 256, 50_000),
    "resnet50": Network(4.11, 11.11, 25.6, 160, 128, 1_281_167),
    "resnet152": Network(11.56, 22.56, 60.2, 470, 64, 1_281_167),
    "vgg16": Network(15.5, 13.56, 138.4, 38, 64, 1_281_167),
    "densenet121": Network(2.87, 6.90, 8.0, 430, 64, 112_120),
    "mobilenet_v2": Network(0.31, 6.68, 3.5, 150, 256, 118_287),
    "efficientnet_b0": Network(0.40, 6.75, 5.3, 240, 256, 1_281_167),
    "convnext_tiny": Network(4.47, 13.44, 28.6, 180, 128, 1_281_167),
    "vit_b_16": Network(17.58, 23.90, 86.6, 150, 128, 1_281_167),
    "bert_base": Network(11.2, 23.6, 110.0, 200, 32, 3_668_000),
    "gpt2_small": Network(147.0, 302.0, 124.0, 170, 8, 8_000_000),
}

GPUS: dict[str, Gpu] = {
    "V100": Gpu(15.7, 0.0, 125.0, False, 900.0, 150.0),
    "A100": Gpu(19.5, 156.0, 312.0, True, 1555.0, 300.0),
    "H100": Gpu(67.0, 494.0, 989.0, True, 3350.0, 450.0),
    "H200": Gpu(67.0, 494.0, 989.0, True, 4800.0, 450.0),
}

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")

#: Achieved share of peak arithmetic, by precision.
EFFICIENCY = {"fp32": 0.5, "tf32": 0.22, "bf16": 0.25, "fp16": 0.25}
MEMORY_EFFICIENCY = 0.7
#: The backward pass costs twice the forward pass; a multiply-add is two operations.
OPERATIONS_PER_MAC = 3 * 2
#: Each activation is written and read forward, and read, and its gradient written and read, backward.
PASSES = 5
#: Weight, gradient and two moments are read and three of them written, in four bytes.
OPTIMIZER_BYTES = 7 * 4
LAUNCH_S = 6e-6
GPUS_PER_NODE = 8
#: Between machines, GB/s a GPU.
NETWORK_LINK = 25.0


def true_step_time(jobs: pd.DataFrame) -> FloatArray:
    """Return the noise-free step time in seconds of the roofline model of `make_cluster`.

    ``max(arithmetic, memory traffic, kernel launches) + all-reduce``, where arithmetic is three times the forward
    pass over the peak of the GPU times `EFFICIENCY`, memory traffic is activations and optimizer state over the
    bandwidth, and the all-reduce is a ring over the link inside a machine (up to 8 GPUs) or between machines.

    Parameters
    ----------
    jobs : DataFrame
        Columns ``network``, ``batch_size`` (per GPU), ``precision``, ``gpu_type`` and ``gpus``.

    Returns
    -------
    ndarray of shape (n_jobs,)
        Seconds.

    Raises
    ------
    InputError
        For an unknown network, GPU or precision, or a precision that the GPU lacks.

    Examples
    --------
    ResNet-50 on one V100 in fp32, 128 images a step, in images a second:

    >>> job = pd.DataFrame({"network": ["resnet50"], "batch_size": [128], "precision": ["fp32"],
    ...                     "gpu_type": ["V100"], "gpus": [1]})
    >>> [round(float(128 / seconds)) for seconds in true_step_time(job)]
    [318]
    """
    jobs = check_columns(jobs, ("network", "batch_size", "precision", "gpu_type", "gpus"), "jobs")
    network = _look_up(jobs["network"], NETWORKS, "network")
    gpu = _look_up(jobs["gpu_type"], GPUS, "gpu_type")
    half = jobs["precision"].isin(["bf16", "fp16"]).to_numpy(dtype=bool)
    width = np.where(half, 2.0, 4.0)
    batch, gpus = (as_numbers(jobs[name], f"jobs[{name!r}]") for name in ("batch_size", "gpus"))
    arithmetic = batch * network["gmacs"] * OPERATIONS_PER_MAC * 1e9 / _achieved_flops(jobs["precision"], gpu)
    traffic = batch * network["activations_m"] * PASSES * width + network["params_m"] * OPTIMIZER_BYTES
    memory = traffic * 1e6 / (gpu["bandwidth"] * MEMORY_EFFICIENCY * 1e9)
    launches = 3 * network["operators"] * LAUNCH_S
    busy = np.maximum.reduce([arithmetic, memory, launches])
    return busy + _all_reduce(network["params_m"] * 1e6 * width, gpus, gpu["link"])


def _all_reduce(gradient_bytes: FloatArray, gpus: FloatArray, link: FloatArray) -> FloatArray:
    slowest = np.where(gpus > GPUS_PER_NODE, NETWORK_LINK, link) * 1e9
    return 2 * (gpus - 1) / np.maximum(gpus, 1) * gradient_bytes / slowest


def _achieved_flops(precision: pd.Series, gpu: Mapping[str, FloatArray]) -> FloatArray:
    peak = np.full(len(precision), np.nan)
    for name in pd.unique(precision):
        check_choice("precision", name, PRECISIONS)
        rows = (precision == name).to_numpy(dtype=bool)
        column = gpu["half"] * gpu["bf16"] if name == "bf16" else gpu["half" if name == "fp16" else name]
        peak[rows] = column[rows] * EFFICIENCY[name] * 1e12
    if (peak == 0).any():
        raise InputError(
            f"precision={precision.iloc[int(np.argmax(peak == 0))]!r} does not run on that job's GPU type."
        )
    return peak


def _look_up(names: pd.Series, table: Mapping[str, Network | Gpu], what: str) -> dict[str, FloatArray]:
    codes, seen = pd.factorize(names)
    rows = [table[check_choice(what, name, table)] for name in seen]
    if (codes < 0).any():
        raise InputError(f"{what} is missing in {int((codes < 0).sum())} jobs; drop them.")
    fields = next(iter(table.values()))._fields
    return {field: np.array([float(getattr(row, field)) for row in rows])[codes] for field in fields}
