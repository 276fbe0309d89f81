"""Measurements in child processes, and runs that are interrupted."""

from __future__ import annotations

import errno
import os
import platform
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpudemand._validation import InputError, RejectedRowsWarning
from gpudemand.cost import load_measurements, noise_floor

zoo = pytest.importorskip("benchmarks.zoo", reason="runs from a checkout")
measure = pytest.importorskip("benchmarks.measure.runs", reason="runs from a checkout")
meter = pytest.importorskip("benchmarks.measure.meter", reason="runs from a checkout")
load_networks = pytest.importorskip("benchmarks.measure.networks", reason="runs from a checkout").load_networks
plans = pytest.importorskip("benchmarks.zoo.plans", reason="runs from a checkout")
COLUMNS, MeasuringProcess, read_rows = measure.COLUMNS, measure.MeasuringProcess, measure.read_rows
ENVIRONMENT_COLUMNS, Configuration, RowFile = meter.ENVIRONMENT_COLUMNS, meter.Configuration, meter.RowFile
measure_training_cost, read_plan = measure.measure_training_cost, measure.read_plan

ROOT = Path(__file__).resolve().parents[2]
PLANS = ROOT / "data" / "cost" / "plans"
#: As short as a measurement can be.
SHORT = {"steps": 2, "warmup": 1, "min_time_s": 0.0}


@pytest.fixture(scope="module", autouse=True)
def _frameworks():
    pytest.importorskip("torch")


def job(**changes):
    return Configuration(**{"framework": "torch", "network": "lenet", "batch_size": 4, "threads": 1, **changes})


#: One sample whose last image is one pixel: batch norm has nothing to normalize over.
FAILING = job(network="vgg11", input_size=16, batch_size=1, width=0.25)


def plan_of(*jobs):
    return pd.DataFrame([asdict(each) for each in jobs])


@pytest.mark.slow
def test_a_plan_is_trained_in_both_frameworks_and_a_failed_job_recorded(tmp_path):
    pytest.importorskip("tensorflow")
    keras = job(framework="keras", layout="channels_last", execution="compiled")
    seen = []
    plan = tmp_path / "plan.csv"
    plans.write_plan(plan_of(FAILING, job(), keras), plan)
    rows = measure_training_cost(plan, tmp_path / "rows.csv", **SHORT, progress=seen.append)
    assert list(rows.columns) == list(COLUMNS)
    assert rows["network"].iloc[-1] == "lenet", "nothing runs after the failure"
    check_failure(rows.set_index("network").loc["vgg11"])
    rows = rows[rows["network"] == "lenet"]
    assert rows["status"].tolist() == ["ok", "ok"]
    assert set(rows["framework"]) == {"torch", "keras"}
    assert (rows["parameters"] == 62_006).all()
    assert (rows["step_time_p10_s"] <= rows["step_time_s"]).all()
    assert (rows["step_time_s"] <= rows["step_time_p90_s"]).all()
    measured = rows[["step_time_s", "first_step_s", "start_s", "memory_gib", "model_gib"]]
    assert (measured > 0).all(axis=None)
    assert rows.set_index("framework").loc["torch", "allocated_gib"] > 0
    assert (rows["wall_s"] > rows["start_s"] + rows["first_step_s"]).all()
    assert [(state.done, state.total) for state in seen] == [(1, 3), (2, 3), (3, 3)]
    assert seen[0].left_s > 0
    assert seen[2].left_s == 0
    check_environment(rows, (tmp_path / "rows.csv").read_text())


def check_failure(row):
    assert row["status"] == "error"
    assert row["message"].startswith("ValueError: Expected more than 1 value per channel")


def check_environment(rows, text):
    on_a_cpu_empty = {"driver", "backend"}
    assert rows[[name for name in ENVIRONMENT_COLUMNS if name not in on_a_cpu_empty]].notna().all(axis=None)
    assert rows.set_index("framework").loc["keras", "backend"].startswith("tensorflow 2.")
    assert (rows["n_threads"] == 1).all()
    assert platform.node() not in text.replace(rows["cpu"].iloc[0], "")
    assert not re.search(r"/(?:home|tmp|root|usr)\b", text)


