"""Kubernetes: GPUs held per namespace, from Prometheus."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from gpudemand._typing import STRING
from gpudemand._validation import InputError, shorten
from gpudemand.jobs.files import LIMITS, NO_LIMITS, Limits, existing_path, open_binary, read_json
from gpudemand.jobs.log_columns import LogColumns
from gpudemand.jobs.table import warn_rejections
from gpudemand.jobs.text import TextTable, read_table
from gpudemand.jobs.time_parser import TimeParser

#: In this order: with both labels, the second is the exporter's own namespace.
_LABELS = ("exported_namespace", "namespace")
_TIMES = ("timestamp", "Time", "time", "ds", "date")
_NAMES = ("unique_id", *_LABELS)
_VALUES = ("y", "value", "Value")


def read_prometheus(
    path: str | os.PathLike[str], *, tz: object = None, strict: bool = False, limits: Limits | None = LIMITS
) -> pd.DataFrame:
    r"""Read the GPUs that each namespace held over time, from Prometheus.

    Parameters
    ----------
    path : path-like
        JSON response of a range query, or CSV (plain or gzip-compressed) with a column of times and either one column
        per namespace or the columns namespace and value; the series of a namespace (its pods) are summed at each
        timestamp. Requests stay listed for pods that wait and that have completed, so a suitable query joins them
        with the phase: ``sum by (namespace) (kube_pod_container_resource_requests{resource="nvidia_com_gpu"} * on
        (namespace, pod, uid) group_left () (kube_pod_status_phase{phase="Running"} == 1))``.
    tz : str or tzinfo, optional
        Zone of times in CSV that are written without one; epoch seconds need none.
    strict : bool, default=False
        Raise for samples that cannot be used, instead of counting them.
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
        are GPUs that no pod holds; they are left out and counted.)

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp(), "held.csv")
    >>> _ = file.write_text("timestamp,vision,speech\n1714521600,4,0.5\n")
    >>> read_prometheus(file)["y"].tolist()
    [0.5, 4.0]
    """
    place = existing_path(path)
    table = _open(place, limits or NO_LIMITS)
    log = LogColumns(table, TimeParser.from_arguments(tz, None, table.source))
    ds, y = log.time("ds", required=True), log.number("y", required=True)
    log.reject(y < 0, "negative number of GPUs")
    name = log.text("unique_id")
    log.exclude(name.isna(), "without a namespace")
    rejected = log.rejection_counts(strict=strict)
    good = pd.DataFrame({"unique_id": name, "ds": ds, "y": y})[log.usable()]
    usage = good.groupby(["unique_id", "ds"], as_index=False, sort=True)["y"].sum()
    usage["unique_id"] = usage["unique_id"].astype(STRING)
    usage.attrs = {"kind": "measured", "by": "namespace", "source": table.source, "rejected": rejected}
    warn_rejections(rejected, len(table), table.source)
    return usage


def _open(place: Path, limits: Limits) -> TextTable:
    with open_binary(place) as file:
        begin = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    if begin[:1] in (b"{", b"["):
        return _from_json(read_json(place, limits), place.name)
    return _long(read_table(place, limits))


def _from_json(answer: Any, source: str) -> TextTable:
    try:
        if answer.get("status", "success") != "success":
            raise InputError(f"{source!r} is an error of Prometheus: {shorten(str(answer.get('error')), 120)}.")
        found = answer["data"]["result"]
        if found and not any(_namespace(series) for series in found):
            labels = shorten(str(found[0]["metric"]))
            raise InputError(f"{source!r} has only series without a namespace ({labels}); sum by (namespace).")
        samples = [row for series in found for row in _samples(series)]
    except InputError:
        raise
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:
        raise InputError(f"{source!r} is not the answer of a Prometheus range query ({error!r}).") from error
    columns = [list(column) for column in zip(*samples, strict=True)] or [[], [], []]
    return _table(columns, np.arange(1, len(samples) + 1), source)


def _namespace(series: dict[str, Any]) -> str:
    labels = series["metric"]
    return str(next((labels[label] for label in _LABELS if label in labels), ""))


def _samples(series: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    name = _namespace(series)
    for stamp, value in series.get("values") or [series["value"]]:
        yield name, f"{float(stamp):.6f}", str(value)


def _table(columns: list[Any], lines: Any, source: str) -> TextTable:
    schema = pa.schema([(name, pa.string()) for name in ("unique_id", "ds", "y")])
    return TextTable(pa.table(columns, schema=schema), lines, source)


def _long(table: TextTable) -> TextTable:
    """Long table of samples, melted if the file has one column per namespace; empty cells are dropped."""
    time, name, value = (_first(table, names) for names in (_TIMES, _NAMES, _VALUES))
    if time is None:
        raise InputError(f"{table.source!r} has no column of times; name one of its columns 'timestamp'.")
    if name is not None and value is not None:
        rows = table.rows.select([name, time, value]).rename_columns(["unique_id", "ds", "y"])
        return TextTable(rows, table.lines, table.source, table.bad)
    wide = table.rows.replace_schema_metadata().to_pandas().assign(_line=table.lines)
    long = wide.melt(id_vars=[time, "_line"], var_name="unique_id", value_name="y").dropna(subset="y")
    columns = [pa.array(long[column].astype(str), pa.string()) for column in ("unique_id", time, "y")]
    lines = long["_line"].to_numpy()
    bad = {**table.bad, **dict.fromkeys(np.setdiff1d(table.lines, lines).tolist(), "without any value")}
    return TextTable(_table(columns, None, "").rows, lines, table.source, bad)


def _first(table: TextTable, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in table.names), None)
