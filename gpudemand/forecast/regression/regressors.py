"""What a direct forecast is regressed on: the newest values, levels, and the same hour of other days and weeks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.forecast.base.windows import delayed, phase_mean, rolling_mean

#: Seasons, and weeks, over which a profile is averaged.
SEASONS, WEEKS = 28, 4


@dataclass(frozen=True)
class Regressors:
    """Regressors of every time as an origin, each from values up to that time only.

    Attributes
    ----------
    y : ndarray of shape (n_series, n_times)
        Without missing values.
    season, week : int
        Bins; a `week` equal to the `season` says that there is no second one.
    total : ndarray of shape (1, n_times), optional
        Sum over all series, of which `y` may be a part.
    """

    y: FloatArray
    season: int
    week: int
    total: FloatArray | None = None

    @property
    def memory(self) -> int:
        """Bins that a series must have behind it for its regressors to mean anything."""
        return self.week

    @cached_property
    def level(self) -> FloatArray:
        """Mean of the newest four weeks: what every other regressor is measured from."""
        return rolling_mean(self.y, WEEKS * self.week if self.week > 1 else SEASONS)

    @cached_property
    def _profile(self) -> FloatArray:
        return phase_mean(self.y, self.season, SEASONS)

    @cached_property
    def _recent_profile(self) -> FloatArray:
        return phase_mean(self.y, self.season, 7)

    @cached_property
    def _week_profile(self) -> FloatArray:
        return phase_mean(self.y, self.week, WEEKS)

    @cached_property
    def _day_level(self) -> FloatArray:
        return rolling_mean(self.y, self.season)

    @cached_property
    def _week_profile_level(self) -> FloatArray:
        return rolling_mean(self._week_profile, self.season)

    def anchor(self, name: str, step: int) -> FloatArray:
        """Forecast `step` bins ahead from every time that is corrected by regression, shape (n_series, n_times).

        ``"value"`` is the newest value moved along the season's profile, ``"level"`` the week's profile moved to the
        level of the newest season (the mean of the newest bins where there is no season).
        """
        if name == "level" and self.week == 1:
            return self.level
        if name == "value":
            return self.y + delayed(self._profile, self._ago(step, self.season)) - self._profile
        return delayed(self._week_profile, self._ago(step, self.week)) + self._day_level - self._week_profile_level

    @staticmethod
    def _ago(step: int, season: int) -> int:
        """How far before the origin the newest bin in phase with the target lies."""
        return -step % season

    def at(self, step: int) -> FloatArray:
        """Regressors for a target `step` bins ahead, shape (n_series, n_regressors, n_times), 0 on average."""
        fixed, moving = self._at_origin, self._at_target(step)
        n, n_fixed, n_times = fixed.shape
        shares = [] if self._of_all is None else self._of_all.shares(step)
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
        columns = [self.y, delayed(self.y, 1), *(rolling_mean(self.y, width) for width in sorted(widths - {1}))]
        if self.season > 1:
            columns += [self._profile, self._recent_profile]
        if self.week > self.season:
            columns += [self._week_profile, self._week_profile_level]
        return np.stack([column - self.level for column in columns], axis=1)

    def _at_target(self, step: int) -> list[FloatArray]:
        """Values and profiles in phase with the target."""
        ago, week_ago = self._ago(step, self.season), self._ago(step, self.week)
        columns = []
        if self.season > 1:
            columns += [delayed(y, ago) for y in (self.y, self._profile, self._recent_profile)]
        if self.week > self.season:
            columns += [delayed(y, week_ago) for y in (self.y, self._week_profile)]
        return columns

    @cached_property
    def _of_all(self) -> Regressors | None:
        return None if self.total is None else Regressors(self.total, self.season, self.week)

    def shares(self, step: int) -> list[FloatArray]:
        """The series now, in the newest season, and about the target, as shares of its level."""
        columns = [self.y, self._day_level]
        columns += [delayed(self.y, self._ago(step, season)) for season in sorted({self.season, self.week} - {1})]
        return [(column - self.level) / np.where(self.level > 0, self.level, 1.0) for column in columns]
