from __future__ import annotations

import json
import re
import warnings
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


REQUESTS = "kube_pod_container_resource_requests"


def answer(*series: tuple[dict[str, str], float]) -> str:
    """Answer of a range query with three samples of each series."""
    found = [
        {"metric": labels, "values": [[START + 3600 * hour, str(gpus)] for hour in range(3)]} for labels, gpus in series
    ]
    return json.dumps({"status": "success", "data": {"result": found}})


def in_rows(*series: tuple[dict[str, str], float]) -> str:
    """The same as CSV with a column for each label."""
    names = sorted({name for labels, _ in series for name in labels})
    rows = [
        ",".join([str(START + 3600 * hour), *(labels.get(name, "") for name in names), str(gpus)])
        for hour in range(3)
        for labels, gpus in series
    ]
    return "\n".join([",".join(["timestamp", *names, "value"]), *rows, ""])


def in_columns(*series: tuple[dict[str, str], float]) -> str:
    """The same as Grafana's CSV with a column for each series."""
    names = []
    for labels, _ in series:
        pairs = ", ".join(f'{name}=""{text}""' for name, text in labels.items() if name != "__name__")
        names.append(f'"{labels.get("__name__", "")}{{{pairs}}}"')
    rows = [",".join([str(START + 3600 * hour), *(str(gpus) for _, gpus in series)]) for hour in range(3)]
    return "\n".join([",".join(["Time", *names]), *rows, ""])


def by_label(
    name: str, metric: str = "", more: dict[str, str] | None = None, **values: float
) -> list[tuple[dict[str, str], float]]:
    """Series of one namespace that differ in a label."""
    named = {**({"__name__": metric} if metric else {}), **(more or {})}
    return [({**named, "namespace": "v", name: value}, gpus) for value, gpus in values.items()]


def by_metric(form: str, **values: float) -> list[tuple[dict[str, str], float]]:
    """Series of one namespace that differ in their metric."""
    labels = {"namespace": "v", "resource": "nvidia.com/gpu"}
    return [({"__name__": form.format(name), **labels}, gpus) for name, gpus in values.items()]


QUOTA = {"resource": "requests.nvidia.com/gpu"}
COUNTED = {
    "slices": (by_label("resource", nvidia_com_mig_1g_5gb=7), 1, ""),
    "slices and whole": (by_label("resource", REQUESTS, nvidia_com_gpu=2, nvidia_com_mig_1g_10gb=7), 3, ""),
    "slices by profile": (by_label("GPU_I_PROFILE", **{"3g.20gb": 2}), 1, ""),
    "time-sliced": (by_label("resource", nvidia_com_gpu_shared=4), 4, "nvidia_com_gpu_shared are parts of GPUs"),
    "states": (by_label("state", "slurm_gpus", alloc=6, idle=2, total=8), 6, 'state="idle".*state="total"'),
    "phases": (by_label("phase", Running=6, Pending=10), 6, 'phase="Pending".* not held, and did not'),
    "quota": (by_label("type", "kube_resourcequota", QUOTA, hard=16, used=4), 4, 'type="hard"'),
    "states in names": (by_metric("slurm_partition_gpus_{}", alloc=6, idle=2, total=8), 6, "gpus_idle.*gpus_total"),
    "capacity beside": (by_metric("kube_{}", node_status_allocatable=8, pod_container_resource_requests=4), 4, "alloc"),
    "limits beside": (by_metric("kube_pod_container_resource_{}", limits=4, requests=4), 4, "limits tell of the same"),
    "init containers": (by_metric("kube_pod_{}container_resource_requests", init_=2, **{"": 2}), 2, "init_container"),
    "Kueue": (by_metric("kueue_local_queue_resource_{}", reservation=6, usage=5), 5, "reservation tell of the same"),
    "Ray": (by_label("Name", "ray_resources", {"State": "USED"}, GPU=2, CPU=9), 2, "resource CPU"),
    "own rules": (by_label("type", "namespace:gpus_by_cost_center:sum", A100=3), 3, ""),
    "the scheduler's": (by_metric("kube_pod_resource_{}", request=2), 2, ""),
}


