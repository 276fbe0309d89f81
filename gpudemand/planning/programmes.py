"""`Programme` and `Serving`: work to come that is in no log yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from scipy.stats import norm

from gpudemand._array import STRING, FloatArray
from gpudemand._validation import InputError, check_number, shorten
from gpudemand.jobs.times import parse_timestamp
from gpudemand.metrics import check_forecast, interval_columns
from gpudemand.planning.capacity import bin_hours, check_steps
from gpudemand.planning.quantiles import Z95, pick_model
from gpudemand.planning.training_run_time import CostPredictor
from gpudemand.units import DAY


@runtime_checkable
class PlannedWork(Protocol):
    """Work to come that is in no log yet: a `Programme` or a `Serving`."""

    @property
    def name(self) -> str:
        """What it is called as a part of the demand."""

    @property
    def gpu_type(self) -> str | None:
        """Type of GPU that it runs on; of any if it is None."""

    @property
    def period(self) -> tuple[pd.Timestamp, pd.Timestamp]:
        """Start and end, in UTC."""

    def gpus_range(self, ds: pd.Series, *, peak: bool = False) -> tuple[FloatArray, FloatArray, FloatArray]:
        """GPUs in each bin, their mean or their peak, and the bounds of their 90 % interval."""

    def jobs(self, deviation: float = 0.0) -> pd.DataFrame:
        """The work as jobs, if it takes so many standard deviations more than expected."""


class JobOnGpus(Protocol):
    """A job whose costs can be predicted, such as a `TrainingJob`; planning needs no more of it."""

    @property
    def n_gpus(self) -> int:
        """GPUs that it runs on."""


class RunHours(NamedTuple):
    """Hours of one run, and the bounds of its 90 % interval."""

    hours: float
    low: float
    high: float


@dataclass(frozen=True)
class Programme:
    """Runs to come between two dates, evenly spread: of a training job whose cost is predicted, or of known length.

    Parameters
    ----------
    name : str
    runs : int
        Number of runs.
    start, end : str or Timestamp
        First submission, and end of the last; UTC where no zone is stated.
    job : TrainingJob, optional
        What a run trains; its time comes from a `CostModel`.
    steps : float, optional
        Steps of a run; with `job`.
    hours, gpus : float, optional
        Time and GPUs of a run, instead of `job` and `steps`.
    user, group : str, optional
        Who runs it.
    gpu_type : str, optional
        Type that it runs on, as the log names it: plans by type count it there. By default it is spread like the rest.
    costs : CostModel, optional
        The bundled one by default.
    ratio : (float, float, float), optional
        Observed over predicted time of a run, and the bounds of its 90 % interval, as `run_time_ratios` gives them; the
        predicted time of its steps alone is multiplied by it. By default steps take as long as in public training
        scripts (`CostModel.predict` with ``training_script``). With `job`.

    Raises
    ------
    InputError
        For numbers out of range, an end before the start or less than a run after it, and neither or both ways to state
        a run.

    Examples
    --------
    >>> tuning = Programme("tuning", 60, "2026-03-01", "2026-04-01", hours=12, gpus=8)
    >>> tuning.gpu_hours
    5760.0
    >>> ds = pd.Series(pd.date_range("2026-02-27", periods=4, tz="UTC"))
    >>> tuning.mean_gpus(ds).round(2).tolist()
    [0.0, 0.0, 7.74, 7.74]
    """

    name: str
    runs: int
    start: Any
    end: Any
    _: KW_ONLY
    job: JobOnGpus | None = None
    steps: float | None = None
    hours: float | None = None
    gpus: float | None = None
    user: str | None = None
    group: str | None = None
    gpu_type: str | None = None
    costs: CostPredictor | None = None
    ratio: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        check_number(f"runs of {self.name!r}", self.runs, 1, integer=True)
        if self.job is None:
            if self.hours is None or self.gpus is None or self.steps is not None:
                raise InputError(f"programme {self.name!r} needs job= and steps=, or hours= and gpus= of a run.")
            check_number(f"hours of {self.name!r}", self.hours, 0, open_low=True)
            check_number(f"gpus of {self.name!r}", self.gpus, 0, open_low=True)
        elif self.hours is not None or self.gpus is not None or self.steps is None:
            raise InputError(f"programme {self.name!r} has a job, so it needs steps= and neither hours= nor gpus=.")
        else:
            check_number(f"steps of {self.name!r}", self.steps, 0, open_low=True)
        if self.ratio is not None and (self.job is None or not 0 < self.ratio[1] <= self.ratio[0] <= self.ratio[2]):
            raise InputError(f"ratio of {self.name!r} must be (ratio, low, high), ascending from low, with a job.")
        if self.period[1] <= self.period[0]:
            raise InputError(f"programme {self.name!r} ends ({self.end}) before it starts ({self.start}).")
        if self.job is None:
            self._check_run(float(self.hours or 0.0))

    def _check_run(self, hours: float) -> None:
        length = (self.period[1] - self.period[0]).total_seconds() / 3600
        if hours > length:
            raise InputError(
                f"a run of programme {self.name!r} takes {hours:.4g} h, more than the {length:.4g} h from its start to "
                "its end; give a later end."
            )

    @cached_property
    def period(self) -> tuple[pd.Timestamp, pd.Timestamp]:
        """Start and end, in UTC."""
        return _utc(self.start), _utc(self.end)

    @cached_property
    def run(self) -> RunHours:
        """Time of one run, predicted where it was not stated."""
        if self.job is None:
            hours = float(self.hours or 0.0)
            return RunHours(hours, hours, hours)
        row: Any = (self.costs or _bundled_costs()).predict(self.job, training_script=self.ratio is None).iloc[0]
        names = ("step_time_s", "step_time_s-lo-90", "step_time_s-hi-90")
        predicted = RunHours._make(float(row[name]) * float(self.steps or 0.0) / 3600 for name in names)
        corrected = predicted if self.ratio is None else _product(predicted, RunHours._make(self.ratio))
        self._check_run(corrected.hours)
        return corrected

    @property
    def run_gpus(self) -> float:
        """GPUs of one run."""
        return float(self.gpus or 0.0) if self.job is None else float(self.job.n_gpus)

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of all runs."""
        return self.runs * self.run_gpus * self.run.hours

    def mean_gpus(self, ds: pd.Series) -> FloatArray:
        """Mean GPUs that the programme wants in each bin, shape (n_bins,).

        Parameters
        ----------
        ds : Series of datetime
            Starts of bins, ascending, with a zone.
        """
        (begin, end), (start, stop) = self.period, _bins(ds)
        shared = np.minimum(stop, end) - np.maximum(start, begin)
        share = np.maximum(shared.total_seconds(), 0.0) / (stop - start).total_seconds()
        return np.asarray(share * self.gpu_hours / ((end - begin).total_seconds() / 3600))

    def gpus_range(self, ds: pd.Series, *, peak: bool = False) -> tuple[FloatArray, FloatArray, FloatArray]:
        """GPUs in each bin (evenly spread, so the peak is the mean), and the bounds of their 90 % interval."""
        gpus, run = self.mean_gpus(ds), self.run
        return gpus, gpus * run.low / run.hours, gpus * run.high / run.hours

    def jobs(self, deviation: float = 0.0, *, random_state: int = 0) -> pd.DataFrame:
        """The runs as jobs that start when they are submitted, at random times of the period.

        Parameters
        ----------
        deviation : float, default=0.0
            Standard deviations, of the logarithm, that a run takes longer than predicted.
        random_state : int, default=0

        Returns
        -------
        DataFrame
            ``user``, ``group``, ``submit``, ``start``, ``end``, ``gpus``.
        """
        begin, end = self.period
        bound = self.run.high if deviation > 0 else self.run.low
        hours = self.run.hours * (bound / self.run.hours) ** (abs(deviation) / Z95)
        last = max((end - begin).total_seconds() - 3600 * hours, 0.0)
        at = np.sort(np.random.default_rng(random_state).uniform(0, last, self.runs))
        submit = begin + pd.to_timedelta(at, "s").round("s")
        run = pd.Timedelta(hours=hours)
        columns = {"user": self.user or self.name, "group": self.group or self.name, "submit": submit, "start": submit}
        return pd.DataFrame({**columns, "end": submit + run, "gpus": self.run_gpus})


