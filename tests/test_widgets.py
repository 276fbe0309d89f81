"""Sliders replan, and a page without a kernel has a figure and a table."""

from __future__ import annotations

import time

import pytest

from gpudemand.planning import plan_capacity
from gpudemand.widgets import end_without, static_scenarios, what_if
from tests.planning.test_capacity import normal_forecast


@pytest.fixture
def plan():
    return plan_capacity(normal_forecast([100.0, 110.0], 10), installed=150)


def test_a_slider_redraws_the_plan(plan):
    pytest.importorskip("ipywidgets")
    shown = what_if(plan)
    first = shown.picture.value
    assert "<svg" in first
    assert shown.plan.summary.equals(plan.summary)
    shown.sliders["growth"].value = 2.0
    assert shown.plan.summary["required"].iloc[0] > plan.summary["required"].iloc[0]
    assert shown.picture.value != first


def test_every_slider_has_a_field_with_its_name_and_number(plan):
    pytest.importorskip("ipywidgets")
    shown = what_if(plan)
    fields = [row.children[0] for row in shown.box.children[: len(shown.sliders)]]
    assert all(field.description for field in fields)
    fields[1].value = 7
    assert shown.sliders["extra_gpus"].value == 7


def test_a_page_without_a_kernel_has_a_figure_and_a_table(plan):
    pytest.importorskip("ipywidgets")
    page = what_if(plan)._repr_html_()
    assert "<svg" in page
    assert "50 % more" in page
    assert "00:00:00" not in page


def test_more_demand_requires_more(plan):
    table = static_scenarios(plan)
    assert table["required"].is_monotonic_increasing
    assert table.loc[("as forecast", "total"), "required"] == plan.summary.loc["total", "required"]


def test_replanning_takes_less_than_0_3_seconds(plan):
    begin = time.process_time()
    plan.replan(growth=1.3, extra_gpus=10, target_utilization=0.9, service_level=0.9)
    assert time.process_time() - begin < 0.3


def test_cells_below_a_package_that_is_missing_do_nothing(capsys):
    interactive = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    shell = interactive.instance()
    try:
        shell.run_cell("from gpudemand.widgets import end_without\nend_without('json')\nkept = 1")
        assert shell.user_ns["kept"] == 1
        shell.run_cell("end_without('json', 'no_such_framework')")
        done = shell.run_cell("import no_such_framework\nnever = 1")
        assert done.success
        assert "never" not in shell.user_ns
    finally:
        interactive.clear_instance()
    end_without("json")
