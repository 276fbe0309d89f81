"""Slurm's accounting: rows of sacct, TRES strings, node events."""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from gpudemand._array import STRING, BoolArray
from gpudemand._validation import InputError
from gpudemand.jobs.columns import LogColumns, map_unique, start_unstarted_at_end
from gpudemand.jobs.files import (
    LIMITS,
    Limits,
    TextTable,
    check_header,
    first_bytes,
    read_csv,
    read_headerless,
    read_json,
    say_if_cut_off,
)
from gpudemand.jobs.plausibility import not_counted, unused_shares
from gpudemand.jobs.schema import EARLIEST, RAN_UNTIL
from gpudemand.units import format_number_of, gpu_share, parse_slurm_seconds, slice_shares

#: A request may say what it is for each of (``--gpus-per-node`` and its sisters).
_PER = "PER_(NODE|JOB|TASK|SOCKET):"
_ENTRY = re.compile(rf"(?:{_PER})?(?:gres[/:])?(?P<kind>[A-Za-z]\w*)(?P<rest>[:=].*)?$", re.IGNORECASE)
#: Names that sites and vendors give to whole accelerators (Hygon, Ascend, Enflame, Cambricon, Intel, Habana, Google).
ACCELERATORS = ("gpu", "dcu", "npu", "gcu", "mlu", "xpu", "hpu", "tpu", "ipu", "ppu", "gaudi", "hl", "ascend")
_PARTS = ("shard", "mps")
#: Generic resources that are known to be no accelerators, and what TRES lists have beside these.
_OTHER_GRES = {
    *("gpumem", "gpuutil", "gpucores", "craynetwork", "nic", "bandwidth", "hbm", "nvme", "ssd", "disk", "scratch"),
    *("tmp", "tmpfs", "tmpdisk", "localtmp", "localscratch", "lscratch", "fs", "lustre", "mem", "cpu", "license"),
    "none",
}
#: Names of types that may be slices; AMD calls its partitions DPX, TPX, QPX and CPX.
_LIKE_SLICE = re.compile(r"mig|\d+g\.\d+gb|(?<![a-z])[dtqc]px(?![a-z])", re.IGNORECASE)
_SITE_GRES = re.compile(r"(?:^|,)gres/([A-Za-z]\w*)[:=]")
_UTILIZATION = re.compile(r"(?:^|,)gres/gpuutil=(\d+(?:\.\d+)?)(?:,|$)")
#: Entries of every list; without them, few unique lists are left.
_NO_DEVICES = r"(^|,)(cpu|mem|node|billing|energy|vmem|pages|fs/|ic/|bb/|license/)[^,]*"
_MEMORY = r"(?:^|,)gres/gpumem="


@dataclass(frozen=True)
class GpuCount:
    """GPUs in a TRES string.

    `gpus`: whole GPUs, and slices, shards and MPS as shares of one; NaN where an entry cannot be read, or (`shards`)
    only because the number of shards a GPU is not known. `gpu_type`: several types are sorted and joined by ``"+"``;
    shards without a type are of the type ``shard``. `devices`: what Slurm itself counts as ``gres/gpu``: each slice is
    one, shards are none.
    """

    gpus: float
    gpu_type: str | None
    devices: float
    shards: bool = False


def count_tres(tres: str, shards_per_gpu: float = math.nan, shares: Mapping[str, float] | None = None) -> GpuCount:
    """Count the GPUs of a string such as ``cpu=8,gres/gpu=2,gres/gpu:a100=2`` or ``gpu:a100:2(IDX:0-1)``.

    If a site tracks GPUs with and without their type, the typed entries are parts of the untyped one. `shards_per_gpu`:
    how many ``gres/shard`` make one GPU; of ``gres/mps`` 100 do. `shares`: share of a GPU that a device of a type, or
    of a resource of another name, is.
    """
    given = {name.lower(): Fraction(share).limit_denominator(10**6) for name, share in (shares or {}).items()}
    found = _counts_by_kind(tres, given)
    typed = {kind: {name: n for name, n in counts.items() if name} for kind, counts in found.items()}
    if any(math.isnan(n) for counts in found.values() for n in counts.values()):
        return GpuCount(math.nan, None, math.nan)
    total = {kind: max(counts.get("", 0.0), sum(typed[kind].values())) for kind, counts in found.items()}
    shard = given.get("shard")
    parts = total["shard"] / shards_per_gpu if shard is None else total["shard"] * float(shard)
    # Slurm's documentation advises a count of 100 a GPU, so that requests of MPS are percentages.
    parts = (parts if found["shard"] else 0.0) + total["mps"] * float(given.get("mps", Fraction(1, 100)))
    whole = [kind for kind in found if kind not in _PARTS]
    gpus = sum((Fraction(total[kind]) * given.get(kind, 1) for kind in whole), Fraction())
    gpus += sum(
        Fraction(n) * (given.get(name.lower(), gpu_share(name)) - given.get(kind, 1))
        for kind in whole
        for name, n in typed[kind].items()
    )
    types = {name for counts in typed.values() for name, n in counts.items() if n > 0}
    types |= {kind for kind in found if kind != "gpu" and total[kind] > 0 and not any(typed[kind].values())}
    count = float(gpus) + parts
    return GpuCount(count, "+".join(sorted(types)) or None, sum(total[kind] for kind in whole), math.isnan(count))


