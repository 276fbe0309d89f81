"""A study of a log whose jobs tell what they train: predicted run times against observed ones, and moves by network."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
from gpudemand.cost.job import TrainingJob
from gpudemand.datasets import make_cluster, true_step_time
from gpudemand.planning.training_run_time import OTHERS
from tests.report.conftest import quick_module, selected_once, undrawn  # noqa: F401

#: What predicted step times are too low by.
TRUE = 2.0
LOG, TRUTH = make_cluster(n_users=20, n_days=70, random_state=0)
END = LOG["submit"].max().normalize()
USER = str(LOG["user"].value_counts().index[0])
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_module", "selected_once", "undrawn")]


class Costs:
    """Predicted step times of the simulated cluster, of all networks but one."""

    unknown = "resnet50"

    def knows(self, jobs):
        if "network" not in jobs:
            return np.zeros(len(jobs), dtype=bool)
        return (jobs["network"] != self.unknown).to_numpy(dtype=bool)

    def __call__(self, jobs):
        return self.costs(jobs)["step_time_s"].to_numpy()

    def costs(self, jobs):
        assert self.knows(jobs).all()
        step = true_step_time(jobs) / TRUE
        return pd.DataFrame({"step_time_s": step, "memory_gib": 1.0, "fits": 1.0}, index=jobs.index)


def programme(user):
    job = TrainingJob.from_config("llama-3-8b", 4096, device="H100", n_gpus=8, micro_batch=1)
    return gd.Programme("new", 20, END, END + pd.Timedelta("40D"), job=job, steps=2000, user=user)


@cache
def study(log=None, costs=True, user=USER):
    jobs = LOG if log is None else LOG.drop(columns=log)
    return gd.Study(jobs, horizon=7, programmes=[programme(user)], step_costs=Costs() if costs else None)


def part(study):
    forecast = study.forecast.set_index("unique_id").loc["total/new"]
    return forecast["Study"].mean(), (forecast["Study-hi-80"] - forecast["Study-lo-80"]).mean()


@pytest.mark.parametrize("user", [USER, "nobody"])
def test_programmes_take_the_time_that_runs_of_their_user_took(user):
    ratios = study(user=user).run_time_ratios.set_index("user")
    (mean, width), (plain, narrow) = part(study(user=user)), part(study(costs=False, user=user))
    row = user if user in ratios.index else OTHERS
    assert mean == pytest.approx(plain * ratios.loc[row, "ratio"])
    assert width > narrow
    efficiency = TRUTH.set_index("user")["efficiency"].get(user, 1.0)
    assert abs(mean / (plain * TRUE * efficiency) - 1) < 0.2
    assert (LOG["network"] == Costs.unknown).any()  # left out


@pytest.mark.parametrize(
    ("log", "costs", "reason"), [("network", True, "do not tell network, so"), (None, False, "give step_costs=")]
)
def test_what_is_missing_is_said_and_not_shown(log, costs, reason, tmp_path):
    without = study(log, costs)
    assert np.isfinite(part(without)).all()
    assert reason in without.skipped["run_time_ratios"]
    page = without.report(tmp_path / "report").read_text()
    assert "Predicted run times against the log" not in page
    assert without.skipped["run_time_ratios"] not in page


def test_the_report_shows_the_ratios(tmp_path):
    page = study().report(tmp_path / "report")
    assert "Predicted run times against the log" in page.read_text()
    written = pd.read_parquet(page.parent / "tables" / "run_time_ratios.parquet")
    pd.testing.assert_frame_equal(written, study().run_time_ratios, check_dtype=False)
