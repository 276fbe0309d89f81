"""Everything of the package that writes, each with an older and a new result; see `tests.test_kills`."""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import gpudemand as gd
from gpudemand import CostModel
from gpudemand._tables import write_table
from gpudemand.bulk import RESULTS, Run, split_log
from gpudemand.cli.app import app
from gpudemand.datasets import registry as fetch
from gpudemand.datasets import save_device
from gpudemand.datasets.devices import Device
from gpudemand.datasets.registry import remote_file
from gpudemand.forecast import SeasonalNaive
from gpudemand.jobs import write_jobs
from gpudemand.report import build
from gpudemand.report.figures import Drawing
from gpudemand.report.history import FORMAT, MADE_BY
from gpudemand.report.metrics import write_metrics
from gpudemand.store import arrow_table, open_store, read_store
from gpudemand.study.plan_file import write_plan
from tests.faults import restore
from tests.report.conftest import make_log


@dataclass(frozen=True)
class Writer:
    """A function or a command that writes.

    Attributes
    ----------
    out : str
        What it writes, in a folder of its own.
    write : callable
        From the path of `out` and a version to the result of that version.
    read : callable
        From the bytes of all files of `out` by name to what counts of them.
    situations : tuple of str
        Whether there is ``"nothing"`` in its place, or an ``"older"`` result.
    grows : bool
        Whether results on the way from the older to the new one are whole as well, each with more in it.
    """

    out: str
    write: Callable[[Path, int], object]
    read: Callable[[dict[str, bytes]], Any] = dict
    situations: tuple[str, ...] = ("nothing", "older")
    grows: bool = False

    def result(self, files: dict[str, bytes]) -> Any:
        """What counts, None if there is nothing."""
        own = {name: data for name, data in files.items() if name == self.out or name.startswith(f"{self.out}/")}
        return self.read(own) if own else None


@cache
def log(version: int) -> pd.DataFrame:
    """Few jobs; a CSV file of jobs refuses names with line breaks."""
    jobs = make_log(days=5, per_day=3, seed=version)
    return jobs.assign(user=jobs["user"].str.replace("\n", " "))


def run(*arguments: object) -> None:
    """Run a command."""
    result = CliRunner().invoke(app, [*map(str, arguments), "--debug"])
    if result.exception is not None:
        raise result.exception


def log_file(place: Path, version: int) -> Path:
    """A job log beside the folder of what is written."""
    source = place.parent.parent / f"log{version}.parquet"
    if not source.exists():
        write_jobs(log(version), source)
    return source


def run_on_log(name: str, place: Path, version: int) -> None:
    """Run a command on a job log."""
    run(name, log_file(place, version), "--format", "canonical", "--out", place, "--quiet")


def split(place: Path, version: int) -> None:
    """Split a job log by users."""
    split_log(log_file(place, version), place, "user", "D", "gpus", until=None, tz=None, group=5)


def forecast_in_chunks(place: Path, version: int) -> None:
    """Forecast the users of a job log, some at a time."""
    options = {"horizon": 1, "forecaster": gd.Naive(), "n_segments": 2, "series_per_chunk": 5}
    gd.bulk_forecast(log_file(place, version), place, **options)


def chunks(files: dict[str, bytes]) -> set[Any]:
    """Forecasts of the chunks."""
    return {(name, data) for name, data in files.items() if name.split("/")[-2] == RESULTS}


