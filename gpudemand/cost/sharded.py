"""Traced networks whose states are sharded over GPUs or whose batch is accumulated: what changes against one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.model_inputs import rows_by_kind, shard_size
from gpudemand.cost.predict.script_effect import ScriptEffect
from gpudemand.cost.roofline.interconnect import ring_seconds

PredictPart = Callable[[str, str, list[TrainingJob], Sequence[float]], FloatArray]
_TARGETS = ("step_time_s", "memory_gib")
_SINGLE, _HALF = 4.0, 2.0


def predict_traced(
    jobs: list[TrainingJob], levels: Sequence[float], predict: PredictPart, effect: ScriptEffect | None = None
) -> pd.DataFrame:
    """Step time and memory of traced networks with intervals, a row a job.

    Parameters
    ----------
    jobs : list of TrainingJob
    levels : sequence of float
        Of intervals, in percent.
    predict : callable
        ``predict(kind of device, target, jobs, levels)`` for jobs of one pass.
    effect : ScriptEffect, optional
        Of training scripts, on the times of what is trained on GPUs.

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
        if job.parallel is not None or simple[row] is not job:
            alone = [replace(simple[row], n_gpus=1, parallel=None)]
            single = float(predict(job.hardware.kind, "step_time_s", alone, levels)[0, 0])
            first = float(table.loc[row, "step_time_s"])
            table.loc[row, [f"step_time_s{end}" for end in ends]] *= step_seconds(job, first, single) / first
    scripts = [job.mode == "training" and job.hardware.kind == "gpu" for job in jobs]
    if effect is not None and any(scripts):
        times = [f"step_time_s{end}" for end in ends]
        table.loc[scripts, times] = effect.apply(table.loc[scripts, times].to_numpy(), levels)
    return table


def passes(job: TrainingJob) -> int:
    """Passes that a step accumulates."""
    return job.accumulate or 1


def one_pass(job: TrainingJob) -> TrainingJob:
    """The job without accumulation."""
    if job.accumulate is None and job.micro_batch is None:
        return job
    return replace(job, batch_size=job.batch_size // passes(job), micro_batch=None, accumulate=None)


def step_seconds(job: TrainingJob, first: float, single: float) -> float:
    """Seconds of a step from those of a pass with reduction, `first`, and of one without, `single`."""
    times = passes(job)
    if job.parallel is None or job.parallel.sharding in ("none", "zero1", "zero2"):
        return first + (times - 1) * single
    parameters = job.graph.n_parameters * (_HALF if job.precision in ("fp16", "bf16") else _SINGLE)
    # Gathered for the forward and the backward pass, as far as these do not hide it.
    gather = 2.0 * ring_seconds(job.hardware, parameters, shard_size(job), passes=1.0)
    return first + (times - 1) * single + times * gather**2 / (gather + single)
