"""Logs of public traces and of Kubernetes."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from gpudemand._array import STRING, BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, shorten
from gpudemand.jobs.columns import LogColumns, canonical_status, map_unique, start_unstarted_at_end
from gpudemand.jobs.files import (
    LIMITS,
    NO_LIMITS,
    Limits,
    TextTable,
    encoding_doubts,
    existing_path,
    line_blocks,
    open_binary,
    read_headerless,
    read_json,
    read_table,
)
from gpudemand.jobs.gpu_series import READ, check_one_metric, gpus_per_unit, labels_of_column
from gpudemand.jobs.schema import COLUMNS, DOUBTS, OTHER_KEYS
from gpudemand.jobs.table import warn_doubts, warn_rejections
from gpudemand.jobs.times import TimeParser
from gpudemand.units import format_seconds

_PHILLY = ("job_id", "user", "vc", "state", "submit_time", "start_time", "end_time", "gpu_num")
_PAI_JOB = ["job_name", "inst_id", "user", "status", "start_time", "end_time"]
_PAI_TASK = [
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
]


#: How spreadsheets and Grafana call a sum of rows or of columns, in any case; why a row so called is no job.
TOTALS, TOTAL_ROW = ("total", "grand total", "sum"), "a total of the other rows"


def are_totals(names: pd.Series, gpus: pd.Series) -> BoolArray:
    """Rows that are called a total and have as many GPUs as all others."""
    called = names.str.lower().isin(TOTALS).to_numpy(dtype=bool)
    return called & (gpus > 0).to_numpy(dtype=bool, na_value=False) & np.isclose(gpus, gpus.sum() / 2)


def canonical(log: LogColumns) -> pd.DataFrame:
    """The table of this package, as `write_jobs` writes it; further columns are kept."""
    others = [name for name in log.table.names if name not in COLUMNS]
    gpus = log.number("gpus", required=True)
    log.exclude(are_totals(log.text("job_id"), gpus), TOTAL_ROW)
    return pd.DataFrame(
        {
            **log.texts(job_id="job_id", user="user", group="group", cluster="cluster", gpu_type="gpu_type"),
            **{name: log.time(name) for name in ("submit", "start", "end")},
            "gpus": gpus,
            "status": log.status("status"),
            "requested_time": log.time_limit("requested_time"),
            "used_gpu_seconds": log.optional_number("used_gpu_seconds"),
            **{name: _further(log, name) for name in others},
        }
    )


def _further(log: LogColumns, name: str) -> pd.Series:
    if name in OTHER_KEYS:
        return log.texts(name=name)["name"]
    return log.optional_number(name) if name == "effective_cost" else log.raw(name)


def helios(log: LogColumns) -> pd.DataFrame:
    """``cluster_log.csv`` of one of SenseTime's Helios clusters; the folder names the cluster."""
    return _slurm_like(log, group="vc", cluster=_cluster_in_path(log, "Venus", "Earth", "Saturn", "Uranus"))


def acme(log: LogColumns) -> pd.DataFrame:
    """``trace_seren.csv`` and ``trace_kalos.csv`` of Shanghai AI Laboratory's Acme: A100 GPUs."""
    jobs = _slurm_like(log, cluster=_cluster_in_path(log, "Seren", "Kalos"))
    return jobs.assign(gpu_type="A100", job_type=log.text("type"))


def _slurm_like(log: LogColumns, *, cluster: str | None, group: str = "group") -> pd.DataFrame:
    jobs = pd.DataFrame(
        {
            **log.texts(job_id="job_id", user="user", group=group),
            "submit": log.time("submit_time", required=True),
            "start": log.time("start_time"),
            "end": log.time("end_time"),
            "gpus": log.number("gpu_num", required=True),
            "status": log.status("state"),
        }
    )
    return start_unstarted_at_end(jobs).assign(cluster=cluster)


def _cluster_in_path(log: LogColumns, *names: str) -> str | None:
    """Cluster that the file or its folder is named after."""
    words = re.split(r"[^a-z]+", "/".join(log.path.resolve().parts[-2:]).lower())
    return next((name for name in names if name.lower() in words), None)


def philly(log: LogColumns) -> pd.DataFrame:
    """JSON log of Microsoft Philly, a row an attempt, since GPUs were free between two attempts.

    Attempts are named ``job#1``, ``job#2``, ...; each is submitted when the one before it ended. Only the last attempt
    has the status of the job; earlier ones failed.
    """
    return _slurm_like(log, group="vc", cluster="Philly")