def _counts_by_kind(tres: str, given: Collection[str] = ()) -> dict[str, dict[str, float]]:
    """Counts of accelerators, ``shard`` and ``mps`` by type, which is empty where none is written."""
    found: dict[str, dict[str, float]] = {kind: defaultdict(float) for kind in ("gpu", *_PARTS)}
    for entry in re.sub(r"\([^)]*\)", "", tres).split(","):
        match = _ENTRY.match(entry.strip())
        kind = match["kind"].lower() if match else ""
        if match and kind in (*ACCELERATORS, *_PARTS, *given):
            name, count = _named_count(match["rest"])
            found.setdefault(kind, defaultdict(float))[name] += count
    return found


def _named_count(rest: str | None) -> tuple[str, float]:
    """Type (or an empty string) and count in one entry, from the text after ``gpu``."""
    parts = re.split("[:=]", rest[1:]) if rest else ["1"]
    if len(parts) == 1:
        parts = ["", parts[0]] if parts[0].isdecimal() or rest is None or rest[0] == "=" else [parts[0], "1"]
    name, count = ":".join(parts[:-1]), parts[-1]
    return name, float(count) if re.fullmatch(r"[0-9]+", count) else math.nan


def gpu_utilization(usage: str) -> float:
    """GPU utilization in a field such as TRESUsageInTot, as a number of GPUs in full use; NaN if it has none.

    Slurm adds up the percentages of the GPUs that a process uses, so that two GPUs at 75 % are 150.
    """
    match = _UTILIZATION.search(usage)
    percent = float(match[1]) if match else math.nan
    # A process cannot use more of all GPUs of a job; Slurm prints 2 ** 64 - 2 for what it cannot read.
    return percent / 100 if percent <= 1e8 else math.nan


def shards_per_gpu(gres: str) -> float:
    """Shards a GPU on a node, from its line of ``sinfo -o %G``; NaN where it has none.

    >>> shards_per_gpu("gpu:h100:8(S:0-1),shard:h100:32(S:0-1)")
    4.0
    """
    counts = {name: sum(found.values()) for name, found in _counts_by_kind(gres).items()}
    return counts["shard"] / counts["gpu"] if counts["gpu"] and counts["shard"] else math.nan


#: Fields in which users write what they like.
_FREE_TEXT = (
    *("JobName", "Comment", "AdminComment", "SystemComment", "Extra", "WorkDir", "SubmitLine", "Container"),
    *("StdIn", "StdOut", "StdErr"),
)
#: Field -> pattern of its cells.
_CHECKS = {
    **dict.fromkeys(("Submit", "Eligible", "Start", "End"), r"|None|Unknown|\d+|\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*"),
    **dict.fromkeys(("ElapsedRaw", "UID", "GID", "NNodes", "NCPUS", "AllocCPUS", "CPUTimeRAW"), r"\d*"),
    "State": r"[A-Z_]+( by \d+)?\+?",
}
#: A name of more lines than this is a damaged file.
_MAX_LINES = 20