def _bundled_costs() -> CostPredictor:
    """The bundled `CostModel`; only a job to predict needs the code of costs."""
    from gpudemand.cost.model import CostModel

    return CostModel.load()


def check_planned(programmes: object) -> tuple[PlannedWork, ...]:
    """Programmes and serving, each with a name of its own; raises for anything else."""
    if not isinstance(programmes, Sequence) or not all(isinstance(work, PlannedWork) for work in programmes):
        raise InputError(f"programmes must be a list of Programme or Serving; got {shorten(repr(programmes))}.")
    names = [work.name for work in programmes]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"two programmes are called {twice[0]!r}; give each a name of its own.")
    return tuple(programmes)


def _product(first: RunHours, second: RunHours) -> RunHours:
    """Product of two independent positive numbers with intervals; logarithms of their errors add in quadrature."""
    low, high = (np.hypot(*(np.log(value[side] / value.hours) for value in (first, second))) for side in (1, 2))
    hours = first.hours * second.hours
    return RunHours(hours, float(hours * np.exp(-low)), float(hours * np.exp(high)))


def add_programmes(
    forecast: pd.DataFrame, programmes: Sequence[PlannedWork], series: str, *, peak: bool = False
) -> pd.DataFrame:
    """Add programmes and serving to the forecast of a series; errors of theirs are independent of the forecast's.

    `forecast`: ``unique_id``, ``ds`` and one model's point and interval columns: GPUs. `series`: the ``unique_id``
    that they add to. `peak`: whether the series are peaks of the bins, not means. Returns like `forecast`.

    >>> ds = pd.date_range("2026-03-01", periods=2, tz="UTC")
    >>> forecast = pd.DataFrame({"unique_id": "all", "ds": ds, "M": 9.0, "M-lo-90": 8.0, "M-hi-90": 10.0})
    >>> more = Programme("new", 48, "2026-03-01", "2026-03-03", hours=1, gpus=2)
    >>> add_programmes(forecast, [more], "all")[["M", "M-lo-90", "M-hi-90"]].values.tolist()
    [[11.0, 10.0, 12.0], [11.0, 10.0, 12.0]]
    """
    forecast = check_forecast(forecast)
    model = pick_model(forecast, None)
    points, intervals = {model, f"{model}-mean"} & {*forecast.columns}, interval_columns(forecast, model)
    forecast = forecast.astype(dict.fromkeys([*points, *chain.from_iterable(intervals.values())], float))
    rows = forecast["unique_id"] == series
    point = forecast.loc[rows, model]
    added, variance = np.zeros(int(rows.sum())), np.zeros(int(rows.sum()))
    for programme in programmes:
        gpus, low, high = programme.gpus_range(forecast.loc[rows, "ds"], peak=peak)
        added += gpus
        variance += ((high - low) / (2 * Z95)) ** 2
    for level, bounds in intervals.items():
        reach = norm.ppf(0.5 + level / 200) ** 2 * variance
        for name, sign in zip(bounds, (-1.0, 1.0), strict=True):
            width = np.sqrt((forecast.loc[rows, name] - point) ** 2 + reach)
            forecast.loc[rows, name] = point + added + sign * width
    for name in points:
        forecast.loc[rows, name] += added
    return forecast


