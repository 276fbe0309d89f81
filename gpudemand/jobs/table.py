"""The canonical job table: conversion, rules of its rows, and the log as it stood at an earlier time."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from gpudemand._array import STRING, BoolArray, FloatArray, IntArray
from gpudemand._validation import (
    InputError,
    RejectedRowsWarning,
    UnlikelyJobsWarning,
    as_numbers,
    as_pandas,
    check_columns,
    stack_level,
)
from gpudemand.jobs import schema
from gpudemand.jobs.columns import LogColumns, canonical_status, map_unique, without_decimals
from gpudemand.jobs.files import TextTable
from gpudemand.jobs.schema import COLUMNS, TIME
from gpudemand.jobs.times import TimeParser, parse_timezone

#: Fewer rows may be the same by chance.
_MIN_ROWS = 20
#: Where exports overlap, so many of the rows are the same; no part of a log is shorter than this share of it.
_ALIKE, _PART = 0.9, 0.01
_NO_IDS = "as it has no job_id that tells them apart: if it was put together of files that overlap, read each row once."


def as_jobs(frame: pd.DataFrame, *, kind: str, source: str = "") -> pd.DataFrame:
    """Convert a frame to the canonical columns and types; further columns follow them.

    `frame`: any of the canonical columns (see `COLUMNS`), and others. At least one of ``submit`` and ``start`` is
    needed. `kind`: {"measured", "public trace", "synthetic"}; kind of data, which every figure states. `source`: name
    of the source, for the report. Returns columns of `COLUMNS` in order, then the others; ``attrs`` holds ``kind``,
    ``source`` and ``rejected``.
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
            problem = f"the column {name!r} must hold times; got {values.dtype}"
            raise InputError(f"{problem}. Convert it with pd.to_datetime.")
        if values.dt.tz is None:
            raise InputError(f"the times in {name!r} have no time zone; give them one with .dt.tz_localize.")
        return values.dt.tz_convert("UTC").dt.as_unit("ns")
    return values.astype(dtype)


def rejections(jobs: pd.DataFrame) -> pd.Series:
    """Reason why each row of a canonical table cannot be used (the first that applies), NaN where it can."""
    found = _query(f"SELECT {schema.first_reason(schema.RULES | schema.UNKNOWN_RULES)} AS reason FROM jobs", jobs)[
        "reason"
    ]
    reasons = np.full(len(jobs), np.nan, dtype=object)
    if found.null_count < len(found):
        reasons[found.is_valid().to_numpy()] = found.drop_null().to_numpy()
    return pd.Series(reasons, index=jobs.index)


def _for_rules(jobs: pd.DataFrame) -> pa.Table:
    """Arrow table of what the rules refer to; times (``start_us``, ...) are in microseconds since 1970."""
    times = [name for name, dtype in COLUMNS.items() if dtype == TIME]
    return pa.table(
        {name: pa.array(jobs[name], from_pandas=True) for name in ("job_id", "cluster", "status", "gpus")}
        | {f"{name}_us": pa.array(jobs[name].dt.as_unit("us")).cast(pa.int64()) for name in times}
    )


def _query(sql: str, jobs: pd.DataFrame) -> pa.Table:
    """Result of a query over ``jobs``, in the order of its rows."""
    with database().cursor() as db:
        db.register("jobs", _for_rules(jobs))
        return pa.table(db.sql(sql))


@cache
def database() -> duckdb.DuckDBPyConnection:
    """Database for queries over tables in memory; a cursor of it holds what is temporary apart."""
    # Opening one takes longer than most queries; without threads of its own it survives a fork.
    return duckdb.connect(config={"threads": 1})


def with_waiting(jobs: pd.DataFrame) -> pd.DataFrame:
    """Jobs, of which those wait that have no start, no end and no known status, where others have a start."""
    unsaid = jobs["status"].isna() & jobs["start"].isna() & jobs["end"].isna()
    if not unsaid.any() or jobs["start"].isna().all():
        return jobs
    return _assign(jobs, status=jobs["status"].astype(STRING).mask(unsaid, "pending"))


