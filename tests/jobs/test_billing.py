from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from gpudemand._validation import RejectedRowsWarning
from gpudemand.jobs import read_jobs


@pytest.fixture(params=["csv", "parquet"])
def bill(request: pytest.FixtureRequest, fixtures: Path, tmp_path: Path) -> Path:
    if request.param == "csv":
        return fixtures / "focus.csv"
    frame = pd.read_csv(fixtures / "focus.csv", parse_dates=["ChargePeriodStart", "ChargePeriodEnd"])
    frame.to_parquet(tmp_path / "focus.parquet")
    return tmp_path / "focus.parquet"


def test_usage_is_read_and_other_charges_are_counted(bill: Path) -> None:
    with pytest.warns(RejectedRowsWarning):
        jobs = read_jobs(bill, "focus", strict=True)
    assert jobs["gpus"].tolist() == [8, 0.5]
    assert jobs["user"].tolist() == ["ada", "Research"]
    assert jobs["effective_cost"].tolist() == [768, 1.5]
    assert jobs.loc[0, ["group", "cluster", "resource_id"]].tolist() == ["Research", "eu-west-1", "i-1"]
    assert jobs.attrs["rejected"] == {
        "unused commitment": 1,
        "usage not measured in hours": 1,
        "charge that is no usage": 1,
    }


def test_two_charges_of_one_resource_and_hour_both_count(write) -> None:
    row = "2024-05-01T00:00:00Z,2024-05-01T01:00:00Z,0.5,Hours,i-1\n"
    jobs = read_jobs(
        write("ChargePeriodStart,ChargePeriodEnd,ConsumedQuantity,ConsumedUnit,ResourceId\n" + 2 * row), "focus"
    )
    assert jobs["gpus"].sum() == 1


def test_a_period_without_length_is_refused(write) -> None:
    hour = "2024-05-01T00:00:00Z,2024-05-01T01:00:00Z,1,Hours\n"
    log = "ChargePeriodStart,ChargePeriodEnd,ConsumedQuantity,ConsumedUnit\n" + hour + hour.replace("T01", "T00")
    with pytest.warns(RejectedRowsWarning, match="1 empty charge period"):
        assert len(read_jobs(write(log), "focus")) == 1
