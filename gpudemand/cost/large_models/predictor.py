"""`LargeModelPredictor`: time and memory of training runs of large models, with intervals over stacks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gpudemand._atomic import replace_file
from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.cost.large_models.candidates import candidates
from gpudemand.cost.large_models.fitting import NOISE, Fitted, Formula, fit_coefficients
from gpudemand.cost.large_models.memory import MEMORY_PRIORS, memory_bytes, memory_terms
from gpudemand.cost.large_models.run import TrainingRun
from gpudemand.cost.large_models.step_time import TIME_PRIORS, step_seconds, time_terms
from gpudemand.cost.regression.conformal import ConformityScores
from gpudemand.units import GIB

#: Rows of held-out errors that the prior scale of a class of runs is worth.
_SCALE_ROWS = 10.0
#: Log error from which on errors count no more for the scale.
_LARGEST = 0.5
_FORMAT = 1


class Expansion(NamedTuple):
    """Ways in which runs may be meant: their run, their probability, and their terms of time and memory."""

    rows: IntArray
    weights: FloatArray
    time: pd.DataFrame
    memory: pd.DataFrame


def expand(runs: Sequence[TrainingRun]) -> Expansion:
    """Fill in what is unknown of each run and take the terms of all; see `candidates`."""
    ways = [candidates(run) for run in runs]
    known = [one for found in ways for _, one in found]
    rows = np.repeat(np.arange(len(runs)), [len(found) for found in ways])
    time = pd.DataFrame(list(map(time_terms, known)))
    # Seconds of a GPU for a token: the samples a step may be unknown.
    time["tokens"] = [one.tokens / one.n_gpus for one in known]
    weights = np.array([weight for found in ways for weight, _ in found])
    return Expansion(rows, weights, time, pd.DataFrame(list(map(memory_terms, known))))


def seconds_per_token(terms: pd.DataFrame, coefficients: Any) -> FloatArray:
    """Seconds of one GPU for a token."""
    return np.asarray(step_seconds(terms, coefficients) / terms["tokens"].to_numpy(dtype=float))


def classes_of(runs: Sequence[TrainingRun]) -> list[str]:
    """Class of each run, which its error depends on."""
    return [
        "adapter"
        if run.adapter is not None
        else "experts"
        if run.model.experts
        else "known"
        if run.is_known
        else "part unknown"
        for run in runs
    ]


@dataclass
class Target:
    """A fitted formula of one amount: coefficients, scale of the log error by class, and scores of held-out sources."""

    formula: Formula
    priors: dict[str, tuple[float, float]]
    fitted: Fitted = field(default_factory=lambda: Fitted({}, {}))
    scales: dict[str, float] = field(default_factory=dict)
    scores: ConformityScores = field(default_factory=lambda: ConformityScores(np.zeros(1), np.ones(1)))

    def log_mean(self, expansion: tuple[IntArray, FloatArray, pd.DataFrame], n: int) -> tuple[FloatArray, FloatArray]:
        """Mean and variance over the ways of the log amount of each of `n` runs."""
        rows, weights, terms = expansion
        logs = np.log(self.formula(terms, self.fitted.coefficients))
        mean = np.bincount(rows, weights * logs, minlength=n)
        variance = np.bincount(rows, weights * (logs - mean[rows]) ** 2, minlength=n)
        return np.asarray(mean, dtype=float), np.asarray(variance, dtype=float)

    def fit(self, expansion: tuple[IntArray, FloatArray, pd.DataFrame], y: FloatArray, about: pd.DataFrame) -> None:
        """Fit to measured amounts; intervals are about sources that are not in the training data.

        Parameters
        ----------
        expansion : tuple
            Rows, weights and terms of the ways.
        y : ndarray of shape (n_rows,)
            NaN where unknown.
        about : DataFrame of shape (n_rows, 2)
            ``source`` and ``class``.
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
        kinds, codes = about["class"].to_numpy(dtype=object)[known], pd.factorize(source[known])[0]
        self.scales = _scales(error[known], spread[known], kinds, codes)
        scale = self._scale(kinds, spread[known])
        self.scores = _scores(error[known] / scale, codes)

    def _fit(self, expansion: tuple[IntArray, FloatArray, pd.DataFrame], y: Any, source: Any, use: Any) -> Fitted:
        rows, weights, terms = expansion
        place = np.cumsum(use) - 1
        ways = use[rows]
        chosen = (terms[ways], weights[ways], place[rows[ways]])
        return fit_coefficients(self.formula, *chosen, y[use], source[use], self.priors)

    def _scale(self, kinds: Any, spread: FloatArray) -> FloatArray:
        own = np.array([self.scales[kind] for kind in kinds])
        return np.asarray(np.hypot(own, np.sqrt(spread)))

    def predict(self, expansion: Any, kinds: list[str], levels: Sequence[float], least: FloatArray) -> FloatArray:
        """Amounts and their intervals, shape (n, 1 + 2 n_levels), none below `least`."""
        mean, variance = self.log_mean(expansion, len(kinds))
        found = self.scores.intervals(np.exp(mean), self._scale(kinds, variance), levels)
        return np.maximum(found, least[:, None])

    def probability_below(self, expansion: Any, kinds: list[str], limit: FloatArray) -> FloatArray:
        """Probability that the amount is below a limit."""
        mean, variance = self.log_mean(expansion, len(kinds))
        return self.scores.cdf((np.log(limit) - mean) / self._scale(kinds, variance))