def mend_rows(lines: Any, names: Sequence[str]) -> Any:
    """Return lines with the rows put together again that free text broke, where only one reading of them makes sense.

    Line numbers stay: the further lines of a row are blank. In the mended text, bars are written ``¦`` and line breaks
    as spaces.

    >>> lines = pa.array(["7|a|b|COMPLETED", "8|two", "lines|FAILED", "9|c|RUNNING"])
    >>> mend_rows(lines, ["JobID", "JobName", "State"]).to_pylist()
    ['7|a¦b|COMPLETED', '8|two lines|FAILED', '', '9|c|RUNNING']
    """
    bars, width = np.asarray(pc.count_substring(lines, "|")), len(names) - 1
    free = [place for place, name in enumerate(names) if name in _FREE_TEXT]
    if not free or (bars == width).all():
        return lines
    texts = lines.to_pylist()
    for first in np.flatnonzero(bars != width).tolist():
        last = first
        while bars[first : last + 1].sum() < width and last - first < _MAX_LINES:
            if last + 1 == len(texts) or bars[last + 1] == width:  # the end, or a row of its own
                break
            last += 1
        mended = _mend(" ".join(texts[first : last + 1]), names, free) if texts[first] else None
        if mended is not None:
            texts[first : last + 1] = [mended] + [""] * (last - first)
        elif free[-1] == width and not re.match(r"\d+[^|]*\|", texts[first]):  # a further line of the last field
            texts[first] = ""
    return pa.array(texts, lines.type)


def _mend(text: str, names: Sequence[str], free: Sequence[int]) -> str | None:
    fields = text.split("|")
    extra = len(fields) - len(names)
    if not 0 <= extra <= _MAX_LINES:
        return None
    for cuts in itertools.combinations_with_replacement(range(extra + 1), len(free) - 1):
        # So many bars are in the text of each of the fields.
        bars = dict(zip(free, np.diff([0, *cuts, extra]).tolist(), strict=True))
        rest = iter(fields)
        row = {name: "¦".join(itertools.islice(rest, 1 + bars.get(place, 0))) for place, name in enumerate(names)}
        if all(re.fullmatch(_CHECKS[name], cell.strip()) for name, cell in row.items() if name in _CHECKS):
            return "|".join(row.values())
    return None


#: What is asked for; the events of a whole cluster, which have no node, tell what all its nodes have.
EVENT_FIELDS = ("Cluster", "NodeName", "TimeStart", "TimeEnd", "State", "TRES")
_GPUS = re.compile(r"(?:^|,)gres/gpu(?::(?P<name>[^,=]+))?=(?P<count>\d+)")
#: GPUs whose type Slurm does not say.
UNKNOWN = "unknown"


def gpus_by_type(tres: str) -> dict[str, float]:
    """Count the GPUs of nodes by type, slices as shares; shards and MPS are parts of the same cards."""
    counts = {match["name"]: float(match["count"]) for match in _GPUS.finditer(tres)}
    untyped = counts.pop(None, 0.0) - sum(counts.values())
    shares = {name: float(Fraction(count) * gpu_share(name)) for name, count in counts.items()}
    return shares | ({UNKNOWN: untyped} if untyped > 0 else {})


def read_events(text: str) -> pd.DataFrame:
    """Read the answer of ``sacctmgr -P show event`` with the columns of `EVENT_FIELDS`: a row per event and GPU type.

    ``node`` is empty for the whole cluster, ``end`` NaT while it lasts; a cluster that has no GPUs has one row of none.
    """
    rows = []
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != len(EVENT_FIELDS) or not fields[2].isdecimal():
            continue
        cluster, node, begin, end, state, tres = fields
        counts = gpus_by_type(tres) or ({} if node else {UNKNOWN: 0.0})
        rows += [(cluster, node, begin, end, state, name, gpus) for name, gpus in counts.items()]
    events = pd.DataFrame(rows, columns=["cluster", "node", "begin", "end", "state", "gpu_type", "gpus"])
    for name in ("begin", "end"):
        seconds = pd.to_numeric(events[name].where(events[name].str.isdecimal().eq(True)), errors="coerce")
        events[name] = pd.to_datetime(seconds.astype(float), unit="s", utc=True)
    return events.astype({"gpus": float})


def installed_by_cluster(events: pd.DataFrame) -> dict[str, dict[str, dict[str, float]]]:
    """GPUs of each cluster by type, from each time on at which some type changed; of nodes that are down, too.

    A cluster whose controller is down keeps its nodes, so only the begin of an event counts.
    """
    whole = events[events["node"] == ""]
    found = {}
    for cluster, rows in whole.groupby("cluster"):
        wide = rows.pivot_table(index="begin", columns="gpu_type", values="gpus", aggfunc="sum").fillna(0.0)
        wide = wide.loc[:, wide.gt(0).any()]
        found[str(cluster)] = {str(name): changes(gpus) for name, gpus in wide.items()}
    return found


