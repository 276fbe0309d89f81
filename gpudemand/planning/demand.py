"""`JobDemandModel`: demand from the jobs up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from gpudemand._array import BoolArray, FloatArray, IntArray, solve_each
from gpudemand._validation import InputError, check_choice, check_levels, check_number, told
from gpudemand.forecast.forecaster import check_horizon
from gpudemand.forecast.intervals import PastErrors, prediction_intervals
from gpudemand.forecast.panel import Panel, phase_mean, rolling_mean
from gpudemand.jobs.table import check_jobs, checked_as_of, seconds_since, start_times, wall_clock_seconds
from gpudemand.jobs.times import parse_timestamp
from gpudemand.planning.run_time import RunTimeModel, SurvivalCurves, person_periods
from gpudemand.usage.bins import BinnedGpuTime
from gpudemand.usage.series import series_codes

_SUBMITTED_BY = ("user", "group", "cluster", "gpu_type", "gpus")
#: e-folding time (days) of the recency weights, and oldest day.
_ARRIVALS_DECAY_DAYS = 45.0
_OLDEST_DAYS = 180


def forecast_submissions(
    jobs: pd.DataFrame,
    gpu_hours: FloatArray,
    origin: pd.Timestamp,
    *,
    days: int = 30,
    by: str | Sequence[str] = "user",
    level: float = 80,
) -> pd.DataFrame:
    """Forecast jobs and GPU-hours that will be submitted in the next days.

    Expected are the means of past days, with weights that decay with age. The interval is as wide as totals over as
    many days changed from one such period to the next, which keeps the correlation of days and the drift of the level.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table; only submissions before `origin` are read.
    gpu_hours : ndarray of shape (n_jobs,)
        GPU-hours of each job: predicted, or observed.
    origin : Timestamp
        With a zone; days are counted back from it.
    days : int, default=30
    by : str or sequence of str, default="user"
        Any of ``user``, ``group``, ``cluster``, ``gpu_type``, ``gpus``.
    level : float, default=80
        Interval level in percent.

    Returns
    -------
    DataFrame
        Index `by`; ``jobs``, ``gpu_hours_per_job``, ``gpu_hours`` (expected), ``gpu_hours-lo-80``, ``gpu_hours-hi-80``;
        sorted by ``gpu_hours``, descending.

    Examples
    --------
    >>> from gpudemand.jobs.table import as_jobs
    >>> submit = pd.date_range("2026-03-01", periods=20, freq="D", tz="UTC")
    >>> jobs = as_jobs(pd.DataFrame({"user": "ada", "submit": submit, "gpus": 1}), kind="measured")
    >>> origin = pd.Timestamp("2026-03-21", tz="UTC")
    >>> forecast_submissions(jobs, np.full(20, 3.0), origin, days=10).reset_index().round(1)
      user  jobs  gpu_hours_per_job  gpu_hours  gpu_hours-lo-80  gpu_hours-hi-80
    0  ada  10.0                3.0       30.0             30.0             30.0
    """
    days = int(check_number("days", days, 1, 3660, integer=True))
    check_number("level", level, 0, 99.9, open_low=True)
    keys = [check_choice("by", name, _SUBMITTED_BY) for name in ([by] if isinstance(by, str) else by)]
    table, work_h = check_jobs(jobs, allow_unknown=True), np.asarray(gpu_hours, dtype=float)
    index, count, work = _by_day(table, keys, work_h, parse_timestamp(origin, name="origin"))
    weight = np.exp(-np.arange(count.shape[1]) / _ARRIVALS_DECAY_DAYS)
    weight /= weight.sum()
    reach = np.quantile(_changes(work, days), level / 100, axis=1)
    expected, total = days * (count @ weight), days * (work @ weight)
    each = np.divide(total, expected, out=np.zeros_like(total), where=expected > 0)
    columns = {"jobs": expected, "gpu_hours_per_job": each, "gpu_hours": total}
    ends = {f"gpu_hours-lo-{level:g}": np.maximum(total - reach, 0.0), f"gpu_hours-hi-{level:g}": total + reach}
    return pd.DataFrame(columns | ends, index=index).sort_values("gpu_hours", ascending=False, kind="stable")


def _changes(work: FloatArray, days: int) -> FloatArray:
    """Absolute changes of totals over `days` from one such period to the next, shape (n_groups, n_changes).

    In a history of less than two periods they are those of shorter ones, as if the level stayed changed for longer.
    """
    length = min(days, max(work.shape[1] // 2, 1))
    sums = np.cumsum(np.pad(work, ((0, 0), (1, 0))), axis=1)
    totals = sums[:, length:] - sums[:, :-length]
    changes = totals[:, :-length] - totals[:, length:] if totals.shape[1] > length else totals
    return np.abs(changes) * days / length


def _by_day(
    jobs: pd.DataFrame, keys: list[str], gpu_hours: FloatArray, origin: pd.Timestamp
) -> tuple[pd.Index, FloatArray, FloatArray]:
    """Groups, and by group and day back from the origin: number of jobs and their GPU-hours."""
    back = np.ceil((origin - jobs["submit"]) / pd.Timedelta("1D")).to_numpy(dtype=float) - 1
    past = (jobs["submit"] < origin).to_numpy() & (back < _OLDEST_DAYS) & np.isfinite(gpu_hours)
    if not past.any():
        raise InputError(f"no job was submitted before {origin}; choose a later origin.")
    groups = jobs.loc[past, keys].fillna({key: "unknown" for key in keys if key != "gpus"}).groupby(keys, sort=False)
    n_days = int(back[past].max()) + 1
    cell = groups.ngroup().to_numpy() * n_days + back[past].astype(int)
    count, work = (
        np.bincount(cell, weights, minlength=groups.ngroups * n_days).reshape(-1, n_days).astype(float)
        for weights in (None, gpu_hours[past])
    )
    return groups.size().index, count, work


def observed_gpu_hours(jobs: pd.DataFrame, curves: SurvivalCurves, until: pd.Timestamp) -> FloatArray:
    """Observed GPU-hours of ended jobs, and those expected of the others by how long they have run, shape (n_jobs,)."""
    begun = start_times(jobs)
    run_s = seconds_since(jobs["end"], begun)
    elapsed_s = np.nan_to_num(np.maximum(-seconds_since(begun, until), 0.0))
    expected_s = elapsed_s + curves.mean(elapsed_s)
    return np.where(np.isfinite(run_s), run_s, expected_s) / 3600 * jobs["gpus"].to_numpy(dtype=float)


DAY_H, WEEK_H = 24, 168
#: Days of arrivals that are averaged, beyond the horizon.
_WINDOW_DAYS = 56
#: e-folding time (days) of the recency weights.
_ERRORS_DECAY_DAYS = 21.0
#: Weight of an earlier day with the same weekday, of the same kind (workday or weekend), or of the other kind.
_SAME_WEEKDAY, _SAME_KIND, _OTHER_KIND = 2.0, 1.0, 0.15


@dataclass(frozen=True)
class RollingOrigins:
    """Origins a fixed step apart, in phase with the end of a history, and the paths that followed them.

    `y`: shape (n_series, n_hours); GPUs held. `hours`: shape (n_origins,); ascending; the last one is `n_hours`, the
    end of the history. `weekday`: shape (n_origins,); monday is 0. `h`: horizon in hours.
    """

    y: FloatArray
    hours: IntArray
    weekday: IntArray
    h: int

    @classmethod
    def from_end(cls, y: FloatArray, h: int, step: int, last_weekday: int, last_hour: int) -> RollingOrigins:
        """Origins every `step` hours (a divisor of 24) back from the end, which has a given weekday and hour."""
        n_hours = y.shape[1]
        hours = np.arange(n_hours, 0, -step)[::-1]
        weekday = (last_weekday + (last_hour + hours - n_hours) // DAY_H) % 7
        return cls(y, hours, weekday, h)

    @property
    def per_day(self) -> int:
        """Origins in a day."""
        return DAY_H // int(self.hours[-1] - self.hours[-2]) if len(self.hours) > 1 else 1

    @property
    def actual(self) -> FloatArray:
        """Path after each origin, shape (n_series, n_origins, h); NaN beyond the end of the history."""
        padded = np.hstack([self.y, np.full((len(self.y), self.h), np.nan)])
        return padded[:, self.hours[:, None] + np.arange(self.h)]

    def seasonal_naive(self, season: int) -> FloatArray:
        """Newest known value of the same phase, shape as `actual`; NaN where there is none."""
        return self._at(self.y, self.hours[:, None] - season + np.arange(self.h) % season)

    def trailing_mean(self, hours: int) -> FloatArray:
        """Mean of the newest hours before each origin, shape (n_series, n_origins, 1)."""
        return rolling_mean(self.y, hours)[:, self.hours - 1, None]

    def daily_profile(self, days: int) -> FloatArray:
        """Mean of each hour of the newest days, shape (n_series, n_origins, 24); hour 0 is the one after the origin."""
        return self._at(phase_mean(self.y, DAY_H, days), self.hours[:, None] - DAY_H + np.arange(DAY_H))

    def tile_daily(self, profile: FloatArray) -> FloatArray:
        """Repeat a profile of 24 hours over the horizon, shape as `actual`."""
        return profile[:, :, np.arange(self.h) % DAY_H]

    def weighted_mean(self, paths: FloatArray, *, weeks: int | None = None) -> FloatArray:
        """Mean of the paths after earlier origins at the same hour of the day, weighted by recency and weekday.

        Uses hours known at the origin only, shape as `actual`; NaN where there are none. With `weeks`, uses the same
        weekday of so many weeks only.
        """
        total, weight = np.zeros_like(paths), np.zeros(paths.shape[1:])
        values = np.nan_to_num(paths)
        horizon_days = -(-self.h // DAY_H)
        days = range(1, horizon_days + _WINDOW_DAYS) if weeks is None else range(7, horizon_days + 7 * weeks + 1, 7)
        for day in days:
            shift = day * self.per_day
            if shift >= paths.shape[1]:
                break
            share = self._weight(day, shift)[:, None] * self._known(day, weeks)
            total[:, shift:] += share * values[:, :-shift]
            weight[shift:] += share
        return np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0)

    def _weight(self, day: int, shift: int) -> FloatArray:
        now, then = self.weekday[shift:], self.weekday[:-shift]
        kind = np.where((now >= 5) == (then >= 5), _SAME_KIND, _OTHER_KIND)
        return np.exp(-day / _ERRORS_DECAY_DAYS) * np.where(now == then, _SAME_WEEKDAY, kind)

    def _known(self, day: int, weeks: int | None) -> BoolArray:
        """Hours ahead at which a path that began `day` days earlier is known at the origin and inside the window."""
        ahead = np.arange(self.h)
        known = ahead < DAY_H * day
        return known if weeks is None else known & (ahead >= DAY_H * (day - 7 * weeks))

    @staticmethod
    def _at(values: FloatArray, hour: IntArray) -> FloatArray:
        return np.where(hour >= 0, values[:, np.maximum(hour, 0)], np.nan)


_HOUR_US = 3_600_000_000


def whole_hours(panel: Panel) -> int:
    """Width of a bin in hours; raises if it is not 1 to 24 whole hours that divide a day."""
    hours = (panel.future(1)[0] - panel.times[-1]).round("h") / pd.Timedelta("1h")
    if isinstance(panel.freq, pd.offsets.Day) and panel.freq.n == 1:
        return DAY_H
    if hours != int(hours) or hours < 1 or DAY_H % hours:
        raise InputError(f"bins of {panel.freq.freqstr!r} are not 1 to 24 whole hours; use freq='h' or 'D'.")
    return int(hours)


#: How far usage that does not say what it holds may be from what the jobs held, as telemetry is, in how many bins.
_TOLERANCE, _MOST = 0.2, 2 / 3


def usage_value(panel: Panel, held: FloatArray, bin_hours: int) -> str:
    """What usage holds: ``gpus``, ``gpu_hours`` or ``wanted``, as its ``attrs`` say or by its ratio to `held`.

    `held`: GPUs held according to the log, as the values of `panel`. The ratio counts if most bins have it: numbers of
    jobs are near one of GPUs only by chance.
    """
    cure = "make it with usage_series(jobs, value='gpus')"
    if said := panel.attrs.get("value"):
        if said not in ("gpus", "gpu_hours", "wanted"):
            raise InputError(f"usage holds {said!r} (its attrs['value']), and not GPUs or GPU-hours; {cure}.")
        return str(said)
    y, gpus = np.nansum(panel.values, axis=0), np.where(np.isnan(panel.values), 0.0, held).sum(axis=0)
    busy = gpus > 0
    if not busy.any() and not y.any():
        return "gpus"
    ratio = y[busy] / gpus[busy] if busy.any() else np.array([np.inf])
    for value, expected in {"gpus": 1, "gpu_hours": bin_hours}.items():
        if (np.abs(ratio - expected) <= _TOLERANCE * expected).mean() >= _MOST:
            return value
    raise InputError(
        f"usage does not say what it holds, and is {np.median(ratio):.3g} times the GPUs that the jobs held; "
        f"{cure}, or say it: usage.attrs['value'] = 'gpus', 'gpu_hours' or 'wanted'."
    )


@dataclass(frozen=True)
class HeldJobs:
    """Intervals in which jobs hold GPUs, in hours.

    `row`: shape (n_jobs,); row of each job in its log. `begin`, `end`: shape (n_jobs,); hours of local time since the
    start of the panel; `end` is infinite while a job runs. `gpus`: shape (n_jobs,). `series`: shape (n_jobs,); index
    of the series that each job belongs to.
    """

    row: IntArray
    begin: FloatArray
    end: FloatArray
    gpus: FloatArray
    series: IntArray
    n_series: int

    @classmethod
    def from_log(cls, jobs: pd.DataFrame, panel: Panel, tz: object) -> HeldJobs:
        """Jobs that hold GPUs in the time of a panel `on_local_clock` of a zone and belong to one of its series."""
        first = (panel.times[0].tz_localize(None) - pd.Timestamp(0)) / pd.Timedelta("1h")
        begin, end = (wall_clock_seconds(times, tz) / 3600 - first for times in (start_times(jobs), jobs["end"]))
        end = np.where(jobs["end"].isna(), np.inf, end)
        series, gpus = series_codes(jobs, list(panel.ids)), jobs["gpus"].to_numpy(dtype=float)
        row = np.flatnonzero((begin < end) & (end > 0) & (series >= 0) & (gpus > 0))
        return cls(row, begin[row], end[row], gpus[row], series[row], len(panel.ids))

    def at(self, origins: IntArray, h: int) -> tuple[HeldJobs, FloatArray]:
        """Jobs that run at an origin, and their ages (s) at their first origin and `h` hours after their last."""
        job, place = self.running(origins)
        which, first = np.unique(job, return_index=True)
        last = np.append(first[1:], job.size)[: which.size] - 1
        row, begin, end = self.row[which], self.begin[which], self.end[which]
        held = HeldJobs(row, begin, end, self.gpus[which], self.series[which], self.n_series)
        ages = [origins[place[first]] - begin, origins[place[last]] + h - begin]
        return held, 3600.0 * np.column_stack(ages)

    def by_hour(self, n_hours: int) -> FloatArray:
        """GPUs held by hour, shape (n_series, n_hours)."""
        total = BinnedGpuTime(np.arange(n_hours + 1, dtype=np.int64) * _HOUR_US, self.n_series)
        begin, end = (np.clip(hours, 0, n_hours) * _HOUR_US for hours in (self.begin, self.end))
        total.add(self.series, begin.round().astype(np.int64), end.round().astype(np.int64), self.gpus)
        return total.gpu_hours()

    def running(self, origins: IntArray) -> tuple[IntArray, IntArray]:
        """Job and position of the origin, for every job that runs at an origin (ascending hours)."""
        first = np.searchsorted(origins, self.begin, side="right")
        job, step = person_periods(np.maximum(np.searchsorted(origins, self.end, side="left") - first, 0))
        return job, first[job] + step

    def held(self, origins: IntArray, h: int) -> FloatArray:
        """GPUs held after each origin by the jobs running at it, shape (n_series, n_origins, h).

        Hours beyond the end of the log are correct only for jobs that had ended by then.
        """
        job, place = self.running(origins)
        remaining = self.end[job] - origins[place]
        shares = (np.clip(remaining - step, 0, 1) for step in range(h))
        return self._sum(job, place, shares, len(origins), h)

    def expected(self, origins: IntArray, h: int, curves: SurvivalCurves) -> FloatArray:
        """Expected GPUs held after each origin by the jobs running at it, given each job's survival curve."""
        job, place = self.running(origins)
        age = 3600.0 * (origins[place] - self.begin[job])
        before = curves.hazard_until(job, age)

        def shares() -> Iterator[FloatArray]:
            """Yield, hour by hour, the share of the hour that each job is expected to run (trapezoidal rule)."""
            alive = np.ones(len(job))
            for step in range(h):
                then = np.exp(before - curves.hazard_until(job, age + 3600.0 * (step + 1)))
                yield (alive + then) / 2
                alive = then

        return self._sum(job, place, shares(), len(origins), h)

    def _sum(self, job: IntArray, place: IntArray, shares: Iterator[FloatArray], n_origins: int, h: int) -> FloatArray:
        """GPUs of the pairs of job and origin, times the share of each hour, by series and origin."""
        cell = self.series[job] * n_origins + place
        gpus = self.gpus[job]
        held = np.empty((self.n_series * n_origins, h))
        for step, share in enumerate(shares):
            held[:, step] = np.bincount(cell, gpus * share, minlength=len(held))
        return held.reshape(self.n_series, n_origins, h)


