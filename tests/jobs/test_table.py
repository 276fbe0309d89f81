from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand import usage_series
from gpudemand._validation import InputError
from gpudemand.jobs import read_jobs
from gpudemand.jobs.plausibility import without_impossible_use
from gpudemand.jobs.schema import COLUMNS
from gpudemand.jobs.table import as_jobs, check_jobs, rejections, submitted_again, superseded


def day(*numbers: int | None) -> pd.Series:
    return pd.to_datetime(pd.Series([None if n is None else f"2024-05-{n:02}" for n in numbers]), utc=True)


def table(**columns: object) -> pd.DataFrame:
    return as_jobs(pd.DataFrame({"gpus": 1.0, **columns}), kind="synthetic")


def test_columns_and_types() -> None:
    jobs = table(start=day(1, 2), colour=["red", "blue"])
    assert [*jobs.columns] == [*COLUMNS, "colour"]
    assert jobs.dtypes.astype(str).tolist()[:12] == [str(pd.Series(dtype=dtype).dtype) for dtype in COLUMNS.values()]
    assert jobs["submit"].equals(jobs["start"])


def test_a_table_without_times_is_refused() -> None:
    with pytest.raises(InputError, match="neither"):
        as_jobs(pd.DataFrame({"gpus": [1.0]}), kind="synthetic")


def test_each_bad_row_has_its_reason() -> None:
    jobs = table(
        submit=day(1, 1, 3, 1, 1, 1, 1, None),
        start=day(2, 3, 2, 2, 2, 2, 2, None),
        end=day(3, 2, 4, 3, 3, 3, None, 3),
        gpus=[1, 1, 1, -1, 2e6, np.nan, 1, 1],
        status="completed",
    )
    assert rejections(jobs).fillna("").tolist() == [
        "",
        "end before start",
        "start before submit",
        "negative number of GPUs",
        "more than 1,000,000 GPUs",
        "unknown number of GPUs",
        "finished without an end time",
        "no submit or start time",
    ]


def test_errors_number_rows_as_iloc_does_and_warnings_name_the_job() -> None:
    """Warnings are also of tables that were cut or sorted, in which places are others."""
    times = day(1, 2, 3)
    jobs = pd.DataFrame({"user": "u", "start": times, "end": times + pd.Timedelta("1h"), "gpus": [1.0, 1.0, -1.0]})
    with pytest.raises(InputError, match=r"the first at jobs\.iloc\[2\]; repair or drop them"):
        check_jobs(jobs.set_axis([7, 8, 9]))
    jobs = jobs.assign(gpus=1.0, used_gpu_seconds=[0.0, 0.0, -5.0]).set_axis([7, 8, 9])
    _, said = without_impossible_use(check_jobs(jobs))
    assert "(a job of u submitted 2024-05-03 00:00: -5)" in said[0]


def test_the_latest_record_of_a_run_is_used() -> None:
    jobs = table(
        job_id=["a", "a", "a", "b", "b", "c", "c", None, None],
        submit=day(1, 1, 1, 1, 1, 1, 1, 1, 1),
        start=day(None, 2, 2, 2, 5, 2, 4, 2, 2),
        end=day(None, None, 3, 3, 6, None, None, 3, 3),
    )
    #      waiting, running; requeued after it ended: both stay; requeued while it ran: the open run is over; no ids
    assert superseded(jobs).tolist() == [True, True, False, False, False, True, False, False, False]


def test_the_same_id_on_two_clusters_is_two_jobs() -> None:
    jobs = table(job_id="a", cluster=["x", "y"], submit=day(1, 1), start=day(2, 2), end=day(3, 4))
    assert not superseded(jobs).any()


@pytest.mark.parametrize(
    ("submit", "start", "end", "waits_since"),
    [
        ((1, 1, 1), (1, 5, 9), (4, 8, 10), (1, 4, 8)),  # put back twice
        ((1, 1, 1), (1, 5, 6), (4, 8, 9), (1, 1, 1)),  # tasks that share an id, of which two run side by side
        ((1, 1, 1), (1, 5, 9), (4, None, 10), (1, 1, 1)),  # not known to follow one another
        ((1, 1, 5), (1, 5, 9), (4, 8, 10), (1, 4, 5)),  # a submission that the log has renewed stays
    ],
)
def test_later_runs_of_a_job_wait_since_the_one_before_ended(submit, start, end, waits_since) -> None:
    jobs = table(job_id="a", submit=day(*submit), start=day(*start), end=day(*end), status="requeued")
    assert submitted_again(jobs)["submit"].tolist() == day(*waits_since).tolist()
    shuffled = jobs.iloc[[2, 0, 1]].reset_index(drop=True)
    assert submitted_again(shuffled)["submit"].tolist() == [day(*waits_since)[place] for place in (2, 0, 1)]
    other = jobs.assign(job_id=["a", "b", "c"])
    assert submitted_again(other)["submit"].tolist() == day(*submit).tolist()


def test_a_table_in_memory_and_a_file_agree_on_runs_that_were_put_back(tmp_path) -> None:
    jobs = table(job_id="a", user="ada", submit=day(1, 1), start=day(1, 5), end=day(4, 8), status="failed")
    jobs.to_csv(tmp_path / "jobs.csv", index=False)
    for found in (check_jobs(jobs), read_jobs(tmp_path / "jobs.csv")):
        assert found["submit"].tolist() == day(1, 4).tolist()
    assert jobs["submit"].tolist() == day(1, 1).tolist()


@pytest.mark.parametrize("end", ["1970-01-01T01:00:00+01:00", "0001-01-01T00:00:00Z", "9999-12-31 23:59:59Z", "0"])
@pytest.mark.parametrize("status", ["running", "pending"])
def test_a_time_that_stands_for_no_end_is_none(tmp_path, end: str, status: str) -> None:
    begin = "2024-05-01T08:00:00Z"
    start = begin if status == "running" else end
    rows = [f"1,{begin},{begin},2024-05-01T09:00:00Z,completed,1", f"2,{begin},{start},{end},{status},8"]
    (tmp_path / "jobs.csv").write_text("\n".join(["job_id,submit,start,end,status,gpus", *rows]))
    jobs = read_jobs(tmp_path / "jobs.csv")
    assert jobs["status"].tolist() == ["completed", status]
    frame = pd.read_csv(tmp_path / "jobs.csv", dtype=str)
    for found in (jobs, check_jobs(frame)):
        assert found["end"].isna().tolist() == [False, True]
        assert found["start"].isna().tolist() == [False, status == "pending"]
    with pytest.raises(InputError, match=r"outside 1985 to 2200|unreadable"):
        check_jobs(frame.assign(status="completed"))


def test_a_start_that_is_rounded_is_not_before_the_submission(tmp_path) -> None:
    rows = ["1,2024-05-01T08:00:00.700Z,2024-05-01T08:00:00Z,2024-05-01T09:00:00Z,1"]
    (tmp_path / "jobs.csv").write_text("\n".join(["job_id,submit,start,end,gpus", *rows]))
    jobs = read_jobs(tmp_path / "jobs.csv")
    assert (jobs["start"] - jobs["submit"]).dt.total_seconds().tolist() == [0.0]
    for value in ("gpu_hours", "wanted"):
        expected = usage_series(jobs, by=None, freq="h", value=value)["y"].tolist()
        assert usage_series(tmp_path / "jobs.csv", by=None, freq="h", value=value)["y"].tolist() == expected
