"""Figures of the report, drawn as SVG and PNG."""

from __future__ import annotations

import re
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from gpudemand._validation import told
from gpudemand.plotting import (
    CapacityPlanDisplay,
    ExceedanceDisplay,
    ForecastDisplay,
    OutlookDisplay,
    PurchaseLeadDisplay,
    SegmentProfileDisplay,
    StackedForecastDisplay,
    UsageDisplay,
    WaitDisplay,
    WeeklyProfileDisplay,
    style,
)
from gpudemand.plotting.base import Display, kind_of
from gpudemand.plotting.forecast import HORIZONS_SHOWN
from gpudemand.report.history import LAST_VALUE
from gpudemand.study.requirement import Requirement, evaluated_series
from gpudemand.study.selection import SCORED_LEVELS, SelectedForecast
from gpudemand.study.usage_tables import MEAN, PEAK, UsageTables, held_and_wanted

if TYPE_CHECKING:
    from gpudemand.study.study import Study

_METADATA = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", re.DOTALL)
#: Before the names of elements, and before references to them.
_NAMES = re.compile(r"""(\bid="|href="#|url\(#)""")
_SIZE = re.compile(r"""<svg xmlns:xlink="[^"]*" width="[^"]*" height="[^"]*\"""")
_VIEW = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


class Drawing(NamedTuple):
    """A figure in both formats, and the width of what is left of its axes, in points; 0 where it has several."""

    svg: bytes
    png: bytes
    left: float = 0.0

    def element(self, name: str) -> str:
        """The SVG as an element of a page, its text searchable; names inside it are unique to the figure.

        Before it stands its y axis alone, which stays in sight where a narrow page scrolls the figure.
        """
        text = self.svg.decode("utf-8")
        text = _METADATA.sub("", text[text.index("<svg") :])
        text = _NAMES.sub(rf"\g<1>{name}-", text)
        text = _SIZE.sub(rf'<svg role="img" aria-labelledby="caption-{name}"', text, count=1)
        if not self.left:
            return text
        width, height = (float(size) for size in _VIEW.findall(text)[0])
        axis = f'<use href="#{name}-figure_1"/>'
        style = f"width: {self.left / width:.4%}"
        box = f"0 0 {self.left:.2f} {height:g}"
        return f'<svg class="axis" aria-hidden="true" viewBox="{box}" style="{style}">{axis}</svg>\n{text}'


@told("Drawing figures")
def draw_figures(study: Study, past: pd.DataFrame | None = None) -> dict[str, Drawing]:
    """Figures of the report by name; stages that the log does not allow have none. `past`: see `past_forecast`."""
    usage, selected, requirement, attempt = study.usage_tables, study.demand, study.requirement, study.attempt
    displays: dict[str, tuple[Display, float]] = {
        "usage": (UsageDisplay.from_usage(usage.groups), 4.2),
        "forecast": (_forecast(usage, selected, MEAN), 3.9),
        "outlook": (_outlook(study), 4.4),
        "plan": (_plan(usage, requirement), 4.6),
        "exceedance": (ExceedanceDisplay.from_plan(requirement.plans[MEAN]), 3.6),
        "backtest": (_backtest(usage, selected, MEAN), 3.9),
    }
    if usage.hourly is not None:
        displays["week"] = (WeeklyProfileDisplay.from_usage(usage.hourly), 3.0)
    if PEAK not in study.skipped:
        displays["forecast_peak"] = (_forecast(usage, selected, PEAK), 3.9)
    if past is not None:
        displays["since"] = (_past(usage, past), 3.9)
    if (waits := attempt("waits", lambda: study.wait_tables)) is not None:
        displays["waits"] = (WaitDisplay.from_table(waits.by_size), 1.6 + 0.25 * len(waits.by_size))
    if (segments := attempt("segments", lambda: study.user_segments)) is not None:
        names = segments.profiles["segment"].tolist()
        display = SegmentProfileDisplay.from_labels(segments.wide, segments.labels.to_numpy(), names=names)
        displays["segments"] = (display, 2.4 + 1.4 * len(names) ** 0.5)
    if (parts := attempt("parts", lambda: study.parts)) is not None:
        median = parts.forecast[["unique_id", "ds", parts.model]]
        median.attrs = dict(parts.usage.attrs)
        displays["parts"] = (StackedForecastDisplay.from_forecast(median, parts.usage), 4.2)
    if (
        study.compares_purchases
        and (lead := attempt("purchase_lead", lambda: study.purchase_comparison.lead)) is not None
    ):
        displays["purchases"] = (PurchaseLeadDisplay(lead, kind=kind_of(usage.total)), 1.6 + 0.3 * len(lead))
    return {name: _draw(display, height) for name, (display, height) in displays.items()}


