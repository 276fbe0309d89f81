"""The share of jobs that are to start in time, and the GPUs with which they do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from gpudemand import _parallel
from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_number
from gpudemand.planning.queue.futures import Future, Futures, Weeks
from gpudemand.units import format_seconds, parse_duration, plural

#: Precision of the fewest GPUs that meet a target: this share of them, or a GPU.
RESOLUTION = 0.02
#: Futures of one parallel task.
_GROUP = 10


@dataclass(frozen=True)
class WaitTarget:
    """The share of jobs that start in time.

    Parameters
    ----------
    wait_s : float
        Longest wait that is in time.
    share : float
        Share that is wanted.
    of : {"jobs", "gpu_hours"}
        Whether jobs count alike or by their GPU-hours.
    largest : float
        Only jobs of at most so many GPUs count.
    """

    wait_s: float
    share: float
    of: str = "jobs"
    largest: float = np.inf

    def __str__(self) -> str:
        of = "jobs" if self.of == "jobs" else "GPU-hours"
        size = f" of at most {self.largest:g} {plural('GPU', self.largest)}" if self.largest < np.inf else ""
        return f"{100 * self.share:.4g} % of the {of}{size} start within {format_seconds(self.wait_s)}"

    def check_counts(self, past: Weeks) -> None:
        """Raise if no job counts."""
        if self.largest < np.inf and not (past.gpus <= self.largest).any():
            raise InputError(
                f"no job of the log has at most {self.largest:g} {plural('GPU', self.largest)}; "
                "give a larger `largest`."
            )

    def share_in_time(self, future: Future, waits_s: FloatArray) -> float:
        """Share in time of the jobs of a future, 1 if none counts."""
        weight = self.weight(future)
        return float(weight[waits_s <= self.wait_s].sum() / weight.sum()) if weight.sum() > 0 else 1.0

    def excess(self, future: Future, gpus: float, policy: str) -> float:
        """Log odds of the share in time on a number of GPUs, relative to the target's; negative if it is missed."""
        # On fewer GPUs than a job that is known to come, the others would have room in its place.
        share = self.share_in_time(future, future.waits_s(gpus, policy)) if gpus >= future.fewest else 0.0
        # What is far from the target counts alike, since it says little about where the target is met.
        near = np.clip(share, self.share / 8, 1 - (1 - self.share) / 8)
        return float(np.log(near / (1 - near)) - np.log(self.share / (1 - self.share)))

    def weight(self, future: Future) -> FloatArray:
        """Weight of each counted job."""
        gpus = future.jobs.gpus[future.counted]
        weight = gpus * future.jobs.run[future.counted] if self.of == "gpu_hours" else np.ones(len(gpus))
        return np.where(gpus <= self.largest, weight, 0.0)


def wait_target(wait: str | pd.Timedelta, share: float, of: str = "jobs", largest: float | None = None) -> WaitTarget:
    """A target from checked arguments; see `gpudemand.planning.capacity.wait_plan.plan_waits`."""
    wait_s = parse_duration(wait).total_seconds()
    if wait_s <= 0:
        raise InputError(f"wait must be longer than 0 s; got {wait!r}. No number of GPUs starts every job at once.")
    check_number("wait_share", share, 0, 0.9999, open_low=True)
    most = np.inf if largest is None else check_number("largest", largest, 0, open_low=True)
    return WaitTarget(wait_s, share, of, most)


def gpus_needed(futures: Futures, target: WaitTarget, policy: str) -> FloatArray:
    """Fewest GPUs with which the target is met in each future, within `RESOLUTION` of it, shape (n_futures,).

    Futures are searched in groups, in parallel where ``joblib.parallel_config`` or a Dask client says so.
    """
    groups = [futures.take(places) for places in np.split(np.arange(len(futures)), range(_GROUP, len(futures), _GROUP))]
    return np.concatenate(_parallel.run(partial(_needed, target=target, policy=policy), groups))


def _needed(futures: Futures, target: WaitTarget, policy: str) -> FloatArray:
    """Each search begins where the one before ended, relative to the GPUs wanted, and with its slope."""
    needed, ratio, slope = np.zeros(len(futures)), 1.25, 10.0
    for number, future in enumerate(futures):
        if target.weight(future).any():
            wanted = future.gpus_wanted()
            needed[number], slope = _search(future, target, policy, max(round(ratio * wanted), 1), slope)
            ratio = needed[number] / wanted
        needed[number] = max(needed[number], np.ceil(future.fewest))
    return needed


def _search(future: Future, target: WaitTarget, policy: str, gpus: int, slope: float) -> tuple[int, float]:
    """Root of the excess from a guess on, and the slope of the excess by the logarithm of the GPUs.

    Evaluations are a little beyond the root as seen from the nearest, at first by the given slope, then by secants, of
    which an end that stays twice counts half (the Illinois method). Done is what lies so near to one that the rest is
    interpolated; fewer than a hundred GPUs are counted one by one.
    """
    low, high, at_low, at_high, side = 0, 0, -1.0, 0.0, 0
    while True:
        excess = target.excess(future, gpus, policy)
        if excess >= 0:
            high, at_high, at_low, side = gpus, excess, at_low / (2 if side > 0 else 1), 1
        else:
            low, at_low, at_high, side = gpus, excess, at_high / (2 if side < 0 else 1), -1
        if high != 1 and not (low and high):
            beyond = np.exp(-excess / slope) * (1 - side * RESOLUTION / 4)
            gpus, slope = _other(gpus, float(np.clip(beyond, 0.5, 2.0))), slope / 2
            continue
        root, near = low + (high - low) * at_low / (at_low - at_high), RESOLUTION * high / 2
        if high - low <= 1 or (min(root - low, high - root) <= near and near >= 1):
            return int(np.ceil(root)), (at_high - at_low) / np.log(high / low) if low else slope
        beyond = np.ceil(root + near / 2) if root - low < high - root else np.floor(root - near / 2)
        gpus = int(np.clip(beyond, low + 1, high - 1))


def _other(gpus: int, factor: float) -> int:
    """A multiple of a number of GPUs, at least one more or fewer."""
    return max(int(gpus * factor), gpus + 1) if factor > 1 else max(min(int(gpus * factor), gpus - 1), 1)
