"""Slurm accounting: what ``sacct -P`` prints."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from gpudemand._typing import STRING, BoolArray
from gpudemand._validation import InputError
from gpudemand.jobs.files import LIMITS, Limits
from gpudemand.jobs.log_columns import LogColumns, map_unique, start_unstarted_at_end
from gpudemand.jobs.text import TextTable, check_header, read_csv
from gpudemand.slurm.rows import mend_rows
from gpudemand.slurm.tres import count_tres, gpu_utilization
from gpudemand.units import parse_slurm_seconds

JOB_STEP = "job step"
NO_SHARDS = "shards of unknown size (pass shards_per_gpu)"
SACCT_COLUMNS = (
    "JobID|JobIDRaw",
    "Submit|Start",
    "Start|ElapsedRaw|Elapsed",
    "End|ElapsedRaw|Elapsed",
    "AllocTRES|ReqTRES|AllocGRES|ReqGRES",
)
_FEW_FIELDS = "JobIDRaw,JobID,Cluster,User,Account,Partition,QOS,Submit,Start,End,State,ReqTRES,AllocTRES"
#: First node of a list such as ``n[1-2,7]``: its prefix and the first number.
_FIRST_NODE = re.compile(r"([^\[,]+)(?:\[(\d+))?")
#: ``123.batch``, not the points of a list of tasks that Slurm cut short, ``123_[1,3,...]``.
_STEP = r"^[^\[]*\."
#: The most tasks that Slurm lets an array have (MaxArraySize in slurm.conf).
_MAX_TASKS = 4_000_001
#: ``123_[1,3,5-9:2%4]``: at most four at once.
_ARRAY = re.compile(r"(?P<job>\d+)_\[(?P<tasks>\d+(?:-\d+(?::\d+)?)?(?:,\d+(?:-\d+(?::\d+)?)?)*)(?:%\d+)?\]")


def open_sacct(path: Path, limits: Limits = LIMITS) -> TextTable:
    """Read a dump with fields separated by vertical bars."""
    table = read_csv(path, limits, "|", mend=mend_rows)
    name = table.names[0]
    if len(table.names) == 1 and re.match(r"JobID(Raw)?\s+\S", name, re.IGNORECASE):
        message = f"{path.name!r} is aligned with spaces or uses another separator, so long fields may be cut off"
        raise InputError(f"{message}; run sacct with -P (--parsable2) and keep its '|'.")
    if "JobID" in table.names or "JobIDRaw" in table.names:
        try:
            check_header(table, SACCT_COLUMNS)
        except InputError as error:
            raise InputError(f"{error} Print them with sacct -a -D -P -o {_FEW_FIELDS}.") from None
    return table


def sacct(log: LogColumns) -> pd.DataFrame:
    """Jobs of a Slurm dump, from any sufficient subset of sacct's columns (`SACCT_COLUMNS`).

    GPUs are those of AllocTRES, of ReqTRES where nothing was allocated, and of AllocGRES or ReqGRES (per node) where
    the TRES list no GPUs; slices (MIG), shards and MPS count as shares of one, and ``devices`` is their number as Slurm
    counts it. The start of a job that was cancelled before it started is its end; a pending job has neither. A job that
    was resized has a row for each part: later ones are submitted after their start, and begin when they are submitted.
    Job steps (``123.batch``), which a dump without ``-X`` contains, are excluded. A pending array (``123_[4-9]``) is
    one row, which `with_array_tasks` takes apart. ``used_gpu_seconds`` is gres/gpuutil, the sum over the GPUs of a job,
    times the elapsed time, of the job or of its steps; at most the GPU-seconds held. ``reason`` is what kept a job
    waiting last.
    """
    job_id = log.text(log.first_present("JobID", "JobIDRaw"))
    step = job_id.str.contains(_STEP, regex=True, na=False).to_numpy(dtype=bool)
    log.exclude(step, JOB_STEP)
    gpus = _gpus(log)
    jobs = pd.DataFrame(
        {
            "job_id": job_id,
            **log.texts(user="User", group="Account", cluster="Cluster"),
            "submit": log.time("Submit").fillna(log.time("Eligible")),
            "start": log.time("Start"),
            "end": log.time("End"),
            **{name: gpus[name] for name in ("gpus", "gpu_type")},
            "status": log.status("State"),
            "requested_time": _time_limit(log),
            **log.texts(partition="Partition", qos="QOS", reason="Reason"),
            "devices": gpus["devices"],
        }
    )
    elapsed = _elapsed(log)
    jobs = start_unstarted_at_end(_complete(_begin_parts(jobs), elapsed, log))
    held = (jobs["end"] - jobs["start"]).dt.total_seconds().fillna(elapsed) * jobs["gpus"]
    return jobs.assign(used_gpu_seconds=np.minimum(_used(log, elapsed, step, job_id), held))


def with_array_tasks(jobs: pd.DataFrame) -> pd.DataFrame:
    """Jobs with a row for each task of a pending array, which Slurm lists in one row until they start.

    A list that Slurm cut short (``123_[1,3,...]``) stays one row.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.

    Returns
    -------
    DataFrame
    """
    arrays = jobs["job_id"].str.contains("_[", regex=False, na=False)
    if not arrays.any():
        return jobs
    tasks = jobs["job_id"].astype(object)
    tasks[arrays] = tasks[arrays].map(_array_tasks)
    return jobs.assign(job_id=tasks).explode("job_id", ignore_index=True).astype({"job_id": STRING})


def _array_tasks(job_id: str) -> list[str]:
    match = _ARRAY.fullmatch(job_id)
    if match is None:
        return [job_id]
    parts = [re.split("[-:]", part) for part in match["tasks"].split(",")]
    spans = [
        range(int(first), int((rest or [first])[0]) + 1, max(int((rest[1:] or [1])[0]), 1)) for first, *rest in parts
    ]
    if not 0 < sum(map(len, spans)) <= _MAX_TASKS:
        return [job_id]
    return [f"{match['job']}_{task}" for span in spans for task in span]


def _begin_parts(jobs: pd.DataFrame) -> pd.DataFrame:
    """Begin the later parts of a resized job when they were submitted, which is when it was resized.

    Slurm gives them the start of the whole job.
    """
    later = jobs["start"] < jobs["submit"]
    return jobs.assign(start=jobs["start"].mask(later & jobs["status"].ne("pending"), jobs["submit"]))


def _complete(jobs: pd.DataFrame, elapsed: pd.Series, log: LogColumns) -> pd.DataFrame:
    """Derive a start or an end that was missing from the dump from the elapsed time."""
    waits = jobs["status"] == "pending"
    start = jobs["start"].fillna(log.shifted(jobs["end"], -elapsed.where(elapsed > 0))).mask(waits)
    over = jobs["status"].notna() & (jobs["status"] != "running")
    end = jobs["end"].fillna(log.shifted(start, elapsed.where(over))).mask(waits)
    return jobs.assign(start=start, end=end)


def _elapsed(log: LogColumns) -> pd.Series:
    if "ElapsedRaw" in log:
        return log.number("ElapsedRaw")
    return map_unique(log.text("Elapsed"), parse_slurm_seconds, "float64")


def _time_limit(log: LogColumns) -> pd.Series:
    """Seconds; missing where the limit is a word such as UNLIMITED."""
    if "TimelimitRaw" in log:
        return pd.to_numeric(log.text("TimelimitRaw"), errors="coerce").astype("float64") * 60
    return map_unique(log.text("Timelimit"), parse_slurm_seconds, "float64")


def _gpus(log: LogColumns) -> pd.DataFrame:
    """Columns ``gpus``, ``gpu_type`` and ``devices``."""
    shards = _shards_per_gpu(log)
    found = _count(log.text("AllocTRES").fillna(log.text("ReqTRES")), shards)
    nodes = log.number("NNodes").clip(lower=1).fillna(1) if "ReqGRES" in log else 1.0
    for gres, count in (("AllocGRES", 1.0), ("ReqGRES", nodes)):
        if gres in log:
            other = _count(log.text(gres), shards)
            other = other.assign(gpus=other["gpus"] * count, devices=other["devices"] * count)
            found = found.mask(found["gpus"] == 0, other)
    log.reject(found["shards"], NO_SHARDS)
    log.reject(found["gpus"].isna(), "unreadable number of GPUs")
    return found


def _shards_per_gpu(log: LogColumns) -> pd.Series | float:
    if not isinstance(log.shards_per_gpu, Mapping):
        return math.nan if log.shards_per_gpu is None else log.shards_per_gpu
    by_node = log.shards_per_gpu

    def of_first_node(nodes: str) -> float:
        """Shards a GPU on the first of some nodes; a job on shards has one only."""
        match = _FIRST_NODE.match(nodes)
        return by_node.get("".join(part or "" for part in match.groups()), math.nan) if match else math.nan

    known = set(by_node.values())
    # A job that waits has no node yet.
    return map_unique(log.text("NodeList"), of_first_node, "float64").fillna(
        known.pop() if len(known) == 1 else math.nan
    )


def _count(text: pd.Series, shards_per_gpu: pd.Series | float) -> pd.DataFrame:
    """Counts of GPUs; all but the entries of GPUs are dropped first, which leaves few unique values."""
    entries = pc.replace_substring_regex(pa.array(text, pa.string()), r"\([^)]*\)", "")
    entries = pd.Series(pc.replace_substring_regex(entries, r"(^|,)[^gGs ,][^,]*", "").to_pandas(), dtype=STRING)
    keys = pd.DataFrame({"tres": entries.where(text.notna(), ""), "shards": shards_per_gpu})
    code = keys.groupby(["tres", "shards"], dropna=False, sort=False).ngroup().to_numpy()
    unique = keys.iloc[np.unique(code, return_index=True)[1]]
    counts = [count_tres(tres, shards) for tres, shards in unique.itertuples(index=False, name=None)]
    found = pd.DataFrame(counts, columns=["gpus", "gpu_type", "devices", "shards"]).iloc[code].set_axis(text.index)
    return found.astype({"gpus": "float64", "gpu_type": STRING, "devices": "float64", "shards": bool})


def _used(log: LogColumns, elapsed: pd.Series, step: BoolArray, job_id: pd.Series) -> pd.Series:
    """Used GPU-seconds of the rows, and for jobs that have none themselves the sum of their steps."""
    in_use = map_unique(log.text("TRESUsageInTot"), gpu_utilization, "float64")
    tasks = log.number("NTasks").fillna(1.0)
    in_use = in_use.fillna(map_unique(log.text("TRESUsageInAve"), gpu_utilization, "float64") * tasks)
    used = in_use * elapsed
    # Steps follow the row of their job, also where a requeued job has several.
    job = pd.Series(np.where(step, np.nan, np.arange(len(step)))).ffill()
    own = job_id.str.split(".", n=1, regex=False).str[0]
    belongs = step & job.notna().to_numpy() & own.eq(own.reindex(job).reset_index(drop=True)).to_numpy(dtype=bool)
    steps = used[belongs].groupby(job[belongs]).sum(min_count=1)
    return used.fillna(steps.reindex(used.index))
