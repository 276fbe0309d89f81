"""HorizonForecaster: no step between the regimes, growth as far as it is borne out, and intervals of the mean."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from gpudemand.forecast import (
    ETS,
    CombinedForecaster,
    HistoricMean,
    HorizonForecaster,
    Naive,
    SeasonallyAdjustedNaive,
    ShortHistoryWarning,
    cross_validation,
    longest_horizon,
)
from gpudemand.forecast.intervals import PastErrors, mean_error_quantiles

from .canaries import LEVELS, long

NAME = "HorizonForecaster"
WEEK = np.array([5.0, 5, 5, 5, 5, 1, 1])


def noisy(n, n_days, level, seed=0, scale=30.0):
    """Series of correlated days around a level of shape (n_days,) or (n, n_days)."""
    noise = np.random.default_rng(seed).normal(0, scale, (n, n_days + 20))
    for day in range(1, n_days + 20):
        noise[:, day] += 0.6 * noise[:, day - 1]
    values = np.maximum(level + noise[:, 20:], 0)
    return {f"s{place:03d}": values[place] for place in range(n)}


def means(usage, h, **options):
    return HorizonForecaster(**options).fit(usage).predict_mean(h)[NAME].to_numpy()


@pytest.mark.slow
def test_a_bin_is_forecast_the_same_whatever_the_horizon():
    model = HorizonForecaster().fit(long(noisy(3, 200, 500.0), freq="D"))
    paths = {h: model.predict(h)[NAME].to_numpy().reshape(3, h) for h in (1, 10, 28, 29, 90)}
    for h, path in paths.items():
        np.testing.assert_allclose(path, paths[90][:, :h], rtol=1e-9)


def test_a_week_that_repeats_goes_on_for_a_quarter():
    model = HorizonForecaster().fit(long({"a": np.tile(WEEK, 30)}, freq="D"))
    np.testing.assert_allclose(model.predict(90)[NAME], np.tile(WEEK, 13)[:90], atol=1e-6)


@pytest.mark.slow
def test_hours_keep_their_day_and_week():
    hours = np.arange(24 * 7 * 6)
    y = 50 + 20 * np.sin(hours * np.pi / 12) - 15 * (hours // 24 % 7 >= 5)
    path = HorizonForecaster(CombinedForecaster(max_origins=8)).fit(long({"a": y})).predict(24 * 40)[NAME]
    np.testing.assert_allclose(path, y[: 24 * 40], atol=4)


def test_growth_counts_as_far_as_the_history_bears_it_out():
    days = np.arange(450)
    growing, flat = 500 * (1 + 0.08 * days / 30), np.full(450, 500.0)
    for n_days, most in ((360, 0.6), (100, 1.0)):
        series = noisy(12, 450, growing)
        usage = long({name: y[:n_days] for name, y in series.items()}, freq="D")
        actual = growing[n_days : n_days + 90].mean()
        four_weeks = np.mean([actual - y[n_days - 28 : n_days].mean() for y in series.values()])
        assert abs(np.mean(actual - means(usage, 90))) < most * four_weeks
    level = means(long(noisy(12, 360, flat[:360]), freq="D"), 90)
    assert np.abs(level - 500).mean() < 15


def test_a_busy_week_hardly_moves_the_quarter():
    usage = long(noisy(12, 180, np.r_[np.full(177, 500.0), np.full(3, 1000.0)]), freq="D")
    # The mean of the last week moves by 214, and that of four weeks by 54.
    assert np.abs(means(usage, 90) - 500).mean() < 70


def covered(level, h, n_days):
    """Share of series whose mean over the next h days lies inside the intervals, by level."""
    series = noisy(len(level), n_days + h, level)
    model = HorizonForecaster(HistoricMean(28))
    model.fit(long({name: y[:n_days] for name, y in series.items()}, freq="D"))
    forecast, actual = model.predict_mean(h, LEVELS), pd.Series([y[n_days:].mean() for y in series.values()])
    inside = [actual.between(forecast[f"{NAME}-lo-{value}"], forecast[f"{NAME}-hi-{value}"]) for value in LEVELS]
    return [values.mean() for values in inside]


def test_intervals_of_the_mean_cover_it():
    rng = np.random.default_rng(1)
    walks = 1000 + np.cumsum(rng.normal(0, 8, (150, 360)), axis=1)
    for level, h, n_days in ((walks, 28, 300), (walks, 60, 250), (np.full((150, 360), 1000.0), 28, 300)):
        narrow, wide = covered(level[:, : n_days + h], h, n_days)
        assert narrow == pytest.approx(0.80, abs=0.09)
        assert wide == pytest.approx(0.95, abs=0.05)


def test_the_mean_is_that_of_the_path_and_its_bounds_are_nested():
    model = HorizonForecaster().fit(long(noisy(2, 150, 500.0), freq="D", tz="Europe/Berlin"))
    mean = model.predict_mean(40, LEVELS)
    assert mean["unique_id"].tolist() == ["s000", "s001"]
    path = model.predict(40)
    np.testing.assert_allclose(mean[NAME], path.groupby("unique_id")[NAME].mean())
    assert (mean["start"] == path["ds"].min()).all()
    assert (mean["end"] == path["ds"].max()).all()
    ordered = [f"{NAME}-lo-95", f"{NAME}-lo-80", NAME, f"{NAME}-hi-80", f"{NAME}-hi-95"]
    assert (np.diff(mean[ordered].to_numpy(dtype=float), axis=1) > 0).all()


def quantile_of(errors, origins, shortest=7):
    return mean_error_quantiles(PastErrors(errors, origins), np.array([0.9]), shortest)[0]


def test_errors_of_the_mean_extend_to_distances_that_no_error_has():
    rng, origins = np.random.default_rng(0), np.arange(28, 1400, 7)
    steps = origins[:, None] + np.arange(120)
    walk, noise = np.cumsum(rng.normal(size=(40, 1600)), axis=1), rng.normal(size=(40, 1600))
    for y, growth in ((walk[:, steps] - walk[:, origins - 1][..., None], 2.0), (noise[:, steps], 0.5)):
        whole = quantile_of(y, origins)
        hidden = y.copy()
        hidden[:, :, 30:] = np.nan
        assert np.median(quantile_of(hidden, origins) / whole) == pytest.approx(1, abs=0.15)
        assert np.median(whole / quantile_of(y[..., :30], origins)) == pytest.approx(growth, rel=0.15)


def test_few_spans_widen_the_intervals_of_the_mean():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(1, 60, 1)) + 0.1 * rng.normal(size=(1, 60, 28))
    few, many = (quantile_of(errors[:, -n:], 7 * np.arange(1, 61)[-n:])[0] for n in (4, 60))
    same = np.sqrt(np.square(errors[:, -4:].mean(axis=2)).mean() / np.square(errors.mean(axis=2)).mean())
    assert few > 1.1 * same * many


def test_series_without_errors_have_no_width():
    np.testing.assert_array_equal(quantile_of(np.zeros((2, 9, 14)), 7 * np.arange(4, 13)), 0.0)


@pytest.mark.parametrize(("n_days", "longest"), [(3, 1), (17, 4), (56, 14), (208, 90), (365, 168)])
def test_longest_horizon(n_days, longest):
    assert longest_horizon(long({"a": np.ones(n_days)}, freq="D")) == longest


def test_a_horizon_beyond_the_history_is_told_in_one_sentence():
    model = HorizonForecaster(CombinedForecaster(max_origins=8)).fit(long(noisy(1, 100, 500.0), freq="D"))
    model.predict_mean(36, 80)
    model.predict(37)
    with pytest.warns(ShortHistoryWarning, match=r"history of 100 bins shows errors 36 bins ahead .*, not 37: .*\.$"):
        model.predict_mean(37, 80)


@pytest.mark.parametrize("model", [Naive(), SeasonallyAdjustedNaive(), ETS()], ids=lambda model: model.column_name())
def test_every_forecaster_tells_how_far_its_errors_reach_but_a_backtest_does_not(model):
    usage = long(noisy(1, 90, 500.0), freq="D")
    model = clone(model).fit(usage)
    model.predict(60)
    model.predict(38, 80)
    with pytest.warns(ShortHistoryWarning, match="90 bins shows errors 38 bins ahead at least twice, not 39") as found:
        model.predict(39, 80)
    assert found[0].filename == __file__
    cross_validation(model, usage, h=40, level=[80])


def test_whole_numbers_may_be_floats():
    usage = long(noisy(1, 90, 500.0), freq="D")
    model = HorizonForecaster(Naive()).fit(usage)
    pd.testing.assert_frame_equal(model.sample(7.0, 5.0, 0.0), model.sample(7, 5, 0))


def test_the_forecaster_of_the_weeks_can_be_replaced():
    usage = long({"a": np.r_[np.full(100, 10.0), 30.0]}, freq="D")
    assert HorizonForecaster(Naive()).fit(usage).predict(1)[NAME].iloc[0] > 25
    assert HorizonForecaster(CombinedForecaster(max_origins=3)).fit(usage).weeks_.max_origins == 3


@pytest.mark.slow
def test_levels_do_not_change_the_forecast():
    """The origins behind intervals lie days apart, those behind the weights of the levels weeks."""
    rng = np.random.default_rng(0)
    usage = long({"a": 50 + np.cumsum(rng.normal(0, 3, 4 * 7 * 6)), "b": rng.exponential(5, 4 * 7 * 6)}, freq="6h")
    model = HorizonForecaster().fit(usage)
    plain, with_levels = model.predict(30), model.predict(30, level=[80])
    pd.testing.assert_frame_equal(plain, with_levels[plain.columns.tolist()])
