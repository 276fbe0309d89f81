"""Public traces: each function turns the columns of one format into those of the canonical table."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.jobs.log import Log, known_status, map_distinct, start_or_never
from gpudemand.jobs.table import COLUMNS
from gpudemand.jobs.text import TextTable, existing_path, parse_rows, read_bytes, read_text

_HELIOS_CLUSTERS = ("Venus", "Earth", "Saturn", "Uranus")
_ACME_CLUSTERS = ("Seren", "Kalos")
_PAI_JOB = ["job_name", "inst_id", "user", "status", "start_time", "end_time"]
_PAI_TASK = [
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
]


def canonical(log: Log) -> pd.DataFrame:
    """Read the table of this package, as `write_jobs` leaves it; further columns are kept."""
    others = [name for name in log.table.names if name not in COLUMNS]
    return pd.DataFrame(
        {
            "job_id": log.text("job_id"),
            **{name: log.text(name) for name in ("user", "group", "cluster", "gpu_type")},
            **{name: log.time(name) for name in ("submit", "start", "end")},
            "gpus": log.number("gpus", needed=True),
            "status": log.status("status"),
            **{name: log.number(name) for name in ("requested_time", "used_gpu_seconds")},
            **{name: log.number(name) if name == "effective_cost" else log.original(name) for name in others},
        }
    )


def helios(log: Log) -> pd.DataFrame:
    """``cluster_log.csv`` of one of SenseTime's Helios clusters; the folder names the cluster."""
    return _slurm_like(log, group="vc", cluster=_named_in(log, _HELIOS_CLUSTERS))


def acme(log: Log) -> pd.DataFrame:
    """``trace_seren.csv`` and ``trace_kalos.csv`` of Shanghai AI Laboratory's Acme: A100 GPUs."""
    jobs = _slurm_like(log, cluster=_named_in(log, _ACME_CLUSTERS))
    return jobs.assign(gpu_type="A100", job_type=log.text("type"))


def _slurm_like(log: Log, *, cluster: str | None, group: str = "group") -> pd.DataFrame:
    jobs = pd.DataFrame(
        {
            "job_id": log.text("job_id"),
            "user": log.text("user"),
            "group": log.text(group),
            "submit": log.time("submit_time", needed=True),
            "start": log.time("start_time"),
            "end": log.time("end_time"),
            "gpus": log.number("gpu_num", needed=True),
            "status": log.status("state"),
        }
    )
    return start_or_never(jobs).assign(cluster=cluster)


def _named_in(log: Log, names: tuple[str, ...]) -> str | None:
    """Find the cluster that the file or its folder is named after."""
    words = re.split(r"[^a-z]+", "/".join(log.path.resolve().parts[-2:]).lower())
    return next((name for name in names if name.lower() in words), None)


def philly(log: Log) -> pd.DataFrame:
    """Read the JSON log of Microsoft Philly, a row an attempt: the GPUs were free between two attempts.

    An attempt is named ``job#1``, ``job#2``, ... and is submitted when the one before it ended. Only the last
    attempt has the status of the job; the earlier ones failed, which is why they were tried again.
    """
    jobs = _slurm_like(log, group="vc", cluster=None)
    return jobs.assign(cluster="Philly")


def open_philly(path: Path) -> TextTable:
    """Read the list of jobs and lay out their attempts."""
    try:
        jobs = json.loads(read_bytes(path))
        rows = [row for job in jobs for row in _attempts(job)]
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name!r} is not JSON ({error}); is the file cut off?") from error
    except (TypeError, KeyError, AttributeError) as error:
        message = f"{path.name!r} is not a list of Philly jobs (each with jobid, submitted_time and attempts)"
        raise InputError(f"{message}: {error!r}.") from error
    schema = pa.schema([(name, pa.string()) for name in _PHILLY])
    columns = [[_spell(row[name]) for row in rows] for name in _PHILLY]
    return TextTable(pa.table(columns, schema=schema), np.arange(1, len(rows) + 1), path.name)