#: Ridge penalty relative to the mean diagonal of the Gram matrix.
_PENALTY = 0.1
#: Days in the training window.
TRAINING_DAYS = 120


@dataclass(frozen=True)
class RidgeCorrection:
    """Ridge regression, by hour ahead, of the residuals of a forecast on its differences from other forecasts.

    Trained at every origin on the errors known at it, pooled over series in units of their mean level. `gram` and
    `cross`, the products of the differences with one another and with the residuals, are cumulative over origins, so
    that one pass gives the coefficients at all of them.

    `base`: shape (n_series, n_origins, h). `differences`: shape (n_series, n_origins, h, m). `gram`: shape (n_origins
    + 1, h, m, m). `cross`: shape (n_origins + 1, h, m).
    """

    origins: RollingOrigins
    base: FloatArray
    differences: FloatArray
    gram: FloatArray
    cross: FloatArray

    @classmethod
    def fit(cls, origins: RollingOrigins, base: FloatArray, others: list[FloatArray]) -> RidgeCorrection:
        """Accumulate the regressions over all origins; where another forecast is NaN it equals the base."""
        differences = np.nan_to_num(np.stack([np.broadcast_to(other, base.shape) - base for other in others], axis=-1))
        level = np.maximum(np.abs(origins.y).mean(axis=1), 1e-9)[:, None, None]
        residual = (origins.actual - base) / level
        known = np.isfinite(residual)
        rows = np.where(known[..., None], differences / level[..., None], 0.0)
        gram = np.einsum("sokm,sokn->okmn", rows, rows, optimize=True)
        cross = np.einsum("sokm,sok->okm", rows, np.where(known, residual, 0.0), optimize=True)
        return cls(origins, base, differences, _cumulative(gram), _cumulative(cross))

    def coefficients(self, place: int) -> FloatArray:
        """Coefficients by hour ahead, shape (h, m), from the errors known at the origin at `place`."""
        ahead, per_day = np.arange(self.origins.h), self.origins.per_day
        # Origins in the window whose hour ahead is known.
        last = np.maximum(place - ahead // (DAY_H // per_day), 0)
        first = np.maximum(last - TRAINING_DAYS * per_day, 0)
        gram, cross = (sums[last, ahead] - sums[first, ahead] for sums in (self.gram, self.cross))
        m = cross.shape[-1]
        ridge = _PENALTY * np.trace(gram, axis1=1, axis2=2) / m + 1e-12
        return solve_each(gram + ridge[:, None, None] * np.eye(m), cross)

    def predict(self, place: int) -> FloatArray:
        """Corrected forecast at the origin at `place`, shape (n_series, h)."""
        correction = (self.differences[:, place] * self.coefficients(place)).sum(axis=-1)
        return np.asarray(self.base[:, place] + correction)


def _cumulative(values: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])