def open_philly(path: Path, limits: Limits = LIMITS) -> TextTable:
    """Read the list of jobs as a table of attempts."""
    jobs = read_json(path, limits)
    rows: list[dict[str, Any]] = []
    for number, job in enumerate(jobs if isinstance(jobs, list) else [jobs], start=1):
        try:
            rows += _attempts(job)
        except (TypeError, KeyError, AttributeError) as error:
            message = f"{path.name!r} is not a list of Philly jobs (each with jobid, submitted_time and attempts)"
            raise InputError(f"{message}: see entry {number} ({error}).") from error
    schema = pa.schema([(name, pa.string()) for name in _PHILLY])
    columns = [[_text_or_none(row[name]) for row in rows] for name in _PHILLY]
    return TextTable(pa.table(columns, schema=schema), np.arange(1, len(rows) + 1), path.name)


def _attempts(job: dict[str, Any]) -> list[dict[str, Any]]:
    base = {"user": job["user"], "vc": job["vc"], "state": job["status"], "submit_time": job["submitted_time"]}
    if not job["attempts"]:
        return [{**base, "job_id": job["jobid"], "start_time": None, "end_time": None, "gpu_num": 0}]
    rows = []
    for k, attempt in enumerate(job["attempts"], start=1):
        times = {"start_time": attempt["start_time"], "end_time": attempt["end_time"]}
        gpus = sum(len(machine["gpus"]) for machine in attempt["detail"])
        rows.append({**base, "job_id": f"{job['jobid']}#{k}", **times, "gpu_num": gpus})
    for before, after in pairwise(rows):
        before["state"] = "Failed"
        if (_text_or_none(before["end_time"]) or "9") <= (_text_or_none(after["start_time"]) or ""):
            after["submit_time"] = before["end_time"]
    return rows


def _text_or_none(value: Any) -> str | None:
    return None if value in (None, "None", "") else str(value)


def philly_pollux(log: LogColumns) -> pd.DataFrame:
    """Philly's GPU jobs as cleaned for Pollux: they start when submitted; the group is the virtual cluster."""
    submit = log.time("timestamp", required=True)
    return _start_at_submit(log, submit, "duration", "num_gpus").assign(group=log.text("cluster"), cluster="Philly")


def simulator(log: LogColumns) -> pd.DataFrame:
    """Input of a scheduler simulator: ``job_id, arrival_s, service_sec, gpu_count``."""
    submit = log.time_since_origin("arrival_s", required=True)
    return _start_at_submit(log, submit, "service_sec", "gpu_count").assign(job_id=log.text("job_id"))


def spot(log: LogColumns) -> pd.DataFrame:
    """Alibaba's spot trace of 2026: the organisation is the user, the job type (HP or Spot) the group."""
    submit = log.time_since_origin("submit_time", required=True)
    jobs = _start_at_submit(log, submit, "duration", "gpu_request")
    names = log.texts(job_id="job_name", user="organization", group="job_type", gpu_type="gpu_model")
    return jobs.assign(**names, gpus=jobs["gpus"] * log.number("worker_num", required=True))


def genai(log: LogColumns) -> pd.DataFrame:
    """Requests of Alibaba's image generation service of 2026: each holds one GPU while it executes."""
    jobs = _start_at_submit(log, log.time("gmt_create", required=True), "exec_time_seconds", None)
    return jobs.assign(**log.texts(user="groupId", group="predict_type"), status=log.status("predict_status"))


def _start_at_submit(log: LogColumns, submit: pd.Series, duration: str, gpus: str | None) -> pd.DataFrame:
    """Jobs of a log without waiting times: they start when they are submitted."""
    count = log.number(gpus, required=True) if gpus else pd.Series(1.0, index=submit.index)
    end = log.shifted(submit, log.number(duration, required=True))
    return pd.DataFrame({"submit": submit, "start": submit, "end": end, "gpus": count})