def _forecast(usage: UsageTables, selected: SelectedForecast, series: str) -> ForecastDisplay:
    # A naive model that is selected is its own baseline.
    baseline = None if selected.model in selected.baseline.columns else selected.baseline
    shown, history = _shown(selected), _history(usage, series)
    return ForecastDisplay.from_forecast(shown, history, baseline=baseline, unique_id=series)


def _shown(selected: SelectedForecast) -> pd.DataFrame:
    """The forecast with the intervals that are drawn."""
    bounds = [f"{selected.model}-{side}-{level}" for level in SCORED_LEVELS for side in ("lo", "hi")]
    return selected.forecast[["unique_id", "ds", selected.model, *bounds]]


def _history(usage: UsageTables, series: str) -> pd.DataFrame:
    history = usage.total.copy()
    if series == PEAK:
        history.attrs = usage.total.attrs | {"value": "gpus_peak"}
    return history


def _outlook(study: Study) -> OutlookDisplay:
    history, ahead = held_and_wanted(study.usage_tables), _shown(study.demand)
    if study.source.demand != "wanted":
        history = history.drop(columns="wanted")
    ahead = ahead[ahead["unique_id"] == MEAN]
    history = history.tail(HORIZONS_SHOWN * len(ahead))
    return OutlookDisplay(history, ahead, study.requirement.envelope(), kind=kind_of(study.usage_tables.total))


def _plan(usage: UsageTables, requirement: Requirement) -> CapacityPlanDisplay:
    by_bin = requirement.envelope()
    held = _history(usage, PEAK)  # last of the series, where there are two
    held = held[held["unique_id"] == held["unique_id"].iloc[-1]]
    due = requirement.order_by()
    return CapacityPlanDisplay(
        by_bin,
        history=held.tail(HORIZONS_SHOWN * len(by_bin)),
        first_crossing=None if pd.isna(crossing := requirement.first_crossing()) else crossing,
        # Where it is too late already, the page says so, and what an order now brings.
        order_by=due if due >= by_bin["ds"].min() else None,
        caption=f"at {100 * requirement.plans[MEAN].service_level:.4g}% service level",
        kind=kind_of(usage.total),
    )


def _backtest(usage: UsageTables, selected: SelectedForecast, series: str) -> ForecastDisplay:
    """Forecast of the latest window beside the actual values."""
    rows = evaluated_series(selected, series, [selected.model])
    latest = rows[rows["cutoff"] == rows["cutoff"].max()].drop(columns="cutoff")
    history = _history(usage, series)
    return ForecastDisplay.from_forecast(latest.drop(columns="y"), history, actual=latest, unique_id=series)


def _past(usage: UsageTables, past: pd.DataFrame) -> ForecastDisplay:
    """Earlier forecast of the mean beside the actual values."""
    rows = past[past["unique_id"] == MEAN].drop(columns=["cutoff", LAST_VALUE])
    history = usage.total[usage.total["ds"] < rows["ds"].min()]
    history.attrs = usage.total.attrs
    return ForecastDisplay.from_forecast(rows.drop(columns="y"), history, actual=rows, unique_id=MEAN)


def _draw(display: Display, height: float) -> Drawing:
    """Draw on a figure that pyplot does not manage."""
    from matplotlib import rcParams
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    svg, png = BytesIO(), BytesIO()
    with style():
        figure = Figure(figsize=(10, height), dpi=rcParams["savefig.dpi"])
        display.plot(figure.subplots())
        # savefig would draw four times and compute the layout twice; the canvases draw once each, with one layout.
        FigureCanvasAgg(figure).print_png(png)
        figure.set_layout_engine("none")
        # Without the date the files are reproducible.
        FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None})
    first, *others = figure.axes
    left = 72 * figure.get_figwidth() * first.get_position().x0 if first.axison and not others else 0.0
    return Drawing(svg.getvalue(), png.getvalue(), left)
