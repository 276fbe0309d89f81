"""Physics of predicted step times: never below operations and parameters at the peaks, and never less for more."""

from __future__ import annotations

import functools
import warnings
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudemand._validation import InputError
from gpudemand.cost import CostModel, OpGraph, TrainingJob
from gpudemand.cost.model import step_time_inputs
from gpudemand.cost.operators import HALF_WIDTH
from gpudemand.cost.roofline import WORK
from gpudemand.cost.step_time_model import FarFromTrainingWarning
from gpudemand.datasets import devices as table
from gpudemand.datasets.devices import Device
from tests.tiers import slow_beside

torch = pytest.importorskip("torch")
zoo = pytest.importorskip("benchmarks.zoo", reason="runs from a checkout")
nn = torch.nn

DEVICES = ("H100 SXM5", "A100 SXM4 80GB", "RTX 4090", "T4")
NETWORKS = ("resnet18", "mobilenet_v2", "vgg11", "vit_tiny", "gpt", "lstm")
KINDS = ("attention", "convolution", "grouped", "recurrent", "experts")
#: Multiplications that Winograd's minimal filtering of 3x3 kernels saves.
WINOGRAD = 2.25
#: Of a prediction, what more work may save: rounding of tiles, and a correction that changes smoothly.
SLACK = 0.01
examples = settings(
    max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def step_time():
    """Predicted seconds a step of each job, by the bundled model."""
    model = CostModel.load().models_["gpu", "step_time_s"]

    def predict(*jobs: TrainingJob) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FarFromTrainingWarning)
            return model.predict(step_time_inputs(jobs))

    return predict


class Attention(nn.Module):
    """Fused attention of one head for 16 channels, with residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inputs, self.outputs = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        """Attend to all tokens."""
        parts = (part.unflatten(-1, (-1, 16)).transpose(1, 2) for part in self.inputs(x).chunk(3, -1))
        return x + self.outputs(nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))


class Experts(nn.Module):
    """A mixture of four linear layers, weighted by a gate."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(width, 4), nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Any) -> Any:
        """Sum the layers by their weights."""
        weights = self.gate(x).softmax(-1)
        return sum(layer(x) * weights[..., i, None] for i, layer in enumerate(self.experts))


class Recurrent(nn.LSTM):
    """Outputs of an LSTM at all steps."""

    def forward(self, x: Any) -> Any:
        """Drop the states."""
        return super().forward(x)[0]


@functools.cache
def chain(kind: str, depth: int, width: int, tokens: int, *, train: bool | None = None) -> OpGraph:
    """A network of `depth` equal blocks, 16 times `width` wide, on `tokens` tokens or pixels a side."""
    width *= 16
    with torch.device("meta"):
        if kind in ("convolution", "grouped"):
            groups = 16 if kind == "grouped" else 1
            convolutions = [nn.Conv2d(width, width, 3, padding=1, groups=groups) for _ in range(depth)]
            blocks = [nn.Sequential(convolution, nn.ReLU()) for convolution in convolutions]
            return OpGraph.from_torch(nn.Sequential(*blocks), (width, tokens, tokens), train=train)
        block = {"attention": Attention, "experts": Experts}.get(kind)
        blocks = [block(width) if block else Recurrent(width, width, batch_first=True) for _ in range(depth)]
        return OpGraph.from_torch(nn.Sequential(*blocks), (tokens, width), train=train)


@functools.cache
def zoo_graph(name: str, *, train: bool | None = None) -> OpGraph:
    shape = {"image": (3, 64, 64), "tokens": (64,)}[zoo.kind(name)]
    with torch.device("meta"):
        return OpGraph.from_torch(zoo.build(name, "torch", shape, 10, width=0.5, depth=0.5), shape, train=train)


def bounds(job: TrainingJob) -> tuple[float, float]:
    """Seconds of the operations of a step at the peak, and of the parameters at the bandwidth, from the operators."""
    nodes = job.graph.nodes
    passes = 1.0 if job.mode == "inference" else 2.0 + job.checkpointing  # at least: the first layer has one gradient
    is_winograd = ((nodes["type"] == "Conv") & (nodes["kind"] == "3x3")).to_numpy()
    flops = job.batch_size * (nodes["flops"] / np.where(is_winograd, WINOGRAD, 1.0)).sum()
    width = 4.0 * (HALF_WIDTH if job.precision in ("fp16", "bf16") else 1.0)
    peak = max(job.hardware.peak(job.precision), job.hardware.peak("fp32"))
    return passes * flops / peak, passes * width * job.graph.n_parameters / job.hardware.bandwidth


def precision_of(device: str) -> str:
    return "fp16" if device == "T4" else "bf16"


