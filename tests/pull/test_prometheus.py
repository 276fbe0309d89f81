"""Pulls from Prometheus, against recorded answers of a real one: each hour of a week but six."""

from __future__ import annotations

import gzip
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pandas as pd
import pytest
from typer.testing import CliRunner

from gpudemand._validation import InputError, UnlikelyJobsWarning
from gpudemand.cli.app import app
from gpudemand.jobs.plausibility import doubts
from gpudemand.pull import kubernetes, prometheus
from gpudemand.pull.prometheus import PrometheusClient
from gpudemand.store import read_store
from gpudemand.study.settings import Settings
from gpudemand.study.source import SeriesSource
from gpudemand.study.usage_tables import usage_by_gpu_type
from gpudemand.units import usage_by_slice
from gpudemand.usage.idle import idle_table
from gpudemand.usage.read import pulled_usage, read_usage, tells

HERE = Path(__file__).parent / "fixtures"
FIRST, LAST = (pd.Timestamp(day, tz="UTC") for day in ("2026-02-05", "2026-02-12"))
GAP = (pd.Timestamp("2026-02-09 09:00", tz="UTC"), pd.Timestamp("2026-02-09 15:00", tz="UTC"))
NAMES = {
    kubernetes.PODS: "pods",
    kubernetes.ALLOCATABLE: "allocatable",
    kubernetes.CARDS: "cards",
    kubernetes.OTHERS: "others",
    kubernetes.REQUESTED: "requested",
    kubernetes.CLAIMED: "claimed",
    kubernetes.KUEUE: "kueue",
    kubernetes.KUEUE_WORKLOADS: "workloads",
    **{query: name for name, query in (kubernetes.TYPES | kubernetes.UTILIZATIONS).items()},
}
pytestmark = pytest.mark.usefixtures("quick_stores")
RECORDED = json.loads(gzip.decompress((HERE / "prometheus.json.gz").read_bytes()))


class Server(ThreadingHTTPServer):
    """Answers as recorded, after the faults that it is told to have."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults: list[tuple[int, bytes, dict[str, str]] | str] = []
        self.series: dict[str, list] = RECORDED
        self.most = 11_000
        self.asked: list[int] = []
        self.wanted: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """Clients that give up are no news."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.server.faults:
            fault = self.server.faults.pop(0)
            if fault == "drop":
                return self.connection.close()
            return self.answer(*fault)
        if self.server.wanted and self.headers.get("Authorization") != self.server.wanted:
            return self.answer(401, b"Unauthorized", {})
        fields = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        start, end, step = (float(fields[name]) for name in ("start", "end", "step"))
        points = (end - start) // step + 1
        self.server.asked.append(int(points))
        if points > self.server.most:
            return self.error("exceeded maximum resolution of 11,000 points per timeseries.")
        result = []
        for series in self.server.series.get(NAMES[fields["query"]], []):
            values = [v for v in series["values"] if start <= v[0] <= end and (v[0] - start) % step == 0]
            result += [{"metric": series["metric"], "values": values}] if values else []
        return self.answer(200, json.dumps({"status": "success", "data": {"result": result}}).encode(), {})

    def error(self, text: str) -> None:
        self.answer(400, json.dumps({"status": "error", "errorType": "bad_data", "error": text}).encode(), {})

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def client(server: Server, **options) -> PrometheusClient:
    return PrometheusClient(server.url, first_pause_s=0.001, **options)


def pull(server: Server, into: Path, *, until=LAST, since=FIRST, **options):
    return prometheus.pull_prometheus(into, client(server), since=since, until=until, step="1h", **options)


def rows(store: Path) -> pd.DataFrame:
    return read_store(store).read("usage").to_pandas()


def truth(column_begin: str, column_end: str) -> pd.DataFrame:
    """GPUs of the pods of each namespace between two of their times, at every scraped hour."""
    pods = pd.read_csv(HERE / "pods.csv")
    begin, end = (pd.to_datetime(pods[name]) for name in (column_begin, column_end))
    end = end.fillna(pd.to_datetime(pods["deleted"]))
    hours = [t for t in pd.date_range(FIRST, LAST, freq="h", inclusive="left") if not GAP[0] <= t < GAP[1]]
    return pd.DataFrame({t: pods["gpus"][(begin <= t) & (t < end)].groupby(pods["namespace"]).sum() for t in hours})


