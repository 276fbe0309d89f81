"""Forecasts of every series of a log larger than memory, chunk by chunk."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpudemand import __version__, _parallel
from gpudemand._atomic import replace_file
from gpudemand._manifest import file_sha256
from gpudemand._typing import STRING
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.bulk.parts import Parts, open_parts, split_log
from gpudemand.bulk.run import RESULTS, Run, open_run, peak_gib
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.intervals import check_levels
from gpudemand.forecast.combination.combined import CombinedForecaster
from gpudemand.segments.features.discriminants import ExtrapolationWarning
from gpudemand.segments.segmenter import TopologicalSegmenter
from gpudemand.store import is_store, read_store
from gpudemand.usage.bins import parse_freq
from gpudemand.usage.series import to_long

VALUES = ("gpus", "gpu_hours", "wanted")
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
        A store, or a Parquet or CSV file of a job table.
    into : path-like
        Folder of the run, which every worker must see. See Notes.
    by, freq, until, tz
        As for `usage_series`. A last bin that the log covers only in part is left out.
    value : {"gpus", "gpu_hours", "wanted"}, default="gpus"
    horizon : int, default=28
        Bins to forecast.
    level : sequence of float, default=(80, 95)
        Of the prediction intervals, in percent.
    forecaster : Forecaster, optional
        By default `CombinedForecaster`. What it learns from all series, it learns from those of a chunk.
    n_segments : int or "auto", default="auto"
    sample_size : int, default=2000
        Most series that the segments are fitted to.
    series_per_chunk : int, default=2000
        Neighbours by name. A process takes about 1.4 GiB for so many over a year of days.
    n_jobs : int, optional
        Chunks at once, in processes of this machine. The workers of an active Dask client are used instead.
    progress : callable, optional
        Told the name of each stage as it begins.

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
        "value": check_choice("value", value, VALUES),
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
    begin = progress or (lambda stage: None)
    begin("Reading the log")
    with open_run(Path(into), {"gpudemand": __version__, "log_sha256": _checksum(source), **settings}) as run:
        if _unfinished(run):
            _go_on(run, source, model, n_jobs, begin)
        shutil.rmtree(run.folder / _PARTS, ignore_errors=True)
    return Path(into) / RESULTS


def _checksum(log: Path) -> str:
    if is_store(log):
        return hashlib.sha256(json.dumps(read_store(log).files, sort_keys=True).encode()).hexdigest()
    if not log.is_file():
        raise InputError(f"there is no log at {str(log)!r}.")
    return file_sha256(log)


def _chunk_names(run: Run) -> list[str]:
    n_chunks = -(-run.state["series"] // run.state["made_from"]["series_per_chunk"])
    return [f"{number:05d}.parquet" for number in range(n_chunks)]


def _unfinished(run: Run) -> bool:
    return run.state["series"] is None or bool(run.missing(_chunk_names(run)))


def _go_on(run: Run, log: Path, model: Forecaster, n_jobs: int | None, begin: Callable[[str], None]) -> None:
    """Do what is missing."""
    begin("Splitting the log")
    parts, given = _parts(run, log), run.state["made_from"]
    run.state["series"] = parts.n_series
    begin("Fitting segments")
    with run.stage("segmenter"):
        segmenter = _segmenter(parts, given["n_segments"], given["sample_size"])
    names = _chunk_names(run)
    missing = run.missing(names)
    begin(f"Forecasting {parts.n_series:,} series, {len(missing):,} of {len(names):,} chunks")
    tasks = (
        _Task(parts, names.index(name), run.folder / RESULTS / name, segmenter, model, given["horizon"], given["level"])
        for name in missing
    )
    with run.stage("chunks"):
        try:
            for name, entry in zip(missing, _parallel.stream(_forecast_chunk, tasks, n_jobs), strict=True):
                run.note(name, entry)
        except BrokenExecutor as error:
            raise InputError("a process ended, probably for want of memory; run again with fewer at once.") from error
    _check_errors(run, missing)


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


def _check_errors(run: Run, chunks: list[str]) -> None:
    errors = {name: entry["error"] for name in chunks if "error" in (entry := run.state["chunks"][name])}
    if errors:
        name, error = next(iter(errors.items()))
        raise InputError(
            f"{len(errors)} of {len(chunks)} chunks failed, the first {name}: {error} The others are kept: mend the "
            "cause and run the same command again."
        )


@dataclass(frozen=True)
class _Task:
    parts: Parts
    number: int
    file: Path
    segmenter: TopologicalSegmenter
    model: Forecaster
    horizon: int
    level: Sequence[float]


def _forecast_chunk(task: _Task) -> dict[str, Any]:
    """Write the forecast of a chunk; what it took, or why it failed."""
    try:
        return _written_chunk(task)
    except Exception as error:  # outermost handler: other chunks go on
        return {"error": f"{type(error).__name__}: {error}"}


def _written_chunk(task: _Task) -> dict[str, Any]:
    clock = [time.perf_counter()]
    wide = task.parts.usage(task.parts.codes(task.number))
    clock.append(time.perf_counter())
    segment = pd.Series(task.segmenter.predict(wide), index=wide.index)
    clock.append(time.perf_counter())
    table = task.model.fit(to_long(wide)).predict(task.horizon, level=task.level)
    table["segment"] = table["unique_id"].map(segment).astype("int32")
    clock.append(time.perf_counter())
    with replace_file(task.file) as new:
        table.astype({"unique_id": STRING}).to_parquet(new, index=False)
    clock.append(time.perf_counter())
    seconds = dict(zip(("usage", "segments", "forecast", "write"), np.round(np.diff(clock), 3).tolist(), strict=True))
    return {"series": len(wide), "seconds": seconds, "peak_gib": peak_gib(), "sha256": file_sha256(task.file)}
