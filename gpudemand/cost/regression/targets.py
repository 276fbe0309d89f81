"""Targets and groups of measured jobs: validation, folds of whole groups, and balanced subsamples."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupKFold, KFold

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError


def check_costs(y: Any, n: int, problem: str = "are not positive costs") -> FloatArray:
    """Return `n` costs as an array, all finite and above zero; `problem` is how the message describes others."""
    values = np.asarray(y, dtype=float).ravel()
    if values.size != n:
        raise InputError(f"y has {values.size} values for {n} jobs.")
    wrong = int((~(np.isfinite(values) & (values > 0))).sum())
    if wrong:
        raise InputError(f"y holds {wrong} values that {problem}; they must be finite and above zero.")
    return values


def group_numbers(groups: Any, n: int) -> IntArray:
    """Number the groups of `n` rows from 0; without groups, every row is one."""
    return np.arange(n) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]


def several_groups(groups: IntArray) -> IntArray:
    """Return the groups; where there is only one, warn and return every row as its own group."""
    if np.unique(groups).size > 1:
        return groups
    warnings.warn(
        "groups holds a single group: nothing is known of others, and intervals are about more jobs of this one.",
        UserWarning,
        stacklevel=3,
    )
    return np.arange(len(groups))


def grouped_folds(
    n_splits: int, n_rows: int, groups: Any = None, random_state: int = 0
) -> list[tuple[IntArray, IntArray]]:
    """Training and test positions of cross-validation over whole groups, or over shuffled rows without groups."""
    rows = np.empty((n_rows, 0))
    if groups is None:
        return list(KFold(min(n_splits, n_rows), shuffle=True, random_state=random_state).split(rows))
    groups = np.asarray(groups)
    n_groups = np.unique(groups).size
    if n_groups < 2:
        raise InputError("groups holds a single group; two are needed to hold one out.")
    return list(GroupKFold(min(n_splits, n_groups)).split(rows, None, groups))


def fold_masks(groups: IntArray, n_folds: int) -> list[BoolArray]:
    """Test rows of each fold, for groups numbered by `group_numbers`."""
    fold = groups % n_folds
    return [fold == number for number in np.unique(fold)]


def balanced_sample(groups: IntArray, size: int, random_state: int) -> IntArray:
    """Positions of at most `size` rows, drawn evenly from the groups.

    Examples
    --------
    >>> groups = np.repeat([0, 1, 2], [90, 5, 5])
    >>> np.bincount(groups[balanced_sample(groups, 20, 0)]).tolist()
    [10, 5, 5]
    """
    if len(groups) <= size:
        return np.arange(len(groups))
    order = np.random.default_rng(random_state).permutation(len(groups))
    turn = pd.Series(groups[order]).groupby(groups[order]).cumcount().to_numpy()
    return np.sort(order[np.argsort(turn, kind="stable")[:size]])