def dirlab(log: LogColumns) -> pd.DataFrame:
    """Extracts of Helios and Philly, in which each row gives the seconds since the row before it."""
    interval = log.number("interval", required=True)
    broken = [*log.table.bad, *log.table.lines[interval.isna().to_numpy()]]
    if broken:
        message = f"line {min(broken)} of {log.table.source!r} has no readable interval"
        raise InputError(f"{message}, so the time of every later job is unknown; repair that line.")
    origin = pd.Series(log.parser.origin(), index=interval.index)
    jobs = _start_at_submit(log, log.shifted(origin, interval.cumsum()), "run_time", "gpu_num")
    return jobs.assign(user=log.text("user"), status=log.status("new_status"))


def openb(log: LogColumns) -> pd.DataFrame:
    """Pods of Alibaba's OpenB trace of 2023, which may hold a share of a GPU; the group is the quality of service.

    Every pod of the trace was deleted in the end: those whose last known phase was Running count as completed, those
    that were still pending as cancelled, having held nothing.
    """
    whole, share = log.number("num_gpu", required=True), log.number("gpu_milli", required=True) / 1000
    phase, end = log.text("pod_phase"), log.time_since_origin("deletion_time")
    ended = phase.replace({"Running": "completed", "Pending": "cancelled"})
    jobs = pd.DataFrame(
        {
            **log.texts(job_id="name", group="qos", gpu_type="gpu_spec"),
            "submit": log.time_since_origin("creation_time", required=True),
            "start": log.time_since_origin("scheduled_time"),
            "end": end,
            "gpus": whole.mask(whole == 1, share),
            "status": map_unique(ended.where(end.notna(), phase), canonical_status),
        }
    )
    return start_unstarted_at_end(jobs)


def dlrm(log: LogColumns) -> pd.DataFrame:
    """Inference instances of Alibaba's recommendation models of 2025: the service is the user, the role the group.

    An instance without a creation time is older than the trace and counts from its start (the origin); one without a
    deletion time is still running.
    """
    created = log.time_since_origin("creation_time").fillna(log.parser.origin())
    end = log.time_since_origin("deletion_time")
    return pd.DataFrame(
        {
            **log.texts(job_id="instance_sn", user="app_name", group="role"),
            "submit": created,
            "start": log.time_since_origin("scheduled_time").fillna(created),
            "end": end,
            "gpus": log.number("gpu_request", required=True),
            "status": pd.Series(np.where(end.isna(), "running", "completed"), dtype=STRING),
        }
    )


def pai(log: LogColumns) -> pd.DataFrame:
    """Tasks of Alibaba's PAI cluster of 2020, with the user of their job: instances x planned share of a GPU each."""
    share = log.number("plan_gpu").fillna(0.0) / 100
    start = log.time_since_origin("start_time")
    submit = log.time_since_origin("job_start_time").fillna(start)
    jobs = pd.DataFrame(
        {
            "job_id": log.text("job_name") + "-" + log.text("task_name"),
            **log.texts(user="user", gpu_type="gpu_type"),
            "submit": submit.where(~(submit > start), start),
            "start": start,
            "end": log.time_since_origin("end_time"),
            "gpus": log.number("inst_num", required=True) * share,
            "status": log.status("status"),
        }
    )
    return start_unstarted_at_end(jobs)


def open_pai(path: Path, limits: Limits = LIMITS) -> TextTable:
    """Read the task table, joined with the user and the submission of each task's job."""
    folder = path if path.is_dir() else path.parent
    task = read_headerless(_pai_file(path, "task") if path.is_dir() else path, _PAI_TASK, limits)
    job = read_headerless(_pai_file(folder, "job"), _PAI_JOB, limits)
    if job.bad:
        line = min(job.bad)
        raise InputError(f"line {line} of {job.source!r} is {job.bad[line]}, so its user is unknown; repair that line.")
    jobs = job.rows.to_pandas().dropna(subset="job_name").drop_duplicates("job_name")
    jobs = jobs.rename(columns={"start_time": "job_start_time"})
    rows = task.rows.to_pandas().merge(jobs[["job_name", "user", "job_start_time"]], on="job_name", how="left")
    schema = pa.schema([(str(name), pa.string()) for name in rows.columns])
    return TextTable(pa.Table.from_pandas(rows, schema, preserve_index=False), task.lines, task.source, task.bad)


def _pai_file(folder: Path, kind: str) -> Path:
    paths = [folder / f"pai_{kind}_table{suffix}" for suffix in (".csv", ".csv.gz", ".tar.gz")]
    return next((path for path in paths if path.is_file()), None) or existing_path(paths[0])


