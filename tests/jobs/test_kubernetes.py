from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from gpudemand._validation import InputError, RejectedRowsWarning
from gpudemand.jobs import read_jobs, read_prometheus

DAY = pd.Timestamp("2024-05-01", tz="UTC")


def test_pods_of_a_namespace_are_added_up(fixtures: Path) -> None:
    with pytest.warns(RejectedRowsWarning, match="1 without y"):
        usage = read_prometheus(fixtures / "prometheus.json")
    assert usage["unique_id"].tolist() == ["speech", "vision", "vision"]
    assert usage["y"].tolist() == [1, 6, 4]
    assert usage["ds"].tolist() == [DAY + pd.Timedelta("500ms"), DAY, DAY + pd.Timedelta("1h")]
    assert usage.attrs["kind"] == "measured"


@pytest.mark.parametrize(
    "text",
    [
        "Time,vision,speech\n2024-05-01T00:00:00Z,4,\n2024-05-01T01:00:00Z,4,1\n",
        "timestamp,namespace,value\n1714521600,vision,4\n1714525200,vision,3\n1714525200,vision,1\n1714525200,speech,1\n",
    ],
)
def test_wide_and_long_csv(write, text: str) -> None:
    usage = read_prometheus(write(text))
    assert usage["unique_id"].tolist() == ["speech", "vision", "vision"]
    assert usage["y"].tolist() == [1, 4, 4]


def test_milliseconds_are_not_the_year_52000(write) -> None:
    with pytest.raises(InputError, match="milliseconds"):
        read_prometheus(write("timestamp,vision\n1714521600000,4\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"status": "error", "error": "query timed out"}', "query timed out"),
        ('{"status": "success"}', "not the answer of a Prometheus"),
        ('{"data": {"result": [{"metric": {"pod": "a"}, "values": []}]}}', "without a namespace"),
        ('{"data": {"result": []}}', "no row"),
        ('{"data": ', "not JSON"),
        ("a,b\n1,2\n", "no column of times"),
    ],
)
def test_other_files_are_refused(write, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_prometheus(write(text))


def test_read_jobs_points_to_read_usage(fixtures: Path) -> None:
    with pytest.raises(InputError, match="read_usage"):
        read_jobs(fixtures / "prometheus.json", "prometheus")
