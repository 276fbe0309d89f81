"""Fit of the bundled predictor of large models, and of the bundled effect of training scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from gpudemand._array import FloatArray, IntArray
from gpudemand._files import replace_file
from gpudemand._validation import InputError
from gpudemand.cost.large_models import (
    CLASSES,
    FORMAT,
    NEW,
    ErrorScales,
    Expansion,
    Fitted,
    Formula,
    LargeModelPredictor,
    RunClass,
    Target,
)
from gpudemand.cost.regression import ConformityScores, check_costs
from gpudemand.cost.step_time_model import ScriptEffect
from gpudemand.units import GIB

#: Standard deviations of the logarithm: of a measurement around its source's mean, and of sources (projects differ in
#: software, data and what they call a step).
NOISE, SOURCE = 0.12, 0.2
#: Least scale of the log error of a source's runs.
_LEAST = 0.06
#: Step of the differences that give the derivatives by the logarithm of a coefficient.
_STEP = 1e-4
#: Most seconds of a script's step that do not depend on the network.
_MOST_START_S = 5e-3


def fit_coefficients(
    formula: Formula,
    terms: pd.DataFrame,
    weights: FloatArray,
    rows: IntArray,
    y: FloatArray,
    sources: FloatArray,
    priors: Mapping[str, tuple[float, float]],
    start: Fitted | None = None,
) -> Fitted:
    """Maximum a posteriori coefficients of a formula: log-normal priors, pseudo-Huber loss, normal source effects.

    `terms`, `weights`, `rows`: of every way in which a measured row may be meant, its probability, and the row.
    `sources`: large ones weigh by the root of their size.
    """
    names, groups = list(priors), pd.factorize(np.asarray(sources))
    mean = np.log([priors[name][0] for name in names])
    spread = np.array([priors[name][1] for name in names])
    share = np.bincount(groups[0])[groups[0]] ** -0.25
    measured, columns = np.log(y), {name: terms[name].to_numpy(dtype=float) for name in terms}

    def errors(point: FloatArray) -> FloatArray:
        """Errors in the logarithm, in units of the noise."""
        values = dict(zip(names, np.exp(point[: len(names)]), strict=True))
        expected = np.bincount(rows, weights * np.log(formula(columns, values)), minlength=len(y))
        return np.asarray((measured - expected - point[len(names) :][groups[0]]) / NOISE)

    def residuals(point: FloatArray) -> FloatArray:
        """Weighted errors, and what the priors say."""
        return np.concatenate([share * _robust(errors(point)), (point - centre) / scale])

    def slopes(point: FloatArray) -> FloatArray:
        """Derivatives of the residuals; those of the source effects need no differences."""
        error = errors(point)
        found = np.zeros((len(y), len(point)))
        for place in range(len(names)):
            moved = point.copy()
            moved[place] += _STEP
            found[:, place] = (errors(moved) - error) / _STEP
        found[np.arange(len(y)), len(names) + groups[0]] = -1.0 / NOISE
        size = np.sqrt(1.0 + error**2)
        slope = np.sqrt((size + 1.0) / 2.0) / size
        return np.vstack([(share * slope)[:, None] * found, np.diag(1.0 / scale)])

    centre = np.concatenate([mean, np.zeros(len(groups[1]))])
    scale = np.concatenate([spread, np.full(len(groups[1]), SOURCE)])
    begin = centre if start is None else np.log([*(start.coefficients[name] for name in names)])
    if start is not None:
        begin = np.concatenate([begin, [start.effects.get(str(name), 0.0) for name in groups[1]]])
    found = least_squares(residuals, begin, slopes, method="trf", max_nfev=40 if start is None else 6, ftol=1e-5).x
    coefficients = dict(zip(names, np.exp(found[: len(names)]).tolist(), strict=True))
    return Fitted(coefficients, dict(zip(map(str, groups[1]), found[len(names) :].tolist(), strict=True)))


def _robust(error: FloatArray) -> FloatArray:
    """Errors whose squares are the pseudo-Huber loss."""
    return np.asarray(error * np.sqrt(2.0 / (1.0 + np.sqrt(1.0 + error**2))))


def fit_scales(
    error: FloatArray, spread: FloatArray, kinds: Sequence[RunClass], sources: Any, new: FloatArray
) -> ErrorScales:
    """From errors of held-out sources, beyond the spread over the ways, and those of held-out generations (`new`).

    Mean over the sources of a class, and one more as the mean of all; or of a generation relative to its class, and
    one more as a generation that is held out: priors worth one observation (Kass and Wasserman, J. Am. Stat. Assoc.
    90, 1995). To generations is added the standard error of such a mean: of few sources the next may err more.
    """
    rows = pd.DataFrame(list(kinds), columns=RunClass._fields).assign(source=sources)
    rows = rows.assign(square=error**2 - spread, new=new**2 - spread)
    each = np.sqrt(rows.groupby(["kind", "source"])["square"].mean().clip(lower=_LEAST**2))
    pooled, by_kind = float(each.mean()), each.groupby(level=0)
    classes = dict.fromkeys(CLASSES, pooled) | {str(kind): _with_one(part, pooled) for kind, part in by_kind}
    of_class = rows["kind"].map(classes) ** 2
    ratios = rows.assign(square=rows["square"] / of_class, new=rows["new"] / of_class)
    ratios = np.sqrt(ratios.groupby(["generation", "source"])[["square", "new"]].mean().clip(lower=0.25))
    by_generation = ratios.groupby(level=0)
    unseen, margin = max(float(by_generation["new"].mean().mean()), 1.0), float(ratios["square"].std(ddof=0))
    generations = {
        str(name): _with_one(part, unseen) + margin / np.sqrt(len(part) + 1.0) for name, part in by_generation["square"]
    }
    vendors = dict(zip(rows["generation"], rows["vendor"], strict=True))
    return ErrorScales(classes, generations | {NEW: unseen + margin}, vendors)


def few_group_scores(errors: FloatArray, groups: IntArray) -> ConformityScores:
    """Sort scaled errors; each group weighs the same, and few of them say little of how far the next one is off.

    That is as one more draw whose variance the others tell: Student's t with a degree less than these.
    """
    counts, order = np.bincount(groups), np.argsort(errors, kind="stable")
    scores, weights = errors[order], 1.0 / counts[groups][order] / len(counts)
    centre = scores[np.searchsorted(np.cumsum(weights), 0.5)]
    wider = np.sqrt((len(counts) - 1.0) / max(len(counts) - 3.0, 1.0))
    return ConformityScores(centre + wider * (scores - centre), weights)


def conformity_of(
    error: FloatArray, spread: FloatArray, kinds: Sequence[RunClass], sources: Any, scales: ErrorScales
) -> ConformityScores:
    """Scores of held-out log errors; what a source has of one class is one draw: its few rows err alike."""
    groups = pd.factorize(pd.MultiIndex.from_arrays([[one.kind for one in kinds], sources]))[0]
    return few_group_scores(error / np.hypot(scales.of(kinds), np.sqrt(spread)), groups)


def _with_one(values: pd.Series, more: float) -> float:
    return float((values.sum() + more) / (len(values) + 1.0))


@dataclass
class FittedTarget(Target):
    """A formula that is fitted to public runs, and what it predicts of those held out."""

    #: Of the rows of the last fit, mean and variance of the log amount with their source or generation held out.
    held_out: dict[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict)

    def fit(self, expansion: tuple[IntArray, FloatArray, pd.DataFrame], y: FloatArray, about: pd.DataFrame) -> None:
        """Fit to measured amounts; intervals are about sources that are not in the training data.

        `expansion`: rows, weights and terms of the ways. `about`: ``source`` and ``class`` of each row.
        """
        known = np.isfinite(y)
        source, kinds = about["source"].to_numpy(dtype=object), list(about["class"])
        generation = np.array([kind.generation for kind in kinds], dtype=object)
        self.held_out = {
            name: self.held_out_by(expansion, y, source, groups)
            for name, groups in (("source", source), ("generation", generation))
        }
        (mean, spread), (new, _) = self.held_out.values()
        error, kinds = (np.log(y) - mean)[known], [kind for kind, use in zip(kinds, known, strict=True) if use]
        self.scales = fit_scales(error, spread[known], kinds, source[known], (np.log(y) - new)[known])
        self.scores = conformity_of(error, spread[known], kinds, source[known], self.scales)

    def held_out_by(
        self,
        expansion: tuple[IntArray, FloatArray, pd.DataFrame],
        y: FloatArray,
        source: Any,
        groups: Any,
        asked: tuple[IntArray, FloatArray, pd.DataFrame] | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance over the ways of the log amount of each run, of a fit without its group; fit to all.

        `asked`: the ways where the same runs are asked about with less said of them.
        """
        known = np.isfinite(y)
        every = self.fitted = self._fit(expansion, y, source, known)
        mean, spread = np.full(len(y), np.nan), np.zeros(len(y))
        for name in pd.unique(groups[known]):
            out = groups == name
            self.fitted = self._fit(expansion, y, source, known & ~out, every)
            found, variance = self.log_mean(expansion if asked is None else asked, len(y))
            mean[out], spread[out] = found[out], variance[out]
        self.fitted = every
        return mean, spread

    def _fit(
        self,
        expansion: tuple[IntArray, FloatArray, pd.DataFrame],
        y: Any,
        source: Any,
        use: Any,
        start: Fitted | None = None,
    ) -> Fitted:
        rows, weights, terms = expansion
        place = np.cumsum(use) - 1
        ways = use[rows]
        chosen = (terms[ways], weights[ways], place[rows[ways]])
        return fit_coefficients(self.formula, *chosen, y[use], source[use], self.priors, start)


