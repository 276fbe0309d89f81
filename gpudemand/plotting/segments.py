"""Displays of segments, persistence and RFM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray
from gpudemand._validation import InputError, check_choice, check_columns, check_labels, nearest
from gpudemand.plotting import base
from gpudemand.usage.bins import bins_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection


#: Edges between stacked segments.
EDGES: dict[str, Any] = {"linewidth": 0.4, "edgecolor": "white"}


def segment_colors(n_segments: int) -> list[str]:
    """Colour of each segment, in a fixed order; grey from the eighth on.

    >>> segment_colors(8)[-1]
    '#c8c8cc'
    """
    return [*base.GROUPS[:n_segments], *[base.OTHER] * max(n_segments - len(base.GROUPS), 0)]


def checked_labels(users: pd.Index, labels: Sequence[int]) -> pd.Series:
    """Validate labels; return them by user. Those of a Series are found by its index."""
    codes = check_labels("labels", labels, users, "whole number a user")
    if not np.issubdtype(codes.dtype, np.integer):
        raise InputError(f"labels must be one whole number a user; got {codes.dtype}.")
    return pd.Series(codes, index=users)


def segment_names(labels: pd.Series, names: Sequence[str] | None) -> dict[int, str]:
    """Name of each segment that occurs: those given, in the order of the labels or by their index, or its number."""
    found = sorted(labels.unique().tolist())
    if names is None:
        return {label: f"segment {label}" for label in found}
    if len(names) != len(found):
        raise InputError(f"names must be one a segment; got {len(names)} for {len(found)} segments.")
    return {label: str(name) for label, name in zip(found, check_labels("names", names, pd.Index(found)), strict=True)}


@dataclass(eq=False, repr=False)
class SegmentProfileDisplay(base.Display):
    """Usage of typical users by segment, as small multiples; each user on a scale of their own.

    Parameters
    ----------
    panels : dict of str to DataFrame, shape (n_timestamps, n_examples)
        Usage of a few users of each segment, each divided by its largest value.
    sizes : dict of str to int
        Users in each segment.
    kind : str
        Kind of data, shown in the corner.

    Attributes
    ----------
    axes_ : list of Axes
        One per segment, after `plot`.
    ax_, figure_ : Axes, Figure
        After `plot`; the small multiples lie inside `ax_`.

    Examples
    --------
    >>> days = pd.date_range("2026-03-02", periods=4, freq="D")
    >>> wide = pd.DataFrame([[1.0, 2, 0, 1], [3.0, 0, 0, 0]], index=["ada", "bob"], columns=days)
    >>> display = SegmentProfileDisplay.from_labels(wide, [0, 1], names=["steady", "burst"])
    >>> display.panels["burst"]["bob"].tolist()
    [1.0, 0.0, 0.0, 0.0]
    >>> len(display.plot().axes_)
    2
    """

    _size = (9.0, 5.2)

    panels: dict[str, pd.DataFrame]
    sizes: dict[str, int]

    @classmethod
    def from_labels(
        cls, wide: pd.DataFrame, labels: Sequence[int], *, names: Sequence[str] | None = None
    ) -> SegmentProfileDisplay:
        """Choose three typical users of each segment: quantiles of its GPU-hours.

        Parameters
        ----------
        wide : DataFrame, shape (n_users, n_timestamps)
            Usage, as `gpudemand.to_wide` returns it.
        labels : sequence of int, shape (n_users,)
        names : sequence of str, optional
            One per segment, such as ``segment_profiles(wide, labels)["name"]``.

        Raises
        ------
        InputError
            If labels or names do not fit.
        """
        codes = checked_labels(wide.index, labels)
        called = segment_names(codes, names)
        members = {name: wide[codes == label] for label, name in called.items()}
        panels = {name: _examples(rows) for name, rows in members.items()}
        return cls(panels, {name: len(rows) for name, rows in members.items()}, kind=base.kind_of(wide))

    def _draw(self, ax: Axes) -> None:
        ax.set_axis_off()
        ax.set_title("Typical users by segment", loc="left", pad=12)
        base.put_kind(ax, self.kind, height=14)
        self.axes_ = [self._panel(ax, place) for place in range(len(self.panels))]

    def _panel(self, ax: Axes, place: int) -> Axes:
        columns = int(np.ceil(np.sqrt(len(self.panels))))
        rows = int(np.ceil(len(self.panels) / columns))
        row, column = divmod(place, columns)
        width, height = 1 / columns, 1 / rows
        inset = ax.inset_axes((column * width, 1 - (row + 1) * height, width * 0.95, height - 0.09))
        name, table = list(self.panels.items())[place]
        _ridges(inset, table, segment_colors(len(self.panels))[place])
        text = f"{base.short_name(name, 24)}: {self.sizes[name]:,} user{'s' * (self.sizes[name] != 1)}"
        base.literal(inset.set_title(text, loc="left", fontsize=9, pad=3))
        inset.tick_params(labelbottom=row == rows - 1 or place + columns >= len(self.panels))
        return inset


#: Users drawn of a segment.
_EXAMPLES = 3


def _examples(rows: pd.DataFrame) -> pd.DataFrame:
    order = rows.sum(axis=1).sort_values(kind="stable").index
    middle = np.linspace(0, len(order) - 1, min(_EXAMPLES, len(order)) + 2)[1:-1].round().astype(int)
    chosen = rows.loc[order[np.unique(middle)]].fillna(0.0)
    top = chosen.max(axis=1)
    return chosen.div(top.where(top > 0, 1.0), axis=0).T


def _ridges(ax: Axes, table: pd.DataFrame, color: str) -> None:
    times = base.to_utc(table.index)
    for floor, name in enumerate(table.columns):
        ax.fill_between(times, floor, floor + 0.9 * table[name].to_numpy(), step="post", color=color, linewidth=0)
    base.date_axis(ax, table.index)
    ax.set_xlabel("")
    ax.set_yticks([])
    ax.set_ylim(0, max(table.shape[1], 1))
    ax.margins(x=0)
    ax.grid(visible=False)
    for label in ax.get_xticklabels():
        label.set_fontsize(7)


@dataclass(eq=False, repr=False)
class SegmentShareDisplay(base.Display):
    """Share of each segment in the GPU-hours over time, stacked to one.

    Parameters
    ----------
    shares : DataFrame, shape (n_periods, n_segments)
        Index: starts of the periods; a column per segment; rows sum to one, or are NaN where nothing was used.
    kind : str
        Kind of data, shown in the corner.
    label : str, default="share of GPU-hours"
        Name of the share.

    Attributes
    ----------
    areas_ : list of PolyCollection
        One per segment, after `plot`.

    Examples
    --------
    >>> days = pd.date_range("2026-03-02", periods=14, freq="D")
    >>> wide = pd.DataFrame([[1.0] * 14, [3.0] * 14], index=["ada", "bob"], columns=days)
    >>> display = SegmentShareDisplay.from_labels(wide, [0, 1])
    >>> display.shares["segment 1"].tolist(), len(display.plot().areas_)
    ([0.75, 0.75], 2)
    """

    shares: pd.DataFrame
    _: KW_ONLY
    label: str = "share of GPU-hours"

    @classmethod
    def from_labels(
        cls, wide: pd.DataFrame, labels: Sequence[int], *, names: Sequence[str] | None = None, freq: str = "7D"
    ) -> SegmentShareDisplay:
        """Sum usage by segment and period.

        Parameters
        ----------
        wide : DataFrame, shape (n_users, n_timestamps)
        labels : sequence of int, shape (n_users,)
        names : sequence of str, optional
            One per segment.
        freq : str, default="7D"
            Length of a period.

        Raises
        ------
        InputError
            If labels or names do not fit.
        """
        codes = checked_labels(wide.index, labels)
        by_segment = wide.groupby(codes.to_numpy()).sum().rename(index=segment_names(codes, names)).T
        bins, place = bins_of(pd.DatetimeIndex(by_segment.index), freq)
        sums = by_segment.groupby(place).sum().reindex(range(len(bins)), fill_value=0.0).set_axis(bins)
        total = sums.sum(axis=1)
        what = base.value_label(wide).split(" per ")[0].split(" (")[0]
        label = "share of GPU-hours" if what == "GPUs" else f"share of {what}"
        return cls(sums.div(total.where(total > 0), axis=0), kind=base.kind_of(wide), label=label)

    def _draw(self, ax: Axes) -> None:
        self.areas_ = base.put_stack(ax, self.shares, segment_colors(self.shares.shape[1]), **EDGES)
        ax.set_ylim(0, 1)
        base.time_axes(ax, self.shares.index, self.label)
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        self._annotate("Share of usage by segment", base.named(self.areas_, self.shares.columns))


@dataclass(eq=False, repr=False)
class SegmentTransitionDisplay(base.Display):
    """Transition counts: the segment of each user in an earlier period against that in a later one.

    Parameters
    ----------
    counts : DataFrame, shape (n_before, n_after)
        Users by segment before (index) and after (columns).
    kind : str
        Kind of data, shown in the corner.

    Attributes
    ----------
    mesh_ : QuadMesh
        Shares of the users of each earlier segment, after `plot`.

    Examples
    --------
    >>> display = SegmentTransitionDisplay.from_labels([0, 0, 1], [0, 1, 1], names=["steady", "burst"]).plot()
    >>> display.counts
    after   steady  burst
    before
    steady       1      1
    burst        0      1
    """

    _size = (6.2, 4.4)

    counts: pd.DataFrame

    @classmethod
    def from_labels(
        cls, before: Sequence[int], after: Sequence[int], *, names: Sequence[str] | None = None, kind: str = ""
    ) -> SegmentTransitionDisplay:
        """Count users by their two segments.

        Parameters
        ----------
        before, after : sequence of int, shape (n_users,)
            Labels of the same users under one segmenter: ``labels_``, and ``predict`` of the later period.
        names : sequence of str, optional
            One per segment, from 0 on.
        kind : str, optional
            Kind of data.

        Raises
        ------
        InputError
            If the labels are not of equal length, or names do not fit.
        """
        first = np.asarray(before)
        users = before.index if isinstance(before, pd.Series) else pd.RangeIndex(len(first))
        second = checked_labels(users, after).to_numpy()
        every = np.arange(max(first.max(), second.max()) + 1)
        called = segment_names(pd.Series(every), names)
        table = pd.crosstab(pd.Series(first, name="before"), pd.Series(second, name="after"))
        table = table.reindex(index=every, columns=every, fill_value=0).rename(index=called, columns=called)
        return cls(table.rename_axis(index="before", columns="after"), kind=kind)

    def _draw(self, ax: Axes) -> None:
        counts = self.counts.to_numpy(dtype=float)
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        self.mesh_ = base.grid_map(ax, shares, vmin=0, vmax=1)
        for row, column in zip(*counts.nonzero(), strict=True):
            color = "white" if shares[row, column] > 0.5 else "#1c1c1f"
            text = f"{counts[row, column]:,.0f}"
            ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=color)
        base.put_names(ax.xaxis, self.counts.columns, 14, 0.5, rotation=30)
        base.put_names(ax.yaxis, self.counts.index, 14, 0.5)
        ax.set_xlabel("segment in the later period", loc="left")
        ax.set_ylabel("segment in the earlier period")
        self._annotate("Segment transitions (users)")


@dataclass(eq=False, repr=False)
class RFMDisplay(base.Display):
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
    >>> display = RFMDisplay.from_rfm(table, [0, 1]).plot()
    >>> display.names, len(display.points_)
    ({0: 'segment 0', 1: 'segment 1'}, 2)
    """

    _size = (9.0, 4.4)

    table: pd.DataFrame
    labels: pd.Series
    names: dict[int, str]

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
        """
        table = check_columns(table, ("recency", "frequency", "monetary"), "table of rfm_table")
        codes = checked_labels(table.index, labels)
        return cls(table, codes, segment_names(codes, names), kind=kind or base.kind_of(table))

    def _draw(self, ax: Axes) -> None:
        colors = segment_colors(len(self.names))
        self.points_ = [self._points(ax, label, color) for label, color in zip(self.names, colors, strict=True)]
        units = self.table.attrs.get("units", {})
        ax.set_xscale("symlog", linthresh=1, linscale=0.4)
        ax.set_yscale("symlog", linthresh=1)
        ax.set_xlim(left=-0.3)
        ax.set_ylim(bottom=float(self.table["monetary"].min()) / 2)
        base.count_axis(ax, f"{units.get('monetary', 'GPU-hours')} in total")
        ax.xaxis.set_major_formatter("{x:,.6g}")
        ax.set_xlabel(f"time since the last use ({units.get('recency', 'days')})", loc="left")
        entries = base.named(self.points_, self.names.values())
        self._annotate("Recency, frequency (size) and GPU-hours of each user", entries)

    def _points(self, ax: Axes, label: int, color: str) -> PathCollection:
        rows = self.table[(self.labels == label).to_numpy()]
        most = max(float(self.table["frequency"].max()), 1.0)
        size = 12 + 90 * rows["frequency"] / most
        return ax.scatter(rows["recency"], rows["monetary"], s=size, color=color, alpha=0.75, linewidth=0)


_NOUNS = {"sublevel": "valleys", "superlevel": "peaks"}
_AREA = 18.0


@dataclass(eq=False, repr=False)
class PersistenceDiagramDisplay(base.Display):
    """A series and its sublevel or superlevel persistence diagram, on one scale of usage.

    A dot is a valley (peak): births on the x axis, deaths, where it merges into a deeper (higher) one, on the y axis.
    Persistence is the distance from the diagonal. The area of a dot is proportional to the number of equal pairs; the
    triangle is the essential pair, drawn at the opposite extreme of the series.

    Parameters
    ----------
    series : Series
        Usage of one user; index: times or numbers.
    pairs : ndarray, shape (n_pairs, 2)
        Births and deaths, as `gpudemand.segments.sublevel_persistence` returns them.
    kind : str
        Kind of data, shown in the corner.
    label : str, default="GPUs"
        What the series holds, with its unit.
    filtration : {"sublevel", "superlevel"}, default="sublevel"
        Whether pairs are valleys or peaks.

    Attributes
    ----------
    diagram_ax_ : Axes
        The diagram, after `plot`.
    points_ : PathCollection
        The finite pairs, after `plot`.
    ax_, figure_ : Axes, Figure
        The series, and the figure of both, after `plot`.

    Examples
    --------
    >>> wide = pd.DataFrame([[0.0, 3, 1, 5, 2]], index=["ada"])
    >>> display = PersistenceDiagramDisplay.from_wide(wide, "ada").plot()
    >>> display.pairs.tolist()
    [[0.0, inf], [1.0, 3.0], [2.0, 5.0]]
    """

    _size = (9.0, 3.2)

    series: pd.Series
    pairs: FloatArray
    _: KW_ONLY
    label: str = "GPUs"
    filtration: str = "sublevel"

    @classmethod
    def from_wide(cls, wide: pd.DataFrame, user: object, *, filtration: str = "sublevel") -> PersistenceDiagramDisplay:
        """Compute the persistence diagram of one user.

        Parameters
        ----------
        wide : DataFrame, shape (n_users, n_timestamps)
            As `gpudemand.to_wide` returns it; ``attrs`` name kind and value.
        user : object
            Whose row to draw.
        filtration : {"sublevel", "superlevel"}, default="sublevel"
            Valleys or peaks.

        Raises
        ------
        InputError
            If there is no such user, or no such filtration.
        """
        # Imports numba, which other figures do not need.
        from gpudemand.segments import sublevel_persistence, superlevel_persistence

        check_choice("filtration", filtration, _NOUNS)
        if user not in wide.index:
            raise InputError(f"there is no user {base.short_name(user)!r}.{nearest(str(user), map(str, wide.index))}")
        series = wide.loc[user]
        persistence = sublevel_persistence if filtration == "sublevel" else superlevel_persistence
        return cls(
            series, persistence(series), kind=base.kind_of(wide), label=base.value_label(wide), filtration=filtration
        )

    def _draw(self, ax: Axes) -> None:
        from mpl_toolkits.axes_grid1 import make_axes_locatable

        self.diagram_ax_ = make_axes_locatable(ax).append_axes("right", size="38%", pad=0.25, sharey=ax)
        self._draw_series(ax)
        self._draw_diagram(self.diagram_ax_)

    def _draw_series(self, ax: Axes) -> None:
        has_times = isinstance(self.series.index, pd.DatetimeIndex)
        x = base.to_utc(self.series.index) if has_times else np.arange(len(self.series))
        ax.plot(x, self.series.to_numpy(dtype=float), color=base.MEASURED, linewidth=1.0)
        base.literal(ax.set_title(base.short_name(self.series.name), loc="left"))
        if has_times:
            base.time_axes(ax, self.series.index, self.label)
        else:
            ax.margins(x=0)
            base.count_axis(ax, self.label)

    def _draw_diagram(self, ax: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        low, high = self.series.min(), self.series.max()
        ax.axline((0, 0), slope=1, color=base.BASELINE, linestyle="--", linewidth=0.9)
        finite = np.isfinite(self.pairs[:, 1])
        points, counts = np.unique(self.pairs[finite], axis=0, return_counts=True)
        look: dict[str, Any] = {"color": base.PREDICTED, "alpha": 0.75, "linewidths": 0, "zorder": 3}
        self.points_ = ax.scatter(points[:, 0], points[:, 1], s=_AREA * counts, **look)
        end = high if self.filtration == "sublevel" else low
        ax.plot(self.pairs[~finite, 0], np.full((~finite).sum(), end), "^", color=base.PREDICTED, fillstyle="none")
        pad = 0.06 * (high - low) or 1.0
        ax.set(xlim=(low - pad, high + pad), ylim=(low - pad, high + pad))
        ax.tick_params(labelleft=False)
        ax.xaxis.set_major_locator(MaxNLocator(3, prune="upper"))
        ax.xaxis.set_major_formatter("{x:,.6g}")
        ax.set_xlabel("level at birth (height: at death)", loc="left")
        ax.set_title(_NOUNS[self.filtration].capitalize(), loc="left")
        base.put_kind(ax, self.kind)
