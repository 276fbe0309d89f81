"""Sentences and caveats follow the numbers."""

from __future__ import annotations

import pandas as pd
import pytest

from gpudemand._validation import Skipped
from gpudemand.jobs import read_jobs
from gpudemand.report import text as sentences
from gpudemand.report.limitations import caveats, short_horizon
from gpudemand.report.page import demand_sentence, drivers_sentence, log_span, summarize
from gpudemand.report.tables import _COLUMNS
from gpudemand.study.gpu_types import leading_orders
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
    "basis": "wait",
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
PLANS = pd.DataFrame({"plan": [1200.0, 1100.0], "need": [1000.0, 1150.0], "rule": [1150.0, 1150.0]})
TABLES = {"log": LOG, "order_backtest": PLANS}
WAITS = pd.DataFrame({"median_wait_h": [0.0], "mean_wait_h": 0.2, "p95_wait_h": 1.0, "share_over_1h": 0.05})
NUMBERS |= {f"required_p{p}": 1000 + p for p in (50, 90, 95, 99)} | {"share_over": 0.02}
NUMBERS |= {"peak_bin": "2026-07-20T00:00:00+00:00", "peak_bin_median": 800.0}
NUMBERS |= {"required_lo": 900, "required_hi": 1004, "risk_without_order": 0.2, "availability": 1.0, "stuck_jobs": 0}
NUMBERS |= {"past_windows": 35, "tells_growth": True, "log_begin": "2025-10-01T00:00:00+00:00"}
NUMBERS |= {"rule": 980}
NUMBERS |= {"order_arrives": "2026-09-30T00:00:00+00:00", "waits_beside_idle": None}
NUMBERS |= {"wait": "1h", "wait_share": 0.9, "peak_bin_lo_95": 700.0, "peak_bin_hi_95": 1004.0}


def order(gpus, order_by, name=None, lead_time="90D", begin="2026-10-03", end=None):
    dates = {"begin": begin, "end": end, "order_by": order_by[:10] + "T00:00:00+00:00"}
    return {"name": name, "gpus": gpus, "lead_time": lead_time, **dates}


def changed(*, types_to_order=(), **changes):
    """The numbers with others; of the order and its date also those of all as one pool."""
    numbers = {**NUMBERS, **changes}
    first = [order(numbers["to_order"], numbers["order_by"])] if numbers["order_by"] else []
    numbers = {"orders_as_one_pool": first, "types_to_order": list(types_to_order), **numbers}
    return numbers | {"orders": leading_orders(numbers["orders_as_one_pool"], numbers["types_to_order"])}


def test_requirement_says_what_for_and_is_compared_with_installed_both_ways():
    begin = (
        "So that 90% of the jobs start within 1 h from 30 Sep 2026 on, with probability 95%, this cluster requires "
        "1,004 GPUs, 39 more than the 965 "
    )
    assert sentences.requirement(NUMBERS) == begin + "held at once so far."
    assert sentences.requirement(changed(installed_from="given")) == begin + "installed."
    assert "no more than the 965 held" in sentences.requirement(changed(required=900, shortfall=0))
    assert sentences.requirement(changed(basis="peak")).startswith("To hold what is wanted at once from 30 Sep 2026 on")


def test_gpus_that_are_ordered_already_are_not_ordered_again():
    given = {"installed_from": "given", "to_order": 0, "order_by": None}
    ordered = changed(installed_later=1024.0, shortfall=0, **given)
    what = "no more than the 1,024 that are installed when an order could arrive (965 now)."
    assert sentences.requirement(ordered).endswith(what)
    assert sentences.dates(ordered) == "Order none: on those installed, the target is missed with probability 20%."
    fewer = {**ordered, "installed_later": 900.0, "shortfall": 104}
    assert "104 more than the 900 that are installed" in sentences.requirement(fewer)


def test_what_leaves_and_arrives_is_named_with_the_order():
    steps = [("2026-07-10T00:00:00+00:00", -40.0, None), ("2026-07-20T00:00:00+00:00", 1.0, "H100")]
    later = [dict(zip(("on", "gpus", "name"), step, strict=True)) for step in steps]
    said = sentences.dates(changed(installed_changes=later, order_by="2026-07-05T00:00:00+00:00"))
    assert said.startswith("40 GPUs leave on 10 Jul 2026, 1 H100 GPU arrives on 20 Jul 2026. From 3 Oct 2026 on GPUs")
    assert "Order 39 GPUs now" in sentences.dates(changed(installed_changes=later))
    assert "and 6 changes later. " in sentences.dates(changed(installed_changes=5 * later))