def _assign(jobs: pd.DataFrame, **columns: pd.Series) -> pd.DataFrame:
    """Jobs with other columns and the same ``attrs``."""
    changed = jobs.assign(**columns)
    changed.attrs = dict(jobs.attrs)
    return changed


def without_unset_times(jobs: pd.DataFrame) -> pd.DataFrame:
    """Jobs without the times by which programs say that a job has not started or ended yet, such as 1970."""
    changed = {}
    for name, words in (("start", ["pending"]), ("end", ["pending", "running"])):
        odd = (jobs[name] < schema.EARLIEST) | (jobs[name] > schema.LATEST)
        if odd.any() and (unset := odd & jobs["status"].isin(words)).any():
            changed[name] = jobs[name].mask(unset.to_numpy(dtype=bool))
    return _assign(jobs, **changed) if changed else jobs


def ids_repeat(jobs: pd.DataFrame) -> bool:
    """Whether two rows have one job id; in most logs none have, which this tells sooner than a table of the ids."""
    return _repeats(schema.HASHES.format(of="job_id", relation="jobs"), jobs)


def superseded(jobs: pd.DataFrame) -> BoolArray:
    """Rows that a later record of the same job supersedes, as in concatenated daily dumps.

    Of rows with the same cluster, job id and start, the one with the latest known end is used. A pending row is
    superseded by one that started since it was submitted, and a row without an end by one that started later. A
    requeued job has several starts and keeps all of its runs that have an end.
    """
    names = jobs[["cluster", "job_id"]].fillna({"cluster": ""})
    repeated = (names.duplicated(keep=False) & jobs["job_id"].notna()).to_numpy()
    records = jobs[repeated].assign(cluster=names["cluster"][repeated])
    key = ["cluster", "job_id"]
    by_end = records.sort_values("end", kind="stable", na_position="first")
    same_run = by_end.duplicated([*key, "start"], keep="last").reindex(records.index)
    last_start = records.groupby(key)["start"].transform("max")
    # A job that was requeued may wait again, from a later submission on.
    not_started = records["start"].isna() & (last_start >= records["submit"])
    never_ended = records["end"].isna() & (records["start"] < last_start)
    mask = np.zeros(len(jobs), dtype=bool)
    mask[repeated] = (same_run | not_started | never_ended).to_numpy(dtype=bool)
    return mask


def submitted_again(jobs: pd.DataFrame) -> pd.DataFrame:
    """Jobs, of whose runs each one waits since the one before it ended, as the job held its GPUs until then.

    Only Slurm writes a new submission for a job that was put back. Runs are rows of one job id and one submission that
    follow one another; tasks that share an id run side by side.
    """
    if not _repeats(schema.HASHES.format(of="cluster, job_id, submit_us", relation="jobs"), jobs):
        return jobs
    key = ["cluster", "job_id", "submit"]
    known = (jobs["job_id"].notna() & jobs["start"].notna()).to_numpy(dtype=bool, copy=True)
    known[known] = jobs.loc[known, key].duplicated(keep=False)
    if not known.any():
        return jobs
    runs = jobs.loc[known, [*key, "start", "end"]].reset_index(drop=True).sort_values(["start", "end"], kind="stable")
    same = runs.groupby(key, dropna=False)
    before, first = same["end"].shift(), same.cumcount() == 0
    follows = (first | (runs["start"] >= before)).groupby(same.ngroup()).transform("all")
    again = runs["submit"].mask(follows & (before > runs["submit"]), before).sort_index()
    submit = jobs["submit"].copy()
    submit[known] = again.to_numpy()
    return _assign(jobs, submit=submit)


def unlike(jobs: pd.DataFrame, replaced: BoolArray) -> BoolArray:
    """Of rows that are superseded, runs that ended and are no copies of one that counts: perhaps nodes or tasks."""
    mask = replaced & (jobs["start"].notna() & jobs["end"].notna()).to_numpy(dtype=bool)
    if mask.any():
        rows = np.flatnonzero(jobs["job_id"].isin(jobs["job_id"][mask]))
        plain = [name for name in jobs if jobs[name].dtype != object]
        hashes = pd.util.hash_pandas_object(jobs[plain].iloc[rows], index=False)
        mask[rows] &= ~hashes.isin(hashes[~replaced[rows]]).to_numpy()
    return mask


