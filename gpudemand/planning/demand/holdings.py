"""Jobs and usage on one clock of hours, whatever the width of the bins."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError
from gpudemand.forecast.base.panel import Panel
from gpudemand.jobs.as_of import begins, local_seconds, seconds_until
from gpudemand.planning.demand.origins import DAY
from gpudemand.planning.demand.running import HeldJobs
from gpudemand.usage.bins import HeldTime
from gpudemand.usage.membership import series_codes

_HOUR_US = 3_600_000_000


def whole_hours(panel: Panel) -> int:
    """Width of a bin in hours; refused if it is not 1 to 24 whole ones that divide a day."""
    hours = (panel.future(1)[0] - panel.times[-1]).round("h") / pd.Timedelta("1h")
    if panel.freq.freqstr.endswith("D") and panel.freq.n == 1:
        return DAY
    if hours != int(hours) or hours < 1 or DAY % hours:
        raise InputError(f"bins of {panel.freq.freqstr!r} are not 1 to 24 whole hours; use freq='h' or 'D'.")
    return int(hours)


def held_jobs(jobs: pd.DataFrame, panel: Panel, bin_hours: int) -> HeldJobs:
    """Jobs that hold GPUs in the time of a panel and belong to one of its series, in hours since it begins."""
    begin = _hours(begins(jobs), panel, bin_hours)
    end = np.where(jobs["end"].isna(), np.inf, _hours(jobs["end"], panel, bin_hours))
    series, gpus = series_codes(jobs, list(panel.ids)), jobs["gpus"].to_numpy(dtype=float)
    row = np.flatnonzero((begin < end) & (end > 0) & (series >= 0) & (gpus > 0))
    return HeldJobs(row, begin[row], end[row], gpus[row], series[row], len(panel.ids))


def hourly_usage(panel: Panel, held: HeldJobs, bin_hours: int) -> FloatArray:
    """GPUs held by hour, shape (n_series, n_hours): the panel itself, or made from the jobs if its bins are wider."""
    if bin_hours == 1:
        return np.nan_to_num(panel.values)
    n_hours = bin_hours * len(panel.times)
    total = HeldTime(np.arange(n_hours + 1, dtype=np.int64) * _HOUR_US, held.n_series)
    begin, end = (np.clip(hours, 0, n_hours) * _HOUR_US for hours in (held.begin, held.end))
    total.add(held.series, begin.round().astype(np.int64), end.round().astype(np.int64), held.gpus)
    return total.gpu_hours()


def _hours(times: pd.Series, panel: Panel, bin_hours: int) -> FloatArray:
    """True hours, or for wider bins those of the wall clock, on which every day has 24."""
    first = panel.times[0]
    if bin_hours == 1:
        return seconds_until(times, first) / 3600
    return (local_seconds(times, first.tz) - local_seconds(pd.Series([first]), first.tz)[0]) / 3600
