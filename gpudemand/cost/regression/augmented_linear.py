"""`AugmentedLinearRegression`: a short formula for a cost, selected among thousands of products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, check_columns, check_number
from gpudemand.cost.regression.forward_selection import eliminate_backward, select_forward
from gpudemand.cost.regression.nonnegative import solve_nonnegative
from gpudemand.cost.regression.targets import grouped_folds
from gpudemand.cost.regression.terms import (
    Term,
    candidate_factors,
    evaluate_terms,
    format_term,
    n_products,
    products,
)

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # before scikit-learn 1.6 it was a method

    def validate_data(estimator: Any, **arguments: Any) -> Any:
        """Call what it was called before."""
        return estimator._validate_data(**arguments)


class AugmentedLinearRegression(RegressorMixin, BaseEstimator):
    """Linear regression on inverses, logarithms and products of features, selected by forward selection.

    The table is augmented (``1/x``, ``log(x)``, categories, products of up to `degree` of them); the term that lowers
    the cross-validated mean absolute percentage error most is added until nothing helps; terms that later ones made
    redundant are eliminated, and the rest are fitted by ridge regression or non-negative least squares. The result is a
    short formula that extrapolates beyond the training data.

    Parameters
    ----------
    degree : {1, 2, 3}, default=2
        Most factors of a product.
    inverse, log : bool, default=True
        Augment with inverses, with logarithms.
    solver : {"ridge", "nnls"}, default="ridge"
        ``nnls`` makes every coefficient, the intercept included, zero or positive.
    alpha : float, default=1e-6
        Ridge penalty on coefficients of columns scaled to unit root mean square.
    max_terms : int, default=12
        Most terms.
    tol : float, default=0.01
        Relative improvement of the error below which no term is added.
    cv : int or splitter, default=5
        Folds for the selection; with ``groups`` in `fit`, a number of folds of whole groups.
    weighting : {"auto", "relative", "absolute"}, default="auto"
        Whether to minimise relative or absolute errors; ``auto`` is relative where all costs are positive.
    max_candidates : int, default=4000
        Most terms to try. Where there are more, products are limited to the factors with the largest partial
        correlation with the cost.
    random_state : int, default=0
        Seed of the shuffled folds, when `cv` is a number and there are no groups.

    Attributes
    ----------
    formula_ : str
        The fitted formula.
    selected_ : list of str
        Its terms, in the order of selection.
    terms_ : list of tuple
        The same as factors.
    coef_ : ndarray of shape (n_terms,)
    intercept_ : float
    scores_ : list of float
        Cross-validated error before the first term and after each: a mean absolute percentage error as a fraction
        (with absolute weighting: mean absolute error over the mean size of the costs).
    n_candidates_ : int
        Candidate terms.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only where X is a DataFrame.

    See Also
    --------
    gpudemand.cost.splits.ExtrapolationSplit : Test beyond the measured range.

    Notes
    -----
    On 1,000 rows, 4,000 candidates take about a second a term. Selection uses ordinary least squares (without negative
    coefficients under ``nnls``); `solver` and `alpha` apply to the final fit.

    References
    ----------
    Lattuada, Gianniti, Ardagna, Zhang, "Performance prediction of deep learning applications training in GPU as a
    service systems", Cluster Computing 25, 2022.

    Examples
    --------
    Work divided among GPUs, and a start-up time: fitted on up to 4 GPUs and 27 units of work, predicted beyond both.

    >>> from sklearn.ensemble import RandomForestRegressor
    >>> rows = pd.DataFrame([(f, n) for f in (1.0, 3.0, 9.0, 27.0) for n in (1, 2, 3, 4)], columns=["flops", "gpus"])
    >>> time = (0.5 + 2 * rows["flops"] / rows["gpus"]).rename("time")
    >>> more = pd.DataFrame({"flops": [81.0, 243.0], "gpus": [8, 8]})  # takes 20.75 and 61.25
    >>> model = AugmentedLinearRegression().fit(rows, time)
    >>> model.formula_
    'time = 0.5 + 2 * flops / gpus'
    >>> model.predict(more).round(2)
    array([20.75, 61.25])
    >>> RandomForestRegressor(random_state=0).fit(rows, time).predict(more).round(-1)
    array([20., 20.])
    """

    def __init__(
        self,
        degree: int = 2,
        inverse: bool = True,
        log: bool = True,
        solver: str = "ridge",
        alpha: float = 1e-6,
        max_terms: int = 12,
        tol: float = 0.01,
        cv: Any = 5,
        weighting: str = "auto",
        max_candidates: int = 4000,
        random_state: int = 0,
    ) -> None:
        self.degree = degree
        self.inverse = inverse
        self.log = log
        self.solver = solver
        self.alpha = alpha
        self.max_terms = max_terms
        self.tol = tol
        self.cv = cv
        self.weighting = weighting
        self.max_candidates = max_candidates
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None) -> AugmentedLinearRegression:
        """Select the terms and fit their coefficients.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Numbers, and text in a DataFrame.
        y : array-like of shape (n_rows,)
            Costs.
        groups : array-like of shape (n_rows,), optional
            Rows of one group (a network, a device) are held out together during selection.

        Raises
        ------
        InputError
            For parameters out of range, missing or infinite values.
        """
        self._check_parameters()
        name = getattr(y, "name", None) or "y"
        table, y = self._training_table(X, y)
        weight = self._weights(y)
        target = y * weight
        terms = self._candidates(table, target, weight)
        columns = evaluate_terms(terms, table) * weight[:, None]
        scale = _rms(columns)
        selected = self._select(columns / scale, weight, target, list(self._folds(table, y, groups)))
        self.n_candidates_ = len(terms)
        self.intercept_, coefficients = self._solve(columns[:, selected] / scale[selected], weight, target)
        nonzero = np.flatnonzero(coefficients)
        self.terms_ = [terms[selected[place]] for place in nonzero]
        self.coef_ = np.array([coefficients[place] / scale[selected[place]] for place in nonzero])
        self.selected_ = [format_term(term) for term in self.terms_]
        self.formula_ = f"{name} = {_formula(self.intercept_, self.coef_, self.selected_)}"
        return self

    def _select(self, columns: FloatArray, intercept: FloatArray, target: FloatArray, folds: list[Any]) -> list[int]:
        most, positive = int(self.max_terms), self.solver == "nnls"
        selected, self.scores_ = select_forward(
            columns, intercept, target, folds, max_terms=most, tol=self.tol, positive=positive
        )
        return eliminate_backward(columns, intercept, target, folds, selected, self.tol)

    def predict(self, X: Any) -> FloatArray:
        """Evaluate the formula, shape (n_rows,)."""
        check_is_fitted(self, "terms_")
        table = self._table(X)
        return self.intercept_ + evaluate_terms(self.terms_, table) @ self.coef_

    def _check_parameters(self) -> None:
        check_number("degree", self.degree, 1, 3, integer=True)
        check_number("max_terms", self.max_terms, 1, integer=True)
        check_number("max_candidates", self.max_candidates, 1, integer=True)
        check_number("alpha", self.alpha, 0)
        check_number("tol", self.tol, 0, 1)
        check_choice("solver", self.solver, ("ridge", "nnls"))
        check_choice("weighting", self.weighting, ("auto", "relative", "absolute"))

    def _training_table(self, X: Any, y: Any) -> tuple[pd.DataFrame, FloatArray]:
        if not _has_text(X):
            values, y = validate_data(self, X=X, y=y, dtype=float, y_numeric=True, ensure_min_samples=2)
            return self._named(values), np.asarray(y, dtype=float)
        self.n_features_in_, self.feature_names_in_ = X.shape[1], np.asarray(X.columns, dtype=object)
        costs = check_array(column_or_1d(y, warn=True), ensure_2d=False, dtype=float)
        if len(costs) != len(X):
            raise InputError(f"y has {len(costs)} values for {len(X)} rows.")
        return self._mixed(X), costs

    def _table(self, X: Any) -> pd.DataFrame:
        names = getattr(self, "feature_names_in_", None)
        if names is not None and _has_text(X):
            return self._mixed(check_columns(X, names, "X")[list(names)])
        return self._named(validate_data(self, X=X, dtype=float, reset=False))

    def _named(self, values: FloatArray) -> pd.DataFrame:
        names = getattr(self, "feature_names_in_", [f"x{number}" for number in range(values.shape[1])])
        return pd.DataFrame(values, columns=[str(name) for name in names])

    def _mixed(self, X: pd.DataFrame) -> pd.DataFrame:
        text = {name for name in X.columns if not pd.api.types.is_numeric_dtype(X[name])}
        numbers = [name for name in X.columns if name not in text]
        if not np.isfinite(X[numbers].to_numpy(dtype=float)).all():
            raise InputError("X holds numbers that are missing or infinite; fill them in or drop those rows.")
        parts = {name: X[name].astype(object).fillna("").astype(str) if name in text else X[name] for name in X}
        return pd.DataFrame(parts).set_axis([str(name) for name in X.columns], axis=1)

    def _weights(self, y: FloatArray) -> FloatArray:
        positive = bool((y > 0).all())
        if self.weighting == "relative" and not positive:
            raise InputError(f"relative errors need positive costs; y holds {int((y <= 0).sum())} that are not.")
        if positive and self.weighting != "absolute":
            return 1 / y
        return np.full(y.size, 1 / (np.abs(y).mean() or 1.0))

    def _candidates(self, table: pd.DataFrame, target: FloatArray, weight: FloatArray) -> list[Term]:
        factors = candidate_factors(table, inverse=self.inverse, log=self.log)
        degree, limit = int(self.degree), int(self.max_candidates)
        if n_products(len(factors), degree) <= limit:
            return products(factors, degree)
        alone = evaluate_terms([(factor,) for factor in factors], table) * weight[:, None]
        order = np.argsort(-_partial_correlation(alone, target, weight), kind="stable")
        count = max(n for n in range(len(factors) + 1) if n_products(n, degree) <= max(limit, degree))
        best = [factors[place] for place in sorted(order[: max(count, 1)])]
        # All single factors stay candidates: only the products are limited.
        return list(dict.fromkeys([*((factor,) for factor in factors), *products(best, degree)]))

    def _folds(self, table: pd.DataFrame, y: FloatArray, groups: Any) -> Any:
        if not isinstance(self.cv, (int, np.integer)):
            return check_cv(self.cv).split(table, y, groups)
        n_splits = int(check_number("cv", self.cv, 2, integer=True))
        return grouped_folds(n_splits, y.size, groups, self.random_state)

    def _solve(self, columns: FloatArray, intercept: FloatArray, target: FloatArray) -> tuple[float, FloatArray]:
        # The intercept is scaled like the other columns and, under ridge, not penalised.
        scale = _rms(intercept[:, None])[0]
        design = np.column_stack([intercept / scale, columns])
        if self.solver == "nnls":
            coefficients = solve_nonnegative(design, target)
        else:
            penalty = np.sqrt(self.alpha * target.size) * np.eye(design.shape[1])[1:]
            padded = np.concatenate([target, np.zeros(len(penalty))])
            coefficients = np.linalg.lstsq(np.vstack([design, penalty]), padded, rcond=None)[0]
        return float(coefficients[0] / scale), coefficients[1:]


def _has_text(X: Any) -> bool:
    return isinstance(X, pd.DataFrame) and not all(pd.api.types.is_numeric_dtype(kind) for kind in X.dtypes)


def _rms(columns: FloatArray) -> FloatArray:
    """Root mean square of each column; 1 for columns of zeros."""
    size = np.sqrt(np.square(columns).mean(axis=0))
    return np.where(size > 0, size, 1.0)


def _partial_correlation(columns: FloatArray, target: FloatArray, intercept: FloatArray) -> FloatArray:
    """Absolute partial correlation of columns with the target given the intercept, up to a common factor."""
    unit = intercept / np.linalg.norm(intercept)
    residual = target - unit * (unit @ target)
    outside = columns - np.outer(unit, unit @ columns)
    length: FloatArray = np.linalg.norm(outside, axis=0)
    return np.abs(residual @ outside) / np.where(length > 0, length, np.inf)


def _formula(intercept: float, coefficients: FloatArray, terms: list[str]) -> str:
    parts = [f"{intercept:.3g}"]
    for coefficient, term in zip(coefficients, terms, strict=True):
        product = term[1:] if term.startswith("1 / ") else f" * {term}"
        parts.append(f"{'-' if coefficient < 0 else '+'} {abs(coefficient):.3g}{product}")
    return " ".join(parts)