def test_a_delivery_that_ends_what_is_short_is_named():
    begin, end = "2026-10-05T00:00:00+00:00", "2026-10-20T00:00:00+00:00"
    steps = [{"on": begin, "gpus": -40.0, "name": None}, {"on": end, "gpus": 40.0, "name": None}]
    ends = {"begin": begin, "end": end, "gpus": 39}
    first = [order(39, "2026-07-07T00:00:00+00:00", begin=begin, end=end)]
    numbers = changed(installed_changes=steps, shortages=[ends], orders_as_one_pool=first)
    numbers |= {"installed_from": "given", "installed_later": 925.0}
    assert "39 more than the 925 that are installed at least in those four weeks (965 now)." in sentences.requirement(
        numbers
    )
    assert "They are short until 20 Oct 2026, when others arrive: moving what leaves" in sentences.dates(numbers)
    over = [{**ends, "begin": "2026-08-01T00:00:00+00:00", "end": NUMBERS["order_arrives"]}]
    said = sentences.dates(changed(shortages=over, order_by=None, shortfall=0))
    assert said.startswith("GPUs are short from 1 Aug 2026 until 30 Sep 2026, before what is ordered now could be ")
    assert said.endswith("there. Order none: on those held at once so far, the target is missed with probability 20%.")


def test_what_contradicts_the_log_stands_first_and_then_how_earlier_plans_did():
    tables = {**TABLES, "log": LOG.assign(max_held=2000.0)}
    said = summarize(changed(installed_from="given", lead_time="7D"), tables, "segment")
    assert said[1].startswith(
        "The log spans 20 days, from 12 Jun 2026 to 2 Jul 2026. Of 3 jobs it does not tell the start"
    )
    assert said[2].startswith("Up to 2,000 GPUs were held at once in the log, more than the 965 installed")
    assert said[3].startswith(
        "Of 2 plans at earlier times with this lead, 1 would have sufficed (95% were promised), with 1.08 times"
    )
    assert not any(text.startswith("Up to") for text in summarize(NUMBERS, tables, "segment"))


def test_drivers_are_named_and_small_demand_is_no_whole_number():
    table = pd.DataFrame({"driver": ["total", "users who grew"], "before": [0.3, 0.1], "after": [0.9, 0.7]})
    table = table.assign(change_gpus=[0.6, 0.6], most=[None, "29"])
    table.attrs = {"days": 28}
    text = "Mean demand was 0.9 GPUs in the last 28 days, and 0.3 in as many before: users who grew +1 (most of all "
    assert drivers_sentence(table).startswith(text)


def test_one_gpu_is_one_gpu():
    one = changed(required=1, installed=1.0, installed_later=1.0, shortfall=0, peak_bin_median=1.0, required_p50=1)
    text = " ".join([sentences.requirement(one), *summarize(one, TABLES, "segment")])
    assert "requires 1 GPU, no more than" in text
    assert "1 GPU suffices with probability 50%" in text
    assert " 1 GPUs" not in text


def test_order_date_is_past_future_or_never():
    said = sentences.dates(changed())
    assert said.startswith("Order 39 GPUs now: what is ordered as the log ends is there on 30 Sep 2026 (90 days). ")
    assert said.endswith("Without an order, the target is missed then with probability 20%.")
    later = sentences.dates(changed(order_by="2026-07-05T00:00:00+00:00"))
    assert later.startswith("From 3 Oct 2026 on GPUs are short. Order 39 GPUs by 5 Jul 2026, with a lead time of 90")
    assert later.endswith("the target is missed in the four weeks from 30 Sep 2026 on with probability 20%.")
    much_later = sentences.dates(changed(order_by="2026-09-05T00:00:00+00:00", shortfall=0))
    assert much_later.endswith("Until then those held at once so far suffice (risk 20%).")
    never = changed(first_crossing=None, order_by=None, risk_without_order=0.001)
    assert sentences.dates(never).endswith("the target is missed with probability below 1%.")
    assert "more is wanted with probability" in sentences.dates({**never, "basis": "peak"})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "better than the best naive method's 13.1%"),
        ({"wape": 0.2}, "not better than"),
        ({"wape": 0.1307, "best_naive_wape": 0.1311}, "WAPE 13.1% on the evaluation windows, not better than"),
        ({"model": "SeasonalNaive"}, "It is a naive method"),
        ({"wape": None}, "WAPE is undefined"),
    ],
)
def test_model_is_compared_with_the_best_naive_method(changes, text):
    assert text in sentences.model_accuracy(changed(**changes))