@pytest.mark.slow
def test_a_killed_run_resumes(tmp_path):
    plan, out = tmp_path / "plan.csv", tmp_path / "rows.csv"
    plans.write_plan(plan_of(job(), job(seed=1)), plan)
    kill_after_rows(1, plan, out)
    before = out.read_bytes()
    finished = before[: before.rfind(b"\n") + 1]
    assert finished.count(b"\n") - 1 == 1
    rows = measure_training_cost(plan, out, **SHORT)
    assert out.read_bytes().startswith(finished)
    assert sorted(rows["seed"]) == [0, 1]
    assert (rows["status"] == "ok").all()
    again = measure_training_cost(plan, out, **SHORT, progress=lambda state: pytest.fail(f"measured again: {state}"))
    pd.testing.assert_frame_equal(again, rows)


def kill_after_rows(count, plan, out):
    """Start a run as a process of its own and kill it as soon as so many rows are on disk."""
    code = "import sys; from benchmarks.measure.runs import *; measure_training_cost(*sys.argv[1:], steps=2)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.Popen([sys.executable, "-c", code, str(plan), str(out)], env=environment)
    deadline = time.monotonic() + 120
    while not (out.exists() and out.read_bytes().count(b"\n") > count):
        assert time.monotonic() < deadline, "no row within two minutes"
        time.sleep(0.02)
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    run.send_signal(signal.SIGKILL)
    run.wait()
    while any(is_running(child) for child in children):
        assert time.monotonic() < deadline, "a child outlived its parent"
        time.sleep(0.1)


def is_running(pid):
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def test_a_truncated_file_keeps_its_complete_rows(tmp_path):
    path, columns = tmp_path / "rows.csv", ["key", "message"]
    with RowFile(path, columns) as rows:
        for key in ("a", "b"):
            rows.append({"key": key, "message": "of, several words"})
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        with RowFile(path, columns) as rows:
            complete = [row["key"] for row in rows.read()]
            rows.append({"key": "c"})
            assert [row["key"] for row in rows.read()] == [*complete, "c"]
        assert complete == ["a", "b"][: max(0, whole[:length].count(b"\n") - 1)]


def test_a_file_has_one_writer_and_one_header(tmp_path):
    path = tmp_path / "rows.csv"
    with RowFile(path, ["key"]), pytest.raises(InputError, match=r"another process is writing rows\.csv"):
        RowFile(path, ["key"]).__enter__()
    with pytest.raises(InputError, match=r"rows\.csv has other columns"):
        measure_training_cost(plan_of(job()), path)


FOREIGN = {
    "a line of text": b"notes of mine\n",
    "text without a line": b"notes of mine",
    "a Parquet file": b"PAR1" + bytes(range(256)) * 9,
    "another table": b"user,start,end,gpus\nada,1,2,8\n",
    "more columns": ",".join([*COLUMNS, "more"]).encode() + b"\nx\n",
    "no UTF-8": b"\xff\xfe\n",
    "null bytes": b"\0" * 1000,
    "a damaged row": ",".join(COLUMNS).encode() + b"\na,b\n",
    "a row that is no UTF-8": ",".join(COLUMNS).encode() + b"\n\xff" + b"," * (len(COLUMNS) - 1) + b"\n",
}


@pytest.mark.parametrize("content", FOREIGN)
def test_a_file_that_holds_something_else_is_left_alone(tmp_path, content):
    path = tmp_path / "rows.csv"
    path.write_bytes(FOREIGN[content])
    os.utime(path, ns=(10**18, 10**18))
    with pytest.raises(InputError, match=r"rows\.csv (has other columns|is damaged)"):
        measure_training_cost(plan_of(job()), path)
    assert path.read_bytes() == FOREIGN[content]
    assert path.stat().st_mtime_ns == 10**18


