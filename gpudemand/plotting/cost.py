"""Figures of what training costs: the structural matrix of a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gpudemand._validation import InputError, check_number
from gpudemand.cost import OpGraph, structural_matrix
from gpudemand.plotting._base import Display, put_kind, put_title, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

#: What a graph is: neither measured nor made up, but read off the code of a network.
TRACED = "traced from code"
_UNITS = {None: "edges", "flops": "FLOP a sample", "bytes": "bytes a sample", "parameters": "parameters"}


class StructuralMatrixDisplay(Display):
    """Which operators feed which in a network, as a heat map; or what two networks differ in.

    Build it with `from_graph` or `from_difference`.

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
    ax_, figure_ : Axes, Figure
        After `plot`.

    Examples
    --------
    >>> matrix = pd.DataFrame([[0, 3], [2, 0]], index=["Conv", "Relu"], columns=["Conv", "Relu"])
    >>> StructuralMatrixDisplay(matrix, title="net").matrix.loc["Conv", "Relu"]
    3
    """

    _size = (5.6, 4.6)

    def __init__(self, matrix: pd.DataFrame, *, title: str, label: str = "edges") -> None:
        self.matrix = matrix
        self.title = title
        self.label = label

    @classmethod
    def from_graph(cls, graph: OpGraph, *, weight: str | None = None, most: int = 14) -> StructuralMatrixDisplay:
        """Count the edges of a graph.

        Parameters
        ----------
        graph : OpGraph
            The network.
        weight : {None, "flops", "bytes", "parameters"}, default=None
            What an edge counts for; see `structural_matrix`.
        most : int, default=14
            Operator types to show, those with the largest sums.

        Returns
        -------
        StructuralMatrixDisplay
        """
        return cls(_largest(structural_matrix(graph, weight), most), title=graph.name, label=_UNITS[weight])

    @classmethod
    def from_difference(cls, graph: OpGraph, other: OpGraph, *, most: int = 14) -> StructuralMatrixDisplay:
        """Count the edges that `graph` has more of than `other`.

        Parameters
        ----------
        graph, other : OpGraph
            Two networks.
        most : int, default=14
            Operator types to show, those with the largest differences.

        Returns
        -------
        StructuralMatrixDisplay
        """
        first, second = structural_matrix(graph), structural_matrix(other)
        types = first.index.union(second.index, sort=False)
        aligned = (part.reindex(index=types, columns=types, fill_value=0) for part in (first, second))
        difference = next(aligned) - next(aligned)
        if not difference.to_numpy().any():
            raise InputError(
                f"{graph.name} and {other.name} have the same structural matrix; there is nothing to show."
            )
        return cls(_largest(difference, most), title=f"{graph.name} less {other.name}")

    def _draw(self, ax: Axes) -> None:
        self.mesh_ = self._heat(ax)
        names = [short_name(name, 20) for name in self.matrix.index]
        places = np.arange(len(names)) + 0.5
        ax.set_xticks(places, names, rotation=50, ha="right", rotation_mode="anchor")
        ax.set_yticks(places, names)
        ax.set_xlabel("consumer", loc="left")
        ax.set_ylabel("producer", loc="top")
        ax.invert_yaxis()
        ax.set_aspect("equal")
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        put_title(ax, self.title)
        put_kind(ax, TRACED)

    def _heat(self, ax: Axes) -> QuadMesh:
        from matplotlib.colors import LogNorm, SymLogNorm

        values = self.matrix.to_numpy(dtype=float)
        top = np.abs(values).max() or 1.0
        smallest = np.abs(values[values != 0]).min() if values.any() else top
        signed = (values < 0).any()
        # A log scale that starts below the smallest entry, so that the smallest is still told from none.
        norm: Any = SymLogNorm(smallest, vmin=-top, vmax=top) if signed else LogNorm(smallest / 3, top)
        mesh = ax.pcolormesh(np.where(values == 0, np.nan, values), norm=norm, cmap="RdBu_r" if signed else "Greys")
        mesh.set(edgecolor="#f1f1f3", linewidth=0.8)
        bar = self.figure_.colorbar(mesh, ax=ax, pad=0.02, aspect=22, format="{x:,.6g}")
        bar.outline.set_visible(False)
        bar.set_label(self.label)
        return mesh


def _largest(matrix: pd.DataFrame, most: int) -> pd.DataFrame:
    """Keep the types with the largest sums over row and column; those without an edge go."""
    check_number("most", most, 1, integer=True)
    size = matrix.abs().sum(axis=0) + matrix.abs().sum(axis=1)
    kept = size[size > 0].nlargest(most).index
    return matrix.loc[matrix.index.isin(kept), matrix.columns.isin(kept)]
