"""Standard Workload Format 2.2 of the Parallel Workloads Archive."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from gpudemand._validation import InputError
from gpudemand.jobs.columns import LogColumns, map_unique
from gpudemand.jobs.files import LIMITS, Limits, TextTable, concatenate, line_blocks, parse_lines

FIELDS = (
    *("job", "submit", "wait", "run", "allocated", "cpu_time", "memory", "requested", "requested_time"),
    *("requested_memory", "status", "user", "group", "executable", "queue", "partition", "preceding", "think_time"),
)
_UNKNOWN = -1
_NAMED = ("user", "group", "queue", "partition")
_STATUS = {"0": "failed", "1": "completed", "5": "cancelled"}
_JOB = re.compile(r"[;\s]*(?:[+-]?[0-9.]+\s+){17}[+-]?[0-9.]+\s*")


def open_swf(path: Path, limits: Limits = LIMITS) -> TextTable:
    """Read the eighteen columns and the ``;`` header; jobs behind a ``;`` are listed in ``bad``."""
    tables, comments = [], {}
    for first, raw in line_blocks(path, limits):
        lines = pc.ascii_trim_whitespace(pc.replace_substring_regex(raw, r"[ \t]+", " "))
        found = np.flatnonzero(pc.starts_with(lines, ";").to_numpy(zero_copy_only=False))
        comments.update({first + int(line): lines[line].as_py() for line in found})
        lines = pc.replace_substring_regex(lines, "^;.*", "")
        tables.append(parse_lines(lines, first, list(FIELDS), path.name, " "))
    table = concatenate(tables)
    if not len(table):
        raise InputError(f"{path.name!r} has a header and no jobs.")
    bad = {**table.bad, **{line: "commented out" for line, text in comments.items() if _JOB.fullmatch(text)}}
    return replace(table, bad=bad, header=_read_header(list(comments.values())))


def _read_header(lines: list[str]) -> dict[str, str]:
    """Label -> value; the label of user 3's name is ``User 3``."""
    matches = (re.match(r"; ?(\w+): ?(.*)$", line) for line in lines)
    found = [(match[1], match[2]) for match in matches if match]
    named = [(label, value.partition(" ")) for label, value in found if label.lower() in _NAMED]
    return {**dict(found), **{f"{label} {number}": name.strip() for label, (number, _, name) in named if name.strip()}}


def swf(log: LogColumns) -> pd.DataFrame:
    """Jobs of an SWF log. For a log of a CPU machine, ``gpus`` are its processors.

    Times are UTC: seconds after ``UnixStartTime`` of the header, which ``origin`` replaces, or epoch seconds. GPUs are
    the processors allocated, or else requested; a job without a known number has 0 if it did not run, and is rejected
    if it did. Where the wait is unknown, so is the start, and the run counts from the submit. A cancelled job without a
    run time never ran. Lines for parts of a job between checkpoints are excluded: the first line of the job is the
    whole.
    """
    state = log.text("status")
    log.exclude(state.isin(["2", "3", "4"]), "part of a job that another line sums up")
    run = _known(log, "run")
    run = run.mask((state == "5") & run.isna(), 0.0)
    seconds = pd.to_numeric(log.table.header.get("UnixStartTime", ""), errors="coerce")
    first = pd.Timestamp(float(seconds), unit="s", tz="UTC") if 0 < seconds < 7e9 else None
    submit = log.since_origin(_known(log, "submit"), first)
    start = log.shifted(submit, _known(log, "wait"))
    # A cancelled job without a start, in a log that has starts, would count as one that never ran.
    start = start.mask((state == "5") & start.isna() & (run > 0) & start.notna().any(), submit)
    requested, end = log.time_limit("requested_time"), log.shifted(start.fillna(submit), run)
    gpus = _known(log, "allocated").fillna(_known(log, "requested"))
    jobs = pd.DataFrame(
        {
            "job_id": log.text("job"),
            **{column: _names(log, column) for column in ("user", "group")},
            "submit": submit,
            "start": start,
            "end": end,
            "gpus": gpus.mask(gpus.isna() & ~(run > 0), 0.0),
            "status": map_unique(state, _STATUS.get),
            "requested_time": requested.where(requested > 0),
            **{column: _names(log, column) for column in ("queue", "partition")},
        }
    )
    jobs.attrs["max_procs"] = log.table.header.get("MaxProcs")
    return jobs


def _known(log: LogColumns, name: str) -> pd.Series:
    return log.number(name).replace(_UNKNOWN, np.nan)


def _names(log: LogColumns, column: str) -> pd.Series:
    label = column.capitalize()
    return map_unique(log.text(column).replace("-1", np.nan), lambda n: log.table.header.get(f"{label} {n}", n))