#: Labels of those who hold GPUs, in this order: with both of the first, the second is the exporter's own namespace;
#: the others are those of exporters of Slurm.
_LABELS = {"exported_namespace": "namespace", "namespace": "namespace", "account": "group", "user": "user"}
_LABELS |= {"username": "user", "partition": "partition"}
#: Labels that tell replicas of an exporter or of Prometheus apart, but no GPUs.
_REPLICAS = {"instance", "prometheus", "prometheus_replica", "replica", "endpoint", "service", "job"}
_SAMPLES = pa.schema([(name, pa.string()) for name in ("unique_id", "ds", "y", "series", "share")])
#: How a line of VictoriaMetrics' export begins, and an answer to a range query does not.
_EXPORT = re.compile(rb'\{\s*"(?:metric|values|timestamps)"\s*:')


def read_prometheus(path: str | os.PathLike[str], *, tz: object = None, limits: Limits | None = LIMITS) -> pd.DataFrame:
    r"""Read the GPUs that each namespace held over time, from Prometheus.

    Parameters
    ----------
    path : path-like
        JSON response of a range query, or CSV (plain or gzip-compressed) with a column of times and either one column
        per namespace or the columns namespace and value; the series of a namespace (its pods) are summed at each
        timestamp, as if all were scraped at once. Requests stay listed for pods that wait and that have completed, so
        a suitable query joins them with the phase: ``sum by (namespace)
        (kube_pod_container_resource_requests{resource="nvidia_com_gpu"} * on (namespace, pod, uid) group_left ()
        (kube_pod_status_phase{phase="Running"} == 1))``. Slices (MIG) in the labels ``resource`` and ``GPU_I_PROFILE``
        count as shares of a GPU. Series whose metric or label ``state``, ``phase``, ``status`` or ``type`` says that
        their GPUs are idle, waited for or there (``total``, ``hard``) do not count, nor do limits beside requests,
        which is said.
    tz : str or tzinfo, optional
        Zone of times in CSV that are written without one; epoch seconds need none.
    limits : Limits, optional
        The largest file that is read; None for any size.

    Returns
    -------
    DataFrame
        ``unique_id`` (namespace), ``ds`` (UTC) and ``y`` (GPUs held), sorted; a namespace has no row where it has no
        sample. ``attrs`` holds ``kind``, ``by``, ``source`` and ``rejected``.

    Raises
    ------
    InputError
        For a file of another format, an error response, and series none of which has a namespace. (Single ones without
        are GPUs that no pod holds; they are left out and counted.) For metrics that count no GPUs, such as those of
        NVIDIA's exporter, that count GPUs of nodes or quotas only, and for several that may tell of the same GPUs.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp(), "held.csv")
    >>> _ = file.write_text("timestamp,vision,speech\n1714521600,4,0.5\n")
    >>> read_prometheus(file)["y"].tolist()
    [0.5, 4.0]
    """
    place, bounds = existing_path(path), limits or NO_LIMITS
    with open_binary(place) as file:
        head = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    with encoding_doubts() as escaped:
        if head[:1] in (b"{", b"["):
            found = _exported(place, bounds) if _EXPORT.match(head) else read_json(place, bounds)
            table = _from_json(found, place.name)
        else:
            table = _grafana(place, bounds) if re.match(rb"sep=|[^,\n]*;", head) else read_table(place, bounds)
            table = _long(table, TimeParser.from_arguments(tz, None, table.source))
    log = LogColumns(table, TimeParser.from_arguments(tz, None, table.source))
    ds, y = log.time("ds", required=True), log.number("y", required=True)
    log.reject(y < 0, "negative number of GPUs")
    y *= log.number("share").fillna(1.0)
    name = log.text("unique_id")
    log.exclude(name.isna(), "without a namespace")
    rejected = log.rejection_counts()
    good = pd.DataFrame({"unique_id": name, "series": log.text("series"), "ds": ds, "y": y})[log.usable()]
    usage = _summed(good.fillna({"series": ""}))
    usage, statistics = without_statistics(usage)
    usage, totals = without_totals(usage)
    usage, nights = with_nights(usage)
    said = [*escaped, *table.header.get("doubts", "").splitlines(), *statistics, *totals, *nights]
    usage["unique_id"] = usage["unique_id"].astype(STRING)
    by = table.header.get("by", "namespace")
    usage.attrs = {"kind": "measured", "by": by, "source": table.source, "rejected": rejected}
    usage.attrs |= {DOUBTS: said} if said else {}
    warn_rejections(rejected, len(table), table.source)
    warn_doubts(said, table.source)
    return usage


