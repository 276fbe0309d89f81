"""Survival functions of many jobs on a common grid of ages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpudemand._typing import FloatArray, IntArray


@dataclass(frozen=True)
class SurvivalCurves:
    """Survival functions of jobs by age, with a piecewise constant hazard.

    Attributes
    ----------
    ages : ndarray of shape (n_ages,)
        Seconds, ascending from 0.
    cumulative : ndarray of shape (n_jobs, n_ages)
        Cumulative hazard; survival is ``exp(-cumulative)``. Beyond the last age the hazard stays at its last value.

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

    def _given(self, given_age_s: FloatArray | None) -> tuple[IntArray, FloatArray, FloatArray]:
        """Rows, the age that each job has reached, and its cumulative hazard there."""
        rows, since = np.arange(len(self)), np.zeros(len(self)) if given_age_s is None else given_age_s
        return rows, since, self.hazard_until(rows, since)

    def survival(self, age_s: FloatArray, given_age_s: FloatArray | None = None) -> FloatArray:
        """Survival function after further seconds, given that a job has reached an age.

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
        rows, since, before = self._given(given_age_s)
        ends = [self.hazard_until(rows, since + age) - before for age in np.asarray(age_s, dtype=float)]
        return np.exp(-np.stack(ends, axis=1)) if ends else np.ones((len(self), 0))

    def quantile(self, shares: Sequence[float], given_age_s: FloatArray | None = None) -> FloatArray:
        """Quantiles of the remaining seconds, shape (n_jobs, n_shares)."""
        _, since, before = self._given(given_age_s)
        return np.stack([self._age_of(before - np.log1p(-share)) - since for share in shares], axis=1)

    def _age_of(self, hazard: FloatArray) -> FloatArray:
        """Age at which each job's cumulative hazard reaches a value, at most the last age."""
        rows = np.arange(len(self))
        left = np.clip((self.cumulative <= hazard[:, None]).sum(axis=1) - 1, 0, self.ages.size - 2)
        low, high = self.cumulative[rows, left], self.cumulative[rows, left + 1]
        part = np.divide(hazard - low, high - low, out=np.ones(len(self)), where=high > low)
        return self.ages[left] + np.clip(part, 0, 1) * (self.ages[left + 1] - self.ages[left])

    def mean(self, given_age_s: FloatArray | None = None) -> FloatArray:
        """Mean remaining seconds, restricted to the last age, shape (n_jobs,)."""
        _, since, before = self._given(None if given_age_s is None else np.minimum(given_age_s, self.ages[-1]))
        relative = self.cumulative - before[:, None]
        alive = np.exp(-np.maximum(relative, 0))
        width = np.diff(np.maximum(self.ages, since[:, None]), axis=1)
        step = np.diff(np.maximum(relative, 0), axis=1)
        # Integral of the exponential survival function over each interval; with no hazard it is a rectangle.
        area = np.divide(alive[:, :-1] - alive[:, 1:], step, out=alive[:, :-1].copy(), where=step > 1e-9)
        return (area * width).sum(axis=1)


def person_periods(count: IntArray) -> tuple[IntArray, IntArray]:
    """Subject and period of each row of a person-period table, in which subject ``i`` has ``count[i]`` periods.

    Examples
    --------
    >>> person_periods(np.array([2, 0, 1]))
    (array([0, 0, 2]), array([0, 1, 0]))
    """
    subject = np.repeat(np.arange(len(count)), count)
    return subject, np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
