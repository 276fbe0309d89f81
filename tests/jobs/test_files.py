"""Names, sizes and contents of files that strangers send."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import threading
import time
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpudemand import _files
from gpudemand._validation import InputError, RejectedRowsWarning
from gpudemand.cost.large_models import LargeModelPredictor
from gpudemand.jobs import read_jobs, read_prometheus, write_jobs
from gpudemand.jobs.files import Limits
from gpudemand.report.page import read_style
from gpudemand.usage import usage_series
from tests.tiers import slow_beside, slow_where

HEADER = "job_id,user,submit,start,end,gpus,gpu_type,group,cluster,status,requested_time,used_gpu_seconds\n"
ROW = "{i},{user},2024-05-01T00:00:00Z,2024-05-01T00:00:00Z,2024-05-02T00:00:00Z,8,A100,g,c,completed,,\n"


def log(*users: str) -> str:
    return HEADER + "".join(ROW.format(i=i, user=user) for i, user in enumerate(users, start=1))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], bytes]:
    """Files of one job and of two, by their endings."""
    folder = tmp_path_factory.mktemp("written")
    jobs = read_jobs(_write(folder / "original.csv", log("ada", "eve")))
    endings = [(suffix, rows) for suffix in (".parquet", ".csv", ".csv.gz") for rows in (1, 2)]
    for suffix, rows in endings:
        write_jobs(jobs[:rows], folder / f"{rows}{suffix}")
    return {(suffix, rows): (folder / f"{rows}{suffix}").read_bytes() for suffix, rows in endings}


NAMES = ["jobs[1]", "a*", "{a,b}", "q?", "[!z]", "it's", "user=bob/jobs", "d[1]/k", "**", "x\\y", "%41", "~eve"]
SUFFIXES = (".parquet", ".csv", ".csv.gz")
QUICK_NAMES = [*((name, ".parquet") for name in NAMES), *((name, ".csv") for name in NAMES[:3]), (NAMES[0], ".csv.gz")]


@pytest.mark.parametrize(
    ("name", "suffix"), slow_beside(QUICK_NAMES, [(name, suffix) for suffix in SUFFIXES for name in NAMES])
)
def test_names_are_no_patterns(written: dict[tuple[str, int], bytes], tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / f"{name}{suffix}"
    for place, rows in (
        (path, 1),
        *((tmp_path / f"{other}{suffix}", 2) for other in ("jobs1", "a", "ab", "q1")),
    ):
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(written[suffix, rows])
    assert read_jobs(path)["user"].tolist() == ["ada"]
    usage = usage_series(path, freq="D")
    assert usage["unique_id"].tolist() == ["ada"]
    assert usage["y"].sum() == 192
    path.unlink()
    with pytest.raises(InputError, match=r"no file|no log"):
        read_jobs(path)
    with pytest.raises(InputError, match=r"no file|no log"):
        usage_series(path)


def _write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("closing", ['"eve', 'eve"'])
@pytest.mark.parametrize("apart", [1, 3, 40])
def test_two_stray_quotes_swallow_no_row(tmp_path: Path, closing: str, apart: int) -> None:
    path = _write(tmp_path / "log.csv", log('"ada', *["bob"] * (apart - 1), closing, "zoe"))
    for read in (read_jobs, usage_series):
        with pytest.raises(InputError, match=r"line 2 of 'log.csv'"):
            read(path)


@pytest.mark.parametrize(
    ("form", "head", "row"),
    [
        ("simulator", "job_id,arrival_s,service_sec,gpu_count\n", "{q}{i},0,3600,2\n"),
        ("dirlab", "user,gpu_num,interval,run_time\n", "{q}u{i},2,60,3600\n"),
        ("pai", "", "{q}j{i},worker,4,Terminated,150,3750,600.0,29.3,50.0,V100\n"),
    ],
)
def test_stray_quotes_in_other_formats(fixtures: Path, tmp_path: Path, form: str, head: str, row: str) -> None:
    text = head + "".join(row.format(i=i, q='"' if i in (1, 4) else "") for i in range(1, 6))
    _write(tmp_path / "pai_job_table.csv", (fixtures / "pai/pai_job_table.csv").read_bytes())
    with pytest.raises(InputError, match=r"quotation mark on line \d of 'log.csv'"):
        read_jobs(_write(tmp_path / "log.csv", text), form, origin="2024-01-01", tz="UTC")


def test_closed_quotes_are_read_and_others_counted(tmp_path: Path) -> None:
    users = ['"a, ""b"""', '5" disk', '""', '"ada"x']
    with pytest.warns(RejectedRowsWarning, match="1 with a misplaced quotation mark"):
        jobs = read_jobs(_write(tmp_path / "log.csv", log(*users)))
    assert jobs["user"].fillna("?").tolist() == ['a, "b"', '5" disk', "?"]


