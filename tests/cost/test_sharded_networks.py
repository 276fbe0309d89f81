"""Memory of traced networks whose states are sharded over GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::gpudemand.cost.step_time_model.FarFromTrainingWarning")

from gpudemand import CostModel, Parallel, TrainingJob  # noqa: E402
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
