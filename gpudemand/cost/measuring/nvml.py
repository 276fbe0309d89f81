"""What the NVIDIA management library tells about a GPU; nothing where its Python package is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpudemand.cost.measuring.environment import GIB


@contextmanager
def _library() -> Iterator[Any]:
    """The library, opened and closed; None where it is absent (install ``nvidia-ml-py``)."""
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
    """GiB of a device that a process holds; None where it cannot be told (in a container, its number is another)."""
    with _library() as nvml:
        if nvml is None:
            return None
        handle = nvml.nvmlDeviceGetHandleByIndex(device)
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
            if process.pid == pid and process.usedGpuMemory:
                return float(process.usedGpuMemory) / GIB
    return None


def driver_version() -> str:
    """Version of the GPU driver, or ``unknown``."""
    with _library() as nvml:
        return _text(nvml.nvmlSystemGetDriverVersion()) if nvml else "unknown"


def name_and_memory_gib(device: int) -> tuple[str, float]:
    """Product name and memory of a GPU; ``unknown`` and NaN where they cannot be told."""
    with _library() as nvml:
        if nvml is None:
            return "unknown", float("nan")
        handle = nvml.nvmlDeviceGetHandleByIndex(device)
        return _text(nvml.nvmlDeviceGetName(handle)), nvml.nvmlDeviceGetMemoryInfo(handle).total / GIB


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