def test_line_breaks_are_not_written_to_csv(tmp_path: Path) -> None:
    jobs = read_jobs(_write(tmp_path / "log.csv", log("ada"))).assign(user="a\nb")
    with pytest.raises(InputError, match="'user' holds line breaks"):
        write_jobs(jobs, tmp_path / "out.csv")
    write_jobs(jobs, tmp_path / "out.parquet")
    assert read_jobs(tmp_path / "out.parquet").loc[0, "user"] == "a\nb"


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(line=100), "more than 100 characters in one line"),
        (Limits(rows=2), "more than 2 rows"),
        (Limits(columns=3), "more than 3 columns"),
        (Limits(size=200), "more than 200 characters"),
    ],
)
@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz", "log.parquet"])
def test_limits_are_said_and_lifted(tmp_path: Path, limits: Limits, message: str, name: str) -> None:
    jobs = read_jobs(_write(tmp_path / "original.csv", log(*["ada"] * 9)))
    write_jobs(jobs, tmp_path / name)
    if not (name.endswith("parquet") and "line" in message):
        with pytest.raises(InputError, match=f"{message}.*limits=None"):
            read_jobs(tmp_path / name, limits=limits)
    assert len(read_jobs(tmp_path / name, limits=None)) == 9


def test_json_is_limited_too(fixtures: Path) -> None:
    for read in (lambda file, **kw: read_jobs(file, "philly", tz="UTC", **kw), read_prometheus):
        with pytest.raises(InputError, match="more than 99 characters"):
            read(fixtures / ("prometheus.json" if read is read_prometheus else "philly.json"), limits=Limits(size=99))


BOMBS = [
    (form, filling)
    for form in ("canonical", "sacct", "swf")
    for filling in (b"\n", b" ", b",", b"\r", b"a", b";", b'"', b"a\n", b"1 ")
]


@pytest.mark.parametrize(
    ("form", "filling"), slow_where(lambda bomb: bomb[0] != "canonical" and bomb[1] not in (b"\n", b"1 "), BOMBS)
)
def test_a_bomb_is_refused_at_once(tmp_path: Path, form: str, filling: bytes) -> None:
    path = _write(tmp_path / "bomb.csv.gz", gzip.compress(filling * (40_000_000 // len(filling)), 1))
    begin = time.process_time()
    with pytest.raises(InputError, match="bomb"):
        read_jobs(path, form, tz="UTC", origin="2024-01-01", limits=Limits(rows=100_000))
    assert time.process_time() - begin < 10


def test_a_header_of_many_columns_is_checked_in_linear_time(tmp_path: Path) -> None:
    names = ",".join(f"c{i}" for i in range(300_000))
    begin = time.process_time()
    for text in ("," * 5_000_000, names, names + ",c0"):
        with pytest.raises(InputError, match=r"columns|twice"):
            read_jobs(_write(tmp_path / "wide.csv", text + "\n1\n"))
    with pytest.raises(InputError, match="twice"):
        read_jobs(_write(tmp_path / "wide.csv", names + ",c0\n1\n"), limits=None)
    assert time.process_time() - begin < 10


def test_text_in_utf16_is_named(tmp_path: Path) -> None:
    for coding in ("utf-16", "utf-16-be"):
        path = tmp_path / f"{coding}.csv"
        path.write_bytes(("\ufeff" * (coding != "utf-16") + log("ada")).encode(coding))
        with pytest.raises(InputError, match=r"is text in UTF-16; save it as UTF-8 .*CSV UTF-8"):
            read_jobs(path)


def test_archives(tmp_path: Path) -> None:
    for count, message in ((0, "null bytes"), (1, None), (2, "more than one file")):
        path = tmp_path / f"{count}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for number in range(count):
                member = tarfile.TarInfo(f"log{number}.csv")
                member.size = len(log("ada"))
                archive.addfile(member, io.BytesIO(log("ada").encode()))
        if message is None:
            assert len(read_jobs(path)) == 1
        else:
            with pytest.raises(InputError, match=message):
                read_jobs(path)


def _parquet(path: Path, **columns: pa.Array) -> Path:
    times = pa.array(["2024-05-01T00:00:00Z"])
    pq.write_table(pa.table({"submit": times, "start": times, "end": times, "gpus": pa.array([8.0])} | columns), path)
    return path


@pytest.mark.parametrize("command", [read_jobs, usage_series])
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"start": pa.array([0]).cast(pa.timestamp("us", "Mars/Olympus"))},
            "'start' of 'x.parquet' have no known zone",
        ),
        ({"user": pa.array([b"\xff\xfe"]).view(pa.string())}, "x.parquet"),
    ],
)
def test_parquet_of_strangers(tmp_path: Path, columns, message: str, command) -> None:
    with pytest.raises(InputError, match=message):
        command(_parquet(tmp_path / "x.parquet", **columns))


