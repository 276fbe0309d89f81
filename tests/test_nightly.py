"""The recipes for cron, systemd and CI: every command in them is one that the shell understands."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
import yaml

from gpudemand.cli.app import app

NIGHTLY = Path(__file__).resolve().parent.parent / "docs" / "nightly.md"
pytestmark = pytest.mark.skipif(not NIGHTLY.is_file(), reason="runs from a checkout")


def blocks(kind):
    text = NIGHTLY.read_text(encoding="utf-8") if NIGHTLY.is_file() else ""
    return re.findall(rf"```{kind}\n(.*?)```", text, flags=re.DOTALL)


def parsed(words):
    """Parameters that the command line reads from the words after ``gpudemand``, without running anything."""
    command = typer.main.get_command(app)
    context = command.make_context("gpudemand", list(words))
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)
    return context.params


def commands():
    """Every call of gpudemand in the recipes, as a list of words."""
    text = "\n".join(block for kind in ("sh", "text", "ini", "yaml") for block in blocks(kind))
    calls = re.findall(r"(?:^|/|\s)gpudemand ((?:pull|report|init) .*)$", text, flags=re.MULTILINE)
    return [shlex.split(re.split(r" \|\| | && ", call)[0]) for call in calls]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_is_understood(words):
    assert parsed(words)


def test_commands_are_found_in_every_recipe():
    assert len(commands()) == 9
    with pytest.raises(Exception, match="No such option"):
        parsed(["report", "--pln", "plan.toml"])


def test_cron_lines_have_five_times_and_a_command_that_the_shell_parses():
    (cron,) = blocks("text")
    lines = [line for line in cron.splitlines() if "=" not in line.split()[0]]
    assert len(lines) == 2
    for line in lines:
        *times, command = line.split(None, 5)
        assert all(re.fullmatch(r"\*|\d+", time) for time in times)
        assert "%" not in command  # a line break to cron
        subprocess.run(["sh", "-n", "-c", command], check=True)


def test_a_due_order_is_said_and_an_error_fails():
    (cron,) = blocks("text")
    after = cron.splitlines()[-1].partition(" --check ")[2]
    said = {status: _shell(f"(exit {status}) {after}") for status in (0, 2, 3)}
    assert {status: run.stdout != "" for status, run in said.items()} == {0: False, 2: False, 3: True}
    assert said[2].returncode != 0


def _shell(line):
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)


def test_units_of_systemd_are_valid(tmp_path):
    for text, name in zip(blocks("ini"), ("gpudemand.service", "gpudemand.timer"), strict=True):
        (tmp_path / name).write_text(text.replace("/usr/local/bin/gpudemand", "/bin/true"))
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str
        unit.read_string(text)
        assert unit.sections()[0] == "Unit"
    if shutil.which("systemd-analyze") is None:
        return
    calendar = unit["Timer"]["OnCalendar"]
    subprocess.run(["systemd-analyze", "calendar", calendar], check=True, capture_output=True)


def test_yaml_is_yaml():
    alerts, job = (yaml.safe_load(block) for block in blocks("yaml"))
    assert [rule["alert"] for rule in alerts["groups"][0]["rules"]] == ["OrderGpus", "GpuReportIsOld"]
    steps = job["jobs"]["report"]["steps"]
    assert [step["run"].split()[1] for step in steps if "run" in step] == ["pull", "report"]


def test_help_of_every_command_has_an_example_that_is_understood():
    group = typer.main.get_command(app)
    shown = [*group.commands.values()]
    shown += [command for each in group.commands.values() for command in getattr(each, "commands", {}).values()]
    leaves = [command for command in shown if not hasattr(command, "commands")]
    assert len(leaves) >= 11
    for command in leaves:
        (example,) = re.findall(r"^Example: (?:\w+=\S+ )*gpudemand (.*)$", command.help, flags=re.MULTILINE)
        assert example.split()[0] == command.name or example.split()[:2] == ["pull", command.name]
        assert parsed(shlex.split(example)) is not None


def test_the_dashboard_of_grafana_asks_for_metrics_that_exist():
    from gpudemand.report.metrics import _HELP

    path = Path(__file__).resolve().parent.parent / "docs/grafana.json"
    if not path.is_file():
        pytest.skip("runs from a checkout")
    board = json.loads(path.read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [each["query"]["query"] for each in board["templating"]["list"] if each["type"] == "query"]
    names = [set(re.findall(r"gpudemand_(\w+)", text)) for text in asked]
    assert all(names)
    assert set().union(*names) <= _HELP.keys()