@pytest.mark.parametrize("name", slow_beside(("vgg11", "lstm"), NETWORKS))
def test_networks_of_the_zoo_respect_the_bounds_and_the_order(step_time, name: str) -> None:
    for device in DEVICES:
        job = TrainingJob(zoo_graph(name), batch_size=32, precision=precision_of(device), device=device)
        variants = {
            "plain": job,
            "large batch": replace(job, batch_size=64),
            "checkpointing": replace(job, checkpointing=True),
            "inference": replace(job, model=zoo_graph(name, train=False), mode="inference"),
            **{optimizer: replace(job, optimizer=optimizer) for optimizer in ("momentum", "adamw")},
        }
        time = dict(zip(variants, step_time(*variants.values()), strict=True))
        for variant, seconds in time.items():
            assert seconds >= max(bounds(variants[variant])), (device, variant)
        assert time["large batch"] >= (1 - SLACK) * time["plain"]
        assert time["checkpointing"] > time["plain"]
        assert time["inference"] < time["plain"]
        assert (1 - SLACK) * time["plain"] <= time["momentum"] <= time["adamw"] / (1 - SLACK)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_seconds_over_batch_sizes_do_not_jump(step_time, name: str) -> None:
    """On all GPUs: with the batch a step grows, and no more than what grows most in it, as work leaves the cache."""
    gpus = [found for found in map(table.device, table.devices().index) if found.kind == "gpu"]
    pairs = [(gpu, precision) for gpu in gpus for precision in ("fp32", "fp16") if precision in gpu.precisions]
    doublings = [
        TrainingJob(zoo_graph(name), batch_size=2**octave, precision=precision, device=gpu)
        for gpu, precision in pairs
        for octave in range(10)
    ]
    seconds = step_time(*doublings).reshape(len(pairs), -1)
    work = step_time_inputs(doublings).filter(like=WORK).to_numpy().reshape(*seconds.shape, -1)
    most = np.divide(work[:, 1:], work[:, :-1], out=np.ones_like(work[:, 1:]), where=work[:, :-1] > 0).max(axis=2)
    growth = seconds[:, 1:] / seconds[:, :-1]
    wrong = ((growth < 1 - SLACK) | (growth > (1 + SLACK) * most)).any(axis=1)
    assert not [(gpu.name, precision) for (gpu, precision), bad in zip(pairs, wrong, strict=True) if bad]


sizes = {
    "kind": st.sampled_from(KINDS),
    "depth": st.integers(1, 3),
    "width": st.integers(1, 24),
    "tokens": st.integers(4, 48),
    "samples": st.integers(1, 200),
    "device": st.sampled_from(DEVICES),
}


@pytest.mark.slow
@examples
@given(**sizes, optimizer=st.sampled_from(["sgd", "adamw"]), checkpointing=st.booleans())
def test_random_networks_respect_the_bounds(
    step_time, kind, depth, width, tokens, samples, device, optimizer, checkpointing
) -> None:
    job = TrainingJob(
        chain(kind, depth, width, tokens),
        batch_size=samples,
        precision=precision_of(device),
        device=device,
        optimizer=optimizer,
        checkpointing=checkpointing,
    )
    inference = replace(
        job, model=chain(kind, depth, width, tokens, train=False), mode="inference", checkpointing=False
    )
    training, forward = step_time(job, inference)
    assert training >= max(bounds(job))
    assert forward >= max(bounds(inference))
    assert forward < training


@pytest.mark.slow
@examples
@given(**sizes, more=st.tuples(st.integers(0, 2), st.integers(0, 8), st.integers(0, 24), st.integers(0, 200)))
def test_more_work_is_never_predicted_cheaper(step_time, kind, depth, width, tokens, samples, device, more) -> None:
    small = TrainingJob(
        chain(kind, depth, width, tokens), batch_size=samples, precision=precision_of(device), device=device
    )
    layers = chain(kind, depth + 1 + more[0], width, tokens)
    wide, long = chain(kind, depth, width + more[1], tokens), chain(kind, depth, width, tokens + more[2])
    grown = [replace(small, model=graph) for graph in (layers, wide, long)]
    grown += [replace(small, batch_size=samples + more[3]), replace(small, checkpointing=True)]
    grown += [replace(small, optimizer="momentum"), replace(small, optimizer="adamw")]
    first, *rest = step_time(small, *grown)
    what = ("layers", "width", "tokens", "samples", "checkpointing", "momentum", "adamw")
    cheaper = {name: seconds / first for name, seconds in zip(what, rest, strict=True) if seconds < (1 - SLACK) * first}
    assert not cheaper


@pytest.mark.parametrize("kind", slow_beside(("attention", "convolution"), KINDS))
def test_very_long_deep_and_wide_networks_take_what_physics_asks_for(step_time, kind: str) -> None:
    chains = [chain(kind, 1, 2, 64), chain(kind, 8, 2, 64), chain(kind, 1, 128, 64), chain(kind, 1, 2, 512)]
    jobs = [TrainingJob(graph, batch_size=64, precision="bf16", device="H100 SXM5") for graph in chains]
    first, *rest = step_time(*jobs)
    assert all(seconds >= max(bounds(job)) for seconds, job in zip((first, *rest), jobs, strict=True))
    assert min(rest) > first


