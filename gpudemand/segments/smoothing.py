"""Persistence of the slow ups and downs of a series: those that outlast its days, or its weeks."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand.segments.matrix import Matrix, sampling_step
from gpudemand.segments.persistence import PersistenceStatistics

_DAY = pd.Timedelta("1D")
_BINS = 7


class SmoothPersistence(PersistenceStatistics):
    """Statistics of the sublevel and superlevel diagrams of each series after a moving mean.

    The mean is over a day for bins shorter than a day, over a week for days, and over seven bins otherwise, so that
    what is left are projects that come and go, not nights and weekends. Parameters are those of
    `PersistenceStatistics`.

    Attributes
    ----------
    n_timestamps_ : int
        Length of the series at ``fit``; nothing else is learned.

    Examples
    --------
    >>> import numpy as np
    >>> season = np.repeat([8.0, 0.0, 8.0, 0.0], 28)
    >>> noisy = season * np.tile([1.0, 0.2], 56)
    >>> block = SmoothPersistence(relative=False, filtrations=("superlevel",)).set_output(transform="pandas")
    >>> block.fit_transform([season, noisy])["smooth_superlevel_long_lived"].tolist()
    [1.0, 1.0]
    """

    def _features(self, matrix: Matrix) -> FloatArray:
        return super()._features(matrix._replace(values=moving_mean(matrix.values, window(matrix))))

    def _names(self) -> list[str]:
        return [f"smooth_{name}" for name in super()._names()]


def window(matrix: Matrix) -> int:
    """Return the bins in a day for hours, and seven for days and everything else."""
    step = sampling_step(matrix.ds)
    return _BINS if step is None or step >= _DAY else max(round(_DAY / step), 1)


def moving_mean(values: FloatArray, width: int) -> FloatArray:
    """Return the centred moving mean of each row over what is recorded; NaN where nothing is.

    Examples
    --------
    >>> moving_mean(np.array([[0.0, 3.0, np.nan, 3.0]]), 3)
    array([[1.5, 1.5, 3. , 3. ]])
    """
    places = np.arange(values.shape[1])
    low, high = np.maximum(places - width // 2, 0), np.minimum(places + (width + 1) // 2, values.shape[1])
    recorded = ~np.isnan(values)
    total, count = (_running(part, low, high) for part in (np.where(recorded, values, 0.0), recorded))
    mean: FloatArray = np.divide(total, count, out=np.full(values.shape, np.nan), where=count > 0)
    # Sums of zeros must be zeros: differences of running totals leave rounding behind, and it would have peaks.
    size = np.nanmax(np.abs(values), axis=1, keepdims=True, initial=0.0, where=recorded)
    return np.where(np.abs(mean) < 1e-9 * size, 0.0, mean)


def _running(part: FloatArray | BoolArray, low: IntArray, high: IntArray) -> FloatArray:
    total = np.zeros((part.shape[0], part.shape[1] + 1))
    np.cumsum(part, axis=1, out=total[:, 1:])
    return total[:, high] - total[:, low]
