from __future__ import annotations

import dataclasses
import json
import pickle
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpudemand.cost
from gpudemand._tables import format_amount
from gpudemand.cost.graph import Operator, OpGraph
from gpudemand.cost.operators import Kernel

GOLDEN = Path(__file__).parent / "golden"


def row(**changes) -> Operator:
    plain = Operator("Relu", "", "layer", "relu", (1, 4), 0.0, 0, 0.0, 16.0, 16.0, 16.0)
    return plain._replace(**changes)


def test_names_are_loaded_on_first_use():
    assert gpudemand.cost.OpGraph is OpGraph
    assert all(getattr(gpudemand.cost, name) for name in dir(gpudemand.cost))
    with pytest.raises(AttributeError, match="attribute Graph"):
        _ = gpudemand.cost.Graph


def test_totals():
    rows = [row(type="Gemm", flops=40.0, parameters=20, saved_bytes=8.0), row(), row(type="Add")]
    graph = OpGraph.from_operators(rows, [(0, 1), (1, 2), (0, 2)])
    assert (graph.flops, graph.saved_bytes, graph.depth, graph.n_layers) == (40, 40, 3, 1)
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert graph.other_ == ()


def test_graph_is_immutable_and_can_be_pickled():
    graph = OpGraph.from_operators([row()], [], name="net")
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.name = "other"
    frame = graph.to_frame()
    frame["flops"] = 1.0
    assert graph.flops == 0
    copy = pickle.loads(pickle.dumps(graph))
    assert copy.nodes.equals(graph.nodes)
    assert repr(copy) == repr(graph)


@pytest.mark.parametrize("rows", [[row(), row(type="Add", name="sum")], []], ids=["two", "empty"])
def test_graph_goes_through_json(rows):
    kernels = pd.DataFrame([Kernel("gemm", flops=2.0)]) if rows else None
    about = {"name": "net", "kernels": kernels, "input_shapes": ((4,),), "caveats": ("a loop",)}
    graph = OpGraph.from_operators(rows, [(0, 1)] if rows else [], **about)
    copy = OpGraph.from_dict(json.loads(json.dumps(graph.to_dict())))
    assert copy.nodes.to_dict("list") == graph.nodes.to_dict("list")
    assert copy.edges.tolist() == graph.edges.tolist()
    assert (copy.input_shapes, copy.caveats, repr(copy)) == (graph.input_shapes, graph.caveats, repr(graph))
    assert (copy.kernels is None) if kernels is None else copy.kernels.equals(kernels)
    nameless = graph.to_dict() | {"nodes": graph.nodes.drop(columns=["name", "operator"]).to_dict("list")}
    assert OpGraph.from_dict(nameless).flops == graph.flops


def test_empty_graph_prints():
    graph = OpGraph.from_operators([], [])
    assert graph.depth == graph.flops == 0
    assert "0 operators, 0 edges" in repr(graph)


def test_html_is_escaped():
    graph = OpGraph.from_operators([row(name="<b>")], [], name="<i>")
    assert "<b>" not in graph._repr_html_()
    assert "<i>" not in graph._repr_html_()
    assert "<table" in graph._repr_html_()


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [(0, "FLOP", "0 FLOP"), (0, "", ""), (999, "B", "999 B"), (2.5e12, "FLOP", "2.5 TFLOP")],
)
def test_amounts_are_readable(value, unit, expected):
    assert format_amount(value, unit) == expected


@pytest.mark.parametrize("name", ["resnet18", "decoder", "recurrent"])
def test_repr_matches_the_golden_text(name):
    pytest.importorskip("torch")
    from tests.cost import networks

    make, shape = {
        "resnet18": (networks.resnet18, (3, 224, 224)),
        "decoder": (networks.Decoder, (16,)),
        "recurrent": (networks.Recurrent, (20,)),
    }[name]
    printed = repr(OpGraph.from_torch(make(), shape))
    assert printed + "\n" == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.slow
def test_large_networks_are_traced_in_seconds():
    torch = pytest.importorskip("torch")
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, device="meta")
    module = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    OpGraph.from_torch(torch.nn.Linear(1, 1), (1,))  # first-use initialisation of PyTorch
    start = time.process_time()
    graph = OpGraph.from_torch(module, (512, 768))
    assert time.process_time() - start < 3
    assert graph.flops == pytest.approx(12 * 2 * (12 * 768**2 * 512 + 2 * 512**2 * 768))
    assert np.isclose(graph.n_parameters, 12 * 12 * 768**2, rtol=0.01)
