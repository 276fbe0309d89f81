"""Physics of predicted memory: never below what must be resident, and never less for more."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudemand.cost import CostModel, OpGraph, TrainingJob
from gpudemand.cost.liveness import Setting
from gpudemand.cost.memory import interpolated_features, resident_bytes, simulate_memory
from gpudemand.cost.memory_model import max_batch_size
from gpudemand.cost.step_time_model import FarFromTrainingWarning
from tests.tiers import slow_beside

torch = pytest.importorskip("torch")
zoo = pytest.importorskip("benchmarks.zoo", reason="runs from a checkout")
GIB = 2.0**30
SETTINGS = [Setting(), Setting("adamw", mixed_precision=True), Setting("adam", checkpointing=True)]
NETWORKS = ["resnet18", "mobilenet_v2", "densenet121", "vgg11", "vit_tiny", "convnext_tiny", "gpt"]


@pytest.fixture(scope="module")
def memory_model():
    return CostModel.load().models_["gpu", "memory_gib"]


def described(model, graph: OpGraph, batches, setting: Setting):
    """Predicted GiB with the 90 % interval, and the chance to fit into 2 GiB."""
    table = interpolated_features(graph, batches, setting).assign(device_sms=108.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FarFromTrainingWarning)
        return model.predict_all(table, [90]), model.probability_below(table, 2.0)


def chain(kind: str, depth: int, width: int, size: int) -> OpGraph:
    """A network of `depth` equal blocks on `size` tokens, or images of that size."""
    nn = torch.nn
    with torch.device("meta"):
        if kind == "attention":
            blocks = [nn.TransformerEncoderLayer(8 * width, 2, 32 * width, batch_first=True) for _ in range(depth)]
            return OpGraph.from_torch(nn.Sequential(*blocks), (size, 8 * width))
        if kind == "convolution":
            first = [nn.Conv2d(3, width, 3, padding=1)]
            blocks = [nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU()) for _ in range(depth)]
            return OpGraph.from_torch(nn.Sequential(*first, *blocks), (3, size, size))
        blocks = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(depth)]
        return OpGraph.from_torch(nn.Sequential(*blocks), (size, width))


@pytest.mark.parametrize("name", slow_beside(("resnet18", "vgg11", "gpt"), NETWORKS))
def test_memory_of_the_zoo_respects_its_bound_and_grows_with_the_batch(memory_model, name: str) -> None:
    shape = (64,) if name == "gpt" else (3, 64, 64)
    options = {"vocabulary": 500} if name == "gpt" else {}
    with torch.device("meta"):
        graph = OpGraph.from_torch(zoo.build(name, "torch", shape, 10, width=0.5, depth=0.5, **options), shape)
    batches = [1, 2, 3, 5, 8, 13, 32, 33, 100, 1000]
    for setting in SETTINGS:
        bound = resident_bytes(graph, batches, setting) / GIB
        simulated = [simulate_memory(graph, batch, setting).allocated / GIB for batch in (1, 32)]
        assert (bound[[0, 6]] <= np.multiply(simulated, 1 + 1e-9)).all()
        found, chance = described(memory_model, graph, batches, setting)
        assert (found >= bound[:, None]).all()
        assert (np.diff(found[:, [0, 2]], axis=0) >= 0).all()
        assert (np.diff(chance) <= 0).all()


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["attention", "convolution", "dense"]),
    depth=st.integers(1, 3),
    width=st.integers(2, 24),
    size=st.integers(4, 40),
    batch=st.integers(1, 300),
    more=st.tuples(st.integers(0, 2), st.integers(0, 8), st.integers(0, 24), st.integers(0, 400)),
    setting=st.sampled_from(SETTINGS),
)
def test_more_never_takes_less_memory(memory_model, kind, depth, width, size, batch, more, setting) -> None:
    small, large = chain(kind, depth, width, size), chain(kind, depth + more[0], width + more[1], size + more[2])
    (first,), first_chance = described(memory_model, small, [batch], setting)
    (second,), second_chance = described(memory_model, large, [batch + more[3]], setting)
    assert second[0] >= first[0] * (1 - 1e-12)
    assert second_chance[0] <= first_chance[0] + 1e-12
    assert second[1] >= resident_bytes(large, [batch + more[3]], setting)[0] / GIB


def test_what_must_be_resident() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(1000, 1000, bias=False), torch.nn.ReLU())
    graph = OpGraph.from_torch(net, (1000,))
    weights, sample = 4e6, 4e3
    # Weights, two states and gradients; the batch, and the output's gradient at the backward pass.
    assert resident_bytes(graph, [1, 100], Setting("adamw")).tolist() == [
        4 * weights + 2 * sample,
        4 * weights + 200 * sample,
    ]
    # Half of the activations; weights stay in single precision.
    assert resident_bytes(graph, [100], Setting(mixed_precision=True))[0] == 2 * weights + 150 * sample
    assert resident_bytes(graph, [1], Setting("adamw", inference=True))[0] == weights + 3 * sample
    frozen = OpGraph.from_torch(net.requires_grad_(False), (1000,))
    assert resident_bytes(frozen, [1], Setting("adamw"))[0] == weights + 3 * sample


def test_seventy_billion_parameters_do_not_fit_on_one_gpu() -> None:
    with torch.device("meta"):
        net = torch.nn.Sequential(*[torch.nn.Linear(32768, 32768, bias=False) for _ in range(65)])
    job = TrainingJob(net, (32768,), batch_size=1, optimizer="adamw", precision="bf16", device="H100")
    model, parameters = CostModel.load(), 65 * 32768**2
    with pytest.warns(FarFromTrainingWarning):
        found = model.predict(job).iloc[0]
    assert found["memory_gib-lo-90"] >= 16 * parameters / GIB
    assert model.fits(job) == 0.0
    assert model.max_batch_size(job) == 0
    assert model.max_batch_size(job, probability=0.01) == 0
    assert model.fits(replace(job, optimizer="sgd", device="MI325X")) == 0.0


def test_the_largest_batch_is_consistent_with_fits(memory_model) -> None:
    graph = chain("convolution", 3, 16, 32)
    for level in (0.5, 0.95):
        best = max_batch_size(memory_model, graph, 4.0, device={"device_sms": 108.0}, level=level)
        table = interpolated_features(graph, [best, best + 1], Setting()).assign(device_sms=108.0)
        chance = memory_model.probability_below(table, 4.0)
        assert chance[0] >= level > chance[1]
        assert table["resident"].iloc[0] <= 4.0 * GIB


@pytest.mark.filterwarnings("ignore::gpudemand.cost.step_time_model.FarFromTrainingWarning")
def test_a_context_that_loads_all_kernels_takes_more_than_that_of_newer_versions():
    job = TrainingJob(torch.nn.Linear(8, 8), (8,), batch_size=8, device="A100", framework_version="2.6")
    new, old = CostModel.load().predict([job, replace(job, framework_version="1.12")])["memory_gib"]
    assert 0.5 < new < 1.0  # of next to no tensors
    assert 0.7 < old - new < 1.2
