"""The margins of the plan are those that the bundled windows of public logs give."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand.datasets import load_jobs_sample
from gpudemand.planning.need import _MARGINS, _MOST_WEEKS
from tests.tiers import slow_beside

orders = pytest.importorskip("benchmarks.planning.orders", reason="runs from a checkout")


def test_they_are_fitted_to_the_bundled_windows():
    for kind in orders.FIT_LEADS:
        for share, margin in orders.margins(kind).items():
            assert tuple(_MARGINS[kind][share]) == pytest.approx(margin, abs=0.002), (kind, share)
    assert orders.bundled_windows()["day"].max() // 7 >= _MOST_WEEKS


def test_jobs_of_public_logs_need_more_than_the_mean_that_they_want():
    """As the docstring of `fewest_gpus` says: what is required at least is never what decides there."""
    windows = orders.bundled_windows()
    ratio = windows["need"] / windows["mean"]
    assert ratio[windows["kind"] == "jobs"].min() == pytest.approx(1.12, abs=0.005)


@pytest.mark.slow
def test_constants_that_are_not_fitted_hardly_matter():
    """Growth and a log's own scatter buy nothing on public logs, and cost little."""
    others = {name: orders.OTHER_CONSTANTS_OF_PLANS[name][-1:] for name in ("_BELIEVED", "_CREDIBILITY")}
    losses = orders.constants_of_plans(leads=(90,), others=others)[90]
    assert (np.abs(losses / losses["as bundled"].iloc[0] - 1) < 0.05).all()


@pytest.mark.slow
def test_neither_choice_nor_blending_by_past_loss_beats_the_plan():
    """As docs/explanation/waits.md says."""
    losses = orders.by_past_loss()
    assert (losses["plan"] < 0.96 * losses[["chosen", "blended"]].min(axis=1)).all()
    rule = losses.pop("last weeks x 1.15") / losses["plan"]
    assert rule[28] > 0.98
    assert rule[90] > 1.15


@pytest.mark.slow
def test_what_should_not_matter_moves_the_order_of_the_sample_by_less_than_3_percent():
    moved = orders.moves(load_jobs_sample(), 30)
    assert len(moved) == 7
    assert (moved.abs() <= 0.03).all()


@pytest.mark.slow
def test_growth_beyond_the_lead_costs_no_accuracy_on_logs_that_hardly_grow():
    errors = orders.continued_growth()
    assert (errors["growth"] < 1.02 * errors["level"]).all()


@pytest.mark.slow
def test_what_was_promised_came():
    """On logs that the margins do not know: at most three points more of the windows, and of the time after them five.

    That begins as late as four weeks after the window that is planned for.
    """
    found = orders.promises()
    jobs = found[(found["kind"] == "jobs") & (found["promised"] < 0.5)]
    np.testing.assert_allclose(jobs["came"], jobs["promised"], atol=0.035)
    near = found[(found["lead"] == 28) & (found["promised"] < 0.5)]
    assert (near["came"] < near["promised"] + 0.03).all()
    assert (near["time"] < near["promised"] + np.where(near["promised"] > 0.05, 0.05, 0.035)).all()


def test_a_forecast_from_bundled_windows_knows_nothing_of_later():
    table = orders.bundled_windows()
    rows = table[table["log"] == "kth"].reset_index(drop=True)
    need = orders.need_at(rows, 100)
    assert need.weekly[0] == rows["need"][100]
    assert need.recent == rows["need"][72:101].max()
    changed = rows.assign(need=rows["need"].where(rows.index <= 100, 1e9))
    assert orders.need_at(changed, 100).quantile(0.95, 28) == need.quantile(0.95, 28)


def test_a_ratio_compares_a_window_with_what_its_origin_says():
    days = np.arange(28, 168)
    table = pd.DataFrame({"log": "steady", "kind": "jobs", "day": days, "need": 1.01**days, "mean": 1.01**days / 2})
    later = orders.changes(table, (28, 84))
    assert later.groupby("lead")["recent"].unique().explode().tolist() == [1.0, 0.5]
    short = later[later["lead"] == 28].iloc[-1]  # of the first origin, which knows one window, and so no growth
    assert short["ratio"] == pytest.approx(56 * np.log(1.01))
    faster = 56 * (np.log(1.01) - np.log(4) / 364)  # than is carried on
    assert later["ratio"].iloc[0] == pytest.approx(faster)


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
    assert found["median"] == pytest.approx(0.92, abs=0.05)  # of growth that does not die away, as it does here
    assert found["days late"] < found["noise"]  # earlier than the line says: a need of then is known no better
