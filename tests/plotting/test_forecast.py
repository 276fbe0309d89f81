"""Forecasts with prediction intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.plotting import BASELINE, MEASURED, PREDICTED, ForecastDisplay


@pytest.fixture
def baseline(forecast):
    return forecast[["unique_id", "ds"]].assign(Naive=80.0)


def test_history_is_three_horizons_long_and_ends_before_the_forecast(total, forecast):
    known_too_much = pd.concat([total, forecast[["unique_id", "ds"]].assign(y=1.0)], ignore_index=True)
    display = ForecastDisplay.from_forecast(forecast, known_too_much)
    assert len(display.history) == 90
    assert display.history["ds"].max() < forecast["ds"].min()


def test_artists_hold_the_numbers_in_the_colours_of_the_palette(total, forecast, baseline):
    actual = forecast[["unique_id", "ds"]].assign(y=90.0)
    display = ForecastDisplay.from_forecast(forecast, total, baseline=baseline, actual=actual).plot()
    np.testing.assert_allclose(display.line_.get_ydata(), forecast["ETS"])
    np.testing.assert_allclose(display.baseline_line_.get_ydata(), 80.0)
    np.testing.assert_allclose(display.actual_line_.get_ydata(), 90.0)
    assert [line.get_color() for line in (display.history_line_, display.line_, display.baseline_line_)] == [
        MEASURED,
        PREDICTED,
        BASELINE,
    ]
    assert display.baseline_line_.get_linestyle() == "--"
    assert display.actual_line_.get_linestyle() == ":"
    assert list(display.bands_) == [95, 80]
    wide, narrow = display.bands_.values()
    assert wide.get_alpha() < narrow.get_alpha()
    top = narrow.get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx(forecast["ETS-hi-80"].max())


def test_labels_units_kind_and_legend(total, forecast, baseline, corner, draw_without_warning):
    display = ForecastDisplay.from_forecast(forecast, total, baseline=baseline).plot()
    names = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert names == ["history", "ETS, median", "95% interval", "80% interval", "Naive"]
    assert display.ax_.get_ylabel() == "GPUs held (mean per day)"
    assert display.ax_.get_ylim()[0] == 0
    assert corner(display.ax_) == "measured"
    draw_without_warning(display.figure_)


def test_a_forecast_without_intervals_is_a_line(total, forecast):
    display = ForecastDisplay.from_forecast(forecast[["unique_id", "ds", "ETS"]], total).plot()
    assert display.bands_ == {}
    assert display.baseline_line_ is None


def test_several_series_need_a_choice(total, forecast):
    two = pd.concat([forecast, forecast.assign(unique_id="other")], ignore_index=True)
    with pytest.raises(InputError, match="2 series"):
        ForecastDisplay.from_forecast(two, total)
    assert ForecastDisplay.from_forecast(two, total, unique_id="total").model == "ETS"
    with pytest.raises(InputError, match="Did you mean 'total'"):
        ForecastDisplay.from_forecast(two, total, unique_id="totl")


def test_a_frame_without_a_model_is_refused(total, forecast):
    with pytest.raises(InputError, match="no model's column"):
        _ = ForecastDisplay.from_forecast(forecast[["unique_id", "ds"]], total).model
