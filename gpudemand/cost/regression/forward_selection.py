"""Forward selection of least-squares terms by cross-validated absolute error, and backward elimination.

In each fold the selected columns are kept as an orthonormal basis (Gram-Schmidt), so that the coefficient of a further
column is one division, and all candidates are scored in all folds by a few matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpudemand._typing import FloatArray, IntArray

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

    Parameters
    ----------
    columns : ndarray of shape (n_rows, n_candidates)
    intercept : ndarray of shape (n_rows,)
        The column of the null model.
    target : ndarray of shape (n_rows,)
    folds : sequence of pairs of ndarray
        Positions of training and held-out rows.
    max_terms : int
    tol : float
        Relative improvement below which selection stops.
    positive : bool
        Clip the coefficient of each new column at zero (those of earlier columns are not checked again).

    Returns
    -------
    selected : list of int
    errors : list of float
        Mean absolute error on held-out rows, of the null model and after each selection.
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


def eliminate_backward(
    columns: FloatArray, intercept: FloatArray, target: FloatArray, folds: Folds, selected: list[int], tol: float
) -> list[int]:
    """Remove, one by one, selected columns without which the held-out error grows by less than `tol` in all."""

    def error(some: list[int]) -> float:
        """Mean absolute held-out error over all folds of least squares on the given columns."""
        design = np.column_stack([intercept, columns[:, some]])
        fits = ((test, np.linalg.lstsq(design[train], target[train], rcond=None)[0]) for train, test in folds)
        return float(np.concatenate([np.abs(target[test] - design[test] @ fit) for test, fit in fits]).mean())

    limit = max(error(selected) * (1 + tol), _EXACT)
    while selected:
        without = [[place for place in selected if place != out] for out in selected]
        errors = [error(some) for some in without]
        if min(errors) > limit:
            break
        selected = without[int(np.argmin(errors))]
    return selected


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
