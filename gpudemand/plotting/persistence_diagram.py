"""Figure of a persistence diagram beside its series."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, nearest
from gpudemand.plotting._base import (
    BASELINE,
    MEASURED,
    PREDICTED,
    Display,
    annotate,
    count_axis,
    kind_of,
    literal,
    short_name,
    time_axes,
    to_utc,
    value_label,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NOUNS = {"sublevel": "valleys", "superlevel": "peaks"}
_AREA = 18.0


@dataclass(eq=False, repr=False)
class PersistenceDiagramDisplay(Display):
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
    >>> PersistenceDiagramDisplay.from_wide(wide, "ada").pairs.tolist()
    [[0.0, inf], [1.0, 3.0], [2.0, 5.0]]
    """

    _size = (9.0, 3.2)

    series: pd.Series
    pairs: FloatArray
    _: KW_ONLY
    kind: str
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

        Returns
        -------
        PersistenceDiagramDisplay
        """
        # Imports numba, which other figures do not need.
        from gpudemand.segments import sublevel_persistence, superlevel_persistence

        check_choice("filtration", filtration, _NOUNS)
        if user not in wide.index:
            raise InputError(f"there is no user {short_name(user)!r}.{nearest(str(user), map(str, wide.index))}")
        series = wide.loc[user]
        persistence = sublevel_persistence if filtration == "sublevel" else superlevel_persistence
        return cls(series, persistence(series), kind=kind_of(wide), label=value_label(wide), filtration=filtration)

    def _draw(self, ax: Axes) -> None:
        from mpl_toolkits.axes_grid1 import make_axes_locatable

        self.diagram_ax_ = make_axes_locatable(ax).append_axes("right", size="38%", pad=0.25, sharey=ax)
        self._draw_series(ax)
        self._draw_diagram(self.diagram_ax_)

    def _draw_series(self, ax: Axes) -> None:
        has_times = isinstance(self.series.index, pd.DatetimeIndex)
        x = to_utc(self.series.index) if has_times else np.arange(len(self.series))
        ax.plot(x, self.series.to_numpy(dtype=float), color=MEASURED, linewidth=1.0)
        literal(ax.set_title(short_name(self.series.name), loc="left"))
        if has_times:
            time_axes(ax, self.series.index, self.label)
        else:
            ax.margins(x=0)
            count_axis(ax, self.label)

    def _draw_diagram(self, ax: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        low, high = self.series.min(), self.series.max()
        ax.axline((0, 0), slope=1, color=BASELINE, linestyle="--", linewidth=0.9)
        finite = np.isfinite(self.pairs[:, 1])
        points, counts = np.unique(self.pairs[finite], axis=0, return_counts=True)
        look: dict[str, Any] = {"color": PREDICTED, "alpha": 0.75, "linewidths": 0, "zorder": 3}
        self.points_ = ax.scatter(points[:, 0], points[:, 1], s=_AREA * counts, **look)
        end = high if self.filtration == "sublevel" else low
        ax.plot(self.pairs[~finite, 0], np.full((~finite).sum(), end), "^", color=PREDICTED, fillstyle="none")
        pad = 0.06 * (high - low) or 1.0
        ax.set(xlim=(low - pad, high + pad), ylim=(low - pad, high + pad))
        ax.tick_params(labelleft=False)
        ax.xaxis.set_major_locator(MaxNLocator(3, prune="upper"))
        ax.xaxis.set_major_formatter("{x:,.6g}")
        ax.set_xlabel("level at birth (height: at death)", loc="left")
        annotate(ax, _NOUNS[self.filtration].capitalize(), self.kind)