def gpus_down(events: pd.DataFrame) -> float:
    r"""Count the GPUs on nodes that are down or drained now.

    >>> gpus_down(read_events("Cluster|NodeName|TimeStart|TimeEnd|State|TRES\nalps|n1|0|Unknown|DOWN|gres/gpu=8"))
    8.0
    """
    return float(events.loc[events["node"].ne("") & events["end"].isna(), "gpus"].sum())


def changes(gpus: pd.Series) -> dict[str, float]:
    """Numbers from each time on at which they changed, by the time in ISO form."""
    new = np.append(True, np.diff(gpus.to_numpy()) != 0)
    return {time.isoformat(): float(count) for time, count in gpus[new].items()}


SACCT_COLUMNS = (
    "JobID|JobIDRaw",
    "Submit|Start",
    "Start|ElapsedRaw|Elapsed",
    "End|ElapsedRaw|Elapsed",
    "AllocTRES|ReqTRES|AllocGRES|ReqGRES",
)
#: ``123.batch``, not the points of a list of tasks that Slurm cut short, ``123_[1,3,...]``.
_STEP = r"^[^\[]*\."
#: The most tasks that Slurm lets an array have (MaxArraySize in slurm.conf).
_MAX_TASKS = 4_000_001
#: ``123_[1,3,5-9:2%4]``: at most four at once.
_ARRAY = re.compile(r"(?P<job>\d+)_\[(?P<tasks>\d+(?:-\d+(?::\d+)?)?(?:,\d+(?:-\d+(?::\d+)?)?)*)(?:%(?P<most>\d+))?\]")


#: Names of sacct's columns as it prints them, by those that ``--format`` takes.
_PRINTED = (
    "JobID JobIDRaw User Account Cluster Partition QOS State Submit Eligible Start End Elapsed ElapsedRaw Suspended "
    "Timelimit TimelimitRaw NNodes AllocNodes NTasks AllocTRES ReqTRES AllocGRES ReqGRES TRESUsageInAve TRESUsageInTot "
    "NodeList Reason"
)
_NAMES = {name.lower(): name for name in (*_PRINTED.split(), *_FREE_TEXT)}
#: Of squeue -O, whose end of a job that runs is when its limit will be reached.
_NAMES |= {"tres_alloc": "AllocTRES", "time_limit": "Timelimit", "submit_time": "Submit", "start_time": "Start"}
_NAMES |= {"eligible_time": "Eligible", "end_time": "End", "time": "Elapsed", "nodes": "NNodes", "st": "State"}


def open_sacct(path: Path, limits: Limits = LIMITS, columns: Sequence[str] | None = None) -> TextTable:
    """Read a dump with fields separated by vertical bars, or JSON; `columns`: those of one without a header."""
    head = first_bytes(path).lstrip()
    if head.startswith("{"):
        return _from_json(path, limits)
    say_if_cut_off(path)
    if columns is not None:
        asked = [name.partition("%")[0].strip() for name in columns]
        return read_headerless(path, [_NAMES.get(name.lower(), name) for name in asked], limits, "|", mend_rows)
    if re.match(r"\d+[\d_.\[\]\w-]*\|", head):
        problem = f"{path.name!r} has no header: run sacct without --noheader (-n)"
        raise InputError(f"{problem}, or name its columns with columns='jobid,user,...' (--columns jobid,user,...).")
    table = read_csv(path, limits, "|", mend=mend_rows)
    if "JobID" not in table.names and table.names[0].lower() == "jobid":
        table = _as_sacct(table)
    name = table.names[0]
    if len(table.names) == 1 and re.match(r"JobID(Raw)?\s+\S", name, re.IGNORECASE):
        message = f"{path.name!r} is aligned with spaces or uses another separator, so long fields may be cut off"
        raise InputError(f"{message}; run sacct with -P (--parsable2) and keep its '|'.")
    if "JobID" in table.names or "JobIDRaw" in table.names:
        try:
            check_header(table, SACCT_COLUMNS)
        except InputError as error:
            few = "JobIDRaw,JobID,Cluster,User,Account,Partition,QOS,Submit,Start,End,State,ReqTRES,AllocTRES"
            raise InputError(f"{error} Print them with sacct -a -D -P -o {few}.") from None
    return table


