"""The chain as one object: stages as tables, and a page whose numbers are theirs."""

from __future__ import annotations

import json
import re
from functools import cache

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
from gpudemand._tables import html_table
from gpudemand._validation import InputError
from gpudemand.forecast import longest_horizon
from gpudemand.jobs.table import as_of
from gpudemand.study import selection as candidates
from gpudemand.study.selection import bins_of_week, split_windows
from gpudemand.study.study import result
from tests.jobs import mutations
from tests.report.conftest import make_log, quick_module, renamed, selected_once, undrawn  # noqa: F401
from tests.tiers import slow_beside

STAGES = ("usage", "waits", "segments", "forecast", "plan", "wait_plan", "orders", "drivers", "scenarios", "trust")
LOG = make_log(days=70)
#: As above, without plans by type.
ONE_TYPE = renamed(LOG, gpu_type="A100")
END = LOG["end"].max().normalize()
TUNING = gd.Programme("tuning", 400, END, END + pd.Timedelta("40D"), hours=6, gpus=8)
pytestmark = pytest.mark.usefixtures("quick_module", "selected_once", "undrawn")


@cache
def study(**options):
    return gd.Study(LOG, horizon=7, installed=40, lead_time="3D", prices=(1.0, 3.0), wait="1h", **options)


@pytest.fixture
def combined(monkeypatch):
    """With the combined forecaster, which the other tests leave out."""
    monkeypatch.setattr(candidates, "_MIN_COMBINATION_BINS", 28)


@pytest.fixture
def smoothed(monkeypatch):
    """With ETS, likewise."""
    naive, others = candidates.CANDIDATES[:-2], candidates.CANDIDATES[-2:]
    monkeypatch.setattr(candidates, "CANDIDATES", (*naive, gd.ETS, *others))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return study().report(tmp_path_factory.mktemp("study") / "report").parent


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_is_a_table_and_computed_once(stage, monkeypatch):
    table = getattr(study(), stage)
    assert isinstance(table, pd.DataFrame)
    assert len(table)
    for name in ("select_and_forecast", "plan_for_waits", "segment_users", "forecast_parts", "compute_usage_tables"):
        monkeypatch.setattr(f"gpudemand.study.study.{name}", None)
    pd.testing.assert_frame_equal(getattr(study(), stage), table)


@pytest.mark.parametrize("stage", STAGES)
def test_a_notebook_shows_a_stage_rounded_with_dates_as_dates(stage):
    table = getattr(study(), stage)
    shown = table._repr_html_()
    assert shown == html_table(table)
    assert "00:00:00" not in shown
    assert not re.search(r"\d\.\d{5}", shown)
    assert all(f">{name}<" not in shown for name in table.columns[table.isna().all()])


def test_every_table_of_a_study_is_handed_out_as_one_to_read():
    tables = {name for name, own in vars(gd.Study).items() if str(returned(own)).endswith("pd.DataFrame")}
    assert tables >= {*STAGES, "idle", "purchases", "purchase_mix"}
    assert {name for name in tables if not isinstance(vars(gd.Study)[name], result)} == {"what_if"}
    assert study().what_if({"doubled": gd.planning.Growth(2.0)})._repr_html_().startswith("<table")


def returned(own):
    """Annotation of what a method or an attribute gives; none of others."""
    function = getattr(own, "fget", None) or getattr(own, "func", own)
    return getattr(function, "__annotations__", {}).get("return") if not isinstance(own, type) else None


@pytest.mark.parametrize("stage", STAGES)
def test_a_table_that_is_edited_leaves_the_study_as_it_is(stage):
    table = getattr(study(), stage)
    before = table.copy()
    del table[table.columns[0]]
    pd.testing.assert_frame_equal(getattr(study(), stage), before)
    with pytest.raises(AttributeError):
        setattr(study(), stage, table)


def test_nothing_is_computed_before_it_is_asked_for(monkeypatch):
    for name in ("select_and_forecast", "plan_for_waits", "segment_users", "forecast_parts"):
        monkeypatch.setattr(f"gpudemand.study.study.{name}", None)
    assert {"held", "wanted", "peak"} < set(gd.Study(LOG, horizon=7).usage)


