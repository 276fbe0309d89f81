"""Rolling-origin evaluation: windows, calendars and too short histories."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from gpudemand._validation import InputError
from gpudemand.forecast import (
    ETS,
    ClusterwiseFactorization,
    ClusterwiseForecaster,
    CombinedForecaster,
    HorizonForecaster,
    LagRegression,
    Naive,
    RidgeAutoregression,
    SeasonalNaive,
    TemporalFactorization,
    backtest,
    cross_validation,
)
from gpudemand.forecast.clusterwise_factorization import BaselineSegmenter
from gpudemand.forecast.panel import Panel
from tests.tiers import slow_beside

from .canaries import long

#: Forecasters that learn office hours exactly; the slower ones at one frequency.
LOCAL = [
    (CombinedForecaster(max_origins=8), "h"),
    (LagRegression(), "30min"),
]
SMALL = TemporalFactorization(2)
SIZES, ONE_PASS = {"a": 10, "b": 4}, backtest._Pass


def test_windows_steps_and_several_models():
    usage = long({"a": np.arange(20.0), "b": np.arange(20.0)}, freq="D")
    frame = cross_validation([Naive(), SeasonalNaive(season_length=2)], usage, h=3, n_windows=4, step_size=2)
    assert frame["cutoff"].nunique() == 4
    assert len(frame) == 4 * 3 * 2
    assert frame["ds"].max() == usage["ds"].max()
    lag = (frame["ds"] - frame["cutoff"]).dt.days
    np.testing.assert_allclose(frame["y"] - frame["Naive"], lag)


@pytest.mark.parametrize("level", [None, [80, 95]])
@pytest.mark.parametrize(
    "model",
    [SeasonalNaive(), CombinedForecaster([Naive(), LagRegression()]), CombinedForecaster(), HorizonForecaster()],
)
def test_one_pass_over_all_windows_forecasts_what_a_fit_for_each_does(monkeypatch, model, level):
    rng, t = np.random.default_rng(0), np.arange(150)
    usage = long(
        {name: 20 + size * np.sin(t / 7 * np.pi) + rng.normal(0, 3, t.size) for name, size in SIZES.items()}, freq="D"
    )
    windows = {"h": 20, "n_windows": 3, "step_size": 9, "level": level}
    passes = []
    monkeypatch.setattr(backtest, "_Pass", lambda *parts: passes.append(parts) or ONE_PASS(*parts))
    found = cross_validation(model, usage, **windows)
    assert len(passes) == 3
    monkeypatch.setattr(backtest, "_ONE_PASS", 0)
    pd.testing.assert_frame_equal(found, cross_validation(model, usage, **windows), rtol=1e-9)
    assert len(passes) == 3


def test_what_is_fitted_and_what_begins_late_has_a_fit_for_each_window(monkeypatch):
    monkeypatch.setattr(backtest, "_Pass", None)
    usage = long({"a": np.r_[np.full(30, np.nan), np.arange(30.0)], "b": np.arange(60.0)})
    assert len(cross_validation(Naive(), usage.dropna(), h=4, n_windows=9)) == 4 * (9 + 7)
    assert len(cross_validation(ETS(), usage[usage["unique_id"] == "b"], h=4, n_windows=2)) == 8


@pytest.mark.parametrize("wrapped", [lambda model: model, lambda model: CombinedForecaster([model]), HorizonForecaster])
def test_what_estimates_parameters_is_fitted_once_a_window(monkeypatch, wrapped):
    fits, of = [], TemporalFactorization._fit_panel
    monkeypatch.setattr(TemporalFactorization, "_fit_panel", lambda self, panel: fits.append(panel) or of(self, panel))
    usage = long({"a": np.arange(60.0), "b": np.arange(60.0)[::-1]}, freq="D")
    cross_validation(wrapped(TemporalFactorization(1, n_sweeps=2)), usage, h=4, n_windows=3)
    assert len(fits) == 3


def test_a_user_who_appears_after_the_cutoff_is_left_out():
    usage = long({"a": np.arange(20.0)}, freq="D")
    late = pd.DataFrame({"unique_id": "new", "ds": usage["ds"].iloc[-3:], "y": 1.0})
    frame = cross_validation(Naive(), pd.concat([usage, late]), h=4, n_windows=1)
    assert frame["unique_id"].unique().tolist() == ["a"]


def test_a_month_of_31_days_keeps_its_calendar():
    usage = long({"a": np.arange(8.0)}, freq="MS")
    frame = cross_validation(Naive(), usage, h=2, n_windows=2, step_size=2)
    assert frame["ds"].dt.day.unique().tolist() == [1]


def test_an_outage_at_the_cutoff_is_bridged():
    y = np.arange(40.0)
    y[30:34] = np.nan
    frame = cross_validation(Naive(), long({"a": y, "b": y}, freq="D"), h=6, n_windows=1)
    assert frame["cutoff"].iloc[0] == frame["ds"].iloc[0] - pd.Timedelta("1D")
    np.testing.assert_array_equal(frame["Naive"], 29.0)


def test_progress_is_reported():
    seen = []
    cross_validation(
        Naive(), long({"a": np.arange(20.0)}), h=2, n_windows=3, progress=lambda done, of: seen.append((done, of))
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"h": 5, "n_windows": 9}, "n_windows of at most 3"),
        ({"h": 30}, "use a horizon below 19"),
        ({"h": 2, "n_windows": 0}, "of at least 1"),
        ({"h": 2, "step_size": -1}, "of at least 1"),
    ],
)
def test_too_short_histories_are_refused(arguments, reason):
    with pytest.raises(InputError, match=reason):
        cross_validation(Naive(), long({"a": np.arange(20.0)}), **arguments)


@pytest.mark.parametrize(
    ("models", "reason"), [([Naive(), Naive()], "two forecasters are called 'Naive'"), ([], "give at least one")]
)
def test_each_model_has_a_column_of_its_own(models, reason):
    with pytest.raises(InputError, match=reason):
        cross_validation(models, long({"a": np.arange(20.0)}), h=2)


@pytest.mark.parametrize("change", slow_beside(["2026-10-25"], ["2026-03-29", "2026-10-25"]))
@pytest.mark.parametrize(
    ("model", "freq"), LOCAL, ids=lambda value: value if isinstance(value, str) else type(value).__name__
)
def test_the_season_follows_local_time_over_a_change_of_the_clock(model, freq, change):
    begin = pd.Timestamp(change, tz="Europe/Berlin") - pd.Timedelta("35D")
    ds = pd.date_range(begin, begin + pd.Timedelta("43D"), freq=freq, inclusive="left")
    office = (ds.hour >= 9) & (ds.hour < 17) & (ds.day_of_week < 5)
    usage = pd.DataFrame({"unique_id": "a", "ds": ds, "y": 10.0 + 90 * office})
    for days in (2, 7, 8):
        # The origin lies after, at and before the change.
        known = usage["ds"] < ds[-1] - pd.Timedelta(f"{days}D")
        forecast = clone(model).fit(usage[known]).predict((~known).sum(), level=[80])
        assert (forecast["ds"].to_numpy() == usage.loc[~known, "ds"].to_numpy()).all()
        error = forecast.iloc[:, 2].to_numpy() - usage.loc[~known, "y"].to_numpy()
        assert np.abs(error).sum() < 0.02 * usage.loc[~known, "y"].sum()
        assert np.isfinite(forecast.iloc[:, 2:].to_numpy()).all()


def test_many_origins_over_a_change_of_the_clock_equal_single_fits():
    ds = pd.date_range("2026-09-20", periods=24 * 42, freq="h", tz="Europe/Berlin")
    y = 20 + ds.hour.to_numpy() + np.random.default_rng(0).normal(0, 1, len(ds))
    usage = pd.DataFrame({"unique_id": "a", "ds": ds, "y": y})
    change = int((ds < pd.Timestamp("2026-10-25", tz="UTC")).sum())
    panel, origins = Panel.from_long(usage), change + np.arange(-2, 4)
    for model in (SeasonalNaive(), RidgeAutoregression()):
        together = model.forecast_from(panel, origins, 30)
        for place, origin in enumerate(origins):
            alone = clone(model).fit(usage.iloc[:origin]).predict(30).iloc[:, 2]
            np.testing.assert_allclose(together[0, place], alone, rtol=1e-6)


@pytest.mark.parametrize("tz", [None, "UTC", "Etc/GMT-5", "+05:30"])
def test_clocks_without_changes_leave_a_panel_alone(tz):
    panel = Panel.from_long(long({"a": np.arange(50.0)}, tz=tz))
    assert panel.on_local_clock() is panel
    np.testing.assert_array_equal(panel.local_positions(3), np.arange(53))


@pytest.mark.parametrize("freq", ["2h", "6h", "D"])
def test_bins_longer_than_the_change_of_the_clock_keep_their_phase(freq):
    ds = pd.date_range("2026-10-01", periods=60, freq=freq, tz="Europe/Berlin")
    panel = Panel.from_long(pd.DataFrame({"unique_id": "a", "ds": ds, "y": np.arange(60.0)}))
    np.testing.assert_array_equal(panel.on_local_clock().values, panel.values)
    np.testing.assert_array_equal(panel.on_local_clock().local_steps(400), np.arange(400))


@pytest.mark.slow
@pytest.mark.parametrize("change", ["2026-03-29", "2026-10-25"])
def test_factorizations_follow_local_time_over_a_change_of_the_clock(change):
    begin = pd.Timestamp(change, tz="Europe/Berlin") - pd.Timedelta("21D")
    ds = pd.date_range(begin, begin + pd.Timedelta("29D"), freq="h", inclusive="left")
    office, rng = 10.0 + 90 * ((ds.hour >= 9) & (ds.hour < 17)), np.random.default_rng(0)
    users = [pd.DataFrame({"unique_id": name, "ds": ds, "y": rng.uniform(1, 3) * office}) for name in "abcdefgh"]
    usage = pd.concat(users, ignore_index=True)
    known = usage["ds"] < ds[-1] - pd.Timedelta("4D")
    clusterwise = ClusterwiseForecaster(BaselineSegmenter(2), factorization=SMALL)
    for model in (SMALL, clusterwise, ClusterwiseFactorization(2, factorization=SMALL)):
        both = clone(model).fit(usage[known]).predict(96).merge(usage, on=["unique_id", "ds"])
        assert len(both) == 96 * 8
        assert (both.iloc[:, 2] - both["y"]).abs().sum() < 0.05 * both["y"].sum()
