"""Users by recency, frequency and monetary value, coloured by segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from gpudemand._validation import check_columns
from gpudemand.plotting._base import Display, count_axis, kind_of, put_kind, put_legend, put_title, short_name
from gpudemand.plotting.segments_labels import checked_labels, segment_colors, segment_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection


class RFMDisplay(Display):
    """Every user by time since the last use and GPU-hours, coloured by segment, as large as often there.

    Build it with `from_rfm`.

    Parameters
    ----------
    table : DataFrame, one row a user
        ``recency``, ``frequency``, ``monetary``, as `gpudemand.segments.rfm_table` returns it.
    labels : Series of int
        Segment of each user.
    names : dict of int to str
        What to call each segment.
    kind : str
        Kind of data, for the corner.

    Attributes
    ----------
    points_ : list of PathCollection
        One a segment, after `plot`.
    ax_, figure_ : Axes, Figure
        After `plot`.

    Examples
    --------
    >>> table = pd.DataFrame({"recency": [0.0, 9.0], "frequency": [20.0, 2.0], "monetary": [900.0, 4.0]})
    >>> RFMDisplay.from_rfm(table, [0, 1]).names
    {0: 'segment 0', 1: 'segment 1'}
    """

    _size = (9.0, 4.4)

    def __init__(self, table: pd.DataFrame, labels: pd.Series, names: dict[int, str], *, kind: str) -> None:
        self.table = table
        self.labels = labels
        self.names = names
        self.kind = kind

    @classmethod
    def from_rfm(
        cls, table: pd.DataFrame, labels: Sequence[int], *, names: Sequence[str] | None = None, kind: str = ""
    ) -> RFMDisplay:
        """Put labels to the table.

        Parameters
        ----------
        table : DataFrame
            ``recency``, ``frequency``, ``monetary``.
        labels : sequence of int, shape (n_users,)
        names : sequence of str, optional
            One a segment.
        kind : str, optional
            Kind of data; what the table states, by default.

        Raises
        ------
        InputError
            If a column is missing, or labels or names do not fit.

        Returns
        -------
        RFMDisplay
        """
        check_columns(table, ("recency", "frequency", "monetary"), "table of rfm_table")
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
        count_axis(ax, f"{units.get('monetary', 'GPU-hours')} in all")
        ax.xaxis.set_major_formatter("{x:,.6g}")
        ax.set_xlabel(f"time since the last use ({units.get('recency', 'days')})", loc="left")
        put_title(ax, "Recency, frequency (size) and GPU-hours of each user")
        put_kind(ax, self.kind)
        put_legend(ax, [(p, short_name(n)) for p, n in zip(self.points_, self.names.values(), strict=True)])

    def _points(self, ax: Axes, label: int, color: str) -> PathCollection:
        rows = self.table[(self.labels == label).to_numpy()]
        most = max(float(self.table["frequency"].max()), 1.0)
        size = 12 + 90 * rows["frequency"] / most
        return ax.scatter(rows["recency"], rows["monetary"], s=size, color=color, alpha=0.75, linewidth=0)