@pytest.fixture(scope="module")
def week(tmp_path_factory, quick_stores) -> Path:
    """A store that is only read."""
    place = tmp_path_factory.mktemp("week") / "store"
    with serving() as server:
        pull(server, place)
    return place


@pytest.fixture
def store(server, tmp_path) -> Path:
    pull(server, tmp_path / "store")
    return tmp_path / "store"


def wide(usage: pd.DataFrame) -> pd.DataFrame:
    return usage.pivot(index="unique_id", columns="ds", values="y")


@pytest.mark.parametrize(("measure", "begin", "end"), [("held", "start", "end"), ("pending", "created", "start")])
def test_gpus_are_those_of_the_pods(week, measure, begin, end):
    found, expected = wide(pulled_usage(week, measure)), truth(begin, end).fillna(0)
    expected = expected[expected.sum(axis=1) > 0]
    assert (found.to_numpy() == expected.to_numpy()).all()
    assert found.index.tolist() == expected.index.tolist()
    assert found.columns.as_unit("ns").equals(pd.DatetimeIndex(expected.columns).as_unit("ns"))


def test_installed_is_what_the_nodes_have(week):
    installed = wide(pulled_usage(week, "installed", "gpu_type"))
    assert installed.iloc[:, 0].to_dict() == {"NVIDIA A100-SXM4-80GB": 24, "NVIDIA H100 80GB HBM3": 16}
    assert set(pulled_usage(week, "installed", "node")["unique_id"]) == {f"gpu-{name}" for name in "abcde"}


def test_a_gap_is_a_gap(server, tmp_path):
    done = pull(server, tmp_path / "store")
    assert done.gaps == [GAP]
    usage = pulled_usage(tmp_path / "store")
    assert not usage["ds"].between(GAP[0], GAP[1], inclusive="left").any()
    assert usage.attrs["gaps"] == [f"{GAP[0].isoformat()}/{GAP[1].isoformat()}"]
    days = wide(pulled_usage(tmp_path / "store", freq="D", min_share=0.9))
    assert days[GAP[0].normalize()].isna().all()
    assert days.drop(columns=GAP[0].normalize()).notna().all().all()


def test_days_are_means_of_hours(week):
    hours, days = (wide(pulled_usage(week, by="total", freq=freq)) for freq in ("h", "D"))
    first = days.columns[0]
    assert days[first]["total"] == pytest.approx(hours.iloc[0, :24].mean())


@pytest.mark.slow
def test_the_size_of_requests_changes_nothing(server, tmp_path):
    frames = []
    for points in (11_000, 100, 7):
        server.asked.clear()
        pull(server, tmp_path / str(points), points=points)
        assert max(server.asked) <= points
        frames.append(rows(tmp_path / str(points)))
    pd.testing.assert_frame_equal(frames[0], frames[1], check_exact=True)
    pd.testing.assert_frame_equal(frames[0], frames[2], check_exact=True)


@pytest.mark.slow
def test_many_pulls_equal_one(server, week, tmp_path):
    other = tmp_path / "other"
    for hours in (30, 31, 100, 168, 168):
        since = FIRST if not other.exists() else None
        pull(server, other, since=since, until=FIRST + pd.Timedelta(hours=hours))
    pd.testing.assert_frame_equal(rows(other), rows(week), check_exact=True)


def test_a_server_that_allows_fewer_points_is_asked_for_less(server, week, tmp_path):
    server.most = 50
    pull(server, tmp_path / "small")
    pd.testing.assert_frame_equal(rows(tmp_path / "small"), rows(week), check_exact=True)


def test_faults_that_pass_are_waited_for(server, week, tmp_path):
    cut = b'{"status":"success","data":{"result":[{"met'
    server.faults = ["drop", (503, b"", {}), (200, cut, {}), (200, cut, {"Content-Length": "5000"})]
    pull(server, tmp_path / "late")
    assert not server.faults
    pd.testing.assert_frame_equal(rows(tmp_path / "late"), rows(week), check_exact=True)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ((401, b"Unauthorized", {}), r"refuses the credentials \(401 Unauthorized\)"),
        ((404, b"not found", {}), r"no Prometheus at .*before /api/v1"),
        ((200, b"<html>log in</html>", {}), r"not Prometheus' JSON"),
        ((200, b'{"data": {"result": [{"metric": 1}]}}', {}), r"not that of a range query"),
        ((400, b'{"status":"error","error":"1:9: parse error: unclosed"}', {}), r"refuses the query .*parse error"),
    ],
)
def test_faults_that_stay_are_one_sentence(server, tmp_path, fault, message):
    server.faults = [fault]
    with pytest.raises(InputError, match=message) as caught:
        pull(server, tmp_path / "store")
    assert "\n" not in str(caught.value)


