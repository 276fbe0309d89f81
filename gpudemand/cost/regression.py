"""Regression of costs: additive models, non-negative coefficients, conformal intervals."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.base import RegressorMixin
from sklearn.model_selection import GroupKFold, KFold

from gpudemand._array import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, UnlikelyCostWarning, check_length, check_levels, stack_level
from gpudemand.cost.graph_features import OPERATOR_CLASSES
from gpudemand.units import format_number_of

#: Cauchy scales of the graduated robust fit, from a nearly quadratic loss to one that discounts errors beyond 5 %.
_CAUCHY_SCALES = np.geomspace(1.0, 0.05, 30)


def solve_nonnegative(matrix: FloatArray, target: FloatArray) -> FloatArray:
    """Solve ``min |matrix b - target|`` subject to ``b >= 0``; columns may differ in scale by orders of magnitude."""
    largest = np.abs(matrix).max(axis=0)
    scale = np.where(largest > 0, largest, 1.0)
    coefficients, _ = nnls(matrix / scale, target, maxiter=max(20_000, 100 * matrix.shape[1]))
    return np.asarray(coefficients / scale, dtype=float)


def fit_nonnegative(
    terms: pd.DataFrame,
    y: FloatArray,
    weight: FloatArray | float = 1.0,
    prior: tuple[FloatArray, FloatArray] | None = None,
) -> pd.Series:
    """Fit a non-negative sum of terms in relative error.

    `weight`: factor on the relative residual of each row. `prior`: mean and deviation of normal priors of the
    coefficients, in units of the weighted residuals.
    """
    target = np.broadcast_to(weight, y.shape)
    matrix = terms.to_numpy(dtype=float) / y[:, None] * target[:, None]
    if prior is not None:
        mean, deviation = prior
        matrix = np.vstack([matrix, np.diag(1.0 / deviation)])
        target = np.concatenate([target, mean / deviation])
    return pd.Series(solve_nonnegative(matrix, target), index=terms.columns)


def fit_robust(terms: pd.DataFrame, y: FloatArray) -> pd.Series:
    """Fit a non-negative sum of terms, the first of them the main one, under a Cauchy loss.

    Iteratively reweighted least squares with a scale that shrinks step by step (graduated non-convexity), from a start
    at the median ratio of the first term: least squares would start at the outliers, whose relative errors are largest.
    """
    matrix = terms.to_numpy(dtype=float) / y[:, None]
    coefficients = pd.Series(np.r_[1.0 / np.median(matrix[:, 0]), np.zeros(matrix.shape[1] - 1)], index=terms.columns)
    for scale in _CAUCHY_SCALES:
        coefficients = fit_nonnegative(terms, y, cauchy_weights(matrix @ coefficients.to_numpy() - 1.0, scale))
    return coefficients


def cauchy_weights(residuals: FloatArray, scale: float) -> FloatArray:
    """Square roots of the IRLS weights of a Cauchy loss."""
    return np.asarray(1.0 / np.sqrt(1.0 + (residuals / scale) ** 2))


class IntervalMixin(RegressorMixin):
    """Intervals of one level, of a regressor that has ``predict_all(X, levels)``."""

    def predict_interval(self, X: pd.DataFrame, level: float = 90) -> FloatArray:
        """Predict an interval that covers `level` percent of jobs of groups never seen, shape (n_jobs, 2).

        By split conformal prediction with errors of whole held-out groups; wider for jobs unlike those in training, of
        which a `FarFromTrainingWarning` tells.
        """
        found: FloatArray = self.predict_all(X, [level])[:, 1:]
        return found


#: Columns that the terms are computed from, in every table.
NEEDED = ("batch_size", "flops", "bytes", "saved_bytes", "trainable_parameters", "optimizer_states")


def additive_time_terms(X: pd.DataFrame) -> pd.DataFrame:
    """Terms of step time.

    Operations and bytes of every operator class grow with the batch; calls cost a launch each, whatever the batch; the
    optimizer reads and writes the parameters and its own state, layer by layer.
    """
    scaled = _scaled(X, [f"{amount}_{group}" for amount in ("flops", "bytes") for group in OPERATOR_CLASSES])
    calls, states = _amounts(X, [f"calls_{group}" for group in OPERATOR_CLASSES]), X["optimizer_states"]
    update, layers = X["trainable_parameters"] * (2 + states), _amounts(X, ["layers"])["layers"]
    return pd.concat([scaled, calls], axis=1).assign(update=update, updates=layers * states, start=1.0)


def additive_memory_terms(X: pd.DataFrame) -> pd.DataFrame:
    """Terms of peak memory.

    Bytes allocated at the simulated peak, saved activations by operator class, the largest output and convolution
    workspaces grow with the batch; gradients and optimizer state do not. Compilation takes memory for each operator and
    for each update of a layer.
    """
    saved = [f"saved_bytes_{group}" for group in OPERATOR_CLASSES] + ["largest_output_bytes"]
    scaled = _scaled(X, saved + [name for name in X.columns if name.startswith("workspace_")])
    calls = _amounts(X, [f"calls_{group}" for group in OPERATOR_CLASSES])
    count, states = _amounts(X, ["operators", "layers"]), X["optimizer_states"]
    gradients = 4.0 * X["trainable_parameters"]
    fixed = {"gradients": gradients, "state": gradients * states, "calls": count["operators"], "start": 1.0}
    updates = {"updates": count["layers"] * states, "update_calls": count["operators"] * states}
    return pd.concat([scaled, calls], axis=1).assign(allocated=interpolated_peak(X), **fixed, **updates)


def _amounts(X: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Columns by name; zero where the table lacks one."""
    return X.reindex(columns=names, fill_value=0.0).astype(float)