def _as_sacct(table: TextTable) -> TextTable:
    """Table with the names of sacct's columns, of one with those of squeue -O."""
    rows = table.rows.rename_columns([_NAMES.get(name.lower(), name) for name in table.names])
    if "END_TIME" in table.names and "State" in rows.column_names:
        open_ends = pc.is_in(pc.utf8_trim_whitespace(rows["State"]), pa.array(_OPEN))
        place = rows.column_names.index("End")
        rows = rows.set_column(place, "End", pc.if_else(open_ends, pa.scalar(None, pa.string()), rows["End"]))
    return replace(table, rows=rows)


#: States of jobs that have no end yet.
_OPEN = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "PD", "R", "S", "CG")


def _from_json(path: Path, limits: Limits) -> TextTable:
    """Jobs of ``sacct --json``, or of ``squeue --json``, as sacct's columns."""
    found = read_json(path, limits)
    jobs = found.get("jobs") if isinstance(found, dict) else None
    if not jobs or not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise InputError(f"{path.name!r} is JSON, but not that of sacct --json or squeue --json.")
    try:
        rows = [_json_row(job) for job in jobs]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path.name!r} is not the JSON of sacct --json ({error}); run sacct with -P.") from error
    names = [*("JobID", "User", "Account", "Cluster", "Partition", "QOS", "State", "Submit", "Eligible", "Start")]
    names += ["End", "ElapsedRaw", "TimelimitRaw", "AllocTRES", "ReqTRES", "Reason"]
    schema = pa.schema([(name, pa.string()) for name in names])
    table = pa.table([list(column) for column in zip(*rows, strict=True)] or [[] for _ in names], schema=schema)
    return TextTable(table, np.arange(1, len(rows) + 1), path.name)


def _json_row(job: dict[str, Any]) -> list[str | None]:
    """Cells of one job; numbers are plain, or say whether they are set."""
    time, tres, state = job.get("time", {}), job.get("tres", {}), job.get("state", job.get("job_state"))
    reason = state.get("reason") if isinstance(state, dict) else job.get("state_reason")
    state = state.get("current") if isinstance(state, dict) else state
    state = state[0] if isinstance(state, list) else str(state)
    array = job.get("array") or {}
    task, parent = (
        _json_number(array.get("task_id", job.get("array_task_id"))),
        array.get("job_id", job.get("array_job_id")),
    )
    if task is None and state == "PENDING" and (tasks := array.get("task") or job.get("array_task_string")):
        task = f"[{tasks}]"
    name = f"{_json_number(parent)}_{task}" if task is not None and _json_number(parent, None) else str(job["job_id"])
    moments = [
        _json_number(time.get(short, job.get(f"{long}_time")), zero=None)
        for short, long in (("submission", "submit"), ("eligible", "eligible"), ("start", "start"), ("end", "end"))
    ]
    if state in _OPEN:
        moments[3] = None  # squeue tells when the limit will be reached
    lists = [
        _json_tres(tres.get(key)) or job.get(f"tres_{short}_str")
        for key, short in (("allocated", "alloc"), ("requested", "req"))
    ]
    limit = _json_number(time.get("limit", job.get("time_limit")))
    texts = [
        job.get("user") or job.get("user_name") or (job.get("association") or {}).get("user"),
        *(job.get(key) for key in ("account", "cluster", "partition", "qos")),
    ]
    return [name, *texts, state, *moments, _json_number(time.get("elapsed")), limit, *lists, reason]


def _json_number(value: Any, zero: str | None = "0") -> str | None:
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else None
    return None if value is None else str(int(value)) if value else zero


def _json_tres(entries: Sequence[dict[str, Any]] | None) -> str:
    """List of resources as sacct prints it."""
    parts = [
        (entry["type"] + "/" * bool(entry.get("name")) + (entry.get("name") or ""), entry["count"])
        for entry in entries or ()
    ]
    return ",".join(f"{name}={count}" for name, count in parts)


