"""Demand without the queue: GPUs wanted on simulated clusters with too few of them, against the jobs offered."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.forecast import SeasonallyAdjustedNaive
from gpudemand.jobs.table import as_jobs, as_of
from gpudemand.planning.capacity import plan_capacity
from gpudemand.planning.queue import simulate_queue
from gpudemand.usage.series import usage_series
from gpudemand.usage.waits import wait_table

BEGIN = pd.Timestamp("2026-03-02", tz="UTC")
DAYS = 56
LOADS = (0.6, 0.9, 1.3)


def offered_log(seed=0, n=12_000):
    """Jobs of eight weeks, most of them of working hours, with heavy-tailed run times."""
    rng = np.random.default_rng(seed)
    day, hour = rng.integers(0, DAYS, n), rng.normal(14, 4, n) % 24
    kept = (day % 7 < 5) | (rng.random(n) < 0.3)
    submit = (BEGIN + pd.to_timedelta(day * 24 + hour, unit="h"))[kept].sort_values().round("s")
    run = pd.to_timedelta(np.exp(rng.normal(8.5, 1.2, len(submit))).clip(10, 4 * 86400).round(), unit="s")
    gpus = rng.choice([1.0, 2.0, 4.0, 8.0], len(submit), p=[0.5, 0.2, 0.2, 0.1])
    frame = pd.DataFrame({"user": "ada", "submit": submit, "start": submit, "end": submit + run, "gpus": gpus})
    return as_jobs(frame, kind="synthetic")


def gpu_hours(log):
    return float(((log["end"] - log["start"]).dt.total_seconds() * log["gpus"]).sum() / 3600)


def wanted(log, until=None):
    return usage_series(log, by=None, freq="D", value="wanted", start=BEGIN, until=until, partial=False)


@pytest.mark.filterwarnings("ignore::gpudemand.forecast.forecaster.ShortHistoryWarning")
@pytest.mark.parametrize("as_the_log_stands", [False, True])
@pytest.mark.parametrize("load", LOADS)
def test_offered_gpu_hours_and_the_plan_are_recovered(load, as_the_log_stands):
    offered = offered_log()
    installed = round(gpu_hours(offered) / (24 * DAYS) / load)
    queued = simulate_queue(offered, installed)
    until = BEGIN + pd.Timedelta(days=DAYS)
    if as_the_log_stands:
        queued = as_of(queued, until)
    truth = usage_series(offered, by=None, freq="D", value="gpus", start=BEGIN, until=until, partial=False)
    found = wanted(queued, until)
    assert found["y"].sum() == pytest.approx(truth["y"].sum(), rel=0.02)
    plans = [
        plan_capacity(SeasonallyAdjustedNaive().fit(usage).predict(28, level=[80, 95]), installed=installed)
        for usage in (truth, found)
    ]
    true, planned = (plan.summary["required"].iloc[0] for plan in plans)
    assert planned == pytest.approx(true, rel=0.05)
    held = usage_series(queued, by=None, freq="D", value="gpus", start=BEGIN, until=until, partial=False)
    if load > 1:
        assert held["y"].sum() < 0.85 * truth["y"].sum()


def test_jobs_cancelled_while_they_waited_are_counted_apart():
    submit = BEGIN + pd.to_timedelta([0, 1, 2], unit="h")
    log = pd.DataFrame(
        {
            "submit": submit,
            "start": submit + pd.Timedelta("5h"),
            "end": submit + pd.to_timedelta([6, 5, 7], unit="h"),
            "gpus": 8.0,
            "status": ["completed", "cancelled", "completed"],
        }
    )
    usage = usage_series(log, by=None, freq="h", value="wanted")
    assert usage["y"].tolist() == [8, 0, 8, 8, 0, 0, 0, 0, 0]
    assert usage.attrs["gave_up"] == 1
    assert usage_series(log, by=None, freq="h", value="gpus")["y"].tolist() == [0, 0, 0, 0, 0, 8, 0, 8, 8]


def test_a_cancelled_job_without_a_start_never_held_anything(tmp_path):
    submit = BEGIN + pd.to_timedelta([0, 1, 2], unit="h")
    log = pd.DataFrame(
        {
            "submit": submit,
            "start": [submit[0] + pd.Timedelta("5h"), None, None],
            "end": submit + pd.to_timedelta([6, 4, 5], unit="h"),
            "gpus": 8.0,
            "status": ["completed", "cancelled", "completed"],
        }
    )
    log.to_parquet(tmp_path / "log.parquet")
    for jobs in (log, tmp_path / "log.parquet"):
        # A missing start of a job that ran counts as its submission.
        held = usage_series(jobs, by=None, freq="h", value="gpus")
        assert held["y"].tolist() == [0, 0, 8, 8, 8, 16, 8]
        assert held.attrs["gave_up"] == 1
        assert usage_series(jobs, by=None, freq="h", value="wanted")["y"].tolist() == [8, 0, 8, 8, 8, 8, 8]
    counts = wait_table(log).loc["all", ["jobs", "waiting", "gave_up"]]
    assert counts.tolist() == [1, 0, 1]
    assert simulate_queue(log, 8)["start"].iloc[1] == log["end"].iloc[1]
    # Without any start nothing says that it waited.
    assert usage_series(log.assign(start=None), by=None, freq="h", value="gpus")["y"].sum() == 8 * (6 + 4 + 5)


def test_jobs_that_have_not_ended_are_wanted_for_the_mean_run_time():
    log = pd.DataFrame(
        {
            "submit": [BEGIN, BEGIN, BEGIN, BEGIN + pd.Timedelta("5h")],
            "start": [BEGIN, BEGIN, BEGIN + pd.Timedelta("4h"), None],
            "end": [BEGIN + pd.Timedelta("1h"), BEGIN + pd.Timedelta("3h"), None, None],
            "gpus": 1.0,
            "status": ["completed", "completed", "running", "pending"],
        }
    )
    usage = usage_series(log, by=None, freq="h", value="wanted", until=BEGIN + pd.Timedelta("9h"))
    assert usage["y"].tolist() == [3, 2, 2, 1, 1, 1, 1, 1, 0]
    at_once = usage_series(
        log.assign(submit=BEGIN), by=None, freq="h", value="wanted", until=BEGIN + pd.Timedelta("9h")
    )
    assert at_once["y"].tolist() == [4, 3, 3, 1, 1, 0, 0, 0, 0]


def test_the_wait_is_no_part_of_what_is_wanted():
    with pytest.raises(InputError, match="drop pending=True"):
        usage_series(offered_log(n=50), value="wanted", pending=True)


@pytest.mark.parametrize("stored", [False, True])
def test_jobs_that_have_not_ended_take_the_share_of_their_request_that_others_took(tmp_path, stored):
    hours = pd.to_timedelta([0, 1, 6, 7], unit="h")
    log = pd.DataFrame(
        {
            "submit": BEGIN + hours,
            "start": [*(BEGIN + hours[:3]), pd.NaT],
            "end": [BEGIN + pd.Timedelta("3h"), BEGIN + pd.Timedelta("2h"), None, None],
            "gpus": 1.0,
            "requested_time": [6 * 3600.0, 2 * 3600.0, 3600.0, 2 * 3600.0],
            "status": ["completed", "completed", "running", "pending"],
        }
    )
    if stored:
        log.to_parquet(tmp_path / "log.parquet")
    jobs = tmp_path / "log.parquet" if stored else log
    until = BEGIN + pd.Timedelta("12h")
    usage = usage_series(jobs, by=None, freq="h", value="wanted", until=until)
    # The longest run takes 6 h, so far, of 1 h requested; that request and the others are then of 1, 2 and 6 h.
    assert usage["y"].iloc[:7].tolist() == [1, 2, 1, 0, 0, 0, 1]
    assert usage["y"].iloc[7:].sum() == pytest.approx(5 + 2 * (3 + 1 + 6) / (6 + 2 + 1))
    # A request in years counts as the longest run.
    long = usage_series(
        log.assign(requested_time=[6 * 3600.0, 2 * 3600.0, 3600.0, 1e12]),
        by=None,
        freq="h",
        value="wanted",
        until=until,
    )
    assert long["y"].sum() < 24


def test_offered_gpu_hours_are_recovered_from_requests_behind_a_long_queue():
    offered = offered_log(seed=1)
    rng = np.random.default_rng(2)
    run = (offered["end"] - offered["start"]).dt.total_seconds()
    offered["requested_time"] = run * np.exp(rng.exponential(0.5, len(offered)))
    installed, until = round(gpu_hours(offered) / (24 * DAYS) / 1.3), BEGIN + pd.Timedelta(days=DAYS)
    queued = as_of(simulate_queue(offered, installed), until)
    truth = usage_series(offered, by=None, freq="D", value="gpus", start=BEGIN, until=until, partial=False)
    last = [usage["y"].tail(7).mean() for usage in (truth, wanted(queued, until))]
    unasked = wanted(queued.assign(requested_time=np.nan), until)["y"].tail(7).mean()
    assert last[1] == pytest.approx(last[0], rel=0.06)
    assert abs(last[1] - last[0]) < abs(unasked - last[0])
