"""Forecasts from the jobs up and from the series down, at all origins of a history."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.planning.demand.origins import DAY, WEEK, Origins

#: Days in the daily profile, and weeks whose same weekday counts alone.
_PROFILE_DAYS, _WEEKS = 28, 4


def candidates(origins: Origins, running: FloatArray, to_come: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
    """Bottom-up forecast, and others to correct it by.

    Parameters
    ----------
    origins : Origins
    running : ndarray of shape (n_series, n_origins, h)
        What jobs running at each origin are expected to hold.
    to_come : ndarray of that shape
        What jobs begun after each origin went on to hold; NaN where that has not come yet.

    Returns
    -------
    base : ndarray of that shape
        Running jobs, and jobs to come as they came on earlier days; where no earlier day is known, the newest value
        moved along the profile of the day.
    others : list of ndarray
        The same with jobs to come from the same weekday only; newest value moved along the profile; the profile;
        the newest value; mean of the last day; a day ago; a week ago.
    """
    newest, profile = origins.behind(1)[:, :, :1], origins.profile(_PROFILE_DAYS)
    moved = newest + origins.daily(profile - profile[:, :, -1:])
    moved = np.where(np.isnan(moved), newest, moved)
    base = running + origins.recurring(to_come)
    weekly = running + origins.recurring(to_come, weeks=_WEEKS)
    history = [origins.daily(profile), newest, origins.mean_of_last(DAY), origins.behind(DAY), origins.behind(WEEK)]
    return np.where(np.isnan(base), moved, base), [weekly, moved, *history]
