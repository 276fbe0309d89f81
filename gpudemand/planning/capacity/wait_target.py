"""The share of jobs that are to start in time, and the GPUs with which they do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudemand._typing import FloatArray
from gpudemand.planning.queue.futures import Future


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

    def share_in_time(self, future: Future, waits_s: FloatArray) -> float:
        """Share in time of the jobs of a future, 1 if none counts."""
        weight = self.weight(future)
        return float(weight[waits_s <= self.wait_s].sum() / weight.sum()) if weight.sum() > 0 else 1.0

    def weight(self, future: Future) -> FloatArray:
        """Weight of each counted job."""
        gpus, run = future.jobs.gpus[future.counted], future.jobs.run[future.counted]
        weight = gpus * run if self.of == "gpu_hours" else np.ones(len(gpus))
        return np.where(gpus <= self.largest, weight, 0.0)


def gpus_needed(futures: list[Future], target: WaitTarget, policy: str) -> FloatArray:
    """Fewest GPUs with which the target is met in each future, shape (n_futures,)."""
    needed, last = [], 16
    for future in futures:
        last = _search(future, target, policy, last) if target.weight(future).any() else 0
        needed.append(float(last))
    return np.array(needed)


def _search(future: Future, target: WaitTarget, policy: str, guess: int) -> int:
    """Bisection of a bracket that grows around a guess."""
    step = max(guess // 8, 1)
    low = high = max(guess, 1)
    while low > 0 and _meets(future, target, policy, low):
        low, high, step = max(low - step, 0), low, 2 * step
    while low == high or not _meets(future, target, policy, high):
        low, high, step = high, high + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _meets(future, target, policy, middle) else (middle, high)
    return high


def _meets(future: Future, target: WaitTarget, policy: str, gpus: int) -> bool:
    return target.share_in_time(future, future.waits_s(gpus, policy)) >= target.share
