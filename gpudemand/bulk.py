"""Forecasts of more series than fit into memory, chunk by chunk, in a folder from which a stopped run goes on."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from gpudemand import __version__, _parallel
from gpudemand._array import STRING, IntArray
from gpudemand._files import file_sha256, read_manifest, replace_file, replace_folder
from gpudemand._validation import LOGGER, InputError, check_choice, check_levels, check_number, shorten
from gpudemand.forecast.combination import CombinedForecaster
from gpudemand.forecast.forecaster import Forecaster
from gpudemand.jobs.schema import microseconds
from gpudemand.segments.features import ExtrapolationWarning
from gpudemand.segments.segmenter import TopologicalSegmenter
from gpudemand.store import is_store, locked_folder, read_store
from gpudemand.usage.bins import BinnedGpuTime, parse_freq
from gpudemand.usage.query import JobLogQuery, open_log
from gpudemand.usage.series import calendar, check_named, key_columns, period, recorded_period, to_long, whole_bins

_MANIFEST, _PART_FORMAT = "parts.json", 1
#: Most parts, each of which is a file open for writing with so many rows in memory.
_MOST_PARTS, _BUFFERED = 256, 1 << 14
_SCHEMA = pa.schema(
    [("part", pa.int32()), ("code", pa.int64()), ("begin", pa.int64()), ("stop", pa.int64()), ("gpus", pa.float64())]
)


@dataclass(frozen=True)
class Parts:
    """Intervals of GPUs held or wanted by series, in files of `group` series; `edges`: of bins, in microseconds."""

    folder: Path
    n_series: int
    group: int
    edges: tuple[int, ...]
    zone: str
    value: str

    def codes(self, chunk: int) -> IntArray:
        """Numbers of the series of a chunk."""
        return np.arange(chunk * self.group, min((chunk + 1) * self.group, self.n_series))

    def usage(self, codes: IntArray) -> pd.DataFrame:
        """Usage of some series, whose numbers ascend, as `to_wide` gives it: shape (n_codes, n_bins)."""
        field, [first, *_, last] = pads.field, np.repeat(codes, 2) // _series_of_a_part(self.n_series, self.group)
        parts = pads.dataset(self.folder / "intervals", _SCHEMA, partitioning=_partitioning())
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
        with pq.ParquetFile(self.folder / "names.parquet") as file:
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
        start, until = recorded_period(log, query, None, until)
        begin, stop, edges = period(bounds, freq, zone, start=start, until=until)
        bins = whole_bins(edges, begin, stop, known=start is not None)
        edges = edges[bins.start : bins.stop + 1]
        names = pa.table({"unique_id": pa.array(query.keys(), pa.string())})
        about = {"n_series": len(names), "group": group, "edges": edges.as_unit("us").asi8.tolist()}
        about |= {"zone": str(zone), "value": value}
        with replace_folder(folder, _MANIFEST, {"format": _PART_FORMAT, "about": about}) as new:
            pq.write_table(names, new / "names.parquet", row_group_size=group)
            covered = (microseconds(begin), microseconds(stop))
            _write_intervals(new / "intervals", query, value, covered, _series_of_a_part(len(names), group))
    return open_parts(folder)


def _write_intervals(folder: Path, query: JobLogQuery, value: str, covered: tuple[int, int], width: int) -> None:
    """Write what intervals have in the period that is covered, in parts of `width` series each."""
    until = covered[1]

    def batches() -> Iterator[pa.RecordBatch]:
        for code, begin, stop, gpus in query.wanted(until) if value == "wanted" else query.held(until):
            columns = (code // width, code, np.clip(begin, *covered), np.clip(stop, *covered), gpus)
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


def _series_of_a_part(n_series: int, group: int) -> int:
    n_chunks = -(-n_series // group)
    return -(-n_chunks // _MOST_PARTS) * group


def _partitioning() -> pads.Partitioning:
    return pads.partitioning(pa.schema([_SCHEMA.field("part")]))


def open_parts(folder: Path) -> Parts:
    """Open what `split_log` has written, after a look at its checksums."""
    about = read_manifest(folder, _MANIFEST, _PART_FORMAT)["about"]
    return Parts(folder, **{**about, "edges": tuple(about["edges"])})


RUN = "run.json"
RESULTS = "forecast"
_RUN_FORMAT = 1


class Run:
    """A run in a folder; `state` is the content of ``run.json``, replaced whenever anything is done."""

    def __init__(self, folder: Path, state: dict[str, Any]) -> None:
        self.folder = folder
        self.state = state

    def save(self) -> None:
        """Replace ``run.json``."""
        with replace_file(self.folder / RUN) as new:
            new.write_text(json.dumps(self.state, indent=1) + "\n", encoding="utf-8")

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Note the seconds and the peak memory of what the block does."""
        began = time.perf_counter()
        yield
        self.state["stages"][name] = {"seconds": round(time.perf_counter() - began, 3), "peak_gib": peak_gib()}
        self.save()

    def file(self, chunk: int) -> Path:
        """Forecast of a chunk."""
        return self.folder / RESULTS / f"{chunk:05d}.parquet"

    def missing(self) -> list[int]:
        """Chunks that are not whole: not noted as such, or no longer the file that was noted."""
        count = -(-self.state["series"] // self.state["made_from"]["series_per_chunk"])
        files = [self.file(chunk) for chunk in range(count)]
        noted = [self.state["chunks"].get(file.name, {}).get("sha256") for file in files]
        return [
            chunk
            for chunk, (file, checksum) in enumerate(zip(files, noted, strict=True))
            if checksum is None or not file.is_file() or file_sha256(file) != checksum
        ]


@contextmanager
def open_run(folder: Path, made_from: Mapping[str, Any]) -> Iterator[Run]:
    """Begin a run in a new or empty folder, or go on with one of the same input and settings; others wait."""
    with locked_folder(folder, RUN, RUN):
        for left in (*folder.glob(".gpudemand-*"), *(folder / RESULTS).glob(".gpudemand-*")):
            shutil.rmtree(left, ignore_errors=True)
        run = Run(folder, _read(folder, made_from))
        run.save()
        (folder / RESULTS).mkdir(exist_ok=True)
        yield run


def _read(folder: Path, made_from: Mapping[str, Any]) -> dict[str, Any]:
    if not (folder / RUN).is_file():
        return {"format": _RUN_FORMAT, "made_from": dict(made_from), "series": None, "stages": {}, "chunks": {}}
    try:
        state: dict[str, Any] = json.loads((folder / RUN).read_bytes())
        found, version = dict(state["made_from"]), state["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{RUN} in {str(folder)!r} is damaged; delete the folder, or name another one.") from error
    for name, wanted in {"format": _RUN_FORMAT, **made_from}.items():
        if (was := {**found, "format": version}.get(name)) != wanted:
            raise InputError(
                f"{str(folder)!r} holds a run with {name}={shorten(was)!r} instead of {shorten(wanted)!r}; name "
                "another folder, or delete that one."
            )
    return state


def peak_gib() -> float | None:
    """Largest memory that this process has had, in GiB; None where the system does not say."""
    if sys.platform == "win32":
        return None
    import resource

    unit = 2**30 if sys.platform == "darwin" else 2**20
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 3)