def test_retries_end(server, tmp_path):
    server.faults = [(503, b"", {})] * 9
    with pytest.raises(InputError, match=r"not ready \(503 Service Unavailable\), 5 times in a row"):
        pull(server, tmp_path / "store")
    assert len(server.faults) == 4


def test_nobody_there(tmp_path):
    nobody = PrometheusClient("http://127.0.0.1:9", first_pause_s=0.001)
    with pytest.raises(InputError, match=r"http://127\.0\.0\.1:9 cannot be reached \(Connection refused\)"):
        prometheus.pull_prometheus(tmp_path / "store", nobody)


@pytest.mark.parametrize(
    ("said", "message", "times"),
    [
        ("Name or service not known", "there is no host 'promtheus' (of http://promtheus:9090); correct", 1),
        ("Temporary failure in name resolution", "(Temporary failure in name resolution), 5 times in a row", 5),
    ],
)
def test_an_unknown_host_is_said_at_once(monkeypatch, said, message, times):
    asked = []

    def resolve(*arguments, **_):
        asked.append(arguments)
        raise socket.gaierror(-2, said)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    client = PrometheusClient("http://promtheus:9090", first_pause_s=0)
    with pytest.raises(InputError) as caught:
        client.samples("up", pd.DatetimeIndex([FIRST]))
    assert message in str(caught.value)
    assert len(asked) == times


@pytest.mark.parametrize(
    ("hours", "age", "refused"), [(2, None, True), (-2, None, True), (-2, "7200", False), (0, None, False)]
)
def test_a_clock_that_is_off_is_said(server, monkeypatch, hours, age, refused):
    class Clock(Handler):
        def date_time_string(self, timestamp=None):
            return super().date_time_string(time.time() + 3600 * hours)

        def end_headers(self):
            if age:
                self.send_header("Age", age)
            super().end_headers()

    server.RequestHandlerClass = Clock
    client, times = PrometheusClient(server.url), pd.DatetimeIndex([FIRST])
    if not refused:
        client.samples(kubernetes.ALLOCATABLE, times)
        return
    with pytest.raises(InputError, match=r"the clock of this machine says .* set the one that is off"):
        client.samples(kubernetes.ALLOCATABLE, times)


def test_a_server_that_hangs(server, tmp_path):
    class Slow(Handler):
        def do_GET(self) -> None:
            threading.Event().wait(0.5)

    server.RequestHandlerClass = Slow
    slow = client(server, timeout_s=0.05)
    with pytest.raises(InputError, match=r"did not answer within 0\.05 s"):
        slow.samples("up", pd.DatetimeIndex([FIRST]))


@pytest.mark.parametrize(
    ("options", "environment", "wanted"),
    [
        (["--user", "lab"], {"PROMETHEUS_PASSWORD": "päss"}, "Basic bGFiOnDDpHNz"),
        ([], {"PROMETHEUS_TOKEN": "no-hex-word"}, "Bearer no-hex-word"),
        ([], {"PROMETHEUS_TOKEN": " no-hex-word\r\n"}, "Bearer no-hex-word"),
        (["--user", "lab"], {"PROMETHEUS_PASSWORD": "päss\n"}, "Basic bGFiOnDDpHNz"),
    ],
)
def test_credentials(server, tmp_path, options, environment, wanted):
    server.wanted = wanted
    words = ["--since", str(FIRST), "--until", str(LAST), "--step", "1h", "--quiet"]
    place = ["pull", "prometheus", "--into", str(tmp_path / "store"), "--url", server.url]
    result = CliRunner().invoke(app, [*place, *words, *options], env=environment)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[1] == "nothing was scraped: 2026-02-09 09:00 to 2026-02-09 15:00"
    refused = CliRunner().invoke(app, [*place, *words])
    assert refused.exit_code == 2
    assert "401" in refused.stderr
    for text in environment.values():
        assert not any(text.encode() in file.read_bytes() for file in (tmp_path / "store").rglob("*.json"))


def test_idle_gpus_have_no_namespace(week):
    assert set(pulled_usage(week, "measured")["unique_id"]) == {"notebooks", "research", "speech", "vision"}


