"""Set-up scripts: what they hand on, and the command line that the README gives for Slurm."""

from __future__ import annotations

import re
import tomllib
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


def test_all_that_the_package_needs_is_pinned_with_hashes_as_it_was_tested():
    text = (ROOT / "requirements.txt").read_text()
    pins = dict(re.findall(r"^(\S+?)==(\S+).*\\(?:\n    --hash=sha256:[0-9a-f]{64}.*)+$", text, re.M))
    assert pins.keys() == set(re.findall(r"^[^\s#=]+(?===)", text, re.M))
    tested = dict(re.findall(r"^(\S+?)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    assert {name: tested.get(name, version) for name, version in pins.items()} == pins
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.match(r"[\w-]+", each)[0] for each in needed} <= pins.keys()


def test_every_extra_is_installed_by_the_table_of_extras():
    from scripts.test_extras import BRINGS, PYTHONS

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert BRINGS.keys() == {"core", *project["optional-dependencies"]}
    stated = [line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line]
    assert list(PYTHONS) == [f"python{version}" for version in stated]
    for extra, (distribution, _) in BRINGS.items():
        needs = " ".join([*project["dependencies"], *project["optional-dependencies"].get(extra, ())])
        assert extra == "all" or distribution in needs


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
