"""What a predictor says of one job, laid out for a terminal."""

from __future__ import annotations

import warnings

import pandas as pd

from gpudemand._printing import aligned
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.model import CostModel
from gpudemand.cost.predict.step_time_model import FarFromTrainingWarning
from gpudemand.units import format_gib, format_seconds


def print_answer(model: CostModel, job: TrainingJob) -> str:
    """Lay out time, memory, whether a job fits and the largest batch that does.

    Parameters
    ----------
    model : CostModel
    job : TrainingJob

    Returns
    -------
    str
        Some lines; the last says so if the job is unlike everything that was measured.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FarFromTrainingWarning)
        told, chance, largest = model.predict(job).iloc[0], model.fits(job), model.max_batch_size(job)
    time, memory = (
        _with_interval(told, *part) for part in (("step_time_s", format_seconds), ("memory_gib", format_gib))
    )
    limit = format_gib(job.hardware.usable_memory_gib)
    speed = job.batch_size * job.n_gpus / told["step_time_s"]
    rows = [
        ("step time", *time),
        ("samples a second", f"{speed:,.4g}", ""),
        ("memory", *memory),
        (f"fits into {limit}", f"{100 * chance:.0f} %", ""),
        ("largest batch that fits", f"{largest:,}", "with 95 %"),
    ]
    lines = [repr(job), "", aligned(pd.DataFrame(rows, columns=["", "predicted", "90 % interval"]))]
    if any(issubclass(warning.category, FarFromTrainingWarning) for warning in caught):
        lines += ["", "Unlike every job that was measured: trust the intervals more than the numbers."]
    return "\n".join(lines)


def _with_interval(told: pd.Series, name: str, write: object) -> tuple[str, str]:
    assert callable(write)
    return write(told[name]), f"{write(told[f'{name}-lo-90'])} to {write(told[f'{name}-hi-90'])}"
