"""The scenario of a study in which the jobs of the slowest GPU type move to the fastest."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand.study.study import Study

BEGIN = pd.Timestamp("2026-01-05", tz="UTC")


def log_of_two_types(older="V100", newer="H100", ratio=0.25, n_days=70):
    """Each day 20 jobs of ten users, half of them the same work on each type, on the newer in a share of the time."""
    rng = np.random.default_rng(0)
    number = np.arange(20 * n_days)
    begin = BEGIN + pd.to_timedelta(number // 20, unit="D") + pd.to_timedelta(rng.integers(0, 72000, number.size), "s")
    is_new = number % 2 == 1
    hours = 4 * np.where(is_new, ratio, 1.0) * rng.lognormal(0, 0.1, number.size)
    user = pd.Series(number // 2 % 10).map("user{}".format)
    times = {"submit": begin, "start": begin, "end": begin + pd.to_timedelta(hours, unit="h")}
    return pd.DataFrame({"user": user, **times, "gpus": 2.0, "gpu_type": np.where(is_new, newer, older)})


def scenario_of(log):
    study = Study(log, installed=64, horizon=7)
    found = study.scenarios.set_index("scenario")
    return found[found.index.str.contains(" move to ")], found.loc["base case"], study._chain.scenarios.skipped


def test_work_moves_in_the_time_that_the_log_shows():
    moved, base, _ = scenario_of(log_of_two_types())
    (name,) = moved.index
    assert name.startswith("jobs on V100 move to H100, in 25% of the time, as 10 kinds of work show")
    # V100s hold four of five GPU-hours, which become one.
    assert moved["required"].iloc[0] == pytest.approx(base["required"] * 2 / 5, abs=1.1)


def test_work_moves_by_data_sheets_where_the_log_shows_none():
    log = log_of_two_types()
    log["user"] += log["gpu_type"]
    moved, base, _ = scenario_of(log)
    assert moved.index[0].endswith("by data sheets")
    assert moved["required"].iloc[0] < base["required"]


@pytest.mark.parametrize(("older", "reason"), [("H100", "at most one GPU type"), ("fpga9", "fpga9")])
def test_what_cannot_move_says_why(older, reason):
    moved, _, skipped = scenario_of(log_of_two_types(older=older))
    assert moved.empty
    assert reason in skipped["newer_gpus"]
