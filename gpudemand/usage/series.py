"""Usage series of jobs: long, wide, and summed along a hierarchy."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from gpudemand._array import STRING, FloatArray, IntArray
from gpudemand._validation import (
    InputError,
    UnlikelyUsageWarning,
    as_wide,
    check_choice,
    check_list,
    check_usage,
    shorten,
    stack_level,
    told,
)
from gpudemand.jobs.columns import map_unique, path_part
from gpudemand.jobs.plausibility import complete_period, complete_period_of
from gpudemand.jobs.schema import microseconds
from gpudemand.jobs.table import check_jobs, saved_attrs
from gpudemand.jobs.times import parse_timestamp, parse_timezone
from gpudemand.store import is_store
from gpudemand.usage.bins import BinnedGpuTime, bin_edges, parse_freq
from gpudemand.usage.query import KEYS, Bounds, JobLogQuery, open_log
from gpudemand.usage.runs import Runs, RunsQuery


def binned_values(
    log: JobLogQuery | RunsQuery, value: str, edges: pd.DatetimeIndex, n_keys: int, begin: int, until: int
) -> FloatArray:
    """Values as `usage_series` defines them, shape (n_keys, n_bins), from `begin` to `until` (microseconds)."""
    edges_us = edges.as_unit("us").asi8
    if value == "jobs":
        n_bins, inside = len(edges) - 1, np.clip(edges_us, begin, until + 1)
        counts = np.zeros(n_keys * n_bins)
        for key, submit in log.submissions(inside):
            np.add.at(counts, key * n_bins + np.searchsorted(inside, submit, side="right") - 1, 1.0)
        return counts.reshape(n_keys, n_bins)
    if value == "gpus_peak":
        return _peaks(log, edges_us, n_keys, begin, until)
    held = BinnedGpuTime(edges_us, n_keys)
    for key, first, last, gpus in log.wanted(until) if value == "wanted" else log.held(until):
        held.add(key, np.clip(first, begin, until), np.clip(last, begin, until), gpus)
    gpu_hours = held.gpu_hours()
    return gpu_hours if value == "gpu_hours" else gpu_hours / (np.diff(edges_us) / 3.6e9)


def _peaks(log: JobLogQuery | RunsQuery, edges_us: IntArray, n_keys: int, begin: int, until: int) -> FloatArray:
    """Peak of the GPUs held, shape (n_keys, n_bins)."""
    shape = (n_keys, edges_us.size)
    peak, last, at_edge = np.zeros(shape), np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    for key, t, level in _levels(log, begin, until):
        cell = key * edges_us.size + np.searchsorted(edges_us, t, side="right") - 1
        first = np.flatnonzero(np.diff(cell, prepend=-1))
        place = cell[first]
        # The changes of a bin may lie in two batches.
        peak.flat[place] = np.maximum(peak.flat[place], np.maximum.reduceat(level, first))
        last.flat[place] = level[np.append(first[1:], cell.size) - 1]
        at_edge.flat[place] |= t[first] == edges_us[place % edges_us.size]
    held = pd.DataFrame(last).ffill(axis=1).fillna(0.0).to_numpy()
    entering = np.hstack([np.zeros((n_keys, 1)), held[:, :-1]])
    # A change exactly at an edge replaces the level before it: jobs that end there are not in the new bin.
    return np.maximum(peak, np.where(at_edge, 0.0, entering))[:, :-1]


def _levels(log: JobLogQuery | RunsQuery, begin: int, until: int) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
    """Batches of key code, time and GPUs held from then on, one a time and key, sorted."""
    level, pending = 0.0, None
    for batch in log.changes(begin, until):
        key, t, change = (
            batch if pending is None else (np.concatenate(pair) for pair in zip(pending, batch, strict=True))
        )
        # The changes at one time count together; those at the newest one may go on in the next batch.
        new = np.flatnonzero((np.diff(key, prepend=-1) != 0) | (np.diff(t, prepend=-1) != 0))
        pending = (key[new[-1] :], t[new[-1] :], change[new[-1] :])
        sums = np.cumsum(np.add.reduceat(change, new)[:-1]) + level
        if sums.size:
            yield key[new[:-1]], t[new[:-1]], np.round(sums, 9)
            level = float(sums[-1])
    if pending is not None:
        yield pending[0][:1], pending[1][:1], np.round([level + pending[2].sum()], 9)


VALUES = ("gpu_hours", "gpus", "gpus_peak", "wanted", "jobs")


@told("Computing usage")
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
        names; None or ``"total"`` is the total. A missing name reads ``unknown``; a ``/`` inside one is ``%2F``, and
        a ``%2F`` is ``%252F``.
    freq : str or offset, default="D"
        Any pandas frequency that names the start of a period (``"h"``, ``"D"``, ``"W-MON"``, ``"MS"``).
    value : {"gpu_hours", "gpus", "gpus_peak", "wanted", "jobs"}, default="gpu_hours"
        GPU-hours in the bin; mean number of GPUs held; peak of GPUs held; mean number of GPUs wanted: what would be
        held with room for all, each job from its submission for as long as it ran; jobs submitted.
    start, until : time-like, optional
        Period to cover; times without a zone are in `tz`. By default the log's own first and last time, or those
        between which `read_jobs` found it complete, also of a file that was written of its table, and of a store. A
        part of a table (``jobs[jobs["end"] < "2026-02-10"]``) begins and ends with its own jobs. Days without jobs at
        the end of a log count where a job is known to run after them. Jobs still running end at `until`.
    tz : str or tzinfo, optional
        Zone of the calendar, by default UTC: days, weeks and months are local ones; days have 23, 24 or 25 hours. Also
        the zone of times of jobs that have none, which are refused without it.
    pending : bool, default=False
        Include waiting time: each job counts from its submit, and jobs that have not started are included.
    partial : bool, default=True
        Keep bins that the log covers only in part, whose values are too low to train a forecaster on: the last one, and
        the first one (unless it is the only one) if the log is known to begin inside it, or bins are longer than a day
        and it has no job on the first day of it.

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

    Whether a log is complete, and which of its records were never closed, only `read_jobs` looks at: a file that nobody
    read (``gpudemand convert`` reads it) counts from its first to its last time as it stands, as does a table that has
    lost its ``attrs``, in ``merge`` or ``concat``. In a store, records that were never closed count as running.

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
    log: RunsQuery | None = None,
) -> pd.DataFrame:
    """`usage_series` of a table that `check_jobs` has returned, or of a file, whose rows are checked as it is read.

    `log`: queries of the table by this key, where they were made before.
    """
    check_choice("value", value, VALUES)
    if pending and value == "wanted":
        raise InputError("wanted GPUs are those of the run time only; drop pending=True, which adds the wait.")
    columns, zone = key_columns(by), calendar(tz)
    with _opened(source, columns, log, pending, tz) as query:
        bounds, attrs = query.bounds(), stated_attrs(source)
        first, until = recorded_period(source, query, start, until)
        check_named(columns, query)
        begin, stop, edges = period(bounds, freq, zone, start=first, until=until)
        keys = query.keys()
        if value == "jobs" and until is None and _submits_at(query, stop):
            edges = bin_edges(begin, stop + _NEXT, freq, zone)
        y = binned_values(query, value, edges, len(keys), microseconds(begin), microseconds(stop))
    if not partial:
        bins = whole_bins(edges, begin, stop, known=first is not None)
        edges, y = edges[bins.start : bins.stop + 1], y[:, bins]
    times, names = edges[:-1], pd.array(keys, dtype=STRING)
    ds = times[np.tile(np.arange(len(times)), len(keys))]
    usage = pd.DataFrame({"unique_id": names.repeat(len(times)), "ds": ds, "y": y.ravel()})
    counts = {name: getattr(bounds, name) for name in ("unknown_gpus", "unknown_end", "gave_up")}
    usage.attrs = {"kind": str(attrs.get("kind", "")), "value": value, "freq": parse_freq(freq).freqstr}
    usage.attrs |= {"until": stop.isoformat(), **counts}
    return usage


#: Share of a bin that may be missing at its begin, and the longest day.
_MAY_MISS, _DAY = 0.01, pd.Timedelta("25h")


def whole_bins(edges: pd.DatetimeIndex, begin: pd.Timestamp, stop: pd.Timestamp, *, known: bool) -> slice:
    """Bins without those at either end that a log covers only in part; a first one stays if it is all that is left.

    `edges`: of the bins. `begin`, `stop`: of the log. `known`: whether the record begins then; if not, the first job
    does, before which nobody may have wanted anything, though hardly for more than a day.
    """
    n = len(edges) - 1 - int(stop < edges[-1])
    if not n:
        raise InputError("the log covers less than one whole bin; use a finer freq.")
    missing = begin - edges[0] > (_MAY_MISS * (edges[1] - edges[0]) if known else _DAY)
    return slice(int(missing and n > 1), n)


#: From one time to the next that is told apart.
_NEXT = pd.Timedelta("1us")


def _submits_at(log: JobLogQuery | RunsQuery, time: pd.Timestamp) -> bool:
    return any(len(submit) for _, submit in log.submissions(np.array([microseconds(time), microseconds(time + _NEXT)])))


@contextmanager
def _opened(
    source: pd.DataFrame | Path, by: Sequence[str], log: RunsQuery | None, pending: bool, tz: object
) -> Iterator[JobLogQuery | RunsQuery]:
    if isinstance(source, Path):
        with open_log(source, by, pending=pending, tz=tz) as query:
            yield query
    else:
        yield log or RunsQuery(source, by, Runs.of(source, pending=pending))


def period(
    bounds: Bounds, freq: object, zone: Any, *, start: object = None, until: object = None
) -> tuple[pd.Timestamp, pd.Timestamp, pd.DatetimeIndex]:
    """First and last time to cover, by default those of a log, and the edges of the bins between."""
    begin, stop = (
        pd.Timestamp(of_log, unit="us", tz="UTC") if given is None else parse_timestamp(given, zone, name)
        for name, given, of_log in (("start", start, bounds.begin), ("until", until, bounds.until))
    )
    if stop < begin:
        raise InputError(f"until ({stop}) lies before the start of the period ({begin}).")
    return begin, stop, bin_edges(begin, stop, freq, zone)


def calendar(tz: object) -> Any:
    """Zone of the calendar: named zones by name, as pandas writes them into a dtype."""
    zone = parse_timezone(tz)
    return "UTC" if zone is None else getattr(zone, "key", zone)


def stated_attrs(source: pd.DataFrame | Path) -> Mapping[Any, Any]:
    """The ``attrs`` of a table, or those that a Parquet file of one keeps; of any other file none are known."""
    if isinstance(source, pd.DataFrame):
        return source.attrs
    if is_store(source):
        return {"kind": "measured"}
    return saved_attrs(pq.read_schema(source), source.name) if source.suffix == ".parquet" else {}


def recorded_period(
    source: pd.DataFrame | Path, log: JobLogQuery | RunsQuery, start: object, until: object
) -> tuple[object, object]:
    """Period that is asked for, where it is not said the one in which the log is known to be complete.

    None where it is so from its first or to its last time, or where nobody has looked: at files, only `read_jobs` does.
    """
    if start is not None and until is not None:
        return start, until
    if isinstance(log, JobLogQuery) and isinstance(source, Path) and is_store(source):
        begin, end = log.complete_period()
    else:
        bounds = log.bounds()
        times = (pd.Timestamp(us, unit="us", tz="UTC") for us in (bounds.begin, bounds.until))
        begin, end = complete_period(stated_attrs(source), *times, runs=bounds.running > 0)
    return begin if start is None else start, end if until is None else until


def key_columns(by: str | Sequence[str] | None) -> list[str]:
    """Columns of a job table that `by` of `usage_series` names."""
    if by is None or isinstance(by, str):
        names = [] if by in (None, "total") else by.split("/")
    else:
        names = check_list("by", by, "columns", empty=True)
    columns = ["group" if name == "account" else name for name in names]
    for name in columns:
        check_choice("by", name, [*KEYS, "total"] if names == [by] else KEYS)
    return columns


def check_named(columns: Sequence[str], log: JobLogQuery | RunsQuery) -> None:
    """Raise an `InputError` for a column that names no job."""
    for name in sorted(set(columns) - set(log.named(columns)), key=columns.index):
        known = " or ".join([*log.named(), "total"])
        raise InputError(f"this log names no {name!r} for any job; split it by {known}.")


def recorded_until(jobs: pd.DataFrame) -> pd.Timestamp:
    """Time until which a log is complete: its newest time, or its last submission if no more are recorded after it.

    Where a log says how long jobs have been running, its newest time is when it said so.

    A log of finished jobs extends to the end of its last job, but has no submissions after some earlier time, from
    which on demand seems to fall. That is assumed when the time after the last submission exceeds the 99.9 % quantile
    of the times between submissions.

    `jobs`: canonical job table.
    """
    return end_of_record(check_jobs(jobs, allow_unknown=True))


def end_of_record(log: pd.DataFrame) -> pd.Timestamp:
    """`recorded_until` of what `check_jobs` has returned."""
    submits = log["submit"].sort_values()
    last = submits.iloc[-1]
    newest, until = log[["submit", "start", "end"]].max().max(), complete_period_of(log)[1]
    # Later than any time of the log, it is how long jobs were seen to run.
    newest = max(newest, until or newest)
    end = last if newest - last > submits.diff().quantile(0.999) else newest
    return min(end, until or end)


def to_wide(usage: pd.DataFrame, fill_value: float | None = None) -> pd.DataFrame:
    """Pivot a long frame to a matrix of series by time.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``; NaN in ``y`` stays.
    fill_value : float, optional
        Value of a series, after its first, at times of the table where it has none: 0 for users who ran nothing then.

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
    if fill_value is not None:
        wide = wide.where(wide.notna() | wide.ffill(axis=1).isna(), fill_value)
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
    ds = wide.columns[np.tile(np.arange(wide.shape[1]), wide.shape[0])]
    y = wide.to_numpy(dtype=float, na_value=np.nan).ravel()
    long = pd.DataFrame({"unique_id": wide.index.repeat(wide.shape[1]), "ds": ds, "y": y})
    long = check_usage(long, allow_missing=True)
    long.attrs = dict(wide.attrs)
    return long


