"""GPUs installed by type over time, from the events of a real cluster."""

from __future__ import annotations

import pandas as pd
import pytest
from typer.testing import CliRunner

import gpudemand as gd
from gpudemand.cli.app import app
from gpudemand.datasets import make_cluster
from gpudemand.jobs import read_jobs
from gpudemand.jobs.read import write_jobs
from gpudemand.jobs.slurm import gpus_by_type, installed_by_cluster, read_events
from gpudemand.study.settings import Settings
from gpudemand.study.source import JobSource
from tests.pull.test_slurm import LAST
from tests.report.conftest import quick  # noqa: F401

pytestmark = pytest.mark.usefixtures("quick_stores")
HEADER = "Cluster|NodeName|TimeStart|TimeEnd|State|TRES"
REGISTERED = "2026-11-22T19:02:11+00:00"
#: A cluster that grew on the 2nd day, lost its controller on the 3rd, and gave its old nodes away on the 5th.
GROWN = [
    "alps||0|86400||gres/gpu=8,gres/gpu:a100=8",
    "alps||86400|172800||gres/gpu=12,gres/gpu:a100=8,gres/gpu:h100=4",
    "alps|n1|100000|Unknown|DRAIN|gres/gpu=4,gres/gpu:a100=4",
    "alps||180000|345600||gres/gpu=12,gres/gpu:a100=8,gres/gpu:h100=4",
    "alps||345600|Unknown||gres/gpu=4,gres/gpu:h100=4",
]


def events(*lines):
    return read_events("\n".join([HEADER, *lines]))


def day(number):
    return pd.Timestamp(number, unit="D", tz="UTC").isoformat()


def test_types_change_when_the_cluster_does():
    of = installed_by_cluster(events(*GROWN))["alps"]
    assert of == {"a100": {day(0): 8.0, day(4): 0.0}, "h100": {day(0): 0.0, day(1): 4.0}}


def test_a_cluster_without_gpus_has_none():
    assert gpus_by_type("cpu=8,mem=1G") == {}
    assert installed_by_cluster(events("alps||0|Unknown||cpu=8")) == {"alps": {}}


def test_lines_that_are_no_events_are_left_out():
    assert installed_by_cluster(events("sacctmgr: error", "alps||Unknown|Unknown||gres/gpu=8", GROWN[0])) == {
        "alps": {"a100": {day(0): 8.0}}
    }


def test_a_pull_keeps_what_nodes_have(cluster, tmp_path):
    cluster.pull(tmp_path / "store", LAST)
    of = read_jobs(tmp_path / "store").attrs["installed_by_cluster"]["lab"]
    assert {name: list(steps.values()) for name, steps in of.items()} == {"1g.10gb": [1.0], "a100": [23.0], "h100": [8]}


@pytest.mark.slow
def test_what_slurm_has_purged_stays_in_the_store(cluster, tmp_path):
    store = tmp_path / "store"
    cluster.at(LAST)
    for lines in (GROWN[:2], GROWN[2:]):
        cluster.script("sacctmgr", "printf '%s\\n' " + " ".join(f"'{line}'" for line in [HEADER, *lines]))
        cluster.pull(store)
        cluster.pull(store)
    assert read_jobs(store).attrs["installed_by_cluster"] == installed_by_cluster(events(*GROWN))
    assert len(list(store.glob("nodes/*"))) == 1


def test_without_sacctmgr_nothing_is_installed(cluster, tmp_path):
    cluster.at(LAST)
    cluster.script("sacctmgr", "exit 1")
    runner, store = CliRunner(), tmp_path / "store"
    run = runner.invoke(app, ["pull", "slurm", "--into", str(store), "--since", "2026-11-01", "--quiet"])
    assert "GPUs of the nodes: not known" in run.stdout
    assert JobSource.of(read_jobs(store), Settings()).settings.installed is None


def test_a_pull_prints_what_nodes_have(cluster, tmp_path):
    cluster.at(LAST)
    run = CliRunner().invoke(app, ["pull", "slurm", "--into", str(tmp_path / "s"), "--since", "2026-11-01", "--quiet"])
    assert "GPUs of the nodes: 1 1g.10gb, 23 a100, 8 h100; 8 of them on nodes that are down" in run.stdout


@pytest.fixture
def jobs():
    """A log of two clusters with two types, and what their nodes had."""
    jobs, _ = make_cluster(n_users=8, n_days=60, random_state=0)
    jobs["cluster"] = pd.Series(["alps", "bern"] * len(jobs), dtype="string")[: len(jobs)]
    jobs["gpu_type"] = pd.Series(["a100", "a100", "h100"] * len(jobs), dtype="string")[: len(jobs)]
    alps = {"a100": {day(0): 40.0}, "h100": {day(0): 0.0, day(1): 30.0}}
    jobs.attrs["installed_by_cluster"] = {"alps": alps, "bern": {"a100": {day(0): 10.0}}}
    return jobs


def last(settings):
    steps = settings.installed
    return {name: one.iloc[-1] for name, one in steps.items()} if isinstance(steps, dict) else steps.iloc[-1]


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        ({}, {"a100": 50.0, "h100": 30.0}),
        ({"cluster": ("alps",)}, {"a100": 40.0, "h100": 30.0}),
        ({"cluster": ("bern",)}, 10.0),
        ({"cluster": "each"}, {"alps": 70.0, "bern": 10.0}),
    ],
)
def test_installed_is_that_of_the_clusters_and_types(jobs, options, gpus):
    settings = JobSource.of(jobs, Settings(**options)).settings
    assert (last(settings), settings.installed_from) == (gpus, "pulled")


def test_a_cluster_or_type_that_is_not_known(jobs):
    jobs.attrs["installed_by_cluster"] = {"alps": {"a100": {day(0): 40.0}}}
    assert JobSource.of(jobs, Settings()).settings.installed is None
    one = jobs[jobs["cluster"] == "alps"]
    one.attrs = jobs.attrs
    assert last(JobSource.of(one, Settings()).settings) == 40.0


def test_given_gpus_take_the_place_of_pulled_ones(jobs):
    settings = JobSource.of(jobs, Settings(installed=7)).settings
    assert (settings.installed, settings.installed_from) == (7, "given")


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_study_plans_on_them_by_type(jobs, tmp_path):
    write_jobs(jobs, tmp_path / "jobs.parquet")
    study = gd.Study(read_jobs(tmp_path / "jobs.parquet"), horizon=7)
    assert (study.headline["installed_from"], study.headline["installed"]) == ("pulled", 80.0)
    assert study.plan["installed"].iloc[0] == 80.0