@pytest.mark.parametrize(
    "attrs",
    [
        b"{",
        b"[1]",
        b"7",
        b'{"rejected": [1]}',
        b'{"rejected": {"a": "b"}}',
        b'{"kind": "sure"}',
        b"\xff",
        b'{"complete_from": "soon"}',
    ],
)
def test_broken_attributes_are_a_sentence(tmp_path: Path, attrs: bytes) -> None:
    path = _write(tmp_path / "log.csv", log("ada"))
    write_jobs(read_jobs(path), tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    pq.write_table(table.replace_schema_metadata({b"PANDAS_ATTRS": attrs}), tmp_path / "x.parquet")
    for command in (read_jobs, usage_series):
        with pytest.raises(InputError, match=r"PANDAS_ATTRS of 'x.parquet'"):
            command(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    "values",
    [pa.array([b"\xff"]), pa.array([1], pa.duration("s")), pa.array([1], pa.time32("s")), pa.array([[1]])],
    ids=str,
)
@pytest.mark.parametrize("column", ["gpus", "start"])
def test_odd_types_in_parquet_are_no_numbers_and_no_times(tmp_path: Path, values: pa.Array, column: str) -> None:
    with pytest.raises(InputError, match=r"x\.parquet"):
        read_jobs(_parquet(tmp_path / "x.parquet", **{column: values}))


def test_a_number_of_400_digits_is_a_sentence(tmp_path: Path) -> None:
    answer = '{"data": {"result": [{"metric": {"namespace": "a"}, "values": [[%s, "%s"]]}]}}'
    for stamp, value in (("9" * 400, "1"), ("1714521600", "9" * 400)):
        with pytest.raises(InputError, match=r"log\.json"):
            read_prometheus(_write(tmp_path / "log.json", answer % (stamp, value)))


def test_a_key_twice_hides_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'data' twice"):
        read_prometheus(_write(tmp_path / "log.json", '{"data": {}, "data": {}}'))


def test_a_line_that_is_no_row_stops_a_query_in_place(tmp_path: Path) -> None:
    path = _write(tmp_path / "log.csv", log("ada", "eve,more"))
    with pytest.raises(InputError, match=r"line 3 of 'log.csv' is a row with a wrong number of fields"):
        usage_series(path)


def test_jobs_behind_a_semicolon_are_counted(tmp_path: Path) -> None:
    line = "{} 0 5 100 8 -1 -1 8 -1 -1 1 3 1 -1 -1 -1 -1 -1\n"
    text = "; UnixStartTime: 1714521600\n" + line.format(1) + "; a note\n;" + line.format(2)
    with pytest.warns(RejectedRowsWarning, match="1 of 2 rows left out .1 commented out"):
        assert len(read_jobs(_write(tmp_path / "log.swf", text), "swf")) == 1


def test_rows_without_any_value_are_counted(tmp_path: Path) -> None:
    with pytest.warns(RejectedRowsWarning, match="1 of 2 rows left out"):
        assert len(read_jobs(_write(tmp_path / "log.csv", log("ada") + "," * 11 + "\n\n  \n"))) == 1


def test_a_damaged_table_of_users_is_named(fixtures: Path, tmp_path: Path) -> None:
    _write(tmp_path / "pai_task_table.csv", (fixtures / "pai/pai_task_table.csv").read_bytes())
    _write(tmp_path / "pai_job_table.csv", "j1,i1,u1,Terminated,100,4000\nj2,i2\n")
    with pytest.raises(InputError, match=r"line 2 of 'pai_job_table\.csv'"):
        read_jobs(tmp_path, "pai", origin="2024-01-01", tz="UTC")


def test_a_file_of_many_blocks_reads_like_one_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (log(*[f'"u{i}, é"' for i in range(50)]) + "bad\n").replace("\n", "\r\n")
    path = _write(tmp_path / "log.csv", text)
    with pytest.warns(RejectedRowsWarning):
        whole = read_jobs(path)
    for size in (1, 7, 100):
        monkeypatch.setattr("gpudemand.jobs.files._BLOCK", size)
        with pytest.warns(RejectedRowsWarning):
            pd.testing.assert_frame_equal(read_jobs(path), whole)
        with pytest.raises(InputError, match="line 52:"):
            read_jobs(path, strict=True)


@pytest.mark.parametrize("form", ["canonical", "sacct"])
@pytest.mark.parametrize("text", ['[{"user": "ada", "gpus": 1}]', '{"jobs": [\n{"user": "ada"}]}', '{\n "jobs": []\n}'])
def test_json_is_called_json(tmp_path, form, text):
    (tmp_path / "log.json").write_text(text)
    with pytest.raises(
        InputError, match=r"'log.json' is (JSON; export it as CSV|JSON, but not that of sacct|not the JSON of sacct)"
    ):
        read_jobs(tmp_path / "log.json", format=form, tz="UTC")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("kind", ["canonical", "swf"])
def test_a_pipe_is_read_once_and_whole(tmp_path, kind):
    rows = [f"u{row % 7},2026-01-05T00:00:00Z,2026-01-05T05:00:00Z,2" for row in range(3000)]
    text = "user,start,end,gpus\n" + "\n".join(rows) + "\n"
    if kind == "swf":
        text = "".join(f"{i} {i * 60} 0 3600 4 -1 -1 4 7200 -1 1 5 1 1 1 1 -1 -1\n" for i in range(1, 3001))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(text))
    writer.start()
    jobs = read_jobs(pipe, format=kind, origin=None if kind == "canonical" else "2026-01-01T00:00Z")
    writer.join()
    assert len(jobs) == 3000
    assert jobs.attrs["source"] == "pipe"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_into_which_nobody_writes_ends_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "_WRITER_S", 0.05)
    os.mkfifo(tmp_path / "pipe")
    for read in (read_jobs, read_style, LargeModelPredictor.load):
        with pytest.raises(InputError, match=r"is a pipe into which nobody writes|cannot be read as text"):
            read(tmp_path / "pipe")


@pytest.mark.slow
def test_one_long_name_of_many_jobs_is_over_the_limit(tmp_path):
    count, time = 3000, pa.array([1767225600000000] * 3000, pa.timestamp("us", "UTC"))
    user = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array(["x" * 100_000]))
    table = pa.table({"user": user, "start": time, "end": time, "gpus": pa.array([1.0] * count)})
    pq.write_table(table, tmp_path / "bomb.parquet", compression="zstd", store_schema=False)
    assert (tmp_path / "bomb.parquet").stat().st_size < 10_000
    with pytest.raises(InputError, match=r"has more than 10,000,000 characters; if it is undamaged, pass limits=None"):
        read_jobs(tmp_path / "bomb.parquet", limits=Limits(size=10_000_000))
    assert len(read_jobs(tmp_path / "bomb.parquet")) == count


def test_a_device_is_no_log():
    with pytest.raises(InputError, match="'/dev/zero' is a device, not a file"):
        read_jobs("/dev/zero")
