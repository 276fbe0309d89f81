"""The margins of the plan are those that the bundled windows of public logs give."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand.planning.need import _MARGINS, _SHORT_BURST

orders = pytest.importorskip("benchmarks.planning.orders", reason="runs from a checkout")


def test_they_are_fitted_to_the_bundled_windows():
    for kind, margins in orders.all_margins().items():
        for share, margin in margins.items():
            bundled = tuple(_MARGINS[kind][share])[: len(margin)]
            assert bundled == pytest.approx(margin, abs=0.002), (kind, share)


def test_the_burst_of_a_short_log_is_the_lower_quartile_of_public_ones():
    assert pytest.approx(orders.short_burst(), abs=0.03) == _SHORT_BURST


def test_a_ratio_compares_a_window_with_those_before_its_origin():
    days = np.arange(28, 140)
    table = pd.DataFrame({"log": "steady", "day": days, "need": 1.01**days, "mean": 1.01**days / 2})
    found = orders.changes(table)
    later = found[found["lead"] == 56]
    # The window ends 84 days after the origin; the present need is a mean over a week, and the larger of two windows.
    np.testing.assert_allclose(later["ratio"].iloc[0], (84 + 3) * np.log(1.01), rtol=1e-6)
    np.testing.assert_allclose(later["burst"], np.log(2))


def test_a_short_plan_costs_nineteen_times_a_long_one():
    plans = pd.DataFrame({"plan": [90.0, 110.0], "need": 100.0, "lo": 80.0, "hi": [95.0, 120.0]})
    assert orders.score(plans)["pinball"] == pytest.approx((0.95 * 0.1 + 0.05 * 0.1) / 2)
    assert orders.score(plans)[["sufficient", "90 % band covers"]].tolist() == [0.5, 0.5]


def test_nothing_is_ordered_where_nobody_waits():
    assert orders.needless_orders(n_seeds=3).sum() == 0
