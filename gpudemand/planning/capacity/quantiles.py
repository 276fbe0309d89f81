"""Predictive distribution from the interval columns of a forecast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtr
from scipy.stats import norm

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, check_columns
from gpudemand.metrics import levels, model_names


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
            If the frame is empty, has several models and none is named, has no intervals, or has missing values or
            dates.
        """
        forecast = check_columns(forecast, ("unique_id", "ds"), "forecast")
        name = pick_model(forecast, model)
        known = levels(forecast, name)
        if not known:
            raise InputError(
                f"the forecast of {name} has no intervals, so it carries no risk; predict with level=[80, 95]."
            )
        if forecast.empty:
            raise InputError("the forecast has no rows; there is nothing to plan for.")
        if forecast["ds"].isna().any():
            raise InputError(f"the forecast has {int(forecast['ds'].isna().sum())} rows without a date in ds.")
        columns = {0.5: name}
        for level in known:
            columns[0.5 - level / 200] = f"{name}-lo-{level:g}"
            columns[0.5 + level / 200] = f"{name}-hi-{level:g}"
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
    names = model_names(forecast)
    if model is not None:
        return check_choice("model", model, names)
    if len(names) != 1:
        raise InputError(
            f"the forecast holds {len(names)} models ({', '.join(names) or 'none'}); name one with model=."
        )
    return names[0]