def test_idle_hours(week):
    table = idle_table(week, by="namespace").set_index("unique_id")
    assert table.loc["notebooks", "utilization"] < 0.1
    assert table.loc["serving", ["measured", "under_5"]].tolist() == [0, 0]
    held = pulled_usage(week)
    assert table["gpu_hours"].sum() == held["y"].sum()
    assert (table["under_5"] <= table["under_20"]).all()
    assert (table["under_50"] <= table["measured"]).all()
    by_type = idle_table(week, by="gpu_type").set_index("unique_id")["under_50"]
    prices = {str(name): 1.0 + place for place, name in enumerate(by_type.index)}
    assert len(prices) > 1
    costs = idle_table(week, by="namespace", price=prices)["cost_under_50"]
    assert costs.sum() == pytest.approx((by_type * pd.Series(prices)).sum())


def parts_of_gpus(resource: str, units: int, cards: int, replicas: str) -> dict[str, list]:
    def series(value, **labels):
        return {"metric": labels, "values": [[FIRST.timestamp() + 3600 * k, str(value)] for k in range(3)]}

    place = {"node": "n1", "resource": resource}
    return {name: [] for name in NAMES.values()} | {
        "allocatable": [series(units, **place)],
        "pods": [
            series(2, namespace="a", phase="Running", **place),
            series(1, namespace="a", phase="Pending", **place),
        ],
        "modelName": [series(cards, Hostname="n1", modelName="A100")],
        "label_nvidia_com_gpu_product": [
            series(1, node="n1", label_nvidia_com_gpu_product="A100", label_nvidia_com_gpu_replicas=replicas)
        ],
    }


@pytest.mark.parametrize(
    ("resource", "units", "cards", "replicas", "held", "installed", "kind"),
    [
        ("nvidia_com_mig_3g_40gb", 4, 2, "", 1.0, 2.0, "3g.40gb"),
        ("nvidia_com_gpu_shared", 8, 2, "", 0.5, 2.0, "A100"),
        ("nvidia_com_gpu_shared", 8, 1, "4", 0.5, 2.0, "A100"),
        ("nvidia_com_gpu", 8, 1, "4", 0.5, 2.0, "A100"),
        ("nvidia_com_gpu", 8, 8, "1", 2.0, 8.0, "A100"),
        ("nvidia_com_gpu", 8, 6, "", 2.0, 8.0, "A100"),
        ("nvidia_com_gpu", 7, 8, "", 2.0, 7.0, "A100"),
        ("nvidia_com_gpu", 32, 8, "", 0.5, 8.0, "A100"),  # HAMi, four virtual GPUs a card
    ],
)
def test_parts_of_gpus_are_shares(server, tmp_path, resource, units, cards, replicas, held, installed, kind):
    server.series = parts_of_gpus(resource, units, cards, replicas)
    pull(server, tmp_path / "store", until=FIRST + pd.Timedelta("3h"))
    found = {measure: pulled_usage(tmp_path / "store", measure, "gpu_type") for measure in ("held", "installed")}
    assert found["held"]["y"].eq(held).all()
    assert tells(tmp_path / "store", "shared") == (held == 0.5)
    assert found["installed"]["y"].eq(installed).all()
    assert set(found["held"]["unique_id"]) == {kind}


def test_a_node_of_two_models_is_not_sliced(server, tmp_path):
    server.series = parts_of_gpus("nvidia_com_gpu", 8, 4, "")
    (cards,) = server.series["modelName"]
    server.series["modelName"].append({**cards, "metric": {"Hostname": "n1", "modelName": "V100"}})
    pull(server, tmp_path / "store", until=FIRST + pd.Timedelta("3h"))
    assert pulled_usage(tmp_path / "store", "installed")["y"].eq(8.0).all()


def test_time_sliced_gpus_are_apart_by_kind(server, tmp_path):
    """Two of eight quarters of two cards, beside three whole ones of the same type in the same namespace."""
    server.series = parts_of_gpus("nvidia_com_gpu_shared", 8, 2, "4")
    whole = parts_of_gpus("nvidia_com_gpu", 8, 8, "")
    for name in ("allocatable", "pods"):
        for series in whole[name]:
            series["metric"]["node"] = "n2"
            if series["metric"].get("phase") == "Running":
                series["values"] = [[at, "3"] for at, _ in series["values"]]
        server.series[name] += whole[name]
    server.series["modelName"] += [{**whole["modelName"][0], "metric": {"Hostname": "n2", "modelName": "A100"}}]
    pull(server, tmp_path / "store", until=FIRST + pd.Timedelta("3h"))
    source = SeriesSource.of(pulled_usage(tmp_path / "store", by="namespace/gpu_type"), Settings(by="namespace"))
    assert source.gpu_hours("gpu_type").to_dict() == {"A100": 3 * 3.5}
    table = usage_by_slice(usage_by_gpu_type(source.with_fractions_apart()))
    assert table[["kind", "gpu_type", "gpu_hours", "gpus_peak"]].values.tolist() == [["fraction", "A100", 1.5, 0.5]]
    assert source.with_fractions_apart().gpu_hours("gpu_type").to_dict() == {"A100": 9.0, "A100 (fraction)": 1.5}