_PHILLY = ("job_id", "user", "vc", "state", "submit_time", "start_time", "end_time", "gpu_num")


def _attempts(job: dict[str, Any]) -> list[dict[str, Any]]:
    base = {"user": job["user"], "vc": job["vc"], "state": job["status"], "submit_time": job["submitted_time"]}
    if not job["attempts"]:
        return [{**base, "job_id": job["jobid"], "start_time": None, "end_time": None, "gpu_num": 0}]
    rows = [
        {
            **base,
            "job_id": f"{job['jobid']}#{k}",
            "start_time": attempt["start_time"],
            "end_time": attempt["end_time"],
            "gpu_num": sum(len(machine["gpus"]) for machine in attempt["detail"]),
        }
        for k, attempt in enumerate(job["attempts"], start=1)
    ]
    for before, after in pairwise(rows):
        before["state"] = "Failed"
        if (_spell(before["end_time"]) or "9") <= (_spell(after["start_time"]) or ""):
            after["submit_time"] = before["end_time"]
    return rows


def _spell(value: Any) -> str | None:
    return None if value in (None, "None", "") else str(value)


def philly_pollux(log: Log) -> pd.DataFrame:
    """Philly's GPU jobs as cleaned for Pollux: they start when submitted; the group is the virtual cluster."""
    submit = log.time("timestamp", needed=True)
    return _from_submit(log, submit, "duration", "num_gpus").assign(group=log.text("cluster"), cluster="Philly")


def simulator(log: Log) -> pd.DataFrame:
    """Input of a scheduler simulator: ``job_id, arrival_s, service_sec, gpu_count``."""
    jobs = _from_submit(log, log.since_origin("arrival_s", needed=True), "service_sec", "gpu_count")
    return jobs.assign(job_id=log.text("job_id"))


def spot(log: Log) -> pd.DataFrame:
    """Alibaba's spot trace of 2026: the organisation is the user, the job type (HP or Spot) the group."""
    jobs = _from_submit(log, log.since_origin("submit_time", needed=True), "duration", "gpu_request")
    return jobs.assign(
        job_id=log.text("job_name"),
        user=log.text("organization"),
        group=log.text("job_type"),
        gpus=jobs["gpus"] * log.number("worker_num", needed=True),
        gpu_type=log.text("gpu_model"),
    )


def genai(log: Log) -> pd.DataFrame:
    """Read requests of Alibaba's image generation service of 2026: each holds one GPU while it executes."""
    jobs = _from_submit(log, log.time("gmt_create", needed=True), "exec_time_seconds", None)
    return jobs.assign(user=log.text("groupId"), group=log.text("predict_type"), status=log.status("predict_status"))


def _from_submit(log: Log, submit: pd.Series, duration: str, gpus: str | None) -> pd.DataFrame:
    """Jobs that start when they are submitted, for all that the log knows."""
    count = log.number(gpus, needed=True) if gpus else pd.Series(1.0, index=submit.index)
    end = log.after(submit, log.number(duration, needed=True))
    return pd.DataFrame({"submit": submit, "start": submit, "end": end, "gpus": count})


def dirlab(log: Log) -> pd.DataFrame:
    """Read extracts of Helios and Philly, in which each row says how long after the one before it came."""
    interval = log.number("interval", needed=True)
    broken = [*log.table.bad, *log.lines[interval.isna().to_numpy()]]
    if broken:
        message = f"line {min(broken)} of {log.table.source!r} has no readable interval"
        raise InputError(f"{message}, so the time of every later job is unknown; repair that line.")
    origin = pd.Series(log.clock.origin(), index=interval.index)
    submit = log.after(origin, interval.cumsum())
    jobs = _from_submit(log, submit, "run_time", "gpu_num")
    return jobs.assign(user=log.text("user"), status=log.status("new_status"))


