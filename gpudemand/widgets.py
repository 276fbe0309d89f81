"""Notebook widget: a capacity plan under sliders."""

from __future__ import annotations

from typing import Any

import pandas as pd

from gpudemand._validation import InputError
from gpudemand.planning.capacity import CapacityPlan
from gpudemand.plotting.plan import CapacityPlanDisplay


def what_if(plan: CapacityPlan, usage: pd.DataFrame | None = None, *, unique_id: str | None = None) -> Any:
    """Show a capacity plan under sliders: growth, GPUs bought, target utilization and service level.

    Without a kernel (on a web page) the figure is static, and a table below it has the plan for a few scenarios.

    `usage`: GPUs held, drawn before the plan. `unique_id`: which series to draw, if the plan has several. Returns
    with ``sliders`` (a dict) and ``plan`` (the one shown) as attributes.
    """
    try:
        import ipywidgets as widgets
    except ImportError as error:
        raise InputError("what_if needs ipywidgets; install it with pip install 'gpudemand[lab]'.") from error
    sliders = _sliders(widgets, plan)
    picture, table = widgets.HTML(), widgets.HTML(static_scenarios(plan).to_html())
    box = widgets.VBox([widgets.HBox(list(sliders.values())), picture, table])
    box.sliders = sliders

    def redraw(_: Any = None) -> None:
        """Replan with the values of the sliders and draw the plan."""
        box.plan = plan.replan(**{name: slider.value for name, slider in sliders.items()})
        picture.value = _drawn(box.plan, usage, unique_id) + box.plan._repr_html_()

    for slider in sliders.values():
        slider.observe(redraw, names="value")
    redraw()
    return box


def _sliders(widgets: Any, plan: CapacityPlan) -> dict[str, Any]:
    """Sliders by the arguments of `CapacityPlan.replan` that they set."""
    highest = plan.quantiles.highest if plan.quantiles is not None else plan.service_level
    installed = float(plan.summary["installed"].max())
    return {
        "growth": widgets.FloatSlider(1.0, min=0.5, max=3.0, step=0.05, description="demand x"),
        "extra_gpus": widgets.IntSlider(0, min=0, max=int(max(installed, 8)), step=1, description="GPUs more"),
        "target_utilization": widgets.FloatSlider(
            plan.target_utilization, min=0.5, max=1.0, step=0.01, description="utilization"
        ),
        "service_level": widgets.FloatSlider(
            plan.service_level, min=0.55, max=int(1000 * highest + 1e-6) / 1000, step=0.005, description="service"
        ),
    }


def static_scenarios(plan: CapacityPlan) -> pd.DataFrame:
    """Summaries of a plan under more demand: index scenario and ``unique_id``, columns of `CapacityPlan.summary`."""
    growths = {"as forecast": 1.0, "25 % more": 1.25, "50 % more": 1.5, "twice": 2.0}
    return pd.concat({name: plan.replan(growth=by).summary for name, by in growths.items()}, names=["scenario"])


def _drawn(plan: CapacityPlan, usage: pd.DataFrame | None, unique_id: str | None) -> str:
    from io import StringIO

    import matplotlib.pyplot as plt

    figure: Any = CapacityPlanDisplay.from_plan(plan, usage, unique_id=unique_id).plot().figure_
    text = StringIO()
    figure.savefig(text, format="svg")
    plt.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]