def sacct(log: LogColumns) -> pd.DataFrame:
    """Jobs of a Slurm dump, from any sufficient subset of sacct's columns (`SACCT_COLUMNS`).

    GPUs are those of AllocTRES, of ReqTRES where nothing was allocated, and of AllocGRES or ReqGRES (per node) where
    the TRES list no GPUs. The start of a job that was cancelled before it started is its end; a pending job has
    neither. A job that depends on another, or begins at a stated time, waits from when it is eligible. A job that was
    resized has a row for each part: later ones are submitted after their start, and begin when they are submitted. Job
    steps (``123.batch``), which a dump without ``-X`` contains, are excluded. A pending array (``123_[4-9]``) is one
    row, which `with_array_tasks` takes apart. ``used_gpu_seconds`` is gres/gpuutil, the sum over the GPUs of a job,
    times the elapsed time, of the job or of its steps; at most the GPU-seconds held. ``reason`` is what kept a job
    waiting last.
    """
    job_id = log.text(log.first_present("JobID", "JobIDRaw"))
    # Those of several jobs look the same where their ends are cut off.
    job_id = job_id.mask(job_id.str.endswith("+", na=False), job_id + pd.Series(log.table.lines).astype(STRING))
    step = job_id.str.contains(_STEP, regex=True, na=False).to_numpy(dtype=bool)
    log.exclude(step, "job step")
    gpus = _gpus(log)
    limit = (
        pd.to_numeric(log.text("TimelimitRaw"), errors="coerce").astype("float64") * 60
        if "TimelimitRaw" in log  # missing where it is a word such as UNLIMITED
        else map_unique(log.text("Timelimit"), parse_slurm_seconds, "float64")
    )
    elapsed = (
        log.number("ElapsedRaw")
        if "ElapsedRaw" in log
        else map_unique(log.text("Elapsed"), parse_slurm_seconds, "float64")
    )
    stopped = map_unique(log.text("Suspended"), parse_slurm_seconds, "float64")
    submit, start, end = (log.time(name) for name in ("Submit", "Start", "End"))
    moments = log.parser.of_length(submit, start, end, elapsed + stopped.fillna(0.0))
    jobs = pd.DataFrame(
        {
            "job_id": job_id,
            **log.texts(user="User", group="Account", cluster="Cluster"),
            "submit": _eligible(log),
            # Slurm writes epoch zero for what did not happen.
            **{short: times.where(times > EARLIEST) for short, times in zip(("start", "end"), moments, strict=True)},
            **{name: gpus[name] for name in ("gpus", "gpu_type")},
            # Slurm's word for a job that was sent a signal and keeps what it holds; elsewhere one that is over.
            "status": log.status("State", {"stopped": "running"}),
            "requested_time": limit,
            **log.texts(partition="Partition", qos="QOS", reason="Reason"),
            "devices": gpus["devices"],
        }
    )
    log.doubts += _doubtful(jobs, step)
    jobs = start_unstarted_at_end(_complete(jobs, elapsed, log))
    length = (jobs["end"] - jobs["start"]).dt.total_seconds()
    used = _measured(_used(log, elapsed, step, job_id), jobs["gpu_type"].mask(step), log)
    used = np.minimum(used, length.fillna(elapsed) * jobs["gpus"])
    further = {"suspended_s": stopped} if stopped.gt(60).any() else {}
    # Of a job that runs, sacct counts the time until it is asked.
    ran = log.shifted(jobs["start"], elapsed.where(jobs["status"].eq("running") & jobs["end"].isna() & ~step))
    further |= {RAN_UNTIL: ran} if ran.notna().any() else {}
    return jobs.assign(used_gpu_seconds=used, **further)


def _eligible(log: LogColumns) -> pd.Series:
    """When jobs began to wait for GPUs: as they were submitted, or later, as dependencies and a stated begin let them.

    A job that started before it was eligible, such as a part of a resized one, counts from its submission.
    """
    submit, eligible, start = (log.time(name) for name in ("Submit", "Eligible", "Start"))
    later = (eligible > submit) & ((eligible <= start) | start.isna())
    return submit.fillna(eligible).mask(later, eligible)


def with_array_tasks(jobs: pd.DataFrame) -> pd.DataFrame:
    """Jobs with a row for each task of a pending array, which Slurm lists in one row until they start.

    A list that Slurm cut short (``123_[1,3,...]``) stays one row. Each task has the index of its row.
    """
    arrays = jobs["job_id"].str.contains("_[", regex=False, na=False)
    if not arrays.any():
        return jobs
    tasks = jobs["job_id"].astype(object)
    tasks[arrays] = tasks[arrays].map(_array_tasks)
    return jobs.assign(job_id=tasks).explode("job_id").astype({"job_id": STRING})


def _is_limited(job_id: str) -> bool:
    match = _ARRAY.fullmatch(job_id)
    return match is not None and match["most"] is not None and len(_array_tasks(job_id)) > int(match["most"])


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


#: Clocks of a cluster differ by less.
_SKEW = pd.Timedelta("1min")


