"""How long things last, learnt as the chance to end in each stretch of age: censoring costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError

HOUR = 3600.0
#: Ages (s) at which stretches begin: doubling up to an hour, then hours, so that the clock can matter, then coarser.
AGES = np.unique(
    np.concatenate(
        [
            [0, 15, 30, 60, 120, 240, 480, 900, 1800],
            HOUR * np.arange(1, 24),
            HOUR * np.arange(24, 72, 2),
            HOUR * np.arange(72, 168, 6),
            HOUR * 24 * np.arange(7, 29),
            HOUR * 168 * np.arange(4, 53),
        ]
    )
)
#: A run time that this share of the jobs has to the second is a limit, and gets a stretch of its own.
_LIMIT_SHARE = 0.003
_LIMIT_WIDTH = 60.0
#: Nothing is certain to go on, or to end.
_LEAST, _MOST = 1e-7, 1 - 1e-6


class DurationHazard(BaseEstimator):
    """Distribution of durations given features, from a boosted model of the chance to end in each stretch of age.

    A duration becomes one row for each stretch that it reached, with the answer whether it ended there (discrete-time
    survival analysis); one that is still going on gives the rows it has lived through, and no answer is invented for
    the rest. The clock at that age is a feature of the row: people cancel and restart jobs when they are awake.

    Parameters
    ----------
    max_rows : int, default=300_000
        Most rows to learn from. Stretches below an hour are by far the most, and are thinned out first.
    max_iter : int, default=100
        Trees.
    random_state : int, default=0

    Attributes
    ----------
    ages_ : ndarray of shape (n_stretches + 1,)
        Edges of the stretches in seconds; the last one is the longest duration seen.
    model_ : HistGradientBoostingClassifier

    References
    ----------
    Singer and Willett, Journal of Educational Statistics 18(2), 1993.

    Examples
    --------
    Half of the durations are only known to exceed 2 h; taken as ends they would halve the mean.

    >>> rng = np.random.default_rng(0)
    >>> true = rng.exponential(3 * 3600, 4000)
    >>> seen = np.minimum(true, 2 * 3600.0)
    >>> X = np.zeros((4000, 1))
    >>> hazard = DurationHazard().fit(X, seen, true <= 2 * 3600, np.zeros(4000))
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
        """Learn from durations, finished or not.

        Parameters
        ----------
        X : ndarray of shape (n, n_features)
            NaN where unknown.
        duration_s : ndarray of shape (n,)
            Seconds; of those not `ended`, the seconds so far.
        ended : ndarray of bool, shape (n,)
        clock_s : ndarray of shape (n,)
            When each began: seconds of local time since any Thursday at midnight, such as 1970-01-01.
        weight : array-like of shape (n,), optional
        scales : sequence of int
            Columns of `X` that hold the logarithm of an expected duration (s): ages are also seen relative to it.

        Raises
        ------
        InputError
            If nothing has ended.

        Returns
        -------
        DurationHazard
            This object.
        """
        if not ended.any():
            raise InputError("no job in the log has ended, so nothing says how long jobs run.")
        self.ages_ = _edges(duration_s, ended)
        self.scales_ = list(scales)
        job, stretch, event = self._lived(duration_s, ended)
        keep, thinned = self._thin(stretch)
        weights = thinned if weight is None else thinned * np.asarray(weight, dtype=float)[job[keep]]
        rows = self._rows(X, clock_s, job[keep], stretch[keep])
        self.model_ = HistGradientBoostingClassifier(
            max_iter=self.max_iter,
            learning_rate=0.08,
            max_leaf_nodes=15,
            min_samples_leaf=max(2, min(100, len(rows) // 50)),
            l2_regularization=5.0,
            early_stopping=False,
            random_state=self.random_state,
        )
        answers = event[keep]
        self.constant_ = float(answers[0]) if answers.all() or not answers.any() else None
        if self.constant_ is None:
            self.model_.fit(rows, answers, sample_weight=weights)
        return self

    def cumulative(self, X: FloatArray, clock_s: FloatArray) -> FloatArray:
        """Cumulative hazard at every edge of `ages_`; survival is ``exp(-cumulative)``.

        Returns
        -------
        ndarray of shape (n, n_stretches + 1)
            Ascending from 0. Between edges the hazard is constant, so interpolate linearly.
        """
        check_is_fitted(self, "ages_")
        n, n_stretches = len(X), self.ages_.size - 1
        if not n:
            return np.zeros((0, n_stretches + 1))
        job, stretch = np.repeat(np.arange(n), n_stretches), np.tile(np.arange(n_stretches), n)
        chance = self._chance(self._rows(X, clock_s, job, stretch)).reshape(n, n_stretches)
        return np.hstack([np.zeros((n, 1)), np.cumsum(-np.log1p(-chance), axis=1)])

    def _chance(self, rows: FloatArray) -> FloatArray:
        if self.constant_ is not None:
            return np.full(len(rows), np.clip(self.constant_, _LEAST, _MOST))
        return np.clip(self.model_.predict_proba(rows)[:, 1], _LEAST, _MOST)

    def _lived(self, duration_s: FloatArray, ended: BoolArray) -> tuple[IntArray, IntArray, BoolArray]:
        """Job, stretch and whether it ended there, a row for each stretch that a job has lived through."""
        last = np.clip(np.searchsorted(self.ages_, duration_s, side="left") - 1, 0, self.ages_.size - 2)
        # A stretch that a running job is past the middle of counts as lived through, another one not at all.
        middle = (self.ages_[last] + self.ages_[last + 1]) / 2
        count = np.where(ended, last + 1, np.where(duration_s > middle, last + 1, last))
        job = np.repeat(np.arange(len(count)), count)
        stretch = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return job, stretch, ended[job] & (stretch == last[job])

    def _thin(self, stretch: IntArray) -> tuple[IntArray, FloatArray]:
        """Rows to keep, and how many each stands for."""
        excess = stretch.size - self.max_rows
        if excess <= 0:
            return np.arange(stretch.size), np.ones(stretch.size)
        short = self.ages_[stretch] < HOUR
        share = np.where(short, max(1 - excess / max(short.sum(), 1), 0.1), 1.0)
        share *= min(1.0, self.max_rows / share.sum())
        keep = np.flatnonzero(np.random.default_rng(self.random_state).random(stretch.size) < share)
        return keep, 1 / share[keep]

    def _rows(self, X: FloatArray, clock_s: FloatArray, job: IntArray, stretch: IntArray) -> FloatArray:
        middle = (self.ages_[stretch] + self.ages_[stretch + 1]) / 2
        clock = clock_s[job] + middle
        hour, weekday = clock / HOUR % 24, np.floor(clock / (24 * HOUR) + 3) % 7
        relative = np.log(middle)[:, None] - X[job][:, self.scales_]
        return np.column_stack([self.ages_[stretch], hour, weekday, X[job], relative])


def _edges(duration_s: FloatArray, ended: BoolArray) -> FloatArray:
    longest = max(float(duration_s.max()), AGES[1])
    edges = np.append(AGES[longest > AGES], longest)
    limits = _limits(duration_s[ended])
    return np.unique(np.concatenate([edges, limits, np.maximum(limits - _LIMIT_WIDTH, 0)]))


def _limits(duration_s: FloatArray) -> FloatArray:
    value, count = np.unique(np.round(duration_s), return_counts=True)
    return value[(count > max(_LIMIT_SHARE * duration_s.size, 5)) & (value >= HOUR)].astype(float)
