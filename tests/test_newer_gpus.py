"""The scenario of a study in which the jobs of the slowest GPU type move to the fastest."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.study import scenarios
from gpudemand.study import study as stages
from gpudemand.study.study import Study
from tests.report.conftest import quick_module  # noqa: F401
from tests.tiers import slow_beside, slow_where

BEGIN = pd.Timestamp("2026-01-05", tz="UTC")


@pytest.fixture(autouse=True, scope="module")
def alone(quick_module):  # noqa: F811
    """Skip the other scenarios, and the segments that one of them needs."""

    def skip(*arguments):
        raise InputError("left out of these tests.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "segment_users", skip)
        for other in ("_growth", "_departure", "_arrivals"):
            patch.setattr(scenarios, other, skip)
        yield


def log_of_two_types(older="V100", newer="H100", ratio=0.25, n_days=42):
    """Each day 20 jobs of ten users, half of them the same work on each type, on the newer in a share of the time."""
    rng = np.random.default_rng(0)
    number = np.arange(20 * n_days)
    begin = BEGIN + pd.to_timedelta(number // 20, unit="D") + pd.to_timedelta(rng.integers(0, 72000, number.size), "s")
    is_new = number % 2 == 1
    hours = 4 * np.where(is_new, ratio, 1.0) * rng.lognormal(0, 0.1, number.size)
    user = pd.Series(number // 2 % 10).map("user{}".format)
    times = {"submit": begin, "start": begin, "end": begin + pd.to_timedelta(hours, unit="h")}
    return pd.DataFrame({"user": user, **times, "gpus": 2.0, "gpu_type": np.where(is_new, newer, older)})


class HalfTheTime:
    """A cost model that knows one network, of which every step takes half the time on an H100."""

    def knows(self, jobs):
        return (jobs["network"] == "resnet50").to_numpy()

    def costs(self, jobs):
        assert self.knows(jobs).all()
        step = np.where(jobs["gpu_type"] == "H100", 1.0, 2.0)
        return pd.DataFrame({"step_time_s": step, "memory_gib": 1.0, "fits": 1.0}, index=jobs.index)


def scenario_of(log, step_costs=None):
    study = Study(log, installed=64, horizon=7, step_costs=step_costs)
    found = study.scenarios.set_index("scenario")
    return found[found.index.str.contains(" move to ")], found.loc["base case"], study.scenario_plans.skipped


@pytest.mark.slow
def test_work_moves_in_the_time_that_the_log_shows():
    moved, base, _ = scenario_of(log_of_two_types())
    (name,) = moved.index
    assert name.startswith("jobs on V100 move to H100, in 25% of the time, as 10 kinds of work show")
    # V100s hold four of five GPU-hours, which become one.
    assert moved["required"].iloc[0] == pytest.approx(base["required"] * 2 / 5, abs=1.1)


@pytest.mark.slow
def test_slices_of_gpus_neither_move_nor_hinder_others():
    log = log_of_two_types()
    sliced = log.head(300).assign(gpu_type="1g.10gb", gpus=1 / 7)
    moved, _, _ = scenario_of(pd.concat([log, sliced], ignore_index=True))
    assert moved.index[0].startswith("jobs on V100 move to H100")
    log["gpu_type"] = log["gpu_type"].replace("H100", "1g.10gb")
    assert "at most one GPU type" in scenario_of(log)[2]["newer_gpus"]


def test_jobs_that_ended_at_once_warn_of_nothing():
    log = log_of_two_types()
    log.loc[::50, "end"] = log.loc[::50, "start"]
    with np.errstate(all="raise"):
        assert len(scenario_of(log)[0]) == 1


@pytest.mark.slow
def test_work_moves_by_data_sheets_where_the_log_shows_none():
    log = log_of_two_types()
    log["user"] += log["gpu_type"]
    moved, base, _ = scenario_of(log)
    assert moved.index[0].endswith("by data sheets")
    assert moved["required"].iloc[0] < base["required"]


@pytest.mark.parametrize(
    ("share", "text"),
    slow_where(
        lambda case: case[0] != 0.5,
        [
            (1.0, "in 50% of the time, as the cost model predicts for their networks"),
            (0.5, "predicts for their networks, for 50% of the jobs, else by data sheets"),
            (0.0, "by data sheets"),
        ],
    ),
)
def test_work_of_known_networks_moves_as_the_cost_model_predicts(share, text):
    log = log_of_two_types()
    log["user"] += log["gpu_type"]
    known = np.arange(len(log)) // 2 % 10 < 10 * share
    moved, base, _ = scenario_of(log.assign(network=np.where(known, "resnet50", "of ours")), HalfTheTime())
    assert moved.index[0].endswith(text)
    assert moved["required"].iloc[0] < base["required"]


@pytest.mark.parametrize(
    ("older", "reason"), slow_beside([("fpga9", "fpga9")], [("H100", "at most one GPU type"), ("fpga9", "fpga9")])
)
def test_what_cannot_move_says_why(older, reason):
    moved, _, skipped = scenario_of(log_of_two_types(older=older))
    assert moved.empty
    assert reason in skipped["newer_gpus"]
