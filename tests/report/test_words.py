"""Sentences follow the numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand.report.analysis.scenarios import Scenarios
from gpudemand.report.analysis.selection import Windows
from gpudemand.report.analysis.skipped_sections import Gaps
from gpudemand.report.page import sentences
from gpudemand.report.page.caveats import trust

NUMBERS = {
    "required": 1004,
    "installed": 965.0,
    "installed_from": "log",
    "shortfall": 39,
    "basis": "peak",
    "first_crossing": "2026-07-09T00:00:00+00:00",
    "order_by": "2026-04-10T00:00:00+00:00",
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
LOG = pd.DataFrame({"jobs": [900], "rejected": [100], "unknown_gpus": [0], "unknown_end": [2]})
PLANS = pd.DataFrame(
    {"series": "peak", "model": "ETS", "service_level": [0.9, 0.95], "held": 0.98, "idle": 0.3, "short": 0.001}
)
TABLES = {"log": LOG, "past_plans": PLANS}


def said(**changes):
    return {**NUMBERS, **changes}


def test_answer_compares_both_ways():
    begin = "By 29 Jul 2026 this cluster requires 1,004 GPUs, 39 more than the 965 "
    assert sentences.answer(NUMBERS) == begin + "that it ever held at once."
    assert sentences.answer(said(installed_from="given")) == begin + "installed."
    assert "no more than the 965 that" in sentences.answer(said(required=900, shortfall=0))


def test_timing_knows_past_future_and_never():
    assert "order now" in sentences.timing(NUMBERS)
    assert sentences.timing(said(order_by="2026-07-05T00:00:00+00:00")).endswith("order by 5 Jul 2026.")
    assert "suffice throughout" in sentences.timing(said(first_crossing=None, order_by=None))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "better than the best naive method's 13.1%"),
        ({"wape": 0.2}, "no better than"),
        ({"model": "SeasonalNaive"}, "that no candidate beat"),
        ({"wape": None}, "no error can be given"),
    ],
)
def test_model_is_held_against_the_best_naive(changes, text):
    assert text in sentences.model(said(**changes))


def test_trust_names_kind_rejections_unknowns_and_a_short_horizon():
    text = " ".join(trust(NUMBERS, Windows(4, 2), TABLES, Gaps()))
    for part in ("synthetic", "100 of 1,000 rows (10.0%)", "2 jobs finished at an unknown time", "90 days", "56 bins"):
        assert part in text
    assert "arrive" not in " ".join(trust(said(lead_time="7D"), Windows(4, 2), TABLES, Gaps()))


def test_trust_says_how_past_plans_held_and_when_intervals_were_too_narrow():
    text = " ".join(trust(NUMBERS, Windows(4, 2), TABLES, Gaps()))
    assert "enough in 98.0% of its bins, with 30.0% of demand bought and not needed" in text
    assert "too narrow" not in text
    assert "too narrow there: 81%" in " ".join(trust(said(coverage_95=0.81), Windows(4, 2), TABLES, Gaps()))
    idle = {**TABLES, "past_plans": TABLES["past_plans"].assign(idle=np.nan)}
    assert "P95 plan" not in " ".join(trust(NUMBERS, Windows(4, 2), idle, Gaps()))


def test_trust_names_what_was_left_out():
    untried = Scenarios(pd.DataFrame(), Gaps(arrivals="The recent jobs name no users."))
    sentences = trust(NUMBERS, Windows(4, 2), TABLES, Gaps(segments="The log names no users."), untried)
    assert "Segments left out: The log names no users." in sentences
    assert "A scenario left out: The recent jobs name no users." in sentences
    assert "JobDemandModel" in sentences[-1]


def test_a_large_error_is_a_warning():
    assert sentences.caution(NUMBERS) == []
    assert "179%" in sentences.caution(said(wape=1.788))[0]
