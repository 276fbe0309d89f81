"""Set-up scripts: what they hand on, and the command line that the README gives for Slurm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpudemand.jobs import read_jobs

ROOT = Path(__file__).resolve().parent.parent
uv_settings = pytest.importorskip("scripts.uv_settings", reason="runs from a checkout").uv_settings


def test_pip_settings_become_those_of_uv():
    listing = "global.index-url='https://a.example/simple'\n:env:.find-links='/wheels /more'\nglobal.cert='/ca.pem'"
    assert uv_settings(listing) == {
        "UV_DEFAULT_INDEX": "https://a.example/simple",
        "UV_FIND_LINKS": "/wheels,/more",
        "SSL_CERT_FILE": "/ca.pem",
    }


def test_the_environment_wins_over_files():
    listing = ":env:.index-url='https://env.example'\nglobal.index-url='https://file.example'"
    assert uv_settings(listing)["UV_DEFAULT_INDEX"] == "https://env.example"


def test_several_indexes_are_compared_as_pip_does():
    settings = uv_settings("global.extra-index-url='https://a.example\\nhttps://b.example'")
    assert settings == {"UV_INDEX": "https://a.example https://b.example", "UV_INDEX_STRATEGY": "unsafe-best-match"}


def test_what_the_sacct_line_of_the_readme_prints_can_be_read(tmp_path):
    fields = re.search(r"-o (\S+) > jobs\.psv", (ROOT / "README.md").read_text())[1].split(",")
    values = {
        "JobIDRaw": "17",
        "User": "ada",
        "State": "COMPLETED",
        "Submit": "2026-03-01T08:00:00",
        "Start": "2026-03-01T09:00:00",
        "End": "2026-03-01T11:00:00",
        "ElapsedRaw": "7200",
        "AllocTRES": "billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,node=1",
    }
    log = tmp_path / "jobs.psv"
    log.write_text("|".join(fields) + "\n" + "|".join(values.get(name, "") for name in fields) + "\n")
    jobs = read_jobs(log, format="sacct", tz="UTC")
    assert jobs[["user", "gpus", "gpu_type"]].iloc[0].tolist() == ["ada", 4, "a100"]
    assert (jobs["end"] - jobs["start"]).dt.total_seconds().tolist() == [7200]
