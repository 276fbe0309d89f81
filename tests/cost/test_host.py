import numpy as np
import pandas as pd
import pytest

from gpudemand import CostModel, InputError, OpGraph, TrainingJob
from gpudemand.cost.graph import Operator
from gpudemand.cost.host import LAUNCHES, Hosts, device_seconds, step_seconds


def steps(seconds_a_launch, n=40, *, name="A100", host="", device=1e-3, noise=0.05, seed=0):
    """Jobs of one host, their seconds and those of the device."""
    rng = np.random.default_rng(seed)
    launches = rng.uniform(50, 2000, n)
    on_device = device * rng.uniform(0.5, 2.0, n)
    seconds = step_seconds(on_device, launches * seconds_a_launch) * np.exp(noise * rng.normal(size=n))
    return pd.DataFrame({"device_name": name, "host": host, LAUNCHES: launches}), seconds, on_device


def test_the_slower_of_host_and_device_decides_and_both_count_where_they_are_alike():
    device, host = np.array([1.0, 1.0, 1.0, 0.0]), np.array([0.1, 1.0, 10.0, 0.0])
    found = step_seconds(device, host)
    assert found[[0, 2]] == pytest.approx([1.0, 10.0], rel=1e-3)
    assert 1.0 < found[1] < 2.0
    assert found[3] == 0.0


def test_a_step_tells_of_the_device_unless_the_host_takes_half_of_it():
    device, host = np.array([2.0, 2.0, 2.0]), np.array([0.0, 0.9, 4.0])
    found = device_seconds(step_seconds(device, host), host)
    assert found[:2] == pytest.approx([2.0, 2.0])
    assert np.isnan(found[2])


@pytest.mark.parametrize("truth", [4e-6, 3e-5])
def test_seconds_a_launch_are_found_from_steps_that_the_host_bounds(truth):
    hosts = Hosts.fit(*steps(truth))
    log, _ = hosts.of(["A100"])
    assert np.exp(log[0]) == pytest.approx(truth, rel=0.1)


def test_steps_that_the_device_bounds_say_little_of_the_host():
    slow, fast = Hosts.fit(*steps(3e-5)), Hosts.fit(*steps(1e-6, device=1.0))
    assert fast.of(["A100"])[1][0] > 1.5 * slow.of(["A100"])[1][0]


def test_a_host_never_seen_is_less_certain_than_another_with_a_known_gpu_and_that_than_the_one_at_hand():
    parts = [steps(rate, name=name, host=name + host, seed=seed) for seed, (name, host, rate) in enumerate(
        [("A100", "1", 8e-6), ("A100", "2", 1e-5), ("T4", "1", 3e-5), ("T4", "2", 4e-5), ("P4", "1", 2e-6)]
    )]  # fmt: skip
    jobs, seconds, device = (pd.concat([p[0] for p in parts]), *(np.concatenate([p[i] for p in parts]) for i in (1, 2)))
    hosts = Hosts.fit(jobs.reset_index(drop=True), seconds, device)
    logs, deviations = hosts.of(["new", "T4"])
    assert deviations[0] > deviations[1]
    assert 3e-5 < np.exp(logs[1]) < 4e-5
    measured = steps(6e-5, n=4, name="T4", host="mine")
    here = hosts.measured(*measured, here=True)
    assert here.of(["T4"])[1][0] < deviations[1]
    assert np.exp(here.of(["T4"])[0][0]) == pytest.approx(6e-5, rel=0.2)
    assert [part[0] for part in here.of(["A100"])] == [part[0] for part in hosts.of(["A100"])]


@pytest.mark.parametrize("noise", [0.25, 0.5])
def test_the_scatter_of_measured_steps_that_the_host_bounds_is_that_of_further_ones(noise):
    hosts = Hosts.fit(*steps(3e-5, n=200, noise=0.35))
    measured = hosts.measured(*steps(3e-5, n=200, noise=noise, seed=1), here=True)
    assert measured.noise == pytest.approx(noise, rel=0.2)
    few = hosts.measured(*steps(3e-5, n=9, noise=noise, seed=1), here=True)
    assert few.noise == hosts.noise


def test_hosts_survive_being_stored():
    hosts = Hosts.fit(*steps(3e-5)).measured(*steps(1e-5, name="T4"), here=True)
    assert Hosts.from_arrays(hosts.to_arrays()) == hosts
    assert Hosts.from_arrays(Hosts().to_arrays()) == Hosts()


@pytest.mark.filterwarnings("ignore::gpudemand.cost.step_time_model.FarFromTrainingWarning")
def test_a_slow_host_makes_small_steps_longer_and_leaves_large_ones():
    dense = [
        Operator("Gemm", "", f"{i}", "linear", (1, 1024), 2e6, 2**20, 4e6, 4096.0, 4096.0, 4096.0) for i in range(200)
    ]
    graph = OpGraph.from_operators(dense, [(i, i + 1) for i in range(199)], n_parameters=200 * 2**20, n_tensors=200)
    small, large = (TrainingJob(graph, batch_size=size, device="A100", mode="inference") for size in (1, 65536))
    fast, slow = (CostModel.load(host=seconds).predict([small, large])["step_time_s"] for seconds in (3e-6, 1e-4))
    assert slow[0] > 5 * fast[0]
    assert slow[1] == pytest.approx(fast[1], rel=0.02)


def test_hosts_that_are_told_are_checked():
    known = CostModel.load(host="H200").models_["gpu", "step_time_s"].hosts_
    assert known.of(["T4"])[0] == CostModel.load().models_["gpu", "step_time_s"].hosts_.of(["H200 SXM"])[0]
    for wrong in (0.0, 1.0, "A10"):
        with pytest.raises(InputError, match="host"):
            CostModel.load(host=wrong)
