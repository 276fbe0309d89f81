"""Bottom-up and naive forecasts at all origins of a history."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.planning.demand.rolling_origins import DAY, WEEK, RollingOrigins

#: Days in the daily profile, and weeks in the mean of the same weekday.
_PROFILE_DAYS, _WEEKS = 28, 4


def component_forecasts(
    origins: RollingOrigins, running: FloatArray, arrivals: FloatArray
) -> tuple[FloatArray, list[FloatArray]]:
    """Bottom-up forecast, and the other forecasts that correct it.

    Parameters
    ----------
    origins : RollingOrigins
    running : ndarray of shape (n_series, n_origins, h)
        Expected GPUs of the jobs running at each origin.
    arrivals : ndarray of that shape
        GPUs held by jobs that started after each origin; NaN beyond the end of the history.

    Returns
    -------
    base : ndarray of that shape
        Running jobs plus the weighted mean of arrivals after earlier origins; where there is none, the seasonally
        adjusted naive forecast.
    others : list of ndarray
        The same with arrivals of the same weekday only; seasonally adjusted naive; daily profile; naive; mean of the
        last day; daily and weekly seasonal naive.
    """
    naive, profile = origins.seasonal_naive(1)[:, :, :1], origins.daily_profile(_PROFILE_DAYS)
    adjusted = naive + origins.tile_daily(profile - profile[:, :, -1:])
    adjusted = np.where(np.isnan(adjusted), naive, adjusted)
    base = running + origins.weighted_mean(arrivals)
    weekly = running + origins.weighted_mean(arrivals, weeks=_WEEKS)
    seasonal = [origins.trailing_mean(DAY), origins.seasonal_naive(DAY), origins.seasonal_naive(WEEK)]
    others = [weekly, adjusted, origins.tile_daily(profile), naive, *seasonal]
    return np.where(np.isnan(base), adjusted, base), others