def _scaled(X: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    return _amounts(X, names).mul(X["batch_size"].astype(float), axis=0)


def interpolated_peak(X: pd.DataFrame) -> FloatArray:
    """Bytes allocated at the peak of a step: `memory_summary` interpolated in the batch; zero where it is missing."""
    knots = sorted((int(name.rpartition("_")[2]), name) for name in X.columns if name.startswith("allocated_"))
    if not knots:
        return np.zeros(len(X))
    at, batch = np.array([size for size, _ in knots], dtype=float), X["batch_size"].to_numpy(dtype=float)
    peaks = X[[name for _, name in knots]].to_numpy(dtype=float)
    left = np.clip(np.searchsorted(at, batch) - 1, 0, at.size - 2)
    rows = np.arange(len(X))
    slope = (peaks[rows, left + 1] - peaks[rows, left]) / (at[left + 1] - at[left])
    state = 4.0 * X["trainable_parameters"].to_numpy(dtype=float) * X["optimizer_states"].to_numpy(dtype=float)
    return np.asarray(peaks[rows, left] + slope * (batch - at[left]) + state)


TERMS = {"time": additive_time_terms, "memory": additive_memory_terms}


class AdditiveCostModel:
    """Non-negative linear regression of a cost on its terms in relative error, by framework and pooled.

    `target`: {"time", "memory"}; which terms. `coefficients_`: framework -> coefficient of each term; ``""`` is the
    pooled fit, for frameworks with fewer training rows than terms.
    """

    def __init__(self, target: str) -> None:
        self.target = target

    def fit(self, X: pd.DataFrame, y: FloatArray) -> AdditiveCostModel:
        """Fit the coefficients."""
        terms, framework = TERMS[self.target](X), _framework(X)
        self.coefficients_ = {"": fit_nonnegative(terms, y)}
        for name in np.unique(framework):
            rows = framework == name
            if rows.sum() >= terms.shape[1]:
                self.coefficients_[str(name)] = fit_nonnegative(terms[rows], y[rows])
        return self

    def predict(self, X: pd.DataFrame) -> FloatArray:
        """Predict the cost, shape (n_jobs,); clipped to the smallest positive number, so that its logarithm exists."""
        terms, framework = TERMS[self.target](X), _framework(X)
        cost = np.empty(len(X))
        for name in np.unique(framework):
            rows = framework == name
            coefficients = self.coefficients_.get(str(name), self.coefficients_[""])
            cost[rows] = terms[rows].to_numpy(dtype=float) @ coefficients.to_numpy()
        return np.maximum(cost, np.finfo(float).tiny)


def _framework(X: pd.DataFrame) -> FloatArray:
    if "framework" not in X.columns:
        return np.full(len(X), "", dtype=object)
    return X["framework"].astype(object).to_numpy()


class ConformityScores(NamedTuple):
    """Log errors of held-out rows in units of their predicted scale, ascending, and weights that sum to 1: (n_rows,).

    Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", Springer 2005.
    """

    scores: FloatArray
    weights: FloatArray

    @classmethod
    def from_errors(cls, errors: FloatArray, groups: IntArray) -> ConformityScores:
        """Sort scaled errors; a group of n rows weighs ``sqrt(n)``, so that large groups do not dominate."""
        weights, order = 1.0 / np.sqrt(np.bincount(groups)[groups]), np.argsort(errors, kind="stable")
        return cls(errors[order], weights[order] / weights.sum())

    def to_arrays(self) -> dict[str, FloatArray]:
        """Plain arrays, of the names that stored models have."""
        return {"conformity_scores_": self.scores, "conformity_weights_": self.weights}

    def quantile(self, coverage: float) -> float:
        """Conformal quantile of the absolute scores."""
        size = np.abs(self.scores)
        order = np.argsort(size, kind="stable")
        reached = np.cumsum(self.weights[order]) * (order.size / (order.size + 1.0))
        # Relative to rounding: with equal weights, ranks that reach the coverage exactly are common.
        place = int(np.searchsorted(reached, coverage * (1.0 - 1e-12)))
        return float(size[order[min(place, order.size - 1)]])

    def cdf(self, score: FloatArray) -> FloatArray:
        """Weighted share of scores at or below each of `score`."""
        reached = np.concatenate([[0.0], np.cumsum(self.weights)])
        return np.asarray(np.minimum(reached[np.searchsorted(self.scores, score, side="right")], 1.0))

    def intervals(self, cost: FloatArray, scale: FloatArray, levels: Sequence[float]) -> FloatArray:
        """Costs with their intervals, shape (n, 1 + 2 n_levels): the cost, then both ends at each level in percent."""
        shares = [level / 100 for level in check_levels(levels)]
        widths = [np.exp(self.quantile(share) * scale) for share in shares]
        return np.column_stack([cost, *(end for width in widths for end in (cost / width, cost * width))])


#: Held out, no time was predicted over 23 times off and no memory over 55 (`data/cost/held_out.parquet`), and a mistake
#: of a thousand, as of milliseconds, is seen also where the prediction is ten times off the other way.
_UNLIKELY = 100.0


def warn_unlikely(name: str, measured: FloatArray, predicted: FloatArray) -> None:
    """Warn of measured amounts, NaN where unknown, that are likely not in the unit in which `name` ends."""
    off = np.abs(np.log(measured / predicted)) > np.log(_UNLIKELY)
    if off.any():
        first = int(np.argmax(off))
        unit = {"step_time_s": "seconds", "memory_gib": "GiB"}[name]
        warnings.warn(
            f"{name} of {format_number_of('job', off.sum())} is over {_UNLIKELY:g} times off what is predicted, as "
            f"{measured[first]:.3g} for {predicted[first]:.3g}; it must be in {unit}. If it is not, calibrate again.",
            UnlikelyCostWarning,
            stacklevel=stack_level(),
        )


def interval_columns(names: Iterable[str], levels: Sequence[float]) -> list[str]:
    """Columns of amounts with their intervals, in the order of `ConformityScores.intervals`."""
    ends = ["", *(f"-{side}-{value:g}" for value in levels for side in ("lo", "hi"))]
    return [f"{name}{end}" for name in names for end in ends]


def check_costs(y: Any, n: int, problem: str = "are not positive costs", name: str = "y") -> FloatArray:
    """Return `n` costs as an array, all finite and above zero; `problem` is how the message describes others."""
    values = np.asarray(y, dtype=float).ravel()
    check_length(name, values, n)
    wrong = int((~(np.isfinite(values) & (values > 0))).sum())
    if wrong:
        raise InputError(f"{name} holds {wrong} values that {problem}; they must be finite and above zero.")
    return values


def group_numbers(groups: Any, n: int) -> IntArray:
    """Number the groups of `n` rows from 0; without groups, every row is one."""
    return np.arange(n) if groups is None else np.unique(_checked_groups(groups, n), return_inverse=True)[1]


def _checked_groups(groups: Any, n: int) -> NDArray[Any]:
    """One group for each of `n` rows."""
    values = np.asarray(groups)
    check_length("groups", values, n, "rows")
    if missing := int(pd.isna(values).sum()):
        raise InputError(f"groups has {missing} missing values; give one for each row.")
    return values


def several_groups(groups: IntArray) -> IntArray:
    """Return the groups; where there is only one, warn and return every row as its own group."""
    if np.unique(groups).size > 1:
        return groups
    warnings.warn(
        "groups holds a single group: how far others are from it is taken from public measurements of GPUs.",
        UserWarning,
        stacklevel=stack_level(),
    )
    return np.arange(len(groups))


def grouped_folds(
    n_splits: int, n_rows: int, groups: Any = None, random_state: int = 0
) -> list[tuple[IntArray, IntArray]]:
    """Training and test positions of cross-validation over whole groups, or over shuffled rows without groups."""
    if n_rows < 2:
        raise InputError(f"there are {n_rows} rows; two or more are needed to hold one out.")
    rows = np.empty((n_rows, 0))
    if groups is None:
        return list(KFold(min(n_splits, n_rows), shuffle=True, random_state=random_state).split(rows))
    groups = _checked_groups(groups, n_rows)
    n_groups = np.unique(groups).size
    if n_groups < 2:
        raise InputError("groups holds a single group; two are needed to hold one out.")
    return list(GroupKFold(min(n_splits, n_groups)).split(rows, None, groups))


def fold_masks(groups: IntArray, n_folds: int) -> list[BoolArray]:
    """Test rows of each fold, for groups numbered by `group_numbers`."""
    fold = groups % n_folds
    return [fold == number for number in np.unique(fold)]


def balanced_sample(groups: IntArray, size: int, random_state: int) -> IntArray:
    """Positions of at most `size` rows, drawn evenly from the groups.

    >>> groups = np.repeat([0, 1, 2], [90, 5, 5])
    >>> np.bincount(groups[balanced_sample(groups, 20, 0)]).tolist()
    [10, 5, 5]
    """
    if len(groups) <= size:
        return np.arange(len(groups))
    order = np.random.default_rng(random_state).permutation(len(groups))
    turn = pd.Series(groups[order]).groupby(groups[order]).cumcount().to_numpy()
    return np.sort(order[np.argsort(turn, kind="stable")[:size]])
