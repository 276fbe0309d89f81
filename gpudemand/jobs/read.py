"""`read_jobs` and `write_jobs`, and the registry of formats."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa

from gpudemand._array import STRING, BoolArray
from gpudemand._files import replace_file
from gpudemand._validation import InputError, check_choice, check_list, check_number, shorten, told
from gpudemand.jobs import billing, log_formats, schedulers, slurm, swf
from gpudemand.jobs.columns import LogColumns
from gpudemand.jobs.files import (
    LIMITS,
    NO_LIMITS,
    Limits,
    TextTable,
    as_file,
    check_header,
    encoding_doubts,
    existing_path,
    read_table,
)
from gpudemand.jobs.plausibility import doubts, plausible, unknown_status
from gpudemand.jobs.recognition import output_of, recognise
from gpudemand.jobs.schedulers import scheduled
from gpudemand.jobs.schema import COLUMNS, KINDS, OTHER_KEYS
from gpudemand.jobs.table import (
    as_jobs,
    check_jobs,
    doubled_rows,
    ids_repeat,
    rejections,
    saved_attrs,
    submitted_again,
    superseded,
    unlike,
    warn_doubts,
    warn_rejections,
    with_waiting,
    without_unset_times,
)
from gpudemand.jobs.times import TimeParser
from gpudemand.store import is_store, read_store

USAGE_ONLY = "prometheus"
#: What formats are called, too.
_CALLED = {
    **dict.fromkeys(("slurm", "squeue"), "sacct"),
    **dict.fromkeys(("k8s", "kubernetes"), "pods"),
    "torque": "pbs",
    "gridengine": "sge",
    "condor": "htcondor",
    "prom": USAGE_ONLY,
}
#: Why a row does not count of whose job there is a later one.
REPLACED = "replaced by a later record"
#: Why one does not count that differs from the one that does.
SAME_ID = "with the id and start of another row, as of a node or a task"
#: Why one does not count that could not start though GPUs were free; and what Slurm writes of such jobs.
NOT_ELIGIBLE = "pending and held by its user, or until another job ends or a time comes"
_NOT_ELIGIBLE = ("JobHeldUser", "Dependency", "DependencyNeverSatisfied", "BeginTime")


@dataclass(frozen=True)
class Format:
    """A row of the table of formats.

    `read`: from the columns of a log to canonical ones. `columns`: required ones; ``"A|B"`` is either. `needs`: {"",
    "tz", "origin"}; argument that the caller has to pass because the file lacks it; `hint`: what is known about it.
    """

    description: str
    read: Callable[[LogColumns], pd.DataFrame]
    columns: tuple[str, ...] = ()
    open: Callable[[Path, Limits], TextTable] = read_table
    needs: str = ""
    kind: str = "measured"
    hint: str = ""


FORMATS: dict[str, Format] = {
    "canonical": Format(
        "the table of this package, CSV or Parquet", log_formats.canonical, ("submit|start", "end", "gpus")
    ),
    "sacct": Format(
        "Slurm: sacct -a -D -P -o ..., or --json; see `gpudemand pull slurm --command-only`",
        slurm.sacct,
        slurm.SACCT_COLUMNS,
        slurm.open_sacct,
        needs="tz",
        hint=" It is the local zone of the cluster; SLURM_TIME_FORMAT=%s prints epoch seconds instead.",
    ),
    "slurmdbd": Format(
        "Slurm's database: rows of <cluster>_job_table, CSV", schedulers.slurmdbd, schedulers.SLURMDBD_COLUMNS
    ),
    "pbs": Format("PBS and Torque: server_priv/accounting", scheduled, open=schedulers.open_pbs),
    "sge": Format("Grid Engine (SGE, UGE): accounting", scheduled, open=schedulers.open_sge),
    "lsf": Format("LSF: lsb.acct, bhist -l", scheduled, open=schedulers.open_lsf),
    "htcondor": Format("HTCondor: condor_history -json, -long or -af:h", scheduled, open=schedulers.open_htcondor),
    "pods": Format("Kubernetes: kubectl get pods -A -o json", scheduled, open=schedulers.open_pods),
    "opencost": Format("OpenCost and Kubecost: allocation, JSON", scheduled, open=schedulers.open_opencost),
    "runai": Format("Run:ai: workloads, CSV", schedulers.runai, schedulers.RUNAI_COLUMNS),
    "swf": Format("Standard Workload Format 2.2", swf.swf, open=swf.open_swf, kind="public trace"),
    "focus": Format("FOCUS billing 1.0 to 1.3, CSV or Parquet", billing.focus, billing.FOCUS_COLUMNS),
}
_TRACES = {
    "helios": Format(
        "Helios 2020 (SenseTime): cluster_log.csv",
        log_formats.helios,
        ("job_id", "user", "vc", "gpu_num", "state", "submit_time", "start_time", "end_time"),
        needs="tz",
        hint=" Helios ran in 'Asia/Shanghai'.",
    ),
    "acme": Format(
        "Acme 2023 (Shanghai AI Laboratory): trace_seren.csv, trace_kalos.csv",
        log_formats.acme,
        ("job_id", "user", "gpu_num", "type", "state", "submit_time", "start_time", "end_time"),
    ),
    "philly": Format(
        "Philly 2017 (Microsoft): the original JSON, a row an attempt",
        log_formats.philly,
        open=log_formats.open_philly,
        needs="tz",
        hint=" Its README speaks of Pacific time ('America/Los_Angeles').",
    ),
    "philly-pollux": Format(
        "Philly 2017 as cleaned for Pollux",
        log_formats.philly_pollux,
        ("timestamp", "duration", "num_gpus", "cluster"),
        needs="tz",
        hint=" The trace does not say in which zone it counts; 'UTC' keeps its clock as it is.",
    ),
    "pai": Format(
        "Alibaba PAI 2020: pai_task_table beside pai_job_table",
        log_formats.pai,
        open=log_formats.open_pai,
        needs="origin",
    ),
    "openb": Format(
        "Alibaba OpenB 2023: pods that may share a GPU",
        log_formats.openb,
        ("name", "num_gpu", "gpu_milli", "pod_phase", "creation_time", "scheduled_time", "deletion_time"),
        needs="origin",
    ),
    "dlrm": Format(
        "Alibaba DLRM 2025: inference instances",
        log_formats.dlrm,
        ("instance_sn", "app_name", "gpu_request", "creation_time", "deletion_time"),
        needs="origin",
    ),
    "genai": Format(
        "Alibaba GenAI 2026: requests of an image generation service",
        log_formats.genai,
        ("gmt_create", "exec_time_seconds", "groupId"),
        needs="tz",
        hint=" The trace is shifted by an unknown constant; 'UTC' keeps its clock as it is.",
    ),
    "spot": Format(
        "Alibaba spot GPUs 2026: job_info_df.csv",
        log_formats.spot,
        ("job_name", "organization", "gpu_model", "gpu_request", "worker_num", "submit_time", "duration"),
        needs="origin",
    ),
    "dirlab": Format(
        "extracts of Helios and Philly for workload generators",
        log_formats.dirlab,
        ("user", "gpu_num", "interval", "run_time"),
        needs="origin",
    ),
    "simulator": Format(
        "input of a scheduler simulator: job_id, arrival_s, service_sec, gpu_count",
        log_formats.simulator,
        ("job_id", "arrival_s", "service_sec", "gpu_count"),
        needs="origin",
    ),
}
FORMATS |= {name: replace(trace, kind="public trace") for name, trace in _TRACES.items()}


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


@told("Reading the log")
def read_jobs(
    path: str | os.PathLike[str],
    format: str = "canonical",  # noqa: A002
    *,
    tz: object = None,
    origin: object = None,
    strict: bool = False,
    kind: str | None = None,
    limits: Limits | None = LIMITS,
    shards_per_gpu: float | Mapping[str, float] | None = None,
    gpu_share: Mapping[str, float] | None = None,
    columns: str | Sequence[str] | None = None,
) -> pd.DataFrame:
    r"""Read a job log of any known format into the canonical table.

    Rows that cannot be used are left out, counted by reason in ``attrs["rejected"]``, and reported in one warning:
    rows with an unreadable or missing required number or time, that end before they start, or that finished without
    an end. Rows that are no jobs of their own are left out and counted as well: job steps, repeated headers, records
    that a later one of the same job supersedes, as in concatenated daily dumps, and jobs that could not start though
    GPUs were free (a column ``reason`` of Slurm: held by their user, or until another job ends or a time comes). Each
    later run of a job that was put back waits since the one before it ended. Of a row with an unreadable
    ``requested_time`` or ``used_gpu_seconds``, only that is unknown, which is one of the ``doubts``.

    Parameters
    ----------
    path : path-like
        The log, plain or gzip-compressed; a store that ``gpudemand pull slurm`` made; for ``"pai"`` also the folder of
        its tables.
    format : str, default="canonical"
        One of those that `formats` lists. By default a file that is no canonical table is read as what it looks like.
    tz : str or tzinfo, optional
        Zone of times that are written without one. Of two local times that daylight saving repeats, the first is
        taken, or the second where a job would end before its start, or where the elapsed time of sacct says so; a time
        that it skips is a bad row. Times with an offset and epoch seconds need no zone.
    origin : str or Timestamp, optional
        Start of a trace whose times are seconds since an unnamed start; not needed for seconds since 1970.
    strict : bool, default=False
        Raise for unusable rows, naming the first ten lines.
    kind : {"measured", "public trace", "synthetic"}, optional
        Kind of data; by default the usual one of the format.
    limits : Limits, optional
        The largest file that is read; None for any size.
    shards_per_gpu : float or mapping of str to float, optional
        For Slurm: how many ``gres/shard`` make one GPU, which no dump tells (``sinfo -o %G`` does); by the name of the
        node where nodes differ. Without it, jobs on shards are left out and counted.
    gpu_share : mapping of str to float, optional
        What one device of a type counts, as a share of a GPU, by the name that the log has for it:
        ``{"a100l.1": 1 / 8, "dcu": 1}``, in any case. Slices that are named by their profile (``1g.10gb``) need none.
        A name that the log does not have is one of the ``doubts``.
    columns : str or sequence of str, optional
        For a dump of sacct without a header (``--noheader``): the names that ``--format`` had, ``"jobid,user,..."``.

    Returns
    -------
    DataFrame
        Columns of `gpudemand.jobs.schema.COLUMNS`, then those that only this format has. Times are UTC. A log without
        job ids gets the line numbers as ids. ``attrs`` holds ``kind``, ``source`` and ``rejected``;
        ``doubts``, sentences on what in the log cannot be right or is not understood, and ``complete_from`` and
        ``complete_until`` where it is complete for a part only, or jobs are known to have run beyond its newest time,
        to which `usage_series` and studies keep; of a store also ``installed_by_cluster``, if Slurm told it: cluster ->
        type -> time -> GPUs from then on.

    Raises
    ------
    InputError
        For an unknown format, a file that is missing, empty, binary, cut off, larger than `limits` or of another
        format, a quotation mark that is not closed on its line, a missing `tz` or `origin`, shares that are none,
        a log without a usable row, and unusable rows if `strict`.
    MemoryError
        If there is not enough memory; it says what to do.

    Warns
    -----
    RejectedRowsWarning
        If rows were left out.
    UnlikelyJobsWarning
        For each of the ``doubts``.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp(), "dump.txt")
    >>> _ = file.write_text(
    ...     "JobID|User|State|Submit|Start|End|AllocTRES\n"
    ...     "7|ada|COMPLETED|2024-05-01T08:00:00|2024-05-01T09:00:00|2024-05-01T10:00:00|cpu=8,gres/gpu:a100=2\n"
    ... )
    >>> jobs = read_jobs(file, format="sacct", tz="Europe/Berlin")
    >>> print(jobs[["user", "start", "gpus", "gpu_type"]].to_string(index=False))
    user                     start  gpus gpu_type
     ada 2024-05-01 07:00:00+00:00   2.0     a100
    """
    if format == USAGE_ONLY:
        raise InputError("format='prometheus' is usage, not jobs; call read_usage (in the shell gpudemand report).")
    if (named := _CALLED.get(str(format).lower())) and format not in FORMATS:
        raise InputError(f"format={format!r} is not known. Did you mean {named!r}?")
    spec = FORMATS[check_choice("format", format, FORMATS)]
    if kind is not None:
        check_choice("kind", kind, KINDS)
    shares = check_shares(gpu_share)
    per_gpu = None if shards_per_gpu is None else _checked_shards(shards_per_gpu)
    names = None if columns is None else _column_names(columns)
    place = existing_path(path)
    if format == "canonical" and is_store(place):
        refuse_shares(shares, format, place.name)
        return _read_store(place, kind)
    with as_file(place, limits or NO_LIMITS) as file:
        if format == "canonical" and names is None:
            format = _format_of(file)  # noqa: A001
            spec = FORMATS[format]
        refuse_shares(shares, format, place.name)
        with encoding_doubts() as said:
            log = _open(file, format, tz, origin, limits or NO_LIMITS, names)
    log.doubts += said
    log.shards_per_gpu, log.gpu_share = per_gpu, shares
    saved = saved_attrs(log.table.rows.schema, log.table.source)
    jobs = read_rows(log, format, kind or saved.get("kind", spec.kind))
    attrs, usable = jobs.attrs, log.usable()
    reasons = np.full(len(usable), None, dtype=object)
    jobs, reasons[usable] = _latest(_rows(jobs, usable).reset_index(drop=True))
    for reason in (REPLACED, SAME_ID, NOT_ELIGIBLE):
        log.exclude(reasons == reason, reason)
    rejected = log.rejection_counts(strict=strict)
    warn_rejections(rejected, len(log.table), log.table.source)
    before = Counter(saved.get("rejected", {}))
    jobs.attrs = {**saved, **attrs, "rejected": dict(before + Counter(rejected))}
    return _checked(jobs, log.doubts)


def _rows(jobs: pd.DataFrame, chosen: BoolArray) -> pd.DataFrame:
    """Some rows; the table itself, of which a copy may not fit into memory, if they are all of them."""
    return jobs if chosen.all() else jobs[chosen]


def _latest(jobs: pd.DataFrame) -> tuple[pd.DataFrame, Any]:
    """Jobs that waited for GPUs, each array task, without those that a later record supersedes; why a row is none."""
    reasons, waits = np.full(len(jobs), REPLACED, dtype=object), not_eligible(jobs)
    reasons[waits] = NOT_ELIGIBLE
    tasks = slurm.with_array_tasks(_rows(jobs, ~waits))
    rows = tasks.index.to_numpy()
    tasks.index = pd.RangeIndex(len(tasks))
    if not ids_repeat(tasks):
        reasons[rows] = None
        return tasks, reasons
    replaced = superseded(tasks)
    reasons[rows[unlike(tasks, replaced)]] = SAME_ID
    reasons[rows[~replaced]] = None
    return submitted_again(_rows(tasks, ~replaced).reset_index(drop=True)), reasons


def not_eligible(jobs: pd.DataFrame) -> BoolArray:
    """Jobs that wait for their user, another job or a time, in logs that give the reason."""
    if "reason" not in jobs:
        return np.zeros(len(jobs), dtype=bool)
    waits = jobs["status"].eq("pending").fillna(False).to_numpy(dtype=bool, copy=True)
    waits[waits] = jobs["reason"][waits].astype(STRING).str.strip("()").isin(_NOT_ELIGIBLE)
    return waits


def _checked(jobs: pd.DataFrame, said: list[str]) -> pd.DataFrame:
    """Jobs without what cannot be right, after warnings of it."""
    jobs = plausible(jobs, said)
    warn_doubts(doubts(jobs.attrs), jobs.attrs["source"])
    return jobs


def _read_store(path: Path, kind: str | None) -> pd.DataFrame:
    """Jobs of a store, whose rows are canonical and were checked when they were pulled."""
    store = read_store(path)
    rows = store.query("jobs", "SELECT * NOT LIKE 'tres' FROM stored")
    if rows is None:
        raise InputError(f"the store {path.name!r} holds no jobs yet; pull them with `gpudemand pull slurm`.")
    jobs = as_jobs(rows.to_pandas(types_mapper={pa.string(): STRING}.get), kind=kind or "measured", source=path.name)
    jobs["cluster"] = jobs["cluster"].mask(jobs["cluster"] == "")
    attrs = jobs.attrs
    jobs, reasons = _latest(jobs)
    refused, events = store.read("refused", ["reason"]), store.read("nodes")
    counts = Counter([] if refused is None else refused["reason"].to_pylist())
    counts += Counter(reason for reason in reasons if reason)
    jobs.attrs = {**attrs, "rejected": dict(counts)}
    if events is not None:
        jobs.attrs["installed_by_cluster"] = slurm.installed_by_cluster(events.to_pandas())
    return _checked(jobs, [])


def read_rows(log: LogColumns, format: str, kind: str) -> pd.DataFrame:  # noqa: A002
    """Canonical table of all rows of a log, which lets go of them; those that cannot be used are marked in it."""
    frame = FORMATS[format].read(log)
    _exclude_totals(log, frame)
    if kind == "measured" and ("job_id" not in frame.columns or frame["job_id"].isna().all()):
        times = [frame[name] for name in ("start", "submit") if name in frame]
        log.doubts += doubled_rows(log.table.rows, times[0].fillna(times[-1]))
    log.table = replace(log.table, rows=log.table.rows.schema.empty_table())
    if "job_id" not in frame.columns:
        frame = frame.assign(job_id=pd.Series(log.table.lines).astype(str))
    log.accept_open(frame)
    attrs, frame = frame.attrs, as_jobs(frame, kind=kind, source=log.table.source)
    jobs = log.parser.in_order(without_unset_times(frame))
    jobs.attrs = {**attrs, **jobs.attrs}
    reasons = rejections(jobs)
    for reason in reasons.dropna().unique():
        log.reject(reasons == reason, reason)
    log.doubts += [*unknown_status(jobs, log.unknown_words, log.usable()), *log.unread()]
    return with_waiting(jobs)


def _exclude_totals(log: LogColumns, frame: pd.DataFrame) -> None:
    """Exclude a row that is called a total, where it is one, in place of a user."""
    for name in ("user", "group"):
        if name in frame:
            log.exclude(log_formats.are_totals(frame[name], frame["gpus"]), log_formats.TOTAL_ROW)


def _format_of(path: Path) -> str:
    """What a file looks like whose format was not named; the table of this package where that is not known."""
    found = recognise(path)
    if found == USAGE_ONLY:
        how = "call read_usage with format='prometheus' (in the shell --format prometheus)"
        raise InputError(f"{path.name!r} looks like an answer of Prometheus; {how}.")
    return found or "canonical"


def _open(
    path: Path, name: str, tz: object, origin: object, limits: Limits, columns: Sequence[str] | None = None
) -> LogColumns:
    spec = FORMATS[name]
    parser = TimeParser.from_arguments(tz, origin, path.name, spec.hint)
    try:
        if columns is not None and name != "sacct":
            refuse_columns(name, path.name)
        table = spec.open(path, limits) if columns is None else slurm.open_sacct(path, limits, columns)
    except InputError as error:
        raise InputError(f"{error}{_looks(path, name)}") from error
    if name == "canonical":
        names = {*COLUMNS, *OTHER_KEYS}
        for given in table.names:
            likely = given.strip().lower()
            if likely in names and likely != given and likely not in table.names:
                other = output_of(path)
                how = f".{other}" if other else f"; rename it to {likely!r}.{_likely(table, name)}"
                raise InputError(f"{table.source!r} has a column {given!r}{how}")
    try:
        check_header(table, spec.columns)
    except InputError as error:
        raise InputError(f"{error}{_looks(path, name) or _likely(table, name)}") from None
    if not len(table):
        raise InputError(f"{path.name!r} has a header and no rows.")
    log = LogColumns(table, parser, path)
    _exclude_headers(log)
    return log


def _exclude_headers(log: LogColumns) -> None:
    """Exclude repeated headers, as of files that were put together; refuse one of other columns than the first."""
    table, names = log.table, log.table.names
    first = log.text(names[0])
    for row in np.flatnonzero(first.isin(names)):
        cells = ["" if cell is None else str(cell).strip() for cell in table.rows.slice(row, 1).to_pylist()[0].values()]
        if cells != names and 2 * sum(cell in names for cell in cells) > len(names):
            place = f"line {table.lines[row]} of {table.source!r} is a header with other columns than the first, or in"
            raise InputError(f"{place} another order; read the parts as files of their own, or export them alike.")
    log.exclude(first == names[0], "repeated header")


#: The most that one device, such as a whole machine, may count.
MOST_GPUS = 1000


def check_shares(gpu_share: object) -> dict[str, float]:
    """Shares of a GPU by the name of a type in lower case, checked.

    >>> check_shares({"A100L.1": 0.125})
    {'a100l.1': 0.125}
    """
    given = {} if gpu_share is None else gpu_share
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        example = "{'a100l.1': 1 / 8}"
        raise InputError(
            f"gpu_share must map names of types to shares of a GPU, as {example}; got {shorten(repr(given))}."
        )
    shares = {
        name.lower(): check_number(f"gpu_share[{name!r}]", _plain(share), 0, MOST_GPUS) for name, share in given.items()
    }
    if len(shares) < len(given):
        raise InputError(f"gpu_share has a type twice, in any case: {', '.join(given)}; keep one of each.")
    return shares


def _plain(number: object) -> object:
    """Fraction as a float; others as they are."""
    return float(number) if isinstance(number, Fraction) else number


def _checked_shards(given: object) -> float | dict[str, float]:
    """Shards that make one GPU, of all nodes or by node."""
    if isinstance(given, Mapping):
        return {str(node): check_number(f"shards_per_gpu[{node!r}]", n, 0, open_low=True) for node, n in given.items()}
    return check_number("shards_per_gpu", given, 0, open_low=True)


def _column_names(columns: object) -> list[str]:
    """Names of columns, of a list or as one text."""
    names = columns.split(",") if isinstance(columns, str) else check_list("columns", columns, "names")
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise InputError(
            f"columns must be names, as 'jobid,user,...' (--columns jobid,user,...); got {shorten(repr(columns))}."
        )
    return names


def refuse_columns(name: str, source: str) -> NoReturn:
    """Refuse names of columns for a log of another format than sacct's."""
    raise InputError(f"columns= names those of a dump of sacct; the format of {source!r} is {name!r}.")


