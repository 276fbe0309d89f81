"""Segments over time: how much each uses, and who moved from one to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.plotting._base import (
    Display,
    date_axis,
    kind_of,
    literal,
    put_kind,
    put_legend,
    put_title,
    short_name,
    value_label,
)
from gpudemand.plotting.segments_labels import checked_labels, put_stack, segment_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class SegmentShareDisplay(Display):
    """Share of each segment in the GPU-hours over time, stacked to one.

    Build it with `from_labels`.

    Parameters
    ----------
    shares : DataFrame, shape (n_periods, n_segments)
        Index: starts of the periods; a column a segment; rows sum to one, or are NaN where nothing was used.
    kind : str
        Kind of data, for the corner.
    label : str, default="share of GPU-hours"
        What is shared out.

    Attributes
    ----------
    areas_ : list of PolyCollection
        One a segment, after `plot`.
    ax_, figure_ : Axes, Figure
        After `plot`.

    Examples
    --------
    >>> days = pd.date_range("2026-03-02", periods=14, freq="D")
    >>> wide = pd.DataFrame([[1.0] * 14, [3.0] * 14], index=["ada", "bob"], columns=days)
    >>> SegmentShareDisplay.from_labels(wide, [0, 1]).shares["segment 1"].tolist()
    [0.75, 0.75]
    """

    def __init__(self, shares: pd.DataFrame, *, kind: str, label: str = "share of GPU-hours") -> None:
        self.shares = shares
        self.kind = kind
        self.label = label

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
            One a segment.
        freq : str, default="7D"
            Length of a period.

        Raises
        ------
        InputError
            If labels or names do not fit.

        Returns
        -------
        SegmentShareDisplay
        """
        codes = checked_labels(wide.index, labels)
        by_segment = wide.groupby(codes.to_numpy()).sum().rename(index=segment_names(codes, names)).T
        sums = by_segment.resample(freq).sum()
        total = sums.sum(axis=1)
        what = value_label(wide).split(" per ")[0].split(" (")[0]
        label = "share of GPU-hours" if what == "GPUs" else f"share of {what}"
        return cls(sums.div(total.where(total > 0), axis=0), kind=kind_of(wide), label=label)

    def _draw(self, ax: Axes) -> None:
        self.areas_ = put_stack(ax, self.shares)
        ax.set_ylim(0, 1)
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        ax.set_ylabel(self.label)
        ax.margins(x=0)
        date_axis(ax, self.shares.index)
        put_title(ax, "What each segment uses, over time")
        put_kind(ax, self.kind)
        put_legend(ax, [(a, short_name(n)) for a, n in zip(self.areas_, self.shares.columns, strict=True)])


class SegmentTransitionDisplay(Display):
    """Who moved: the segment of each user in an earlier period against that in a later one.

    Build it with `from_labels`.

    Parameters
    ----------
    counts : DataFrame, shape (n_before, n_after)
        Users by segment before (index) and after (columns).
    kind : str
        Kind of data, for the corner.

    Attributes
    ----------
    mesh_ : QuadMesh
        Shares of the users of each earlier segment, after `plot`.
    ax_, figure_ : Axes, Figure
        After `plot`.

    Examples
    --------
    >>> SegmentTransitionDisplay.from_labels([0, 0, 1], [0, 1, 1], names=["steady", "burst"]).counts
    after   steady  burst
    before
    steady       1      1
    burst        0      1
    """

    _size = (6.2, 4.4)

    def __init__(self, counts: pd.DataFrame, *, kind: str) -> None:
        self.counts = counts
        self.kind = kind

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
            One a segment, from 0 on.
        kind : str, optional
            Kind of data.

        Raises
        ------
        InputError
            If the labels are not of equal length, or names do not fit.

        Returns
        -------
        SegmentTransitionDisplay
        """
        first = np.asarray(before)
        second = checked_labels(pd.RangeIndex(len(first)), after).to_numpy()
        every = np.arange(max(first.max(), second.max()) + 1)
        called = segment_names(pd.Series(every), names)
        table = pd.crosstab(pd.Series(first, name="before"), pd.Series(second, name="after"))
        table = table.reindex(index=every, columns=every, fill_value=0).rename(index=called, columns=called)
        return cls(table.rename_axis(index="before", columns="after"), kind=kind)

    def _draw(self, ax: Axes) -> None:
        from matplotlib.colors import LinearSegmentedColormap

        counts = self.counts.to_numpy(dtype=float)
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        shades = LinearSegmentedColormap.from_list("measured", ["#f6f6f7", "#8e8e94", "#2c2c31"])
        self.mesh_ = ax.pcolormesh(shares, cmap=shades, vmin=0, vmax=1, edgecolor="white", linewidth=1)
        self._numbers(ax, counts, shares)
        ax.invert_yaxis()
        ax.set_xticks(np.arange(counts.shape[1]) + 0.5, [short_name(n, 14) for n in self.counts.columns], rotation=30)
        ax.set_yticks(np.arange(counts.shape[0]) + 0.5, [short_name(n, 14) for n in self.counts.index])
        for text in (*ax.get_xticklabels(), *ax.get_yticklabels()):
            literal(text)
        ax.set_xlabel("segment in the later period", loc="left")
        ax.set_ylabel("segment in the earlier period")
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        put_title(ax, "Who moved (users)")
        put_kind(ax, self.kind)

    def _numbers(self, ax: Axes, counts: FloatArray, shares: FloatArray) -> None:
        for row, column in np.ndindex(counts.shape):
            if counts[row, column]:
                color = "white" if shares[row, column] > 0.5 else "#1c1c1f"
                ax.text(column + 0.5, row + 0.5, f"{counts[row, column]:,.0f}", ha="center", va="center", color=color)
