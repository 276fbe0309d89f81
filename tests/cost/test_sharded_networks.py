"""Memory of traced networks whose states are sharded over GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::gpudemand.cost.step_time_model.FarFromTrainingWarning")

from gpudemand import CostModel, Parallel, TrainingJob  # noqa: E402
from gpudemand.cost.liveness import Setting  # noqa: E402
from gpudemand.cost.memory import resident_bytes, simulate_memory  # noqa: E402
from gpudemand.cost.model import memory_setting  # noqa: E402

GPUS = 8
LAYERS = ("none", "zero1", "zero2", "zero3")


@pytest.fixture(scope="module")
def job():
    with torch.device("meta"):
        net = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048, bias=False) for _ in range(64)])
    return TrainingJob(net, (2048,), batch_size=4, device="A100", precision="fp32", optimizer="adam", n_gpus=GPUS)


def sharded(job, sharding):
    return replace(job, parallel=Parallel(sharding=sharding))


def test_each_part_is_divided(job):
    whole = simulate_memory(job.graph, 4, memory_setting(job)).parts
    assert whole["optimizer_state"] == 2 * whole["parameters"] == 2 * whole["gradients"]
    for level, sharding in enumerate(LAYERS):
        parts = simulate_memory(job.graph, 4, memory_setting(sharded(job, sharding))).parts
        for place, name in enumerate(("optimizer_state", "gradients")):
            assert parts[name] == pytest.approx(whole[name] / (GPUS if level > place else 1)), (sharding, name)
    # Two layers of 64 are whole.
    assert parts["parameters"] == pytest.approx(whole["parameters"] * (1 / GPUS + 2 / 64))


def test_memory_falls_with_what_is_sharded_and_stays_above_what_is_resident(job):
    jobs = [sharded(job, sharding) for sharding in LAYERS]
    predicted = CostModel.load().predict(jobs)["memory_gib"].to_numpy()
    assert (predicted[1:] < predicted[:-1]).all()
    bound = [resident_bytes(job.graph, [4], memory_setting(each))[0] / 2**30 for each in jobs]
    assert (predicted >= bound).all()
    # Sixteen bytes a parameter and the optimizer's copy of four, all divided, against driver, libraries and two layers.
    assert predicted[0] - predicted[-1] == pytest.approx(20 * job.graph.n_parameters * 7 / 8 / 2**30, rel=0.1)


def test_a_network_that_one_gpu_cannot_hold_fits_when_it_is_sharded():
    with torch.device("meta"):
        net = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192, bias=False) for _ in range(128)])
    alone = TrainingJob(net, (8192,), batch_size=1, device="A100 80GB", precision="bf16", optimizer="adamw")
    model, many = CostModel.load(), replace(alone, n_gpus=64, parallel=Parallel(sharding="zero3"))
    assert model.fits(alone) == 0.0
    assert model.max_batch_size(alone) == 0
    assert model.fits(many) > 0.95
    assert model.max_batch_size(many) > 1


@pytest.mark.slow
def test_sharding_within_machines_holds_more_than_over_all(job):
    wide = replace(job, n_gpus=64)
    within, over_all = (CostModel.load().predict([sharded(wide, name)])["memory_gib"][0] for name in ("hsdp", "fsdp"))
    assert within > over_all
    assert within == pytest.approx(CostModel.load().predict([sharded(job, "fsdp")])["memory_gib"][0])


#: Options of a job -> sets of gradients that it holds beside those of a single pass on one GPU.
HELD = [
    ({}, 0),
    ({"accumulate": 2, "batch_size": 2 * 8192}, 1),
    ({"n_gpus": GPUS}, 1),
    ({"n_gpus": GPUS, "accumulate": 4, "batch_size": 4 * 8192}, 2),
    ({"n_gpus": GPUS, "parallel": Parallel(sharding="fsdp")}, None),
]


@pytest.mark.parametrize(("options", "sets"), HELD)
def test_passes_and_gpus_hold_as_many_sets_of_gradients_as_pytorch(job, options, sets):
    alone = replace(job, optimizer="sgd", batch_size=8192, n_gpus=1)
    assert memory_setting(alone) == Setting("sgd")
    other, model = replace(alone, **options), CostModel.load()
    first, found = (model.breakdown(each) for each in (alone, other))
    if sets is None:
        assert memory_setting(other).buckets == 0.0
        return
    gradients = 4 * job.graph.n_parameters / 2**30
    # The gradient of a layer is added to that of earlier passes.
    assert found.allocated_gib - first.allocated_gib == pytest.approx(sets * gradients, abs=gradients / 32)
    assert ("buckets" in set(found.parts["part"])) == (other.n_gpus > 1)
    low, high = model.predict([alone, other])["memory_gib"]
    assert high - low >= 0.9 * sets * gradients
    bounds = [resident_bytes(job.graph, [8192], memory_setting(each))[0] / 2**30 for each in (alone, other)]
    assert bounds[1] - bounds[0] >= gradients * (other.n_gpus > 1)
    assert found.allocated_gib >= bounds[1]


def test_frozen_parameters_have_no_gradients_to_hold():
    net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 8))
    net[0].requires_grad_(False)
    many = TrainingJob(net, (256,), batch_size=8, accumulate=2, n_gpus=2, device="A100")
    assert memory_setting(many).buckets == 4.0 * (256 * 8 + 8)
    peak = simulate_memory(many.graph, 4, memory_setting(many)).parts
    assert 4.0 * (256 * 8 + 8) <= peak["gradients"] < 4.0 * 256 * 256


def test_several_gpus_and_passes_fit_less_than_one(job):
    one, model = replace(job, n_gpus=1, optimizer="sgd", batch_size=8192), CostModel.load()
    room = 1.3 * model.predict(one)["memory_gib"].iloc[0]
    one = replace(one, device=replace(one.hardware, memory_gib=room, usable_gib=room))
    many, passes = replace(one, n_gpus=GPUS), replace(one, accumulate=2, batch_size=2 * 8192)
    assert model.fits(one) > max(model.fits(many), model.fits(passes))
    assert model.max_batch_size(one) > max(model.max_batch_size(many), model.max_batch_size(passes))
