"""Survival model of the run times of jobs, new and running."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.forecast.base.intervals import check_levels
from gpudemand.jobs.as_of import checked_as_of, seconds_since, start_times, wall_clock_seconds
from gpudemand.jobs.table import check_jobs
from gpudemand.jobs.time_parser import parse_timestamp
from gpudemand.planning.runtime.hazard import DurationHazard
from gpudemand.planning.runtime.history import HISTORY_KEYS, submission_features, uses_outcomes
from gpudemand.planning.runtime.survival import SurvivalCurves
from gpudemand.planning.runtime.training import TrainingRunTime
from gpudemand.usage.series import recorded_until

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
    gpu_weight : float in [0, 1], default=0.5
        Jobs are weighted by their GPUs to this power: 0 weights jobs equally, 1 by GPU-hours.
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
        gpu_weight: float = 0.5,
        history_keys: Sequence[str] = tuple(HISTORY_KEYS),
        costs: TrainingRunTime | None = None,
        max_rows: int = 700_000,
        max_iter: int = 100,
        random_state: int = 0,
    ) -> None:
        self.tz = tz
        self.gpu_weight = gpu_weight
        self.history_keys = history_keys
        self.costs = costs
        self.max_rows = max_rows
        self.max_iter = max_iter
        self.random_state = random_state

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

        Returns
        -------
        RunTimeModel
            This object.
        """
        check_number("gpu_weight", self.gpu_weight, 0, 1)
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
        weight = np.maximum(self.log_["gpus"].to_numpy(dtype=float), 0.125) ** self.gpu_weight
        self.hazard_ = DurationHazard(self.max_rows, self.max_iter, random_state=self.random_state).fit(
            features[self.features_].to_numpy(dtype=float)[known],
            duration[known],
            ended[known],
            wall_clock_seconds(begun, self.tz)[known],
            weight[known],
            scales=[place for place, name in enumerate(self.features_) if name in SCALES],
        )
        return self

    def _training_features(self) -> pd.DataFrame:
        for name in self.history_keys:
            check_choice("history_keys", name, HISTORY_KEYS)
        features = self._features(self.log_, self.log_)
        self.features_ = [name for name in features if features[name].notna().any()]
        masked = np.random.default_rng(self.random_state).random(len(features)) < _MASKED
        features.loc[masked, [name for name in self.features_ if uses_outcomes(name)]] = np.nan
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

        Returns
        -------
        SurvivalCurves
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
