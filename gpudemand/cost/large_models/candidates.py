"""Runs that an incompletely described run may be, with their probabilities: unknown options are marginalised."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError
from gpudemand.cost.large_models.memory import MEMORY_PRIORS, memory_terms, needed_bytes
from gpudemand.cost.large_models.parallel import Parallel
from gpudemand.cost.large_models.run import TrainingRun
from gpudemand.cost.large_models.step_time import TIME_PRIORS, step_seconds, time_terms
from gpudemand.units import GIB

#: Memory that a candidate may need, over that of the device: its estimate is rough, and what ran did fit.
_SLACK = 1.15
#: Odds that a run with fused kernels recomputes whole layers, if nothing is said; others do so or not alike.
_RECOMPUTES = 0.15
#: How AdamW may keep its states, if nothing is said, and the odds; and those of weights in half precision beside
#: states in single precision, as DeepSpeed keeps them on one GPU too.
_ADAMW, _BOTH = {"adamw": 1.0, "adamw_bf16": 0.5, "adamw_8bit": 0.25}, 0.25
#: Odds of an unknown micro-batch to the fastest that fits, a power of their paces: who may choose leaves no GPU idle.
_PACE_ODDS = 4.0
#: Layouts that stay of those that fit, fastest first, and the odds of each to the one before.
_LAYOUTS, _ODDS = 4, 0.5
_NEEDS = {name: mean for name, (mean, _) in MEMORY_PRIORS.items()}
_SPEEDS = {name: mean for name, (mean, _) in TIME_PRIORS.items()}


def candidates(run: TrainingRun) -> list[tuple[float, TrainingRun]]:
    """Probability and run of each way to fill in what is unknown.

    What does not fit into the memory of the device is left out if anything does. Of unknown layouts and micro-batches
    the fastest are the likeliest.

    Parameters
    ----------
    run : TrainingRun

    Returns
    -------
    list of (float, TrainingRun)
        Probabilities sum to 1; a run without unknown options is the only one.
    """
    if run.is_known and not _has_open_states(run):
        return [(1.0, run)]
    layouts = [run] if run.parallel is not None and run.layout.sharding is not None else plausible_layouts(run)
    weights = [_ODDS**place for place in range(len(layouts))]
    found = [
        (weight * odds, one)
        for weight, layout in zip(weights, layouts, strict=True)
        for odds, one in _weighted(_fitting(list(_filled(layout))))
    ]
    total = sum(weight for weight, _ in found)
    return [(weight / total, one) for weight, one in found]


def _weighted(runs: list[TrainingRun]) -> list[tuple[float, TrainingRun]]:
    """Probabilities of runs of one layout, which sum to 1."""
    odds = np.array(
        [
            (_RECOMPUTES if run.is_tuned and run.checkpointing == "full" else 1.0)
            * _ADAMW.get(run.optimizer or "", 1.0)
            * (_BOTH if run.n_gpus == 1 and run.layout.sharding != "none" else 1.0)
            for run in runs
        ]
    )
    if len({run.micro_batch for run in runs}) > 1:
        odds = odds * _pace_odds(runs)
    return list(zip((odds / odds.sum()).tolist(), runs, strict=True))


def _pace_odds(runs: list[TrainingRun]) -> FloatArray:
    """Odds of micro-batches, each to the fastest of the same options."""
    pace = pd.Series(_seconds_per_token(runs))
    options = [str((run.checkpointing, run.optimizer, run.layout)) for run in runs]
    return np.asarray((pace.groupby(options).transform("min") / pace) ** _PACE_ODDS)


def _seconds_per_token(runs: list[TrainingRun]) -> FloatArray:
    pace = step_seconds(pd.DataFrame(list(map(time_terms, runs))), _SPEEDS)
    return np.asarray(pace / [one.tokens for one in runs])


def _has_open_states(run: TrainingRun) -> bool:
    """Whether AdamW may keep its states in several ways; stacks with tensor parallelism keep single precision."""
    return run.optimizer is None and run.adapter is None and not run.is_tuned


def _filled(run: TrainingRun, *, smallest: bool = False) -> Iterator[TrainingRun]:
    """Runs with all unknown options but the layout filled in; of micro-batches the smallest only, if asked."""
    levels = (False, "full") if run.checkpointing is None else (run.checkpointing,)
    optimizers = list(_ADAMW) if _has_open_states(run) else [run.optimizer or "adamw"]
    for optimizer, level, size in itertools.product(optimizers, levels, run.micro_batches()[: 1 if smallest else None]):
        way = replace(run if run.micro_batch else run.with_batch(size), checkpointing=level, optimizer=optimizer)
        yield way
        if run.n_gpus == 1 and optimizer == "adamw" and _has_open_states(run):
            yield replace(way, parallel=Parallel(1, sharding="zero1"))


def _fitting(runs: list[TrainingRun]) -> list[TrainingRun]:
    needed = needed_bytes(pd.DataFrame(list(map(memory_terms, runs))), _NEEDS)
    fit = [run for run, size in zip(runs, needed, strict=True) if size <= _SLACK * run.device.usable_memory_gib * GIB]
    return fit or [runs[int(needed.argmin())]]


def plausible_layouts(run: TrainingRun) -> list[TrainingRun]:
    """The run with each of the fastest layouts that fit, fastest first."""
    ways = [one for layout in layouts_of(run) for one in _filled(layout, smallest=True)]
    if not ways:
        shown = f"micro_batch={run.micro_batch} and global_batch={run.global_batch}"
        raise InputError(f"no usual layout of n_gpus={run.n_gpus} suits {shown}; change one of them, or give parallel.")
    fitting = _fitting(ways)
    order = _seconds_per_token(fitting).argsort(kind="stable")
    found = dict.fromkeys(fitting[place].layout for place in order)
    return [replace(run, parallel=layout) for layout in list(found)[:_LAYOUTS]]


def layouts_of(run: TrainingRun) -> list[TrainingRun]:
    """The run with every layout in the usual degrees: tensor parallelism within a node, pipelines, and sharding.

    Of a run whose degrees are known, with every sharding.
    """
    if run.parallel is not None:
        kinds = ("zero1", "none") if run.layout.pipeline > 1 else ("zero1", "zero2", "zero3", "fsdp", "none")
        return [replace(run, parallel=replace(run.layout, sharding=kind)) for kind in kinds]
    node = int(run.device.node_gpus)
    tensors = [size for size in (1, 2, 4, 8) if size <= min(node, run.n_gpus)]
    pipelines = [size for size in (1, 2, 4, 8, 16) if size <= run.model.depth]
    experts = [1, *(size for size in (8, 16, 32, 64) if run.model.experts and run.model.experts % size == 0)]
    ways = [(t, p, e, "zero1") for t in tensors for p in pipelines for e in experts]
    ways += [(t, 1, 1, "fsdp") for t in tensors] + [(1, 1, 1, "none")]
    return [one for t, p, e, kind in ways if (one := _with_layout(run, Parallel(None, t, p, 1, 1, e, kind)))]


def _with_layout(run: TrainingRun, layout: Parallel) -> TrainingRun | None:
    """The run with a layout; None if it does not suit the model or the GPUs."""
    if run.n_gpus % layout.model:
        return None
    try:
        return replace(run, parallel=layout)
    except InputError:
        return None
