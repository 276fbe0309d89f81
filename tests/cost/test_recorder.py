from __future__ import annotations

from gpudemand.cost.graph import Operator, OpGraph
from gpudemand.cost.tracing import Recorder, single_sample


def call(name: str, **amounts: float) -> Operator:
    return Operator("Relu", "", name, "relu", (2, 4), **amounts)


def graph_of(recorder: Recorder) -> OpGraph:
    traced = recorder.traced(name="net")
    return OpGraph.from_operators(traced.operators, traced.edges, **traced.attributes)


def test_data_is_followed_through_views_and_in_place_writes():
    recorder = Recorder(batch=2)
    recorder.feed("input", batched=True)
    recorder.add(call("first", flops=8.0), reads=["input"], writes=["a"], parameters={"w": 3})
    recorder.alias("view", of="a")
    recorder.add(call("in place"), reads=["view"], writes=["a"], parameters={"w": 3, "v": 2})
    recorder.add(call("last"), reads=["a", "constant"], writes=["b"], parameters={})
    recorder.feed("table", batched=False)
    recorder.add(call("constant"), reads=["table"], writes=["c"], parameters={})
    graph = graph_of(recorder)
    assert graph.name == "net"
    assert graph.nodes["output_shape"].tolist() == [(1, 4), (1, 4), (1, 4), (2, 4)]
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.producers == [[], [0], [1], []]
    assert graph.nodes["parameters"].tolist() == [3, 2, 0, 0]
    assert graph.flops == 4
    assert not recorder.is_live("constant")


def test_a_tensor_saved_twice_counts_once():
    recorder = Recorder(batch=2)
    recorder.feed("input", batched=True)
    for name in ("first", "second"):
        recorder.add(call(name), reads=["input"], writes=[name], parameters={})
        recorder.save("input", 64.0)
        recorder.save(name, 8.0)
    assert graph_of(recorder).nodes["saved_bytes"].tolist() == [36, 4]


def test_work_on_parameters_alone_is_fixed():
    recorder = Recorder(batch=2)
    recorder.feed("input", batched=True)
    recorder.feed("table", batched=False)
    amounts = {"flops": 8.0, "bytes_read": 4.0, "bytes_written": 16.0}
    recorder.add(call("bias", **amounts), reads=["table"], writes=["bias"], parameters={"table": 1})
    recorder.add(call("both", **amounts), reads=["input", "bias"], writes=["both"], parameters={})
    recorder.save("bias", 16.0)
    recorder.save("both", 16.0)
    nodes = graph_of(recorder).nodes
    assert nodes[["flops", "bytes_read", "bytes_written", "saved_bytes"]].to_numpy().tolist() == [[0] * 4, [4, 2, 8, 8]]
    assert nodes[[name for name in nodes if name.startswith("fixed_")]].to_numpy().tolist() == [
        [8, 4, 16, 0],
        [0, 0, 0, 16],
    ]


def test_a_lookup_reads_the_rows_that_it_writes():
    recorder = Recorder(batch=2)
    recorder.feed("input", batched=True)
    lookup = call("table", weight_bytes=4000.0, bytes_read=16.0, bytes_written=64.0)
    for type_ in ("Gather", "Gemm"):
        recorder.add(lookup._replace(type=type_), reads=["input"], writes=[type_], parameters={})
    nodes = graph_of(recorder).nodes
    assert nodes["weight_bytes"].tolist() == [0, 4000]
    assert nodes["bytes_read"].tolist() == [40, 8]


def test_a_fused_call_adds_its_parameters_to_the_producer():
    recorder = Recorder(batch=2)
    recorder.feed("input", batched=True)
    recorder.add(call("dense", weight_bytes=24.0), reads=["input"], writes=["a"], parameters={"w": 6})
    recorder.fuse("b", "a", {"bias": 2}, 8.0)
    recorder.add(call("next"), reads=["b"], writes=["c"], parameters={})
    graph = graph_of(recorder)
    assert graph.nodes["parameters"].tolist() == [8, 0]
    assert graph.nodes["weight_bytes"].tolist() == [32, 0]
    assert graph.edges.tolist() == [[0, 1]]


def test_shapes_are_those_of_one_sample():
    assert single_sample((2, 3, 4), 2) == (1, 3, 4)
    assert single_sample((8, 2, 16), 2) == (8, 1, 16)
    assert single_sample((7, 8, 16), 2) == (7, 4, 16)
    assert single_sample((), 2) == ()
