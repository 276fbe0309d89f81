"""What notebooks need: a capacity plan under sliders, and a quiet end where a package lacks."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pandas as pd

from gpudemand._tables import html_table
from gpudemand._validation import InputError
from gpudemand.planning.capacity import CapacityPlan
from gpudemand.plotting.plan import CapacityPlanDisplay

#: Class of what stands where no kernel draws the widget, which hides it where one does.
_STATIC = "gpudemand-static"


def end_without(*modules: str) -> None:
    """Skip the cells below of a notebook, with a sentence, where modules are not installed.

    Examples
    --------
    >>> end_without("pandas")
    """
    missing = [name for name in modules if find_spec(name) is None]
    if not missing:
        return
    from IPython import get_ipython
    from IPython.display import Markdown, display

    extras = {"keras": "tensorflow", "gph": "tda"}
    names = " and ".join({"gph": "giotto-ph"}.get(name, name) for name in missing)
    install = f"gpudemand[{','.join(extras.get(name, name) for name in missing)}]"
    display(
        Markdown(
            f"**The cells below need {names}, which this environment lacks, and are skipped.** "
            f"`pip install '{install}'` installs it, where there are wheels for this Python."
        )
    )
    get_ipython().input_transformers_cleanup.append(lambda lines: [])


def what_if(plan: CapacityPlan, usage: pd.DataFrame | None = None) -> WhatIf:
    """Show a capacity plan under sliders: growth, GPUs bought, target utilization and service level.

    Without a kernel (on a web page) a figure stands there, and a table with the plan for a few scenarios.

    Parameters
    ----------
    plan : CapacityPlan
    usage : DataFrame, optional
        GPUs held, drawn before the plan.

    Returns
    -------
    WhatIf
        With ``sliders`` (a dict) and ``plan`` (the one shown).

    Raises
    ------
    InputError
        Without ipywidgets.
    """
    return WhatIf(plan, usage)


class WhatIf:
    """Sliders, and the plan that they ask for; see `what_if`."""

    def __init__(self, plan: CapacityPlan, usage: pd.DataFrame | None) -> None:
        try:
            import ipywidgets as widgets
        except ImportError as error:
            raise InputError("what_if needs ipywidgets; install it with pip install 'gpudemand[lab]'.") from error
        self.plan, self._usage, self._base = plan, usage, plan
        self.sliders = _sliders(widgets, plan)
        self.picture = widgets.HTML()
        rows = [_row(widgets, name, slider) for name, slider in self.sliders.items()]
        hide = widgets.HTML(f"<style>.{_STATIC} {{ display: none; }}</style>")
        self.box = widgets.VBox([*rows, self.picture, hide])
        for slider in self.sliders.values():
            slider.observe(self._redraw, names="value")
        self._redraw()

    def _redraw(self, _: Any = None) -> None:
        """Replan with the values of the sliders and draw the plan."""
        self.plan = self._base.replan(**{name: slider.value for name, slider in self.sliders.items()})
        self.picture.value = _drawn(self.plan, self._usage) + self.plan._repr_html_()

    def _repr_html_(self) -> str:
        scenarios = html_table(static_scenarios(self._base))
        return f'<div class="{_STATIC}">{_drawn(self._base, self._usage)}{scenarios}</div>'

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        display(HTML(self._repr_html_()), self.box)


#: What the sliders are called.
_NAMES = {
    "growth": "Demand, times the forecast",
    "extra_gpus": "GPUs bought",
    "target_utilization": "Highest mean utilization",
    "service_level": "Service level",
}


def _row(widgets: Any, name: str, slider: Any) -> Any:
    """A slider and a field for its number, which a screen reader knows by its name."""
    field = (widgets.BoundedIntText if isinstance(slider.value, int) else widgets.BoundedFloatText)(
        slider.value, min=slider.min, max=slider.max, step=slider.step, description=_NAMES[name],
        style={"description_width": "14em"}, layout={"width": "22em"},
    )  # fmt: skip
    widgets.link((slider, "value"), (field, "value"))
    return widgets.HBox([field, slider])


def _sliders(widgets: Any, plan: CapacityPlan) -> dict[str, Any]:
    """Sliders by the arguments of `CapacityPlan.replan` that they set."""
    highest = plan.quantiles.highest if plan.quantiles is not None else plan.service_level
    installed = float(plan.summary["installed"].max())
    make = {"readout": False, "tooltip": "arrow keys move it"}
    return {
        "growth": widgets.FloatSlider(1.0, min=0.5, max=3.0, step=0.05, **make),
        "extra_gpus": widgets.IntSlider(0, min=0, max=int(max(2 * installed, 8)), step=1, **make),
        "target_utilization": widgets.FloatSlider(plan.target_utilization, min=0.5, max=1.0, step=0.01, **make),
        "service_level": widgets.FloatSlider(
            plan.service_level, min=0.55, max=int(1000 * highest + 1e-6) / 1000, step=0.005, **make
        ),
    }


def static_scenarios(plan: CapacityPlan) -> pd.DataFrame:
    """Summaries of a plan under more demand: index scenario and ``unique_id``, columns of `CapacityPlan.summary`."""
    growths = {"as forecast": 1.0, "25 % more": 1.25, "50 % more": 1.5, "twice": 2.0}
    return pd.concat({name: plan.replan(growth=by).summary for name, by in growths.items()}, names=["scenario"])


def _drawn(plan: CapacityPlan, usage: pd.DataFrame | None) -> str:
    from io import StringIO

    import matplotlib.pyplot as plt

    figure: Any = CapacityPlanDisplay.from_plan(plan, usage).plot().figure_
    text = StringIO()
    figure.savefig(text, format="svg")
    plt.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]