def test_read_usage_reads_a_store(week):
    pd.testing.assert_frame_equal(read_usage(week), pulled_usage(week))


def test_a_cluster_without_pods_has_its_nodes(server, tmp_path):
    server.series = {**RECORDED, "pods": []}
    done = pull(server, tmp_path / "store")
    assert done.samples
    assert set(rows(tmp_path / "store")["measure"]) == {"installed"}
    with pytest.raises(InputError, match="holds no 'held' GPUs"):
        pulled_usage(tmp_path / "store")


def test_without_nodes_nothing_is_stored(server, tmp_path):
    server.series = {**RECORDED, "allocatable": []}
    with pytest.raises(InputError, match="kube_node_status_allocatable"):
        pull(server, tmp_path / "store")
    assert not read_store(tmp_path / "store").about["pulls"]


@pytest.mark.parametrize(
    ("resource", "counts"),
    [
        ("nvidia_com_gpu", True),
        ("nvidia_com_gpu_shared", True),
        ("nvidia_com_mig_1g_5gb", True),
        ("amd_com_gpu", True),
        ("nvidia_com_gpumem", False),
        ("nvidia_com_gpucores", False),
        ("nvidia_com_gpumem_percentage", False),
    ],
)
def test_memory_and_cores_are_no_gpus(resource, counts):
    pattern = re.search('=~"(.+?)"', kubernetes._GPUS)[1]
    assert bool(re.fullmatch(pattern, resource)) == counts


def test_another_address_is_refused_unless_it_takes_the_place(server, store):
    before = rows(store)
    elsewhere = PrometheusClient(server.url.replace("127.0.0.1", "localhost"), first_pause_s=0.001)
    for name, series in RECORDED.items():
        half = [{**each, "values": each["values"][::2]} for each in series]
        server.series = {**server.series, name: half if name == "pods" else series}
    with pytest.raises(InputError, match=r"holds samples of http://127.* may be another cluster; .* --replace"):
        prometheus.pull_prometheus(store, elsewhere, since=FIRST, until=LAST, step="1h")
    pd.testing.assert_frame_equal(rows(store), before)
    prometheus.pull_prometheus(store, elsewhere, since=FIRST, until=LAST, step="1h", replace=True)
    assert 0 < rows(store)["measure"].eq("held").sum() < before["measure"].eq("held").sum()


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([-5, 2], "below zero"),
        ([1e300, 2], "more than 1,000,000"),
        (["1_000", 2], "no finite number"),
        (["NaN", 2], "no finite number"),
    ],
)
def test_samples_that_cannot_be_are_refused_and_counted(server, tmp_path, values, reason):
    server.series = parts_of_gpus("nvidia_com_gpu", 8, 8, "")
    server.series["pods"] = server.series["pods"][:1]
    server.series["pods"][0]["values"] = [[FIRST.timestamp() + 3600 * k, str(y)] for k, y in enumerate(values)]
    done = pull(server, tmp_path / "store", until=FIRST + pd.Timedelta("3h"))
    assert done.refused == {reason: 1}
    assert rows(tmp_path / "store").query("measure == 'held'")["y"].tolist() == [2.0]


def test_a_series_that_is_sent_twice_counts_once_and_times_that_nobody_asked_for_do_not():
    times = pd.date_range(FIRST, periods=2, freq="h")
    one = pd.DataFrame({"node": "n1", "ds": [*times, times[0] + pd.Timedelta("7s")], "y": 4.0})
    refused = Counter()
    found = prometheus.plausible(pd.concat([one, one], ignore_index=True), times, refused)
    assert found["y"].tolist() == [4.0, 4.0]
    assert refused == {"sent twice": 2, "at a time that was not asked for": 2}