@pytest.mark.parametrize("share", slow_beside([0.45], [0.3, 0.45, 0.8]))
def test_the_risk_is_that_the_need_exceeds_the_gpus(share):
    some = gd.Study(LOG, horizon=7, installed=float(np.quantile(_needed(study()), share)), lead_time="3D", wait="1h")
    missed = (_needed(some) > some.plan["installed"].iloc[0]).mean()
    assert some.headline["risk_without_order"] == pytest.approx(missed, abs=0.02) == pytest.approx(1 - share, abs=0.02)
    mean = some.requirement.plans["mean"].table
    assert some.headline["peak_bin"] == mean.loc[mean["required"].idxmax(), "ds"].isoformat()


def _needed(of):
    return of.queue_plan.needed


@pytest.mark.slow
def test_the_report_shows_the_stages(folder):
    tables = {"waits": "waits", "orders": "orders", "drivers": "drivers", "scenarios": "scenarios"}
    tables |= {"periods": "periods", "targets": "targets", "order_backtest": "order_backtest"}
    tables |= {"wait_plan": "wait_plan", "segments": "segments", "plan_summary": "plan", "models": "trust"}
    for file, stage in tables.items():
        written = pd.read_parquet(folder / "tables" / f"{file}.parquet")
        pd.testing.assert_frame_equal(written, getattr(study(), stage), check_dtype=False, check_like=True)
    assert json.loads((folder / "headline.json").read_text()) == study().headline
    html = (folder / "index.html").read_text()
    assert "What changed" in html
    assert "Waits by number of GPUs" in html
    assert "the target is missed" in html


def test_the_forecast_of_the_total_is_the_sum_of_its_parts():
    forecast = study(programmes=(TUNING,)).forecast
    assert "total/tuning" in set(forecast["unique_id"])
    parts = forecast[forecast["unique_id"].str.startswith("total/")].groupby("ds")["Study"].sum()
    total = forecast[forecast["unique_id"] == "total"].set_index("ds")["Study"]
    np.testing.assert_allclose(parts, total, rtol=1e-9)


def test_usage_by_segment_sums_to_the_total():
    by_segment = study().source.usage(study().user_segments.segment_of, "D", "wanted").groupby("ds")["y"].sum()
    np.testing.assert_allclose(by_segment, study().usage.set_index("ds")["wanted"], rtol=1e-9)


def test_a_programme_raises_forecast_plan_and_waits():
    before, after = study(), study(programmes=(TUNING,))
    mean = {s: s.forecast.set_index("unique_id")["Study"].loc["total"].mean() for s in (before, after)}
    # 400 runs of 48 GPU-hours in 40 days.
    assert mean[after] - mean[before] == pytest.approx(400 * 48 / (40 * 24), rel=0.2)
    assert (after.plan.set_index("basis")["required"] > before.plan.set_index("basis")["required"]).all()


def test_serving_is_a_part_of_its_own():
    chat = gd.Serving("chat", 35, END, END + pd.Timedelta("40D"), throughput=1, gpus_per_replica=2, spread=0.1)
    forecast = gd.Study(LOG, horizon=7, installed=40, programmes=[TUNING, chat]).forecast
    assert "total/tuning" in set(forecast["unique_id"])
    part, total = (forecast[forecast["unique_id"] == name] for name in ("total/chat", "total"))
    np.testing.assert_allclose(part["Study"], 70)
    assert (part.filter(like="-lo-") < 70).to_numpy().all()
    assert (total["Study"].to_numpy() > 70).all()


def test_an_order_helps_from_the_day_it_arrives():
    orders = gd.Study(LOG, horizon=7, installed=25, lead_time="3D", wait="1h").orders
    assert orders["order"].tolist()[0] == 0
    assert (orders["in_service"] - orders["order_on"]).dropna().eq(pd.Timedelta("3D")).all()
    none, now, later = (orders.iloc[row] for row in range(3))
    assert now["unmet_share"] < later["unmet_share"] <= none["unmet_share"]
    assert now["mean_wait_h"] < none["mean_wait_h"]
    assert now["idle_share"] > none["idle_share"]


@pytest.mark.slow
def test_an_order_a_month_later_helps_later_and_not_as_none():
    for options in ({"lead_time": "3D"}, {"lead_time": "30D", "wait": "1h"}):
        orders = gd.Study(LOG, horizon=7, installed=25, prices=(1.0, 3.0), **options).orders
        none, now, later = (orders.iloc[row] for row in range(3))
        assert now["unmet_share"] < later["unmet_share"] < none["unmet_share"]
        assert now["idle_share"] > later["idle_share"] > none["idle_share"]


