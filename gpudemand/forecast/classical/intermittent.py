"""Forecasts of demand that is zero most of the time."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand._validation import check_number
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.panel import known_mean


class Zero(Forecaster):
    """Nothing, for ever: the forecast that absolute errors prefer wherever most bins are empty.

    Beside it stands what it hides: its bias is minus one.

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
        How many bins; all by default.

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
        width = y.shape[1] if self.window is None else int(check_number("window", self.window, 1, integer=True))
        return np.repeat(known_mean(y[:, -width:]), h, axis=1)


class TSB(Forecaster):
    """Size of demand times its probability, each smoothed exponentially; users who stay away are forgotten.

    Parameters
    ----------
    size_weight, probability_weight : float in (0, 1], default=0.1
        Of the newest demand, and of whether there was any in the newest bin.

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
        by_size, by_chance = _weights(self.size_weight, self.probability_weight)
        size, chance = _first_size(y), _first_chance(y)
        for now in y.T:
            known, some = ~np.isnan(now), np.nan_to_num(now) != 0
            chance += by_chance * known * (some - chance)
            size += np.where(some, by_size * (now - size), 0.0)
        return np.repeat((size * chance)[:, None], h, axis=1)


class SBA(Forecaster):
    """Croston's method with the correction of Syntetos and Boylan: size of demand over the time between demands.

    It learns only when there is demand, so a user who left is never forgotten: use `TSB` where users leave.

    Parameters
    ----------
    size_weight, interval_weight : float in (0, 1], default=0.1
        Of the newest demand, and of the newest time between two of them.

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
        by_size, by_interval = _weights(self.size_weight, self.interval_weight)
        size, interval = _first_size(y), 1 / np.maximum(_first_chance(y), 1 / y.shape[1])
        waited = np.ones(len(y))
        for now in y.T:
            some = np.nan_to_num(now) != 0
            size += np.where(some, by_size * (now - size), 0.0)
            interval += np.where(some, by_interval * (waited - interval), 0.0)
            waited = np.where(some, 1.0, waited + ~np.isnan(now))
        return np.repeat(((1 - by_interval / 2) * size / interval)[:, None], h, axis=1)


def _weights(*given: float) -> list[float]:
    return [check_number("a smoothing weight", value, 0, 1, open_low=True) for value in given]


def _first_size(y: FloatArray) -> FloatArray:
    """First demand of every series that is not zero; 0 where there is none."""
    some = np.nan_to_num(y) != 0
    return np.where(some.any(axis=1), np.take_along_axis(np.nan_to_num(y), some.argmax(axis=1)[:, None], 1)[:, 0], 0.0)


def _first_chance(y: FloatArray) -> FloatArray:
    """Inverse of the time to the first demand, shape (n_series,)."""
    some = np.nan_to_num(y) != 0
    began = (~np.isnan(y)).argmax(axis=1)
    return np.where(some.any(axis=1), 1 / (some.argmax(axis=1) - began + 1), 0.0)
