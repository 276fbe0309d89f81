"""Scenarios of a study: what leaves, grows or comes, against the need of the changed log."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.jobs.table import check_jobs
from gpudemand.planning import Growth, Programme, RemoveGroup, Reweight, StepEvent
from gpudemand.planning.scenarios import MeasuredRunTimes, MoveTo, recent_workload
from gpudemand.study.gpu_types import plan_gpu_types
from gpudemand.study.requirement import plan_requirement
from gpudemand.study.scenarios import BaseCase, compare_scenarios
from gpudemand.study.selection import BacktestWindows, SelectedForecast
from gpudemand.study.settings import Settings
from gpudemand.study.source import JobSource
from gpudemand.study.waits import needed_gpus, with_need

END = pd.Timestamp("2026-06-01", tz="UTC")
ARRIVAL, DAY = END + pd.Timedelta("28D"), pd.Timedelta("1D")
LEVELS, SIDES = (50, 80, 90, 95, 98), (("lo", -1), ("hi", 1))


def day(number):
    return ARRIVAL + pd.Timedelta(days=number)


def jobs_of(group, days, mean, gpus):
    """Jobs of `days` each, of which so many GPUs are held at once, until the end of the log."""
    n = round(mean / gpus * 80 / days)
    start = END - pd.to_timedelta(np.linspace(80, 0.1, n) * 24, "h").round("s")
    end = pd.Series(start + pd.Timedelta(days=days))
    return pd.DataFrame(
        {"user": group, "group": group, "submit": start, "start": start, "end": end.mask(end > END), "gpus": gpus}
    )


def case(*parts, programmes=(), availability=1.0):
    log = check_jobs(pd.concat(parts, ignore_index=True))
    settings = Settings(installed=100, lead_time="28D", horizon=7, until=END, availability=availability, tz="UTC")
    source = JobSource.of(log, settings)
    settings, none = source.settings, pd.DataFrame()
    ds = pd.date_range(END, periods=56, freq="D")
    bounds = {f"Naive-{end}-{level}": 40.0 + sign * level / 20 for level in LEVELS for end, sign in SIDES}
    mean = pd.DataFrame({"unique_id": "mean", "ds": ds, "Naive": 40.0, **bounds})
    selected = SelectedForecast("Naive", BacktestWindows(1, 1), none, none, mean, none)
    need = needed_gpus(source, programmes, settings)
    forecast = with_need(selected.with_programmes(programmes), need, settings.freq)
    return BaseCase(source, plan_requirement(forecast, 100, settings), need, selected, settings)


def required(base, scenario):
    return compare_scenarios(base, {"changed": scenario})["required"].iloc[1]


LONG, SHORT = jobs_of("chat", 35, 40, 4.0), jobs_of("tune", 0.5, 40, 2.0)
BASE = case(LONG, SHORT)


def test_work_counts_as_long_as_it_runs_whenever_it_was_submitted():
    held = BASE.workload.groupby("group")["gpu_hours"].sum() / (28 * 24)
    assert held.to_dict() == pytest.approx({"chat": 40, "tune": 40}, rel=0.05)
    held = recent_workload(pd.concat([LONG, SHORT]), END, 28).groupby("group")["gpu_hours"].sum() / (28 * 24)
    assert held.to_dict() == pytest.approx({"chat": 40, "tune": 40}, rel=0.05)


@pytest.mark.parametrize(("gone", "left"), [("chat", SHORT), ("tune", LONG)])
def test_without_a_group_the_need_is_that_of_the_log_without_it(gone, left):
    assert required(BASE, RemoveGroup(gone, by="group")) == pytest.approx(case(left).requirement.required, rel=0.1)
    grown = required(BASE, Growth(2, gone)) - BASE.requirement.required
    assert grown == pytest.approx(BASE.requirement.required - required(BASE, RemoveGroup(gone, by="group")), abs=1)
    assert required(BASE, [Growth(0.0, "chat"), Growth(0.0, "tune")]) == 0


def test_a_small_change_of_small_jobs_changes_little():
    # Alone, the large ones need more: of all jobs so many may wait, and few of the small ones do.
    rng = np.random.default_rng(0)
    start = END - pd.to_timedelta(np.sort(rng.uniform(0.1, 80, 1600)), "D").round("s")[::-1]
    small = pd.DataFrame({"user": "small", "submit": start, "end": start + pd.Timedelta("1h"), "gpus": 1.0})
    start = END - pd.to_timedelta(np.sort(rng.uniform(0.1, 80, 500)), "D").round("s")[::-1]
    large = pd.DataFrame({"user": "large", "submit": start, "end": start + pd.Timedelta("3h"), "gpus": 16.0})
    parts = [part.assign(group=part["user"], start=part["submit"]) for part in (small, large)]
    base = case(*parts)
    gone = required(base, RemoveGroup("small"))
    assert gone > base.requirement.required + 5
    assert gone == pytest.approx(case(parts[1]).requirement.required, rel=0.1)
    for factor in (0.5, 0.999, 1.001, 2.0):
        assert required(base, Growth(factor, "small")) == pytest.approx(base.requirement.required, abs=1), factor


def poisson(group, gpus, hours, share, seed):
    """Jobs that hold a share of 50 GPUs on average, for 80 days."""
    rng = np.random.default_rng(seed)
    n = rng.poisson(80 * 24 * 50 * share / gpus / hours)
    start = END - pd.to_timedelta(np.sort(rng.uniform(0.1, 80, n))[::-1], "D").round("s")
    end = start + pd.to_timedelta(rng.exponential(hours, n), "h").round("s")
    return pd.DataFrame({"user": group, "group": group, "submit": start, "start": start, "end": end, "gpus": gpus})


@pytest.mark.parametrize(
    ("change", "small", "large"),
    [
        (Growth(2.0, "small"), 1.0, 0.5),
        (Growth(2.0, "large"), 0.5, 1.0),
        (Growth(0.2, "large"), 0.5, 0.1),
        (Reweight({"large": 0.05}), 0.95, 0.05),
    ],
)
def test_parts_that_change_need_what_a_log_of_them_needs(change, small, large):
    """The needs of two windows of random jobs differ by some percent."""

    def base(of_small, of_large, seed):
        parts = [poisson("small", 1.0, 1.0, of_small, seed), poisson("large", 16.0, 2.0, of_large, seed)]
        return case(*(part.assign(job_id=part["group"] + part.index.astype(str)) for part in parts))

    now, then = (base(*shares, seed).need.forecast.usual for seed, shares in ((1, (0.5, 0.5)), (2, (small, large))))
    mixed = base(0.5, 0.5, 0)
    assert required(mixed, change) / mixed.requirement.required == pytest.approx(then / now, rel=0.2)


def test_programmes_neither_leave_nor_grow_with_the_work_of_the_log():
    more = case(LONG, SHORT, programmes=[Programme("new", 1, day(-40), day(40), hours=80 * 24, gpus=30)])
    for change in (RemoveGroup("tune", by="group"), Growth(1.5)):
        changes = [required(base, change) - base.requirement.required for base in (BASE, more)]
        assert changes[0] == pytest.approx(changes[1], abs=1)


@pytest.mark.parametrize(
    ("start", "end", "availability"),
    [(None, None, 0.8), (day(1), None, 1.0), (day(0), day(1), 1.0), (None, day(-9), 1.0)],
)
def test_an_event_adds_what_a_programme_does(start, end, availability):
    first, last = start or day(-60), end or day(90)
    as_programme = Programme("p", 1, first, last, hours=(last - first) / pd.Timedelta("1h"), gpus=20)
    programme = case(LONG, SHORT, programmes=[as_programme], availability=availability).requirement.required
    base = case(LONG, SHORT, availability=availability)
    assert required(base, StepEvent(20, start, end)) == programme
    if (start, end) == (None, None):
        assert programme - base.requirement.required == pytest.approx(20 / availability, abs=1)


def test_events_of_less_work_and_of_unknown_types_are_refused():
    with pytest.raises(InputError, match="RemoveGroup and Growth take work away"):
        required(BASE, StepEvent(-5))
    with pytest.raises(InputError, match="series"):
        required(BASE, StepEvent(5, series="H900"))


def apart(*parts, installed, programmes=()):
    """A base case whose GPU types stand apart."""
    base = case(*parts, programmes=programmes)
    settings = replace(base.settings, installed=installed)
    types = plan_gpu_types(base.source, base.selected, None, base.requirement, base.need, settings)
    return replace(base, settings=settings, pools=types.pools), types.table.set_index("gpu_type")


@pytest.fixture(scope="module")
def types():
    """As many GPUs of both types, of which the one that chat is on is short and the other is idle."""
    parts = LONG.assign(gpu_type="A100"), SHORT.assign(gpu_type="H100")
    return apart(*parts, installed={"A100": 20.0, "H100": 200.0})


def to_order(base, *changes, costs=None):
    return compare_scenarios(base, {"changed": changes}, costs)["to_order"].iloc[1]


def test_types_that_stand_apart_are_ordered_each_for_itself(types):
    base, table = types
    alone = table.loc["A100", "to_order"]
    assert alone > 0 == compare_scenarios(base, {})["shortfall"].iloc[0]  # as one pool, the H100 suffice
    assert compare_scenarios(base, {})["to_order"].iloc[0] == alone
    # Who leaves the H100 leaves the A100 as short as they were, and the other way round.
    assert to_order(base, RemoveGroup("tune", by="group")) == alone
    assert to_order(base, RemoveGroup("chat", by="group")) == 0
    assert to_order(base, Growth(1.5, "A100", by="gpu_type")) == pytest.approx(1.5 * (alone + 20) - 20, abs=1)
    assert to_order(base, Growth(1.5, "H100", by="gpu_type")) == alone


def test_more_work_is_no_smaller_order_as_gpus_leave_later():
    leave = pd.Series([60.0, 20.0], [END - DAY, ARRIVAL + 60 * DAY])
    base, table = apart(
        LONG.assign(gpu_type="A100"), SHORT.assign(gpu_type="H100"), installed={"A100": leave, "H100": 200.0}
    )
    growth = {f"{factor}": Growth(factor, "A100", by="gpu_type") for factor in (1.2, 1.4, 1.6, 1.8)}
    found = compare_scenarios(base, growth)
    assert found["order_by"].is_monotonic_decreasing
    assert found["order_by"].iloc[0] == day(60) - 28 * DAY > END == found["order_by"].iloc[-1]
    assert found["to_order"].is_monotonic_increasing
    assert found["to_order"].iloc[0] == table.loc["A100", "to_order"]


def test_an_event_is_on_the_type_that_it_names(types):
    base, table = types
    alone = table.loc["A100", "to_order"]
    assert to_order(base, StepEvent(30, series="A100")) == pytest.approx(alone + 30, abs=1)
    assert to_order(base, StepEvent(30, series="H100")) == alone


def test_jobs_that_move_are_wanted_where_they_go(types):
    base, table = types
    costs = MeasuredRunTimes.of_checked(base.source.jobs, None)
    moved = compare_scenarios(base, {"away": MoveTo("H100", "A100"), "new": MoveTo("B200", "A100")}, costs)
    assert moved["to_order"].iloc[1] == 0
    # All of a type that is yet to come must be bought: as many as their work needs on faster GPUs.
    ratio = costs.move(LONG.assign(gpu_type="A100").head(1), "B200")[0][0]
    assert moved["to_order"].iloc[2] == pytest.approx(ratio * table.loc["A100", "required"], rel=0.15)
