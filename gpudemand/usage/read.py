"""`read_usage`, `read_log`, and usage that was pulled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from gpudemand._array import STRING
from gpudemand._validation import InputError, check_choice, check_columns, check_usage, told
from gpudemand.jobs.files import LIMITS, NO_LIMITS, Limits, open_parquet
from gpudemand.jobs.log_formats import read_prometheus
from gpudemand.jobs.plausibility import DOUBTS
from gpudemand.jobs.read import USAGE_ONLY, read_jobs
from gpudemand.jobs.slurm import changes
from gpudemand.jobs.times import parse_timezone
from gpudemand.store import Store, is_store, read_store
from gpudemand.usage.bins import bin_edges, parse_freq

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
    usage.attrs = {"kind": "measured", "value": "gpus", "by": "/".join(keys), "step": str(step), "gaps": gaps}
    usage.attrs |= {"store": os.fspath(path), "measure": measure}
    if said := store.about["pulls"]["prometheus"].get(DOUBTS):
        usage.attrs[DOUBTS] = list(said)
    usage.attrs |= {"installed": changes(installed.sum(axis=1)), "installed_by_type": of_type}
    return usage


def _samples(store: Store, measures: tuple[str, ...], keys: list[str]) -> pd.DataFrame:
    parts = (f"coalesce(nullif(replace({key}, '/', '%2F'), ''), 'unknown')" for key in keys)
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
    """Mean of the samples in each bin, NaN where less than a share of it has samples.

    `wide`: shape (n_times, n_series); samples, each of which stands for the time until `step` later.
    """
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
    """Read a file of usage series (rather than of jobs).

    Parameters
    ----------
    path : str or Path
        For ``canonical`` a CSV or Parquet file with ``unique_id``, ``ds``, ``y``; for ``prometheus`` the JSON or CSV
        of a range query of GPUs held per namespace. A store gives what `pulled_usage` does.
    format : {"canonical", "prometheus"}
    tz : str, optional
        Zone of times that are written without one (Prometheus' JSON always has one).
    limits : Limits, optional
        The largest file of Prometheus that is read; None for any size.

    Returns
    -------
    DataFrame
        ``unique_id``, ``ds``, ``y``.
    """
    path, _ = Path(path), check_choice("format", format, ("canonical", "prometheus"))
    if is_store(path):
        return pulled_usage(path, tz=tz or "UTC")
    if not path.is_file():
        raise InputError(f"there is no file at {str(path)!r}.")
    if format == "prometheus":
        return read_prometheus(path, tz=tz, limits=limits)
    is_parquet = path.suffix == ".parquet"  # the names of its folders are no columns
    table = pd.read_parquet(path, partitioning=None) if is_parquet else pd.read_csv(path, dtype={"unique_id": str})
    usage = check_columns(table, ("unique_id", "ds", "y"), path.name)
    ds = pd.to_datetime(usage["ds"], format="ISO8601")
    ds = ds.dt.tz_localize(tz) if tz is not None and ds.dt.tz is None else ds
    return check_usage(usage.assign(ds=ds), allow_missing=True)


def read_log(
    path: Path,
    format: str = "canonical",  # noqa: A002
    *,
    tz: str | None = None,
    origin: object = None,
    limits: Limits | None = LIMITS,
    gpu_share: Mapping[str, float] | None = None,
    columns: str | None = None,
) -> pd.DataFrame:
    """Read a job log or, where that is all that there is, usage over time: of Prometheus, a store of it, or a file.

    `format`: of `read_jobs`, or ``prometheus``. Canonical files with ``unique_id``, ``ds`` and ``y`` hold usage.
    `tz`, `origin`, `limits`, `gpu_share`, `columns`: as for `read_jobs`. Returns as `read_jobs` or `read_usage` does.
    """
    if format == "canonical" and is_store(path) and not read_store(path).months("jobs"):
        return pulled_usage(path, by="namespace/gpu_type", tz=tz or "UTC")
    if format == USAGE_ONLY or (
        format == "canonical" and {"unique_id", "ds", "y"} <= _columns(path, limits or NO_LIMITS)
    ):
        usage = read_usage(path, format, tz=tz, limits=limits)
        if usage["ds"].dt.tz is None:
            raise InputError(f"the times in {path.name!r} have no zone; add tz, such as --tz Europe/Berlin.")
        return usage
    return read_jobs(path, format=format, tz=tz, origin=origin, limits=limits, gpu_share=gpu_share, columns=columns)


def _columns(path: Path, limits: Limits) -> set[str]:
    """Names of the columns of a plain file; none of any other."""
    if path.suffix == ".parquet" and path.is_file():
        with open_parquet(path, limits) as file:
            return set(file.schema_arrow.names)
    if path.suffix != ".csv" or not path.is_file():
        return set()
    with path.open("rb") as file:
        return set(file.readline(4096).decode("utf-8-sig", errors="replace").strip().split(","))
