"""`Theta`: simple exponential smoothing with drift, on top of an additive season."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.windows import fill_missing, phase_mean

#: Grid of the smoothing parameter.
_ALPHAS = np.array([0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9])


class Theta(Forecaster):
    """The Theta method: exponential smoothing with half of the linear trend as a drift, on top of the season.

    The season, the mean of each phase against the mean of all over the newest `max_seasons` of them, is subtracted
    first; the smoothing parameter of each series is the one of a grid with the smallest squared errors one step ahead.

    Parameters
    ----------
    season_length : int, optional
        Bins in a season; by default a day for bins below a day, a week for days, a year above.
    max_seasons : int, default=28
        Only the newest seasons are fitted.

    References
    ----------
    Assimakopoulos and Nikolopoulos, "The theta model: a decomposition approach to forecasting", International Journal
    of Forecasting 16 (2000); Hyndman and Billah, "Unmasking the Theta method", ibid. 19 (2003).

    Examples
    --------
    A line continues at half of its slope:

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
        recent = fill_missing(y, season)[:, -max(season * self.max_seasons, 3) :]
        seasonal = _seasonal(recent, season)
        adjusted = recent - seasonal[:, np.arange(-recent.shape[1], 0) % season]
        times = np.arange(adjusted.shape[1]) - (adjusted.shape[1] - 1) / 2
        drift = adjusted @ times / max(float(times @ times), 1.0) / 2
        alpha, level = _smooth(adjusted)
        # The smoothed level lags behind the trend by this much.
        lag = drift * (1 - (1 - alpha) ** adjusted.shape[1]) / alpha
        steps = np.arange(h)
        return (level + lag)[:, None] + drift[:, None] * steps + seasonal[:, steps % season]


def _seasonal(y: FloatArray, season: int) -> FloatArray:
    """Mean of each phase minus the mean of all, shape (n_series, season); the first phase follows the history."""
    if season == 1:
        return np.zeros((len(y), 1))
    profile = phase_mean(y, season, y.shape[1] // season)[:, -season:]
    return profile - profile.mean(axis=1, keepdims=True)


def _smooth(y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Smoothing parameter with the smallest squared error one step ahead, and the level under it, (n_series,) each."""
    level = np.repeat(y[None, :, 0], len(_ALPHAS), axis=0)
    loss = np.zeros_like(level)
    for value in y.T[1:]:
        error = value - level
        loss += np.square(error)
        level = level + _ALPHAS[:, None] * error
    best = loss.argmin(axis=0)
    return _ALPHAS[best], level[best, np.arange(len(y))]
