"""Forecasts of intermittent demand, which is zero most of the time."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand._validation import check_number
from gpudemand.forecast.base.forecaster import Forecaster, positive_int
from gpudemand.forecast.base.panel import row_means


class Zero(Forecaster):
    """Zero, the forecast that absolute errors prefer wherever most bins are empty; its bias is minus one.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-01", periods=4, freq="D")
    >>> Zero().fit(pd.DataFrame({"unique_id": "ada", "ds": ds, "y": [0.0, 0, 8, 0]})).predict(h=2)["Zero"].tolist()
    [0.0, 0.0]
    """

    _allow_missing = True

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        return np.zeros((len(y), h))


class HistoricMean(Forecaster):
    """Mean of the newest bins.

    Parameters
    ----------
    window : int, optional
        Number of bins; all by default.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-01", periods=4, freq="D")
    >>> usage = pd.DataFrame({"unique_id": "ada", "ds": ds, "y": [0.0, 0, 8, 0]})
    >>> HistoricMean().fit(usage).predict(h=2)["HistoricMean"].tolist()
    [2.0, 2.0]
    """

    _allow_missing = True

    def __init__(self, window: int | None = None) -> None:
        self.window = window

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        width = y.shape[1] if self.window is None else positive_int("window", self.window)
        return np.repeat(row_means(y[:, -width:]), h, axis=1)


class TSB(Forecaster):
    """Teunter-Syntetos-Babai: size of demand times its probability, each smoothed exponentially.

    The probability decays while there is no demand, so users who leave are forgotten.

    Parameters
    ----------
    size_weight, probability_weight : float in (0, 1], default=0.1
        Smoothing parameters of the size of demand, and of whether there is any.

    References
    ----------
    Teunter, Syntetos and Babai, "Intermittent demand: linking forecasting to inventory obsolescence", European Journal
    of Operational Research 214 (2011).

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-01", periods=60, freq="D")
    >>> usage = pd.DataFrame({"unique_id": "ada", "ds": ds, "y": [0.0, 0, 8] * 10 + [0.0] * 30})
    >>> tsb, sba = (model.fit(usage).predict(h=1).iloc[0, -1] for model in (TSB(), SBA()))
    >>> bool(tsb < 0.2), bool(sba > 2)
    (True, True)
    """

    _allow_missing = True

    def __init__(self, size_weight: float = 0.1, probability_weight: float = 0.1) -> None:
        self.size_weight = size_weight
        self.probability_weight = probability_weight

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        alpha, beta = _weights(self.size_weight, self.probability_weight)
        size, probability = _initial_size(y), _initial_probability(y)
        for now in y.T:
            known, some = ~np.isnan(now), np.nan_to_num(now) != 0
            probability += beta * known * (some - probability)
            size += np.where(some, alpha * (now - size), 0.0)
        return np.repeat((size * probability)[:, None], h, axis=1)


class SBA(Forecaster):
    """Syntetos-Boylan approximation of Croston's method: size of demand over the interval between demands.

    It is updated only by demand, so users who leave are never forgotten; `TSB` forgets them.

    Parameters
    ----------
    size_weight, interval_weight : float in (0, 1], default=0.1
        Smoothing parameters of the size of demand, and of the interval between demands.

    References
    ----------
    Syntetos and Boylan, "The accuracy of intermittent demand estimates", International Journal of Forecasting 21
    (2005).
    """

    _allow_missing = True

    def __init__(self, size_weight: float = 0.1, interval_weight: float = 0.1) -> None:
        self.size_weight = size_weight
        self.interval_weight = interval_weight

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        alpha, beta = _weights(self.size_weight, self.interval_weight)
        size, interval = _initial_size(y), 1 / np.maximum(_initial_probability(y), 1 / y.shape[1])
        elapsed = np.ones(len(y))
        for now in y.T:
            some = np.nan_to_num(now) != 0
            size += np.where(some, alpha * (now - size), 0.0)
            interval += np.where(some, beta * (elapsed - interval), 0.0)
            elapsed = np.where(some, 1.0, elapsed + ~np.isnan(now))
        return np.repeat(((1 - beta / 2) * size / interval)[:, None], h, axis=1)


def _weights(*given: float) -> list[float]:
    return [check_number("a smoothing weight", value, 0, 1, open_low=True) for value in given]


def _initial_size(y: FloatArray) -> FloatArray:
    """First non-zero demand of every series, shape (n_series,); 0 where there is none."""
    y = np.nan_to_num(y)
    return y[np.arange(len(y)), (y != 0).argmax(axis=1)]


def _initial_probability(y: FloatArray) -> FloatArray:
    """Inverse of the time to the first demand, shape (n_series,)."""
    some = np.nan_to_num(y) != 0
    began = (~np.isnan(y)).argmax(axis=1)
    return np.where(some.any(axis=1), 1 / (some.argmax(axis=1) - began + 1), 0.0)