def fit_predictor(ways: Expansion, costs: pd.DataFrame, about: pd.DataFrame) -> LargeModelPredictor:
    """Fit to measured runs, from the terms of `expand`; intervals are about projects that are not among the sources.

    `costs`: ``seconds_per_token`` of a GPU, and ``memory_gib``; NaN where unknown. `about`: ``source`` and ``class`` of
    each run. The targets of the result are of `FittedTarget`.
    """
    found = LargeModelPredictor()
    seconds, memory = (costs[name].to_numpy(dtype=float) for name in ("seconds_per_token", "memory_gib"))
    for (name, target), amounts in zip(list(found.targets.items()), (seconds, memory * GIB), strict=True):
        fitted = found.targets[name] = FittedTarget(target.formula, target.priors)
        fitted.fit(ways.of(name), amounts, about)
    return found


def save_predictor(predictor: LargeModelPredictor, path: Path) -> None:
    """Write as JSON, which `LargeModelPredictor.load` reads."""
    content = {name: _to_json(target) for name, target in predictor.targets.items()}
    with replace_file(path) as new:
        new.write_text(json.dumps({"format": FORMAT, **content}, indent=1) + "\n", encoding="utf-8")


def _to_json(target: Target) -> dict[str, Any]:
    return {
        "coefficients": target.fitted.coefficients,
        "effects": target.fitted.effects,
        "scales": target.scales.classes,
        "generations": target.scales.generations,
        "vendors": target.scales.vendors,
        "scores": np.round(target.scores.scores, 5).tolist(),
        "weights": np.round(target.scores.weights, 7).tolist(),
    }


def fit_script_effect(measured: Any, predicted: Any, projects: Any) -> ScriptEffect:
    """Fit to published steps; each project counts as one, by the median of its rows."""
    measured, predicted = (check_costs(values, len(projects), "are no times") for values in (measured, predicted))
    names = np.asarray(projects, dtype=object)
    if len(set(names)) < 3:
        raise InputError(f"a script effect needs rows of three projects or more; got {len(set(names))}.")
    starts = np.linspace(0.0, _MOST_START_S, 51)
    medians = [pd.Series(np.log(measured / (predicted + start))).groupby(names).median() for start in starts]
    best = int(np.argmin([logs.std(ddof=1) for logs in medians]))
    logs = medians[best]
    spread = float(logs.std(ddof=1) * np.sqrt(1.0 + 1.0 / len(logs)))
    return ScriptEffect(float(logs.mean()), spread, len(logs), float(starts[best]))


def save_script_effect(effect: ScriptEffect, path: Path) -> None:
    """Write as JSON, which `ScriptEffect.load` reads."""
    with replace_file(path) as new:
        new.write_text(json.dumps(effect._asdict(), indent=1) + "\n", encoding="utf-8")
