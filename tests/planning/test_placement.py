"""Assignments against exhaustive search and the linear-programming bound."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog

from gpudemand._validation import InputError
from gpudemand.datasets import make_cluster
from gpudemand.planning.placement import place_jobs, predicted_times
from tests.planning.test_what_if import TrueCosts


def unrelated(n, m, seed):
    rng = np.random.default_rng(seed)
    return rng.lognormal(3, 1, (n, 1)) * rng.uniform(0.5, 3, m) * rng.uniform(0.8, 1.25, (n, m))


def makespan(device, seconds):
    return np.bincount(device, seconds[np.arange(len(device)), device], minlength=seconds.shape[1]).max()


def shortest_makespan(seconds, fits):
    """Makespan if jobs could be split between devices (linear relaxation)."""
    job, device = np.nonzero(fits)
    whole = np.c_[np.equal.outer(np.arange(len(seconds)), job), np.zeros(len(seconds))]
    load = np.c_[np.equal.outer(np.arange(seconds.shape[1]), device) * seconds[job, device], -np.ones(seconds.shape[1])]
    makespan = np.r_[np.zeros(job.size), 1.0]
    return linprog(makespan, A_ub=load, b_ub=load[:, 0] * 0, A_eq=whole, b_eq=np.ones(len(seconds))).fun


@pytest.mark.parametrize("seed", range(5))
def test_close_to_the_best_of_all_assignments(seed):
    seconds = unrelated(8, 3, seed)
    fits = np.random.default_rng(seed).random((8, 3)) < 0.8
    fits[:, 0] = True
    jobs = np.arange(8)
    every = (np.array(choice) for choice in product(range(3), repeat=8))
    best = min(makespan(device, seconds) for device in every if fits[jobs, device].all())
    device = place_jobs(seconds, fits)
    assert fits[jobs, device].all()
    assert shortest_makespan(seconds, fits) <= best + 1e-9 <= makespan(device, seconds) + 2e-9
    assert makespan(device, seconds) <= 1.15 * best


def test_many_jobs_come_near_the_bound():
    seconds, fits = unrelated(300, 8, 0), np.ones((300, 8), dtype=bool)
    found = makespan(place_jobs(seconds, fits), seconds)
    assert found <= 1.1 * shortest_makespan(seconds, fits)
    assert found < 0.8 * makespan(np.arange(300) % 8, seconds)


def test_a_job_that_fits_nowhere_is_not_placed():
    assert place_jobs(np.array([[1.0, 10.0]]), np.array([[False, False]])).tolist() == [-1]


def test_predicted_times_and_memory_give_good_assignments_on_the_synthetic_cluster():
    jobs = make_cluster(n_users=20, n_days=20, random_state=1)[0].head(150).assign(precision="fp32")
    devices = ["V100"] * 3 + ["A100"] * 2 + ["H100"]
    true_s, probability = predicted_times(jobs, devices, TrueCosts())
    predicted_s = true_s * np.random.default_rng(0).lognormal(0, 0.2, true_s.shape)
    device = place_jobs(predicted_s, probability >= 0.9)
    assert (probability[np.arange(len(jobs)), device] == 1).all()
    assert makespan(device, true_s) < 1.3 * shortest_makespan(true_s, probability > 0)


def test_predicted_times_are_placed_as_they_are():
    jobs = make_cluster(n_users=10, n_days=10, random_state=1)[0].head(40)
    jobs = jobs.assign(precision=["bf16", "fp32", "fp32", "fp16"] * 10)
    seconds, fits = predicted_times(jobs, ["V100", "A100", "V100"], TrueCosts())
    # A V100 has no bf16.
    halves = (jobs["precision"] == "bf16").to_numpy()
    assert np.isnan(seconds[halves][:, [0, 2]]).all()
    assert (fits[halves][:, [0, 2]] == 0).all()
    assert np.isfinite(seconds[~halves]).all()
    assert np.isfinite(seconds[:, 1]).all()
    chosen = place_jobs(seconds, fits)
    assert chosen.tolist() == place_jobs(seconds, fits >= 0.95).tolist()
    assert set(chosen[halves]) <= {1, -1}
    for kind in (np.ndarray.tolist, pd.DataFrame):
        assert place_jobs(kind(seconds), kind(fits >= 0.95)).tolist() == chosen.tolist()
    assert place_jobs([[2.0, 1.0]], [[0.9, 0.6]], probability=0.8).tolist() == [0]
    assert place_jobs([[2.0, 1.0]], [[0.9, 0.6]], probability=0.5).tolist() == [1]


def test_all_jobs_may_be_of_a_precision_that_a_device_lacks():
    jobs = make_cluster(n_users=5, n_days=5, random_state=1)[0].head(3).assign(precision="bf16")
    seconds, fits = predicted_times(jobs, ["V100"], TrueCosts())
    assert place_jobs(seconds, fits).tolist() == [-1, -1, -1]


def test_invalid_arguments_raise_a_clear_error():
    with pytest.raises(InputError, match="same shape"):
        place_jobs(np.ones((2, 2)), np.ones((2, 3), dtype=bool))
    with pytest.raises(InputError, match="positive"):
        place_jobs(-np.ones((2, 2)), np.ones((2, 2), dtype=bool))
    with pytest.raises(InputError, match="booleans, or probabilities"):
        place_jobs(np.ones((2, 2)), 95 * np.ones((2, 2)))
    with pytest.raises(InputError, match="booleans, or probabilities"):
        place_jobs(np.ones((2, 2)), np.full((2, 2), np.nan))
    with pytest.raises(InputError, match="seconds must be a table of numbers"):
        place_jobs([[1.0, "fast"]], [[True, True]])
    with pytest.raises(InputError, match="probability must be a number above 0"):
        place_jobs(np.ones((2, 2)), np.ones((2, 2)), probability=0)
