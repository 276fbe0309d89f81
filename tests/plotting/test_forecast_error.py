"""Forecast error by horizon, and forecasts stacked by part."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.forecast import Naive, SeasonalNaive, cross_validation
from gpudemand.metrics import wape
from gpudemand.plotting import BASELINE, PREDICTED, HorizonErrorDisplay, StackedForecastDisplay


@pytest.fixture
def backtest(by_user):
    return cross_validation([SeasonalNaive(), Naive()], by_user, h=5, n_windows=3)


def test_errors_are_pooled_by_horizon(backtest):
    display = HorizonErrorDisplay.from_backtest(backtest)
    days = (backtest["ds"] - backtest["cutoff"]).dt.days
    second = backtest[days == 2]
    assert display.errors.loc[2, "Naive"] == pytest.approx(wape(second["y"].to_numpy(), second["Naive"].to_numpy()))
    assert list(display.errors.index) == [1, 2, 3, 4, 5]


def test_the_first_model_is_highlighted(backtest, corner, draw_without_warning):
    display = HorizonErrorDisplay.from_backtest(backtest, models=["Naive", "SeasonalNaive"], metric="rmse").plot()
    assert [line.get_color() for line in display.lines_.values()] == [PREDICTED, BASELINE]
    assert list(display.lines_) == ["Naive", "SeasonalNaive"]
    assert display.ax_.get_ylabel() == "RMSE"
    assert corner(display.ax_) == "synthetic"
    draw_without_warning(display.figure_)


@pytest.mark.parametrize("options", [{"models": ["Nave"]}, {"metric": "wap"}])
def test_unknown_models_and_metrics_are_refused(backtest, options):
    with pytest.raises(InputError, match="Did you mean"):
        HorizonErrorDisplay.from_backtest(backtest, **options)


def test_segments_sum_to_the_total(by_user, corner, draw_without_warning):
    forecast = Naive().fit(by_user).predict(h=10)
    labels = pd.Series(np.arange(12) % 3, index=sorted(by_user["unique_id"].unique())).map("segment {}".format)
    display = StackedForecastDisplay.from_forecast(forecast, by_user, labels=labels).plot()
    assert display.parts.shape == (40, 3)
    np.testing.assert_allclose(display.parts.sum(axis=1), display.total)
    assert display.total.iloc[-1] == pytest.approx(forecast.groupby("ds")["Naive"].sum().iloc[-1])
    assert (display.parts.sum().diff().dropna() <= 0).all()
    np.testing.assert_allclose(display.total_line_.get_ydata(), display.total)
    assert corner(display.ax_) == "synthetic"
    draw_without_warning(display.figure_)


def test_hostile_names_can_be_drawn(by_user, draw_without_warning):
    draw_without_warning(
        StackedForecastDisplay.from_forecast(Naive().fit(by_user).predict(h=10), by_user).plot().figure_
    )
