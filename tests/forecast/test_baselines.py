"""Naive forecasts and ETS: values by hand, independence of series, interval coverage, invalid arguments."""

from __future__ import annotations

import doctest

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.forecast import (
    ETS,
    LastValueProfile,
    Naive,
    SeasonallyAdjustedNaive,
    SeasonalMedian,
    SeasonalNaive,
)

from .canaries import long

ALL = [Naive(), SeasonalNaive(), SeasonalMedian(), SeasonallyAdjustedNaive(), ETS()]
QUICK = ALL[:4]


def daily_wave(n, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    hours = np.arange(n)
    return 50 + 20 * np.sin(2 * np.pi * hours / 24) + rng.normal(0, noise, n)


def test_profile_continues_a_clean_day_exactly():
    usage = long({"a": daily_wave(24 * 14)})
    forecast = SeasonallyAdjustedNaive().fit(usage).predict(48)["SeasonallyAdjustedNaive"]
    np.testing.assert_allclose(forecast, daily_wave(24 * 16)[-48:], atol=1e-9)


def test_profile_takes_its_level_from_the_newest_value():
    y = daily_wave(24 * 14)
    raised = np.r_[y[:-1], y[-1] + 7]
    plain, moved = (
        SeasonallyAdjustedNaive().fit(long({"a": v})).predict(24)["SeasonallyAdjustedNaive"] for v in (y, raised)
    )
    # The raised value is one of fourteen in the last phase of the profile.
    np.testing.assert_allclose(moved[:23] - plain[:23], 7 - 7 / 14)


def median_forecast(y, h, **parameters):
    return SeasonalMedian(**parameters).fit(long({"a": y})).predict(h)["SeasonalMedian"].to_numpy()


def test_an_outage_and_a_burst_do_not_move_the_median_of_a_phase():
    y = daily_wave(24 * 7)
    y[-30:-20], y[-60:-50] = 0.0, 1e4
    np.testing.assert_allclose(median_forecast(y, 24, n_seasons=5), daily_wave(24), atol=1e-9)


def test_the_median_of_even_and_odd_numbers_of_seasons():
    assert median_forecast(np.array([9.0, 1, 2, 4]), 2, season_length=1, n_seasons=3).tolist() == [2.0, 2.0]
    assert median_forecast(np.array([9.0, 1, 2, 4]), 2, season_length=1, n_seasons=4).tolist() == [3.0, 3.0]


def test_before_two_seasons_the_median_is_that_of_all_bins():
    assert median_forecast(np.r_[1.0, 1, 1, 7, 8], 3, season_length=3).tolist() == [1.0, 1.0, 1.0]


def test_demand_that_is_mostly_zero_is_forecast_by_its_mean():
    y = np.where(np.arange(24 * 28) % 31 == 0, 10.0, 0.0)
    np.testing.assert_allclose(median_forecast(y, 24, n_seasons=28), y.mean())


def test_a_nightly_series_keeps_its_nights():
    y = np.tile(np.where(np.arange(24) < 14, 0.0, 5.0), 10)
    np.testing.assert_array_equal(median_forecast(y, 24), y[:24])


def test_missing_values_do_not_count_in_a_median():
    y = np.tile([1.0, 3.0], 6)
    y[[1, 3, 8]] = np.nan
    frame = SeasonalMedian(2, 6).fit(long({"a": y, "late": np.r_[np.full(11, np.nan), 4.0]})).predict(2)
    assert frame["SeasonalMedian"].tolist() == [1.0, 3.0, 4.0, 4.0]


def test_the_former_name_gives_the_same_forecast_under_its_own_column():
    usage = long({"a": daily_wave(24 * 14, noise=3)})
    former, current = (
        model().fit(usage).predict(24, level=[80]) for model in (LastValueProfile, SeasonallyAdjustedNaive)
    )
    assert list(former.columns[2:]) == ["LastValueProfile", "LastValueProfile-lo-80", "LastValueProfile-hi-80"]
    np.testing.assert_array_equal(former.iloc[:, 2:], current.iloc[:, 2:])


@pytest.mark.parametrize("model", ALL, ids=lambda m: type(m).__name__)
class TestEveryBaseline:
    def test_columns_and_future(self, model):
        forecast = model.fit(long({"a": daily_wave(100), "b": daily_wave(100)})).predict(5, level=[80, 95])
        name = type(model).__name__
        ends = [f"{name}-{side}-{level}" for level in (80, 95) for side in ("lo", "hi")]
        assert set(forecast.columns) == {"unique_id", "ds", name, *ends}
        assert forecast["ds"].min() == pd.Timestamp("2026-03-02", tz="UTC") + pd.Timedelta("100h")
        assert forecast.groupby("unique_id").size().tolist() == [5, 5]

    def test_a_series_does_not_depend_on_its_neighbours(self, model):
        y = daily_wave(24 * 8, noise=5)
        alone = model.fit(long({"a": y})).predict(6).query("unique_id == 'a'").iloc[:, -1]
        together = model.fit(long({"a": y, "z": 1e9 * y})).predict(6).query("unique_id == 'a'").iloc[:, -1]
        np.testing.assert_allclose(alone, together)

    def test_zero_and_constant_series_are_forecast_without_error(self, model):
        forecast = model.fit(long({"zero": np.zeros(120), "five": np.full(120, 5.0)})).predict(30, level=[95])
        name = type(model).__name__
        for series, value in (("zero", 0.0), ("five", 5.0)):
            rows = forecast[forecast["unique_id"] == series]
            assert np.allclose(rows[[name, f"{name}-lo-95", f"{name}-hi-95"]], value)

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ({"h": 0}, "of at least 1"),
            ({"h": 2.5}, "whole number"),
            ({"h": 2, "level": 0.8}, "percents"),
            ({"h": 2, "level": [120]}, "at most"),
        ],
    )
    def test_bad_horizon_or_level(self, model, arguments, reason):
        with pytest.raises(InputError, match=reason):
            model.fit(long({"a": daily_wave(50)})).predict(**arguments)


