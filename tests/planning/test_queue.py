"""Simulated queues against theory."""

from __future__ import annotations

from math import factorial

import numpy as np
import pandas as pd
import pytest

from gpudemand.jobs.table import as_jobs
from gpudemand.planning.queue.expected import expected_queueing, simulate_starts


def test_waits_follow_erlang():
    rng = np.random.default_rng(0)
    servers, load, n = 10, 8.0, 200_000
    submit, run = np.cumsum(rng.exponential(1 / load, n)), rng.exponential(1.0, n)
    wait = simulate_starts(submit, run, np.ones(n), servers, "fifo") - submit
    top = load**servers / factorial(servers) * servers / (servers - load)
    chance = top / (sum(load**k / factorial(k) for k in range(servers)) + top)
    assert (wait > 1e-12).mean() == pytest.approx(chance, rel=0.05)
    assert wait.mean() == pytest.approx(chance / (servers - load), rel=0.1)


def test_more_gpus_less_waiting_and_a_job_too_large_never_runs():
    rng = np.random.default_rng(1)
    submit = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(np.sort(rng.uniform(0, 7 * 86400, 500)), unit="s")
    frame = pd.DataFrame({"submit": submit, "gpus": rng.choice([1.0, 4.0, 16.0], 500)})
    run = pd.to_timedelta(rng.exponential(7200, 500), unit="s")
    jobs = as_jobs(frame.assign(end=frame["submit"] + run), kind="synthetic")
    table = expected_queueing(jobs, [8, 16, 64])
    assert table["mean_wait_s"].loc[[16, 64]].is_monotonic_decreasing
    assert table["never"].tolist() == [pytest.approx((frame["gpus"] == 16).mean()), 0, 0]
    assert expected_queueing(jobs, [16], growth=2.0)["mean_wait_s"].iloc[0] > table.loc[16, "mean_wait_s"]


def test_no_gpu_is_used_twice():
    rng = np.random.default_rng(2)
    submit, run = np.sort(rng.uniform(0, 100, 300)), rng.exponential(5, 300)
    gpus = rng.choice([1.0, 2.0, 8.0], 300)
    for policy in ("fifo", "backfill"):
        starts = simulate_starts(submit, run, gpus, 12, policy)
        assert (starts >= submit).all()
        assert np.isfinite(starts).all()
        held = [gpus[(starts <= now) & (starts + run > now + 1e-9)].sum() for now in starts]
        assert max(held) <= 12
