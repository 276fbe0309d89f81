import dataclasses
import hashlib
import threading
import time
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pooch
import pytest

from gpudemand._validation import InputError, RejectedRowsWarning
from gpudemand.datasets import registry as module
from gpudemand.datasets.registry import remote_file

BODY = b"time,active,total\n" + b"2017-10-03 00:00:00,312,420\n" * 500


class Upstream(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        if self.path == "/silent":
            time.sleep(3)
        if self.path == "/missing":
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        return self.wfile.write(BODY[: len(BODY) // 2] if self.path == "/cut" else BODY)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as upstream:
        upstream.requests = []
        thread = threading.Thread(target=upstream.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield upstream
        upstream.shutdown()
        thread.join()


@pytest.fixture
def offer(server, tmp_path, monkeypatch):
    """Replace a registry row by one with the address of the local server."""
    monkeypatch.setenv("GPUDEMAND_DATA", str(tmp_path / "cache"))
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)

    def offer(path="/file.csv", body=BODY, name="philly_nodes"):
        row = dataclasses.replace(
            remote_file(name),
            url=f"http://127.0.0.1:{server.server_port}{path}",
            sha256=hashlib.sha256(body).hexdigest(),
        )
        monkeypatch.setattr(module, "remote_file", lambda _: row)
        return tmp_path / "cache" / row.file_name

    return offer


def files_in(folder):
    return sorted(path.name for path in folder.rglob("*")) if folder.exists() else []


def test_a_cached_file_needs_no_server(offer, server):
    target = offer()
    assert module.fetch_file("philly_nodes") == target
    assert target.read_bytes() == BODY
    server.shutdown()
    assert module.fetch_file("philly_nodes") == target
    assert server.requests == ["/file.csv"]


def test_a_file_placed_by_hand_is_used(offer, server):
    target = offer()
    target.parent.mkdir()
    target.write_bytes(BODY)
    assert module.fetch_file("philly_nodes") == target
    assert server.requests == []


def test_a_damaged_file_is_downloaded_again(offer):
    target = offer()
    target.parent.mkdir()
    target.write_bytes(BODY[:100])
    module.fetch_file("philly_nodes")
    assert target.read_bytes() == BODY


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("/file.csv", b"something else", "wrong checksum"),
        ("/cut", BODY, "could not be downloaded|wrong checksum"),
        ("/missing", BODY, "could not be downloaded"),
    ],
)
def test_a_failed_download_names_the_remedy_and_leaves_no_file(offer, path, body, why):
    target = offer(path, body)
    with pytest.raises(InputError, match=why) as caught:
        module.fetch_file("philly_nodes")
    assert f"by hand and put it at {target}" in str(caught.value)
    assert files_in(target.parent) == []


def test_a_server_that_says_nothing_is_left(offer, monkeypatch):
    target = offer("/silent")
    monkeypatch.setattr(module, "TIMEOUT_S", (1, 0.2))
    begin = time.monotonic()
    with pytest.raises(InputError, match=r"could not be downloaded \(ReadTimeout"):
        module.fetch_file("philly_nodes")
    assert time.monotonic() - begin < 2
    assert files_in(target.parent) == []


def test_without_a_network_is_an_error(offer, server):
    target = offer()
    server.shutdown()
    server.server_close()
    with pytest.raises(InputError, match="could not be downloaded"):
        module.fetch_file("philly_nodes")
    assert files_in(target.parent) == []


def test_an_unwritable_folder_is_an_error(offer, monkeypatch, tmp_path):
    offer()
    (tmp_path / "plain").write_text("a file, no folder")
    monkeypatch.setenv("GPUDEMAND_DATA", str(tmp_path / "plain" / "cache"))
    with pytest.raises(InputError, match="could not be written"):
        module.fetch_file("philly_nodes")


def test_the_licence_is_logged_once(offer, monkeypatch):
    offer()
    module._log_licence.cache_clear()
    logged = []
    monkeypatch.setattr(pooch.get_logger(), "info", lambda text, *values: logged.append(text % values))
    module.fetch_file("philly_nodes")
    module.fetch_file("philly_nodes")
    licences = [text for text in logged if "Licence" in text]
    assert len(licences) == 1
    assert "CC BY 4.0" in licences[0]
    assert "Jeon" in licences[0]


def test_a_series_is_no_job_log():
    with pytest.raises(InputError, match="no job log"):
        module.fetch_jobs("cdnow")


def test_an_unknown_name_is_an_error():
    with pytest.raises(InputError, match="Did you mean 'philly_jobs'"):
        module.fetch_file("phily_jobs")


@pytest.fixture
def at_hand(monkeypatch, shared_data):
    """Let `fetch_file` return a file of the shared folder, which has compressed or truncated copies."""

    def at_hand(path):
        monkeypatch.setattr(module, "fetch_file", lambda _: shared_data / path)

    return at_hand


@pytest.mark.parametrize(
    ("name", "path", "n_jobs", "first"),
    [
        ("philly_jobs", "traces/philly-jobs-pollux/philly.csv.gz", 82_247, "2017-09-04"),
        ("philly_users", "traces/dirlab-gen-parallel/philly_data_training.csv.gz", 15_000, "2017-08-07"),
        ("venus_users", "traces/dirlab-gen-parallel/helios_data_training.csv.gz", 15_000, "2020-05-27"),
        ("venus_jobs", "traces/helios-venus-gpu-jobs/helios_trace.csv.gz", 99_707, "2020-03-18"),
        ("pai_jobs", "traces/alibaba-pai-v2020-sample/alibaba_trace_sub.csv.gz", 60_105, None),
        ("openb_pods", "traces/alibaba-gpu-v2023/openb_pod_list_default.csv.gz", 8_152, "2023-01-02"),
    ],
)
def test_job_logs_become_canonical_tables(at_hand, name, path, n_jobs, first):
    at_hand(path)
    jobs = module.fetch_jobs(name)
    assert len(jobs) == n_jobs
    assert jobs.attrs["kind"] == "public trace"
    assert first is None or str(jobs["submit"].min().date()) == first


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("dlrm_services", "traces/alibaba-dlrm-v2025/disaggregated_DLRM_trace.csv.gz"),
        ("genai_requests", "traces/alibaba-genai-v2026/lora_request_trace.csv.gz"),
        ("kth_sp2", "traces/swf-kth-sp2/KTH-SP2-1996-2.swf.gz"),
    ],
)
def test_other_logs_are_readable(at_hand, name, path):
    at_hand(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RejectedRowsWarning)
        jobs = module.fetch_jobs(name)
    assert (jobs["gpus"] > 0).any()
