"""Break-even, exceedance and waits against theory."""

from __future__ import annotations

from math import factorial

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from gpudemand._validation import InputError
from gpudemand.jobs.table import as_jobs
from gpudemand.planning import plan_capacity
from gpudemand.planning.queue.expected import expected_queueing, simulate_starts
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


def test_reserving_at_the_price_of_on_demand_never_pays():
    plan = plan_capacity(normal_forecast([1000.0] * 5, 100), installed=1000)
    mix = plan.purchase_mix(reserved=2.0, on_demand=2.0).loc["total"]
    assert mix["reserve"] == 0
    assert mix["cost"] == pytest.approx(mix["cost_on_demand"])


def test_waits_follow_erlang():
    rng = np.random.default_rng(0)
    servers, load, n = 10, 8.0, 200_000
    submit, run = np.cumsum(rng.exponential(1 / load, n)), rng.exponential(1.0, n)
    wait = simulate_starts(submit, run, np.ones(n), servers, "fifo") - submit
    top = load**servers / factorial(servers) * servers / (servers - load)
    chance = top / (sum(load**k / factorial(k) for k in range(servers)) + top)
    assert (wait > 1e-12).mean() == pytest.approx(chance, rel=0.05)
    assert wait.mean() == pytest.approx(chance / (servers - load), rel=0.1)


def test_more_gpus_less_waiting_and_a_job_too_large_never_runs():
    rng = np.random.default_rng(1)
    submit = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(np.sort(rng.uniform(0, 7 * 86400, 500)), unit="s")
    frame = pd.DataFrame({"submit": submit, "gpus": rng.choice([1.0, 4.0, 16.0], 500)})
    run = pd.to_timedelta(rng.exponential(7200, 500), unit="s")
    jobs = as_jobs(frame.assign(end=frame["submit"] + run), kind="synthetic")
    table = expected_queueing(jobs, [8, 16, 64])
    assert table["mean_wait_s"].loc[[16, 64]].is_monotonic_decreasing
    assert table["never"].tolist() == [pytest.approx((frame["gpus"] == 16).mean()), 0, 0]
    assert expected_queueing(jobs, [16], growth=2.0)["mean_wait_s"].iloc[0] > table.loc[16, "mean_wait_s"]


def test_no_gpu_is_used_twice():
    rng = np.random.default_rng(2)
    submit, run = np.sort(rng.uniform(0, 100, 300)), rng.exponential(5, 300)
    gpus = rng.choice([1.0, 2.0, 8.0], 300)
    for policy in ("fifo", "backfill"):
        starts = simulate_starts(submit, run, gpus, 12, policy)
        assert (starts >= submit).all()
        assert np.isfinite(starts).all()
        held = [gpus[(starts <= now) & (starts + run > now + 1e-9)].sum() for now in starts]
        assert max(held) <= 12


@pytest.mark.parametrize(
    ("prices", "reason"),
    [
        ({"reserved": -1, "on_demand": 2}, "reserved must be a number above 0"),
        ({"reserved": 1, "on_demand": float("nan")}, "on_demand must be a number above 0; got nan"),
        ({"reserved": 1, "on_demand": {"totl": 2}}, "Did you mean 'totl'"),
    ],
)
def test_nonsense_gets_a_sentence(prices, reason):
    with pytest.raises(InputError, match=reason):
        plan_capacity(normal_forecast([100.0, 100.0], 10), installed=100).purchase_mix(**prices)


def test_the_exceedance_curve_is_drawn_with_what_is_installed():
    import matplotlib.pyplot as plt

    from gpudemand.plotting.exceedance import ExceedanceDisplay

    forecast = normal_forecast([100.0] * 4, 10)
    forecast.attrs["kind"] = "synthetic"
    display = ExceedanceDisplay.from_plan(plan_capacity(forecast, installed=110)).plot()
    np.testing.assert_allclose(display.installed_line_.get_xdata(), 110)
    assert display.line_.get_ydata()[0] == pytest.approx(1.0)
    assert display.kind == "synthetic"
    plt.close("all")
