"""`TrainingCostRegressor`: DNNAbacus on a table of features."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from gpudemand._array import FloatArray
from gpudemand._validation import InputError, check_choice, check_features, check_number, stack_level, told
from gpudemand.cost.feature_table import EDGE
from gpudemand.cost.regression import (
    NEEDED,
    TERMS,
    AdditiveCostModel,
    ConformityScores,
    check_costs,
    grouped_folds,
    interpolated_peak,
)

#: Grid of the weight of the correction.
_WEIGHTS = np.linspace(0.0, 1.0, 5)
#: Largest over least cost of repetitions, beyond which they are of different jobs; of half of our own it is below 1.15.
_ALIKE = 1.5
LEARNERS = ("extra_trees", "random_forest", "gradient_boosting", "knn", "ridge", "mlp")


class TrainingCostRegressor(RegressorMixin, BaseEstimator):
    """Predict the cost of a training step: an additive model of its work, times a learned correction.

    The additive model is a non-negative sum over operator classes of operations, bytes and calls (time), or of saved
    activations, gradients and optimizer state (memory), fitted in relative error. The learner predicts the logarithm of
    its residual ratio from hyper-parameters, shares of the work, and the network structural matrix of DNNAbacus. The
    additive model extrapolates to sizes never measured, which trees alone do not.

    Parameters
    ----------
    target : {"time", "memory"}, default="time"
        Which terms the additive model has.
    learner : str, default="auto"
        One of ``extra_trees, random_forest, gradient_boosting, knn, ridge, mlp``, or ``"auto"``: the one with the
        smallest median error in cross-validation over groups, the MLP excluded.
    structure : bool, default=True
        Use the structural matrix.
    n_splits : int, default=5
        Folds for choosing the learner and for the intervals.
    random_state : int, default=0

    Attributes
    ----------
    learner_ : str
        The learner in use.
    scores_ : dict of str to float
        Median relative error in cross-validation, by learner.
    correction_weight_ : float
        Shrinkage of the learner's correction from 0 to 1, chosen in the same cross-validation.
    additive_model_ : AdditiveCostModel
    conformity_scores_ : ConformityScores
        Scaled cross-validation errors, from which the intervals are made.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    References
    ----------
    Bai et al., DNNAbacus, arXiv:2205.12095, 2022.

    Examples
    --------
    >>> from gpudemand.cost import features_from_rows, load_architectures, load_measurements
    >>> rows = load_measurements().iloc[::20]
    >>> X, networks = features_from_rows(rows, load_architectures()), rows["network"]
    >>> model = TrainingCostRegressor(learner="ridge").fit(X, rows["step_time_s"], networks)
    >>> low, high = model.predict_interval(X, 90).T
    >>> bool((low < model.predict(X)).all() and (model.predict(X) < high).all())
    True
    """

    def __init__(
        self,
        target: str = "time",
        learner: str = "auto",
        structure: bool = True,
        n_splits: int = 5,
        random_state: int = 0,
    ) -> None:
        self.target = target
        self.learner = learner
        self.structure = structure
        self.n_splits = n_splits
        self.random_state = random_state

    @told("Fitting {}")
    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> TrainingCostRegressor:
        """Fit additive model, correction and intervals.

        Parameters
        ----------
        X : DataFrame of shape (n_jobs, n_features)
            What `gpudemand.cost.features_from_rows` returns.
        y : array-like of shape (n_jobs,)
            Seconds, or GiB; positive.
        groups : array-like of shape (n_jobs,), optional
            Networks (or families): whole groups are held out when learners are compared and intervals made, so that
            both are about networks never seen. Rows are held out one by one without it.

        Raises
        ------
        InputError
            For parameters out of range, missing columns or numbers, costs that are not positive, or a single group.
        """
        check_choice("target", self.target, TERMS)
        X = _checked(X, NEEDED)
        y = check_costs(y, len(X))
        check_choice("learner", self.learner, ("auto", *LEARNERS))
        n_splits = int(check_number("n_splits", self.n_splits, 2, 50, integer=True))
        folds = grouped_folds(n_splits, len(X), groups, self.random_state)
        _warn_of_hidden_differences(X, y)
        names = LEARNERS[:-1] if self.learner == "auto" else (self.learner,)
        held_out = {name: self._held_out(name, X, y, folds) for name in names}
        weights = {name: _select_weight(residual, correction) for name, (residual, correction, _) in held_out.items()}
        self.scores_ = {name: score for name, (_, score) in weights.items()}
        self.learner_ = min(self.scores_, key=lambda name: self.scores_[name])
        self.correction_weight_ = weights[self.learner_][0]
        self._fit_parts(self.learner_, X, y)
        residual, correction, scale = held_out[self.learner_]
        errors = np.abs(residual - self.correction_weight_ * correction) / scale
        self.conformity_scores_ = ConformityScores.from_errors(errors, np.arange(len(y)))
        self.feature_names_in_, self.n_features_in_ = np.asarray(X.columns, dtype=object), X.shape[1]
        return self

    def predict(self, X: pd.DataFrame) -> FloatArray:
        """Predict seconds or GiB, shape (n_jobs,)."""
        return self._predict(X)[0]

    def predict_interval(self, X: pd.DataFrame, level: float = 90) -> FloatArray:
        """Predict an interval that covers `level` percent of jobs like those held out in `fit`.

        Split conformal prediction: cross-validation errors over groups, scaled by the standard deviation over the
        learner's members, so that an interval widens where the training data is thin.

        Returns
        -------
        ndarray of shape (n_jobs, 2)
            Lower and upper ends.
        """
        cost, scale = self._predict(X)
        return self.conformity_scores_.intervals(cost, scale, [level])[:, 1:]

    def _predict(self, X: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
        """Cost and scale of its log error."""
        check_is_fitted(self, "learner_")
        needed = [name for name in self.feature_names_in_ if not str(name).startswith(EDGE)]
        # A pair of operators that this table lacks does not occur in its networks.
        X = _checked(X, needed).reindex(columns=list(self.feature_names_in_))
        work, correction, scale = self._predict_parts(
            X.fillna({name: 0.0 for name in X.columns if str(name).startswith(EDGE)})
        )
        return work * np.exp(self.correction_weight_ * correction), scale

    def _held_out(self, learner: str, X: pd.DataFrame, y: FloatArray, folds: Sequence[Any]) -> tuple[FloatArray, ...]:
        """Log residuals of the additive model, corrections and error scales of held-out rows."""
        residual, correction, scale = np.empty((3, len(y)))
        for train, test in folds:
            part = clone(self)
            part._fit_parts(learner, X.iloc[train], y[train])
            work, correction[test], scale[test] = part._predict_parts(X.iloc[test])
            residual[test] = np.log(y[test] / work)
        return residual, correction, scale

    def _fit_parts(self, learner: str, X: pd.DataFrame, y: FloatArray) -> None:
        self.additive_model_ = AdditiveCostModel(self.target).fit(X, y)
        work = self.additive_model_.predict(X)
        residual = np.log(y / work)
        features = correction_features(X, work, structure=self.structure)
        self._learner = make_learner(learner, features, self.random_state).fit(features, residual)
        self._range = np.quantile(residual, [0.0, 1.0])

    def _predict_parts(self, X: pd.DataFrame) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Work, log correction and error scale."""
        work = self.additive_model_.predict(X)
        features = correction_features(X, work, structure=self.structure)
        features = features.reindex(columns=self._learner.feature_names_in_, fill_value=0.0)
        correction = np.clip(self._learner.predict(features), *self._range)  # linear learners extrapolate
        return work, correction, ensemble_std(self._learner, features)


