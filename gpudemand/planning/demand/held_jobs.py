"""Jobs that hold GPUs in the hours of a usage panel: observed, and expected from survival curves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.forecast.base.panel import Panel
from gpudemand.jobs.as_of import start_times, wall_clock_seconds
from gpudemand.planning.demand.rolling_origins import DAY
from gpudemand.planning.runtime.survival import SurvivalCurves, person_periods
from gpudemand.usage.bins import BinnedGpuTime
from gpudemand.usage.membership import series_codes

_HOUR_US = 3_600_000_000


def whole_hours(panel: Panel) -> int:
    """Width of a bin in hours; raises if it is not 1 to 24 whole hours that divide a day."""
    hours = (panel.future(1)[0] - panel.times[-1]).round("h") / pd.Timedelta("1h")
    if panel.freq.freqstr.endswith("D") and panel.freq.n == 1:
        return DAY
    if hours != int(hours) or hours < 1 or DAY % hours:
        raise InputError(f"bins of {panel.freq.freqstr!r} are not 1 to 24 whole hours; use freq='h' or 'D'.")
    return int(hours)


@dataclass(frozen=True)
class HeldJobs:
    """Intervals in which jobs hold GPUs, in hours.

    Attributes
    ----------
    row : ndarray of int, shape (n_jobs,)
        Row of each job in its log.
    begin, end : ndarray of shape (n_jobs,)
        Hours of local time since the start of the panel; `end` is infinite while a job runs.
    gpus : ndarray of shape (n_jobs,)
    series : ndarray of int, shape (n_jobs,)
        Index of the series that each job belongs to.
    n_series : int
    """

    row: IntArray
    begin: FloatArray
    end: FloatArray
    gpus: FloatArray
    series: IntArray
    n_series: int

    @classmethod
    def from_log(cls, jobs: pd.DataFrame, panel: Panel, tz: object) -> HeldJobs:
        """Jobs that hold GPUs in the time of a panel `on_local_clock` of a zone and belong to one of its series."""
        first = (panel.times[0].tz_localize(None) - pd.Timestamp(0)) / pd.Timedelta("1h")
        begin, end = (wall_clock_seconds(times, tz) / 3600 - first for times in (start_times(jobs), jobs["end"]))
        end = np.where(jobs["end"].isna(), np.inf, end)
        series, gpus = series_codes(jobs, list(panel.ids)), jobs["gpus"].to_numpy(dtype=float)
        row = np.flatnonzero((begin < end) & (end > 0) & (series >= 0) & (gpus > 0))
        return cls(row, begin[row], end[row], gpus[row], series[row], len(panel.ids))

    def at(self, origins: IntArray, h: int) -> tuple[HeldJobs, FloatArray]:
        """Jobs that run at an origin, and their ages (s) at their first origin and `h` hours after their last."""
        job, place = self.running(origins)
        which, first = np.unique(job, return_index=True)
        last = np.append(first[1:], job.size)[: which.size] - 1
        row, begin, end = self.row[which], self.begin[which], self.end[which]
        held = HeldJobs(row, begin, end, self.gpus[which], self.series[which], self.n_series)
        ages = [origins[place[first]] - begin, origins[place[last]] + h - begin]
        return held, 3600.0 * np.column_stack(ages)

    def hourly_usage(self, panel: Panel, bin_hours: int) -> FloatArray:
        """GPUs held by hour, shape (n_series, n_hours): the panel itself, or from the jobs if its bins are wider."""
        if bin_hours == 1:
            return np.nan_to_num(panel.values)
        n_hours = bin_hours * len(panel.times)
        total = BinnedGpuTime(np.arange(n_hours + 1, dtype=np.int64) * _HOUR_US, self.n_series)
        begin, end = (np.clip(hours, 0, n_hours) * _HOUR_US for hours in (self.begin, self.end))
        total.add(self.series, begin.round().astype(np.int64), end.round().astype(np.int64), self.gpus)
        return total.gpu_hours()

    def running(self, origins: IntArray) -> tuple[IntArray, IntArray]:
        """Job and position of the origin, for every job that runs at an origin (ascending hours)."""
        first = np.searchsorted(origins, self.begin, side="right")
        job, step = person_periods(np.maximum(np.searchsorted(origins, self.end, side="left") - first, 0))
        return job, first[job] + step

    def held(self, origins: IntArray, h: int) -> FloatArray:
        """GPUs held after each origin by the jobs running at it, shape (n_series, n_origins, h).

        Hours beyond the end of the log are correct only for jobs that had ended by then.
        """
        job, place = self.running(origins)
        remaining = self.end[job] - origins[place]
        shares = (np.clip(remaining - step, 0, 1) for step in range(h))
        return self._sum(job, place, shares, len(origins), h)

    def expected(self, origins: IntArray, h: int, curves: SurvivalCurves) -> FloatArray:
        """Expected GPUs held after each origin by the jobs running at it, given each job's survival curve."""
        job, place = self.running(origins)
        age = 3600.0 * (origins[place] - self.begin[job])
        before = curves.hazard_until(job, age)

        def shares() -> Iterator[FloatArray]:
            """Yield, hour by hour, the share of the hour that each job is expected to run (trapezoidal rule)."""
            alive = np.ones(len(job))
            for step in range(h):
                then = np.exp(before - curves.hazard_until(job, age + 3600.0 * (step + 1)))
                yield (alive + then) / 2
                alive = then

        return self._sum(job, place, shares(), len(origins), h)

    def _sum(self, job: IntArray, place: IntArray, shares: Iterator[FloatArray], n_origins: int, h: int) -> FloatArray:
        """GPUs of the pairs of job and origin, times the share of each hour, by series and origin."""
        cell = self.series[job] * n_origins + place
        gpus = self.gpus[job]
        held = np.empty((self.n_series * n_origins, h))
        for step, share in enumerate(shares):
            held[:, step] = np.bincount(cell, gpus * share, minlength=len(held))
        return held.reshape(self.n_series, n_origins, h)
