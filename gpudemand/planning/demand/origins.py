"""Origins in the past at which a forecast is made again, to learn from what came."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudemand._typing import BoolArray, FloatArray, IntArray

DAY, WEEK = 24, 168
#: Days of which arrivals count at most, beyond the horizon.
_PAST_DAYS = 56
#: e-folding time (days) of what a day in the past tells.
_MEMORY_DAYS = 21.0
#: How much a past day tells by its weekday: the same one, another of its kind (work or weekend), one of the other kind.
_SAME, _ALIKE, _UNLIKE = 2.0, 1.0, 0.15


@dataclass(frozen=True)
class Origins:
    """Hours in a history, a fixed step apart and in phase with its end, and what was held after each.

    Attributes
    ----------
    y : ndarray of shape (n_series, n_hours)
        GPUs held.
    hours : ndarray of int, shape (n_origins,)
        Ascending; the last one is `n_hours`, the present.
    weekday : ndarray of int, shape (n_origins,)
        Monday is 0.
    h : int
        Hours ahead.
    """

    y: FloatArray
    hours: IntArray
    weekday: IntArray
    h: int

    @classmethod
    def of(cls, y: FloatArray, h: int, step: int, last_weekday: int, last_hour: int) -> Origins:
        """Lay origins `step` hours apart (a divisor of 24) back from the present, at a weekday and hour of the day."""
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
        """What came, shape (n_series, n_origins, h); NaN where the future has not come yet."""
        padded = np.hstack([self.y, np.full((len(self.y), self.h), np.nan)])
        return padded[:, self.hours[:, None] + np.arange(self.h)]

    def behind(self, hours: int) -> FloatArray:
        """Newest known value a whole number of times `hours` before each hour to come, shape as `actual`."""
        ahead = np.arange(self.h) % hours
        place = self.hours[:, None] - hours + ahead
        return np.where(place >= 0, self.y[:, np.maximum(place, 0)], np.nan)

    def mean_of_last(self, hours: int) -> FloatArray:
        """Mean of the newest hours before each origin, shape (n_series, n_origins, 1)."""
        sums = np.hstack([np.zeros((len(self.y), 1)), np.cumsum(self.y, axis=1)])
        first = np.maximum(self.hours - hours, 0)
        return ((sums[:, self.hours] - sums[:, first]) / (self.hours - first))[..., None]

    def profile(self, days: int) -> FloatArray:
        """Mean of each hour of the newest days, shape (n_series, n_origins, 24); hour 0 is the one after the origin."""
        place = self.hours[:, None] - DAY + np.arange(DAY)
        total, known = np.zeros((len(self.y), *place.shape)), np.zeros(place.shape)
        for back in range(days):
            then = place - DAY * back
            total += np.where(then >= 0, self.y[:, np.maximum(then, 0)], 0.0)
            known += then >= 0
        return np.divide(total, known, out=np.full_like(total, np.nan), where=known > 0)

    def daily(self, profile: FloatArray) -> FloatArray:
        """Repeat a profile of 24 hours over the hours ahead, shape as `actual`."""
        return profile[:, :, np.arange(self.h) % DAY]

    def recurring(self, paths: FloatArray, *, weeks: int | None = None) -> FloatArray:
        """Mean of what followed earlier origins at the same hour of the day, weighted by recency and weekday.

        Parameters
        ----------
        paths : ndarray of shape (n_series, n_origins, h)
            What followed each origin.
        weeks : int, optional
            Only the same weekday, of so many weeks.

        Returns
        -------
        ndarray of shape (n_series, n_origins, h)
            Of an earlier origin only the hours before the later one count; NaN where there is none.
        """
        total, weight = np.zeros_like(paths), np.zeros(paths.shape[1:])
        values = np.nan_to_num(paths)
        horizon_days = -(-self.h // DAY)
        days = range(1, horizon_days + _PAST_DAYS) if weeks is None else range(7, horizon_days + 7 * weeks + 1, 7)
        for day in days:
            shift = day * self.per_day
            if shift >= paths.shape[1]:
                break
            share = self._likeness(day, shift)[:, None] * self._usable(day, weeks)
            total[:, shift:] += share * values[:, :-shift]
            weight[shift:] += share
        return np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0)

    def _likeness(self, day: int, shift: int) -> FloatArray:
        now, then = self.weekday[shift:], self.weekday[:-shift]
        alike = np.where((now >= 5) == (then >= 5), _ALIKE, _UNLIKE)
        return np.exp(-day / _MEMORY_DAYS) * np.where(now == then, _SAME, alike)

    def _usable(self, day: int, weeks: int | None) -> BoolArray:
        """Hours ahead at which a path that began `day` days earlier was known, and not too old."""
        known = np.arange(self.h) < DAY * day
        return known if weeks is None else known & (np.arange(self.h) >= DAY * (day - 7 * weeks))