def test_orders_of_a_plan_of_one_bin():
    orders = gd.Study(LOG, horizon=1, freq="W-MON", installed=25, lead_time="3D").orders
    none, now, later = (orders.iloc[row] for row in range(3))
    assert now["unmet_share"] < later["unmet_share"] < none["unmet_share"]


@pytest.mark.slow
def test_what_is_ordered_already_is_not_ordered_again():
    begin = study().forecast["ds"].min()
    steps = pd.Series([25.0, 400.0], index=[begin - pd.Timedelta("90D"), begin + pd.Timedelta("2D")])
    delivered = gd.Study(LOG, horizon=7, installed=steps, lead_time="3D")
    assert delivered.orders["order"].tolist() == [0]
    numbers = delivered.headline
    assert (numbers["to_order"], numbers["order_by"], numbers["installed_later"]) == (0, None, 400.0)
    assert "no more than the 400 that are installed when an order could arrive (25 now)" in repr(delivered)
    # What is retired before an order is there has to be ordered too, and raises waits and unmet demand without one.
    retired = gd.Study(LOG, horizon=7, installed=steps.set_axis(steps.index[::-1]), lead_time="3D", wait="1h")
    kept = gd.Study(LOG, horizon=7, installed=400, lead_time="3D", wait="1h")
    assert retired.headline["to_order"] == retired.headline["required"] - 25
    assert retired.orders["mean_wait_h"].iloc[0] > 10 * kept.orders["mean_wait_h"].iloc[0]


@pytest.mark.slow
def test_a_retirement_before_a_delivery_is_named_and_not_ordered_for():
    first = study().forecast["ds"].min()
    times = [first - pd.Timedelta("90D"), *(first + pd.Timedelta(days=days) for days in (1, 3, 5))]
    # Short until the delivery, which comes before an order could, and again from the second retirement on.
    retired = gd.Study(LOG, horizon=7, installed=pd.Series([400.0, 10.0, 400.0, 10.0], index=times), lead_time="3D")
    said, numbers = repr(retired).splitlines()[1], retired.headline
    names = [
        f"{number} on {time.day} {time:%b %Y}" for number, time in zip(("leave", "arrive"), times[1:], strict=False)
    ]
    assert all(f"390 GPUs {name}" in said for name in names)
    assert numbers["first_crossing"] == times[1].isoformat()
    assert pd.Timestamp(numbers["order_by"]) == times[3] - pd.Timedelta("3D")
    assert f"Order {numbers['to_order']} GPUs by" in said


def test_an_end_before_the_log_is_refused():
    with pytest.raises(InputError, match="before the log begins"):
        gd.Study(LOG, horizon=7, until="2020-01-01")


@pytest.mark.slow
def test_deliveries_count_from_their_date():
    begin = study().forecast["ds"].min()
    steps = pd.Series([40.0, 400.0], index=[begin - pd.Timedelta("90D"), begin + pd.Timedelta("2D")])
    delivered = gd.Study(LOG, horizon=7, installed=steps, lead_time="3D")
    plain = gd.Study(LOG, horizon=7, installed=40, lead_time="3D")
    table = delivered.requirement.envelope()
    assert table["installed"].head(7).tolist() == [40.0, 40.0] + [400.0] * 5
    assert delivered.headline["installed"] == 40.0
    assert delivered.plan["share_over"].sum() < plain.plan["share_over"].sum()


def test_the_change_of_demand_is_the_sum_over_users():
    drivers = study().drivers.set_index("driver")
    users = drivers[drivers.index.str.startswith("users who")]
    types = drivers[drivers.index.str.startswith("GPU type")]
    for part in (users, types):
        assert part["change_gpus"].sum() == pytest.approx(drivers.loc["total", "change_gpus"])
        assert part["after"].sum() == pytest.approx(drivers.loc["total", "after"])


def test_a_log_without_submit_times_is_planned_from_its_starts():
    log = LOG.assign(submit=pd.NaT)
    log.attrs = dict(LOG.attrs)
    held = gd.Study(log, horizon=7)
    assert "wanted" not in held.usage
    assert held.plan["basis"].tolist() == ["mean", "wait"]
    with pytest.raises(InputError, match="no submit times"):
        _ = held.waits


@pytest.mark.slow
def test_the_default_horizon_is_what_the_log_bears():
    assert gd.Study(LOG, lead_time="3D").headline["horizon"] == 21  # twice within 71 days, after four weeks
    assert gd.Study(LOG, lead_time="7D", freq="12h").settings.horizon == 42
    short = gd.Study(make_log(days=200), lead_time="10D")
    assert short.settings.horizon == 38