_MEMBERSHIP_KEYS = ("gpu_type", "user", "group", "cluster", "partition", "qos")


def series_codes(jobs: pd.DataFrame, ids: Sequence[str]) -> IntArray:
    """Index of the series that each job belongs to, -1 for none, from the names of the series.

    `jobs`: canonical columns. `ids`: as `usage_series` names them: ``total``, users, groups, clusters, partitions,
    GPU types, or paths of those. Returns ndarray of int, shape (n_jobs,).
    """
    names = pd.Index([str(name) for name in ids])
    if len(names) == 1 and names[0] == "total":
        return np.zeros(len(jobs), dtype=np.int64)
    known = [key for key in _MEMBERSHIP_KEYS if key in jobs]
    depth = names[0].count("/") + 1
    parts = {key: map_unique(jobs[key], path_part).fillna("unknown") for key in known}
    paths = (
        parts[first].str.cat([parts[key] for key in rest], sep="/") if rest else parts[first]
        for first, *rest in permutations(known, min(depth, 4))
    )
    found = [names.get_indexer(pd.Index(path)).astype(np.int64) for path in paths]
    best = max(found, key=lambda codes: len(np.unique(codes[codes >= 0])))
    if not (best >= 0).any():
        raise InputError(
            f"no job belongs to the series {shorten(names[0])!r}; usage must come from usage_series(jobs, by=...) of "
            f"this log, with by=None, {', '.join(_MEMBERSHIP_KEYS)} or a path of them."
        )
    return best


