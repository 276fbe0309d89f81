"""Calibration of a cost model to a device with a few small jobs, measured now or before."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd

from gpudemand._printing import aligned
from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.measuring.measure import measure_training_cost
from gpudemand.cost.model import CostModel
from gpudemand.cost.model_inputs import measured_jobs
from gpudemand.cost.regression.feature_table import trace_graphs
from gpudemand.units import format_seconds

#: Networks of the micro-benchmark and their input sizes: four kinds of kernels, some hundred milliseconds each.
_JOBS = {"resnet18": 64, "mobilenet_v2": 64, "vgg11": 64, "vit_tiny": 64}
_BATCH = {"cpu": 8, "cuda": 128}


def micro_benchmark(device: str = "cpu") -> pd.DataFrame:
    """Measure four small networks on this machine, in about ten seconds.

    Parameters
    ----------
    device : {"cpu", "cuda"}
        Where to train.

    Returns
    -------
    DataFrame
        Rows as `measure_training_cost` returns them.

    Raises
    ------
    InputError
        If PyTorch cannot train there.
    """
    batch = _BATCH[check_choice("device", device, tuple(_BATCH))]
    about = {"framework": "torch", "batch_size": batch, "device": device}
    plan = pd.DataFrame([{**about, "network": name, "input_size": size} for name, size in _JOBS.items()])
    with tempfile.TemporaryDirectory() as folder:
        rows = measure_training_cost(plan, Path(folder) / "rows.csv", process="shared", min_time_s=0.3)
    sound = rows[(rows["status"] == "ok").to_numpy(dtype=bool)]
    if sound.empty:
        raise InputError(f"no job ran on {device!r}: {rows['message'].iloc[0]}")
    return sound


def calibrate_device(model: CostModel, rows: pd.DataFrame, device: str | None = None) -> pd.DataFrame:
    """Calibrate a cost model on measured rows; return predictions before and after.

    Parameters
    ----------
    model : CostModel
        Changed in place; see `CostModel.calibrate`.
    rows : DataFrame
        Of `micro_benchmark` or `measure_training_cost`: networks of the zoo.
    device : str, optional
        Name of the measured device in the table of devices; by default that in the rows.

    Returns
    -------
    DataFrame
        A row a job: ``job``, ``device``, ``measured_s``, ``before_s``, ``after_s``.

    Raises
    ------
    InputError
        If no measurement finished, or a device is not known.
    """
    sound = rows[(rows["status"] == "ok").to_numpy(dtype=bool)]
    if sound.empty:
        raise InputError("rows holds no finished measurement; nothing to calibrate on.")
    if device is not None:
        sound = sound.assign(device_name=device)
    jobs = measured_jobs(sound, trace_graphs(sound))
    before, measured = _times(model, jobs), sound["step_time_s"].to_numpy(dtype=float)
    model.calibrate(jobs, measured)
    names = [f"{row['network']}, batch {row['batch_size']}" for row in sound.to_dict("records")]
    times = {"measured_s": measured, "before_s": before, "after_s": _times(model, jobs)}
    return pd.DataFrame({"job": names, "device": [job.hardware.name for job in jobs], **times})


def format_calibration(table: pd.DataFrame) -> str:
    """Format the table of `calibrate_device` for a terminal."""
    times = {
        name.removesuffix("_s"): [format_seconds(value) for value in table[name]]
        for name in ("measured_s", "before_s", "after_s")
    }
    error = {when: float((table[f"{when}_s"] / table["measured_s"] - 1).abs().median()) for when in ("before", "after")}
    device = ", ".join(table["device"].unique())
    head = f"{device}: median error {100 * error['before']:.0f} % before, {100 * error['after']:.0f} % after"
    return "\n".join([head, "", aligned(pd.DataFrame({"": table["job"], **times}))])


def _times(model: CostModel, jobs: list[TrainingJob]) -> FloatArray:
    return model.predict(jobs)["step_time_s"].to_numpy(dtype=float)
