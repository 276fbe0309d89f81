"""`WhatIf`: the log with more users, other GPUs, or less work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpudemand._array import FloatArray, IntArray
from gpudemand._validation import InputError, check_choice, check_columns, check_number, nearest, told
from gpudemand.datasets.devices import PRECISIONS, device
from gpudemand.jobs.table import as_of, check_jobs, seconds_since, start_times, training_steps
from gpudemand.jobs.times import parse_timestamp
from gpudemand.metrics import check_forecast, interval_columns
from gpudemand.planning.capacity import CapacityPlan, plan_utilization
from gpudemand.planning.programmes import Programme
from gpudemand.planning.quantiles import pick_model
from gpudemand.planning.training_run_time import pooled_variance, random_effects
from gpudemand.usage.series import series_codes

#: Start and end of an event that has none.
_EVER = ("2000-01-01", "2100-01-01")
_CHANGED_BY = ("user", "group", "cluster", "gpu_type", "network")


class JobCosts(Protocol):
    """Interface of a source of step times and memory, such as `CostStepTime`."""

    def costs(self, jobs: pd.DataFrame) -> pd.DataFrame:
        """``step_time_s``, ``memory_gib`` and ``fits`` of jobs."""
        ...


class NetworkCosts(JobCosts, Protocol):
    """Step times and memory of jobs whose networks are known, such as `CostStepTime`."""

    def knows(self, jobs: pd.DataFrame) -> NDArray[np.bool_]:
        """Whether it has the costs of each job."""
        ...

    def __call__(self, jobs: pd.DataFrame) -> FloatArray:
        """Seconds of one step of each job."""
        ...


def recent_workload(jobs: pd.DataFrame, origin: pd.Timestamp, days: int) -> pd.DataFrame:
    """Jobs that ran or came in the days before an origin, with the ``gpu_hours`` that they held in these days."""
    known, since = as_of(jobs, origin), origin - pd.Timedelta(days=days)
    recent = known[(known["end"].fillna(origin) > since) | (known["submit"] >= since)]
    ran = seconds_since(recent["end"].fillna(origin), start_times(recent).clip(lower=since))
    hours = np.nan_to_num(ran) / 3600 * recent["gpus"].fillna(0).to_numpy(dtype=float)
    return recent.assign(gpu_hours=hours)


class Change:
    """Base class of changes of the workload."""

    def apply(self, workload: pd.DataFrame, costs: JobCosts | None) -> pd.DataFrame:
        """Return the changed workload.

        `workload`: as returned by `recent_workload`. `costs`: step times and memory, for changes of hardware.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Growth(Change):
    """Scale the workload of all or some jobs.

    Parameters
    ----------
    factor : float
        1.2 is 20 % more.
    name : str, optional
        Name of a user, group, ...; all jobs by default.
    by : {"user", "group", "cluster", "gpu_type", "network"}, default="group"
    """

    factor: float
    name: str | None = None
    by: str = "group"

    def apply(self, workload: pd.DataFrame, costs: JobCosts | None = None) -> pd.DataFrame:
        """Return the scaled workload."""
        check_number("factor", self.factor, 0)
        selected = np.ones(len(workload), dtype=bool) if self.name is None else rows_of(workload, self.by, self.name)
        return workload.assign(gpu_hours=workload["gpu_hours"] * np.where(selected, self.factor, 1.0))


@dataclass(frozen=True)
class MoreUsers(Change):
    """Add (or remove) users like those of a group or segment.

    Parameters
    ----------
    n : int
        Number of users; negative to remove them.
    like : str
        Name of the group (or value of another column, or label of a segment if `by` is a mapping).
    by : str or mapping of str to str, default="group"
        A column, or user -> segment.
    """

    n: int
    like: str
    by: str | Mapping[str, str] = "group"

    def apply(self, workload: pd.DataFrame, costs: JobCosts | None = None) -> pd.DataFrame:
        """Return the workload with that of the group scaled by its new number of users."""
        if isinstance(self.by, str):
            selected = rows_of(workload, self.by, self.like)
        else:
            selected = _equals(
                workload["user"].map({str(k): str(v) for k, v in self.by.items()}), "segment", str(self.like)
            )
        users = workload.loc[selected, "user"].nunique()
        if users == 0:
            raise InputError(f"the log names no user of {self.like!r}, so it is not known what one more would do.")
        n = check_number("n", self.n, -users, integer=True)
        return workload.assign(gpu_hours=workload["gpu_hours"] * np.where(selected, 1 + n / users, 1.0))


