"""`AugmentedLinearRegression`: Lattuada's linear regression on augmented features.

In each fold the selected columns are kept as an orthonormal basis (Gram-Schmidt), so that the coefficient of a further
column is one division, and all candidates are scored in all folds by a few matrix products.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement
from math import comb
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_is_fitted, column_or_1d

from gpudemand._array import FloatArray, IntArray
from gpudemand._validation import (
    InputError,
    as_numbers,
    check_choice,
    check_features,
    check_length,
    check_number,
    nearest,
    require_names,
    shorten,
    told,
)
from gpudemand.cost.regression import grouped_folds, solve_nonnegative

#: Share of a column's sum of squares outside the basis below which it is collinear.
_COLLINEAR = 1e-8
#: Error of an exact fit, for targets of the order of 1.
_EXACT = 1e-6
#: Candidates scored together; bounds the memory.
_CHUNK = 512
Folds = Sequence[tuple[IntArray, IntArray]]


def select_forward(
    columns: FloatArray,
    intercept: FloatArray,
    target: FloatArray,
    folds: Folds,
    *,
    max_terms: int,
    tol: float,
    positive: bool,
) -> tuple[list[int], list[float]]:
    """Add, one by one, the column that lowers the mean absolute error of held-out rows most.

    `tol`: relative improvement below which selection stops. `positive`: clip the coefficient of each new column at zero
    (those of earlier columns are not checked again). Also returns the errors of the null model and after each.
    """
    parts = [_Fold(columns, intercept, target, train, test, positive) for train, test in folds]
    n_tested = sum(part.residual_test.size for part in parts)
    selected: list[int] = []
    errors = [sum(float(np.abs(part.residual_test).sum()) for part in parts) / n_tested]
    while len(selected) < min(max_terms, columns.shape[1]) and errors[-1] > _EXACT:
        score = np.sum([part.scores() for part in parts], axis=0) / n_tested
        score[selected] = np.inf
        best = int(np.argmin(score))
        if not score[best] < errors[-1] * (1 - tol):
            break
        selected.append(best)
        errors.append(float(score[best]))
        for part in parts:
            part.add(best)
    return selected, errors


class _Fold:
    """Orthonormal basis and residuals of one fold; training vectors are zero on other rows, so no rows are copied."""

    def __init__(
        self,
        columns: FloatArray,
        intercept: FloatArray,
        target: FloatArray,
        train: IntArray,
        test: IntArray,
        positive: bool,
    ) -> None:
        self._mask = np.zeros(len(target))
        self._mask[train] = 1.0
        self._columns, self._test, self._positive = columns, np.asfortranarray(columns[test]), positive
        self._squares = self._mask @ np.square(columns)
        self._basis, self._basis_test = np.empty((len(target), 0)), np.empty((len(test), 0))
        self._projections = np.empty((0, columns.shape[1]))
        self._residual, self.residual_test = self._mask * target, target[test].copy()
        self._extend(self._mask * intercept, intercept[test], positive=False)

    def scores(self) -> FloatArray:
        """Sum of absolute errors on the held-out rows with each candidate added; infinite for collinear ones."""
        outside = self._squares - np.square(self._projections).sum(axis=0)
        new = outside > _COLLINEAR * self._squares
        coefficient = np.divide(self._residual @ self._columns, outside, out=np.zeros(outside.size), where=new)
        coefficient = np.maximum(coefficient, 0.0) if self._positive else coefficient
        sums = np.empty(outside.size)
        for begin in range(0, sums.size, _CHUNK):
            part = slice(begin, begin + _CHUNK)
            added = (self._test[:, part] - self._basis_test @ self._projections[:, part]) * coefficient[part]
            sums[part] = np.abs(self.residual_test[:, None] - added).sum(axis=0)
        return np.where(new, sums, np.inf)

    def add(self, position: int) -> None:
        """Add a candidate to the basis."""
        projection = self._projections[:, position]
        outside = self._mask * self._columns[:, position] - self._basis @ projection
        self._extend(outside, self._test[:, position] - self._basis_test @ projection, self._positive)

    def _extend(self, vector: FloatArray, vector_test: FloatArray, positive: bool) -> None:
        length = float(np.linalg.norm(vector)) or 1.0
        unit, unit_test = vector / length, vector_test / length
        coefficient = float(unit @ self._residual)
        coefficient = max(coefficient, 0.0) if positive else coefficient
        self._residual = self._residual - coefficient * unit
        self.residual_test = self.residual_test - coefficient * unit_test
        self._basis = np.column_stack([self._basis, unit])
        self._basis_test = np.column_stack([self._basis_test, unit_test])
        self._projections = np.vstack([self._projections, unit @ self._columns])


_TRANSFORMS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "x": lambda x: x,
    "1/x": lambda x: 1 / x,
    "log(x)": np.log,
    "1/(1 + x)": lambda x: 1 / (1 + x),
    "log(1 + x)": np.log1p,
}
#: Transforms of one column that may stand in one product: powers, and x log x.
_COMBINABLE = ({"x"}, {"1/x"}, {"x", "log(x)"})


class Factor(NamedTuple):
    """One transform of one column; ``is`` is the indicator of a `category`."""

    column: str
    transform: str
    category: str = ""

    def __str__(self) -> str:
        if self.transform == "is":
            return f"[{self.column} is {self.category}]"
        return self.transform.replace("x", self.column)

    def values(self, table: pd.DataFrame) -> FloatArray:
        """Evaluate it for each row of a table; raises `InputError` if a column has left the domain of the transform."""
        if self.transform == "is":
            return (table[self.column] == self.category).to_numpy(dtype=float)
        x: FloatArray = table[self.column].to_numpy(dtype=float)
        if self.transform in ("1/x", "log(x)") and not (x > 0).all():
            raise InputError(
                f"{self.column} was positive in training and now holds {int((x <= 0).sum())} values that are not; "
                f"{self} cannot be computed."
            )
        if self.transform in ("1/(1 + x)", "log(1 + x)") and not (x >= 0).all():
            raise InputError(f"{self.column} was never negative in training and now is; {self} cannot be computed.")
        return _TRANSFORMS[self.transform](x)


Term: TypeAlias = tuple[Factor, ...]


def candidate_factors(table: pd.DataFrame, *, inverse: bool = True, log: bool = True) -> list[Factor]:
    """Transforms of every column that varies; of text an indicator a category.

    A positive column gets ``1/x`` and ``log(x)``, one with zeros ``1/(1 + x)`` and ``log(1 + x)``, one with negative
    values neither.
    """
    return [factor for name in table.columns for factor in _factors_of(str(name), table[name], inverse, log)]


def _factors_of(name: str, column: pd.Series, inverse: bool, log: bool) -> Iterator[Factor]:
    if _is_text(column):
        categories = sorted(set(column))
        yield from (Factor(name, "is", category) for category in categories if len(categories) > 1)
        return
    low, high = column.min(), column.max()
    if low == high:
        return
    inverted, logged = ("1/x", "log(x)") if low > 0 else ("1/(1 + x)", "log(1 + x)")
    yield Factor(name, "x")
    # A column of zeros and ones is its own logarithm and inverse, up to a constant.
    if low > 0 or (low == 0 and column.nunique() > 2):
        yield from [Factor(name, inverted)] * inverse
        yield from [Factor(name, logged)] * log


def products(factors: Sequence[Factor], degree: int) -> list[Term]:
    """All products of up to `degree` factors, without a column times its inverse or two categories of one column."""
    counts = range(1, degree + 1)
    return [term for n in counts for term in combinations_with_replacement(factors, n) if _is_admissible(term)]


def n_products(n_factors: int, degree: int) -> int:
    """Upper bound on the length of `products`."""
    return sum(comb(n_factors + count - 1, count) for count in range(1, degree + 1))


def _is_admissible(term: Term) -> bool:
    counts = Counter(factor.column for factor in term)
    return all(
        {factor.transform for factor in term if factor.column == name} in _COMBINABLE
        for name, count in counts.items()
        if count > 1
    )


def evaluate_terms(terms: Sequence[Term], table: pd.DataFrame) -> FloatArray:
    """Evaluate terms, shape (n_rows, n_terms)."""
    values = {factor: factor.values(table) for factor in dict.fromkeys(factor for term in terms for factor in term)}
    columns = np.empty((len(table), len(terms)), order="F")
    for position, term in enumerate(terms):
        columns[:, position] = np.prod([values[factor] for factor in term], axis=0)
    return columns


def format_term(term: Term) -> str:
    """Write a term, inverses as divisions."""
    numerator = [str(factor) for factor in term if not factor.transform.startswith("1/")]
    denominator = [str(factor).removeprefix("1/") for factor in term if factor.transform.startswith("1/")]
    return " / ".join([" * ".join(numerator) or "1", *denominator])


try:
    from sklearn.utils.validation import validate_data
except ImportError:  # before scikit-learn 1.6 it was a method

    def validate_data(estimator: Any, **arguments: Any) -> Any:
        """Call what it was called before."""
        return estimator._validate_data(**arguments)


class AugmentedLinearRegression(RegressorMixin, BaseEstimator):
    """Linear regression on inverses, logarithms and products of features, selected by forward selection.

    The table is augmented (``1/x``, ``log(x)``, categories, products of up to `degree` of them); the term that lowers
    the cross-validated mean absolute percentage error most is added until nothing helps, and the terms are fitted by
    ridge regression or non-negative least squares. The result is a short formula that extrapolates beyond the training
    data.

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
    categories_ : dict of str to list of str
        Column of text -> its categories in training. `predict` refuses others where the formula has the column.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only where X is a DataFrame.

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

    @told("Fitting {}")
    def fit(self, X: Any, y: Any, groups: Any = None) -> AugmentedLinearRegression:
        """Select the terms and fit their coefficients.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Numbers; in a table also text, and columns that are categorical.
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
        return selected

    def predict(self, X: Any) -> FloatArray:
        """Evaluate the formula, shape (n_rows,).

        Raises
        ------
        InputError
            If a column has left the domain of a term, or holds a category that was not in training.
        """
        check_is_fitted(self, "terms_")
        table = self._table(X)
        for name in dict.fromkeys(factor.column for term in self.terms_ for factor in term if factor.transform == "is"):
            _check_known(table[name], self.categories_[name])
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
        self.categories_: dict[str, list[str]] = {}
        X = _converted(X)
        text = [str(name) for name in X.columns if _is_text(X[name])] if isinstance(X, pd.DataFrame) else []
        if not text:
            values, y = validate_data(self, X=X, y=y, dtype=float, y_numeric=True, ensure_min_samples=2)
            return self._named(values), np.asarray(y, dtype=float)
        self.n_features_in_, self.feature_names_in_ = X.shape[1], np.asarray(X.columns, dtype=object)
        costs = as_numbers(pd.Series(column_or_1d(y, warn=True)), "y")
        check_length("y", costs, len(X), "rows")
        if len(X) < 2:
            raise InputError(f"X has {len(X)} rows; two or more are needed to fit a formula.")
        wrong = int(np.isnan(costs).sum())
        if wrong:
            raise InputError(f"y holds {wrong} missing values; drop those rows.")
        table = self._mixed(X, text)
        self.categories_ = {name: sorted(set(table[name])) for name in text}
        return table, costs

    def _table(self, X: Any) -> pd.DataFrame:
        names, X = getattr(self, "feature_names_in_", ()), _converted(X)
        if self.categories_ and isinstance(X, pd.DataFrame):
            require_names(X.columns, names, "X")
            return self._mixed(X[list(names)], list(self.categories_))
        return self._named(validate_data(self, X=X, dtype=float, reset=False))

    def _named(self, values: FloatArray) -> pd.DataFrame:
        names = getattr(self, "feature_names_in_", [f"x{number}" for number in range(values.shape[1])])
        return pd.DataFrame(values, columns=[str(name) for name in names])

    def _mixed(self, X: pd.DataFrame, text: list[str]) -> pd.DataFrame:
        numbers = [name for name in X.columns if str(name) not in text]
        for name in numbers:
            if _is_text(X[name]):
                raise InputError(f"the column {name} of X held numbers in training and now does not; convert it.")
        if not np.isfinite(X[numbers].to_numpy(dtype=float)).all():
            raise InputError("X holds numbers that are missing or infinite; fill them in or drop those rows.")
        parts = {name: X[name] if name in numbers else _as_text(X[name]) for name in X}
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


def _check_known(column: pd.Series, known: list[str]) -> None:
    """Raise an `InputError` for a category that no row of training had: its effect on the cost is unknown."""
    for value in column.unique():
        if value not in known:
            had = ", ".join(str(shorten(one)) for one in known[:12]) + ", ..." * (len(known) > 12)
            raise InputError(
                f"{column.name}={shorten(value)!r} was not in training.{nearest(value, known)} Training had: {had}."
            )


def _converted(X: Any) -> Any:
    """A table with columns of numbers and of text; what is no table as it is."""
    if not (isinstance(X, pd.DataFrame) or hasattr(X, "__arrow_c_stream__")):
        return X
    table = check_features(X)
    for name in X.select_dtypes("category").columns if isinstance(X, pd.DataFrame) else ():
        table[name] = _as_text(table[name])
    for name, dtype in table.dtypes.items():
        if dtype.kind in "mM":
            raise InputError(
                f"the column {name} of X holds {dtype}; give numbers, or text where values are categories."
            )
    return table


def _is_text(column: pd.Series) -> bool:
    return not pd.api.types.is_numeric_dtype(column)


def _as_text(column: pd.Series) -> pd.Series:
    return column.astype(str).where(column.notna(), "")


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
