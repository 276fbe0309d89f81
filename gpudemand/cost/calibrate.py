"""Calibration of a predictor and of a device by measurements on the machine at hand."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray
from gpudemand._tables import aligned
from gpudemand._validation import InputError, check_choice
from gpudemand.cost import networks
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.model import CostModel
from gpudemand.datasets.devices import Device, device
from gpudemand.units import GIB, MIB, format_seconds

#: Networks of the micro-benchmark: four kinds of kernels, some hundred milliseconds each.
_NETWORKS, _SHAPE = ("resnet18", "mobilenet_v2", "vgg11", "vit_tiny"), (3, 64, 64)
_BATCH = {"cpu": 8, "cuda": 128}
#: Each job is measured so often; a median spread (largest over smallest, less 1) above the limit is a noisy machine.
_REPEATS, _MAX_SPREAD = 2, 0.25
#: Untimed steps before a measurement, and seconds that it takes at least.
_WARM_UP, _MIN_TIME_S = 2, 0.3


def micro_benchmark(device: str, kind: str = "cpu") -> tuple[list[TrainingJob], FloatArray]:
    """Train four small networks on this machine (`kind`: ``cpu`` or ``cuda``), in about twenty seconds.

    `device`: its name in the table of devices. Returns the jobs, and seconds a step of each, measured twice: shape
    (2, n_jobs).
    """
    torch, batch = _torch(kind), _BATCH[kind]
    built = [networks.build(name, _SHAPE) for name in _NETWORKS]
    about: dict[str, Any] = {"batch_size": batch, "device": device, "framework_version": torch.__version__}
    jobs = [TrainingJob(network, _SHAPE, **about) for network in built]
    with _single_precision(torch):
        steps = [_training_step(network.to(kind), batch, kind) for network in built]
        return jobs, np.array([[_step_seconds(step) for step in steps] for _ in range(_REPEATS)])


@contextlib.contextmanager
def _single_precision(torch: Any) -> Iterator[None]:
    """Products and convolutions in fp32, as the jobs say, not in TF32."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def _training_step(network: Any, batch: int, kind: str) -> Callable[[], None]:
    """A step of SGD on random images."""
    import torch

    images, labels = torch.randn(batch, *_SHAPE, device=kind), torch.zeros(batch, dtype=torch.long, device=kind)
    optimizer = torch.optim.SGD(network.parameters(), 1e-3)

    def step() -> None:
        """Forward pass, loss, backward pass, update."""
        optimizer.zero_grad()
        loss: Any = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()

    return step


def _step_seconds(step: Callable[[], None]) -> float:
    for _ in range(_WARM_UP):
        step()
    return float(_timer(step).blocked_autorange(min_run_time=_MIN_TIME_S).median)


def calibrate_device(model: CostModel, jobs: Sequence[TrainingJob], seconds: FloatArray) -> pd.DataFrame:
    """Calibrate a cost model, in place, on jobs of different networks; return predictions before and after.

    `seconds`: of a step, shape (n_repeats, n_jobs). Returns a row a job, repetitions by their median; ``after_s`` is as
    predicted after a calibration on the other jobs, NaN without any.
    """
    _check_noise(seconds)
    measured, jobs = np.median(seconds, axis=0), list(jobs)
    before, after = _times(model, jobs), [_left_out(model, jobs, measured, place) for place in range(len(jobs))]
    model.calibrate(jobs, measured)
    names = [f"{job.graph.name}, batch {job.batch_size}" for job in jobs]
    times = {"measured_s": measured, "before_s": before, "after_s": after}
    return pd.DataFrame({"job": names, "device": [job.hardware.name for job in jobs], **times})


def _check_noise(seconds: FloatArray) -> None:
    """Refuse measurements whose repetitions differ by more than a quarter at the median."""
    spread = float(np.median(seconds.max(axis=0) / seconds.min(axis=0) - 1.0))
    if spread > _MAX_SPREAD:
        raise InputError(
            f"repetitions of one job differ by {100 * spread:.0f} % at the median: other work runs on this machine; "
            "calibrate again when it is idle."
        )


def _left_out(model: CostModel, jobs: list[TrainingJob], measured: FloatArray, place: int) -> float:
    """Time of a job predicted after a calibration on all others."""
    others = jobs[:place] + jobs[place + 1 :]
    if not others:
        return math.nan
    calibrated = copy.deepcopy(model).calibrate(others, np.delete(measured, place))
    return float(_times(calibrated, [jobs[place]])[0])


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
#: Elements of a vector that no cache holds, and rows of a square matrix.
_VECTOR, _MATRIX = {"cpu": 2**26, "cuda": 2**28}, {"cpu": 2048, "cuda": 8192}


def device_name(kind: str = "cpu") -> str:
    """Name of the processor (``cpu``) or of the first GPU (``cuda``) of this machine."""
    if check_choice("on", kind, tuple(_VECTOR)) == "cpu":
        return cpu_model()
    return str(_torch(kind).cuda.get_device_name(0))


def _torch(kind: str) -> Any:
    """PyTorch, where it is installed and finds the device."""
    check_choice("on", kind, tuple(_BATCH))
    try:
        import torch
    except ImportError as error:
        raise InputError("PyTorch is not installed; install it with pip install 'gpudemand[torch]'.") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError("PyTorch finds no GPU on this machine; measure on 'cpu'.")
    return torch


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
    own, torch = device_name(kind), _torch(kind)
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
    return 2.0 * source.numel() * 4.0 / _fastest(lambda: target.copy_(source)) / 1e9


def _product_tflops(torch: Any, kind: str, dtype: str) -> float:
    rows = _MATRIX[kind]
    matrix = torch.ones(rows, rows, device=kind, dtype=getattr(torch, dtype))
    return 2.0 * rows**3 / _fastest(lambda: matrix @ matrix) / 1e12


def _fastest(work: Callable[[], Any]) -> float:
    """Seconds of the fastest of several runs: others wait for other processes."""
    return float(min(_timer(work).blocked_autorange(min_run_time=_MIN_TIME_S).times))


def _timer(step: Callable[[], Any]) -> Any:
    """What times a step on the threads of this process, with the queue of the GPU empty before and after."""
    import torch
    from torch.utils.benchmark import Timer

    return Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads())


def cpu_model() -> str:
    """Model of the processor."""
    lines = _INFO.read_text().splitlines() if _INFO.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def _processor() -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB if hasattr(os, "sysconf") else math.nan
    cache = _number(_CPU / "cache/index3/size") / 1024
    about = {"kind": "cpu", "interconnect": "none", "memory_gib": memory, "usable_gib": memory}
    return {**about, "sms": float(cores), "boost_clock_mhz": _clock_mhz(), "l2_mib": cache}


def _clock_mhz() -> float:
    """Highest clock of the first core; in a virtual machine, which hides it, the clock at hand."""
    highest = _number(_CPU / "cpufreq/cpuinfo_max_freq") / 1e3
    lines = _INFO.read_text().splitlines() if math.isnan(highest) and _INFO.is_file() else []
    now = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return now[0] if now else highest


def _gpu(properties: Any) -> dict[str, Any]:
    memory = properties.total_memory / GIB
    cache = getattr(properties, "L2_cache_size", math.nan) / MIB
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
