"""What the command line says when it is cut off, interrupted or given too much."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

from gpudemand.cli.app import app
from gpudemand.jobs.files import Limits


@pytest.mark.slow
def test_a_closed_pipe_is_no_error():
    with subprocess.Popen(
        [sys.executable, "-m", "gpudemand", "formats"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        run.stdout.close()
        assert run.stderr.read() == b""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_options(shell):
    words = {"COMP_WORDS": "gpudemand report --wa", "COMP_CWORD": "2", "_TYPER_COMPLETE_ARGS": "gpudemand report --wa"}
    run = {**words, "_TYPER_COMPLETE_FISH_ACTION": "get-args", "_GPUDEMAND_COMPLETE": f"complete_{shell}"}
    result = CliRunner().invoke(app, [], env=run, prog_name="gpudemand")
    assert result.exit_code == 0
    assert {"--wait", "--wait-share"} <= set(re.findall(r"--[\w-]+", result.stdout))
    assert "--tz" not in result.stdout


def test_an_interrupt_is_one_line(monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("gpudemand.jobs.read_jobs", interrupt)
    result = CliRunner().invoke(app, ["convert", "log.csv", "--format", "sacct", "--quiet"])
    assert result.exit_code == 130
    assert result.stderr == "gpudemand: interrupted; run the same command again.\n"


def test_limits_can_be_lifted(monkeypatch, tmp_path):
    monkeypatch.setattr("gpudemand.jobs.files.LIMITS", Limits(rows=1))
    log = tmp_path / "log.csv"
    log.write_text("job_id,arrival_s,service_sec,gpu_count\n1,0,60,2\n2,0,60,2\n")
    command = ["convert", str(log), "--format", "simulator", "--origin", "2024-01-01", "--tz", "UTC", "--quiet"]
    command += ["--out", str(tmp_path / "out.csv")]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "--no-limits" in refused.stderr
    assert CliRunner().invoke(app, [*command, "--no-limits"]).exit_code == 0


def test_the_help_says_that_a_file_is_run():
    result = CliRunner().invoke(app, ["cost", "--help"], env={"COLUMNS": "200"})
    assert "Runs the Python file that builds the network" in result.output
    assert "name only files that you trust" in " ".join(result.output.split())


@pytest.mark.parametrize(("name", "flawed"), [("jinja2", "3.1.5"), ("requests", "2.32.3")])
def test_versions_with_known_flaws_are_not_installed(name, flawed):
    (needed,) = (one for one in map(Requirement, requires("gpudemand")) if one.name == name and not one.marker)
    assert flawed not in needed.specifier
