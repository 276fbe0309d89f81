"""Layouts of a large model over GPUs, ranked by predicted time, and what training it takes in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._array import STRING
from gpudemand._validation import InputError, check_number, told
from gpudemand.cost.job import TrainingJob, TrainingRun
from gpudemand.cost.large_candidates import layouts_of, with_usual_batch
from gpudemand.cost.large_models import LargeModelPredictor
from gpudemand.units import SECONDS_PER_HOUR

_DEGREES = ("data", "tensor", "pipeline", "context", "expert")
#: GPUs that are tried for the smallest number.
_COUNTS = (1, 2, 4, *range(8, 64, 8), *(2**power for power in range(6, 15)))
_SIZES = (1, 2, 4, 8)


@told("Comparing layouts")
def suggest_layouts(
    job: TrainingJob,
    n_gpus: int | None = None,
    *,
    probability: float = 0.9,
    predictor: LargeModelPredictor | None = None,
) -> pd.DataFrame:
    """Layouts of a job from a configuration that fit, fastest first.

    Degrees of tensor, pipeline and expert parallelism, sharding, checkpointing and micro-batch are tried where the job
    leaves them open; of `batch_size`, samples a step on each replica, all micro-batches that divide it. A step without
    any stated batch is that of usual trainings on as many GPUs, the middle of those that `CostModel.predict` weighs.

    Parameters
    ----------
    job : TrainingJob
        Made by `TrainingJob.from_config`; its own layout does not count.
    n_gpus : int, optional
        By default that of the job.
    probability : float, default=0.9
        With which a layout has to fit, below 1; 0 lists those that do not fit, too.
    predictor : LargeModelPredictor, optional
        The bundled one by default.

    Returns
    -------
    DataFrame
        A row a layout: ``data, tensor, pipeline, context, expert, sharding, checkpointing, micro_batch, accumulate``,
        ``memory_gib``, ``fits``, ``step_time_s``, ``tokens_per_s`` and ``mfu``. Empty if none fits.

    Raises
    ------
    InputError
        For a traced network.

    Examples
    --------
    >>> job = TrainingJob.from_config("llama-3-8b", 4096, device="H100", n_gpus=8, global_batch=64)
    >>> best = suggest_layouts(job).iloc[0]
    >>> bool(best["fits"] >= 0.9), int(best[["data", "tensor", "pipeline"]].prod())
    (True, 8)
    """
    check_number("probability", probability, 0, 1, open_high=True)
    count = job.n_gpus if n_gpus is None else int(check_number("n_gpus", n_gpus, 1, integer=True))
    run = _run_of(replace(job, n_gpus=count, parallel=None))
    ways = [one for layout in layouts_of(run) for one in _filled(layout)]
    predictor = predictor or LargeModelPredictor.load()
    chance = predictor.fits(ways) if ways else np.zeros(0)
    kept = [way for way, fits in zip(ways, chance, strict=True) if fits >= probability]
    table = _table(kept, predictor).assign(fits=chance[chance >= probability])
    best = table.sort_values("tokens_per_s", ascending=False, kind="stable")
    return best.drop_duplicates([*_DEGREES, "sharding"]).reset_index(drop=True)


@told("Looking for the fewest GPUs")
def smallest_n_gpus(
    job: TrainingJob, *, probability: float = 0.9, predictor: LargeModelPredictor | None = None
) -> pd.Series:
    """Fastest layout on the smallest number of GPUs on which a job from a configuration fits.

    Parameters
    ----------
    job : TrainingJob
    probability : float, default=0.9
    predictor : LargeModelPredictor, optional

    Returns
    -------
    Series
        A row of `suggest_layouts`, and ``n_gpus``.

    Raises
    ------
    InputError
        For a traced network, or if no number of GPUs up to 16,384 is enough.

    Examples
    --------
    >>> job = TrainingJob.from_config("llama-3-70b", 4096, device="H100", optimizer="adamw")
    >>> int(smallest_n_gpus(job)["n_gpus"]) in range(16, 65)
    True
    """
    found = smallest_layout(job, probability=probability, predictor=predictor)
    if found is None:
        raise InputError(f"{_run_of(job).model.name} does not fit onto {_COUNTS[-1]:,} of {job.hardware.name}.")
    return found


def smallest_layout(
    job: TrainingJob,
    *,
    probability: float = 0.9,
    predictor: LargeModelPredictor | None = None,
    below: int = _COUNTS[-1] + 1,
) -> pd.Series | None:
    """As `smallest_n_gpus`, on fewer GPUs than `below`; None if the job does not fit on them."""
    predictor = predictor or LargeModelPredictor.load()
    for count in (count for count in _COUNTS if count < below):
        open_batch = replace(job, parallel=None, n_gpus=count, global_batch=None)
        table = suggest_layouts(open_batch, count, probability=probability, predictor=predictor)
        if len(table):
            return pd.concat([table.iloc[0], pd.Series({"n_gpus": count})])
    return None


def training_totals(
    job: TrainingJob,
    tokens: float,
    price_per_gpu_hour: float | None = None,
    predictor: LargeModelPredictor | None = None,
) -> pd.Series:
    """Time, throughput, GPU-hours and money of training on a number of tokens, with 90 % intervals.

    Of its steps alone: trainings that projects published took 1.18 and 1.30 times as long at the median of two sets,
    with restarts and evaluations (``python -m benchmarks.cost --track trainings``).

    Parameters
    ----------
    job : TrainingJob
        Made by `TrainingJob.from_config`.
    tokens : float
        In all.
    price_per_gpu_hour : float, optional
    predictor : LargeModelPredictor, optional

    Returns
    -------
    Series
        ``tokens_per_s`` of all GPUs; ``tflops_per_gpu``, operations of forward and backward pass without those that are
        recomputed, attention as far as its mask leaves it; ``mfu``, these over the peak in half precision; ``hours``,
        ``gpu_hours``, ``gpu_hours-lo-90``, ``gpu_hours-hi-90``, and ``cost`` with a price.

    Raises
    ------
    InputError
        For a traced network, or numbers that are not positive.

    Examples
    --------
    >>> job = TrainingJob.from_config("llama-3-8b", 8192, device="H100", n_gpus=64, checkpointing=False)
    >>> totals = training_totals(job, 1e9, price_per_gpu_hour=3.0)
    >>> bool(totals["cost"] == 3.0 * totals["gpu_hours"])
    True
    """
    run = _run_of(job)
    check_number("tokens", tokens, 0, open_low=True)
    row = (predictor or LargeModelPredictor.load()).predict([run]).iloc[0]
    ends = {end: row[f"step_time_s{end}"] * tokens / run.tokens / SECONDS_PER_HOUR for end in ("", "-lo-90", "-hi-90")}
    found = {**_rates(run, row["step_time_s"]), "hours": ends[""]}
    found |= {f"gpu_hours{end}": hours * run.n_gpus for end, hours in ends.items()}
    if price_per_gpu_hour is not None:
        found["cost"] = check_number("price_per_gpu_hour", price_per_gpu_hour, 0) * found["gpu_hours"]
    return pd.Series(found)


def _rates(run: TrainingRun, seconds: float) -> dict[str, float]:
    backward = 1.0 if run.job.adapter is None else (1.0 + run.trained_share) / 2.0
    flops = run.sample_flops * (1.0 + 2.0 * backward) / 3.0 * run.samples / seconds / run.n_gpus
    half = "bf16" if "bf16" in run.job.hardware.precisions else "fp16"
    return {
        "tokens_per_s": run.tokens / seconds,
        "tflops_per_gpu": flops / 1e12,
        "mfu": flops / run.job.hardware.peak(half),
    }


def _run_of(job: TrainingJob) -> TrainingRun:
    if job.run is None:
        raise InputError("layouts are suggested for jobs from a configuration, not for traced networks.")
    job.run.seq_len  # noqa: B018 (raises where it is not known)
    return job.run


def _filled(run: TrainingRun) -> list[TrainingRun]:
    levels: list[Any] = [run.checkpointing] if run.checkpointing is not None else [False, "full"]
    known = [replace(one, optimizer=run.optimizer or "adamw") for one in _batched(run)]
    return [replace(one, checkpointing=level) for one in known for level in levels]


def _batched(run: TrainingRun) -> list[TrainingRun]:
    """The run with each micro-batch that is tried, on a known layout: the stated one, or those that divide the step."""
    job, whole = run.job, 0
    if job.batch_size and not (job.micro_batch or job.accumulate):
        whole = job.batch_size
        run = replace(run, micro_batch=None, accumulate=None, global_batch=whole * (run.layout.data or 1))
    run = with_usual_batch(run)
    sizes = [size for size in run.micro_batches() if run.micro_batch or size in _SIZES]
    return [run.with_batch(size) for size in dict.fromkeys([*sizes, *filter(None, [whole])])]


def _table(runs: Sequence[TrainingRun], predictor: LargeModelPredictor) -> pd.DataFrame:
    costs = predictor.predict(runs) if runs else pd.DataFrame(columns=["step_time_s", "memory_gib"], dtype=float)
    rows = [_row(run, seconds) for run, seconds in zip(runs, costs["step_time_s"], strict=True)]
    names = [*_DEGREES, "sharding", "checkpointing", "micro_batch", "accumulate", "tokens_per_s", "mfu"]
    table = pd.DataFrame(rows, columns=names).assign(memory_gib=costs["memory_gib"], step_time_s=costs["step_time_s"])
    text = {name: table[name].astype(STRING) for name in ("sharding", "checkpointing")}
    return table.assign(**text)


def _row(run: TrainingRun, seconds: float) -> dict[str, Any]:
    rates = _rates(run, seconds)
    return {
        **{name: getattr(run.layout, name) for name in _DEGREES},
        "sharding": run.layout.sharding,
        "checkpointing": run.checkpointing or "none",
        "micro_batch": run.micro_batch,
        "accumulate": run.accumulate,
        **{name: rates[name] for name in ("tokens_per_s", "mfu")},
    }
