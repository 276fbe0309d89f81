"""Figures of what has been used: over time by group, and over the hours of the mean week."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand._validation import InputError, check_number, check_usage
from gpudemand.plotting._base import (
    GROUPS,
    MEASURED,
    OTHER,
    Display,
    count_axis,
    date_axis,
    instants,
    kind_of,
    put_kind,
    put_legend,
    put_title,
    short_name,
    value_label,
)
from gpudemand.usage.series import to_wide

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import FillBetweenPolyCollection, QuadMesh

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class UsageDisplay(Display):
    """Usage over time, stacked by group, the largest group at the bottom.

    Build it with `from_usage`.

    Parameters
    ----------
    wide : DataFrame, shape (n_timestamps, n_groups)
        Index: starts of the bins; one column a group, in the order of the stack; at most eight.
    kind : str
        Kind of data, for the corner.
    label : str, default="GPUs"
        What is stacked, with its unit.
    has_rest : bool, default=False
        Whether the last column sums the groups that have no colour of their own.

    Attributes
    ----------
    areas_ : list of PolyCollection
        One area a group, after `plot`.
    ax_, figure_ : Axes, Figure
        After `plot`.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-01", periods=3, tz="UTC")
    >>> usage = pd.DataFrame({"unique_id": ["a"] * 3 + ["b"] * 3, "ds": [*ds, *ds], "y": [1.0, 2, 3, 4, 5, 6]})
    >>> UsageDisplay.from_usage(usage).wide.columns.tolist()
    ['b', 'a']
    """

    def __init__(self, wide: pd.DataFrame, *, kind: str, label: str = "GPUs", has_rest: bool = False) -> None:
        self.wide = wide
        self.kind = kind
        self.label = label
        self.has_rest = has_rest

    @classmethod
    def from_usage(cls, usage: pd.DataFrame, *, max_groups: int = 7) -> UsageDisplay:
        """Keep the largest groups and sum the rest.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id`` (the group), ``ds``, ``y``, as `usage_series` returns it; ``attrs`` name kind and value.
        max_groups : int, default=7
            Groups with a colour of their own, from 1 to 7; the others become one grey area.

        Raises
        ------
        InputError
            If `usage` is no usage frame, or `max_groups` is not from 1 to 7.

        Returns
        -------
        UsageDisplay
        """
        check_number("max_groups", max_groups, 1, len(GROUPS), integer=True)
        frame = check_usage(usage)
        wide = to_wide(frame).T.fillna(0.0)
        order = wide.sum().sort_values(ascending=False, kind="stable").index
        shown = _with_rest(wide[order], max_groups)
        return cls(shown, kind=kind_of(usage), label=value_label(usage), has_rest=len(order) > max_groups)

    def _draw(self, ax: Axes) -> None:
        self.areas_ = self._stack(ax)
        self._label(ax)

    def _stack(self, ax: Axes) -> list[FillBetweenPolyCollection]:
        times, heights = _held_until_next(self.wide)
        tops = np.cumsum(heights, axis=1)
        return [
            ax.fill_between(times, tops[:, i] - heights[:, i], tops[:, i], step="post", color=color, linewidth=0)
            for i, color in enumerate(self._colors())
        ]

    def _colors(self) -> list[str]:
        n_groups = self.wide.shape[1]
        if n_groups == 1:
            return [MEASURED]
        return [*GROUPS[: n_groups - self.has_rest], *[OTHER] * self.has_rest]

    def _label(self, ax: Axes) -> None:
        count_axis(ax, self.label)
        ax.set_ylim(bottom=0)
        ax.margins(x=0)
        date_axis(ax, self.wide.index)
        put_title(ax, "Usage over time")
        put_kind(ax, self.kind)
        names = [short_name(name) for name in self.wide.columns]
        if len(names) > 1:
            put_legend(ax, list(zip(self.areas_, names, strict=True)))


def _with_rest(wide: pd.DataFrame, max_groups: int) -> pd.DataFrame:
    rest = wide.iloc[:, max_groups:]
    kept = wide.iloc[:, :max_groups].copy()
    if rest.shape[1]:
        kept[f"{rest.shape[1]:,} other{'s' * (rest.shape[1] > 1)}"] = rest.sum(axis=1)
    return kept


def _held_until_next(wide: pd.DataFrame) -> tuple[Any, Any]:
    """Return times and values of steps: a value holds until the next bin, the last one as long as the one before."""
    times = instants(wide.index)
    width = times[-1] - times[-2] if times.size > 1 else np.timedelta64(1, "D")
    values = wide.to_numpy(dtype=float)
    return np.append(times, times[-1] + width), np.vstack([values, values[-1:]])


class RhythmDisplay(Display):
    """Mean week: GPUs held by weekday and hour, as a heat map.

    Build it with `from_usage`.

    Parameters
    ----------
    week : DataFrame, shape (7, 24)
        Mean value by weekday (0 is Monday) and hour of the day; NaN where nothing was recorded.
    kind : str
        Kind of data, for the corner.
    label : str, default="GPUs"
        What the colour means, with its unit.
    zone : str, default="UTC"
        Time zone of the hours.

    Attributes
    ----------
    mesh_ : QuadMesh
        The heat map, after `plot`.
    ax_, figure_ : Axes, Figure
        After `plot`.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-02", periods=336, freq="h", tz="UTC")
    >>> usage = pd.DataFrame({"unique_id": "all", "ds": ds, "y": ds.hour * 1.0})
    >>> float(RhythmDisplay.from_usage(usage).week.loc[0, 9])
    9.0
    """

    _size = (9.0, 2.9)

    def __init__(self, week: pd.DataFrame, *, kind: str, label: str = "GPUs", zone: str = "UTC") -> None:
        self.week = week
        self.kind = kind
        self.label = label
        self.zone = zone

    @classmethod
    def from_usage(cls, usage: pd.DataFrame) -> RhythmDisplay:
        """Average the total of `usage` by weekday and hour.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds`` (hourly or finer, in the zone of the calendar) and ``y``.

        Raises
        ------
        InputError
            If `usage` is no usage frame, or its bins are longer than an hour.

        Returns
        -------
        RhythmDisplay
        """
        total = check_usage(usage).groupby("ds", as_index=False)["y"].sum()
        if len(total) > 1 and total["ds"].diff().min() > pd.Timedelta("1h"):
            raise InputError("a mean week needs bins of one hour or less; make the usage with freq='h'.")
        total = total.assign(weekday=total["ds"].dt.day_of_week, hour=total["ds"].dt.hour)
        week = total.pivot_table(index="weekday", columns="hour", values="y", aggfunc="mean")
        week = week.reindex(index=range(7), columns=range(24))
        return cls(week, kind=kind_of(usage), label=value_label(usage), zone=str(total["ds"].dt.tz or "local"))

    def _draw(self, ax: Axes) -> None:
        self.mesh_ = self._heat(ax)
        bar = self.figure_.colorbar(self.mesh_, ax=ax, pad=0.015, aspect=18, format="{x:,.6g}")
        bar.outline.set_visible(False)
        bar.set_label(self.label)
        put_title(ax, "The mean week")
        put_kind(ax, self.kind)

    def _heat(self, ax: Axes) -> QuadMesh:
        from matplotlib.colors import LinearSegmentedColormap

        values = self.week.to_numpy(dtype=float)
        top = np.nanmax(values) if np.isfinite(values).any() else 1.0
        shades = LinearSegmentedColormap.from_list("measured", ["#f6f6f7", "#8e8e94", "#2c2c31"])
        mesh = ax.pcolormesh(values, cmap=shades, vmin=0, vmax=top or 1.0)
        mesh.set(edgecolor="white", linewidth=1)
        ax.invert_yaxis()
        ax.set_yticks(np.arange(7) + 0.5, WEEKDAYS)
        ax.set_xticks(np.arange(0, 25, 3))
        ax.set_xlabel(f"hour of the day ({self.zone})", loc="left")
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        return mesh
