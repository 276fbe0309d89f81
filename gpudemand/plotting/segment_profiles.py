"""Figure of typical users by segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from gpudemand.plotting._base import Display, date_axis, kind_of, literal, put_kind, short_name, to_utc
from gpudemand.plotting.segment_labels import checked_labels, segment_colors, segment_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False, repr=False)
class SegmentProfileDisplay(Display):
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
    """

    _size = (9.0, 5.2)

    panels: dict[str, pd.DataFrame]
    sizes: dict[str, int]
    _: KW_ONLY
    kind: str

    @classmethod
    def from_labels(
        cls, wide: pd.DataFrame, labels: Sequence[int], *, names: Sequence[str] | None = None, n_examples: int = 3
    ) -> SegmentProfileDisplay:
        """Choose typical users of each segment: quantiles of its GPU-hours.

        Parameters
        ----------
        wide : DataFrame, shape (n_users, n_timestamps)
            Usage, as `gpudemand.to_wide` returns it.
        labels : sequence of int, shape (n_users,)
        names : sequence of str, optional
            One per segment, such as ``segment_profiles(wide, labels)["name"]``.
        n_examples : int, default=3
            Users per segment.

        Raises
        ------
        InputError
            If labels or names do not fit.

        Returns
        -------
        SegmentProfileDisplay
        """
        codes = checked_labels(wide.index, labels)
        called = segment_names(codes, names)
        members = {name: wide[codes == label] for label, name in called.items()}
        panels = {name: _examples(rows, n_examples) for name, rows in members.items()}
        return cls(panels, {name: len(rows) for name, rows in members.items()}, kind=kind_of(wide))

    def _draw(self, ax: Axes) -> None:
        ax.set_axis_off()
        ax.set_title("Typical users by segment", loc="left", pad=12)
        put_kind(ax, self.kind, height=14)
        self.axes_ = [self._panel(ax, place) for place in range(len(self.panels))]

    def _panel(self, ax: Axes, place: int) -> Axes:
        columns = int(np.ceil(np.sqrt(len(self.panels))))
        rows = int(np.ceil(len(self.panels) / columns))
        row, column = divmod(place, columns)
        width, height = 1 / columns, 1 / rows
        inset = ax.inset_axes((column * width, 1 - (row + 1) * height, width * 0.95, height - 0.09))
        name, table = list(self.panels.items())[place]
        _ridges(inset, table, segment_colors(len(self.panels))[place])
        text = f"{short_name(name, 24)}: {self.sizes[name]:,} user{'s' * (self.sizes[name] != 1)}"
        literal(inset.set_title(text, loc="left", fontsize=9, pad=3))
        inset.tick_params(labelbottom=row == rows - 1 or place + columns >= len(self.panels))
        return inset


def _examples(rows: pd.DataFrame, n_examples: int) -> pd.DataFrame:
    order = rows.sum(axis=1).sort_values(kind="stable").index
    middle = np.linspace(0, len(order) - 1, min(n_examples, len(order)) + 2)[1:-1].round().astype(int)
    chosen = rows.loc[order[np.unique(middle)]].fillna(0.0)
    top = chosen.max(axis=1)
    return chosen.div(top.where(top > 0, 1.0), axis=0).T


def _ridges(ax: Axes, table: pd.DataFrame, color: str) -> None:
    times = to_utc(table.index)
    for floor, name in enumerate(table.columns):
        ax.fill_between(times, floor, floor + 0.9 * table[name].to_numpy(), step="post", color=color, linewidth=0)
    date_axis(ax, table.index)
    ax.set_xlabel("")
    ax.set_yticks([])
    ax.set_ylim(0, max(table.shape[1], 1))
    ax.margins(x=0)
    ax.grid(visible=False)
    for label in ax.get_xticklabels():
        label.set_fontsize(7)