def _doubtful(jobs: pd.DataFrame, step: BoolArray) -> list[str]:
    """Sentences on jobs that started before they were submitted, and on arrays of which few tasks may run at once."""
    early = (jobs["start"] < jobs["submit"]) & ~step
    if early.any():
        early &= (jobs["submit"] - jobs["start"] > _SKEW) & jobs["status"].ne("pending")
        early &= ~jobs["job_id"].isin(set(jobs["job_id"][jobs["status"].eq("resized")]))
    limited = jobs["job_id"][jobs["status"].eq("pending")]
    limited = limited[limited.str.contains("%", regex=False, na=False)]
    limited = limited[limited.map(_is_limited).to_numpy(dtype=bool)]
    said = []
    if early.any():
        example = jobs["job_id"][early].iloc[0]
        said.append(
            f"{format_number_of('job', early.sum())} started before the submission (job {example}), as later parts of "
            "a resized job do, but no earlier part is in this dump: what they held counts from the submission. Run "
            "sacct with -D, which prints all parts; else correct the times."
        )
    if len(limited):
        said.append(
            f"{format_number_of('array', len(limited))} waits of which its user lets few tasks run at once (job "
            f"{limited.iloc[0]}); all of its tasks count as waiting for GPUs. Leave it out of the dump if they are not "
            "wanted at once."
        )
    return said


def _complete(jobs: pd.DataFrame, elapsed: pd.Series, log: LogColumns) -> pd.DataFrame:
    """Derive a start or an end that was missing from the dump from the elapsed time."""
    waits = jobs["status"] == "pending"
    # Later parts of a resized job begin when they were submitted; Slurm gives them the start of the whole job.
    start = jobs["start"].mask((jobs["start"] < jobs["submit"]) & jobs["status"].ne("pending"), jobs["submit"])
    start = start.fillna(log.shifted(jobs["end"], -elapsed.where(elapsed > 0))).mask(waits)
    over = jobs["status"].notna() & (jobs["status"] != "running")
    end = jobs["end"].fillna(log.shifted(start, elapsed.where(over))).mask(waits)
    return jobs.assign(start=start, end=end)


def _gpus(log: LogColumns) -> pd.DataFrame:
    """Columns ``gpus``, ``gpu_type`` and ``devices``."""
    lists = [_devices(log.text("AllocTRES").fillna(log.text("ReqTRES")))]
    found = _count(lists[0], _shards_per_gpu(log), log.gpu_share)
    for gres, of_each in (("AllocGRES", "JOB"), ("ReqGRES", "NODE")):
        if gres in log:
            lists.append(_devices(log.text(gres)))
            other, count = _count(lists[-1], _shards_per_gpu(log), log.gpu_share), _times(log, lists[-1], of_each)
            other = other.assign(gpus=other["gpus"] * count, devices=other["devices"] * count)
            found = found.mask(found["gpus"] == 0, other)
    log.reject(found["shards"], "shards of unknown size (pass shards_per_gpu)")
    log.reject(found["gpus"].isna(), "unreadable number of GPUs")
    cut = log.text("AllocTRES").str.contains(r"[,=+]$", na=False)
    log.reject(cut & found["gpus"].eq(0), "list of resources that is cut off (run sacct with -P)")
    log.doubts += _not_understood(pd.concat(lists).dropna().unique(), found, log)
    return found


def _times(log: LogColumns, gres: pd.Series, of_each: str) -> pd.Series:
    """For how many nodes or tasks each request is; NaN where that is not known. `of_each`: where it does not say."""
    per = gres.str.upper().str.extract(_PER)[0].fillna(of_each)
    counts = {"NODE": "NNodes" if "NNodes" in log else "AllocNodes", "TASK": "NTasks"}
    times = pd.Series(1.0, index=gres.index).mask(per.eq("SOCKET"))
    for name, column in counts.items():
        times = times.mask(per.eq(name), log.number(column).clip(lower=1))
    # A dump with node counts lacks them for jobs that never had a node.
    return times.fillna(1.0).where(per.eq("JOB") | (per.eq("NODE") & (counts["NODE"] in log)) | times.notna())


