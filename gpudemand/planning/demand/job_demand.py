"""`JobDemandModel`: bottom-up demand forecast from jobs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.intervals import PastErrors, check_levels, prediction_intervals
from gpudemand.forecast.base.panel import Panel
from gpudemand.forecast.regression.ridge import RidgeAutoregression
from gpudemand.jobs.as_of import checked_as_of
from gpudemand.jobs.table import check_jobs
from gpudemand.planning.demand.arrivals import forecast_submissions, observed_gpu_hours
from gpudemand.planning.demand.combination import TRAINING_DAYS, RidgeCorrection, combination_weights
from gpudemand.planning.demand.component_forecasts import component_forecasts
from gpudemand.planning.demand.held_jobs import HeldJobs, whole_hours
from gpudemand.planning.demand.rolling_origins import DAY, RollingOrigins
from gpudemand.planning.runtime.run_time import RunTimeModel

#: Earlier origins, a day apart, whose errors give the intervals.
_N_ORIGINS = 60
#: Days of history before the first training origin.
_MIN_TRAIN_DAYS = 14
#: Rows and trees of the run times: more do not improve demand, which sums over many jobs.
_ROWS, _TREES = 200_000, 30
#: Limits of speed: total hours of history and hours ahead up to which origins are hourly rather than daily.
_MAX_CELLS, _MAX_HOURLY_HORIZON = 20_000, 48


class JobDemandModel(BaseEstimator):
    """Bottom-up forecast of the GPUs held: running jobs plus jobs to arrive.

    The GPUs that running jobs will hold follow from their survival functions given the time they have run
    (`RunTimeModel`). Those that arriving jobs will hold are a mean of what arrivals after the same hour of earlier days
    held, weighted by recency and weekday. The sum is corrected by top-down forecasts (naive, seasonal naive, daily
    profile) with ridge regressions by hour ahead, trained at all earlier origins, and then averaged with a top-down
    forecaster with the weight of least error at earlier origins.

    Parameters
    ----------
    top_down : Forecaster, "auto" or None, default="auto"
        Forecaster on usage series to average with; ``"auto"`` is `RidgeAutoregression`, if `combine` is true.
    run_time : RunTimeModel, optional
        Run-time model; by default one on the request, the clock, and the history of users and groups, in the zone of
        the usage.
    running : bool, default=True
        Whether to model running jobs separately. Without it all jobs count as arrivals, an ablation.
    combine : bool, default=True
        Whether to correct the sum by top-down forecasts. Without it, and without `top_down`, only jobs count.

    Attributes
    ----------
    run_time_ : RunTimeModel
    jobs_ : DataFrame
        The log as of the origin.
    origin_ : Timestamp
        End of the usage history; nothing later is used.

    Notes
    -----
    Intervals are quantiles of the errors of the same method at up to 60 earlier origins, a day apart, with weights
    trained before each. Run times are learned once, before the newest 60 days and so before all of the
    origins, or before the newest third of a history of less than 180 days: what they are predicted from, the last jobs
    of a user and of a group, is as of each origin. Learned anew at the end, they forecast no better.

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster
    >>> from gpudemand.usage.series import usage_series
    >>> jobs, _ = make_cluster(n_users=20, n_days=60, random_state=0)
    >>> usage = usage_series(jobs, by=None, freq="h", value="gpus", until="2026-02-20")
    >>> model = JobDemandModel().fit(jobs, usage)
    >>> model.predict(h=24, level=[80]).columns.tolist()
    ['unique_id', 'ds', 'JobDemandModel', 'JobDemandModel-lo-80', 'JobDemandModel-hi-80']
    """

    def __init__(
        self,
        top_down: Forecaster | str | None = "auto",
        run_time: RunTimeModel | None = None,
        running: bool = True,
        combine: bool = True,
    ) -> None:
        self.top_down = top_down
        self.run_time = run_time
        self.running = running
        self.combine = combine

    def fit(self, jobs: pd.DataFrame, usage: pd.DataFrame, freq: object = None) -> JobDemandModel:
        """Fit to a log and its usage; the forecast starts where the usage ends.

        Parameters
        ----------
        jobs : DataFrame
            Canonical job table. Anything after the end of the usage is ignored.
        usage : DataFrame
            ``unique_id``, ``ds``, ``y`` in whole hours or days: GPUs held, or GPU-hours if ``attrs["value"]`` says so,
            as a total or by GPU type, group, user or paths of these.
        freq : str or offset, optional
            Width of a bin; inferred when not given.

        Raises
        ------
        InputError
            If the times have no zone, bins are no whole hours, or the series are not those of the log.

        Returns
        -------
        JobDemandModel
            This object.
        """
        self.panel_ = Panel.from_long(usage, freq)
        times = self.panel_.times
        if times.tz is None:
            raise InputError("the times of usage have no zone, and those of jobs do; keep what usage_series returns.")
        self.bin_hours_ = whole_hours(self.panel_)
        self.origin_ = self.panel_.future(1)[0]
        self.jobs_ = checked_as_of(check_jobs(jobs), self.origin_)
        # In local time, on which a day has 24 hours also where the clock changes.
        self.local_ = self.panel_.on_local_clock()
        self.held_ = HeldJobs.from_log(self.jobs_, self.local_, times.tz)
        self.hourly_ = self.held_.hourly_usage(self.local_, self.bin_hours_)
        model = self.run_time or RunTimeModel(times.tz, history_keys=("group", "user"), max_rows=_ROWS, max_iter=_TREES)
        self.run_time_ = clone(model).fit(self.jobs_, until=self._run_times_until())
        self._forecasts: dict[int, tuple[FloatArray, PastErrors]] = {}
        return self

    def predict(self, h: int, level: Sequence[float] | float | None = None) -> pd.DataFrame:
        """Forecast the next bins.

        Parameters
        ----------
        h : int
            Horizon in bins.
        level : sequence of float, optional
            Interval levels in percent, for example ``[80, 95]``.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds``, ``JobDemandModel``, ``JobDemandModel-lo-80``, ``JobDemandModel-hi-80``, ...
        """
        check_is_fitted(self, "origin_")
        h = int(check_number("h", h, 1, integer=True))
        levels = check_levels(level)
        steps = self.local_.local_steps(h)
        point, errors = self._forecast(int(steps.max()) + 1)
        columns = {"JobDemandModel": point}
        if levels:
            if not errors.origins.size:
                raise InputError("intervals need three days of history; this one is shorter. Predict with level=None.")
            ends = prediction_intervals(point, errors, levels, np.zeros((len(point), 1)))
            columns |= {f"JobDemandModel-{end}": values for end, values in ends.items()}
        factor = self.bin_hours_ if self.panel_.attrs.get("value") == "gpu_hours" else 1
        columns = {name: factor * values[:, steps] for name, values in columns.items()}
        return self.panel_.long_frame(self.panel_.future(h), columns)

    def running_jobs(self, level: Sequence[float] | float = 80) -> pd.DataFrame:
        """Jobs that hold GPUs at the origin, with their remaining run times.

        Returns
        -------
        DataFrame
            See `RunTimeModel.predict_remaining`; with ``job_id``, ``user`` and ``gpus``.
        """
        check_is_fitted(self, "origin_")
        table = self.run_time_.predict_remaining(self.jobs_, self.origin_, level, log=self.jobs_)
        return self.jobs_.loc[table.index, ["job_id", "user", "gpus"]].join(table)

    def submissions(self, days: int = 30, by: str | Sequence[str] = "user", level: float = 80) -> pd.DataFrame:
        """Forecast the jobs and GPU-hours that will be submitted in the next days, by user or job class.

        Parameters
        ----------
        days : int, default=30
        by : str or sequence of str, default="user"
            Of ``user``, ``group``, ``cluster``, ``gpu_type``, ``gpus``.
        level : float, default=80

        Returns
        -------
        DataFrame
            See `forecast_submissions`. The GPU-hours of a job are the observed ones, or predicted ones if the run-time
            model knows networks (`costs`).
        """
        check_is_fitted(self, "origin_")
        if self.run_time_.costs_ is not None:
            gpu_hours = self.run_time_.costs_.predict(self.jobs_)["gpu_hours"].to_numpy(dtype=float)
        else:
            gpu_hours = observed_gpu_hours(self.jobs_, self.run_time_.curves(self.jobs_, self.jobs_), self.origin_)
        return forecast_submissions(self.jobs_, gpu_hours, self.origin_, days=days, by=by, level=level)

    def _forecast(self, h: int) -> tuple[FloatArray, PastErrors]:
        """Point forecasts in GPUs, shape (n_series, h), and errors of such forecasts at earlier origins."""
        if h not in self._forecasts:
            origins, correction = self._correction(h * self.bin_hours_)
            places = _backtest_places(origins)
            hourly = np.stack([self._path(correction, place) for place in [*places, len(origins.hours) - 1]], axis=1)
            paths, actual = self._binned(hourly), self._binned(origins.actual[:, places])
            bins = origins.hours[places] // self.bin_hours_
            top_down = self._top_down()
            if top_down is not None and len(places):
                paths = self._with_top_down(top_down, paths, actual, bins)
            self._forecasts[h] = paths[:, -1], PastErrors(actual - paths[:, :-1], bins)
        return self._forecasts[h]

    def _path(self, correction: RidgeCorrection, place: int) -> FloatArray:
        return np.maximum(correction.predict(place) if self.combine else correction.base[:, place], 0.0)

    def _correction(self, hours: int) -> tuple[RollingOrigins, RidgeCorrection]:
        """Origins, and the bottom-up forecasts at them with their correction by top-down ones."""
        hourly = hours <= _MAX_HOURLY_HORIZON and self.hourly_.size <= _MAX_CELLS
        step = 1 if hourly else DAY
        origins = RollingOrigins.from_end(self.hourly_, hours, step, self.origin_.weekday(), self.origin_.hour)
        # No correction reads an older origin.
        oldest = origins.hours[-1] - hours - DAY * (_N_ORIGINS + TRAINING_DAYS + 1)
        old = origins.hours < max(min(_MIN_TRAIN_DAYS * DAY, self.hourly_.shape[1] / 3), oldest)
        base, others = component_forecasts(origins, *self._running_and_arrivals(origins, int(old.sum())))
        base = np.where(old[:, None], np.nan, base)
        return origins, RidgeCorrection.fit(origins, base, others)

    def _running_and_arrivals(self, origins: RollingOrigins, first: int) -> tuple[FloatArray, FloatArray]:
        """Expected GPUs of the jobs running at the origins from `first` on, and GPUs of later jobs."""
        actual = origins.actual
        if not self.running:
            return np.zeros_like(actual), actual
        expected = np.full_like(actual, np.nan)
        expected[:, first:] = 0.0
        held, ages_s = self.held_.at(origins.hours[first:], origins.h)
        if held.row.size:
            curves = self.run_time_.curves(self.jobs_.iloc[held.row], self.jobs_, ages_s)
            expected[:, first:] = held.expected(origins.hours[first:], origins.h, curves)
        return expected, actual - self.held_.held(origins.hours, origins.h)

    def _run_times_until(self) -> pd.Timestamp:
        """Time before the backtest origins, as far as the history allows."""
        days = (self.origin_ - self.panel_.times[0]) / pd.Timedelta("1D")
        until = self.origin_ - pd.Timedelta(days=min(_N_ORIGINS, int(days / 3)))
        return until if (self.jobs_["end"] < until).any() else self.origin_

    def _binned(self, paths: FloatArray) -> FloatArray:
        """Mean over the hours of each bin."""
        n_bins = paths.shape[-1] // self.bin_hours_
        return paths.reshape(*paths.shape[:-1], n_bins, self.bin_hours_).mean(axis=-1)

    def _top_down(self) -> Forecaster | None:
        if isinstance(self.top_down, str):
            check_choice("top_down", self.top_down, ("auto",))
            return RidgeAutoregression() if self.combine else None
        return self.top_down

    def _with_top_down(
        self, top_down: Forecaster, paths: FloatArray, actual: FloatArray, origins: IntArray
    ) -> FloatArray:
        """Weighted average with the top-down forecasts, at each origin and at the end."""
        times, y = self.local_.times, self.local_.values
        model, n_bins = clone(top_down).fit(self.local_.long_frame(times, {"y": y})), len(times)
        other = np.maximum(model._paths(y, np.append(origins, n_bins), paths.shape[2]), 0.0)
        weight = combination_weights(actual - paths[:, :-1], actual - other[:, :-1], origins, n_bins)
        return paths + weight[:, :, None] * (other - paths)


def _backtest_places(origins: RollingOrigins) -> IntArray:
    """Places of the newest earlier origins, whole days before the end."""
    day = origins.per_day
    places = np.arange(len(origins.hours) - 1 - day, 0, -day, dtype=np.int64)[:_N_ORIGINS][::-1]
    return places[origins.hours[places] >= 2 * DAY]
