"""Three series of each user, after the managers' framework: recency, frequency and monetary value as they change."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import BoolArray, FloatArray
from gpudemand.segments.matrix import Matrix
from gpudemand.segments.persistence import PersistenceStatistics
from gpudemand.segments.smoothing import moving_mean, window

VIEWS = ("recency", "frequency", "monetary")


def view_statistics(matrix: Matrix) -> pd.DataFrame:
    """Return persistence statistics of the three series of each user.

    Recency is the time since the last use at each point in time, frequency the share of bins in use in the week (for
    hours: the day) around it, monetary value the usage itself.

    Returns
    -------
    DataFrame, shape (n_users, 3 x 16)
        Columns ``recency__sublevel_count`` and so on.

    Examples
    --------
    >>> from gpudemand.segments.matrix import as_matrix
    >>> table = view_statistics(as_matrix([[0.0, 8, 0, 0, 8, 0, 0, 8]]))
    >>> table.shape, table.columns[0]
    ((1, 48), 'recency__sublevel_count')
    """
    used = matrix.values > 0
    views = (time_since_use(used), moving_mean(used.astype(float), window(matrix)), matrix.values)
    parts = [_statistics(matrix, values, name) for name, values in zip(VIEWS, views, strict=True)]
    return pd.concat(parts, axis=1)


def time_since_use(used: BoolArray) -> FloatArray:
    """Return bins since the last use at each point in time; before the first use, since the beginning.

    Examples
    --------
    >>> time_since_use(np.array([[False, True, False, False]])).tolist()
    [[1.0, 0.0, 1.0, 2.0]]
    """
    places = np.arange(used.shape[1])
    last = np.maximum.accumulate(np.where(used, places, -1), axis=1)
    return np.asarray(places - last, dtype=float)


def _statistics(matrix: Matrix, values: FloatArray, view: str) -> pd.DataFrame:
    block = PersistenceStatistics().fit(matrix.values)
    columns = [f"{view}__{name}" for name in block.get_feature_names_out()]
    return pd.DataFrame(block.transform(values), index=matrix.ids, columns=columns)
