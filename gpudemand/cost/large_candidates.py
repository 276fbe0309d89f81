"""Ways to fill in what a run of a large model does not say, and their odds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray
from gpudemand._validation import InputError
from gpudemand.cost.job import TrainingJob, TrainingRun
from gpudemand.cost.large_memory import MEMORY_MEANS, fuses_loss, memory_terms, needed_bytes
from gpudemand.cost.large_time import TIME_PRIORS, USUAL_YEAR, step_seconds, time_terms
from gpudemand.cost.parallel import Parallel
from gpudemand.units import GIB

#: What may be recomputed, without and with fused kernels; the whole of a layer with these only where nothing else fits.
_LEVELS: tuple[tuple[bool | str, ...], ...] = ((False, "full"), (False, "selective", "full"))
#: States of an optimizer that is not known, the usual first; those in half precision where these do not fit.
_STATES = ("adamw", "adamw_bf16")
#: Shares among public projects that state it, as ``python -m benchmarks.cost.llm`` counts them: GPUs that share the
#: experts, whether a pipeline is interleaved, and tokens of a sample.
_SEEN: dict[str, dict[int, float]] = {
    "expert": {1: 0.1, 2: 0.17, 4: 0.02, 8: 0.53, 16: 0.01, 32: 0.07, 64: 0.1},
    "interleaved": {0: 0.15, 1: 0.85},
    "length": {512: 0.07, 1024: 0.08, 2048: 0.22, 4096: 0.33, 8192: 0.2, 16384: 0.04},
}
#: Tokens a step of trainings on one GPU, the power of the number of GPUs by which they grow, and the doublings by which
#: a project held out is off, as ``python -m benchmarks.cost.trainings`` fits them to those that state their batch.
#: Given the GPUs, the size of the model says no more.
BATCH_TOKENS, BATCH_POWER, BATCH_DOUBLINGS = 71_000.0, 0.68, 1.28
#: Weight and standardised place of the points of a normal distribution, exact to its fifth moment (Gauss and Hermite).
_POINTS = ((1.0 / 6.0, -math.sqrt(3.0)), (2.0 / 3.0, 0.0), (1.0 / 6.0, math.sqrt(3.0)))
#: The commonest of the lengths.
USUAL_LENGTH = max(_SEEN["length"], key=lambda size: _SEEN["length"][size])
#: Layouts that stay of those that fit, the fastest.
_LAYOUTS = 4
_SPEEDS = {name: mean for name, (mean, _) in TIME_PRIORS.items()}


def candidates(run: TrainingRun) -> list[tuple[float, TrainingRun]]:
    """Probability and run of each way to fill in what is unknown.

    What does not fit into the memory of the device is left out if anything does. Layouts are the fastest, degrees as
    frequent as in public projects, and micro-batches weighed by their speed: who may choose leaves no GPU idle.
    """
    if run.length is None:
        return [(share * odds, way) for share, one in _with_lengths(run) for odds, way in candidates(one)]
    if run.is_known and not _has_open_states(run):
        return [(1.0, run)]
    return [(share * odds, way) for share, tokens in _batches(run) for odds, way in _of_batch(run, tokens)]


def _of_batch(run: TrainingRun, tokens: float) -> list[tuple[float, TrainingRun]]:
    """Probability and run of each way, with about so many tokens a step where these are unknown."""
    stated = run.parallel is not None and run.layout.sharding is not None
    layouts = [_with_tokens(run, tokens)] if stated else plausible_layouts(run, tokens)
    each = [_fitting([way for one in _with_degrees(layout) for way in _filled(one)]) for layout in layouts]
    return [(odds / len(layouts), one) for runs in each for odds, one in _weighted(_plainest(runs))]


def _with_lengths(run: TrainingRun) -> list[tuple[float, TrainingRun]]:
    """The run on samples of each usual length that its model takes, and the share of projects with such samples."""
    most = run.model.longest or np.inf
    lengths = {size: share for size, share in _SEEN["length"].items() if size <= most} or {run.model.longest: 1.0}
    total = sum(lengths.values())
    return [(share / total, run.with_length(size)) for size, share in lengths.items()]


def _batches(run: TrainingRun) -> list[tuple[float, float]]:
    """Weights and tokens of usual steps on so many GPUs, where the samples a step are unknown."""
    if not run.has_open_batch:
        return [(1.0, math.nan)]
    return [(share, _usual_tokens(run) * 2.0 ** (place * BATCH_DOUBLINGS)) for share, place in _POINTS]


def _usual_tokens(run: TrainingRun) -> float:
    """Tokens of the median step of trainings on so many GPUs."""
    return float(BATCH_TOKENS * run.n_gpus**BATCH_POWER)


def with_usual_batch(run: TrainingRun) -> TrainingRun:
    """The run, laid out, with the samples of a usual step where these are unknown."""
    return _with_tokens(run, _usual_tokens(run))


def _with_tokens(run: TrainingRun, tokens: float) -> TrainingRun:
    """The run, laid out, with about so many tokens a step where these are unknown; micro-batches a power of two."""
    if not run.has_open_batch:
        return run
    at_once = (run.layout.data or 1) * (run.micro_batch or 1)
    times = 2 ** max(round(math.log2(tokens / at_once / (run.source_len or run.seq_len))), 0)
    return replace(run, accumulate=run.micro_batch and times, global_batch=times * at_once)


def _with_degrees(run: TrainingRun) -> list[TrainingRun]:
    """The run with all usual degrees that are unknown: of expert parallelism, and of interleaving its pipeline."""
    layout, model = run.layout, run.model
    sharing = (layout.data or 1) * layout.context * layout.tensor
    plain = run.job.kernels == "plain" or (layout.shards_parameters and not run.is_tuned)
    experts = [
        size
        for size in _SEEN["expert"]
        if size == 1 or (not plain and sharing % size == model.routed_experts % size == 0)
    ]
    # Parts of a few layers: the more of them, the shorter the bubble.
    parts = [1, *(size for size in (model.depth // layout.pipeline,) if size > 1)]
    chosen = itertools.product(
        experts if layout.expert is None else [layout.expert],
        parts if layout.virtual_pipeline is None else [layout.virtual_pipeline],
    )
    return [run.laid_out(replace(layout, expert=expert, virtual_pipeline=virtual)) for expert, virtual in chosen]


def _degree_odds(run: TrainingRun) -> float:
    """Share of public projects whose runs have degrees such as these."""
    layout, odds = run.layout, 1.0
    if run.model.routed_experts:
        odds *= _SEEN["expert"].get(layout.expert_degree, 1.0)
    if layout.pipeline > 1:
        odds *= _SEEN["interleaved"][layout.virtual_degree > 1]
    return odds


def likeliest_way(run: TrainingRun) -> TrainingRun:
    """The likeliest of the `candidates`."""
    return max(candidates(run), key=lambda way: way[0])[1]


#: Options that may be unknown -> their value in a way to fill them in.
_ASSUMED: dict[str, Callable[[TrainingRun], Any]] = {
    "seq_len": lambda way: way.seq_len,
    "tensor parallel": lambda way: way.layout.tensor,
    "pipeline": lambda way: way.layout.pipeline,
    "expert parallel": lambda way: way.layout.expert_degree,
    "expert tensor parallel": lambda way: way.layout.expert_tensor_degree if way.model.routed_experts else 1,
    "interleaving": lambda way: way.layout.virtual_degree,
    "sharding": lambda way: way.layout.sharding,
    "micro-batch": lambda way: way.micro_batch,
    "global batch": lambda way: way.global_batch,
}
#: Those whose weights are shares of public projects.
_COUNTED = ("seq_len", "expert parallel", "interleaving")
#: Options that follow from others where a job leaves them out -> its value for them, and that of a way.
_IMPLIED: dict[str, tuple[Callable[[TrainingJob], Any], Callable[[TrainingRun], Any]]] = {
    "expert tensor parallel": (lambda job: _stated_expert_tensor(job), _ASSUMED["expert tensor parallel"]),
    "checkpointing": (lambda job: job.checkpointing, lambda way: way.checkpointing or "none"),
    "optimizer": (lambda job: job.optimizer, lambda way: way.optimizer or "adamw"),
    "kernels": (lambda job: job.kernels, lambda way: "fused" if way.is_tuned else "plain"),
    "FlashAttention": (
        lambda job: None if job.attention == "flash" else job.attention,
        lambda way: way.flash_version,
    ),
    "experts": (
        lambda job: job.experts if job.model.routed_experts else "none",
        lambda way: "loop" if way.loops_over_experts else "grouped",
    ),
    "loss": (lambda job: job.cross_entropy, lambda way: "fused" if fuses_loss(way) else "plain"),
    "stack_year": (lambda job: job.stack_year, lambda way: round(USUAL_YEAR)),
}


def _stated_expert_tensor(job: TrainingJob) -> str | None:
    layout = job.run.parallel if job.run is not None else None
    assumed = layout is not None and job.model.routed_experts and layout.assumes_expert_tensor
    return None if assumed else "stated"


def assumptions(run: TrainingRun) -> list[str]:
    """What is assumed of a run that does not say it, with its share of public projects or its weight if not certain.

    >>> from gpudemand.cost.job import TrainingJob
    >>> layout = Parallel(pipeline=8, tensor=2, sharding="zero1")
    >>> about = {"micro_batch": 1, "global_batch": 64, "checkpointing": False, "parallel": layout}
    >>> for line in assumptions(TrainingJob.from_config("mixtral-8x7b", 4096, device="H100", n_gpus=64, **about).run):
    ...     print(line)
    expert parallel 8, seen in 65 % of such runs
    expert tensor parallel 1, at a weight of 65 %
    interleaving 4, seen in 85 % of such runs
    optimizer adamw, as usual with the rest
    kernels fused, as usual with the rest
    FlashAttention 3, as usual with the rest
    experts grouped, as usual with the rest
    loss fused, as usual with the rest
    stack_year 2024, as usual with the rest
    """
    ways = candidates(run)
    weights = pd.Series([weight for weight, _ in ways])
    implied, found = _implied(run), []
    for name, value in {**_ASSUMED, **implied}.items():
        values = pd.Series([value(way) for _, way in ways], dtype=object)  # a list of None names the index
        shares = weights.groupby(values, sort=False).sum()
        if len(shares) > 1:
            share = f"{100 * shares.max():.0f} %"
            found.append(
                f"{name} {shares.idxmax()}, "
                + (f"seen in {share} of such runs" if name in _COUNTED else f"at a weight of {share}")
            )
        elif name in implied:
            found.append(f"{name} {shares.index[0]}, as usual with the rest")
    return found


def _implied(run: TrainingRun) -> dict[str, Callable[[TrainingRun], Any]]:
    """Options of `_IMPLIED` that the job leaves out -> their value in a way to fill them in."""
    return {name: value for name, (stated, value) in _IMPLIED.items() if stated(run.job) is None}


def described_choice(run: TrainingRun, chosen: TrainingRun) -> str:
    """A way to fill in a run, and by what it differs from other `candidates`.

    >>> job = TrainingJob.from_config("gpt2", 1024, device="H100", micro_batch=8, optimizer="adamw")
    >>> described_choice(job.run, likeliest_way(job.run))
    'gpt2 on 1024 tokens: 8 at once x 1, adamw, bf16, H100 SXM5; likeliest of 2 ways: checkpointing none'
    """
    ways = [way for _, way in candidates(run)]
    options = {**_ASSUMED, **_implied(run)}.items()
    open_ones = [f"{name} {value(chosen)}" for name, value in options if len(set(map(value, ways))) > 1]
    return f"{chosen}; likeliest of {len(ways)} ways: {', '.join(open_ones)}" if open_ones else str(chosen)


def _weighted(runs: list[TrainingRun]) -> list[tuple[float, TrainingRun]]:
    """Probabilities of runs of one layout, which sum to 1: shares of its degrees, times speeds of micro-batches."""
    speed = 1.0 / pd.Series(_seconds_per_token(runs))
    odds = speed / speed.groupby([str(run.layout) for run in runs]).transform("sum") * list(map(_degree_odds, runs))
    return list(zip((odds / odds.sum()).tolist(), runs, strict=True))


def _seconds_per_token(runs: list[TrainingRun]) -> FloatArray:
    pace = step_seconds(pd.DataFrame(list(map(time_terms, runs))), _SPEEDS)
    return np.asarray(pace / [one.tokens for one in runs])


def _has_open_states(run: TrainingRun) -> bool:
    """Whether AdamW may keep its states in several ways; stacks with tensor parallelism keep single precision."""
    return run.optimizer is None and run.job.adapter is None and not run.is_tuned


def _filled(run: TrainingRun, *, smallest: bool = False) -> Iterator[TrainingRun]:
    """Runs with all unknown options but the layout filled in; of micro-batches the smallest only, if asked."""
    levels = _LEVELS[run.is_tuned] if run.checkpointing is None else (run.checkpointing,)
    states = _STATES if _has_open_states(run) else (run.optimizer or "adamw",)
    for optimizer, level, size in itertools.product(states, levels, run.micro_batches()[: 1 if smallest else None]):
        yield replace(run if run.micro_batch else run.with_batch(size), checkpointing=level, optimizer=optimizer)


def _plainest(runs: list[TrainingRun]) -> list[TrainingRun]:
    """Those of the runs with the usual states and, if there are any, without what only a lack of memory asks for."""
    ranks = [(run.optimizer == _STATES[1], run.is_tuned and run.checkpointing == "full") for run in runs]
    return [run for run, rank in zip(runs, ranks, strict=True) if rank == min(ranks)]


def _fitting(runs: list[TrainingRun]) -> list[TrainingRun]:
    needed = needed_bytes(pd.DataFrame(list(map(memory_terms, runs))), MEMORY_MEANS)
    fit = [run for run, size in zip(runs, needed, strict=True) if size <= run.job.hardware.usable_memory_gib * GIB]
    return fit or [runs[int(needed.argmin())]]


def plausible_layouts(run: TrainingRun, tokens: float) -> list[TrainingRun]:
    """The run with each of the fastest layouts that fit, fastest first; `tokens` a step where these are unknown."""
    laid = {one.layout: _with_tokens(one, tokens) for one in layouts_of(run)}
    ways = [one for layout in laid.values() for one in _filled(layout, smallest=True)]
    if not ways:
        shown = f"micro_batch={run.micro_batch} and global_batch={run.global_batch}"
        raise InputError(f"no usual layout of n_gpus={run.n_gpus} suits {shown}; change one of them, or give parallel.")
    fitting = _fitting(ways)
    order = _seconds_per_token(fitting).argsort(kind="stable")
    found = dict.fromkeys(fitting[place].layout for place in order)
    return [laid[layout] for layout in list(found)[:_LAYOUTS]]


def layouts_of(run: TrainingRun) -> list[TrainingRun]:
    """The run in all layouts of usual degrees, tensors within a node; if degrees are known, with every sharding."""
    if run.parallel is not None:
        kinds = ("zero1", "none") if run.layout.pipeline > 1 else ("zero1", "zero2", "zero3", "fsdp", "none")
        return [replace(run, parallel=replace(run.layout, sharding=kind)) for kind in kinds]
    node = int(run.job.hardware.node_gpus)
    tensors = [size for size in (1, 2, 4, 8) if size <= min(node, run.n_gpus)]
    pipelines = [size for size in (1, 2, 4, 8, 16) if size <= run.model.depth]
    experts = [
        1,
        *(size for size in (8, 16, 32, 64) if run.model.routed_experts and run.model.routed_experts % size == 0),
    ]
    ways = [(t, p, e, "zero1") for t in tensors for p in pipelines for e in experts]
    ways += [(t, 1, 1, "fsdp") for t in tensors] + [(1, 1, 1, "none")]
    return [one for t, p, e, kind in ways if (one := _with_layout(run, Parallel(None, t, p, 1, 1, e, kind)))]


def _with_layout(run: TrainingRun, layout: Parallel) -> TrainingRun | None:
    """The run with a layout; None if it does not suit the model or the GPUs."""
    if run.n_gpus % layout.model:
        return None
    try:
        return run.laid_out(layout)
    except InputError:
        return None
