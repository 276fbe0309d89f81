"""Displays of capacity plans and risk."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand._validation import check_columns
from gpudemand.metrics import model_names
from gpudemand.plotting import base
from gpudemand.plotting.forecast import choose_series, history_before
from gpudemand.units import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_COLUMNS = ("ds", "required_p50", "required_p90", "required_p95", "required_p99", "required", "installed")


@dataclass(eq=False, repr=False)
class CapacityPlanDisplay(base.Display):
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
    >>> display = CapacityPlanDisplay(frame, first_crossing=ds[1], kind="synthetic").plot()
    >>> display.short.tolist(), display.required_line_.get_ydata().tolist()
    ([False, True, True], [6.0, 9.0, 12.0])
    """

    _size = (9.0, 4.4)

    frame: pd.DataFrame
    _: KW_ONLY
    history: pd.DataFrame | None = None
    first_crossing: pd.Timestamp | None = None
    order_by: pd.Timestamp | None = None
    caption: str = ""

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
        """
        table = plan.to_frame()
        name = choose_series(check_columns(table, ("unique_id", *_COLUMNS), "the plan"), unique_id)
        frame = table[table["unique_id"] == name].sort_values("ds", ignore_index=True)
        summary = plan.summary.loc[name]
        return cls(
            frame,
            history=None if usage is None else history_before(usage, name, frame),
            first_crossing=summary["first_crossing"] if pd.notna(summary["first_crossing"]) else None,
            order_by=summary["order_by"] if pd.notna(summary["order_by"]) else None,
            caption=f"at {plan.service_level:.0%} service level, target utilization {plan.target_utilization:.0%}",
            kind=base.kind_of(usage, plan),
        )

    def _draw(self, ax: Axes) -> None:
        ds, times = self.frame["ds"], base.to_utc(self.frame["ds"])
        required, installed = (self.frame[name].to_numpy(dtype=float) for name in ("required", "installed"))
        quantiles = {p: self.frame[f"required_p{p}"].to_numpy(dtype=float) for p in (50, 90, 99)}
        self.bands_ = [
            ax.fill_between(times, quantiles[low], quantiles[high], color=base.PREDICTED, alpha=alpha, linewidth=0)
            for low, high, alpha in ((90, 99, base.WIDE), (50, 90, base.NARROW))
        ]
        self.line_ = base.put_line(ax, ds, quantiles[50], base.PREDICTED, linewidth=1.0)
        self.required_line_ = base.put_line(ax, ds, required, base.PREDICTED, linewidth=2.2)
        self.history_line_, known = None, (times, installed)
        if (past := self.history) is not None:
            self.history_line_ = base.put_line(ax, past["ds"], past["y"], base.MEASURED, linewidth=1.2)
            # Past capacity is not known; the line is extended over the history for comparison.
            first = base.to_utc(past["ds"].iloc[:1])
            known = np.append(first, times), np.append(installed[: len(first)], installed)
        self.installed_line_ = ax.step(*known, where="post", color=base.INSTALLED, linewidth=1.8)[0]
        self.shortfall_ = None
        if (short := self.short.to_numpy()).any():
            look: dict[str, Any] = {"facecolor": "none", "edgecolor": base.INSTALLED, "hatch": "////"}
            self.shortfall_ = ax.fill_between(times, installed, required, where=short, interpolate=True, **look)
        ax.set_ylim(bottom=0, top=1.18 * ax.get_ylim()[1])
        base.time_axes(ax, ds, "GPUs", margin=0.01)
        self._annotate(f"GPUs required {self.caption}".rstrip(), self._entries())
        self.notes_ = []
        if self.first_crossing is not None:
            dates = {"first crossing": self.first_crossing, "order by": self.order_by}
            known_dates = [(what, time) for what, time in dates.items() if time is not None]
            self.notes_ = [_mark(ax, time, what, 0.98 - 0.07 * place) for place, (what, time) in enumerate(known_dates)]

    def _entries(self) -> list[tuple[Any, str]]:
        wanted = self.history is not None and self.history.attrs.get("value") == "wanted"
        return [
            (self.history_line_, f"GPUs {'wanted' if wanted else 'held'} so far"),
            (self.line_, "required, P50"),
            (self.bands_[1], "P50 to P90"),
            (self.bands_[0], "P90 to P99"),
            (self.required_line_, "required at the service level"),
            (self.installed_line_, "installed"),
            (self.shortfall_, "shortfall"),
        ]


@dataclass(eq=False, repr=False)
class OutlookDisplay(base.Display):
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

    def _draw(self, ax: Axes) -> None:
        model, ds = str(model_names(self.forecast)[0]), self.forecast["ds"]
        self.bands_ = base.put_bands(ax, self.forecast, model)
        past, wanted = self.history, self.history.get("wanted")
        self.wanted_line_ = (
            None if wanted is None else base.put_line(ax, past["ds"], wanted, base.BASELINE, linewidth=1.0)
        )
        self.held_line_ = base.put_line(ax, past["ds"], past["held"], base.MEASURED, linewidth=1.2)
        self.line_ = base.put_line(ax, ds, self.forecast[model], base.PREDICTED, linewidth=1.2)
        # GPUs installed before the forecast are not known; the line begins where they are.
        look: dict[str, Any] = {"drawstyle": "steps-post", "linewidth": 2.2}
        times = self.plan["ds"]
        self.required_line_ = base.put_line(ax, times, self.plan["required"], base.PREDICTED, **look)
        self.installed_line_ = base.put_line(ax, times, self.plan["installed"], base.INSTALLED, **look)
        ax.axvline(base.to_utc(ds)[0], color=base.CUTOFF, linewidth=0.8)
        ax.set_ylim(bottom=0)
        base.time_axes(ax, ds, "GPUs", margin=0.01)
        entries = [
            (self.held_line_, "held"),
            (self.wanted_line_, "wanted"),
            (self.line_, "forecast, median"),
            *[(band, f"{level:g}% interval") for level, band in self.bands_.items()],
            (self.required_line_, "required"),
            (self.installed_line_, "installed"),
        ]
        known = "held" if wanted is None else "held, wanted"
        self._annotate(f"GPUs {known}, required and installed", entries)


def _mark(ax: Axes, time: pd.Timestamp, what: str, height: float) -> Any:
    """Mark a date with a thin line and a note; a date before the figure has an arrow at its edge instead."""
    stamp = base.to_utc(pd.DatetimeIndex([time]))[0]
    left, right = ax.get_xlim()
    place = (float(ax.convert_xunits(stamp)) - left) / (right - left)
    text = f"{what} {time.day} {time:%b %Y}"
    if place < 0:
        place, text = 0.0, f"← {text}"
    else:
        ax.axvline(stamp, color=base.INSTALLED, linewidth=0.8, linestyle=(0, (2, 2)))
    side, shift = ("right", -5) if place > 0.5 else ("left", 5)
    note = ax.annotate(text, (place, height), (shift, 0), "axes fraction", "offset points", ha=side, va="top")
    note.set(color=base.INSTALLED, fontsize=8.5)
    return note


@dataclass(eq=False, repr=False)
class ExceedanceDisplay(base.Display):
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

    Examples
    --------
    >>> display = ExceedanceDisplay([0, 4, 8], [1.0, 0.3, 0.0], 5.0, kind="synthetic").plot()
    >>> display.line_.get_ydata().tolist()
    [1.0, 0.3, 0.0]
    """

    _size = (6.0, 3.6)

    gpus: Any
    share_over: Any
    installed: float

    @classmethod
    def from_plan(cls, plan: Any, *, unique_id: str | None = None) -> ExceedanceDisplay:
        """Show one series of a capacity plan.

        Parameters
        ----------
        plan : CapacityPlan
        unique_id : str, optional
            Needed when the plan has several series.
        """
        curve = plan.exceedance()
        name = choose_series(curve, unique_id)
        rows = curve[curve["unique_id"] == name]
        installed = float(plan.summary.loc[name, "installed"])
        return cls(rows["gpus"].to_numpy(), rows["share_over"].to_numpy(), installed, kind=base.kind_of(plan))

    def _draw(self, ax: Axes) -> None:
        self.line_ = ax.plot(self.gpus, self.share_over, color=base.PREDICTED)[0]
        self.installed_line_ = ax.axvline(self.installed, color=base.INSTALLED, linewidth=1.8)
        ax.yaxis.set_major_formatter("{x:.0%}")
        ax.xaxis.set_major_formatter("{x:,.6g}")
        ax.set_ylim(0, 1)
        ax.set_xlim(0, float(self.gpus[-1]))
        ax.set_xlabel("GPUs", loc="left")
        ax.set_ylabel("share of time with more demand")
        entries = [(self.line_, "expected share"), (self.installed_line_, "installed")]
        self._annotate("Exceedance curve of demand", entries)


