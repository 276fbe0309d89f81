"""Dense usage series from job logs, in calendar bins, long or wide."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from gpudemand._typing import STRING, FloatArray
from gpudemand._validation import InputError, as_wide, check_choice, check_usage
from gpudemand.jobs.schema import microseconds
from gpudemand.jobs.table import check_jobs, saved_attrs
from gpudemand.jobs.time_parser import parse_timestamp, parse_timezone
from gpudemand.store import is_store
from gpudemand.usage.binned_values import binned_values
from gpudemand.usage.bins import bin_edges, parse_freq
from gpudemand.usage.job_log_query import KEYS, Bounds, JobLogQuery, open_log

VALUES = ("gpu_hours", "gpus", "gpus_peak", "wanted", "jobs")


def usage_series(
    jobs: pd.DataFrame | str | os.PathLike[str],
    by: str | Sequence[str] | None = "user",
    freq: object = "D",
    value: str = "gpu_hours",
    *,
    start: object = None,
    until: object = None,
    tz: object = None,
    pending: bool = False,
    partial: bool = True,
) -> pd.DataFrame:
    """Aggregate a job log to dense usage series, splitting jobs exactly at the edges of the bins.

    Parameters
    ----------
    jobs : DataFrame, str or Path
        A job table, of pandas, polars, pyarrow ..., or a Parquet or CSV file or a store of one, queried by DuckDB and
        not loaded. ``start`` (or ``submit``), ``end`` and ``gpus`` are needed, and ``user`` for ``by="user"``.
    by : str, sequence of str or None, default="user"
        Column that defines the series: ``"user"``, ``"group"`` (or ``"account"``), ``"cluster"``, ``"partition"``,
        ``"qos"``, ``"gpu_type"``, ``"status"``; a list or a path such as ``"cluster/group/user"`` gives hierarchical
        names; None or ``"total"`` is the total. A missing name reads ``unknown``; a ``/`` inside one is ``%2F``.
    freq : str or offset, default="D"
        Any pandas frequency that names the start of a period (``"h"``, ``"D"``, ``"W-MON"``, ``"MS"``).
    value : {"gpu_hours", "gpus", "gpus_peak", "wanted", "jobs"}, default="gpu_hours"
        GPU-hours in the bin; mean number of GPUs held; peak of GPUs held; mean number of GPUs wanted: what would be
        held with room for all, each job from its submission for as long as it ran; jobs submitted.
    start, until : time-like, optional
        Period to cover; times without a zone are in `tz`. The log's own first and last time by default. Jobs still
        running end at `until`.
    tz : str or tzinfo, optional
        Zone of the calendar, by default UTC: days, weeks and months are local ones; days have 23, 24 or 25 hours. Also
        the zone of times of jobs that have none, which are refused without it.
    pending : bool, default=False
        Include waiting time: each job counts from its submit, and jobs that have not started are included.
    partial : bool, default=True
        Keep a last bin that the period covers only in part; its value is too low to train a forecaster on.

    Returns
    -------
    DataFrame
        ``unique_id`` (str), ``ds`` (bin start, in `tz`) and ``y`` (float), sorted, with a row for every series and bin.
        ``attrs`` hold ``kind``, ``value``, ``freq``, ``until``, and the numbers of jobs with unknown GPUs (counted as
        0), of finished jobs with an unknown end (counted as zero time), and of those ``gave_up`` by their users, which
        were cancelled while they waited: how long they would have run is unknown, and in no value.

    Raises
    ------
    InputError
        For an argument or a log that cannot be used. Rows that cannot be counted are named by reason and none is left
        out, as `read_jobs` does; see `gpudemand.jobs.table.check_jobs`.

    Notes
    -----
    A missing start counts as the submit, unless the job is known to be pending.

    A full cluster bounds what is held, not what is wanted. Jobs that have not ended are wanted for an expected run
    time: the share of their requested time that earlier jobs took which took at least as much of theirs, or without
    requests the mean of earlier jobs with as many GPUs that ran at least as long.

    Examples
    --------
    >>> import pandas as pd
    >>> times = pd.to_datetime(["2026-03-01 22:00", "2026-03-03 04:00"], utc=True)
    >>> jobs = pd.DataFrame({"user": ["ada"], "start": times[:1], "end": times[1:], "gpus": [2]})
    >>> usage_series(jobs, freq="D")
      unique_id                        ds     y
    0       ada 2026-03-01 00:00:00+00:00   4.0
    1       ada 2026-03-02 00:00:00+00:00  48.0
    2       ada 2026-03-03 00:00:00+00:00   8.0
    """
    source = Path(jobs) if isinstance(jobs, (str, os.PathLike)) else check_jobs(jobs, tz=tz, allow_unknown=True)
    return checked_usage(source, by, freq, value, start=start, until=until, tz=tz, pending=pending, partial=partial)


def checked_usage(
    source: pd.DataFrame | Path,
    by: str | Sequence[str] | None,
    freq: object,
    value: str,
    *,
    start: object = None,
    until: object = None,
    tz: object = None,
    pending: bool = False,
    partial: bool = True,
) -> pd.DataFrame:
    """`usage_series` of a table that `check_jobs` has returned, or of a file, whose rows are checked as it is read."""
    check_choice("value", value, VALUES)
    if pending and value == "wanted":
        raise InputError("wanted GPUs are those of the run time only; drop pending=True, which adds the wait.")
    columns, zone = key_columns(by), calendar(tz)
    with open_log(source, columns, pending=pending, tz=tz) as log:
        bounds = log.bounds()
        check_named(columns, log)
        begin, stop, edges = period(bounds, freq, zone, start=start, until=until)
        keys = log.keys()
        y = binned_values(log, value, edges, len(keys), microseconds(begin), microseconds(stop))
    usage = _long_frame(keys, edges[:-1], y)
    usage.attrs = {
        "kind": _stated_kind(source),
        "value": value,
        "freq": parse_freq(freq).freqstr,
        "until": stop.isoformat(),
        "unknown_gpus": bounds.unknown_gpus,
        "unknown_end": bounds.unknown_end,
        "gave_up": bounds.gave_up,
    }
    return usage if partial or stop >= edges[-1] else drop_last_bin(usage)


def period(
    bounds: Bounds, freq: object, zone: Any, *, start: object = None, until: object = None
) -> tuple[pd.Timestamp, pd.Timestamp, pd.DatetimeIndex]:
    """First and last time to cover, by default those of a log, and the edges of the bins between."""
    begin, stop = _time("start", start, zone, bounds.begin), _time("until", until, zone, bounds.until)
    if stop < begin:
        raise InputError(f"until ({stop}) lies before the start of the period ({begin}).")
    return begin, stop, bin_edges(begin, stop, freq, zone)


def calendar(tz: object) -> Any:
    """Zone of the calendar: named zones by name, as pandas writes them into a dtype."""
    zone = parse_timezone(tz)
    return "UTC" if zone is None else getattr(zone, "key", zone)


def _stated_kind(source: pd.DataFrame | Path) -> str:
    """Kind of data stated by a table or a Parquet file; empty where it is not stated."""
    if isinstance(source, pd.DataFrame) or is_store(source):
        return "measured" if isinstance(source, Path) else str(source.attrs.get("kind", ""))
    return str(saved_attrs(pq.read_schema(source), source.name).get("kind", "")) if source.suffix == ".parquet" else ""


def key_columns(by: str | Sequence[str] | None) -> list[str]:
    """Columns of a job table that `by` of `usage_series` names."""
    names = [] if by in (None, "total") else by.split("/") if isinstance(by, str) else list(by)
    columns = ["group" if name == "account" else name for name in names]
    for name in columns:
        check_choice("by", name, KEYS)
    return columns


def check_named(columns: Sequence[str], log: JobLogQuery) -> None:
    """Raise an `InputError` for a column that names no job."""
    for name in sorted(set(columns) - set(log.named(columns)), key=columns.index):
        known = " or ".join([*log.named(), "total"])
        raise InputError(f"this log names no {name!r} for any job; split it by {known}.")


def _time(name: str, value: object, tz: object, default: int) -> pd.Timestamp:
    return pd.Timestamp(default, unit="us", tz="UTC") if value is None else parse_timestamp(value, tz, name)


def _long_frame(keys: Sequence[str], times: pd.DatetimeIndex, y: FloatArray) -> pd.DataFrame:
    names = pd.array(list(keys), dtype=STRING)
    ds = times[np.tile(np.arange(len(times)), len(keys))]
    return pd.DataFrame({"unique_id": names.repeat(len(times)), "ds": ds, "y": y.ravel()})


def drop_last_bin(usage: pd.DataFrame) -> pd.DataFrame:
    """Drop the last bin of every series, which a log that stops within it covers only in part.

    Raises
    ------
    InputError
        If there is only one bin.
    """
    shorter = usage[usage["ds"] < usage["ds"].max()].reset_index(drop=True)
    if shorter.empty:
        raise InputError("the log covers less than one whole bin; use a finer freq.")
    shorter.attrs = dict(usage.attrs)
    return shorter


def recorded_until(jobs: pd.DataFrame) -> pd.Timestamp:
    """Time until which a log is complete: its newest time, or its last submission if no more are recorded after it.

    A log of finished jobs extends to the end of its last job, but has no submissions after some earlier time, from
    which on demand seems to fall. That is assumed when the time after the last submission exceeds the 99.9 % quantile
    of the times between submissions.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.

    Returns
    -------
    Timestamp

    Examples
    --------
    >>> from gpudemand.jobs.table import as_jobs
    >>> times = pd.date_range("2026-03-01", periods=3, freq="D", tz="UTC")
    >>> jobs = as_jobs(pd.DataFrame({"submit": times, "end": times + pd.Timedelta("9D"), "gpus": 1}), kind="measured")
    >>> recorded_until(jobs)
    Timestamp('2026-03-03 00:00:00+0000', tz='UTC')
    """
    return end_of_record(check_jobs(jobs, allow_unknown=True))


def end_of_record(log: pd.DataFrame) -> pd.Timestamp:
    """`recorded_until` of what `check_jobs` has returned."""
    submits = log["submit"].sort_values()
    last = submits.iloc[-1]
    newest = log[["submit", "start", "end"]].max().max()
    return last if newest - last > submits.diff().quantile(0.999) else newest


def to_wide(usage: pd.DataFrame) -> pd.DataFrame:
    """Pivot a long frame to a matrix of series by time.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``; NaN in ``y`` stays.

    Returns
    -------
    DataFrame, shape (n_series, n_timestamps)
        Index ``unique_id``, columns ``ds``; NaN where a series has no row.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.to_datetime(["2026-03-01", "2026-03-02"])
    >>> usage = pd.DataFrame({"unique_id": ["a", "a"], "ds": ds, "y": [1.0, 2.0]})
    >>> to_wide(usage).loc["a"].tolist()
    [1.0, 2.0]
    """
    frame = check_usage(usage, allow_missing=True)
    wide = frame.pivot(index="unique_id", columns="ds", values="y")
    wide.attrs = dict(frame.attrs)
    return wide


def to_long(wide: pd.DataFrame) -> pd.DataFrame:
    """Melt a matrix of series by time to a long frame; the inverse of `to_wide`.

    Parameters
    ----------
    wide : DataFrame, shape (n_series, n_timestamps)
        Index: series names; columns: datetimes.

    Returns
    -------
    DataFrame
        ``unique_id``, ``ds``, ``y``; NaN stays NaN.
    """
    wide = as_wide(wide)
    if not isinstance(wide.columns, pd.DatetimeIndex):
        raise InputError("to_long takes a frame with one row a series and datetimes as columns (what to_wide returns).")
    long = pd.DataFrame(
        {
            "unique_id": wide.index.repeat(wide.shape[1]),
            "ds": wide.columns[np.tile(np.arange(wide.shape[1]), wide.shape[0])],
            "y": wide.to_numpy(dtype=float, na_value=np.nan).ravel(),
        }
    )
    long = check_usage(long, allow_missing=True)
    long.attrs = dict(wide.attrs)
    return long