@pytest.mark.parametrize("form", [answer, in_rows, in_columns])
@pytest.mark.parametrize("case", COUNTED)
def test_series_count_as_the_gpus_held(write, case, form) -> None:
    series, gpus, words = COUNTED[case]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        usage = read_prometheus(write(form(*series)))
    assert usage["y"].tolist() == pytest.approx([gpus] * 3)
    assert [re.search(words, str(each.message)) is not None for each in caught] == [True] * bool(words)


@pytest.mark.parametrize("form", [answer, in_rows, in_columns])
@pytest.mark.parametrize(
    ("series", "words"),
    [
        *(
            (by_metric(name, **{"": 0.9}), "are no numbers of GPUs")
            for name in (
                *("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_OCCUPANCY", "DCGM_FI_DEV_XID_ERRORS"),
                *("container_accelerator_duty_cycle", "nvidia_gpu_duty_cycle", "gpu_gfx_activity", "gpu_fan_speed"),
                *("gpu_hours", "gpu_cost_hourly", "namespace:gpu_hours:sum", "kube_pod_status_phase", "node_gpu_count"),
            )
        ),
        (by_metric("kube_node_status_{}", allocatable=8, capacity=8), "only series of GPUs that are there or wanted"),
        (by_metric("ray_node_gpus_{}", available=8), "only series of GPUs that are there or wanted"),
        (by_label("phase", Pending=8), "only series of GPUs that are there or wanted"),
        (by_metric("runai_allocated_gpu_count_per_{}", pod=2, workload=2), "several metrics"),
        (by_label("UUID", **{"GPU-1": 85.0}), "single cards"),
    ],
)
def test_series_that_are_not_known_to_be_gpus_held_are_refused(write, form, series, words) -> None:
    with pytest.raises(InputError, match=words):
        read_prometheus(write(form(*series)))


@pytest.mark.parametrize("header", ["Time,vision (%)", "Time,vision (GiB)", "Time,speech,vision %"])
def test_columns_in_other_units_are_refused(write, header) -> None:
    with pytest.raises(InputError, match="are no numbers of GPUs"):
        read_prometheus(write(f"{header}\n1772409600,{','.join('8' * header.count(','))}\n"))


@pytest.mark.parametrize(
    ("header", "values", "held", "words"),
    [
        ("vision,speech,Max,Mean", "4,1,4,2.5", {"vision": 4, "speech": 1}, "'Max' is the max of all others"),
        ("vision,speech,Max,Total", "4,1,4,5", {"vision": 4, "speech": 1}, "'Max' is the max of all others"),
        ("max,anna", "4,1", {"max": 4, "anna": 1}, ""),
        ("max,anna,bob", "4,1,6", {"max": 4, "anna": 1, "bob": 6}, ""),
        ("Max,Mean", "4,2", {"Max": 4, "Mean": 2}, "if these are statistics"),
        ("vision,capacity,idle", "4,16,12", {"vision": 4}, 'state="capacity".*state="idle"'),
        ("vision nvidia_com_mig_1g_5gb", "7", {"vision nvidia_com_mig_1g_5gb": 1}, ""),
    ],
)
def test_columns_that_are_no_series_of_their_own(write, header, values, held, words) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        usage = read_prometheus(write(f"Time,{header}\n1772409600,{values}\n"))
    assert dict(zip(usage["unique_id"], usage["y"], strict=True)) == pytest.approx(held)
    assert (re.search(words, str(caught[0].message)) is not None) if words else not caught


def test_rows_of_series_without_a_legend_have_labels(write) -> None:
    name = '"{namespace=""vision"", pod=""%s"", resource=""nvidia_com_mig_1g_5gb""}"'
    rows = "".join(f"{name % pod};2026-03-01T00:00:00Z;7\n" for pod in "ab")
    usage = read_prometheus(write("Series;Time;Value\n" + rows))
    assert usage[["unique_id", "y"]].to_numpy().tolist() == [["vision", pytest.approx(2)]]


def test_rarer_samples_for_a_part_of_the_time_are_no_nights(write) -> None:
    times = [*range(0, 7 * 1440, 5), *range(7 * 1440, 28 * 1440, 60)]
    rows = "".join(f"{START + 60 * minute},6\n" for minute in times)
    with pytest.warns(UnlikelyJobsWarning, match=r"are 5 min apart, and those of 21 d are 1 h apart"):
        usage = read_prometheus(write("timestamp,vision\n" + rows))
    assert usage["y"].tolist() == [6] * len(times)
