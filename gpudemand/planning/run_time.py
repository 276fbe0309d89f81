"""`RunTimeModel`: run times of jobs, from their history and what is still running."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils.validation import check_is_fitted

from gpudemand._array import STRING, BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_choice, check_levels, told
from gpudemand.jobs.schema import OTHER_KEYS
from gpudemand.jobs.table import (
    check_jobs,
    checked_as_of,
    seconds_since,
    start_times,
    to_nanoseconds,
    wall_clock_seconds,
)
from gpudemand.jobs.times import parse_timestamp
from gpudemand.planning.training_run_time import TrainingRunTime
from gpudemand.units import SECONDS_PER_HOUR
from gpudemand.usage.series import recorded_until


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

    def _given(self, given_age_s: FloatArray | None) -> tuple[FloatArray, FloatArray]:
        """The age that each job has reached, and its cumulative hazard there."""
        since = np.zeros(len(self)) if given_age_s is None else given_age_s
        return since, self.hazard_until(np.arange(len(self)), since)

    def survival(self, age_s: FloatArray) -> FloatArray:
        """Survival function at ages in seconds, shape (n_jobs, n_ages)."""
        rows, ages = np.arange(len(self)), np.asarray(age_s, dtype=float)
        ends = [self.hazard_until(rows, np.full(len(self), age)) for age in ages]
        return np.exp(-np.stack(ends, axis=1)) if ends else np.ones((len(self), 0))

    def quantile(self, shares: Sequence[float], given_age_s: FloatArray | None = None) -> FloatArray:
        """Quantiles of the remaining seconds, shape (n_jobs, n_shares)."""
        since, before = self._given(given_age_s)
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
        since, before = self._given(None if given_age_s is None else np.minimum(given_age_s, self.ages[-1]))
        relative = self.cumulative - before[:, None]
        alive = np.exp(-np.maximum(relative, 0))
        width = np.diff(np.maximum(self.ages, since[:, None]), axis=1)
        step = np.diff(np.maximum(relative, 0), axis=1)
        # Integral of the exponential survival function over each interval; with no hazard it is a rectangle.
        area = np.divide(alive[:, :-1] - alive[:, 1:], step, out=alive[:, :-1].copy(), where=step > 1e-9)
        return (area * width).sum(axis=1)


def person_periods(count: IntArray) -> tuple[IntArray, IntArray]:
    """Subject and period of each row of a person-period table, in which subject ``i`` has ``count[i]`` periods.

    >>> person_periods(np.array([2, 0, 1]))
    (array([0, 0, 2]), array([0, 1, 0]))
    """
    subject = np.repeat(np.arange(len(count)), count)
    return subject, np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)


#: Edges (s) of the age intervals: doubling up to an hour, then 1 to 4 hours, so that the hour can matter, then wider.
_HOURS = [np.arange(1, 12), np.arange(12, 24, 2), np.arange(24, 72, 4), np.arange(72, 168, 8)]
_HOURS += [24 * np.arange(7, 29), 168 * np.arange(4, 53)]
AGES = np.unique(np.r_[0, 15, 30, 60, 120, 240, 480, 900, 1800, SECONDS_PER_HOUR * np.concatenate(_HOURS)])
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

    `max_rows`: most rows to train on. Intervals below an hour are the most frequent and are subsampled first.
    `max_iter`: trees; the fewer, the larger the steps. `ages_`: shape (n_intervals + 1,); edges of the age intervals
    in seconds; the last one is the longest duration seen.

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
        scales: Sequence[int] = (),
    ) -> DurationHazard:
        """Fit to durations, of which some are right-censored.

        `X`: shape (n, n_features); NaN where unknown. `duration_s`: shape (n,); seconds; for those not `ended`, the
        seconds so far. `ended`: shape (n,); false where censored. `clock_s`: shape (n,); start of each duration:
        seconds of local time since any Thursday at midnight, such as 1970-01-01. `scales`: columns of `X` with the
        logarithm of an expected duration (s), relative to which ages are a feature too.
        """
        if not ended.any():
            raise InputError("no job in the log has ended, so nothing says how long jobs run.")
        self.ages_ = _age_edges(duration_s, ended)
        self.scales_ = list(scales)
        job, interval, event = self._person_periods(duration_s, ended)
        sample, weights = self._subsample(interval)
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

        `X`: shape (n, n_features). `clock_s`: shape (n,); as for `fit`. `ages_s`: shape (n, 2); youngest and oldest
        age that matter: the hazard before and after counts as zero, which saves its time. Returns shape (n,
        n_intervals + 1): ascending from 0. Between edges the hazard is constant, so interpolate linearly.
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
        short = self.ages_[interval] < SECONDS_PER_HOUR
        share = np.where(short, max(1 - excess / max(short.sum(), 1), 0.1), 1.0)
        share *= min(1.0, self.max_rows / share.sum())
        sample = np.flatnonzero(np.random.default_rng(self.random_state).random(interval.size) < share)
        return sample, 1 / share[sample]

    def _design(self, X: FloatArray, clock_s: FloatArray, job: IntArray, interval: IntArray) -> FloatArray:
        """Features of person-period rows: age, hour, weekday, `X`, and the age relative to expected durations."""
        middle = (self.ages_[interval] + self.ages_[interval + 1]) / 2
        clock = clock_s[job] + middle
        hour, weekday = clock / SECONDS_PER_HOUR % 24, np.floor(clock / (24 * SECONDS_PER_HOUR) + 3) % 7
        relative = np.log(middle)[:, None] - X[job][:, self.scales_]
        return np.column_stack([self.ages_[interval], hour, weekday, X[job], relative])


def _age_edges(duration_s: FloatArray, ended: BoolArray) -> FloatArray:
    """`AGES` up to the longest duration, with extra intervals at the time limits in the data."""
    longest = max(float(duration_s.max()), AGES[1])
    value, count = np.unique(np.round(duration_s[ended]), return_counts=True)
    limits = value[(count > max(_LIMIT_SHARE * ended.sum(), 5)) & (value >= SECONDS_PER_HOUR)].astype(float)
    return np.unique(np.concatenate([AGES[longest > AGES], [longest], limits, np.maximum(limits - _LIMIT_WIDTH, 0)]))


#: Sets of columns by which earlier jobs are matched, from the widest to the narrowest.
HISTORY_KEYS: dict[str, tuple[str, ...]] = {
    "gpus": ("gpus",),
    "group": ("group", "gpu_type"),
    "user": ("user",),
    "own": ("user", "group", "gpu_type", "gpus"),
}
#: Numbers of newest finished jobs whose run times are averaged.
_RECENT = (3, 30)
#: Ends of the names of features that depend on the ends of earlier jobs.
_FROM_OUTCOMES = (*(f"last_{n}" for n in _RECENT), "unfinished")
_HOUR_NS = 3_600_000_000_000


def submission_features(
    jobs: pd.DataFrame, log: pd.DataFrame, history_keys: Sequence[str] = tuple(HISTORY_KEYS)
) -> pd.DataFrame:
    """Features of jobs from information available when each was submitted.

    `jobs`: canonical columns; ``start``, ``end`` and ``status`` are not used. `log`: canonical table of the history,
    which may contain `jobs`. For each job only earlier submissions count, and only the run times of jobs that had
    **ended** before its submission. `history_keys`: keys of `HISTORY_KEYS` by which earlier jobs are matched. Returns
    shape (n_jobs, n_features): logarithms of GPUs and requested time (s), and for each of `history_keys`: mean
    logarithm of the run times (s) of the newest 3 and 30 finished jobs, and logarithms of one plus the numbers of
    jobs submitted in the hour before, and submitted but unfinished. NaN where there is no earlier job, where the
    newest recorded end is more than a day before the submission (the log is not up to date), and for keys without
    values in the log.

    >>> from gpudemand.jobs.table import as_jobs
    >>> times = pd.to_datetime(["2026-03-01 00:00", "2026-03-01 05:00", "2026-03-01 06:00"], utc=True)
    >>> ends = pd.to_datetime(["2026-03-01 01:00", "2026-03-01 07:00", None], utc=True)
    >>> jobs = as_jobs(pd.DataFrame({"user": "ada", "submit": times, "end": ends, "gpus": 1.0}), kind="measured")
    >>> features = submission_features(jobs, jobs)
    >>> np.exp(features["user_last_3"]).round(0).tolist()
    [nan, 3600.0, 3600.0]
    """
    columns = {
        "gpus": np.log2(np.maximum(jobs["gpus"].to_numpy(dtype=float), 0.125)),
        "requested": np.log(np.maximum(jobs["requested_time"].to_numpy(dtype=float), 1.0)),
    }
    unknown = np.full(len(jobs), np.nan)
    used: list[list[str]] = []
    stale = _stale(jobs, log)
    for name in history_keys:
        keys = [key for key in HISTORY_KEYS[name] if log[key].notna().any()]
        is_new = bool(keys) and keys not in used
        used.append(keys)
        history = _history(jobs, log, keys) if is_new else dict.fromkeys((*_FROM_OUTCOMES, "last_hour"), unknown)
        columns |= {f"{name}_last_hour": history["last_hour"]}
        columns |= {f"{name}_{what}": np.where(stale, np.nan, history[what]) for what in _FROM_OUTCOMES}
    return pd.DataFrame(columns, index=jobs.index)


def _stale(jobs: pd.DataFrame, log: pd.DataFrame) -> BoolArray:
    """Jobs submitted more than a day after the newest end recorded by then."""
    ends = np.sort(to_nanoseconds(log["end"].dropna()))
    now = to_nanoseconds(jobs["submit"])
    place = np.searchsorted(ends, now, side="left")
    newest = np.concatenate([[np.iinfo(np.int64).min // 2], ends])[place]
    return now - newest > 24 * _HOUR_NS


def _history(jobs: pd.DataFrame, log: pd.DataFrame, keys: Sequence[str]) -> dict[str, FloatArray]:
    """Features of each job from the earlier jobs in the log with the same keys."""
    both = pd.concat([log[list(keys)], jobs[list(keys)]], ignore_index=True)
    code = both.groupby(list(keys), dropna=False, sort=False).ngroup().to_numpy(dtype=np.int64)
    log_code, job_code = code[: len(log)], code[len(log) :]
    now = to_nanoseconds(jobs["submit"])
    ended = log["end"].notna().to_numpy()
    run = np.log(np.maximum(seconds_since(log["end"], start_times(log))[ended], 1.0))
    ends = _EventLog(log_code[ended], to_nanoseconds(log.loc[ended, "end"]), run)
    submits = _EventLog(log_code, to_nanoseconds(log["submit"]), np.zeros(len(log)))
    finished, submitted = ends.before(job_code, now), submits.before(job_code, now)
    in_last_hour = submitted.place - submits.before(job_code, now - _HOUR_NS).place
    unfinished = np.maximum((submitted.place - submitted.first) - (finished.place - finished.first), 0)
    return {f"last_{n}": ends.mean_of_newest(finished, n) for n in _RECENT} | {
        "last_hour": np.log1p(in_last_hour),
        "unfinished": np.log1p(unfinished),
    }


#: Words of sessions that people work in, which notebooks, desktops and schedulers name jobs and queues by.
_SESSION = re.compile(
    r"(?:^|[^a-z])(?:notebooks?|jupyter(?:lab|hub)?|vs-?code|code-server|rstudio|interactive|desktop)(?:$|[^a-z])"
    r"|^(?:bash|zsh|sh|tmux|screen)$",
    re.IGNORECASE,
)
#: Run time over the time limit, or over the usual one of a user, within which they are alike.
_ALIKE = 0.02
#: Jobs of a user who lets them all run for the same number of hours.
_MIN_ALIKE = 5


def fixed_length(jobs: pd.DataFrame) -> BoolArray:
    """Jobs that a faster GPU would not shorten, as the log tells.

    Those that ended by their time limit: with status ``timeout``, or after the requested time, within 2 %; sessions
    that people work in, by the words in ``name``, ``partition`` and ``qos``; and jobs of users all of whose jobs, five
    or more, run for the same whole number of hours.

    Parameters
    ----------
    jobs : DataFrame
        A job table; ``status``, ``requested_time``, ``name``, ``partition`` and ``qos`` are used where it has them.

    Returns
    -------
    ndarray of bool, shape (n_jobs,)

    Raises
    ------
    InputError
        If `jobs` is no job table.

    Examples
    --------
    >>> start = pd.to_datetime(["2026-01-05 08:00"] * 3, utc=True)
    >>> hours = pd.to_timedelta([24.0, 5.3, 2.1], unit="h")
    >>> jobs = pd.DataFrame({"user": ["ada", "ada", "ben"], "start": start, "end": start + hours, "gpus": 1})
    >>> jobs = jobs.assign(requested_time=24 * 3600.0, name=["train", "train", "jupyter-ben"])
    >>> fixed_length(jobs).tolist()
    [True, False, True]
    """
    jobs = check_jobs(jobs)
    seconds = (jobs["end"] - start_times(jobs)).dt.total_seconds()
    limited = jobs["status"].eq("timeout") | ((seconds / jobs["requested_time"] - 1.0).abs() <= _ALIKE)
    text = [jobs[name].astype(STRING).fillna("") for name in ("name", *OTHER_KEYS) if name in jobs.columns]
    sessions = [column.map(lambda words: _SESSION.search(words) is not None).to_numpy(dtype=bool) for column in text]
    return np.logical_or.reduce([limited.to_numpy(dtype=bool), _same_hours(jobs["user"], seconds), *sessions])


def _same_hours(users: pd.Series, seconds: pd.Series) -> BoolArray:
    """Jobs of users whose jobs have all ended after the same whole number of hours."""
    hours = seconds / SECONDS_PER_HOUR
    by_user = hours.groupby(users)
    usual, ended = by_user.transform("median").round(), by_user.transform("count")
    alike = (hours - usual).abs() <= _ALIKE * usual
    every = alike.groupby(users).transform("sum") == ended
    return (every & alike & (usual >= 1) & (ended >= _MIN_ALIKE)).to_numpy(dtype=bool)


class _Range(NamedTuple):
    """First event of each queried key, and its first event that is not before a time."""

    first: IntArray
    place: IntArray


class _EventLog:
    """Events sorted by key and time, for queries about the events of a key before a time."""

    def __init__(self, key: IntArray, time: IntArray, value: FloatArray) -> None:
        order = np.lexsort((time, key))
        self._key, self._times = key[order], np.sort(time)
        self._place = self._rank(key, time)[order]
        self._sums = np.concatenate([[0.0], np.cumsum(value[order])])

    def _rank(self, key: IntArray, time: IntArray) -> IntArray:
        """Order of keys and times as one number, the same for times between which no event is."""
        return key * (len(self._times) + 1) + np.searchsorted(self._times, time, side="left")

    def before(self, key: IntArray, time: IntArray) -> _Range:
        """Events of the key before the time."""
        first = np.searchsorted(self._key, key, side="left")
        return _Range(first, np.searchsorted(self._place, self._rank(key, time), side="left"))

    def mean_of_newest(self, events: _Range, n: int) -> FloatArray:
        """Mean value of the newest `n` of the events; NaN where there is none."""
        first, place = events
        begin = np.maximum(first, place - n)
        total = self._sums[place] - self._sums[begin]
        return np.where(place > begin, total / np.maximum(place - begin, 1), np.nan)


#: Features that are logarithms of an expected run time (s).
SCALES = ("requested", "predicted")
#: Share of the training jobs whose history is masked, so that jobs without one are predicted well.
_MASKED = 0.15


class RunTimeModel(BaseEstimator):
    """Distribution of run times given the request, the time of day, and the history of the user's jobs at submission.

    Gives quantiles of the run time of a new job, its mean (from which GPU-hours add up; several times the median), and
    the remaining time and survival function of a running job. Jobs that run at the end of the log are right-censored.

    Parameters
    ----------
    tz : str or tzinfo, default="UTC"
        Zone of the time of day and the weekday.
    history_keys : sequence of str, default=("gpus", "group", "user", "own")
        Keys of the history features; see `submission_features`. Without any, the request and the clock remain.
    costs : TrainingRunTime, optional
        Predicts run times from networks, as a further feature.
    max_rows : int, default=700_000
    max_iter : int, default=100
        Most training rows, and trees; see `DurationHazard`.
    random_state : int, default=0

    Attributes
    ----------
    hazard_ : DurationHazard
    log_ : DataFrame
        The log as of `until_`.
    until_ : Timestamp

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster
    >>> jobs, _ = make_cluster(n_users=10, n_days=60, random_state=0)
    >>> model = RunTimeModel().fit(jobs, until="2026-02-20")
    >>> new = jobs[jobs["submit"] >= "2026-02-20"]
    >>> model.predict(new, level=80).columns.tolist()
    ['run_time_s', 'run_time_s-lo-80', 'run_time_s-hi-80', 'mean_run_time_s', 'gpu_hours']
    """

    def __init__(
        self,
        tz: object = "UTC",
        history_keys: Sequence[str] = tuple(HISTORY_KEYS),
        costs: TrainingRunTime | None = None,
        max_rows: int = 700_000,
        max_iter: int = 100,
        random_state: int = 0,
    ) -> None:
        self.tz = tz
        self.history_keys = history_keys
        self.costs = costs
        self.max_rows = max_rows
        self.max_iter = max_iter
        self.random_state = random_state

    @told("Fitting {}")
    def fit(self, jobs: pd.DataFrame, until: object = None) -> RunTimeModel:
        """Fit to a log as of a time.

        Parameters
        ----------
        jobs : DataFrame
            Canonical job table.
        until : time-like, optional
            Nothing later is used. By default the end of the log (`recorded_until`).

        Raises
        ------
        InputError
            If nothing was submitted or nothing had ended by then.
        """
        log = check_jobs(jobs)
        self.until_ = recorded_until(log) if until is None else parse_timestamp(until, self.tz)
        self.log_ = checked_as_of(log, self.until_)
        if self.log_.empty:
            raise InputError(f"no job was submitted before {self.until_}; choose a later time.")
        begun = start_times(self.log_)
        ended = self.log_["end"].notna().to_numpy(dtype=bool)
        duration = seconds_since(self.log_["end"].fillna(self.until_), begun)
        known = np.isfinite(duration) & (duration >= 0)
        self.costs_ = None if self.costs is None else clone(self.costs).fit(self.log_, until=self.until_)
        features = self._training_features()
        self.hazard_ = DurationHazard(self.max_rows, self.max_iter, random_state=self.random_state).fit(
            features[self.features_].to_numpy(dtype=float)[known],
            duration[known],
            ended[known],
            wall_clock_seconds(begun, self.tz)[known],
            scales=[place for place, name in enumerate(self.features_) if name in SCALES],
        )
        return self

    def _training_features(self) -> pd.DataFrame:
        for name in self.history_keys:
            check_choice("history_keys", name, HISTORY_KEYS)
        features = self._features(self.log_, self.log_)
        self.features_ = [name for name in features if features[name].notna().any()]
        masked = np.random.default_rng(self.random_state).random(len(features)) < _MASKED
        features.loc[masked, [name for name in self.features_ if name.endswith(_FROM_OUTCOMES)]] = np.nan
        return features

    def _features(self, jobs: pd.DataFrame, log: pd.DataFrame) -> pd.DataFrame:
        features = submission_features(jobs, log, self.history_keys)
        if self.costs_ is None:
            return features
        seconds = self.costs_.predict(jobs)["run_time_s"].to_numpy(dtype=float)
        return features.assign(predicted=np.log(np.maximum(seconds, 1.0)))

    def curves(
        self, jobs: pd.DataFrame, log: pd.DataFrame | None = None, ages_s: FloatArray | None = None
    ) -> SurvivalCurves:
        """Survival function of each job by the time it has run.

        Parameters
        ----------
        jobs : DataFrame
            Canonical columns; the end and the status of a job itself are not used.
        log : DataFrame, optional
            History of the jobs: by default the log of `fit` and `jobs` themselves. Only run times of jobs that ended
            before a job's submission are used for it.
        ages_s : ndarray of shape (n_jobs, 2), optional
            Youngest and oldest age (s) of each job that matter; the hazard before and after counts as zero.
        """
        check_is_fitted(self, "hazard_")
        jobs = check_jobs(jobs, allow_unknown=True)
        history = self._log_with(jobs) if log is None else check_jobs(log, allow_unknown=True)
        features = self._features(jobs, history)[self.features_].to_numpy(dtype=float)
        clock = wall_clock_seconds(start_times(jobs).fillna(jobs["submit"]), self.tz)
        return SurvivalCurves(self.hazard_.ages_, self.hazard_.cumulative(features, clock, ages_s))

    def _log_with(self, jobs: pd.DataFrame) -> pd.DataFrame:
        later = jobs[jobs["submit"] >= self.until_]
        return pd.concat([self.log_, later], ignore_index=True) if len(later) else self.log_

    @told("Predicting run times")
    def predict(self, jobs: pd.DataFrame, level: Sequence[float] | float = 80) -> pd.DataFrame:
        """Predict run times from the information available at submission.

        Parameters
        ----------
        jobs : DataFrame
            Canonical columns.
        level : float or sequence of float, default=80
            Interval levels in percent.

        Returns
        -------
        DataFrame
            Index of `jobs`; ``run_time_s`` (the median), ``run_time_s-lo-80``, ``run_time_s-hi-80``, ...,
            ``mean_run_time_s``, and ``gpu_hours`` (the mean times GPUs).
        """
        jobs = check_jobs(jobs, allow_unknown=True)
        curves = self.curves(jobs)
        table = _quantile_columns("run_time_s", curves, level, None)
        mean = curves.mean()
        table |= {"mean_run_time_s": mean, "gpu_hours": mean / 3600 * jobs["gpus"].to_numpy(dtype=float)}
        return pd.DataFrame(table, index=jobs.index)

    def predict_remaining(
        self,
        jobs: pd.DataFrame,
        at: object = None,
        level: Sequence[float] | float = 80,
        log: pd.DataFrame | None = None,
    ) -> pd.DataFrame:
        """Predict the remaining run times of the jobs that are running at a time.

        Parameters
        ----------
        jobs : DataFrame
            Canonical columns.
        at : time-like, optional
            By default the end of the log that was fitted.
        level : float or sequence of float, default=80
        log : DataFrame, optional
            History of the jobs; see `curves`.

        Returns
        -------
        DataFrame
            A row for each running job, with its index: ``elapsed_s``, ``remaining_s`` (the median) and its interval,
            ``mean_remaining_s``.
        """
        jobs = check_jobs(jobs)
        now = self.until_ if at is None else parse_timestamp(at, self.tz)
        started = start_times(jobs)
        running = ((started < now) & ~(jobs["end"] <= now)).to_numpy(dtype=bool)
        elapsed = -seconds_since(started[running], now)
        curves = self.curves(jobs[running], log)
        table = {"elapsed_s": elapsed} | _quantile_columns("remaining_s", curves, level, elapsed)
        return pd.DataFrame(table | {"mean_remaining_s": curves.mean(elapsed)}, index=jobs.index[running])


def _quantile_columns(
    name: str, curves: SurvivalCurves, level: Sequence[float] | float, given_age_s: FloatArray | None
) -> dict[str, FloatArray]:
    levels = check_levels(level)
    shares = [0.5] + [share for value in levels for share in (0.5 - value / 200, 0.5 + value / 200)]
    names = [name] + [f"{name}-{side}-{value:g}" for value in levels for side in ("lo", "hi")]
    return dict(zip(names, curves.quantile(shares, given_age_s).T, strict=True))
