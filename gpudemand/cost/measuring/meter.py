"""Step times and memory peaks of a training session."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from gpudemand.cost.measuring.environment import GIB, Environment

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

    Parameters
    ----------
    allocated_gib : float
        Peak of the framework's allocator: on CUDA in all, on a CPU beyond what was held before the first step.
    reserved_gib : float
        Peak of the memory that the allocator held of the device.
    device_gib : float
        Memory that the whole process held of the device.
    device_gib_source : str
        ``nvml``, or ``mem_get_info`` (without the context, and only valid if no other process used the device).
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
        **session.environment().to_row(),
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
