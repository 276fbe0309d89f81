"""Heat maps of structural matrices."""

from __future__ import annotations

import numpy as np
import pytest

from gpudemand._validation import InputError
from gpudemand.cost.graph import Operator, OpGraph
from gpudemand.plotting import StructuralMatrixDisplay


def chain(*types, name="net"):
    """A network whose operators feed one another in a row."""
    operators = [Operator(kind, "", "", kind, (1, 4), 8.0, 2, 8.0, 16.0, 16.0, 16.0) for kind in types]
    return OpGraph.from_operators(operators, [(i, i + 1) for i in range(len(types) - 1)], name=name)


def test_heat_map_labels_and_corner():
    display = StructuralMatrixDisplay.from_graph(chain("Conv", "Relu", "Conv", "Relu", "Gemm", name="a $b_ net")).plot()
    assert display.matrix.loc["Conv", "Relu"] == 2
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == list(display.matrix.index)
    assert display.ax_.get_title(loc="left") == "a $b_ net"
    assert "traced from code" in [text.get_text() for text in display.ax_.texts]
    assert np.ma.count(display.mesh_.get_array()) == 3


def test_weights_have_their_unit():
    display = StructuralMatrixDisplay.from_graph(chain("Conv", "Relu"), weight="flops")
    assert display.label == "FLOP per sample"


def test_only_the_largest_types_are_shown():
    graph = chain("Conv", "Relu", "Conv", "Relu", "Conv", "Gemm")
    assert set(StructuralMatrixDisplay.from_graph(graph, most=2).matrix.index) == {"Conv", "Relu"}
    with pytest.raises(InputError, match="most must be"):
        StructuralMatrixDisplay.from_graph(graph, most=0)
