"""GPUs still held, hour by hour, by the jobs that are running at an origin: expected, and as it came."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpudemand._typing import FloatArray, IntArray
from gpudemand.planning.runtime.survival import SurvivalCurves


@dataclass(frozen=True)
class HeldJobs:
    """Jobs on a clock of hours.

    Attributes
    ----------
    row : ndarray of int, shape (n_jobs,)
        Where each stands in its log.
    begin, end : ndarray of shape (n_jobs,)
        Hours since some hour; `end` is infinite while a job runs.
    gpus : ndarray of shape (n_jobs,)
    series : ndarray of int, shape (n_jobs,)
        Which series each belongs to.
    n_series : int
    """

    row: IntArray
    begin: FloatArray
    end: FloatArray
    gpus: FloatArray
    series: IntArray
    n_series: int

    def take(self, which: IntArray) -> HeldJobs:
        """Some of the jobs."""
        row, begin, end = self.row[which], self.begin[which], self.end[which]
        return HeldJobs(row, begin, end, self.gpus[which], self.series[which], self.n_series)

    def running(self, origins: IntArray) -> tuple[IntArray, IntArray]:
        """Job and place of the origin, for every job that runs at an origin (ascending hours)."""
        first = np.searchsorted(origins, self.begin, side="right")
        count = np.maximum(np.searchsorted(origins, self.end, side="left") - first, 0)
        job = np.repeat(np.arange(len(count)), count)
        return job, first[job] + np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)

    def held(self, origins: IntArray, h: int) -> FloatArray:
        """GPUs that the jobs running at each origin went on to hold, shape (n_series, n_origins, h).

        Hours beyond the end of the log are only right for jobs that had ended by then.
        """
        job, place = self.running(origins)
        left = self.end[job] - origins[place]
        shares = (np.clip(left - step, 0, 1) for step in range(h))
        return self._spread(job, place, shares, len(origins), h)

    def expected(self, origins: IntArray, h: int, curves: SurvivalCurves) -> FloatArray:
        """GPUs that the jobs running at each origin are expected to hold, shape (n_series, n_origins, h).

        Parameters
        ----------
        origins : ndarray of int
            Hours, ascending.
        h : int
            Hours ahead.
        curves : SurvivalCurves
            One a job.
        """
        job, place = self.running(origins)
        age = 3600.0 * (origins[place] - self.begin[job])
        before = curves.hazard_until(job, age)

        def shares() -> Iterator[FloatArray]:
            alive = np.ones(len(job))
            for step in range(h):
                then = np.exp(before - curves.hazard_until(job, age + 3600.0 * (step + 1)))
                yield (alive + then) / 2
                alive = then

        return self._spread(job, place, shares(), len(origins), h)

    def _spread(
        self, job: IntArray, place: IntArray, shares: Iterator[FloatArray], n_origins: int, h: int
    ) -> FloatArray:
        cell = self.series[job] * n_origins + place
        gpus = self.gpus[job]
        held = np.empty((self.n_series * n_origins, h))
        for step, share in enumerate(shares):
            held[:, step] = np.bincount(cell, gpus * share, minlength=len(held))
        return held.reshape(self.n_series, n_origins, h)
