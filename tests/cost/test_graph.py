from __future__ import annotations

import dataclasses
import pickle
import time
from pathlib import Path

import numpy as np
import pytest

import gpudemand.cost
from gpudemand._printing import format_amount
from gpudemand.cost.graph.op_graph import Operator, OpGraph
from gpudemand.cost.operators.arithmetic import attention_flops, einsum_flops, weighted_flops
from gpudemand.cost.operators.vocabulary import (
    SAVES,
    VOCABULARY,
    convolution_kind,
    tensorflow_type,
    torch_type,
)
from gpudemand.cost.tracing.recorder import Costs, Label, Recorder, single_sample

GOLDEN = Path(__file__).parent / "golden"


def row(**changes) -> Operator:
    plain = Operator("Relu", "", "layer", "relu", (1, 4), 0.0, 0, 0.0, 16.0, 16.0, 16.0)
    return plain._replace(**changes)


def label(name: str) -> Label:
    return Label("Relu", "", name, "relu", (2, 4))


def test_names_are_loaded_on_first_use():
    assert gpudemand.cost.OpGraph is OpGraph
    assert all(getattr(gpudemand.cost, name) for name in dir(gpudemand.cost))
    with pytest.raises(AttributeError, match="no attribute 'Graph'"):
        _ = gpudemand.cost.Graph


def test_totals():
    rows = [row(type="Gemm", flops=40.0, parameters=20, saved_bytes=8.0), row(), row(type="Add")]
    graph = OpGraph.from_operators(rows, [(0, 1), (1, 2), (0, 2)])
    assert (graph.flops, graph.saved_bytes, graph.depth, graph.n_layers) == (40, 40, 3, 1)
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert graph.other_ == ()


def test_graph_is_frozen_and_survives_a_pickle():
    graph = OpGraph.from_operators([row()], [], name="net")
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.name = "other"
    frame = graph.to_frame()
    frame["flops"] = 1.0
    assert graph.flops == 0
    copy = pickle.loads(pickle.dumps(graph))
    assert copy.nodes.equals(graph.nodes)
    assert repr(copy) == repr(graph)


def test_empty_graph_prints():
    graph = OpGraph.from_operators([], [])
    assert graph.depth == graph.flops == 0
    assert "0 operators, 0 edges" in repr(graph)


def test_html_is_escaped():
    graph = OpGraph.from_operators([row(name="<b>")], [], name="<i>")
    assert "<b>" not in graph._repr_html_()
    assert "<i>" not in graph._repr_html_()
    assert "<table" in graph._repr_html_()


def test_recorder_follows_data_through_views_and_writes():
    recorder = Recorder(batch=2)
    recorder.feed("input", batched=True)
    recorder.add(label("first"), Costs(flops=8.0), reads=["input"], writes=["a"], parameters={"w": 3})
    recorder.alias("view", of="a")
    recorder.add(label("in place"), Costs(), reads=["view"], writes=["a"], parameters={"w": 3, "v": 2})
    recorder.add(label("last"), Costs(), reads=["a", "constant"], writes=["b"], parameters={})
    recorder.feed("table", batched=False)
    recorder.add(label("constant"), Costs(), reads=["table"], writes=["c"], parameters={})
    graph = recorder.graph()
    assert graph.nodes["output_shape"].tolist() == [(1, 4), (1, 4), (1, 4), (2, 4)]
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.nodes["parameters"].tolist() == [3, 2, 0, 0]
    assert graph.flops == 4
    assert not recorder.is_live("constant")


def test_what_is_saved_twice_counts_once():
    recorder = Recorder(batch=2)
    for name in ("first", "second"):
        recorder.add(label(name), Costs(), reads=[], writes=[name], parameters={})
        recorder.save("input", 64.0)
        recorder.save(name, 8.0)
    assert recorder.graph().nodes["saved_bytes"].tolist() == [36, 4]


def test_vocabulary_is_closed():
    assert set(SAVES) <= set(VOCABULARY)
    assert len(VOCABULARY) == len(set(VOCABULARY))
    assert torch_type("_no_such_operator") == tensorflow_type("NoSuchOp") == "Other"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("conv2d", "Conv"), ("add_", "Add"), ("__iadd__", "Add"), ("__setitem__", "Scatter"), ("_softmax", "Softmax")],
)
def test_names_of_torch(name, expected):
    assert torch_type(name) == expected


@pytest.mark.parametrize(
    ("kernel", "groups", "channels", "expected"),
    [
        ((1, 1), 1, 8, "1x1"),
        ((3, 3), 1, 8, "3x3"),
        ((1, 7), 1, 8, "large"),
        ((3, 3), 4, 8, "grouped"),
        ((1, 1), 8, 8, "depthwise"),
        ((3,), 1, 1, "3x3"),
    ],
)
def test_kinds_of_convolutions(kernel, groups, channels, expected):
    assert convolution_kind(kernel, groups, channels) == expected


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)], 2 * 24),
        ("ij,jk", [(2, 3), (3, 4)], 2 * 24),
        ("bhqd,bhkd->bhqk", [(2, 4, 5, 8), (2, 4, 6, 8)], 2 * 2 * 4 * 5 * 6 * 8),
        ("...ij,...jk->...ik", [(7, 2, 3), (7, 3, 4)], 2 * 7 * 24),
        ("ij,ij->ij", [(2, 3), (2, 3)], 0),
        ("ij->ji", [(2, 3)], 0),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)], 2 * (2 * 3 * 4 + 2 * 4 * 5)),
    ],
)
def test_einstein_sums(equation, shapes, expected):
    assert einsum_flops(equation, shapes) == expected


def test_formulas_agree_where_they_meet():
    assert weighted_flops(10, 4 * 5) == einsum_flops("ti,io->to", [(10, 4), (4, 5)])
    query, key = (2, 4, 10, 8), (2, 4, 12, 8)
    scores = einsum_flops("bhqd,bhkd->bhqk", [query, key])
    assert attention_flops(query, key, key) == 2 * scores


def test_shapes_are_printed_for_one_sample():
    assert single_sample((2, 3, 4), 2) == (1, 3, 4)
    assert single_sample((8, 2, 16), 2) == (8, 1, 16)
    assert single_sample((7, 8, 16), 2) == (7, 4, 16)
    assert single_sample((), 2) == ()


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [(0, "FLOP", "0 FLOP"), (0, "", ""), (999, "B", "999 B"), (2.5e12, "FLOP", "2.5 TFLOP")],
)
def test_amounts_are_readable(value, unit, expected):
    assert format_amount(value, unit) == expected


@pytest.mark.parametrize("name", ["resnet18", "decoder", "recurrent"])
def test_what_the_reader_sees(name):
    pytest.importorskip("torch")
    from tests.cost import networks

    make, shape = {
        "resnet18": (networks.resnet18, (3, 224, 224)),
        "decoder": (networks.Decoder, (16,)),
        "recurrent": (networks.Recurrent, (20,)),
    }[name]
    seen = repr(OpGraph.from_torch(make(), shape))
    assert seen + "\n" == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_large_networks_are_traced_in_seconds():
    torch = pytest.importorskip("torch")
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, device="meta")
    module = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    OpGraph.from_torch(torch.nn.Linear(1, 1), (1,))  # what PyTorch loads on first use
    start = time.process_time()
    graph = OpGraph.from_torch(module, (512, 768))
    assert time.process_time() - start < 3
    assert graph.flops == pytest.approx(12 * 2 * (12 * 768**2 * 512 + 2 * 512**2 * 768))
    assert np.isclose(graph.n_parameters, 12 * 12 * 768**2, rtol=0.01)
