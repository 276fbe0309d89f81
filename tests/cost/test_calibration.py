"""A cost model is calibrated to a device with a few measured jobs."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from gpudemand._validation import InputError
from gpudemand.cli.app import app
from gpudemand.cost import CostModel, TrainingJob, load_measurements
from gpudemand.cost import calibrate as calibration
from gpudemand.cost import calibrate as machine
from gpudemand.cost.calibrate import format_calibration, micro_benchmark
from gpudemand.cost.measure import read_plan
from gpudemand.cost.step_time_model import FarFromTrainingWarning
from gpudemand.datasets import device

torch = pytest.importorskip("torch")
here = pytest.importorskip("benchmarks.cost.here", reason="runs from a checkout")
calibrate_device = partial(calibration.calibrate_device, networks="benchmarks.zoo")


@pytest.fixture(scope="module")
def rows():
    """Three measured jobs, as a machine three times slower would have run them."""
    known = load_measurements()
    small = known[(known["framework"] == "torch") & known["network"].isin(["lenet", "squeezenet", "vgg11"])]
    few = small.drop_duplicates("network").reset_index(drop=True)
    return few.assign(step_time_s=3 * few["step_time_s"])


@pytest.fixture(scope="module")
def table(rows):
    return calibrate_device(CostModel.load(), rows)


def test_calibration_reduces_the_error_on_a_slower_machine(rows, table):
    before, after = (np.abs(table[name] / table["measured_s"] - 1).median() for name in ("before_s", "after_s"))
    assert before > 0.4
    assert after < before / 2
    lines = format_calibration(table).splitlines()
    assert lines[0].startswith("AMD EPYC (2 cores): median error ")
    assert len(lines) == 2 + 1 + len(rows)


@pytest.mark.slow
def test_the_command_stores_the_calibrated_model(rows, tmp_path):
    rows[rows["network"] != "squeezenet"].to_csv(tmp_path / "rows.csv", index=False)
    arguments = ["calibrate", "--rows", tmp_path / "rows.csv", "--out", tmp_path / "mine", "--quiet"]
    arguments += ["--networks", "benchmarks.zoo"]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3))
    job = TrainingJob(net, (3, 32, 32), batch_size=64, device="AMD EPYC (2 cores)")
    before, after = (CostModel.load(*place).predict(job)["step_time_s"].iloc[0] for place in ((), (tmp_path / "mine",)))
    assert np.log(after / before) == pytest.approx(np.log(3), abs=0.6)


@pytest.mark.slow
def test_errors_after_the_calibration_are_those_of_jobs_left_out(rows):
    model = CostModel.load()
    two = rows[rows["network"].isin(["lenet", "vgg11"])]
    odd = two.assign(step_time_s=two["step_time_s"] * np.where(two["network"] == "vgg11", 10.0, 1.0))
    table = calibrate_device(model, odd).set_index("job")
    error = (table["after_s"] / table["measured_s"] - 1).abs()
    assert error.loc[[name.startswith("vgg11") for name in error.index]].min() > 0.5


def test_a_noisy_machine_is_refused(rows):
    lenet = rows[rows["network"] == "lenet"]
    steady = pd.concat([lenet, lenet.assign(step_time_s=1.1 * lenet["step_time_s"])])
    table = calibrate_device(CostModel.load(), steady)
    assert len(table) == 1
    # No other network is left to tell the error from.
    assert table["after_s"].isna().all()
    assert "after" not in format_calibration(table).splitlines()[0]
    noisy = pd.concat([rows, rows.assign(step_time_s=1.4 * rows["step_time_s"])])
    with pytest.raises(InputError, match=r"differ by 40 % at the median: other work runs"):
        calibrate_device(CostModel.load(), noisy)


@pytest.fixture
def unknown_machine(monkeypatch, tmp_path):
    """A processor that no table has, with its devices in a folder of its own."""
    monkeypatch.setenv("GPUDEMAND_DEVICES", str(tmp_path / "devices"))
    monkeypatch.setattr(machine, "cpu_model", lambda: "Imaginary CPU 9000")
    monkeypatch.setattr(machine, "_VECTOR", {"cpu": 2**20})
    monkeypatch.setattr(machine, "_MATRIX", {"cpu": 256})


@pytest.mark.slow
def test_an_unknown_processor_becomes_a_device_of_its_own(unknown_machine, monkeypatch, tmp_path):
    known = load_measurements().query("framework == 'torch' and width == 1 and depth == 1")
    rows = known[known["network"] == "vgg11"].head(1)
    monkeypatch.setattr(calibration, "micro_benchmark", lambda on: rows)
    result = CliRunner().invoke(app, ["calibrate", "--out", str(tmp_path / "mine"), "--quiet"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Imaginary CPU 9000: median error ")
    found = device("imaginary cpu-9000")
    assert (found.kind, found.source) == ("cpu", "measured")
    assert 0.1 < found.bandwidth_gb_s < 10_000
    assert 1e-4 < found.fp32_tflops < 1000
    job = TrainingJob(torch.nn.Linear(4, 4), (4,), device="Imaginary CPU 9000")
    with pytest.warns(FarFromTrainingWarning):
        assert CostModel.load(tmp_path / "mine").predict(job)["step_time_s"].notna().all()


def test_a_device_is_checked_before_anything_is_trained(unknown_machine, monkeypatch, tmp_path):
    monkeypatch.setattr(calibration, "micro_benchmark", lambda on: pytest.fail("trained first"))
    result = CliRunner().invoke(app, ["calibrate", "--out", str(tmp_path / "mine"), "--device", "H2000"])
    assert result.exit_code == 2
    assert "Did you mean 'H200'" in result.output
    assert not (tmp_path / "mine").exists()


def test_invalid_rows_and_devices_are_rejected(rows):
    with pytest.raises(InputError, match="no finished measurement"):
        calibrate_device(CostModel.load(), rows.assign(status="timeout"))
    with pytest.raises(InputError, match="Did you mean"):
        calibrate_device(CostModel.load(), rows, "H2000")
    with pytest.raises(InputError, match="device"):
        micro_benchmark("tpu")


@pytest.mark.slow
def test_the_benchmark_of_this_machine_predicts_each_network_from_the_others(rows, table, monkeypatch, capsys):
    planned = []

    def measure(plan, out, *, process, networks):
        jobs = read_plan(plan, networks)
        planned.extend(jobs)
        return pd.concat([rows.assign(repeat=repeat) for repeat in range(2)], ignore_index=True)

    monkeypatch.setattr(here, "measure_training_cost", measure)
    monkeypatch.setattr("sys.argv", ["here", "--repeats", "2"])
    monkeypatch.setattr(here, "find_or_measure", lambda kind: (device("AMD EPYC (2 cores)"), False))
    here.main()
    assert sorted(job.network for job in planned) == sorted([*here.NETWORKS, *here.NETWORKS])
    printed = capsys.readouterr().out
    assert format_calibration(table) in printed
    assert "0.000" in printed  # the repetitions are equal
