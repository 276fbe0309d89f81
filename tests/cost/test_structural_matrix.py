from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudemand._validation import InputError
from gpudemand.cost.graph import Operator, OpGraph, edge_weights, structural_matrix
from gpudemand.cost.operators import VOCABULARY

TYPES = ("Conv", "BatchNormalization", "Relu", "Add", "Gemm", "Other")


def operator(type_: str, flops: float = 0.0, parameters: int = 0, written: float = 0.0) -> Operator:
    return Operator(type_, "", type_.lower(), type_, (1,), flops, parameters, 0.0, 0.0, written, 0.0)


@st.composite
def graphs(draw) -> OpGraph:
    n = draw(st.integers(1, 12))
    amounts = st.integers(0, 1000)
    nodes = [operator(draw(st.sampled_from(TYPES)), draw(amounts), draw(amounts), draw(amounts)) for _ in range(n)]
    pairs = [(i, j) for j in range(n) for i in range(j)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return OpGraph.from_operators(nodes, edges)


def brute_force(graph: OpGraph, weight: str | None) -> dict[tuple[str, str], float]:
    """Reference implementation, edge by edge."""
    cells: dict[tuple[str, str], float] = {}
    rows = graph.nodes.to_dict("records")
    for producer, consumer in graph.edges.tolist():
        reached_by = sum(1 for _, other in graph.edges.tolist() if other == consumer)
        value = {
            None: 1.0,
            "bytes": rows[producer]["bytes_written"],
            "flops": rows[consumer]["flops"] / reached_by,
            "parameters": rows[consumer]["parameters"] / reached_by,
        }[weight]
        cell = rows[producer]["type"], rows[consumer]["type"]
        cells[cell] = cells.get(cell, 0.0) + value
    return cells


@settings(max_examples=50)
@given(graphs(), st.sampled_from([None, "flops", "bytes", "parameters"]))
def test_matrix_equals_the_reference(graph, weight):
    matrix = structural_matrix(graph, weight)
    cells = brute_force(graph, weight)
    for producer in matrix.index:
        for consumer in matrix.columns:
            assert matrix.loc[producer, consumer] == pytest.approx(cells.get((producer, consumer), 0.0))
    assert matrix.to_numpy().sum() == pytest.approx(sum(cells.values()))


@settings(max_examples=50)
@given(graphs())
def test_flops_sum_to_those_of_operators_with_producers(graph):
    with_producers = np.unique(graph.edges[:, 1])
    assert edge_weights(graph, "flops").sum() == pytest.approx(graph.nodes["flops"].to_numpy()[with_producers].sum())


@settings(max_examples=50)
@given(graphs())
def test_depth_is_the_longest_path(graph):
    def longest(node: int) -> int:
        return 1 + max((longest(i) for i, j in graph.edges.tolist() if j == node), default=0)

    assert graph.depth == max(longest(node) for node in range(len(graph.nodes)))


CHAIN = OpGraph.from_operators(
    [operator("Conv"), operator("BatchNormalization"), operator("Relu"), operator("Conv")], [(0, 1), (1, 2), (2, 3)]
)
DENSE = OpGraph.from_operators([operator("Gemm"), operator("Gelu"), operator("Gemm")], [(0, 1), (1, 2)])


def test_rows_and_columns_are_in_the_order_of_the_vocabulary():
    matrix = structural_matrix(CHAIN)
    assert list(matrix.index) == list(matrix.columns) == ["Conv", "BatchNormalization", "Relu"]
    assert matrix.loc["Relu", "Conv"] == 1
    assert matrix.dtypes.eq("int64").all()
    assert structural_matrix(CHAIN, vocabulary=VOCABULARY).shape == (len(VOCABULARY),) * 2


def test_unlisted_types_count_as_other():
    matrix = structural_matrix(CHAIN, vocabulary=["Conv", "Other"])
    assert matrix.to_numpy().tolist() == [[0, 1], [1, 1]]
    with pytest.raises(InputError, match="'BatchNormalization', which the vocabulary lacks; add it or 'Other'"):
        structural_matrix(CHAIN, vocabulary=["Conv"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: structural_matrix("resnet"), "must be an OpGraph .*got str"),
        (lambda: structural_matrix(CHAIN, "flop"), "Did you mean 'flops'"),
        (lambda: structural_matrix(CHAIN, vocabulary=["Convolution"]), "'Convolution' is no operator type"),
    ],
)
def test_invalid_input_is_reported(call, message):
    with pytest.raises(InputError, match=message):
        call()