def test_a_folder_is_no_file_and_an_invalid_plan_makes_none(tmp_path):
    with pytest.raises(InputError, match="is no file"):
        measure_training_cost(plan_of(job()), tmp_path)
    with pytest.raises(InputError, match="no plan file"):
        measure_training_cost(tmp_path / "plan.csv", tmp_path / "rows.csv")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_no_part_of_a_row(tmp_path):
    class Full:
        """A disk that takes a few bytes more."""

        def __init__(self, file, room):
            self.file, self.room = file, room

        def write(self, data):
            if not self.room:
                raise OSError(errno.ENOSPC, "no space left")
            taken, self.room = self.file.write(data[: self.room]), 0
            return taken

        def __getattr__(self, name):
            return getattr(self.file, name)

    path = tmp_path / "rows.csv"
    with RowFile(path, ["key", "value"]) as rows:
        rows.append({"key": "a", "value": 1})
        before = path.read_bytes()
        whole, rows._file = rows._file, Full(rows._file, 3)
        with pytest.raises(OSError, match="no space left"):
            rows.append({"key": "b", "value": 2})
        assert path.read_bytes() == before
        rows._file = whole
        rows.append({"key": "c", "value": "of two\nlines", "other": 3})
        assert rows.read() == [{"key": "a", "value": "1"}, {"key": "c", "value": "of two lines"}]


@pytest.mark.parametrize("content", ["a line of text", "a Parquet file", "no UTF-8", "null bytes", "a damaged row"])
def test_a_file_without_rows_is_not_read(tmp_path, content):
    path = tmp_path / "rows.csv"
    path.write_bytes(FOREIGN[content])
    with pytest.raises(InputError, match=r"rows\.csv"):
        read_rows(path)


def test_a_last_line_without_its_end_is_read_if_it_has_all_fields(tmp_path):
    path, rows = tmp_path / "rows.csv", load_measurements().head(3)
    text = rows.to_csv(index=False).rstrip("\n")
    path.write_text(text)
    assert read_rows(path)["key"].tolist() == rows["key"].tolist()
    path.write_text(text.rpartition(",")[0])
    with pytest.warns(RejectedRowsWarning, match=r"the last line of rows\.csv is not complete"):
        assert read_rows(path)["key"].tolist() == rows["key"].tolist()[:2]


@pytest.mark.slow
def test_out_of_memory_is_recorded(tmp_path):
    large = job(network="vgg11", input_size=64, batch_size=256)
    rows = measure_training_cost(plan_of(large), tmp_path / "rows.csv", **SHORT, memory_limit_gib=0.25)
    assert rows["status"].tolist() == ["oom"]
    assert rows["step_time_s"].isna().all()


def test_a_process_killed_by_the_system_is_out_of_memory():
    process = MeasuringProcess("cpu")
    os.kill(process._process.pid, signal.SIGKILL)
    answer = process.request({}, timeout_s=60)
    process.close()
    assert answer == {"status": "oom", "message": "killed by the system"}


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_process_stops_the_run(stop):
    if signal.getsignal(stop) == signal.SIG_IGN:
        pytest.skip("runs in the background of a shell, where this signal is ignored and children inherit that")
    process = MeasuringProcess("cpu")
    os.kill(process._process.pid, stop)
    with pytest.raises(KeyboardInterrupt):
        process.request({}, timeout_s=60)
    process.close()


def test_a_process_that_ends_by_itself_is_an_error():
    process = MeasuringProcess("cpu")
    os.kill(process._process.pid, signal.SIGUSR1)
    answer = process.request({}, timeout_s=60)
    process.close()
    assert answer == {"status": "error", "message": "the process ended with code -10"}


def test_a_timeout_is_recorded(tmp_path):
    rows = measure_training_cost(plan_of(job()), tmp_path / "rows.csv", **SHORT, timeout_s=0.2)
    assert rows["status"].tolist() == ["timeout"]
    assert rows["message"].tolist() == ["not finished within 0.2 s"]