def test_caveats_name_kind_rejections_and_unknowns():
    text = " ".join(caveats(NUMBERS, BacktestWindows(4, 2), TABLES, Skipped()))
    for part in ("synthetic", "100 of 1,000 rows (10.0%)", "2 jobs finished at an unknown time", "56 bins"):
        assert part in text


def test_caveats_say_nothing_that_the_page_has_said():
    numbers, tables = changed(wape=0.9), TABLES | {"waits": WAITS, "log": LOG.assign(unknown_start=3)}
    said = [*summarize(numbers, tables, "segment"), sentences.accuracy_warning(numbers)]
    assert short_horizon(numbers) in said
    assert any("would have sufficed" in text for text in said)
    assert any("Of 3 jobs it does not tell the start" in text for text in said)
    later = caveats(numbers, BacktestWindows(4, 2), tables, Skipped())
    assert not {*said} & {*later}
    assert not [text for text in later if "WAPE" in text or "unknown time: counted as held" in text]


def test_demand_that_waited_is_known_where_the_log_tells_it():
    held, wanted = (
        " ".join(caveats(NUMBERS, BacktestWindows(4, 2), tables, Skipped()))
        for tables in (TABLES, TABLES | {"wanted": pd.DataFrame()})
    )
    assert "what waited, or was not submitted, because the cluster was full" in held
    assert "waited" not in wanted
    assert "What was not submitted because the cluster was full (censored demand) is not known." in wanted


@pytest.mark.parametrize(
    ("freq", "last", "lead", "until"),
    [
        ("D", "2026-07-29T00:00:00-07:00", "28D", None),
        ("D", "2026-07-29T00:00:00-07:00", "29D", "29 Jul 2026"),
        ("W-MON", "2026-07-27T00:00:00-07:00", "29D", None),
        ("W-MON", "2026-07-27T00:00:00-07:00", "33D", "2 Aug 2026"),
        # Winter time has begun since the log ended.
        ("MS", "2026-12-01T00:00:00-08:00", "183D", None),
    ],
)
def test_a_forecast_ends_with_its_last_bin(freq, last, lead, until):
    numbers = changed(freq=freq, plan_end=last, lead_time=lead, log_end="2026-07-02T00:00:00-07:00")
    said = short_horizon(numbers)
    assert said.startswith(f"The forecast ends on {until}, before GPUs") if until else not said


@pytest.mark.parametrize(("peak", "begun"), [("2026-06-29", ", in which the log ends:"), ("2026-07-06", ":")])
def test_the_week_in_which_the_log_ends_is_named_as_that(peak, begun):
    said = demand_sentence(changed(freq="W-MON", peak_bin=f"{peak}T00:00:00+00:00"))
    assert f"The week with the largest demand ahead is {pd.Timestamp(peak).day} " in said
    assert f" 2026{begun} the median forecast" in said


@pytest.mark.parametrize(
    ("jobs", "lead", "said"),
    [
        (900, "180D", ""),
        (
            900,
            "365D",
            "over a lead of 365 days no log has told: the range of the GPUs required is about that of 180 days",
        ),
        (float("nan"), "56D", ""),
        (
            float("nan"),
            "9W",
            "over a lead of 63 days no log has told: the range of the GPUs required is about that of 56",
        ),
    ],
)
def test_a_lead_beyond_those_of_the_margins_is_a_limitation(jobs, lead, said):
    tables = TABLES | {"log": LOG.assign(jobs=jobs)}
    text = " ".join(caveats(changed(lead_time=lead), BacktestWindows(4, 2), tables, Skipped()))
    assert said in text
    assert ("no log has told" in text) == bool(said)


def test_the_summary_says_that_the_forecast_ends_before_an_order_arrives():
    tables = {"order_backtest": PLANS}
    said = [
        text for text in summarize(NUMBERS, tables, "segment") if "before GPUs ordered as the log ends arrive" in text
    ]
    assert said == [short_horizon(NUMBERS)]
    assert "(lead time 90 days)" in said[0]
    assert "arrive" not in " ".join(summarize(changed(lead_time="7D"), tables, "segment"))


