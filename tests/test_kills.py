"""Every command that writes is killed at steps of its work: the older result or the new one is there, whole."""

from __future__ import annotations

import random
from copy import copy, deepcopy
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from gpudemand import CostModel
from gpudemand._manifest import read_manifest
from gpudemand._validation import InputError
from gpudemand.cli.app import app
from gpudemand.jobs import write_jobs, write_swf
from gpudemand.report import build
from gpudemand.report.history.earlier import FORMAT, MANIFEST
from gpudemand.report.page.figures import draw_figures
from gpudemand.study import Study, build_report
from tests.faults import count_steps, interrupted_at, kill, needs_fork
from tests.report.conftest import make_log, quick, renamed  # noqa: F401

pytestmark = needs_fork
#: Kills of one command over one older result.
KILLS = 20


def states(work, out, restore):
    """Contents of `out` after a kill at the first step, at the last ones and at random ones in between."""
    restore()
    steps = count_steps(work, out.parent)
    last = range(max(steps - KILLS // 2, 2), steps + 1)
    chosen = {1, *last, *random.Random(0).sample(range(2, last[0]), min(KILLS // 2, last[0] - 2))}
    found = []
    for step in sorted(chosen):
        restore()
        interrupted_at(work, out.parent, step, kill)
        found.append(content(out))
    return found


def content(out: Path):
    if out.is_dir():
        return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    return out.read_bytes() if out.exists() else None


def run(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments), "--quiet", "--debug"])
    if result.exception is not None:
        raise result.exception


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Two job logs as files."""
    folder = tmp_path_factory.mktemp("logs")
    for name, seed in (("old", 0), ("new", 1)):
        log = make_log(days=20, seed=seed)
        # A CSV file of jobs refuses names with line breaks.
        write_jobs(log.assign(user=log["user"].str.replace("\n", " ")), folder / f"{name}.parquet")
    return folder


@pytest.mark.parametrize("out", ["jobs.csv", "jobs.parquet", "usage.csv", "usage.parquet", "log.swf.gz"])
def test_a_file_is_the_old_or_the_new_one(logs, tmp_path, out):
    place = tmp_path / "out" / out
    place.parent.mkdir()

    def command(log):
        if out.startswith("jobs"):
            run("convert", logs / f"{log}.parquet", "--format", "canonical", "--out", place)
        elif out.startswith("usage"):
            run("usage", logs / f"{log}.parquet", "--out", place)
        else:
            write_swf(make_log(days=5, seed=len(log) if log == "new" else 0), place)

    both = []
    for log in ("old", "new"):
        command(log)
        both.append(content(place))
    assert both[0] != both[1]
    found = states(lambda: command("new"), place, lambda: place.write_bytes(both[0]))
    assert all(state in both for state in found)
    assert found[0] == both[0]


@pytest.fixture
def report(monkeypatch, quick):  # noqa: F811
    """A function that writes a report from computed stages and drawn figures, with and without prices."""
    chain = Study(make_log(days=40), horizon=7, prices=(1.0, 3.0))._chain
    build.report_tables(chain)
    figures = draw_figures(chain)
    monkeypatch.setattr(build, "draw_figures", lambda *drawn: figures)

    def written(out, prices):
        fresh = copy(chain)
        # A report without prices notes that the purchase mix is skipped.
        fresh.settings, fresh.skipped = replace(chain.settings, prices=prices), deepcopy(chain.skipped)
        return build.write_report(fresh, Path(out))

    return written


@pytest.mark.slow
def test_a_report_is_the_old_or_the_new_one(report, tmp_path):
    out = tmp_path / "at" / "report"
    kept = {}
    for prices in ((1.0, 3.0), None):
        report(out, prices)
        kept[prices] = content(out)
    assert "tables/purchase_mix.csv" in kept[(1.0, 3.0)]
    assert "tables/purchase_mix.csv" not in kept[None], "a table of the report before"
    assert b"purchase_mix" not in kept[None]["index.html"]
    found = states(lambda: report(out, None), out, lambda: report(out, (1.0, 3.0)))
    assert len(found) >= KILLS
    assert all(state in kept.values() for state in found)
    assert found[0] == kept[(1.0, 3.0)]
    read_manifest(out, MANIFEST, FORMAT)


def test_a_report_replaces_a_report_only(report, tmp_path):
    index = report(tmp_path / "report", None)
    (index.parent / "tables" / "mine.csv").write_text("my notes")
    with pytest.raises(InputError, match=r"'tables/mine\.csv', which would be lost"):
        report(tmp_path / "report", None)
    before = content(tmp_path)
    with pytest.raises(InputError, match="which would be lost; choose another folder"):
        build_report(pd.DataFrame(), tmp_path)
    assert content(tmp_path) == before


def test_a_cost_model_is_the_old_or_the_new_one(tmp_path):
    out, model = tmp_path / "at" / "model", CostModel.load()
    for data in (model.models_, model.fitted_on_):
        for key in [key for key in data if "gpu" in key]:
            del data[key]
    kept = []
    for seed in (0, 1):
        model.random_state = seed
        model.save(out)
        kept.append(content(out))

    def save(seed):
        model.random_state = seed
        model.save(out)

    found = states(lambda: save(1), out, lambda: save(0))
    assert all(state in kept for state in found)
    assert CostModel.load(out).random_state in (0, 1)


def test_no_control_character_reaches_a_report(quick, tmp_path):  # noqa: F811
    controls = "".join(chr(code) for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n")
    log = make_log(days=40)
    log = renamed(log, group=f"team{controls}", cluster=f"c{controls}", gpu_type=f"A\a{controls}")
    log["user"] = log["user"].astype(object) + "\0\a"
    log["user"] = log["user"].astype("string")
    log.attrs = {**make_log(days=20).attrs, "source": f"log{controls}", "rejected": {f"bad{controls}": 2}}
    index = build_report(log, tmp_path / "report", horizon=7, by="group")
    text = [path for path in index.parent.rglob("*") if path.suffix in (".html", ".svg", ".csv", ".json")]
    assert len(text) > 20
    for path in text:
        assert not set(path.read_text(encoding="utf-8")) & set(controls), path.name
    for path in index.parent.rglob("*.parquet"):
        assert not set(pd.read_parquet(path).to_csv()) & set(controls), path.name