def _scores(errors: FloatArray, sources: IntArray) -> ConformityScores:
    """Scaled errors in which each source weighs the same, however many rows it has."""
    order = np.argsort(errors, kind="stable")
    weights = 1.0 / np.bincount(sources)[sources]
    return ConformityScores(errors[order], weights[order] / weights.sum())


def _scales(error: FloatArray, spread: FloatArray, kinds: Any, sources: IntArray) -> dict[str, float]:
    """Scale of the held-out log errors by class beyond the spread over the ways, shrunk to that of all."""
    weight = 1.0 / np.bincount(sources)[sources]
    beyond = np.clip(np.minimum(np.abs(error), _LARGEST) ** 2 - spread, (NOISE / 2) ** 2, None)
    pooled = np.average(beyond, weights=weight)
    scales = {}
    for kind in ("known", "part unknown", "adapter", "experts"):
        own = weight * (kinds == kind)
        rows = own.sum() ** 2 / max((own**2).sum(), 1e-12)
        total = (own * beyond).sum() / max(own.sum(), 1e-12) * rows + pooled * _SCALE_ROWS
        scales[kind] = float(np.sqrt(total / (rows + _SCALE_ROWS)))
    return scales


class LargeModelPredictor:
    """Physical formulas of time and memory, their coefficients fitted to public runs.

    Examples
    --------
    >>> from gpudemand.cost.devices import device
    >>> from gpudemand.cost.large_models.parallel import Parallel
    >>> from gpudemand.cost.large_models.published import published
    >>> run = TrainingRun(published("llama-3-8b"), device("H100"), 8192, 8, Parallel(sharding="fsdp"), 1, 1)
    >>> predictor = LargeModelPredictor.load()
    >>> predictor.predict([run]).shape
    (1, 6)
    """

    def __init__(self) -> None:
        self.targets = {
            "step_time_s": Target(seconds_per_token, TIME_PRIORS),
            "memory_gib": Target(memory_bytes, MEMORY_PRIORS),
        }

    def fit(self, runs: Sequence[TrainingRun], costs: pd.DataFrame, sources: Any) -> LargeModelPredictor:
        """Fit to measured runs.

        Parameters
        ----------
        runs : sequence of TrainingRun
        costs : DataFrame of shape (n_runs, 2)
            ``seconds_per_token`` of a GPU, and ``memory_gib``; NaN where unknown.
        sources : array-like of shape (n_runs,)
            Project that measured each run: intervals are about projects that are not among these.

        Returns
        -------
        LargeModelPredictor
            This object.
        """
        ways = expand(runs)
        return self.fit_expanded(ways, costs, pd.DataFrame({"source": np.asarray(sources), "class": classes_of(runs)}))

    def fit_expanded(self, ways: Expansion, costs: pd.DataFrame, about: pd.DataFrame) -> LargeModelPredictor:
        """As `fit`, from the terms of `expand`; `about` has ``source`` and ``class`` of each run."""
        seconds, memory = (costs[name].to_numpy(dtype=float) for name in ("seconds_per_token", "memory_gib"))
        self.targets["step_time_s"].fit((ways.rows, ways.weights, ways.time), seconds, about)
        self.targets["memory_gib"].fit((ways.rows, ways.weights, ways.memory), memory * GIB, about)
        return self

    def predict(self, runs: Sequence[TrainingRun], levels: Sequence[float] = (90,)) -> pd.DataFrame:
        """Seconds a step and GiB of the fullest GPU, with intervals.

        Of a run whose samples a step are unknown, a step is one sample of each replica.
        """
        ways = expand(runs)
        tokens = np.array([run.tokens / run.n_gpus for run in runs])
        per_token, held = self.predict_expanded(ways, classes_of(runs), levels)
        ends = ["", *(f"-{side}-{value:g}" for value in levels for side in ("lo", "hi"))]
        time = pd.DataFrame(per_token * tokens[:, None], columns=[f"step_time_s{end}" for end in ends])
        return pd.concat([time, pd.DataFrame(held / GIB, columns=[f"memory_gib{end}" for end in ends])], axis=1)

    def predict_expanded(
        self, ways: Expansion, kinds: list[str], levels: Sequence[float] = (90,)
    ) -> tuple[FloatArray, FloatArray]:
        """Seconds of a GPU for a token, and bytes, each with its intervals, from the terms of `expand`."""
        bound = ways.time["bound"] * ways.time["micro_batches"] / ways.time["tokens"]
        resident = ways.memory["parameters"] + ways.memory["states"]
        least = [_smallest(values.to_numpy(dtype=float), ways.rows, len(kinds)) for values in (bound, resident)]
        inputs = (ways.rows, ways.weights)
        time = self.targets["step_time_s"].predict((*inputs, ways.time), kinds, levels, least[0])
        return time, self.targets["memory_gib"].predict((*inputs, ways.memory), kinds, levels, least[1])

    def fits(self, runs: Sequence[TrainingRun]) -> FloatArray:
        """Probability that each run fits into the memory of its device."""
        return self.fits_expanded(expand(runs), runs)

    def fits_expanded(self, ways: Expansion, runs: Sequence[TrainingRun]) -> FloatArray:
        """As `fits`, from the terms of `expand`."""
        limit = np.array([run.device.usable_memory_gib * GIB for run in runs])
        inputs, kinds = (ways.rows, ways.weights, ways.memory), classes_of(runs)
        found = self.targets["memory_gib"].probability_below(inputs, kinds, limit)
        resident = (ways.memory["parameters"] + ways.memory["states"]).to_numpy(dtype=float)
        return np.where(_smallest(resident, ways.rows, len(runs)) > limit, 0.0, found)

    def save(self, path: Path) -> None:
        """Write as JSON."""
        content = {name: _to_json(target) for name, target in self.targets.items()}
        with replace_file(path) as new:
            new.write_text(json.dumps({"format": _FORMAT, **content}, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path | None = None) -> LargeModelPredictor:
        """Read what `save` wrote; by default the bundled predictor.

        Raises
        ------
        InputError
            If the file holds no such predictor.
        """
        from gpudemand.datasets.registry import bundled_path

        source, found = path or bundled_path("cost/large_models.json"), cls()
        try:
            content = json.loads(source.read_text(encoding="utf-8"))
            for name, target in found.targets.items():
                _from_json(target, content[name])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{source.name} holds no predictor of large models that is known here: {error}."
            ) from error
        return found


def _smallest(values: FloatArray, rows: IntArray, n: int) -> FloatArray:
    found = np.full(n, np.inf)
    np.minimum.at(found, rows, values)
    return found


def _to_json(target: Target) -> dict[str, Any]:
    return {
        "coefficients": target.fitted.coefficients,
        "effects": target.fitted.effects,
        "scales": target.scales,
        "scores": np.round(target.scores.scores, 5).tolist(),
        "weights": np.round(target.scores.weights, 7).tolist(),
    }


def _from_json(target: Target, content: dict[str, Any]) -> None:
    missing = set(target.priors) - set(content["coefficients"])
    if missing:
        raise KeyError(", ".join(sorted(missing)))
    target.fitted = Fitted(dict(content["coefficients"]), dict(content["effects"]))
    target.scales = dict(content["scales"])
    target.scores = ConformityScores(np.array(content["scores"]), np.array(content["weights"]))
