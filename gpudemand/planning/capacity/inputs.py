"""Validation of the arguments of a plan."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_number, nearest
from gpudemand.units import parse_duration

#: A longer one is taken for a slip; with it, dates would be beyond those that pandas can hold.
_LONGEST_LEAD = pd.Timedelta("3653D")


def check_lead_time(lead_time: str | pd.Timedelta) -> pd.Timedelta:
    """Parse the time from an order to GPUs in service; raises if it is negative or above ten years."""
    lead = parse_duration(lead_time)
    if lead < pd.Timedelta(0):
        raise InputError(f"lead_time must not be negative; got {lead_time!r}.")
    if lead > _LONGEST_LEAD:
        raise InputError(f"lead_time must be at most ten years; got {lead_time!r}.")
    return lead


def order_date(needed: pd.Timestamp, lead: pd.Timedelta) -> pd.Timestamp:
    """Time a lead time before another, by the clock of its zone; NaT if that is.

    Examples
    --------
    >>> order_date(pd.Timestamp("2026-05-04", tz="America/New_York"), pd.Timedelta("90D"))
    Timestamp('2026-02-03 00:00:00-0500', tz='America/New_York')
    """
    if pd.isna(needed) or needed.tz is None:
        return needed - lead
    clock = needed.tz_localize(None) - lead
    return clock.tz_localize(needed.tz, ambiguous=True, nonexistent="shift_forward")


def check_steps(name: str, given: pd.Series) -> pd.Series:
    """Check a number of GPUs that changes with time: index of times with a zone, each once; returned in UTC, sorted.

    Raises
    ------
    InputError
        If the index has no times, no zone or a time twice, or a number is negative.
    """
    index = given.index
    is_zoned = isinstance(index, pd.DatetimeIndex) and index.tz is not None and len(index) > 0
    if not is_zoned or index.hasnans or not index.is_unique:
        raise InputError(f"{name} in time must be a Series whose index are times with a zone, each once.")
    values = [check_number(f"{name}[{time}]", number, 0) for time, number in given.items()]
    return pd.Series(values, index=index.tz_convert("UTC"), dtype=float).sort_index()


def broadcast_by_time(given: pd.Series, ds: pd.Series) -> FloatArray:
    """Number in force at each time: the latest step up to it, before the first step that one."""
    steps = check_steps("installed", given)
    place = steps.index.searchsorted(pd.DatetimeIndex(ds).tz_convert("UTC"), side="right") - 1
    return steps.to_numpy()[np.maximum(place, 0)]


def broadcast_by_series(name: str, given: float | Mapping[str, float], ids: pd.Series) -> FloatArray:
    """Positive number for each row of a forecast, from one number or one per series."""
    if isinstance(given, (Mapping, pd.Series)):
        known = {
            str(series): check_number(f"{name}[{series!r}]", number, 0, open_low=True)
            for series, number in given.items()
        }
        missing = [series for series in ids.astype(str).unique() if series not in known]
        if missing:
            raise InputError(
                f"{name} says nothing about {missing[0]!r}.{nearest(missing[0], known)} "
                "It needs a number for each series."
            )
        return ids.astype(str).map(known).to_numpy(dtype=float)
    return np.full(len(ids), check_number(name, given, 0, open_low=True))


def bin_hours(forecast: pd.DataFrame) -> FloatArray:
    """Width of each row's bin in hours, from the differences of the timestamps."""
    times = pd.DatetimeIndex(sorted(forecast["ds"].unique()))
    if len(times) < 2:
        raise InputError(
            "the width of a bin cannot be told from one date; forecast GPUs (value='gpus') instead of GPU-hours."
        )
    hours = np.diff(times.asi8) / np.diff(times.asi8).min() * (times[1:] - times[:-1]).min().total_seconds() / 3600
    width = pd.Series(np.r_[hours, hours[-1]], index=times)
    return forecast["ds"].map(width).to_numpy(dtype=float)


def check_targets(target_utilization: float, service_level: float, highest: float) -> None:
    """Raise for targets out of range, or a service level beyond the widest interval (probability `highest`)."""
    check_number("target_utilization", target_utilization, 0, 1, open_low=True)
    check_number("service_level", service_level, 0.5, 0.9999, open_low=True)
    if service_level > highest + 1e-9:
        level = 100 * (2 * service_level - 1)
        raise InputError(
            f"the widest interval reaches the {100 * highest:.4g} % quantile, below the service level "
            f"{100 * service_level:.4g} %; predict with level=[..., {level:.4g}]."
        )


def check_unique(forecast: pd.DataFrame) -> None:
    """Raise for a series that has a time twice."""
    repeated = forecast[forecast.duplicated(["unique_id", "ds"])]
    if len(repeated):
        name, ds = repeated.iloc[0][["unique_id", "ds"]]
        raise InputError(f"the forecast has {str(name)!r} on {ds} more than once; of a backtest, plan for one cutoff.")
