"""Figures of segments over time: shares of usage, and transitions of users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from gpudemand.plotting._base import (
    Display,
    annotate,
    grid_map,
    kind_of,
    literal,
    put_stack,
    short_name,
    time_axes,
    value_label,
)
from gpudemand.plotting.segment_labels import EDGES, checked_labels, segment_colors, segment_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False, repr=False)
class SegmentShareDisplay(Display):
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
    >>> SegmentShareDisplay.from_labels(wide, [0, 1]).shares["segment 1"].tolist()
    [0.75, 0.75]
    """

    shares: pd.DataFrame
    _: KW_ONLY
    kind: str
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
        self.areas_ = put_stack(ax, self.shares, segment_colors(self.shares.shape[1]), **EDGES)
        ax.set_ylim(0, 1)
        time_axes(ax, self.shares.index, self.label)
        ax.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        entries = [(a, short_name(n)) for a, n in zip(self.areas_, self.shares.columns, strict=True)]
        annotate(ax, "Share of usage by segment", self.kind, entries)


@dataclass(eq=False, repr=False)
class SegmentTransitionDisplay(Display):
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
    >>> SegmentTransitionDisplay.from_labels([0, 0, 1], [0, 1, 1], names=["steady", "burst"]).counts
    after   steady  burst
    before
    steady       1      1
    burst        0      1
    """

    _size = (6.2, 4.4)

    counts: pd.DataFrame
    _: KW_ONLY
    kind: str

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
        counts = self.counts.to_numpy(dtype=float)
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        self.mesh_ = grid_map(ax, shares, vmin=0, vmax=1)
        for row, column in zip(*counts.nonzero(), strict=True):
            color = "white" if shares[row, column] > 0.5 else "#1c1c1f"
            text = f"{counts[row, column]:,.0f}"
            ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=color)
        ax.set_xticks(np.arange(counts.shape[1]) + 0.5, [short_name(n, 14) for n in self.counts.columns], rotation=30)
        ax.set_yticks(np.arange(counts.shape[0]) + 0.5, [short_name(n, 14) for n in self.counts.index])
        for label in (*ax.get_xticklabels(), *ax.get_yticklabels()):
            literal(label)
        ax.set_xlabel("segment in the later period", loc="left")
        ax.set_ylabel("segment in the earlier period")
        annotate(ax, "Segment transitions (users)", self.kind)
