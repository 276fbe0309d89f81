"""The margins of the plan are those that the bundled windows of public logs give."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand.datasets import load_jobs_sample
from gpudemand.planning.need import (
    _CREDIBILITY,
    _DRIFT,
    _LARGEST_BURST,
    _MARGINS,
    _MOST_WEEKS,
    _USUAL_BURST,
    NeedForecast,
)
from tests.tiers import slow_beside

orders = pytest.importorskip("benchmarks.planning.orders", reason="runs from a checkout")


def test_they_are_fitted_to_the_bundled_windows():
    for kind in orders.FIT_LEADS:
        for share, margin in orders.margins(kind).items():
            assert tuple(_MARGINS[kind][share]) == pytest.approx(margin, abs=0.002), (kind, share)
        assert _CREDIBILITY[kind] == pytest.approx(orders.credibility(kind), abs=0.1)
    assert orders.bundled_windows()["day"].max() // 7 == _MOST_WEEKS
    assert orders.bursts() == pytest.approx((_USUAL_BURST, _LARGEST_BURST), abs=0.01)


@pytest.mark.slow
@pytest.mark.slow
def test_logs_drift_apart_as_serves_plans_far_ahead():
    loss = orders.drift()
    assert loss.idxmin() == _DRIFT
    assert loss[0.0] > 1.02 * loss.min()


def test_neither_choice_nor_blending_by_past_loss_beats_the_plan():
    """As docs/explanation/waits.md says."""
    losses = orders.by_past_loss()
    assert (losses["plan"] <= losses.drop(columns="plan").min(axis=1)).all()


@pytest.mark.slow
def test_what_should_not_matter_moves_the_order_of_the_sample_by_less_than_3_percent():
    moved = orders.moves(load_jobs_sample(), 30)
    assert len(moved) == 7
    assert (moved.abs() <= 0.03).all()


def test_growth_beyond_the_lead_lowers_the_error():
    errors = orders.continued_growth()
    assert (errors["growth"] < errors["level"]).all()


def test_the_spread_grows_with_time_less_where_own_windows_tell_of_it():
    known, unknown = (NeedForecast(100.0, 0.2, np.full(weeks, 100.0)) for weeks in (52, 5))
    growth = [np.ptp(need.quantiles(np.array([0.05, 0.95]), 90)) for need in (known, unknown)]
    now = [np.ptp(need.quantiles(np.array([0.05, 0.95]), 28)) for need in (known, unknown)]
    assert growth[0] / now[0] < 1.2 < growth[1] / now[1] < 1.5


@pytest.mark.slow
def test_what_was_promised_came():
    """On logs that the margins do not know: at most three points more of the windows, four weeks ahead."""
    found = orders.promises()
    near = found[(found["lead"] == 28) & (found["promised"] < 0.5)]
    assert (near["came"] < near["promised"] + 0.03).all()
    assert (near["time"] < near["promised"] + 0.03).all()
    jobs = near[near["kind"] == "jobs"]
    np.testing.assert_allclose(jobs["came"], jobs["promised"], atol=0.04)


def test_a_forecast_from_bundled_windows_knows_nothing_of_later():
    table = orders.bundled_windows()
    rows = table[table["log"] == "kth"].reset_index(drop=True)
    need = orders.need_at(rows, 100)
    assert need.weekly[0] == rows["need"][100]
    assert need.base == pytest.approx(rows["need"][66:101].max(), rel=0.1)
    changed = rows.assign(need=rows["need"].where(rows.index <= 100, 1e9))
    assert orders.need_at(changed, 100).quantile(0.95, 28) == need.quantile(0.95, 28)


def test_a_ratio_compares_a_window_with_those_before_its_origin():
    days = np.arange(28, 140)
    table = pd.DataFrame({"log": "steady", "day": days, "need": 1.01**days, "mean": 1.01**days / 2})
    later = orders.changes(table, (56,))
    # The window ends 84 days after the origin; the present need is a mean over a week, and the larger of two windows.
    np.testing.assert_allclose(later["ratio"].iloc[0], (84 + 3) * np.log(1.01), rtol=1e-6)
    np.testing.assert_allclose(later["burst"], np.log(2))


def test_a_short_plan_costs_nineteen_times_a_long_one():
    plans = pd.DataFrame({"plan": [90.0, 110.0], "need": 100.0, "lo": 80.0, "hi": [95.0, 120.0]})
    assert orders.score(plans)["pinball"] == pytest.approx((0.95 * 0.1 + 0.05 * 0.1) / 2)
    assert orders.score(plans)[["sufficient", "90 % band covers"]].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("n_seeds", slow_beside([1], [1, 3]))
def test_nothing_is_ordered_where_nobody_waits(n_seeds):
    assert orders.needless_orders(n_seeds).sum() == 0


@pytest.mark.slow
def test_orders_on_a_log_that_grows_suffice():
    found = orders.dates(450, n_seeds=4)
    assert found["sufficient"] == 1
    assert found["median"] == pytest.approx(1, abs=0.08)
    assert abs(found["days late"]) < 2 * found["noise"]
