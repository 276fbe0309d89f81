"""`MemoryModel`: peak memory from its simulation, and the largest batch that fits."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gpudemand._array import FloatArray, IntArray
from gpudemand._validation import InputError, check_features, check_number, stack_level, told
from gpudemand.cost.gaussian_process import USUAL_SMS
from gpudemand.cost.graph import OpGraph, check_graph
from gpudemand.cost.liveness import Setting, step_events
from gpudemand.cost.memory import MOST_SAMPLES, allocated_bytes, interpolated_features
from gpudemand.cost.regression import (
    ConformityScores,
    IntervalMixin,
    check_costs,
    fit_robust,
    group_numbers,
    grouped_folds,
)
from gpudemand.cost.step_time_model import FarFromTrainingWarning, check_arrays
from gpudemand.units import GIB

#: Columns of `gpudemand.cost.memory.memory_features` that are terms of the sum.
AMOUNTS = ("segments", "allocated", "largest", "workspace:layout", "workspace:columns", "part:parameters")
#: Lower bound, bytes; see `gpudemand.cost.memory.resident_bytes`.
BOUND = "resident"
#: The context of driver and libraries grows with the logarithm of the multiprocessors.
_DEVICE = "device_sms"
#: Whether the CUDA context loads all kernels at the start, as before PyTorch 2.0; later ones are loaded when first used
#: (``CUDA_MODULE_LOADING=LAZY``; NVIDIA, "CUDA C++ Programming Guide", lazy loading).
LOADED = "context:loaded"
#: Amounts of which these earlier versions take more: convolutions unfold their input, and gradients are copied.
_EARLIER = ("workspace:layout", "workspace:columns", "part:parameters")
#: Terms of compiled networks; zero for eager ones.
_COMPILED = "compile:"
#: Columns that tell whether a job is larger than any in training.
_SIZES = ("segments", "part:parameters", "batch_size", "operators")
#: Intervals are at most so many times as wide above the sizes seen in training, and so far above them a warning is due.
_MAX_WIDENING, _FAR = 3.0, 0.5
#: Types and shapes of the arrays of a stored model.
_STORED = {
    "parameters": "i 2",
    "feature_names": "U features",
    "coefficient_names": "U terms",
    "coefficients_": "f terms",
    **dict.fromkeys(("conformity_scores_", "conformity_weights_"), "f scores"),
    "high_": f"f {len(_SIZES)}",
}


class MemoryModel(IntervalMixin, BaseEstimator):
    """Predict peak memory: a non-negative sum of simulated amounts.

    The sum (tensors at the peak in segments of the allocator, scratch memory of convolutions, weights, and a constant
    for driver and libraries) is fitted in relative error, robust to measurements that broke off. As every term grows
    with the batch and the network, so does the prediction. Intervals are conformal, from groups that were held out.
    Neither prediction nor interval goes below what must be resident, and no job fits into less.

    `n_splits`: folds of whole groups, for the intervals. `random_state`: not used; as in `StepTimeModel`.
    `coefficients_`: of each term; ``start`` in GiB. `conformity_scores_`: errors of held-out groups,
    ``log(y / prediction)``. `high_`: largest log sizes in training.

    Gao et al., "Estimating GPU Memory Consumption of Deep Learning Models" (DNNMem), ESEC/FSE 2020.

    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({name: rng.uniform(1, 8, 120) * 2**30 for name in AMOUNTS})
    >>> table = table.assign(batch_size=32.0, operators=100.0, resident=0.1 * table["allocated"])
    >>> y = 1.5 + table["segments"].to_numpy() / 2**30
    >>> model = MemoryModel().fit(table, y, groups=np.arange(120) % 10)
    >>> float(np.abs(model.predict(table) / y - 1).max().round(2))
    0.0
    >>> model.probability_below(table.head(1), [y[0] + 1.0]).round(6).tolist()
    [1.0]
    >>> model.probability_below(table.head(1).assign(resident=100 * 2**30), 80).tolist()
    [0.0]
    """

    def __init__(self, n_splits: int = 5, random_state: int = 0) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> MemoryModel:
        """Fit coefficients and intervals.

        `X`: what `memory_features` returns; ``device_sms`` beside it if jobs ran on several devices, and
        ``context:loaded`` (0 or 1) if with several generations of CUDA. `y`: GiB, shape (n_jobs,); which memory it is
        (allocated, reserved, of the device) is what will be predicted. `groups`: what new jobs will differ in
        (families of networks, devices); by default every row is a group.
        """
        X = check_features(X, (*AMOUNTS, *_SIZES, BOUND))
        y = check_costs(y, len(X), "are no amount of memory")
        groups = group_numbers(groups, len(y))
        self.feature_names_in_ = np.array([name for name in X.columns if _is_feature(str(name))], dtype=object)
        self.n_features_in_ = self.feature_names_in_.size
        errors = self._held_out_errors(X, y, grouped_folds(self.n_splits, len(y), groups))
        self.coefficients_ = fit_robust(self._terms(X), y)
        self.high_ = _log_sizes(X).max(axis=0)
        self.conformity_scores_ = ConformityScores.from_errors(errors, groups)
        return self

    def predict(self, X: pd.DataFrame) -> FloatArray:
        """Predict GiB, shape (n_jobs,)."""
        return self._predict(self._known(X), self.coefficients_)

    def predict_all(self, X: pd.DataFrame, levels: Sequence[float]) -> FloatArray:
        """Predict, with intervals of several levels: shape (n_jobs, 1 + 2 n_levels), prediction, low, high, low, ..."""
        X = self._known(X)
        excess = self._excess(X)
        far = int((excess > _FAR).sum())
        if far:
            warnings.warn(
                f"{far} of {len(X)} jobs are larger than every job in training; their intervals are wide.",
                FarFromTrainingWarning,
                stacklevel=stack_level(),
            )
        found = self.conformity_scores_.intervals(self._predict(X, self.coefficients_), _widening(excess), levels)
        return np.maximum(found, _bound_gib(X)[:, None])

    def probability_below(self, X: pd.DataFrame, limit_gib: Any) -> FloatArray:
        """Probability that each job takes at most `limit_gib`, by the errors of held-out groups, shape (n_jobs,).

        It is 0 where more must be resident, and never grows with the size of a job.
        """
        X = self._known(X)
        limit = np.asarray(limit_gib, dtype=float)
        room = np.log(limit / self._predict(X, self.coefficients_))
        # A wider interval around more than the limit must not make a job fit.
        scale = np.where(room > 0, _widening(self._excess(X)), 1.0)
        return np.where(_bound_gib(X) > limit, 0.0, self.conformity_scores_.cdf(room / scale))

    def to_arrays(self) -> dict[str, Any]:
        """Return the fitted model as plain arrays, for ``numpy.savez``."""
        check_is_fitted(self, "coefficients_")
        return {
            "parameters": np.array([self.n_splits, self.random_state]),
            "feature_names": np.array(list(map(str, self.feature_names_in_)), dtype=str),
            "coefficient_names": np.array(list(self.coefficients_.index), dtype=str),
            "coefficients_": self.coefficients_.to_numpy(),
            **self.conformity_scores_.to_arrays(),
            "high_": self.high_,
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> MemoryModel:
        """Restore what `to_arrays` returned, or an opened ``.npz``; names, types and shapes are checked."""
        arrays = check_arrays(arrays, _STORED)
        model = cls(*(int(value) for value in arrays["parameters"]))
        model.feature_names_in_ = np.array([str(name) for name in arrays["feature_names"]], dtype=object)
        model.n_features_in_ = model.feature_names_in_.size
        model.coefficients_ = pd.Series(
            arrays["coefficients_"], index=[str(name) for name in arrays["coefficient_names"]]
        )
        model.conformity_scores_ = ConformityScores(
            *(np.asarray(arrays[key]) for key in ("conformity_scores_", "conformity_weights_"))
        )
        model.high_ = np.asarray(arrays["high_"])
        example = pd.DataFrame(1.0, index=[0], columns=list(model.feature_names_in_))
        if not {*AMOUNTS, *_SIZES} <= set(example) or set(model._terms(example)) != set(model.coefficients_.index):
            raise InputError("its features and coefficients do not belong together.")
        return model

    def _held_out_errors(self, X: pd.DataFrame, y: FloatArray, folds: list[tuple[IntArray, IntArray]]) -> FloatArray:
        """Log errors of held-out rows."""
        terms, errors = self._terms(X), np.empty(len(y))
        for train, test in folds:
            coefficients = fit_robust(terms.iloc[train], y[train])
            errors[test] = np.log(y[test] / self._predict(X.iloc[test], coefficients))
        return errors

    def _known(self, X: pd.DataFrame) -> pd.DataFrame:
        check_is_fitted(self, "coefficients_")
        known = [name for name in self.feature_names_in_ if name != LOADED]
        return check_features(X, (*known, BOUND))

    def _predict(self, X: pd.DataFrame, coefficients: pd.Series) -> FloatArray:
        terms = self._terms(X)
        summed = terms.to_numpy(dtype=float) @ coefficients[terms.columns].to_numpy()
        return np.maximum(np.maximum(summed, _bound_gib(X)), 1e-6)

    def _terms(self, X: pd.DataFrame) -> pd.DataFrame:
        compiled = [name for name in self.feature_names_in_ if str(name).startswith(_COMPILED)]
        terms = (X[[*AMOUNTS, *compiled]].astype(float) / GIB).assign(start=1.0)
        if LOADED in self.feature_names_in_:
            terms[LOADED] = X[LOADED].astype(float) if LOADED in X.columns else 0.0
            terms = terms.assign(**{f"earlier:{name}": terms[name] * terms[LOADED] for name in _EARLIER})
        if _DEVICE not in self.feature_names_in_:
            return terms
        return terms.assign(**{_DEVICE: np.log(np.maximum(X[_DEVICE].astype(float).fillna(USUAL_SMS), 1.0))})

    def _excess(self, X: pd.DataFrame) -> FloatArray:
        """Sum of log distances of the sizes above those of training."""
        return np.asarray(np.maximum(_log_sizes(X) - self.high_, 0.0).sum(axis=1))


def _widening(excess: FloatArray) -> FloatArray:
    return np.minimum(1.0 + excess, _MAX_WIDENING)


def _bound_gib(X: pd.DataFrame) -> FloatArray:
    return X[BOUND].to_numpy(dtype=float) / GIB


def _log_sizes(X: pd.DataFrame) -> FloatArray:
    return np.log(np.maximum(X[list(_SIZES)].to_numpy(dtype=float), 1.0))


def _is_feature(name: str) -> bool:
    return name in (*AMOUNTS, *_SIZES, _DEVICE, LOADED) or name.startswith(_COMPILED)


def largest_that(fits: Callable[[int], bool], guess: int = 1) -> int:
    """Largest number up to `MOST_SAMPLES` for which a monotone predicate holds, 0 if none, searched from a guess."""
    low, high = 0, min(max(int(guess), 1), MOST_SAMPLES)
    while fits(high):
        if high == MOST_SAMPLES:
            return high
        low, high = high, min(2 * high, MOST_SAMPLES)
    return bisect_left(range(high), True, lo=low + 1, key=lambda number: not fits(number)) - 1


@told("Looking for the largest batch")
def max_batch_size(
    model: MemoryModel,
    graph: OpGraph,
    limit_gib: float,
    setting: Setting | None = None,
    *,
    level: float = 0.95,
    device: Mapping[str, float] | None = None,
) -> int:
    """Largest batch that fits into `limit_gib` with a probability of at least `level`; 0 if none does.

    `device`: columns about the device that the model was fitted with, such as ``device_sms``.
    """
    limit = check_number("limit_gib", limit_gib, 0, open_low=True)
    required = check_number("level", level, 0, 1, open_low=True, open_high=True)

    def fits(batch: int) -> bool:
        """Whether a batch takes at most the limit with the required probability."""
        table = interpolated_features(graph, [batch], setting).assign(**dict(device or {}))
        return bool(model.probability_below(table, limit)[0] >= required)

    return largest_that(fits, _guess(check_graph(graph), limit, setting))


def _guess(graph: OpGraph, limit_gib: float, setting: Setting | None) -> int:
    """Batch at which the tensors alone take half of the memory."""
    one, many = allocated_bytes(step_events(graph, setting), [1, 65])
    return max(int((limit_gib * GIB / 2 - one) // max((many - one) / 64, 1.0)), 1)