def add_programmes_by_type(rows: pd.DataFrame, programmes: Sequence[PlannedWork], *, peak: bool) -> pd.DataFrame:
    """Add each work to the series of its GPU type, also where the log has no such type.

    `rows`: ``unique_id`` (the type), ``ds`` and the columns of one model. `programmes`: each with a ``gpu_type``.

    >>> ds = pd.date_range("2026-03-01", periods=2, tz="UTC")
    >>> rows = pd.DataFrame({"unique_id": "A100", "ds": ds, "M": 9.0})
    >>> more = Programme("new", 48, "2026-03-01", "2026-03-03", hours=1, gpus=2, gpu_type="H100")
    >>> add_programmes_by_type(rows, [more], peak=False).groupby("unique_id")["M"].sum().to_dict()
    {'A100': 18.0, 'H100': 4.0}
    """
    for programme in programmes:
        if programme.gpu_type not in set(rows["unique_id"]):
            new = rows.drop_duplicates("ds").assign(**dict.fromkeys(rows.columns.difference(["unique_id", "ds"]), 0.0))
            rows = pd.concat([rows, new.assign(unique_id=programme.gpu_type)], ignore_index=True)
        rows = add_programmes(rows, [programme], str(programme.gpu_type), peak=peak)
    return rows.astype({"unique_id": STRING})


