"""`LargeModelPredictor`: time and memory of training large models, with intervals."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.spatial.distance import cdist

from gpudemand._array import STRING, FloatArray, IntArray
from gpudemand._files import read_whole, replace_file
from gpudemand._validation import InputError, check_choice, check_length, check_number
from gpudemand.cost.job import TrainingRun
from gpudemand.cost.large_memory import (
    MEMORY_MEANS,
    MEMORY_PRIORS,
    READINGS,
    memory_bytes,
    memory_parts,
    memory_terms,
    needed_bytes,
)
from gpudemand.cost.large_time import TIME_PRIORS, step_seconds, time_terms
from gpudemand.cost.memory import MemoryBreakdown
from gpudemand.cost.memory_model import largest_that
from gpudemand.cost.parallel import Parallel
from gpudemand.cost.regression import ConformityScores, interval_columns
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
_SPEEDS = {name: mean for name, (mean, _) in TIME_PRIORS.items()}


def candidates(run: TrainingRun) -> list[tuple[float, TrainingRun]]:
    """Probability and run of each way to fill in what is unknown.

    What does not fit into the memory of the device is left out if anything does. Of unknown layouts and micro-batches
    the fastest are the likeliest.
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


def likeliest_way(run: TrainingRun) -> TrainingRun:
    """The likeliest of the `candidates`."""
    return max(candidates(run), key=lambda way: way[0])[1]


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
    return run.optimizer is None and run.job.adapter is None and not run.is_tuned


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
    needed = needed_bytes(pd.DataFrame(list(map(memory_terms, runs))), MEMORY_MEANS)
    fit = [
        run for run, size in zip(runs, needed, strict=True) if size <= _SLACK * run.job.hardware.usable_memory_gib * GIB
    ]
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
    return [run.laid_out(layout) for layout in list(found)[:_LAYOUTS]]


def layouts_of(run: TrainingRun) -> list[TrainingRun]:
    """The run with every layout in the usual degrees: tensor parallelism within a node, pipelines, and sharding.

    Of a run whose degrees are known, with every sharding.
    """
    if run.parallel is not None:
        kinds = ("zero1", "none") if run.layout.pipeline > 1 else ("zero1", "zero2", "zero3", "fsdp", "none")
        return [replace(run, parallel=replace(run.layout, sharding=kind)) for kind in kinds]
    node = int(run.job.hardware.node_gpus)
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
        return run.laid_out(layout)
    except InputError:
        return None


#: Shares of the variance of a standardised log error that all runs of a stack have in common, and that those alike
#: have; the rest is each run's own. Of public projects, some 40 % of the variance is between them.
_COMMON, _ALIKE = 0.3, 0.55
#: Doublings of a size that are as far as one differing option.
_DOUBLINGS = 2.0
_LEVELS = {"selective": 0.5, "full": 1.0}


def coordinates(runs: Sequence[TrainingRun]) -> FloatArray:
    """Sizes (in doublings) and options of runs, shape (n_runs, 13): what makes two of them alike."""
    return np.array([[*np.log2(_sizes(run)) / _DOUBLINGS, *_options(run)] for run in runs], dtype=float)


def _sizes(run: TrainingRun) -> list[float]:
    layout = run.parallel
    degrees = [1, 1] if layout is None else [layout.tensor, layout.pipeline]
    peak = run.job.hardware.peak("fp16")
    return [run.n_gpus, run.model.n_active_parameters, run.seq_len, run.micro_batch or 1, peak, *degrees]


def _options(run: TrainingRun) -> list[float]:
    adapter, sharded = run.job.adapter, run.parallel is not None and run.parallel.shards_parameters
    bits = 16 if adapter is None else adapter.bits
    level = _LEVELS.get(str(run.checkpointing), 0.0)
    return [run.job.precision == "fp8", adapter is not None, bits / 16, level, sharded, run.job.offload is not None]


