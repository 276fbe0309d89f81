"""Forecasts that know holidays, closures and deadlines ahead."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpudemand._validation import InputError
from gpudemand.forecast import (
    CombinedForecaster,
    EventForecaster,
    HorizonForecaster,
    Naive,
    SeasonalNaive,
    ShortHistoryWarning,
    cross_validation,
    public_holidays,
)
from gpudemand.forecast.events import Calendar

BERLIN = "Europe/Berlin"


def days_off(days, event="holiday", length="1D", **columns):
    start = pd.DatetimeIndex(days)
    return pd.DataFrame({"event": event, "start": start, "end": start + pd.Timedelta(length), **columns})


def frame(y, start="2026-01-05", freq="D", tz=None, name="total"):
    return pd.DataFrame({"unique_id": name, "ds": pd.date_range(start, periods=len(y), freq=freq, tz=tz), "y": y})


def week_of_work(n_days, seed=0):
    """Quieter weekends, with noise of 5 %."""
    return np.where(np.arange(n_days) % 7 < 5, 100.0, 60.0) + np.random.default_rng(seed).normal(0, 5, n_days)


def test_an_effect_is_learned_and_forecast():
    usage = frame(week_of_work(140))
    off = usage["ds"].iloc[[30, 58, 86, 114]]
    usage.loc[usage["ds"].isin(off), "y"] *= 0.5
    events = days_off([*off, pd.Timestamp("2026-05-27")])
    model = EventForecaster(SeasonalNaive(), events).fit(usage)
    assert model.effects_["holiday"] == pytest.approx(-0.5, abs=0.04)
    forecast = model.predict(7, level=80).set_index("ds")
    plain = SeasonalNaive().fit(usage).predict(7).set_index("ds")["SeasonalNaive"]
    ratio = forecast["SeasonalNaive"] / plain
    assert ratio.drop(pd.Timestamp("2026-05-27")).tolist() == [1.0] * 6
    assert ratio["2026-05-27"] == pytest.approx(1 + model.effects_["holiday"])
    assert (forecast["SeasonalNaive-lo-80"] <= forecast["SeasonalNaive"]).all()


@pytest.mark.slow
def test_days_without_an_effect_change_nothing():
    """Of forty clusters whose demand ignores holidays, nearly all keep their forecast to within two percent."""
    effects = []
    for seed in range(40):
        usage = frame(week_of_work(140, seed))
        events = days_off(usage["ds"].iloc[np.random.default_rng(seed).choice(130, 5, replace=False)])
        effects.append(EventForecaster(Naive(), events).fit(usage).effects_["holiday"])
    assert np.mean(np.abs(effects) <= 0.02) > 0.9
    assert np.median(effects) == 0.0


def test_one_past_event_shows_no_effect_and_a_stated_one_holds():
    usage = frame(week_of_work(70))
    usage.loc[40:46, "y"] = 0.0
    events = days_off(["2026-02-14", "2026-03-16"], length="7D")
    assert EventForecaster(Naive(), events).fit(usage).effects_["holiday"] == 0.0
    model = EventForecaster(SeasonalNaive(), events.assign(effect=-1.0)).fit(usage)
    assert model.effects_["holiday"] == -1.0
    assert model.predict(14)["SeasonalNaive"].head(7).tolist() == [0.0] * 7
    assert model.predict(14)["SeasonalNaive"].tail(7).gt(40).all()
    assert model.predict(14, level=95).set_index("ds")["SeasonalNaive-hi-95"].gt(0).tolist() == [False] * 7 + [True] * 7


def test_a_stated_closure_is_not_taken_for_the_level():
    y = week_of_work(84)
    y[77:] *= 0.1
    closed = days_off(["2026-03-23"], length="7D", effect=-0.9)
    after = EventForecaster(Naive(), closed).fit(frame(y)).predict(1)["Naive"].iloc[0]
    assert Naive().fit(frame(y)).predict(1)["Naive"].iloc[0] < 10 < 50 < after


def test_forecasts_from_an_origin_know_nothing_of_what_comes_after():
    y, events = week_of_work(120), days_off(["2026-02-03", "2026-02-24", "2026-03-17", "2026-04-07", "2026-04-28"])
    changed = y.copy()
    changed[90:] *= 3
    model = EventForecaster(CombinedForecaster(), events)
    one, other = (cross_validation(model, frame(values), h=7, n_windows=4, step_size=7) for values in (y, changed))
    before = one["cutoff"] < frame(y)["ds"].iloc[90]
    pd.testing.assert_frame_equal(
        one.loc[before, ["ds", "CombinedForecaster"]], other.loc[before, ["ds", "CombinedForecaster"]]
    )


def test_hours_follow_the_local_clock_over_its_change():
    hours = pd.date_range("2026-02-02", "2026-03-30", freq="h", tz=BERLIN, inclusive="left")
    y = np.where(hours.hour.isin(range(8, 20)), 100.0, 40.0)
    usage = pd.DataFrame({"unique_id": "total", "ds": hours, "y": y})
    closed = days_off(["2026-03-31"], effect=-1.0)
    forecast = EventForecaster(SeasonalNaive(), closed).fit(usage).predict(72).set_index("ds")["SeasonalNaive"]
    nothing = forecast.index[forecast == 0]
    assert (nothing.min(), nothing.max(), nothing.size) == (
        pd.Timestamp("2026-03-31", tz=BERLIN),
        pd.Timestamp("2026-03-31 23:00", tz=BERLIN),
        24,
    )
    aware = closed.assign(start=closed["start"].dt.tz_localize(BERLIN), end=closed["end"].dt.tz_localize(BERLIN))
    same = EventForecaster(SeasonalNaive(), aware).fit(usage).predict(72).set_index("ds")["SeasonalNaive"]
    pd.testing.assert_series_equal(same, forecast)


def test_bins_that_an_event_takes_in_part_change_in_part():
    weeks = frame(np.full(20, 70.0), freq="W-MON")
    closed = days_off(["2026-05-25"], length="7D", effect=-0.7)
    model = EventForecaster(Naive(), closed.assign(end=closed["start"] + pd.Timedelta("2D"))).fit(weeks)
    assert model.predict(2)["Naive"].round(6).tolist() == [70 * (1 - 0.7 * 2 / 7), 70.0]
    both = pd.concat([closed, days_off(["2026-05-25"], "maintenance", "7D", effect=-0.5)], ignore_index=True)
    assert EventForecaster(Naive(), both).fit(weeks).predict(1)["Naive"].iloc[0] == pytest.approx(70 * 0.3 * 0.5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::gpudemand.forecast.forecaster.ShortHistoryWarning")
@example(y=[0.0] * 5 + [1.0] + [0.0] * 6 + [5e-324] + [0.0] * 7, days=[0, 2], length=1)
@given(
    y=st.lists(st.floats(0, 1e6), min_size=20, max_size=90),
    days=st.lists(st.integers(-40, 140), max_size=6),
    length=st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_any_history_and_events_give_a_forecast(y, days, length):
    usage = frame(y)
    start = pd.Timestamp("2026-01-05") + pd.to_timedelta(days, unit="D")
    events = days_off(start, length=f"{length}D")
    forecast = EventForecaster(SeasonalNaive(), events).fit(usage).predict(9, level=80)
    numbers = forecast.drop(columns=["unique_id", "ds"]).to_numpy()
    assert np.isfinite(numbers).all()
    assert (numbers >= 0).all()


def test_times_may_be_text_and_zones_may_differ():
    text = pd.DataFrame({"event": ["a", "b"], "start": ["2026-03-16", "2026-03-17T00:00+01:00"], "effect": [-1, None]})
    events = text.assign(end=["2026-03-17", "2026-03-18T00:00+01:00"])
    model = EventForecaster(Naive(), events).fit(frame(week_of_work(70), tz=BERLIN))
    assert model.effects_.to_dict() == {"a": -1.0, "b": 0.0}
    assert model.predict(2)["Naive"].gt(0).tolist() == [False, True]


def test_gaps_and_late_series_are_as_without_events():
    late, gap = frame(week_of_work(100), name="late").iloc[60:], frame(week_of_work(100, 1), name="gap")
    gap.loc[50:53, "y"] = np.nan
    usage = pd.concat([late, gap])
    never = days_off(["2030-01-01"], effect=-1.0)
    with_events = EventForecaster(CombinedForecaster(), never).fit(usage).predict(7)
    pd.testing.assert_frame_equal(with_events, CombinedForecaster().fit(usage).predict(7))
    assert (
        EventForecaster(CombinedForecaster(), days_off(gap["ds"].iloc[[30, 51, 72]]))
        .fit(usage)
        .predict(7)
        .notna()
        .all(axis=None)
    )


def test_long_horizons_warn_as_without_events():
    usage, events = frame(week_of_work(60)), days_off(["2026-02-03"])
    with pytest.warns(ShortHistoryWarning):
        EventForecaster(HorizonForecaster(), events).fit(usage).predict(50, level=80)


def test_public_holidays_of_a_country_and_a_region():
    german = public_holidays("DE", "2026-01-01", "2026-12-31")
    bavarian = public_holidays("DE-BY", "2026-01-01", pd.Timestamp("2026-12-31", tz="UTC"))
    assert len(german) == 9
    assert set(bavarian["start"]) - set(german["start"]) >= {pd.Timestamp("2026-01-06"), pd.Timestamp("2026-11-01")}
    assert german["event"].unique().tolist() == ["public holiday"]
    assert german.set_index("start").loc["2026-10-03", "holiday"] == "German Unity Day"
    assert len(Calendar.of(public_holidays("DE", "2026-07-01", "2026-07-02")).names) == 0
    with pytest.raises(InputError, match="before start='2026-07-02'"):
        public_holidays("DE", "2026-07-02", "2026-07-01")
    with pytest.raises(InputError, match=r"start='01\.07\.2026' is not a time"):
        public_holidays("DE", "01.07.2026", "2026-07-02")


@pytest.mark.parametrize(
    ("events", "says"),
    [
        (None, "events is missing"),
        (pd.DataFrame({"event": ["x"]}), "start"),
        (days_off(["2026-03-01"], length="0D"), "event 'holiday' needs a start"),
        (days_off(["2026-03-01"], effect=-2.0), "effect of event 'holiday' must be a number of at least -1"),
        (days_off(["NaT"]), "event 'holiday' needs a start"),
        (days_off(["2026-03-01"]).assign(start="soon"), "got soon and"),
        (days_off(["2026-03-01"]).assign(start="10.02.2026"), "such as 2026-03-01; got 10.02.2026 and"),
        (days_off(["2026-03-01", "2026-03-02"], effect=[-0.5, np.nan]), "has several effects"),
        (days_off(["2026-03-01"], effect="much"), "effect of event 'holiday' must be a number"),
    ],
)
def test_events_that_are_none_are_refused(events, says):
    with pytest.raises(InputError, match=says):
        EventForecaster(Naive(), events).fit(frame(week_of_work(30)))
