"""Naive forecasters."""

from __future__ import annotations

import numpy as np

from gpudemand._array import FloatArray
from gpudemand.forecast.forecaster import Forecaster, last_known, positive_int
from gpudemand.forecast.panel import begun, row_means


class Naive(Forecaster):
    """Random-walk forecast: the newest value.

    Demand of training clusters is close to a random walk, so this is hard to beat a few hours ahead.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-01", periods=4, freq="D")
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": ds, "y": [3.0, 1.0, 4.0, 1.0]})
    >>> Naive().fit(usage).predict(h=2)
      unique_id         ds  Naive
    0     total 2026-03-05    1.0
    1     total 2026-03-06    1.0
    """

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        return np.repeat(last_known(y), h, axis=1)


class SeasonalNaive(Forecaster):
    """The newest season, repeated.

    Parameters
    ----------
    season_length : int, optional
        Bins in a season; by default a day for bins below a day, a week for days, a year above.

    Notes
    -----
    A history shorter than a season is repeated whole.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-01", periods=4, freq="D")
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": ds, "y": [3.0, 1.0, 4.0, 1.0]})
    >>> SeasonalNaive(season_length=2).fit(usage).predict(h=3)["SeasonalNaive"].tolist()
    [4.0, 1.0, 4.0]
    """

    def __init__(self, season_length: int | None = None) -> None:
        self.season_length = season_length

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        season = min(self.season_length_, y.shape[1])
        last = np.where(np.isnan(y[:, -season:]), last_known(y), y[:, -season:])
        return last[:, np.arange(h) % season]


class SeasonallyAdjustedNaive(Forecaster):
    """Random walk with an additive season: the newest value plus the change of the seasonal profile since.

    With the profile ``p``, the mean of each phase over the newest `n_seasons` seasons, the forecast is
    ``y_T + p(T + k) - p(T)``.

    Parameters
    ----------
    season_length : int, optional
        Bins in a season; by default a day for bins below a day, a week for days, a year above.
    n_seasons : int, default=28
        Seasons in the profile.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-01", periods=5, freq="D")
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": ds, "y": [0.0, 2.0, 0.0, 2.0, 8.0]})
    >>> SeasonallyAdjustedNaive(season_length=2).fit(usage).predict(h=2).iloc[:, -1].tolist()
    [6.0, 8.0]
    """

    def __init__(self, season_length: int | None = None, n_seasons: int = 28) -> None:
        self.season_length = season_length
        self.n_seasons = n_seasons

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        season, n_seasons = self.season_length_, positive_int("n_seasons", self.n_seasons)
        recent = y[:, -season * min(n_seasons, max(y.shape[1] // season, 1)) :]
        if recent.shape[1] < season:
            return np.repeat(last_known(y), h, axis=1)
        profile = seasonal_profile(recent, season)
        return last_known(y) + profile[:, np.arange(h) % season] - profile[:, [-1]]


class LastValueProfile(SeasonallyAdjustedNaive):
    """Former name of `SeasonallyAdjustedNaive`, kept for evaluations that call it; its columns bear the old name."""


class SeasonalMedian(Forecaster):
    """Median of each phase of the newest seasons, which single bursts and outages do not move.

    Parameters
    ----------
    season_length : int, optional
        Bins in a season; by default a day for bins below a day, a week for days, a year above. With 1 the forecast is
        the median of the newest `n_seasons` bins; so it is, of as many bins, before two seasons have been seen.
    n_seasons : int, default=4

    Notes
    -----
    Demand of which the medians of all phases are zero is forecast by its mean, so that sums over users stay unbiased.

    Examples
    --------
    Three days of two bins, one of which was an outage, and a user who is seldom there:

    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-01", periods=6, freq="12h")
    >>> usage = pd.concat([
    ...     pd.DataFrame({"unique_id": "ada", "ds": ds, "y": [4.0, 8.0, 0.0, 0.0, 5.0, 9.0]}),
    ...     pd.DataFrame({"unique_id": "bob", "ds": ds, "y": [0.0, 0.0, 6.0, 0.0, 0.0, 0.0]}),
    ... ])
    >>> SeasonalMedian(season_length=2).fit(usage).predict(h=2)["SeasonalMedian"].tolist()
    [4.0, 8.0, 1.0, 1.0]
    """

    def __init__(self, season_length: int | None = None, n_seasons: int = 4) -> None:
        self.season_length = season_length
        self.n_seasons = n_seasons

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        season, n_seasons = self.season_length_, positive_int("n_seasons", self.n_seasons)
        n_times = min(n_seasons * season, y.shape[1])
        period = season if y.shape[1] >= 2 * season else 1
        recent = y[:, y.shape[1] - n_times + n_times % period :]
        profile = _medians(recent.reshape(len(y), -1, period))
        overall = np.where(begun(recent, np.array([recent.shape[1]])), _medians(recent[..., None]), last_known(y))
        profile = np.where(np.isnan(profile), overall, profile)
        return np.where(profile.any(axis=1, keepdims=True), profile, row_means(recent))[:, np.arange(h) % period]


def _medians(values: FloatArray) -> FloatArray:
    """Median of the known values over the second axis, shape (n_series, n_phases); NaN where there are none."""
    ordered, count = np.sort(values, axis=1), (~np.isnan(values)).sum(axis=1, keepdims=True)
    low, high = (np.take_along_axis(ordered, np.maximum(at, 0), axis=1)[:, 0] for at in ((count - 1) // 2, count // 2))
    return np.asarray((low + high) / 2)


def seasonal_profile(y: FloatArray, season: int) -> FloatArray:
    """Mean of each phase, (n_series, season), the next one first; phases without any value have that of the series."""
    seasons = y[:, y.shape[1] % season :].reshape(y.shape[0], -1, season)
    known = ~np.isnan(seasons)
    total, count = np.where(known, seasons, 0.0), known.sum(axis=1)
    overall = total.sum(axis=(1, 2)) / np.maximum(count.sum(axis=1), 1)
    return np.where(count > 0, total.sum(axis=1) / np.maximum(count, 1), overall[:, None])
