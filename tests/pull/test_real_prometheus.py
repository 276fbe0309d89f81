"""Series that public threads tell of, answered by a real Prometheus: its queries, too, are what is tested."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import requests

from gpudemand._validation import InputError, UnlikelyJobsWarning
from gpudemand.pull.prometheus import PrometheusClient, pull_prometheus
from gpudemand.usage.read import pulled_usage

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("prometheus") and shutil.which("promtool")), reason="needs Prometheus"),
]
BEGIN, HOURS = pd.Timestamp("2026-03-01", tz="UTC"), 3


class Series:
    """Samples of kube-state-metrics and exporters, each five minutes for some hours; a case is a cluster of its own."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.cluster = ""

    def add(self, metric: str, value: float, hours: tuple[int, int] = (0, HOURS), **labels: object) -> None:
        pairs = sorted({"cluster": self.cluster, **labels}.items())
        name = metric + "{" + ",".join(f'{key}="{text}"' for key, text in pairs) + "}"
        times = range(hours[0] * 3600, hours[1] * 3600, 300)
        self.lines.setdefault(metric, []).extend(f"{name} {value} {BEGIN.timestamp() + t:.0f}" for t in times)

    def node(self, gpus: int, resource: str = "nvidia_com_gpu", **labels: str) -> None:
        self.add("kube_node_status_allocatable", gpus, node="g1", resource=resource)
        if labels:
            self.add("kube_node_labels", 1, node="g1", **{f"label_{key}": text for key, text in labels.items()})

    def pod(self, name: str, gpus: int, resource: str = "nvidia_com_gpu", namespace: str = "vision") -> None:
        who = {"namespace": namespace, "pod": name, "uid": self.cluster + name}
        self.add("kube_pod_container_resource_requests", gpus, container="m", node="g1", resource=resource, **who)
        for phase in ("Running", "Pending"):
            self.add("kube_pod_status_phase", int(phase == "Running"), phase=phase, **who)

    def card(self, number: int, util: float, pod: str = "", namespace: str = "vision", **labels: str) -> None:
        who = {"exported_namespace": namespace, "exported_pod": pod} if pod else {}
        uuid = f"GPU-{self.cluster}-{number}"
        about = {"Hostname": "g1", "UUID": uuid, "gpu": number, "modelName": "T4", "namespace": "monitoring"}
        self.add("DCGM_FI_DEV_GPU_UTIL", util, **about, **who, **labels)


def two_exporters(series: Series) -> None:
    series.node(4)
    series.pod("v", 4)
    for number in range(4):
        series.card(number, 80, "v", job="a")
        series.card(number, 80, job="b")


def two_scrapes(series: Series) -> None:
    series.node(4)
    series.pod("v", 4)
    for number in range(4):
        for job in ("a", "b"):
            series.card(number, 80, "v", job=job)


def twelve_replicas(series: Series) -> None:
    series.node(12, nvidia_com_gpu_product="T4-SHARED", nvidia_com_gpu_replicas="12", nvidia_com_gpu_count="1")
    for pod in "abcd":
        series.pod(pod, 1)
    series.card(0, 60)


def virtual_gpus(series: Series) -> None:
    series.node(4, nvidia_com_gpu_product="T4-SHARED", nvidia_com_gpu_replicas="4")
    for pod in "abcd":
        series.pod(pod, 1)
        series.card(0, 80, pod, vgpu=pod)


def intel_shared(series: Series) -> None:
    series.node(5, "gpu_intel_com_i915", gpu_intel_com_device_id_0300_46a6_count="1")
    series.pod("v", 2, "gpu_intel_com_i915")


def amd_without_pods(series: Series) -> None:
    series.node(8, "amd_com_gpu")
    series.pod("v", 4, "amd_com_gpu")
    series.add("amd_gpu_use_percent", 70, gpu_use_percent="0", productname="MI300X", instance="g1:2021")


def same_names(series: Series) -> None:
    cluster = series.cluster
    for series.cluster, gpus in ((f"{cluster}-a", 4), (f"{cluster}-b", 1)):
        series.node(8)
        series.pod("foo-0", gpus)


def changing_labels(series: Series) -> None:
    series.node(4)
    series.pod("v", 4)
    for hour in range(HOURS):
        labels = {"label_nvidia_com_gpu_product": "T4", "label_nvidia_com_gfd_timestamp": str(hour)}
        series.add("kube_node_labels", 1, (hour, hour + 1), node="g1", **labels)


def mig_mixed(series: Series) -> None:
    series.node(6, nvidia_com_gpu_product="H100", nvidia_com_gpu_count="8", nvidia_com_gpu_replicas="1")
    series.node(14, "nvidia_com_mig_1g_10gb")
    series.pod("v", 2)
    series.pod("m", 7, "nvidia_com_mig_1g_10gb")


def mig_single(series: Series) -> None:
    series.node(14, nvidia_com_gpu_product="A100-PCIE-40GB-MIG-1g.5gb", nvidia_com_gpu_count="14")
    series.pod("v", 7)


def passed_through(series: Series) -> None:
    series.node(4)
    series.node(2, "nvidia_com_GA102GL_A10")
    series.pod("v", 2)
    series.pod("vm", 1, "nvidia_com_GA102GL_A10", "vms")


