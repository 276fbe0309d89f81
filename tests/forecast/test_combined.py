"""CombinedForecaster: weights by series and horizon, several origins in one pass, and no leakage."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.forecast import (
    CombinedForecaster,
    DoubleSeasonalSmoothing,
    HistoricMean,
    LagRegression,
    Naive,
    Panel,
    RidgeAutoregression,
    SeasonalNaive,
    cross_validation,
)
from gpudemand.forecast import regression as direct

from .canaries import long


def test_each_series_gets_its_best_member():
    rng = np.random.default_rng(0)
    hours = np.arange(24 * 30)
    walk = 500 + np.cumsum(rng.normal(0, 5, hours.size))
    daily = 100 + 40 * np.sin(hours * np.pi / 12) + rng.normal(0, 1, hours.size)
    usage = long({"daily": daily, "walk": walk})
    models = [CombinedForecaster([Naive(), SeasonalNaive()]), Naive(), SeasonalNaive()]
    test = cross_validation(models, usage, h=12, n_windows=12, step_size=12)
    error = test[["CombinedForecaster", "Naive", "SeasonalNaive"]].sub(test["y"], axis=0).abs()
    error = error.groupby(test["unique_id"]).mean()
    best = error[["Naive", "SeasonalNaive"]].min(axis=1)
    assert (error["CombinedForecaster"] <= 1.1 * best).all()


def test_a_single_member_is_returned_unchanged():
    usage = long({"a": np.arange(200.0)})
    blend = CombinedForecaster([HistoricMean(5)]).fit(usage).predict(3)["CombinedForecaster"]
    np.testing.assert_allclose(blend, 197.0)


@pytest.mark.parametrize("seed", range(1, 5))
def test_bursts_and_outages_of_a_weekly_pattern_are_left_alone(seed):
    """A pattern of 10 and 60 GPUs, of which one day in six is an outage or a burst, forecast to 8 on usual days."""
    rng, day = np.random.default_rng(seed), np.arange(24 * 7 * 10) // 24
    usual = 10 + 50 * (day % 7 < 5)
    odd = rng.choice([0.0, 1.0, 3.0], day[-1] + 1, p=[0.09, 0.84, 0.07])
    y = (usual + rng.normal(0, 2, day.size)) * odd[day]
    origins = 24 * np.arange(56, 70)
    paths = CombinedForecaster().fit(long({"a": y}))._paths(y[None], origins, 24)[0]
    error = np.abs(paths - usual[origins[:, None] + np.arange(24)])
    assert error[odd[origins // 24] == 1].mean() < 8


@pytest.mark.parametrize("members", [[], 5, Naive()])
def test_no_list_of_members_is_refused(members):
    with pytest.raises(InputError, match="members must be a list of at least one"):
        CombinedForecaster(members).fit(long({"a": np.arange(20.0)}))


def test_many_origins_in_one_pass_equal_single_fits():
    rng = np.random.default_rng(0)
    y = 50 + 10 * np.sin(np.arange(24 * 30) * np.pi / 12) + rng.normal(0, 3, (3, 24 * 30))
    usage = long({"a": y[0], "b": y[1], "c": y[2]})
    origins = np.array([24 * 24, 24 * 25 + 5, 24 * 28])
    for model in (CombinedForecaster(), RidgeAutoregression(), DoubleSeasonalSmoothing()):
        model.fit(usage)
        together = model._paths(y, origins, 6)
        for place, origin in enumerate(origins):
            np.testing.assert_allclose(model._path(y[:, :origin], 6), together[:, place], rtol=1e-6)


def test_forecast_from_does_not_use_later_data():
    rng = np.random.default_rng(0)
    model = CombinedForecaster().fit(long({"a": rng.normal(50, 5, 24 * 20)}))
    panel, origins = model.panel_, np.array([24 * 15, 24 * 15 + 7])
    before = model.forecast_from(panel, origins, 6)
    later = np.where(np.arange(panel.values.shape[1]) < origins[-1], panel.values, 1e6)
    np.testing.assert_array_equal(model.forecast_from(replace(panel, values=later), origins, 6), before)


def test_later_negative_values_do_not_lower_earlier_forecasts():
    y = np.r_[np.linspace(100.0, 1.0, 100), np.full(20, -50.0)]
    model = RidgeAutoregression(season_length=1).fit(long({"a": y}))
    alone = model.forecast_from(model.panel_, np.array([100]), 30)
    both = model.forecast_from(model.panel_, np.array([100, 120]), 30)
    np.testing.assert_array_equal(both[:, 0], alone[:, 0])
    assert alone.min() == 0 > both[:, 1].min()


def test_a_member_that_goes_astray_does_not_move_the_forecast():
    rng = np.random.default_rng(0)
    usage = long({"a": 100 + rng.normal(0, 5, 24 * 20)})
    means = [HistoricMean(48), HistoricMean(72), HistoricMean(96)]
    sound = CombinedForecaster(means).fit(usage).predict(6)["CombinedForecaster"]
    with_astray = CombinedForecaster([*means, Astray()]).fit(usage).predict(6)["CombinedForecaster"]
    np.testing.assert_allclose(with_astray, sound, rtol=0.01)


class Astray(HistoricMean):
    """As good as the mean at every origin but the last."""

    def _path(self, y, h):
        return super()._path(y, h) * (1e3 if y.shape[1] == 24 * 20 else 1.0)


def test_origins_share_the_origins_of_their_backtests():
    model = CombinedForecaster().fit(long({"a": np.arange(24.0 * 30)}))
    backtests = [model._backtest_origins(24 * day, 1, 24) for day in range(2, 30)]
    assert all(len(earlier) >= 6 for earlier in backtests)
    assert len(np.unique(np.concatenate(backtests))) <= 100


def test_backtests_skip_no_bin():
    days = CombinedForecaster().fit(long({"a": np.arange(400.0)}, freq="D"))
    assert [np.diff(days._backtest_origins(400, 1, h)).max() for h in (1, 6, 7, 28)] == [1, 1, 7, 7]


def test_a_step_of_level_is_followed():
    rng, n = np.random.default_rng(0), 24 * 60
    y = 100 + 20 * np.sin(np.arange(n) * np.pi / 12) + rng.normal(0, 8, n)
    step = 50.0 * (np.arange(n) >= 24 * 50)
    origins = 24 * np.array([52, 53, 54, 55])
    found = [
        CombinedForecaster().fit(long({"a": values}))._paths(values[None], origins, 24) for values in (y + step, y)
    ]
    share = (found[0] - found[1]).mean(axis=(0, 2)) / 50
    mean_of_seven_days = np.array([2, 3, 4, 5]) / 7
    assert (share > mean_of_seven_days + 0.2).all()


@pytest.mark.parametrize("seed", range(4))
def test_recent_errors_weigh_most(seed):
    """The level was still for nine weeks, and wanders since six days."""
    rng = np.random.default_rng(seed)
    y = np.r_[rng.normal(100, 20, 24 * 64), 100 + np.cumsum(rng.normal(0, 5, 24 * 6))]
    forecast = CombinedForecaster([HistoricMean(24 * 7), Naive()]).fit(long({"a": y})).predict(24)
    np.testing.assert_allclose(forecast["CombinedForecaster"], y[-1], atol=0.1 * abs(y[-168:].mean() - y[-1]))


def test_backtests_start_at_every_bin_where_no_season_shows():
    model = CombinedForecaster(season_length=52).fit(long({"a": np.arange(150.0)}))
    np.testing.assert_array_equal(model._backtest_origins(90, 1, 4), np.arange(45, 90))
    assert set(np.diff(model._backtest_origins(150, 1, 4)).tolist()) == {4}


@pytest.mark.parametrize("model", [RidgeAutoregression(), LagRegression()])
def test_a_sample_of_series_gives_the_coefficients_of_a_large_panel(model, monkeypatch):
    rng = np.random.default_rng(0)
    one = 50 + 10 * np.sin(np.arange(24 * 15) * np.pi / 12) + np.cumsum(rng.normal(0, 1, 24 * 15))
    # Multiples of one series share its coefficients, apart from the ridge, which fewer rows strengthen.
    usage = long({f"u{place}": place * one for place in range(1, 8)})
    column, every = type(model).__name__, model.fit(usage).predict(6)
    monkeypatch.setattr(direct, "_CELLS", 24.0 * 7 * one.size / 3)
    np.testing.assert_allclose(model.fit(usage).predict(6)[column], every[column], rtol=5e-3)


def test_a_week_of_opening_hours_has_as_many_bins_as_its_days():
    """Eighteen half hours a day, numbered without the nights: Saturdays and Sundays are quiet."""
    rng, day = np.random.default_rng(0), np.sin(np.linspace(0.2, 3, 18))
    weekend = np.where(np.arange(77) % 7 < 5, 1.0, 0.3)
    y = 100 * np.outer(weekend, day).ravel() * rng.lognormal(0, 0.1, (4, 77 * 18))
    ds = pd.date_range("2026-01-05", periods=y.shape[1], freq="30min")
    panel, origins = Panel(pd.Index(list("abcd"), name="unique_id"), ds, y, ds.freq), 18 * np.arange(63, 77)
    actual = y[:, origins[:, None] + np.arange(18)]
    found = CombinedForecaster(season_length=18).forecast_from(panel, origins, 18)
    last_week = y[:, origins[:, None] + np.arange(18) - 126]
    assert np.abs(found - actual).sum() < 0.9 * np.abs(last_week - actual).sum()
