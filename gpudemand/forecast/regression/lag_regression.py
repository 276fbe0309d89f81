"""`LagRegression`: direct ridge regressions on plain lags, for seasons of any length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_number
from gpudemand.forecast.base.forecaster import Forecaster, positive_int
from gpudemand.forecast.base.panel import season_length, week_length
from gpudemand.forecast.base.seasonality import Seasonality
from gpudemand.forecast.base.windows import begun, phase_mean, rolling_mean, shifted
from gpudemand.forecast.regression.direct import DirectRegression, History
from gpudemand.forecast.regression.regressors import Regressors

#: Newest bins, and bins before the same phase of earlier seasons, that are regressors one by one.
_NEWEST = 4
#: Seasons in the mean season where there is no longer one.
_SEASONS = 4
#: See `DirectRegression`.
_SMALL_SAMPLE_PENALTY = 0.02


@dataclass(frozen=True)
class LagRegressors(Regressors):
    """Values at lags of the origin and of the target, minus the mean of the longer season."""

    @property
    def warm_up(self) -> int:
        """Bins of history before the first training row of a series."""
        return self.week + self.season + _NEWEST

    @cached_property
    def level(self) -> FloatArray:
        """Mean of the newest long season."""
        return rolling_mean(self.y, self.week)

    def anchor(self, name: str, step: int) -> FloatArray:
        """The level, for any `name`."""
        return self.level

    def design(self, step: int) -> FloatArray:
        """Regressors of a target `step` bins ahead, shape (n_series, n_regressors, n_times), about 0 on average."""
        columns = [shifted(self.y, lag) for lag in self._lags(step)]
        if self.season > 1:
            n_seasons = self.week // self.season if self.week > self.season else _SEASONS
            profile = phase_mean(self.y, self.season, n_seasons)
            columns.append(shifted(profile, self._in_phase(step, self.season)))
        return np.stack([*(column - self.level for column in columns), *self._of_total()], axis=1)

    def _lags(self, step: int) -> list[int]:
        """Bins before the origin: the newest, those around the target's phase, and the newest of earlier seasons."""
        lags = list(range(_NEWEST))
        for season in sorted({self.season, self.week} - {1}):
            lags += [self._in_phase(step + near, season) for near in (-1, 0, 1)]
            lags += [season + lag for lag in range(_NEWEST)]
        if self.season > 1:
            lags += [self._in_phase(step, 2 * self.season), self._in_phase(step, self.season + self.week)]
        return list(dict.fromkeys(lags))

    def _of_total(self) -> list[FloatArray]:
        """The total now and a long season ago, relative to its level."""
        if self.total is None:
            return []
        level = rolling_mean(self.total, self.week)
        unit = np.where(level > 0, level, 1.0)
        return [(shifted(self.total, lag) - level) / unit * self.level for lag in sorted({0, self.week})]


class LagRegression(Forecaster):
    """Direct ridge regression of every step on plain lags of one or two seasons of any length.

    Regressors are the newest four values; for each season, the values around the target's phase one season before and
    the newest values of that season; the values two seasons, and both seasons together, before the target; the mean
    season; and the total of all series. Coefficients are partially pooled as in `RidgeAutoregression`, which suits
    demand with a wandering level; this one suits series that repeat themselves closely.

    Parameters
    ----------
    season_length : int or (int, int), optional
        Bins in a season, or in a shorter and a longer one: ``(108, 756)`` for days of 18 hours in steps of ten minutes.
        By default those of the calendar. A season is used when the history holds two of it.
    penalty : float, default=1e-4
        On squared coefficients, in units of the variance of their regressor.
    series_penalty : float, default=30
        On the departures of a series from the shared coefficients, in bins of history.

    Notes
    -----
    Missing values are filled from earlier ones to make regressors, and are not used as targets.

    Examples
    --------
    Days of ten bins, six days a week, with a wandering level:

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
        series_penalty: float = 30.0,
    ) -> None:
        self.season_length = season_length
        self.penalty = penalty
        self.series_penalty = series_penalty

    def _season(self) -> int:
        return self._seasons().season

    def _seasons(self) -> Seasonality:
        if self.season_length is None:
            season = season_length(self.panel_.freq)
            return Seasonality(season, max(season, week_length(self.panel_.freq)))
        given = [positive_int("season_length", n) for n in np.atleast_1d(self.season_length)]
        if len(given) not in (1, 2) or given[0] > given[-1]:
            raise InputError(
                f"season_length={self.season_length!r} must be a number of bins, or a shorter and a longer one, "
                "such as (24, 168)."
            )
        return Seasonality(given[0], given[-1])

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        penalty = check_number("penalty", self.penalty, 0, open_low=True)
        own = check_number("series_penalty", self.series_penalty, 0, open_low=True)
        out = np.empty((len(y), origins.size, h))
        for seasonality, chosen in self._observable(origins):
            history = History.of(y[:, : origins[chosen].max()], seasonality.season)
            out[:, chosen] = DirectRegression(
                history, origins[chosen], seasonality, "level", penalty, own, LagRegressors, _SMALL_SAMPLE_PENALTY
            ).forecast(h)
        return np.where(begun(y, origins)[..., None], out, 0.0)

    def _observable(self, origins: IntArray) -> Iterator[tuple[Seasonality, BoolArray]]:
        """Group origins by the seasons of which they hold two."""
        full = self._seasons()
        season = np.where(origins >= 2 * full.season, full.season, 1)
        week = np.where((origins >= 2 * full.week) & (season > 1), full.week, season)
        for pair in sorted(set(zip(season.tolist(), week.tolist(), strict=True))):
            yield Seasonality(*pair), (season == pair[0]) & (week == pair[1])
