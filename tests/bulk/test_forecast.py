"""Forecasts in chunks: the numbers of the package, equal bytes however a run went, and nothing mixed."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import pandas as pd
import pytest
from typer.testing import CliRunner

import gpudemand as gd
from gpudemand import bulk as module
from gpudemand._validation import InputError
from gpudemand.bulk import open_parts, split_log
from gpudemand.cli.app import app
from gpudemand.forecast import SeasonalNaive
from tests.faults import count_steps, interrupted_at, kill, needs_fork

JOBS = gd.make_cluster(7, 60, random_state=0)[0]
CHUNKS = ["00000.parquet", "00001.parquet", "00002.parquet"]


class Failing(SeasonalNaive):
    """Fails on the series of one user, while it is told to."""

    user = ""

    def _fit_panel(self, panel):
        if self.user in panel.ids:
            raise ValueError("no luck")
        super()._fit_panel(panel)


def run(log, into, **options):
    settings = {"horizon": 7, "series_per_chunk": 3, "n_segments": 2, "forecaster": Failing()}
    return gd.bulk_forecast(log, into, **settings | options)


def state(into):
    return json.loads((into / "run.json").read_text())


def content(into):
    return {file.name: file.read_bytes() for file in (into / "forecast").iterdir()}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "jobs.parquet"
    gd.write_jobs(JOBS, path)
    return path


@pytest.fixture(scope="module")
def whole(log, tmp_path_factory):
    """Folder of a run that nothing stopped."""
    into = tmp_path_factory.mktemp("whole") / "run"
    run(log, into)
    return into


@pytest.fixture
def copy(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def test_forecasts_are_those_of_the_whole_panel(log, whole):
    usage = gd.usage_series(JOBS, by="user", value="gpus", partial=False)
    expected = SeasonalNaive().fit(usage).predict(7)
    found = pd.read_parquet(whole / "forecast").rename(columns={"Failing": "SeasonalNaive"})
    pd.testing.assert_frame_equal(found[expected.columns], expected, check_dtype=False)
    assert {"Failing-lo-80", "Failing-hi-95"} <= set(pd.read_parquet(whole / "forecast").columns)
    segment = found.groupby("unique_id")["segment"].unique().str[0]
    wide = gd.to_wide(usage)
    assert segment.tolist() == gd.TopologicalSegmenter(2, random_state=0).fit(wide).predict(wide).tolist()


@pytest.mark.parametrize(("value", "by", "freq"), [("wanted", "user", "D"), ("gpu_hours", "cluster/user", "h")])
def test_parts_hold_the_usage_of_any_series(log, tmp_path, value, by, freq):
    tz = "Europe/Berlin"
    split_log(log, tmp_path / "parts", by, freq, value, until="2026-02-20 11:30", tz=tz, group=2)
    parts = open_parts(tmp_path / "parts")
    expected = gd.usage_series(JOBS, by, freq, value, until="2026-02-20 11:30", tz=tz, partial=False)
    wide = gd.to_wide(expected)
    for codes in ([0, len(wide) - 1], parts.codes(0), range(len(wide))):
        found = parts.usage(pd.Index(codes).to_numpy())
        pd.testing.assert_frame_equal(found, wide.iloc[list(codes)], check_index_type=False, check_freq=False)


def test_users_without_a_gpu_are_forecast_to_want_none(tmp_path):
    gd.write_jobs(JOBS.assign(gpus=0.0), tmp_path / "jobs.parquet")
    table = pd.read_parquet(run(tmp_path / "jobs.parquet", tmp_path / "run", n_segments="auto"))
    assert table["unique_id"].nunique() == 7
    assert (table["Failing"] == 0).all()


def test_what_a_run_says_of_itself(log, whole):
    found = state(whole)
    assert found["made_from"]["horizon"] == 7
    assert found["series"] == JOBS["user"].nunique() == 7
    assert list(found["stages"]) == ["split", "segmenter", "chunks"]
    assert list(found["chunks"]) == CHUNKS == sorted(content(whole))
    assert [chunk["series"] for chunk in found["chunks"].values()] == [3, 3, 1]
    for chunk in found["chunks"].values():
        assert list(chunk["seconds"]) == ["usage", "segments", "forecast", "write"]
        assert chunk["peak_gib"] > 0.01
    assert sorted(place.name for place in whole.iterdir()) == [".lock", "forecast", "run.json"]


def test_a_finished_run_is_left_alone_and_a_damaged_chunk_is_made_again(log, whole, copy):
    before = {name: (copy / "forecast" / name).stat().st_mtime_ns for name in CHUNKS}
    (copy / "forecast" / CHUNKS[1]).write_bytes(b"PAR1")
    run(log, copy)
    assert content(copy) == content(whole)
    after = {name: (copy / "forecast" / name).stat().st_mtime_ns for name in CHUNKS}
    assert [name for name in CHUNKS if after[name] != before[name]] == [CHUNKS[1]]


@pytest.fixture(scope="module")
def steps(log, whole, tmp_path_factory):
    """Number of steps on the disk of a run."""
    folder = tmp_path_factory.mktemp("steps")
    return count_steps(lambda: run(log, folder / "run"), folder)


@pytest.mark.slow
@needs_fork
@pytest.mark.parametrize("share", [0.1, 0.4, 0.6, 0.8, 0.97])
def test_a_killed_run_goes_on_to_equal_bytes(log, whole, tmp_path, steps, share):
    into = tmp_path / "killed" / "run"
    into.parent.mkdir()
    assert interrupted_at(lambda: run(log, into), into.parent, int(share * steps), kill)
    run(log, into)
    assert content(into) == content(whole)
    assert sorted(place.name for place in into.iterdir()) == [".lock", "forecast", "run.json"]


def test_an_error_in_one_chunk_keeps_the_others(log, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(Failing, "user", sorted(JOBS["user"].unique())[4])
    with pytest.raises(InputError, match=r"1 of 3 chunks failed, the first 00001\.parquet: ValueError: no luck The"):
        run(log, tmp_path / "run")
    assert state(tmp_path / "run")["chunks"][CHUNKS[1]] == {"error": "ValueError: no luck"}
    assert set(content(tmp_path / "run")) == {CHUNKS[0], CHUNKS[2]}
    monkeypatch.setattr(Failing, "user", "")
    run(log, tmp_path / "run")
    assert content(tmp_path / "run") == content(whole)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"horizon": 8}, "holds a run with horizon=7 instead of 8; name another folder"),
        ({"by": "group"}, "holds a run with by='user' instead of 'group'"),
        ({"forecaster": SeasonalNaive()}, "forecaster="),
        ({"series_per_chunk": 4}, "series_per_chunk=3 instead of 4"),
    ],
)
def test_other_settings_are_refused(log, whole, options, reason):
    before = content(whole), state(whole)
    with pytest.raises(InputError, match=reason):
        run(log, whole, **options)
    assert before == (content(whole), state(whole))


def test_another_log_is_refused(whole, tmp_path):
    gd.write_jobs(JOBS.iloc[1:], tmp_path / "jobs.parquet")
    with pytest.raises(InputError, match="holds a run with log_sha256="):
        run(tmp_path / "jobs.parquet", whole)
    with pytest.raises(InputError, match="there is no log at"):
        run(tmp_path / "none.parquet", whole)


def test_a_folder_of_anything_else_is_refused(log, tmp_path, copy):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds 'notes\.txt' and no run\.json"):
        run(log, tmp_path)
    with pytest.raises(InputError, match="is a file; name a folder"):
        run(log, tmp_path / "notes.txt")
    (copy / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"run\.json in .* is damaged"):
        run(log, copy)


def test_an_interrupted_command_says_how_to_go_on(log, whole, tmp_path, monkeypatch):
    arguments = ["forecast", str(log), "--into", str(tmp_path / "run"), "--horizon", "7", "--chunk", "3", "--quiet"]
    monkeypatch.setattr(module, "CombinedForecaster", Failing)
    fit = module._segmenter
    monkeypatch.setattr(module, "_segmenter", lambda parts, _, size: fit(parts, 2, size))
    done, chunk = [], module._forecast_chunk

    def stop(*task):
        if len(done) == 1:
            raise KeyboardInterrupt
        done.append(task)
        return chunk(*task)

    monkeypatch.setattr(module, "_forecast_chunk", stop)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 130
    assert "is kept in" in result.stderr
    assert "run the same command again to go on" in result.stderr
    assert list(state(tmp_path / "run")["chunks"]) == CHUNKS[:1]
    monkeypatch.setattr(module, "_forecast_chunk", chunk)
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.stdout.strip() == str(tmp_path / "run" / "forecast")
    assert sorted(content(tmp_path / "run")) == CHUNKS


def test_a_process_without_memory_is_one_sentence(log, tmp_path, monkeypatch):
    from concurrent.futures.process import BrokenProcessPool

    def end(*_):
        raise BrokenProcessPool("killed")

    monkeypatch.setattr(module, "_parallel", SimpleNamespace(stream=end))
    with pytest.raises(InputError, match="want of memory; run again with fewer at once"):
        run(log, tmp_path / "run")
