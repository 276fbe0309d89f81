"""Regressors of direct forecasts: newest values, rolling means, profiles and values in phase with the target."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.forecast.base.windows import phase_mean, rolling_mean, shifted

#: Seasons, and weeks, in a profile.
SEASONS, WEEKS = 28, 4
_RECENT_SEASONS = 7


@dataclass(frozen=True)
class Regressors:
    """Regressors at every time as an origin, each from values up to that time only.

    Attributes
    ----------
    y : ndarray of shape (n_series, n_times)
        Without missing values.
    season, week : int
        Bins; equal where there is no second season.
    total : ndarray of shape (1, n_times), optional
        Sum over all series, of which `y` may be a part.
    """

    y: FloatArray
    season: int
    week: int
    total: FloatArray | None = None

    @property
    def warm_up(self) -> int:
        """Bins of history before the first training row of a series."""
        return self.week

    @cached_property
    def level(self) -> FloatArray:
        """Mean of the newest four weeks, which is subtracted from every other regressor."""
        return rolling_mean(self.y, WEEKS * self.week if self.week > 1 else SEASONS)

    @cached_property
    def _profile(self) -> FloatArray:
        return phase_mean(self.y, self.season, SEASONS)

    @cached_property
    def _recent_profile(self) -> FloatArray:
        return phase_mean(self.y, self.season, _RECENT_SEASONS)

    @cached_property
    def _week_profile(self) -> FloatArray:
        return phase_mean(self.y, self.week, WEEKS)

    @cached_property
    def _season_mean(self) -> FloatArray:
        return rolling_mean(self.y, self.season)

    @cached_property
    def _week_profile_mean(self) -> FloatArray:
        return rolling_mean(self._week_profile, self.season)

    def anchor(self, name: str, step: int) -> FloatArray:
        """Forecast `step` bins ahead from every time that the regression corrects, shape (n_series, n_times).

        ``"value"`` is the newest value plus the change of the season's profile, ``"level"`` the week's profile shifted
        to the level of the newest season (the mean of the newest bins where there is no season).
        """
        if name == "level" and self.week == 1:
            return self.level
        if name == "value":
            return self.y + shifted(self._profile, self._in_phase(step, self.season)) - self._profile
        return (
            shifted(self._week_profile, self._in_phase(step, self.week)) + self._season_mean - self._week_profile_mean
        )

    @staticmethod
    def _in_phase(step: int, season: int) -> int:
        """Lag, before the origin, of the newest bin in phase with the target."""
        return -step % season

    def design(self, step: int) -> FloatArray:
        """Regressors of a target `step` bins ahead, shape (n_series, n_regressors, n_times), about 0 on average."""
        fixed, moving = self._at_origin, self._at_target(step)
        n, n_fixed, n_times = fixed.shape
        shares = [] if self._regressors_of_total is None else self._regressors_of_total.relative(step)
        x = np.empty((n, n_fixed + len(moving) + len(shares), n_times))
        x[:, :n_fixed] = fixed
        for place, column in enumerate(moving, n_fixed):
            np.subtract(column, self.level, out=x[:, place])
        for place, share in enumerate(shares, n_fixed + len(moving)):
            np.multiply(share, self.level, out=x[:, place])
        return x

    @cached_property
    def _at_origin(self) -> FloatArray:
        widths = {3, 6, max(self.season // 4, 2), max(self.season // 2, 2), self.season, 2 * self.season, self.week}
        columns = [self.y, shifted(self.y, 1), *(rolling_mean(self.y, width) for width in sorted(widths - {1}))]
        if self.season > 1:
            columns += [self._profile, self._recent_profile]
        if self.week > self.season:
            columns += [self._week_profile, self._week_profile_mean]
        return np.stack([column - self.level for column in columns], axis=1)

    def _at_target(self, step: int) -> list[FloatArray]:
        """Values and profiles in phase with the target."""
        in_season, in_week = self._in_phase(step, self.season), self._in_phase(step, self.week)
        columns = []
        if self.season > 1:
            columns += [shifted(y, in_season) for y in (self.y, self._profile, self._recent_profile)]
        if self.week > self.season:
            columns += [shifted(y, in_week) for y in (self.y, self._week_profile)]
        return columns

    @cached_property
    def _regressors_of_total(self) -> Regressors | None:
        return None if self.total is None else Regressors(self.total, self.season, self.week)

    def relative(self, step: int) -> list[FloatArray]:
        """Newest value, mean of the newest season and values in phase with the target, relative to the level."""
        columns = [self.y, self._season_mean]
        columns += [shifted(self.y, self._in_phase(step, season)) for season in sorted({self.season, self.week} - {1})]
        return [(column - self.level) / np.where(self.level > 0, self.level, 1.0) for column in columns]
