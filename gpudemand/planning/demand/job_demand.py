"""`JobDemandModel`: demand from the jobs up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from gpudemand.jobs.as_of import known_at
from gpudemand.planning.demand.arrivals import forecast_submissions, observed_gpu_hours
from gpudemand.planning.demand.candidates import candidates
from gpudemand.planning.demand.holdings import held_jobs, hourly_usage, whole_hours
from gpudemand.planning.demand.origins import DAY, Origins
from gpudemand.planning.demand.ridge_correction import Blend, best_shares
from gpudemand.planning.runtime.run_time import RunTimeModel

#: Past origins, a day apart, whose errors make the intervals.
_PAST = 60
#: Days of history before the first origin that is learnt from.
_RUN_UP = 14
#: Hours of history, over all series, and hours ahead up to which every hour is an origin to learn from, not one a day.
_MOST_CELLS = 20_000
_FINE_HOURS = 48


class JobDemandModel(BaseEstimator):
    """Forecast the GPUs held from the jobs: those that run now, and those that will come.

    Of every job that runs at the origin the chance is known that it still runs hours later, given how long it has run
    (`RunTimeModel`). What jobs to come will hold is what jobs that came after the same hour of earlier days went on to
    hold, by recency and weekday. The sum of the two is corrected by top-down forecasts (last value, daily profile,
    yesterday, a week ago), with weights by hour ahead learnt at all earlier origins; and then averaged with a top-down
    forecaster, again by how the two did at earlier origins.

    Parameters
    ----------
    top_down : Forecaster, "auto" or None, default="auto"
        Forecaster on usage series to average with; ``"auto"`` is `RidgeAutoregression`, if `combine` is true.
    run_time : RunTimeModel, optional
        How long jobs run. By default one on the request and the clock, and the past of users and groups, in the zone
        of the usage.
    running : bool, default=True
        Whether to use what is known about running jobs. Without it all jobs count as still to come, which shows what
        that knowledge is worth.
    combine : bool, default=True
        Whether to correct the sum by top-down forecasts. Without it, and without `top_down`, only jobs count.

    Attributes
    ----------
    run_time_ : RunTimeModel
    jobs_ : DataFrame
        The log as it stood at the origin.
    origin_ : Timestamp
        End of the usage history: nothing later is read.

    Notes
    -----
    Intervals are quantiles of the errors of the same method at up to 60 earlier origins, a day apart, with weights
    learnt before each of them. Run times are learnt before the newest 60 days, and so before all of these origins, or
    before the newest third of a history of less than 180 days.

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
        """Learn from a log and the usage it makes; the forecast begins where the usage ends.

        Parameters
        ----------
        jobs : DataFrame
            Canonical job table. It may go on after the end of the usage: that part is not read.
        usage : DataFrame
            ``unique_id``, ``ds``, ``y`` in whole hours or days: GPUs held, or GPU-hours if ``attrs["value"]`` says so,
            by total, GPU type, group, user or paths of these.
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
        self.jobs_ = known_at(jobs, self.origin_)
        self.held_ = held_jobs(self.jobs_, self.panel_, self.bin_hours_)
        self.hourly_ = hourly_usage(self.panel_, self.held_, self.bin_hours_)
        model = self.run_time or RunTimeModel(tz=times.tz, pasts=("group", "user"))
        self.run_time_ = clone(model).fit(self.jobs_, until=self.origin_)
        self._early: RunTimeModel | None = None
        self._made: dict[int, tuple[FloatArray, PastErrors]] = {}
        return self

    def predict(self, h: int, level: Sequence[float] | float | None = None) -> pd.DataFrame:
        """Forecast the next bins.

        Parameters
        ----------
        h : int
            How many bins.
        level : sequence of float, optional
            Interval levels in percent, for example ``[80, 95]``.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds``, ``JobDemandModel``, ``JobDemandModel-lo-80``, ``JobDemandModel-hi-80``, ...
        """
        check_is_fitted(self, "origin_")
        h = int(check_number("h", h, 1, integer=True))
        wanted = check_levels(level)
        point, errors = self._forecast(h)
        columns = {"JobDemandModel": point}
        if wanted:
            if not errors.origins.size:
                raise InputError("intervals need three days of history; this one is shorter. Predict with level=None.")
            ends = prediction_intervals(point, errors, wanted, np.zeros((len(point), 1)))
            columns |= {f"JobDemandModel-{end}": values for end, values in ends.items()}
        factor = self.bin_hours_ if self.panel_.attrs.get("value") == "gpu_hours" else 1
        columns = {name: factor * values for name, values in columns.items()}
        return self.panel_.long_frame(self.panel_.future(h), columns)

    def running_jobs(self, level: Sequence[float] | float = 80) -> pd.DataFrame:
        """Jobs that hold GPUs at the origin, and how much longer they are expected to.

        Returns
        -------
        DataFrame
            See `RunTimeModel.predict_remaining`; with ``job_id``, ``user`` and ``gpus``.
        """
        check_is_fitted(self, "origin_")
        table = self.run_time_.predict_remaining(self.jobs_, self.origin_, level)
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
            See `forecast_submissions`. What a job takes is what it took, or, if networks are known to the run-time
            model, what is predicted for it.
        """
        check_is_fitted(self, "origin_")
        if self.run_time_.costs_ is not None:
            work = self.run_time_.costs_.predict(self.jobs_)["gpu_hours"].to_numpy(dtype=float)
        else:
            mean = self.run_time_.curves(self.jobs_, self.jobs_).mean()
            work = observed_gpu_hours(self.jobs_, mean)
        return forecast_submissions(self.jobs_, work, self.origin_, days=days, by=by, level=level)

    def _forecast(self, h: int) -> tuple[FloatArray, PastErrors]:
        """Point forecasts in GPUs, shape (n_series, h), and the errors of such forecasts in the past."""
        if h not in self._made:
            origins, blend = self._blend(h * self.bin_hours_)
            places = _past_places(origins)
            paths = np.stack([self._path(blend, place) for place in [*places, len(origins.hours) - 1]], axis=1)
            paths, actual = self._binned(paths), self._binned(origins.actual[:, places])
            top_down = self._top_down()
            if top_down is not None and len(places):
                paths = self._with_top_down(top_down, paths, actual, origins.hours[places] // self.bin_hours_)
            errors = actual - paths[:, :-1]
            self._made[h] = paths[:, -1], PastErrors(errors, origins.hours[places] // self.bin_hours_)
        return self._made[h]

    def _path(self, blend: Blend, place: int) -> FloatArray:
        path = blend.path(place) if self.combine else blend.base[:, place]
        return np.maximum(path, 0.0)

    def _blend(self, hours: int) -> tuple[Origins, Blend]:
        """Bottom-up and top-down forecasts at all origins, and the evidence about them."""
        fine = hours <= _FINE_HOURS and self.hourly_.size <= _MOST_CELLS
        step = 1 if fine else DAY
        origins = Origins.of(self.hourly_, hours, step, self.origin_.weekday(), self.origin_.hour)
        running, to_come = self._parts(origins)
        base, others = candidates(origins, running, to_come)
        base = np.where(origins.hours[:, None] < self._first_hour(), np.nan, base)
        return origins, Blend.of(origins, base, others)

    def _first_hour(self) -> float:
        return min(_RUN_UP * DAY, self.hourly_.shape[1] / 3)

    def _parts(self, origins: Origins) -> tuple[FloatArray, FloatArray]:
        """What jobs running at each origin are expected to hold, and what others went on to hold."""
        actual = origins.actual
        if not self.running:
            return np.zeros_like(actual), actual
        expected = np.empty_like(actual)
        # The present is foretold by all that is known; the past by what was known then, as it is what is learnt from.
        for places, model in ((slice(None, -1), self._earlier()), (slice(-1, None), self.run_time_)):
            hours = origins.hours[places]
            held = self.held_.take(np.unique(self.held_.running(hours)[0]))
            curves = model.curves(self.jobs_.iloc[held.row], self.jobs_)
            expected[:, places] = held.expected(hours, origins.h, curves)
        return expected, actual - self.held_.held(origins.hours, origins.h)

    def _earlier(self) -> RunTimeModel:
        """Run times learnt before the origins whose errors count, as far as the history allows."""
        if self._early is None:
            days = (self.origin_ - self.panel_.times[0]) / pd.Timedelta("1D")
            until = self.origin_ - pd.Timedelta(days=min(_PAST, int(days / 3)))
            log = known_at(self.jobs_, until)
            self._early = self.run_time_ if log["end"].isna().all() else clone(self.run_time_).fit(log, until=until)
        return self._early

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
        """Average with the top-down forecasts, by what had been seen of both at each origin."""
        model = clone(top_down).fit(self.panel_.long_frame(self.panel_.times, {"y": self.panel_.values}))
        present = np.append(origins, self.panel_.values.shape[1])
        other = np.maximum(model._paths(self.panel_.values, present, paths.shape[2]), 0.0)
        share = best_shares(actual - paths[:, :-1], actual - other[:, :-1], origins, self.panel_.values.shape[1])
        return paths + share[:, :, None] * (other - paths)


def _past_places(origins: Origins) -> IntArray:
    """Places of the newest past origins, whole days before the present."""
    day = origins.per_day
    places: Any = np.arange(len(origins.hours) - 1 - day, 0, -day)[:_PAST][::-1]
    return places[origins.hours[places] >= 2 * DAY]
