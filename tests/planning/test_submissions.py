"""Intervals of the GPU-hours that will be submitted, on simulated and real logs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand.jobs.read import read_jobs
from gpudemand.jobs.table import as_jobs, seconds_since
from gpudemand.planning.demand import forecast_submissions

BEGIN = pd.Timestamp("2026-01-01", tz="UTC")
DAYS = 28


def coverage(jobs, gpu_hours, most=20):
    """Share of the 80 % intervals of 28-day totals, of the largest groups, that the totals lie in."""
    inside = []
    first, last = jobs["submit"].min() + pd.Timedelta("84D"), jobs["submit"].max() - pd.Timedelta(days=DAYS)
    for origin in pd.date_range(first, last, freq=f"{DAYS}D"):
        table = forecast_submissions(jobs, gpu_hours, origin, days=DAYS).head(most)
        ahead = ((jobs["submit"] >= origin) & (jobs["submit"] < origin + pd.Timedelta(days=DAYS))).to_numpy()
        actual = (
            pd.Series(gpu_hours[ahead]).groupby(jobs["user"].to_numpy()[ahead]).sum().reindex(table.index).fillna(0)
        )
        inside += ((actual >= table["gpu_hours-lo-80"] - 1e-9) & (actual <= table["gpu_hours-hi-80"] + 1e-9)).tolist()
    return np.mean(inside)


def test_intervals_cover_users_whose_level_drifts():
    rng = np.random.default_rng(0)
    level = np.exp(np.cumsum(rng.normal(0, 0.06, (20, 300)), axis=1)) * 4
    count = rng.poisson(level).ravel()
    user, day = (index.repeat(count) for index in np.indices(level.shape).reshape(2, -1))
    submit = BEGIN + pd.to_timedelta(day, unit="D")
    jobs = as_jobs(pd.DataFrame({"user": [f"u{n}" for n in user], "submit": submit, "gpus": 1.0}), kind="synthetic")
    assert 0.7 <= coverage(jobs, np.ones(len(jobs))) <= 0.9


@pytest.mark.slow
def test_intervals_cover_the_users_of_kth_sp2(shared_data):
    jobs = read_jobs(shared_data / "traces/swf-kth-sp2/KTH-SP2-1996-2.swf.gz", format="swf")
    gpu_hours = seconds_since(jobs["end"], jobs["start"]) / 3600 * jobs["gpus"].to_numpy()
    assert 0.7 <= coverage(jobs, gpu_hours) <= 0.9


@pytest.mark.parametrize("n_days", [1, 5, 40])
def test_a_short_or_constant_history(n_days):
    submit = BEGIN + pd.to_timedelta(np.arange(n_days), unit="D")
    jobs = as_jobs(pd.DataFrame({"user": "ada", "submit": submit, "gpus": 1.0}), kind="synthetic")
    row = forecast_submissions(jobs, np.full(n_days, 3.0), BEGIN + pd.Timedelta(days=n_days), days=DAYS).loc["ada"]
    assert row["gpu_hours"] == pytest.approx(84)
    assert row["gpu_hours-lo-80"] <= row["gpu_hours"] <= row["gpu_hours-hi-80"]
    assert n_days == 1 or row["gpu_hours-hi-80"] == pytest.approx(84)
