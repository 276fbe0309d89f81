"""Prediction of one job as text for a terminal."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pandas as pd

from gpudemand._printing import aligned
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.model import CostModel
from gpudemand.cost.predict.step_time_model import FarFromTrainingWarning
from gpudemand.units import format_gib, format_seconds


def format_prediction(model: CostModel, job: TrainingJob) -> str:
    """Format step time, memory, the probability that a job fits, and the largest batch that does.

    Parameters
    ----------
    model : CostModel
    job : TrainingJob

    Returns
    -------
    str
        A small table; last lines if the job is far from the training data.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FarFromTrainingWarning)
        row, probability, largest = model.predict(job).iloc[0], model.fits(job), model.max_batch_size(job)
        script = _script(model, job)
    time, memory = _with_interval(row, "step_time_s", format_seconds), _with_interval(row, "memory_gib", format_gib)
    limit = format_gib(job.hardware.usable_memory_gib)
    rows = [("step time", *time), *script, *_speed(job, float(row["step_time_s"])), ("memory", *memory)]
    rows += _readings(model, job)
    rows += [
        (f"fits into {limit}", f"{100 * probability:.0f} %", ""),
        ("largest batch that fits" if job.run is None else "most samples at once", f"{largest:,}", "with 95 %"),
    ]
    lines = [repr(job), "", aligned(pd.DataFrame(rows, columns=["", "predicted", "90 % interval"]))]
    far = dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, FarFromTrainingWarning))
    lines += ["", *far] if far else []
    return "\n".join(lines)


def _script(model: CostModel, job: TrainingJob) -> list[tuple[str, str, str]]:
    """The step in a training script, where that is another."""
    if job.run is not None or job.mode == "inference" or job.hardware.kind == "cpu":
        return []
    row = model.predict(job, training_script=True).iloc[0]
    return [("in a training script", *_with_interval(row, "step_time_s", format_seconds))]


def _speed(job: TrainingJob, seconds: float) -> list[tuple[str, str, str]]:
    samples = job.samples_per_step / seconds
    if job.run is None:
        return [("samples a second", f"{samples:,.4g}", "")]
    tokens = samples * job.run.tokens / job.run.samples
    return [("tokens a second", f"{tokens:,.4g}", f"{job.samples_per_step:,} samples a step")]


def _readings(model: CostModel, job: TrainingJob) -> list[tuple[str, str, str]]:
    """What PyTorch counts of the memory of a large model."""
    if job.run is None:
        return []
    found = {name: model.large_models.predict([job.run], reading=name).iloc[0] for name in ("allocated", "reserved")}
    return [(f"of it {name}", *_with_interval(row, "memory_gib", format_gib)) for name, row in found.items()]


def _with_interval(row: pd.Series, name: str, write: Callable[[float], str]) -> tuple[str, str]:
    return write(row[name]), f"{write(row[f'{name}-lo-90'])} to {write(row[f'{name}-hi-90'])}"
