"""The processor or GPU at hand as a `Device`: what the system reports, and measured bandwidth and matrix products."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpudemand._validation import InputError, check_choice
from gpudemand.cost.devices import device
from gpudemand.cost.hardware import Device
from gpudemand.cost.measuring.environment import cpu_model, machine_memory_gib

_CPU, _INFO = Path("/sys/devices/system/cpu/cpu0"), Path("/proc/cpuinfo")
_MIB, _GIB = 2.0**20, 2.0**30
#: Repetitions of a measurement, the fastest of which counts: others wait for other processes.
_REPEATS = 7
#: Elements of a vector that no cache holds, and rows of a square matrix.
_VECTOR, _MATRIX = {"cpu": 2**26, "cuda": 2**28}, {"cpu": 2048, "cuda": 8192}


def device_name(kind: str = "cpu") -> str:
    """Name of the processor or of the first GPU of this machine.

    Parameters
    ----------
    kind : {"cpu", "cuda"}

    Raises
    ------
    InputError
        If PyTorch finds no GPU.
    """
    if check_choice("on", kind, tuple(_VECTOR)) == "cpu":
        return cpu_model()
    import torch

    if not torch.cuda.is_available():
        raise InputError("PyTorch finds no GPU on this machine; measure on 'cpu'.")
    return torch.cuda.get_device_name(0)


def find_or_measure(kind: str = "cpu") -> tuple[Device, bool]:
    """The device of this machine: that of the table or a saved one, else a measured one.

    Parameters
    ----------
    kind : {"cpu", "cuda"}

    Returns
    -------
    device : Device
    measured : bool
        Whether it was measured now, and is worth saving.
    """
    try:
        return device(device_name(kind)), False
    except InputError:
        return measure_device(kind), True


def measure_device(kind: str = "cpu") -> Device:
    """Describe the processor or the first GPU of this machine, in a few seconds.

    Memory, cores, clock and cache are what the system reports; bandwidth is that of a copy, and peaks are those of
    products of large matrices, somewhat below the figures of a datasheet.

    Parameters
    ----------
    kind : {"cpu", "cuda"}, default="cpu"

    Returns
    -------
    Device
        Pass it as `TrainingJob.device`, or keep it with `gpudemand.cost.devices.save_device`.

    Raises
    ------
    InputError
        If PyTorch is not installed, or finds no GPU.
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
    for _ in range(_REPEATS + 1):
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
