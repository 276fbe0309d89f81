"""Survival curves of many jobs on one grid of ages, and what is read off them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpudemand._typing import FloatArray, IntArray


@dataclass(frozen=True)
class SurvivalCurves:
    """Chance of each job to be running still, by age; the hazard is constant between two ages.

    Attributes
    ----------
    ages : ndarray of shape (n_ages,)
        Seconds, ascending from 0.
    cumulative : ndarray of shape (n_jobs, n_ages)
        Cumulative hazard; survival is ``exp(-cumulative)``. Beyond the last age the last hazard goes on.

    Examples
    --------
    >>> curves = SurvivalCurves(np.array([0.0, 60.0]), np.array([[0.0, np.log(2)]]))
    >>> curves.survival(np.array([60.0, 120.0]))
    array([[0.5 , 0.25]])
    >>> float(curves.quantile([0.5])[0, 0]), round(float(curves.mean()[0]), 1)
    (60.0, 43.3)
    """

    ages: FloatArray
    cumulative: FloatArray

    def __len__(self) -> int:
        return len(self.cumulative)

    def hazard_until(self, rows: IntArray, age_s: FloatArray) -> FloatArray:
        """Cumulative hazard of job ``rows[i]`` at age ``age_s[i]``, shape (n,)."""
        left = np.clip(np.searchsorted(self.ages, age_s, side="right") - 1, 0, self.ages.size - 2)
        width = self.ages[left + 1] - self.ages[left]
        low, high = self.cumulative[rows, left], self.cumulative[rows, left + 1]
        return low + (age_s - self.ages[left]) / width * (high - low)

    def survival(self, age_s: FloatArray, given_age_s: FloatArray | None = None) -> FloatArray:
        """Chance to run beyond further ages, for jobs that have reached an age.

        Parameters
        ----------
        age_s : ndarray of shape (n_times,)
            Seconds, on top of `given_age_s`.
        given_age_s : ndarray of shape (n_jobs,), optional
            How long each job has run; 0 by default.

        Returns
        -------
        ndarray of shape (n_jobs, n_times)
        """
        since = np.zeros(len(self)) if given_age_s is None else given_age_s
        rows = np.arange(len(self))
        before = self.hazard_until(rows, since)
        ends = [self.hazard_until(rows, since + age) - before for age in np.asarray(age_s, dtype=float)]
        return np.exp(-np.stack(ends, axis=1)) if ends else np.ones((len(self), 0))

    def quantile(self, shares: Sequence[float], given_age_s: FloatArray | None = None) -> FloatArray:
        """Remaining seconds that are not exceeded with given probabilities, shape (n_jobs, n_shares)."""
        rows = np.arange(len(self))
        since = np.zeros(len(self)) if given_age_s is None else given_age_s
        before = self.hazard_until(rows, since)
        return np.stack([self._age_of(before - np.log1p(-share)) - since for share in shares], axis=1)

    def _age_of(self, hazard: FloatArray) -> FloatArray:
        """Age at which each job's cumulative hazard reaches a value; the last age if it never does."""
        rows = np.arange(len(self))
        left = np.clip((self.cumulative <= hazard[:, None]).sum(axis=1) - 1, 0, self.ages.size - 2)
        low, high = self.cumulative[rows, left], self.cumulative[rows, left + 1]
        part = np.divide(hazard - low, high - low, out=np.ones(len(self)), where=high > low)
        return self.ages[left] + np.clip(part, 0, 1) * (self.ages[left + 1] - self.ages[left])

    def mean(self, given_age_s: FloatArray | None = None) -> FloatArray:
        """Expected remaining seconds, up to the last age, shape (n_jobs,)."""
        rows = np.arange(len(self))
        since = np.zeros(len(self)) if given_age_s is None else np.minimum(given_age_s, self.ages[-1])
        relative = self.cumulative - self.hazard_until(rows, since)[:, None]
        alive = np.exp(-np.maximum(relative, 0))
        width = np.diff(np.maximum(self.ages, since[:, None]), axis=1)
        step = np.diff(np.maximum(relative, 0), axis=1)
        # The mean of a decaying exponential over a stretch; a hazard of nothing is a rectangle.
        area = np.divide(alive[:, :-1] - alive[:, 1:], step, out=alive[:, :-1].copy(), where=step > 1e-9)
        return (area * width).sum(axis=1)
