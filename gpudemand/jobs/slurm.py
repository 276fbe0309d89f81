"""Slurm accounting: what ``sacct -a -X -P`` prints."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.jobs.files import LIMITS, Limits
from gpudemand.jobs.log_columns import LogColumns, map_unique, start_unstarted_at_end
from gpudemand.jobs.text import TextTable, read_csv
from gpudemand.units import parse_slurm_seconds

JOB_STEP = "job step"
SACCT_COLUMNS = (
    "JobID|JobIDRaw",
    "Submit|Start",
    "Start|ElapsedRaw|Elapsed",
    "End|ElapsedRaw|Elapsed",
    "AllocTRES|ReqTRES|AllocGRES|ReqGRES",
)
_GPU_ENTRY = re.compile(r"(?:gres[/:])?gpu(?P<rest>[:=].*)?$", re.IGNORECASE)
_UTILIZATION = re.compile(r"(?:^|,)gres/gpuutil=(\d+(?:\.\d+)?)")


def open_sacct(path: Path, limits: Limits = LIMITS) -> TextTable:
    """Read a dump with fields separated by vertical bars."""
    table = read_csv(path, limits, "|")
    name = table.names[0]
    if len(table.names) == 1 and re.match(r"JobID(Raw)?\s+\S", name, re.IGNORECASE):
        message = f"{path.name!r} is aligned with spaces or uses another separator, so long fields may be cut off"
        raise InputError(f"{message}; run sacct with -P (--parsable2) and keep its '|'.")
    return table


def sacct(log: LogColumns) -> pd.DataFrame:
    """Jobs of a Slurm dump, from any sufficient subset of sacct's columns (`SACCT_COLUMNS`).

    GPUs are those of AllocTRES, of ReqTRES where nothing was allocated, and of AllocGRES or ReqGRES (per node) where
    the TRES list no GPUs. The start of a job that was cancelled before it started is its end; a pending job has
    neither. Job steps (``123.batch``), which a dump without ``-X`` contains, are excluded. A pending array
    (``123_[4-9]``) is one row. ``used_gpu_seconds`` is gres/gpuutil of TRESUsageInAve, at most 100 %, times held time.
    ``reason`` is what kept a job waiting last.
    """
    job_id = log.text(log.first_present("JobID", "JobIDRaw"))
    log.exclude(job_id.str.contains(".", regex=False, na=False), JOB_STEP)
    gpus, gpu_type = _gpus(log)
    jobs = pd.DataFrame(
        {
            "job_id": job_id,
            **log.texts(user="User", group="Account", cluster="Cluster"),
            "submit": log.time("Submit").fillna(log.time("Eligible")),
            "start": log.time("Start"),
            "end": log.time("End"),
            "gpus": gpus,
            "gpu_type": gpu_type,
            "status": log.status("State"),
            "requested_time": _time_limit(log),
            **log.texts(partition="Partition", qos="QOS", reason="Reason"),
        }
    )
    elapsed = _elapsed(log)
    jobs = start_unstarted_at_end(_complete(jobs, elapsed, log))
    return jobs.assign(used_gpu_seconds=_utilization(log).clip(upper=1) * elapsed * gpus)


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


def _gpus(log: LogColumns) -> tuple[pd.Series, pd.Series]:
    tres, tres_type = _count(log.text("AllocTRES").fillna(log.text("ReqTRES")))
    gres, gres_type = _count(log.text("AllocGRES"))
    requested, requested_type = _count(log.text("ReqGRES"))
    nodes = log.number("NNodes") if "ReqGRES" in log else pd.Series(1.0, index=requested.index)
    gpus, gpu_type = tres, tres_type
    for count, names in ((gres, gres_type), (requested * nodes.clip(lower=1).fillna(1), requested_type)):
        none = gpus == 0
        gpus, gpu_type = gpus.mask(none, count), gpu_type.mask(none, names)
    log.reject(gpus.isna(), "unreadable number of GPUs")
    return gpus, gpu_type


def _count(text: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Count and type of GPUs; all but the GPU entries are dropped first, which leaves few unique values."""
    entries = pc.replace_substring_regex(pa.array(text, pa.string()), r"\([^)]*\)", "")
    entries = pd.Series(pc.replace_substring_regex(entries, r"(^|,)[^gG ,][^,]*", "").to_pandas(), dtype=STRING)
    count = map_unique(entries, lambda tres: count_gpus(tres)[0], "float64")
    return count.where(text.notna(), 0.0), map_unique(entries, lambda tres: count_gpus(tres)[1])


def count_gpus(tres: str) -> tuple[float, str | None]:
    """Number and type of the GPUs in a TRES or GRES string.

    If a site tracks GPUs with and without their type, the typed entries are parts of the untyped one.

    Parameters
    ----------
    tres : str
        Such as ``"cpu=8,gres/gpu=2,gres/gpu:a100=2"`` or ``"gpu:a100:2(IDX:0-1)"``.

    Returns
    -------
    gpus : float
        0 without a GPU entry, NaN where an entry cannot be read.
    gpu_type : str or None
        Several types are sorted and joined by ``"+"``.

    Examples
    --------
    >>> count_gpus("cpu=8,gres/gpu=2,gres/gpu:a100=2,gres/gpumem=10G")
    (2.0, 'a100')
    >>> count_gpus("gres/gpu:v100=1,gres/gpu:a100=2")
    (3.0, 'a100+v100')
    >>> count_gpus("gpu:2"), count_gpus("cpu=4"), count_gpus("gres/gpu=two")
    ((2.0, None), (0.0, None), (nan, None))
    """
    typed: dict[str, float] = {}
    total = 0.0
    for entry in re.sub(r"\([^)]*\)", "", tres).split(","):
        match = _GPU_ENTRY.match(entry.strip())
        if match:
            name, count = _entry(match["rest"])
            if name:
                typed[name] = typed.get(name, 0.0) + count
            else:
                total += count
    known = "+".join(sorted(name for name, count in typed.items() if count > 0)) or None
    gpus = float(np.maximum(total, sum(typed.values())))
    return (gpus, None if math.isnan(gpus) else known)


def _entry(rest: str | None) -> tuple[str, float]:
    """Type (or an empty string) and count in one entry, from the text after ``gpu``."""
    parts = re.split("[:=]", rest[1:]) if rest else ["1"]
    if len(parts) == 1:
        parts = ["", parts[0]] if parts[0].isdecimal() or rest is None or rest[0] == "=" else [parts[0], "1"]
    name, count = ":".join(parts[:-1]), parts[-1]
    return name, float(count) if re.fullmatch(r"[0-9]+", count) else math.nan


def _utilization(log: LogColumns) -> pd.Series:
    def share(usage: str) -> float:
        """GPU utilization in a field of sacct, as a share of 1; NaN if the field has none."""
        match = _UTILIZATION.search(usage)
        return float(match[1]) / 100 if match else math.nan

    return map_unique(log.text("TRESUsageInAve"), share, "float64")
