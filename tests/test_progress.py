"""What takes over two seconds tells so, where the logger `gpudemand` listens; warnings name the caller's line."""

from __future__ import annotations

import threading
import time

import pandas as pd
import pytest

import gpudemand as gd
from gpudemand import _validation
from gpudemand._validation import telling
from tests.report.conftest import undrawn  # noqa: F401
from tests.test_any_table import CALLS, LOG, TRAINING
from tests.test_any_usage_table import USAGE, USAGE_CALLS, WIDE, WIDE_CALLS

#: Public calls that took over two seconds on the sample or on 1.6 million jobs -> what they tell.
SLOW = {
    "usage_series": "Computing usage",
    "simulate_queue": "Simulating a queue",
    "expected_queueing": "Simulating queues",
    "effective_capacity": "Simulating queues",
    "plan_waits": "Planning for waits",
    "plan_capacity": "Planning capacity",
    "wait_table": "Computing waits",
    "idle_table": "Computing idle GPUs",
    "WhatIf": "Planning scenarios",
    "TrainingRunTime.fit": "Fitting TrainingRunTime",
    "JobDemandModel.fit": "Fitting JobDemandModel",
    "demand_cross_validation": "Backtesting",
    "costs_against_log": "Comparing costs with the log",
    "cross_validation": "Backtesting",
    "Forecaster.fit": "Fitting LastValueProfile",
    "TopologicalSegmenter.fit": "Segmenting users",
    "TopologicalSegmenter.predict": "Assigning users to segments",
}


@pytest.fixture
def steps(monkeypatch, caplog):
    """Steps as they begin, however short."""
    begun = []
    monkeypatch.setattr(_validation, "_tell", lambda step, ended: begun.append(step))
    with caplog.at_level("INFO", logger="gpudemand"):
        yield begun


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("entry", SLOW)
def test_what_takes_long_is_told(entry, steps, tmp_path):
    if entry in CALLS:
        CALLS[entry](TRAINING if entry.startswith(("Training", "costs_")) else LOG, tmp_path)
    else:
        USAGE_CALLS[entry](USAGE) if entry in USAGE_CALLS else WIDE_CALLS[entry](WIDE)
    assert SLOW[entry] in steps


def test_reading_a_log_and_run_times_are_told(steps, tmp_path):
    gd.write_jobs(LOG.head(30), tmp_path / "log.csv")
    jobs = gd.read_jobs(tmp_path / "log.csv")
    gd.RunTimeModel(max_iter=2).fit(jobs).predict(jobs)
    told = ["Writing jobs", "Reading the log", "Fitting RunTimeModel", "Predicting run times"]
    assert list(dict.fromkeys(steps)) == told


def test_stages_of_a_study_are_told(steps):
    study = gd.Study(LOG, horizon=5, lead_time="5D")
    assert len(study.drivers)
    study.attempt("order_range", lambda: None)
    assert steps[-1] == "Computing order range"
    assert "Computing drivers" in steps


def test_a_step_is_told_at_growing_intervals_and_no_longer_than_it_lasts(monkeypatch, caplog):
    monkeypatch.setattr(_validation, "_TOLD_AFTER", 0.02)
    with caplog.at_level("INFO", logger="gpudemand"), telling("Waiting"):
        time.sleep(0.2)
    told = len(caplog.messages)
    assert 2 <= told <= 5
    assert caplog.messages[0] == "Waiting, 0 s so far"
    time.sleep(0.3)
    assert len(caplog.messages) == told


def test_a_short_step_is_not_told_and_without_a_listener_no_thread_begins(caplog):
    with caplog.at_level("INFO", logger="gpudemand"), telling("Waiting"):
        pass
    threads = threading.active_count()
    with telling("Waiting"):
        assert threading.active_count() <= threads
    assert caplog.messages == []


def test_a_warning_names_the_line_that_called_the_package(tmp_path):
    LOG.assign(end=LOG["end"].where(LOG.index > 2, LOG["start"] - pd.Timedelta("1h"))).to_csv(tmp_path / "log.csv")
    with pytest.warns(gd.RejectedRowsWarning) as caught:
        gd.read_jobs(tmp_path / "log.csv")
    users = gd.to_wide(gd.usage_series(gd.make_cluster(n_users=4, n_days=20, random_state=0)[0]))
    with pytest.warns(gd.segments.ExtrapolationWarning) as few:
        gd.TopologicalSegmenter(random_state=0).fit(users)
    assert {each.filename for each in (*caught, *few)} == {__file__}
