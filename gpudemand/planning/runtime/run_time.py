"""How long a job will run, and how much longer one that is running already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import BoolArray, FloatArray
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.forecast.base.intervals import check_levels
from gpudemand.jobs.as_of import begins, known_at, local_seconds, seconds_until
from gpudemand.jobs.table import check_jobs
from gpudemand.jobs.timestamps import moment
from gpudemand.planning.runtime.hazard import DurationHazard
from gpudemand.planning.runtime.history import PASTS, needs_ends, submission_features
from gpudemand.planning.runtime.survival import SurvivalCurves
from gpudemand.planning.runtime.training import TrainingRunTime
from gpudemand.usage.series import recorded_until

#: Features that are logarithms of an expected run time (s).
SCALES = ("requested", "predicted")
#: Share of the jobs whose past is hidden while the model learns.
_HIDDEN = 0.15


class RunTimeModel(BaseEstimator):
    """Distribution of run times, from the request, the clock, and how the user's jobs had gone until the submission.

    One model answers four questions: quantiles of the run time of a new job, its mean (what GPU-hours add up from,
    several times the median), the remaining time of a job that has run for a while, and the chance that it is still
    running later. Jobs that were running when the log ended count for as long as they were seen.

    Parameters
    ----------
    tz : str or tzinfo, default="UTC"
        Zone of the clock by which people work.
    gpu_weight : float in [0, 1], default=0.5
        A job counts by its GPUs to this power: 0 is for errors by job, 1 for errors by GPU-hour.
    pasts : sequence of str, default=("gpus", "group", "user", "own")
        Whose past a job is compared with; see `submission_features`. An empty one leaves the request and the clock.
    costs : TrainingRunTime, optional
        Predicts run times from networks; where the log tells these, it is what matters most.
    max_rows : int, default=700_000
        Most rows that the hazard learns from; see `DurationHazard`.
    random_state : int, default=0

    Attributes
    ----------
    hazard_ : DurationHazard
    log_ : DataFrame
        The log as it stood at `until_`.
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
        pasts: Sequence[str] = tuple(PASTS),
        costs: TrainingRunTime | None = None,
        max_rows: int = 700_000,
        random_state: int = 0,
    ) -> None:
        self.tz = tz
        self.gpu_weight = gpu_weight
        self.pasts = pasts
        self.costs = costs
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, jobs: pd.DataFrame, until: object = None) -> RunTimeModel:
        """Learn from a log as it stood at a moment.

        Parameters
        ----------
        jobs : DataFrame
            Canonical job table.
        until : time-like, optional
            Nothing that happened later is read. By default the end of the log.

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
        self.until_ = recorded_until(check_jobs(jobs)) if until is None else moment(until, self.tz)
        self.log_ = known_at(jobs, self.until_)
        if self.log_.empty:
            raise InputError(f"no job was submitted before {self.until_}; choose a later time.")
        begun = begins(self.log_)
        ended = self.log_["end"].notna().to_numpy(dtype=bool)
        duration = seconds_until(self.log_["end"].fillna(self.until_), begun)
        known = np.isfinite(duration) & (duration >= 0)
        self.costs_ = None if self.costs is None else clone(self.costs).fit(self.log_, until=self.until_)
        features = self._features()
        weight = np.maximum(self.log_["gpus"].to_numpy(dtype=float), 0.125) ** self.gpu_weight
        self.hazard_ = DurationHazard(max_rows=self.max_rows, random_state=self.random_state).fit(
            features[self.features_].to_numpy(dtype=float)[known],
            duration[known],
            ended[known],
            local_seconds(begun, self.tz)[known],
            weight[known],
            scales=[place for place, name in enumerate(self.features_) if name in SCALES],
        )
        return self

    def _features(self) -> pd.DataFrame:
        for name in self.pasts:
            check_choice("pasts", name, PASTS)
        features = self._describe(self.log_, self.log_)
        self.features_ = [name for name in features if features[name].notna().any()]
        # Of some jobs the past is hidden, so that the model has met jobs of which nothing is known.
        hidden = np.random.default_rng(self.random_state).random(len(features)) < _HIDDEN
        features.loc[hidden, [name for name in self.features_ if needs_ends(name)]] = np.nan
        return features

    def _describe(self, jobs: pd.DataFrame, log: pd.DataFrame) -> pd.DataFrame:
        features = submission_features(jobs, log, self.pasts)
        if self.costs_ is None:
            return features
        seconds = self.costs_.predict(jobs)["run_time_s"].to_numpy(dtype=float)
        return features.assign(predicted=np.log(np.maximum(seconds, 1.0)))

    def curves(self, jobs: pd.DataFrame, log: pd.DataFrame | None = None) -> SurvivalCurves:
        """Survival curve of each job, by the time it has run.

        Parameters
        ----------
        jobs : DataFrame
            Canonical columns; of a job itself, neither its end nor its status is read.
        log : DataFrame, optional
            Where the past of each job is looked up: by default the log of `fit` and `jobs` themselves. Only run times
            of jobs that ended before a job's submission are ever read for it.

        Returns
        -------
        SurvivalCurves
        """
        check_is_fitted(self, "hazard_")
        past = self._past(jobs) if log is None else log
        features = self._describe(jobs, past)[self.features_].to_numpy(dtype=float)
        clock = local_seconds(begins(jobs).fillna(jobs["submit"]), self.tz)
        return SurvivalCurves(self.hazard_.ages_, self.hazard_.cumulative(features, clock))

    def _past(self, jobs: pd.DataFrame) -> pd.DataFrame:
        later = jobs[jobs["submit"] >= self.until_]
        return pd.concat([self.log_, later], ignore_index=True) if len(later) else self.log_

    def predict(self, jobs: pd.DataFrame, level: Sequence[float] | float = 80) -> pd.DataFrame:
        """Predict the run time of jobs from what was known at their submission.

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
        curves = self.curves(check_jobs(jobs))
        table = _quantile_columns("run_time_s", curves, level, None)
        mean = curves.mean()
        table |= {"mean_run_time_s": mean, "gpu_hours": mean / 3600 * jobs["gpus"].to_numpy(dtype=float)}
        return pd.DataFrame(table, index=jobs.index)

    def predict_remaining(
        self, jobs: pd.DataFrame, at: object = None, level: Sequence[float] | float = 80
    ) -> pd.DataFrame:
        """Predict how much longer jobs run that are running at a moment.

        Parameters
        ----------
        jobs : DataFrame
            Canonical columns.
        at : time-like, optional
            The moment; by default the end of the log that was fitted.
        level : float or sequence of float, default=80

        Returns
        -------
        DataFrame
            A row for each job that runs at that moment, with its index: ``elapsed_s``, ``remaining_s`` (the median) and
            its interval, ``mean_remaining_s``.
        """
        now = self.until_ if at is None else moment(at, self.tz)
        there = jobs[running_at(jobs, now)]
        elapsed = -seconds_until(begins(there), now)
        curves = self.curves(there)
        table = {"elapsed_s": elapsed} | _quantile_columns("remaining_s", curves, level, elapsed)
        return pd.DataFrame(table | {"mean_remaining_s": curves.mean(elapsed)}, index=there.index)


def running_at(jobs: pd.DataFrame, now: pd.Timestamp) -> BoolArray:
    """Jobs that hold GPUs at a moment."""
    return ((begins(jobs) < now) & ~(jobs["end"] <= now)).to_numpy(dtype=bool)


def _quantile_columns(
    name: str, curves: SurvivalCurves, level: Sequence[float] | float, given_age_s: FloatArray | None
) -> dict[str, FloatArray]:
    levels = check_levels(level)
    shares = [0.5] + [share for value in levels for share in (0.5 - value / 200, 0.5 + value / 200)]
    names = [name] + [f"{name}-{side}-{value:g}" for value in levels for side in ("lo", "hi")]
    return dict(zip(names, curves.quantile(shares, given_age_s).T, strict=True))
