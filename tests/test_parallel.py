"""Parallel map: equal results in this process, in processes, and on a Dask cluster."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from joblib import parallel_config

import gpudemand as gd
from gpudemand import _parallel
from gpudemand._validation import InputError
from gpudemand.segments import features as feature_table
from tests.where import place, would_use_dask

JOBS, _ = gd.make_cluster(6, 56, random_state=0)
USAGE = gd.usage_series(JOBS, by="user", freq="D", value="gpus", partial=False)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_results_are_in_order(n_jobs):
    assert _parallel.run(math.factorial, range(6), n_jobs=n_jobs) == [1, 1, 2, 6, 24, 120]


def test_an_active_dask_client_is_used():
    distributed = pytest.importorskip("distributed", reason="needs the extra 'scale'")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster),
    ):
        assert _parallel.dask_is_active()
        assert _parallel.run(place, range(2)) == ["worker", "worker"]
    assert not _parallel.dask_is_active()
    assert _parallel.run(place, range(1)) == ["here"]


def test_tasks_of_a_worker_are_not_sent_around_again():
    distributed = pytest.importorskip("distributed", reason="needs the extra 'scale'")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster),
    ):
        assert _parallel.run(would_use_dask, range(2)) == [False, False]


def test_exceptions_are_raised():
    with pytest.raises(ValueError, match="factorial"):
        _parallel.run(math.factorial, [-1])


def backtest(progress=None):
    two = USAGE[USAGE["unique_id"].isin(USAGE["unique_id"].unique()[:2])]
    return gd.cross_validation([gd.Naive(), gd.ETS()], two, h=7, n_windows=4, level=[80], progress=progress)


def combined():
    return gd.CombinedForecaster().fit(USAGE).predict(7, level=[80])


def segments():
    return gd.TopologicalSegmenter(2).fit(gd.to_wide(USAGE)).transform(gd.to_wide(USAGE))


def in_chunks():
    """Bytes of the files."""
    with tempfile.TemporaryDirectory() as folder:
        gd.write_jobs(JOBS, Path(folder, "jobs.parquet"))
        options = {"horizon": 7, "forecaster": gd.Naive(), "n_segments": 2, "series_per_chunk": 2}
        files = gd.bulk_forecast(Path(folder, "jobs.parquet"), Path(folder, "run"), **options)
        return pd.DataFrame({"bytes": [file.read_bytes() for file in sorted(files.iterdir())]})


EVERYTHING = (backtest, combined, segments, in_chunks)


@cache
def alone(compute):
    """Result of one process."""
    return compute()


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed", reason="needs the extra 'scale'")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def workers_of(client, compute):
    """The result, and how many workers ran a part of it."""
    from distributed import get_task_stream

    with client.as_current(), get_task_stream(client) as stream:
        result = compute()
    return result, len({task["worker"] for task in stream.data})


@pytest.mark.slow
@pytest.mark.parametrize("compute", EVERYTHING)
def test_two_processes_and_two_workers_give_the_same(compute, client, monkeypatch):
    monkeypatch.setattr(feature_table, "_ROWS_PER_TASK", 2)
    expected = alone(compute)  # first: what it compiles is then on disk for the others
    there, n_workers = workers_of(client, compute)
    assert n_workers == 2
    with parallel_config(n_jobs=2):
        two = compute()
    for result in (there, two):
        pd.testing.assert_frame_equal(result, expected)


@pytest.mark.slow
def test_the_shell_starts_workers_or_joins_a_scheduler(client):
    from gpudemand.cli.options import workers

    for where in ("local", client.scheduler.address):
        with workers(where):
            assert _parallel.run(place, range(2)) == ["worker", "worker"]
        assert not _parallel.dask_is_active()
    with (
        pytest.raises(InputError, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9'; start one"),
        workers("tcp://127.0.0.1:9"),
    ):
        pass


def has_ended(pid, within_s=30.0):
    """Whether a process is gone, or is as soon as its parent has noticed that it was killed."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


# The last test: Dask does not start every worker again that was killed.
@pytest.mark.slow
def test_a_worker_that_dies_midway_changes_nothing(client):
    dead = next(iter(client.run(os.getpid).values()))

    def kill(done, total):
        if done == 1:
            os.kill(dead, signal.SIGKILL)

    result, _ = workers_of(client, lambda: backtest(kill))
    pd.testing.assert_frame_equal(result, alone(backtest))
    assert has_ended(dead)


def test_processes_import_nothing_from_the_current_folder(tmp_path):
    for name in ("json", "numpy", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open('ran', 'a').write({name!r})")
    code = "from gpudemand import _parallel; print(_parallel.run(len, ['ab', 'c'], n_jobs=2))"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    environment.pop("PYTHONSAFEPATH", None)
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[2, 1]\n"
    assert not (tmp_path / "ran").exists()