def openb(log: Log) -> pd.DataFrame:
    """Pods of Alibaba's OpenB trace of 2023, which may hold a share of a GPU; the group is the quality of service.

    Every pod of the trace was deleted in the end: those whose last known phase was Running count as completed, those
    that were still pending as cancelled, and they held nothing.
    """
    whole, share = log.number("num_gpu", needed=True), log.number("gpu_milli", needed=True) / 1000
    phase, end = log.text("pod_phase"), log.since_origin("deletion_time")
    ended = phase.replace({"Running": "completed", "Pending": "cancelled"})
    jobs = pd.DataFrame(
        {
            "job_id": log.text("name"),
            "group": log.text("qos"),
            "submit": log.since_origin("creation_time", needed=True),
            "start": log.since_origin("scheduled_time"),
            "end": end,
            "gpus": whole.mask(whole == 1, share),
            "gpu_type": log.text("gpu_spec"),
            "status": map_distinct(ended.where(end.notna(), phase), known_status),
        }
    )
    return start_or_never(jobs)


def dlrm(log: Log) -> pd.DataFrame:
    """Inference instances of Alibaba's recommendation models of 2025: the service is the user, the role the group.

    An instance without a creation time is older than the trace, and counts from its start (the origin); one without
    a deletion time outlives it, and is still running.
    """
    created = log.since_origin("creation_time").fillna(log.clock.origin())
    scheduled = log.since_origin("scheduled_time").fillna(created)
    end = log.since_origin("deletion_time")
    return pd.DataFrame(
        {
            "job_id": log.text("instance_sn"),
            "user": log.text("app_name"),
            "group": log.text("role"),
            "submit": created,
            "start": scheduled,
            "end": end,
            "gpus": log.number("gpu_request", needed=True),
            "status": pd.Series(np.where(end.isna(), "running", "completed"), dtype=STRING),
        }
    )


def pai(log: Log) -> pd.DataFrame:
    """Tasks of Alibaba's PAI cluster of 2020, with the user of their job: instances x planned share of a GPU each."""
    share = log.number("plan_gpu").fillna(0.0) / 100
    start = log.since_origin("start_time")
    submit = log.since_origin("job_start_time").fillna(start)
    jobs = pd.DataFrame(
        {
            "job_id": log.text("job_name") + "-" + log.text("task_name"),
            "user": log.text("user"),
            "submit": submit.where(~(submit > start), start),
            "start": start,
            "end": log.since_origin("end_time"),
            "gpus": log.number("inst_num", needed=True) * share,
            "gpu_type": log.text("gpu_type"),
            "status": log.status("status"),
        }
    )
    return start_or_never(jobs)


def open_pai(path: Path) -> TextTable:
    """Read the task table and put the user and the submission of its job beside each task."""
    folder = path if path.is_dir() else path.parent
    task = _headerless(_pai_file(path, "task") if path.is_dir() else path, _PAI_TASK)
    job = _headerless(_pai_file(folder, "job"), _PAI_JOB)
    jobs = job.rows.to_pandas().drop_duplicates("job_name").rename(columns={"start_time": "job_start_time"})
    rows = task.rows.to_pandas().merge(jobs[["job_name", "user", "job_start_time"]], on="job_name", how="left")
    schema = pa.schema([(str(name), pa.string()) for name in rows.columns])
    return TextTable(pa.Table.from_pandas(rows, schema, preserve_index=False), task.lines, task.source, task.bad)


def _pai_file(folder: Path, kind: str) -> Path:
    for suffix in (".csv", ".csv.gz", ".tar.gz"):
        place = folder / f"pai_{kind}_table{suffix}"
        if place.is_file():
            return place
    return existing_path(folder / f"pai_{kind}_table.csv")


def _headerless(path: Path, names: list[str]) -> TextTable:
    return parse_rows(read_text(path) + b"\n", names, path.name)
