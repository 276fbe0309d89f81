"""Recency, frequency and monetary value as series of each user, and their sublevel statistics."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from gpudemand._compiled import compiled
from gpudemand._typing import BoolArray, FloatArray
from gpudemand.segments.base.transformer import SeriesTransformer, map_rows
from gpudemand.segments.base.usage_matrix import Matrix, sampling_step
from gpudemand.segments.features.daily import moving_mean
from gpudemand.segments.features.rhythm import by_day

_DAY, _WEEK = pd.Timedelta("1D"), 7


def rfm_series(matrix: Matrix) -> dict[str, FloatArray]:
    """Compute three series of each user, by day where the bins are shorter.

    Returns
    -------
    dict of str to ndarray, shape (n_users, n_days)
        ``recency``: days since the last use; ``frequency``: share of active days in the seven around a day;
        ``monetary``: the usage itself.

    Examples
    --------
    >>> from gpudemand.segments.base.usage_matrix import as_matrix
    >>> series = rfm_series(as_matrix([[0.0, 8, 0, 0, 8, 0, 0, 8]]))
    >>> series["recency"].tolist()
    [[1.0, 0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 0.0]]
    """
    step = sampling_step(matrix.ds)
    values = matrix.values if step is None or step >= _DAY else by_day(matrix)[0]
    active = values > 0
    frequency = map_rows(mean_rows, active.astype(float), active.shape[1], _WEEK)
    return {"recency": time_since_use(active), "frequency": frequency, "monetary": values}


def by_view(block: SeriesTransformer, series: Mapping[str, FloatArray], ids: pd.Index) -> pd.DataFrame:
    """Return the features of a block for each of several series, columns ``view__feature``."""
    parts = []
    for view, values in series.items():
        # A series that was never recorded is one without use.
        features = block.fit_transform(np.where(np.isnan(values).all(axis=1, keepdims=True), 0.0, values))
        columns = [f"{view}__{name}" for name in block.get_feature_names_out()]
        parts.append(pd.DataFrame(features, index=ids, columns=columns))
    return pd.concat(parts, axis=1)


def time_since_use(active: BoolArray) -> FloatArray:
    """Return bins since the last use at each point in time; before the first use, since the beginning.

    Examples
    --------
    >>> time_since_use(np.array([[False, True, False, False]])).tolist()
    [[1.0, 0.0, 1.0, 2.0]]
    """
    places = np.arange(active.shape[1])
    last = np.maximum.accumulate(np.where(active, places, -1), axis=1)
    return np.asarray(places - last, dtype=float)


@compiled
def mean_rows(values: FloatArray, width: int, out: FloatArray) -> None:
    """Write the centred moving mean of each row."""
    for row in range(len(values)):
        out[row] = moving_mean(values[row], width)