def test_an_answer_that_drips_or_never_ends_is_given_up(server, monkeypatch):
    class Dripping(Handler):
        def do_GET(self) -> None:
            try:
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                for number in range(100):
                    self.wfile.write(f"X-{number}: 1\r\n".encode())
                    threading.Event().wait(0.05)
            except OSError:
                return

    server.RequestHandlerClass = Dripping
    begin = time.monotonic()
    with pytest.raises(InputError, match=r"did not answer within 0\.3 s"):
        client(server, timeout_s=0.3).samples("up", pd.date_range(FIRST, LAST, freq="h"))
    assert time.monotonic() - begin < 5
    server.RequestHandlerClass = Handler
    monkeypatch.setattr(prometheus, "MAX_BYTES", 10)
    with pytest.raises(InputError, match=r"is longer than 0 MiB"):
        client(server).samples(kubernetes.PODS, pd.date_range(FIRST, LAST, freq="h"))


def test_a_server_that_sends_on_is_not_followed(server, tmp_path):
    server.faults = [(302, b"", {"Location": "http://127.0.0.1:9/api/v1/query_range?query=secret"})]
    with pytest.raises(InputError, match=r"sends on to 'http://127\.0\.0\.1:9/api/v1/query_range'; give that address"):
        pull(server, tmp_path / "store")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--token", "hunter\n2"], "the token holds a blank or another character"),
        (["--token", "Bearer hunter2"], "the token holds a blank or another character"),
        (["--token", "hunter2\N{EURO SIGN}"], "the token holds a blank or another character"),
        (["--token", "hunter2\udcff"], "the token holds a blank or another character"),
        (["--url", "ada:hunter2@prometheus:9090"], "--url 'prometheus:9090' is no address"),
        (["--url", "https://ada:hunter2\N{ACCOUNT OF}@prometheus"], "--url 'prometheus' is no address"),
        (["--url", "https://ada:hunter2@[::1"], "--url '[::1' is no address"),
        (["--timeout", "-3"], "--timeout must be a number above 0 and at most 86400; got -3.0."),
        (["--timeout", "nan"], "--timeout must be a number above 0"),
        (["--timeout", "1e300"], "--timeout must be a number above 0"),
    ],
)
def test_what_cannot_be_sent_is_said_without_secrets(tmp_path, options, message):
    place = ["pull", "prometheus", "--into", str(tmp_path / "store"), "--url", "http://127.0.0.1:9", "--quiet"]
    result = CliRunner().invoke(app, [*place, *options])
    assert result.exit_code == 2
    assert message in result.stderr
    assert "hunter" not in result.output


