"""Jobs of a log that would fit into the memory of fewer GPUs than they held."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError, check_number
from gpudemand.cost.devices import device
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.large_models.predictor import LargeModelPredictor
from gpudemand.cost.layouts import smallest_layout
from gpudemand.jobs.as_of import seconds_since, start_times
from gpudemand.jobs.table import check_jobs
from gpudemand.units import SECONDS_PER_HOUR

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
