"""The same log and plan give the same bytes, whatever the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from gpudemand.cli.app import app
from gpudemand.jobs import write_jobs
from tests.report.conftest import make_log, quick, undrawn  # noqa: F401

PLAN = """
log = "jobs.parquet"
tz = "Europe/Berlin"
horizon = 7
by = "group"
wait = "1h"
out = "out/report"
metrics = "out/gpudemand.prom"
prices = { reserved = 1, on_demand = 2.5 }
installed = { A100 = 64, H100 = 32 }
[[deliveries]]
date = 2026-03-20
gpu_type = "H100"
gpus = 16
[[programmes]]
name = "tuning"
runs = 10
start = 2026-03-12
end = 2026-04-12
hours = 6
gpus = 4
"""


def run(plan, until, seed):
    """Write the report in a process of its own; return the files that stand there afterwards."""
    command = [sys.executable, "-m", "gpudemand", "report", "--plan", str(plan), "--until", until, "--quiet"]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True)
    out = plan.parent / "out"
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.usefixtures("quick", "undrawn")  # of the earlier report, in this process
def test_two_processes_write_the_same_bytes(tmp_path):
    write_jobs(make_log(days=80, per_day=3), tmp_path / "jobs.parquet")
    (tmp_path / "out").mkdir()
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    earlier = ["report", "--plan", str(tmp_path / "plan.toml"), "--until", "2026-02-20", "--quiet"]
    assert CliRunner().invoke(app, earlier).exit_code == 0
    first, again = (run(tmp_path / "plan.toml", "2026-03-11", seed) for seed in ("1", "2"))
    assert first.keys() == again.keys()
    assert {"gpudemand.prom", "report/index.html", "report/report.json", "report/figures/since.png"} <= first.keys()
    assert any(name.startswith("report/history/2026-02-19T230000Z/tables/") for name in first)
    assert [name for name, content in first.items() if again[name] != content] == []
