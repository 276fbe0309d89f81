"""Figures of the report: drawn off screen, saved as SVG and PNG."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand.plotting import CapacityPlanDisplay, ForecastDisplay, RhythmDisplay, UsageDisplay, style
from gpudemand.plotting._base import kind_of
from gpudemand.plotting.forecast import HORIZONS_SHOWN
from gpudemand.report.measured import MEAN, PEAK, Measured
from gpudemand.report.need import Need
from gpudemand.report.outlook import SCORED_LEVELS, Outlook


def draw_all(measured: Measured, outlook: Outlook, need: Need, folder: Path) -> dict[str, str]:
    """Draw and save every figure of the report.

    Parameters
    ----------
    measured : Measured
    outlook : Outlook
    need : Need
    folder : Path
        Where the ``.svg`` and ``.png`` files go; made if absent.

    Returns
    -------
    dict of str to str
        Name of the figure -> its SVG as a ``data:`` address, which a page can show without loading anything.
    """
    folder.mkdir(parents=True, exist_ok=True)
    displays: dict[str, tuple[Any, tuple[float, float]]] = {
        "usage": (UsageDisplay.from_usage(measured.groups), (10, 4.2)),
        "week": (RhythmDisplay.from_usage(measured.hourly), (10, 3.0)),
        "forecast": (_forecast(measured, outlook, MEAN), (10, 3.9)),
        "forecast_peak": (_forecast(measured, outlook, PEAK), (10, 3.9)),
        "plan": (_plan(measured, need), (10, 4.6)),
    }
    return {name: _save(display.plot, size, folder / name) for name, (display, size) in displays.items()}


def _forecast(measured: Measured, outlook: Outlook, series: str) -> ForecastDisplay:
    shown = ["unique_id", "ds", outlook.model]
    shown += [f"{outlook.model}-{side}-{level}" for level in SCORED_LEVELS for side in ("lo", "hi")]
    # The chosen model may be a naive one: it needs no second line below its own.
    rival = None if outlook.model in outlook.baseline.columns else outlook.baseline
    usage = measured.total.copy()
    usage.attrs = measured.total.attrs | {"value": "gpus" if series == MEAN else "gpus_peak"}
    return ForecastDisplay.from_forecast(outlook.forecast[shown], usage, baseline=rival, unique_id=series)


def _plan(measured: Measured, need: Need) -> CapacityPlanDisplay:
    frame = need.larger()
    held = measured.total[measured.total["unique_id"] == PEAK]
    return CapacityPlanDisplay(
        frame,
        history=held.tail(HORIZONS_SHOWN * len(frame)),
        first_crossing=None if pd.isna(need.first_crossing) else need.first_crossing,
        order_by=None if pd.isna(need.order_by) else need.order_by,
        caption=f"at {100 * need.plans[MEAN].service_level:.4g}% service level",
        kind=kind_of(measured.total),
    )


def _save(plot: Callable[[Any], Any], size: tuple[float, float], stem: Path) -> str:
    """Draw on a figure that no window or notebook knows of, and save it twice."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=size)
        plot(figure.subplots())
        # No date inside: the same log gives the same file.
        figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(stem.with_suffix(".png"))
    return "data:image/svg+xml;base64," + base64.b64encode(stem.with_suffix(".svg").read_bytes()).decode("ascii")
