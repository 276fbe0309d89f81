"""Observed over predicted run times by user, and programmes corrected by them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
from gpudemand._validation import InputError
from gpudemand.cost.job import TrainingJob
from gpudemand.datasets import make_cluster, true_step_time
from gpudemand.planning.training_run_time import OTHERS, random_effects, run_time_ratios

BEGIN, END = pd.Timestamp("2026-04-01", tz="UTC"), pd.Timestamp("2026-05-01", tz="UTC")
#: What the predictions below are too low by.
TRUE = 2.0


def predicted(jobs):
    return true_step_time(jobs) / TRUE


def log_of(efficiency, rng, settings=4, spread=0.3):
    """Completed jobs of users with known factors on the predicted time, which errs by network besides."""
    users = np.repeat(np.arange(len(efficiency)), settings)
    error = rng.normal(0, spread, users.size)
    hours = np.asarray(efficiency)[users] * np.exp(error)
    start = BEGIN + pd.to_timedelta(np.arange(users.size), "h")
    names = [f"net{number % settings}" for number in range(users.size)]
    columns = {"user": [f"u{user}" for user in users], "start": start, "end": start + pd.to_timedelta(hours, "h")}
    training = {
        "network": names,
        "batch_size": 1,
        "epochs": 1,
        "samples": 3600,
        "gpu_type": "A100",
        "precision": "fp32",
    }
    return pd.DataFrame({**columns, "gpus": 1.0, **training})


@pytest.mark.slow
def test_intervals_cover_the_factors_of_users_at_their_level():
    rng, inside, others = np.random.default_rng(0), [], []
    for _ in range(100):
        efficiency = 1.5 * rng.lognormal(0, 0.3, 21)
        table = run_time_ratios(log_of(efficiency[:20], rng), lambda jobs: np.ones(len(jobs)), startup_s=0)
        table = table.set_index("user")
        rows = table.loc[[f"u{user}" for user in range(20)]]
        inside.append(rows["low"].le(efficiency[:20]) & rows["high"].ge(efficiency[:20]))
        others.append(table.loc[OTHERS, "low"] <= efficiency[20] <= table.loc[OTHERS, "high"])
    assert np.mean(inside) == pytest.approx(0.9, abs=0.03)
    assert np.mean(others) == pytest.approx(0.9, abs=0.1)  # three standard errors of 100 logs


def test_factors_of_a_simulated_cluster_are_recovered():
    jobs, truth = make_cluster(n_users=40, n_days=60, random_state=0)
    ratios = run_time_ratios(jobs, predicted).set_index("user")["ratio"].drop(OTHERS)
    true = TRUE * truth.set_index("user")["efficiency"]
    np.testing.assert_allclose(ratios, true.loc[ratios.index], rtol=0.05)


def test_little_evidence_is_drawn_to_the_others():
    rng = np.random.default_rng(1)
    jobs = pd.concat([log_of(np.full(10, 2.0), rng, spread=0.1), log_of([4.0], rng, 1).assign(user="new")])
    ratio = run_time_ratios(jobs, lambda jobs: np.ones(len(jobs)), startup_s=0).set_index("user")["ratio"]
    assert 2 < ratio["new"] < 4 * np.exp(0.3)
    assert abs(ratio["new"] - 2) < abs(random_effects(np.array([4.0]), np.array([1.0])).mean - 2)


@pytest.mark.slow
def test_programmes_of_a_user_come_closer_to_the_truth():
    jobs, truth = make_cluster(n_users=12, n_days=60, random_state=3)
    ratios = run_time_ratios(jobs, predicted).set_index("user")
    efficiency = truth.set_index("user")["efficiency"]
    job = TrainingJob.from_config("llama-3-8b", 4096, device="H100", n_gpus=8, micro_batch=1)
    for user in ratios.index.drop(OTHERS)[:6]:
        plain = gd.Programme("new", 10, BEGIN, END, job=job, steps=100, user=user)
        own = gd.Programme("new", 10, BEGIN, END, job=job, steps=100, user=user, ratio=_row(ratios, user))
        true = plain.gpu_hours * TRUE * efficiency[user]
        assert abs(own.gpu_hours - true) < 0.1 * abs(plain.gpu_hours - true)
        assert own.run.high / own.run.hours > plain.run.high / plain.run.hours


def _row(table, user):
    return tuple(float(value) for value in table.loc[user, ["ratio", "low", "high"]])


@pytest.mark.parametrize("ratio", [(1.0, 2.0, 3.0), (1.0, 0.0, 3.0), (4.0, 2.0, 3.0)])
def test_a_ratio_outside_its_interval_is_refused(ratio):
    job = TrainingJob.from_config("llama-3-8b", 4096, device="H100", n_gpus=8)
    with pytest.raises(InputError, match="ratio of 'new' must be"):
        gd.Programme("new", 1, BEGIN, END, job=job, steps=1, ratio=ratio)


def test_a_log_without_completed_jobs_says_so():
    jobs = log_of([1.0], np.random.default_rng(0)).assign(status="failed")
    with pytest.raises(InputError, match="no completed job has a predicted run time"):
        run_time_ratios(jobs, lambda jobs: np.ones(len(jobs)))
