"""Segments, parts, risk and scenarios: what they say, and what they say where a log is too small for them."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.datasets import make_cluster
from gpudemand.report import build_report
from gpudemand.report.analysis.parts import Parts, forecast_parts
from gpudemand.report.analysis.requirement import headline, plan_need
from gpudemand.report.analysis.risk import money, past_plans, risk_numbers, risk_table
from gpudemand.report.analysis.scenarios import try_scenarios
from gpudemand.report.analysis.selection import look_ahead
from gpudemand.report.analysis.settings import Settings
from gpudemand.report.analysis.skipped_sections import Gaps
from gpudemand.report.analysis.usage import measure
from gpudemand.report.analysis.user_segments import find_segments
from gpudemand.report.page.summary import brief, what_if, who_moves
from tests.report.conftest import make_log, renamed

SETTINGS = Settings(horizon=7, lead_time="10D", prices=(1.0, 4.0))


@pytest.fixture(scope="module")
def cluster():
    jobs, truth = make_cluster(24, 63, archetypes=["nightly", "burst"], random_state=0)
    return jobs, truth.set_index("user")["archetype"]


@pytest.fixture(scope="module")
def crowd(cluster):
    return find_segments(cluster[0], SETTINGS)


@pytest.fixture(scope="module")
def planned(cluster):
    measured = measure(cluster[0], SETTINGS)
    outlook = look_ahead(measured.total, SETTINGS.horizon)
    return measured, outlook, plan_need(outlook.forecast, measured.most_held, SETTINGS)


@pytest.fixture(scope="module")
def parts(cluster, crowd, planned):
    return forecast_parts(cluster[0], crowd, planned[1], SETTINGS)


@pytest.fixture(scope="module")
def scenarios(cluster, crowd, planned):
    return try_scenarios(cluster[0], planned[1].forecast, planned[2], crowd, SETTINGS)


def test_segments_find_who_is_alike_and_hold_everyone(cluster, crowd):
    members = crowd.members.set_index("user")["segment"].astype(str)
    archetype = cluster[1].reindex(members.index)
    pure = pd.crosstab(archetype.to_numpy(), members.to_numpy()).max(axis=0).sum()
    assert pure >= 0.9 * len(members)
    assert crowd.profiles["users"].sum() == cluster[0]["user"].nunique()
    assert crowd.profiles["share"].sum() == pytest.approx(1)
    assert crowd.profiles["gpu_hours"].is_monotonic_decreasing


def test_parts_add_up_to_the_total_and_to_what_was_used(planned, parts):
    measured, outlook, _ = planned
    total = outlook.forecast[outlook.forecast["unique_id"] == "mean"].set_index("ds")[outlook.model]
    pd.testing.assert_series_equal(
        parts.forecast.groupby("ds")[parts.model].sum(), total, check_names=False, check_freq=False
    )
    used = measured.total[measured.total["unique_id"] == "mean"].set_index("ds")["y"]
    pd.testing.assert_series_equal(parts.usage.groupby("ds")["y"].sum(), used, check_names=False, check_freq=False)


def test_parts_are_scored_beside_the_best_naive_method(planned, parts):
    assert parts.by == "segment"
    table = parts.table.set_index("part")
    assert table.loc["total", "wape"] == planned[1].score("mean")["wape"]
    assert table["next"].iloc[1:].sum() == pytest.approx(table.loc["total", "next"])
    assert table["best_naive"].isin(["Naive", "SeasonalNaive", "SeasonallyAdjustedNaive"]).all()
    assert (table["best_naive_wape"] >= 0).all()
    assert table[["coverage_80", "coverage_95"]].apply(lambda c: c.between(0, 1)).all(axis=None)


def test_parts_are_what_the_report_is_by_and_the_small_ones_one(cluster, planned):
    jobs, _ = cluster
    user = jobs["user"].astype(str).str.extract(r"(\d+)$")[0].astype(int)
    many = jobs.assign(group=("g" + (user % 9).astype(str)).astype(jobs["group"].dtype))
    many.attrs = dict(jobs.attrs)
    made = forecast_parts(many, None, planned[1], Settings(by="group", horizon=7))
    names = made.table["part"].tolist()
    assert (made.by, len(names), names[0]) == ("group", 8, "total")
    assert "3 others" in names


def test_risk_grows_with_probability_and_meets_the_plan(planned):
    risk = risk_table(planned[2])
    assert risk["required"].is_monotonic_increasing
    assert risk["required"].iloc[2] == planned[2].table["required"].max()
    known = risk.dropna(subset="first_crossing")
    assert ((known["first_crossing"] - known["order_by"]) == pd.Timedelta("10D")).all()
    assert str(risk["order_by"].dtype) == "datetime64[ns, UTC]"


def test_money_needs_prices_and_hours(planned):
    costs = money(planned[2], SETTINGS).iloc[0]
    assert costs["cost"] <= min(costs["cost_reserved"], costs["cost_on_demand"])
    assert costs["break_even_share"] == 0.25
    with pytest.raises(InputError, match="no prices were given"):
        money(planned[2], Settings(horizon=7))
    with pytest.raises(InputError, match="longer horizon"):
        money(planned[2], Settings(horizon=1, prices=(1.0, 4.0)))


def test_past_plans_hold_both_series_and_the_best_naive_method(planned):
    table = past_plans(planned[1])
    assert set(table["series"]) == {"mean", "peak"}
    for series, rows in table.groupby("series"):
        assert {planned[1].model, planned[1].best_naive(series)["model"]} == set(rows["model"])
    assert (table["held"] >= table["coverage"]).all()


def test_scenarios_stand_beside_the_base_case(cluster, scenarios, planned):
    table = scenarios.table.set_index("scenario")
    base = table.loc["as forecast", "required"]
    assert base == planned[2].table["required"].max()
    assert table.loc["20% growth", "required"] == pytest.approx(1.2 * base, abs=1.5)
    leaves = next(name for name in table.index if name.startswith("group") and name.endswith("leaves"))
    arrive = next(name for name in table.index if name.startswith("10 more users like segment"))
    assert table.loc[leaves, "required"] < base < table.loc[arrive, "required"]
    assert (table["against_base"] == table["required"] - base).all()
    assert not scenarios.gaps


def test_the_first_half_page_has_interval_risk_parts_and_scenarios(planned, parts, scenarios):
    measured, outlook, need = planned
    numbers = headline(need, outlook, measured.tables["log"], SETTINGS)
    numbers |= risk_numbers(need, outlook, risk_table(need))
    assert numbers["busiest_low_95"] <= numbers["busiest_median"] <= numbers["busiest_high_95"]
    text = " ".join(brief(numbers, parts, scenarios))
    for part in ("with a probability of 95%", "with 99%", "segment", "20% growth", "WAPE"):
        assert part in text
    assert len(brief(numbers, None, None)) == 4


def test_sentences_on_parts_know_one_mover_two_and_none():
    def said(last, after):
        table = pd.DataFrame({"part": ["total", "a", "b"], "last": last, "next": after})
        return who_moves(Parts("group", "ETS", pd.DataFrame(), pd.DataFrame(), table))

    assert said([30, 20, 10], [36, 26, 10]).endswith("takes 72%, and it changes most, from 20 to 26 GPUs.")
    assert "what changes most is group b, from 10 to 20 GPUs" in said([40, 30, 10], [50, 30, 20])
    assert "no group changes by a whole GPU" in said([30, 20, 10], [30, 20, 10])
    assert said([30, 20, 10], [0, 0, 0]) == "No group is expected to hold a GPU."


def test_a_long_name_does_not_fill_the_first_half_page():
    table = pd.DataFrame({"scenario": ["as forecast", "group " + "y" * 10_000 + " leaves"], "required": [10.0, 5.0]})
    assert len(what_if(table)) < 150


def test_gaps_keep_sentences_and_let_mistakes_through():
    gaps = Gaps()

    def refuse():
        raise InputError("the log is empty")

    assert gaps.attempt("a", refuse) is None
    assert gaps == {"a": "The log is empty."}
    with pytest.raises(ZeroDivisionError):
        gaps.attempt("b", lambda: 1 // 0)


def gaps_of(index):
    html = index.read_text(encoding="utf-8")
    return " ".join(re.findall(r'class="gap">([^<]*)', html)), html


def test_one_user_three_days_no_gpu_type_one_group(tmp_path):
    log = renamed(make_log(days=3, per_day=40), user="ada", group="vision", gpu_type=None)
    gaps, html = gaps_of(build_report(log, tmp_path, freq="h", horizon=12))
    assert "at least 8 users with any use; the log has 1" in gaps
    assert "so the total has no parts to forecast" in gaps
    assert "No prices were given" in gaps
    assert "add --prices RESERVED ON_DEMAND" in gaps
    assert "fewer than two types of GPU apart" in gaps
    assert "nobody can leave and others stay" in html
    assert "20% growth" in html
    assert not (tmp_path / "figures" / "segments.svg").exists()


def test_nobody_named(tmp_path):
    log = renamed(make_log(days=12), user=None, group=None, gpu_type=None)
    gaps, html = gaps_of(build_report(log, tmp_path, by="total", horizon=1, prices=(1, 2)))
    assert "names no users, so there is nobody to tell apart" in gaps
    assert "The plan is one bin long" in gaps
    assert "it is not known what ten more would do" in html


def test_many_users_in_few_days_have_groups_but_no_segments(tmp_path):
    gaps, html = gaps_of(build_report(make_log(days=12), tmp_path, horizon=2))
    assert re.fullmatch(r"Segments need at least 28 days of history; the log has 1\d\. No prices.*", gaps)
    assert "Mean GPUs held by group, forecast by" in html
    assert "10 more users like those there are" in html


def test_a_cluster_that_went_quiet_has_no_scenarios(quick, tmp_path):
    log = make_log(days=45, per_day=4)
    gaps, html = gaps_of(build_report(log, tmp_path, horizon=7, until="2026-04-04"))
    assert "no work to change" in gaps
    numbers = pd.read_parquet(tmp_path / "tables" / "risk.parquet")
    assert numbers["first_crossing"].isna().all()
    assert np.isfinite(numbers["required"]).all()
    assert "can be given" in html
