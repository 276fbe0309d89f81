"""Jobs on devices: assignment by predicted cost, and jobs that fit on fewer GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._array import STRING, BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, as_pandas, check_number
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.large_models import LargeModelPredictor
from gpudemand.cost.layouts import smallest_layout
from gpudemand.datasets.devices import device
from gpudemand.jobs.table import check_jobs, seconds_since, start_times
from gpudemand.planning.scenarios import JobCosts
from gpudemand.planning.training_run_time import training_steps
from gpudemand.units import SECONDS_PER_HOUR

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
    """
    jobs = as_pandas(jobs, "jobs")
    tables = {name: costs.costs(jobs.assign(gpu_type=name)) for name in dict.fromkeys(devices)}
    steps, fits = (
        np.stack([tables[name][column].to_numpy(dtype=float) for name in devices], axis=1)
        for column in ("step_time_s", "fits")
    )
    return training_steps(jobs)[:, None] * steps, fits


def place_jobs(seconds: FloatArray, fits: BoolArray) -> IntArray:
    """Assign jobs to unrelated parallel machines with a short makespan.

    List scheduling (longest job first, each to the device that would finish it first), then local search: jobs on the
    device that finishes last are moved, or swapped with jobs of other devices, while that reduces the makespan.

    Parameters
    ----------
    seconds : ndarray of shape (n_jobs, n_devices)
        Run time of each job on each device.
    fits : ndarray of bool, shape (n_jobs, n_devices)
        Whether a job's memory suffices.

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
    time = _feasible_times(seconds, fits)
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


_COLUMNS = (
    "job_id",
    "user",
    "network",
    "gpu_type",
    "gpus",
    "fewest_gpus",
    "memory_gib",
    "slower",
    "basis",
    "gpu_hours",
)


def fewer_gpus(
    jobs: pd.DataFrame,
    models: Mapping[str, TrainingJob] | None = None,
    *,
    memory_share: float = 0.9,
    probability: float = 0.9,
    predictor: LargeModelPredictor | None = None,
) -> pd.DataFrame:
    """Jobs of a log that would fit on fewer GPUs, those with most GPU-hours first.

    Parameters
    ----------
    jobs : DataFrame
        Job table (of any library) with ``gpu_type`` and either ``memory_gib``, the measured peak of the fullest GPU of
        a job, or ``network``, a key of `models`. A measurement counts where both are known.
    models : mapping of str to TrainingJob, optional
        What jobs of a network train, made by `TrainingJob.from_config`; GPUs and their type are those of the log.
    memory_share : float, default=0.9
        Of the memory of a GPU, that measured jobs may use.
    probability : float, default=0.9
        With which a job that is predicted has to fit.
    predictor : LargeModelPredictor, optional
        The bundled one by default.

    Returns
    -------
    DataFrame
        A row a job on several GPUs that would fit on fewer: ``job_id``, ``user``, ``network``, ``gpu_type``, ``gpus``,
        ``fewest_gpus``, ``memory_gib`` (a GPU, on the fewest), ``slower`` (how many times as long it would run),
        ``basis`` (``measured`` or ``predicted``) and ``gpu_hours`` (held by now, on all GPUs).

    Raises
    ------
    InputError
        If the log tells neither, or names a type of GPU that is not known.

    Notes
    -----
    What is measured is taken to be divided over the GPUs of a job: an upper bound of what fewer of them hold, since
    copies do not grow. A job then runs as much longer as it has fewer GPUs, also an upper bound.

    Examples
    --------
    >>> jobs = pd.DataFrame({"user": ["ada", "bob"], "gpus": [8.0, 8.0], "gpu_type": "H100", "memory_gib": [8.0, 70.0]})
    >>> times = pd.to_datetime(["2026-03-01 00:00", "2026-03-01 10:00"], utc=True)
    >>> fewer_gpus(jobs.assign(start=times[0], end=times[1]))[["user", "gpus", "fewest_gpus", "slower", "gpu_hours"]]
      user  gpus  fewest_gpus  slower  gpu_hours
    0  ada     8            1     8.0       80.0
    """
    for name, share in (("memory_share", memory_share), ("probability", probability)):
        check_number(name, share, 0, 1, open_low=True)
    log = check_jobs(jobs)
    if "memory_gib" not in log.columns and (models is None or "network" not in log.columns):
        raise InputError("these jobs tell neither memory_gib nor a network of models; give one of the two.")
    several = log[(log["gpus"] > 1) & log["gpu_type"].notna()].reindex(columns=[*log.columns.union(_COLUMNS[:7])])
    answers = _answers(several, models or {}, memory_share, probability, predictor)
    found = pd.DataFrame(answers, index=several.index, columns=list(_COLUMNS[5:9]))
    ran = np.nan_to_num(seconds_since(several["end"], start_times(several)))
    table = several.assign(**found, gpu_hours=ran / SECONDS_PER_HOUR * several["gpus"])
    table = table[table["fewest_gpus"] < table["gpus"]].sort_values("gpu_hours", ascending=False, kind="stable")
    types = {"gpus": "int64", "fewest_gpus": "int64", "basis": STRING, "network": STRING}
    return table[[*_COLUMNS]].astype(types).reset_index(drop=True)


def _answers(
    jobs: pd.DataFrame,
    models: Mapping[str, TrainingJob],
    share: float,
    probability: float,
    predictor: LargeModelPredictor | None,
) -> list[dict[str, Any]]:
    """Fewest GPUs of each job, each distinct description predicted once."""
    cache: dict[tuple[Any, ...], dict[str, Any]] = {}
    answers = []
    for network, kind, gpus, memory in jobs[["network", "gpu_type", "gpus", "memory_gib"]].itertuples(index=False):
        if memory > 0:
            answers.append(_measured(int(gpus), float(memory), share * device(kind).usable_memory_gib))
            continue
        key = (network, kind, int(gpus))
        if key not in cache:
            job = None if pd.isna(network) else models.get(network)
            used = None if job is None else replace(job, device=kind, n_gpus=int(gpus), parallel=None)
            cache[key] = {} if used is None else _predicted(used, probability, predictor)
        answers.append(cache[key])
    return answers


def _measured(gpus: int, memory: float, usable: float) -> dict[str, Any]:
    fewest = min(max(math.ceil(gpus * memory / usable), 1), gpus)
    return {"fewest_gpus": fewest, "memory_gib": memory * gpus / fewest, "slower": gpus / fewest, "basis": "measured"}


def _predicted(job: TrainingJob, probability: float, predictor: LargeModelPredictor | None) -> dict[str, Any]:
    predictor = predictor or LargeModelPredictor.load()
    least = smallest_layout(job, probability=probability, predictor=predictor, below=job.n_gpus)
    if least is None or job.run is None:
        return {}
    today = predictor.predict([job.run])["step_time_s"].iloc[0] / job.run.tokens
    return {
        "fewest_gpus": least["n_gpus"],
        "memory_gib": least["memory_gib"],
        "slower": 1.0 / (today * least["tokens_per_s"]),
        "basis": "predicted",
    }
