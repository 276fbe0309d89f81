"""Displays of usage and waits."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from gpudemand._validation import InputError, check_columns, check_number, check_usage
from gpudemand.plotting import base
from gpudemand.usage.series import to_wide
from gpudemand.usage.waits import wait_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(eq=False, repr=False)
class UsageDisplay(base.Display):
    """Usage over time, stacked by group, the largest group at the bottom.

    Parameters
    ----------
    wide : DataFrame, shape (n_timestamps, n_groups)
        Index: starts of the bins; one column per group, in the order of the stack; at most eight.
    kind : str
        Kind of data, shown in the corner.
    label : str, default="GPUs"
        What is stacked, with its unit.
    has_rest : bool, default=False
        Whether the last column sums the groups without a colour of their own.

    Attributes
    ----------
    areas_ : list of PolyCollection
        One area per group, after `plot`.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-01", periods=3, tz="UTC")
    >>> usage = pd.DataFrame({"unique_id": ["a"] * 3 + ["b"] * 3, "ds": [*ds, *ds], "y": [1.0, 2, 3, 4, 5, 6]})
    >>> display = UsageDisplay.from_usage(usage).plot()
    >>> display.wide.columns.tolist(), len(display.areas_)
    (['b', 'a'], 2)
    """

    wide: pd.DataFrame
    _: KW_ONLY
    label: str = "GPUs"
    has_rest: bool = False

    @classmethod
    def from_usage(cls, usage: pd.DataFrame, *, max_groups: int = 7) -> UsageDisplay:
        """Stack the largest groups and the sum of the others.

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
        """
        check_number("max_groups", max_groups, 1, len(base.GROUPS), integer=True)
        wide = to_wide(check_usage(usage, allow_missing=True)).T
        # Missing rows are zero where other series have a value; a time that none has is a gap.
        wide = wide.fillna(0.0).where(wide.notna().any(axis=1), axis=0)
        wide = wide[wide.sum().sort_values(ascending=False, kind="stable").index]
        n_rest = max(wide.shape[1] - max_groups, 0)
        shown = wide.iloc[:, :max_groups].copy()
        if n_rest:
            shown[f"{n_rest:,} other{'s' * (n_rest > 1)}"] = wide.iloc[:, max_groups:].sum(axis=1, skipna=False)
        return cls(shown, kind=base.kind_of(usage), label=base.value_label(usage), has_rest=n_rest > 0)

    def _draw(self, ax: Axes) -> None:
        # A value holds until the next bin, the last one as long as the one before.
        ds, n_groups = self.wide.index, self.wide.shape[1]
        width = ds[-1] - ds[-2] if len(ds) > 1 else pd.Timedelta("1D")
        steps = pd.concat([self.wide, self.wide.tail(1).set_axis([ds[-1] + width])])
        colors = [*base.GROUPS[: n_groups - self.has_rest], *[base.OTHER] * self.has_rest]
        colors = colors if n_groups > 1 else [base.MEASURED]
        self.areas_ = base.put_stack(ax, steps, colors, step="post", linewidth=0)
        ax.set_ylim(bottom=0)
        base.time_axes(ax, ds, self.label)
        self._annotate("Usage over time", base.named(self.areas_, self.wide.columns) if n_groups > 1 else [])


@dataclass(eq=False, repr=False)
class WeeklyProfileDisplay(base.Display):
    """Weekly profile: mean GPUs held by weekday and hour, as a heat map.

    Parameters
    ----------
    week : DataFrame, shape (7, 24)
        Mean value by weekday (0 is Monday) and hour of the day; NaN where nothing was recorded.
    kind : str
        Kind of data, shown in the corner.
    label : str, default="GPUs"
        What the colour means, with its unit.
    zone : str, default="UTC"
        Time zone of the hours.

    Attributes
    ----------
    mesh_ : QuadMesh
        The heat map, after `plot`.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-02", periods=336, freq="h", tz="UTC")
    >>> usage = pd.DataFrame({"unique_id": "all", "ds": ds, "y": ds.hour * 1.0})
    >>> display = WeeklyProfileDisplay.from_usage(usage).plot()
    >>> float(display.week.loc[0, 9])
    9.0
    """

    _size = (9.0, 2.9)

    week: pd.DataFrame
    _: KW_ONLY
    label: str = "GPUs"
    zone: str = "UTC"

    @classmethod
    def from_usage(cls, usage: pd.DataFrame) -> WeeklyProfileDisplay:
        """Average the total of `usage` by weekday and hour.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds`` (hourly or finer, in the zone of the calendar) and ``y``.

        Raises
        ------
        InputError
            If `usage` is no usage frame, or its bins are longer than an hour.
        """
        total = check_usage(usage, allow_missing=True).groupby("ds", as_index=False)["y"].sum(min_count=1)
        if len(total) > 1 and total["ds"].diff().min() > pd.Timedelta("1h"):
            raise InputError("a weekly profile needs bins of one hour or less; make the usage with freq='h'.")
        total = total.assign(weekday=total["ds"].dt.day_of_week, hour=total["ds"].dt.hour)
        week = total.pivot_table(index="weekday", columns="hour", values="y", aggfunc="mean")
        week = week.reindex(index=range(7), columns=range(24))
        return cls(
            week, kind=base.kind_of(usage), label=base.value_label(usage), zone=str(total["ds"].dt.tz or "local")
        )

    def _draw(self, ax: Axes) -> None:
        values = self.week.to_numpy(dtype=float)
        top = np.nanmax(values) if np.isfinite(values).any() else 1.0
        self.mesh_ = self._heat_map(ax, values, self.label, vmin=0, vmax=top or 1.0)
        ax.set_yticks(np.arange(7) + 0.5, WEEKDAYS)
        ax.set_xticks(np.arange(0, 25, 3))
        ax.set_xlabel(f"hour of the day ({self.zone})", loc="left")
        self._annotate("Weekly profile")


_TICKS = {0: "0", 60: "1 min", 600: "10 min", 3600: "1 h", 6 * 3600: "6 h", 86400: "1 d", 7 * 86400: "1 week"}
_MOST_ROWS = 24


@dataclass(eq=False, repr=False)
class WaitDisplay(base.Display):
    """Median, mean and 95 % quantile of the waits of jobs, a row a group.

    Parameters
    ----------
    table : DataFrame
        ``median_wait_s``, ``mean_wait_s``, ``p95_wait_s``, as `wait_table` returns it; at most 24 rows are drawn.
    kind : str
        Kind of data, shown in the corner.

    Attributes
    ----------
    ranges_ : LineCollection
    medians_, means_ : PathCollection
        After `plot`.

    Examples
    --------
    >>> submit = pd.date_range("2026-03-01", periods=3, freq="h", tz="UTC")
    >>> log = pd.DataFrame({"submit": submit, "start": submit + pd.Timedelta("5min"), "end": submit[2], "gpus": 1})
    >>> WaitDisplay.from_jobs(log.head(2), by="size").plot().table.index.tolist()
    ['1']
    """

    _size = (7.0, 3.6)

    table: pd.DataFrame

    @classmethod
    def from_jobs(cls, jobs: pd.DataFrame, *, by: str = "size", tz: object = None) -> WaitDisplay:
        """Show the waits of a log; see `wait_table`."""
        return cls.from_table(wait_table(jobs, by, tz=tz))

    @classmethod
    def from_table(cls, table: pd.DataFrame) -> WaitDisplay:
        """Show what `wait_table` returned."""
        table = check_columns(table, ("median_wait_s", "mean_wait_s", "p95_wait_s"), "table")
        return cls(table[table["mean_wait_s"].notna()], kind=base.kind_of(table))

    def _draw(self, ax: Axes) -> None:
        shown = self.table.head(_MOST_ROWS)
        rows = range(len(shown))
        self.ranges_ = ax.hlines(rows, shown["median_wait_s"], shown["p95_wait_s"], color=base.BASELINE, linewidth=4)
        self.medians_ = ax.scatter(shown["median_wait_s"], rows, color=base.MEASURED, zorder=3)
        self.means_ = ax.scatter(
            shown["mean_wait_s"], rows, facecolor="white", edgecolor=base.MEASURED, linewidth=1.2, zorder=3
        )
        ax.set_xscale("symlog", linthresh=60)
        ax.set_xlim(0, max(3600, 1.2 * float(shown["p95_wait_s"].max())))
        ax.set_xticks(list(_TICKS), list(_TICKS.values()), minor=False)
        ax.minorticks_off()
        base.put_names(ax.yaxis, shown.index)
        ax.invert_yaxis()
        ax.set_xlabel("wait from submission to start", loc="left")
        ax.set_ylabel(str(shown.index.name or ""))
        entries = [(self.medians_, "median"), (self.means_, "mean"), (self.ranges_, "median to 95 % quantile")]
        self._annotate("How long jobs waited", entries)
