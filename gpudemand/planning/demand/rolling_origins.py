"""Rolling forecast origins in a history, with naive forecasts and weighted means of earlier paths at each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand.forecast.base.windows import phase_mean, rolling_mean

DAY, WEEK = 24, 168
#: Days of arrivals that are averaged, beyond the horizon.
_WINDOW_DAYS = 56
#: e-folding time (days) of the recency weights.
_DECAY_DAYS = 21.0
#: Weight of an earlier day with the same weekday, of the same kind (workday or weekend), or of the other kind.
_SAME_WEEKDAY, _SAME_KIND, _OTHER_KIND = 2.0, 1.0, 0.15


@dataclass(frozen=True)
class RollingOrigins:
    """Origins a fixed step apart, in phase with the end of a history, and the paths that followed them.

    Attributes
    ----------
    y : ndarray of shape (n_series, n_hours)
        GPUs held.
    hours : ndarray of int, shape (n_origins,)
        Ascending; the last one is `n_hours`, the end of the history.
    weekday : ndarray of int, shape (n_origins,)
        Monday is 0.
    h : int
        Horizon in hours.
    """

    y: FloatArray
    hours: IntArray
    weekday: IntArray
    h: int

    @classmethod
    def from_end(cls, y: FloatArray, h: int, step: int, last_weekday: int, last_hour: int) -> RollingOrigins:
        """Origins every `step` hours (a divisor of 24) back from the end, which has a given weekday and hour."""
        n_hours = y.shape[1]
        hours = np.arange(n_hours, 0, -step)[::-1]
        weekday = (last_weekday + (last_hour + hours - n_hours) // DAY) % 7
        return cls(y, hours, weekday, h)

    @property
    def per_day(self) -> int:
        """Origins in a day."""
        return DAY // int(self.hours[-1] - self.hours[-2]) if len(self.hours) > 1 else 1

    @property
    def actual(self) -> FloatArray:
        """Path after each origin, shape (n_series, n_origins, h); NaN beyond the end of the history."""
        padded = np.hstack([self.y, np.full((len(self.y), self.h), np.nan)])
        return padded[:, self.hours[:, None] + np.arange(self.h)]

    def seasonal_naive(self, season: int) -> FloatArray:
        """Newest known value of the same phase, shape as `actual`; NaN where there is none."""
        return self._at(self.y, self.hours[:, None] - season + np.arange(self.h) % season)

    def trailing_mean(self, hours: int) -> FloatArray:
        """Mean of the newest hours before each origin, shape (n_series, n_origins, 1)."""
        return rolling_mean(self.y, hours)[:, self.hours - 1, None]

    def daily_profile(self, days: int) -> FloatArray:
        """Mean of each hour of the newest days, shape (n_series, n_origins, 24); hour 0 is the one after the origin."""
        return self._at(phase_mean(self.y, DAY, days), self.hours[:, None] - DAY + np.arange(DAY))

    def tile_daily(self, profile: FloatArray) -> FloatArray:
        """Repeat a profile of 24 hours over the horizon, shape as `actual`."""
        return profile[:, :, np.arange(self.h) % DAY]

    def weighted_mean(self, paths: FloatArray, *, weeks: int | None = None) -> FloatArray:
        """Mean of the paths after earlier origins at the same hour of the day, weighted by recency and weekday.

        Uses hours known at the origin only, shape as `actual`; NaN where there are none. With `weeks`, uses the same
        weekday of so many weeks only.
        """
        total, weight = np.zeros_like(paths), np.zeros(paths.shape[1:])
        values = np.nan_to_num(paths)
        horizon_days = -(-self.h // DAY)
        days = range(1, horizon_days + _WINDOW_DAYS) if weeks is None else range(7, horizon_days + 7 * weeks + 1, 7)
        for day in days:
            shift = day * self.per_day
            if shift >= paths.shape[1]:
                break
            share = self._weight(day, shift)[:, None] * self._known(day, weeks)
            total[:, shift:] += share * values[:, :-shift]
            weight[shift:] += share
        return np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0)

    def _weight(self, day: int, shift: int) -> FloatArray:
        now, then = self.weekday[shift:], self.weekday[:-shift]
        kind = np.where((now >= 5) == (then >= 5), _SAME_KIND, _OTHER_KIND)
        return np.exp(-day / _DECAY_DAYS) * np.where(now == then, _SAME_WEEKDAY, kind)

    def _known(self, day: int, weeks: int | None) -> BoolArray:
        """Hours ahead at which a path that began `day` days earlier is known at the origin and inside the window."""
        ahead = np.arange(self.h)
        known = ahead < DAY * day
        return known if weeks is None else known & (ahead >= DAY * (day - 7 * weeks))

    @staticmethod
    def _at(values: FloatArray, hour: IntArray) -> FloatArray:
        return np.where(hour >= 0, values[:, np.maximum(hour, 0)], np.nan)
