"""Scenarios of a study, and corrections from its training jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpudemand._array import STRING, BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, Skipped, check_choice
from gpudemand.planning.need import WINDOW, fewest_gpus
from gpudemand.planning.programmes import PlannedWork, Programme
from gpudemand.planning.scenarios import (
    LONGER,
    Change,
    Growth,
    JobCosts,
    MeasuredRunTimes,
    MoreUsers,
    MoveTo,
    NetworkCosts,
    RemoveGroup,
    Scenario,
    StepEvent,
    changed_workload,
    data_sheet_speed,
    events_of,
    recent_workload,
)
from gpudemand.planning.training_run_time import OTHERS, run_time_ratios
from gpudemand.study.gpu_types import Pools, leading_orders, orders_of_types
from gpudemand.study.parts import UserSegments
from gpudemand.study.requirement import Requirement, order_numbers, plan_requirement, with_date_dtype
from gpudemand.study.selection import SelectedForecast
from gpudemand.study.settings import Settings
from gpudemand.study.source import SeriesSource, Source
from gpudemand.study.waits import Need, with_need
from gpudemand.units import format_count, is_whole

BASE = "base case"
_GROWTH, _NEW_USERS = 0.2, 10
#: Draws of which jobs are left out or repeated; one of a window of more jobs, where it is as near.
_DRAWS, _MANY_JOBS = 5, 20_000


@dataclass(frozen=True)
class Scenarios:
    """Requirements under scenarios.

    `table`: the base case, then a row per scenario: ``scenario``, ``required``, ``change_from_base`` (GPUs),
    ``shortfall``, ``to_order`` (also by later orders, where GPUs leave), ``first_crossing``, ``order_by``,
    ``share_over`` (of the binding plan). What is to be ordered is what pools need each for itself, if they stand apart
    and that is more or due earlier. `skipped`: scenarios that the log does not support.
    """

    table: pd.DataFrame
    skipped: Skipped


@dataclass(frozen=True)
class BaseCase:
    """What scenarios change: the work of the last 28 days, and the requirement that it leads to.

    `selected`: forecast of the total, without programmes, which scenarios leave as they are. `pools`: those that stand
    apart.
    """

    source: Source
    requirement: Requirement
    need: Need
    selected: SelectedForecast
    settings: Settings
    pools: Pools | None = None
    _known: dict[bytes, float] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def workload(self) -> pd.DataFrame:
        """Jobs (of usage, days of a series) that wanted GPUs in these days: ``gpu_hours`` of theirs, and ``row``."""
        origin, window = self.need.log_end, self.need.forecast.window
        if window is None:
            assert isinstance(self.source, SeriesSource)
            found = recent_workload(self.source.workload(origin - WINDOW), origin, WINDOW.days)
        else:
            found = self.source.jobs.iloc[window.rows].assign(gpu_hours=window.hours_wanted())
        found = found.assign(row=np.arange(len(found)))
        found = found[found["gpu_hours"] > 0]
        if found.empty:
            raise InputError(
                f"no job held or wanted a GPU in the {WINDOW.days} days before the forecast, so there are no jobs to "
                "change."
            )
        return found

    def unchanged(self) -> tuple[Requirement, dict[str, Requirement]]:
        """Requirement of all as one pool and of each that stands apart."""
        apart = self.pools.plans(self.selected, self.settings, self.need.programmes) if self.pools else {}
        return self.requirement, apart

    def changed(self, scenario: Scenario, costs: JobCosts | None) -> tuple[Requirement, dict[str, Requirement]]:
        """Requirement under a scenario, of all as one pool and of each that stands apart."""
        after = changed_workload(scenario, self.workload, costs)
        work = (*self.need.programmes, *map(self._programme, events_of(scenario)))
        selected = self.selected.scaled(float(after["gpu_hours"].sum() / self.workload["gpu_hours"].sum()))
        need = replace(self.need.with_programmes(work), ratio=self._ratio(after))
        forecast = with_need(selected.with_programmes(work), need, self.settings.freq)
        whole = plan_requirement(forecast, self.requirement.installed, self.settings, self.requirement.hourly)
        return whole, {} if self.pools is None else self._apart(self.pools, after, selected, work)

    def _apart(
        self, pools: Pools, after: pd.DataFrame, selected: SelectedForecast, work: Sequence[PlannedWork]
    ) -> dict[str, Requirement]:
        """Plans of pools under a scenario, by name."""
        before, hours, needs = self.workload, dict[str, float](), dict[str, float]()
        new: list[str] = []
        for name in {*pools.needs, *after[pools.by].dropna().astype(str)}:
            rows, then = ((table[pools.by] == name).fillna(False).to_numpy(bool) for table in (before, after))
            if (name not in pools.needs or not rows.any()) and then.any():
                rows, new = np.ones(len(before), dtype=bool), [*new, name]
            if rows.any():
                hours[name] = float(after["gpu_hours"][then].sum() / before["gpu_hours"][rows].sum())
                needs[name] = self._ratio(after[then], rows)
        return pools.changed(hours, needs, new).plans(selected, self.settings, work)

    def _programme(self, event: StepEvent) -> Programme:
        if not event.gpus > 0:
            raise InputError(f"a StepEvent adds GPUs, not {event.gpus:g}; RemoveGroup and Growth take work away.")
        if event.series is not None:
            check_choice("series", event.series, ["total", *self.source.names("gpu_type")])
        typed = event.series if event.series != "total" else None
        return replace(event.programme(self.settings.tz), gpu_type=typed)

    def _ratio(self, after: pd.DataFrame, now: BoolArray | None = None) -> float:
        """Need of the changed work over that of the work as it was, of all or of the rows `now` of the workload.

        Work that grows alike needs GPUs in proportion. Where parts change, the queue is asked: of jobs that are left
        out, repeated or longer. Of usage without jobs, it is the ratio of the work.
        """
        before = self.workload
        now = np.ones(len(before), dtype=bool) if now is None else now
        after = after[after["gpu_hours"] > 0]
        place = pd.Index(before["row"]).get_indexer(after["row"])
        old, new = before["gpu_hours"].to_numpy(), after["gpu_hours"].to_numpy()
        if len(after) == 0 or self.need.forecast.window is None:
            return float(new.sum() / old[now].sum())
        factor = new / old[place]
        if len(np.unique(place)) == len(place) and np.allclose(factor, factor[0]):
            stays = np.isclose(factor[0], 1.0) and np.array_equal(np.sort(place), np.flatnonzero(now))
            return 1.0 if stays else float(factor[0]) * self._needed(np.sort(place)) / self._needed(np.flatnonzero(now))
        longer = after[LONGER].fillna(1.0).to_numpy() if LONGER in after else np.ones(len(after))
        return self._needed(place, factor / longer, longer) / self._needed(np.flatnonzero(now))

    def _needed(self, place: IntArray, factor: FloatArray | None = None, longer: FloatArray | None = None) -> float:
        """GPUs that jobs at some places of the workload need, or so many times as many of them, so much longer.

        Of parts of them it is the mean of several draws.
        """
        key = b"".join(np.ascontiguousarray(each).tobytes() for each in (place, factor, longer) if each is not None)
        if key not in self._known:
            forecast, target, jobs = self.need.forecast, self.need.target, self.workload
            assert forecast.window is not None
            assert target is not None
            window = forecast.window.of_jobs(jobs["row"].to_numpy()[place])
            windows = [window]
            if factor is not None and longer is not None:
                user = pd.factorize(jobs["user"])[0][place] + 1
                draws = _DRAWS if len(place) <= _MANY_JOBS and ((factor % 1 > 0) | (longer != 1)).any() else 1
                windows = [window.changed(factor, longer, user, seed) for seed in range(draws)]
            guess = forecast.last * sum(each.hours_wanted().sum() for each in windows) / len(windows)
            guess /= forecast.window.hours_wanted().sum()
            self._known[key] = float(np.mean([fewest_gpus(each, target, guess=guess) for each in windows]))
        return self._known[key]


def plan_scenarios(base: BaseCase, segments: UserSegments | None, step_costs: NetworkCosts | None = None) -> Scenarios:
    """Plan for growth, for the departure of the largest group, for more users and for newer GPUs.

    These are 20 % growth, ten more users of the largest segment, and the jobs of the slowest GPU type on the fastest,
    with run times in the ratio that the log shows for the same work on both (`MeasuredRunTimes`); where it shows none,
    as `step_costs` predicts, or by data sheets.
    """
    skipped, source, recent = Skipped(), base.source, base.workload
    costs = skipped.attempt("newer_gpus", lambda: _measured(source, recent, step_costs))
    changes: dict[str, Callable[[], tuple[str, Change]]] = {
        "growth": _growth,
        "departure": partial(_departure, recent, source.unit),
        "arrivals": partial(_arrivals, recent, segments, source.unit),
    }
    if costs is not None:
        changes["newer_gpus"] = partial(_newer_gpus, recent, costs)
    made = [skipped.attempt(key, make_change) for key, make_change in changes.items()]
    return Scenarios(compare_scenarios(base, dict(filter(None, made)), costs), skipped)


def compare_scenarios(base: BaseCase, scenarios: Mapping[str, Scenario], costs: JobCosts | None = None) -> pd.DataFrame:
    """Plan for scenarios, by name; returns `Scenarios.table`."""
    rows = [_row(BASE, base, *base.unchanged())]
    rows += [_row(name, base, *base.changed(scenario, costs)) for name, scenario in scenarios.items()]
    return with_date_dtype(pd.DataFrame(rows).astype({"scenario": STRING}), base.requirement.forecast["ds"])


def _row(name: str, base: BaseCase, requirement: Requirement, apart: Mapping[str, Requirement]) -> dict[str, object]:
    plan = requirement.summary.set_index("basis").loc[requirement.binding]
    pool, types = order_numbers(None, requirement.orders(), ""), orders_of_types(apart)
    orders = leading_orders(pool, types)
    plans = [apart[order["name"]] for order in orders] if orders is types else [requirement]
    crossings = filter(pd.notna, (each.first_crossing() for each in (requirement, *plans)))
    return {
        "scenario": name,
        "required": plan["required"],
        "change_from_base": plan["required"] - base.requirement.required,
        "shortfall": requirement.shortfall,
        "to_order": sum(order["gpus"] for order in orders),
        "first_crossing": min(crossings, default=pd.NaT),
        "order_by": plans[0].order_by(),
        "share_over": plan["share_over"],
    }


def _growth() -> tuple[str, Change]:
    return f"{100 * _GROWTH:.0f}% growth", Growth(1 + _GROWTH)


def _departure(recent: pd.DataFrame, unit: str) -> tuple[str, Change]:
    recent = recent[recent["gpu_hours"] > 0]
    for column in ("group", "user"):
        if len(recent[column].dropna().unique()) > 1:
            name = _largest(recent, recent[column])
            return f"{unit if column == 'user' else column} {name} leaves", RemoveGroup(name, by=column)
    raise InputError("the recent jobs name at most one group and one user, so no departure can be planned.")


def _arrivals(recent: pd.DataFrame, segments: UserSegments | None, unit: str) -> tuple[str, Change]:
    if recent["user"].isna().all() or unit == "gpu_type":
        raise InputError("the recent jobs name no users, so the usage of new users is unknown.")
    if segments is not None and len(segments.profiles) > 1:
        name = _largest(recent, recent["user"].astype(str).map(segments.segment_of))
        return f"{_NEW_USERS} more {unit}s like segment {name}", MoreUsers(_NEW_USERS, name, by=segments.segment_of)
    everyone = dict.fromkeys(recent["user"].dropna().astype(str), "everyone")
    return f"{_NEW_USERS} more {unit}s like the present ones", MoreUsers(_NEW_USERS, "everyone", by=everyone)


def _measured(source: Source, recent: pd.DataFrame, step_costs: NetworkCosts | None) -> MeasuredRunTimes:
    """Ratios of run times on the GPU types of the recent jobs."""
    if len(_cards(recent)) < 2:
        raise InputError("the recent jobs ran on at most one GPU type, so none can move to a faster one of the log.")
    return MeasuredRunTimes.of_checked(source.jobs, step_costs)


def _cards(recent: pd.DataFrame) -> list[str]:
    """GPU types of the recent jobs but for parts of GPUs, whose speed no data sheet tells."""
    return [name for name in recent["gpu_type"].dropna().astype(str).unique() if is_whole(name)]


def _newer_gpus(recent: pd.DataFrame, costs: MeasuredRunTimes) -> tuple[str, Change]:
    slowest, *_, fastest = sorted(_cards(recent), key=data_sheet_speed)
    moved = recent[(recent["gpu_type"] == slowest).to_numpy(dtype=bool)]
    share = np.average(costs.move(moved, fastest)[0], weights=moved["gpu_hours"])
    count = len(costs.ratios(slowest, fastest))
    basis = f"as {format_count(count)} kinds of work show" if count else _prediction(costs.knows(moved))
    return f"jobs on {slowest} move to {fastest}, in {share:.0%} of the time, {basis}", MoveTo(fastest, slowest)


def _prediction(known: NDArray[np.bool_]) -> str:
    """What ratios rest on that no log shows, given whether the cost model knows each job."""
    if not known.any():
        return "by data sheets"
    model = "as the cost model predicts for their networks"
    return model if known.all() else f"{model}, for {known.mean():.0%} of the jobs, else by data sheets"


def _largest(recent: pd.DataFrame, names: pd.Series) -> str:
    """Name with the most GPU-hours in the recent jobs."""
    hours = recent["gpu_hours"].groupby(names).sum()
    if hours.empty:
        raise InputError("no user of a segment submitted a job recently, so the usage of new users is unknown.")
    return str(hours.idxmax())


_NEEDED = ("network", "batch_size", "epochs", "samples")


def log_ratios(source: Source, step_costs: NetworkCosts | None) -> pd.DataFrame:
    """Ratios of observed to predicted run times by user, of jobs whose networks `step_costs` knows."""
    jobs = source.jobs
    missing = [name for name in _NEEDED if name not in jobs.columns or jobs[name].isna().all()]
    if missing:
        raise InputError(
            f"the log's jobs do not tell {', '.join(missing)}, so predicted run times cannot be compared with theirs."
        )
    if step_costs is None:
        raise InputError(
            "nothing predicts the run times of the log's networks; give step_costs=CostStepTime(...) to compare them."
        )
    return run_time_ratios(jobs[step_costs.knows(jobs)], step_costs)


def calibrated(programmes: Sequence[PlannedWork], ratios: pd.DataFrame) -> tuple[PlannedWork, ...]:
    """Programmes whose predicted times are corrected by the ratio of their user, or that of others; not by hand."""
    rows = ratios[["ratio", "low", "high"]].itertuples(index=False, name=None)
    found = dict(zip(ratios["user"].astype(str), ((float(a), float(b), float(c)) for a, b, c in rows), strict=True))
    return tuple(_calibrated(work, found) for work in programmes)


def _calibrated(work: PlannedWork, found: dict[str, tuple[float, float, float]]) -> PlannedWork:
    if not isinstance(work, Programme) or work.job is None or work.ratio is not None:
        return work
    own = found.get(str(work.user), found.get(OTHERS))
    return work if own is None else replace(work, ratio=own)
