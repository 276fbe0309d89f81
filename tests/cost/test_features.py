from __future__ import annotations

import pytest
from sklearn.pipeline import make_union

from gpudemand._validation import InputError
from gpudemand.cost.graph import NetworkStructuralMatrix, Operator, OpGraph
from gpudemand.cost.graph_features import (
    OPERATOR_CLASSES,
    GraphFeatures,
    graph_features,
    operator_classes,
    shape_inference_memory,
    training_flops,
)
from gpudemand.cost.operators import VOCABULARY

NODES = [
    Operator("Conv", "3x3", "a", "conv2d", (1, 8, 4, 4), 1000.0, 80, 320.0, 64.0, 128.0, 64.0),
    Operator("Conv", "depthwise", "b", "conv2d", (1, 8, 4, 4), 100.0, 8, 32.0, 128.0, 128.0, 128.0),
    Operator("Relu", "", "c", "relu", (1, 8, 4, 4), 0.0, 0, 0.0, 128.0, 128.0, 128.0),
]
GRAPH = OpGraph.from_operators(NODES, [(0, 1), (1, 2)], n_parameters=88, n_trainable=80, parameter_bytes=352.0)


def test_every_type_of_the_vocabulary_has_a_class():
    nodes = OpGraph.from_operators([NODES[0]._replace(type=name, kind="") for name in VOCABULARY], []).nodes
    assert set(operator_classes(nodes)) <= set(OPERATOR_CLASSES)


def test_totals_and_classes():
    features = graph_features(GRAPH)
    assert features["flops"] == 1100
    assert features["bytes"] == 704
    assert features["saved_bytes"] == 320
    assert features["largest_output_bytes"] == 128
    assert features[["parameters", "trainable_parameters", "operators", "edges", "depth", "layers"]].tolist() == [
        88,
        80,
        3,
        2,
        3,
        2,
    ]
    assert features["flops_conv_depthwise"] == 100
    assert features["bytes_conv_3x3"] == 192
    assert features["calls_activation"] == 1
    for amount in ("flops", "bytes", "saved_bytes"):
        assert sum(features[f"{amount}_{group}"] for group in OPERATOR_CLASSES) == features[amount]


def test_transformer_joins_with_the_structural_matrix():
    union = make_union(GraphFeatures(), NetworkStructuralMatrix())
    rows = union.fit_transform([GRAPH, GRAPH])
    names = union.get_feature_names_out()
    assert rows.shape == (2, len(names))
    assert rows[0][names.tolist().index("graphfeatures__flops")] == 1100
    assert rows[0][names.tolist().index("networkstructuralmatrix__Conv->Relu")] == 1


def test_memory_by_shape_inference():
    estimate = shape_inference_memory(GRAPH, 10, "adam")
    assert estimate == (352, 320, 640, 3200)
    assert estimate.total == 4512
    assert shape_inference_memory(GRAPH, 10, "adam", dtype_bytes=2).total == 4512 / 2
    assert shape_inference_memory(GRAPH, 1, "sgd").optimizer_state == 0


def test_training_costs_three_forward_passes():
    assert training_flops(GRAPH, 4) == 3 * 4 * 1100


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shape_inference_memory(GRAPH, 0), "batch_size must be a whole number of at least 1"),
        (lambda: shape_inference_memory(GRAPH, 1, "adamm"), "Did you mean 'adam"),
        (lambda: training_flops(GRAPH, 1.5), "batch_size must be a whole number"),
        (lambda: GraphFeatures().fit(["vgg"]), "must be an OpGraph"),
    ],
)
def test_invalid_input_is_reported(call, message):
    with pytest.raises(InputError, match=message):
        call()