def _checked(X: Any, required: Sequence[str]) -> pd.DataFrame:
    """A table with rows, whose numbers are known and whose amounts of work are those of a step."""
    X = check_features(X, required)
    if X.empty:
        raise InputError("X has no rows; give a row a job.")
    # What is missing of edges does not occur, and data sheets do not tell all of a device.
    for name in (one for one in X.select_dtypes("number").columns if not str(one).startswith((EDGE, "device_"))):
        values = X[name].to_numpy(dtype=float)
        least = 1.0 if name == "batch_size" else 0.0 if name in NEEDED else -np.inf
        wrong = int((~(np.isfinite(values) & (values >= least))).sum())
        if wrong:
            bound = f", or below {least:g}" if np.isfinite(least) else ""
            raise InputError(
                f"the column {name} of X holds {wrong} values that are missing, infinite{bound}; drop them."
            )
    return X


def _warn_of_hidden_differences(X: pd.DataFrame, y: FloatArray) -> None:
    """Warn if costs of jobs with equal features differ by more than noise, as on two GPUs that no column tells of."""
    groups = pd.Series(y).groupby(pd.util.hash_pandas_object(X.astype(object).astype(str), index=False).to_numpy())
    ratios = (groups.max() / groups.min())[groups.size() > 1]
    if len(ratios) and ratios.median() > _ALIKE:
        message = (
            f"jobs with equal features have costs {ratios.median():.2g} times apart (median of {len(ratios)}): they "
            "differ in what no column of X tells, such as the GPU; add it as a column (features_from_jobs has those of "
            "devices), or fit the rows of each GPU by themselves."
        )
        warnings.warn(message, stacklevel=stack_level())


