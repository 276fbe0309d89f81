"""What is measured, on what machine, and how: configurations, environment, peaks, rows."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

import numpy as np

from benchmarks.measure.networks import Networks
from gpudemand._files import lock
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.cost.calibrate import cpu_model
from gpudemand.cost.job import check_keras
from gpudemand.units import GIB

CHOICES: dict[str, tuple[str, ...]] = {
    "framework": ("torch", "keras"),
    "optimizer": ("sgd", "momentum", "adam", "adamw"),
    "precision": ("fp32", "tf32", "bf16"),
    "layout": ("contiguous", "channels_last"),
    "execution": ("eager", "compiled"),
    "device": ("cpu", "cuda"),
}
#: Smallest value of each integer.
MINIMUM = {"input_size": 1, "channels": 0, "n_classes": 1, "vocabulary": 0, "batch_size": 1, "threads": 0, "repeat": 0}


@dataclass(frozen=True)
class Configuration:
    """One row of a plan of measurements.

    `framework`: {"torch", "keras"}. `input_size`: pixels a side, or tokens. `channels`: 0 for tokens. `vocabulary`:
    distinct tokens; 0 for images. `width`, `depth`: factors on the channels, and on the blocks of a stage. `optimizer`:
    {"sgd", "momentum", "adam", "adamw"}; ``momentum`` is SGD with momentum 0.9. `precision`: {"fp32", "tf32", "bf16"};
    ``tf32`` exists on CUDA only; ``bf16`` is mixed precision. `layout`: {"contiguous", "channels_last"}; memory order
    of images; Keras has the second only. `execution`: {"eager", "compiled"}; ``compiled`` is ``torch.compile``, or the
    graph of ``keras.Model.fit``; Keras is always compiled. `device`: {"cpu", "cuda"}. `threads`: of an operator on the
    CPU; 0 is the default of the framework. `repeat`: configurations that differ only in it are the same job. `seed`: of
    weights and data.
    """

    framework: str
    network: str
    input_size: int = 32
    channels: int = 3
    n_classes: int = 10
    vocabulary: int = 0
    width: float = 1.0
    depth: float = 1.0
    batch_size: int = 32
    optimizer: str = "sgd"
    precision: str = "fp32"
    layout: str = "contiguous"
    execution: str = "eager"
    device: str = "cpu"
    threads: int = 0
    repeat: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, options in CHOICES.items():
            check_choice(name, getattr(self, name), options)
        for name, low in MINIMUM.items():
            check_number(name, getattr(self, name), low, integer=True)
        for name in ("width", "depth"):
            check_number(name, getattr(self, name), 0, open_low=True)
        check_keras(self.framework, self.layout, self.execution)
        if self.precision == "tf32" and self.device == "cpu":
            raise InputError("precision='tf32' exists on device='cuda' only; choose 'fp32' or 'bf16'.")

    @property
    def input_shape(self) -> tuple[int, ...]:
        """``(channels, height, width)``, or ``(length,)``."""
        return (self.channels, self.input_size, self.input_size) if self.channels else (self.input_size,)

    def check_network(self, networks: Networks) -> None:
        """Refuse a network that `networks` lacks, or that takes another input."""
        kind = networks.kind(check_choice("network", self.network, networks.names()))
        tokens = kind == "tokens"
        if tokens != (self.channels == 0) or tokens != (self.vocabulary > 0):
            expected = "no channels and a vocabulary" if tokens else "channels and no vocabulary"
            raise InputError(
                f"{self.network} takes {kind}, which needs {expected}; "
                f"got {self.channels} channels, a vocabulary of {self.vocabulary}."
            )

    def build(self, networks: Networks) -> Any:
        """Build the network, untrained."""
        return networks.build(
            self.network,
            self.framework,
            self.input_shape,
            self.n_classes,
            width=self.width,
            depth=self.depth,
            vocabulary=max(self.vocabulary, 1),
        )

    @property
    def key(self) -> str:
        """Hash of the configuration, sixteen hexadecimal digits."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


#: Columns of a plan.
PLAN_COLUMNS = tuple(field.name for field in fields(Configuration))


