"""Figure of users by recency, frequency and monetary value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import pandas as pd

from gpudemand._validation import check_columns
from gpudemand.plotting._base import Display, annotate, count_axis, kind_of, short_name
from gpudemand.plotting.segment_labels import checked_labels, segment_colors, segment_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection


@dataclass(eq=False, repr=False)
class RFMDisplay(Display):
    """Scatter plot of users: recency, monetary value (GPU-hours), frequency (size) and segment (colour).

    Parameters
    ----------
    table : DataFrame, one row per user
        ``recency``, ``frequency``, ``monetary``, as `gpudemand.segments.rfm_table` returns it.
    labels : Series of int
        Segment of each user.
    names : dict of int to str
        Name of each segment.
    kind : str
        Kind of data, shown in the corner.

    Attributes
    ----------
    points_ : list of PathCollection
        One per segment, after `plot`.

    Examples
    --------
    >>> table = pd.DataFrame({"recency": [0.0, 9.0], "frequency": [20.0, 2.0], "monetary": [900.0, 4.0]})
    >>> RFMDisplay.from_rfm(table, [0, 1]).names
    {0: 'segment 0', 1: 'segment 1'}
    """

    _size = (9.0, 4.4)

    table: pd.DataFrame
    labels: pd.Series
    names: dict[int, str]
    _: KW_ONLY
    kind: str

    @classmethod
    def from_rfm(
        cls, table: pd.DataFrame, labels: Sequence[int], *, names: Sequence[str] | None = None, kind: str = ""
    ) -> RFMDisplay:
        """Show the table of `rfm_table`, coloured by label.

        Parameters
        ----------
        table : DataFrame
            ``recency``, ``frequency``, ``monetary``.
        labels : sequence of int, shape (n_users,)
        names : sequence of str, optional
            One per segment.
        kind : str, optional
            Kind of data; by default as the table states.

        Raises
        ------
        InputError
            If a column is missing, or labels or names do not fit.

        Returns
        -------
        RFMDisplay
        """
        table = check_columns(table, ("recency", "frequency", "monetary"), "table of rfm_table")
        codes = checked_labels(table.index, labels)
        return cls(table, codes, segment_names(codes, names), kind=kind or kind_of(table))

    def _draw(self, ax: Axes) -> None:
        colors = segment_colors(len(self.names))
        self.points_ = [self._points(ax, label, color) for label, color in zip(self.names, colors, strict=True)]
        units = self.table.attrs.get("units", {})
        ax.set_xscale("symlog", linthresh=1, linscale=0.4)
        ax.set_yscale("symlog", linthresh=1)
        ax.set_xlim(left=-0.3)
        ax.set_ylim(bottom=float(self.table["monetary"].min()) / 2)
        count_axis(ax, f"{units.get('monetary', 'GPU-hours')} in total")
        ax.xaxis.set_major_formatter("{x:,.6g}")
        ax.set_xlabel(f"time since the last use ({units.get('recency', 'days')})", loc="left")
        entries = [(p, short_name(n)) for p, n in zip(self.points_, self.names.values(), strict=True)]
        annotate(ax, "Recency, frequency (size) and GPU-hours of each user", self.kind, entries)

    def _points(self, ax: Axes, label: int, color: str) -> PathCollection:
        rows = self.table[(self.labels == label).to_numpy()]
        most = max(float(self.table["frequency"].max()), 1.0)
        size = 12 + 90 * rows["frequency"] / most
        return ax.scatter(rows["recency"], rows["monetary"], s=size, color=color, alpha=0.75, linewidth=0)