def save_own_device(place: Path, version: int) -> None:
    """Save a device where the environment says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUDEMAND_DEVICES", str(place.parent))
        save_device(Device("Mine", memory_gib=64.0 + version, bandwidth_gb_s=2000, fp32_tflops=30))


@cache
def small_model() -> CostModel:
    """The bundled predictor of memory and step time on CPUs."""
    model = CostModel.load()
    for data in (model.models_, model.fitted_on_):
        for key in [key for key in data if "gpu" in key]:
            del data[key]
    return model


def save_model(place: Path, version: int) -> None:
    """Save a predictor."""
    small_model().random_state = version
    small_model().save(place)


def write_small_report(place: Path, version: int) -> None:
    """Write a report of made-up tables, figures and numbers; a month after the other one, which it keeps."""
    log_end = f"2026-0{1 + version}-03T00:00:00+00:00"
    tables = {name: pd.DataFrame({"y": [version]}) for name in ("forecast", "plan", "usage", f"only{version}")}
    numbers = {"format": FORMAT, "made_by": MADE_BY, "headline": {"log_end": log_end}}
    source = SimpleNamespace(settings=SimpleNamespace(until=log_end, end=pd.Timestamp(log_end)))
    study: Any = SimpleNamespace(source=source, attempt=lambda stage, compute: compute(), begin=lambda step: None)
    study.headline = {"version": version}
    parts = {
        "report_tables": lambda study: tables,
        "since_tables": lambda study, earlier: {},
        "check_same_log": lambda *_: [],
        "draw_figures": lambda *_: {f"only{version}": Drawing(b"<svg/>", b"png")},
        "render": lambda *_: f"page {version}",
        "report_numbers": lambda *_: numbers,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, part in parts.items():
            patch.setattr(build, name, part)
        build.write_report(study, place)


def save_forecast(place: Path, version: int) -> None:
    """Save a fitted forecaster."""
    days = pd.date_range("2026-03-02", periods=28)
    usage = pd.DataFrame({"unique_id": "a", "ds": days, "y": np.arange(28.0) + version})
    gd.save_model(SeasonalNaive(7).fit(usage), place)


def fill_store(place: Path, version: int) -> None:
    """Put rows of two months into two tables of a store, some in the place of older ones."""
    frame = pd.DataFrame({"k": range(3 * version, 3 * version + 5), "y": float(version)})
    with open_store(place) as store:
        for month in ("2026-03", "2026-04"):
            for table in ("t", "u"):
                store.merge(table, month, arrow_table(frame), arrow_table(frame[["k"]]))
        store.about["pulls"]["version"] = version
        store.commit()


def in_store(files: dict[str, bytes], tables: tuple[str, ...] = ("t", "u")) -> Any:
    """What a reader finds in a store, None before something was put into it."""
    if "store/store.json" not in files:
        return None
    with tempfile.TemporaryDirectory() as folder:
        restore(files, Path(folder))
        store = read_store(Path(folder, "store"))
        rows = {table: store.read(table) for table in tables}
    found = {table: part.to_pylist() for table, part in rows.items() if part}
    return (store.about["pulls"], found) if found else None


def pull_dump(place: Path, version: int) -> None:
    """Pull the first runs of a cluster, or all of them."""
    lines = (Path(__file__).parent / "pull/fixtures/sacct.psv").read_text().splitlines(keepends=True)
    dump = place.parent.parent / f"dump{version}.psv"
    dump.write_text("".join(lines[: 20 + 20 * version]))
    run("pull", "slurm", "--into", place, "--from", dump, "--quiet")


def stored_runs(files: dict[str, bytes]) -> set[str]:
    """Numbers of the runs in a store."""
    found = in_store(files, ("jobs",))
    return {row["job_id_raw"] for row in found[1]["jobs"]} if found else set()


def download(place: Path, version: int) -> None:
    """Fetch a file of the registry from a server of its own."""
    body = b"row\n" * 50_000

    class Upstream(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server, pytest.MonkeyPatch.context() as patch:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = {"url": f"http://127.0.0.1:{server.server_port}/file", "file_name": place.name}
        row = replace(remote_file("philly_nodes"), sha256=hashlib.sha256(body).hexdigest(), **address)
        patch.setattr(fetch, "remote_file", lambda _: row)
        patch.setenv("GPUDEMAND_DATA", str(place.parent))
        for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            patch.delenv(proxy, raising=False)
        fetch.fetch_file("philly_nodes")
        server.shutdown()


def table(place: Path, version: int) -> None:
    """Write a table of some length."""
    write_table(pd.DataFrame({"y": np.arange(20_000.0) + version}), place)


def numbers(place: Path, version: int) -> None:
    """Write the metrics of a report."""
    headline = dict.fromkeys(("required", "installed", "shortfall", "wape", "best_naive_wape"), version)
    headline |= dict.fromkeys(("first_crossing", "log_end", "plan_end", "coverage_80", "coverage_95"))
    order = {"due": version, "by": None}
    write_metrics(place, {"headline": headline, "order": order, "gpu_types": {}, "since": None}, "report")


#: Function (or class) of the package that writes, or command -> what it writes.
WRITERS: dict[str, list[Writer]] = {
    "jobs/read.py:write_jobs": [
        Writer(out, lambda place, version: write_jobs(log(version), place))
        for out in ("jobs.csv", "jobs.csv.gz", "jobs.parquet")
    ],
    "_tables.py:write_table": [Writer(out, table) for out in ("usage.csv", "usage.parquet")],
    "study/plan_file.py:write_plan": [Writer("plan.toml", lambda place, _: write_plan(place), situations=("nothing",))],
    "report/metrics.py:write_metrics": [Writer("report.prom", numbers)],
    "report/build.py:write_report": [Writer("report", write_small_report)],
    "datasets/registry.py:fetch_file": [Writer("file.csv", download, situations=("nothing",))],
    "datasets/devices.py:save_device": [Writer("mine.json", save_own_device)],
    "cost/model.py:save": [Writer("model", save_model)],
    "saved.py:save_model": [Writer("model.parquet", save_forecast)],
    "bulk.py:_written_chunk": [Writer("run", forecast_in_chunks, chunks, situations=("nothing",), grows=True)],
    "bulk.py:split_log": [Writer("parts", split)],
    "bulk.py:save": [Writer("run.json", lambda place, version: Run(place.parent, {"series": version}).save())],
    "store.py:commit": [Writer("store", fill_store, in_store)],
    "convert": [Writer("jobs.csv", partial(run_on_log, "convert"))],
    "usage": [Writer("usage.csv", partial(run_on_log, "usage"))],
    "init": [Writer("plan.toml", lambda place, _: run("init", place), situations=("nothing",))],
    "pull slurm": [Writer("store", pull_dump, stored_runs, grows=True)],
}
