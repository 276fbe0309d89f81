"""Scale of the log error of a prediction as a function of its features, learned from held-out residuals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.cost.predict.trees import Trees, grow_boosted

#: Log residuals beyond this are treated as broken measurements; scales lie between the two.
MAX_RESIDUAL, MIN_SCALE = 1.5, 0.01


def fit_error_scale(
    features: FloatArray, errors: FloatArray, folds: Iterable[tuple[Any, Any]], *, n_trees: int, random_state: int
) -> tuple[Trees, FloatArray]:
    """Fit boosted trees to the logarithm of absolute errors.

    Returns
    -------
    trees : Trees
        Fitted on all rows.
    held_out : ndarray of shape (n_rows,)
        Log scale of each row by trees that were fitted without its fold: in-sample scales would be too small.
    """
    size = np.log(np.clip(np.abs(errors), MIN_SCALE, MAX_RESIDUAL))
    held_out = np.empty(len(size))
    for train, test in folds:
        part = grow_boosted(features[train], size[train], n_trees=n_trees, depth=3, random_state=random_state)
        held_out[test] = part.predict(features[test])
    return grow_boosted(features, size, n_trees=n_trees, depth=3, random_state=random_state), held_out
