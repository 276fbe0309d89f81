"""`TrainingJob`: validation, defaults, tracing, and features."""

from __future__ import annotations

import functools
import gc
import types
import weakref
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.cost import OpGraph, load_architectures, load_measurements
from gpudemand.cost import job as job_module
from gpudemand.cost.feature_table import features_from_jobs, features_from_rows
from gpudemand.cost.graph import Operator
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.model import CostModel
from gpudemand.cost.roofline import parallel_terms
from gpudemand.datasets.devices import Device

torch = pytest.importorskip("torch")


def small():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 10))


@pytest.fixture
def net():
    return small()


@pytest.fixture
def traces(monkeypatch):
    """Count calls of the tracer."""
    calls = []
    original = OpGraph.from_torch
    monkeypatch.setattr(OpGraph, "from_torch", lambda *a, **k: calls.append(a) or original(*a, **k))
    return calls


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1; got 0"),
        ({"batch_size": 1.5}, "batch_size must be a whole number"),
        ({"n_gpus": 0}, "n_gpus must be"),
        ({"device": "H2000"}, "Did you mean 'H200'"),
        ({"device": "V100", "precision": "tf32"}, "cannot train in 'tf32'; it can in fp32, fp16"),
        ({"device": "AMD EPYC", "precision": "amp"}, "it can in fp32, bf16"),
        ({"device": "AMD EPYC", "n_gpus": 2}, "is a CPU; n_gpus must be 1"),
        ({"precision": "fp61"}, "precision='fp61' is not known"),
        ({"optimizer": "adma"}, "Did you mean 'adam'"),
        ({"layout": "nhwc"}, "layout='nhwc' is not known"),
        ({"checkpointing": "some"}, "checkpointing='some' is not known; it is 'none', 'selective' or 'full'"),
        ({"execution": "jit"}, "execution='jit' is not known"),
        ({"mode": "infer"}, "Did you mean 'inference'"),
        ({"mode": "inference", "checkpointing": True}, "leave out checkpointing"),
        ({"mode": "inference", "n_gpus": 2}, "n_gpus must be 1, got 2"),
        ({"mode": "inference", "accumulate": 2}, "takes a batch at once"),
        ({"batch_size": 8, "accumulate": 16}, "is not a multiple of accumulate=16"),
        ({"batch_size": 8, "accumulate": 3}, "batch_size=8 is not a multiple of accumulate=3;"),
        ({"batch_size": 8, "micro_batch": 3}, "batch_size=8 is not a multiple of micro_batch=3;"),
        ({"batch_size": 8, "micro_batch": 2, "accumulate": 3}, "batch_size=8 is not micro_batch=2 x accumulate=3;"),
        ({"input_shape": (3, 0, 8)}, "holds an extent below 1"),
        ({"input_shape": None}, "needs input_shape"),
        ({"model": "resnet50"}, "got str"),
        ({"model": torch.nn.ReLU}, "got the class ReLU: call it"),
    ],
)
def test_invalid_jobs_are_rejected(net, wrong, message):
    with pytest.raises(InputError, match=message) as caught:
        TrainingJob(**{"model": net, "input_shape": (3, 8, 8), **wrong})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "level"), [("none", False), (False, False), (True, "full"), ("full", "full"), (None, None)]
)
def test_a_level_of_checkpointing_is_called_as_tables_of_layouts_call_it(net, given, level) -> None:
    run = TrainingJob.from_config("llama-3-8b", 512, device="H100", checkpointing=given)
    assert run.checkpointing == level
    assert TrainingJob(net, (3, 8, 8), checkpointing=given).checkpointing == bool(level)


@pytest.mark.parametrize(
    ("options", "batch", "times"),
    [
        ({}, 32, None),
        ({"batch_size": 32, "micro_batch": 8}, 32, 4),
        ({"batch_size": 64, "micro_batch": 8}, 64, 8),
        ({"batch_size": 32, "accumulate": 4}, 32, 4),
        ({"micro_batch": 8}, 8, 1),
        ({"micro_batch": 8, "accumulate": 3}, 24, 3),
        ({"accumulate": 4}, 32, 4),
    ],
)
def test_samples_of_a_step_follow_from_two_of_three(net, options, batch, times):
    job = TrainingJob(net, (3, 8, 8), **options)
    assert (job.batch_size, job.accumulate) == (batch, times)


def test_an_array_of_extents_is_a_shape(net):
    job = TrainingJob(model=net, input_shape=np.array([3, 8, 8]))
    assert job.input_shape == (3, 8, 8)
    assert job.inputs_key == TrainingJob(model=net, input_shape=(3, 8, 8)).inputs_key
    assert OpGraph.from_torch(net, np.array([3, 8, 8])).input_shapes == ((3, 8, 8),)


def test_a_wrong_input_shape_is_reported(net):
    with pytest.raises(InputError, match="Sequential"):
        _ = TrainingJob(net, (5, 8, 8)).graph


