"""`LargeModelPredictor`: time and memory of training large models, with intervals."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

from gpudemand._array import STRING, FloatArray, IntArray
from gpudemand._files import read_whole
from gpudemand._validation import InputError, check_choice, check_length, check_number
from gpudemand.cost.job import TrainingRun
from gpudemand.cost.large_candidates import USUAL_LENGTH, candidates, described_choice, likeliest_way
from gpudemand.cost.large_memory import (
    MEMORY_PRIORS,
    READINGS,
    Terms,
    memory_bytes,
    memory_parts,
    memory_terms,
    needed_bytes,
)
from gpudemand.cost.large_time import TIME_PRIORS, step_seconds, time_terms
from gpudemand.cost.memory import MemoryBreakdown
from gpudemand.cost.memory_model import largest_that
from gpudemand.cost.regression import ConformityScores, interval_columns, warn_unlikely
from gpudemand.units import GIB

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
    length = run.length or USUAL_LENGTH
    return [run.n_gpus, run.model.n_active_parameters, length, run.micro_batch or 1, peak, *degrees]


def _options(run: TrainingRun) -> list[float]:
    adapter, sharded = run.job.adapter, run.parallel is not None and run.parallel.shards_parameters
    bits = 16 if adapter is None else adapter.bits
    level = _LEVELS.get(str(run.checkpointing), 0.0)
    return [run.is_quantised, adapter is not None, bits / 16, level, sharded, run.job.offload is not None]


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


Formula = Callable[[Terms, Mapping[str, float]], FloatArray]


class Fitted(NamedTuple):
    """Coefficients by name, and the log effect of each source."""

    coefficients: dict[str, float]
    effects: dict[str, float]


#: Classes of runs, which errors depend on.
CLASSES = ("dense", "adapter", "experts")
#: Generation of GPUs that no measured run is of.
NEW = "new"


class RunClass(NamedTuple):
    """What the error of a run depends on: one of `CLASSES`, and vendor and generation (die) of its GPU."""

    kind: str
    vendor: str
    generation: str


class ErrorScales(NamedTuple):
    """Scale of the log error by class of runs, and what generations of GPUs multiply it by."""

    classes: dict[str, float]
    generations: dict[str, float]
    vendors: dict[str, str]

    def of(self, kinds: Sequence[RunClass]) -> FloatArray:
        """Scale of the log error of each run."""
        return np.array([self.classes[one.kind] * self._factor(one.vendor, one.generation) for one in kinds])

    def _factor(self, vendor: str, generation: str) -> float:
        if (found := self.generations.get(generation)) is not None:
            return found
        own = [factor for name, factor in self.generations.items() if vendor and self.vendors.get(name) == vendor]
        # A vendor that no measured run is of is as the generation that errs most.
        return max(self.generations[NEW], float(np.mean(own)) if own else max(self.generations.values()))


@dataclass
class Target:
    """A fitted formula of one amount: coefficients, scale of the log error by class, and scores of held-out sources."""

    formula: Formula
    priors: dict[str, tuple[float, float]]
    fitted: Fitted = field(default_factory=lambda: Fitted({}, {}))
    scales: ErrorScales = field(default_factory=lambda: ErrorScales({}, {}, {}))
    scores: ConformityScores = field(default_factory=lambda: ConformityScores(np.zeros(1), np.ones(1)))
    own_runs: OwnRuns | None = None

    def log_mean(self, expansion: Any, n: int, formula: Formula | None = None) -> tuple[FloatArray, FloatArray]:
        """Mean and variance over the ways of the log amount of each of `n` runs, by default of what was fitted."""
        rows, weights, terms = expansion
        logs = np.log((formula or self.formula)(terms, self.fitted.coefficients))
        mean = np.bincount(rows, weights * logs, minlength=n)
        variance = np.bincount(rows, weights * (logs - mean[rows]) ** 2, minlength=n)
        return np.asarray(mean, dtype=float), np.asarray(variance, dtype=float)

    def calibrate(self, expansion: Any, kinds: list[RunClass], y: FloatArray, at: FloatArray) -> FloatArray:
        """Take the errors of a few measured amounts, NaN where unknown, of runs with these `coordinates`.

        Returns the amounts that are predicted without.
        """
        known = np.isfinite(y)
        own, (mean, variance) = self.scales.of(kinds), self.log_mean(expansion, len(kinds))
        error = (np.log(y, where=known, out=np.zeros(len(y))) - mean) / own
        self.own_runs = OwnRuns.of(at[known], error[known], (variance / own**2)[known]) if known.any() else None
        return np.exp(mean)

    def predict(
        self,
        expansion: Any,
        kinds: list[RunClass],
        levels: Sequence[float],
        least: FloatArray,
        at: FloatArray | None = None,
    ) -> FloatArray:
        """Amounts and their intervals, shape (n, 1 + 2 n_levels), none below `least`."""
        mean, scale = self._located(expansion, kinds, at)
        return np.maximum(self.scores.intervals(np.exp(mean), scale, levels), least[:, None])

    def probability_below(
        self, expansion: Any, kinds: list[RunClass], limit: FloatArray, at: FloatArray | None, formula: Formula
    ) -> FloatArray:
        """Probability that an amount, which errs as what was fitted, is below a limit."""
        mean, scale = self._located(expansion, kinds, at, formula)
        return self.scores.cdf((np.log(limit) - mean) / scale)

    def _located(
        self, expansion: Any, kinds: list[RunClass], at: FloatArray | None, formula: Formula | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and scale of the log amount, given measured runs where the `coordinates` of these are known."""
        own, (mean, variance) = self.scales.of(kinds), self.log_mean(expansion, len(kinds), formula)
        if self.own_runs is not None and at is not None:
            shift, left = self.own_runs.posterior(at)
            own, mean = own * np.sqrt(left), mean + own * shift
        return mean, np.asarray(np.hypot(own, np.sqrt(variance)))


