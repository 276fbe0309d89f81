"""A cost model is calibrated to a device with a few measured jobs."""

import numpy as np
import pytest
from typer.testing import CliRunner

from gpudemand._validation import InputError
from gpudemand.cli.app import app
from gpudemand.cost import CostModel, load_measurements
from gpudemand.cost.calibration import calibrate_device, format_calibration, micro_benchmark

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def rows():
    """Three measured jobs, as a machine three times slower would have run them."""
    known = load_measurements("cpu")
    small = known[(known["framework"] == "torch") & known["network"].isin(["lenet", "squeezenet", "vgg11"])]
    few = small.drop_duplicates("network").reset_index(drop=True)
    return few.assign(step_time_s=3 * few["step_time_s"])


def test_calibration_reduces_the_error_on_a_slower_machine(rows):
    table = calibrate_device(CostModel.load(), rows)
    before, after = (np.abs(table[name] / table["measured_s"] - 1).median() for name in ("before_s", "after_s"))
    assert before > 0.4
    assert after < before / 2
    lines = format_calibration(table).splitlines()
    assert lines[0].startswith("AMD EPYC (2 cores): median error ")
    assert len(lines) == 2 + 1 + len(rows)


def test_the_command_stores_the_calibrated_model(rows, tmp_path):
    rows.to_csv(tmp_path / "rows.csv", index=False)
    arguments = ["calibrate", "--rows", tmp_path / "rows.csv", "--out", tmp_path / "mine", "--quiet"]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    factors = CostModel.load(tmp_path / "mine").models_["cpu", "step_time_s"].calibration_.devices
    assert factors["AMD EPYC (2 cores)"] == pytest.approx(np.log(3), abs=0.6)


def test_invalid_rows_and_devices_are_rejected(rows):
    with pytest.raises(InputError, match="no finished measurement"):
        calibrate_device(CostModel.load(), rows.assign(status="timeout"))
    with pytest.raises(InputError, match="Did you mean"):
        calibrate_device(CostModel.load(), rows, "H2000")
    with pytest.raises(InputError, match="device"):
        micro_benchmark("tpu")