def test_defaults_are_those_of_the_frameworks(net):
    job = TrainingJob(net, (3, 8, 8), precision="amp", device="nvidia a100-sxm4-40gb")
    assert (job.framework, job.layout, job.execution, job.precision) == ("torch", "contiguous", "eager", "fp16")
    assert job.hardware.name == "A100 SXM4 40GB"
    assert repr(replace(job, n_gpus=4, checkpointing=True)) == (
        "TrainingJob(Sequential on 3x8x8: batch 32, sgd, fp16, contiguous, eager, checkpointing, 4 x A100 SXM4 40GB)"
    )
    assert TrainingJob(torch.compile(net, backend="eager"), (3, 8, 8)).execution == "compiled"


def test_a_network_is_traced_once(net, traces):
    jobs = [TrainingJob(net, (3, 8, 8), batch_size=size, device=name) for size in (1, 2, 4) for name in ("T4", "L4")]
    graphs = {id(job.graph) for job in jobs}
    features_from_jobs(jobs)
    assert len(graphs) == len(traces) == 1
    _ = TrainingJob(net, [(3, 8, 8)]).graph  # the same inputs
    assert len(traces) == 1
    with pytest.raises(InputError):
        _ = TrainingJob(net, (3, 9, 9)).graph
    assert len(traces) == 2


def test_a_modified_network_is_traced_again(net):
    before = TrainingJob(net, (3, 8, 8)).graph
    net[0].weight.requires_grad_(False)
    frozen = TrainingJob(net, (3, 8, 8)).graph
    assert frozen.n_trainable < before.n_trainable
    net[1] = torch.nn.Tanh()
    assert "Tanh" in set(TrainingJob(net, (3, 8, 8)).graph.nodes["type"])


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}])
@pytest.mark.filterwarnings("ignore::gpudemand.cost.step_time_model.FarFromTrainingWarning")
def test_jobs_of_a_network_that_is_changed_in_between_have_their_own_graphs(net, options):
    full = TrainingJob(net, (3, 8, 8), **options)
    before = full.graph.n_trainable
    net[0].requires_grad_(False)
    jobs = [full, TrainingJob(net, (3, 8, 8), **options)]
    table = features_from_jobs(jobs)
    assert table["trainable_parameters"].tolist() == [before, before - 112]
    assert table["saved_bytes"].iloc[0] > table["saved_bytes"].iloc[1]
    model = CostModel.load()
    both, alone = model.predict(jobs), pd.concat([model.predict(job) for job in jobs], ignore_index=True)
    pd.testing.assert_frame_equal(both, alone)
    assert model.breakdown(full).parts["gib"].sum() > model.breakdown(jobs[1]).parts["gib"].sum()


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.double(),
        lambda net: setattr(net, "depth", 1),
        lambda net: net.options["layers"].append(3),
        lambda net: setattr(net.config, "use_cache", False),
        lambda net: setattr(net, "run", functools.partial(sorted, reverse=False)),
        lambda net: setattr(net[0], "scale", lambda x: x * net.factor),
        lambda net: net.register_buffer("bank", torch.zeros(4)),
        lambda net: net[0].register_forward_hook(lambda *_: None),
    ],
)
def test_whatever_a_network_holds_is_part_of_its_fingerprint(net, change):
    net.depth, net.options, net.config = 2, {"layers": [1, 2]}, types.SimpleNamespace(use_cache=True, owner=net)
    net.run, net.factor = functools.partial(sorted, reverse=True), 2.0
    net.register_buffer("bank", torch.zeros(3))
    before = job_module.fingerprint(net, "torch")
    with torch.no_grad():
        net[0].weight.add_(1.0)
        net.bank.add_(1.0)
    assert job_module.fingerprint(net, "torch") == before
    change(net)
    assert job_module.fingerprint(net, "torch") != before


def test_graphs_do_not_keep_networks_alive():
    net = small()
    gone = weakref.ref(net)
    _ = TrainingJob(net, (3, 8, 8)).graph
    assert net in job_module._GRAPHS
    del net
    gc.collect()
    assert gone() is None


def test_networks_on_the_meta_device_and_graphs_are_accepted(net):
    with torch.device("meta"):
        empty = small()
    graph = TrainingJob(empty, (3, 8, 8)).graph
    assert graph.flops == TrainingJob(net, (3, 8, 8)).graph.flops
    job = TrainingJob(graph, device="T4")
    assert job.graph is graph
    assert repr(job) == "TrainingJob(Sequential: batch 32, sgd, fp32, contiguous, eager, Tesla T4)"


def test_table_has_the_columns_of_measured_rows(net):
    known = features_from_rows(load_measurements().head(1), load_architectures())
    expected = [name for name in known.columns if not name.startswith("edge:")]
    table = features_from_jobs(TrainingJob(net, (3, 8, 8), optimizer="adam", device="AMD EPYC"))
    assert list(table.columns[: len(expected)]) == expected
    assert table.loc[0, "device"] == "cpu"
    assert table.loc[0, "optimizer_states"] == 2
    assert table.loc[0, "edge:Conv->Relu"] == 1
    assert table.filter(regex="^(flops|edge:)").notna().all(axis=None)


