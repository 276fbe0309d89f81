"""From a network to an order: notebook and command agree, and the uncertainty of costs is carried to the order."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import gpudemand as gd
from gpudemand.cli.report import sample_log
from gpudemand.datasets import make_cluster
from gpudemand.jobs import write_jobs

#: Small networks of one kind of kernel are unlike those that were measured.
pytestmark = pytest.mark.filterwarnings("ignore::gpudemand.cost.step_time_model.FarFromTrainingWarning")
ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "01_a_network_to_an_order.ipynb"
LOG, _ = make_cluster(n_users=12, n_days=120, random_state=0)
END = LOG["submit"].max().normalize()


class Costs:
    """Step times with an interval of a given factor."""

    def __init__(self, factor):
        self.factor = factor

    def predict(self, job, *, training_script=False):
        bounds = {"step_time_s-lo-90": 36.0 / self.factor, "step_time_s-hi-90": 36.0 * self.factor}
        return pd.DataFrame([{"step_time_s": 36.0, **bounds}])


def training(costs=None, model=None, **options):
    job = gd.TrainingJob.from_config("llama-3-8b", 4096, device="H100", n_gpus=16, micro_batch=1)
    return gd.Programme("new", 300, END, END + pd.Timedelta("60D"), job=job, steps=1000, costs=costs)


@cache
def need(factor):
    return gd.Study(LOG, lead_time="14D", installed=200, programmes=[training(Costs(factor))])


def test_exact_costs_give_a_narrower_range_by_the_share_that_is_told():
    told = need(2.0).order_range.set_index("known")
    exact, predicted = need(1.0), need(2.0)
    begin = predicted.need.log_end + predicted.need.lead_time
    narrow, wide = (study.need.samples(begin) for study in (exact, predicted))
    assert [np.ceil(np.quantile(narrow, share)) for share in (0.05, 0.95)] == pytest.approx(
        told.loc["costs", ["required_lo", "required_hi"]].tolist(), abs=1
    )
    assert np.ptp(narrow) < np.ptp(wide)
    # The fall of the variance, over the sum of the falls; the three sources are independent, so nearly over the whole.
    assert 1 - narrow.var() / wide.var() == pytest.approx(told.loc["costs", "range_share"], abs=0.1)
    assert told["range_share"].sum() == pytest.approx(1)
    assert told.loc["costs", "range_share"] > 0.02
    assert exact.order_range.set_index("known").loc["costs", "range_share"] == 0


def test_the_range_with_exact_costs_is_that_of_stated_hours():
    stated = gd.Programme("new", 300, END, END + pd.Timedelta("60D"), hours=10, gpus=16)
    told = gd.Study(LOG, lead_time="14D", installed=200, programmes=[stated]).need
    begin = told.log_end + told.lead_time
    assert need(1.0).need.at(begin, 0.95) == told.at(begin, 0.95)
    exact = replace(need(2.0).need, costs_known=True)
    assert exact.at(begin, 0.95) == told.at(begin, 0.95)


def test_risk_and_quantiles_agree_with_uncertain_costs():
    uncertain = need(2.0).need
    begin = uncertain.log_end + uncertain.lead_time
    for share in (0.1, 0.5, 0.9, 0.95):
        assert uncertain.risk(uncertain.at(begin, share), begin) == pytest.approx(1 - share, abs=0.01)


def test_parts_say_what_the_requirement_falls_by():
    study = need(2.0)
    (row,) = study.programme_parts.to_dict("records")
    begin = study.need.log_end + study.need.lead_time
    alone = gd.Study(LOG, lead_time="14D", installed=200).need.at(begin, 0.95)
    assert row["required"] == np.ceil(study.need.at(begin, 0.95)) - np.ceil(alone) > 0
    assert (row["run_hours"], row["gpu_hours"]) == pytest.approx((10, 300 * 160))


def test_a_network_twice_as_deep_needs_about_twice_the_hours():
    torch = pytest.importorskip("torch")

    def run(depth):
        layers = [torch.nn.Conv2d(128, 128, 3, padding=1) for _ in range(depth)]
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 128, 3), *layers, torch.nn.Flatten())
        job = gd.TrainingJob(net, (3, 64, 64), batch_size=64, device="A100")
        return gd.Programme("deep", 4, END, END + pd.Timedelta("60D"), job=job, steps=50_000).run

    shallow, deep = run(12), run(24)
    assert deep.low < 2 * shallow.hours < deep.high
    assert 1.6 < deep.hours / shallow.hours < 2.4


@pytest.mark.slow
@pytest.mark.skipif(not NOTEBOOK.is_file(), reason="runs from a checkout")
def test_notebook_and_command_find_the_same_order(tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("torch")
    pytest.importorskip("keras")
    notebook = nbformat.read(NOTEBOOK, 4)
    nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": NOTEBOOK.parent}}).execute()
    said = notebook.cells[-2].outputs[0]["data"]["text/markdown"]
    write_jobs(sample_log(), tmp_path / "jobs.parquet")
    plan, out = NOTEBOOK.parent / "planned" / "plan.toml", tmp_path / "report"
    command = ["report", tmp_path / "jobs.parquet", "--plan", plan, "--out", out, "--quiet", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "gpudemand", *command], capture_output=True, text=True, check=True, cwd=ROOT
    )
    found = json.loads(done.stdout)
    assert re.search(r"\*\*(\d+) GPUs\*\*", said)[1] == str(found["required"])
    part = found["required"] - found["required_without_programmes"]
    assert f"{part} of them for the trainings" in said
    assert f"{part} are for programmes" in (out / "index.html").read_text()
