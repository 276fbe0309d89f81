"""The same log and plan give the same bytes, whatever the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpudemand.jobs import write_jobs
from tests.report.conftest import make_log

PLAN = """
log = "jobs.parquet"
tz = "Europe/Berlin"
horizon = 7
by = "group"
wait = "1h"
out = "{out}/report"
metrics = "{out}/gpudemand.prom"
prices = {{ reserved = 1, on_demand = 2.5 }}
installed = {{ A100 = 64, H100 = 32 }}
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
CODE = """
import sys
from gpudemand.cli.app import app
for until in ("2026-02-20", "2026-03-11", "2026-03-11"):
    app(["report", "--plan", sys.argv[1], "--until", until, "--quiet"], standalone_mode=False)
"""


@pytest.mark.slow
def test_two_processes_write_the_same_bytes(tmp_path):
    write_jobs(make_log(days=80, per_day=4), tmp_path / "jobs.parquet")
    written = []
    for seed in ("1", "2"):
        (tmp_path / seed).mkdir()
        (tmp_path / "plan.toml").write_text(PLAN.format(out=seed), encoding="utf-8")
        command = [sys.executable, "-c", CODE, str(tmp_path / "plan.toml")]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed}, cwd=tmp_path / seed)
        files = [path for path in (tmp_path / seed).rglob("*") if path.is_file()]
        written.append({str(path.relative_to(tmp_path / seed)): path.read_bytes() for path in files})
    first, again = written
    assert first.keys() == again.keys()
    assert {"gpudemand.prom", "report/index.html", "report/report.json", "report/figures/since.png"} <= first.keys()
    assert any(name.startswith("report/history/2026-02-19T230000Z/tables/") for name in first)
    assert [name for name, content in first.items() if again[name] != content] == []
