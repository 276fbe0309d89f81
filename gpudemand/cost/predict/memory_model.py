"""`MemoryModel`: peak memory of a training step from its simulation, with a learned correction."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError, check_columns
from gpudemand.cost.predict.error_scale import MAX_RESIDUAL, MIN_SCALE, fit_error_scale
from gpudemand.cost.predict.step_time_model import FarFromTrainingWarning
from gpudemand.cost.predict.stored_arrays import check_arrays
from gpudemand.cost.predict.trees import Trees, grow_boosted
from gpudemand.cost.regression.conformal import ConformityScores
from gpudemand.cost.regression.nonnegative import fit_robust
from gpudemand.cost.regression.targets import check_costs, group_numbers, grouped_folds

#: Columns of `gpudemand.cost.memory.simulation.memory_features` that are terms of the additive model.
TERMS = ("reserved", "allocated", "workspace:layout", "workspace:columns", "part:parameters")
#: The context of driver and libraries grows with the logarithm of the multiprocessors.
_DEVICE = "device_sms"
#: Terms of compiled networks; zero for eager ones.
_COMPILED = "compile:"
_GIB = 2.0**30
_SIZES = ("reserved", "part:parameters", "batch_size", "operators")
#: Attributes of a stored model: arrays, and tree ensembles.
_ARRAY_KEYS = ("low_", "high_", "range_")
_TREES_STORED = ("trees_", "error_scale_")
#: Types and shapes of the arrays of a stored model.
_STORED = {
    "parameters": "i 4",
    "feature_names": "U features",
    "coefficient_names": "U terms",
    "coefficients_": "f terms",
    **dict.fromkeys(("conformity_scores_", "conformity_weights_"), "f scores"),
    **dict.fromkeys(("low_", "high_"), f"f {len(_SIZES)}"),
    "range_": "f 2",
    **{name: shape for prefix in _TREES_STORED for name, shape in Trees.stored(prefix).items()},
}


class MemoryModel(RegressorMixin, BaseEstimator):
    """Predict peak memory: a non-negative sum of simulated amounts, times a learned correction.

    The sum (memory reserved by the simulated allocator, scratch memory of convolutions, weights, and a constant for
    driver and libraries) is fitted in relative error, robust to measurements that broke off. Boosted trees predict the
    log residual from proportions only. Intervals are conformal, from groups that were held out.

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
    coefficients_ : Series
        Coefficient of each term; ``start`` in GiB.
    conformity_scores_ : ConformityScores
        Scaled errors of held-out groups, ``log(y / prediction)``.
    low_, high_ : ndarray
        Smallest and largest log sizes in training.

    See Also
    --------
    gpudemand.cost.memory_features : The table it takes.

    References
    ----------
    Gao et al., "Estimating GPU Memory Consumption of Deep Learning Models" (DNNMem), ESEC/FSE 2020.

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
        """Fit coefficients, correction and intervals.

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
            If columns are missing, or `y` holds values that are no amount of memory.
        """
        X, y = check_columns(X, (*TERMS, *_SIZES), "X"), check_costs(y, len(X), "are no amount of memory")
        groups = group_numbers(groups, len(y))
        self.feature_names_in_ = np.array([name for name in X.columns if _is_feature(name, X)], dtype=object)
        self.n_features_in_ = self.feature_names_in_.size
        folds = grouped_folds(self.n_splits, len(y), groups)
        errors = self._held_out_errors(X, y, folds)
        self._fit_parts(X, y)
        features, sizes = self._features(X), self._sizes(X)
        settings = {"n_trees": max(self.n_trees // 4, 1), "random_state": self.random_state}
        self.error_scale_, held_out = fit_error_scale(features, errors, folds, **settings)
        self.low_, self.high_ = sizes.min(axis=0), sizes.max(axis=0)
        self.conformity_scores_ = ConformityScores.from_errors(errors / _scale(held_out), groups)
        return self

    def predict(self, X: pd.DataFrame) -> FloatArray:
        """Predict GiB, shape (n_jobs,)."""
        X = self._known(X)
        return self._predict(X, self._features(X))

    def predict_interval(self, X: pd.DataFrame, level: float = 90) -> FloatArray:
        """Predict an interval that covers `level` percent of jobs of groups never seen.

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
        far = int((self._excess(X) > 0.5).sum())
        if far:
            warnings.warn(
                f"{far} of {len(X)} jobs are larger or smaller than every job in training; their intervals are wide.",
                FarFromTrainingWarning,
                stacklevel=2,
            )
        return self.conformity_scores_.intervals(self._predict(X, features), self._error_scale(X, features), levels)

    def probability_below(self, X: pd.DataFrame, limit_gib: Any) -> FloatArray:
        """Probability that each job takes at most `limit_gib`, by the errors of held-out groups, shape (n_jobs,).

        Parameters
        ----------
        X : DataFrame of shape (n_jobs, n_features)
            As for `fit`.
        limit_gib : float or array-like of shape (n_jobs,)
            Available memory.
        """
        X = self._known(X)
        features = self._features(X)
        # A job smaller than all in training fits, however large its relative error.
        scale = self._error_scale(X, features, small=False)
        room = np.log(np.asarray(limit_gib, dtype=float) / self._predict(X, features)) / scale
        return self.conformity_scores_.cdf(room)

    def to_arrays(self) -> dict[str, Any]:
        """Return the fitted model as plain arrays, for ``numpy.savez``."""
        check_is_fitted(self, "coefficients_")
        trees = {name: getattr(self, name)._asdict() for name in _TREES_STORED}
        return {
            "parameters": np.array([self.n_trees, self.depth, self.n_splits, self.random_state]),
            "feature_names": np.array(list(map(str, self.feature_names_in_)), dtype=str),
            "coefficient_names": np.array(list(self.coefficients_.index), dtype=str),
            "coefficients_": self.coefficients_.to_numpy(),
            "conformity_scores_": self.conformity_scores_.scores,
            "conformity_weights_": self.conformity_scores_.weights,
            **{name: getattr(self, name) for name in _ARRAY_KEYS},
            **{f"{name}{part}": array for name, parts in trees.items() for part, array in parts.items()},
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> MemoryModel:
        """Restore a model from what `to_arrays` returned, or from an opened ``.npz``.

        Raises
        ------
        InputError
            If arrays are missing, unknown, or of another type or shape.
        """
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
        for name in _ARRAY_KEYS:
            setattr(model, name, np.asarray(arrays[name]))
        example = pd.DataFrame(1.0, index=[0], columns=list(model.feature_names_in_))
        if not {*TERMS, *_SIZES} <= set(example) or set(model._terms(example)) != set(model.coefficients_.index):
            raise InputError("its features and coefficients do not belong together.")
        n_features = model._features(example).shape[1]
        for prefix in _TREES_STORED:
            setattr(model, prefix, Trees.from_arrays(arrays, prefix, n_features))
        return model

    def _fit_parts(self, X: pd.DataFrame, y: FloatArray) -> None:
        self.coefficients_ = fit_robust(self._terms(X), y)
        residual = np.log(y / self._sum(X))
        sound = np.abs(residual) < MAX_RESIDUAL
        if sound.sum() < len(y) / 2:
            sound[:] = True
        features, settings = self._features(X)[sound], {"n_trees": self.n_trees, "depth": self.depth}
        self.trees_ = grow_boosted(features, residual[sound], random_state=self.random_state, **settings)
        self.range_ = np.quantile(residual[sound], [0.0, 1.0])

    def _held_out_errors(self, X: pd.DataFrame, y: FloatArray, folds: list[tuple[IntArray, IntArray]]) -> FloatArray:
        """Log errors of held-out rows."""
        errors = np.empty(len(y))
        for train, test in folds:
            part = MemoryModel(self.n_trees, self.depth, self.n_splits, self.random_state)
            part.feature_names_in_ = self.feature_names_in_
            part._fit_parts(X.iloc[train], y[train])
            rows = X.iloc[test]
            errors[test] = np.log(y[test] / part._predict(rows, part._features(rows)))
        return errors

    def _known(self, X: pd.DataFrame) -> pd.DataFrame:
        check_is_fitted(self, "coefficients_")
        return check_columns(X, self.feature_names_in_, "X")

    def _predict(self, X: pd.DataFrame, features: FloatArray) -> FloatArray:
        return self._sum(X) * np.exp(np.clip(self.trees_.predict(features), *self.range_))

    def _sum(self, X: pd.DataFrame) -> FloatArray:
        terms = self._terms(X)
        return np.maximum(terms.to_numpy(dtype=float) @ self.coefficients_[terms.columns].to_numpy(), 1e-6)

    def _terms(self, X: pd.DataFrame) -> pd.DataFrame:
        compiled = [name for name in self.feature_names_in_ if str(name).startswith(_COMPILED)]
        terms = (X[[*TERMS, *compiled]].astype(float) / _GIB).assign(start=1.0)
        if _DEVICE not in self.feature_names_in_:
            return terms
        return terms.assign(**{_DEVICE: np.log(np.maximum(X[_DEVICE].astype(float), 1.0))})

    def _features(self, X: pd.DataFrame) -> FloatArray:
        """Amounts of memory relative to what is reserved, shares, and a few sizes on a log scale."""
        known = X[list(self.feature_names_in_)].astype(float)
        reserved = np.maximum(known["reserved"].to_numpy(), 1.0)
        amounts = [name for name in known.columns if _is_amount(name)]
        relative = known[amounts].to_numpy() / reserved[:, None]
        # Without the device: trees would identify it by its number, and not generalise to others.
        rest = known[[name for name in known.columns if name not in (*amounts, *_SIZES, _DEVICE)]].to_numpy()
        return np.column_stack([relative, rest, self._sizes(X)])

    def _sizes(self, X: pd.DataFrame) -> FloatArray:
        return np.log(np.maximum(X[list(_SIZES)].to_numpy(dtype=float), 1.0))

    def _error_scale(self, X: pd.DataFrame, features: FloatArray, *, small: bool = True) -> FloatArray:
        """Scale by trees, up to three times as large outside the sizes seen in training."""
        return _scale(self.error_scale_.predict(features)) * (1.0 + np.minimum(self._excess(X, small=small), 2.0))

    def _excess(self, X: pd.DataFrame, *, small: bool = True) -> FloatArray:
        """Sum of log distances of the sizes above those of training (and below, if `small`)."""
        sizes = self._sizes(X)
        below = self.low_ - sizes if small else np.zeros_like(sizes)
        return np.maximum(np.maximum(below, sizes - self.high_), 0.0).sum(axis=1)


def _scale(log_scale: FloatArray) -> FloatArray:
    return np.asarray(np.exp(np.maximum(log_scale, np.log(MIN_SCALE))))


def _is_feature(name: Any, X: pd.DataFrame) -> bool:
    return pd.api.types.is_numeric_dtype(X[name]) and (
        name in (*TERMS, *_SIZES, "when", _DEVICE)
        or str(name).startswith(("part:", "workspace:", "conv:", "share:", _COMPILED))
    )


def _is_amount(name: str) -> bool:
    return name == "allocated" or name.startswith(("part:", "workspace:", "conv:", _COMPILED))
