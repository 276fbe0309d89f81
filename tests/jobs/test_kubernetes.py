from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from gpudemand._validation import InputError, RejectedRowsWarning, UnlikelyJobsWarning
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
    usage = read_prometheus(write("timestamp,vision\n1714521600000,4\n"))
    assert usage["ds"].tolist() == [DAY]


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


HELD = [("speech", 0, 1.0), ("speech", 1, 1.0), ("vision", 0, 4.0), ("vision", 1, 4.0)]
GRAFANA = {
    "excel": 'sep=,\n"Time","{namespace=""vision""}","{namespace=""speech""}"\n'
    "2026-03-01 00:00:00,4,1\n2026-03-01 01:00:00,4,1\n",
    "milliseconds": '"Time","vision","speech"\n1772323200000,4,1\n1772326800000,4,1\n',
    "semicolons": "Series;Time;Value\n"
    + "".join(f"{name};2026-03-01T0{hour}:00:00.000Z;{y:g}\n" for name, hour, y in HELD),
    "pods": '"Time","x{namespace=""vision"", pod=""a""}","x{namespace=""vision"", pod=""b""}",'
    '"x{namespace=""speech""}"\n'
    "2026-03-01 00:00:00,3,1,1\n2026-03-01 01:00:00,2,2,1\n",
    "victoria": "".join(
        json.dumps({"metric": {"namespace": name}, "values": [y, y], "timestamps": [1772323200000, 1772326800000]})
        + "\n"
        for name, y in (("vision", 4), ("speech", 1))
    ),
}


@pytest.mark.parametrize("form", GRAFANA)
def test_exports_of_grafana_and_victoriametrics(write, form) -> None:
    usage = read_prometheus(write(GRAFANA[form]), tz="UTC")
    assert list(zip(usage["unique_id"], usage["ds"].dt.hour, usage["y"], strict=True)) == HELD


def test_columns_without_a_namespace_are_refused(write) -> None:
    with pytest.raises(InputError, match="a series without a namespace"):
        read_prometheus(write('"Time","x{pod=""a""}"\n2026-03-01 00:00:00,4\n'), tz="UTC")


def nightly(write, hours) -> pd.DataFrame:
    values = [[1767571200 + 3600 * hour, "8"] for hour in hours]
    answer = {"data": {"result": [{"metric": {"namespace": "vision"}, "values": values}]}}
    return read_prometheus(write(json.dumps(answer), "night.json"))


def test_nights_without_pods_are_zeros_and_gaps_of_the_scrape_are_not(write) -> None:
    days = [24 * day + hour for day in range(28) for hour in range(6, 20)]
    with pytest.warns(UnlikelyJobsWarning, match="at the same hours of 27 days: no pod ran then"):
        usage = nightly(write, days)
    assert usage["y"].sum() == 28 * 14 * 8
    assert len(usage) == 27 * 24 + 14
    whole = [hour for hour in range(28 * 24) if hour not in range(100, 130) and hour not in range(400, 404)]
    assert len(nightly(write, whole)) == len(whole)
