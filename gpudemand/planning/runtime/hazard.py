"""Discrete-time survival model of durations with right censoring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.planning.runtime.survival import person_periods

HOUR = 3600.0
#: Edges (s) of the age intervals: doubling up to an hour, then 1 to 4 hours, so that the hour can matter, then wider.
AGES = np.unique(
    np.concatenate(
        [
            [0, 15, 30, 60, 120, 240, 480, 900, 1800],
            HOUR * np.arange(1, 12),
            HOUR * np.arange(12, 24, 2),
            HOUR * np.arange(24, 72, 4),
            HOUR * np.arange(72, 168, 8),
            HOUR * 24 * np.arange(7, 29),
            HOUR * 168 * np.arange(4, 53),
        ]
    )
)
#: A run time that this share of the jobs has to the second is a time limit, with an interval of this width (s).
_LIMIT_SHARE = 0.003
_LIMIT_WIDTH = 60.0
#: Bounds of the hazard, which keep survival functions strictly between 0 and 1.
_MIN_HAZARD, _MAX_HAZARD = 1e-7, 1 - 1e-6
#: Learning rate times the number of trees.
_TOTAL_RATE = 8.0
#: Rows of person-periods predicted at a time.
_CHUNK = 1 << 15


class DurationHazard(BaseEstimator):
    """Distribution of durations given features: a gradient-boosted discrete-time hazard model.

    Each duration becomes one row for each age interval that it reached, labelled by whether it ended there
    (person-period data); a censored duration gives the rows that it survived. The time of day and the weekday at each
    age are features, because users cancel and restart jobs in working hours.

    Parameters
    ----------
    max_rows : int, default=300_000
        Most rows to train on. Intervals below an hour are the most frequent and are subsampled first.
    max_iter : int, default=100
        Trees; the fewer, the larger the steps.
    random_state : int, default=0

    Attributes
    ----------
    ages_ : ndarray of shape (n_intervals + 1,)
        Edges of the age intervals in seconds; the last one is the longest duration seen.
    model_ : HistGradientBoostingClassifier

    References
    ----------
    Singer and Willett, Journal of Educational Statistics 18(2), 1993.

    Examples
    --------
    Half of the durations are censored at 2 h; counted as ends they would halve the mean.

    >>> rng = np.random.default_rng(0)
    >>> true = rng.exponential(3 * 3600, 4000)
    >>> observed = np.minimum(true, 2 * 3600.0)
    >>> X = np.zeros((4000, 1))
    >>> hazard = DurationHazard().fit(X, observed, true <= 2 * 3600, np.zeros(4000))
    >>> survival = np.exp(-hazard.cumulative(X[:1], np.zeros(1)))
    >>> bool(abs(np.interp(3600, hazard.ages_, survival[0]) - np.exp(-1 / 3)) < 0.03)
    True
    """

    def __init__(self, max_rows: int = 300_000, max_iter: int = 100, random_state: int = 0) -> None:
        self.max_rows = max_rows
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(
        self,
        X: FloatArray,
        duration_s: FloatArray,
        ended: BoolArray,
        clock_s: FloatArray,
        weight: Any = None,
        scales: Sequence[int] = (),
    ) -> DurationHazard:
        """Fit to durations, of which some are right-censored.

        Parameters
        ----------
        X : ndarray of shape (n, n_features)
            NaN where unknown.
        duration_s : ndarray of shape (n,)
            Seconds; for those not `ended`, the seconds so far.
        ended : ndarray of bool, shape (n,)
            False where censored.
        clock_s : ndarray of shape (n,)
            Start of each duration: seconds of local time since any Thursday at midnight, such as 1970-01-01.
        weight : array-like of shape (n,), optional
        scales : sequence of int
            Columns of `X` with the logarithm of an expected duration (s), relative to which ages are a feature too.

        Raises
        ------
        InputError
            If all durations are censored.

        Returns
        -------
        DurationHazard
            This object.
        """
        if not ended.any():
            raise InputError("no job in the log has ended, so nothing says how long jobs run.")
        self.ages_ = _age_edges(duration_s, ended)
        self.scales_ = list(scales)
        job, interval, event = self._person_periods(duration_s, ended)
        sample, weights = self._subsample(interval)
        if weight is not None:
            weights = weights * np.asarray(weight, dtype=float)[job[sample]]
        rows, events = self._design(X, clock_s, job[sample], interval[sample]), event[sample]
        self.model_ = HistGradientBoostingClassifier(
            max_iter=self.max_iter,
            learning_rate=_TOTAL_RATE / self.max_iter,
            max_leaf_nodes=15,
            min_samples_leaf=max(2, min(100, len(rows) // 50)),
            l2_regularization=5.0,
            early_stopping=False,
            random_state=self.random_state,
        )
        self.constant_ = float(events[0]) if events.all() or not events.any() else None
        if self.constant_ is None:
            self.model_.fit(rows, events, sample_weight=weights)
        return self

    def cumulative(self, X: FloatArray, clock_s: FloatArray, ages_s: FloatArray | None = None) -> FloatArray:
        """Cumulative hazard at every edge of `ages_`; survival is ``exp(-cumulative)``.

        Parameters
        ----------
        X : ndarray of shape (n, n_features)
        clock_s : ndarray of shape (n,)
            As for `fit`.
        ages_s : ndarray of shape (n, 2), optional
            Youngest and oldest age that matter: the hazard before and after counts as zero, which saves its time.

        Returns
        -------
        ndarray of shape (n, n_intervals + 1)
            Ascending from 0. Between edges the hazard is constant, so interpolate linearly.
        """
        check_is_fitted(self, "ages_")
        n, n_intervals = len(X), self.ages_.size - 1
        first, last = np.zeros(n, dtype=np.int64), np.full(n, n_intervals)
        if ages_s is not None:
            place = np.searchsorted(self.ages_, ages_s, side="right")
            first, last = np.minimum(place[:, 0] - 1, n_intervals - 1), np.minimum(place[:, 1], n_intervals)
        job, step = person_periods(last - first)
        interval = first[job] + step
        cumulative = np.zeros((n, n_intervals + 1))
        # In chunks, which bounds the memory.
        for begin in range(0, job.size, _CHUNK):
            rows = job[begin : begin + _CHUNK], interval[begin : begin + _CHUNK]
            cumulative[rows[0], rows[1] + 1] = -np.log1p(-self._hazard(X, clock_s, *rows))
        return np.cumsum(cumulative, axis=1, out=cumulative)

    def _hazard(self, X: FloatArray, clock_s: FloatArray, job: IntArray, interval: IntArray) -> FloatArray:
        """Chance to end in an interval of those that reach it."""
        if self.constant_ is not None:
            hazard = np.full(len(job), self.constant_)
        else:
            hazard = self.model_.predict_proba(self._design(X, clock_s, job, interval))[:, 1]
        return np.clip(hazard, _MIN_HAZARD, _MAX_HAZARD)

    def _person_periods(self, duration_s: FloatArray, ended: BoolArray) -> tuple[IntArray, IntArray, BoolArray]:
        """Job, age interval and event, a row for each interval that a job has survived or ended in."""
        last = np.clip(np.searchsorted(self.ages_, duration_s, side="left") - 1, 0, self.ages_.size - 2)
        # An interval censored past its middle counts as survived, an earlier one is left out.
        middle = (self.ages_[last] + self.ages_[last + 1]) / 2
        job, interval = person_periods(np.where(ended | (duration_s > middle), last + 1, last))
        return job, interval, ended[job] & (interval == last[job])

    def _subsample(self, interval: IntArray) -> tuple[IntArray, FloatArray]:
        """Rows to train on, and their weights: inverse sampling probabilities."""
        excess = interval.size - self.max_rows
        if excess <= 0:
            return np.arange(interval.size), np.ones(interval.size)
        short = self.ages_[interval] < HOUR
        share = np.where(short, max(1 - excess / max(short.sum(), 1), 0.1), 1.0)
        share *= min(1.0, self.max_rows / share.sum())
        sample = np.flatnonzero(np.random.default_rng(self.random_state).random(interval.size) < share)
        return sample, 1 / share[sample]

    def _design(self, X: FloatArray, clock_s: FloatArray, job: IntArray, interval: IntArray) -> FloatArray:
        """Features of person-period rows: age, hour, weekday, `X`, and the age relative to expected durations."""
        middle = (self.ages_[interval] + self.ages_[interval + 1]) / 2
        clock = clock_s[job] + middle
        hour, weekday = clock / HOUR % 24, np.floor(clock / (24 * HOUR) + 3) % 7
        relative = np.log(middle)[:, None] - X[job][:, self.scales_]
        return np.column_stack([self.ages_[interval], hour, weekday, X[job], relative])


def _age_edges(duration_s: FloatArray, ended: BoolArray) -> FloatArray:
    """`AGES` up to the longest duration, with extra intervals at the time limits in the data."""
    longest = max(float(duration_s.max()), AGES[1])
    value, count = np.unique(np.round(duration_s[ended]), return_counts=True)
    limits = value[(count > max(_LIMIT_SHARE * ended.sum(), 5)) & (value >= HOUR)].astype(float)
    return np.unique(np.concatenate([AGES[longest > AGES], [longest], limits, np.maximum(limits - _LIMIT_WIDTH, 0)]))
