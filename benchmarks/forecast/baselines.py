"""Forecasters to compare with: the mean week, and Theta."""

from __future__ import annotations

import numpy as np

from gpudemand._array import FloatArray
from gpudemand.forecast.forecaster import Forecaster, positive_int
from gpudemand.forecast.naive import seasonal_profile
from gpudemand.forecast.panel import fill_missing, phase_mean, week_of


class WeekProfile(Forecaster):
    """Mean weekly profile, shifted to the level of the newest season.

    Parameters
    ----------
    season_length : int, optional
        Bins in the season that gives the level; by default a day for bins below a day, a week for days, a year above.
    n_weeks : int, default=4
        Weeks in the profile.

    Notes
    -----
    Where bins are a day or longer, or the history is shorter than two weeks, the profile is that of the season.

    Examples
    --------
    Six days from a Monday on, the last of which is a Saturday:

    >>> import pandas as pd
    >>> hours = np.arange(24 * 7 * 4)
    >>> y = 10.0 + (hours // 24 % 7 < 5)
    >>> ds = pd.date_range("2026-03-02", periods=hours.size, freq="h")
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": ds, "y": y})
    >>> WeekProfile().fit(usage).predict(h=24 * 6)["WeekProfile"].iloc[[0, -1]].tolist()
    [11.0, 10.0]
    """

    def __init__(self, season_length: int | None = None, n_weeks: int = 4) -> None:
        self.season_length = season_length
        self.n_weeks = n_weeks

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        season, week = self.season_length_, week_of(self.season_length_, self.panel_.freq)
        n_weeks = positive_int("n_weeks", self.n_weeks)
        if season >= week or y.shape[1] < 2 * week:
            week = season
        y = fill_missing(y, season)
        if y.shape[1] < week:
            return np.repeat(y.mean(axis=1, keepdims=True), h, axis=1)
        profile = seasonal_profile(y[:, -week * min(n_weeks, y.shape[1] // week) :], week)
        level = y[:, -season:].mean(axis=1) - profile[:, -season:].mean(axis=1)
        return profile[:, np.arange(h) % week] + level[:, None]


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

    def __init__(self, season_length: int | None = None, max_seasons: int = 28) -> None:
        self.season_length = season_length
        self.max_seasons = max_seasons

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        season = self.season_length_ if y.shape[1] >= 2 * self.season_length_ else 1
        max_seasons = positive_int("max_seasons", self.max_seasons)
        recent = fill_missing(y, season)[:, -max(season * max_seasons, 3) :]
        seasonal = _seasonal(recent, season)
        adjusted = recent - seasonal[:, np.arange(-recent.shape[1], 0) % season]
        times = np.arange(adjusted.shape[1]) - (adjusted.shape[1] - 1) / 2
        drift = adjusted @ times / max(float(times @ times), 1.0) / 2
        alpha, level = _theta_level(adjusted)
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


def _theta_level(y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Smoothing parameter with the smallest squared error one step ahead, and the level under it, (n_series,) each."""
    level = np.repeat(y[None, :, 0], len(_ALPHAS), axis=0)
    loss = np.zeros_like(level)
    for value in y.T[1:]:
        error = value - level
        loss += np.square(error)
        level = level + _ALPHAS[:, None] * error
    best = loss.argmin(axis=0)
    return _ALPHAS[best], level[best, np.arange(len(y))]
