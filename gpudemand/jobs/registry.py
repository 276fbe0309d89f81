"""Table of the known formats of job logs; a new format is one function and one row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from gpudemand.jobs import billing, slurm, swf, traces
from gpudemand.jobs.files import Limits
from gpudemand.jobs.log_columns import LogColumns
from gpudemand.jobs.text import TextTable, read_table

_TZ = "tz"
_ORIGIN = "origin"
USAGE_ONLY = "prometheus"


@dataclass(frozen=True)
class Format:
    """A row of the table of formats.

    Attributes
    ----------
    description : str
    read : callable
        From the columns of a log to canonical ones.
    columns : tuple of str
        Required columns; ``"A|B"`` is either.
    open : callable
        From a path and limits to the rows of the file.
    needs : {"", "tz", "origin"}
        Argument that the caller has to pass because the file lacks it.
    kind : str
        Default kind of data.
    hint : str
        What is known about the missing zone or origin, for the error message.
    """

    description: str
    read: Callable[[LogColumns], pd.DataFrame]
    columns: tuple[str, ...] = ()
    open: Callable[[Path, Limits], TextTable] = read_table
    needs: str = ""
    kind: str = "public trace"
    hint: str = ""


FORMATS: dict[str, Format] = {
    "canonical": Format(
        "the table of this package, CSV or Parquet", traces.canonical, ("submit|start", "end", "gpus"), kind="measured"
    ),
    "sacct": Format(
        *(
            "Slurm: sacct -a -D -P -o ...; see `gpudemand pull slurm --command-only`",
            slurm.sacct,
            slurm.SACCT_COLUMNS,
            slurm.open_sacct,
        ),
        needs=_TZ,
        kind="measured",
        hint=" It is the local zone of the cluster; SLURM_TIME_FORMAT=%s prints epoch seconds instead.",
    ),
    "swf": Format("Standard Workload Format 2.2", swf.swf, (), swf.open_swf),
    "focus": Format("FOCUS billing 1.0 to 1.2, CSV or Parquet", billing.focus, billing.FOCUS_COLUMNS, kind="measured"),
    "helios": Format(
        "Helios 2020 (SenseTime): cluster_log.csv",
        traces.helios,
        ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "start_time", "end_time"),
        needs=_TZ,
        hint=" Helios ran in 'Asia/Shanghai'.",
    ),
    "acme": Format(
        "Acme 2023 (Shanghai AI Laboratory): trace_seren.csv, trace_kalos.csv",
        traces.acme,
        ("job_id", "user", "gpu_num", "type", "state", "submit_time", "start_time", "end_time"),
    ),
    "philly": Format(
        "Philly 2017 (Microsoft): the original JSON, a row an attempt",
        traces.philly,
        open=traces.open_philly,
        needs=_TZ,
        hint=" Its README speaks of Pacific time ('America/Los_Angeles').",
    ),
    "philly-pollux": Format(
        "Philly 2017 as cleaned for Pollux",
        traces.philly_pollux,
        ("timestamp", "duration", "num_gpus", "cluster"),
        needs=_TZ,
        hint=" The trace does not say in which zone it counts; 'UTC' keeps its clock as it is.",
    ),
    "pai": Format(
        "Alibaba PAI 2020: pai_task_table beside pai_job_table", traces.pai, open=traces.open_pai, needs=_ORIGIN
    ),
    "openb": Format(
        "Alibaba OpenB 2023: pods that may share a GPU",
        traces.openb,
        ("name", "num_gpu", "gpu_milli", "pod_phase", "creation_time", "scheduled_time", "deletion_time"),
        needs=_ORIGIN,
    ),
    "dlrm": Format(
        "Alibaba DLRM 2025: inference instances",
        traces.dlrm,
        ("instance_sn", "app_name", "gpu_request", "creation_time", "deletion_time"),
        needs=_ORIGIN,
    ),
    "genai": Format(
        "Alibaba GenAI 2026: requests of an image generation service",
        traces.genai,
        ("gmt_create", "exec_time_seconds", "groupId"),
        needs=_TZ,
        hint=" The trace is shifted by an unknown constant; 'UTC' keeps its clock as it is.",
    ),
    "spot": Format(
        "Alibaba spot GPUs 2026: job_info_df.csv",
        traces.spot,
        ("job_name", "organization", "gpu_model", "gpu_request", "worker_num", "submit_time", "duration"),
        needs=_ORIGIN,
    ),
    "dirlab": Format(
        "extracts of Helios and Philly for workload generators",
        traces.dirlab,
        ("user", "gpu_num", "interval", "run_time"),
        needs=_ORIGIN,
    ),
    "simulator": Format(
        "input of a scheduler simulator: job_id, arrival_s, service_sec, gpu_count",
        traces.simulator,
        ("job_id", "arrival_s", "service_sec", "gpu_count"),
        needs=_ORIGIN,
    ),
}


def formats() -> pd.DataFrame:
    """List the formats that `read_jobs` reads.

    Returns
    -------
    DataFrame
        ``name``, ``description`` and ``needs``: the argument to pass because the file lacks it (``tz``, ``origin``).

    Examples
    --------
    >>> formats().set_index("name").loc[["sacct", "swf", "openb"], "needs"].tolist()
    ['tz', '', 'origin']
    """
    rows = [(name, spec.description, spec.needs) for name, spec in FORMATS.items()]
    rows.append((USAGE_ONLY, "Prometheus range query, JSON or CSV: GPUs held per namespace (read_usage)", ""))
    return pd.DataFrame(rows, columns=["name", "description", "needs"])
