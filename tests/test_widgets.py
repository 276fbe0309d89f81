"""Sliders replan, and a page without a kernel has a static table."""

from __future__ import annotations

import time

import pytest

from gpudemand.planning import plan_capacity
from gpudemand.widgets import static_scenarios, what_if
from tests.planning.test_capacity import normal_forecast


@pytest.fixture
def plan():
    return plan_capacity(normal_forecast([100.0, 110.0], 10), installed=150)


def test_a_slider_redraws_the_plan(plan):
    pytest.importorskip("ipywidgets")
    box = what_if(plan)
    first = box.children[1].value
    assert "<svg" in first
    assert box.plan.summary.equals(plan.summary)
    box.sliders["growth"].value = 2.0
    assert box.plan.summary["required"].iloc[0] > plan.summary["required"].iloc[0]
    assert box.children[1].value != first


def test_a_page_without_a_kernel_has_a_table(plan):
    table = static_scenarios(plan)
    assert table["required"].is_monotonic_increasing
    assert table.loc[("as forecast", "total"), "required"] == plan.summary.loc["total", "required"]


def test_replanning_takes_less_than_0_3_seconds(plan):
    begin = time.process_time()
    plan.replan(growth=1.3, extra_gpus=10, target_utilization=0.9, service_level=0.9)
    assert time.process_time() - begin < 0.3
