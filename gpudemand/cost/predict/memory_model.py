"""`MemoryModel`: peak memory of a training step, from what was simulated and what was measured."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import GroupKFold
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError, check_columns
from gpudemand.cost.predict.step_time_model import FarFromTrainingWarning
from gpudemand.cost.predict.trees import Trees, grow_boosted
from gpudemand.cost.regression.nonnegative import robust_prices
from gpudemand.cost.regression.targets import check_costs, group_numbers, sort_errors, with_intervals

#: Columns of `gpudemand.cost.memory.simulation.memory_features` that add up to the memory of a job.
TERMS = ("reserved", "allocated", "workspace:layout", "workspace:columns", "part:parameters")
#: What the driver and the libraries take grows with the multiprocessors of a GPU, slower than in proportion.
_DEVICE = "device_sms"
#: What a compiler takes for what it makes of a network; zero for jobs that are not compiled.
_COMPILED = "compile:"
_GIB = 2.0**30
#: Corrections beyond this factor (of the logarithm) are not learned from: a job that broke off before its peak.
_LARGEST = 0.7
#: Least doubt about a prediction, in units of the logarithm.
_LEAST_DOUBT = 0.01
_SIZES = ("reserved", "part:parameters", "batch_size", "operators")


class MemoryModel(RegressorMixin, BaseEstimator):
    """Predict peak memory: a non-negative sum of simulated amounts, times a learned correction.

    The sum (memory reserved by the simulated allocator, scratch memory of convolutions, weights, and a constant for
    driver and libraries) is fitted in relative error, where measurements that broke off count for little. Boosted
    trees learn the logarithm of what is left, from proportions only. Intervals come from groups that were held out.

    Parameters
    ----------
    n_trees : int, default=200
    depth : int, default=4
        Of a tree.
    n_splits : int, default=5
        Folds of whole groups, for the intervals.
    random_state : int, default=0

    Attributes
    ----------
    prices_ : Series
        Weight of each term; ``start`` in GiB.
    spread_ : ndarray
        Sorted errors of held-out groups, ``log(y / prediction)``, relative to the doubt about each.
    spread_weights_ : ndarray
        How much each of them counts.
    low_, high_ : ndarray
        Smallest and largest sizes seen in training.

    See Also
    --------
    gpudemand.cost.memory_features : The table it takes.

    References
    ----------
    Gao et al., "Estimating GPU Memory Consumption of Deep Learning Models" (DNNMem), ESEC/FSE 2020; Vovk, Gammerman,
    Shafer, "Algorithmic Learning in a Random World", 2005, for the intervals.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame({name: rng.uniform(1, 8, 120) * 2**30 for name in TERMS})
    >>> table = table.assign(batch_size=32.0, operators=100.0, allocated=0.9 * table["reserved"])
    >>> y = 1.5 + table["reserved"].to_numpy() / 2**30
    >>> model = MemoryModel(n_trees=20).fit(table, y, groups=np.arange(120) % 10)
    >>> float(np.abs(model.predict(table) / y - 1).max().round(2))
    0.0
    >>> model.probability_below(table.head(1), y[0] + 1.0).round(1).tolist()
    [1.0]
    """

    def __init__(self, n_trees: int = 200, depth: int = 4, n_splits: int = 5, random_state: int = 0) -> None:
        self.n_trees = n_trees
        self.depth = depth
        self.n_splits = n_splits
        self.random_state = random_state

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> MemoryModel:
        """Fit prices, correction and intervals.

        Parameters
        ----------
        X : DataFrame of shape (n_jobs, n_features)
            What `gpudemand.cost.memory_features` returns; ``device_sms`` beside it if jobs ran on several devices.
        y : array-like of shape (n_jobs,)
            GiB. Which memory it is (allocated, reserved, of the device) is what will be predicted.
        groups : array-like of shape (n_jobs,), optional
            What new jobs will differ in (families of networks, devices). By default every row is a group.

        Raises
        ------
        InputError
            If columns are missing, or `y` holds what is no amount of memory.
        """
        X, y = check_columns(X, (*TERMS, *_SIZES), "X"), check_costs(y, len(X), "are no amount of memory")
        groups = group_numbers(groups, len(y))
        self.feature_names_in_ = np.array([name for name in X.columns if _is_feature(name, X)], dtype=object)
        self.n_features_in_ = self.feature_names_in_.size
        error = self._held_out(X, y, groups)
        self._fit_parts(X, y)
        features = self._features(X)
        size = np.log(np.clip(np.abs(error), _LEAST_DOUBT, _LARGEST))
        self.doubt_ = self._grow_doubt(features, size)
        sizes = self._sizes(X)
        self.low_, self.high_ = sizes.min(axis=0), sizes.max(axis=0)
        scaled = error / self._held_out_doubt(features, size, groups)
        self.spread_, self.spread_weights_ = sort_errors(scaled, groups)
        return self

    def predict(self, X: pd.DataFrame) -> FloatArray:
        """Predict GiB, shape (n_jobs,)."""
        X = self._known(X)
        return self._predict(X, self._features(X))

    def predict_interval(self, X: pd.DataFrame, level: float = 90) -> FloatArray:
        """Predict an interval that holds `level` percent of jobs of groups never seen.

        Returns
        -------
        ndarray of shape (n_jobs, 2)
            Lower and upper ends; wider for jobs larger or smaller than any in training.

        Warns
        -----
        FarFromTrainingWarning
            If jobs lie outside the sizes seen in training.
        """
        return self.predict_all(X, [level])[:, 1:]

    def predict_all(self, X: pd.DataFrame, levels: Sequence[float]) -> FloatArray:
        """Predict, with intervals of several levels; see `predict` and `predict_interval`.

        Returns
        -------
        ndarray of shape (n_jobs, 1 + 2 n_levels)
            The prediction, then the lower and the upper end at each level.
        """
        X = self._known(X)
        features = self._features(X)
        self._warn(X)
        memory, doubt = self._predict(X, features), self._doubt(X, features)
        return with_intervals(memory, doubt, (self.spread_, self.spread_weights_), levels)

    def probability_below(self, X: pd.DataFrame, limit_gib: Any) -> FloatArray:
        """Probability that each job takes at most `limit_gib`, by the errors of held-out groups, shape (n_jobs,).

        Parameters
        ----------
        X : DataFrame of shape (n_jobs, n_features)
            As for `fit`.
        limit_gib : float or array-like of shape (n_jobs,)
            Memory that there is.
        """
        X = self._known(X)
        features = self._features(X)
        # A job smaller than all in training may be misjudged many times over, and fits all the same.
        doubt = self._doubt(X, features, small=False)
        room = np.log(np.asarray(limit_gib, dtype=float) / self._predict(X, features)) / doubt
        reached = np.concatenate([[0.0], np.cumsum(self.spread_weights_)])
        return np.asarray(np.minimum(reached[np.searchsorted(self.spread_, room, side="right")], 1.0))

    def to_arrays(self) -> dict[str, Any]:
        """Return everything that was learned as plain arrays, for ``numpy.savez``."""
        check_is_fitted(self, "prices_")
        return {
            "parameters": np.array([self.n_trees, self.depth, self.n_splits, self.random_state]),
            "feature_names": np.array(list(map(str, self.feature_names_in_)), dtype=str),
            "price_names": np.array(list(self.prices_.index), dtype=str),
            "prices": self.prices_.to_numpy(),
            **{name: getattr(self, name) for name in ("spread_", "spread_weights_", "low_", "high_", "range_")},
            **{f"trees_{name}": array for name, array in self.trees_._asdict().items()},
            **{f"doubt_{name}": array for name, array in self.doubt_._asdict().items()},
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> MemoryModel:
        """Restore a model from what `to_arrays` returned, or from an opened ``.npz``."""
        model = cls(*(int(value) for value in arrays["parameters"]))
        model.feature_names_in_ = np.array([str(name) for name in arrays["feature_names"]], dtype=object)
        model.n_features_in_ = model.feature_names_in_.size
        model.prices_ = pd.Series(arrays["prices"], index=[str(name) for name in arrays["price_names"]])
        for name in ("spread_", "spread_weights_", "low_", "high_", "range_"):
            setattr(model, name, np.asarray(arrays[name]))
        model.trees_ = Trees(*(np.asarray(arrays[f"trees_{name}"]) for name in Trees._fields))
        model.doubt_ = Trees(*(np.asarray(arrays[f"doubt_{name}"]) for name in Trees._fields))
        return model

    def _fit_parts(self, X: pd.DataFrame, y: FloatArray) -> None:
        self.prices_ = robust_prices(self._terms(X), y)
        left = np.log(y / self._base(X))
        sound = np.abs(left) < _LARGEST
        if sound.sum() < len(y) / 2:
            sound[:] = True
        features = self._features(X)[sound]
        self.trees_ = grow_boosted(
            features, left[sound], n_trees=self.n_trees, depth=self.depth, random_state=self.random_state
        )
        self.range_ = np.quantile(left[sound], [0.0, 1.0])

    def _held_out(self, X: pd.DataFrame, y: FloatArray, groups: IntArray) -> FloatArray:
        """Log errors for rows of groups that were held out."""
        n_groups = np.unique(groups).size
        if n_groups < 2:
            raise InputError("groups holds a single group; two are needed to hold one out.")
        error = np.empty(len(y))
        for train, test in GroupKFold(min(self.n_splits, n_groups)).split(X, y, groups):
            part = MemoryModel(self.n_trees, self.depth, self.n_splits, self.random_state)
            part.feature_names_in_ = self.feature_names_in_
            part._fit_parts(X.iloc[train], y[train])
            rows = X.iloc[test]
            error[test] = np.log(y[test] / part._predict(rows, part._features(rows)))
        return error

    def _grow_doubt(self, features: FloatArray, size: FloatArray) -> Trees:
        return grow_boosted(features, size, n_trees=max(self.n_trees // 4, 1), depth=3, random_state=self.random_state)

    def _held_out_doubt(self, features: FloatArray, size: FloatArray, groups: IntArray) -> FloatArray:
        """Doubt about rows of groups that were held out: of those it was fitted on it would know too much."""
        doubt = np.empty(len(size))
        for train, test in GroupKFold(min(self.n_splits, np.unique(groups).size)).split(features, size, groups):
            doubt[test] = self._grow_doubt(features[train], size[train]).predict(features[test])
        return _as_doubt(doubt)

    def _known(self, X: pd.DataFrame) -> pd.DataFrame:
        check_is_fitted(self, "prices_")
        return check_columns(X, self.feature_names_in_, "X")

    def _predict(self, X: pd.DataFrame, features: FloatArray) -> FloatArray:
        # A correction beyond any seen in training is a learner that has lost its way, not a discovery.
        return self._base(X) * np.exp(np.clip(self.trees_.predict(features), *self.range_))

    def _base(self, X: pd.DataFrame) -> FloatArray:
        terms = self._terms(X)
        return np.maximum(terms.to_numpy(dtype=float) @ self.prices_[terms.columns].to_numpy(), 1e-6)

    def _terms(self, X: pd.DataFrame) -> pd.DataFrame:
        compiled = [name for name in self.feature_names_in_ if str(name).startswith(_COMPILED)]
        terms = (X[[*TERMS, *compiled]].astype(float) / _GIB).assign(start=1.0)
        if _DEVICE not in self.feature_names_in_:
            return terms
        return terms.assign(**{_DEVICE: np.log(np.maximum(X[_DEVICE].astype(float), 1.0))})

    def _features(self, X: pd.DataFrame) -> FloatArray:
        """Proportions: amounts of memory relative to what is reserved, shares, and a few sizes on a log scale."""
        known = X[list(self.feature_names_in_)].astype(float)
        reserved = np.maximum(known["reserved"].to_numpy(), 1.0)
        amounts = [name for name in known.columns if _is_amount(name)]
        relative = known[amounts].to_numpy() / reserved[:, None]
        # Trees would know a device by its number, and have nothing to say of another one.
        rest = known[[name for name in known.columns if name not in (*amounts, *_SIZES, _DEVICE)]].to_numpy()
        return np.column_stack([relative, rest, self._sizes(X)])

    def _sizes(self, X: pd.DataFrame) -> FloatArray:
        return np.log(np.maximum(X[list(_SIZES)].to_numpy(dtype=float), 1.0))

    def _doubt(self, X: pd.DataFrame, features: FloatArray, *, small: bool = True) -> FloatArray:
        # Beyond three times the usual width an interval says no more than that nothing is known.
        return _as_doubt(self.doubt_.predict(features)) * (1.0 + np.minimum(self._beyond(X, small=small), 2.0))

    def _beyond(self, X: pd.DataFrame, *, small: bool = True) -> FloatArray:
        """How far the sizes of each job lie above those of training (or below, if `small`), in factors of e."""
        sizes = self._sizes(X)
        below = self.low_ - sizes if small else np.zeros_like(sizes)
        return np.maximum(np.maximum(below, sizes - self.high_), 0.0).sum(axis=1)

    def _warn(self, X: pd.DataFrame) -> None:
        far = int((self._beyond(X) > 0.5).sum())
        if far:
            warnings.warn(
                f"{far} of {len(X)} jobs are larger or smaller than every job in training; their intervals are wide.",
                FarFromTrainingWarning,
                stacklevel=3,
            )


def _as_doubt(size: FloatArray) -> FloatArray:
    return np.asarray(np.exp(np.maximum(size, np.log(_LEAST_DOUBT))))


def _is_feature(name: Any, X: pd.DataFrame) -> bool:
    return pd.api.types.is_numeric_dtype(X[name]) and (
        name in (*TERMS, *_SIZES, "when", _DEVICE)
        or str(name).startswith(("part:", "workspace:", "conv:", "share:", _COMPILED))
    )


def _is_amount(name: str) -> bool:
    return name == "allocated" or name.startswith(("part:", "workspace:", "conv:", _COMPILED))