def _exported(path: Path, limits: Limits) -> dict[str, Any]:
    """Lines of VictoriaMetrics' export as an answer to a range query."""
    try:
        lines = (
            json.loads(line) for _, block in line_blocks(path, limits) for line in block.to_pylist() if line.strip()
        )
        values = [
            {**each, "values": [(t / 1000, y) for t, y in zip(each["timestamps"], each["values"], strict=True)]}
            for each in lines
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path.name!r} is not an export of VictoriaMetrics ({error}).") from error
    return {"data": {"result": values}}


def _grafana(path: Path, limits: Limits) -> TextTable:
    """Table of a CSV file as Grafana writes it for Excel: a first line with the separator, or semicolons."""
    lines = [line for _, block in line_blocks(path, limits) for line in block.to_pylist()]
    skipped = int(lines[0].startswith("sep="))
    mark = lines[0][4:5] if skipped else ";"
    names, *rows = csv.reader(lines[skipped:], delimiter=mark or ",")
    found = [(line, row) for line, row in enumerate(rows, start=2 + skipped) if row]
    whole = [(line, row) for line, row in found if len(row) == len(names)]
    bad = {line: "with a wrong number of fields" for line, row in found if len(row) != len(names)}
    columns = [[row[place] or None for _, row in whole] for place in range(len(names))]
    schema = pa.schema([(name.strip(), pa.string()) for name in names])
    return TextTable(
        pa.table(columns, schema=schema), np.array([line for line, _ in whole], dtype=np.int64), path.name, bad
    )


def _summed(samples: pd.DataFrame) -> pd.DataFrame:
    """Sums of the series of each name; `samples`: ``unique_id``, ``series``, ``ds``, ``y``."""
    keys = ["unique_id", "series"]
    each = samples.groupby([*keys, "ds"], as_index=False, sort=True)["y"].sum()
    grid = on_one_grid(each.groupby(keys).ngroup().to_numpy(), pd.DatetimeIndex(each["ds"]))
    if grid is not None:
        each = each.assign(ds=grid).groupby([*keys, "ds"], as_index=False, sort=True)["y"].mean()
    return each.groupby(["unique_id", "ds"], as_index=False, sort=True)["y"].sum()


def on_one_grid(series: IntArray, ds: pd.DatetimeIndex) -> pd.DatetimeIndex | None:
    """Times as if all series had been sampled at once, of an export whose targets are scraped in turn; else None.

    `series`, `ds`: of each sample, sorted by both. Samples of a series are a step apart, up to jitter, and each series
    has a phase, which is taken from its times. The sum at one time lacks the series of all other phases.
    """
    us = ds.as_unit("us").asi8
    instants, steps = np.unique(us), np.diff(us)[np.diff(series) == 0]
    if len(instants) < _FEW_SAMPLES or not len(steps):
        return None
    step = float(np.median(steps))
    if np.mean(np.diff(instants) < 0.9 * step) < _FEW_IN_TURN:
        return None
    turn = np.exp(2j * np.pi * (us - instants[0]) / step)
    phase = np.angle(np.bincount(series, turn.real) + 1j * np.bincount(series, turn.imag)) / (2 * np.pi)
    phase = ((phase + _LATE) % 1.0 - _LATE) * step  # a round of scrapes begins with the first
    place = np.rint((us - instants[0] - phase[series]) / step)
    return pd.to_datetime((instants[0] + np.rint(place * step)).astype(np.int64), unit="us", utc=True)


#: Share of the times of a query that follow the one before too early; jitter as a share of a step.
_FEW_IN_TURN, _LATE = 0.05, 0.05