@pytest.mark.parametrize(("freq", "bins"), [("D", 58), ("W-MON", 9), ("MS", 2)])
def test_the_default_horizon_reaches_from_the_first_bin_to_four_weeks_after_an_order(freq, bins):
    submit = pd.date_range("2024-01-01", "2026-02-27 12:00", freq="7h", tz="UTC")
    log = pd.DataFrame({"user": "ada", "start": submit, "end": submit + pd.Timedelta("5h"), "gpus": 1.0})
    assert gd.Study(log, lead_time="30D", freq=freq).settings.horizon == bins


@pytest.mark.parametrize("freq", ["W", "W-SUN", "W-MON", "MS", "2D"])
def test_the_history_is_long_enough_for_the_default_horizon(freq):
    # The first and the last week and month are partial.
    begin = "2025-06-10" if freq == "MS" else "2026-01-06 12:00"
    submit = pd.date_range(begin, "2026-04-04 12:00", freq="7h", tz="UTC")
    log = pd.DataFrame({"user": "ada", "start": submit, "end": submit + pd.Timedelta("5h"), "gpus": 1.0})
    study = gd.Study(log, freq=freq)
    usage = study.usage_tables.total
    horizon = study.settings.horizon
    assert split_windows(usage["ds"].nunique(), horizon, bins_of_week(usage)).n_evaluation
    assert 1 < horizon <= longest_horizon(usage)


@pytest.mark.slow
def test_one_bit_of_the_log_decides_nothing():
    nobody = ONE_TYPE.assign(submit=LOG["start"])
    one = nobody.assign(submit=nobody["submit"].mask(nobody.index == 9, nobody["submit"] - pd.Timedelta("2s")))
    numbers = [gd.Study(log, horizon=7, lead_time="3D").headline for log in (nobody, one)]
    assert numbers[0]["basis"] == numbers[1]["basis"] == "wait"
    assert abs(numbers[0]["required"] - numbers[1]["required"]) <= 1
    assert numbers[0]["to_order"] == numbers[1]["to_order"] == 0


def test_the_number_required_does_not_grow_with_the_number_stated_but_with_what_does_not_run():
    required = [
        gd.Study(ONE_TYPE, horizon=7, lead_time="3D", **options).headline["required"]
        for options in ({"installed": 40}, {"installed": 80}, {"installed": 80, "availability": 0.8})
    ]
    assert required[0] == required[1]
    assert required[2] == pytest.approx(required[0] / 0.8, abs=1)


@pytest.mark.slow
@pytest.mark.usefixtures("combined")
def test_nothing_after_the_end_of_the_period_is_known():
    until = END - pd.Timedelta("10D")
    options = {"horizon": 7, "installed": np.int64(40), "wait": "1h", "until": until}
    later, cut = (gd.Study(log, **options) for log in (LOG, as_of(LOG, until)))
    pd.testing.assert_frame_equal(later.wait_plan, cut.wait_plan)
    pd.testing.assert_frame_equal(later.plan, cut.plan)
    assert later.headline == cut.headline


def test_reasons_are_sentences():
    plain = gd.Study(renamed(LOG, user=None), horizon=7, by="group")
    with pytest.raises(InputError, match="names no users"):
        _ = plain.segments
    with pytest.raises(InputError, match=r"horizon must be a whole number of at least 1 .* got 0"):
        gd.Study(LOG, horizon=0)
    with pytest.raises(InputError, match="times with a zone"):
        gd.Study(LOG, installed=pd.Series([1.0], index=pd.DatetimeIndex(["2026-01-01"])))
    with pytest.raises(InputError, match=r"wait must be longer than 0 s"):
        gd.Study(LOG, horizon=7, wait="0s")
    with pytest.raises(InputError, match="type_aliases must be a mapping"):
        gd.Study(LOG, type_aliases=3)
    for programmes in (TUNING, [1], "tuning", gd.Programme):
        with pytest.raises(InputError, match="programmes must be a list of Programme or Serving"):
            gd.Study(LOG, programmes=programmes)
    with pytest.raises(InputError, match="two programmes are called 'tuning'"):
        gd.Study(LOG, programmes=[TUNING, TUNING])


