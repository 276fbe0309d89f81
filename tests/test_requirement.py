"""GPUs that leave and arrive: shortfall, order, dates and risk from the same steps."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
from gpudemand.planning.capacity import broadcast_by_time
from gpudemand.planning.need import NeedForecast
from gpudemand.study.pools import installed_cost
from gpudemand.study.requirement import compare_orders, plan_requirement, risk_table, shortage_numbers
from gpudemand.study.settings import Settings
from gpudemand.study.waits import Need, as_forecast

END, LEAD = pd.Timestamp("2026-03-02", tz="UTC"), 30
DAYS = pd.date_range(END, periods=14, freq="D")
NEED = Need(NeedForecast(40.0, np.full(30, 40.0)), None, (), END, pd.Timedelta(days=LEAD))
REQUIRED = math.ceil(NEED.at(END + NEED.lead_time, 0.95))
FULL, FEW = REQUIRED + 40.0, REQUIRED - 20.0


def day(number):
    return END + pd.Timedelta(days=number)


def planned(steps, lead=LEAD, freq="D", forecast=NEED.forecast, days=DAYS):
    """Requirement with GPUs installed from some days on, the first from long ago."""
    columns = {"M": 30.0, "M-lo-90": 25.0, "M-hi-90": 35.0}
    ds = days if freq == "D" else pd.date_range(END, periods=4, freq=freq)
    mean = pd.DataFrame({"unique_id": "mean", "ds": ds, **columns})
    index = pd.DatetimeIndex([day(number) for number in steps])
    settings = Settings(horizon=14, installed=pd.Series(list(steps.values()), index), lead_time=f"{lead}D", until=END)
    need = Need(forecast, None, (), END, pd.Timedelta(days=lead))
    return plan_requirement(pd.concat([mean, as_forecast(need, mean, freq)]), 1.0, settings), need, settings


#: GPUs from days on, with a lead of 30 days; GPUs to order, the day by which, and those short in the four weeks then.
CASES = {
    "constant": ({-99: FEW}, 20, 0, 20),
    "enough": ({-99: FULL}, 0, None, 0),
    "retirement in the four weeks": ({-99: FULL, 40: FEW}, 20, 10, 20),
    "and a delivery after it": ({-99: FULL, 40: FEW, 52: FULL}, 20, 10, 20),
    "a gap of a day": ({-99: FULL, 40: FEW, 41: FULL}, 20, 10, 20),
    "a gap of hours": ({-99: FULL, 40.25: FEW, 40.5: FULL}, 20, 10.25, 20),
    "retirement at the arrival": ({-99: FULL, 30: FEW}, 20, 0, 20),
    "retirement before it": ({-99: FULL, 10: FEW}, 20, 0, 20),
    "gap before it": ({-99: FULL, 10: FEW, 20: FULL}, 0, None, 0),
    "gap that ends as it arrives": ({-99: FULL, 10: FEW, 30: FULL}, 0, None, 0),
    "gap before it, retirement after": ({-99: FULL, 10: FEW, 20: FULL, 70: FEW}, 20, 40, 0),
    "retirement after the four weeks": ({-99: FULL, 58: FEW}, 20, 28, 0),
    "as the last need lasts": ({-99: FULL, 118: FEW}, 20, 88, 0),
    "several deliveries": ({-99: FEW, 35: FEW + 5, 45: FEW + 12, 50: FULL}, 20, 0, 20),
    "deliveries of the past": ({-99: 1.0, -50: FEW, -3: FULL}, 0, None, 0),
    "none is left": ({-99: FULL, 50: 0.0}, REQUIRED, 20, REQUIRED),
    "none is there": ({-99: 0.0, 45: FULL}, REQUIRED, 0, REQUIRED),
    "half now, half later": ({-99: FULL, 40: REQUIRED - 7.0, 75: FEW}, 7, 10, 7),
}


@pytest.mark.parametrize(("steps", "to_order", "order_on", "short"), CASES.values(), ids=CASES)
def test_orders_risk_and_dates_follow_what_is_installed(steps, to_order, order_on, short):
    requirement, need, settings = planned(steps)
    due, fewest = requirement.order_by(), REQUIRED - short
    assert requirement.to_order() == to_order
    assert due == day(order_on) if order_on is not None else pd.isna(due)
    assert requirement.shortfall == requirement.summary.set_index("basis").loc["peak", "shortfall"] == short
    assert requirement.installed_later == fewest if short else requirement.installed_later >= REQUIRED
    risk = need.risk(requirement.installed_later, requirement.arrival)
    orders = compare_orders(requirement, need, None, END, settings)
    assert orders["order"].max() == to_order
    assert orders["risk"].iloc[0] == pytest.approx(risk)
    assert (risk > 0.05) == bool(short)
    if to_order:
        with_order = need.risk(requirement.installed_later + to_order, requirement.arrival)
        assert orders["risk"].iloc[1:].tolist() == pytest.approx([with_order, risk])
        assert with_order <= 0.05
    dates = risk_table(requirement).set_index("probability").loc[0.95]
    assert dates["shortfall"] == short
    assert pd.isna(dates["order_by"]) == (order_on is None)
    at_level = requirement.summary.set_index("basis").loc["peak", "order_by"]
    assert at_level is due or at_level == due == dates["order_by"], "one definition, not before the log ends"


@pytest.mark.parametrize(
    ("steps", "orders"),
    [
        ({-99: FULL}, []),
        ({-99: FEW, 45: FULL}, [(20, 0, 45)]),
        ({-99: FULL, 40: REQUIRED - 7.0, 75: FEW}, [(7, 10, None), (13, 45, None)]),
        ({-99: REQUIRED - 1.0, 75: FEW, 100: FULL}, [(1, 0, 100), (19, 45, 100)]),
        ({-99: REQUIRED - 7.0, 65: FULL, 75: FEW, 90: REQUIRED - 30.0}, [(7, 0, 65), (23, 45, None)]),
        ({-99: REQUIRED - 7.0, 75: REQUIRED - 6.0}, [(7, 0, None)]),
    ],
)
def test_what_leaves_later_is_ordered_later(steps, orders):
    requirement, *_ = planned(steps)
    expected = [(gpus, day(due), pd.NaT if end is None else day(end)) for gpus, due, end in orders]
    assert [(order.gpus, order.order_by, order.end) for order in requirement.orders()] == expected


def test_who_has_more_is_not_told_to_order_more():
    """Beyond what is required now, an order is for its own four weeks, as it is where GPUs are short as it arrives."""
    growing = NeedForecast(400.0, 400.0 * np.exp(-0.02 * np.arange(30)))
    days = pd.date_range(END, periods=120, freq="D")
    plans = {gpus: planned({-99: gpus}, forecast=growing, days=days)[0] for gpus in np.arange(540.0, 620.0, 2.0)}
    orders = pd.Series({gpus: plan.to_order() for gpus, plan in plans.items()})
    required = plans[540.0].required
    after = orders.index + orders
    assert 550 < required < 600
    assert (np.diff(after) >= 0).all(), "more GPUs lead to no smaller cluster"
    a_week_more = math.ceil(required * (np.exp(0.02) - 1))
    assert 0 < orders[orders.index > required].max() <= a_week_more


@pytest.mark.parametrize("steps", [{-99: 130.0}, {-99: 130.0, 50: 100.0}, {-99: FEW}])
def test_gpus_installed_cost_what_their_type_does_and_those_ordered_the_mean(steps):
    requirement, need, settings = planned(steps)
    h100 = settings.installed - 10.0
    cost = installed_cost({"A100": 10.0, "H100": h100}, {"A100": (1.0, 9.0), "H100": (5.0, 9.0)}, (2.0, 9.0))
    mean = replace(settings, prices=(2.0, 9.0))
    orders, at_mean = (compare_orders(requirement, need, None, END, mean, each) for each in (cost, None))
    # From the arrival on day 30 until four weeks after that of an order of day 30: 58 days.
    days = 20 if len(steps) > 1 else 58
    of_h100 = days * h100.iloc[0] + (58 - days) * h100.iloc[-1]
    installed = 24 * (58 * 10.0 * 1.0 + of_h100 * 5.0)
    assert (orders["cost"] - at_mean["cost"]).tolist() == pytest.approx(
        [installed - 24 * (58 * 10.0 + of_h100) * 2.0] * len(orders)
    )
    if len(orders) == 1:
        assert orders["cost"].iloc[0] == pytest.approx(installed)


def test_times_of_deliveries_in_other_units_than_those_of_the_log_are_found():
    steps = pd.Series([8.0, 16.0], pd.DatetimeIndex(["2026-01-01", "2026-07-01"], tz="UTC").as_unit("us"))
    times = pd.Series([pd.Timestamp("2026-07-01", tz="UTC") + pd.Timedelta(hours, "ns") for hours in (-1, 0, 1)])
    assert broadcast_by_time(steps, times).tolist() == [8.0, 16.0, 16.0]


@pytest.mark.parametrize(("hours", "is_told"), [(6, False), (22, False), (23, True), (48, True)])
def test_some_hours_do_not_tell_what_is_idle(hours, is_told):
    """The last hours of the plan go on: those of a night would be all of the weeks to come."""
    ds = pd.date_range(END, periods=hours, freq="h")
    mean = pd.DataFrame({"unique_id": "mean", "ds": ds, "M": 30.0, "M-lo-90": 25.0, "M-hi-90": 35.0})
    settings = Settings(horizon=hours, freq="h", installed=FEW, lead_time=f"{LEAD}D", until=END, prices=(1.0, 2.0))
    requirement = plan_requirement(pd.concat([mean, as_forecast(NEED, mean, "h")]), 1.0, settings)
    orders = compare_orders(requirement, NEED, None, END, settings)
    assert orders["order"].tolist() == [0, 20, 20]
    assert orders["risk"].notna().all()
    assert orders[["idle_share", "unmet_share", "cost"]].notna().eq(is_told).all(axis=None)


def test_what_is_short_has_a_begin_and_an_end():
    requirement, *_ = planned({-99: FULL, 10: FEW, 20: FULL, 70: FEW - 1})
    first, last = shortage_numbers(requirement)
    # So near, less may come than by the arrival of an order.
    assert first == {"begin": day(10).isoformat(), "end": day(20).isoformat(), "gpus": 19}
    assert last == {"begin": day(70).isoformat(), "end": None, "gpus": 21}
    assert requirement.first_crossing() == day(10)


@pytest.mark.parametrize(("changes_on", "order_on"), [(44, 14), (44.5, 14.5), (30, 0), (29.5, 0)])
def test_a_retirement_within_a_long_bin_counts_from_its_time(changes_on, order_on):
    requirement, *_ = planned({-99: FULL, changes_on: FEW}, freq="W-MON")
    assert requirement.order_by() == day(order_on)
    assert requirement.to_order() == 20


@pytest.mark.parametrize(("days", "seed"), [(100, 0), (160, 4)])
def test_stricter_targets_require_no_fewer_gpus_than_looser_ones(days, seed):
    """On logs where a growth of each target's own needs, some of it noise, would let some require fewer."""
    jobs, _ = gd.make_cluster(n_users=40, n_days=days, growth=1.0, random_state=seed)
    grid = gd.Study(jobs, lead_time="30D").target_grid
    for (_, probability), rows in grid.groupby(["wait", "probability"]):
        assert rows["required"].is_monotonic_increasing, probability
    for (_, probability), rows in grid.groupby(["share", "probability"]):
        rows = rows.sort_values("wait", key=lambda waits: pd.to_timedelta(waits))
        assert rows["required"].is_monotonic_decreasing, probability


