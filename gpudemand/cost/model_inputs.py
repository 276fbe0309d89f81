"""Inputs of `StepTimeModel` and `MemoryModel` from jobs, and jobs from measured rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import IntArray
from gpudemand._validation import InputError
from gpudemand.cost.graph.features import OPTIMIZER_STATES, features_by_name
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.hardware import Device
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.job_features import distinct_graphs, features_from_jobs
from gpudemand.cost.memory.liveness import Setting
from gpudemand.cost.memory.simulation import interpolated_features
from gpudemand.cost.regression.feature_table import ARCHITECTURE
from gpudemand.cost.roofline.roofline import step_terms

_MIB = 2.0**20


def listed_jobs(jobs: TrainingJob | Iterable[TrainingJob]) -> list[TrainingJob]:
    """One or more jobs as a list.

    Raises
    ------
    InputError
        For anything else.
    """
    listed = [jobs] if isinstance(jobs, TrainingJob) else list(jobs)
    wrong = next((job for job in listed if not isinstance(job, TrainingJob)), None)
    if wrong is not None or not listed:
        raise InputError(f"jobs must be TrainingJobs, one or more; got {type(wrong).__name__ if listed else 'none'}.")
    return listed


def rows_by_kind(jobs: Sequence[TrainingJob]) -> dict[str, IntArray]:
    """Positions of the jobs on each kind of device."""
    kinds = np.array([job.hardware.kind for job in jobs])
    return {str(kind): np.flatnonzero(kinds == kind) for kind in np.unique(kinds)}


def step_time_inputs(jobs: Sequence[TrainingJob]) -> pd.DataFrame:
    """Columns of `features_from_jobs` and of `step_terms`, and ``mode``, a row a job."""
    graphs, positions = distinct_graphs(list(jobs))
    modes = ["infer" if job.mode == "inference" else "train" for job in jobs]
    table = features_from_jobs(jobs).assign(mode=modes)
    return pd.concat([table, step_terms(table, [graphs[position] for position in positions])], axis=1)


def memory_setting(job: TrainingJob) -> Setting:
    """Options of the memory simulation for a job."""
    device = "cpu" if job.hardware.kind == "cpu" else "cuda"
    half = job.precision in ("fp16", "bf16")
    return Setting(job.optimizer, half, bool(job.checkpointing), device, job.mode == "inference", _shards(job))


def shard_size(job: TrainingJob) -> int:
    """GPUs that hold one copy of what is sharded."""
    within = job.parallel is not None and job.parallel.sharding == "hsdp"
    return min(job.n_gpus, int(job.hardware.node_gpus)) if within else job.n_gpus


def _shards(job: TrainingJob) -> tuple[int, int, int]:
    """GPUs that optimizer states, gradients and parameters are divided over."""
    sharding = "none" if job.parallel is None else str(job.parallel.sharding)
    level, size = {"none": 0, "zero1": 1, "zero2": 2}.get(sharding, 3), shard_size(job)
    states, gradients, parameters = (size if level > place else 1 for place in range(3))
    return states, gradients, parameters


def memory_covariates(job: TrainingJob) -> dict[str, float]:
    """Columns of the memory model that are not simulated.

    Keras compiles a step: compilation takes memory for each operator by class (``compile:calls_<class>``) and for each
    update of a layer (``compile:updates``), here in units of a MiB.
    """
    compiled, states = float(job.framework == "keras"), OPTIMIZER_STATES[job.optimizer]
    counts = features_by_name(job.graph)
    terms = {name: count for name, count in counts.items() if name.startswith("calls_")}
    terms |= {"updates": counts["layers"] * states, "update_calls": counts["operators"] * states, "start": 1.0}
    return {
        "device_sms": job.hardware.sms,
        "share:keras": compiled,
        **{f"compile:{name}": compiled * count * _MIB for name, count in terms.items()},
    }


def memory_inputs(jobs: Sequence[TrainingJob]) -> pd.DataFrame:
    """Columns of `interpolated_features` and of `memory_covariates`, a row a job; equal simulations run once."""
    graphs, positions = distinct_graphs(list(jobs))
    runs = pd.DataFrame(
        {"graph": positions, "setting": list(map(memory_setting, jobs)), "batch": [job.batch_size for job in jobs]}
    )
    parts = [
        interpolated_features(graphs[graph], rows["batch"], setting).set_axis(rows.index)
        for (graph, setting), rows in runs.groupby(["graph", "setting"], sort=False)
    ]
    keys = [(graph, job.optimizer, job.device) for graph, job in zip(positions, jobs, strict=True)]
    covariates = {key: memory_covariates(job) for key, job in dict(zip(keys, jobs, strict=True)).items()}
    return pd.concat([pd.concat(parts).sort_index(), pd.DataFrame([covariates[key] for key in keys])], axis=1)


def measured_jobs(
    rows: pd.DataFrame, graphs: Mapping[Any, OpGraph], devices: Mapping[str, Device] | None = None
) -> list[TrainingJob]:
    """Jobs of measured rows.

    Parameters
    ----------
    rows : DataFrame
        What `measure_training_cost` returns.
    graphs : mapping of tuple to OpGraph
        `ARCHITECTURE` of a row -> its graph; see `gpudemand.cost.regression.feature_table.trace_graphs`.
    devices : mapping of str to Device, optional
        Devices that the table of devices lacks, by ``device_name``.

    Returns
    -------
    list of TrainingJob

    Raises
    ------
    InputError
        If an architecture has no graph, or a device is not known.
    """
    own, jobs = dict(devices or {}), []
    for row in rows.to_dict("records"):
        key, name = tuple(row[column] for column in ARCHITECTURE), str(row["device_name"])
        if key not in graphs:
            raise InputError(f"graphs has no {row['network']} of {row['framework']} as measured; trace the rows first.")
        jobs.append(
            TrainingJob(
                graphs[key],
                batch_size=int(row["batch_size"]),
                optimizer=row["optimizer"],
                precision=row["precision"],
                device=own.get(name, name),
                layout=row["layout"],
                execution=row["execution"],
                framework_version=str(row["framework_version"]).partition(" ")[2] or None,
            )
        )
    return jobs
