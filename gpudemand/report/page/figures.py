"""Figures of the report: drawn off screen, saved as SVG and PNG."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from gpudemand.plotting import (
    CapacityPlanDisplay,
    ExceedanceDisplay,
    ForecastDisplay,
    RhythmDisplay,
    RollUpDisplay,
    SegmentProfileDisplay,
    UsageDisplay,
    style,
)
from gpudemand.plotting._base import kind_of
from gpudemand.plotting.forecast import HORIZONS_SHOWN
from gpudemand.report.analysis.parts import Parts
from gpudemand.report.analysis.requirement import Need
from gpudemand.report.analysis.risk import scored_rows
from gpudemand.report.analysis.selection import SCORED_LEVELS, Outlook
from gpudemand.report.analysis.usage import MEAN, PEAK, Measured
from gpudemand.report.analysis.user_segments import Crowd

#: Displays with the size of their figures in inches.
_Displays = dict[str, tuple[Any, tuple[float, float]]]


def draw_all(
    measured: Measured, outlook: Outlook, need: Need, crowd: Crowd | None, parts: Parts | None, folder: Path
) -> dict[str, str]:
    """Draw and save every figure of the report.

    Parameters
    ----------
    measured : Measured
    outlook : Outlook
    need : Need
    crowd : Crowd or None
    parts : Parts or None
        What could not be made has no figure.
    folder : Path
        Where the ``.svg`` and ``.png`` files go; made if absent.

    Returns
    -------
    dict of str to str
        Name of the figure -> its SVG as a ``data:`` address, which a page can show without loading anything.
    """
    folder.mkdir(parents=True, exist_ok=True)
    displays: _Displays = {
        "usage": (UsageDisplay.from_usage(measured.groups), (10, 4.2)),
        "week": (RhythmDisplay.from_usage(measured.hourly), (10, 3.0)),
        "forecast": (_forecast(measured, outlook, MEAN), (10, 3.9)),
        "forecast_peak": (_forecast(measured, outlook, PEAK), (10, 3.9)),
        "plan": (_plan(measured, need), (10, 4.6)),
        "exceedance": (ExceedanceDisplay.from_plan(need.plans[need.deciding]), (10, 3.6)),
        **_segments(crowd),
        **_parts(parts),
        "rehearsal": (_rehearsal(measured, outlook, need.deciding), (10, 3.9)),
    }
    return {name: _save(display.plot, size, folder / name) for name, (display, size) in displays.items()}


def _forecast(measured: Measured, outlook: Outlook, series: str) -> ForecastDisplay:
    shown = ["unique_id", "ds", outlook.model]
    shown += [f"{outlook.model}-{side}-{level}" for level in SCORED_LEVELS for side in ("lo", "hi")]
    # The chosen model may be a naive one: it needs no second line below its own.
    rival = None if outlook.model in outlook.baseline.columns else outlook.baseline
    usage = _usage_of(measured, series)
    return ForecastDisplay.from_forecast(outlook.forecast[shown], usage, baseline=rival, unique_id=series)


def _usage_of(measured: Measured, series: str) -> pd.DataFrame:
    usage = measured.total.copy()
    usage.attrs = measured.total.attrs | {"value": "gpus" if series == MEAN else "gpus_peak"}
    return usage


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


def _segments(crowd: Crowd | None) -> _Displays:
    if crowd is None:
        return {}
    names = crowd.profiles["segment"].tolist()
    display = SegmentProfileDisplay.from_labels(crowd.wide, crowd.labels.to_numpy(), names=names)
    return {"segments": (display, (10, 2.4 + 1.4 * len(names) ** 0.5))}


def _parts(parts: Parts | None) -> _Displays:
    if parts is None:
        return {}
    shown = parts.forecast[["unique_id", "ds", parts.model]]
    shown.attrs = dict(parts.usage.attrs)
    return {"parts": (RollUpDisplay.from_forecast(shown, parts.usage), (10, 4.2))}


def _rehearsal(measured: Measured, outlook: Outlook, series: str) -> ForecastDisplay:
    """Draw the forecast of the newest window, made without it, beside what came."""
    rows = scored_rows(outlook, series, [outlook.model])
    newest = rows[rows["cutoff"] == rows["cutoff"].max()].drop(columns="cutoff")
    usage = _usage_of(measured, series)
    return ForecastDisplay.from_forecast(newest.drop(columns="y"), usage, truth=newest, unique_id=series)


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
