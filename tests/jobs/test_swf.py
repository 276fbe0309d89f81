from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpudemand._validation import InputError, RejectedRowsWarning
from gpudemand.jobs import read_jobs
from gpudemand.jobs.table import as_jobs
from gpudemand.usage import usage_series

HEADER = "; Version: 2.2\n; UnixStartTime: 1714521600\n; MaxProcs: 64\n; User: 3 ada lovelace\n"
LINE = "1 10 5 100 8 -1 -1 8 200 -1 1 3 1 -1 2 1 -1 -1\n"
DAY = pd.Timestamp("2024-05-01", tz="UTC")


def seconds(after: int) -> pd.Timestamp:
    return DAY + pd.Timedelta(seconds=after)


def test_a_line(write) -> None:
    job = read_jobs(write(HEADER + LINE), "swf").loc[0]
    assert job[["submit", "start", "end"]].tolist() == [seconds(10), seconds(15), seconds(115)]
    assert job[["user", "group", "queue", "partition"]].tolist() == ["ada lovelace", "1", "2", "1"]
    assert job[["gpus", "requested_time", "status"]].tolist() == [8, 200, "completed"]


def test_blanks_tabs_and_comments_between_jobs(write) -> None:
    messy = "\n".join(["", "  " + LINE.replace(" ", " \t ").strip() + "  ", "; a note", LINE.replace("1 ", "2 ", 1)])
    assert read_jobs(write(HEADER + messy), "swf")["job_id"].tolist() == ["1", "2"]


def test_unknown_processors(write) -> None:
    never_ran = "2 10 5 0 -1 -1 -1 -1 -1 -1 5 3 1 -1 -1 -1 -1 -1\n"
    ran = "3 10 5 50 -1 -1 -1 -1 -1 -1 1 3 1 -1 -1 -1 -1 -1\n"
    requested = "4 10 5 50 -1 -1 -1 6 -1 -1 1 3 1 -1 -1 -1 -1 -1\n"
    with pytest.warns(RejectedRowsWarning, match="1 unknown number of GPUs"):
        jobs = read_jobs(write(HEADER + LINE + never_ran + ran + requested), "swf")
    assert jobs["gpus"].tolist() == [8, 0, 6]


def test_unknown_wait_leaves_the_start_unknown(write) -> None:
    job = read_jobs(write(HEADER + LINE.replace("10 5 100", "10 -1 100")), "swf").loc[0]
    assert pd.isna(job["start"])
    assert job["end"] == seconds(110)


def test_parts_between_checkpoints_are_not_counted_twice(write) -> None:
    part = LINE.replace("-1 1 3", "-1 2 3").replace("5 100", "5 40")
    with pytest.warns(RejectedRowsWarning, match="part of a job"):
        assert read_jobs(write(HEADER + LINE + part), "swf", strict=True)["status"].tolist() == ["completed"]


def test_a_log_without_a_start_requires_the_origin(write) -> None:
    path = write(LINE)
    with pytest.raises(InputError, match="pass origin="):
        read_jobs(path, "swf")
    job = read_jobs(path, "swf", origin="2024-05-01", tz="UTC").loc[0]
    assert job["submit"] == seconds(10)


@pytest.mark.parametrize(("header", "origin"), [("", None), (HEADER, None), ("", "1970-01-01")])
def test_seconds_since_1970_need_no_origin_and_no_header(write, header: str, origin: str | None) -> None:
    path = write(header + LINE.replace("1 10 ", "1 1714521610 "))
    assert read_jobs(path, "swf", origin=origin).loc[0, "submit"] == seconds(10)
    with pytest.raises(InputError, match="since 1970 already, from 2024-05-01 on; leave origin= out"):
        read_jobs(path, "swf", origin="2024-05-01 00:00Z")


def test_a_short_line_is_counted(write) -> None:
    with pytest.warns(RejectedRowsWarning, match="with a wrong number of fields"):
        assert len(read_jobs(write(HEADER + LINE + "2 10 5\n"), "swf")) == 1
    with pytest.raises(InputError, match="line 6: with a wrong number of fields"):
        read_jobs(write(HEADER + LINE + "2 10 5\n"), "swf", strict=True)


def test_a_header_without_jobs_is_refused(write) -> None:
    with pytest.raises(InputError, match="no jobs"):
        read_jobs(write(HEADER), "swf")


whole = st.integers(0, 10**6)
names = st.one_of(st.none(), st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=8))
job = st.tuples(whole, whole, whole, st.integers(0, 4096), names, names, st.booleans())


def swf(rows: list[tuple]) -> str:
    """Jobs by number, with the names of users and groups in the header."""
    user, group = ([None, *sorted({row[place] for row in rows} - {None})] for place in (4, 5))
    lines = [f"; User: {user.index(name)} {name}" for name in user[1:]]
    lines += [f"; Group: {group.index(name)} {name}" for name in group[1:]]
    for number, (submit, wait, run, gpus, *names, runs) in enumerate(rows, 1):
        run, status = (-1, -1) if runs else (run, 1)
        codes = [of.index(name) or -1 for of, name in zip((user, group), names, strict=True)]
        fields = [number, submit, wait, run, gpus, -1, -1, gpus, -1, -1, status, *codes, *[-1] * 5]
        lines.append(" ".join(map(str, fields)))
    return "\n".join(["; UnixStartTime: 1714521600", *lines, ""])


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(job, min_size=1, max_size=8))
def test_any_jobs(write, rows: list[tuple]) -> None:
    rows.sort(key=lambda row: row[0])
    submit = [seconds(row[0]) for row in rows]
    start = [time + pd.Timedelta(seconds=row[1]) for time, row in zip(submit, rows, strict=True)]
    end = [None if row[6] else time + pd.Timedelta(seconds=row[2]) for time, row in zip(start, rows, strict=True)]
    frame = pd.DataFrame(
        {
            "job_id": [str(number) for number in range(1, len(rows) + 1)],
            "user": [row[4] for row in rows],
            "group": [row[5] for row in rows],
            "submit": pd.to_datetime(submit, utc=True),
            "start": pd.to_datetime(start, utc=True),
            "end": pd.to_datetime(pd.Series(end, dtype="datetime64[ns, UTC]")),
            "gpus": [float(row[3]) for row in rows],
            "status": [None if row[6] else "completed" for row in rows],
        }
    )
    jobs, again = as_jobs(frame, kind="public trace"), read_jobs(write(swf(rows)), "swf")
    pd.testing.assert_frame_equal(again[jobs.columns], jobs)


def test_a_cancelled_job_that_ran_keeps_its_run_where_its_wait_is_unknown(write) -> None:
    unknown = LINE.replace("1 10 5 100", "2 10 -1 100").replace("-1 1 3 1", "-1 5 3 1")
    jobs = read_jobs(write(HEADER + LINE + unknown), "swf")
    assert jobs["status"].tolist() == ["completed", "cancelled"]
    assert usage_series(jobs, by=None)["y"].sum() == pytest.approx(2 * 8 * 100 / 3600)
    assert read_jobs(write(HEADER + unknown), "swf")["start"].isna().all()
