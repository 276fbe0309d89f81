"""Predicted costs against what a log's jobs took: by network and GPU type, and the calibration that follows."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from gpudemand.cli.app import app
from gpudemand.cli.networks import format_ratios
from gpudemand.cost import OpGraph, module_path
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.model import CostModel
from gpudemand.jobs import write_jobs
from gpudemand.jobs.table import as_jobs, training_steps
from gpudemand.planning.training_run_time import CostStepTime, costs_against_log
from gpudemand.study.plan_file import read_networks

#: Small networks of one kind of kernel are unlike those that were measured.
pytestmark = pytest.mark.filterwarnings("ignore::gpudemand.cost.step_time_model.FarFromTrainingWarning")
NETWORKS = """
import torch

def small():
    layers = (torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3))
    return torch.nn.Sequential(*layers, torch.nn.Flatten())

def large():
    layers = [torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(8)]
    return torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), *layers, torch.nn.Flatten())
"""
TABLES = "\n".join(f'[{name}]\nmodel = "team_networks:{name}"\ninput = [3, 64, 64]' for name in ("small", "large"))
SLOWER = 1.3


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("networks")
    (folder / "team_networks.py").write_text(NETWORKS)
    (folder / "networks.toml").write_text(TABLES)
    return folder / "networks.toml"


@pytest.fixture(scope="module")
def graphs():
    """Graphs of both networks by their module path."""
    pytest.importorskip("torch")
    space = {}
    exec(NETWORKS, space)
    return {f"team_networks:{name}": OpGraph.from_torch(space[name](), (3, 64, 64)) for name in ("small", "large")}


@pytest.fixture
def _traced_before(graphs, monkeypatch):
    """Take the graphs of networks from here: a process that imports their framework takes seconds."""

    def traced(self, place, input_shape, input_dtype):
        assert input_shape == (3, 64, 64)
        assert input_dtype is None
        assert (self._folder / "team_networks.py").is_file()
        return graphs[place]

    monkeypatch.setattr(module_path.NetworkTracer, "trace", traced)


@pytest.fixture(scope="module")
def known(graphs):
    return {place.partition(":")[2]: (graph, None, {}) for place, graph in graphs.items()}


@pytest.fixture(scope="module")
def log(known):
    return log_of(known)


def log_of(known, slower=SLOWER):
    """Jobs of both networks on two GPU types whose steps take longer than predicted, by a tenth more or less."""
    rng, n = np.random.default_rng(0), 600
    jobs = pd.DataFrame(
        {"network": np.resize(["small", "large"], n), "gpu_type": np.resize(["A100", "A100", "V100"], n)}
    )
    jobs = jobs.assign(batch_size=np.resize([64, 64, 64, 128], n), gpus=1.0, epochs=3.0, samples=1e6, precision="fp32")
    steps = training_steps(jobs) * CostStepTime(CostModel.load(), known)(jobs)
    run = pd.to_timedelta(60 + slower * steps * np.exp(rng.normal(0, 0.1, n)), "s")
    start = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(np.arange(n), "h")
    about = {"user": np.resize(["ada", "bob", "eve"], n), "submit": start, "start": start, "end": start + run}
    return as_jobs(jobs.assign(**about, status="completed"), kind="synthetic")


def test_gpu_types_compare_on_one_host(known):
    """The one H200 that was measured had a slow host, by which small steps seemed 1.7 times as long as on an A100."""
    jobs = pd.DataFrame({"network": "small", "batch_size": 2, "gpus": 1.0, "gpu_type": ["A100", "H200"]})
    model = CostModel.load()
    a100, h200 = CostStepTime(model, known)(jobs)
    assert h200 < 1.02 * a100
    # Of a machine that was measured, the host of its GPU is known, and another GPU would be in one like it.
    job = TrainingJob(known["small"][0], batch_size=2, device="A100")
    slow = [4 * model.predict([job])["step_time_s"][0]] * 3
    before = CostStepTime(model, known)(jobs.iloc[[1]])[0]
    model.calibrate([job] * 3, slow)
    assert CostStepTime(model, known)(jobs.iloc[[1]])[0] > 2 * before


def test_networks_that_run_slower_are_found_by_network_and_gpu_type(known, log):
    table = costs_against_log(log, CostStepTime(CostModel.load(), known))
    assert table["ratio"].between(1.25, 1.35).all()
    assert table["network"].tolist() == ["all", "large", "large", "small", "small"]
    assert (table["ratio-lo-90"] < table["ratio"]).all()
    assert table.loc[0, "jobs"] == table["jobs"][1:].sum() == 600


def test_the_printed_table_says_that_a_start_is_taken_off(log):
    printed = format_ratios(costs_against_log(log, lambda jobs: np.full(len(jobs), 1e-3)))
    assert "\n\n60 s before the first step of a job count neither as predicted nor as taken" in printed
    # As the table has it.
    one = log.head(1).assign(status="completed")
    one["end"] = one["start"] + pd.Timedelta(seconds=160)
    assert costs_against_log(one, lambda jobs: np.ones(1))["taken_s"].tolist() == [100.0, 100.0]


@pytest.mark.usefixtures("_traced_before")
@pytest.mark.slow
def test_the_command_compares_and_calibrates(networks, known, log, tmp_path):
    write_jobs(log, tmp_path / "jobs.parquet")
    command = ["costs-against-log", str(tmp_path / "jobs.parquet"), "--networks", str(networks), "--quiet"]
    done = CliRunner().invoke(app, [*command, "--json", "--out", str(tmp_path / "mine")])
    assert done.exit_code == 0, done.output
    assert all(1.25 < row["ratio"] < 1.35 for row in json.loads(done.stdout))
    before, after = CostModel.load(), CostModel.load(tmp_path / "mine")
    job = TrainingJob(known["large"][0], batch_size=64, device="A100")
    (then,), (now,) = (model.predict(job).to_dict("records") for model in (before, after))
    assert 1.25 < now["step_time_s"] / then["step_time_s"] < 1.35
    width = [row["step_time_s-hi-90"] / row["step_time_s-lo-90"] for row in (then, now)]
    assert width[1] < width[0]
    shown = CliRunner().invoke(app, command).stdout
    assert "ratio" in shown
    assert "60 s before the first step" in shown


@pytest.mark.slow
def test_networks_of_a_file_are_traced_in_a_process_of_their_own(networks, graphs):
    file = networks.with_name("one.toml")
    file.write_text(f'{TABLES.partition("[large]")[0]}optimizer = "adam"')
    ((name, (graph, shape, options)),) = read_networks(file).items()
    assert (name, shape, options) == ("small", None, {"optimizer": "adam"})
    pd.testing.assert_frame_equal(graph.nodes, graphs["team_networks:small"].nodes)


@pytest.mark.usefixtures("_traced_before")
def test_a_log_that_says_nothing_of_its_networks_is_refused(networks, tmp_path):
    times = pd.to_datetime(["2026-03-01 00:00", "2026-03-01 05:00"], utc=True)
    write_jobs(
        as_jobs(pd.DataFrame({"user": "ada", "submit": times, "end": times, "gpus": 1.0}), kind="measured"),
        tmp_path / "jobs.parquet",
    )
    command = ["costs-against-log", str(tmp_path / "jobs.parquet"), "--networks", str(networks), "--quiet"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert "network" in done.output
