"""Regression on decayed means, and expected values beside forecasts near the median."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand.forecast import CombinedForecaster, DecayedMeanRegression, Panel, reconcile
from gpudemand.forecast.combination import expected_levels
from gpudemand.forecast.regression import HALF_LIVES
from gpudemand.usage.series import aggregate_usage

from .canaries import frame

BURSTS = np.random.default_rng(0).random((30, 240))
USERS = np.where(BURSTS < 0.2, 10 * np.random.default_rng(1).exponential(size=BURSTS.shape), 0.0)


def test_decayed_means_are_those_of_pandas():
    y = USERS[:3].copy()
    y[1, :50], y[2, 100:104] = np.nan, np.nan
    model = DecayedMeanRegression().fit(frame(y, "D"))
    found = model._decayed_means(y, np.array([60, 240]))
    for row in range(3):
        for column, half_life in enumerate(HALF_LIVES):
            known = pd.Series(y[row]).ewm(halflife=half_life, ignore_na=False).mean()
            np.testing.assert_allclose(found[row, :, column], known.iloc[[59, 239]])
        np.testing.assert_allclose(found[row, :, -1], [np.nanmean(y[row, :60]), np.nanmean(y[row])])


def test_the_weights_are_those_that_generated_the_means():
    """Users move to a new level each month, so that the newest value is the best regressor."""
    levels = np.random.default_rng(2).exponential(size=(200, 8)).repeat(30, axis=1)
    found = DecayedMeanRegression().fit(frame(levels[:, :225], "D")).predict(15)["DecayedMeanRegression"]
    mean_error = np.abs(found.to_numpy().reshape(200, 15)[:, 0] - levels[:, 224]).mean()
    assert mean_error < 0.5 * np.abs(levels[:, :225].mean(axis=1) - levels[:, 224]).mean()


def test_later_values_do_not_change_a_forecast():
    panel = Panel.from_long(frame(USERS, "D"))
    later = Panel.from_long(frame(np.hstack([USERS[:, :200], 1e3 * USERS[:, 200:]]), "D"))
    model, origins = DecayedMeanRegression(), np.array([20, 100, 200])
    found = model.forecast_from(panel, origins, 28)
    np.testing.assert_array_equal(found, model.forecast_from(later, origins, 28))


def test_expected_values_add_up_where_medians_do_not():
    model = CombinedForecaster().fit(frame(USERS[:, :212], "D"))
    found, actual = model.predict(28, level=[80], mean=True), USERS[:, 212:].sum()
    assert found["CombinedForecaster"].sum() < 0.75 * actual
    assert found["CombinedForecaster-mean"].sum() == pytest.approx(actual, rel=0.45)
    assert found["CombinedForecaster-mean"].sum() > found["CombinedForecaster"].sum()
    assert (found["CombinedForecaster-mean"] >= 0).all()
    pd.testing.assert_frame_equal(found.drop(columns="CombinedForecaster-mean"), model.predict(28, level=[80]))


def test_a_hierarchy_reconciles_the_expected_values():
    usage = frame(USERS[:4], "D")
    nodes, summing, _ = aggregate_usage(usage.assign(unique_id="x/" + usage["unique_id"].astype(str)), "team/user")
    forecast = CombinedForecaster().fit(nodes).predict(7, mean=True)
    found = reconcile(forecast, summing, method="structural", model="CombinedForecaster-mean")
    wide = found.pivot(index="ds", columns="unique_id", values="CombinedForecaster-mean")
    np.testing.assert_allclose(wide["total"], wide.drop(columns=["total", "x"]).sum(axis=1))


def test_series_without_use_and_short_ones():
    y = np.vstack([np.zeros(20), np.full(20, 3.0), np.r_[np.full(17, np.nan), 1, 2, 3]])
    found = DecayedMeanRegression().fit(frame(y, "D")).predict(30)
    assert np.isfinite(found["DecayedMeanRegression"]).all()
    np.testing.assert_allclose(found["DecayedMeanRegression"].to_numpy().reshape(3, 30)[:2, 0], [0, 3], rtol=0.02)


def test_levels_follow_what_came_of_both_forecasts():
    """The first was half of what came, the second right: the sum is the second's, as its past error is 0."""
    truth = np.random.default_rng(5).exponential(size=(50, 9))
    actual = np.where(np.arange(9) < 8, truth, np.nan)
    found = expected_levels(truth / 2, truth, actual, 8)
    assert found.sum() == pytest.approx(truth[:, 8].sum())
    assert np.abs(found - truth[:, 8]).max() < 0.2 * truth[:, 8].max()
    np.testing.assert_array_equal(expected_levels(truth / 2, truth, np.full((50, 9), np.nan), 8), truth[:, 8] / 2)


def test_the_largest_are_expected_to_become_smaller():
    """Levels of which nothing stays but the mean: forecasts of the newest one are drawn together."""
    levels = np.random.default_rng(6).exponential(size=(200, 13))
    forecast, actual = levels[:, :12], np.where(np.arange(12) < 11, levels[:, 1:], np.nan)
    found = expected_levels(forecast, forecast, actual, 11)
    assert np.square(found - levels[:, 12]).mean() < 0.8 * np.square(forecast[:, 11] - levels[:, 12]).mean()
    assert found.sum() == pytest.approx(forecast[:, 11].sum())


@pytest.mark.slow
def test_later_values_do_not_change_expected_ones():
    panels = [Panel.from_long(frame(y, "D")) for y in (USERS, np.hstack([USERS[:, :200], 1e3 * USERS[:, 200:]]))]
    found = []
    for panel in panels:
        model = CombinedForecaster(max_origins=6)
        model._fit_panel(panel.until(150))
        found.append(model.expected_paths(panel, np.array([150, 200]), 14))
    np.testing.assert_array_equal(*found)
    single = CombinedForecaster(max_origins=6).fit(frame(USERS[:, :200], "D")).predict(14, mean=True)
    np.testing.assert_allclose(single["CombinedForecaster-mean"].to_numpy().reshape(-1, 14), found[0][:, 1])


def test_a_horizon_may_be_a_whole_number_as_a_float():
    model = CombinedForecaster(max_origins=6).fit(frame(USERS[:2, :100], "D"))
    pd.testing.assert_frame_equal(model.predict(7.0, mean=True), model.predict(7, mean=True))


def test_series_without_a_past_or_a_value_have_expected_values_too():
    y = np.vstack([np.zeros(60), np.full(60, 3.0), np.r_[np.full(57, np.nan), 1, 2, 3], -np.arange(60.0)])
    for n in (4, 60):
        found = CombinedForecaster().fit(frame(y[:, 60 - n :], "D")).predict(14, mean=True)["CombinedForecaster-mean"]
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found.to_numpy().reshape(4, 14)[:2, 0], [0, 3], rtol=0.1)
