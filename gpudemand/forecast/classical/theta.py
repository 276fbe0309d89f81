"""`Theta`: half the slope of a series, and the level of its newest values."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.windows import phase_mean, without_gaps

_WEIGHTS = np.array([0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9])


class Theta(Forecaster):
    """The Theta method: exponential smoothing with half of the linear trend as a drift, on top of the season.

    The season, the mean of each phase against the mean of all over the newest `max_seasons` of them, is taken out
    first; the smoothing weight of each series is the one of a grid that has erred least one step ahead. All series at
    once.

    Parameters
    ----------
    season_length : int, optional
        Bins in a season; by default a day for bins below a day, a week for days, a year above.
    max_seasons : int, default=28
        Only the newest seasons are looked at.

    References
    ----------
    Assimakopoulos and Nikolopoulos, "The theta model: a decomposition approach to forecasting", International Journal
    of Forecasting 16 (2000); Hyndman and Billah, "Unmasking the Theta method", ibid. 19 (2003).

    Examples
    --------
    A line goes on at half its slope:

    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-01", periods=40, freq="D")
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": ds, "y": 2.0 * np.arange(40)})
    >>> Theta(season_length=1).fit(usage).predict(h=3)["Theta"].diff().round(2).tolist()[1:]
    [1.0, 1.0]
    """

    _allow_missing = True

    def __init__(self, season_length: int | None = None, max_seasons: int = 28) -> None:
        self.season_length = season_length
        self.max_seasons = max_seasons

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        season = self.season_length_ if y.shape[1] >= 2 * self.season_length_ else 1
        recent = without_gaps(y, season)[:, -max(season * self.max_seasons, 3) :]
        shape = _seasonal(recent, season)
        level = recent - shape[:, np.arange(-recent.shape[1], 0) % season]
        drift = _slope(level) / 2
        weight, newest = _smooth(level)
        # The drift that the smoothed level lags behind by.
        behind = drift * (1 - (1 - weight) ** level.shape[1]) / weight
        steps = np.arange(h)
        return (newest + behind)[:, None] + drift[:, None] * steps + shape[:, steps % season]


def _seasonal(y: FloatArray, season: int) -> FloatArray:
    """Mean of each phase minus the mean of all, shape (n_series, season); the first phase follows the history."""
    if season == 1:
        return np.zeros((len(y), 1))
    profile = phase_mean(y, season, y.shape[1] // season)[:, -season:]
    return profile - profile.mean(axis=1, keepdims=True)


def _slope(y: FloatArray) -> FloatArray:
    """Slope of the least-squares line through each row."""
    times = np.arange(y.shape[1]) - (y.shape[1] - 1) / 2
    return y @ times / max(float(times @ times), 1.0)


def _smooth(y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weight with the least error one step ahead, and the newest level under it, shape (n_series,) each."""
    level = np.repeat(y[None, :, 0], len(_WEIGHTS), axis=0)
    missed = np.zeros_like(level)
    for value in y.T[1:]:
        error = value - level
        missed += np.square(error)
        level = level + _WEIGHTS[:, None] * error
    best, series = missed.argmin(axis=0), np.arange(len(y))
    return _WEIGHTS[best], level[best, series]