_PARTS = "parts"


def bulk_forecast(
    log: str | PathLike[str],
    into: str | PathLike[str],
    *,
    by: str = "user",
    freq: str = "D",
    value: str = "gpus",
    horizon: int = 28,
    level: Sequence[float] = (80, 95),
    until: str | None = None,
    tz: str | None = None,
    forecaster: Forecaster | None = None,
    n_segments: int | str = "auto",
    sample_size: int = 2000,
    series_per_chunk: int = 2000,
    n_jobs: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Segment and forecast every user of a log, of which neither jobs nor users need fit into memory.

    The log is split by series in one pass, the segmenter is fitted to a random sample of them, and then each chunk of
    series is summed up, assigned to segments, forecast and written. A run that was stopped goes on where it was when it
    is called again, and its files have the same bytes as those of a run that was not.

    Parameters
    ----------
    log : path-like
        A store, or a Parquet or CSV file of a job table. It counts as far as it is complete, as in `usage_series`.
    into : path-like
        Folder of the run, which every worker must see. See Notes.
    by, freq, until, tz
        As for `usage_series`. Bins that the log covers only in part are left out.
    value : {"gpus", "gpu_hours", "wanted"}, default="gpus"
    horizon : int, default=28
        Bins to forecast.
    level : sequence of float, default=(80, 95)
        Of the prediction intervals, in percent.
    forecaster : Forecaster, optional
        By default `CombinedForecaster`. What it learns from all series, it learns from those of a chunk, over which
        intervals pool their errors too.
    n_segments : int or "auto", default="auto"
    sample_size : int, default=2000
        Most series that the segments are fitted to.
    series_per_chunk : int, default=2000
        Neighbours by name. A process takes about 1.4 GiB for so many over a year of days.
    n_jobs : int, optional
        Chunks at once, in processes of this machine. The workers of an active Dask client are used instead.
    progress : callable, optional
        Told the name of each stage as it begins; by default the logger ``gpudemand``.

    Returns
    -------
    Path
        The folder ``forecast`` in `into`, with a Parquet file a chunk: ``unique_id``, ``ds``, the forecast, its
        intervals, and ``segment``. ``pandas.read_parquet`` reads the file of one or the folder as a whole.

    Raises
    ------
    InputError
        If the log or an argument cannot be used; if the folder holds a run on another log or with other settings, or
        anything else; and at the end if chunks failed, with the first reason. The others are kept.

    Notes
    -----
    ``run.json`` in the folder holds ``made_from`` (settings, and the SHA-256 of the log), the number of ``series``,
    seconds and peak GiB of the ``stages``, and of each of the ``chunks`` the number of series, seconds by stage, peak
    GiB of its process and SHA-256, or the error.

    Examples
    --------
    >>> import tempfile
    >>> import gpudemand as gd
    >>> folder = Path(tempfile.mkdtemp())
    >>> gd.write_jobs(gd.make_cluster(6, 60, random_state=0)[0], folder / "jobs.parquet")
    >>> files = bulk_forecast(folder / "jobs.parquet", folder / "run", horizon=7, forecaster=gd.SeasonalNaive())
    >>> table = pd.read_parquet(files)
    >>> table["unique_id"].nunique(), len(table)
    (6, 42)
    """
    model, source = CombinedForecaster() if forecaster is None else forecaster, Path(log)
    settings = {
        "by": by,
        "freq": parse_freq(freq).freqstr,
        "value": check_choice("value", value, ("gpus", "gpu_hours", "wanted")),
        "until": until,
        "tz": tz,
        "horizon": int(check_number("horizon", horizon, 1, integer=True)),
        "level": check_levels(level),
        "forecaster": " ".join(repr(model).split()),
        "n_segments": n_segments,
        "sample_size": int(check_number("sample_size", sample_size, 1, integer=True)),
        "series_per_chunk": int(check_number("series_per_chunk", series_per_chunk, 1, integer=True)),
    }
    if n_jobs == 0:
        raise InputError("n_jobs=0 (--processes 0) runs nothing; give the number of processes.")
    begin = progress or LOGGER.info
    begin("Reading the log")
    with open_run(Path(into), {"gpudemand": __version__, "log_sha256": _checksum(source), **settings}) as run:
        if run.state["series"] is None or run.missing():
            _go_on(run, source, model, n_jobs, begin)
        shutil.rmtree(run.folder / _PARTS, ignore_errors=True)
    return Path(into) / RESULTS


def _checksum(log: Path) -> str:
    if is_store(log):
        return hashlib.sha256(json.dumps(read_store(log).files, sort_keys=True).encode()).hexdigest()
    if not log.is_file():
        raise InputError(f"there is no log at {str(log)!r}.")
    return file_sha256(log)


def _go_on(run: Run, log: Path, model: Forecaster, n_jobs: int | None, begin: Callable[[str], None]) -> None:
    """Do what is missing."""
    begin("Splitting the log")
    parts, given = _parts(run, log), run.state["made_from"]
    run.state["series"] = parts.n_series
    begin("Fitting segments")
    with run.stage("segmenter"):
        segmenter = _segmenter(parts, given["n_segments"], given["sample_size"])
    missing, count = run.missing(), -(-parts.n_series // parts.group)
    begin(f"Forecasting {parts.n_series:,} series, {len(missing):,} of {count:,} chunks")
    write, files = partial(_forecast_chunk, parts, segmenter, model, given), [run.file(chunk) for chunk in missing]
    entries: dict[str, dict[str, Any]] = {}
    with run.stage("chunks"):
        try:
            for file, entry in zip(files, _parallel.stream(write, files, n_jobs), strict=True):
                entries[file.name] = run.state["chunks"][file.name] = entry
                run.save()
        except BrokenExecutor as error:
            raise InputError("a process ended, probably for want of memory; run again with fewer at once.") from error
    errors = {name: entry["error"] for name, entry in entries.items() if "error" in entry}
    if errors:
        name, reason = next(iter(errors.items()))
        raise InputError(
            f"{len(errors)} of {len(entries)} chunks failed, the first {name}: {reason} The others are kept: mend the "
            "cause and run the same command again."
        )


def _parts(run: Run, log: Path) -> Parts:
    """Parts of the log, made unless they are there."""
    folder, given = run.folder / _PARTS, run.state["made_from"]
    try:
        return open_parts(folder)
    except InputError:
        shutil.rmtree(folder, ignore_errors=True)
    names = ("by", "freq", "value", "until", "tz")
    with run.stage("split"):
        return split_log(log, folder, **{name: given[name] for name in names}, group=given["series_per_chunk"])


def _segmenter(parts: Parts, n_segments: int | str, sample_size: int) -> TopologicalSegmenter:
    size = min(sample_size, parts.n_series)
    codes = np.sort(np.random.default_rng(0).choice(parts.n_series, size, replace=False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        return TopologicalSegmenter(n_segments, random_state=0).fit(parts.usage(codes))


def _forecast_chunk(*task: Any) -> dict[str, Any]:
    """Write the forecast of a chunk; what it took, or why it failed."""
    try:
        return _written_chunk(*task)
    except Exception as error:  # outermost handler: other chunks go on
        return {"error": f"{type(error).__name__}: {error}"}


def _written_chunk(
    parts: Parts, segmenter: TopologicalSegmenter, model: Forecaster, given: Mapping[str, Any], file: Path
) -> dict[str, Any]:
    clock = [time.perf_counter()]
    wide = parts.usage(parts.codes(int(file.stem)))
    clock.append(time.perf_counter())
    segment = pd.Series(segmenter.predict(wide), index=wide.index)
    clock.append(time.perf_counter())
    table = model.fit(to_long(wide)).predict(given["horizon"], level=given["level"])
    table["segment"] = table["unique_id"].map(segment).astype("int32")
    clock.append(time.perf_counter())
    with replace_file(file) as new:
        table.astype({"unique_id": STRING}).to_parquet(new, index=False)
    clock.append(time.perf_counter())
    seconds = dict(zip(("usage", "segments", "forecast", "write"), np.round(np.diff(clock), 3).tolist(), strict=True))
    return {"series": len(wide), "seconds": seconds, "peak_gib": peak_gib(), "sha256": file_sha256(file)}
