"""The canonical job table: one row a job, the same columns for every format."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import STRING, BoolArray
from gpudemand._validation import InputError, RejectedRowsWarning, check_columns

TIME = "datetime64[ns, UTC]"

#: Column -> dtype. Times are UTC; ``requested_time`` is in seconds; NaN, NaT where unknown.
COLUMNS: dict[str, object] = {
    "job_id": STRING,
    "user": STRING,
    "group": STRING,
    "cluster": STRING,
    "submit": TIME,
    "start": TIME,
    "end": TIME,
    "gpus": "float64",
    "gpu_type": STRING,
    "status": STRING,
    "requested_time": "float64",
    "used_gpu_seconds": "float64",
}

#: ``pending`` and ``running`` jobs have no end yet; every other status is final.
STATUSES = ("pending", "running", "completed", "failed", "cancelled", "timeout", "out_of_memory", "preempted")

KINDS = ("measured", "public trace", "synthetic")

#: More GPUs in one job are a corrupt number.
MAX_GPUS = 1_000_000
EARLIEST = pd.Timestamp("1985-01-01", tz="UTC")
LATEST = pd.Timestamp("2200-01-01", tz="UTC")


def as_jobs(frame: pd.DataFrame, *, kind: str, source: str = "") -> pd.DataFrame:
    """Convert a frame to the canonical columns and types; further columns follow them.

    Parameters
    ----------
    frame : DataFrame
        Any of the canonical columns (see `COLUMNS`), and others. At least one of ``submit`` and ``start`` is needed.
    kind : {"measured", "public trace", "synthetic"}
        Kind of data, which every figure states.
    source : str
        Name of the source, for the report.

    Returns
    -------
    DataFrame
        Columns of `COLUMNS` in order, then the others; ``attrs`` holds ``kind``, ``source`` and ``rejected``.
    """
    if "submit" not in frame.columns and "start" not in frame.columns:
        raise InputError("a job table needs the column 'submit' or 'start'; it has neither.")
    known = {name: _column(frame, name, dtype) for name, dtype in COLUMNS.items()}
    others = {name: frame[name] for name in frame.columns if name not in COLUMNS}
    jobs = pd.DataFrame({**known, **others}, index=frame.index).reset_index(drop=True)
    jobs["submit"] = jobs["submit"].fillna(jobs["start"])
    jobs.attrs = {"kind": kind, "source": source, "rejected": dict(frame.attrs.get("rejected", {}))}
    return jobs


def _column(frame: pd.DataFrame, name: str, dtype: object) -> pd.Series:
    if name not in frame.columns:
        return pd.Series(np.nan if dtype == "float64" else None, index=frame.index, dtype=dtype)
    values = frame[name]
    if dtype == TIME:
        if not pd.api.types.is_datetime64_any_dtype(values):
            raise InputError(
                f"the column {name!r} must hold times; got {values.dtype}. Convert it with pd.to_datetime."
            )
        if values.dt.tz is None:
            raise InputError(f"the times in {name!r} have no time zone; give them one with .dt.tz_localize.")
        return values.dt.tz_convert("UTC").dt.as_unit("ns")
    return values.astype(dtype)


def rejections(jobs: pd.DataFrame) -> pd.Series:
    """Reason why each row of a canonical table cannot be used (the first that applies), NaN where it can."""
    times = jobs[["submit", "start", "end"]]
    begin = jobs["start"].fillna(jobs["submit"])
    rules: dict[str, pd.Series] = {
        "no submit or start time": begin.isna(),
        "time outside 1985 to 2200": ((times < EARLIEST) | (times > LATEST)).any(axis=1),
        "end before start": jobs["end"] < begin,
        "start before submit": jobs["start"] < jobs["submit"],
        "negative number of GPUs": jobs["gpus"] < 0,
        f"more than {MAX_GPUS:,} GPUs": jobs["gpus"] > MAX_GPUS,
        "unknown number of GPUs": jobs["gpus"].isna(),
        # Otherwise it would count as running until the end of the log.
        "finished without an end time": jobs["end"].isna() & jobs["status"].isin(STATUSES[2:]),
    }
    reason = pd.Series(np.nan, index=jobs.index, dtype=object)
    for text, rows in reversed(rules.items()):
        reason[rows.to_numpy(dtype=bool)] = text
    return reason


def superseded(jobs: pd.DataFrame) -> BoolArray:
    """Rows that a later record of the same job supersedes, as in concatenated daily dumps.

    Of rows with the same cluster, job id and start, the one with the latest known end is used. A pending row is
    superseded by a started one, and a row without an end by one that started later. A requeued job has several starts
    and keeps all of its runs that have an end.
    """
    names = jobs[["cluster", "job_id"]].fillna({"cluster": ""})
    repeated = (names.duplicated(keep=False) & jobs["job_id"].notna()).to_numpy()
    records = jobs[repeated].assign(cluster=names["cluster"][repeated])
    key = ["cluster", "job_id"]
    by_end = records.sort_values("end", kind="stable", na_position="first")
    same_run = by_end.duplicated([*key, "start"], keep="last").reindex(records.index)
    last_start = records.groupby(key)["start"].transform("max")
    not_started = records["start"].isna() & last_start.notna()
    never_ended = records["end"].isna() & (records["start"] < last_start)
    mask = np.zeros(len(jobs), dtype=bool)
    mask[repeated] = (same_run | not_started | never_ended).to_numpy(dtype=bool)
    return mask


def warn_rejections(rejected: Mapping[str, int], total: int, source: str) -> None:
    """Warn how many rows of a log were left out, by reason."""
    if rejected:
        parts = ", ".join(f"{count:,} {reason}" for reason, count in sorted(rejected.items(), key=lambda kv: -kv[1]))
        message = f"{source}: {sum(rejected.values()):,} of {total:,} rows left out ({parts})."
        warnings.warn(message, RejectedRowsWarning, stacklevel=3)


def saved_attrs(schema: Any, source: str = "the file") -> dict[str, Any]:
    """Return the ``attrs`` that pandas stored in the schema of a Parquet file; kind and counts are checked."""
    text = (schema.metadata or {}).get(b"PANDAS_ATTRS", b"{}")
    try:
        saved = dict(json.loads(text))
        counts = dict(saved.get("rejected", {})).values()
        if saved.get("kind", "") not in ("", *KINDS) or not all(isinstance(n, int) and n >= 0 for n in counts):
            raise ValueError("unknown kind or counts")
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(
            f"the metadata PANDAS_ATTRS of {source!r} are broken ({error}); write the file anew."
        ) from error
    return saved


def check_jobs(jobs: object) -> pd.DataFrame:
    """Return `jobs` if it is a canonical job table with at least one row."""
    frame = check_columns(jobs, COLUMNS, "jobs")
    if frame.empty:
        raise InputError("the job table has no rows; there is nothing to report on.")
    return frame
