"""Jobs on devices: assignment by predicted cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._array import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, as_pandas, check_number
from gpudemand.datasets.devices import PRECISIONS, device
from gpudemand.jobs.table import training_steps
from gpudemand.planning.scenarios import JobCosts

#: Most moves and swaps of the local search.
_MAX_ITER = 2000


def predicted_times(jobs: pd.DataFrame, devices: Sequence[str], costs: JobCosts) -> tuple[FloatArray, FloatArray]:
    """Run time of every job on every device, and the probability that its memory fits there.

    Parameters
    ----------
    jobs : DataFrame of n_jobs rows
        ``gpus``, ``network``, ``batch_size``, ``epochs``, ``samples``, ``precision``.
    devices : sequence of str
        GPU type of each device; a type may occur several times.
    costs : CostStepTime

    Returns
    -------
    seconds, fits : ndarray of shape (n_jobs, n_devices)
        NaN and 0 where a device cannot compute in the precision of a job.

    See Also
    --------
    place_jobs : takes both.
    """
    jobs = as_pandas(jobs, "jobs")
    tables = {name: _costs_on(jobs, name, costs) for name in dict.fromkeys(devices)}
    steps, fits = np.stack([tables[name] for name in devices], axis=1).transpose(2, 0, 1)
    return training_steps(jobs)[:, None] * steps, fits


def _costs_on(jobs: pd.DataFrame, name: str, costs: JobCosts) -> FloatArray:
    """Seconds a step on a device and the probability that memory suffices, shape (n_jobs, 2)."""
    able, found = _computes(jobs, name), np.tile([np.nan, 0.0], (len(jobs), 1))
    if able.any():
        table = costs.costs(jobs[able].assign(gpu_type=name))
        found[able] = table[["step_time_s", "fits"]].to_numpy(dtype=float)
    return found


def _computes(jobs: pd.DataFrame, name: str) -> BoolArray:
    """Whether a device computes in the precision of each job; of devices and precisions not known, costs may tell."""
    if "precision" not in jobs.columns:
        return np.ones(len(jobs), dtype=bool)
    try:
        precisions = device(name).precisions
    except InputError:
        return np.ones(len(jobs), dtype=bool)
    lacking = set(PRECISIONS) - set(precisions)
    return ~jobs["precision"].replace("amp", "fp16").isin(lacking).to_numpy(dtype=bool)


def place_jobs(seconds: Any, fits: Any, probability: float = 0.95) -> IntArray:
    """Assign jobs to unrelated parallel machines with a short makespan.

    List scheduling (longest job first, each to the device that would finish it first), then local search: jobs on the
    device that finishes last are moved, or swapped with jobs of other devices, while that reduces the makespan.

    Parameters
    ----------
    seconds : array-like of shape (n_jobs, n_devices)
        Run time of each job on each device.
    fits : array-like of shape (n_jobs, n_devices)
        Whether a job's memory suffices (bool), or the probability that it does.
    probability : float, default=0.95
        With which a job has to fit, where `fits` holds probabilities; above 0.

    Returns
    -------
    ndarray of int, shape (n_jobs,)
        Device of each job; -1 if it fits nowhere.

    Raises
    ------
    InputError
        If the shapes differ, a time is not a positive number where the job fits, or `fits` holds neither booleans nor
        probabilities.

    Examples
    --------
    >>> seconds = np.array([[8.0, 4.0], [6.0, 3.0], [2.0, 1.0]])
    >>> place_jobs(seconds, np.ones((3, 2), dtype=bool)).tolist()
    [1, 0, 1]
    """
    time = _feasible_times(_numbers("seconds", seconds), _feasible(fits, probability))
    device, load = np.full(len(time), -1), np.zeros(time.shape[1])
    for job in np.argsort(-time.min(axis=1), kind="stable"):
        if np.isfinite(time[job]).any():
            device[job] = int(np.argmin(load + time[job]))
            load[device[job]] += time[job, device[job]]
    for _ in range(_MAX_ITER):
        change = _best_move(time, device, load) or _best_swap(time, device, load)
        for job, target in change:
            load[device[job]] -= time[job, device[job]]
            load[target] += time[job, target]
            device[job] = target
        if not change:
            break
    return device


def _numbers(name: str, values: Any) -> FloatArray:
    """The values as an array of floats."""
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a table of numbers, (n_jobs, n_devices): {error}.") from error


def _feasible(fits: Any, probability: float) -> BoolArray:
    """Which pairs are feasible, from booleans or from probabilities."""
    least, shares = check_number("probability", probability, 0, 1, open_low=True), _numbers("fits", fits)
    if not ((shares >= 0) & (shares <= 1)).all():
        raise InputError("fits must hold booleans, or probabilities between 0 and 1.")
    return np.asarray(shares >= least)


def _feasible_times(seconds: FloatArray, fits: BoolArray) -> FloatArray:
    """Run times, infinite where a job does not fit."""
    if seconds.shape != fits.shape or seconds.ndim != 2:
        raise InputError(
            f"seconds {seconds.shape} and fits {fits.shape} must have the same shape, (n_jobs, n_devices)."
        )
    if not (seconds[fits] > 0).all() or not np.isfinite(seconds[fits]).all():
        raise InputError("seconds must be positive numbers wherever a job fits.")
    return np.where(fits, seconds, np.inf)


def _best_move(time: FloatArray, device: IntArray, load: FloatArray) -> list[tuple[int, int]]:
    """Move of a job away from the last device that most reduces its new finish, as (job, device); else nothing."""
    last = int(np.argmax(load))
    jobs = np.flatnonzero(device == last)
    finish = load + time[jobs]
    finish[:, last] = np.inf
    if not jobs.size or finish.min() >= load[last] - 1e-9:
        return []
    job, target = np.unravel_index(np.argmin(finish), finish.shape)
    return [(int(jobs[job]), int(target))]


def _best_swap(time: FloatArray, device: IntArray, load: FloatArray) -> list[tuple[int, int]]:
    """Swap of a job of the last device and one of another with the earliest finish of both, as two moves."""
    last = int(np.argmax(load))
    here, there = np.flatnonzero(device == last), np.flatnonzero((device != last) & (device >= 0))
    if not here.size or not there.size:
        return []
    other = device[there]
    finish_here = load[last] - time[here, last][:, None] + time[there, last]
    finish_there = load[other] - time[there, other] + time[here][:, other]
    finish = np.maximum(finish_here, finish_there)
    if finish.min() >= load[last] - 1e-9:
        return []
    job, partner = np.unravel_index(np.argmin(finish), finish.shape)
    return [(int(here[job]), int(other[partner])), (int(there[partner]), last)]