@pytest.mark.parametrize("count", [0, -1, 2.5])
@pytest.mark.parametrize(
    ("model", "name"),
    [
        (ETS, "max_seasons"),
        (SeasonallyAdjustedNaive, "n_seasons"),
        (SeasonalMedian, "n_seasons"),
    ],
)
def test_numbers_of_seasons_are_checked(model, name, count):
    with pytest.raises(InputError, match=f"{name} must be a whole number of at least 1"):
        model(**{name: count}).fit(long({"a": daily_wave(24 * 21)})).predict(2)


def test_examples_of_the_forecasters_that_only_benchmarks_use():
    module = pytest.importorskip("benchmarks.forecast.baselines", reason="runs from a checkout")
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("freq", ["D", "MS", "W-MON", "15min"])
def test_frequencies_with_a_zone(freq):
    usage = long({"a": np.arange(30.0)}, freq=freq, tz="Europe/Berlin")
    ds = pd.DatetimeIndex(SeasonalNaive().fit(usage).predict(3)["ds"])
    expected = pd.date_range(usage["ds"].iloc[0], periods=33, freq=freq)[-3:]
    assert (ds == expected).all()


@pytest.mark.parametrize("model", QUICK, ids=lambda m: type(m).__name__)
def test_intervals_have_their_nominal_coverage(model):
    rng = np.random.default_rng(1)
    n, h = 24 * 40, 24
    walks = {f"s{i:02d}": 200 + daily_wave(n + h) + np.cumsum(rng.normal(0, 2, n + h)) for i in range(60)}
    usage = long(walks)
    cutoff = usage["ds"].unique()[n - 1]
    forecast = model.fit(usage[usage["ds"] <= cutoff]).predict(h, level=[80, 95])
    truth = usage[usage["ds"] > cutoff]["y"].to_numpy()
    name = type(model).__name__
    for level, low, high in ((80, 0.70, 0.92), (95, 0.88, 1.0)):
        share = ((truth >= forecast[f"{name}-lo-{level}"]) & (truth <= forecast[f"{name}-hi-{level}"])).mean()
        assert low <= share <= high


def test_metadata_are_copied_to_the_forecast():
    usage = long({"a": daily_wave(50)})
    usage.attrs = {"kind": "synthetic", "value": "gpus"}
    assert Naive().fit(usage).predict(3).attrs == usage.attrs
