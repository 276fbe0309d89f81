"""A store is what its manifest says, whoever writes it and whoever reads it at that time."""

from __future__ import annotations

import errno
import json
import os
import threading

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpudemand import _files
from gpudemand._validation import InputError
from gpudemand.datasets import make_cluster
from gpudemand.jobs import read_jobs
from gpudemand.store import arrow_table, open_store, read_store


def table(first: int, last: int, value: float) -> pa.Table:
    return pa.table({"k": list(range(first, last)), "y": [value] * (last - first)})


def put(path, first, last, value):
    with open_store(path) as store:
        rows = table(first, last, value)
        store.merge("t", "2026-03", rows, rows.select(["k"]))
        store.commit()


def test_newer_rows_replace_older_ones(tmp_path):
    put(tmp_path, 0, 5, 1.0)
    put(tmp_path, 3, 7, 2.0)
    assert read_store(tmp_path).read("t")["y"].to_pylist() == [1, 1, 1, 2, 2, 2, 2]


def test_rows_can_go(tmp_path):
    put(tmp_path, 0, 5, 1.0)
    with open_store(tmp_path) as store:
        store.merge("t", "2026-03", table(0, 0, 0), table(0, 5, 0).select(["k"]))
        store.commit()
    assert read_store(tmp_path).read("t") is None
    assert not list(tmp_path.glob("t/*"))


def test_what_is_not_committed_is_not_there(tmp_path):
    put(tmp_path, 0, 2, 1.0)
    with open_store(tmp_path) as store:
        store.merge("t", "2026-03", table(0, 9, 5.0), table(0, 9, 5.0).select(["k"]))
    assert read_store(tmp_path).read("t")["y"].to_pylist() == [1, 1]
    put(tmp_path, 2, 3, 1.0)
    assert len(list(tmp_path.glob("t/*"))) == 1


def test_any_tool_finds_each_row_once(tmp_path):
    for value in range(4):
        put(tmp_path, 0, 5, float(value))
    assert duckdb.sql(f"SELECT count(*), max(y) FROM '{tmp_path}/t/*.parquet'").fetchall() == [(5, 3.0)]


@pytest.mark.parametrize("more", [{}, {"tres": "gres/gpu=1"}])
def test_jobs_of_a_store_need_only_canonical_columns(tmp_path, more):
    jobs, _ = make_cluster(n_users=3, n_days=20, random_state=0)
    rows = arrow_table(jobs.assign(**more))
    with open_store(tmp_path) as store:
        store.merge("jobs", "2026-03", rows, rows.select(["job_id"]), ["submit", "job_id"])
        store.commit()
    found = read_jobs(tmp_path)
    assert len(found) == len(jobs)
    assert "tres" not in found


@pytest.mark.slow
def test_readers_see_one_state_while_another_writes(tmp_path):
    put(tmp_path, 0, 50, 0.0)
    over, found = threading.Event(), []

    def read():
        while not over.is_set():
            found.append(set(read_store(tmp_path).read("t")["y"].to_pylist()))

    reader = threading.Thread(target=read)
    reader.start()
    for value in range(1, 15):
        put(tmp_path, 0, 50, float(value))
    over.set()
    reader.join()
    assert all(len(state) == 1 for state in found)
    assert len(found) > 3


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda path: path.write_text(path.read_text().replace('"zone": "UTC"', '"zone": "CET"')),
            "damaged or was edited",
        ),
        (lambda path: path.write_text("{"), "damaged"),
        (lambda path: path.write_text(json.dumps({"format": 99})), "format 99"),
        (lambda path: next(path.parent.glob("t/*")).unlink(), "missing"),
    ],
)
def test_damage_is_one_sentence(tmp_path, damage, message):
    put(tmp_path, 0, 2, 1.0)
    damage(tmp_path / "store.json")
    for use in (read_store, lambda path: put(path, 0, 1, 1.0)):
        with pytest.raises(InputError, match=message):
            use(tmp_path)


def test_files_of_others_stay(tmp_path):
    put(tmp_path, 0, 2, 1.0)
    mine = tmp_path / "t" / "mine.parquet"
    mine.write_bytes(b"mine")
    put(tmp_path, 0, 2, 2.0)
    assert mine.read_bytes() == b"mine"


def test_who_holds_the_lock_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "PATIENCE_S", 0.1)
    with open_store(tmp_path), pytest.raises(InputError, match=rf"being written by process {os.getpid()} on .* since"):
        put(tmp_path, 0, 1, 1.0)
    put(tmp_path, 0, 1, 1.0)


def test_a_store_that_is_moved_is_one_sentence(tmp_path):
    def moved():
        with open_store(tmp_path / "store") as store:
            (tmp_path / "store").rename(tmp_path / "moved")
            store.merge("t", "2026-03", table(0, 9, 5.0), table(0, 9, 5.0).select(["k"]))

    put(tmp_path / "store", 0, 2, 1.0)
    with pytest.raises(InputError, match="was moved or deleted while"):
        moved()
    assert read_store(tmp_path / "moved").read("t")["y"].to_pylist() == [1, 1]


def test_a_link_to_nothing_is_one_sentence(tmp_path):
    (tmp_path / "link").symlink_to("not-mounted")
    with pytest.raises(InputError, match="is a link to 'not-mounted', which is not there"):
        put(tmp_path / "link", 0, 2, 1.0)


def test_a_full_disk_is_told_with_the_name_of_the_store(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    put(tmp_path, 0, 2, 1.0)
    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}'"):
        put(tmp_path, 0, 2, 5.0)
    assert read_store(tmp_path).read("t")["y"].to_pylist() == [1, 1]


def test_a_name_is_no_pattern(tmp_path):
    for name in ("gpu[12]", "gpu1", "gpu*"):
        put(tmp_path / name, 0, 2, 1.0)
    for name in ("gpu[12]", "gpu*"):
        assert read_store(tmp_path / name).query("t", "SELECT count(*) AS n FROM stored")["n"].to_pylist() == [2]


def test_a_name_that_is_no_utf8_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match=r"udcff.* is no name in UTF-8; rename"):
        put(tmp_path / os.fsdecode(b"gpu\xff"), 0, 2, 1.0)
    assert not list(tmp_path.iterdir())
