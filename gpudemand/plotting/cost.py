"""Displays of predicted costs and of the structural matrix."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.plotting.base import BASELINE, MEASURED, PREDICTED, WIDE, Display, kind_of, put_names, short_name
from gpudemand.units import format_gib, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gpudemand.cost import OpGraph


_NAMES = {"time": "time of a training step", "memory": "memory of a training step"}
_TICKS = {"time": format_seconds, "memory": format_gib}
#: Groups in an error figure; of more, those with the smallest and the largest errors.
_MAX_GROUPS = 30


@dataclass(eq=False, repr=False)
class CostPredictionDisplay(Display):
    """Predicted against measured cost, on log scales, with intervals and a band of ten percent.

    Parameters
    ----------
    costs : DataFrame
        A row per job: ``measured`` and ``predicted``, in seconds or GiB; optionally ``low`` and ``high``.
    target : {"time", "memory"}, default="time"
        What is predicted.
    kind : str
        Kind of data, shown in the corner.

    Attributes
    ----------
    points_ : PathCollection
        The jobs, after `plot`.
    intervals_ : LineCollection or None
        Their intervals.

    Examples
    --------
    >>> display = CostPredictionDisplay.from_predictions([0.1, 0.2], [0.11, 0.19], kind="measured").plot()
    >>> display.points_.get_offsets().tolist()
    [[0.1, 0.11], [0.2, 0.19]]
    """

    _size = (5.4, 4.8)

    costs: pd.DataFrame
    _: KW_ONLY
    target: str = "time"

    @classmethod
    def from_predictions(
        cls, measured: Any, predicted: Any, interval: Any = None, *, target: str = "time", kind: str = ""
    ) -> CostPredictionDisplay:
        """Compare predictions with measurements that they were not fitted on.

        Parameters
        ----------
        measured, predicted : array-like of shape (n_jobs,)
            Seconds, or GiB; positive.
        interval : array-like of shape (n_jobs, 2), optional
            As ``predict_interval`` returns it.
        target : {"time", "memory"}, default="time"
            What is predicted.
        kind : str, optional
            Kind of data; by default as `measured` states in its ``attrs``.

        Raises
        ------
        InputError
            If the lengths differ, or a cost is not positive.
        """
        check_choice("target", target, _NAMES)
        columns = {"measured": _costs("measured", measured), "predicted": _costs("predicted", predicted)}
        if interval is not None:
            columns["low"], columns["high"] = (_costs("interval", side) for side in np.asarray(interval).T)
        if len({len(column) for column in columns.values()}) != 1:
            lengths = ", ".join(f"{name} has {len(column)}" for name, column in columns.items())
            raise InputError(f"jobs must be as many in every argument: {lengths}.")
        return cls(pd.DataFrame(columns), target=target, kind=kind or kind_of(measured))

    def _draw(self, ax: Axes) -> None:
        x, y = self.costs["measured"].to_numpy(), self.costs["predicted"].to_numpy()
        ends = np.array([min(x.min(), y.min()) / 1.3, max(x.max(), y.max()) * 1.3])
        (line,) = ax.plot(ends, ends, color=MEASURED, linewidth=1)
        band = ax.fill_between(ends, ends / 1.1, ends * 1.1, color=BASELINE, alpha=0.25)
        entries: list[tuple[Any, str]] = [(line, "measured"), (band, "within 10 %")]
        self.intervals_ = None
        if "low" in self.costs:
            self.intervals_ = ax.vlines(x, self.costs["low"], self.costs["high"], color=PREDICTED, alpha=WIDE)
            entries.append((self.intervals_, "interval"))
        self.points_ = ax.scatter(x, y, s=9, color=PREDICTED, alpha=0.7, linewidths=0, zorder=3)
        entries.insert(0, (self.points_, "job"))
        ax.set(xscale="log", yscale="log", xlim=tuple(ends), ylim=tuple(ends))
        for axis in (ax.xaxis, ax.yaxis):
            _cost_axis(axis, self.target, *ends)
        ax.set_xlabel("measured", loc="left")
        ax.set_ylabel("predicted", loc="top")
        ax.set_aspect("equal")
        ax.grid(visible=True, axis="both")
        self._annotate(_NAMES[self.target], entries)


@dataclass(eq=False, repr=False)
class CostErrorDisplay(Display):
    """Relative error of predictions by group: the median, and the range from the 10th to the 90th percentile.

    Parameters
    ----------
    errors : DataFrame
        A row per group, in the order drawn: ``low``, ``median``, ``high``, ``n``; signed, 0.1 is ten percent too high.
    title : str
        Title of the figure.
    kind : str
        Kind of data, shown in the corner.

    Attributes
    ----------
    points_ : PathCollection
        The medians, after `plot`.
    ranges_ : LineCollection
        The ranges.

    Examples
    --------
    >>> display = CostErrorDisplay.from_predictions([1, 1, 2], [1.1, 1.1, 2.0], ["vgg", "vgg", "gru"], kind="measured")
    >>> display.errors["median"].round(2).to_dict()
    {'gru': 0.0, 'vgg': 0.1}
    >>> len(display.plot().points_.get_offsets())
    2
    """

    errors: pd.DataFrame
    _: KW_ONLY
    title: str

    @property
    def _size(self) -> tuple[float, float]:  # type: ignore[override]
        return (7.0, 1.4 + 0.17 * len(self.errors))

    @classmethod
    def from_predictions(
        cls, measured: Any, predicted: Any, groups: Any, *, title: str = "error of predicted costs", kind: str = ""
    ) -> CostErrorDisplay:
        """Group the relative errors.

        Parameters
        ----------
        measured, predicted : array-like of shape (n_jobs,)
            Seconds, or GiB; positive.
        groups : array-like of shape (n_jobs,)
            Network, family or device of each job.
        title : str, optional
            Title of the figure.
        kind : str, optional
            Kind of data; by default as `measured` states in its ``attrs``.

        Raises
        ------
        InputError
            If the lengths differ, or a cost is not positive.

        Returns
        -------
        CostErrorDisplay
            Groups in the order of their median absolute error; of more than 30, the smallest and the largest.
        """
        actual, costs, names = _costs("measured", measured), _costs("predicted", predicted), np.asarray(groups)
        if not len(actual) == len(costs) == len(names):
            raise InputError(
                f"jobs must be as many in every argument, not {len(actual)}, {len(costs)} and {len(names)}."
            )
        error = pd.DataFrame({"group": names, "error": costs / actual - 1})
        grouped = error.groupby("group", sort=True)["error"]
        table = grouped.quantile([0.1, 0.5, 0.9]).unstack().set_axis(["low", "median", "high"], axis=1)
        table["n"] = grouped.size()
        order = error["error"].abs().groupby(error["group"]).median().sort_values(kind="stable").index
        return cls(_first_and_last(table.loc[order]), title=title, kind=kind or kind_of(measured))

    def _draw(self, ax: Axes) -> None:
        from matplotlib.ticker import PercentFormatter

        places = np.arange(len(self.errors))
        ax.axvspan(-0.1, 0.1, color=BASELINE, alpha=0.25, linewidth=0)
        ax.axvline(0, color=MEASURED, linewidth=1)
        self.ranges_ = ax.hlines(places, self.errors["low"], self.errors["high"], color=PREDICTED, alpha=0.45)
        self.points_ = ax.scatter(self.errors["median"], places, s=22, color=PREDICTED, zorder=3)
        put_names(ax.yaxis, [f"{short_name(name, 24)} ({n})" for name, n in self.errors["n"].items()])
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")
        ax.grid(visible=True, axis="x")
        ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        ax.set_xlabel("relative error; lines: 10th to 90th percentile, band: ten percent", loc="left")
        self._annotate(self.title)


def _costs(name: str, values: Any) -> FloatArray:
    costs = np.asarray(values, dtype=float).ravel()
    if not (np.isfinite(costs) & (costs > 0)).all():
        raise InputError(f"{name} holds a cost that is not positive; drop the jobs without one first.")
    return costs


def _first_and_last(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the first and the last of many groups."""
    half = _MAX_GROUPS // 2
    return table if len(table) <= _MAX_GROUPS else pd.concat([table.iloc[:half], table.iloc[-half:]])


