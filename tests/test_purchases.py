"""Purchases: options whose right answer follows by hand, and what the table, the page and the command say of them."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from gpudemand import InputError, Purchase, Study, compare_purchases
from gpudemand.cli.app import app
from gpudemand.datasets import make_cluster
from gpudemand.planning.purchases import HOURS_A_YEAR, least
from gpudemand.report.text import purchases
from gpudemand.study.purchases import PurchaseComparison
from tests.report.conftest import brief, quick_module, undrawn  # noqa: F401

pytestmark = pytest.mark.usefixtures("quick_module")


def flat_log(days=63, gpus=8.0, per_hour=2, hours=4.0, gpu_type="A100"):
    """Jobs of one size that come evenly: as many GPUs as `per_hour * hours * gpus` are busy."""
    submit = pd.date_range("2026-01-05", periods=24 * days * per_hour, freq=f"{60 // per_hour}min", tz="UTC")
    # Not of one length, which would be that of a limit.
    end = submit + pd.to_timedelta(hours * (0.97 + 0.06 * (7 * np.arange(len(submit)) % 10) / 9), "h")
    users = np.array(["ada", "bob", "cyn"])[np.arange(len(submit)) % 3]
    return pd.DataFrame(
        {"user": users, "submit": submit, "start": submit, "end": end, "gpus": gpus, "gpu_type": gpu_type}
    )


@pytest.fixture(scope="module")
def flat():
    return Study(flat_log(), installed={"A100": 64}, lead_time="28D")


@pytest.fixture(scope="module")
def grown():
    jobs, _ = make_cluster(n_users=20, n_days=90, random_state=0)
    return Study(jobs.assign(gpu_type="A100"), installed={"A100": 40}, lead_time="28D")


def compare(study, **options):
    return compare_purchases(study, options).set_index("option")


@pytest.mark.slow
def test_more_of_the_same_are_those_that_the_study_requires(grown):
    found = compare(grown, same={"buy": "A100"}).loc["same"]
    required = grown.headline["required"]
    assert found["to_buy"] + 40 == pytest.approx(required, abs=0.01 * required + 1)
    assert found["gpus_A100"] == found["to_buy"] + 40
    low = grown.headline["required_lo"]
    assert found["to_buy-lo-90"] + 40 == pytest.approx(low, abs=0.02 * low + 1)
    assert found["risk"] == pytest.approx(0.05, abs=0.03)


@pytest.mark.parametrize("days", [7, 60])
def test_gpus_that_leave_soon_after_the_arrival_are_not_there(days):
    """To be bought are as many as the report orders, and what leaves later is said."""
    jobs = flat_log(days=42, gpus=1.0)
    end = jobs["end"].max()
    steps = pd.Series([16.0, 5.0], [end - pd.Timedelta("1D"), end + pd.Timedelta(f"{28 + days}D")])
    study = Study(jobs, installed={"A100": steps}, lead_time="28D")
    table = compare(study, same={"buy": "A100"})
    row = table.loc["same"]
    assert row["gpus_A100"] - row["to_buy"] == (5 if days == 7 else 16)
    assert row["to_buy"] == pytest.approx(max(study.headline["required"] - study.headline["installed_later"], 0), abs=1)
    assert any("later than" in note for note in table.attrs["notes"]) == (days == 60)


def test_twice_as_fast_at_twice_the_price_and_power_costs_the_same():
    jobs = flat_log(gpus=1.0, per_hour=12, hours=5.0)
    one = {"price": 10_000, "years": 4, "power_w": 500, "price_kwh": 0.2, "retire": ["A100"]}
    two = one | {"price": 20_000, "power_w": 1_000, "speed": 0.5}
    study = Study(jobs, installed={"A100": 64}, lead_time="28D")
    # What is retired is bought anew, so that nothing old is left in either fleet.
    found = compare(study, slow={"buy": "A100 80GB", "speed": 1.0, **one}, fast={"buy": "H100", **two})
    assert found.loc["slow", "to_buy"] / found.loc["fast", "to_buy"] == pytest.approx(2.0, rel=0.05)
    assert found.loc["fast", "cost_year"] == pytest.approx(found.loc["slow", "cost_year"], rel=0.05)
    assert found.loc["fast", "cost_gpu_hour"] == pytest.approx(found.loc["slow", "cost_gpu_hour"], rel=0.05)


@pytest.mark.slow
def test_a_card_too_small_takes_more_cards_or_leaves_jobs_where_they_are(flat):
    found = compare(
        flat,
        stays={"buy": "GeForce RTX 3090", "speed": 1.0, "gpus": 8},
        moves={"buy": "GeForce RTX 3090", "speed": 1.0, "retire": ["A100"]},
    )
    assert np.isnan(found.loc["stays", "run_time"])  # nothing runs there
    # 24 GB for 40 GB: two cards for one.
    assert found.loc["moves", "to_buy"] == pytest.approx(2 * flat.headline["required"], abs=16)  # jobs of 8


@pytest.mark.slow
def test_jobs_that_no_gpu_shortens_gain_nothing_from_a_fast_one(flat):
    slow, fast = ({"buy": "H100", "retire": ["A100"], "speed": speed} for speed in (1.0, 0.25))
    found = compare(flat, slow=slow, fast=fast)
    assert found.loc["fast", "to_buy"] < 0.6 * found.loc["slow", "to_buy"]
    limited = Study(flat_log().assign(status="timeout"), installed={"A100": 64}, lead_time="28D")
    same = compare(limited, fast=fast).loc["fast"]
    assert same["to_buy"] == pytest.approx(found.loc["slow", "to_buy"], rel=0.02)
    assert same["run_time"] == pytest.approx(1.0)


def test_costs_are_sums_by_hand(flat):
    option = {"buy": "A100", "gpus": 10, "price": 8_000, "years": 4, "overhead": 0.1, "upkeep": 100.0}
    energy = {"price_kwh": 0.25, "pue": 1.2, "power_w": {"A100": 400.0}}
    found = compare(
        flat, bought=option, with_energy=option | energy, reserved={"buy": "A100", "gpus": 10, "price_hour": 2}
    )
    bought = 10 * (8_000 / 4 + 800) + 64 * 100
    assert found.loc["bought", "cost_year"] == pytest.approx(bought)
    assert found.loc["with_energy", "energy_mwh"] == pytest.approx(74 * 0.4 * 1.2 * HOURS_A_YEAR / 1000)
    assert found.loc["with_energy", "cost_year"] == pytest.approx(bought + 250 * found.loc["with_energy", "energy_mwh"])
    assert found.loc["reserved", "cost_year"] == pytest.approx(20 * HOURS_A_YEAR)
    assert found.loc["bought", "cost"] == pytest.approx(4 * bought)
    # 64 GPUs are busy of 74, of which no more than 72 are of use to jobs of eight.
    work = np.minimum(64 * flat.need.works(flat.need.log_end + flat.need.lead_time), 72).mean()
    assert found.loc["bought", "idle_share"] == pytest.approx(1 - work / 74, abs=0.03)


def test_energy_of_unknown_power_is_missing_and_asked_for_where_it_is_paid():
    study = Study(flat_log(days=42).drop(columns="gpu_type"), lead_time="7D", installed=64)
    option = {"buy": "Foo9", "speed": 0.5, "gpus": 4, "price": 1e4, "years": 4}
    found = compare(study, new=option, known=option | {"power_w": {"Foo9": 400.0, "unknown": 300.0}})
    assert np.isnan(found.loc["new", "energy_mwh"])
    assert found.loc["known", "energy_mwh"] == pytest.approx((4 * 0.4 + 64 * 0.3) * HOURS_A_YEAR / 1000)
    assert not PurchaseComparison(study, {"new": option}).decides[["cost", "cost-low"]].isna().any(axis=None)
    with pytest.raises(InputError, match=r'power_w = \{ "unknown" = '):
        compare(study, new=option | {"power_w": 400.0, "price_kwh": 0.2})


def test_rent_takes_what_waits_too_long(flat):
    lost = {"rent": "A100", "rent_price": 3.0, "interrupted": 0.2}
    found = compare(
        flat,
        nothing={"retire": ["A100"], "buy": "A100", "gpus": 32},
        rent=lost | {"retire": ["A100"], "buy": "A100", "gpus": 32},
    )
    assert found.loc["nothing", "late_share"] > 0.5
    assert found.loc["rent", "late_share"] == 0.0
    # Half of the 64 GPUs that are busy: of each five hours one is lost.
    work = 64 * np.mean(flat.need.works(flat.need.log_end + flat.need.lead_time))
    assert found.loc["rent", "rented_gpu_hours"] == pytest.approx((work - 32) * HOURS_A_YEAR / 0.8, rel=0.1)


def test_an_option_without_a_price_has_a_table_without_money(flat):
    comparison = PurchaseComparison(flat, {"a": {"buy": "A100"}, "b": {"buy": "A100", "price": 1e4, "years": 4}})
    assert np.isnan(comparison.table["cost_year"].iloc[0])
    with pytest.raises(InputError, match="'a' has no price"):
        _ = comparison.break_even


@pytest.mark.slow
def test_break_even_and_lead_are_where_costs_cross(grown):
    same = {"years": 4, "buy": "A100"}
    options = {
        "cheap": {"price": 10_000, **same},
        "fast": {"buy": "H100", "speed": (0.5, 0.4, 0.62), "price": 30_000, "years": 4},
    }
    comparison = PurchaseComparison(grown, options)
    (row,) = comparison.break_even.to_dict("records")
    again = compare(grown, fast=options["fast"] | {"price": row["price"]})
    best = comparison.table["cost_year"].min()
    assert again.loc["fast", "cost_year"] == pytest.approx(best, rel=0.01)
    lead = comparison.lead
    assert lead.attrs == {"cheapest": "cheap", "next": "fast"}
    own = {f"{name} of {option}" for name in ("price", "utilization") for option in options}
    assert set(lead["input"]) == {"work", "run time of fast", *own}
    price = lead.set_index("input").loc["price of fast"]
    assert price["lead-low"] < price["lead"] < price["lead-high"]


def test_utilization_and_power_change_what_is_paid_for(flat):
    option = {"buy": "A100", "gpus": 36, "price": 8_000, "years": 4, "price_kwh": 0.25, "power_w": 400.0}
    comparison = PurchaseComparison(flat, {"more": option})
    found = comparison.decides.set_index("input")
    busy = 1.0 - comparison.table["idle_share"].iloc[0]
    row = found.loc["utilization"]
    assert (row["low"], row["high"]) == pytest.approx((0.9 * busy, 1.1 * busy))
    of_one = 8_000 / 4 + 0.25 * 0.4 * HOURS_A_YEAR
    assert row["cost-low"] - row["cost"] == pytest.approx(100 * (1 / 0.9 - 1) * of_one)
    assert row["cost-high"] - row["cost"] == pytest.approx(100 * (1 / 1.1 - 1) * of_one)
    power = found.loc["power_w"]
    assert (power["low"], power["high"]) == pytest.approx((360, 440))
    assert power["cost-high"] - power["cost"] == pytest.approx(100 * 0.04 * 0.25 * HOURS_A_YEAR)  # of old ones too


def test_a_stated_number_is_no_rival_where_it_misses_the_target():
    study = Study(flat_log(days=42, gpus=1.0), installed={"A100": 6}, lead_time="28D")
    option = {"buy": "A100", "price": 8_000, "years": 4}
    fewest = int(compare(study, fewest=option).loc["fewest", "to_buy"])
    comparison = PurchaseComparison(study, {"fewest": option, "stated": option | {"gpus": fewest + 1}})
    (row,) = comparison.break_even.to_dict("records")
    assert row["option"] == "stated"
    assert np.isnan(row["work"])
    assert "stated misses the target for waits at 1.5 times the work." in purchases(
        comparison.table, comparison.break_even
    )
    work = comparison.decides.set_index(["option", "input"]).xs("work", level="input")
    assert work["cost-high"].isna().tolist() == [False, True]
    assert comparison.lead["input"].iloc[0] == "work"
    assert np.isnan(comparison.lead["lead-high"].iloc[0])


@pytest.mark.slow
def test_what_retires_on_a_date_is_replaced_by_then(flat):
    options = {
        "at once": {"buy": "H100", "speed": 0.5, "retire": ["A100"]},
        "in time": {"buy": "H100", "speed": 0.5, "retire": {"A100": "2026-09-01"}, "lead_time": "60D"},
    }
    enough = Study(flat_log(), installed={"A100": 128}, lead_time="28D")
    found = compare(enough, **options)
    assert found.loc["at once", "order_by"] == enough.need.log_end
    assert found.loc["in time", "order_by"] == pd.Timestamp("2026-07-03", tz="UTC")
    # What is short now is not put off until then.
    assert compare(flat, **options).loc["in time", "order_by"] == flat.need.log_end
    assert found.loc["in time", "to_buy"] == found.loc["at once", "to_buy"]


@pytest.mark.parametrize(
    ("changed", "lead_time", "missing"),
    [
        ({}, "28D", None),
        ({"lead_time": "720D"}, "720D", "28D"),
        ({"retire": {"A100": "2026-02-22"}}, "28D", "7D"),
        ({"retire": {"A100": "2026-04-22"}}, "28D", None),
    ],
)
def test_what_comes_later_than_it_is_needed_is_missing_until_then(changed, lead_time, missing):
    jobs = flat_log(days=42, gpus=1.0)
    study = Study(jobs, installed={"A100": 10}, lead_time="28D")
    table = compare(study, x={"buy": "H100", "speed": 1.0, "gpus": 12} | changed)
    row, end = table.loc["x"], study.need.log_end
    assert row["order_arrives"] - row["order_by"] == pd.Timedelta(lead_time)
    assert row["order_by"] >= end
    said = [note for note in table.attrs["notes"] if "missing" in note]
    assert len(said) == (missing is not None)
    if missing is not None:
        assert f"there on {end + pd.Timedelta(lead_time):%Y-%m-%d}" in said[0]
        assert f"missing from {end + pd.Timedelta(missing):%Y-%m-%d} until then" in said[0]


def test_dates_are_in_the_zone_of_the_study():
    study = Study(flat_log(days=42, gpus=1.0), installed={"A100": 16}, lead_time="28D", tz="Europe/Berlin")
    option = {"buy": "H100", "speed": 1.0, "gpus": 12, "retire": {"A100": "2026-09-01"}}
    row = compare(study, x=option, now=option | {"retire": ["A100"]}).loc["x"]
    assert row["order_arrives"] == pd.Timestamp("2026-09-01", tz="Europe/Berlin")
    assert {str(row[name].tz) for name in ("order_by", "order_arrives")} == {"Europe/Berlin"}


def test_elastic_jobs_fill_what_rigid_ones_leave_idle(flat):
    # Jobs of 8 on 44 GPUs hold 40 at most; those of at least 4 hold all.
    option = {"retire": ["A100"], "buy": "H100", "speed": 1.0, "gpus": 44}
    found = compare(flat, rigid=option, elastic=option | {"elastic": 0.5}, cyn=option | {"elastic": {"cyn": 0.5}})
    assert found.loc["rigid", "idle_share"] == pytest.approx(4 / 44, abs=0.01)
    assert found.loc["elastic", "idle_share"] == pytest.approx(0.0, abs=0.005)
    assert found.loc["cyn", "idle_share"] < found.loc["rigid", "idle_share"]


@pytest.mark.slow
def test_fewer_gpus_do_where_long_jobs_yield():
    long = flat_log(hours=200.0, gpus=1.0, per_hour=1).assign(user="batch")
    # Every six hours, for one hour.
    submit = pd.date_range("2026-01-05", periods=4 * 63, freq="6h", tz="UTC")
    ends = submit + pd.to_timedelta(50 + np.arange(len(submit)) % 17, "min")
    short = pd.DataFrame({"user": "ada", "submit": submit, "start": submit, "end": ends, "gpus": 64.0})
    jobs = pd.concat([long, short.assign(gpu_type="A100"), *[short.assign(gpu_type="A100")] * 6], ignore_index=True)
    study = Study(jobs, installed={"A100": 600}, lead_time="28D", wait="2h")
    option = {"buy": "H100", "speed": 1.0, "retire": ["A100"]}
    found = compare(study, rigid=option, yields=option | {"interruptible": {"batch": "10min"}})
    assert found.loc["yields", "to_buy"] < 0.95 * found.loc["rigid", "to_buy"]


@pytest.mark.slow
def test_the_lead_is_the_difference_of_the_table_where_run_times_are_uncertain(grown):
    same = {"years": 4, "price": 10_000}
    options = {"same": {"buy": "A100", **same}, "unsure": {"buy": "H100", "speed": (0.5, 0.25, 1.0), **same}}
    comparison = PurchaseComparison(grown, options)
    costs = comparison.table["cost_year"].sort_values()
    np.testing.assert_allclose(comparison.lead["lead"], costs.iloc[1] - costs.iloc[0])
    np.testing.assert_allclose(comparison.decides.groupby("option", sort=False)["cost"].first(), costs.sort_index())


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"bougt": "A100"}, "no 'bougt'. Did you mean 'buy'"),
        ({"gpus": 4}, "needs the type"),
        ({"buy": "A100", "price": 1.0}, "need each other"),
        ({"buy": "A100", "price": 1.0, "years": 4, "price_hour": 1.0}, "not both"),
        ({"rent_price": 1.0}, "needs the type that is rented"),
        ({"buy": "A100", "speed": (0.5, 0.6, 0.4)}, r"\(ratio, low, high\)"),
        ({"buy": "A100", "pue": 0.5}, "pue"),
        ({"buy": "Foo9", "speed": 0.5, "price_kwh": 0.2}, "power of a 'Foo9'; .* power_w = { \"Foo9\" = ... }"),
        ({"buy": "a100"}, "'a100', which is 'A100' elsewhere"),
        ({"rent": "A-100", "rent_price": 1.0}, "'A-100', which is 'A100' elsewhere"),
        ({"buy": "A10O"}, "nor a data sheet knows. Did you mean 'A100'"),
        ({"buy": "H100", "power_w": {"H10": 700}}, "power_w names the type 'H10', .* Did you mean 'H100'"),
        ({"buy": "H100", "idle_power_w": {"a100": 70}}, "idle_power_w .* Did you mean 'A100'"),
        ({"buy": "A100", "retire": ["H100"]}, "none of it is installed"),
        ({"buy": "H100", "speed": 0.5, "rent": "A100"}, "state gpus, or the prices"),
        ({"retire": ["A100"]}, "no GPUs at all"),
        ({"buy": "A100", "elastic": 1.5}, "elastic"),
        ({"buy": "A100", "interruptible": ["ada"]}, "work that a stop costs"),
        ({"buy": "A100", "interruptible": {"adda": "10min"}}, r"partition or user of the log\. Did you mean 'ada'"),
        ({"buy": "A100", "retire": {"A100": "soon"}}, "retire"),
        ({"buy": "A100", "retire": 5}, "retire must hold names of GPU types; got 5"),
        ({"buy": "A100", "largest": 8}, "largest must be a mapping, such as .*; got 8"),
        ({"buy": "A100", "mix": ["vision_small"]}, "mix must be a mapping"),
        ({"buy": "A100", "largest": {"A100": "x"}}, "largest of 'A100' must be a number"),
        ("A100", "must be a Purchase"),
    ],
)
def test_what_cannot_be_is_refused(flat, option, said):
    with pytest.raises(InputError, match=said):
        compare_purchases(flat, {"x": option})


def test_usage_without_jobs_and_logs_without_types_are_told(flat):
    days = pd.date_range("2026-01-01", periods=60, tz="UTC")
    usage = pd.DataFrame({"unique_id": "a", "ds": days, "y": 5.0 + np.arange(60) % 7})
    with pytest.raises(InputError, match="queues of jobs"):
        compare_purchases(Study(usage, lead_time="7D"), {"x": {"buy": "A100"}})
    unnamed = Study(flat_log(days=30).drop(columns="gpu_type"), lead_time="7D", installed=64)
    with pytest.raises(InputError, match="names no GPU types"):
        compare_purchases(unnamed, {"x": {"buy": "H100"}})
    assert compare(unnamed, x={"buy": "H100", "speed": 0.5}).loc["x", "to_buy"] > 0


def test_clusters_of_their_own_are_refused_and_moves_between_types_are_said():
    jobs = flat_log(days=30, gpus=1.0)
    jobs["cluster"] = np.where(jobs["user"] == "ada", "one", "two")
    study = Study(jobs, installed={"one": 8, "two": 8}, cluster="each", lead_time="7D")
    with pytest.raises(InputError, match="each cluster is one of its own"):
        compare(study, x={"buy": "A100"})
    jobs["gpu_type"] = np.where(jobs["user"] == "ada", "A100", "H100")
    study = Study(jobs, installed={"A100": 8, "H100": 8}, lead_time="7D")
    option = {"buy": "H100", "gpus": 1}
    (said,) = compare(study, moves=option).attrs["notes"]
    assert "move to any GPU type" in said
    assert "move to any GPU type" in purchases(compare_purchases(study, {"moves": option}), None)
    assert not compare(study, stays=option | {"moves": False}).attrs["notes"]


def test_work_of_jobs_that_are_too_large_counts_as_in_one_pool():
    """Of one type: at any number of GPUs as many start in time; and the table says which can never start."""
    large = flat_log(days=63, gpus=96.0, per_hour=1, hours=1.0).iloc[::40]
    study = Study(pd.concat([flat_log(), large], ignore_index=True), installed={"A100": 64}, lead_time="28D")
    (option,) = PurchaseComparison(study, {"x": {"buy": "A100"}}).options
    target, window = study.need.target, study.need.forecast.window
    for gpus in (64, 70, 80, 95, 96, 120):
        alone = target.share_in_time(window, window.waits_s(gpus))
        assert option.outcome(gpus - 64, 1.0).share_in_time == pytest.approx(alone)
    found = compare_purchases(study, {"x": {"buy": "H100", "speed": 1.0, "gpus": 40}})
    assert "x: 17 jobs of up to 96 GPUs in the last four weeks can never start on it" in found.attrs["notes"][0]
    assert not compare_purchases(study, {"x": {"buy": "A100", "gpus": 40}}).attrs["notes"]
    small = compare_purchases(study, {"x": {"buy": "H100", "speed": 1.0, "gpus": 0, "largest": {"A100": 4}}})
    assert small["late_share"][0] == 1.0
    rent = compare_purchases(study, {"x": {"rent": "H100", "rent_price": 2.0, "speed": None}})
    hours = window.jobs.gpus * window.jobs.run / 3.6e9
    of_large = hours[window.counted & (window.jobs.gpus > 64)].sum() * 8766 / (28 * 24)
    assert rent["rented_gpu_hours"][0] >= 0.5 * of_large
    assert not rent.attrs["notes"]


def test_least_finds_the_first_that_holds():
    for answer in (0, 1, 2, 7, 100, 1234):
        for guess in (1, 90, 5000):
            found = least(lambda n, answer=answer: n >= answer, guess, 10**6)
            assert answer <= found <= answer + max(1, 0.002 * answer)
    with pytest.raises(InputError, match="however many"):
        least(lambda n: False, 1, 100)


PLAN = """
log = "jobs.parquet"
lead_time = "28D"
tz = "UTC"
installed = { A100 = 64 }
[compare]
price_kwh = 0.2
years = 4
[[options]]
name = "more"
buy = "A100"
price = 10000
[[options]]
name = "fast"
buy = "H100"
price = 25000
speed = [0.5, 0.4, 0.6]
retire = { A100 = 2026-09-01 }
interruptible = { ada = "30min" }
elastic = { bob = 0.5 }
[[options]]
name = "rent"
rent = "A100"
rent_price = 3
"""


@pytest.mark.usefixtures("undrawn", "brief")
@pytest.mark.slow
def test_a_plan_file_compares_on_the_page_and_by_the_command(tmp_path):
    flat_log(days=42, per_hour=1).to_parquet(tmp_path / "jobs.parquet")
    (tmp_path / "plan.toml").write_text(PLAN)
    run = CliRunner().invoke(app, ["compare", "--plan", str(tmp_path / "plan.toml"), "--quiet", "--json"])
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert [row["option"] for row in found["purchases"]] == ["more", "fast", "rent"]
    text = CliRunner().invoke(app, ["compare", "--plan", str(tmp_path / "plan.toml"), "--quiet"]).stdout
    assert "costs least" in text
    out = tmp_path / "out"
    run = CliRunner().invoke(app, ["report", "--plan", str(tmp_path / "plan.toml"), "--out", str(out), "--quiet"])
    assert run.exit_code == 0, run.output
    page = (out / "index.html").read_text()
    assert "Purchases compared" in page
    table = pd.read_parquet(out / "tables" / "purchases.parquet")
    by_command = pd.DataFrame(found["purchases"])
    assert table["to_buy"].tolist() == by_command["to_buy"].tolist()
    np.testing.assert_allclose(table["cost_year"], by_command["cost_year"], rtol=1e-9)


def test_rented_hours_are_named_where_nothing_is_bought():
    table = pd.DataFrame({"option": ["own", "rent", "both"], "to_buy": [9, 0, 4], "cost_year": [3.0, 2.0, 4.0]})
    table["rented_gpu_hours"] = [0.0, 47_816.4, 10.0]
    even = pd.DataFrame({"option": ["own"], "against": ["rent"], "work": [np.nan], "price": [np.nan]})
    assert purchases(table, even) == "rent costs least: 2 a year, for 47,816 rented GPU-hours."
    assert purchases(table, even.assign(against="both")).endswith("for 4 GPUs and 10 rented GPU-hours.")
    assert purchases(table, even.assign(against="own")).endswith("for 9 GPUs.")


def test_of_one_option_the_cost_is_said():
    table = pd.DataFrame({"option": ["own"], "to_buy": [9], "cost_year": [450.0]})
    none = pd.DataFrame(columns=["option", "against", "work", "price"])
    assert purchases(table, none) == "own costs 450 a year, for 9 GPUs."


def test_options_share_what_the_plan_says_once(tmp_path):
    from gpudemand import read_plan

    (tmp_path / "plan.toml").write_text(PLAN)
    found = read_plan(tmp_path / "plan.toml").purchases
    assert found["more"] == Purchase(buy="A100", price=10_000, years=4, price_kwh=0.2)
    assert found["rent"] == Purchase(rent="A100", rent_price=3, price_kwh=0.2)
    (tmp_path / "plan.toml").write_text(PLAN + '[[options]]\nname = "more"\n')
    with pytest.raises(InputError, match="two options are called 'more'"):
        read_plan(tmp_path / "plan.toml")
