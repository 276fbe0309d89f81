"""Purchase mixes and exceedance curves against theory."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from gpudemand._validation import InputError
from gpudemand.planning import plan_capacity
from tests.planning.test_capacity import normal_forecast


def test_the_exceedance_curve_is_that_of_the_distribution():
    plan = plan_capacity(normal_forecast([100.0] * 4, 10), installed=100)
    curve = plan.exceedance([80, 100, 120])
    np.testing.assert_allclose(curve["share_over"], norm.sf([-2, 0, 2]), atol=1e-9)
    assert plan.exceedance()["share_over"].is_monotonic_decreasing


def test_rows_of_a_plan_and_of_its_quantiles_have_the_same_order():
    forecast = normal_forecast([50.0, 100.0, 200.0], 10, names=("b", "a"))
    shuffled = forecast.sample(frac=1, random_state=0)
    plan = plan_capacity(shuffled, installed=100)
    np.testing.assert_allclose(plan.quantiles.quantile(0.9), plan.to_frame()["demand_p90"])


def test_reserve_up_to_the_quantile_of_the_price_ratio():
    plan = plan_capacity(normal_forecast([1000.0] * 5, 100), installed=1000)
    mix = plan.purchase_mix(reserved=1.0, on_demand=4.0).loc["total"]
    assert mix["break_even_share"] == 0.25
    assert mix["reserve"] == pytest.approx(1000 + 100 * norm.ppf(0.75), abs=3)
    assert mix["cost"] <= min(mix["cost_reserved"], mix["cost_on_demand"])
    z = norm.ppf(0.75)
    beyond = 100 * (norm.pdf(z) - z * norm.sf(z)) * 24 * 5
    assert mix["on_demand_gpu_hours"] == pytest.approx(beyond, rel=0.03)


@pytest.mark.parametrize(("demand", "reserve"), [(0.2, 0), (0.9, 1), (1.9, 2), (2.0, 2), (2.95, 3)])
def test_a_whole_gpu_is_reserved_for_most_of_one(demand, reserve):
    plan = plan_capacity(normal_forecast([demand] * 5, 0.01), installed=4)
    mix = plan.purchase_mix(reserved=1.2, on_demand=3.0).loc["total"]
    assert mix["reserve"] == reserve
    assert mix["cost"] <= min(1.2 * np.ceil(demand) * 120, 3.0 * demand * 120) * 1.01


def test_reserving_at_the_price_of_on_demand_never_pays():
    plan = plan_capacity(normal_forecast([1000.0] * 5, 100), installed=1000)
    mix = plan.purchase_mix(reserved=2.0, on_demand=2.0).loc["total"]
    assert mix["reserve"] == 0
    assert mix["cost"] == pytest.approx(mix["cost_on_demand"])


@pytest.mark.parametrize(
    ("prices", "reason"),
    [
        ({"reserved": -1, "on_demand": 2}, "reserved must be a number above 0"),
        ({"reserved": 1, "on_demand": float("nan")}, "on_demand must be a number above 0; got nan"),
        ({"reserved": 1, "on_demand": {"totl": 2}}, "Did you mean 'totl'"),
    ],
)
def test_invalid_arguments_raise_a_clear_error(prices, reason):
    with pytest.raises(InputError, match=reason):
        plan_capacity(normal_forecast([100.0, 100.0], 10), installed=100).purchase_mix(**prices)


def test_the_exceedance_curve_is_drawn_with_what_is_installed():
    import matplotlib.pyplot as plt

    from gpudemand.plotting.plan import ExceedanceDisplay

    forecast = normal_forecast([100.0] * 4, 10)
    forecast.attrs["kind"] = "synthetic"
    display = ExceedanceDisplay.from_plan(plan_capacity(forecast, installed=110)).plot()
    np.testing.assert_allclose(display.installed_line_.get_xdata(), 110)
    assert display.line_.get_ydata()[0] == pytest.approx(1.0)
    assert display.kind == "synthetic"
    plt.close("all")
