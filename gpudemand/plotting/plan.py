"""Displays of capacity plans and risk."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand._validation import check_columns
from gpudemand.metrics import model_names
from gpudemand.plotting.base import (
    BASELINE,
    CUTOFF,
    INSTALLED,
    MEASURED,
    NARROW,
    PREDICTED,
    WIDE,
    Display,
    annotate,
    kind_of,
    time_axes,
    to_utc,
)
from gpudemand.plotting.forecast import choose_series, draw_bands, history_before

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_COLUMNS = ("ds", "required_p50", "required_p90", "required_p95", "required_p99", "required", "installed")


@dataclass(eq=False, repr=False)
class CapacityPlanDisplay(Display):
    """GPUs required at several quantiles against GPUs installed, with shortfall and order date.

    Parameters
    ----------
    frame : DataFrame
        ``ds``, ``required_p50``, ``required_p90``, ``required_p95``, ``required_p99``, ``required``, ``installed``.
    history : DataFrame, optional
        ``ds``, ``y``: GPUs held before the plan begins.
    first_crossing, order_by : Timestamp or None
        First time at which `required` exceeds `installed`, and that time less the lead time.
    caption : str
        Assumptions of the plan, for the title.
    kind : str
        Kind of data, shown in the corner.

    Attributes
    ----------
    line_, required_line_, installed_line_, history_line_ : Line2D or None
        Median requirement, requirement at the service level, installed GPUs and GPUs held, after `plot`.
    bands_ : list of PolyCollection
        P50 to P90 and P90 to P99.
    shortfall_ : PolyCollection or None
        Hatched area where more is required than installed.
    notes_ : list of Annotation or Text
        First crossing and order-by date.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-01", periods=3, tz="UTC")
    >>> frame = pd.DataFrame({"ds": ds, "required": [6.0, 9, 12], "installed": 8.0})
    >>> frame = frame.assign(required_p50=5.0, required_p90=7.0, required_p95=8.0, required_p99=9.0)
    >>> CapacityPlanDisplay(frame, first_crossing=ds[1], kind="synthetic").short.tolist()
    [False, True, True]
    """

    _size = (9.0, 4.4)

    frame: pd.DataFrame
    _: KW_ONLY
    history: pd.DataFrame | None = None
    first_crossing: pd.Timestamp | None = None
    order_by: pd.Timestamp | None = None
    caption: str = ""
    kind: str

    @property
    def short(self) -> pd.Series:
        """Whether more is required than installed, for each bin."""
        return self.frame["required"] > self.frame["installed"]

    @classmethod
    def from_plan(
        cls, plan: Any, usage: pd.DataFrame | None = None, *, unique_id: str | None = None
    ) -> CapacityPlanDisplay:
        """Show one series of a capacity plan.

        Parameters
        ----------
        plan : CapacityPlan
            As `plan_capacity` returns it.
        usage : DataFrame, optional
            ``unique_id``, ``ds``, ``y``: GPUs held; its last three horizons are drawn.
        unique_id : str, optional
            Which series to draw; needed when the plan has several.

        Raises
        ------
        InputError
            If the series is not in the plan, or there are several and none is named.

        Returns
        -------
        CapacityPlanDisplay
        """
        table = plan.to_frame()
        name = choose_series(check_columns(table, ("unique_id", *_COLUMNS), "the plan"), unique_id)
        frame = table[table["unique_id"] == name].sort_values("ds", ignore_index=True)
        summary = plan.summary.loc[name]
        return cls(
            frame,
            history=None if usage is None else history_before(usage, name, frame),
            first_crossing=_known(summary["first_crossing"]),
            order_by=_known(summary["order_by"]),
            caption=f"at {plan.service_level:.0%} service level, target utilization {plan.target_utilization:.0%}",
            kind=kind_of(usage, plan),
        )

    def _draw(self, ax: Axes) -> None:
        times = to_utc(self.frame["ds"])
        values = {name: self.frame[name].to_numpy(dtype=float) for name in _COLUMNS[1:]}
        self.bands_ = [
            ax.fill_between(times, values[low], values[high], color=PREDICTED, alpha=alpha, linewidth=0)
            for low, high, alpha in (("required_p90", "required_p99", WIDE), ("required_p50", "required_p90", NARROW))
        ]
        self.line_ = ax.plot(times, values["required_p50"], color=PREDICTED, linewidth=1.0)[0]
        self.required_line_ = ax.plot(times, values["required"], color=PREDICTED, linewidth=2.2)[0]
        self.history_line_ = None
        if self.history is not None:
            held = self.history["y"].to_numpy(dtype=float)
            self.history_line_ = ax.plot(to_utc(self.history["ds"]), held, color=MEASURED, linewidth=1.2)[0]
        self.installed_line_ = self._draw_installed(ax, times, values["installed"])
        self.shortfall_ = self._draw_shortfall(ax, times, values["required"], values["installed"])
        ax.set_ylim(bottom=0, top=1.18 * ax.get_ylim()[1])
        time_axes(ax, self.frame["ds"], "GPUs", margin=0.01)
        annotate(ax, f"GPUs required {self.caption}".rstrip(), self.kind, self._entries())
        self.notes_ = self._notes(ax)

    def _draw_installed(self, ax: Axes, times: Any, installed: Any) -> Any:
        if self.history is not None and len(self.history):
            # Past capacity is not known; the line is extended over the history for comparison.
            times = np.append(to_utc(self.history["ds"].iloc[:1]), times)
            installed = np.append(installed[0], installed)
        return ax.step(times, installed, where="post", color=INSTALLED, linewidth=1.8)[0]

    def _draw_shortfall(self, ax: Axes, times: Any, required: Any, installed: Any) -> Any:
        if not self.short.any():
            return None
        look: dict[str, Any] = {"facecolor": "none", "edgecolor": INSTALLED, "hatch": "////"}
        return ax.fill_between(times, installed, required, where=required > installed, interpolate=True, **look)

    @property
    def _counted(self) -> str:
        return "wanted" if self.history is not None and self.history.attrs.get("value") == "wanted" else "held"

    def _entries(self) -> list[tuple[Any, str]]:
        return [
            (self.history_line_, f"GPUs {self._counted} so far"),
            (self.line_, "required, P50"),
            (self.bands_[1], "P50 to P90"),
            (self.bands_[0], "P90 to P99"),
            (self.required_line_, "required at the service level"),
            (self.installed_line_, "installed"),
            (self.shortfall_, "shortfall"),
        ]

    def _notes(self, ax: Axes) -> list[Any]:
        if self.first_crossing is None:
            return []
        notes = [_mark(ax, self.first_crossing, "first crossing", 0.98)]
        if self.order_by is not None:
            notes.append(_mark(ax, self.order_by, "order by", 0.91))
        return notes


@dataclass(eq=False, repr=False)
class OutlookDisplay(Display):
    """GPUs held, wanted, forecast, required and installed, on one axis.

    Parameters
    ----------
    history : DataFrame
        ``ds``, ``held`` and, where it is known, ``wanted``: mean GPUs of the bins before the forecast.
    forecast : DataFrame
        ``ds``, the model's column and its ``-lo-`` and ``-hi-`` columns: mean GPUs.
    plan : DataFrame
        ``ds``, ``required``, ``installed``.
    kind : str
        Kind of data, shown in the corner.

    Attributes
    ----------
    held_line_, wanted_line_, line_, required_line_, installed_line_ : Line2D or None
        After `plot`; `line_` is the median forecast.
    bands_ : dict of float to PolyCollection
        Band by level in percent, the widest first.

    Examples
    --------
    >>> ds = pd.date_range("2026-03-01", periods=6, tz="UTC")
    >>> history = pd.DataFrame({"ds": ds[:4], "held": 4.0, "wanted": 5.0})
    >>> forecast = pd.DataFrame({"ds": ds[4:], "Naive": 5.0, "Naive-lo-80": 4.0, "Naive-hi-80": 6.0})
    >>> plan = pd.DataFrame({"ds": ds[4:], "required": 8.0, "installed": [4.0, 8.0]})
    >>> list(OutlookDisplay(history, forecast, plan, kind="synthetic").plot().bands_)
    [80.0]
    """

    _size = (9.0, 4.4)

    history: pd.DataFrame
    forecast: pd.DataFrame
    plan: pd.DataFrame
    _: KW_ONLY
    kind: str

    def _draw(self, ax: Axes) -> None:
        model = str(model_names(self.forecast)[0])
        ahead, past = to_utc(self.forecast["ds"]), to_utc(self.history["ds"])
        self.bands_ = draw_bands(ax, self.forecast, model)
        self.wanted_line_ = None
        if "wanted" in self.history:
            self.wanted_line_ = ax.plot(past, self.history["wanted"], color=BASELINE, linewidth=1.0)[0]
        self.held_line_ = ax.plot(past, self.history["held"], color=MEASURED, linewidth=1.2)[0]
        self.line_ = ax.plot(ahead, self.forecast[model], color=PREDICTED, linewidth=1.2)[0]
        times = to_utc(self.plan["ds"])
        self.required_line_ = ax.step(times, self.plan["required"], where="post", color=PREDICTED, linewidth=2.2)[0]
        # GPUs installed before the forecast are not known; the line begins where they are.
        self.installed_line_ = ax.step(times, self.plan["installed"], where="post", color=INSTALLED, linewidth=2.2)[0]
        ax.axvline(ahead[0], color=CUTOFF, linewidth=0.8)
        ax.set_ylim(bottom=0)
        time_axes(ax, self.forecast["ds"], "GPUs", margin=0.01)
        known = "held, wanted" if "wanted" in self.history else "held"
        annotate(ax, f"GPUs {known}, required and installed", self.kind, self._entries())

    def _entries(self) -> list[tuple[Any, str]]:
        return [
            (self.held_line_, "held"),
            (self.wanted_line_, "wanted"),
            (self.line_, "forecast, median"),
            *[(band, f"{level:g}% interval") for level, band in self.bands_.items()],
            (self.required_line_, "required"),
            (self.installed_line_, "installed"),
        ]


def _mark(ax: Axes, time: pd.Timestamp, what: str, height: float) -> Any:
    """Mark a date with a thin line and a note; a date before the figure has an arrow at its edge instead."""
    stamp = to_utc(pd.DatetimeIndex([time]))[0]
    left, right = ax.get_xlim()
    place = (float(ax.convert_xunits(stamp)) - left) / (right - left)
    text = f"{what} {time.day} {time:%b %Y}"
    if place < 0:
        return _note(ax, f"← {text}", 0.0, height)
    ax.axvline(stamp, color=INSTALLED, linewidth=0.8, linestyle=(0, (2, 2)))
    return _note(ax, text, place, height)


def _note(ax: Axes, text: str, place: float, height: float) -> Any:
    side, shift = ("right", -5) if place > 0.5 else ("left", 5)
    note = ax.annotate(text, (place, height), (shift, 0), "axes fraction", "offset points", ha=side, va="top")
    note.set(color=INSTALLED, fontsize=8.5)
    return note


def _known(time: Any) -> pd.Timestamp | None:
    return None if pd.isna(time) else pd.Timestamp(time)


@dataclass(eq=False, repr=False)
class ExceedanceDisplay(Display):
    """Exceedance curve: expected share of time in which demand exceeds a number of GPUs.

    Parameters
    ----------
    gpus, share_over : ndarray of shape (n,)
    installed : float
        GPUs installed, marked on the curve.
    kind : str
        Kind of data, shown in the corner.

    Attributes
    ----------
    line_, installed_line_ : Line2D
        After `plot`.
    """

    _size = (6.0, 3.6)

    gpus: Any
    share_over: Any
    installed: float
    _: KW_ONLY
    kind: str

    @classmethod
    def from_plan(cls, plan: Any, *, unique_id: str | None = None) -> ExceedanceDisplay:
        """Show one series of a capacity plan.

        Parameters
        ----------
        plan : CapacityPlan
        unique_id : str, optional
            Needed when the plan has several series.

        Returns
        -------
        ExceedanceDisplay
        """
        curve = plan.exceedance()
        name = choose_series(curve, unique_id)
        rows = curve[curve["unique_id"] == name]
        installed = float(plan.summary.loc[name, "installed"])
        return cls(rows["gpus"].to_numpy(), rows["share_over"].to_numpy(), installed, kind=kind_of(plan))

    def _draw(self, ax: Axes) -> None:
        self.line_ = ax.plot(self.gpus, self.share_over, color=PREDICTED)[0]
        self.installed_line_ = ax.axvline(self.installed, color=INSTALLED, linewidth=1.8)
        ax.yaxis.set_major_formatter("{x:.0%}")
        ax.xaxis.set_major_formatter("{x:,.6g}")
        ax.set_ylim(0, 1)
        ax.set_xlim(0, float(self.gpus[-1]))
        ax.set_xlabel("GPUs", loc="left")
        ax.set_ylabel("share of time with more demand")
        entries = [(self.line_, "expected share"), (self.installed_line_, "installed")]
        annotate(ax, "Exceedance curve of demand", self.kind, entries)