PEAKS = tuple(field.name for field in fields(Device) if field.name.endswith("_tflops"))
WEAKER = {
    "bandwidth": ("bandwidth_gb_s",),
    "single precision": ("fp32_tflops",),
    "matrix units": tuple(name for name in PEAKS if name != "fp32_tflops"),
    "all peaks": PEAKS,
    "everything": ("bandwidth_gb_s", *PEAKS),
}


def weaker(hardware: Device, names: tuple[str, ...], factor: float) -> Device:
    return replace(hardware, **{name: getattr(hardware, name) / factor for name in names})


def check_that_no_weaker_device_is_faster(step_time, *jobs: tuple[TrainingJob, float]) -> None:
    """Check the device of each job divided, and multiplied, by the factor beside it."""
    cases, variants = [], []
    for job, factor in jobs:
        for what, names in WEAKER.items():
            for side in (-1, 1):
                cases.append((job.hardware.name, job.batch_size, job.precision, what, side))
                variants.append(replace(job, device=weaker(job.hardware, names, factor**side)))
    plain, found = np.split(step_time(*(job for job, _ in jobs), *variants), [len(jobs)])
    sides = np.array([case[-1] for case in cases])
    changes = (found / np.repeat(plain, 2 * len(WEAKER))) ** sides
    assert not {case: change for case, change in zip(cases, changes, strict=True) if change < 1 - 1e-3}


@pytest.mark.parametrize("name", slow_beside(("vgg11",), NETWORKS))
def test_half_the_bandwidth_or_peak_is_never_predicted_faster(step_time, name: str) -> None:
    devices = ("H100 SXM5", "RTX 4090", "V100 SXM2 16GB", "GTX 1080 Ti", "B200", "MI300X", "L4")
    about = ((1, "fp32", 2), (64, "fp16", 2), (4, "fp16", 1.25), (64, "fp32", 8))
    jobs = [
        (TrainingJob(zoo_graph(name), batch_size=batch, precision=precision, device=device), factor)
        for device in devices
        for batch, precision, factor in about
    ]
    check_that_no_weaker_device_is_faster(step_time, *jobs)


@examples
@given(**sizes, factor=st.floats(1.05, 16), fp32=st.booleans())
@pytest.mark.slow
def test_no_random_network_is_predicted_faster_on_less(
    step_time, kind, depth, width, tokens, samples, device, factor, fp32
) -> None:
    precision = "fp32" if fp32 else precision_of(device)
    job = TrainingJob(chain(kind, depth, width, tokens), batch_size=samples, precision=precision, device=device)
    check_that_no_weaker_device_is_faster(step_time, (job, factor))


def perceptron(dtype: Any = None) -> nn.Module:
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(4096, 4096), nn.LayerNorm(4096), nn.Linear(4096, 4096)).to(dtype)


@pytest.mark.parametrize("device", ["RTX 4090", "H100 SXM5"])
@pytest.mark.parametrize(("dtype", "precision"), [(torch.bfloat16, "bf16"), (torch.float16, "fp16")])
def test_a_network_in_half_precision_computes_in_it(step_time, device: str, dtype: Any, precision: str) -> None:
    own, single = (TrainingJob(perceptron(kind), (4096,), batch_size=4096, device=device) for kind in (dtype, None))
    assert (own.compute_precision, single.compute_precision) == (precision, "fp32")
    named, mixed = replace(own, precision=precision), replace(single, precision=precision)
    found, as_named, cast, slow = step_time(own, named, mixed, single)
    assert found == as_named < cast < slow
    assert found >= max(bounds(named))
    assert not own.graph.kernels["is_autocast"].any()
    assert own.graph.parameter_width == 2.0


@pytest.mark.parametrize("device", ["RTX 4090", "H100 SXM5", "MI300X", "AMD EPYC"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_double_precision_takes_operations_over_its_peak(device: str, precision: str) -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = perceptron()

        def forward(self, x: Any) -> Any:
            return x.double() @ self.inner[0].weight.double()

    for net, products in ((perceptron(torch.float64), 5), (Cast(), 2)):
        job = TrainingJob(net, (4096,), batch_size=1024, precision=precision, device=device)
        least = products * 2.0 * 4096**2 * 1024 / job.hardware.peak("fp64")
        assert step_time_inputs([job])["lower_bound_s"].iloc[0] >= 0.999 * least


def test_precisions_that_a_device_lacks_are_refused() -> None:
    job = TrainingJob(perceptron(torch.bfloat16), (4096,), device="T4")
    with pytest.raises(InputError, match=r"bfloat16, which Tesla T4 cannot train in; convert it"):
        step_time_inputs([job])
    mine = Device("mine", memory_gib=64, bandwidth_gb_s=2000, fp32_tflops=30)
    job = TrainingJob(perceptron(torch.float64), (4096,), device=mine)
    with pytest.raises(InputError, match="give the Device its fp64_tflops"):
        step_time_inputs([job])
    assert (step_time_inputs([replace(job, device=replace(mine, fp64_tflops=15))])["lower_bound_s"] > 0).all()
