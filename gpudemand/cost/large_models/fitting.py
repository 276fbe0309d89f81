"""Coefficients of physical terms by robust maximum a posteriori in log error, with intervals of sources never seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from gpudemand._typing import FloatArray, IntArray
from gpudemand.cost.large_models.own_runs import OwnRuns
from gpudemand.cost.regression.conformal import ConformityScores

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

    Parameters
    ----------
    formula : callable
        ``formula(terms, coefficients)``, a positive amount a row.
    terms : DataFrame of shape (n_candidates, n_terms)
        Of every way in which a measured row may be meant.
    weights, rows : ndarray of shape (n_candidates,)
        Probability of the way, and its measured row.
    y : ndarray of shape (n_rows,)
        Measured amounts.
    sources : array-like of shape (n_rows,)
        Project of each row; large ones weigh by the root of their size.
    priors : mapping of str to (float, float)
        Coefficient -> prior mean and standard deviation of its logarithm.

    Returns
    -------
    Fitted
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
        kinds = about["class"].to_numpy(dtype=object)[known]
        # What a source has of one class of runs is one draw: few of its rows may be of a class, and err alike.
        groups = pd.factorize(pd.MultiIndex.from_arrays([kinds, source[known]]))[0]
        self.scales = _scales(error[known], spread[known], kinds, groups)
        self.scores = _scores(error[known] / self._scale(kinds, spread[known]), groups)

    def _fit(self, expansion: tuple[IntArray, FloatArray, pd.DataFrame], y: Any, source: Any, use: Any) -> Fitted:
        rows, weights, terms = expansion
        place = np.cumsum(use) - 1
        ways = use[rows]
        chosen = (terms[ways], weights[ways], place[rows[ways]])
        return fit_coefficients(self.formula, *chosen, y[use], source[use], self.priors)

    def _scale(self, kinds: Any, spread: FloatArray) -> FloatArray:
        own = np.array([self.scales[kind] for kind in kinds])
        return np.asarray(np.hypot(own, np.sqrt(spread)))

    def calibrate(self, expansion: Any, kinds: list[str], y: FloatArray, at: FloatArray) -> None:
        """Take the errors of a few measured amounts, NaN where unknown, of runs with these `coordinates`."""
        known = np.isfinite(y)
        mean, variance = self.log_mean(expansion, len(kinds))
        own = np.array([self.scales[kind] for kind in kinds])
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
        mean, variance = self.log_mean(expansion, len(kinds), formula)
        if self.own_runs is None or at is None:
            return mean, self._scale(kinds, variance)
        own = np.array([self.scales[kind] for kind in kinds])
        shift, left = self.own_runs.posterior(at)
        return mean + own * shift, np.asarray(np.hypot(own * np.sqrt(left), np.sqrt(variance)))


def _scores(errors: FloatArray, groups: IntArray) -> ConformityScores:
    """Scaled errors in which each group weighs the same, wider as their spread is known from few groups only."""
    order, counts = np.argsort(errors, kind="stable"), np.bincount(groups)
    weights = 1.0 / counts[groups]
    # The next group is as one more draw whose variance the others tell: Student's t with a degree less than these.
    wider = np.sqrt((len(counts) - 1.0) / max(len(counts) - 3.0, 1.0))
    weights = weights[order] / weights.sum()
    centre = errors[order][np.searchsorted(np.cumsum(weights), 0.5)]
    return ConformityScores(centre + wider * (errors[order] - centre), weights)


def _scales(error: FloatArray, spread: FloatArray, kinds: Any, groups: IntArray) -> dict[str, float]:
    """Scale of the held-out log errors by class beyond the spread over the ways.

    Mean over the groups of a class, and one more as the mean of all groups: a prior worth one observation (Kass and
    Wasserman, J. Am. Stat. Assoc. 90, 1995).
    """
    each = pd.DataFrame({"kind": kinds, "square": error**2 - spread}).groupby(groups)
    scale = np.sqrt(each["square"].mean().clip(lower=(NOISE / 2) ** 2)).to_numpy()
    of, pooled = each["kind"].first().to_numpy(), scale.mean()
    return {kind: float(np.append(scale[of == kind], pooled).mean()) for kind in CLASSES}
