"""Figures of predicted costs: predicted beside measured, and the error by group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice
from gpudemand.plotting._base import (
    BASELINE,
    MEASURED,
    PREDICTED,
    WIDE,
    Display,
    kind_of,
    put_kind,
    put_legend,
    put_title,
    short_name,
)
from gpudemand.units import format_gib, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMES = {"time": "time of a training step", "memory": "memory of a training step"}
_TICKS = {"time": format_seconds, "memory": format_gib}
#: Groups in an error figure; the best and the worst of more are shown.
_MOST_GROUPS = 30


class CostPredictionDisplay(Display):
    """Predicted cost over measured cost, on log scales, with intervals and a band of ten per cent.

    Parameters
    ----------
    costs : DataFrame
        A row a job: ``measured`` and ``predicted``, in seconds or GiB; ``low`` and ``high`` where there are intervals.
    target : {"time", "memory"}, default="time"
        What is predicted.
    kind : str
        Kind of data, for the corner.

    Attributes
    ----------
    points_ : PathCollection
        The jobs, after `plot`.
    intervals_ : LineCollection or None
        Their intervals.
    ax_, figure_ : Axes, Figure
        After `plot`.

    Examples
    --------
    >>> display = CostPredictionDisplay.from_predictions([0.1, 0.2], [0.11, 0.19], kind="measured")
    >>> display.costs["predicted"].tolist()
    [0.11, 0.19]
    """

    _size = (5.4, 4.8)

    def __init__(self, costs: pd.DataFrame, *, target: str = "time", kind: str) -> None:
        self.costs = costs
        self.target = target
        self.kind = kind

    @classmethod
    def from_predictions(
        cls, measured: Any, predicted: Any, interval: Any = None, *, target: str = "time", kind: str = ""
    ) -> CostPredictionDisplay:
        """Put measurements beside predictions made without them.

        Parameters
        ----------
        measured, predicted : array-like of shape (n_jobs,)
            Seconds, or GiB; positive.
        interval : array-like of shape (n_jobs, 2), optional
            What ``predict_interval`` returns.
        target : {"time", "memory"}, default="time"
            What is predicted.
        kind : str, optional
            Kind of data; by default what `measured` states in its ``attrs``.

        Raises
        ------
        InputError
            If the lengths differ, or a cost is not positive.

        Returns
        -------
        CostPredictionDisplay
        """
        check_choice("target", target, _NAMES)
        columns = {"measured": _costs("measured", measured), "predicted": _costs("predicted", predicted)}
        if interval is not None:
            columns["low"], columns["high"] = (_costs("interval", side) for side in np.asarray(interval).T)
        if len({len(column) for column in columns.values()}) != 1:
            lengths = ", ".join(f"{name} has {len(column)}" for name, column in columns.items())
            raise InputError(f"jobs must be as many in every argument: {lengths}.")
        return cls(pd.DataFrame(columns), target=target, kind=kind or kind_of(_with_attrs(measured)))

    def _draw(self, ax: Axes) -> None:
        x, y = self.costs["measured"].to_numpy(), self.costs["predicted"].to_numpy()
        ends = np.array([min(x.min(), y.min()) / 1.3, max(x.max(), y.max()) * 1.3])
        (line,) = ax.plot(ends, ends, color=MEASURED, linewidth=1)
        band = ax.fill_between(ends, ends / 1.1, ends * 1.1, color=BASELINE, alpha=0.25)
        entries: list[tuple[Any, str]] = [(line, "measured"), (band, "within 10 %")]
        self.intervals_ = None
        if "low" in self.costs:
            self.intervals_ = ax.vlines(x, self.costs["low"], self.costs["high"], color=PREDICTED, alpha=WIDE)
            entries.append((self.intervals_, "interval"))
        self.points_ = ax.scatter(x, y, s=9, color=PREDICTED, alpha=0.7, linewidths=0, zorder=3)
        entries.insert(0, (self.points_, "a job"))
        ax.set(xscale="log", yscale="log", xlim=tuple(ends), ylim=tuple(ends))
        for axis in (ax.xaxis, ax.yaxis):
            _cost_axis(axis, self.target, *ends)
        ax.set_xlabel("measured", loc="left")
        ax.set_ylabel("predicted", loc="top")
        ax.set_aspect("equal")
        ax.grid(visible=True, axis="both")
        put_title(ax, _NAMES[self.target])
        put_kind(ax, self.kind)
        put_legend(ax, entries)


class CostErrorDisplay(Display):
    """Relative error of predictions by group: the median, and the range from the 10th to the 90th percentile.

    Parameters
    ----------
    errors : DataFrame
        A row a group, in the order drawn: ``low``, ``median``, ``high``, ``n``; signed, 0.1 is ten per cent too much.
    title : str
        What is predicted, for whom.
    kind : str
        Kind of data, for the corner.

    Attributes
    ----------
    points_ : PathCollection
        The medians, after `plot`.
    ranges_ : LineCollection
        The ranges.
    ax_, figure_ : Axes, Figure
        After `plot`.

    Examples
    --------
    >>> display = CostErrorDisplay.from_predictions([1, 1, 2], [1.1, 1.1, 2.0], ["vgg", "vgg", "gru"], kind="measured")
    >>> display.errors["median"].round(2).to_dict()
    {'gru': 0.0, 'vgg': 0.1}
    """

    def __init__(self, errors: pd.DataFrame, *, title: str, kind: str) -> None:
        self.errors = errors
        self.title = title
        self.kind = kind

    @property
    def _size(self) -> tuple[float, float]:  # type: ignore[override]
        return (7.0, 1.4 + 0.17 * len(self.errors))

    @classmethod
    def from_predictions(
        cls, measured: Any, predicted: Any, groups: Any, *, title: str = "error of predicted costs", kind: str = ""
    ) -> CostErrorDisplay:
        """Group the relative errors.

        Parameters
        ----------
        measured, predicted : array-like of shape (n_jobs,)
            Seconds, or GiB; positive.
        groups : array-like of shape (n_jobs,)
            Network, family or device of each job.
        title : str, optional
            What is predicted, for whom.
        kind : str, optional
            Kind of data; by default what `measured` states in its ``attrs``.

        Raises
        ------
        InputError
            If the lengths differ, or a cost is not positive.

        Returns
        -------
        CostErrorDisplay
            Groups in the order of their median absolute error; of more than 30, the best and the worst.
        """
        truth, costs, names = _costs("measured", measured), _costs("predicted", predicted), np.asarray(groups)
        if not len(truth) == len(costs) == len(names):
            raise InputError(
                f"jobs must be as many in every argument, not {len(truth)}, {len(costs)} and {len(names)}."
            )
        error = pd.DataFrame({"group": names, "error": costs / truth - 1})
        grouped = error.groupby("group", sort=True)["error"]
        table = grouped.quantile([0.1, 0.5, 0.9]).unstack().set_axis(["low", "median", "high"], axis=1)
        table["n"] = grouped.size()
        order = error["error"].abs().groupby(error["group"]).median().sort_values(kind="stable").index
        return cls(_ends(table.loc[order]), title=title, kind=kind or kind_of(_with_attrs(measured)))

    def _draw(self, ax: Axes) -> None:
        from matplotlib.ticker import PercentFormatter

        places = np.arange(len(self.errors))
        ax.axvspan(-0.1, 0.1, color=BASELINE, alpha=0.25, linewidth=0)
        ax.axvline(0, color=MEASURED, linewidth=1)
        self.ranges_ = ax.hlines(places, self.errors["low"], self.errors["high"], color=PREDICTED, alpha=0.45)
        self.points_ = ax.scatter(self.errors["median"], places, s=22, color=PREDICTED, zorder=3)
        names = [f"{short_name(name, 24)} ({n})" for name, n in self.errors["n"].items()]
        ax.set_yticks(places, names)
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")
        ax.grid(visible=True, axis="x")
        ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        ax.set_xlabel("predicted less measured; the line holds 80 % of the jobs, the band is ten per cent", loc="left")
        put_title(ax, self.title)
        put_kind(ax, self.kind)


def _costs(name: str, values: Any) -> FloatArray:
    costs = np.asarray(values, dtype=float).ravel()
    if not (np.isfinite(costs) & (costs > 0)).all():
        raise InputError(f"{name} holds a cost that is not positive; drop the jobs without one first.")
    return costs


def _with_attrs(values: Any) -> Any:
    return values if hasattr(values, "attrs") else None


def _ends(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the first and the last of many groups."""
    half = _MOST_GROUPS // 2
    return table if len(table) <= _MOST_GROUPS else pd.concat([table.iloc[:half], table.iloc[-half:]])


def _cost_axis(axis: Any, target: str, low: float, high: float) -> None:
    """Write a log axis in plain words: ms, s, min, or MiB and GiB."""
    from matplotlib.ticker import LogLocator, NullLocator

    decades = np.log10(high / low)
    # Memory is counted in powers of two: 256 MiB and 1 GiB, not 102 MiB.
    base, subs = (4.0, (1.0,)) if target == "memory" else (10.0, (1.0,) if decades > 2 else (1.0, 2.0, 5.0))
    axis.set_major_locator(LogLocator(base, subs=subs))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: _TICKS[target](value))
