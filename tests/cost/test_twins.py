"""The same network in both frameworks is the same graph."""

from __future__ import annotations

import functools
import os

import pandas as pd
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
pytest.importorskip("torch")
pytest.importorskip("tensorflow")

from gpudemand.cost import CostModel, TrainingJob
from gpudemand.cost.graph import OpGraph, structural_matrix
from tests.tiers import slow_where

zoo = pytest.importorskip("benchmarks.zoo", reason="runs from a checkout")
from tests.cost.test_zoo import TRACED  # noqa: E402

#: PyTorch's attention is one fused operator; TensorFlow multiplies, scales, masks and normalises, scores in memory.
ATTENTION = ("vit_tiny", "bert", "gpt")
IDENTICAL = tuple(name for name in TRACED if name not in ATTENTION)
FUSED, WRITTEN_OUT = {"Attention"}, {"MatMul", "Mul", "Where", "Softmax"}
#: Many operators, each of which a smaller network has.
DEEP = (
    *("resnext29", "se_resnet18", "preact_resnet18", "vit_tiny", "googlenet"),
    *("mobilenet_v2", "shufflenet_v2", "efficientnet_b0", "convnext_tiny"),
)
#: Half the width and half the blocks of each stage: the same operators in less time.
SIZE = {"width": 0.5, "depth": 0.5}


@functools.cache
def twins(name: str) -> tuple[OpGraph, OpGraph]:
    shape = {"image": (3, 32, 32), "tokens": (32,)}[zoo.kind(name)]
    module, model = (zoo.build(name, framework, shape, **SIZE) for framework in ("torch", "keras"))
    return OpGraph.from_torch(module, shape), OpGraph.from_keras(model)


@pytest.mark.parametrize("name", slow_where(DEEP.__contains__, TRACED))
def test_parameters_and_operations_agree(name):
    torch, keras = twins(name)
    assert torch.n_parameters == keras.n_parameters == keras.nodes["parameters"].sum()
    assert torch.n_trainable == keras.n_trainable
    assert torch.flops == pytest.approx(keras.flops, rel=1e-6)
    assert torch.other_ == keras.other_ == ()


@pytest.mark.parametrize("name", slow_where(DEEP.__contains__, IDENTICAL))
def test_matrices_are_identical(name):
    torch, keras = twins(name)
    pd.testing.assert_frame_equal(structural_matrix(torch), structural_matrix(keras))
    assert torch.depth == keras.depth
    kinds = [graph.nodes["kind"].value_counts().to_dict() for graph in (torch, keras)]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("name", slow_where(DEEP.__contains__, ATTENTION))
def test_matrices_differ_in_attention_alone(name):
    torch, keras = twins(name)
    difference = structural_matrix(torch).sub(structural_matrix(keras), fill_value=0).fillna(0).stack()
    touched = {type_ for pair in difference.index[difference != 0] for type_ in pair}
    assert touched <= FUSED | WRITTEN_OUT | {"Gemm"}
    n_attentions = (torch.nodes["type"] == "Attention").sum()
    assert (keras.nodes["type"] == "MatMul").sum() == 2 * n_attentions
    assert (keras.nodes["type"] == "Softmax").sum() == n_attentions > 0


@pytest.mark.parametrize(
    "name", slow_where(DEEP.__contains__, ["resnet18", "mobilenet_v2", "convnext_tiny", "efficientnet_b0"])
)
def test_rules_for_saved_bytes_agree_with_autograd(name):
    # Measured from autograd in PyTorch, by rules in Keras: equal but for statistics of normalisations and indices of
    # maxima.
    torch, keras = twins(name)
    assert keras.saved_bytes == pytest.approx(torch.saved_bytes, rel=0.03)


@pytest.mark.parametrize("name", slow_where(DEEP.__contains__, ["resnet18", "squeezenet", "convnext_tiny", "vit_tiny"]))
def test_step_times_agree(name):
    options = {"batch_size": 1024, "device": "H200", "layout": "channels_last", "execution": "compiled"}
    jobs = [TrainingJob(graph, **options) for graph in twins(name)]
    torch, keras = CostModel.load().predict(jobs)["step_time_s"]
    assert keras == pytest.approx(torch, rel=0.4)


def test_lstm_differs_by_the_second_bias_of_torch():
    torch, keras = twins("lstm")
    recurrent = torch.nodes[torch.nodes["type"] == "LSTM"]
    hidden = recurrent["output_shape"].str[-1]
    assert torch.n_parameters - keras.n_parameters == 4 * hidden.sum()
    assert torch.flops == pytest.approx(keras.flops, rel=1e-6)