@pytest.mark.slow
def test_one_process_serves_many_jobs_and_the_larger_takes_more(tmp_path):
    jobs = [job(network="resnet18", batch_size=size, width=0.5) for size in (2, 32)]
    rows = measure_training_cost(plan_of(FAILING, *jobs), tmp_path / "rows.csv", **SHORT, process="shared")
    assert (rows["process"] == "shared").all()
    check_failure(rows.set_index("network").loc["vgg11"])
    rows = rows[rows["network"] == "resnet18"].set_index("batch_size")
    assert rows["status"].tolist() == ["ok", "ok"]
    # The first start imports PyTorch, the second finds it there.
    assert rows["start_s"].min() < 0.5 * rows["start_s"].max()
    assert rows.loc[32, "step_time_s"] > 2 * rows.loc[2, "step_time_s"]
    # Sixteen times the batch: ReLU and batch norm keep their inputs, about 0.6 MiB a sample and layer group.
    assert rows.loc[32, "allocated_gib"] > 5 * (rows.loc[2, "allocated_gib"] - rows.loc[2, "model_gib"])
    assert rows.loc[32, "memory_gib"] > rows.loc[2, "memory_gib"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": "resnet51"}, "row 1 of the plan: network='resnet51' is not known. Did you mean 'resnet50'?"),
        ({"batch_size": 0}, "row 1 of the plan: batch_size must be a whole number of at least 1; got 0"),
        ({"batch_size": "many"}, "row 1 of the plan: batch_size='many' cannot be read"),
        ({"precision": "tf32"}, "precision='tf32' exists on device='cuda' only"),
        ({"framework": "keras"}, "keras trains with layout 'channels_last' and execution 'compiled'"),
        ({"channels": 0}, "lenet takes image, which needs channels and no vocabulary"),
    ],
)
def test_invalid_plans_are_rejected(tmp_path, change, message):
    plan = plan_of(job()).astype(object).assign(**change)
    with pytest.raises(InputError, match=re.escape(message)):
        measure_training_cost(plan, tmp_path / "rows.csv")


def test_missing_files_and_empty_plans_are_rejected(tmp_path):
    with pytest.raises(InputError, match=r"there is no plan file 'plan\.csv'"):
        read_plan(tmp_path / "plan.csv")
    with pytest.raises(InputError, match="the plan has no rows"):
        read_plan(plan_of(job()).head(0))
    with pytest.raises(InputError, match=r"there is no file of rows 'rows\.csv'"):
        read_rows(tmp_path / "rows.csv")
    with pytest.raises(InputError, match="a configuration needs network"):
        read_plan(pd.DataFrame({"framework": ["torch"]}))


def test_keys_are_stable():
    # A new key would measure every finished row of every file again.
    assert job().key == "5a3771c1ec80aba8"
    assert job(repeat=1).key != job().key


@pytest.mark.slow
def test_plans_are_balanced_random_designs():
    names = ["lenet", "vgg11", "bert"]
    plan = plans.make_plan(60, networks=names, n_repeated=15)
    first = plan[plan["repeat"] == 0]
    assert first.groupby(["network", "framework"]).size().tolist() == [5, 10] * 3
    assert set(plan["optimizer"]) == {"sgd", "momentum", "adam", "adamw"}
    assert plan["batch_size"].between(4, 64).all()
    columns = [name for name in plan.columns if name != "repeat"]
    assert plan.duplicated(columns).sum() >= 15
    assert len(read_plan(plan)) == len(plan)
    pd.testing.assert_frame_equal(plan, plans.make_plan(60, networks=names, n_repeated=15))
    assert not plan.equals(plans.make_plan(60, networks=names, n_repeated=15, random_state=1))


def test_impossible_designs_are_rejected():
    with pytest.raises(InputError, match="n_repeated=6 and n_compiled=0 need as many rows"):
        plans.make_plan(10, networks=["lenet"], n_repeated=6)
    with pytest.raises(InputError, match="Did you mean 'lenet'"):
        plans.make_plan(10, networks=["lenett"], n_repeated=0)


@pytest.mark.parametrize(("device", "rows", "frameworks"), [("cpu", 1500, 2), ("cuda", 1000, 1)])
def test_committed_plans_contain_every_network(device, rows, frameworks):
    plan = pd.DataFrame([asdict(each) for each in read_plan(PLANS / f"{device}.csv")])
    assert len(plan) >= rows
    assert (plan["device"] == device).all()
    assert set(plan["network"]) == set(zoo.names())
    assert plan.groupby("network")["framework"].nunique().eq(frameworks).all()
    assert (plan["repeat"] == 1).sum() >= 100
    if device == "cuda":
        eager = plan[plan["execution"] == "eager"]
        assert set(eager["precision"]) == {"fp32", "tf32", "bf16"}
        assert (plan["execution"] == "compiled").sum() == 30


def repeated(n_jobs, n_repeats, spread, rng):
    truth = rng.lognormal(size=n_jobs)
    return pd.DataFrame(
        {
            "framework": "torch",
            "device": "cpu",
            "network": "lenet",
            "status": "ok",
            "seed": np.repeat(np.arange(n_jobs), n_repeats),
            "repeat": np.tile(np.arange(n_repeats), n_jobs),
            "step_time_s": np.repeat(truth, n_repeats) * rng.normal(1, spread, n_jobs * n_repeats),
            "memory_gib": np.repeat(truth, n_repeats),
        }
    )