def test_a_programme_called_like_a_part_is_refused_as_one():
    named = study().forecast["unique_id"].iloc[-1].removeprefix("total/")
    programme = gd.Programme(named, 400, END, END + pd.Timedelta("40D"), hours=6, gpus=8)
    told = gd.Study(LOG, horizon=7, installed=40, programmes=[programme])
    assert list(told.forecast["unique_id"].unique()) == ["total", "peak"]
    assert told.skipped["parts"].endswith("is called like a part of the forecast; rename it.")


def test_it_prints_its_answer():
    text = repr(study())
    assert text.startswith("Study: So that 90% of the jobs start within 1 h from ")
    assert "this cluster requires" in study()._repr_html_()
    assert "00:00" not in text
    assert max(map(len, text.splitlines()[2:])) <= 120


def forty_days_of(name, data, folder):
    """Jobs of a small log of a format, repeated every day."""
    jobs, times = mutations.read(name, data, folder), ["submit", "start", "end"]
    days = range(40)
    moved = [jobs.assign(**{time: jobs[time] + pd.Timedelta(days=day) for time in times}) for day in days]
    return pd.concat([part.assign(job_id=part["job_id"] + f"/{day}") for day, part in zip(days, moved, strict=True)])


def outcome(answered, stage):
    try:
        return getattr(answered, stage)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("name", slow_beside(("canonical",), mutations.LOGS))
def test_every_stage_of_every_format_is_a_table_or_a_sentence(name, tmp_path):
    log = forty_days_of(name, mutations.LOGS[name][1], tmp_path).reset_index(drop=True)
    answered = gd.Study(log, horizon=5, wait="1h", by="total")
    for stage in STAGES:
        found = outcome(answered, stage)
        assert found.endswith((".", ")")) if isinstance(found, str) else len(found), stage
    assert {"held", "peak"} < set(answered.usage)
    assert len(answered.plan) == 2


@pytest.mark.slow
@pytest.mark.parametrize("methods", ["naive", "combined"])
def test_events_reach_every_forecast_and_are_listed(methods, request):
    if methods == "combined":
        request.getfixturevalue("combined")
    until = study().forecast["ds"].max()
    closed = pd.DataFrame(
        {"event": ["closure"], "start": [until - pd.Timedelta("2D")], "end": [until], "effect": [-1.0]}
    )
    one = gd.Study(LOG, horizon=7, installed=40, events=closed, holidays="DE")
    forecast = one.forecast.set_index(["unique_id", "ds"])["Study"].unstack("unique_id")
    assert (forecast.iloc[-3:-1] == 0).all(axis=None)
    assert (forecast.iloc[[0, -1]][["total", "peak"]] > 0).all(axis=None)
    table = one.events.set_index("event")
    assert table.loc["closure", ["bins_past", "bins_ahead", "effect", "effect_from"]].tolist() == [0, 2, -1.0, "stated"]
    assert table.loc["closure", "first_ahead"] == until - pd.Timedelta("2D")
    assert table.loc["public holiday", "effect_from"] in ("history", "none shown")
    with pytest.raises(InputError, match="no events were stated"):
        study().events  # noqa: B018


def test_risk_and_requirement_agree_in_every_period():
    level = study().settings.service_level
    periods = study().need, study().periods
    for begin, required in zip(periods[1]["begin"], periods[1]["required"], strict=True):
        assert periods[0].risk(required, begin) <= 1 - level + 1e-9 < periods[0].risk(required - 1, begin)


@pytest.mark.slow
def test_users_are_forecast_from_their_segments(monkeypatch):
    fits = []

    class ClusterwiseForecaster(gd.ClusterwiseForecaster):
        def fit(self, usage):
            fits.append((self, usage))
            return super().fit(usage)

    monkeypatch.setattr("gpudemand.study.parts.ClusterwiseForecaster", ClusterwiseForecaster)
    found, made = study().user_forecast, study()
    names = sorted(made.user_segments.labels.index)
    assert sorted(set(found["unique_id"])) == names
    assert len(found) == 7 * len(names)
    assert found["segment"].tolist() == found["unique_id"].map(made.user_segments.segment_of).tolist()
    own, ((model, usage),) = made.source.usage("user", "D", "wanted"), fits
    pd.testing.assert_series_equal(model.segmenter, made.user_segments.labels)
    assert model.horizon == 7
    pd.testing.assert_frame_equal(usage, own[own["unique_id"].isin(names)])
    np.testing.assert_array_equal(found["ClusterwiseForecaster"], model.predict(7)["ClusterwiseForecaster"])
    assert found["cluster"].tolist() == found["unique_id"].map(model.labels_).tolist()


