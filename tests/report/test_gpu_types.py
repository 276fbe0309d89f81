"""Capacity plans by GPU type, and their coherence with the total."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.planning.capacity import SHARES
from gpudemand.report.build import build_report
from gpudemand.report.page import gpu_types_sentence
from gpudemand.report.text import dates, lead_time
from gpudemand.study.gpu_types import ALL, check_pools, gpu_type_numbers, order_of_pools, plan_gpu_types
from gpudemand.study.pools import parse_installed
from gpudemand.study.selection import select_and_forecast
from gpudemand.study.settings import Settings
from gpudemand.study.source import JobSource
from gpudemand.study.study import Study
from gpudemand.study.usage_tables import MEAN, compute_usage_tables, usual_most_held
from gpudemand.study.waits import needed_gpus
from tests.report.conftest import make_log, renamed, requirement_of
from tests.report.test_earlier import SCHEMA

REQUIRED = [f"required_{share}" for share in SHARES]
pytestmark = pytest.mark.usefixtures("quick_module", "selected_once")

NUMBERS = {
    "service_level": 0.95,
    "required": 96,
    "basis": "wait",
    "installed": 80.0,
    "installed_later": 80.0,
    "to_order": 0,
}


@pytest.fixture(scope="module")
def log():
    """The H100 are used twice as much as the A100."""
    log = make_log(days=60)
    return log.assign(gpus=log["gpus"] * (1 + log["gpu_type"].eq("H100")))


@pytest.fixture(scope="module")
def selected(log, quick_module):
    return select_and_forecast(compute_usage_tables(JobSource.of(log, Settings(horizon=7))).total, 7)


def plan(log, selected, **changed):
    source = JobSource.of(log, Settings(horizon=7, lead_time="10D", **changed))
    whole = requirement_of(source, selected), needed_gpus(source, (), source.settings)
    return plan_gpu_types(source, selected, None, *whole, source.settings), whole[0]


@pytest.mark.slow
def test_types_require_at_least_as_many_as_one_pool(log, selected):
    types, requirement = plan(log, selected)
    table = types.table.set_index("gpu_type")
    assert table.index.tolist() == [ALL, "H100", "A100"]
    assert (table.loc[["H100", "A100"], REQUIRED].sum() >= table.loc[ALL, REQUIRED]).all()
    assert table.loc[ALL, "required"] == requirement.required
    assert (table[REQUIRED].diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
    assert 1.4 < table.loc["H100", "required_p50"] / table.loc["A100", "required_p50"] < 2.6


@pytest.mark.slow
def test_means_of_types_sum_to_the_total(log, selected):
    types, _ = plan(log, selected, target_utilization=1.0)
    means = [of_type.plans[MEAN].table.set_index("ds")["demand_p50"] for of_type in types.plans.values()]
    mean = selected.forecast[selected.forecast["unique_id"] == MEAN].set_index("ds")[selected.model]
    assert (sum(means) >= mean - 1e-9).all()
    assert len(means[0]) == len(mean) == 7


@pytest.mark.slow
def test_a_type_that_is_seldom_used_does_not_widen_the_others():
    log, settings = make_log(days=130), Settings(horizon=28)
    log["gpu_type"] = log["gpu_type"].mask(log.index % 80 > 0, "A100").mask(log.index % 80 == 0, "H100")
    source = JobSource.of(log, settings)
    selected = select_and_forecast(compute_usage_tables(source).total, 28)
    whole = requirement_of(source, selected), needed_gpus(source, (), source.settings)
    table = plan_gpu_types(source, selected, None, *whole, source.settings).table.set_index("gpu_type")
    assert table.loc["A100", "required_p95"] < 1.1 * whole[0].required


def test_shortfall_is_by_type_where_installed_is(log, selected):
    types, requirement = plan(log, selected, installed={"A100": 1000.0, "H100": 5.0})
    table = types.table.set_index("gpu_type")
    assert table.loc["A100", "shortfall"] == 0
    assert pd.isna(table.loc["A100", "order_by"])
    assert table.loc["H100", "shortfall"] == table.loc["H100", "required"] - 5
    assert (
        table.loc["H100", "order_by"] == requirement.log_end > table.loc["H100", "first_crossing"] - pd.Timedelta("10D")
    )
    assert table.loc[ALL, "installed"] == 1005
    a100, h100 = (int(table.loc[name, "required"]) for name in ("A100", "H100"))
    text = f"H100 {h100} ({h100 - 5} short), A100 {a100}; {h100 + a100} in total; H100 runs short first, on "
    assert text in gpu_types_sentence(types.table, NUMBERS)
    assert f"H100 {h100} ({h100 - 5} short)" in gpu_types_sentence(
        types.table.assign(shortfall=types.table["shortfall"] - 0.3), NUMBERS
    )
    jobs = pd.DataFrame({"gpu_type": ["H100"], "jobs": [1]})
    assert f"H100 {h100} (from 1 job, {h100 - 5} short), A100" in gpu_types_sentence(types.table, NUMBERS, jobs)
    numbers = {
        "installed_from": "given",
        "first_crossing": None,
        "order_by": None,
        "risk_without_order": 0.1,
        "orders_as_one_pool": [],
        **NUMBERS,
    }
    numbers |= {
        "lead_time": "10D",
        "log_end": requirement.log_end.isoformat(),
        "order_arrives": requirement.arrival.isoformat(),
        "plan_end": "2026-03-15T00:00:00+00:00",
        **gpu_type_numbers(types),
    }

    def told(numbers):
        return dates(numbers | order_of_pools(numbers, apart=True))

    said = told(numbers)
    assert said.startswith(
        "As one pool, those installed suffice (risk 10%); each GPU type for itself, H100 runs short. "
    )
    assert f"Order {h100 - 5} H100 GPUs now" in said
    assert told({**numbers, **gpu_type_numbers(None)}).startswith("Order none")
    # Where all types together run short too, no sentence says that they suffice.
    due, fewer = (
        {**numbers, "orders_as_one_pool": [{**numbers["types_to_order"][0], "name": None, "gpus": gpus}]}
        for gpus in (h100, 7)
    )
    assert told(due).startswith(f"Order {h100} GPUs now")
    # GPUs of other types do not run the jobs of the one that is short: what it needs is ordered, not what all need.
    assert told(fewer).startswith("As one pool, 7 more would do; each GPU type for itself, H100 runs short. Order ")
    assert f"Order {h100 - 5} H100 GPUs now" in told(fewer)
    assert not any("suffice" in told(said) for said in (due, fewer))
    assert order_of_pools(fewer, apart=True)["to_order"] == h100 - 5
    assert order_of_pools(due, apart=True) == {"orders": due["orders_as_one_pool"]}


def test_the_first_order_is_of_the_types_that_are_due_with_it(log, selected):
    end = selected.forecast["ds"].min()
    leave = pd.Series([1000.0, 5.0], [end, end + pd.Timedelta("60D")])
    types, requirement = plan(log, selected, installed={"A100": leave, "H100": 5.0})
    numbers = {"first_crossing": None, "orders_as_one_pool": [], **gpu_type_numbers(types)}
    now, later = numbers["types_to_order"]
    assert (now["name"], later["name"], later["order_by"]) == ("H100", "A100", (end + pd.Timedelta("50D")).isoformat())
    assert order_of_pools(numbers, apart=True) == {
        "orders": [now, later],
        "to_order": now["gpus"],
        "order_by": requirement.log_end.isoformat(),
        "first_crossing": end.isoformat(),
    }


def test_retired_and_unused_types_are_listed(log, selected):
    installed = {"A100": 0, "H100": 1000.0, "B200": 32.0}
    check_pools(JobSource.of(log, Settings(installed=installed)))
    types, _ = plan(log, selected, installed=installed)
    table = types.table.set_index("gpu_type")
    assert table.index.tolist() == [ALL, "H100", "A100", "B200"]
    assert table.loc["A100", "shortfall"] == table.loc["A100", "required"] > 0
    assert table.loc["A100", "first_crossing"] == selected.forecast["ds"].min()
    assert table.loc["B200", ["installed", "required", "shortfall"]].tolist() == [32, 0, 0]
    assert table["installed"].iloc[1:].sum() == table.loc[ALL, "installed"] == 1032


def test_an_account_is_a_group():
    assert Settings(by="account") == Settings(by="group")


def test_a_type_may_change_in_time(log, selected):
    ds = selected.forecast["ds"].drop_duplicates().sort_values()
    later = pd.Series([5.0, 1000.0], [ds.iloc[0] - pd.Timedelta("1D"), ds.iloc[3]])
    types, requirement = plan(log, selected, installed={"A100": 1000.0, "H100": later})
    table = types.table.set_index("gpu_type")
    assert requirement.envelope()["installed"].head(7).tolist() == [1005.0] * 3 + [2000.0] * 4
    assert table["installed"].to_dict() == {ALL: 1005, "H100": 5, "A100": 1000}
    # The shortfall of H100 ends before an order could arrive, with those that are delivered.
    assert table.loc["H100", "first_crossing"] < later.index[1]
    assert table["order_by"].isna().all()
    assert gpu_type_numbers(types)["type_order_by"] is None
    assert table.loc["H100", "shortfall"] == 0, "as an order would arrive"
    assert table.loc["H100", "first_crossing"] == ds.iloc[0]
    assert table.loc["A100", "shortfall"] == 0


def test_shortfall_of_a_type_is_missing_where_only_the_sum_is_installed(log, selected):
    types, _ = plan(log, selected, installed=10.0)
    dependent = types.table.set_index("gpu_type")[["installed", "shortfall", "first_crossing", "order_by"]]
    assert dependent.drop(index=ALL).isna().all(axis=None)
    assert dependent.loc[ALL, "installed"] == 10
    assert "short" not in gpu_types_sentence(types.table, NUMBERS)


def test_a_missing_or_misspelt_type_is_named(log):
    with pytest.raises(InputError, match="installed has no value for 'H100'"):
        check_pools(JobSource.of(log, Settings(installed={"A100": 5})))
    with pytest.raises(InputError, match="'A100'"):
        check_pools(JobSource.of(log, Settings(installed={"A10O": 5, "H100": 5})))
    with pytest.raises(InputError, match=r"installed\['A100'\] must be a number of at least 0"):
        Settings(installed=parse_installed("A100=-3,H100=1"))
    with pytest.raises(InputError, match="write 96, or A100=64,H100=32"):
        parse_installed("A100:64")


def test_one_type_is_one_pool(log, selected):
    with pytest.raises(InputError, match="the plan is for one pool"):
        plan(renamed(log, gpu_type="H100"), selected)


def test_one_mistyped_job_is_not_taken_for_what_is_installed_of_its_type(log, selected):
    typo = log.iloc[[len(log) // 2]].assign(job_id="typo", gpu_type="A100", gpus=8000)
    with_typo = pd.concat([log, typo], ignore_index=True)
    with_typo.attrs = dict(log.attrs)
    before, after = (usual_most_held(JobSource.of(jobs, Settings()), "gpu_type") for jobs in (log, with_typo))
    most = JobSource.of(log, Settings()).most_held("gpu_type")
    assert before["A100"] <= after["A100"] <= most["A100"] < 8000
    assert before["H100"] == after["H100"] < most["H100"]
    installed = plan(log, selected)[0].table.set_index("gpu_type")["installed"]
    assert installed[before.index].to_dict() == np.ceil(before).to_dict()


def test_each_type_has_its_lead_time_and_the_whole_the_longest(log, selected):
    leads = {"A100": "5D", "H100": "20W"}
    settings = Settings(horizon=7, lead_time=leads, installed={"A100": 5.0, "H100": 5.0})
    source = JobSource.of(log, settings)
    whole = requirement_of(source, selected), needed_gpus(source, (), source.settings)
    types = plan_gpu_types(source, selected, None, *whole, source.settings)
    table = types.table.set_index("gpu_type")
    assert table["lead_time_days"].to_dict() == {ALL: 140, "H100": 140, "A100": 5}
    due = table["first_crossing"] - pd.to_timedelta(table["lead_time_days"], unit="D")
    assert table["order_by"].tolist() == [max(time, whole[0].log_end) for time in due]
    later = types.table.assign(
        first_crossing=[*types.table["first_crossing"][:-1], pd.Timestamp("2026-01-01", tz="UTC")]
    )
    numbers = gpu_type_numbers(replace(types, table=later))
    assert (numbers["first_short_type"], numbers["type_lead_time"]) == ("H100", "140D"), "its order is due first"
    assert lead_time({"lead_time": "140D", "orders": numbers["types_to_order"][1:]}) == "5D"
    assert lead_time({"lead_time": "140D", "orders": []}) == "140D"


def test_where_no_gpus_are_given_text_and_numbers_order_for_one_pool(log):
    """What is there of each type is a guess then: the text named types where ``to_order`` was that of all."""
    left = log[log["gpu_type"].ne("H100") | log["start"].lt("2026-01-25")]
    study = Study(left, horizon=14, lead_time="7D", service_level=0.999)
    said, numbers = str(study), study.headline
    assert numbers["types_to_order"], "types alone would be ordered"
    assert numbers["orders"] == numbers["orders_as_one_pool"]
    assert f"Order {numbers['to_order']} GPU" in said
    assert "for itself" not in said


def test_a_lead_time_or_price_that_a_type_lacks_is_named(log):
    for wrong, message in (
        (
            {"lead_time": {"A100": "5D", "H10O": "9D"}},
            "lead_time has no value for 'H100'. It has 'H10O', which is no known one. Did you mean 'H100'?",
        ),
        ({"prices": {"H100": (1.0, 2.0)}}, "prices has no value for 'A100'. It needs one for each"),
        ({"installed": {"A100": 4.0, "H200": 4.0}}, "installed has no value for 'H100'. It needs one for each"),
        (
            {"installed": {"A10O": pd.Series([8.0], pd.to_datetime(["2026-01-01"], utc=True))}},
            "It needs one for each GPU type in the log: A100, H100; 0 for a retired one.",
        ),
        ({"installed": {"a-100": 4.0, "H100": 4.0}}, "has 'a-100', which is called 'A100' in this log; give one"),
        ({"prices": dict.fromkeys(("A100", "H100", "h100"), (1.0, 2.0))}, "prices has 'h100', which is called 'H100'"),
        ({"installed": dict.fromkeys(("A100", "H100", "L40S", "l40s"), 4.0)}, "'l40s', which is called 'L40S' there"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            check_pools(JobSource.of(log, Settings(**wrong)))
    for wrong, message in (
        ({"lead_time": {}}, "lead_time names no GPU type"),
        ({"lead_time": {"A100": "soon"}}, "'soon' is not a length of time"),
        ({"prices": {"A100": (3.0, 2.0)}}, "prices\\['A100'\\]: the reserved price 3 exceeds"),
        ({"prices": {"A100": 3.0}}, "prices\\['A100'\\] must be two numbers"),
    ):
        with pytest.raises(InputError, match=message):
            Settings(**wrong)


@pytest.mark.slow
def test_costs_of_types_are_at_their_prices_and_add_up(log):
    prices = {"A100": (1.0, 2.0), "H100": (3.0, 4.0)}
    options = {"horizon": 14, "installed": {"A100": 5.0, "H100": 5.0}, "by": "gpu_type"}
    study = Study(log, prices=prices, **options)
    costs = study.purchase_mix.set_index("gpu_type")
    assert costs.index.tolist() == ["H100", "A100", "all"]
    assert costs.loc["A100", "break_even_share"] == 0.5
    assert costs.loc["H100", "break_even_share"] == 0.75
    assert costs.loc["all", "cost"] == pytest.approx(costs["cost"].iloc[:2].sum())
    assert (costs["cost"] <= costs[["cost_reserved", "cost_on_demand"]].min(axis=1)).all()
    hours = study.source.gpu_hours("gpu_type")
    mean = tuple(
        (prices["A100"][side] * hours["A100"] + prices["H100"][side] * hours["H100"]) / hours.sum() for side in (0, 1)
    )
    # At the arrival of an order, until four weeks after that of one 30 days later.
    paid_for = 24 * (30 + 28)
    at_mean = Study(log, prices=mean, **options).orders["cost"] + paid_for * (5 * (1.0 + 3.0) - 10 * mean[0])
    assert study.orders["cost"].tolist() == pytest.approx(at_mean.tolist())


@pytest.mark.slow
def test_a_log_of_one_type_is_paid_for_at_its_price(log):
    one = log[log["gpu_type"] == "H100"].assign(user="ada")
    by_type = Study(one, horizon=7, prices={"H100": (3.0, 4.0), "B200": (5.0, 6.0)}).purchase_mix
    pd.testing.assert_frame_equal(by_type, Study(one, horizon=7, prices=(3.0, 4.0)).purchase_mix)


@pytest.mark.usefixtures("undrawn", "brief")
def test_a_report_by_type_states_lead_times_and_prices(log, tmp_path):
    import jsonschema

    leads, prices = {"A100": "5D", "H100": "20W"}, {"A100": (1.0, 2.0), "H100": (3.0, 4.0)}
    index = build_report(log, tmp_path, horizon=14, installed={"A100": 5, "H100": 5}, lead_time=leads, prices=prices)
    html = index.read_text(encoding="utf-8")
    assert "Lead times: A100 5 days, H100 140 days; of all as one pool the longest." in html
    assert "At 1.0 (A100), 3.0 (H100) for a reserved and 2.0 (A100), 4.0 (H100) for an on-demand GPU-hour" in html
    numbers = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    jsonschema.validate(numbers, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert numbers["settings"]["lead_time"] == leads
    assert numbers["settings"]["prices"] == {"A100": [1, 2], "H100": [3, 4]}
    assert numbers["headline"]["lead_time"] == "20W"