@dataclass(frozen=True)
class RemoveGroup(Change):
    """Remove the workload of a user, group or other part.

    Parameters
    ----------
    name : str
    by : {"user", "group", "cluster", "gpu_type", "network"}, default="user"
    """

    name: str
    by: str = "user"

    def apply(self, workload: pd.DataFrame, costs: JobCosts | None = None) -> pd.DataFrame:
        """Return the workload without the part."""
        return workload[~rows_of(workload, self.by, self.name)]


@dataclass(frozen=True)
class Reweight(Change):
    """Change the shares of the workload at a constant total.

    Parameters
    ----------
    shares : mapping of str to float
        Name -> share of all GPU-hours; the others keep their proportions in the rest. Shares
        of all that has GPU-hours must add up to 1.
    by : {"user", "group", "cluster", "gpu_type", "network"}, default="group"
    """

    shares: Mapping[str, float]
    by: str = "group"

    def apply(self, workload: pd.DataFrame, costs: JobCosts | None = None) -> pd.DataFrame:
        """Return the workload with other shares."""
        total = sum(check_number(f"shares[{name!r}]", share, 0, 1) for name, share in self.shares.items())
        if total > 1 + 1e-9:
            raise InputError(f"the shares add up to {total:g}; they must be at most 1 together.")
        hours, out = workload["gpu_hours"].to_numpy(dtype=float), np.empty(len(workload))
        rest = np.ones(len(workload), dtype=bool)
        for name, share in self.shares.items():
            selected = rows_of(workload, self.by, name)
            cannot = f"the {self.by} {name!r} has no GPU-hours that could become a share of {share:g}; leave it out."
            out[selected] = _scaled(hours[selected], share * hours.sum(), cannot)
            rest &= ~selected
        left = 1 - total if total < 1 - 1e-9 else 0.0
        cannot = f"the shares add up to {total:g}, and nothing else has GPU-hours; make them add up to 1."
        out[rest] = _scaled(hours[rest], left * hours.sum(), cannot)
        return workload.assign(gpu_hours=out)


def _scaled(hours: FloatArray, total: float, cannot: str) -> FloatArray:
    """GPU-hours in their proportions with another sum; raises with a reason where there are none."""
    if total == 0:
        return np.zeros_like(hours)
    if not hours.any():
        raise InputError(cannot)
    return np.asarray(hours * (total / hours.sum()))


@dataclass(frozen=True)
class StepEvent(Change):
    """Add a constant number of GPUs between two dates: a deadline, a new project, maintenance.

    Parameters
    ----------
    gpus : float
        Of a forecast in `WhatIf` also less, negative.
    start, end : str or Timestamp, optional
        Open by default.
    series : str, optional
        Series to change; required if there are several. Of a study, the GPU type that is wanted.
    """

    gpus: float
    start: Any = None
    end: Any = None
    series: str | None = None

    def apply(self, workload: pd.DataFrame, costs: JobCosts | None = None) -> pd.DataFrame:
        """Return the workload unchanged: the event is added to the forecast."""
        return workload

    def added_gpus(self, forecast: pd.DataFrame) -> FloatArray:
        """Mean GPUs that the event adds to each row of a forecast."""
        ids = forecast["unique_id"].astype(str)
        names = list(ids.unique())
        if self.series is None and len(names) > 1:
            raise InputError(f"there are {len(names)} series; say which one the event adds to, with series=.")
        name = names[0] if self.series is None else check_choice("series", self.series, names)
        rows, one = (ids == name).to_numpy(), replace(self, gpus=1.0).programme(forecast["ds"].dt.tz)
        added = np.zeros(len(forecast))
        added[rows] = check_number("gpus", self.gpus) * one.mean_gpus(forecast.loc[rows, "ds"])
        return added

    def programme(self, tz: Any) -> Programme:
        """The event as work to come, of one run. `tz`: of dates without a zone."""
        given = (open_ if date is None else date for date, open_ in zip((self.start, self.end), _EVER, strict=True))
        start, end = (parse_timestamp(date, tz).tz_convert("UTC") for date in given)
        return Programme("StepEvent", 1, start, end, hours=(end - start) / pd.Timedelta("1h"), gpus=self.gpus)


