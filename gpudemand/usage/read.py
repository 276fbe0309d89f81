"""`read_usage`, `read_log`, and usage that was pulled."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from gpudemand._array import STRING
from gpudemand._tables import not_for_spreadsheets
from gpudemand._validation import InputError, check_choice, check_usage, told
from gpudemand.jobs.columns import LogColumns, path_part_sql
from gpudemand.jobs.files import (
    LIMITS,
    NO_LIMITS,
    Limits,
    as_file,
    check_header,
    encoding_doubts,
    existing_path,
    read_names,
    read_table,
)
from gpudemand.jobs.log_formats import read_prometheus
from gpudemand.jobs.read import USAGE_ONLY, check_shares, read_jobs, refuse_columns, refuse_shares
from gpudemand.jobs.schema import DOUBTS
from gpudemand.jobs.slurm import changes
from gpudemand.jobs.table import saved_attrs, warn_doubts
from gpudemand.jobs.times import TimeParser, parse_timezone
from gpudemand.store import Store, is_store, read_store
from gpudemand.usage.bins import are_midnights, bin_edges, parse_freq
from gpudemand.usage.series import calendar

#: What is summed for each measure.
_STORED = ("held", "shared", "pending", "installed", "used", "measured", "under_5", "under_20", "under_50")
_MEASURES = {**{name: (name,) for name in _STORED}, "wanted": ("held", "pending")}


def pulled_usage(
    path: str | os.PathLike[str],
    measure: str = "held",
    by: str | None = "namespace",
    *,
    freq: object = None,
    tz: object = "UTC",
    min_share: float = 0.5,
) -> pd.DataFrame:
    """Read the number of GPUs over time from a store.

    Parameters
    ----------
    path : path-like
        The store.
    measure : str, default="held"
        ``held`` by running pods, ``shared`` (of these, the GPUs held by time-slicing), ``pending`` pods, ``wanted``
        (held and pending), ``installed`` (allocatable on the nodes), ``used`` (utilization times GPUs, where it is
        measured), ``measured`` (GPUs of pods whose utilization is known), and ``under_5``, ``under_20``,
        ``under_50`` (of these, those used less than so many per cent).
    by : {"namespace", "gpu_type", "node", "total"}, a path of them such as ``"namespace/gpu_type"``, or None
        What a series is; only ``installed`` is known by node.
    freq : str, optional
        Bins of the calendar in `tz`, whose mean is given; by default the samples as they are.
    tz : str or tzinfo
        Zone of the calendar and of ``ds``.
    min_share : float
        Of a bin of which less than this share was scraped, ``y`` is NaN.

    Returns
    -------
    DataFrame
        ``unique_id``, ``ds`` and ``y`` in GPUs, sorted. Zero where something was scraped and a series had none; no row
        (NaN in a bin) where nothing was scraped. ``attrs`` hold ``kind``, ``by``, ``store``, ``measure``, ``step``,
        ``gaps``, ``installed``: the GPUs allocatable on the nodes from each time on at which their number changed, and
        ``installed_by_type``, such times and numbers by type.

    Raises
    ------
    InputError
        For an unknown measure or key, or a store without such samples.
    """
    check_choice("measure", measure, _MEASURES)
    known = ("namespace", "gpu_type", "node", "total")
    keys = [check_choice("by", name, known) for name in (by or "total").split("/")]
    store = read_store(Path(path))
    zone = parse_timezone(tz)
    samples, installed = _samples(store, _MEASURES[measure], keys), _installed(store)
    times = pd.DatetimeIndex(installed.index)
    of_type = {str(name): changes(gpus) for name, gpus in installed.items()}
    wide = samples.pivot(index="ds", columns="unique_id", values="y").reindex(times).fillna(0.0)
    step = pd.Timedelta(store.about["pulls"]["prometheus"]["step"])
    gaps = [f"{a.isoformat()}/{b.isoformat()}" for a, b in gaps_between(times, step)]
    wide.index = wide.index.tz_convert(zone)
    wide = wide if freq is None else binned_means(wide, freq, step, min_share)
    long = wide.rename_axis("ds").reset_index().melt(id_vars="ds", var_name="unique_id", value_name="y")
    usage = long[["unique_id", "ds", "y"]].sort_values(["unique_id", "ds"], ignore_index=True)
    usage["unique_id"] = usage["unique_id"].astype(STRING)
    usage.attrs = {"kind": "measured", "value": "gpus", "by": "/".join(keys), "gaps": gaps}
    if freq is None:  # of samples; bins are missing where too much of them is
        usage.attrs["step"] = str(step)
    usage.attrs |= {"store": os.fspath(path), "measure": measure}
    if said := store.about["pulls"]["prometheus"].get(DOUBTS):
        usage.attrs[DOUBTS] = list(said)
    usage.attrs |= {"installed": changes(installed.sum(axis=1)), "installed_by_type": of_type}
    return usage


def _samples(store: Store, measures: tuple[str, ...], keys: list[str]) -> pd.DataFrame:
    parts = (f"coalesce(nullif({path_part_sql(key)}, ''), 'unknown')" for key in keys)
    column = "'total'" if keys == ["total"] else " || '/' || ".join(parts)
    names = ", ".join(f"'{name}'" for name in measures)
    # Where utilization is measured and is never so low, 0 is: a store keeps no zeros.
    also = ", 'measured'" if measures[0].startswith(("under", "used")) else ""
    found = store.query(
        "usage",
        f"SELECT {column} AS unique_id, ds, sum(CASE WHEN measure IN ({names}) THEN y ELSE 0 END) AS y FROM stored "
        f"WHERE measure IN ({names}{also}) GROUP BY ALL",
    )
    if found is None or not found.num_rows:
        raise InputError(f"the store {store.path.name!r} holds no {measures[0]!r} GPUs; pull them from Prometheus.")
    return found.to_pandas()


def _installed(store: Store) -> pd.DataFrame:
    """Allocatable GPUs by type at every time at which something was scraped."""
    name = "coalesce(nullif(gpu_type, ''), 'unknown')"
    query = f"SELECT ds, {name} AS gpu_type, sum(y) AS y FROM stored WHERE measure = 'installed' GROUP BY ALL"
    found = store.query("usage", query)
    if found is None or not found.num_rows:
        problem = f"the store {store.path.name!r} holds no GPUs of nodes"
        raise InputError(f"{problem}; pull kube_node_status_allocatable, too.")
    return found.to_pandas().pivot(index="ds", columns="gpu_type", values="y").fillna(0.0)


def tells(path: str | os.PathLike[str], measure: str) -> bool:
    """Whether a store holds GPUs of a measure, such as ``pending``, which pods waited for."""
    found = read_store(Path(path)).query("usage", f"SELECT 1 FROM stored WHERE measure = '{measure}' AND y > 0 LIMIT 1")
    return found is not None and bool(found.num_rows)


def gaps_between(times: pd.DatetimeIndex, step: pd.Timedelta) -> list[tuple[pd.Timestamp, pd.Timestamp]]:
    """Begin and end of the periods between samples that stand for `step` each."""
    wide = np.flatnonzero(np.diff(times) > 1.5 * step)  # scrapes are late by milliseconds
    return [(times[place] + step, times[place + 1]) for place in wide]


def binned_means(wide: pd.DataFrame, freq: object, step: pd.Timedelta, min_share: float = 0.5) -> pd.DataFrame:
    """Mean of the samples in each bin, NaN where less than a share of it has samples; `wide`: (n_times, n_series)."""
    offset, times = parse_freq(freq), pd.DatetimeIndex(wide.index)
    edges = bin_edges(times[0], times[-1] + step, offset, times.tz)
    place = edges.searchsorted(times, side="right") - 1
    groups = wide.groupby(place)
    count = groups.count()
    share = count.mul(step / (edges[1:] - edges[:-1])[count.index], axis=0)
    return groups.mean().where(share >= min_share).reindex(range(len(edges) - 1)).set_axis(edges[:-1])


@told("Reading usage")
def read_usage(
    path: str | Path,
    format: str = "canonical",  # noqa: A002
    *,
    tz: str | None = None,
    limits: Limits | None = LIMITS,
) -> pd.DataFrame:
    r"""Read a file of usage series (rather than of jobs).

    Parameters
    ----------
    path : str or Path
        For ``canonical`` a CSV or Parquet file with ``unique_id``, ``ds``, ``y``; for ``prometheus`` the JSON or CSV
        of a range query of GPUs held per namespace. A store gives what `pulled_usage` does.
    format : {"canonical", "prometheus"}
    tz : str, optional
        Zone of times that are written without one, and of the calendar: by default that of the times of Parquet, or
        the one offset of those of CSV; Prometheus' are in UTC. Where a series has a local time twice that daylight
        saving repeats, the first stands for the first.
    limits : Limits, optional
        The largest file that is read; None for any size.

    Returns
    -------
    DataFrame
        ``unique_id``, ``ds``, ``y``, which is NaN where it is not known.

    Raises
    ------
    InputError
        As `read_jobs` does, and for any row that cannot be used. Of CSV also for times of several offsets without `tz`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp(), "usage.csv")
    >>> _ = file.write_text("unique_id,ds,y\nNA,2026-03-28 00:00+01:00,4\nNA,2026-03-30 00:00+02:00,8\n")
    >>> read_usage(file, tz="Europe/Berlin")
      unique_id                        ds    y
    0        NA 2026-03-28 00:00:00+01:00  4.0
    1        NA 2026-03-30 00:00:00+02:00  8.0
    """
    path, _ = Path(path), check_choice("format", format, ("canonical", "prometheus"))
    if is_store(path):
        return pulled_usage(path, tz=tz or "UTC")
    if format == "prometheus":
        return read_prometheus(path, tz=tz, limits=limits)
    with as_file(existing_path(path), limits or NO_LIMITS) as file, encoding_doubts() as said:
        # Marks that were forgotten do not hide here: a row that is not whole is refused.
        table = read_table(file, limits or NO_LIMITS, breaks=True)
    check_header(table, _COLUMNS)
    log = LogColumns(table, TimeParser.from_arguments(tz, None, table.source))
    usage = pd.DataFrame(
        {"unique_id": log.text("unique_id"), "ds": log.time("ds", required=True), "y": log.number("y")}
    )
    log.reject(usage["unique_id"].isna(), "without unique_id")
    log.reject(usage["y"] < 0, "negative number of GPUs")
    log.rejection_counts(strict=True)  # a row that is left out would be a zero
    usage["ds"] = _on_calendar(_with_second_hours(usage, log), log)
    if pa.types.is_string(table.rows["y"].type):  # of CSV, which `write_table` wrote for spreadsheets
        usage["unique_id"] = not_for_spreadsheets(usage["unique_id"])
    usage.attrs = {"source": table.source, **saved_attrs(table.rows.schema, table.source)}
    usage.attrs["kind"] = usage.attrs.get("kind") or "measured"
    usage.attrs |= {DOUBTS: [*usage.attrs.get(DOUBTS, ()), *said]} if said else {}
    warn_doubts(said, table.source)
    return check_usage(usage, allow_missing=True)


_COLUMNS = ("unique_id", "ds", "y")
#: Offset of a time that was written with one, such as +01:00, and the beginning of a day.
_OFFSET = r":\d\d(?:\.\d+)? ?([+-]\d\d(?::?\d\d)?)$"
_MIDNIGHT = r"[T ]00:00(?::00(?:\.0+)?)? ?(?:[Z+-]|$)"


def _with_second_hours(usage: pd.DataFrame, log: LogColumns) -> pd.Series:
    """Times, of which those that a series has twice are in the second of the hours that daylight saving repeats."""
    twice = usage.duplicated(["unique_id", "ds"])
    if not twice.any():
        return usage["ds"]
    again, _ = log.parser.parse(log.parser.again(log.text("ds")[twice]))
    return usage["ds"].mask(twice, again.reindex(usage.index))


def _on_calendar(ds: pd.Series, log: LogColumns) -> pd.Series:
    """Times in the zone that was given, or that of their column, or the only offset of their texts."""
    own, tz = getattr(log.table.rows["ds"].type, "tz", None), log.parser.tz
    if own is not None:
        days = are_midnights(pd.DatetimeIndex(ds.dt.tz_convert(own)))
    else:
        text = pd.Series(log.text("ds").unique())
        days = text.str.contains(_MIDNIGHT).all()
        offsets = text.str.extract(_OFFSET)[0].fillna("+00:00").str.replace(":", "").str.ljust(5, "0").unique()
        own = offsets[0]
        if tz is None and len(offsets) > 1:
            problem = f"the times in {log.table.source!r} have {len(offsets)} offsets, as of a zone whose clock changes"
            raise InputError(f"{problem}; pass tz=, such as tz='Europe/Berlin'.")
    zone = tz or parse_timezone(own)
    local = ds.dt.tz_convert("UTC" if zone == dt.UTC else calendar(zone))
    check_days(days, pd.DatetimeIndex(local), log.table.source)
    return local


def check_days(days: bool, times: pd.DatetimeIndex, what: str) -> None:
    """Refuse times in a zone that all began at midnight (`days`) as written: they are days of another one."""
    if days and not are_midnights(times):
        zone = f"tz={str(times.tz)!r}"
        raise InputError(f"the days in {what!r} are not those of {zone}; leave tz= out, or name the zone of its days.")


def read_log(
    path: Path,
    format: str = "canonical",  # noqa: A002
    *,
    tz: str | None = None,
    origin: object = None,
    limits: Limits | None = LIMITS,
    gpu_share: Mapping[str, float] | None = None,
    columns: str | Sequence[str] | None = None,
) -> pd.DataFrame:
    """Read a job log or, where that is all that there is, usage over time: of Prometheus, a store of it, or a file.

    Parameters are those of `read_jobs`. Canonical files with ``unique_id``, ``ds`` and ``y`` hold usage.
    """
    if format == "canonical" and is_store(path) and not read_store(path).months("jobs"):
        refuse_shares(check_shares(gpu_share), USAGE_ONLY, path.name)
        return pulled_usage(path, by="namespace/gpu_type", tz=tz or "UTC")
    bounds = limits or NO_LIMITS
    if format == "canonical" and path.is_fifo():
        with as_file(path, bounds) as file:
            return read_log(file, tz=tz, origin=origin, limits=limits, gpu_share=gpu_share, columns=columns)
    if format == USAGE_ONLY or (format == "canonical" and set(_COLUMNS) <= {*_names(path, bounds)}):
        refuse_shares(check_shares(gpu_share), format, path.name)
        if columns is not None:
            refuse_columns(format, path.name)
        return read_usage(path, format, tz=tz, limits=limits)
    return read_jobs(path, format=format, tz=tz, origin=origin, limits=limits, gpu_share=gpu_share, columns=columns)


def _names(path: Path, limits: Limits) -> list[str]:
    """Names of the columns of a file; none of what is no table, which readers refuse."""
    try:
        return read_names(path, limits) if path.is_file() else []
    except InputError:
        return []
