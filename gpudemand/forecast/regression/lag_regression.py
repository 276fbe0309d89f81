"""`LagRegression`: a direct regression for every step ahead on plain lags, for seasons that no calendar tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_number
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.panel import season_length, week_length
from gpudemand.forecast.base.seasonality import Clock
from gpudemand.forecast.base.windows import delayed, phase_mean, rolling_mean
from gpudemand.forecast.regression.direct import Direct, History
from gpudemand.forecast.regression.regressors import Regressors

#: Newest bins, and bins up to the same phase of earlier seasons, that count one by one.
_NEWEST = 4
#: Seasons in the mean season where there is no longer one.
_SEASONS = 4
#: See `Direct`: series that repeat themselves closely need little of it.
_CAUTION = 0.02


@dataclass(frozen=True)
class LagRegressors(Regressors):
    """Values at lags of the origin and of the target, measured from the mean of the longer season."""

    @property
    def memory(self) -> int:
        """Bins that a series must have behind it for its regressors to mean anything."""
        return self.week + self.season + _NEWEST

    @cached_property
    def level(self) -> FloatArray:
        """Mean of the newest long season."""
        return rolling_mean(self.y, self.week)

    def anchor(self, name: str, step: int) -> FloatArray:
        """The level, whatever is asked for."""
        return self.level

    def at(self, step: int) -> FloatArray:
        """Regressors for a target `step` bins ahead, shape (n_series, n_regressors, n_times), 0 on average."""
        columns = [delayed(self.y, lag) for lag in self._lags(step)]
        if self.season > 1:
            n_seasons = self.week // self.season if self.week > self.season else _SEASONS
            columns.append(delayed(phase_mean(self.y, self.season, n_seasons), self._ago(step, self.season)))
        centred = [column - self.level for column in columns]
        return np.stack([*centred, *self._of_total()], axis=1)

    def _lags(self, step: int) -> list[int]:
        """Bins before the origin: the newest, those about the target, and what led up to them a season before."""
        lags = list(range(_NEWEST))
        for season in sorted({self.season, self.week} - {1}):
            lags += [self._ago(step + near, season) for near in (-1, 0, 1)]
            lags += [season + lag for lag in range(_NEWEST)]
        if self.season > 1:
            lags += [self._ago(step, 2 * self.season), self._ago(step, self.season + self.week)]
        return list(dict.fromkeys(lags))

    def _of_total(self) -> list[FloatArray]:
        """The total now and a long season ago, as shares of its level."""
        if self.total is None:
            return []
        level = rolling_mean(self.total, self.week)
        unit = np.where(level > 0, level, 1.0)
        return [(delayed(self.total, lag) - level) / unit * self.level for lag in sorted({0, self.week})]


class LagRegression(Forecaster):
    """Ridge regression of every step ahead on values at plain lags of one or two given seasons.

    The regressors are the newest four values; for each season the values about the target that many bins before it, and
    those that led up to them; two seasons and both seasons together before the target; the mean season; and the total
    of all series. There is one regression a step, so errors do not build up; its weights are shared by all series, each
    in units of its own standard deviation, and every series may depart from them as far as its own history bears out.
    For demand that wanders, as that of GPU clusters does, there is `RidgeAutoregression` with its levels and profiles;
    this one is for series that repeat themselves closely, at any period.

    Parameters
    ----------
    season_length : int or (int, int), optional
        Bins in a season, or in a shorter and a longer one: ``(108, 756)`` for days of 18 hours in steps of ten minutes.
        By default those of the calendar. A season counts when the history holds two of it.
    penalty : float, default=1e-4
        On squared weights, in units of each regressor's own variance.
    own_penalty : float, default=30
        On the departure of a series from the shared weights, in as many bins of history.

    Notes
    -----
    Missing values are filled from what came before them to make regressors, and are no targets.

    Examples
    --------
    A day of ten recorded hours, six days a week, at a level that wanders:

    >>> import pandas as pd
    >>> from gpudemand.forecast import SeasonalNaive, cross_validation
    >>> bins, rng = np.arange(60 * 18), np.random.default_rng(0)
    >>> y = 50 + 30 * np.sin(bins * np.pi / 5) * (bins // 10 % 6 < 5) + np.cumsum(rng.normal(0, 1, bins.size))
    >>> ds = pd.date_range("2026-03-02", periods=bins.size, freq="h")
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": ds, "y": y})
    >>> models = [LagRegression((10, 60)), SeasonalNaive(60)]
    >>> test = cross_validation(models, usage, h=10, n_windows=5)
    >>> error = test[["LagRegression", "SeasonalNaive"]].sub(test["y"], axis=0).abs().mean()
    >>> bool(error["LagRegression"] < 0.6 * error["SeasonalNaive"])
    True
    """

    _allow_missing = True

    def __init__(
        self,
        season_length: int | Sequence[int] | None = None,
        *,
        penalty: float = 1e-4,
        own_penalty: float = 30.0,
    ) -> None:
        self.season_length = season_length
        self.penalty = penalty
        self.own_penalty = own_penalty

    def _season(self) -> int:
        return self._seasons().season

    def _seasons(self) -> Clock:
        if self.season_length is None:
            season = season_length(self.panel_.freq)
            return Clock(season, max(season, week_length(self.panel_.freq)))
        given = [int(check_number("season_length", n, 1, integer=True)) for n in np.atleast_1d(self.season_length)]
        if len(given) not in (1, 2) or given[0] > given[-1]:
            raise InputError(
                f"season_length={self.season_length!r} must be a number of bins, or a shorter and a longer one, "
                "such as (24, 168)."
            )
        return Clock(given[0], given[-1])

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        penalty = check_number("penalty", self.penalty, 0, open_low=True)
        own = check_number("own_penalty", self.own_penalty, 0, open_low=True)
        out = np.empty((len(y), origins.size, h))
        for clock, chosen in self._clocks(origins):
            history = History.of(y[:, : origins[chosen].max()], clock.season)
            direct = Direct(history, origins[chosen], clock, "level", penalty, own, LagRegressors, _CAUTION)
            for step in range(1, h + 1):
                out[:, chosen, step - 1] = direct.forecast(step)
        return out

    def _clocks(self, origins: IntArray) -> Iterator[tuple[Clock, BoolArray]]:
        """Origins that show the same seasons, each of which they hold twice."""
        full = self._seasons()
        season = np.where(origins >= 2 * full.season, full.season, 1)
        week = np.where((origins >= 2 * full.week) & (season > 1), full.week, season)
        for clock in sorted(set(zip(season.tolist(), week.tolist(), strict=True))):
            yield Clock(*clock), (season == clock[0]) & (week == clock[1])
