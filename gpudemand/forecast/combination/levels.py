"""Levels of a long forecast, and their weights from errors of the means of past quarters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpudemand._typing import FloatArray, IntArray
from gpudemand.forecast.base.panel import row_means

#: Weeks in a quarter; first weights of the means of a week and of four, the trend, and the combination.
QUARTER, _FIRST_WEIGHTS = 13, np.array([1.0, 2.0, 1.0, 1.0])
#: Power of the inverse errors, and quarters whose errors weigh as much as the first weights. They change nothing on the
#: development half of the logs, and follow growth that has lasted.
_POWER, _PRIOR_QUARTERS = 4.0, 3.0


class LevelErrors(NamedTuple):
    """Errors of the means of the levels over whole weeks from every origin.

    Attributes
    ----------
    sums : ndarray of shape (n_levels, n_series, n_origins, n_weeks)
        Absolute errors of the sums over 1, 2, ... weeks.
    places : ndarray of shape (n_origins,)
        Bins known at each origin, ascending.
    begins : ndarray of shape (n_series,)
        First known bin.
    week : int
        Bins in a week.
    """

    sums: FloatArray
    places: IntArray
    begins: IntArray
    week: int

    @classmethod
    def empty(cls, y: FloatArray, places: IntArray, week: int) -> LevelErrors:
        """Errors to be added, origin by origin."""
        sums = np.zeros((_FIRST_WEIGHTS.size, len(y), places.size, QUARTER))
        return cls(sums, places, (~np.isnan(y)).argmax(axis=1), week)

    def add(self, y: FloatArray, place: int, levels: FloatArray) -> None:
        """Compare the levels from an origin, shape (n_levels, n_series, h), with the actual values."""
        coming = np.nan_to_num(y[:, self.places[place] :][:, : QUARTER * self.week])
        errors = np.cumsum(coming - levels[..., : coming.shape[1]], axis=-1)[..., self.week - 1 :: self.week]
        self.sums[:, :, place, : errors.shape[-1]] = np.abs(errors)

    def weights(self, origin: int, earlier: IntArray) -> FloatArray:
        """Weights of the levels at an origin, from errors of `earlier` ones known there, shape (n_levels, n_series)."""
        places = self.places[earlier]
        counted = 2 * places >= self.begins[:, None] + origin
        losses = (self.sums[:, :, earlier, np.minimum((origin - places) // self.week, QUARTER) - 1] * counted).sum(
            axis=2
        )
        mean = losses.mean(axis=0)
        relative = np.divide(losses, mean, out=np.ones_like(losses), where=mean > 0)
        first = np.where(counted, places, origin).min(axis=1, initial=origin)
        quarters = (origin - first) / (QUARTER * self.week)
        shrunk = 1 + quarters / (quarters + _PRIOR_QUARTERS) * (relative - 1)
        return _FIRST_WEIGHTS[:, None] * (shrunk.min(axis=0) / shrunk) ** _POWER


def continued(near: FloatArray, period: int, h: int) -> tuple[FloatArray, FloatArray]:
    """A forecast continued by its last period, and its centred mean over a period, both of shape (n_series, h)."""
    reach, before, n = near.shape[1], period // 2, max(near.shape[1], h) + period
    steps = np.arange(n)
    path = near[:, np.where(steps < reach, steps, reach - period + (steps - reach) % period)]
    total = np.concatenate([np.zeros((len(near), 1)), np.cumsum(path, axis=1)], axis=1)
    first = np.maximum(np.arange(h) - before, 0)
    return path[:, :h], (total[:, first + period] - total[:, first]) / period


def linear_trend(y: FloatArray, h: int) -> FloatArray:
    """Least-squares line through each series, continued, shape (n_series, h)."""
    known, t = ~np.isnan(y), np.arange(y.shape[1] + h, dtype=float)
    middle = row_means(np.where(known, t[: y.shape[1]], np.nan))
    mean, away = row_means(y), np.where(known, t[: y.shape[1]] - middle, 0.0)
    spread = np.square(away).sum(axis=1, keepdims=True)
    slope = (away * np.nan_to_num(y)).sum(axis=1, keepdims=True) / np.where(spread > 0, spread, 1.0)
    return np.asarray(mean + slope * (t[y.shape[1] :] - middle))
