"""Placement against exhaustive search, its bound, and no prediction at all."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from gpudemand._validation import InputError
from gpudemand.datasets import make_cluster
from gpudemand.planning.placement import (
    carry_out,
    compare_placements,
    first_fit,
    place_jobs,
    predicted_times,
    shortest_makespan,
)
from tests.planning.test_scenario import LawOfNature


def unrelated(n, m, seed):
    rng = np.random.default_rng(seed)
    return rng.lognormal(3, 1, (n, 1)) * rng.uniform(0.5, 3, m) * rng.uniform(0.8, 1.25, (n, m))


@pytest.mark.parametrize("seed", range(5))
def test_close_to_the_best_of_all_assignments(seed):
    seconds = unrelated(8, 3, seed)
    fits = np.random.default_rng(seed).random((8, 3)) < 0.8
    fits[:, 0] = True
    jobs = np.arange(8)
    every = (np.array(choice) for choice in product(range(3), repeat=8))
    best = min(
        np.bincount(device, seconds[jobs, device], minlength=3).max() for device in every if fits[jobs, device].all()
    )
    found, failures = carry_out(place_jobs(seconds, fits), seconds, fits)
    assert failures == 0
    assert shortest_makespan(seconds, fits) <= best + 1e-9 <= found + 2e-9
    assert found <= 1.15 * best


def test_many_jobs_come_near_the_bound():
    seconds, fits = unrelated(300, 8, 0), np.ones((300, 8), dtype=bool)
    found, _ = carry_out(place_jobs(seconds, fits), seconds, fits)
    assert found <= 1.1 * shortest_makespan(seconds, fits)
    assert found < 0.8 * carry_out(first_fit(seconds), seconds, fits)[0]


def test_a_job_without_memory_fails_and_runs_again():
    seconds, fits = np.array([[1.0, 10.0]]), np.array([[False, True]])
    assert carry_out(np.array([0]), seconds, fits) == (10.0, 1)
    assert carry_out(np.array([-1]), seconds, fits) == (10.0, 0)
    assert place_jobs(seconds, np.array([[False, False]])).tolist() == [-1]


def test_prediction_saves_failures_and_time_on_the_synthetic_cluster():
    jobs = make_cluster(n_users=20, n_days=20, random_state=1)[0].head(150).assign(precision="fp32")
    devices = ["V100"] * 3 + ["A100"] * 2 + ["H100"]
    true_s, true_fits = predicted_times(jobs, devices, LawOfNature())
    rng = np.random.default_rng(0)
    guess = true_s * rng.lognormal(0, 0.2, true_s.shape)
    table = compare_placements(guess, true_fits, true_s, true_fits > 0)
    assert table["makespan_s"].is_monotonic_decreasing
    assert table.loc["predicted", "out_of_memory"] == 0 < table.loc["first fit", "out_of_memory"]
    assert table.loc["predicted", "over_bound"] < 1.3


def test_nonsense_gets_a_sentence():
    with pytest.raises(InputError, match="same shape"):
        place_jobs(np.ones((2, 2)), np.ones((2, 3), dtype=bool))
    with pytest.raises(InputError, match="positive"):
        place_jobs(-np.ones((2, 2)), np.ones((2, 2), dtype=bool))
