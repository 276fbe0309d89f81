"""Jobs as the tables that `StepTimeModel` and `MemoryModel` take, and measured rows as jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gpudemand._validation import InputError
from gpudemand.cost.devices import Device
from gpudemand.cost.graph import OpGraph
from gpudemand.cost.job import TrainingJob, graphs_of, jobs_table
from gpudemand.cost.liveness import Setting
from gpudemand.cost.memory import memory_features
from gpudemand.cost.roofline import step_terms
from gpudemand.cost.table import ARCHITECTURE


def time_table(jobs: Sequence[TrainingJob]) -> pd.DataFrame:
    """Describe jobs by their hyper-parameters, their device, and their work at its peaks.

    Parameters
    ----------
    jobs : sequence of TrainingJob

    Returns
    -------
    DataFrame
        A row a job: the columns of `jobs_table`, ``mode``, and those of `step_terms`.
    """
    graphs, place = graphs_of(list(jobs))
    table = jobs_table(jobs).assign(mode="train")
    return pd.concat([table, step_terms(table, [graphs[row] for row in place])], axis=1)


def memory_setting(job: TrainingJob) -> Setting:
    """How a job is trained, as far as memory is concerned."""
    device = "cpu" if job.hardware.kind == "cpu" else "cuda"
    return Setting(job.optimizer, job.precision in ("fp16", "bf16"), job.checkpointing, device)


def memory_context(job: TrainingJob) -> dict[str, float]:
    """What the memory of a job depends on beside its network and its setting, by column."""
    # TensorFlow holds far more on a CPU than PyTorch does for the same tensors.
    return {"device_sms": job.hardware.sms, "share:keras": float(job.framework == "keras")}


def memory_table(jobs: Sequence[TrainingJob]) -> pd.DataFrame:
    """Describe jobs by their simulated memory and their device.

    Parameters
    ----------
    jobs : sequence of TrainingJob
        Jobs that differ in nothing that matters are simulated once.

    Returns
    -------
    DataFrame
        A row a job: the columns of `memory_features`, ``device_sms``, and ``share:keras``, 1 for jobs of Keras.
    """
    graphs, place = graphs_of(list(jobs))
    asked = pd.DataFrame(
        {"graph": place, "setting": [memory_setting(job) for job in jobs], "batch": [job.batch_size for job in jobs]}
    )
    parts = []
    for (graph, setting), rows in asked.groupby(["graph", "setting"], sort=False):
        batches = rows["batch"].drop_duplicates()
        known = memory_features(graphs[graph], batches, setting).set_axis(batches.to_numpy())
        parts.append(known.loc[rows["batch"]].set_axis(rows.index))
    table = pd.concat(parts).sort_index()
    return pd.concat([table, pd.DataFrame([memory_context(job) for job in jobs])], axis=1)


def measured_jobs(
    rows: pd.DataFrame, graphs: Mapping[Any, OpGraph], devices: Mapping[str, Device] | None = None
) -> list[TrainingJob]:
    """Turn measured rows into the jobs that they are of.

    Parameters
    ----------
    rows : DataFrame
        What `measure_training_cost` returns.
    graphs : mapping of tuple to OpGraph
        `ARCHITECTURE` of a row -> its graph; see `gpudemand.cost.table.trace_graphs`.
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
        key = tuple(row[name] for name in ARCHITECTURE)
        if key not in graphs:
            raise InputError(f"graphs has no {row['network']} of {row['framework']} as measured; trace the rows first.")
        name = str(row["device_name"])
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