def aggregate_usage(
    usage: pd.DataFrame, spec: str | Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, list[str]]]:
    """Aggregate series with hierarchical names to every level of the hierarchy.

    Parameters
    ----------
    usage : DataFrame
        Long frame with paths as ``unique_id``, as from ``usage_series(jobs, by="cluster/group/user")``. A series that
        begins late adds nothing before. Where its value is not known later, the sums over it are not known either.
    spec : str or sequence of str
        Names of the levels from the top down, ``"cluster/group/user"``; the total is added.

    Returns
    -------
    Y_df : DataFrame
        ``unique_id``, ``ds``, ``y`` of every node, the total first; the bottom series keep their names.
    S_df : DataFrame, shape (n_nodes, n_bottom + 1)
        Summing matrix, with the node in the column ``unique_id``.
    tags : dict of str to list of str
        Level -> its nodes. The three are the inputs of hierarchicalforecast's methods.

    Raises
    ------
    InputError
        If a series has no value at all, or its name not one part for each level.

    Warns
    -----
    UnlikelyUsageWarning
        Of series that end before the others, or have bins without a value inside.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.to_datetime(["2026-03-01"] * 3)
    >>> usage = pd.DataFrame({"unique_id": ["x/ada", "x/bob", "y/eve"], "ds": ds, "y": [1.0, 2.0, 4.0]})
    >>> nodes, _, tags = aggregate_usage(usage, "group/user")
    >>> dict(zip(nodes["unique_id"], nodes["y"]))
    {'total': 7.0, 'x': 3.0, 'y': 4.0, 'x/ada': 1.0, 'x/bob': 2.0, 'y/eve': 4.0}
    """
    levels = spec.split("/") if isinstance(spec, str) else list(spec)
    wide = to_wide(usage)
    paths = [str(name).split("/") for name in wide.index]
    wrong = [name for name, path in zip(wide.index, paths, strict=True) if len(path) != len(levels)]
    if wrong:
        parts = f"the {len(levels)} parts of {'/'.join(levels)!r}"
        raise InputError(f"{len(wrong)} series do not have {parts}, such as {shorten(wrong[0])!r}.")
    nodes: dict[str, FloatArray] = {"total": np.ones(len(paths))}
    tags = {"total": ["total"]}
    for depth in range(1, len(levels) + 1):
        member = pd.Index(["/".join(path[:depth]) for path in paths])
        names = sorted(set(member))
        nodes.update({name: (member == name).astype(float) for name in names})
        tags["/".join(levels[:depth])] = names
    summing = pd.DataFrame.from_dict(nodes, orient="index", columns=wide.index)
    sums = pd.DataFrame(_sums(summing.to_numpy(), wide), index=summing.index, columns=wide.columns)
    tree = to_long(sums.rename_axis(index="unique_id"))
    tree = tree.iloc[np.argsort(summing.index.get_indexer(tree["unique_id"]), kind="stable")].reset_index(drop=True)
    return tree, summing.rename_axis("unique_id").reset_index(), tags


