"""Forward selection of least-squares terms by cross-validated error, for thousands of candidates at once.

In each fold the chosen columns are kept as an orthonormal basis. What a candidate would add is then one division: its
product with the residual over the square of its part outside the basis. So a step tries all candidates in all folds
with a few matrix products, where a fit a candidate and fold would take minutes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpudemand._typing import FloatArray, IntArray

#: Share of a column's square that must lie outside the basis; below it the column is a repetition.
_NEW = 1e-8
#: Error below which a fit is perfect, and nothing more is to be found; the targets are of the order of 1.
_PERFECT = 1e-6
#: Candidates scored together; bounds the memory.
_BLOCK = 512


def select_forward(
    columns: FloatArray,
    start: FloatArray,
    target: FloatArray,
    folds: Sequence[tuple[IntArray, IntArray]],
    *,
    max_terms: int,
    tol: float,
    positive: bool,
) -> tuple[list[int], list[float]]:
    """Choose columns one by one, each time the one that lowers the mean absolute error of held-out rows most.

    Parameters
    ----------
    columns : ndarray of shape (n_rows, n_candidates)
        Candidates.
    start : ndarray of shape (n_rows,)
        The column that is there from the beginning (an intercept).
    target : ndarray of shape (n_rows,)
        What they are to add up to.
    folds : sequence of pairs of ndarray
        Positions of training and held-out rows.
    max_terms : int
        Columns to choose at most.
    tol : float
        Stop when the error falls by a smaller share than this.
    positive : bool
        Do not let a new column be subtracted. (Weights of earlier columns are not checked again.)

    Returns
    -------
    chosen : list of int
    errors : list of float
        Mean absolute error on held-out rows, before the first choice and after each one.
    """
    parts = [_Fold(columns, start, target, train, test) for train, test in folds]
    n_tested = sum(part.left_test.size for part in parts)
    chosen: list[int] = []
    errors = [sum(float(np.abs(part.left_test).sum()) for part in parts) / n_tested]
    while len(chosen) < min(max_terms, columns.shape[1]) and errors[-1] > _PERFECT:
        score = np.sum([part.errors(positive) for part in parts], axis=0) / n_tested
        score[chosen] = np.inf
        best = int(np.argmin(score))
        if not score[best] < errors[-1] * (1 - tol):
            break
        chosen.append(best)
        errors.append(float(score[best]))
        for part in parts:
            part.add(best, positive)
    return chosen, errors


def prune(
    columns: FloatArray,
    start: FloatArray,
    target: FloatArray,
    folds: Sequence[tuple[IntArray, IntArray]],
    chosen: list[int],
    tol: float,
) -> list[int]:
    """Take out, one by one, columns without which the error on held-out rows is as small: later ones replaced them.

    Parameters
    ----------
    columns, start, target, folds
        As for `select_forward`.
    chosen : list of int
        What it chose.
    tol : float
        Share by which the error may grow in all.

    Returns
    -------
    list of int
        What is left, in the same order.
    """

    def error(some: list[int]) -> float:
        design = np.column_stack([start, columns[:, some]])
        return _held_out_error(design, target, folds)

    limit = max(error(chosen) * (1 + tol), _PERFECT)
    while chosen:
        without = [[place for place in chosen if place != out] for out in chosen]
        errors = [error(some) for some in without]
        if min(errors) > limit:
            break
        chosen = without[int(np.argmin(errors))]
    return chosen


def _held_out_error(design: FloatArray, target: FloatArray, folds: Sequence[tuple[IntArray, IntArray]]) -> float:
    errors = []
    for train, test in folds:
        weights = np.linalg.lstsq(design[train], target[train], rcond=None)[0]
        errors.append(np.abs(target[test] - design[test] @ weights))
    return float(np.concatenate(errors).mean())


class _Fold:
    """The basis, the residuals and the candidates of one fold.

    Training vectors are as long as the whole table, with zeros at the other rows, so that no rows need be copied.
    """

    def __init__(
        self, columns: FloatArray, start: FloatArray, target: FloatArray, train: IntArray, test: IntArray
    ) -> None:
        inside = np.zeros(len(target))
        inside[train] = 1.0
        self._inside, self._columns, self._test = inside, columns, np.asfortranarray(columns[test])
        self._square = inside @ np.square(columns)
        self._basis: list[FloatArray] = []
        self._basis_test: list[FloatArray] = []
        self._parts = np.empty((0, columns.shape[1]))
        self._left, self.left_test = inside * target, target[test].copy()
        self._extend(inside * start, start[test], positive=False)

    def errors(self, positive: bool) -> FloatArray:
        """Sum of absolute errors on the held-out rows with each candidate added; infinite for repetitions."""
        outside = self._square - np.square(self._parts).sum(axis=0)
        new = outside > _NEW * self._square
        weight = np.divide(self._left @ self._columns, outside, out=np.zeros(outside.size), where=new)
        weight = np.maximum(weight, 0.0) if positive else weight
        basis = np.column_stack(self._basis_test)
        sums = np.empty(outside.size)
        for begin in range(0, sums.size, _BLOCK):
            block = slice(begin, begin + _BLOCK)
            added = (self._test[:, block] - basis @ self._parts[:, block]) * weight[block]
            sums[block] = np.abs(self.left_test[:, None] - added).sum(axis=0)
        return np.where(new, sums, np.inf)

    def add(self, position: int, positive: bool) -> None:
        """Put a candidate into the basis."""
        parts = self._parts[:, position]
        outside = self._inside * self._columns[:, position] - np.column_stack(self._basis) @ parts
        outside_test = self._test[:, position] - np.column_stack(self._basis_test) @ parts
        self._extend(outside, outside_test, positive)

    def _extend(self, vector: FloatArray, vector_test: FloatArray, positive: bool) -> None:
        length = float(np.linalg.norm(vector)) or 1.0
        unit, unit_test = vector / length, vector_test / length
        amount = float(unit @ self._left)
        amount = max(amount, 0.0) if positive else amount
        self._left, self.left_test = self._left - amount * unit, self.left_test - amount * unit_test
        self._basis.append(unit)
        self._basis_test.append(unit_test)
        self._parts = np.vstack([self._parts, unit @ self._columns])