def rows_of(workload: pd.DataFrame, by: str, name: str) -> Any:
    """Mask of the rows whose column `by` is `name`; raises if there is none."""
    check_choice("by", by, [column for column in _CHANGED_BY if column in workload.columns])
    return _equals(workload[by], by, name)


def _equals(values: pd.Series, what: str, name: str) -> Any:
    selected = (values == name).fillna(False).to_numpy(dtype=bool)
    if not selected.any():
        known = [str(value) for value in values.dropna().unique()]
        raise InputError(f"no recent job has the {what} {name!r}.{nearest(str(name), known)}")
    return selected


#: A change, or several that are applied in order.
Scenario = Change | Sequence[Change]


def changes_of(scenario: Scenario) -> list[Change]:
    """Changes of a scenario, in order."""
    return [scenario] if isinstance(scenario, Change) else list(scenario)


def events_of(scenario: Scenario) -> list[StepEvent]:
    """Events of a scenario, which are no change of the work that there is."""
    return [change for change in changes_of(scenario) if isinstance(change, StepEvent)]


def check_scenarios(scenarios: object) -> Mapping[str, Scenario]:
    """Return scenarios by name, each a change or several."""
    example = 'such as {"half more": Growth(1.5)}'
    if not isinstance(scenarios, Mapping):
        raise InputError(f"scenarios must be a mapping of names to changes, {example}; got {type(scenarios).__name__}.")
    for name, scenario in scenarios.items():
        listed = [scenario] if isinstance(scenario, Change) else scenario
        if not isinstance(listed, Sequence) or not all(isinstance(change, Change) for change in listed):
            raise InputError(f"the scenario {name!r} must be a change or a list of changes, {example}.")
    return scenarios


def changed_workload(scenario: Scenario, workload: pd.DataFrame, costs: JobCosts | None) -> pd.DataFrame:
    """Workload under a scenario."""
    for change in changes_of(scenario):
        workload = change.apply(workload, costs)
    return workload


#: Arguments of a plan that are no data.
_OPTIONS = [name for name in signature(plan_utilization).parameters if name not in ("forecast", "installed")]


