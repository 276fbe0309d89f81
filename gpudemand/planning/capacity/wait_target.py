"""The share of jobs that are to start in time, and the GPUs with which they do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from gpudemand import _parallel
from gpudemand._typing import FloatArray
from gpudemand.planning.queue.futures import Future
from gpudemand.units import format_seconds

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
        size = f" of at most {self.largest:g} GPUs" if self.largest < np.inf else ""
        return f"{100 * self.share:.4g} % of the {of}{size} start within {format_seconds(self.wait_s)}"

    def share_in_time(self, future: Future, waits_s: FloatArray) -> float:
        """Share in time of the jobs of a future, 1 if none counts."""
        weight = self.weight(future)
        return float(weight[waits_s <= self.wait_s].sum() / weight.sum()) if weight.sum() > 0 else 1.0

    def excess(self, future: Future, gpus: float, policy: str) -> float:
        """Log odds of the share in time on a number of GPUs, relative to the target's; negative if it is missed."""
        share = self.share_in_time(future, future.waits_s(gpus, policy))
        # What is far from the target counts alike, since it says little about where the target is met.
        near = np.clip(share, self.share / 8, 1 - (1 - self.share) / 8)
        return float(np.log(near / (1 - near)) - np.log(self.share / (1 - self.share)))

    def weight(self, future: Future) -> FloatArray:
        """Weight of each counted job."""
        gpus, run = future.jobs.gpus[future.counted], future.jobs.run[future.counted]
        weight = gpus * run if self.of == "gpu_hours" else np.ones(len(gpus))
        return np.where(gpus <= self.largest, weight, 0.0)


def gpus_needed(futures: list[Future], target: WaitTarget, policy: str) -> FloatArray:
    """Fewest GPUs with which the target is met in each future, at most `RESOLUTION` above it, shape (n_futures,).

    Futures are searched in groups, in parallel where ``joblib.parallel_config`` or a Dask client says so.
    """
    groups = [futures[first : first + _GROUP] for first in range(0, len(futures), _GROUP)]
    return np.concatenate(_parallel.run(partial(_needed, target=target, policy=policy), groups))


def _needed(futures: list[Future], target: WaitTarget, policy: str) -> FloatArray:
    """Each search begins where the one before ended, relative to the GPUs wanted."""
    needed, ratio = np.zeros(len(futures)), 1.25
    for number, future in enumerate(futures):
        if target.weight(future).any():
            wanted = future.gpus_wanted()
            needed[number] = _search(future, target, policy, max(round(ratio * wanted), 1))
            ratio = needed[number] / wanted
    return needed


def _search(future: Future, target: WaitTarget, policy: str, gpus: int) -> int:
    """Root of the excess from a guess on: a bracket that grows, then secants.

    An end of the bracket that an evaluation leaves counts half (the Illinois method), and evaluations are a little
    beyond the root as seen from the nearer end, so that they narrow the bracket from the other.
    """
    low, high, at_low, at_high = 0, 0, -1.0, 0.0
    while True:
        excess = target.excess(future, gpus, policy)
        if excess >= 0:
            high, at_high, at_low = gpus, excess, at_low / 2
        else:
            low, at_low, at_high = gpus, excess, at_high / 2
        root = low + (high - low) * at_low / (at_low - at_high)
        if high and high - low <= max(RESOLUTION * high, 1):
            return int(np.ceil(root))
        if not high or not low:
            gpus = int(high / 1.12) if high else int(1.12 * low) + 1
            continue
        margin = RESOLUTION * high / 4
        beyond = np.ceil(root + margin) if root - low < high - root else np.floor(root - margin)
        gpus = int(np.clip(beyond, low + 1, high - 1))
