"""The same network in both frameworks is the same graph."""

from __future__ import annotations

import functools
import os

import pandas as pd
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
pytest.importorskip("torch")
pytest.importorskip("tensorflow")

from gpudemand.cost import zoo
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.graph.structural_matrix import structural_matrix

IDENTICAL = (
    "lenet",
    "vgg11",
    "resnet18",
    "preact_resnet18",
    "se_resnet18",
    "resnext29",
    "googlenet",
    "squeezenet",
    "mobilenet_v2",
    "shufflenet_v2",
    "efficientnet_b0",
    "convnext_tiny",
    "gru",
)
#: PyTorch's attention is one fused operator; TensorFlow multiplies, scales, masks and normalises, scores in memory.
ATTENTION = ("vit_tiny", "bert", "gpt")
FUSED, WRITTEN_OUT = {"Attention"}, {"MatMul", "Mul", "Where", "Softmax"}
#: Weights of half the width trace the same operators in less time.
WIDTH = 0.5


@functools.cache
def twins(name: str) -> tuple[OpGraph, OpGraph]:
    shape = {"image": (3, 32, 32), "tokens": (32,)}[zoo.kind(name)]
    module, model = (zoo.build(name, framework, shape, width=WIDTH) for framework in ("torch", "keras"))
    return OpGraph.from_torch(module, shape), OpGraph.from_keras(model)


@pytest.mark.parametrize("name", [*IDENTICAL, *ATTENTION])
def test_parameters_and_operations_agree(name):
    ours, theirs = twins(name)
    assert ours.n_parameters == theirs.n_parameters == theirs.nodes["parameters"].sum()
    assert ours.n_trainable == theirs.n_trainable
    assert ours.flops == pytest.approx(theirs.flops, rel=1e-6)
    assert ours.other_ == theirs.other_ == ()


@pytest.mark.parametrize("name", IDENTICAL)
def test_matrices_are_identical(name):
    ours, theirs = twins(name)
    pd.testing.assert_frame_equal(structural_matrix(ours), structural_matrix(theirs))
    assert ours.depth == theirs.depth
    kinds = [graph.nodes["kind"].value_counts().to_dict() for graph in (ours, theirs)]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("name", ATTENTION)
def test_matrices_differ_in_attention_alone(name):
    ours, theirs = twins(name)
    difference = structural_matrix(ours).sub(structural_matrix(theirs), fill_value=0).fillna(0).stack()
    touched = {type_ for pair in difference.index[difference != 0] for type_ in pair}
    assert touched <= FUSED | WRITTEN_OUT | {"Gemm"}
    n_attentions = (ours.nodes["type"] == "Attention").sum()
    assert (theirs.nodes["type"] == "MatMul").sum() == 2 * n_attentions
    assert (theirs.nodes["type"] == "Softmax").sum() == n_attentions > 0


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "convnext_tiny", "efficientnet_b0"])
def test_rules_for_saved_bytes_agree_with_autograd(name):
    # What PyTorch saves is heard from autograd; what Keras saves is a rule: within the statistics of normalisations
    # and the places of maxima they are the same.
    ours, theirs = twins(name)
    assert theirs.saved_bytes == pytest.approx(ours.saved_bytes, rel=0.03)


def test_lstm_differs_by_the_second_bias_of_torch():
    ours, theirs = twins("lstm")
    recurrent = ours.nodes[ours.nodes["type"] == "LSTM"]
    hidden = recurrent["output_shape"].str[-1]
    assert ours.n_parameters - theirs.n_parameters == 4 * hidden.sum()
    assert ours.flops == pytest.approx(theirs.flops, rel=1e-6)