def memory_only(series: Series) -> None:
    series.node(4)
    series.node(44, "aliyun_com_gpu_mem")
    series.pod("v", 2)
    series.pod("a", 11, "aliyun_com_gpu_mem", "speech")


def reserved(series: Series) -> None:
    series.node(1)
    series.pod("gpu-reservation-g1", 1, namespace="kai-resource-reservation")
    series.card(0, 60, "gpu-reservation-g1", "kai-resource-reservation")


def custom_slices(series: Series) -> None:
    series.node(6)
    for number, profile in ((3, "2g_20gb"), (1, "1g_10gb"), (1, "4g_40gb"), (1, "3g_40gb")):
        series.node(number, f"nvidia_com_mig_{profile}")
    series.pod("v", 1, "nvidia_com_mig_4g_40gb")


def one_unhealthy(series: Series) -> None:
    series.node(2)
    series.pod("v", 2)
    for number in range(3):
        series.card(number, 50, "v" if number < 2 else "")


def cluster_on_one_metric(series: Series) -> None:
    series.node(8)
    who = {"namespace": "vision", "pod": "v", "uid": "u"}
    about = {"cluster": "a", "container": "m", "node": "g1", "resource": "nvidia_com_gpu"}
    series.add("kube_pod_container_resource_requests", 4, **who, **about)
    series.add("kube_pod_status_phase", 1, phase="Running", **who)


def labels_come_and_go(series: Series) -> None:
    series.node(4)
    series.pod("v", 4)
    for number in range(4):
        series.card(number, 80, "v" if number % 2 else "")


#: Case, right GPUs by measure, and what is said where the series cannot tell them.
CASES: list[tuple[Any, dict[str, float], str]] = [
    (two_exporters, {"held": 4, "measured": 4, "used": 3.2, "installed": 4}, ""),
    (two_scrapes, {"held": 4, "measured": 4, "used": 3.2, "installed": 4}, ""),
    (twelve_replicas, {"held": 1 / 3, "installed": 1}, ""),
    (virtual_gpus, {"held": 1, "measured": 1, "used": 0.8, "installed": 1}, ""),
    (intel_shared, {"held": 2, "installed": 5}, "does not tell whether they are parts of the same cards"),
    (amd_without_pods, {"held": 4, "installed": 8}, ""),
    (same_names, {"held": 5, "installed": 16}, ""),
    (changing_labels, {"held": 4, "installed": 4}, ""),
    (mig_mixed, {"held": 3, "installed": 8}, ""),
    (mig_single, {"held": 1, "installed": 2}, ""),
    (passed_through, {"held": 2, "installed": 4}, "nvidia_com_GA102GL_A10 of nodes did not count"),
    (memory_only, {"held": 2, "installed": 4}, "aliyun_com_gpu_mem of nodes did not count"),
    (reserved, {"held": 1, "measured": 1, "used": 0.6, "installed": 1}, "whose these are is not told"),
    (custom_slices, {"held": 4 / 7, "installed": 6 + 15 / 14 + 1}, ""),
    (cluster_on_one_metric, {"installed": 8}, "none is known to run"),
    (labels_come_and_go, {"held": 4, "measured": 2, "used": 1.6, "installed": 4}, ""),
    (one_unhealthy, {"held": 2, "measured": 2, "used": 1, "installed": 2}, ""),
]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    """Function that serves some series from a Prometheus, and returns its address."""
    running: list[subprocess.Popen[bytes]] = []

    def start(series: Series) -> str:
        parts = [[f"# TYPE {metric} gauge", *lines] for metric, lines in sorted(series.lines.items())]
        (tmp_path / "series").write_text("\n".join([line for part in parts for line in part] + ["# EOF", ""]))
        (tmp_path / "config").write_text("global: {}\n")
        make = ["promtool", "tsdb", "create-blocks-from", "openmetrics", tmp_path / "series", tmp_path / "data"]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            place = f"127.0.0.1:{free.getsockname()[1]}"
        options = [f"--storage.tsdb.path={tmp_path / 'data'}", "--storage.tsdb.retention.time=50y"]
        options += [f"--config.file={tmp_path / 'config'}", f"--web.listen-address={place}", "--log.level=error"]
        running.append(subprocess.Popen(["prometheus", *options]))
        for _ in range(100):
            try:
                if requests.get(f"http://{place}/-/ready", timeout=1).ok:
                    break
            except requests.ConnectionError:
                time.sleep(0.1)
        return f"http://{place}"

    yield start
    for process in running:
        process.terminate()
        process.wait()


@pytest.mark.parametrize(("build", "right", "words"), CASES, ids=[case[0].__name__ for case in CASES])
def test_gpus_are_right_or_something_is_said(serve, tmp_path, build, right, words) -> None:
    series = Series()
    build(series)
    until = BEGIN + pd.Timedelta(hours=HOURS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pull_prometheus(tmp_path / "store", PrometheusClient(serve(series)), since=BEGIN, until=until, step="1h")
    said = [str(each.message) for each in caught if issubclass(each.category, UnlikelyJobsWarning)]
    assert (words in " ".join(said)) if words else not said
    for measure in ("held", "measured", "used", "installed"):
        try:
            found = pulled_usage(tmp_path / "store", measure, None)["y"].mean()
        except InputError:
            found = None
        assert found == (pytest.approx(right[measure]) if measure in right else None), measure
