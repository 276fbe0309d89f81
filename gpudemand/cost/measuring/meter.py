"""Time the steps of a training session and watch the process's memory meanwhile."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from gpudemand.cost.measuring.environment import GIB, Stamp

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
#: A tiny network takes thousands of steps to fill the least time; more than this many tell nothing new.
MAX_STEPS = 200
#: A median of fewer is none.
LEAST_STEPS = 3


@dataclass(frozen=True)
class Sampling:
    """How long to measure one configuration.

    Parameters
    ----------
    steps : int, default=8
        Timed steps at least.
    warmup : int, default=2
        Steps dropped before; the first of them is reported by itself.
    min_time_s : float, default=0.5
        Timed steps go on until they add up to this (or to 200 steps).
    max_time_s : float, default=15
        Three timed steps are enough if they add up to this.
    """

    steps: int = 8
    warmup: int = 2
    min_time_s: float = 0.5
    max_time_s: float = 15.0


@dataclass(frozen=True)
class Peaks:
    """Memory peaks that a framework knows, in GiB; NaN where it does not.

    Parameters
    ----------
    allocated_gib : float
        Most that was handed out by the framework's allocator: on CUDA in all, on a CPU beyond what was held before
        the first step.
    reserved_gib : float
        Most that the allocator held of the device.
    device_gib : float
        What the whole process held of the device.
    device_gib_source : str
        ``nvml``, or ``mem_get_info`` (without the context, and only right if no other process used the device).
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
        """Train one step to its very end; return its seconds."""
        ...

    def peaks(self) -> Peaks:
        """Tell the framework's own memory peaks; called once, after the last timed step."""
        ...

    def stamp(self) -> Stamp:
        """Tell what it runs on."""
        ...


def measure(session: Session, sampling: Sampling, *, on_device: bool) -> dict[str, object]:
    """Train a session and report seconds and GiB.

    Parameters
    ----------
    session : Session
        What to train; its first step is still to come.
    sampling : Sampling
        How many steps.
    on_device : bool
        Whether the job's memory is that of a GPU rather than of the process.

    Returns
    -------
    dict
        The measured columns of a row.
    """
    baseline = reset_high_water()
    first = session.timed_step()
    for _ in range(sampling.warmup - 1):
        session.timed_step()
    times = _timed_steps(session, sampling)
    resident = (_status_gib("VmHWM") - baseline) if baseline > 0 else math.nan
    peaks = session.peaks()
    return {
        **_summary(times),
        "first_step_s": first,
        "memory_gib": _device_memory(peaks) if on_device else resident,
        "resident_gib": resident,
        "baseline_gib": baseline,
        **asdict(peaks),
        "model_gib": session.model_gib,
        "parameters": session.parameters,
        **session.stamp().row(),
    }


def _timed_steps(session: Session, sampling: Sampling) -> list[float]:
    times: list[float] = []
    while not _is_enough(times, sampling):
        times.append(session.timed_step())
    return times


def _is_enough(times: list[float], sampling: Sampling) -> bool:
    n, total = len(times), sum(times)
    if n >= sampling.steps:
        return total >= sampling.min_time_s or n >= MAX_STEPS
    return n >= LEAST_STEPS and total >= sampling.max_time_s


def _summary(times: list[float]) -> dict[str, object]:
    low, middle, high = np.quantile(times, [0.1, 0.5, 0.9])
    return {
        "step_time_s": float(middle),
        "step_time_p10_s": float(low),
        "step_time_p90_s": float(high),
        "n_steps": len(times),
    }


def _device_memory(peaks: Peaks) -> float:
    return peaks.reserved_gib if math.isnan(peaks.device_gib) else peaks.device_gib


def reset_high_water() -> float:
    """Let the high-water mark of resident memory start again from now, and return the GiB resident; NaN off Linux."""
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
