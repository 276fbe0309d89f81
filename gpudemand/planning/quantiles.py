"""Quantiles of demand over bins, within bins, and of its mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset
from scipy.special import ndtr
from scipy.stats import norm

from gpudemand._array import FloatArray
from gpudemand._validation import InputError, check_choice, check_usage
from gpudemand.forecast.panel import infer_freq, mean_step
from gpudemand.metrics import check_forecast, forecast_names, interval_columns
from gpudemand.units import DAY, WEEK
from gpudemand.usage.bins import bins_of
from gpudemand.usage.series import usage_series


@dataclass(frozen=True)
class QuantileTable:
    """Quantiles of demand, one row a forecast bin, interpolated linearly in the standard normal quantile.

    Beyond the outermost known quantiles the distribution is extrapolated with normal tails.

    Attributes
    ----------
    z : ndarray of shape (n_quantiles,)
        Standard normal quantiles at which `values` are known, ascending.
    values : ndarray of shape (n_rows, n_quantiles)
    """

    z: FloatArray
    values: FloatArray

    @classmethod
    def from_forecast(cls, forecast: pd.DataFrame, model: str | None = None) -> QuantileTable:
        """Read the columns ``model``, ``model-lo-80``, ``model-hi-80``, ... of a forecast.

        Raises
        ------
        InputError
            If the frame is no forecast (see `check_forecast`), has several models and none is named, has no intervals,
            or has missing values.
        """
        forecast = check_forecast(forecast)
        name = pick_model(forecast, model)
        known = interval_columns(forecast, name)
        if not known:
            raise InputError(
                f"the forecast of {name} has no intervals, so it carries no risk; predict with level=[80, 95]."
            )
        columns = {0.5: name}
        for level, (low, high) in known.items():
            columns |= {0.5 - level / 200: low, 0.5 + level / 200: high}
        shares = sorted(columns)
        values = _numbers(forecast[[columns[share] for share in shares]], name)
        return cls(norm.ppf(shares), np.maximum.accumulate(values, axis=1))

    @property
    def highest(self) -> float:
        """Largest probability whose quantile is not extrapolated."""
        return float(norm.cdf(self.z[-1]))

    def quantile(self, share: float) -> FloatArray:
        """Quantile of demand at probability `share`, shape (n_rows,)."""
        place = float(norm.ppf(share))
        left = int(np.clip(np.searchsorted(self.z, place) - 1, 0, self.z.size - 2))
        weight = (place - self.z[left]) / (self.z[left + 1] - self.z[left])
        low, high = self.values[:, left], self.values[:, left + 1]
        return np.maximum(low + weight * (high - low), min(0.0, float(self.values.min())))

    def demand(self, n: int = 200) -> FloatArray:
        """Demand at `n` evenly spaced probabilities, at least 0, shape (n_rows, n); their mean is the expected one."""
        return np.maximum(np.stack([self.quantile(share) for share in (np.arange(n) + 0.5) / n], axis=1), 0.0)

    def share_over(self, capacity: FloatArray, ratios: FloatArray) -> FloatArray:
        """Expected share of each bin with demand above `capacity`, shape (n_rows,).

        Parameters
        ----------
        capacity : ndarray of shape (n_rows,)
        ratios : ndarray of shape (n_rows, n_ratios)
            Equally likely ratios of the demand at a time to the mean of its bin; see `ratios_to_mean`.
        """
        return np.mean([self.exceedance(capacity / ratio) for ratio in np.maximum(ratios.T, 1e-9)], axis=0)

    def exceedance(self, capacity: FloatArray) -> FloatArray:
        """Probability that demand is above `capacity`, shape (n_rows,)."""
        capacity = np.asarray(capacity, dtype=float)
        left = np.clip((self.values <= capacity[:, None]).sum(axis=1) - 1, 0, self.z.size - 2)
        rows = np.arange(left.size)
        low, high = self.values[rows, left], self.values[rows, left + 1]
        flat = np.where(capacity >= high, np.inf, -np.inf)
        share = np.divide(capacity - low, high - low, out=flat, where=high > low)
        # norm.sf, which takes ten times as long over arguments that it need not check.
        return np.asarray(ndtr(-(self.z[left] + share * (self.z[left + 1] - self.z[left]))))


def _numbers(columns: pd.DataFrame, name: str) -> FloatArray:
    try:
        values = columns.to_numpy(dtype=float)
    except (ValueError, TypeError) as error:
        raise InputError(f"the forecast of {name} must hold numbers ({error}).") from error
    if not np.isfinite(values).all():
        raise InputError(f"the forecast of {name} holds {int((~np.isfinite(values)).sum())} missing values.")
    return values


def pick_model(forecast: pd.DataFrame, model: str | None) -> str:
    """Name of the model: the one given, or the only one in the forecast."""
    names = forecast_names(forecast)
    if model is not None:
        return check_choice("model", model, names)
    if len(names) != 1:
        raise InputError(f"the forecast holds {len(names)} models ({', '.join(names)}); name one with model=.")
    return names[0]


#: Standard deviations from the median of a normal distribution to its 95 % quantile.
Z95 = float(norm.ppf(0.95))
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

    `quantiles`: demand by bin. `chances`: shape (n,); probabilities. `jobs`: job table. `until`: end of the log.
    `step`: width of a bin. Returns ndarray of shape (n,).
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
    return first[1] - first[0] if len(first) > 1 else DAY


def _residual(jobs: pd.DataFrame, until: pd.Timestamp, step: pd.Timedelta) -> tuple[FloatArray, float]:
    usage = usage_series(jobs, by=None, freq=to_offset(step), value="wanted", until=until, partial=False)
    place = np.arange(len(usage)) % max(round(WEEK / step), 1)
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


#: Quantiles that stand for the distribution of the ratios.
_SHARES = (np.arange(49) + 0.5) / 49


def ratios_to_mean(held: pd.DataFrame, forecast: pd.DataFrame) -> FloatArray:
    """Ratios of the demand at a time to the mean of its bin, for the bins of a forecast.

    `held`: ``unique_id``, ``ds``, ``y``: GPUs in bins finer than those of `forecast`, such as hours, of the same
    series; a single one serves all. `forecast`: ``unique_id``, ``ds``. Returns shape (n_rows, n_ratios): quantiles of
    the ratios, with mean 1.

    >>> ds = pd.date_range("2026-03-01", periods=48, freq="h")
    >>> held = pd.DataFrame({"unique_id": "total", "ds": ds, "y": np.where(ds.hour < 12, 30.0, 10.0)})
    >>> days = pd.DataFrame({"unique_id": "total", "ds": pd.date_range("2026-03-03", periods=2)})
    >>> ratios_to_mean(held, days)[0, [0, -1]].round(1).tolist()
    [0.5, 1.5]
    """
    table, bins = check_usage(held), infer_freq(pd.DatetimeIndex(forecast["ds"].sort_values().unique()))
    if mean_step(bins) <= mean_step(infer_freq(pd.DatetimeIndex(table["ds"].sort_values().unique()))):
        raise InputError("the bins of held= are not finer than those of the forecast; use usage_series(..., freq='h').")
    known = {str(name): _quantiles(part, bins) for name, part in table.groupby("unique_id")}
    names = forecast["unique_id"].astype(str)
    if len(known) == 1:
        return np.tile(next(iter(known.values())), (len(names), 1))
    missing = [name for name in names.unique() if name not in known]
    if missing:
        raise InputError(f"held= has no series {missing[0]!r}, which the forecast has.")
    return np.stack([known[name] for name in names])


def _quantiles(part: pd.DataFrame, bins: pd.offsets.BaseOffset) -> FloatArray:
    _, place = bins_of(pd.DatetimeIndex(part["ds"]), bins)
    y = part["y"]
    mean = y.groupby(place).transform("mean")
    if not mean.gt(0).any():
        return np.ones(len(_SHARES))
    ratios = np.quantile((y / mean)[mean > 0], _SHARES)
    return ratios / ratios.mean()