def test_the_basis_names_target_range_and_where_the_number_installed_is_from():
    said = sentences.basis(NUMBERS)
    assert "with probability 95% for the target that 90% of the jobs start within 1 h" in said
    assert (
        "between 900 and 1,004 (90%); a rule of one line, 1.15 times the need of the last eight weeks, says 980" in said
    )
    assert said.endswith(f"GPUs installed: not given; {sentences.HELD_AT_ONCE} is taken for it.")
    assert "the most GPUs held at once in four weeks" in sentences.basis(changed(basis="peak"))


def test_a_plan_by_type_says_how_many_of_it_to_order():
    types = [order(10, NUMBERS["log_end"], "H100", "30D")]
    said = sentences.dates(changed(order_by=None, to_order=0, risk_without_order=0.004, types_to_order=types))
    assert said.startswith("As one pool, those held at once so far suffice (risk below 1%); each GPU type")
    assert "H100 runs short. Order 10 H100 GPUs now: what is ordered as the log ends is there on 1 Aug 2026" in said


def test_types_that_need_more_than_the_pool_lead_the_answer():
    now = NUMBERS["log_end"]
    sizes = [order(28, now, "A100"), order(5, now, "H100")]
    pool = {"order_by": now, "to_order": 33, "orders_as_one_pool": [order(2, now)]}
    said = sentences.dates(changed(**pool, types_to_order=sizes))
    assert said.startswith(
        "As one pool, 2 more would do; each GPU type for itself, A100, H100 run short. Order 28 A100"
    )
    assert "28 A100 GPUs and 5 H100 GPUs now" in said
    many = [order(1, now, f"T{number}") for number in range(6)]
    assert "1 T2 GPU and 3 GPUs of others now" in sentences.dates(changed(**pool, types_to_order=many))


def test_each_type_has_its_date_and_its_arrival():
    now, short = NUMBERS["log_end"], {"order_by": None, "to_order": 0}
    leads = [order(5, now, "H100"), order(3, now, "A100", "10D")]
    assert (
        "Order 5 H100 GPUs now: what is ordered as the log ends is there on 30 Sep 2026 (90 days); 3 A100 GPUs now, "
        "there on 12 Jul 2026 (10 days)."
    ) in sentences.dates(changed(**short, types_to_order=leads))
    dates = [order(4, now, "H100"), order(13, "2026-07-14", "A100"), order(9, "2026-08-01", "H100")]
    assert "there on 30 Sep 2026 (90 days); 13 A100 GPUs by 14 Jul 2026; 9 more H100 GPUs by 1 Aug 2026." in (
        sentences.dates(changed(**short, types_to_order=dates))
    )
    later = [order(7, "2026-07-20", "T7"), order(8, "2026-08-20", "T8", "30D")]
    assert sentences.dates(changed(**short, types_to_order=later)).endswith(
        "Order 7 T7 GPUs by 20 Jul 2026, with a lead time of 90 days; 8 T8 GPUs by 20 Aug 2026, with a lead time of 30 "
        "days."
    )
    many = [order(1, f"2026-07-1{number}", f"T{number}") for number in range(6)]
    assert sentences.dates(changed(**short, types_to_order=many)).endswith("1 T3 GPU by 13 Jul 2026; others later.")


def test_what_is_ordered_later_is_told_with_the_first_order():
    orders = [order(1, NUMBERS["log_end"]), order(20, "2026-07-14")]
    said = sentences.dates(changed(to_order=1, orders_as_one_pool=orders))
    assert said.startswith("Order 1 GPU now: what is ordered as the log ends is there on 30 Sep 2026 (90 days); ")
    assert "; 20 more GPUs by 14 Jul 2026. Without an order" in said


def test_of_each_type_it_is_said_when_what_is_short_ends():
    end = "2026-10-20T00:00:00+00:00"
    types = [order(3, NUMBERS["log_end"], "A100"), order(4, NUMBERS["log_end"], "H100", end=end)]
    numbers = changed(order_by=None, to_order=0, types_to_order=types)
    assert sentences.dates(numbers).endswith(" H100 GPUs are short until 20 Oct 2026, when fewer are required.")
    arrive = [{"on": end, "gpus": 8.0, "name": "H100"}]
    assert "until 20 Oct 2026, when others arrive" in sentences.dates(numbers | {"installed_changes": arrive})


