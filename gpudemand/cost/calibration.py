"""Calibration of a cost model to a device with a few small jobs, measured now or before."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
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
#: Each job is measured so often; a median spread (largest over smallest, less 1) above the limit is a noisy machine.
_REPEATS, _MAX_SPREAD = 2, 0.25
#: What the repetitions of a job share.
_JOB = (
    "framework",
    "network",
    "input_size",
    "batch_size",
    "optimizer",
    "precision",
    "layout",
    "execution",
    "device_name",
)


def micro_benchmark(device: str = "cpu") -> pd.DataFrame:
    """Measure four small networks on this machine twice, in about twenty seconds.

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
    jobs = [{**about, "network": name, "input_size": size} for name, size in _JOBS.items()]
    plan = pd.DataFrame([{**job, "repeat": repeat} for repeat in range(_REPEATS) for job in jobs])
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
        A row a job, repetitions by their median: ``job``, ``device``, ``measured_s``, ``before_s``, and ``after_s``, as
        predicted after a calibration without the jobs of its network; NaN where there is no other network.

    Raises
    ------
    InputError
        If no measurement finished, a device is not known, or repetitions differ by so much that other processes must
        have slowed some down.
    """
    sound = rows[(rows["status"] == "ok").to_numpy(dtype=bool)]
    if sound.empty:
        raise InputError("rows holds no finished measurement; nothing to calibrate on.")
    if device is not None:
        sound = sound.assign(device_name=device)
    check_noise(sound)
    sound = _medians(sound)
    jobs = measured_jobs(sound, trace_graphs(sound))
    before, measured = _times(model, jobs), sound["step_time_s"].to_numpy(dtype=float)
    after = _left_out(model, jobs, measured, sound["network"].to_numpy(dtype=object))
    model.calibrate(jobs, measured)
    names = [f"{row['network']}, batch {row['batch_size']}" for row in sound.to_dict("records")]
    times = {"measured_s": measured, "before_s": before, "after_s": after}
    return pd.DataFrame({"job": names, "device": [job.hardware.name for job in jobs], **times})


def check_noise(rows: pd.DataFrame) -> None:
    """Refuse measurements whose repetitions differ by more than a quarter at the median.

    Parameters
    ----------
    rows : DataFrame
        Finished rows of `measure_training_cost`.

    Raises
    ------
    InputError
        If they do.
    """
    cells = rows.groupby(list(_JOB), dropna=False)["step_time_s"].agg(["min", "max", "size"])
    repeated = cells[cells["size"] > 1]
    spread = float((repeated["max"] / repeated["min"] - 1).median()) if len(repeated) else 0.0
    if spread > _MAX_SPREAD:
        raise InputError(
            f"repetitions of one job differ by {100 * spread:.0f} % at the median: other work runs on this machine; "
            "calibrate again when it is idle."
        )


def _medians(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a job, the median of its repetitions."""
    median = rows.groupby(list(_JOB), dropna=False)["step_time_s"].transform("median")
    return rows.assign(step_time_s=median).drop_duplicates(list(_JOB)).reset_index(drop=True)


def _left_out(model: CostModel, jobs: list[TrainingJob], measured: FloatArray, networks: Any) -> FloatArray:
    """Times predicted after a calibration on the jobs of all other networks."""
    times = np.full(len(jobs), np.nan)
    for network in dict.fromkeys(networks):
        others = np.flatnonzero(networks != network)
        if len(others):
            part, held_out = copy.deepcopy(model), np.flatnonzero(networks == network)
            part.calibrate([jobs[i] for i in others], measured[others])
            times[held_out] = _times(part, [jobs[i] for i in held_out])
    return times


def format_calibration(table: pd.DataFrame) -> str:
    """Format the table of `calibrate_device` for a terminal; ``after`` is about jobs left out of the calibration."""
    times = {
        name.removesuffix("_s"): ["-" if np.isnan(value) else format_seconds(value) for value in table[name]]
        for name in ("measured_s", "before_s", "after_s")
    }
    error = {when: float((table[f"{when}_s"] / table["measured_s"] - 1).abs().median()) for when in ("before", "after")}
    device = ", ".join(table["device"].unique())
    after = "" if np.isnan(error["after"]) else f", {100 * error['after']:.0f} % after on jobs left out"
    head = f"{device}: median error {100 * error['before']:.0f} % before{after}"
    return "\n".join([head, "", aligned(pd.DataFrame({"": table["job"], **times}))])


def _times(model: CostModel, jobs: list[TrainingJob]) -> FloatArray:
    return model.predict(jobs)["step_time_s"].to_numpy(dtype=float)