def test_the_logger_tells_the_steps_and_what_is_skipped(caplog):
    jobs, _ = gd.make_cluster(n_users=6, n_days=40, random_state=0)

    def refuse():
        raise InputError("no prices were given.")

    with caplog.at_level("INFO", logger="gpudemand"):
        study = gd.Study(jobs, lead_time="7D")
        assert len(study.usage_tables.total)
        assert study.attempt("costs", refuse) is None
    assert "Computing usage" in caplog.messages
    assert "Skipping costs: No prices were given." in caplog.messages


@pytest.mark.parametrize("begin", ["2026-03-10", "2026-04-24"])
def test_the_clock_may_change_at_midnight(begin):
    """Within the log and what it forecasts, and on the first day of the log."""
    later = pd.Timestamp(begin, tz="UTC") - LOG["submit"].min().normalize()
    moved = LOG.assign(**{name: LOG[name] + later for name in ("submit", "start", "end")})
    plans = [
        gd.Study(moved, tz=tz, horizon=7, installed=40, lead_time="3D", wait="1h").plan
        for tz in ("Africa/Cairo", "Etc/GMT-2")
    ]
    np.testing.assert_allclose(plans[0]["required"], plans[1]["required"], rtol=0.1)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"start": pd.NaT, "end": pd.NaT, "status": "pending"}, "no job of this log has started, so none held a GPU"),
        ({"gpus": 0.0}, "gpus is 0 or unknown of all that started"),
        ({"end": LOG["start"]}, "every job of this log that has GPUs ended as it started"),
    ],
)
def test_a_log_that_held_no_gpu_says_why(changes, why):
    with pytest.raises(InputError, match=why):
        gd.Study(LOG.assign(**changes), installed=64).usage  # noqa: B018 (raises)


@pytest.mark.parametrize("hours", [20, 30])
def test_a_log_of_a_day_in_hours_has_no_change_to_explain(hours):
    begin = pd.Timestamp("2026-02-02 02:00", tz="UTC")
    times = pd.date_range(begin, periods=hours, freq="h")
    jobs = pd.DataFrame({"user": "ada", "start": times, "end": times + pd.Timedelta("1h"), "gpus": 2.0})
    with pytest.raises(InputError, match="shorter than two whole days, so there is no change to explain"):
        gd.Study(jobs, freq="h", horizon=2).drivers  # noqa: B018 (raises)


def test_every_time_is_told_in_the_zone_of_the_study():
    zone, until = "America/Los_Angeles", pd.Timestamp("2026-03-02 05:00", tz="UTC")  # on 1 March there
    steps = pd.Series([25.0, 20.0], pd.DatetimeIndex(["2026-01-01", "2026-04-01 05:00"], tz="UTC"))
    said = gd.Study(ONE_TYPE, horizon=7, installed=steps, lead_time="20D", tz=zone, until=until)
    # Summer time begins in between: an hour later by the clock.
    arrival = said.need.log_end + said.need.lead_time
    assert (str(said.need.log_end.tz), said.headline["order_arrives"]) == (zone, "2026-03-21T22:00:00-07:00")
    assert said.headline["installed_changes"] == [{"on": "2026-03-31T22:00:00-07:00", "gpus": -5.0, "name": None}]
    assert said.periods["begin"].iloc[0] == said.orders["in_service"].iloc[1] == arrival
    times = [said.periods["begin"], said.orders["order_on"], said.orders["in_service"], said.order_backtest["origin"]]
    assert [str(column.dt.tz) for column in times] == [zone] * 4
    assert "from 21 Mar 2026 on" in repr(said)
    assert "there on 21 Mar 2026" in repr(said)


@pytest.mark.parametrize(("until", "hours"), [("2026-03-30", 23), ("2026-03-29", 24)])
def test_a_period_ends_at_the_end_of_its_last_day(until, hours):
    later = pd.Timestamp("2026-04-10", tz="UTC") - LOG["end"].max().normalize()
    moved = LOG.assign(**{name: LOG[name] + later for name in ("submit", "start", "end")})
    periods = gd.Study(moved, tz="Europe/Berlin", until=until, installed=40).demand_by_period
    assert (periods["end"] <= pd.Timestamp(until, tz="Europe/Berlin")).all()
    assert periods["end"].max() == pd.Timestamp(until, tz="Europe/Berlin")