def _cost_axis(axis: Any, target: str, low: float, high: float) -> None:
    """Format a log axis with units: ms, s, min, or MiB and GiB."""
    from matplotlib.ticker import LogLocator, NullLocator

    decades = np.log10(high / low)
    # Memory in powers of two: 256 MiB, 1 GiB.
    base, subs = (4.0, (1.0,)) if target == "memory" else (10.0, (1.0,) if decades > 2 else (1.0, 2.0, 5.0))
    axis.set_major_locator(LogLocator(base, subs=subs))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: _TICKS[target](value))


#: Kind of data of a graph, which is neither measured nor synthetic.
TRACED = "traced from code"
_UNITS = {None: "edges", "flops": "FLOP per sample", "bytes": "bytes per sample", "parameters": "parameters"}


@dataclass(eq=False, repr=False)
class StructuralMatrixDisplay(Display):
    """Heat map of the edge counts between operator types of a network.

    Parameters
    ----------
    matrix : DataFrame of shape (n_types, n_types)
        Row: producer, column: consumer.
    title : str
        Name of the network.
    label : str, default="edges"
        What is counted.

    Attributes
    ----------
    mesh_ : QuadMesh
        The heat map, after `plot`.

    Examples
    --------
    >>> matrix = pd.DataFrame([[0, 3], [2, 0]], index=["Conv", "Relu"], columns=["Conv", "Relu"])
    >>> StructuralMatrixDisplay(matrix, title="net").plot().mesh_.get_array().tolist()
    [[None, 3.0], [2.0, None]]
    """

    _size = (5.6, 4.6)

    matrix: pd.DataFrame
    _: KW_ONLY
    title: str
    label: str = "edges"
    kind: str = field(default=TRACED, init=False)

    @classmethod
    def from_graph(cls, graph: OpGraph, *, weight: str | None = None, most: int = 14) -> StructuralMatrixDisplay:
        """Show the structural matrix of a graph.

        Parameters
        ----------
        graph : OpGraph
            The network.
        weight : {None, "flops", "bytes", "parameters"}, default=None
            Weight of an edge; see `structural_matrix`.
        most : int, default=14
            Operator types to show, those with the largest sums.
        """
        return cls(_largest(_matrix(graph, weight), most), title=graph.name, label=_UNITS[weight])

    def _draw(self, ax: Axes) -> None:
        from matplotlib.colors import LogNorm

        values = self.matrix.to_numpy(dtype=float)
        top = values.max() or 1.0
        smallest = values[values != 0].min() if values.any() else top
        # The log scale starts below the smallest entry, so that it differs from zero.
        options = {"norm": LogNorm(smallest / 3, top), "cmap": "Greys", "edgecolor": "#f1f1f3", "linewidth": 0.8}
        self.mesh_ = self._heat_map(ax, np.where(values == 0, np.nan, values), self.label, **options)
        put_names(ax.xaxis, self.matrix.index, 20, 0.5, rotation=50, ha="right", rotation_mode="anchor")
        put_names(ax.yaxis, self.matrix.index, 20, 0.5)
        ax.set_xlabel("consumer", loc="left")
        ax.set_ylabel("producer", loc="top")
        ax.set_aspect("equal")
        self._annotate(self.title)


def _matrix(graph: OpGraph, weight: str | None = None) -> pd.DataFrame:
    """Structural matrix; other figures, of reports too, do without the code of costs."""
    from gpudemand.cost import structural_matrix

    return structural_matrix(graph, weight)


def _largest(matrix: pd.DataFrame, most: int) -> pd.DataFrame:
    """Select the types with the largest sums over row and column; those without an edge are dropped."""
    check_number("most", most, 1, integer=True)
    size = matrix.abs().sum(axis=0) + matrix.abs().sum(axis=1)
    types = size[size > 0].nlargest(most).index
    return matrix.loc[matrix.index.isin(types), matrix.columns.isin(types)]
