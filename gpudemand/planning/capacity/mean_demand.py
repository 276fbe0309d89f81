"""Distribution of the mean demand over the time of a forecast, from the intervals of its bins."""

from __future__ import annotations

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset

from gpudemand._typing import FloatArray
from gpudemand.planning.capacity.quantiles import QuantileTable
from gpudemand.usage.series import usage_series

_WEEK, _DAY = pd.Timedelta("7D"), pd.Timedelta("1D")
#: Longest correlation of demand that is taken into account.
_LONGEST = pd.Timedelta("28D")
#: Standard deviations between the 10 and 90 % quantiles of a normal distribution.
_WIDTH = 2.5631


def mean_demand(quantiles: QuantileTable, chances: FloatArray, jobs: pd.DataFrame, step: pd.Timedelta) -> FloatArray:
    """Quantiles of the mean GPUs wanted over the bins of a forecast.

    The variance of a bin is in part that of demand around its level, of which a mean over many bins keeps little, as
    its autocorrelation in the log says. What is beyond that is an error of the level, which all bins share.

    Parameters
    ----------
    quantiles : QuantileTable
        Demand by bin.
    chances : ndarray of shape (n,)
        Probabilities.
    jobs : DataFrame
        Job table.
    step : Timedelta
        Width of a bin.

    Returns
    -------
    ndarray of shape (n,)
    """
    bins, middle = len(quantiles.values), quantiles.quantile(0.5).mean()
    around, left = _deviation(jobs, step, bins)
    variance = float(np.mean(((quantiles.quantile(0.9) - quantiles.quantile(0.1)) / _WIDTH) ** 2))
    of_mean = max(variance - around, 0.0) + min(variance, around) * left
    spread = np.sqrt(of_mean / variance) if variance > 0 else 1.0
    at = np.array([quantiles.quantile(float(chance)).mean() for chance in chances])
    return np.maximum(middle + spread * (at - middle), 0.0)


def time_step(times: pd.Series) -> pd.Timedelta:
    """Time from the first bin of a forecast to the second; a day for one bin."""
    first = pd.DatetimeIndex(times).sort_values()[:2]
    return first[1] - first[0] if len(first) > 1 else _DAY


def _deviation(jobs: pd.DataFrame, step: pd.Timedelta, bins: int) -> tuple[float, float]:
    """Variance of GPUs wanted around the week's profile, and that of a mean over `bins` relative to it."""
    usage = usage_series(jobs, by=None, freq=to_offset(step), value="wanted", partial=False)
    place = np.arange(len(usage)) % max(round(_WEEK / step), 1)
    residual = (usage["y"] - usage["y"].groupby(place).transform("mean")).to_numpy()
    power = float((residual**2).sum())
    if power == 0:
        return 0.0, 1.0
    lags = np.arange(1, min(_LONGEST // step + 1, bins, len(residual) - 1))
    correlation = np.array([(residual[lag:] * residual[:-lag]).sum() for lag in lags]) / power
    # From the first lag without correlation on, what is estimated is noise.
    correlation[np.cumsum(correlation <= 0) > 0] = 0.0
    total = 1 + 2 * float(((1 - lags / bins) * correlation).sum())
    return power / max(len(residual) - place.max() - 1, 1), min(total / bins, 1.0)
