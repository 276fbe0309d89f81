"""Segments, parts, risk and scenarios, and the reasons for which they are skipped."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError, Skipped, UnlikelyJobsWarning
from gpudemand.datasets import make_cluster
from gpudemand.report.build import build_report
from gpudemand.report.page import parts_sentence, scenarios_sentence, summarize, uncertain_sentence
from gpudemand.segments import ExtrapolationWarning, TopologicalSegmenter
from gpudemand.study import parts as user_segments
from gpudemand.study.parts import forecast_parts, segment_users
from gpudemand.study.requirement import (
    headline,
    plan_requirement,
    purchase_costs,
    risk_numbers,
    risk_table,
)
from gpudemand.study.scenarios import BaseCase, plan_scenarios
from gpudemand.study.selection import select_and_forecast
from gpudemand.study.settings import Settings
from gpudemand.study.source import JobSource
from gpudemand.study.usage_tables import compute_usage_tables
from gpudemand.study.waits import as_forecast, needed_gpus
from tests.report.conftest import make_log, renamed

SETTINGS = Settings(horizon=7, lead_time="10D", prices=(1.0, 4.0))


@pytest.fixture(scope="module")
def cluster():
    jobs, truth = make_cluster(24, 63, archetypes=["nightly", "burst"], random_state=0)
    return jobs, truth.set_index("user")["archetype"]


@pytest.fixture(scope="module")
def segments(cluster):
    return segment_users(JobSource.of(cluster[0], SETTINGS))


@pytest.fixture(scope="module")
def planned(cluster):
    usage = compute_usage_tables(JobSource.of(cluster[0], SETTINGS))
    selected = select_and_forecast(usage.total, SETTINGS.horizon)
    need = needed_gpus(JobSource.of(cluster[0], SETTINGS), (), SETTINGS)
    mean = selected.forecast[selected.forecast["unique_id"] == "mean"]
    forecast = pd.concat([mean, as_forecast(need, mean, "D")])
    settings = replace(SETTINGS, until=need.log_end, wait="1h")
    return usage, selected, plan_requirement(forecast, usage.max_held, settings), need


@pytest.fixture(scope="module")
def parts(cluster, segments, planned):
    return forecast_parts(JobSource.of(cluster[0], SETTINGS), segments, planned[1], SETTINGS)


def base_case(source, planned):
    settings = source.settings
    return BaseCase(source, planned[2], needed_gpus(source, (), settings), planned[1], settings)


@pytest.fixture(scope="module")
def scenarios(cluster, segments, planned):
    return plan_scenarios(base_case(JobSource.of(cluster[0], SETTINGS), planned), segments)


def test_segments_recover_the_archetypes_and_contain_every_user(cluster, segments):
    members = segments.members.set_index("user")["segment"].astype(str)
    archetype = cluster[1].reindex(members.index)
    pure = pd.crosstab(archetype.to_numpy(), members.to_numpy()).max(axis=0).sum()
    assert pure >= 0.9 * len(members)
    assert segments.profiles["users"].sum() == cluster[0]["user"].nunique()
    assert segments.profiles["share"].sum() == pytest.approx(1)
    assert segments.profiles["gpu_hours"].is_monotonic_decreasing


@pytest.mark.slow
def test_parts_sum_to_the_total_in_forecast_and_history(planned, parts):
    usage, selected, *_ = planned
    total = selected.forecast[selected.forecast["unique_id"] == "mean"].set_index("ds")[selected.model]
    pd.testing.assert_series_equal(
        parts.forecast.groupby("ds")[parts.model].sum(), total, check_names=False, check_freq=False
    )
    actual = usage.total[usage.total["unique_id"] == "mean"].set_index("ds")["y"]
    pd.testing.assert_series_equal(parts.usage.groupby("ds")["y"].sum(), actual, check_names=False, check_freq=False)


@pytest.mark.slow
def test_parts_are_evaluated_beside_the_best_naive_method(planned, parts):
    assert parts.by == "segment"
    table = parts.table.set_index("part")
    assert table.loc["total", "wape"] == planned[1].score("mean")["wape"]
    assert table["next"].iloc[1:].sum() == pytest.approx(table.loc["total", "next"])
    assert table["best_naive"].isin(["Naive", "SeasonalNaive", "SeasonallyAdjustedNaive"]).all()
    assert (table["best_naive_wape"] >= 0).all()
    assert table[["coverage_80", "coverage_95"]].apply(lambda c: c.between(0, 1)).all(axis=None)


@pytest.mark.slow
def test_parts_follow_by_and_small_ones_are_summed(cluster, planned):
    jobs, _ = cluster
    user = jobs["user"].astype(str).str.extract(r"(\d+)$")[0].astype(int)
    many = jobs.assign(group=("g" + (user % 9).astype(str)).astype(jobs["group"].dtype))
    many.attrs = dict(jobs.attrs)
    grouped = Settings(by="group", horizon=7)
    made = forecast_parts(JobSource.of(many, grouped), None, planned[1], grouped)
    names = made.table["part"].tolist()
    assert (made.by, len(names), names[0]) == ("group", 8, "total")
    assert "3 others" in names


def test_requirement_grows_with_probability_and_equals_the_plan_at_its_level(planned):
    risk = risk_table(planned[2])
    assert risk["required"].is_monotonic_increasing
    assert risk["required"].iloc[2] == planned[2].required
    known = risk.dropna(subset="first_crossing")
    due = known["first_crossing"] - pd.Timedelta("10D")
    assert known["order_by"].tolist() == [max(time, planned[2].log_end) for time in due]
    assert str(risk["order_by"].dtype) == "datetime64[ns, UTC]"


def test_costs_need_prices_and_hours(planned):
    costs = purchase_costs(planned[2], SETTINGS).iloc[0]
    assert costs["cost"] <= min(costs["cost_reserved"], costs["cost_on_demand"])
    assert costs["break_even_share"] == 0.25
    with pytest.raises(InputError, match="no prices were given"):
        purchase_costs(planned[2], Settings(horizon=7))
    with pytest.raises(InputError, match="longer horizon"):
        purchase_costs(planned[2], Settings(horizon=1, prices=(1.0, 4.0)))


def test_scenarios_are_compared_with_the_base_case(cluster, scenarios, planned):
    table = scenarios.table.set_index("scenario")
    base = table.loc["base case", "required"]
    assert base == planned[2].required
    assert table.loc["20% growth", "required"] == pytest.approx(1.2 * base, abs=1.5)
    leaves = next(name for name in table.index if name.startswith("group") and name.endswith("leaves"))
    arrive = next(name for name in table.index if name.startswith("10 more users like segment"))
    assert table.loc[leaves, "required"] < base < table.loc[arrive, "required"]
    assert (table["change_from_base"] == table["required"] - base).all()
    assert not scenarios.skipped


def test_a_group_that_holds_every_gpu_does_not_leave(cluster, planned):
    jobs = cluster[0]
    idle = jobs.head(30).assign(gpus=0.0, group="idle", user="idle")
    source = JobSource.of(pd.concat([jobs.assign(group="all"), idle], ignore_index=True), SETTINGS)
    names = plan_scenarios(base_case(source, planned), None).table["scenario"].tolist()
    assert not any(name.startswith("group") for name in names)
    assert any(name.startswith("user") and name.endswith("leaves") for name in names)


def test_segments_of_users_unlike_the_fitted_ones_say_so_without_names_of_features(cluster, monkeypatch):
    class Far(TopologicalSegmenter):
        def fit(self, wide):
            warnings.warn("rhythm__log_active_days of 90% of the users ...", ExtrapolationWarning, stacklevel=1)
            return super().fit(wide)

    assert segment_users(JobSource.of(cluster[0], SETTINGS)).notes == ()
    monkeypatch.setattr(user_segments, "TopologicalSegmenter", Far)
    (note,) = segment_users(JobSource.of(cluster[0], SETTINGS)).notes
    assert note.startswith("Most users use GPUs unlike those")


def test_summary_has_interval_risk_parts_and_scenarios(planned, parts, scenarios):
    usage, selected, requirement, need = planned
    numbers = headline(requirement, need, selected, usage.tables["log"], replace(SETTINGS, wait="1h"))
    numbers |= risk_numbers(requirement, selected, risk_table(requirement))
    assert numbers["peak_bin_lo_95"] <= numbers["peak_bin_median"] <= numbers["peak_bin_hi_95"]
    tables = {"parts": parts.table, "scenarios": scenarios.table}
    text = " ".join(summarize(numbers, tables, parts.by))
    for part in ("the 95% interval", "with 99%", "segment", "20% growth", "WAPE"):
        assert part in text
    numbers |= {"waits_beside_idle": None}
    assert len(summarize(numbers, {}, "")) == 5  # of them that the horizon of 7 days is shorter than the lead time


def test_parts_sentence_has_a_form_for_one_two_and_no_changing_parts():
    def sentence(last, after):
        table = pd.DataFrame({"part": ["total", "a", "b"], "last": last, "next": after})
        return parts_sentence(table, "group")

    assert sentence([30, 20, 10], [36, 26, 10]).endswith(
        "72% of the mean demand forecast, and has the largest change, from 20 to 26 GPUs."
    )
    assert "the largest change is that of group b, from 10 to 20 GPUs" in sentence([40, 30, 10], [50, 30, 20])
    assert "no group changes by a whole GPU" in sentence([30, 20, 10], [30, 20, 10])
    assert sentence([30, 20, 10], [0, 0, 0]) == "No group is forecast to hold a GPU."


def test_the_widest_parts_are_named_where_there_are_more_than_three():
    table = pd.DataFrame({"part": ["total", *"abcd"], "width_80": [9.0, 1.0, 4.0, 2.0, 3.0]})
    sentence = uncertain_sentence(table, "group")
    assert sentence.endswith("in GPUs: b (4); d (3); c (2).")
    assert uncertain_sentence(table.head(4), "group") == ""


def test_long_names_are_truncated_in_the_summary():
    table = pd.DataFrame({"scenario": ["base case", "group " + "y" * 10_000 + " leaves"], "required": [10.0, 5.0]})
    assert len(scenarios_sentence(table)) < 150


def test_skipped_sections_record_input_errors_and_propagate_others():
    skipped = Skipped()

    def refuse():
        raise InputError("the log is empty")

    assert skipped.attempt("a", refuse) is None
    assert skipped == {"a": "The log is empty."}
    with pytest.raises(ZeroDivisionError):
        skipped.attempt("b", lambda: 1 // 0)


def skipped_sections_of(index):
    html = index.read_text(encoding="utf-8")
    return " ".join(re.findall(r'class="skipped">([^<]*)', html)), html


@pytest.mark.usefixtures("quick", "undrawn")
def test_one_user_three_days_no_gpu_type_one_group(tmp_path):
    log = renamed(make_log(days=3, per_day=40), user="ada", group="vision", gpu_type=None)
    skipped, html = skipped_sections_of(build_report(log, tmp_path, freq="h", horizon=12))
    assert "at least 8 users with usage; the log has 1" in skipped
    assert "so the total has no parts to forecast" in skipped
    assert "No prices were given" in skipped
    assert "--prices RESERVED ON_DEMAND" in skipped
    assert "fewer than two GPU types" in skipped
    assert "no departure can be planned" in html
    assert "20% growth" in html
    assert not (tmp_path / "figures" / "segments.svg").exists()


def test_few_days_and_logs_without_users_have_no_segments():
    for log, reason in (
        (make_log(days=12), "at least 28 days of history"),
        (renamed(make_log(), user=None), "no users"),
    ):
        with pytest.raises(InputError, match=reason):
            segment_users(JobSource.of(log, SETTINGS))


@pytest.mark.slow
@pytest.mark.usefixtures("quick", "undrawn")
def test_a_log_without_names(tmp_path):
    log = renamed(make_log(days=12), user=None, group=None, gpu_type=None)
    skipped, html = skipped_sections_of(build_report(log, tmp_path, horizon=1, prices=(1, 2)))
    assert "names no users, so there are no segments" in skipped
    assert "The plan is one bin long" in skipped
    assert "the usage of new users is unknown" in html


@pytest.mark.slow
@pytest.mark.usefixtures("quick", "undrawn")
def test_many_users_in_few_days_have_groups_but_no_segments(tmp_path):
    skipped, html = skipped_sections_of(build_report(make_log(days=12), tmp_path, horizon=2))
    assert re.fullmatch(r"Segments need at least 28 days of history; the log has 1\d\. No prices.*", skipped)
    assert "Mean GPUs by group, forecast by" in html
    assert "10 more users like the present ones" in html


@pytest.mark.usefixtures("quick", "undrawn", "brief")
@pytest.mark.filterwarnings("ignore:no job of this log ended")
@pytest.mark.slow
def test_what_is_unlikely_in_a_log_stands_first_as_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(JobSource, "unlikely", lambda self: ["no job of this log ended."])
    log = renamed(make_log(days=30), gpu_type="A100")
    page = build_report(log, tmp_path / "out", horizon=2, lead_time="7D").read_text(encoding="utf-8")
    summary = page[page.index('<div id="summary">') :]
    assert summary.split("<p>")[1].startswith("No job of this log ended.")


@pytest.mark.slow
@pytest.mark.usefixtures("quick", "undrawn")
def test_no_recent_jobs_no_scenarios(tmp_path):
    log = renamed(make_log(days=45, per_day=4), user="ada", group="vision", gpu_type="A100")
    with pytest.warns(UnlikelyJobsWarning, match="until=2026-04-04 is 47 days after the last time of this log"):
        index = build_report(log, tmp_path, horizon=7, until="2026-04-04")
    skipped, html = skipped_sections_of(index)
    assert "no jobs to change" in skipped
    assert html.count("47 days after") == 1
    numbers = pd.read_parquet(tmp_path / "tables" / "risk.parquet")
    assert np.isfinite(numbers["required"]).all()
    assert "WAPE is undefined" in html


@pytest.mark.usefixtures("quick", "undrawn", "brief")
@pytest.mark.slow
def test_a_log_without_starts_and_with_jobs_of_nobody(tmp_path):
    log = renamed(make_log(days=60), gpu_type="A100")
    log = log.assign(start=pd.NaT, user=log["user"].where(log["user"] != "user-1"))
    page = build_report(log, tmp_path / "out", horizon=7).read_text(encoding="utf-8")
    assert "The 10 largest of 12 users, counting what names none as one, hold" in page
    assert "Of 480 jobs it does not tell the start: they count as held from their submission" in page
    assert "480 jobs started at an unknown time" not in page  # once is enough
    assert "so how long jobs waited is unknown; add them." in page
    assert "with room for each job at its submission" not in page