@pytest.mark.parametrize(("wait", "share"), [("4h", 0.9), ("24h", 0.8), ("10min", 0.95)])
def test_a_study_with_another_target_requires_what_the_table_says(wait, share):
    jobs, _ = gd.make_cluster(n_users=40, n_days=100, growth=1.0, random_state=0)
    grid = gd.Study(jobs, lead_time="30D").target_grid.set_index(["wait", "share", "probability"])["required"]
    stated = gd.Study(jobs, lead_time="30D", wait=wait, wait_share=share)
    assert stated.headline["required"] == grid[wait, share, 0.95]
    assert stated.target_grid.set_index(["wait", "share", "probability"])["required"].equals(grid)


def test_where_a_queue_starts_fewer_jobs_on_more_gpus_stricter_targets_still_require_no_fewer():
    """Few jobs of up to 64 GPUs: windows of one log needed 97 GPUs for 90 % within a day, and 79 for 95 %."""
    rng = np.random.default_rng(77)
    n, days = int(rng.integers(100, 700)), int(rng.integers(60, 200))
    submit = END + pd.to_timedelta(np.sort(rng.uniform(0, days * 24, n)), "h").floor("s")
    gpus = rng.choice([1, 2, 4, 8, 16, 32, 64], n, p=[0.3, 0.2, 0.15, 0.15, 0.1, 0.06, 0.04]).astype(float)
    start = submit + pd.Timedelta("10min")
    end = start + pd.to_timedelta(rng.lognormal(1.5, 1.5, n), "h").floor("s")
    log = pd.DataFrame({"user": "ada", "submit": submit, "start": start, "end": end, "gpus": gpus})
    study = gd.Study(log, lead_time="28D")
    grid = study.target_grid.pivot(index=["probability", "wait"], columns="share", values="required")
    assert (np.diff(grid, axis=1) >= 0).all()
    stated = grid.loc[(0.95, "1h"), 0.9]
    assert stated == study.headline["required"]
    for _, rows in grid.groupby("probability"):
        by_wait = rows.droplevel(0).loc[["10min", "1h", "4h", "24h"]]
        assert (np.diff(by_wait, axis=0) <= 0).all()
