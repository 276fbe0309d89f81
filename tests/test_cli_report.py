"""Recurring reports from the shell: the plan, what overrides it, exit status and metrics."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from gpudemand._array import STRING
from gpudemand.cli.report import _asked
from gpudemand.jobs import write_jobs
from gpudemand.report.metrics import escaped
from tests.report.conftest import brief, make_log, quick, undrawn  # noqa: F401
from tests.test_cli import invoke, one_line_error

PLAN = """
log = "jobs.parquet"
tz = "UTC"
horizon = 7
by = "group"
clusters = ["alps"]
lead_time = "30D"
out = "report"
metrics = "gpus.prom"
prices = { reserved = 1, on_demand = 2 }
installed = { A100 = 60, H100 = 60 }
[[deliveries]]
date = 2026-03-15
gpu_type = "A100"
gpus = 1000
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder with the log of two clusters and a plan for one of them."""
    place = tmp_path_factory.mktemp("plan")
    log = make_log(days=70, per_day=6)
    log["cluster"] = pd.Series(["alps", "bern"] * (len(log) // 2), dtype=STRING)
    write_jobs(log, place / "jobs.parquet")
    (place / "plan.toml").write_text(PLAN, encoding="utf-8")
    return place


@pytest.mark.slow
@pytest.mark.usefixtures("quick", "undrawn", "brief")
def test_a_plan_needs_no_other_option_and_the_working_folder_does_not_matter(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke("report", "--plan", folder / "plan.toml", "--quiet", "--check")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.strip() == (folder / "report" / "index.html").as_uri()
    content = json.loads((folder / "report" / "report.json").read_text())
    assert content["headline"]["jobs"] == 210
    assert content["headline"]["installed"] == 120
    by_type = content["settings"]["installed"]
    assert list(by_type["A100"].values()) == [60, 1060]
    assert by_type["H100"] == 60
    assert content["settings"]["prices"] == [1, 2]
    label = f'report="{escaped(str((folder / "report").resolve()))}"'
    assert f"gpudemand_installed_gpus{{{label}}} 120.0\n" in (folder / "gpus.prom").read_text()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("quick", "undrawn", "brief")
@pytest.mark.parametrize(("arguments", "status"), [(["--check"], 3), ([], 0)])
def test_a_due_order_is_status_three_only_where_it_is_asked_for(folder, tmp_path, arguments, status):
    options = ("--installed", 1, "--out", tmp_path / "r", "--metrics", tmp_path / "m.prom", "--quiet", "--json")
    result = invoke("report", "--plan", folder / "plan.toml", *options, *arguments)
    assert result.exit_code == status, result.stderr
    printed = json.loads(result.stdout)
    assert (printed["order_due"], printed["installed"], printed["lead_time"]) == (True, 1, "30D")
    label = f'report="{escaped(str((tmp_path / "r").resolve()))}"'  # another than of a folder r elsewhere
    assert f"gpudemand_order_due{{{label}}} 1.0\n" in (tmp_path / "m.prom").read_text()


class Asked:
    """A context of the shell in which some options were typed."""

    def __init__(self, typed, **defaults):
        self.params, self.typed = defaults | typed, typed

    def get_parameter_source(self, name):
        return type("Source", (), {"name": "COMMANDLINE" if name in self.typed else "DEFAULT"})


DEFAULTS = {"plan": None, "log": None, "by": "user", "wait": None, "lead_time": "90D", "installed": None, "tz": None}


def test_what_is_typed_comes_before_the_plan_and_the_plan_before_defaults(folder):
    typed = {"plan": folder / "plan.toml", "lead_time": "90D", "installed": "A100=1,H100=2"}
    asked = _asked(Asked(typed, **DEFAULTS))
    assert (asked["by"], asked["lead_time"], asked["installed"]) == ("group", "90D", {"A100": 1, "H100": 2})
    assert asked["log"] == folder / "jobs.parquet"
    other = _asked(Asked(typed | {"log": folder / "other.parquet"}, **DEFAULTS))
    assert other["log"] == folder / "other.parquet"


def test_what_the_sample_is_asked_holds_for_the_sample_alone(folder):
    assert _asked(Asked({}, **DEFAULTS))["installed"] == 600
    assert _asked(Asked({"wait": "2h"}, **DEFAULTS))["wait"] == "2h"
    assert _asked(Asked({"log": folder / "jobs.parquet"}, **DEFAULTS))["installed"] is None


@pytest.mark.parametrize(
    ("change", "arguments", "texts"),
    [
        (("jobs.parquet", "jbs.parquet"), (), ["plan.toml: log: there is no", "jbs.parquet"]),
        (('log = "jobs.parquet"', ""), (), ["plan.toml: there is no log;"]),
        (("gpus.prom", "gpus.txt"), (), ["must end in .prom"]),
        (("gpus.prom", "none/gpus.prom"), (), ["there is no folder"]),
        (('"alps"', '"alp"'), (), ["no cluster 'alp'. Did you mean 'alps'?"]),
        (("horizon", "horizn"), (), ["plan.toml: there is no key 'horizn'. Did you mean 'horizon'?"]),
        (("", ""), ("--previous", "nowhere"), ["'nowhere' holds no report.json"]),
        (("", ""), ("--by", "usr"), ["Did you mean 'user'"]),
    ],
)
def test_mistakes_are_one_sentence(folder, tmp_path, change, arguments, texts):
    (folder / "wrong.plan.toml").write_text(PLAN.replace(*change), encoding="utf-8")
    result = invoke("report", "--plan", folder / "wrong.plan.toml", "--out", tmp_path / "r", "--quiet", *arguments)
    line = one_line_error(result)
    for text in texts:
        assert text in line
    assert not (tmp_path / "r").exists()


def test_a_log_without_clusters_is_said(tmp_path):
    write_jobs(make_log(days=20), tmp_path / "jobs.parquet")
    line = one_line_error(invoke("report", tmp_path / "jobs.parquet", "--cluster", "alps", "--quiet"))
    assert "names no clusters" in line


def test_init_writes_a_plan_that_can_be_used_and_refuses_to_write_over_it(folder):
    arguments = ("init", folder / "new.toml", "--log", "jobs.parquet", "--tz", "Europe/Berlin")
    result = invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    assert 'tz = "Europe/Berlin"' in (folder / "new.toml").read_text()
    assert "there already" in one_line_error(invoke(*arguments))
    assert "Did you mean 'sacct'" in one_line_error(invoke("init", folder / "n.toml", "--format", "sact"))
    assert not (folder / "n.toml").exists()
