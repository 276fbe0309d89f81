"""`TrainingCostRegressor`: time or memory of a training step from a table of features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GroupKFold, KFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, check_columns, check_number
from gpudemand.cost.regression.additive import NEEDED, TERMS, WorkModel, allocated
from gpudemand.cost.regression.feature_table import EDGE
from gpudemand.cost.regression.targets import check_costs

#: Shares of a correction that are tried.
_TRUSTS = np.linspace(0.0, 1.0, 5)
LEARNERS = ("extra_trees", "random_forest", "gradient_boosting", "knn", "ridge", "mlp")


class TrainingCostRegressor(RegressorMixin, BaseEstimator):
    """Predict what a training step costs: a sum of the work in it, times a learned correction.

    The work is a non-negative sum over operator classes of operations, bytes and calls (time), or of activations kept,
    gradients and optimizer state (memory), fitted in relative error. The learner predicts the logarithm of what is
    left, from hyper-parameters, shares of the work, and the network structural matrix of DNNAbacus. Work carries a
    prediction to sizes never measured, where a tree alone would repeat the largest it has seen.

    Parameters
    ----------
    target : {"time", "memory"}, default="time"
        Which terms the work has.
    learner : str, default="auto"
        One of ``extra_trees, random_forest, gradient_boosting, knn, ridge, mlp``, or ``"auto"``: the one with the
        smallest median error in cross-validation over groups, the MLP aside.
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
        Median relative error in cross-validation, by learner; holds the one in use at least.
    trust_ : float
        Share of the learner's correction that is applied, chosen in the same cross-validation.
    work_ : WorkModel
    spread_ : ndarray
        Scaled errors of cross-validation, from which the intervals are made.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    References
    ----------
    Bai et al., DNNAbacus, arXiv:2205.12095, 2022.
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

    def fit(self, X: pd.DataFrame, y: Any, groups: Any = None) -> TrainingCostRegressor:
        """Fit work, correction and intervals.

        Parameters
        ----------
        X : DataFrame of shape (n_jobs, n_features)
            What `gpudemand.cost.job_table` returns.
        y : array-like of shape (n_jobs,)
            Seconds, or GiB; positive.
        groups : array-like of shape (n_jobs,), optional
            Networks (or families): whole groups are held out when learners are compared and intervals made, so that
            both are about networks never seen. Rows are held out one by one without it.
        """
        check_choice("target", self.target, TERMS)
        X, y = check_columns(X, NEEDED, "X"), check_costs(y, len(X))
        check_choice("learner", self.learner, ("auto", *LEARNERS))
        folds = list(self._folds(X, y, groups))
        names = LEARNERS[:-1] if self.learner == "auto" else (self.learner,)
        held_out = {name: self._held_out(name, X, y, folds) for name in names}
        trusts = {name: _best_trust(left, correction) for name, (left, correction, _) in held_out.items()}
        self.scores_ = {name: score for name, (_, score) in trusts.items()}
        self.learner_ = min(self.scores_, key=lambda name: self.scores_[name])
        self.trust_ = trusts[self.learner_][0]
        self._fit_parts(self.learner_, X, y)
        left, correction, doubt = held_out[self.learner_]
        self.spread_ = np.sort(np.abs(left - self.trust_ * correction) / doubt)
        self.feature_names_in_, self.n_features_in_ = np.asarray(X.columns, dtype=object), X.shape[1]
        return self

    def predict(self, X: pd.DataFrame) -> FloatArray:
        """Predict seconds or GiB, shape (n_jobs,)."""
        return self._priced(X)[0]

    def predict_interval(self, X: pd.DataFrame, level: float = 90) -> FloatArray:
        """Predict an interval that holds `level` percent of jobs like those held out in `fit`.

        Errors are those of cross-validation over groups, relative to how much the learner's members disagree on a job,
        so that an interval widens where the training data is thin (split conformal prediction with a scaled score).

        Returns
        -------
        ndarray of shape (n_jobs, 2)
            Lower and upper ends.
        """
        share = check_number("level", level, 0, 99.9, open_low=True) / 100
        cost, doubt = self._priced(X)
        rank = min(int(np.ceil((self.spread_.size + 1) * share)), self.spread_.size) - 1
        width = np.exp(self.spread_[rank] * doubt)
        return np.column_stack([cost / width, cost * width])

    def _priced(self, X: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
        check_is_fitted(self, "learner_")
        work, correction, doubt = self._predict(self._known(X))
        return work * np.exp(self.trust_ * correction), doubt

    def _known(self, X: pd.DataFrame) -> pd.DataFrame:
        needed = [name for name in self.feature_names_in_ if not str(name).startswith(EDGE)]
        # A pair of operators that this table lacks does not occur in its networks.
        known = check_columns(X, needed, "X").reindex(columns=list(self.feature_names_in_))
        return known.fillna({name: 0.0 for name in known.columns if str(name).startswith(EDGE)})

    def _folds(self, X: pd.DataFrame, y: FloatArray, groups: Any) -> Any:
        n = int(check_number("n_splits", self.n_splits, 2, 50, integer=True))
        if groups is None:
            return KFold(min(n, len(X)), shuffle=True, random_state=self.random_state).split(X)
        groups = np.asarray(groups)
        n_groups = np.unique(groups).size
        if n_groups < 2:
            raise InputError("groups holds a single group; two are needed to hold one out.")
        return GroupKFold(min(n, n_groups)).split(X, y, groups)

    def _held_out(self, learner: str, X: pd.DataFrame, y: FloatArray, folds: Any) -> tuple[FloatArray, ...]:
        """Logs of what work leaves over, corrections and doubts for rows that were held out."""
        left, correction, doubt = np.empty((3, len(y)))
        for train, test in folds:
            part = clone(self)
            part._fit_parts(learner, X.iloc[train], y[train])
            work, correction[test], doubt[test] = part._predict(X.iloc[test])
            left[test] = np.log(y[test] / work)
        return left, correction, doubt

    def _fit_parts(self, learner: str, X: pd.DataFrame, y: FloatArray) -> None:
        self.work_ = WorkModel(self.target).fit(X, y)
        work = self.work_.predict(X)
        features = describe_work(X, work, structure=self.structure)
        self._model = make_learner(learner, features, self.random_state).fit(features, np.log(y / work))
        self._range = np.quantile(np.log(y / work), [0.0, 1.0])

    def _predict(self, X: pd.DataFrame) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Work, log correction and doubt."""
        work = self.work_.predict(X)
        features = describe_work(X, work, structure=self.structure)
        features = features.reindex(columns=self._model.feature_names_in_, fill_value=0.0)
        # A correction beyond any seen in training is a learner that has lost its way, not a discovery.
        correction = np.clip(self._model.predict(features), *self._range)
        return work, correction, disagreement(self._model, features)


def _best_trust(left: FloatArray, correction: FloatArray) -> tuple[float, float]:
    """Share of the correction that does best on held-out rows, and its median relative error.

    Across networks never seen a correction may be noise; then the sum of work stands better alone.
    """
    scores = {float(trust): float(np.median(np.abs(np.expm1(left - trust * correction)))) for trust in _TRUSTS}
    best = min(scores, key=lambda trust: scores[trust])
    return best, scores[best]


def describe_work(X: pd.DataFrame, work: FloatArray, *, structure: bool) -> pd.DataFrame:
    """Features for the correction: sizes on a log scale, shares of the work, edges by share."""
    shares = {}
    for amount in ("flops", "bytes", "saved_bytes", "calls"):
        parts = X.filter(regex=f"^{amount}_")
        total = parts.sum(axis=1).to_numpy(dtype=float)[:, None]
        shares[amount] = parts.div(np.where(total > 0, total, 1.0))
    edges = X.filter(regex=f"^{EDGE}")
    numbers = X.select_dtypes("number").drop(
        columns=[*edges.columns, *(c for part in shares.values() for c in part.columns)]
    )
    sizes = np.log1p(numbers.clip(lower=0.0)).assign(work=np.log(work))
    for amount in ("flops", "bytes", "saved_bytes"):
        sizes[f"batch_{amount}"] = np.log1p(X[amount] * X["batch_size"])
    sizes["allocated"] = np.log(np.maximum(allocated(X), 1.0) / work)
    sizes["intensity"] = np.log1p(X["flops"]) - np.log1p(X["bytes"])
    total = edges.sum(axis=1).to_numpy(dtype=float)[:, None]
    matrix = edges.div(np.where(total > 0, total, 1.0)) if structure else edges.iloc[:, :0]
    text = X.select_dtypes(exclude="number").astype(object)
    return pd.concat([text, sizes, *shares.values(), matrix], axis=1)


def make_learner(name: str, features: pd.DataFrame, random_state: int) -> Any:
    """A pipeline from the features of `describe_work` to a log correction."""
    text = list(features.select_dtypes(exclude="number").columns)
    numbers = [column for column in features.columns if column not in text]
    trees: dict[str, Any] = {
        "extra_trees": ExtraTreesRegressor(300, min_samples_leaf=2, max_features=0.4, random_state=random_state),
        "random_forest": RandomForestRegressor(200, min_samples_leaf=2, max_features=0.4, random_state=random_state),
        "gradient_boosting": HistGradientBoostingRegressor(
            max_iter=300, learning_rate=0.05, max_leaf_nodes=15, l2_regularization=1.0, random_state=random_state
        ),
    }
    scaled: dict[str, Any] = {
        "knn": KNeighborsRegressor(5, weights="distance"),
        "ridge": RidgeCV(np.logspace(-2, 4, 13)),
        "mlp": MLPRegressor((128, 64), alpha=1e-2, early_stopping=True, max_iter=500, random_state=random_state),
    }
    scale = StandardScaler() if name in scaled else FunctionTransformer(feature_names_out="one-to-one")
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), text),
        (scale, numbers),
        verbose_feature_names_out=False,
    )
    return make_pipeline(encode, {**trees, **scaled}[name])


def disagreement(model: Any, features: pd.DataFrame) -> FloatArray:
    """How far the members of an ensemble are apart on each job; 1 for learners without members."""
    final = model[-1]
    members = getattr(final, "estimators_", None)
    if not isinstance(final, (ExtraTreesRegressor, RandomForestRegressor)) or members is None:
        return np.ones(len(features))
    encoded = model[:-1].transform(features)
    return np.std([tree.predict(np.asarray(encoded, dtype=np.float32)) for tree in members], axis=0) + 0.02
