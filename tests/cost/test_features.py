from __future__ import annotations

from gpudemand.cost.graph import Operator, OpGraph
from gpudemand.cost.graph_features import (
    OPERATOR_CLASSES,
    graph_features,
    operator_classes,
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