@pytest.mark.parametrize("n_repeats", [2, 5])
def test_the_noise_floor_recovers_the_noise(n_repeats):
    rows = repeated(4000, n_repeats, 0.05, np.random.default_rng(0))
    floor = noise_floor(rows).set_index("target")
    assert floor.loc["step_time_s", "mean"] == pytest.approx(0.05 * np.sqrt(2 / np.pi), rel=0.05)
    assert floor.loc["memory_gib", "mean"] < 1e-12
    assert floor.loc["step_time_s", "n_jobs"] == 4000


def test_the_noise_floor_uses_finished_repetitions_only():
    rows = repeated(10, 2, 0.05, np.random.default_rng(0))
    rows.loc[rows["seed"] == 0, "status"] = "oom"
    rows = rows.drop(rows.index[(rows["seed"] == 1) & (rows["repeat"] == 1)])
    assert noise_floor(rows)["n_jobs"].tolist() == [8, 8]
    assert noise_floor(rows[rows["repeat"] == 0]).empty


@pytest.mark.parametrize("column", ["device_name", "framework_version", "cpu", "backend"])
def test_rows_on_different_machines_are_no_repetitions(column):
    rows = repeated(10, 2, 0.05, np.random.default_rng(0))
    assert noise_floor(rows.assign(**{column: np.where(rows["repeat"] == 0, "one", "other")})).empty
    assert noise_floor(rows.assign(**{column: "one"}))["n_jobs"].tolist() == [10, 10]


@pytest.mark.parametrize(("value", "reason"), [(0.0, "20 values that are not above zero"), (-1, "20"), ("x", "20")])
def test_amounts_that_are_none_have_no_noise_floor(value, reason):
    rows = repeated(10, 2, 0.05, np.random.default_rng(0)).assign(step_time_s=value)
    with pytest.raises(InputError, match=f"the column step_time_s of rows holds {reason}"):
        noise_floor(rows)
    assert noise_floor(rows.assign(status=None, step_time_s=1.0)).empty


OWN = """
import torch

def names():
    return ["mine"]

def kind(name):
    return "image"

def build(name, framework, input_shape, n_classes, *, width, depth, vocabulary):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, n_classes))
"""


@pytest.mark.slow
def test_networks_of_a_file_are_measured(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "own.py").write_text(OWN)
    name, option = "mine", {"networks": str(tmp_path / "own.py")}
    plan = pd.DataFrame({"framework": ["torch"], "network": name, "input_size": 16, "batch_size": 2})
    rows = measure_training_cost(plan, tmp_path / "rows.csv", steps=2, warmup=1, min_time_s=0.0, **option)
    assert rows["status"].tolist() == ["ok"], rows["message"].tolist()
    assert rows["parameters"].tolist() == [768 * 10 + 10]
    with pytest.raises(InputError, match="network='other' is not known"):
        measure_training_cost(plan.assign(network="other"), tmp_path / "rows.csv", **option)


def test_a_module_without_networks_is_refused(tmp_path):
    with pytest.raises(InputError, match="'nowhere' cannot be imported"):
        load_networks("nowhere")
    with pytest.raises(InputError, match=r"there is no file '.*nowhere\.py'; give the path"):
        load_networks(str(tmp_path / "nowhere.py"))
    with pytest.raises(InputError, match="'json' builds no networks: it lacks names, kind, build"):
        load_networks("json")


@pytest.mark.parametrize(
    ("code", "said"), [("1 / 0", "nets.py cannot be run: ZeroDivisionError"), ("names = 1", "lacks kind, build")]
)
def test_a_file_that_builds_no_networks(tmp_path, code, said):
    file = tmp_path / "nets.py"
    file.write_text(code)
    with pytest.raises(InputError, match=said):
        load_networks(str(file))


def test_a_file_of_networks_imports_what_lies_beside_it(tmp_path):
    (tmp_path / "beside_networks.py").write_text("from benchmarks.zoo import build, kind, names")
    file = tmp_path / "nets.py"
    file.write_text("from beside_networks import build, kind, names")
    assert load_networks(str(file)).names() == zoo.names()
