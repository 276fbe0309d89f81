"""Whatever writes may be killed after any of its steps: the older result or the new one is there, whole."""

from __future__ import annotations

import ast
import os
from copy import copy, deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from gpudemand._files import replace_folder
from gpudemand._validation import InputError
from gpudemand.cli.app import app
from gpudemand.cli.pull import pull
from gpudemand.report import build, figures
from gpudemand.report.build import build_report
from gpudemand.report.figures import draw_figures
from gpudemand.report.history import FORMAT, MANIFEST
from gpudemand.study.study import Study
from tests.faults import content, needs_fork, restore, states
from tests.report.conftest import NO_DRAWING, make_log, quick_module, renamed  # noqa: F401
from tests.test_writers import PACKAGE, SAFE, tree_of
from tests.writers import WRITERS, Writer

pytestmark = needs_fork
kill_commands = pytest.importorskip("scripts.kill_commands", reason="runs from a checkout")
CASES = [
    pytest.param(writer, situation, id=f"{name}-{writer.out}-{situation}")
    for name, writers in WRITERS.items()
    for writer in writers
    for situation in writer.situations
]


@pytest.mark.slow
@pytest.mark.parametrize(("writer", "situation"), CASES)
def test_a_kill_leaves_the_old_or_the_new_result(writer: Writer, situation: str, tmp_path: Path) -> None:
    folder = tmp_path / "at"
    folder.mkdir()
    place = folder / writer.out
    if situation == "older":
        writer.write(place, 0)
    before = content(folder)
    left = states(lambda: writer.write(place, 1), folder)
    found = [writer.result(files) for files in left]
    old, new = found[0], found[-1]
    assert old == writer.result(before) != new
    switched = [state == new for state in found]
    assert switched == sorted(switched)
    if writer.grows:
        assert all((one or set()) <= (other or set()) for one, other in pairwise(found))
    else:
        assert all(state in (old, new) for state in found)
    # The same again after the kill ends well, whatever was left behind.
    for files in left[1 : -1 : max(len(left) // 3, 1)]:
        if "older" not in writer.situations and writer.result(files):
            continue  # it writes over nothing
        restore(files, folder)
        writer.write(place, 1)
        assert writer.result(content(folder)) == new


def careless_write(place: Path, version: int) -> None:
    place.write_text("x" * (version + 1))


def careless_rename(place: Path, version: int) -> None:
    new = place.with_name("new")
    new.write_text(str(version))
    place.unlink(missing_ok=True)
    os.rename(new, place)


@pytest.mark.parametrize("write", [careless_write, careless_rename])
def test_a_careless_writer_is_found(write, tmp_path):
    with pytest.raises(AssertionError):
        test_a_kill_leaves_the_old_or_the_new_result(Writer("out", write), "older", tmp_path)


@pytest.mark.slow
def test_no_writer_is_forgotten():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for function in ast.walk(tree_of(path)):
            if isinstance(function, ast.FunctionDef) and any(
                isinstance(node, ast.With) and ast.unparse(node.items[0].context_expr).startswith(SAFE)
                for node in function.body + [inner for node in function.body for inner in ast.walk(node)]
            ):
                found.add(f"{path.relative_to(PACKAGE).as_posix()}:{function.name}")
    own = {name for name in WRITERS if ":" in name}
    assert own == found | {"datasets/registry.py:fetch_file"}


def test_no_command_is_forgotten():
    commands = {command.callback.__name__ for command in app.registered_commands}
    commands |= {f"pull {command.callback.__name__}" for command in pull.registered_commands}
    killed = {command.name.replace("-", "_") for command in kill_commands.commands(Path(), "")}
    assert killed | {"compare", "cost", "devices", "formats"} == commands


@pytest.fixture(scope="module")
def stages(quick_module):  # noqa: F811
    """A study whose stages are computed, and figures that are not drawn."""
    study = Study(make_log(days=40), horizon=7, prices=(1.0, 3.0))
    build.report_tables(study)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "_draw", lambda display, height: NO_DRAWING)
        return study, draw_figures(study)


@pytest.fixture
def report(monkeypatch, stages):
    """A function that writes a report from them, with and without prices."""
    study, drawn = stages
    monkeypatch.setattr(build, "draw_figures", lambda *asked: drawn)

    def written(out, prices):
        fresh = copy(study)
        # A report without prices notes that the purchase mix is skipped.
        fresh.settings, fresh._skipped = replace(study.settings, prices=prices), deepcopy(study._skipped)
        del fresh.__dict__["purchase_mix"]
        return build.write_report(fresh, Path(out))

    return written


@pytest.mark.slow
def test_a_report_is_the_old_or_the_new_one(report, tmp_path):
    folder = tmp_path / "at"
    folder.mkdir()
    report(folder / "report", (1.0, 3.0))
    writer = Writer("report", lambda place, _: report(place, None))
    found = [writer.result(files) for files in states(lambda: report(folder / "report", None), folder)]
    assert "report/tables/purchase_mix.csv" in found[0]
    assert "report/tables/purchase_mix.csv" not in found[-1], "a table of the report before"
    assert b"purchase_mix" not in found[-1]["report/index.html"]
    assert len(found) > 100
    assert all(state in (found[0], found[-1]) for state in found)


def test_a_report_replaces_a_report_only(tmp_path):
    """That a report lists its files: `tests.report.test_earlier`."""
    with replace_folder(tmp_path / "report", MANIFEST, {"format": FORMAT}) as new:
        (new / "tables").mkdir()
        (new / "tables" / "log.csv").write_text("jobs")
    (tmp_path / "report" / "tables" / "mine.csv").write_text("my notes")
    with pytest.raises(InputError, match=r"'tables/mine\.csv', which would be lost"):
        build_report(make_log(days=40), tmp_path / "report")
    before = content(tmp_path)
    with pytest.raises(InputError, match="which would be lost; choose another folder"):
        build_report(make_log(days=40), tmp_path)
    assert content(tmp_path) == before


@pytest.mark.slow
def test_no_control_character_reaches_a_report(tmp_path):
    controls = "".join(chr(code) for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n")
    log = make_log(days=40)
    log = renamed(log, group=f"team{controls}", cluster=f"c{controls}", gpu_type=f"A\a{controls}")
    log["user"] = log["user"].astype(object) + "\0\a"
    log["user"] = log["user"].astype("string")
    log.attrs = {**make_log(days=20).attrs, "source": f"log{controls}", "rejected": {f"bad{controls}": 2}}
    index = build_report(log, tmp_path / "report", horizon=7, by="group")
    text = [path for path in index.parent.rglob("*") if path.suffix in (".html", ".svg", ".csv", ".json")]
    assert len(text) > 40
    for path in text:
        assert not set(path.read_text(encoding="utf-8")) & set(controls), path.name
    for path in index.parent.rglob("*.parquet"):
        assert not set(pd.read_parquet(path).to_csv()) & set(controls), path.name