def _sums(summing: FloatArray, wide: pd.DataFrame) -> FloatArray:
    """Sums of series, shape (n_nodes, n_times); NaN before the first of them begins, and where one is not known later.

    `summing`: of zeros and ones, shape (n_nodes, n_series).
    """
    y = wide.to_numpy()
    known = ~np.isnan(y)
    if known.all():
        return np.asarray(summing @ y)
    begun = np.logical_or.accumulate(known, axis=1)
    if not begun[:, -1].all():
        name = shorten(str(wide.index[begun[:, -1].argmin()]))
        raise InputError(f"the series {name!r} has no value at all; write 0 where nothing was used, or leave it out.")
    unknown = begun & ~known
    if unknown.any():
        row, column = np.argwhere(unknown)[0]
        message = (
            f"{int(unknown.any(axis=1).sum())} of {len(y)} series have no value at times after their first, such as "
            f"{shorten(str(wide.index[row]))!r} at {wide.columns[column]}, where sums over them are not known either. "
            "If nothing was used then, say so: usage = gd.to_long(gd.to_wide(usage, fill_value=0))."
        )
        warnings.warn(message, UnlikelyUsageWarning, stacklevel=stack_level())
    not_known = (summing @ unknown > 0) | (summing @ begun == 0)
    return np.where(not_known, np.nan, summing @ np.where(known, y, 0.0))
