"""Figure of the waits of jobs by group."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import pandas as pd

from gpudemand._validation import check_columns
from gpudemand.plotting._base import BASELINE, MEASURED, Display, annotate, kind_of, literal, short_name
from gpudemand.usage.waits import wait_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TICKS = {0: "0", 60: "1 min", 600: "10 min", 3600: "1 h", 6 * 3600: "6 h", 86400: "1 d", 7 * 86400: "1 week"}
_MOST_ROWS = 24


@dataclass(eq=False, repr=False)
class WaitDisplay(Display):
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
    >>> WaitDisplay.from_jobs(log.head(2), by="size").table.index.tolist()
    ['1']
    """

    _size = (7.0, 3.6)

    table: pd.DataFrame
    _: KW_ONLY
    kind: str

    @classmethod
    def from_jobs(cls, jobs: pd.DataFrame, *, by: str = "size", tz: object = None) -> WaitDisplay:
        """Show the waits of a log; see `wait_table`."""
        return cls.from_table(wait_table(jobs, by, tz=tz))

    @classmethod
    def from_table(cls, table: pd.DataFrame) -> WaitDisplay:
        """Show what `wait_table` returned."""
        table = check_columns(table, ("median_wait_s", "mean_wait_s", "p95_wait_s"), "table")
        return cls(table[table["mean_wait_s"].notna()], kind=kind_of(table))

    def _draw(self, ax: Axes) -> None:
        shown = self.table.head(_MOST_ROWS)
        rows = range(len(shown))
        self.ranges_ = ax.hlines(rows, shown["median_wait_s"], shown["p95_wait_s"], color=BASELINE, linewidth=4)
        self.medians_ = ax.scatter(shown["median_wait_s"], rows, color=MEASURED, zorder=3)
        self.means_ = ax.scatter(
            shown["mean_wait_s"], rows, facecolor="white", edgecolor=MEASURED, linewidth=1.2, zorder=3
        )
        ax.set_xscale("symlog", linthresh=60)
        ax.set_xlim(0, max(3600, 1.2 * float(shown["p95_wait_s"].max())))
        ax.set_xticks(list(_TICKS), list(_TICKS.values()), minor=False)
        ax.minorticks_off()
        ax.set_yticks(list(rows), [short_name(str(name)) for name in shown.index])
        for label in ax.get_yticklabels():
            literal(label)
        ax.invert_yaxis()
        ax.set_xlabel("wait from submission to start", loc="left")
        ax.set_ylabel(str(shown.index.name or ""))
        entries = [(self.medians_, "median"), (self.means_, "mean"), (self.ranges_, "median to 95 % quantile")]
        annotate(ax, "How long jobs waited", self.kind, entries)
