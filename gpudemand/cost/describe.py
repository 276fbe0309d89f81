"""Jobs as the tables that `StepTimeModel` and `MemoryModel` take, and measured rows as jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gpudemand._validation import InputError
from gpudemand.cost.devices import Device
from gpudemand.cost.graph.features import OPTIMIZER_STATES, features_by_name
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.job import TrainingJob, graphs_of, jobs_table
from gpudemand.cost.memory.liveness import Setting
from gpudemand.cost.memory.simulation import interpolated_features
from gpudemand.cost.regression.feature_table import ARCHITECTURE
from gpudemand.cost.roofline.roofline import step_terms

_MIB = 2.0**20


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
    """What the memory of a job depends on beside its network and its setting, by column.

    Keras compiles a step: what the compiler makes of the network stays in memory, at a price for each operator by class
    (``compile:calls_<class>``) and for each update of a layer (``compile:updates``), in units of a MiB.
    """
    compiled, states = float(job.framework == "keras"), OPTIMIZER_STATES[job.optimizer]
    counts = features_by_name(job.graph)
    made = {name: count for name, count in counts.items() if name.startswith("calls_")}
    made |= {"updates": counts["layers"] * states, "update_calls": counts["operators"] * states, "start": 1.0}
    return {
        "device_sms": job.hardware.sms,
        "share:keras": compiled,
        **{f"compile:{name}": compiled * count * _MIB for name, count in made.items()},
    }


def memory_table(jobs: Sequence[TrainingJob]) -> pd.DataFrame:
    """Describe jobs by their simulated memory and their device.

    Parameters
    ----------
    jobs : sequence of TrainingJob
        Jobs that differ in nothing that matters are simulated once.

    Returns
    -------
    DataFrame
        A row a job: the columns of `interpolated_features`, and those of `memory_context`.
    """
    graphs, place = graphs_of(list(jobs))
    asked = pd.DataFrame(
        {"graph": place, "setting": [memory_setting(job) for job in jobs], "batch": [job.batch_size for job in jobs]}
    )
    parts = []
    for (graph, setting), rows in asked.groupby(["graph", "setting"], sort=False):
        parts.append(interpolated_features(graphs[graph], rows["batch"], setting).set_axis(rows.index))
    context: dict[Any, dict[str, float]] = {}
    keys = [(graph, job.optimizer, job.device) for graph, job in zip(place, jobs, strict=True)]
    for key, job in zip(keys, jobs, strict=True):
        if key not in context:
            context[key] = memory_context(job)
    return pd.concat([pd.concat(parts).sort_index(), pd.DataFrame([context[key] for key in keys])], axis=1)


def measured_jobs(
    rows: pd.DataFrame, graphs: Mapping[Any, OpGraph], devices: Mapping[str, Device] | None = None
) -> list[TrainingJob]:
    """Turn measured rows into the jobs that they are of.

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
