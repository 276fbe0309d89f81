"""What every predictor of a cost does with its targets, its groups, and the errors of groups that were held out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_number


def check_costs(y: Any, n: int, trouble: str = "are not positive costs") -> FloatArray:
    """Return `n` costs as a row of numbers, all finite and above zero; `trouble` says what others are."""
    values = np.asarray(y, dtype=float).ravel()
    if values.size != n:
        raise InputError(f"y has {values.size} values for {n} jobs.")
    wrong = int((~(np.isfinite(values) & (values > 0))).sum())
    if wrong:
        raise InputError(f"y holds {wrong} values that {trouble}; they must be finite and above zero.")
    return values


def group_numbers(groups: Any, n: int) -> IntArray:
    """Number the groups of `n` rows from 0 on; without any, every row is one."""
    return np.arange(n) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]


def several_groups(groups: IntArray) -> IntArray:
    """Return the groups, or every row as its own, with a warning, where there is one group only."""
    if np.unique(groups).size > 1:
        return groups
    warnings.warn(
        "groups holds a single group: nothing is known of others, and intervals are about more jobs of this one.",
        UserWarning,
        stacklevel=3,
    )
    return np.arange(len(groups))


def fold_masks(groups: IntArray, n_folds: int) -> list[BoolArray]:
    """Rows to hold out, fold by fold: of several groups, whole ones."""
    fold = groups % n_folds
    return [fold == number for number in np.unique(fold)]


def draw_rows(groups: IntArray, most: int, random_state: int) -> IntArray:
    """Positions of at most `most` rows, as many from each group as there is room for.

    Examples
    --------
    >>> np.bincount(np.repeat([0, 1, 2], [90, 5, 5])[draw_rows(np.repeat([0, 1, 2], [90, 5, 5]), 20, 0)]).tolist()
    [10, 5, 5]
    """
    if len(groups) <= most:
        return np.arange(len(groups))
    order = np.random.default_rng(random_state).permutation(len(groups))
    turn = pd.Series(groups[order]).groupby(groups[order]).cumcount().to_numpy()
    return np.sort(order[np.argsort(turn, kind="stable")[:most]])


def sort_errors(errors: FloatArray, groups: IntArray) -> tuple[FloatArray, FloatArray]:
    """Sort errors, and say how much each counts.

    Large groups would speak for all: a group of n rows counts as the square root of n.
    """
    weight = 1.0 / np.sqrt(np.bincount(groups)[groups])
    order = np.argsort(errors, kind="stable")
    return errors[order], weight[order] / weight.sum()


def with_intervals(
    cost: FloatArray, doubt: FloatArray, spread: tuple[FloatArray, FloatArray], levels: Sequence[float]
) -> FloatArray:
    """Costs beside their intervals, shape (n, 1 + 2 n_levels): the cost, then both ends of the interval at each level.

    Parameters
    ----------
    cost, doubt : ndarray of shape (n,)
        What is predicted, and how large the errors of jobs like it are.
    spread : tuple of ndarray
        Errors of held-out groups relative to the doubt, and how much each counts; see `sort_errors`.
    levels : sequence of float
        Percents.
    """
    shares = [check_number("level", level, 0, 99.9, open_low=True) / 100 for level in levels]
    widths = [np.exp(error_reached(*spread, share) * doubt) for share in shares]
    return np.column_stack([cost, *(end for width in widths for end in (cost / width, cost * width))])


def error_reached(errors: FloatArray, weights: FloatArray, share: float) -> float:
    """Size of error that a share of rows like the known ones stays below (split conformal prediction)."""
    size = np.abs(errors)
    order = np.argsort(size, kind="stable")
    reached = np.cumsum(weights[order]) * (order.size / (order.size + 1.0))
    return float(size[order[min(int(np.searchsorted(reached, share)), order.size - 1)]])
