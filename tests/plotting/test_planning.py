"""The capacity plan."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.planning import plan_capacity
from gpudemand.plotting import INSTALLED, CapacityPlanDisplay, OutlookDisplay


def plan(forecast: pd.DataFrame, installed: float = 120, lead_time: str = "20D"):
    return plan_capacity(forecast, installed=installed, lead_time=lead_time)


def test_artists_hold_the_plan(total, forecast, corner, draw_without_warning):
    made = plan(forecast)
    display = CapacityPlanDisplay.from_plan(made, total).plot()
    table = made.to_frame()
    np.testing.assert_allclose(display.line_.get_ydata(), table["required_p50"])
    np.testing.assert_allclose(display.required_line_.get_ydata(), table["required"])
    assert set(display.installed_line_.get_ydata()) == {120}
    assert display.installed_line_.get_color() == INSTALLED
    assert display.installed_line_.get_drawstyle() == "steps-post"
    assert display.shortfall_.get_hatch()
    assert len(display.history) == 90
    assert corner(display.ax_) == "measured"
    draw_without_warning(display.figure_)


def test_first_crossing_order_date_and_assumptions_are_annotated(total, forecast):
    made = plan(forecast)
    display = CapacityPlanDisplay.from_plan(made, total).plot()
    crossing, order = (made.summary.loc["total", name] for name in ("first_crossing", "order_by"))
    assert [note.get_text() for note in display.notes_] == [
        f"first crossing {crossing.day} {crossing:%b %Y}",
        f"order by {order.day} {order:%b %Y}",
    ]
    assert "target utilization 85%" in display.ax_.get_title(loc="left")
    assert "95% service level" in display.ax_.get_title(loc="left")
    assert display.ax_.get_ylabel() == "GPUs"


def test_an_order_date_before_the_figure_points_at_its_edge(forecast, draw_without_warning):
    display = CapacityPlanDisplay.from_plan(plan(forecast, lead_time="900D")).plot()
    assert display.notes_[1].get_text().startswith("← order by")
    assert display.history_line_ is None
    draw_without_warning(display.figure_)


def test_enough_gpus_have_no_shortfall_and_no_dates(total, forecast):
    display = CapacityPlanDisplay.from_plan(plan(forecast, installed=1000), total).plot()
    assert display.shortfall_ is None
    assert display.notes_ == []
    assert "shortfall" not in [text.get_text() for text in display.ax_.get_legend().get_texts()]


def test_several_series_need_a_choice(forecast):
    two = pd.concat([forecast, forecast.assign(unique_id="other")], ignore_index=True)
    with pytest.raises(InputError, match="2 series"):
        CapacityPlanDisplay.from_plan(plan(two))
    assert len(CapacityPlanDisplay.from_plan(plan(two), unique_id="other").frame) == 30


@pytest.mark.parametrize("wanted", [True, False])
def test_the_outlook_has_all_on_one_axis(total, forecast, draw_without_warning, wanted):
    history = total.rename(columns={"y": "held"})[["ds", "held"]]
    if wanted:
        history["wanted"] = 1.5 * history["held"]
    table = plan(forecast).to_frame()
    ahead = forecast.drop(columns="unique_id")
    display = OutlookDisplay(history, ahead, table, kind="measured").plot()
    np.testing.assert_allclose(display.held_line_.get_ydata(), history["held"])
    np.testing.assert_allclose(display.required_line_.get_ydata(), table["required"])
    assert set(display.installed_line_.get_ydata()) == {120}
    assert (display.wanted_line_ is not None) == wanted
    title = "GPUs held, wanted, required and installed" if wanted else "GPUs held, required and installed"
    assert title in [text.get_text() for text in display.ax_.texts] + [display.ax_.get_title(loc="left")]
    assert list(display.bands_) == sorted(display.bands_, reverse=True)
    draw_without_warning(display.figure_)
