"""A cost model is calibrated to a device with a few measured jobs."""

import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from gpudemand._validation import InputError
from gpudemand.cli.app import app
from gpudemand.cost import CostModel, TrainingJob, load_measurements, networks
from gpudemand.cost import calibrate as machine
from gpudemand.cost.calibrate import calibrate_device, format_calibration, micro_benchmark
from gpudemand.cost.step_time_model import FarFromTrainingWarning
from gpudemand.datasets import device

torch = pytest.importorskip("torch")
here = pytest.importorskip("benchmarks.cost.here", reason="runs from a checkout")
CPU = "AMD EPYC (2 cores)"


@pytest.fixture(scope="module")
def rows():
    """Three measured jobs, as a machine three times slower would have run them."""
    known = load_measurements()
    small = known[(known["framework"] == "torch") & known["network"].isin(["lenet", "squeezenet", "vgg11"])]
    few = small.drop_duplicates("network").reset_index(drop=True)
    return few.assign(step_time_s=3 * few["step_time_s"], repeat=0)


@pytest.fixture(scope="module")
def measured(rows):
    return here.measured(rows)


@pytest.fixture(scope="module")
def table(measured):
    return calibrate_device(CostModel.load(), *measured)


def test_calibration_reduces_the_error_on_a_slower_machine(rows, table):
    before, after = (np.abs(table[name] / table["measured_s"] - 1).median() for name in ("before_s", "after_s"))
    assert before > 0.4
    assert after < before / 2
    lines = format_calibration(table).splitlines()
    assert lines[0].startswith("AMD EPYC (2 cores): median error ")
    assert len(lines) == 2 + 1 + len(rows)


@pytest.mark.slow
def test_the_command_stores_the_calibrated_model(measured, monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "micro_benchmark", lambda name, on: measured)
    arguments = ["calibrate", "--device", CPU, "--out", tmp_path / "mine", "--quiet"]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3))
    job = TrainingJob(net, (3, 32, 32), batch_size=64, device=CPU)
    before, after = (CostModel.load(*place).predict(job)["step_time_s"].iloc[0] for place in ((), (tmp_path / "mine",)))
    assert np.log(after / before) == pytest.approx(np.log(3), abs=0.6)


@pytest.mark.slow
def test_errors_after_the_calibration_are_those_of_jobs_left_out(measured):
    jobs, seconds = measured
    odd = seconds * [10.0 if job.graph.name == "vgg11" else 1.0 for job in jobs]
    table = calibrate_device(CostModel.load(), jobs, odd).set_index("job")
    error = (table["after_s"] / table["measured_s"] - 1).abs()
    assert error.loc[[name.startswith("vgg11") for name in error.index]].min() > 0.5


def test_a_noisy_machine_is_refused(measured):
    jobs, seconds = measured
    table = calibrate_device(CostModel.load(), jobs[:1], np.vstack([seconds, 1.1 * seconds])[:, :1])
    assert table["measured_s"].tolist() == pytest.approx([1.05 * seconds[0, 0]])
    # No other network is left to tell the error from.
    assert table["after_s"].isna().all()
    assert "after" not in format_calibration(table).splitlines()[0]
    with pytest.raises(InputError, match=r"differ by 40 % at the median: other work runs"):
        calibrate_device(CostModel.load(), jobs, np.vstack([seconds, 1.4 * seconds]))


@pytest.mark.slow
def test_four_networks_are_trained_in_single_precision(monkeypatch):
    monkeypatch.setattr(machine, "_MIN_TIME_S", 0.01)
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    jobs, seconds = micro_benchmark(CPU)
    assert seconds.shape == (2, 4)
    assert (seconds > 1e-4).all()
    assert [job.graph.name for job in jobs] == ["resnet18", "mobilenet_v2", "vgg11", "vit_tiny"]
    assert {(job.optimizer, job.precision, job.batch_size) for job in jobs} == {("sgd", "fp32", 8)}
    assert before == (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)


@pytest.fixture
def unknown_machine(monkeypatch, tmp_path):
    """A processor that no table has, with its devices in a folder of its own."""
    monkeypatch.setenv("GPUDEMAND_DEVICES", str(tmp_path / "devices"))
    monkeypatch.setattr(machine, "cpu_model", lambda: "Imaginary CPU 9000")
    monkeypatch.setattr(machine, "_VECTOR", {"cpu": 2**20})
    monkeypatch.setattr(machine, "_MATRIX", {"cpu": 256})


@pytest.mark.slow
def test_an_unknown_processor_becomes_a_device_of_its_own(unknown_machine, monkeypatch, tmp_path):
    def measure(name, on):
        net = networks.build("vgg11", (3, 32, 32))
        return [TrainingJob(net, (3, 32, 32), device=name)], np.array([[0.2], [0.2]])

    monkeypatch.setattr(machine, "micro_benchmark", measure)
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
    monkeypatch.setattr(machine, "micro_benchmark", lambda name, on: pytest.fail("trained first"))
    result = CliRunner().invoke(app, ["calibrate", "--out", str(tmp_path / "mine"), "--device", "H2000"])
    assert result.exit_code == 2
    assert "Did you mean 'H200'" in result.output
    assert not (tmp_path / "mine").exists()


def test_an_unknown_kind_of_device_is_refused():
    with pytest.raises(InputError, match="on='tpu' is not known"):
        micro_benchmark(CPU, "tpu")


@pytest.mark.slow
def test_the_benchmark_of_this_machine_predicts_each_network_from_the_others(rows, table, monkeypatch, capsys):
    planned = []

    def measure(plan, out, *, process):
        planned.extend(plan["network"])
        return pd.concat([rows.assign(repeat=repeat) for repeat in range(2)], ignore_index=True)

    monkeypatch.setattr(here, "measure_training_cost", measure)
    monkeypatch.setattr("sys.argv", ["here", "--repeats", "2"])
    monkeypatch.setattr(here, "find_or_measure", lambda kind: (device(CPU), False))
    here.main()
    assert sorted(planned) == sorted([*here.NETWORKS, *here.NETWORKS])
    printed = capsys.readouterr().out
    assert format_calibration(table) in printed
    assert "0.000" in printed  # the repetitions are equal


@pytest.mark.skipif(torch.cuda.is_available(), reason="finds a GPU")
def test_a_machine_without_gpu_gets_one_sentence(tmp_path):
    with pytest.raises(InputError, match="PyTorch finds no GPU on this machine"):
        micro_benchmark("A100", "cuda")
    result = CliRunner().invoke(app, ["calibrate", "--device", "A100", "--on", "cuda", "--out", str(tmp_path / "mine")])
    assert result.exit_code == 2
    assert "PyTorch finds no GPU on this machine" in result.stderr


def test_without_torch_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"pip install 'gpudemand\[torch\]'"):
        micro_benchmark("A100")