@dataclass(eq=False, repr=False)
class PurchaseLeadDisplay(base.Display):
    """Tornado chart of what decides between the two cheapest purchases.

    Parameters
    ----------
    frame : DataFrame
        ``input``, ``low``, ``high``, ``lead``, ``lead-low``, ``lead-high``; see `PurchaseComparison.lead`.
    kind : str
        Kind of data, shown in the corner.

    Attributes
    ----------
    bars_ : BarContainer
        A bar an input, the one that moves the lead most at the top, after `plot`.

    Examples
    --------
    >>> rows = [("work", 0.8, 1.3, 100.0, 40.0, 210.0), ("price of new", 9.0, 11.0, 100.0, -20.0, 220.0)]
    >>> frame = pd.DataFrame(rows, columns=["input", "low", "high", "lead", "lead-low", "lead-high"])
    >>> frame.attrs = {"cheapest": "old", "next": "new"}
    >>> len(PurchaseLeadDisplay(frame, kind="synthetic").plot().bars_)
    2
    """

    _size = (8.0, 3.2)

    frame: pd.DataFrame

    def _draw(self, ax: Axes) -> None:
        rows = self.frame[::-1]
        # An end at which one of the options misses the target has no lead.
        ends = [rows[name].fillna(rows["lead"]) for name in ("lead-low", "lead-high")]
        left, right = np.sort(np.array(ends, dtype=float), axis=0)
        self.bars_ = ax.barh(np.arange(len(rows)), right - left, left=left, color=base.PREDICTED, height=0.6)
        labels = [
            f"{name} ({format_count(low, 0 if low >= 100 else 2)} to {format_count(high, 0 if high >= 100 else 2)})"
            for name, low, high in rows[["input", "low", "high"]].to_numpy()
        ]
        ax.set_yticks(np.arange(len(rows)), labels)
        ax.axvline(float(rows["lead"].iloc[0]), color=base.CUTOFF, linewidth=0.8)
        self.even_line_ = ax.axvline(0.0, color=base.INSTALLED, linewidth=1.8)
        ax.xaxis.set_major_formatter("{x:,.0f}")
        first, second = self.frame.attrs["cheapest"], self.frame.attrs["next"]
        ax.set_xlabel(f"cost a year of {second} beyond that of {first}", loc="left")
        # Two lines, as the names of the inputs leave little width.
        title = f"What decides between\n{base.short_name(first, 24)} and {base.short_name(second, 24)}"
        self._annotate(title, [(self.even_line_, f"left of it, {second} wins")])
