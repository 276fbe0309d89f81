"""Traced networks whose states are sharded over GPUs or whose batch is accumulated: what changes against one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.cost.graph.features import OPTIMIZER_STATES
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.model_inputs import rows_by_kind
from gpudemand.cost.roofline.interconnect import ring_seconds
from gpudemand.units import GIB

PredictPart = Callable[[str, str, list[TrainingJob], Sequence[float]], FloatArray]
_TARGETS = ("step_time_s", "memory_gib")
_SINGLE, _HALF = 4.0, 2.0
#: Layers that are whole at a time while parameters are sharded: the one in use and the next.
_GATHERED_LAYERS = 2


def predict_traced(jobs: list[TrainingJob], levels: Sequence[float], predict: PredictPart) -> pd.DataFrame:
    """Step time and memory of traced networks with intervals, a row a job.

    Parameters
    ----------
    jobs : list of TrainingJob
    levels : sequence of float
        Of intervals, in percent.
    predict : callable
        ``predict(kind of device, target, jobs, levels)`` for jobs of one pass.

    Returns
    -------
    DataFrame
    """
    ends = ["", *(f"-{side}-{value:g}" for value in levels for side in ("lo", "hi"))]
    table = pd.DataFrame(index=range(len(jobs)), columns=[t + e for t in _TARGETS for e in ends], dtype=float)
    simple = list(map(one_pass, jobs))
    for kind, rows in rows_by_kind(jobs).items():
        for target in _TARGETS:
            found = predict(kind, target, [simple[row] for row in rows], levels)
            table.loc[rows, [target + end for end in ends]] = found
    for row, job in enumerate(jobs):
        if simple[row] is not job:
            alone = [replace(simple[row], n_gpus=1)]
            single = predict(job.hardware.kind, "step_time_s", alone, levels)[0, 0]
            _adjust(table, row, job, float(single))
    return table


def _adjust(table: pd.DataFrame, row: int, job: TrainingJob, single: float) -> None:
    """Change the predictions of one pass to those of a job that accumulates or shards."""
    time, held = ([name for name in table.columns if name.startswith(target)] for target in _TARGETS)
    first = float(table.loc[row, "step_time_s"])
    table.loc[row, time] *= step_seconds(job, first, single) / first
    table.loc[row, held] = (table.loc[row, held] - memory_saved_gib(job)).clip(lower=0.0)


def passes(job: TrainingJob) -> int:
    """Passes that a step accumulates."""
    return job.accumulate or 1


def one_pass(job: TrainingJob) -> TrainingJob:
    """The job without accumulation and sharding: a pass of data parallelism."""
    if job.accumulate is None and job.micro_batch is None and job.parallel is None:
        return job
    size = job.batch_size // passes(job)
    return replace(job, batch_size=size, micro_batch=None, accumulate=None, parallel=None)


def memory_saved_gib(job: TrainingJob) -> float:
    """GiB a GPU that sharding saves of parameters, gradients and optimizer states, less the layers that are gathered.

    Examples
    --------
    >>> import torch
    >>> from gpudemand.cost.large_models.parallel import Parallel
    >>> job = TrainingJob(torch.nn.Linear(2**14, 2**14, bias=False), (2**14,), optimizer="adam", n_gpus=4,
    ...                   parallel=Parallel(sharding="zero1"))
    >>> memory_saved_gib(job)
    1.5
    """
    if job.parallel is None or job.parallel.sharding == "none":
        return 0.0
    replicas, level = _shard_size(job), {"zero1": 1, "zero2": 2}.get(str(job.parallel.sharding), 3)
    trained, everything = job.graph.n_trainable, job.graph.n_parameters
    divided = [trained * OPTIMIZER_STATES[job.optimizer], float(trained), float(everything)][:level]
    gathered = _GATHERED_LAYERS * everything / max(job.graph.n_layers, 1) if level == 3 else 0.0
    return _SINGLE * (sum(divided) * (1.0 - 1.0 / replicas) - gathered) / GIB


def step_seconds(job: TrainingJob, first: float, single: float) -> float:
    """Seconds of a step from those of a pass with reduction, `first`, and of one without, `single`."""
    times = passes(job)
    if job.parallel is None or job.parallel.sharding in ("none", "zero1", "zero2"):
        return first + (times - 1) * single
    parameters = job.graph.n_parameters * (_HALF if job.precision in ("fp16", "bf16") else _SINGLE)
    # Gathered for the forward and the backward pass, as far as these do not hide it.
    gather = 2.0 * ring_seconds(job.hardware, parameters, _shard_size(job), passes=1.0)
    return first + (times - 1) * single + times * gather**2 / (gather + single)


def _shard_size(job: TrainingJob) -> int:
    within = job.parallel is not None and job.parallel.sharding == "hsdp"
    return min(job.n_gpus, int(job.hardware.node_gpus)) if within else job.n_gpus