def refuse_shares(shares: Mapping[str, float], name: str, source: str) -> None:
    """Refuse shares where they would not count."""
    if shares and (name == USAGE_ONLY or FORMATS[name].read not in (slurm.sacct, schedulers.slurmdbd, scheduled)):
        problem = f"gpu_share= is for logs that name devices; {source!r} ({name}) has numbers of GPUs"
        raise InputError(f"{problem}. Give it where the log of the scheduler is read, or leave it out.")


def _looks(path: Path, name: str) -> str:
    """Hint at another format that a file begins like."""
    found = recognise(path)
    return f" It looks like format={found!r}." if found not in (None, name) else output_of(path)


def _likely(table: TextTable, name: str) -> str:
    """Hint at another format that has such a header."""
    has = set(table.names)
    named = {other: spec.columns for other, spec in FORMATS.items() if spec.columns}
    fits = [other for other, columns in named.items() if all(has & set(c.split("|")) for c in columns)]
    likely = max(fits, key=lambda other: len(named[other]), default=name)
    return f" It looks like format={likely!r}." if likely != name else ""


@told("Writing jobs")
def write_jobs(jobs: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a job table so that ``read_jobs(path)`` gives it back.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table with at least one row.
    path : path-like
        ``.parquet`` keeps types and ``attrs``; ``.csv`` and ``.csv.gz`` keep the columns.

    Raises
    ------
    InputError
        For any other suffix, a folder that does not exist, or text with line breaks in CSV.

    Notes
    -----
    An older file is replaced as a whole: interrupted at any time, the old one or the new one is there. Text is written
    as it is, so that it can be read back; before a CSV file goes into a spreadsheet, note that user names in it may be
    formulas.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp(), "jobs.parquet")
    >>> day = pd.to_datetime(["2024-05-01"], utc=True)
    >>> jobs = as_jobs(pd.DataFrame({"start": day, "end": day, "gpus": 8.0}), kind="synthetic")
    >>> write_jobs(jobs, file)
    >>> read_jobs(file).attrs["kind"]
    'synthetic'
    """
    table = check_jobs(jobs, allow_unknown=True)
    name = os.fspath(path)
    if not name.endswith((".parquet", ".csv", ".csv.gz")):
        raise InputError(f"{name!r} must end in .parquet, .csv or .csv.gz.")
    if not name.endswith(".parquet"):
        for column in table.select_dtypes(["object", "string"]):
            # In CSV, a field over several lines cannot be told from a forgotten quotation mark.
            if table[column].astype(STRING).str.contains(r"[\r\n]", na=False).any():
                raise InputError(f"the column {column!r} holds line breaks, which a log in CSV cannot; write Parquet.")
    # Without the time of writing, the same jobs give the same bytes.
    packed = {"method": "gzip", "mtime": 0} if name.endswith(".gz") else None
    with replace_file(path) as new:
        if name.endswith(".parquet"):
            table.to_parquet(new, index=False)
        else:
            table.to_csv(new, index=False, compression=packed)