#: What a quotient may exceed a whole number of replicas by, from rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Serving:
    """Replicas of a model that serve requests between two dates, each with a stated throughput.

    There are as many replicas as the requests take, with headroom; they follow the requests, and latency is not
    modelled: state the throughput at the latency that is wanted.

    Parameters
    ----------
    name : str
    requests_per_second : float or Series
        Mean requests; a Series has times with a zone as index, and each number holds until the next.
    start, end : str or Timestamp
        UTC where no zone is stated.
    throughput : float
        Requests a second that one replica serves.
    gpus_per_replica : float, default=1
        Parts of a GPU too.
    headroom : float, default=0.0
        Share of the requests that is kept free beyond them, for bursts and for replicas that fail.
    min_replicas : int, default=1
        Also without requests.
    spread : float in [0, 1], default=0.0
        Half-width of the 90 % interval of requests over throughput, relative to it.
    user, group : str, optional
        Who serves.
    gpu_type : str, optional
        Type that it runs on, as for `Programme`.

    Raises
    ------
    InputError
        For numbers out of range, a Series without zoned times, or an end before the start.

    Examples
    --------
    >>> day = pd.date_range("2026-03-02", periods=3, freq="12h", tz="UTC")
    >>> chat = Serving("chat", pd.Series([20.0, 90.0, 20.0], day), "2026-03-02", "2026-03-09",
    ...                throughput=10, gpus_per_replica=2, headroom=0.2)
    >>> ds = pd.Series(pd.date_range("2026-03-01", periods=3, tz="UTC"))
    >>> chat.mean_gpus(ds).tolist(), chat.peak_gpus(ds).tolist()
    ([0.0, 14.0, 6.0], [0.0, 22.0, 6.0])
    """

    name: str
    requests_per_second: Any
    start: Any
    end: Any
    _: KW_ONLY
    throughput: float
    gpus_per_replica: float = 1.0
    headroom: float = 0.0
    min_replicas: int = 1
    spread: float = 0.0
    user: str | None = None
    group: str | None = None
    gpu_type: str | None = None

    def __post_init__(self) -> None:
        for key in ("throughput", "gpus_per_replica"):
            check_number(f"{key} of {self.name!r}", getattr(self, key), 0, open_low=True)
        check_number(f"headroom of {self.name!r}", self.headroom, 0)
        check_number(f"min_replicas of {self.name!r}", self.min_replicas, 0, integer=True)
        check_number(f"spread of {self.name!r}", self.spread, 0, 1)
        if self.period[1] <= self.period[0]:
            raise InputError(f"serving {self.name!r} ends ({self.end}) before it starts ({self.start}).")
        self.gpus()  # raises for requests that cannot be used

    @cached_property
    def period(self) -> tuple[pd.Timestamp, pd.Timestamp]:
        """Start and end, in UTC."""
        return _utc(self.start), _utc(self.end)

    @cached_property
    def _steps(self) -> pd.Series:
        """Requests a second from each time on, from the start to the end of the period."""
        begin, end = self.period
        what = f"requests_per_second of {self.name!r}"
        if not isinstance(self.requests_per_second, pd.Series):
            return pd.Series([check_number(what, self.requests_per_second, 0)], index=pd.DatetimeIndex([begin]))
        given = check_steps(what, self.requests_per_second)
        # What is in force at the start began before it; before the first step the first one holds.
        at_start = given.iloc[max(int(given.index.searchsorted(begin, side="right")) - 1, 0)]
        later = given[(given.index > begin) & (given.index < end)]
        return pd.concat([pd.Series([at_start], index=pd.DatetimeIndex([begin])), later])

    def gpus(self, factor: float = 1.0) -> pd.Series:
        """GPUs held from each time on, at so many times the requests."""
        wanted = factor * (1.0 + self.headroom) * self._steps / self.throughput
        replicas = np.maximum(np.ceil(wanted - _ROUNDING), self.min_replicas)
        return replicas * self.gpus_per_replica

    def mean_gpus(self, ds: pd.Series, factor: float = 1.0) -> FloatArray:
        """Mean GPUs held in each bin, shape (n_bins,).

        Parameters
        ----------
        ds : Series of datetime
            Starts of bins, ascending, with a zone.
        factor : float, default=1.0
            Requests over those stated.
        """
        held, (start, stop) = self.gpus(factor), _bins(ds)
        seconds = _seconds(held.index.append(pd.DatetimeIndex([self.period[1]])))
        so_far = np.r_[0.0, np.cumsum(np.diff(seconds) * held.to_numpy(dtype=float))]
        within = np.interp(_seconds(stop), seconds, so_far) - np.interp(_seconds(start), seconds, so_far)
        return np.asarray(within / (_seconds(stop) - _seconds(start)))

    def peak_gpus(self, ds: pd.Series, factor: float = 1.0) -> FloatArray:
        """Most GPUs held at a time in each bin; parameters are as of `mean_gpus`."""
        held, (start, stop) = self.gpus(factor), _bins(ds)
        ends = held.index[1:].append(pd.DatetimeIndex([self.period[1]]))
        shared = (held.index.to_numpy() < stop.to_numpy()[:, None]) & (ends.to_numpy() > start.to_numpy()[:, None])
        return np.asarray(np.where(shared, held.to_numpy(dtype=float), 0.0).max(axis=1))

    def gpus_range(self, ds: pd.Series, *, peak: bool = False) -> tuple[FloatArray, FloatArray, FloatArray]:
        """GPUs in each bin, and the bounds of their 90 % interval."""
        find = self.peak_gpus if peak else self.mean_gpus
        return find(ds), find(ds, 1.0 - self.spread), find(ds, 1.0 + self.spread)

    @property
    def gpu_hours(self) -> float:
        """GPU-hours held in all."""
        begin, end = self.period
        return float(self.mean_gpus(pd.Series([begin, end]))[0] * (end - begin).total_seconds() / 3600)

    def jobs(self, deviation: float = 0.0) -> pd.DataFrame:
        """Replicas as jobs of a day at most, which start when they are submitted.

        Parameters
        ----------
        deviation : float, default=0.0
            Standard deviations, by `spread`, that requests are more than stated.

        Returns
        -------
        DataFrame
            ``user``, ``group``, ``submit``, ``start``, ``end``, ``gpus``.
        """
        begin, end = self.period
        held = self.gpus(max(1.0 + self.spread * deviation / Z95, 0.0))
        days = pd.date_range(begin, end, freq=DAY, inclusive="left")
        every = held.reindex(held.index.union(days)).ffill()
        ends = every.index[1:].append(pd.DatetimeIndex([end]))
        replicas = (every / self.gpus_per_replica).round().to_numpy(dtype=int)
        about = {"user": self.user or self.name, "group": self.group or self.name}
        submit, stop = every.index.repeat(replicas), ends.repeat(replicas)
        times = {"submit": submit, "start": submit, "end": stop}
        return pd.DataFrame({**about, **times, "gpus": float(self.gpus_per_replica)})


def _utc(time: Any) -> pd.Timestamp:
    return parse_timestamp(time, "UTC").tz_convert("UTC")


def _bins(ds: pd.Series) -> tuple[pd.DatetimeIndex, pd.DatetimeIndex]:
    """Starts and ends of bins, in UTC."""
    start = pd.DatetimeIndex(ds).tz_convert("UTC")
    return start, start + pd.to_timedelta(bin_hours(pd.DataFrame({"ds": ds})), "h")


def _seconds(times: pd.DatetimeIndex) -> FloatArray:
    return np.asarray((times - pd.Timestamp(0, tz="UTC")).total_seconds(), dtype=float)