def test_where_most_earlier_plans_fell_short_the_page_says_why_and_what_to_do():
    short = pd.DataFrame({"plan": [900.0, 1000.0, 1200.0], "need": [1000.0, 1150.0, 1100.0], "rule": 920.0})
    said = sentences.earlier_plans(short, 0.95)
    assert "1 would have sufficed (95% were promised)" in said
    assert "They fell short as the need grew by 38% within that time" in said
    assert "fell short" not in sentences.earlier_plans(PLANS, 0.95)


def test_earlier_plans_say_by_how_much_they_were_too_small_and_that_none_could_be_tested():
    said = sentences.earlier_plans(
        pd.DataFrame({"plan": [900.0, 1000.0], "need": [1000.0, 900.0], "rule": 920.0}), 0.95
    )
    assert said.endswith("Those that were too small were so by at most 10%.")
    early = pd.DataFrame({"plan": [1000.0, 950.0, 900.0], "need": [900.0, 900.0, 1000.0], "rule": 920.0})
    assert sentences.earlier_plans(early, 0.95).endswith("by at most 10%, and the latest 2 sufficed.")
    assert "too short to test" in sentences.earlier_plans(PLANS.iloc[:0], 0.95)


def test_the_reason_of_the_number_names_its_parts_and_their_weights():
    said = sentences.how_required(NUMBERS, 0.47, 1.21)
    assert "between the recent and the usual one (weights 47% and 53%)" in said
    assert "a growth of 21% until then" in said
    assert "in a simulated queue of its jobs, 90% of the jobs start within 1 h" in said
    at_once = sentences.how_required(changed(basis="peak"), 1.0, 1.1)
    assert "expected around the recent one. Past needs show a growth of 10%" in at_once
    assert "no growth beyond their scatter" in sentences.how_required(NUMBERS, 1.0, 1.0)


def test_a_short_log_is_not_said_to_show_no_growth():
    short = changed(past_windows=8, tells_growth=False)
    assert "no growth" not in sentences.how_required(short, 1.0, 1.0)
    for said in (sentences.basis(short), sentences.how_required(short, 1.0, 1.0)):
        assert "The log is too short to tell growth" in said
    assert "too short" not in sentences.basis(NUMBERS)
    for windows, weeks in ((1, "the log"), (4, "the last four weeks"), (5, "the last eight weeks")):
        assert f"1.15 times the need of {weeks}, says" in sentences.basis(changed(past_windows=windows))


def test_waits_beside_idle_gpus_are_told_apart():
    assert sentences.waits_beside_idle(NUMBERS) == sentences.waits_beside_idle({"waits_beside_idle": 0.004}) == ""
    text = " ".join(summarize(changed(waits_beside_idle=0.4), TABLES | {"waits": WAITS}, "segment"))
    assert "40% was beside as many idle GPUs" in text
    short = {"waits": WAITS.assign(mean_wait_h=0.001)}
    assert "idle GPUs" not in " ".join(summarize(changed(waits_beside_idle=0.4), TABLES | short, "segment"))


def test_the_page_states_plan_backtest_and_undercoverage():
    text = " ".join([*caveats(NUMBERS, BacktestWindows(4, 2), TABLES, Skipped()), *summarize(NUMBERS, TABLES, "")])
    assert "1 would have sufficed (95% were promised), with 1.08 times the GPUs needed" in text
    assert "too narrow" not in text
    assert "too narrow: the 95% interval contained 81%" in " ".join(
        caveats(changed(coverage_95=0.81), BacktestWindows(4, 2), TABLES, Skipped())
    )
    none = {**TABLES, "order_backtest": PLANS.head(0)}
    assert "would have sufficed" not in " ".join(summarize(NUMBERS, none, ""))
    assert "90% are counted on" in " ".join(caveats(changed(availability=0.9), BacktestWindows(4, 2), none, Skipped()))


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


def test_a_log_slower_than_its_simulated_queue_is_said():
    shares = {"share_in_time_recorded": 0.4, "share_in_time_simulated": 0.8}
    assert "40% started within 1 h" in sentences.slower_than_simulated(changed(**shares))
    for missing in ({}, {"share_in_time_recorded": None}, {"share_in_time_simulated": 0.42}):
        assert not sentences.slower_than_simulated(changed(**(shares if missing else {}) | missing))