def configuration_from_row(row: Mapping[str, Any]) -> Configuration:
    """Parse a configuration; missing columns take their defaults, others are ignored.

    >>> configuration_from_row({"framework": "torch", "network": "lenet", "batch_size": "8"}).batch_size
    8
    """
    missing = {"framework", "network"} - set(row)
    if missing:
        raise InputError(f"a configuration needs {', '.join(sorted(missing))}; it has {', '.join(map(str, row))}.")
    types = {"str": str, "int": _integer, "float": float}
    known = [field for field in fields(Configuration) if field.name in row]
    return Configuration(**{field.name: _parse(types[str(field.type)], field.name, row[field.name]) for field in known})


def _parse(kind: Any, name: str, value: Any) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name}={value!r} cannot be read; it must be a number.") from error


def _integer(value: Any) -> int:
    number = float(value)
    if number != int(number):
        raise ValueError(value)
    return int(number)


def installed_version(package: str) -> str:
    """Version of an installed distribution, or ``unknown``."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def machine_memory_gib() -> float:
    """Memory of the machine; NaN where the system does not report it."""
    if sys.platform == "win32":
        return float("nan")
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    except (OSError, ValueError):
        return float("nan")


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
    cores: int = field(default_factory=lambda: os.cpu_count() or 0)
    gpudemand_version: str = field(default_factory=lambda: installed_version("gpudemand"))
    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())


ENVIRONMENT_COLUMNS = tuple(column.name for column in fields(Environment))


_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
#: Most and fewest timed steps of a measurement.
MAX_STEPS, MIN_STEPS = 200, 3


@dataclass(frozen=True)
class Sampling:
    """Duration of a measurement.

    At least `steps` timed steps after `warmup` untimed ones, until they add up to `min_time_s` (or to 200 steps); three
    suffice if they add up to `max_time_s`.
    """

    steps: int = 8
    warmup: int = 2
    min_time_s: float = 0.5
    max_time_s: float = 15.0


@dataclass(frozen=True)
class Peaks:
    """Memory peaks reported by a framework, in GiB; NaN where unknown.

    `allocated_gib`: peak of the framework's allocator: on CUDA in all, on a CPU beyond what was held before the first
    step. `reserved_gib`: peak of the memory that the allocator held of the device. `device_gib`: memory that the
    whole process held of the device. `device_gib_source`: ``nvml``, or ``mem_get_info`` (without the context, and
    only valid if no other process used the device).
    """

    allocated_gib: float = math.nan
    reserved_gib: float = math.nan
    device_gib: float = math.nan
    device_gib_source: str = ""


class Session(Protocol):
    """A model, its optimizer and a batch of synthetic data, ready to train."""

    #: Trainable parameters, and GiB of all parameters and buffers.
    parameters: int
    model_gib: float

    def timed_step(self) -> float:
        """Train one step, synchronise, and return its seconds."""
        ...

    def peaks(self) -> Peaks:
        """Return the memory peaks; called once, after the last timed step."""
        ...

    def environment(self) -> Environment:
        """Return hardware and software of the session."""
        ...


def measure(session: Session, sampling: Sampling, *, on_device: bool) -> dict[str, object]:
    """Train a new session; return the measured columns of a row, with ``memory_gib`` of the GPU if `on_device`."""
    baseline = reset_peak_resident()
    first = session.timed_step()
    for _ in range(sampling.warmup - 1):
        session.timed_step()
    times = _timed_steps(session, sampling)
    resident = (_status_gib("VmHWM") - baseline) if baseline > 0 else math.nan
    peaks = session.peaks()
    device = peaks.reserved_gib if math.isnan(peaks.device_gib) else peaks.device_gib
    low, median, high = map(float, np.quantile(times, [0.1, 0.5, 0.9]))
    return {
        "step_time_s": median,
        "step_time_p10_s": low,
        "step_time_p90_s": high,
        "n_steps": len(times),
        "first_step_s": first,
        "memory_gib": device if on_device else resident,
        "resident_gib": resident,
        "baseline_gib": baseline,
        **asdict(peaks),
        "model_gib": session.model_gib,
        "parameters": session.parameters,
        **asdict(session.environment()),
    }


def _timed_steps(session: Session, sampling: Sampling) -> list[float]:
    times: list[float] = []
    while not _is_enough(len(times), sum(times), sampling):
        times.append(session.timed_step())
    return times


def _is_enough(n: int, total: float, sampling: Sampling) -> bool:
    if n >= sampling.steps:
        return total >= sampling.min_time_s or n >= MAX_STEPS
    return n >= MIN_STEPS and total >= sampling.max_time_s


def reset_peak_resident() -> float:
    """Reset the peak of resident memory (VmHWM) and return the GiB resident now; NaN on other systems than Linux."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return math.nan
    return _status_gib("VmRSS")


