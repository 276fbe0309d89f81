"""`LargeModelPredictor`: time and memory of training runs of large models, with intervals over stacks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gpudemand._atomic import replace_file
from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError, check_number
from gpudemand.cost.large_models.candidates import candidates
from gpudemand.cost.large_models.fitting import CLASSES, Fitted, Target
from gpudemand.cost.large_models.memory import MEMORY_PRIORS, as_read, memory_bytes, memory_terms, needed_bytes
from gpudemand.cost.large_models.own_runs import coordinates
from gpudemand.cost.large_models.run import TrainingRun
from gpudemand.cost.large_models.step_time import TIME_PRIORS, step_seconds, time_terms
from gpudemand.cost.regression.conformal import ConformityScores
from gpudemand.units import GIB

_FORMAT = 1


class Expansion(NamedTuple):
    """Ways in which runs may be meant: their run, their probability, and their terms of time and memory."""

    rows: IntArray
    weights: FloatArray
    time: pd.DataFrame
    memory: pd.DataFrame

    def as_read(self, readings: Sequence[str] | str) -> Expansion:
        """Memory as a reading counts it, one for all runs or one each; see `gpudemand.cost.large_models.memory`."""
        each = readings if isinstance(readings, str) else [readings[row] for row in self.rows]
        return self._replace(memory=as_read(self.memory, each))


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
    most = [np.inf if run.micro_batch else run.device.memory_gib * GIB for run in runs]
    return Expansion(rows, weights, time, memory.assign(most=np.array(most)[rows]))


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


class LargeModelPredictor:
    """Physical formulas of time and memory, their coefficients fitted to public runs.

    Examples
    --------
    >>> from gpudemand.cost.devices import device
    >>> from gpudemand.cost.large_models.parallel import Parallel
    >>> from gpudemand.cost.architectures.published import published
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

    def calibrate(
        self, runs: Sequence[TrainingRun | None], step_time_s: Any = None, memory_gib: Any = None
    ) -> LargeModelPredictor:
        """Learn how one's own stack differs from the public ones; see `CostModel.calibrate`.

        Parameters
        ----------
        runs : sequence of TrainingRun
            Measured runs; None, of a job with a traced network, is refused.
        step_time_s, memory_gib : float or array-like of shape (n_runs,), optional
            NaN where unknown.

        Returns
        -------
        LargeModelPredictor
            This object.

        Raises
        ------
        InputError
            If the lengths differ, or a time or memory is not positive.
        """
        known = [run for run in runs if run is not None]
        if len(known) < len(runs):
            raise InputError("calibrate with traced networks, without memory_gib, or with jobs from a configuration.")
        seconds, held = (
            _measured(name, values, len(runs))
            for name, values in (("step_time_s", step_time_s), ("memory_gib", memory_gib))
        )
        ways, kinds, at = expand(known), classes_of(known), coordinates(known)
        tokens = np.array([run.tokens / run.n_gpus for run in known])
        inputs = (ways.rows, ways.weights)
        self.targets["step_time_s"].calibrate((*inputs, ways.time), kinds, seconds / tokens, at)
        self.targets["memory_gib"].calibrate((*inputs, ways.memory), kinds, held * GIB, at)
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
        ends = ["", *(f"-{side}-{value:g}" for value in levels for side in ("lo", "hi"))]
        time = pd.DataFrame(per_token * tokens[:, None], columns=[f"step_time_s{end}" for end in ends])
        return pd.concat([time, pd.DataFrame(held / GIB, columns=[f"memory_gib{end}" for end in ends])], axis=1)

    def predict_expanded(
        self, ways: Expansion, kinds: list[str], levels: Sequence[float] = (90,), at: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Seconds of a GPU for a token, and bytes, each with its intervals, from the terms of `expand`.

        With the `coordinates` of the runs, given the runs that the predictor is calibrated with.
        """
        bound = ways.time["bound"] * ways.time["micro_batches"] / ways.time["tokens"]
        resident = ways.memory["parameters"] + ways.memory["states"]
        least = [_smallest(values.to_numpy(dtype=float), ways.rows, len(kinds)) for values in (bound, resident)]
        inputs = (ways.rows, ways.weights)
        time = self.targets["step_time_s"].predict((*inputs, ways.time), kinds, levels, least[0], at)
        held = self.targets["memory_gib"].predict((*inputs, ways.memory), kinds, levels, least[1], at)
        most = _smallest(ways.memory["most"].to_numpy(dtype=float), ways.rows, len(kinds))
        held[:, 2::2] = np.minimum(held[:, 2::2], np.maximum(most, held[:, 0])[:, None])
        return time, held

    def fits(self, runs: Sequence[TrainingRun]) -> FloatArray:
        """Probability that each run fits into the memory of its device."""
        return self.fits_expanded(expand(runs), runs)

    def fits_expanded(self, ways: Expansion, runs: Sequence[TrainingRun]) -> FloatArray:
        """As `fits`, from the terms of `expand`."""
        limit = np.array([run.device.usable_memory_gib * GIB for run in runs])
        inputs, kinds = (ways.rows, ways.weights, ways.memory), classes_of(runs)
        found = self.targets["memory_gib"].probability_below(inputs, kinds, limit, coordinates(runs), needed_bytes)
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
            content = json.loads(source.read_bytes())
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
    if len(values) != n:
        raise InputError(f"{name} has {len(values)} values for {n} jobs; give one for each.")
    if not (np.isnan(values) | ((values > 0) & np.isfinite(values))).all():
        raise InputError(f"{name} must be positive, or NaN where it is unknown; got {values.tolist()}.")
    return values


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
