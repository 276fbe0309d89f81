from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError
from gpudemand.jobs.schema import COLUMNS
from gpudemand.jobs.table import as_jobs, rejections, superseded


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
