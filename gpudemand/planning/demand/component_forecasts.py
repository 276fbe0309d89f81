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

    The bottom-up forecast is the expected GPUs of `running` jobs plus the weighted mean of the `arrivals` after earlier
    origins, or the seasonally adjusted naive forecast where there are none. The others are: the same with arrivals of
    the same weekday only; seasonally adjusted naive; daily profile; naive; mean of the last day; daily and weekly
    seasonal naive. All have shape (n_series, n_origins, h).
    """
    naive, profile = origins.seasonal_naive(1)[:, :, :1], origins.daily_profile(_PROFILE_DAYS)
    adjusted = naive + origins.tile_daily(profile - profile[:, :, -1:])
    adjusted = np.where(np.isnan(adjusted), naive, adjusted)
    base = running + origins.weighted_mean(arrivals)
    weekly = running + origins.weighted_mean(arrivals, weeks=_WEEKS)
    seasonal = [origins.trailing_mean(DAY), origins.seasonal_naive(DAY), origins.seasonal_naive(WEEK)]
    others = [weekly, adjusted, origins.tile_daily(profile), naive, *seasonal]
    return np.where(np.isnan(base), adjusted, base), others
