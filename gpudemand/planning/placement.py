"""Which job on which GPU: assignment by predicted time and memory, and what it is worth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.planning.runtime.training import training_steps
from gpudemand.planning.scenarios.changes import Costs

#: Rounds of local search after which it stops even if something could still be gained.
_ROUNDS = 2000


def predicted_times(jobs: pd.DataFrame, devices: Sequence[str], costs: Costs) -> tuple[FloatArray, FloatArray]:
    """Run time of every job on every device, and the probability that its memory fits there.

    Parameters
    ----------
    jobs : DataFrame of n_jobs rows
        ``gpus``, ``network``, ``batch_size``, ``epochs``, ``samples``, ``precision``.
    devices : sequence of str
        GPU type of each device; a type may come several times.
    costs : CostStepTime

    Returns
    -------
    seconds, fits : ndarray of shape (n_jobs, n_devices)
    """
    seconds, fits = {}, {}
    for name in dict.fromkeys(devices):
        table = costs.costs(jobs.assign(gpu_type=name))
        seconds[name] = training_steps(jobs) * table["step_time_s"].to_numpy(dtype=float)
        fits[name] = table["fits"].to_numpy(dtype=float)
    return np.stack([seconds[name] for name in devices], axis=1), np.stack([fits[name] for name in devices], axis=1)


def place_jobs(seconds: FloatArray, fits: BoolArray) -> IntArray:
    """Assign jobs to unequal devices so that the last one is done early.

    The longest jobs go first, each to the device that would finish it first (list scheduling); then jobs are moved away
    from the device that finishes last, or exchanged with jobs elsewhere, for as long as that gains time.

    Parameters
    ----------
    seconds : ndarray of shape (n_jobs, n_devices)
        Run time of each job on each device.
    fits : ndarray of bool, shape (n_jobs, n_devices)
        Where a job's memory suffices.

    Returns
    -------
    ndarray of int, shape (n_jobs,)
        Device of each job; -1 if it fits nowhere.

    Raises
    ------
    InputError
        If the shapes differ, or a time is not a positive number where the job fits.

    Examples
    --------
    >>> seconds = np.array([[8.0, 4.0], [6.0, 3.0], [2.0, 1.0]])
    >>> place_jobs(seconds, np.ones((3, 2), dtype=bool)).tolist()
    [1, 0, 1]
    """
    time = _checked(seconds, fits)
    device = np.full(len(time), -1)
    load = np.zeros(time.shape[1])
    for job in np.argsort(-time.min(axis=1), kind="stable"):
        if np.isfinite(time[job]).any():
            device[job] = int(np.argmin(load + time[job]))
            load[device[job]] += time[job, device[job]]
    return _improved(time, device, load)


def _checked(seconds: FloatArray, fits: BoolArray) -> FloatArray:
    if seconds.shape != fits.shape or seconds.ndim != 2:
        raise InputError(
            f"seconds {seconds.shape} and fits {fits.shape} must have the same shape, (n_jobs, n_devices)."
        )
    if not (seconds[fits] > 0).all() or not np.isfinite(seconds[fits]).all():
        raise InputError("seconds must be positive numbers wherever a job fits.")
    return np.where(fits, seconds, np.inf)


def _improved(time: FloatArray, device: IntArray, load: FloatArray) -> IntArray:
    for _ in range(_ROUNDS):
        last = int(np.argmax(load))
        change = _best_move(time, device, load, last) or _best_swap(time, device, load, last)
        if change is None:
            break
        for job, target in change:
            load[device[job]] -= time[job, device[job]]
            load[target] += time[job, target]
            device[job] = target
    return device


def _best_move(time: FloatArray, device: IntArray, load: FloatArray, last: int) -> list[tuple[int, int]] | None:
    """A job of the last device that elsewhere would be done before that one is now."""
    jobs = np.flatnonzero(device == last)
    then = load + time[jobs]
    then[:, last] = np.inf
    if not jobs.size or then.min() >= load[last] - 1e-9:
        return None
    job, target = np.unravel_index(np.argmin(then), then.shape)
    return [(int(jobs[job]), int(target))]


def _best_swap(time: FloatArray, device: IntArray, load: FloatArray, last: int) -> list[tuple[int, int]] | None:
    """A job of the last device and one of another whose exchange lets both be done earlier."""
    mine, theirs = np.flatnonzero(device == last), np.flatnonzero((device != last) & (device >= 0))
    if not mine.size or not theirs.size:
        return None
    there = device[theirs]
    here = load[last] - time[mine, last][:, None] + time[theirs, last]
    other = load[there] - time[theirs, there] + time[mine][:, there]
    then = np.maximum(here, other)
    if then.min() >= load[last] - 1e-9:
        return None
    job, partner = np.unravel_index(np.argmin(then), then.shape)
    return [(int(mine[job]), int(there[partner])), (int(theirs[partner]), last)]


def shortest_makespan(seconds: FloatArray, fits: BoolArray) -> float:
    """Time (s) below which no assignment can finish: jobs may be split between devices (linear relaxation).

    Jobs that fit nowhere are left out.

    Examples
    --------
    >>> shortest_makespan(np.array([[8.0, 4.0], [6.0, 3.0], [2.0, 1.0]]), np.ones((3, 2), dtype=bool))
    5.333333333333333
    """
    time = _checked(seconds, fits)
    time = time[np.isfinite(time).any(axis=1)]
    if not len(time):
        return 0.0
    job, device = np.nonzero(np.isfinite(time))
    n = job.size
    longest = np.append(np.zeros(n), 1.0)
    whole = coo_matrix((np.ones(n), (job, np.arange(n))), shape=(len(time), n + 1))
    rows = np.concatenate([device, np.arange(time.shape[1])])
    columns = np.concatenate([np.arange(n), np.full(time.shape[1], n)])
    values = np.concatenate([time[job, device], -np.ones(time.shape[1])])
    load = coo_matrix((values, (rows, columns)), shape=(time.shape[1], n + 1))
    answer = linprog(longest, A_ub=load, b_ub=np.zeros(time.shape[1]), A_eq=whole, b_eq=np.ones(len(time)))
    return float(max(answer.fun, time.min(axis=1).max()))


def first_fit(seconds: FloatArray) -> IntArray:
    """Give each job, in the order in which they come, to the device that is free first: no prediction at all.

    Parameters
    ----------
    seconds : ndarray of shape (n_jobs, n_devices)
        True run times: what makes a device free.

    Returns
    -------
    ndarray of int, shape (n_jobs,)
    """
    load, device = np.zeros(seconds.shape[1]), np.zeros(len(seconds), dtype=np.int64)
    for job in range(len(seconds)):
        device[job] = int(np.argmin(load))
        load[device[job]] += seconds[job, device[job]]
    return device


def carry_out(device: IntArray, seconds: FloatArray, fits: BoolArray) -> tuple[float, int]:
    """Carry an assignment out in the true world.

    A job that runs out of memory is lost at once and runs again, after everything else, where it truly fits and is done
    first.

    Parameters
    ----------
    device : ndarray of int, shape (n_jobs,)
        -1 is a job that was not placed: it runs with those that failed, but is no failure.
    seconds, fits : ndarray of shape (n_jobs, n_devices)
        The truth.

    Returns
    -------
    makespan_s : float
    out_of_memory : int
        Jobs that failed.
    """
    time = _checked(seconds, fits)
    jobs = np.arange(len(device))
    failed = (device >= 0) & ~fits[jobs, np.maximum(device, 0)]
    good = (device >= 0) & ~failed
    load = np.bincount(device[good], time[jobs[good], device[good]], minlength=time.shape[1]).astype(float)
    for job in np.flatnonzero(~good):
        if np.isfinite(time[job]).any():
            target = int(np.argmin(load + time[job]))
            load[target] += time[job, target]
    return float(load.max()), int(failed.sum())


def compare_placements(
    predicted_s: FloatArray, predicted_fits: FloatArray, true_s: FloatArray, true_fits: BoolArray
) -> pd.DataFrame:
    """Makespan and failures of placement by prediction, beside first-fit, perfect knowledge and the lower bound.

    Parameters
    ----------
    predicted_s : ndarray of shape (n_jobs, n_devices)
    predicted_fits : ndarray of shape (n_jobs, n_devices)
        Probability that memory suffices; a device counts where it is at least 0.9.
    true_s, true_fits : ndarray of shape (n_jobs, n_devices)

    Returns
    -------
    DataFrame
        Index ``first fit``, ``predicted``, ``perfect knowledge``, ``lower bound``; ``makespan_s``, ``out_of_memory``,
        ``over_bound`` (makespan relative to the bound).
    """
    placements = {
        "first fit": first_fit(true_s),
        "predicted": place_jobs(predicted_s, predicted_fits >= 0.9),
        "perfect knowledge": place_jobs(true_s, true_fits),
    }
    rows = {name: carry_out(device, true_s, true_fits) for name, device in placements.items()}
    rows["lower bound"] = (shortest_makespan(true_s, true_fits), 0)
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["makespan_s", "out_of_memory"])
    return table.assign(over_bound=table["makespan_s"] / table.loc["lower bound", "makespan_s"])