def test_rows_are_in_the_order_of_the_jobs(net):
    other = torch.nn.Linear(3, 2)
    jobs = [TrainingJob(net, (3, 8, 8)), TrainingJob(other, (3,), n_gpus=2), TrainingJob(net, (3, 8, 8), device="T4")]
    table = features_from_jobs(jobs)
    assert table["flops"].tolist() == [job.graph.flops for job in jobs]
    assert table["n_gpus"].tolist() == [1, 2, 1]
    assert table["device_name"].tolist() == ["H200 SXM", "H200 SXM", "Tesla T4"]
    assert table["edge:Conv->Relu"].tolist() == [1, 0, 1]
    assert table["device_memory_gib"].lt(140).all()


def test_many_gpus_are_on_several_machines(net):
    table = features_from_jobs([TrainingJob(net, (3, 8, 8), device="H100", n_gpus=n) for n in (1, 8, 9, 512)])
    assert table["n_nodes"].tolist() == [1, 1, 2, 64]
    assert table["network_gb_s"].tolist() == [450, 450, 400, 400]
    reduction = parallel_terms(TrainingJob(net, (3, 8, 8)).graph, table, np.zeros(4))["network"]
    assert (reduction[:2] == 0).all()
    assert 0 < reduction[2] < reduction[3]


def test_no_column_identifies_the_network(net):
    assert not features_from_jobs([TrainingJob(net, (3, 8, 8))]).astype(str).eq("Sequential").any(axis=None)


def test_peak_is_that_of_the_precision(net):
    jobs = [TrainingJob(net, (3, 8, 8), device="A100", precision=name) for name in ("fp32", "tf32", "amp", "bf16")]
    assert features_from_jobs(jobs)["device_peak_tflops"].tolist() == [19.5, 156.0, 312.0, 312.0]


def test_a_custom_device_is_accepted(net):
    mine = Device("prototype", memory_gib=64, bandwidth_gb_s=2000, fp32_tflops=30)
    row = features_from_jobs(TrainingJob(net, (3, 8, 8), device=mine)).iloc[0]
    assert row["device_name"] == "prototype"
    assert pd.isna(row["device_sms"])


@pytest.mark.filterwarnings("ignore::gpudemand.cost.step_time_model.FarFromTrainingWarning")
def test_memory_on_a_device_with_nothing_but_its_peaks(net):
    mine = Device("prototype", memory_gib=0.5, bandwidth_gb_s=2000, fp32_tflops=30)
    model, job = CostModel.load(), TrainingJob(net, (3, 8, 8), device=mine)
    assert model.predict(job).notna().all(axis=None)
    assert model.fits(job) < 0.5
    assert model.fits(replace(job, device=replace(mine, memory_gib=64))) > 0.95
    assert model.max_batch_size(replace(job, device=replace(mine, memory_gib=64))) > 32


def test_lazy_layers_are_reported():
    job = TrainingJob(torch.nn.Sequential(torch.nn.LazyLinear(4)), (8,))
    with pytest.raises(InputError, match="lazy"):
        job.graph  # noqa: B018


def test_other_objects_are_rejected(net):
    with pytest.raises(InputError, match="got Sequential"):
        features_from_jobs([net])
    with pytest.raises(InputError, match="empty"):
        features_from_jobs([])


def test_a_graph_has_its_framework():
    dense = Operator("Gemm", "", "head", "linear", (1, 10), 1280.0, 650, 2600.0, 256.0, 40.0, 256.0)
    graph = OpGraph.from_operators([dense], [], framework="keras")
    assert TrainingJob(graph).framework == "keras"


def test_keras_models_declare_their_inputs():
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(10)])
    job = TrainingJob(model, device="T4")
    assert (job.framework, job.layout, job.execution) == ("keras", "channels_last", "compiled")
    assert job.graph is TrainingJob(model, batch_size=2).graph
    assert job.graph.flops == 2 * 192 * 10
    with pytest.raises(InputError, match="keras trains with"):
        TrainingJob(model, execution="eager")


def test_an_inference_job_is_traced_in_evaluation_mode():
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 2))
    training = TrainingJob(net, (8,), optimizer="adam")
    inference = replace(training, mode="inference")
    assert repr(inference) == "TrainingJob(Sequential on 8: batch 32, inference, fp32, contiguous, eager, H200 SXM)"
    assert "Dropout" in set(training.graph.nodes["type"])
    assert set(inference.graph.nodes["type"]) == {"Gemm"}
    assert training.graph.saved_bytes > 0 == inference.graph.saved_bytes
    table = features_from_jobs([training, inference])
    assert table["saved_bytes"].iloc[0] > 0 == table["saved_bytes"].iloc[1]
    assert net.training


def test_a_training_job_keeps_the_mode_of_each_layer():
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout())
    assert "Dropout" in set(TrainingJob(net, (8,)).graph.nodes["type"])
    net[1].eval()
    graph = TrainingJob(net, (8,)).graph
    assert set(graph.nodes["type"]) == {"Gemm"}
    assert graph.n_trainable == 72