def doubled_rows(rows: pa.Table, begin: pd.Series) -> list[str]:
    """Sentence on a log without job ids of which most rows, or nearly all of some time, stand in it several times.

    `begin`: time of each row.
    """
    if len(rows) < _MIN_ROWS:
        return []
    with database().cursor() as db:
        db.register("log", rows)
        hashes = db.sql("SELECT hash(log) AS hash FROM log").fetchnumpy()["hash"]
    _, first, times = np.unique(hashes, return_index=True, return_counts=True)
    if said := most_twice(int((times == 2).sum()), len(rows)):
        return [said]
    if not (period := _overlap(begin.iloc[first], times > 1)):
        return []
    return [f"nearly all rows from {period} UTC stand in this log more than once, and count so, {_NO_IDS}"]


def most_twice(twice: int, rows: int) -> str:
    """Sentence on a log without job ids of which more than half of the rows are pairs of equal ones; else empty."""
    if rows < _MIN_ROWS or 4 * twice <= rows:
        return ""
    return f"{2 * twice:,} of {rows:,} rows stand in this log exactly twice, and count twice, {_NO_IDS}"


def _overlap(begin: pd.Series, again: BoolArray) -> str:
    """Time in which nearly all rows stand in a log again; empty where those that do are strewn, as by chance."""
    known = begin.notna().to_numpy(dtype=bool)
    order = np.argsort(to_nanoseconds(begin[known]), kind="stable")
    begin, again = begin[known].iloc[order], again[known][order]
    part = np.arange(len(again)) // max(_MIN_ROWS // 2, round(_PART * len(again)))
    alike = np.bincount(part, again) >= _ALIKE * np.bincount(part)
    inside = again & alike[part]
    if inside.sum() < max(_MIN_ROWS // 2, 0.5 * again.sum()):
        return ""
    return " to ".join(f"{time:%Y-%m-%d %H:%M}" for time in begin[inside].iloc[[0, -1]])


def _repeats(sql: str, jobs: pd.DataFrame) -> bool:
    """Whether two of the hashes that a query gives are equal: sorted, they take less time and memory than a table."""
    hashes = np.sort(_query(sql, jobs)["hash"].to_numpy())
    return bool((hashes[1:] == hashes[:-1]).any())


def _duplicated(jobs: pd.DataFrame, repeats: bool) -> BoolArray:
    """Rows whose job and start (or submit, if it has none) an earlier row has already."""
    mask = np.zeros(len(jobs), dtype=bool)
    if repeats and _repeats(schema.HASHES.format(of=schema.RUN, relation="jobs"), jobs):
        known = jobs["job_id"].notna().to_numpy()
        waiting = jobs["submit"].where(jobs["start"].isna())
        mask[known] = jobs[["cluster", "job_id", "start"]].assign(submit=waiting)[known].duplicated().to_numpy()
    return mask


def warn_rejections(rejected: Mapping[str, int], total: int, source: str) -> None:
    """Warn how many rows of a log were left out, by reason."""
    if rejected:
        parts = ", ".join(f"{count:,} {reason}" for reason, count in sorted(rejected.items(), key=lambda kv: -kv[1]))
        message = f"{source}: {sum(rejected.values()):,} of {total:,} rows left out ({parts})."
        warnings.warn(message, RejectedRowsWarning, stacklevel=stack_level())


def warn_doubts(sentences: Iterable[str], source: str) -> None:
    """Warn of each thing that is doubtful in a log."""
    for sentence in sentences:
        warnings.warn(f"{source}: {sentence}", UnlikelyJobsWarning, stacklevel=stack_level())


def saved_attrs(file: Any, source: str = "the file") -> dict[str, Any]:
    """Return the ``attrs`` that pandas stored in the schema of a Parquet file; kind, counts and times are checked."""
    text = (file.metadata or {}).get(b"PANDAS_ATTRS", b"{}")
    try:
        saved = dict(json.loads(text))
        counts = dict(saved.get("rejected", {})).values()
        if saved.get("kind", "") not in ("", *schema.KINDS) or not all(isinstance(n, int) and n >= 0 for n in counts):
            raise ValueError("unknown kind or counts")
        pd.to_datetime([saved.get(name) for name in (schema.COMPLETE_FROM, schema.COMPLETE_UNTIL)], utc=True)
    except (ValueError, TypeError, RecursionError) as error:
        problem = f"the metadata PANDAS_ATTRS of {source!r} are broken ({error})"
        raise InputError(f"{problem}; write the file anew.") from error
    return saved


def check_jobs(jobs: object, *, tz: object = None, allow_unknown: bool = False) -> pd.DataFrame:
    """Return a job table in canonical columns and types, if every row of it can be counted.

    `jobs`: any table (pandas, polars, pyarrow ...) with at least one row and the columns ``start`` (or ``submit``),
    ``end`` and ``gpus``; the other columns of `COLUMNS` are missing values where there is none. Times may be written
    as text, as the readers of files take it. `tz`: zone of times that have none. Of two local times that daylight
    saving repeats, the first is taken, or the second where a job would end before its start; one that it skips is
    refused. `allow_unknown`: whether a number of GPUs and the end of a finished job may be unknown. Returns columns
    of `COLUMNS` in order, then the others; index and ``attrs`` of `jobs`, which is not modified.
    """
    given = as_pandas(jobs, "jobs")
    check_columns(given, ("submit" if "submit" in given.columns else "start", "end", "gpus"), "jobs")
    if given.empty:
        raise InputError("the job table has no rows; there is nothing to report on.")
    frame = given.reset_index(drop=True)
    frame = frame.drop(columns=[name for name in COLUMNS if name in frame and frame[name].isna().all()])
    table, reasons, doubts = _read_columns(frame, tz)
    found = rejections(table)
    # `fillna` of object columns warns of downcasting in pandas 2.
    reasons = reasons.where(reasons.notna(), found.mask(found.isin(schema.UNKNOWN_RULES)) if allow_unknown else found)
    repeats = ids_repeat(table)
    reasons[_duplicated(table, repeats)] = schema.DUPLICATE
    # In a log that has starts, readers let a job that was cancelled while it waited start at its end.
    never = table["start"].isna() & table["end"].notna() & table["status"].eq("cancelled")
    never &= table["start"].notna().any()
    table["start"] = table["start"].mask(never.to_numpy(dtype=bool), table["end"])
    if reasons.notna().any():
        first = f"jobs.iloc[{reasons.notna().argmax()}]"
        raise InputError(f"jobs has {unusable(reasons.value_counts())}, the first at {first}; repair or drop them.")
    table = submitted_again(with_waiting(table)) if repeats else with_waiting(table)
    others = {name: frame[name] for name in frame.columns if name not in COLUMNS}
    others |= {name: read_names(others[name]) for name in schema.OTHER_KEYS if name in others}
    if "job_id" not in frame and given.attrs.get("kind", "measured") == "measured":
        doubts = [*doubts, *doubled_rows(_whole_rows(table, others), begin_times(table))]
    checked = pd.DataFrame({**table, **others}).set_axis(given.index)
    checked.attrs = dict(given.attrs)
    told = given.attrs.get(schema.DOUBTS, ())
    if new := [sentence for sentence in doubts if sentence not in told]:
        warn_doubts(new, "jobs")
        checked.attrs[schema.DOUBTS] = [*told, *new]
    return checked


def _whole_rows(table: pd.DataFrame, others: Mapping[Any, pd.Series]) -> pa.Table:
    """All columns of a table; of those that are not canonical, hashes."""
    hashed = (c.map(repr) if c.dtype in (object, np.longdouble) else c for c in others.values())
    hashes = {f"other {n}": pd.util.hash_pandas_object(c, index=False).to_numpy() for n, c in enumerate(hashed)}
    return pa.table({name: pa.array(column, from_pandas=True) for name, column in table.items()} | hashes)


def unusable(counts: Mapping[str, int]) -> str:
    """Words for rows that no total can include, by reason: the same for tables and for files."""
    return f"rows that cannot be counted ({', '.join(f'{count:,} {reason}' for reason, count in counts.items())})"


def _read_columns(frame: pd.DataFrame, tz: object) -> tuple[pd.DataFrame, pd.Series, list[str]]:
    """Canonical columns of a frame, the reason why a row cannot be read, NaN where it can, and sentences on the others.

    Cells go through the readers of files, so that a table and a file of it give the same.
    """
    log = LogColumns(
        TextTable(_cells(frame), np.arange(len(frame)), "jobs"),
        TimeParser(parse_timezone(tz), source="jobs", hint=" In a table, .dt.tz_localize gives times a zone."),
    )
    columns = {name: _read_column(frame, name, dtype, log) for name, dtype in COLUMNS.items()}
    columns["submit"] = columns["submit"].fillna(columns["start"])
    log.accept_open(pd.DataFrame(columns))
    table = log.parser.in_order(without_unset_times(pd.DataFrame(columns, index=frame.index)))
    reasons = pd.Series(log.reject_reason, dtype=object)
    reasons[reasons.str.startswith("unreadable", na=False)] = schema.UNREADABLE
    return table, reasons, log.unread()


def _read_column(frame: pd.DataFrame, name: str, dtype: object, log: LogColumns) -> pd.Series:
    if name in log:
        read = {"gpus": log.number, "requested_time": log.time_limit, "used_gpu_seconds": log.optional_number}
        return read.get(name, log.time)(name)
    if name == "requested_time" and name in frame.columns:
        limit = _column(frame, name, dtype)
        return limit.mask(np.isinf(limit)) if np.isinf(limit).any() else limit
    if name not in frame.columns or dtype != STRING:
        return _column(frame, name, dtype)
    text = read_names(frame[name])
    known = name != "status" or text.isin([*schema.STATUSES, np.nan]).all()
    return text if known else map_unique(text, canonical_status)


def read_names(column: pd.Series) -> pd.Series:
    """Names in any column as the readers of files take them: trimmed, and missing where nothing is left."""
    text = _as_text(column).str.strip()
    return without_decimals(text.mask(text == ""))


def _cells(frame: pd.DataFrame) -> pa.Table:
    """Times, and numbers that are not typed as such, as they would stand in a file."""
    times = [name for name, dtype in COLUMNS.items() if dtype == TIME and name in frame and frame[name].dtype != TIME]
    numbers = [name for name, dtype in COLUMNS.items() if dtype == "float64" and name in frame]
    untyped = [name for name in numbers if frame[name].dtype.kind not in "iuf"]
    columns = {name: frame[name] for name in (*times, *untyped)}
    is_typed = pd.api.types.is_datetime64_any_dtype
    return pa.table(
        {name: pa.array(c if is_typed(c) else _as_text(c), from_pandas=True) for name, c in columns.items()}
    )


def _as_text(column: pd.Series) -> pd.Series:
    """Text of any values; whole numbers without a decimal point, though a missing one made floats of them."""
    whole = column.dtype.kind == "f" and (column.isna() | (column % 1 == 0)).all()
    try:
        return (column.astype("Int64") if whole else column).astype(STRING)
    except UnicodeEncodeError:
        kind = f"the column {column.name!r} of jobs holds text that is no Unicode (halves of surrogate pairs)"
        raise InputError(f"{kind}; read it again with its encoding, such as encoding='latin-1'.") from None


def as_of(jobs: pd.DataFrame, time: pd.Timestamp) -> pd.DataFrame:
    """Return the log as it stood at a time, without any later information.

    Jobs submitted later are dropped; jobs that had not started are pending, and jobs that had not ended are running.

    `jobs`: job table; see `check_jobs`. `time`: with a zone. Returns the rows submitted before `time`, sorted by
    ``submit``, with later times and outcomes removed, and ``used_gpu_seconds`` removed from jobs that had not ended.
    """
    return checked_as_of(check_jobs(jobs, allow_unknown=True), time)


def checked_as_of(jobs: pd.DataFrame, time: pd.Timestamp) -> pd.DataFrame:
    """`as_of` for a table that `check_jobs` returned."""
    # A finished job whose end is unknown held nothing that is known, as in `usage_series`.
    unknown = jobs["end"].isna() & jobs["status"].isin(schema.FINISHED)
    log = jobs.assign(end=jobs["end"].mask(unknown, begin_times(jobs)))
    past = log[log["submit"] < time].sort_values("submit", kind="stable", ignore_index=True)
    # Where a log has no start times, jobs start at the submit unless their status says that they are pending.
    pending = (past["start"] >= time) | (past["start"].isna() & past["status"].eq("pending"))
    running = ~pending & (past["end"].isna() | (past["end"] > time))
    unfinished = pending | running
    known = past.assign(
        status=past["status"].astype(STRING).mask(pending, "pending").mask(running, "running"),
        start=past["start"].mask(pending),
        end=past["end"].mask(unfinished),
        used_gpu_seconds=past["used_gpu_seconds"].mask(unfinished),
    )
    # Runs of one job that were requeued later were one waiting job.
    again = pending & known["job_id"].notna() & known.duplicated(["cluster", "job_id", "start", "submit"])
    known = known[~again].reset_index(drop=True) if again.any() else known
    known.attrs = dict(log.attrs)
    if schema.COMPLETE_UNTIL in known.attrs:
        until = min(pd.Timestamp(known.attrs[schema.COMPLETE_UNTIL]), time)
        known.attrs[schema.COMPLETE_UNTIL] = until.isoformat()
    return known


def begin_times(jobs: pd.DataFrame) -> pd.Series:
    """Start of each job; its submission where the start is unknown."""
    return jobs["start"].fillna(jobs["submit"])


def start_times(jobs: pd.DataFrame) -> pd.Series:
    """Time from which each job holds GPUs: its start, or the submit where the start is unknown; NaT while pending."""
    pending = jobs["start"].isna() & jobs["status"].eq("pending")
    return begin_times(jobs).mask(pending)


def seconds_since(times: pd.Series, since: pd.Series | pd.Timestamp) -> FloatArray:
    """Seconds from `since` to each of `times`; NaN where either is missing."""
    return (times - since).dt.total_seconds().to_numpy(dtype=float)


def wall_clock_seconds(times: pd.Series, tz: object) -> FloatArray:
    """Local wall-clock time as seconds since 1970, for hours and weekdays; NaN where missing."""
    wall = times.dt.tz_convert(tz).dt.tz_localize(None)
    return ((wall - pd.Timestamp("1970-01-01")) / pd.Timedelta("1s")).to_numpy(dtype=float)


def training_steps(jobs: pd.DataFrame) -> FloatArray:
    """Steps that jobs train for: ``epochs * ceil(samples / (batch_size * gpus))``, shape (n_jobs,).

    `jobs`: ``gpus``, ``batch_size`` (per GPU), ``epochs`` and ``samples`` (of the training set).
    """
    needed = ("gpus", "batch_size", "epochs", "samples")
    table = check_columns(jobs, needed, "jobs")
    gpus, batch, epochs, samples = (as_numbers(table[name], f"jobs[{name!r}]") for name in needed)
    return np.asarray(epochs * np.ceil(samples / (batch * gpus)))


def gave_up(jobs: pd.DataFrame) -> BoolArray:
    """Jobs that were cancelled while they waited, which readers of logs let start at their end."""
    over = jobs["end"] <= begin_times(jobs)
    return (jobs["status"].eq("cancelled") & over).to_numpy(dtype=bool)


def to_nanoseconds(times: pd.Series) -> IntArray:
    """Nanoseconds since 1970 of times without missing ones."""
    return times.dt.as_unit("ns").astype("int64").to_numpy()
