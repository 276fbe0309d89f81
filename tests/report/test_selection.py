"""Selection and evaluation of the forecaster use separate windows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.forecast.horizon import longest_horizon
from gpudemand.planning.need import NeedForecast
from gpudemand.study.requirement import plan_requirement
from gpudemand.study.selection import Candidates, forecast_with, model_beyond_noise, select_and_forecast, split_windows
from gpudemand.study.settings import Settings
from gpudemand.study.waits import Need, as_forecast
from tests.tiers import slow_beside

#: By what methods are selected from: the naive ones go through the same code in a tenth of the time.
candidates_of_both = pytest.mark.parametrize("quickly", slow_beside([True], [True, False]), indirect=True)


@pytest.fixture(scope="module")
def usage():
    ds = pd.date_range("2026-01-05", periods=140, tz="UTC")
    rng = np.random.default_rng(1)
    week = np.tile([10, 10, 10, 10, 10, 2, 2], 20)
    parts = [
        pd.DataFrame({"unique_id": name, "ds": ds, "y": factor * week + rng.normal(0, 0.3, 140)})
        for name, factor in (("mean", 3), ("peak", 5))
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def selected(usage):
    return select_and_forecast(usage, 14)


@pytest.fixture
def quickly(request):
    """The naive methods alone where that is asked for."""
    if request.param:
        request.getfixturevalue("quick")


def test_windows_leave_two_horizons_for_the_first_fit():
    assert split_windows(56, 14).n_total == 2
    assert split_windows(10_000, 14).n_total == 6
    with pytest.raises(InputError, match="needs at least 56 bins"):
        split_windows(55, 14)


def test_every_history_bears_its_longest_horizon():
    for n in range(8, 80):
        ds = pd.date_range("2026-01-05", periods=n, tz="UTC")
        horizon = longest_horizon(pd.DataFrame({"unique_id": "total", "ds": ds, "y": 1.0}))
        assert split_windows(n, horizon).n_total >= 1
        with pytest.raises(InputError):
            split_windows(n, horizon + 1)


@pytest.mark.slow
def test_weekly_seasonality_is_not_forecast_by_the_naive_method(selected):
    assert selected.model != "Naive"
    assert selected.best_naive("peak")["model"] != "Naive"
    assert selected.score("mean")["wape"] < 0.1


@candidates_of_both
def test_evaluation_windows_do_not_affect_selection(usage, quickly):
    selected = select_and_forecast(usage, 14)
    newest = usage["ds"] >= usage["ds"].max() - pd.Timedelta(days=14 * selected.windows.n_evaluation - 1)
    shuffled = usage.assign(y=usage["y"].mask(newest, usage["y"].sample(frac=1, random_state=0).to_numpy()))
    other = select_and_forecast(shuffled, 14)
    assert other.model == selected.model
    pd.testing.assert_series_equal(other.scores["wape_selection"], selected.scores["wape_selection"])
    assert not np.allclose(other.scores["wape"], selected.scores["wape"])


@candidates_of_both
def test_a_full_cluster_gives_the_mean_no_bounds_beyond_all_that_was_held(usage, quickly):
    held = usage[usage["unique_id"] == "mean"].assign(y=lambda table: 100 + table["y"])
    dips = np.where(np.isin(np.arange(len(held)), [40, 75, 110]), 90.0, 141.0)
    full = pd.concat([held, held.assign(unique_id="peak", y=dips)], ignore_index=True)
    forecast = select_and_forecast(full, 14)
    alone = forecast_with(forecast.model, held, 14, [95.0])
    both = forecast.forecast.loc[forecast.forecast["unique_id"] == "mean"]
    np.testing.assert_allclose(both[f"{forecast.model}-hi-95"], alone[f"{forecast.model}-hi-95"])
    assert both[f"{forecast.model}-hi-95"].max() < 1.3 * held["y"].max()


def backtest_of(n_windows, **errors):
    """A bin a window, of a demand of 100."""
    ds = pd.date_range("2026-01-05", periods=n_windows, freq="28D", tz="UTC")
    models = {name: 100 + np.resize(values, n_windows) for name, values in errors.items()}
    return pd.DataFrame({"unique_id": "mean", "ds": ds, "cutoff": ds, "y": 100.0, **models})


def test_luck_on_a_few_windows_does_not_displace_the_combination():
    lucky = {"ETS": [1.0, 9.0, 1.0, 12.0], "CombinedForecaster": [8.0, 7.0, 9.0, 8.0]}
    assert model_beyond_noise(backtest_of(4, **lucky)) == "CombinedForecaster"
    assert model_beyond_noise(backtest_of(1, **lucky)) == "CombinedForecaster"


def test_what_is_better_on_every_window_displaces_the_combination():
    better = {"ETS": [1.0, 2.0, 1.5], "CombinedForecaster": [8.0, 7.0, 9.0]}
    assert model_beyond_noise(backtest_of(3, **better)) == "ETS"


def test_without_a_combination_the_smallest_error_decides():
    assert model_beyond_noise(backtest_of(4, Naive=[1.0, 9.0, 1.0, 12.0], ETS=[8.0, 7.0, 9.0, 8.0])) == "Naive"


def test_models_are_compared_on_every_series(selected):
    assert len(selected.scores) == 10
    assert selected.scores.groupby("series")["naive"].sum().tolist() == [3, 3]
    assert selected.scores[["coverage_80", "coverage_95"]].notna().all(axis=None)


def test_combination_needs_history_and_has_a_size_limit(usage):
    def names(n_bins, horizon, n_before):
        rows = usage[usage["unique_id"] == "mean"].head(n_bins)
        return [model.column_name() for model in Candidates().for_history(rows, horizon, n_before)]

    assert "CombinedForecaster" in names(140, 14, 56)
    assert "CombinedForecaster" not in names(42, 7, 21)
    assert "CombinedForecaster" not in names(140, 20_000, 140)


def test_requirement_counts_as_an_order_arrives(selected):
    mean = selected.forecast[selected.forecast["unique_id"] == "mean"]
    need = NeedForecast(40.0, np.full(30, 40.0))
    settings = Settings(horizon=14, installed=43, lead_time="10D", until=mean["ds"].min())
    needed = Need(need, None, (), mean["ds"].min(), pd.Timedelta("10D"))
    requirement = plan_requirement(pd.concat([mean, as_forecast(needed, mean, "D")]), 51.0, settings)
    table = requirement.summary.set_index("basis")
    assert requirement.binding == "peak"
    assert table.loc["peak", "target_utilization"] == 1
    assert requirement.required == np.ceil(need.quantile(0.95, 10)) == table.loc["peak", "required"]
    assert requirement.required - 43 == requirement.shortfall == requirement.to_order()
    assert requirement.order_by() == needed.log_end
    ample = plan_requirement(requirement.forecast, 51.0, replace(settings, installed=60))
    assert (ample.to_order(), ample.shortfall) == (0, 0)
    assert pd.isna(ample.order_by())


@pytest.mark.slow
def test_service_level_outside_the_default_levels_gets_its_quantile(quick, usage):
    selected = select_and_forecast(usage, 14, service_level=0.97)
    assert f"{selected.model}-hi-94" in selected.forecast.columns
    assert plan_requirement(selected.forecast, 51.0, Settings(horizon=14, service_level=0.97)).installed_from == "log"
