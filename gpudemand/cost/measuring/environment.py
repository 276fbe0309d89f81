"""Device, driver and versions of a measurement; no host name and no path."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

GIB = 2**30


def installed_version(package: str) -> str:
    """Version of an installed distribution, or ``unknown``.

    Examples
    --------
    >>> installed_version("no-such-package")
    'unknown'
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def cpu_model() -> str:
    """Model of the processor."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def machine_memory_gib() -> float:
    """Memory of the machine; NaN where the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    except (AttributeError, OSError, ValueError):
        return float("nan")


def _cores() -> int:
    return os.cpu_count() or 0


@dataclass(frozen=True)
class Environment:
    """Hardware and software of a measured row, the last six fields those of the current process.

    The `driver` is empty on a CPU; `framework_version` is such as ``torch 2.6.0``; `backend` is that of Keras, or CUDA
    and cuDNN of PyTorch; `n_threads` are threads of an operator on the CPU.
    """

    device_name: str
    device_memory_gib: float
    driver: str
    framework_version: str
    backend: str
    n_threads: int
    python: str = field(default_factory=platform.python_version)
    os: str = field(default_factory=platform.system)
    cpu: str = field(default_factory=cpu_model)
    cores: int = field(default_factory=_cores)
    gpudemand_version: str = field(default_factory=lambda: installed_version("gpudemand"))
    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())

    def to_row(self) -> dict[str, object]:
        """Return the columns `ENVIRONMENT_COLUMNS`."""
        return asdict(self)


ENVIRONMENT_COLUMNS = tuple(column.name for column in fields(Environment))