def without_totals(usage: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Usage without a series that is the sum of all others at every time; what was left out.

    One that is not called a total may be equal by chance where it is nearly constant, and stays.
    """
    wide = usage.pivot(index="ds", columns="unique_id", values="y").fillna(0.0)
    others = wide.rsub(wide.sum(axis=1), axis=0)
    equal = wide.columns[np.isclose(wide, others).all(axis=0) & wide.any(axis=0)]
    held = int(wide.any(axis=0).sum())
    for name in equal:
        called, varied = str(name).lower() in TOTALS, held > 2 and wide[name].nunique() > 2
        if called or varied:
            kept = usage[usage["unique_id"] != name].reset_index(drop=True)
            return kept, [f"{shorten(name)!r} is the sum of all others at every time, and did not count."]
        if held > 2:
            return usage, [f"{shorten(name)!r} is the sum of all others at every time; if it is a total, leave it out."]
    return usage, []


def without_statistics(usage: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Usage without series that are called a statistic of the others and are it at every time; what was left out."""
    called = [name for name in usage["unique_id"].unique() if str(name).lower() in _STATISTICS]
    if not called:
        return usage, []
    wide = usage.pivot(index="ds", columns="unique_id", values="y")
    others = wide.drop(columns=[*called, *(name for name in wide if str(name).lower() in TOTALS)])
    names = ", ".join(repr(shorten(name)) for name in called)
    if len(called) > 1 and others.empty:
        return usage, [
            f"{names}: if these are statistics, they are GPUs of nobody; export the series of which they are."
        ]
    kinds = {name: _STATISTICS[str(name).lower()] for name in called} if others.shape[1] > 1 else {}
    found = [name for name, kind in kinds.items() if np.allclose(wide[name], others.agg(kind, axis=1), equal_nan=True)]
    said = [f"{shorten(name)!r} is the {kinds[name]} of all others at every time, and did not count." for name in found]
    return usage[~usage["unique_id"].isin(found)].reset_index(drop=True), said


#: How Grafana calls statistics of the other columns.
_STATISTICS = {"max": "max", "min": "min", "mean": "mean", "avg": "mean", "average": "mean", "median": "median"}


def with_nights(usage: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Usage with zeros at the hours at which, day after day, no pod ran; what it was filled with.

    Prometheus has no sample of what does not exist. A time without any sample is one at which it did not scrape, unless
    it begins or ends at the same time of most days.
    """
    times = pd.DatetimeIndex(np.sort(usage["ds"].unique()))
    if len(times) < _FEW_SAMPLES:
        return usage, []
    gaps = times[1:] - times[:-1]
    step = gaps.sort_values()[len(gaps) // 2]
    long = gaps > 1.5 * step  # scrapes are late by milliseconds
    # Where several of them follow one another, samples are a longer step apart.
    alike = long[1:] & long[:-1] & (abs(gaps[1:] - gaps[:-1]) < 0.5 * gaps[1:])
    rare = np.r_[False, alike] | np.r_[alike, False]
    place = np.flatnonzero(long & ~rare)
    said = _other_step(gaps[rare], step) if rare.sum() >= _FEW_SAMPLES else []
    days = (times[-1] - times[0]) / pd.Timedelta("1D")
    begin, end = ((times[place + late] - times[place + late].normalize()) for late in (0, 1))
    daily = np.zeros(len(place), dtype=bool)
    for moment in (begin, end):
        if len(moment):
            usual = pd.Series(moment).mode()[0]
            apart = abs(moment - usual)
            same = np.asarray(np.minimum(apart, pd.Timedelta("1D") - apart) <= pd.Timedelta("1h"))
            daily |= same & bool(same.sum() >= max(0.5 * days, 3))
    if not daily.any():
        return usage, said
    nights = times[place[daily]].normalize().nunique()
    missing = [pd.date_range(times[k] + step, times[k + 1] - step, freq=step) for k in place[daily]]
    grid = pd.MultiIndex.from_product([usage["unique_id"].unique(), missing[0].append(missing[1:])])
    zeros = grid.to_frame(index=False, name=["unique_id", "ds"]).assign(y=0.0)
    filled = pd.concat([usage, zeros]).sort_values(["unique_id", "ds"], ignore_index=True)
    return filled, [
        f"no namespace has a sample at the same hours of {nights:,} days: no pod ran then, which counts as 0 GPUs.",
        *said,
    ]


def _other_step(gaps: pd.TimedeltaIndex, step: pd.Timedelta) -> list[str]:
    """Sentence on samples that are further apart than most."""
    usual, often, total = (each.total_seconds() for each in (gaps.sort_values()[len(gaps) // 2], step, gaps.sum()))
    return [
        f"most samples are {format_seconds(often)} apart, and those of {format_seconds(total)} are "
        f"{format_seconds(usual)} apart, most of which counts as not known: export all with one step."
    ]


#: Fewer tell no rhythm.
_FEW_SAMPLES = 24


def _from_json(answer: Any, source: str) -> TextTable:
    try:
        if answer.get("status", "success") != "success":
            raise InputError(f"{source!r} is an error of Prometheus: {shorten(str(answer.get('error')), 120)}.")
        found = answer["data"]["result"]
        if found and not any(_namespace(series) for series in found):
            labels = shorten(str(found[0]["metric"]))
            raise InputError(f"{source!r} has only series without a namespace ({labels}); sum by (namespace).")
        said = _incomplete(answer)
        samples = [row for k, series in enumerate(_of_gpus(found, source, said)) for row in _samples(series, str(k))]
    except InputError:
        raise
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:
        raise InputError(f"{source!r} is not the answer of a Prometheus range query ({error}).") from error
    columns = [list(column) for column in zip(*samples, strict=True)] or [[] for _ in _SAMPLES]
    header: dict[str, str] = {"doubts": "\n".join(said)}
    label = next((each for series in found for each in _LABELS if each in series["metric"]), "namespace")
    rows = pa.table(columns, schema=_SAMPLES)
    return TextTable(rows, np.arange(1, len(samples) + 1), source, header=header | {"by": _LABELS[label]})


def _incomplete(answer: dict[str, Any]) -> list[str]:
    """What an answer says of itself, as of stores that could not be reached."""
    warned = [
        f"the query was answered with a warning: {shorten(str(each), 120)}." for each in answer.get("warnings", [])
    ]
    partial = ["the answer is partial (isPartial), so the GPUs of some series are missing; ask again."]
    return warned + partial * bool(answer.get("isPartial"))


def _of_gpus(found: list[dict[str, Any]], source: str, said: list[str]) -> list[dict[str, Any]]:
    """Series that are of GPUs, each once where replicas of an exporter tell the same; what was left out is said."""
    shares = gpus_per_unit((series["metric"] for series in found), source, said)
    counted = [(series, share) for series, share in zip(found, shares, strict=True) if share is not None]
    names = {str(series["metric"].get("__name__", "")) for series, _ in counted if _namespace(series)}
    check_one_metric(names - {""}, source)
    once: dict[Any, dict[Any, Any]] = {}
    metrics, copies = {}, 0
    for series, share in counted:
        labels = series["metric"]
        own = {"pod", "container"} if "exported_pod" in labels else set()
        key: Any = frozenset((name, value) for name, value in labels.items() if name not in _REPLICAS | own)
        values = {float(stamp): str(value) for stamp, value in series.get("values") or [series["value"]]}
        before = once.get(key, {})
        common = before.keys() & values.keys()
        if before and any(float(before[time]) != float(values[time]) for time in common):
            key = (key, frozenset(labels.items()))  # they differ, so they are not the same
        elif len(common) > min(len(before), len(values)) / 2:
            copies += 1
        once[key] = values | once.get(key, {})
        metrics[key] = {"metric": labels, "share": share}
    if copies:
        text = f"{copies:,} series are the same but for the instance that told them (replicas of an exporter?)"
        said.append(f"{text}; they count once.")
    return [{**metrics[key], "values": sorted(values.items())} for key, values in once.items()]


def _namespace(series: dict[str, Any]) -> str:
    labels = series["metric"]
    return str(next((labels[label] for label in _LABELS if label in labels), ""))


def _samples(series: dict[str, Any], key: str) -> Iterator[tuple[str, str, str, str, str | None]]:
    name, share = _namespace(series), None if series["share"] == 1 else str(series["share"])
    for stamp, value in series["values"]:
        yield name, f"{stamp:.6f}", value, key, share


def _column_namespace(name: str, source: str) -> str:
    """Namespace of a column."""
    if "{" not in name:
        return name
    namespace = _namespace({"metric": labels_of_column(name)})
    if not namespace:
        raise InputError(f"{source!r} has a series without a namespace ({shorten(name)}); sum by (namespace).")
    return namespace


def _long(table: TextTable, parser: TimeParser) -> TextTable:
    """Long table of samples, melted if the file has one column per namespace; empty cells are dropped."""
    time, name, value = (
        next((name for name in names if name in table.names), None)
        for names in (
            ("timestamp", "Time", "time", "ds", "date"),
            ("unique_id", *_LABELS, "Series"),
            ("y", "value", "Value"),
        )
    )
    if time is None:
        raise InputError(f"{table.source!r} has no column of times; name one of its columns 'timestamp'.")
    said: list[str] = []
    if name is None or value is None:
        samples = _melted(table, time, parser, said)
    else:
        samples = _in_rows(table, [name, time, value], said)
    return replace(samples, header={"doubts": "\n".join(said)})


def _in_rows(table: TextTable, columns: list[str], said: list[str]) -> TextTable:
    """Samples of a table with a row for each; `columns`: of names, times and values."""
    rows, known = table.rows, [label for label in table.names if label.lower() in READ and label not in columns]
    name, time, value = (rows[column] for column in columns)
    series = pc.binary_join_element_wise(*(rows[label].fill_null("") for label in [columns[0], *known]), _SEPARATOR)
    each = series.combine_chunks().dictionary_encode()
    own = [key.split(_SEPARATOR) for key in each.dictionary.to_pylist()]
    labels: list[dict[str, str]] = [dict(zip(known, key[1:], strict=True)) for key in own]
    if columns[0] == "Series":
        labels = [labels_of_column(key[0]) | given for key, given in zip(own, labels, strict=True)]
        name = pa.array([_column_namespace(key[0], table.source) or None for key in own], pa.string()).take(
            each.indices
        )
    share = _shares(labels, "pod" in table.names, table.source, said)[each.indices.to_numpy()]
    others = [rows[label].fill_null("") for label in table.names if label not in columns[1:]]
    samples = [name, time, value, pc.binary_join_element_wise(*others, "\n"), _texts(share)]
    kept = ~np.isnan(share)
    return TextTable(
        pa.table(samples, schema=_SAMPLES).filter(pa.array(kept)), table.lines[kept], table.source, table.bad
    )


_SEPARATOR = "\x1f"


def _shares(labels: list[dict[str, str]], of_pods: bool, source: str, said: list[str]) -> FloatArray:
    """GPUs that one unit of each series is, NaN of those that do not count."""
    shares = gpus_per_unit([{**each, "pod": "any"} for each in labels] if of_pods else labels, source, said)
    check_one_metric(
        {each["__name__"] for each, share in zip(labels, shares, strict=True) if share and each.get("__name__")}, source
    )
    return np.array(shares, dtype=float)


def _texts(share: FloatArray) -> pa.Array:
    """Shares as text, missing for whole GPUs."""
    return pa.array(share, mask=share == 1).cast(pa.string())


def _melted(table: TextTable, time: str, parser: TimeParser, said: list[str]) -> TextTable:
    """Samples of a table with a column for each series."""
    rows = table.rows.replace_schema_metadata()
    wide = rows.rename_columns([*map(str, range(rows.num_columns))]).to_pandas().assign(_line=table.lines)
    moment = str(table.names.index(time))
    wide[moment] = wide[moment].astype(STRING)
    again = wide.duplicated(moment)
    if again.any():
        wide[moment] = wide[moment].mask(again, parser.again(wide[moment]))
        repeated = wide.duplicated(moment)
        table = replace(table, bad={**table.bad, **dict.fromkeys(wide["_line"][repeated], "with a repeated time")})
        wide, table = wide[~repeated], replace(table, lines=table.lines[~repeated.to_numpy()])
    own = [str(k) for k, name in enumerate(table.names) if name != time]
    share = _shares([labels_of_column(name) for name in table.names if name != time], False, table.source, said)
    shares = dict(zip(own, share, strict=True))
    wide = wide.drop(columns=[k for k in own if np.isnan(shares[k])])
    names = {str(k): _column_namespace(name, table.source) for k, name in enumerate(table.names)}
    long = wide.melt(id_vars=[moment, "_line"], var_name="series", value_name="y").dropna(subset="y")
    long["unique_id"] = long["series"].map(names)
    columns = [pa.array(long[column].astype(str), pa.string()) for column in ("unique_id", moment, "y", "series")]
    columns[1] = pc.replace_substring_regex(columns[1], r"^(\d{10})(\d{3})$", r"\1.\2")  # milliseconds
    columns.append(_texts(long["series"].map(shares).to_numpy(dtype=float)))
    lines = long["_line"].to_numpy()
    bad = {**table.bad, **dict.fromkeys(np.setdiff1d(table.lines, lines).tolist(), "without any value")}
    return TextTable(pa.table(columns, schema=_SAMPLES), lines, table.source, bad)
