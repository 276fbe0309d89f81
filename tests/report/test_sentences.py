"""Sentences and caveats follow the numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import Skipped
from gpudemand.jobs import read_jobs
from gpudemand.report import text as sentences
from gpudemand.report.page import drivers_sentence, log_span, orders_sentence, summarize
from gpudemand.report.tables import _COLUMNS
from gpudemand.report.text import caveats, short_horizon
from gpudemand.study.scenarios import Scenarios
from gpudemand.study.selection import BacktestWindows
from gpudemand.study.settings import Settings
from gpudemand.study.source import JobSource
from gpudemand.study.usage_tables import log_summary
from tests.report.conftest import make_log

NUMBERS = {
    "required": 1004,
    "installed": 965.0,
    "installed_from": "log",
    "shortfall": 39,
    "basis": "peak",
    "first_crossing": "2026-07-09T00:00:00+00:00",
    "order_by": "2026-04-10T00:00:00+00:00",
    "to_order": 39,
    "installed_later": 965.0,
    "service_level": 0.95,
    "target_utilization": 0.85,
    "lead_time": "90D",
    "horizon": 28,
    "freq": "D",
    "log_end": "2026-07-02T00:00:00+00:00",
    "plan_end": "2026-07-29T00:00:00+00:00",
    "model": "ETS",
    "wape": 0.0966,
    "best_naive": "SeasonalNaive",
    "best_naive_wape": 0.131,
    "coverage_80": 0.89,
    "coverage_95": 0.95,
    "data_kind": "synthetic",
}
LOG = pd.DataFrame({"jobs": [900], "rejected": [100], "unknown_gpus": [0], "unknown_end": [2], "unknown_start": [3]})
LOG = LOG.assign(
    first=pd.Timestamp("2026-06-12", tz="UTC"), last=pd.Timestamp("2026-07-02", tz="UTC"), processors=False
)
PLANS = pd.DataFrame(
    {"series": "peak", "model": "ETS", "service_level": [0.9, 0.95], "held": 0.98, "idle": 0.3, "short": 0.001}
)
TABLES = {"log": LOG, "plan_backtest": PLANS}
NUMBERS |= {f"required_p{p}": 1000 + p for p in (50, 90, 95, 99)} | {"share_over": 0.02}
NUMBERS |= {"peak_bin": "2026-07-20T00:00:00+00:00", "peak_bin_median": 800.0}
NUMBERS |= {"wait": None, "wait_share": 0.9, "peak_bin_lo_95": 700.0, "peak_bin_hi_95": 1004.0}


def changed(**changes):
    return {**NUMBERS, **changes}


def test_requirement_is_compared_with_installed_both_ways():
    begin = "By 29 Jul 2026 this cluster requires 1,004 GPUs, 39 more than the 965 "
    assert sentences.requirement(NUMBERS) == begin + "held at once so far."
    assert sentences.requirement(changed(installed_from="given")) == begin + "installed."
    assert "no more than the 965 held" in sentences.requirement(changed(required=900, shortfall=0))


def test_gpus_that_are_ordered_already_are_not_ordered_again():
    ordered = changed(installed_from="given", installed_later=1024.0, to_order=0, order_by=None)
    what = "no more than the 1,024 that are installed when an order could arrive (965 now)."
    assert sentences.requirement(ordered).endswith(what)
    assert sentences.dates(ordered).endswith("installed when an order could arrive suffice: order none.")
    fewer = {**ordered, "installed_later": 900.0, "to_order": 104}
    assert "104 more than the 900 that are installed" in sentences.requirement(fewer)


def test_what_leaves_and_arrives_is_named_with_the_order():
    steps = [("2026-07-10T00:00:00+00:00", -40.0, None), ("2026-07-20T00:00:00+00:00", 1.0, "H100")]
    later = [dict(zip(("on", "gpus", "name"), step, strict=True)) for step in steps]
    said = sentences.dates(changed(installed_changes=later, order_by="2026-07-05T00:00:00+00:00"))
    assert said.startswith("40 GPUs leave on 10 Jul 2026, 1 H100 GPU arrives on 20 Jul 2026. Required GPUs first")
    assert said.endswith("order 39 GPUs by 5 Jul 2026.")
    assert "order 39 GPUs now" in sentences.dates(changed(installed_changes=later))
    assert "and 6 changes later. " in sentences.dates(changed(installed_changes=5 * later))


def test_an_order_that_comes_after_the_forecast_depends_on_demand():
    assert sentences.dates(NUMBERS).endswith("after the forecast ends: order now if demand is to stay as high.")
    assert sentences.dates(changed(plan_end="2026-10-29T00:00:00+00:00")).endswith("on 30 Sep 2026: order now.")


def test_what_an_order_changes_and_what_contradicts_the_log_stand_first():
    times = pd.to_datetime([None, "2026-08-01", "2026-09-01"], utc=True)
    orders = pd.DataFrame({"order": [0, 8, 8], "in_service": times, "unmet_share": 0.0, "idle_share": 0.9})
    orders = orders.assign(mean_wait_h=np.nan, wait_until_h=np.nan)
    tables = {"plan_backtest": PLANS, "log": LOG.assign(max_held=2000.0), "orders": orders}
    said = summarize(changed(installed_from="given", lead_time="7D"), tables, "segment")
    assert said[1].startswith(
        "The log spans 20 days, from 12 Jun 2026 to 2 Jul 2026. Of 3 jobs it does not tell the start"
    )
    assert said[2].startswith("Up to 2,000 GPUs were held at once in the log, more than the 965 installed")
    assert said[3].startswith("Ordered now")
    assert not any(text.startswith("Up to") for text in summarize(NUMBERS, tables, "segment"))


def test_drivers_are_named_and_small_demand_is_no_whole_number():
    table = pd.DataFrame({"driver": ["total", "users who grew"], "before": [0.3, 0.1], "after": [0.9, 0.7]})
    table = table.assign(change_gpus=[0.6, 0.6], most=[None, "29"])
    table.attrs = {"days": 28}
    text = "Mean demand was 0.9 GPUs in the last 28 days, and 0.3 in as many before: users who grew +1 (most of all "
    assert drivers_sentence(table).startswith(text)


def test_one_gpu_is_one_gpu():
    one = changed(required=1, installed=1.0, installed_later=1.0, shortfall=0, peak_bin_median=1.0, required_p50=1)
    text = " ".join([sentences.requirement(one), *summarize(one, {"plan_backtest": PLANS}, "segment")])
    assert "requires 1 GPU, no more than" in text
    assert "1 GPU suffices with probability 50%" in text
    assert " 1 GPUs" not in text


def test_order_date_is_past_future_or_never():
    assert "order now" in sentences.dates(NUMBERS)
    assert sentences.dates(changed(order_by="2026-07-05T00:00:00+00:00")).endswith("order by 5 Jul 2026.")
    assert "first exceed the maximum of GPUs held so far on 9 Jul 2026, for at least 25% of a week" in sentences.dates(
        NUMBERS
    )
    never = changed(first_crossing=None, order_by=None)
    assert sentences.dates(never).startswith("Required GPUs do not exceed the maximum of GPUs held so far for 25% of")
    assert "so far within the horizon" in sentences.dates({**never, "shortfall": 0})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "better than the best naive method's 13.1%"),
        ({"wape": 0.2}, "not better than"),
        ({"model": "SeasonalNaive"}, "It is a naive method"),
        ({"wape": None}, "WAPE is undefined"),
    ],
)
def test_model_is_compared_with_the_best_naive_method(changes, text):
    assert text in sentences.model_accuracy(changed(**changes))


def test_caveats_name_kind_rejections_unknowns_and_a_short_horizon():
    text = " ".join(caveats(NUMBERS, BacktestWindows(4, 2), TABLES, Skipped()))
    for part in ("synthetic", "100 of 1,000 rows (10.0%)", "2 jobs finished at an unknown time", "90 days", "56 bins"):
        assert part in text
    assert "arrive" not in " ".join(caveats(changed(lead_time="7D"), BacktestWindows(4, 2), TABLES, Skipped()))


def test_the_summary_says_that_the_forecast_ends_before_an_order_arrives():
    tables = {"plan_backtest": TABLES["plan_backtest"]}
    said = [
        text for text in summarize(NUMBERS, tables, "segment") if "before GPUs ordered as the log ends arrive" in text
    ]
    assert said == [short_horizon(NUMBERS)]
    assert "(lead time 90 days)" in said[0]
    assert "arrive" not in " ".join(summarize(changed(lead_time="7D"), tables, "segment"))


def test_a_target_for_waits_that_is_not_planned_for_is_named():
    assert "not planned for" not in sentences.basis(NUMBERS)
    said = sentences.basis(changed(wait="1h"))
    assert "It is not planned for the target that 90% of the jobs start within 1 h" in said
    assert "not planned for" not in sentences.basis(changed(wait="1h", basis="wait"))


def test_the_order_says_how_long_jobs_wait_until_it_arrives():
    times = pd.to_datetime([None, "2026-08-01", "2026-09-01"], utc=True)
    table = pd.DataFrame({"order": [0, 8, 8], "in_service": times, "unmet_share": 0.1, "idle_share": 0.1})
    table = table.assign(mean_wait_h=[9.0, 5.0, 7.0], wait_until_h=[np.nan, 30.0, 40.0])
    assert "are in service on 1 Aug 2026 (mean wait until then 30 h): 10.0%" in orders_sentence(table, "2026-09-30")
    unknown = orders_sentence(table.assign(mean_wait_h=np.nan, wait_until_h=np.nan), "2026-09-30")
    assert "wait" not in unknown


def test_caveats_state_plan_backtest_and_undercoverage():
    text = " ".join(caveats(NUMBERS, BacktestWindows(4, 2), TABLES, Skipped()))
    assert "sufficed in 98.0% of its bins; idle GPUs were 30.0% of demand" in text
    assert "too narrow" not in text
    assert "too narrow: the 95% interval contained 81%" in " ".join(
        caveats(changed(coverage_95=0.81), BacktestWindows(4, 2), TABLES, Skipped())
    )
    idle = {**TABLES, "plan_backtest": TABLES["plan_backtest"].assign(idle=np.nan)}
    assert "P95 plan" not in " ".join(caveats(NUMBERS, BacktestWindows(4, 2), idle, Skipped()))


@pytest.mark.parametrize(
    ("windows", "text"),
    [
        (BacktestWindows(1, 1), "selected on 1 window of 28 bins and evaluated on 1 later window;"),
        (BacktestWindows(4, 2), "selected on 4 windows of 28 bins and evaluated on 2 later windows;"),
        (BacktestWindows(0, 6, 9), "evaluated on 6 windows of 28 bins that begin 9 bins apart, so they overlap"),
    ],
)
def test_windows_are_counted_in_words(windows, text):
    assert text in " ".join(caveats(NUMBERS, windows, TABLES, Skipped()))


def test_small_changes_have_a_decimal_and_none_is_minus_zero():
    heading, show = _COLUMNS["change_gpus"]
    assert heading == "change"
    assert [show(value) for value in (-112.4, -11.26, 0.44, -0.04, 0.0)] == ["-112", "-11.3", "+0.4", "0", "0"]


def test_processors_and_unknown_starts_are_said(tmp_path):
    jobs = "\n".join(f"{job} {3600 * job} -1 7200 8 -1 -1 8 -1 -1 1 1 1 -1 1 1 -1 -1" for job in range(1, 400))
    (tmp_path / "log.swf").write_text(f"; UnixStartTime: 1767225600\n; MaxProcs: 16\n{jobs}\n")
    source = JobSource.of(read_jobs(tmp_path / "log.swf", format="swf"), Settings())
    row = log_summary(source, source.usage(None, "D", "gpus"), 1.0)
    assert row[["processors", "unknown_start"]].values.tolist() == [[True, 399]]
    text = log_span(row)
    assert text.startswith("The log spans 17 days, from 1 Jan 2026")
    assert "It counts processors, which are called GPUs here. Of 399 jobs it does not tell the start" in text


def test_caveats_name_skipped_sections():
    scenarios = Scenarios(pd.DataFrame(), Skipped(arrivals="The recent jobs name no users."))
    lines = caveats(NUMBERS, BacktestWindows(4, 2), TABLES, Skipped(segments="The log names no users."), scenarios)
    assert "User segments skipped: The log names no users." in lines
    assert "Scenario skipped: The recent jobs name no users." in lines
    assert "JobDemandModel" in lines[-1]


def test_a_large_error_gives_a_warning():
    assert sentences.accuracy_warning(NUMBERS) == ""
    assert "179%" in sentences.accuracy_warning(changed(wape=1.788))


def test_jobs_without_an_end_or_a_state_count_as_running():
    log = make_log(days=20).assign(status=pd.NA)
    log["end"] = log["end"].mask(log.index % 10 == 0)
    assert JobSource.of(log, Settings()).counts()["running"] == (log.index % 10 == 0).sum()
