"""GPU memory, names and driver by the NVIDIA management library; unknown without its package ``nvidia-ml-py``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpudemand.cost.measuring.environment import GIB


@contextmanager
def _library() -> Iterator[Any]:
    """The initialised library, or None."""
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def process_memory_gib(pid: int, device: int) -> float | None:
    """GiB of a device that a process holds; None if unknown (in a container the process has another number)."""
    with _library() as nvml:
        if nvml is None:
            return None
        processes = nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(device))
        held = [process.usedGpuMemory for process in processes if process.pid == pid and process.usedGpuMemory]
        return float(held[0]) / GIB if held else None


def driver_version() -> str:
    """Version of the GPU driver, or ``unknown``."""
    with _library() as nvml:
        return _text(nvml.nvmlSystemGetDriverVersion()) if nvml else "unknown"


def name_and_memory_gib(device: int) -> tuple[str, float]:
    """Product name and memory of a GPU, or ``unknown`` and NaN."""
    with _library() as nvml:
        if nvml is None:
            return "unknown", float("nan")
        handle = nvml.nvmlDeviceGetHandleByIndex(device)
        return _text(nvml.nvmlDeviceGetName(handle)), nvml.nvmlDeviceGetMemoryInfo(handle).total / GIB


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
