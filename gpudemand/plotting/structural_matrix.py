"""Figure of the structural matrix of a network."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand._validation import InputError, check_number
from gpudemand.cost import OpGraph, structural_matrix
from gpudemand.plotting._base import Display, annotate, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Kind of data of a graph, which is neither measured nor synthetic.
TRACED = "traced from code"
_UNITS = {None: "edges", "flops": "FLOP per sample", "bytes": "bytes per sample", "parameters": "parameters"}


@dataclass(eq=False, repr=False)
class StructuralMatrixDisplay(Display):
    """Heat map of the edge counts between operator types of a network, or of the difference of two networks.

    Parameters
    ----------
    matrix : DataFrame of shape (n_types, n_types)
        Row: producer, column: consumer. Negative entries are allowed in a difference.
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
    >>> int(StructuralMatrixDisplay(matrix, title="net").matrix.loc["Conv", "Relu"])
    3
    """

    _size = (5.6, 4.6)

    matrix: pd.DataFrame
    _: KW_ONLY
    title: str
    label: str = "edges"

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

        Returns
        -------
        StructuralMatrixDisplay
        """
        return cls(_largest(structural_matrix(graph, weight), most), title=graph.name, label=_UNITS[weight])

    @classmethod
    def from_difference(cls, graph: OpGraph, other: OpGraph, *, most: int = 14) -> StructuralMatrixDisplay:
        """Show the structural matrix of `graph` minus that of `other`.

        Parameters
        ----------
        graph, other : OpGraph
            Two networks.
        most : int, default=14
            Operator types to show, those with the largest differences.

        Raises
        ------
        InputError
            If the matrices are equal.

        Returns
        -------
        StructuralMatrixDisplay
        """
        first, second = structural_matrix(graph), structural_matrix(other)
        types = first.index.union(second.index, sort=False)
        first, second = (part.reindex(index=types, columns=types, fill_value=0) for part in (first, second))
        if first.equals(second):
            raise InputError(
                f"{graph.name} and {other.name} have the same structural matrix; there is nothing to show."
            )
        return cls(_largest(first - second, most), title=f"{graph.name} minus {other.name}")

    def _draw(self, ax: Axes) -> None:
        from matplotlib.colors import LogNorm, SymLogNorm

        values = self.matrix.to_numpy(dtype=float)
        top = np.abs(values).max() or 1.0
        smallest = np.abs(values[values != 0]).min() if values.any() else top
        signed = (values < 0).any()
        # The log scale starts below the smallest entry, so that it differs from zero.
        norm: Any = SymLogNorm(smallest, vmin=-top, vmax=top) if signed else LogNorm(smallest / 3, top)
        options = {"norm": norm, "cmap": "RdBu_r" if signed else "Greys", "edgecolor": "#f1f1f3", "linewidth": 0.8}
        self.mesh_ = self._heat_map(ax, np.where(values == 0, np.nan, values), self.label, **options)
        names = [short_name(name, 20) for name in self.matrix.index]
        places = np.arange(len(names)) + 0.5
        ax.set_xticks(places, names, rotation=50, ha="right", rotation_mode="anchor")
        ax.set_yticks(places, names)
        ax.set_xlabel("consumer", loc="left")
        ax.set_ylabel("producer", loc="top")
        ax.set_aspect("equal")
        annotate(ax, self.title, TRACED)


def _largest(matrix: pd.DataFrame, most: int) -> pd.DataFrame:
    """Select the types with the largest sums over row and column; those without an edge are dropped."""
    check_number("most", most, 1, integer=True)
    size = matrix.abs().sum(axis=0) + matrix.abs().sum(axis=1)
    types = size[size > 0].nlargest(most).index
    return matrix.loc[matrix.index.isin(types), matrix.columns.isin(types)]