class OwnRuns(NamedTuple):
    """Gaussian process of standardised log errors, given those of measured runs (`at`: their `coordinates`)."""

    at: FloatArray
    inverse: FloatArray
    errors: FloatArray

    @classmethod
    def of(cls, at: FloatArray, errors: FloatArray, noise: FloatArray) -> OwnRuns:
        """Condition on errors, whose own variance is what runs do not share and `noise`."""
        own = 1.0 - _COMMON - _ALIKE + noise
        return cls(at, np.asarray(np.linalg.inv(_covariance(at, at) + np.diag(own)), dtype=float), errors)

    def posterior(self, at: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean of the standardised error of other runs, and the variance that remains (1 without measured runs)."""
        shared = _covariance(at, self.at) @ self.inverse
        return shared @ self.errors, 1.0 - (shared * _covariance(at, self.at)).sum(axis=1)


def _covariance(one: FloatArray, other: FloatArray) -> FloatArray:
    return np.asarray(_COMMON + _ALIKE * np.exp(-cdist(one, other)))


#: Standard deviations of the logarithm: of a measurement around its source's mean, and of sources (projects differ in
#: software, data and what they call a step).
NOISE, SOURCE = 0.12, 0.2
Formula = Callable[[pd.DataFrame, Mapping[str, float]], FloatArray]


class Fitted(NamedTuple):
    """Coefficients by name, and the log effect of each source."""

    coefficients: dict[str, float]
    effects: dict[str, float]


def fit_coefficients(
    formula: Formula,
    terms: pd.DataFrame,
    weights: FloatArray,
    rows: IntArray,
    y: FloatArray,
    sources: FloatArray,
    priors: Mapping[str, tuple[float, float]],
) -> Fitted:
    """Maximum a posteriori coefficients of a formula: log-normal priors, pseudo-Huber loss, normal source effects.

    `terms`, `weights`, `rows`: of every way in which a measured row may be meant, its probability, and the row.
    `sources`: large ones weigh by the root of their size.
    """
    names, groups = list(priors), pd.factorize(np.asarray(sources))
    mean = np.log([priors[name][0] for name in names])
    spread = np.array([priors[name][1] for name in names])
    share = 1.0 / np.sqrt(np.sqrt(np.bincount(groups[0])))[groups[0]]
    measured = np.log(y)

    def residuals(point: FloatArray) -> FloatArray:
        """Weighted errors in the logarithm, and what the priors say."""
        values = dict(zip(names, np.exp(point[: len(names)]), strict=True))
        effects = point[len(names) :]
        expected = np.bincount(rows, weights * np.log(formula(terms, values)), minlength=len(y))
        error = (measured - expected - effects[groups[0]]) / NOISE
        robust = np.sign(error) * np.sqrt(2.0 * (np.sqrt(1.0 + error**2) - 1.0))
        return np.concatenate([share * robust, (point[: len(names)] - mean) / spread, effects / SOURCE])

    start = np.concatenate([mean, np.zeros(len(groups[1]))])
    found = least_squares(residuals, start, method="trf", max_nfev=40).x
    coefficients = dict(zip(names, np.exp(found[: len(names)]).tolist(), strict=True))
    return Fitted(coefficients, dict(zip(map(str, groups[1]), found[len(names) :].tolist(), strict=True)))


#: Classes of runs, which errors depend on.
CLASSES = ("known", "part unknown", "adapter", "experts")


@dataclass
class Target:
    """A fitted formula of one amount: coefficients, scale of the log error by class, and scores of held-out sources."""

    formula: Formula
    priors: dict[str, tuple[float, float]]
    fitted: Fitted = field(default_factory=lambda: Fitted({}, {}))
    scales: dict[str, float] = field(default_factory=dict)
    scores: ConformityScores = field(default_factory=lambda: ConformityScores(np.zeros(1), np.ones(1)))
    own_runs: OwnRuns | None = None

    def log_mean(self, expansion: Any, n: int, formula: Formula | None = None) -> tuple[FloatArray, FloatArray]:
        """Mean and variance over the ways of the log amount of each of `n` runs, by default of what was fitted."""
        rows, weights, terms = expansion
        logs = np.log((formula or self.formula)(terms, self.fitted.coefficients))
        mean = np.bincount(rows, weights * logs, minlength=n)
        variance = np.bincount(rows, weights * (logs - mean[rows]) ** 2, minlength=n)
        return np.asarray(mean, dtype=float), np.asarray(variance, dtype=float)

    def fit(self, expansion: tuple[IntArray, FloatArray, pd.DataFrame], y: FloatArray, about: pd.DataFrame) -> None:
        """Fit to measured amounts; intervals are about sources that are not in the training data.

        `expansion`: rows, weights and terms of the ways. `about`: ``source`` and ``class`` of each row.
        """
        known = np.isfinite(y)
        source = about["source"].to_numpy(dtype=object)
        error, spread = np.full(len(y), np.nan), np.zeros(len(y))
        for name in pd.unique(source[known]):
            out = source == name
            self.fitted = self._fit(expansion, y, source, known & ~out)
            mean, variance = self.log_mean(expansion, len(y))
            error[out], spread[out] = (np.log(y) - mean)[out], variance[out]
        self.fitted = self._fit(expansion, y, source, known)
        kinds = about["class"].to_numpy(dtype=object)[known]
        # What a source has of one class of runs is one draw: few of its rows may be of a class, and err alike.
        groups = pd.factorize(pd.MultiIndex.from_arrays([kinds, source[known]]))[0]
        self.scales = _scales(error[known], spread[known], kinds, groups)
        scale = np.hypot(self._own(kinds), np.sqrt(spread[known]))
        self.scores = ConformityScores.from_few_groups(error[known] / scale, groups)

    def _fit(self, expansion: tuple[IntArray, FloatArray, pd.DataFrame], y: Any, source: Any, use: Any) -> Fitted:
        rows, weights, terms = expansion
        place = np.cumsum(use) - 1
        ways = use[rows]
        chosen = (terms[ways], weights[ways], place[rows[ways]])
        return fit_coefficients(self.formula, *chosen, y[use], source[use], self.priors)

    def _own(self, kinds: Any) -> FloatArray:
        """Scale of the log error of runs by their classes."""
        return np.array([self.scales[kind] for kind in kinds])

    def calibrate(self, expansion: Any, kinds: list[str], y: FloatArray, at: FloatArray) -> None:
        """Take the errors of a few measured amounts, NaN where unknown, of runs with these `coordinates`."""
        known = np.isfinite(y)
        own, (mean, variance) = self._own(kinds), self.log_mean(expansion, len(kinds))
        error = (np.log(y, where=known, out=np.zeros(len(y))) - mean) / own
        self.own_runs = OwnRuns.of(at[known], error[known], (variance / own**2)[known]) if known.any() else None

    def predict(
        self, expansion: Any, kinds: list[str], levels: Sequence[float], least: FloatArray, at: FloatArray | None = None
    ) -> FloatArray:
        """Amounts and their intervals, shape (n, 1 + 2 n_levels), none below `least`."""
        mean, scale = self._located(expansion, kinds, at)
        return np.maximum(self.scores.intervals(np.exp(mean), scale, levels), least[:, None])

    def probability_below(
        self, expansion: Any, kinds: list[str], limit: FloatArray, at: FloatArray | None, formula: Formula
    ) -> FloatArray:
        """Probability that an amount, which errs as what was fitted, is below a limit."""
        mean, scale = self._located(expansion, kinds, at, formula)
        return self.scores.cdf((np.log(limit) - mean) / scale)

    def _located(
        self, expansion: Any, kinds: list[str], at: FloatArray | None, formula: Formula | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and scale of the log amount, given measured runs where the `coordinates` of these are known."""
        own, (mean, variance) = self._own(kinds), self.log_mean(expansion, len(kinds), formula)
        if self.own_runs is not None and at is not None:
            shift, left = self.own_runs.posterior(at)
            own, mean = own * np.sqrt(left), mean + own * shift
        return mean, np.asarray(np.hypot(own, np.sqrt(variance)))


def _scales(error: FloatArray, spread: FloatArray, kinds: Any, groups: IntArray) -> dict[str, float]:
    """Scale of the held-out log errors by class beyond the spread over the ways.

    Mean over the groups of a class, and one more as the mean of all groups: a prior worth one observation (Kass and
    Wasserman, J. Am. Stat. Assoc. 90, 1995).
    """
    each = pd.DataFrame({"kind": kinds, "square": error**2 - spread}).groupby(groups)
    scale = np.sqrt(each["square"].mean().clip(lower=(NOISE / 2) ** 2)).to_numpy()
    of, pooled = each["kind"].first().to_numpy(), scale.mean()
    return {kind: float(np.append(scale[of == kind], pooled).mean()) for kind in CLASSES}


_FORMAT = 1


class Expansion(NamedTuple):
    """Ways in which runs may be meant: their run, their probability, and their terms of time and memory."""

    rows: IntArray
    weights: FloatArray
    time: pd.DataFrame
    memory: pd.DataFrame

    def of(self, target: str) -> tuple[IntArray, FloatArray, pd.DataFrame]:
        """Rows, probabilities and the terms of one target."""
        return self.rows, self.weights, self.time if target == "step_time_s" else self.memory

    def smallest(self, values: pd.Series, n: int) -> FloatArray:
        """Least value over the ways of each of `n` runs."""
        found = np.full(n, np.inf)
        np.minimum.at(found, self.rows, values.to_numpy(dtype=float))
        return found

    def as_read(self, readings: Sequence[str] | str) -> Expansion:
        """Memory as a reading of `READINGS` counts it, one for all runs or one each."""
        each = [readings if isinstance(readings, str) else readings[row] for row in self.rows]
        counted = [READINGS[check_choice("reading", name, READINGS)] for name in each]
        allocator, process = np.reshape(np.array(counted, dtype=float), (-1, 2)).T
        return self._replace(memory=self.memory.assign(allocator=allocator, process=process))


def expand(runs: Sequence[TrainingRun]) -> Expansion:
    """Fill in what is unknown of each run and take the terms of all; see `candidates`."""
    ways = [candidates(run) for run in runs]
    known = [one for found in ways for _, one in found]
    rows = np.repeat(np.arange(len(runs)), [len(found) for found in ways])
    time = pd.DataFrame(list(map(time_terms, known)))
    # Seconds of a GPU for a token: the samples a step may be unknown.
    time["tokens"] = [one.tokens / one.n_gpus for one in known]
    weights = np.array([weight for found in ways for weight, _ in found])
    memory = pd.DataFrame(list(map(memory_terms, known)))
    # Who may choose the micro-batch chooses one that fits.
    most = [np.inf if run.micro_batch else run.job.hardware.memory_gib * GIB for run in runs]
    return Expansion(rows, weights, time, memory.assign(most=np.array(most)[rows]))


def seconds_per_token(terms: pd.DataFrame, coefficients: Any) -> FloatArray:
    """Seconds of one GPU for a token."""
    return np.asarray(step_seconds(terms, coefficients) / terms["tokens"].to_numpy(dtype=float))


def classes_of(runs: Sequence[TrainingRun]) -> list[str]:
    """Class of each run, which its error depends on."""
    return list(map(_class_of, runs))


def _class_of(run: TrainingRun) -> str:
    if run.job.adapter is not None:
        return "adapter"
    if run.model.experts:
        return "experts"
    return "known" if run.is_known else "part unknown"


class LargeModelPredictor:
    """Physical formulas of time and memory, their coefficients fitted to public runs."""

    def __init__(self) -> None:
        self.targets = {
            "step_time_s": Target(seconds_per_token, TIME_PRIORS),
            "memory_gib": Target(memory_bytes, MEMORY_PRIORS),
        }

    def fit(self, runs: Sequence[TrainingRun], costs: pd.DataFrame, sources: Any) -> LargeModelPredictor:
        """Fit to measured runs; intervals are about projects that are not among the sources.

        `costs`: ``seconds_per_token`` of a GPU, and ``memory_gib``; NaN where unknown.
        """
        ways = expand(runs)
        return self.fit_expanded(ways, costs, pd.DataFrame({"source": np.asarray(sources), "class": classes_of(runs)}))

    def fit_expanded(self, ways: Expansion, costs: pd.DataFrame, about: pd.DataFrame) -> LargeModelPredictor:
        """As `fit`, from the terms of `expand`; `about` has ``source`` and ``class`` of each run."""
        seconds, memory = (costs[name].to_numpy(dtype=float) for name in ("seconds_per_token", "memory_gib"))
        for (name, target), amounts in zip(self.targets.items(), (seconds, memory * GIB), strict=True):
            target.fit(ways.of(name), amounts, about)
        return self

    def calibrate(
        self, runs: Sequence[TrainingRun | None], step_time_s: Any = None, memory_gib: Any = None
    ) -> LargeModelPredictor:
        """Learn how one's own stack differs from the public ones; see `CostModel.calibrate`."""
        known = [run for run in runs if run is not None]
        if len(known) < len(runs):
            raise InputError("calibrate with traced networks, without memory_gib, or with jobs from a configuration.")
        measured = [
            _measured(name, values, len(runs))
            for name, values in zip(self.targets, (step_time_s, memory_gib), strict=True)
        ]
        ways, kinds, at = expand(known), classes_of(known), coordinates(known)
        units: tuple[Any, Any] = (np.array([run.tokens / run.n_gpus for run in known]), 1.0 / GIB)
        for (name, target), amounts, unit in zip(self.targets.items(), measured, units, strict=True):
            target.calibrate(ways.of(name), kinds, amounts / unit, at)
        return self

    def predict(
        self, runs: Sequence[TrainingRun], levels: Sequence[float] = (90,), reading: str = "device"
    ) -> pd.DataFrame:
        """Seconds a step and GiB of the fullest GPU, with intervals.

        Of a run whose samples a step are unknown, a step is one sample of each replica. Memory is that of the process
        on the device, or as PyTorch counts it: ``"allocated"`` or ``"reserved"``.
        """
        ways = expand(runs).as_read(reading)
        tokens = np.array([run.tokens / run.n_gpus for run in runs])
        per_token, held = self.predict_expanded(ways, classes_of(runs), levels, coordinates(runs))
        found = np.column_stack([per_token * tokens[:, None], held / GIB])
        return pd.DataFrame(found, columns=interval_columns(self.targets, levels))

    def predict_expanded(
        self, ways: Expansion, kinds: list[str], levels: Sequence[float] = (90,), at: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Seconds of a GPU for a token, and bytes, each with its intervals, from the terms of `expand`.

        With the `coordinates` of the runs, given the runs that the predictor is calibrated with.
        """
        bound = ways.time["bound"] * ways.time["micro_batches"] / ways.time["tokens"]
        resident = ways.memory["parameters"] + ways.memory["states"]
        time, held = (
            target.predict(ways.of(name), kinds, levels, ways.smallest(least, len(kinds)), at)
            for (name, target), least in zip(self.targets.items(), (bound, resident), strict=True)
        )
        most = ways.smallest(ways.memory["most"], len(kinds))
        held[:, 2::2] = np.minimum(held[:, 2::2], np.maximum(most, held[:, 0])[:, None])
        return time, held

    def fits(self, runs: Sequence[TrainingRun]) -> FloatArray:
        """Probability that each run fits into the memory of its device."""
        return self.fits_expanded(expand(runs), runs)

    def fits_expanded(self, ways: Expansion, runs: Sequence[TrainingRun]) -> FloatArray:
        """As `fits`, from the terms of `expand`."""
        limit = np.array([run.job.hardware.usable_memory_gib * GIB for run in runs])
        name, at = "memory_gib", coordinates(runs)
        found = self.targets[name].probability_below(ways.of(name), classes_of(runs), limit, at, needed_bytes)
        resident = ways.smallest(ways.memory["parameters"] + ways.memory["states"], len(runs))
        return np.where(resident > limit, 0.0, found)

    def breakdown(self, run: TrainingRun) -> MemoryBreakdown:
        """Memory of the GPU that holds most, in the likeliest way to fill in what is unknown."""
        likeliest = likeliest_way(run)
        coefficients = self.targets["memory_gib"].fitted.coefficients
        found = memory_parts(pd.DataFrame([memory_terms(likeliest)]), coefficients)
        parts = {name: float(values[0]) / GIB for name, values in found.items()}
        total, context = sum(parts.values()), parts["context"]
        table = pd.DataFrame({"part": pd.Series(list(parts), dtype=STRING), "gib": list(parts.values())})
        return MemoryBreakdown(table, total - context - parts["fragmentation"], total - context, total, str(likeliest))

    def max_batch_size(self, run: TrainingRun, probability: float = 0.95) -> int:
        """Samples at once of each replica that fit with a probability, whatever its own; 0 if not even one does.

        What else is unknown is as in the likeliest way to fill it in.
        """
        likeliest = likeliest_way(run)

        def fits(size: int) -> bool:
            """Whether a micro-batch fits with the probability."""
            return bool(self.fits([likeliest.with_batch(size, likeliest.accumulate or 1)])[0] >= probability)

        return largest_that(fits, likeliest.micro_batch or 1)

    def save(self, path: Path) -> None:
        """Write as JSON."""
        content = {name: _to_json(target) for name, target in self.targets.items()}
        with replace_file(path) as new:
            new.write_text(json.dumps({"format": _FORMAT, **content}, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path | None = None) -> LargeModelPredictor:
        """Read what `save` wrote; by default the bundled predictor."""
        from gpudemand.datasets.registry import bundled_path

        source, found = path or bundled_path("cost/large_models.json"), cls()
        try:
            content = json.loads(read_whole(source))
            if content["format"] != _FORMAT:
                raise ValueError(f"its format is {content['format']!r}, and this version reads {_FORMAT}")
            for name, target in found.targets.items():
                _from_json(target, content[name])
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise InputError(
                f"{source.name} holds no predictor of large models that is known here: {error}."
            ) from error
        return found


def _measured(name: str, given: Any, n: int) -> FloatArray:
    """Positive amounts of `n` runs, NaN where unknown."""
    values = np.atleast_1d(np.full(n, np.nan) if given is None else np.asarray(given, dtype=float))
    check_length(name, values, n)
    if not (np.isnan(values) | ((values > 0) & np.isfinite(values))).all():
        raise InputError(f"{name} must be positive, or NaN where it is unknown; got {values.tolist()}.")
    return values


def _to_json(target: Target) -> dict[str, Any]:
    return {
        "coefficients": target.fitted.coefficients,
        "effects": target.fitted.effects,
        "scales": target.scales,
        "scores": np.round(target.scores.scores, 5).tolist(),
        "weights": np.round(target.scores.weights, 7).tolist(),
    }


def _from_json(target: Target, content: dict[str, Any]) -> None:
    coefficients, effects, scales = (_numbers(content[name]) for name in ("coefficients", "effects", "scales"))
    missing = {*target.priors, *CLASSES} - {*coefficients, *scales}
    if missing:
        raise KeyError(", ".join(sorted(missing)))
    scores, weights = (np.array(content[name], dtype=float) for name in ("scores", "weights"))
    if scores.shape != (len(weights),) or not np.isfinite([scores, weights]).all():
        raise ValueError("scores and weights do not belong together")
    target.fitted, target.scales = Fitted(coefficients, effects), scales
    target.scores = ConformityScores(scores, weights)


def _numbers(content: Any) -> dict[str, float]:
    return {name: check_number(name, value) for name, value in dict(content).items()}