#: Days in the daily profile, and weeks in the mean of the same weekday.
_PROFILE_DAYS, _WEEKS = 28, 4


def component_forecasts(
    origins: RollingOrigins, running: FloatArray, arrivals: FloatArray
) -> tuple[FloatArray, list[FloatArray]]:
    """Bottom-up forecast, and the other forecasts that correct it.

    The bottom-up forecast is the expected GPUs of `running` jobs plus the weighted mean of the `arrivals` after earlier
    origins, or the seasonally adjusted naive forecast where there are none. The others are: the same with arrivals of
    the same weekday only; seasonally adjusted naive; daily profile; naive; mean of the last day; daily and weekly
    seasonal naive. All have shape (n_series, n_origins, h).
    """
    naive, profile = origins.seasonal_naive(1)[:, :, :1], origins.daily_profile(_PROFILE_DAYS)
    adjusted = naive + origins.tile_daily(profile - profile[:, :, -1:])
    adjusted = np.where(np.isnan(adjusted), naive, adjusted)
    base = running + origins.weighted_mean(arrivals)
    weekly = running + origins.weighted_mean(arrivals, weeks=_WEEKS)
    seasonal = [origins.trailing_mean(DAY_H), origins.seasonal_naive(DAY_H), origins.seasonal_naive(WEEK_H)]
    others = [weekly, adjusted, origins.tile_daily(profile), naive, *seasonal]
    return np.where(np.isnan(base), adjusted, base), others


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
    profile) with ridge regressions by hour ahead, trained at all earlier origins.

    Parameters
    ----------
    run_time : RunTimeModel, optional
        Run-time model; by default one on the request, the clock, and the history of users and groups, in the zone of
        the usage.
    running : bool, default=True
        Whether to model running jobs separately. Without it all jobs count as arrivals, an ablation.
    combine : bool, default=True
        Whether to correct the sum by top-down forecasts. Without it only jobs count.

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
        run_time: RunTimeModel | None = None,
        running: bool = True,
        combine: bool = True,
    ) -> None:
        self.run_time = run_time
        self.running = running
        self.combine = combine

    @told("Fitting {}")
    def fit(self, jobs: pd.DataFrame, usage: pd.DataFrame, freq: object = None) -> JobDemandModel:
        """Fit to a log and its usage; the forecast starts where the usage ends.

        Parameters
        ----------
        jobs : DataFrame
            Canonical job table. Anything after the end of the usage is ignored.
        usage : DataFrame
            ``unique_id``, ``ds``, ``y`` in whole hours or days, as a total or by GPU type, group, user or paths of
            these: GPUs held or wanted, or GPU-hours, as ``attrs["value"]`` says or else the GPUs that the jobs held.
        freq : str or offset, optional
            Width of a bin; inferred when not given.

        Raises
        ------
        InputError
            If the times have no zone, bins are no whole hours, the series are not those of the log, or usage is
            something else, such as numbers of jobs.

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
        held = self.held_.by_hour(self.bin_hours_ * len(self.local_.times))
        self.hourly_ = np.nan_to_num(self.local_.values) if self.bin_hours_ == 1 else held
        self.panel_.attrs["value"] = usage_value(self.local_, self._binned(held), self.bin_hours_)
        model = self.run_time or RunTimeModel(times.tz, history_keys=("group", "user"), max_rows=_ROWS, max_iter=_TREES)
        self.run_time_ = clone(model).fit(self.jobs_, until=self._run_times_until())
        self._forecasts: dict[int, tuple[FloatArray, PastErrors]] = {}
        return self

    @told("Forecasting with {}")
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
        h = check_horizon(h, len(self.panel_.times))
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
            self._forecasts[h] = paths[:, -1], PastErrors(actual - paths[:, :-1], bins)
        return self._forecasts[h]

    def _path(self, correction: RidgeCorrection, place: int) -> FloatArray:
        return np.maximum(correction.predict(place) if self.combine else correction.base[:, place], 0.0)

    def _correction(self, hours: int) -> tuple[RollingOrigins, RidgeCorrection]:
        """Origins, and the bottom-up forecasts at them with their correction by top-down ones."""
        hourly = hours <= _MAX_HOURLY_HORIZON and self.hourly_.size <= _MAX_CELLS
        step = 1 if hourly else DAY_H
        origins = RollingOrigins.from_end(self.hourly_, hours, step, self.origin_.weekday(), self.origin_.hour)
        # No correction reads an older origin.
        oldest = origins.hours[-1] - hours - DAY_H * (_N_ORIGINS + TRAINING_DAYS + 1)
        old = origins.hours < max(min(_MIN_TRAIN_DAYS * DAY_H, self.hourly_.shape[1] / 3), oldest)
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


def _backtest_places(origins: RollingOrigins) -> IntArray:
    """Places of the newest earlier origins, whole days before the end."""
    day = origins.per_day
    places = np.arange(len(origins.hours) - 1 - day, 0, -day, dtype=np.int64)[:_N_ORIGINS][::-1]
    return places[origins.hours[places] >= 2 * DAY_H]
