"""What a measurement was made on: device, driver, versions. No name of the machine, no path."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

GIB = 2**30


@dataclass(frozen=True)
class Stamp:
    """The circumstances of one row.

    Parameters
    ----------
    device_name : str
        The GPU's product name, or the model of the processor.
    device_memory_gib : float
        Memory of the device (of the machine, for a CPU).
    driver : str
        Version of the GPU driver; empty on a CPU.
    framework_version : str
        ``torch 2.6.0``.
    backend : str
        What Keras runs on, with version, or PyTorch's CUDA; empty where there is none.
    n_threads : int
        Threads that an operator used on the CPU.
    """

    device_name: str
    device_memory_gib: float
    driver: str
    framework_version: str
    backend: str
    n_threads: int

    def row(self) -> dict[str, object]:
        """Return the columns of `STAMP_COLUMNS`, with what the machine itself tells."""
        return {**asdict(self), **_machine()}


def _machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "os": platform.system(),
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 0,
        "gpudemand_version": installed_version("gpudemand"),
        "date": datetime.now(UTC).date().isoformat(),
    }


STAMP_COLUMNS = (
    *(field.name for field in fields(Stamp)),
    "python",
    "os",
    "cpu",
    "cores",
    "gpudemand_version",
    "date",
)


def installed_version(package: str) -> str:
    """Version of an installed package; ``unknown`` when it runs from a checkout that was not installed.

    Parameters
    ----------
    package : str
        Its distribution name.

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
    """Model of the processor as the system names it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def machine_memory_gib() -> float:
    """Memory of the machine; NaN where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    except (AttributeError, OSError, ValueError):
        return float("nan")
