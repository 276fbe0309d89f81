"""A job log split into parts by series, each of which is read alone: one pass over the log, whatever their number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from gpudemand._atomic import replace_folder
from gpudemand._manifest import read_manifest
from gpudemand._typing import STRING, IntArray
from gpudemand._validation import InputError
from gpudemand.jobs.schema import microseconds
from gpudemand.usage.bins import BinnedGpuTime
from gpudemand.usage.job_log_query import JobLogQuery, open_log
from gpudemand.usage.series import calendar, check_named, key_columns, period

_MANIFEST, _FORMAT = "parts.json", 1
_NAMES, _INTERVALS = "names.parquet", "intervals"
#: Most parts, each of which is a file open for writing with so many rows in memory.
_MOST_PARTS, _BUFFERED = 256, 1 << 14
_SCHEMA = pa.schema(
    [("part", pa.int32()), ("code", pa.int64()), ("begin", pa.int64()), ("stop", pa.int64()), ("gpus", pa.float64())]
)


@dataclass(frozen=True)
class Parts:
    """Intervals of GPUs held or wanted by series, in files of some series each.

    Parameters
    ----------
    folder : Path
    n_series : int
    group : int
        Series of a chunk.
    edges : tuple of int
        Of the bins, in microseconds since 1970.
    zone : str
        Of the calendar.
    value : {"gpus", "gpu_hours", "wanted"}
    """

    folder: Path
    n_series: int
    group: int
    edges: tuple[int, ...]
    zone: str
    value: str

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return -(-self.n_series // self.group)

    def codes(self, chunk: int) -> IntArray:
        """Numbers of the series of a chunk."""
        return np.arange(chunk * self.group, min((chunk + 1) * self.group, self.n_series))

    def usage(self, codes: IntArray) -> pd.DataFrame:
        """Usage of some series, whose numbers ascend, as `to_wide` gives it: shape (n_codes, n_bins)."""
        width = _chunks_of_a_part(self.n_chunks) * self.group
        field, [first, *_, last] = pads.field, np.repeat(codes, 2) // width
        parts = pads.dataset(self.folder / _INTERVALS, _SCHEMA, partitioning=_partitioning())
        chosen = (field("part") >= first) & (field("part") <= last) & field("code").isin(pa.array(codes))
        rows = parts.to_table(filter=chosen)
        code, begin, stop, gpus = (np.asarray(rows[name]) for name in _SCHEMA.names[1:])
        order = np.lexsort((gpus, stop, begin, code))  # sums of numbers depend on their order, files have none
        held = BinnedGpuTime(np.array(self.edges), len(codes))
        held.add(np.searchsorted(codes, code[order]), begin[order], stop[order], gpus[order])
        hours = held.gpu_hours()
        y = hours if self.value == "gpu_hours" else hours / (np.diff(self.edges) / 3.6e9)
        times = pd.to_datetime(list(self.edges[:-1]), unit="us", utc=True).as_unit("ns").tz_convert(self.zone)
        return pd.DataFrame(y, index=self._names(codes), columns=times.rename("ds"))

    def _names(self, codes: IntArray) -> pd.Index:
        groups, place = np.unique(codes // self.group, return_inverse=True)
        with pq.ParquetFile(self.folder / _NAMES) as file:
            names = file.read_row_groups(list(groups))["unique_id"]
        chosen = names.take(pa.array(place * self.group + codes % self.group))
        return pd.Index(chosen.to_pandas().astype(STRING), name="unique_id")


def split_log(
    log: Path, folder: Path, by: str, freq: str, value: str, *, until: object, tz: object, group: int
) -> Parts:
    """Split a log; the parameters are those of `usage_series`, and `group` the number of series of a chunk."""
    columns, zone = key_columns(by), calendar(tz)
    with open_log(log, columns, pending=False, tz=tz) as query:
        bounds = query.bounds()
        check_named(columns, query)
        _, stop, edges = period(bounds, freq, zone, until=until)
        edges = edges[: -1 if stop < edges[-1] else None]
        if len(edges) < 2:
            raise InputError("the log covers less than one whole bin; use a finer freq.")
        names = query.keys()
        about = {
            "n_series": len(names),
            "group": group,
            "edges": edges.as_unit("us").asi8.tolist(),
            "zone": str(zone),
            "value": value,
        }
        with replace_folder(folder, _MANIFEST, {"format": _FORMAT, "about": about}) as new:
            pq.write_table(pa.table({"unique_id": pa.array(names, pa.string())}), new / _NAMES, row_group_size=group)
            _write_intervals(new / _INTERVALS, query, value, microseconds(stop), group, len(names))
    return open_parts(folder)


def _write_intervals(folder: Path, query: JobLogQuery, value: str, until: int, group: int, n_series: int) -> None:
    width = _chunks_of_a_part(-(-n_series // group)) * group

    def batches() -> Iterator[pa.RecordBatch]:
        """Rows as they come."""
        for code, begin, stop, gpus in query.wanted(until) if value == "wanted" else query.held(until):
            columns = (code // width, code, np.minimum(begin, until), np.minimum(stop, until), gpus)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
            yield pa.record_batch(arrays, _SCHEMA)

    folder.mkdir()  # also where nobody ever held a GPU
    pads.write_dataset(
        batches(),
        folder,
        schema=_SCHEMA,
        format="parquet",
        partitioning=_partitioning(),
        max_partitions=_MOST_PARTS,
        min_rows_per_group=_BUFFERED,
    )


def _chunks_of_a_part(n_chunks: int) -> int:
    return -(-n_chunks // _MOST_PARTS)


def _partitioning() -> pads.Partitioning:
    return pads.partitioning(pa.schema([_SCHEMA.field("part")]))


def open_parts(folder: Path) -> Parts:
    """Open what `split_log` has written, after a look at its checksums.

    Raises
    ------
    InputError
        If it is missing or damaged.
    """
    about = read_manifest(folder, _MANIFEST, _FORMAT)["about"]
    return Parts(folder, **{**about, "edges": tuple(about["edges"])})