#: Of a stored predictor.
FORMAT = 4


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
    # Seconds of a GPU for a token, or for a sample of unknown length: the samples a step may be unknown.
    lengths = [run.length for run, found in zip(runs, ways, strict=True) for _ in found]
    units = [one.tokens if length else one.samples for one, length in zip(known, lengths, strict=True)]
    time["tokens"] = [count / one.n_gpus for count, one in zip(units, known, strict=True)]
    weights = np.array([weight for found in ways for weight, _ in found])
    memory = pd.DataFrame(list(map(memory_terms, known)))
    # Who may choose the micro-batch chooses one that fits.
    most = [np.inf if run.micro_batch else run.job.hardware.memory_gib * GIB for run in runs]
    return Expansion(rows, weights, time, memory.assign(most=np.array(most)[rows]))


def seconds_per_token(terms: Terms, coefficients: Mapping[str, float]) -> FloatArray:
    """Seconds of one GPU for a token."""
    return np.asarray(step_seconds(terms, coefficients) / np.asarray(terms["tokens"]))


def classes_of(runs: Sequence[TrainingRun]) -> list[RunClass]:
    """Class of each run, which its error depends on."""
    parts = [(run, run.job.hardware) for run in runs]
    return [RunClass(_class_of(run), part.vendor, part.die or part.architecture) for run, part in parts]


def _class_of(run: TrainingRun) -> str:
    if run.job.adapter is not None:
        return "adapter"
    if run.model.routed_experts:
        return "experts"
    # What is unknown adds the variance over its ways.
    return "dense"


class LargeModelPredictor:
    """Physical formulas of time and memory, their coefficients fitted to public runs."""

    def __init__(self) -> None:
        self.targets = {
            "step_time_s": Target(seconds_per_token, TIME_PRIORS),
            "memory_gib": Target(memory_bytes, MEMORY_PRIORS),
        }

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
        units: tuple[Any, Any] = (np.array([run.units / run.n_gpus for run in known]), 1.0 / GIB)
        for (name, target), amounts, unit in zip(self.targets.items(), measured, units, strict=True):
            warn_unlikely(name, amounts, unit * target.calibrate(ways.of(name), kinds, amounts / unit, at))
        return self

    def predict(
        self, runs: Sequence[TrainingRun], levels: Sequence[float] = (90,), reading: str = "device"
    ) -> pd.DataFrame:
        """Seconds a step and GiB of the fullest GPU, with intervals.

        Of a run whose samples a step are unknown, seconds are of one sample of each replica, its share of a usual step.
        Memory is that of the process on the device, or as PyTorch counts it: ``"allocated"`` or ``"reserved"``.
        """
        ways = expand(runs).as_read(reading)
        units = np.array([run.units / run.n_gpus for run in runs])
        per_unit, held = self.predict_expanded(ways, classes_of(runs), levels, coordinates(runs))
        found = np.column_stack([per_unit * units[:, None], held / GIB])
        return pd.DataFrame(found, columns=interval_columns(self.targets, levels))

    def predict_expanded(
        self, ways: Expansion, kinds: list[RunClass], levels: Sequence[float] = (90,), at: FloatArray | None = None
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
        """Memory of the GPU that holds most, in the likeliest way to fill in what is unknown, which the title names."""
        likeliest = likeliest_way(run)
        coefficients = self.targets["memory_gib"].fitted.coefficients
        found = memory_parts(memory_terms(likeliest), coefficients)
        parts = {name: float(values) / GIB for name, values in found.items()}
        total, context = sum(parts.values()), parts["context"]
        table = pd.DataFrame({"part": pd.Series(list(parts), dtype=STRING), "gib": list(parts.values())})
        title = described_choice(run, likeliest)
        return MemoryBreakdown(table, total - context - parts["fragmentation"], total - context, total, title)

    def max_batch_size(self, run: TrainingRun, probability: float = 0.95) -> int:
        """Samples at once of a replica that fit with a probability, the rest as is likeliest; 0 if not even one."""
        likeliest = likeliest_way(run)

        def fits(size: int) -> bool:
            """Whether a micro-batch fits with the probability."""
            return bool(self.fits([likeliest.with_batch(size, likeliest.accumulate or 1)])[0] >= probability)

        return largest_that(fits, likeliest.micro_batch or 1)

    @classmethod
    def load(cls, path: Path | None = None) -> LargeModelPredictor:
        """Read a stored predictor, by default the bundled one."""
        from gpudemand.datasets.registry import bundled_path

        source, found = path or bundled_path("cost/large_models.json"), cls()
        try:
            content = json.loads(read_whole(source))
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']!r}, and this version reads {FORMAT}")
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


def _from_json(target: Target, content: dict[str, Any]) -> None:
    names = ("coefficients", "effects", "scales", "generations")
    coefficients, effects, classes, generations = (_numbers(content[name]) for name in names)
    vendors = {str(name): str(vendor) for name, vendor in dict(content["vendors"]).items()}
    missing = {*target.priors, *CLASSES, NEW} - {*coefficients, *classes, *generations}
    if missing:
        raise KeyError(", ".join(sorted(missing)))
    scores, weights = (np.array(content[name], dtype=float) for name in ("scores", "weights"))
    if scores.shape != (len(weights),) or not np.isfinite([scores, weights]).all():
        raise ValueError("scores and weights do not belong together")
    target.fitted, target.scales = Fitted(coefficients, effects), ErrorScales(classes, generations, vendors)
    target.scores = ConformityScores(scores, weights)


def _numbers(content: Any) -> dict[str, float]:
    return {name: check_number(name, value) for name, value in dict(content).items()}
