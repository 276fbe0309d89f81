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


@pytest.mark.parametrize(
    "text",
    [
        "Time,DCGM_FI_DEV_GPU_UTIL\n1772409600,87\n",
        'Time,"DCGM_FI_DEV_GPU_UTIL{exported_namespace=""vision"", gpu=""0""}"\n1772409600,87\n',
        "Time,namespace,__name__,Value\n1772409600,vision,DCGM_FI_DEV_GPU_UTIL,87\n",
    ],
)
def test_csv_of_what_counts_no_gpus_is_refused_as_json_is(write, text) -> None:
    with pytest.raises(InputError, match="DCGM_FI_DEV_GPU_UTIL, which are no numbers of GPUs"):
        read_prometheus(write(text))


@pytest.mark.parametrize(
    "text",
    [
        'Time,"x{namespace=""vision"", resource=""cpu""}","x{namespace=""vision"", resource=""nvidia_com_gpu""}"\n'
        "1772409600,64,8\n",
        "Time,namespace,resource,Value\n1772409600,vision,cpu,64\n1772409600,vision,nvidia_com_gpu,8\n",
    ],
)
def test_other_resources_in_csv_do_not_count(write, text) -> None:
    with pytest.warns(UnlikelyJobsWarning, match="resource cpu are no GPUs"):
        assert read_prometheus(write(text))["y"].tolist() == [8]


def test_namespaces_may_be_called_like_a_metric(write) -> None:
    usage = read_prometheus(write("Time,gpu-utilities,mem_lab\n1772409600,8,4\n"))
    assert usage["unique_id"].tolist() == ["gpu-utilities", "mem_lab"]


@pytest.mark.parametrize(
    "text",
    [
        "Time,vision,speech,Total\n1772409600,4,2,6\n1772413200,4,2,6\n",
        "Time,vision,Total\n1772409600,4,4\n",
        "Time,namespace,value\n"
        + "".join(
            f"{1772409600 + 3600 * k},{n},{v}\n" for k in range(3) for n, v in (("a", k), ("b", 1), ("all", k + 1))
        ),
    ],
)
def test_a_total_is_no_namespace(write, text) -> None:
    with pytest.warns(UnlikelyJobsWarning, match="'(Total|all)' is the sum of all others at every time, and did not"):
        usage = read_prometheus(write(text))
    assert not usage["unique_id"].isin(["Total", "all"]).any()


def test_a_sum_that_may_be_chance_is_kept_with_a_doubt(write) -> None:
    with pytest.warns(UnlikelyJobsWarning, match="'lab' is the sum of all others at every time; if"):
        usage = read_prometheus(write("Time,vision,speech,lab\n1772409600,4,2,6\n1772413200,4,2,6\n"))
    assert usage["y"].sum() == 24


def test_what_an_answer_says_of_itself_is_said(write) -> None:
    series = {"metric": {"namespace": "a"}, "values": [[1772409600, "4"]]}
    answer = {"warnings": ["some stores were unreachable"], "isPartial": True, "data": {"result": [series]}}
    with pytest.warns(UnlikelyJobsWarning) as told:
        read_prometheus(write(json.dumps(answer), "partial.json"))
    text = " ".join(str(each.message) for each in told)
    assert "some stores were unreachable" in text
    assert "partial" in text


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


START = 1772409600


def scraped(*series: tuple[str, float, int]) -> str:
    """Lines of VictoriaMetrics' export of a day: pods of two namespaces, the seconds that each is scraped late."""
    times = range(START, START + 86400, 1800)
    return "".join(
        json.dumps(
            {
                "metric": {"namespace": name, "pod": str(k)},
                "values": [gpus] * len(times),
                "timestamps": [1000 * (time + late) + time // 1800 % 3 for time in times],
            }
        )
        + "\n"
        for k, (name, gpus, late) in enumerate(series)
    )


def test_series_that_are_scraped_in_turn_are_summed(write) -> None:
    usage = read_prometheus(
        write(scraped(("vision", 4, 0), ("vision", 4, 12), ("speech", 1, 900), ("speech", 1, 1500)), "export.jsonl")
    )
    assert usage.groupby("unique_id")["y"].agg(["sum", "nunique", "count"]).values.tolist() == [
        [2 * 48, 1, 48],
        [8 * 48, 1, 48],
    ]
    assert usage["ds"].nunique() == 48


def test_pods_in_rows_of_their_own_are_summed_where_their_times_differ(write) -> None:
    rows = [f"{START + 3600 * hour + 20 * pod},vision,p{pod},4" for hour in range(24) for pod in range(3)]
    usage = read_prometheus(write("timestamp,namespace,pod,value\n" + "\n".join(rows) + "\n"))
    assert usage["y"].tolist() == [12] * 24


def test_one_gap_of_late_scrapes_is_no_night(write) -> None:
    lines = [json.loads(line) for line in scraped(("vision", 4, 0)).splitlines()]
    week = [(stamp + day * 86_400_000 + day) for day in range(7) for stamp in lines[0]["timestamps"]]
    known = [stamp for place, stamp in enumerate(week) if not 150 <= place < 162]
    export = {"metric": {"namespace": "vision"}, "values": [4] * len(known), "timestamps": known}
    assert len(read_prometheus(write(json.dumps(export) + "\n", "export.jsonl"))) == len(known)


def test_an_export_is_known_however_long_its_values_are(write) -> None:
    times = list(range(START, START + 3000))
    series = {"metric": {"namespace": "a"}, "values": [1] * 3000, "timestamps": [1000 * time for time in times]}
    assert len(read_prometheus(write(json.dumps(series) + "\n", "export.jsonl"))) == 3000