class WhatIf:
    """Capacity plans under scenarios, from a forecast and the jobs of the weeks before it.

    A change acts on the jobs of those weeks; the ratio of GPU-hours after and before, by series, scales the forecast
    and its intervals. The seasonal pattern and the relative uncertainty of demand stay the same. The mean is planned
    for, at a target utilization; for the target that an order is for, see `Study.what_if`.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table; the GPU-hours of the `days` before the forecast count, also of jobs submitted before.
    forecast : DataFrame
        As for `plan_capacity`: the total, or series by GPU type, group, user ...
    installed : float or mapping of str to float
        GPUs installed.
    costs : object, optional
        A `CostStepTime` or `MeasuredRunTimes`: required by changes of GPU type, batch size and precision.
    days : int, default=28
    options : mapping, optional
        Other arguments of `plan_capacity`, such as ``{"lead_time": "60D"}``: ``target_utilization``,
        ``service_level``, ``lead_time``, ``unit``, ``model``, ``short_share`` and ``held``; none of plans for waits.

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster
    >>> from gpudemand.planning.scenarios import Growth, RemoveGroup
    >>> jobs, _ = make_cluster(n_users=20, n_days=60, random_state=0)
    >>> ds = pd.date_range("2026-03-01", periods=4, freq="W", tz="UTC")
    >>> forecast = pd.DataFrame({"unique_id": "total", "ds": ds, "M": 50.0, "M-lo-90": 40.0, "M-hi-90": 60.0})
    >>> what_if = WhatIf(jobs, forecast, installed=80)
    >>> less = [Growth(2.0), RemoveGroup("vision", by="group")]
    >>> what_if.compare({"base": [], "doubled": Growth(2.0), "doubled, no vision": less})["required"].tolist()
    [71.0, 142.0, 113.0]
    """

    def __init__(
        self,
        jobs: pd.DataFrame,
        forecast: pd.DataFrame,
        *,
        installed: float | Mapping[str, float],
        costs: JobCosts | None = None,
        days: int = 28,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.forecast = forecast = check_forecast(forecast)
        if getattr(forecast["ds"].dtype, "tz", None) is None:
            raise InputError("forecast['ds'] has no time zone, and jobs have; give it theirs with .dt.tz_localize.")
        self.installed = installed
        self.options = dict(options or {})
        for name in self.options:
            check_choice("option", name, _OPTIONS)
        self.costs = costs
        self.ids = [str(name) for name in forecast["unique_id"].unique()]
        self.workload = recent_workload(jobs, forecast["ds"].min(), days)
        self.base_hours = self._hours(self.workload)
        if not self.base_hours.any():
            raise InputError(f"no job of the {days} days before the forecast belongs to its series.")

    def plan(self, scenario: Scenario = ()) -> CapacityPlan:
        """Capacity plan under a scenario.

        Parameters
        ----------
        scenario : Change or sequence of Change
            Several are applied in order; none is the base case.
        """
        return plan_utilization(self.changed_forecast(scenario), installed=self.installed, **self.options)

    def changed_forecast(self, scenario: Scenario) -> pd.DataFrame:
        """Forecast under a scenario, with its intervals."""
        hours = self._hours(changed_workload(scenario, self.workload, self.costs))
        factor = np.divide(hours, self.base_hours, out=np.ones_like(hours), where=self.base_hours > 0)
        new = [
            name for name, before, after in zip(self.ids, self.base_hours, hours, strict=True) if after > before == 0
        ]
        if new:
            raise InputError(f"{new[0]!r} had no work before the forecast, so there is nothing to scale.")
        forecast, names = self.forecast.copy(), self._value_columns()
        row_factor = forecast["unique_id"].astype(str).map(dict(zip(self.ids, factor, strict=True)))
        forecast[names] = forecast[names].mul(row_factor.to_numpy(dtype=float), axis=0)
        for event in events_of(scenario):
            forecast[names] = forecast[names].add(event.added_gpus(forecast), axis=0)
        return forecast

    @told("Planning scenarios")
    def compare(self, scenarios: Mapping[str, Scenario]) -> pd.DataFrame:
        """Compare the plans of several scenarios.

        Parameters
        ----------
        scenarios : mapping of str to scenario
            Name -> a change, or several.

        Returns
        -------
        DataFrame
            A row a scenario and series: ``scenario``, ``unique_id``, then the columns of `CapacityPlan.summary`.
        """
        parts = [
            self.plan(scenario).summary.reset_index().assign(scenario=name)
            for name, scenario in check_scenarios(scenarios).items()
        ]
        table = pd.concat(parts, ignore_index=True)
        return table[["scenario", *[name for name in table.columns if name != "scenario"]]]

    def _hours(self, workload: pd.DataFrame) -> FloatArray:
        codes = series_codes(workload, self.ids)
        hours = workload["gpu_hours"].to_numpy(dtype=float)
        return np.bincount(codes[codes >= 0], hours[codes >= 0], minlength=len(self.ids)).astype(float)

    def _value_columns(self) -> list[str]:
        model = pick_model(self.forecast, self.options.get("model"))
        points = [name for name in (model, f"{model}-mean") if name in self.forecast]
        return [*points, *(name for bounds in interval_columns(self.forecast, model).values() for name in bounds)]


#: Columns that tell whether two jobs did the same work.
_WORK = ("user", "name", "network", "gpus", "batch_size", "precision", "epochs", "samples")
#: Standard deviation of the logarithm of predicted ratios: what an unmeasured GPU costs in accuracy.
_PREDICTED_SD = 0.3


class MeasuredRunTimes:
    """Run times on another GPU type, from the jobs of a log that did the same work on both.

    Work is what agrees in user, name or network, GPUs and, where the log has them, batch size, precision, epochs and
    samples. Its ratio is that of the median run times of completed jobs. Ratios are relative to the predicted ones and
    shrunk twice by their evidence, as in a random-effects meta-analysis: those of each work towards their mean, and
    that mean, which stands for all other work, towards the prediction.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table; what a log names besides (``name``, ``network``, ``batch_size`` ...) tells work apart.
    step_costs : CostStepTime, optional
        Predicts ratios of the jobs whose networks it knows, and whether memory suffices. Those of other jobs are the
        geometric means of the ratios of bandwidth and of TFLOP/s on the data sheets, and they are taken to fit.

    Notes
    -----
    Users who choose a GPU type by the length of a job bias the ratio, as far as no column tells that work apart.

    Examples
    --------
    >>> start = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(np.arange(40), "h")
    >>> hours = np.where(np.arange(40) % 2, 1.0, 2.5)
    >>> jobs = pd.DataFrame({"user": "ada", "start": start, "end": start + pd.to_timedelta(hours, "h"), "gpus": 1.0})
    >>> jobs["gpu_type"] = np.where(np.arange(40) % 2, "H100", "A100")
    >>> MeasuredRunTimes(jobs).ratios("A100", "H100").round(2).iloc[0].to_dict()
    {'jobs_before': 20.0, 'jobs_after': 20.0, 'measured': 0.4, 'predicted': 0.37, 'ratio': 0.4}
    """

    def __init__(self, jobs: pd.DataFrame, step_costs: NetworkCosts | None = None) -> None:
        self._learn(check_jobs(jobs, allow_unknown=True), step_costs)

    @classmethod
    def of_checked(cls, log: pd.DataFrame, step_costs: NetworkCosts | None = None) -> MeasuredRunTimes:
        """Those of a table that `check_jobs` returned."""
        model = cls.__new__(cls)
        model._learn(log, step_costs)
        return model

    def _learn(self, log: pd.DataFrame, step_costs: NetworkCosts | None) -> None:
        run = seconds_since(log["end"], start_times(log))
        # Jobs that failed or were cancelled say little about how long the work takes.
        done = (log["status"].fillna("completed") == "completed").to_numpy() & (run > 0)
        rows = np.flatnonzero(done & log["gpu_type"].notna().to_numpy())
        self.keys = [name for name in _WORK if name in log.columns and log[name].notna().any()]
        read = log.columns if step_costs is not None else list(dict.fromkeys([*self.keys, "gpu_type"]))
        self.log_run = pd.Series(np.log(run[rows]))
        self.types = log["gpu_type"].iloc[rows].reset_index(drop=True)
        self.works = pd.Series(_numbers(log[name].iloc[rows] for name in self.keys))
        # A job of each type stands for work that several types did; only such work has a ratio.
        pairs = pd.DataFrame({"work": self.works, "type": self.types}).drop_duplicates()
        works = pairs["work"][pairs["work"].duplicated(keep=False)]
        self.jobs = log[read].iloc[rows[works.index]].set_axis(works.array)
        self.step_costs = step_costs
        self._found: dict[tuple[str, str], pd.DataFrame] = {}

    def costs(self, jobs: pd.DataFrame) -> pd.DataFrame:
        """Step time and memory of `step_costs`, for changes other than that of the GPU type."""
        if self.step_costs is None:
            raise InputError("batch size and precision need to know the networks; give step_costs=CostStepTime(...).")
        return self.step_costs.costs(check_jobs(jobs, allow_unknown=True))

    def knows(self, jobs: pd.DataFrame) -> NDArray[np.bool_]:
        """Whether `step_costs` predicts each job, rather than data sheets, shape (n_jobs,)."""
        if self.step_costs is None:
            return np.zeros(len(jobs), dtype=bool)
        return self.step_costs.knows(check_jobs(jobs, allow_unknown=True))

    def move(self, jobs: pd.DataFrame, target: str) -> tuple[FloatArray, FloatArray]:
        """Run times on another GPU type relative to the present ones, and the chances that memory suffices.

        Parameters
        ----------
        jobs : DataFrame
        target : str
            GPU type.

        Returns
        -------
        tuple of two ndarray of shape (n_jobs,)
        """
        jobs = check_jobs(jobs, allow_unknown=True)
        ratio = np.ones(len(jobs))
        predicted, fits = self._predicted(jobs, target)
        types = jobs["gpu_type"].to_numpy(dtype=object)
        stays = types == target
        fits[stays] = 1.0
        for source in pd.unique(types[pd.notna(types) & ~stays]):
            table, rows = self.ratios(str(source), target), np.flatnonzero(types == source)
            relative = np.log(table["ratio"] / table["predicted"])
            own = self._works(jobs.iloc[rows]).map(relative).fillna(table.attrs["others"])
            ratio[rows] = predicted[rows] * np.exp(own.to_numpy(dtype=float))
        return ratio, fits

    def ratios(self, source: str, target: str) -> pd.DataFrame:
        """Ratios of run times by work that both GPU types completed.

        Returns
        -------
        DataFrame
            Index: the work; ``jobs_before``, ``jobs_after`` (completed on each type), ``measured`` (of median run
            times), ``predicted``, ``ratio`` (shrunk). ``attrs["others"]``: logarithm of the ratio over the predicted
            one for work without a row; ``attrs["error"]``: its standard deviation. Of a type and itself no rows, and 0.
        """
        if (source, target) not in self._found:
            self._found[source, target] = self._ratios(source, target)
        return self._found[source, target].copy()

    def _ratios(self, source: str, target: str) -> pd.DataFrame:
        sides = [(self.types == name).to_numpy(dtype=bool) for name in (source, target)]
        groups = [self.log_run[side].groupby(self.works[side]) for side in sides]
        count = pd.concat([side.size() for side in groups], axis=1, keys=["jobs_before", "jobs_after"]).dropna()
        count = count.iloc[: 0 if source == target else None]
        measured = (groups[1].median() - groups[0].median()).loc[count.index]
        first = self.jobs[self.jobs["gpu_type"] == source].loc[count.index]
        ratios = self._predicted(first, target)[0] if len(first) else np.empty(0)
        expected = pd.Series(np.log(ratios), count.index)
        noise = pooled_variance(groups) * np.pi / 2 * (1 / count).sum(axis=1)
        relative, others, error = _shrunk((measured - expected).to_numpy(), noise.to_numpy())
        table = count.astype(int).assign(measured=np.exp(measured), predicted=np.exp(expected))
        table["ratio"] = np.exp(expected + relative)
        table.attrs |= {"others": others, "error": error if source != target else 0.0}
        return table.set_axis(self._works(first)).sort_index()

    def _works(self, jobs: pd.DataFrame) -> pd.Series:
        """Name of the work of each job."""
        first, *others = (jobs[name].astype(object).astype(str) for name in self.keys)
        return first.str.cat(others, sep=" ") if others else first

    def _predicted(self, jobs: pd.DataFrame, target: str) -> tuple[FloatArray, FloatArray]:
        """Predicted ratio of run times, and the chance that memory suffices."""
        ratio, fits, known = _data_sheet_ratios(jobs, target), np.ones(len(jobs)), self.knows(jobs)
        if self.step_costs is not None and known.any():
            here = jobs[known]
            there = here.assign(gpu_type=pd.Series(target, index=here.index, dtype=jobs["gpu_type"].dtype))
            before, after = self.step_costs.costs(here), self.step_costs.costs(there)
            step = [table["step_time_s"].to_numpy(dtype=float) for table in (before, after)]
            ratio[known], fits[known] = step[1] / np.maximum(step[0], 1e-12), after["fits"].to_numpy(dtype=float)
        return ratio, fits


def _numbers(columns: Iterable[pd.Series]) -> IntArray:
    """Number of each combination of values, missing ones included, in the order in which they come."""
    numbers: Any = 0
    for column in columns:
        found, values = pd.factorize(column)
        numbers = pd.factorize(numbers * (len(values) + 1) + found)[0]
    return np.asarray(numbers)


def data_sheet_speed(name: str) -> float:
    """Geometric mean of the bandwidth (GB/s) and TFLOP/s in fp32 of a device."""
    return float(np.sqrt(device(name).bandwidth_gb_s * device(name).fp32_tflops))


def _data_sheet_ratios(jobs: pd.DataFrame, target: str) -> FloatArray:
    """Geometric mean of the ratios of bandwidth and of TFLOP/s in fp32; 1 for jobs without a GPU type."""
    speed = {name: data_sheet_speed(name) for name in {target, *jobs["gpu_type"].dropna().astype(str)}}
    return speed[target] ** -1 * jobs["gpu_type"].map(speed).fillna(speed[target]).to_numpy(dtype=float)


def _shrunk(value: FloatArray, noise: FloatArray) -> tuple[FloatArray, float, float]:
    """Posterior means of values with known noise around a common mean, which itself is near 0, that mean, its error."""
    if not value.size:
        return value, 0.0, _PREDICTED_SD
    effects = random_effects(value, noise)
    weight = _PREDICTED_SD**2 / (_PREDICTED_SD**2 + effects.error)
    mean = effects.mean * weight
    return effects._replace(mean=mean).shrunk(value, noise)[0], mean, float(np.sqrt(weight * effects.error))


#: Column of a workload: run times over those in the log, of jobs whose hardware was changed.
LONGER = "longer"


@dataclass(frozen=True)
class HardwareChange(Change):
    """Base class of changes that scale GPU-hours by the ratio of predicted run times."""

    def apply(self, workload: pd.DataFrame, costs: JobCosts | None) -> pd.DataFrame:
        """Return the workload with the jobs that fit changed, and the others as before."""
        if costs is None:
            raise InputError(
                f"{type(self).__name__} needs to know the networks; give WhatIf costs=CostStepTime(...), "
                "or costs=MeasuredRunTimes(jobs) to move jobs as fast as the log shows."
            )
        selected = self._affected(workload)
        if not selected.any():
            return workload
        before, after = workload[selected], self._changed(workload[selected])
        ratio, fits = self._ratio_and_fits(before, after, costs)
        # Expected workload: a job that fits with some probability is changed to that share.
        moved = after.assign(gpu_hours=before["gpu_hours"].to_numpy() * ratio * fits)
        moved[LONGER] = ratio * (before[LONGER].fillna(1.0).to_numpy() if LONGER in before else 1.0)
        stays = before.assign(gpu_hours=before["gpu_hours"].to_numpy() * (1 - fits))
        return pd.concat([workload[~selected], moved, stays[fits < 1]], ignore_index=True)

    def _ratio_and_fits(
        self, before: pd.DataFrame, after: pd.DataFrame, costs: JobCosts
    ) -> tuple[FloatArray, FloatArray]:
        """Ratio of run times after and before, and the chance that memory suffices."""
        old, new = costs.costs(before), costs.costs(after)
        ratio = (
            training_steps(after)
            * new["step_time_s"].to_numpy()
            / np.maximum(training_steps(before) * old["step_time_s"].to_numpy(), 1e-12)
        )
        return ratio, new["fits"].to_numpy(dtype=float)

    def _affected(self, workload: pd.DataFrame) -> Any:
        return np.ones(len(workload), dtype=bool)

    def _changed(self, workload: pd.DataFrame) -> pd.DataFrame:
        raise NotImplementedError


@dataclass(frozen=True)
class MoveTo(HardwareChange):
    """Move jobs to another GPU type, each with its speed-up, as far as memory fits.

    The speed-up is that of its network, or with `MeasuredRunTimes` the one that the log shows.

    Parameters
    ----------
    target : str
        GPU type, a device of `gpudemand.datasets.devices`.
    source : str, optional
        GPU type to move from; all others by default.
    """

    target: str
    source: str | None = None

    def _affected(self, workload: pd.DataFrame) -> Any:
        if self.source is None:
            return (workload["gpu_type"] != self.target).to_numpy(dtype=bool)
        return rows_of(workload, "gpu_type", self.source) & (self.source != self.target)

    def _ratio_and_fits(
        self, before: pd.DataFrame, after: pd.DataFrame, costs: JobCosts
    ) -> tuple[FloatArray, FloatArray]:
        if isinstance(costs, MeasuredRunTimes):
            return costs.move(before, self.target)
        return super()._ratio_and_fits(before, after, costs)

    def _changed(self, workload: pd.DataFrame) -> pd.DataFrame:
        return workload.assign(gpu_type=pd.Series(self.target, index=workload.index, dtype=workload["gpu_type"].dtype))


@dataclass(frozen=True)
class LargerBatch(HardwareChange):
    """Multiply batch sizes by a factor where memory fits: fewer, longer steps for the same epochs."""

    factor: float = 2.0

    def _changed(self, workload: pd.DataFrame) -> pd.DataFrame:
        factor = check_number("factor", self.factor, 0, open_low=True)
        check_columns(workload, ("batch_size",), "jobs")
        return workload.assign(batch_size=np.maximum(np.round(workload["batch_size"] * factor), 1).astype(np.int64))


@dataclass(frozen=True)
class Precision(HardwareChange):
    """Train in another precision, such as ``"bf16"`` (mixed), on GPUs that support it.

    Parameters
    ----------
    precision : str
    source : str, optional
        Precision to change from; all by default.
    """

    precision: str
    source: str | None = None

    def _affected(self, workload: pd.DataFrame) -> Any:
        check_columns(workload, ("precision",), "jobs")
        types, now = workload["gpu_type"], workload["precision"]
        precision = check_choice("precision", self.precision, PRECISIONS)
        supported = types.isin([name for name in types.unique() if precision in device(name).precisions])
        selected = now != self.precision if self.source is None else now == self.source
        return (selected & supported).to_numpy(dtype=bool)

    def _changed(self, workload: pd.DataFrame) -> pd.DataFrame:
        dtype = workload["precision"].dtype
        return workload.assign(precision=pd.Series(self.precision, index=workload.index, dtype=dtype))