def _status_gib(field: str) -> float:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / GIB
    return math.nan


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


def parse_rows(content: bytes, name: str) -> list[list[str]]:
    """Return the header and the rows of a CSV file, each row with as many fields as the header and on one line."""
    rows: list[list[str]] = []
    try:
        for fields in filter(None, csv.reader(io.StringIO(content.decode(), newline=""), strict=True)):
            rows.append(fields)
            if len(fields) != len(rows[0]):
                raise ValueError(f"it has {len(fields)} fields instead of {len(rows[0])}")
            if any(set(field) & set("\r\n") for field in fields):
                raise ValueError("a quotation mark is not closed on its line")
    except (ValueError, csv.Error) as error:
        place = f"row {max(len(rows) - 1, 1)} of {name}"
        raise InputError(f"{place} is damaged ({error}); remove it, or choose another file.") from error
    return rows


class RowFile:
    """Append rows to a CSV file, each synced to disk.

    Opening creates the file, or locks one of the same columns against other writers where the system can, and truncates
    an incomplete last line. Any other file is refused with `InputError`, before it is opened for writing.
    """

    def __init__(self, path: str | os.PathLike[str], columns: Sequence[str]) -> None:
        self.path = Path(path)
        self.columns = list(columns)

    def __enter__(self) -> RowFile:
        if self.path.exists():
            self._check(self.path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = self.path.open("a+b", buffering=0)
        try:
            if not lock(self._file.fileno()):
                message = f"another process is writing {self.path.name}; wait for it or choose another file."
                raise InputError(message)
            self._truncate_incomplete_line()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one row; missing columns stay empty, and line breaks become spaces."""
        values = [row.get(name) for name in self.columns]
        self._write(["" if value is None else " ".join(str(value).splitlines()) for value in values])

    def read(self) -> list[dict[str, str]]:
        """Return the rows as text."""
        self._file.seek(0)
        rows = parse_rows(self._file.read(), self.path.name)[1:]
        return [dict(zip(self.columns, row, strict=True)) for row in rows]

    def _check(self, path: Path) -> None:
        """Refuse what is no file of these columns; one that was interrupted in its first line has a part of them."""
        if not path.is_file():
            raise InputError(f"{path.name} is no file; choose another name.")
        header = self._line(self.columns)
        with path.open("rb") as file:
            first = file.readline(2 * len(header)).replace(b"\r\n", b"\n")
            if not header.startswith(first):
                raise InputError(f"{path.name} has other columns than this version writes; choose another file.")
            content = first + file.read()
        parse_rows(content[: content.rfind(b"\n") + 1], path.name)

    def _truncate_incomplete_line(self) -> None:
        self._file.seek(0)
        complete = self._file.read().rfind(b"\n") + 1
        self._file.truncate(complete)
        if not complete:
            self._write(self.columns)

    @staticmethod
    def _line(values: Sequence[Any]) -> bytes:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(values)
        return line.getvalue().encode()

    def _write(self, values: Sequence[Any]) -> None:
        """Append a line, whole or not at all; a kill leaves at most this line incomplete."""
        end, line = self._file.seek(0, os.SEEK_END), self._line(values)
        try:
            while line:  # a full disk takes a part
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except BaseException:
            self._file.truncate(end)
            raise