@pytest.mark.parametrize(("token", "wanted"), [("no-hex-word", "Bearer no-hex-word"), (None, None)])
def test_credentials_of_a_netrc_are_not_sent(server, tmp_path, monkeypatch, token, wanted):
    (tmp_path / "netrc").write_text("default login ada password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    sent = []

    class Listening(Handler):
        def do_GET(self) -> None:
            sent.append(self.headers.get("Authorization"))
            super().do_GET()

    server.RequestHandlerClass = Listening
    client(server, token=token).samples(kubernetes.PODS, pd.DatetimeIndex([FIRST]))
    assert sent == [wanted]


def test_a_partial_answer_lowers_nothing(server, tmp_path):
    pull(server, tmp_path)
    before = read_store(tmp_path).read("usage")
    half = {"status": "success", "isPartial": True, "data": {"result": [{"metric": {}, "values": []}]}}
    server.faults = [(200, json.dumps(half).encode(), {})] * 5
    with pytest.raises(InputError, match="a part of what it stores only, 5 times in a row"):
        pull(server, tmp_path)
    assert read_store(tmp_path).read("usage").equals(before)


def warning(said: str, name: str = "label_nvidia_com_gpu_product") -> tuple[int, bytes, dict[str, str]]:
    content = {"status": "success", "warnings": [said], "data": {"result": RECORDED.get(name, [])}}
    return 200, json.dumps(content).encode(), {}


@pytest.mark.parametrize(
    "said",
    [
        "remote_read: error sending request: Post http://store: connect: connection refused",
        "receive series from Addr: store:10901: rpc error: code = Unavailable",
        "PromQL warning: results truncated, store unreachable",
        "max_fetch_series_limit_applied",
    ],
)
def test_answers_that_lack_something_are_not_stored(server, tmp_path, said):
    pull(server, tmp_path)
    before = read_store(tmp_path).read("usage")
    server.faults = [warning(said)] * 5
    with pytest.raises(InputError, match=r"warns that its answer lacks something \(.*\), 5 times in a row; try again"):
        pull(server, tmp_path)
    assert read_store(tmp_path).read("usage").equals(before)
    server.faults = [warning(said)]
    assert pull(server, tmp_path).samples


@pytest.mark.parametrize("said", ["PromQL info: metric might not be a counter, limit", "metric might not be a counter"])
def test_warnings_that_change_no_number_are_nothing(server, said):
    own = client(server)
    server.faults = [warning(said)]
    own.samples(kubernetes.PODS, pd.DatetimeIndex([FIRST]))
    assert not own.warned


def test_other_warnings_are_said_and_stay_with_the_store(server, tmp_path):
    server.faults = [warning("No StoreAPIs matched for this query.")]
    with pytest.warns(UnlikelyJobsWarning, match="Prometheus warned of an answer: No StoreAPIs matched"):
        pull(server, tmp_path)
    pull(server, tmp_path)
    assert doubts(pulled_usage(tmp_path).attrs) == [
        "Prometheus warned of an answer: No StoreAPIs matched for this query."
    ]


@pytest.mark.parametrize(("label", "query"), [("node", kubernetes.ALLOCATABLE), ("namespace", kubernetes.PODS)])
def test_renamed_nodes_and_namespaces_do_not_count_twice(server, tmp_path, label, query):
    pull(server, tmp_path)
    before = read_store(tmp_path).read("usage")
    name = NAMES[query]
    renamed = [{**each, "metric": each["metric"] | {label: f"new-{each['metric'][label]}"}} for each in RECORDED[name]]
    server.series = RECORDED | {name: renamed}
    with pytest.raises(InputError, match=f"has {label}s like 'new-.*--replace"):
        pull(server, tmp_path)
    assert read_store(tmp_path).read("usage").equals(before)
    pull(server, tmp_path, replace=True)
    found = read_store(tmp_path).read("usage").to_pandas()
    measures = found.groupby("measure")["y"].sum()
    assert measures[["installed", "held"]].equals(
        before.to_pandas().groupby("measure")["y"].sum()[["installed", "held"]]
    )


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_credentials_are_not_given_to_a_proxy_of_the_environment(server, monkeypatch, name):
    monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("NO_PROXY", "trusted.internal")
    for credentials in ({"token": "secret"}, {"user": "ada", "password": "secret"}):
        with pytest.raises(InputError, match=r"could read the credentials .* or add prometheus.internal"):
            PrometheusClient("http://prometheus.internal:9090", **credentials)
        PrometheusClient("http://trusted.internal:9090", **credentials)
        PrometheusClient("https://prometheus.internal:9090", **credentials)
    found = PrometheusClient("http://prometheus.internal:9090").samples(kubernetes.PODS, pd.DatetimeIndex([FIRST]))
    assert len(found)  # without credentials the proxy is asked


def one(value, **labels):
    return {"metric": labels, "values": [[FIRST.timestamp() + 3600 * k, str(value)] for k in range(3)]}


def pulled(server, tmp_path, measure, by="namespace"):
    return pulled_usage(tmp_path / "store", measure, by).groupby("unique_id")["y"].mean().round(6).to_dict()


@pytest.mark.slow
def test_an_exporter_that_shows_a_part_of_the_cards_is_no_time_slicing(server, tmp_path):
    server.series = parts_of_gpus("nvidia_com_gpu", 8, 2, "")
    with pytest.warns(UnlikelyJobsWarning, match="node n1 has 8 GPUs to give, and the DCGM exporter shows 2"):
        pull(server, tmp_path / "store", until=FIRST + pd.Timedelta("3h"))
    assert pulled(server, tmp_path, "held") == {"a": 2}
    assert pulled(server, tmp_path, "installed", "gpu_type") == {"A100": 8}
    for _ in range(2):
        source = SeriesSource.of(pulled_usage(tmp_path / "store"), Settings(by="namespace"))
        assert "does not show all" in source.unlikely()[0]
        # What was pulled before stays doubtful.
        server.series = parts_of_gpus("nvidia_com_gpu", 8, 8, "")
        pull(server, tmp_path / "store", since=FIRST + pd.Timedelta("1h"), until=FIRST + pd.Timedelta("3h"))


def test_gpus_held_by_claims_count(server, tmp_path):
    server.series = parts_of_gpus("nvidia_com_gpu", 8, 8, "")
    server.series["modelName"].append(one(4, Hostname="n2", modelName="H100"))
    server.series["cards"] = [one(8, Hostname="n1", modelName="A100"), one(4, Hostname="n2", modelName="H100")]
    who = {"exported_namespace": "b", "namespace": "monitoring", "modelName": "H100"}
    server.series["claimed"] = [one(4, Hostname="n2", **who)]
    server.series["measured"] = [one(4, **who), one(2, **{**who, "exported_namespace": ""})]
    with pytest.warns(UnlikelyJobsWarning, match="pods of b use GPUs that they do not request"):
        pull(server, tmp_path / "store", until=FIRST + pd.Timedelta("3h"))
    assert pulled(server, tmp_path, "held") == {"a": 2, "b": 4}
    assert pulled(server, tmp_path, "measured") == {"b": 4}
    assert pulled(server, tmp_path, "installed", "gpu_type") == {"A100": 8, "H100": 4}


def test_slices_are_measured_as_shares(server, tmp_path):
    server.series = parts_of_gpus("nvidia_com_mig_1g_10gb", 7, 1, "")
    who = {"exported_namespace": "a", "modelName": "A100", "GPU_I_PROFILE": "1g.10gb"}
    server.series["measured"], server.series["used"] = [one(7, **who)], [one(6.3, **who)]
    pull(server, tmp_path / "store", until=FIRST + pd.Timedelta("3h"))
    assert pulled(server, tmp_path, "measured", "gpu_type") == {"1g.10gb": 1}
    assert pulled(server, tmp_path, "used") == {"a": 0.9}
    # Nothing is used so little: no reason to refuse.
    assert pulled(server, tmp_path, "under_5") == {"a": 0}
    assert idle_table(tmp_path / "store", by="namespace")["under_50"].tolist() == [0]


@pytest.mark.parametrize(
    ("labels", "share"),
    [
        ({"label_cloud_google_com_gke_max_shared_clients_per_gpu": "4"}, 1 / 4),
        ({"label_cloud_google_com_gke_gpu_partition_size": "1g.5gb"}, 1 / 7),
    ],
)
def test_sharing_as_gke_labels_it(server, tmp_path, labels, share):
    server.series = parts_of_gpus("nvidia_com_gpu", 4, 1, "")
    server.series["modelName"] = []
    labels["label_cloud_google_com_gke_accelerator"] = "nvidia-l4"
    server.series["label_nvidia_com_gpu_product"] = [one(1, node="n1", **labels)]
    pull(server, tmp_path / "store", until=FIRST + pd.Timedelta("3h"))
    assert pulled(server, tmp_path, "held", "gpu_type") == {"nvidia-l4": pytest.approx(2 * share, abs=1e-6)}


def test_what_waits_in_kueue_is_wanted_or_said(server, tmp_path):
    server.series = parts_of_gpus("nvidia_com_gpu", 8, 8, "")
    server.series["workloads"] = [one(2, cluster_queue="cq")]
    with pytest.warns(UnlikelyJobsWarning, match="workloads wait in Kueue, and how many GPUs they want is not known"):
        pull(server, tmp_path / "store", until=FIRST + pd.Timedelta("3h"))
    server.series["kueue"] = [one(16, cluster_queue="cq", resource="nvidia.com/gpu")]
    pull(server, tmp_path / "store", until=FIRST + pd.Timedelta("3h"))
    assert pulled(server, tmp_path, "wanted", "total") == {"total": 2 + 1 + 16}


def test_nodes_of_one_name_in_two_clusters_are_two(server, tmp_path):
    server.series = parts_of_gpus("nvidia_com_gpu", 8, 8, "")
    for name in ("allocatable", "pods", "modelName"):
        found = [(s, s["metric"], c) for s in server.series[name] for c in ("x", "y")]
        if name == "allocatable":  # the query itself joins both names
            server.series[name] = [{**s, "metric": {**m, "node": f"{c}/{m['node']}"}} for s, m, c in found]
        else:
            server.series[name] = [{**s, "metric": {**m, "cluster": c}} for s, m, c in found]
    pull(server, tmp_path / "store", until=FIRST + pd.Timedelta("3h"))
    assert pulled(server, tmp_path, "installed", "node") == {"x%2Fn1": 8, "y%2Fn1": 8}
    assert pulled(server, tmp_path, "held") == {"a": 4}
