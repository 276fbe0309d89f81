"""Sentences on times in which nothing ran."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand.report.limitations import times_without_use, without_use
from gpudemand.study.settings import Settings
from gpudemand.study.source import JobSource
from tests.report.conftest import make_log


def held(values, freq="D"):
    return pd.DataFrame({"ds": pd.date_range("2026-03-01", periods=len(values), freq=freq, tz="UTC"), "y": values})


def test_a_closure_is_named_with_its_days():
    y = np.full(60, 90.0)
    y[30:36] = y[50:54] = 0.5
    text = without_use(held(y))
    assert "from 31 Mar 2026 to 5 Apr 2026, the longest of 2 such times: 6 days" in text


@pytest.mark.parametrize(
    "y",
    [
        np.tile([90.0, 80, 85, 95, 90, 2, 1], 9),  # empty on weekends
        np.r_[np.zeros(6), np.full(50, 90.0)],  # before jobs are recorded that began earlier
        np.r_[np.full(30, 90.0), 0.0, 0.0, np.full(30, 90.0)],  # two days
        np.r_[np.full(30, 2.0), np.zeros(9), np.full(30, 2.0)],  # a small cluster is often idle
        np.linspace(50, 100, 60),
        np.array([4.0, 8.0, 6.0]),
    ],
)
def test_ordinary_usage_has_none(y):
    assert without_use(held(y)) == ""


def test_what_was_not_recorded_is_said_elsewhere():
    y = np.full(60, 90.0)
    y[30:36] = np.nan
    assert without_use(held(y)) == ""
    assert without_use(held(np.full(40, 90.0), "MS")) == ""


def test_the_end_is_told_once():
    y = np.r_[np.full(50, 90.0), np.zeros(10)]
    usage = held(y).assign(unique_id="mean")
    shares = pd.DataFrame({"last_use": pd.to_datetime(["2026-04-20"], utc=True)})
    numbers = {"log_end": "2026-04-30T00:00:00+00:00"}
    (text,) = times_without_use(numbers, {"usage": usage, "usage_shares": shares})
    assert text.startswith("The last use of a GPU was on 20 Apr 2026; the 10 days")
    assert times_without_use(numbers, {"usage": usage, "usage_shares": shares}, ended=True) == []
    (text,) = times_without_use(numbers, {"usage": usage})
    assert text.startswith("Next to no GPU was held from 20 Apr 2026 to 29 Apr 2026: 10 days")


def test_jobs_that_wait_use_nothing():
    log = make_log(days=40)
    late = log.tail(1).assign(submit=log["end"].max() + pd.Timedelta("20D"), start=pd.NaT, end=pd.NaT, status="pending")
    late["start"], late["end"] = (pd.Series(pd.NaT, late.index, log["start"].dtype) for _ in range(2))
    jobs = pd.concat([log, late.assign(user="waits")], ignore_index=True)
    jobs.attrs = log.attrs
    facts = JobSource.of(jobs, Settings()).facts("user")
    assert facts["last_use"].max() == log["end"].max()
    assert pd.isna(facts.loc["waits", "last_use"])
