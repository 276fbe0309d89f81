"""Distribution of the mean demand over the time of a forecast, from the intervals of its bins."""

from __future__ import annotations

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset
from scipy.stats import norm

from gpudemand._typing import FloatArray
from gpudemand.planning.capacity.quantiles import QuantileTable
from gpudemand.usage.series import usage_series

_WEEK, _DAY = pd.Timedelta("7D"), pd.Timedelta("1D")
#: Longest correlation of demand that is taken into account.
_LONGEST = pd.Timedelta("28D")
#: Standard deviations between the 10 and 90 % quantiles of a normal distribution.
_WIDTH = 2 * float(norm.ppf(0.9))


def mean_demand(
    quantiles: QuantileTable, chances: FloatArray, jobs: pd.DataFrame, until: pd.Timestamp, step: pd.Timedelta
) -> FloatArray:
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
    until : Timestamp
        End of the log.
    step : Timedelta
        Width of a bin.

    Returns
    -------
    ndarray of shape (n,)
    """
    bins, middle = len(quantiles.values), quantiles.quantile(0.5).mean()
    residual, around = _residual(jobs, until, step)
    left = _variance_of_mean(residual, bins, int(_LONGEST // step))
    variance = float(np.mean(((quantiles.quantile(0.9) - quantiles.quantile(0.1)) / _WIDTH) ** 2))
    of_mean = max(variance - around, 0.0) + min(variance, around) * left
    spread = np.sqrt(of_mean / variance) if variance > 0 else 1.0
    at = np.array([quantiles.quantile(float(chance)).mean() for chance in chances])
    return np.maximum(middle + spread * (at - middle), 0.0)


def time_step(times: pd.Series) -> pd.Timedelta:
    """Time from the first bin of a forecast to the second; a day for one bin."""
    first = pd.DatetimeIndex(times).unique().sort_values()[:2]
    return first[1] - first[0] if len(first) > 1 else _DAY


def deviation(jobs: pd.DataFrame, until: pd.Timestamp, step: pd.Timedelta) -> float:
    """Variance of GPUs wanted in bins around the profile of the week."""
    return _residual(jobs, until, step)[1]


def _residual(jobs: pd.DataFrame, until: pd.Timestamp, step: pd.Timedelta) -> tuple[FloatArray, float]:
    usage = usage_series(jobs, by=None, freq=to_offset(step), value="wanted", until=until, partial=False)
    place = np.arange(len(usage)) % max(round(_WEEK / step), 1)
    residual = (usage["y"] - usage["y"].groupby(place).transform("mean")).to_numpy()
    freedom = max(len(residual) - place.max() - 1, 1)
    return residual, float((residual**2).sum()) / freedom


def _variance_of_mean(residual: FloatArray, bins: int, longest: int) -> float:
    """Variance of a mean over `bins`, relative to that of a bin, from autocorrelations up to a longest lag."""
    power = float((residual**2).sum())
    lags = np.arange(1, min(longest + 1, bins, len(residual) - 1))
    if power == 0 or not lags.size:
        return 1.0
    correlation = np.array([(residual[lag:] * residual[:-lag]).sum() for lag in lags]) / power
    # From the first lag without correlation on, what is estimated is noise.
    correlation[np.cumsum(correlation <= 0) > 0] = 0.0
    return min((1 + 2 * float(((1 - lags / bins) * correlation).sum())) / bins, 1.0)
