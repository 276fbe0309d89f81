"""Calibration of a predictor and of a device by measurements on the machine at hand."""

from __future__ import annotations

import copy
import math
import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray
from gpudemand._tables import aligned
from gpudemand._validation import InputError, check_choice
from gpudemand.cost.feature_table import trace_graphs
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.measure import measure_training_cost
from gpudemand.cost.meter import cpu_model, machine_memory_gib
from gpudemand.cost.model import CostModel, measured_jobs
from gpudemand.cost.networks import BUILT_IN
from gpudemand.datasets.devices import Device, device
from gpudemand.units import format_seconds

#: Networks of the micro-benchmark and their input sizes: four kinds of kernels, some hundred milliseconds each.
_JOBS = {"resnet18": 64, "mobilenet_v2": 64, "vgg11": 64, "vit_tiny": 64}
_BATCH = {"cpu": 8, "cuda": 128}
#: Each job is measured so often; a median spread (largest over smallest, less 1) above the limit is a noisy machine.
_CALIBRATION_REPEATS, _MAX_SPREAD = 2, 0.25
#: What the repetitions of a job share.
_JOB = [
    *("framework", "network", "input_size", "batch_size", "optimizer", "precision"),
    *("layout", "execution", "device_name"),
]


def micro_benchmark(device: str = "cpu") -> pd.DataFrame:
    """Measure four small networks on this machine (``cpu`` or ``cuda``) twice, in about twenty seconds."""
    batch = _BATCH[check_choice("device", device, tuple(_BATCH))]
    about = {"framework": "torch", "batch_size": batch, "device": device}
    jobs = [{**about, "network": name, "input_size": size} for name, size in _JOBS.items()]
    plan = pd.DataFrame([{**job, "repeat": repeat} for repeat in range(_CALIBRATION_REPEATS) for job in jobs])
    with tempfile.TemporaryDirectory() as folder:
        rows = measure_training_cost(plan, Path(folder) / "rows.csv", process="shared", min_time_s=0.3)
    sound = rows[(rows["status"] == "ok").to_numpy(dtype=bool)]
    if sound.empty:
        raise InputError(f"no job ran on {device!r}: {rows['message'].iloc[0]}")
    return sound


def calibrate_device(
    model: CostModel, rows: pd.DataFrame, device: str | None = None, networks: str = BUILT_IN
) -> pd.DataFrame:
    """Calibrate a cost model, in place, on measured rows; return predictions before and after.

    `device`: name in the table of devices, by default that in the rows. Returns a row a job, repetitions by their
    median; ``after_s`` is as predicted after a calibration without the jobs of its network, NaN without other networks.
    """
    sound = rows[(rows["status"] == "ok").to_numpy(dtype=bool)]
    if sound.empty:
        raise InputError("rows holds no finished measurement; nothing to calibrate on.")
    if device is not None:
        sound = sound.assign(device_name=device)
    check_noise(sound)
    sound = _medians(sound)
    jobs = measured_jobs(sound, trace_graphs(sound, networks=networks))
    before, measured = _times(model, jobs), sound["step_time_s"].to_numpy(dtype=float)
    after = _left_out(model, jobs, measured, sound["network"].to_numpy(dtype=object))
    model.calibrate(jobs, measured)
    names = [f"{row['network']}, batch {row['batch_size']}" for row in sound.to_dict("records")]
    times = {"measured_s": measured, "before_s": before, "after_s": after}
    return pd.DataFrame({"job": names, "device": [job.hardware.name for job in jobs], **times})


def check_noise(rows: pd.DataFrame) -> None:
    """Refuse measurements whose repetitions differ by more than a quarter at the median."""
    cells = rows.groupby(_JOB, dropna=False)["step_time_s"].agg(["min", "max", "size"])
    repeated = cells[cells["size"] > 1]
    spread = float((repeated["max"] / repeated["min"] - 1).median()) if len(repeated) else 0.0
    if spread > _MAX_SPREAD:
        raise InputError(
            f"repetitions of one job differ by {100 * spread:.0f} % at the median: other work runs on this machine; "
            "calibrate again when it is idle."
        )