def _not_understood(lists: Collection[str], found: pd.DataFrame, log: LogColumns) -> list[str]:
    """What in the lists of resources may be GPUs and does not count as such, or not as it should."""
    known = {*ACCELERATORS, *_PARTS, *_OTHER_GRES, *log.gpu_share}
    names = sorted({name for text in lists for name in _SITE_GRES.findall(text) if name.lower() not in known})
    counts = [entry for text in lists for entry in _counts_by_kind(text, log.gpu_share).items()]
    types = {name for _, named in counts for name, number in named.items() if number > 0}
    devices = {name for kind, named in counts if named for name in (kind, *named)}
    said = unused_shares(log.gpu_share, {*devices, *names})
    slices = [
        name
        for name in sorted(types)
        if _LIKE_SLICE.search(name) and name.lower() not in log.gpu_share and slice_shares(name) is None
    ]
    if names:
        said.append(not_counted(names, "gres/"))
    if slices:
        part = "1/8" if "px" in slices[0].lower() else "1/7"
        said.append(
            f"the type {', '.join(map(repr, slices))} looks like a slice (MIG, or a partition of AMD's) without a "
            f"profile that is known, and counts as a whole GPU; say what one is: gpu_share={{{slices[0]!r}: {part}}} "
            f"(--gpu-share {slices[0]}={part})."
        )
    if len(found) and not found["gpus"].gt(0).any():
        said.append(
            "no resource list of this dump names a GPU, so that what jobs held is not known: let Slurm record it with "
            "AccountingStorageTRES=gres/gpu in slurm.conf (jobs from then on have it). All GPU-hours are 0 until then."
        )
    return said


def _shards_per_gpu(log: LogColumns) -> pd.Series | float:
    if not isinstance(log.shards_per_gpu, Mapping):
        return math.nan if log.shards_per_gpu is None else log.shards_per_gpu
    by_node = log.shards_per_gpu
    # A job on shards has one node only: of n[1-2,7] the prefix and the first number. One that waits has none yet.
    first = log.text("NodeList").str.extract(r"^([^\[,]+)(?:\[(\d+))?").fillna("")
    known = set(by_node.values())
    of_node = (first[0] + first[1]).map(by_node).astype("float64")
    return of_node.fillna(known.pop() if len(known) == 1 else math.nan)


def _devices(text: pd.Series) -> pd.Series:
    """Lists of resources without the entries that every job has, which leaves few unique values."""
    entries = pc.replace_substring_regex(pa.array(text, pa.string()), r"\([^)]*\)", "")
    entries = pc.replace_substring_regex(entries, _NO_DEVICES, "")
    return pd.Series(entries.to_pandas(), index=text.index, dtype=STRING)


def _count(lists: pd.Series, shards_per_gpu: pd.Series | float, shares: Mapping[str, float]) -> pd.DataFrame:
    """Counts of GPUs in lists of resources."""
    keys = pd.DataFrame({"tres": lists.fillna(""), "shards": shards_per_gpu})
    code = keys.groupby(["tres", "shards"], dropna=False, sort=False).ngroup().to_numpy()
    unique = keys.iloc[np.unique(code, return_index=True)[1]]
    counts = [count_tres(tres, shards, shares) for tres, shards in unique.itertuples(index=False, name=None)]
    found = pd.DataFrame(counts, columns=["gpus", "gpu_type", "devices", "shards"]).iloc[code].set_axis(lists.index)
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


def _measured(used: pd.Series, gpu_type: pd.Series, log: LogColumns) -> pd.Series:
    """Used GPU-seconds; unknown where Slurm writes zero for what it cannot measure.

    That are slices, and types of which no job of the log ever has memory or utilization above zero.
    """
    usage = pa.array(log.text("TRESUsageInTot").fillna(log.text("TRESUsageInAve")), pa.string())
    if not pc.any(pc.match_substring_regex(usage, _MEMORY + r"\d")).as_py():
        return used
    name = gpu_type.fillna("")
    has_memory = pc.match_substring_regex(usage, _MEMORY + "0*[1-9]").fill_null(False)
    seen = set(name[(used > 0) | np.asarray(has_memory)])
    sliced = {each for each in name.unique() if any(slice_shares(part) for part in each.split("+"))}
    zeros = used.eq(0) & (~name.isin(seen) | name.isin(sliced)) & gpu_type.notna()
    if zeros.any():
        names = ", ".join(sorted(set(name[zeros])))
        log.doubts.append(
            f"the utilization of all that is measured on {names} is 0, with 0 of memory: Slurm cannot measure these "
            f"GPUs, so {format_number_of('job', zeros.sum())} on them count as not measured, not as idle."
        )
    return used.mask(zeros)