def _select_weight(residual: FloatArray, correction: FloatArray) -> tuple[float, float]:
    """Weight of the correction with the smallest median relative error on held-out rows, and that error."""
    scores = {float(w): float(np.median(np.abs(np.expm1(residual - w * correction)))) for w in _WEIGHTS}
    best = min(scores, key=lambda weight: scores[weight])
    return best, scores[best]


def correction_features(X: pd.DataFrame, work: FloatArray, *, structure: bool) -> pd.DataFrame:
    """Features of the correction: categories, sizes on a log scale, shares of the work, shares of edges."""
    shares = {amount: _shares(X.filter(regex=f"^{amount}_")) for amount in ("flops", "bytes", "saved_bytes", "calls")}
    edges = X.filter(regex=f"^{EDGE}")
    numbers = X.select_dtypes("number").drop(
        columns=[*edges.columns, *(c for part in shares.values() for c in part.columns)]
    )
    sizes = np.log1p(numbers.clip(lower=0.0)).assign(work=np.log(work))
    for amount in ("flops", "bytes", "saved_bytes"):
        sizes[f"batch_{amount}"] = np.log1p(X[amount] * X["batch_size"])
    sizes["allocated"] = np.log(np.maximum(interpolated_peak(X), 1.0) / work)
    sizes["intensity"] = np.log1p(X["flops"]) - np.log1p(X["bytes"])
    text = X.select_dtypes(exclude="number").astype(object)
    return pd.concat([text, sizes, *shares.values(), _shares(edges) if structure else edges.iloc[:, :0]], axis=1)


def _shares(parts: pd.DataFrame) -> pd.DataFrame:
    total = parts.sum(axis=1).to_numpy(dtype=float)[:, None]
    return parts.div(np.where(total > 0, total, 1.0))


class OneThreadBoosting(HistGradientBoostingRegressor):
    """Gradient boosting on one thread: on some thousand rows, threads wait for one another most of the time."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit as `HistGradientBoostingRegressor` does."""
        with threadpool_limits(1, "openmp"):
            return super().fit(X, y, sample_weight)

    def predict(self, X: Any) -> FloatArray:
        """Predict as `HistGradientBoostingRegressor` does."""
        with threadpool_limits(1, "openmp"):
            return np.asarray(super().predict(X))


def make_learner(name: str, features: pd.DataFrame, random_state: int) -> Any:
    """Pipeline from `correction_features` to a log correction."""
    text = list(features.select_dtypes(exclude="number").columns)
    numbers = [column for column in features.columns if column not in text]
    trees: dict[str, Any] = {
        "extra_trees": ExtraTreesRegressor(300, min_samples_leaf=2, max_features=0.4, random_state=random_state),
        "random_forest": RandomForestRegressor(200, min_samples_leaf=2, max_features=0.4, random_state=random_state),
        "gradient_boosting": OneThreadBoosting(
            max_iter=300, learning_rate=0.05, max_leaf_nodes=15, l2_regularization=1.0, random_state=random_state
        ),
    }
    scaled: dict[str, Any] = {
        "knn": KNeighborsRegressor(5, weights="distance"),
        "ridge": RidgeCV(np.logspace(-2, 4, 13)),
        "mlp": MLPRegressor(
            hidden_layer_sizes=(128, 64), alpha=1e-2, early_stopping=True, max_iter=500, random_state=random_state
        ),
    }
    scale = StandardScaler() if name in scaled else FunctionTransformer(feature_names_out="one-to-one")
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), text),
        (scale, numbers),
        verbose_feature_names_out=False,
    )
    return make_pipeline(encode, {**trees, **scaled}[name])


def ensemble_std(model: Any, features: pd.DataFrame) -> FloatArray:
    """Standard deviation over the members of a forest; 1 for learners without members."""
    forest = model[-1]
    if not isinstance(forest, (ExtraTreesRegressor, RandomForestRegressor)):
        return np.ones(len(features))
    encoded = np.asarray(model[:-1].transform(features), dtype=np.float32)
    deviation = np.std([tree.predict(encoded) for tree in forest.estimators_], axis=0)
    return np.maximum(deviation, np.finfo(float).eps)