def _medians(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a job, the median of its repetitions."""
    median = rows.groupby(_JOB, dropna=False)["step_time_s"].transform("median")
    return rows.assign(step_time_s=median).drop_duplicates(_JOB).reset_index(drop=True)


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


_CPU, _INFO = Path("/sys/devices/system/cpu/cpu0"), Path("/proc/cpuinfo")
_MIB, _GIB = 2.0**20, 2.0**30
#: Repetitions of a measurement, the fastest of which counts: others wait for other processes.
_MACHINE_REPEATS = 7
#: Elements of a vector that no cache holds, and rows of a square matrix.
_VECTOR, _MATRIX = {"cpu": 2**26, "cuda": 2**28}, {"cpu": 2048, "cuda": 8192}


def device_name(kind: str = "cpu") -> str:
    """Name of the processor (``cpu``) or of the first GPU (``cuda``) of this machine."""
    if check_choice("on", kind, tuple(_VECTOR)) == "cpu":
        return cpu_model()
    import torch

    if not torch.cuda.is_available():
        raise InputError("PyTorch finds no GPU on this machine; measure on 'cpu'.")
    return torch.cuda.get_device_name(0)


def find_or_measure(kind: str = "cpu") -> tuple[Device, bool]:
    """The device of this machine from the table or a saved one, else a measured one; and whether it is measured now."""
    try:
        return device(device_name(kind)), False
    except InputError:
        return measure_device(kind), True


def measure_device(kind: str = "cpu") -> Device:
    """Describe the processor or the first GPU of this machine, in a few seconds.

    Memory, cores, clock and cache are what the system reports; bandwidth is that of a copy, and peaks are those of
    products of large matrices, somewhat below the figures of a datasheet.
    """
    own = device_name(kind)
    try:
        import torch
    except ImportError as error:
        raise InputError("PyTorch is not installed; install it with pip install 'gpudemand[torch]'.") from error
    reported = _processor() if kind == "cpu" else _gpu(torch.cuda.get_device_properties(0))
    year, source = float(datetime.now(UTC).year), "measured"
    return Device(own, **_speeds(torch, kind), **reported, die=own, year=year, source=source)


def _speeds(torch: Any, kind: str) -> dict[str, Any]:
    """Measured bandwidth and peaks; half precision only where it is faster than single."""
    single = _product_tflops(torch, kind, "float32")
    half = {name: _product_tflops(torch, kind, name) for name in ("bfloat16", *(["float16"] if kind == "cuda" else []))}
    peaks = {"bfloat16": "bf16_tensor_tflops", "float16": "fp16_tensor_tflops"}
    faster = {peaks[name]: speed for name, speed in half.items() if speed > single}
    return {"bandwidth_gb_s": _copy_gb_s(torch, kind), "fp32_tflops": single, **faster}


def _copy_gb_s(torch: Any, kind: str) -> float:
    source = torch.ones(_VECTOR[kind], device=kind)
    target = torch.empty_like(source)
    return 2.0 * source.numel() * 4.0 / _fastest(torch, kind, lambda: target.copy_(source)) / 1e9


def _product_tflops(torch: Any, kind: str, dtype: str) -> float:
    rows = _MATRIX[kind]
    matrix = torch.ones(rows, rows, device=kind, dtype=getattr(torch, dtype))
    return 2.0 * rows**3 / _fastest(torch, kind, lambda: matrix @ matrix) / 1e12


def _fastest(torch: Any, kind: str, work: Callable[[], Any]) -> float:
    """Seconds of the fastest of several runs, after one that is not timed."""
    times = []
    for _ in range(_MACHINE_REPEATS + 1):
        start = time.perf_counter()
        work()
        if kind == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def _processor() -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory, cache = machine_memory_gib(), _number(_CPU / "cache/index3/size") / 1024
    about = {"kind": "cpu", "interconnect": "none", "memory_gib": memory, "usable_gib": memory}
    return {**about, "sms": float(cores), "boost_clock_mhz": _clock_mhz(), "l2_mib": cache}


def _clock_mhz() -> float:
    """Highest clock of the first core; in a virtual machine, which hides it, the clock at hand."""
    highest = _number(_CPU / "cpufreq/cpuinfo_max_freq") / 1e3
    lines = _INFO.read_text().splitlines() if math.isnan(highest) and _INFO.is_file() else []
    now = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return now[0] if now else highest


def _gpu(properties: Any) -> dict[str, Any]:
    memory = properties.total_memory / _GIB
    cache = getattr(properties, "L2_cache_size", math.nan) / _MIB
    clock = getattr(properties, "clock_rate", math.nan) / 1e3
    version = f"{properties.major}.{properties.minor}"
    about = {"memory_gib": memory, "usable_gib": memory, "compute_capability": version}
    return {**about, "sms": float(properties.multi_processor_count), "boost_clock_mhz": clock, "l2_mib": cache}


def _number(file: Path) -> float:
    """Number that a file of the system holds, without its unit; NaN where there is none."""
    try:
        return float(file.read_text().strip().rstrip("KM"))
    except (OSError, ValueError):
        return math.nan
