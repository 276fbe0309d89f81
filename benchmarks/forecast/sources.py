"""Every public series of the data folder as panels of several frequencies, by the trace that they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.io import loadmat

from benchmarks.forecast import load, users
from gpudemand import usage_series
from gpudemand.forecast import Panel
from gpudemand.forecast.panel import season_length
from gpudemand.jobs import read_jobs
from gpudemand.jobs.table import as_jobs

#: Most series of a panel: the largest of its first half, so that the choice knows nothing of what is scored.
_LARGEST = 40
#: Most values times steps, which bounds the run time only.
_CELLS = 4e7
_HOURS, _DAYS, _WEEKS, _MONTHS = (24, 168, 672), (1, 7, 28), (1, 4, 13), (1, 3, 12)
#: Most origins of a panel, and most that are scored.
_MOST_ORIGINS, MOST_SCORED = 150, 40
_HORIZONS = {"h": _HOURS, "D": _DAYS, "7D": _WEEKS, "MS": _MONTHS}


class Case(NamedTuple):
    """A panel, the horizons that fit its length, and its season where that is not the calendar's."""

    name: str
    panel: Panel
    horizons: tuple[int, ...]
    season: int | None = None


def scored_origins(case: Case, h: int, most: int = MOST_SCORED) -> np.ndarray:  # type: ignore[type-arg]
    """Bins known at the origins that are scored: after a third of the panel, evenly spaced."""
    grid = origin_grid(case, h)
    late = late_origins(case, grid)
    return grid[late[np.unique(np.linspace(0, late.size - 1, min(most, late.size)).round().astype(int))]]


def late_origins(case: Case, grid: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Places of the origins after a third of the panel."""
    return np.flatnonzero(3 * grid >= len(case.panel.times))


def origin_grid(case: Case, h: int) -> np.ndarray:  # type: ignore[type-arg]
    """Origins a season apart below a day, else a bin, from a sixth of the panel on; multiples of that for long ones."""
    n_times, season = len(case.panel.times), case.season or season_length(case.panel.freq)
    step = season if case.panel.freq.freqstr == "h" else 1
    first, last = max(n_times // 6, min(2 * season, n_times // 4), 3), n_times - h
    step *= 1 + (last - first) // step // _MOST_ORIGINS
    return np.arange(last, first - 1, -step)[::-1]


def _jobs(submit: pd.Series, seconds: pd.Series, gpus: pd.Series, **names: pd.Series) -> pd.DataFrame:
    end = submit + pd.to_timedelta(seconds, unit="s")
    return as_jobs(pd.DataFrame({"submit": submit, "end": end, "gpus": gpus, **names}), kind="public trace")


def _csv(data: Path, *path: str) -> pd.DataFrame:
    return pd.read_csv(data.joinpath(*path))


def _philly_jobs(data: Path) -> pd.DataFrame:
    log = _csv(data, "traces", "philly-jobs-pollux", "philly.csv.gz")
    submit = pd.to_datetime(log["timestamp"], utc=True)
    return _jobs(submit, log["duration"], log["num_gpus"], group=log["cluster"].astype(str))


def _extract(data: Path, file: str, start: float) -> pd.DataFrame:
    log = _csv(data, "traces", "dirlab-gen-parallel", file)
    submit = pd.to_datetime(start + log["interval"].cumsum(), unit="s", utc=True)
    return _jobs(submit, log["run_time"], log["gpu_num"], user=log["user"].astype(str))


def _read(data: Path, folder: str, file: str, **options: Any) -> pd.DataFrame:
    return read_jobs(data / "traces" / folder / file, **options)


_SIMULATOR = {"format": "simulator", "origin": load.VENUS_START}
_venus_jobs = partial(_read, folder="helios-venus-gpu-jobs", file="helios_trace.csv.gz", **_SIMULATOR)
pai_jobs = partial(_read, folder="alibaba-pai-v2020-sample", file="alibaba_trace_sub.csv.gz", **_SIMULATOR)
_kth_jobs = partial(_read, folder="swf-kth-sp2", file="KTH-SP2-1996-2.swf.gz", format="swf")
_atlas_jobs = partial(_read, folder="swf-llnl-atlas", file="LLNL-Atlas-2006-2.1-cln.swf.gz", format="swf")


#: Logs with users, by the name of their trace.
USER_LOGS: Mapping[str, Callable[[Path], pd.DataFrame]] = {
    "KTH-SP2": _kth_jobs,
    "Atlas": _atlas_jobs,
}


def held(jobs: pd.DataFrame, by: str | None, freq: str, warm_up: str = "14D") -> Panel:
    """GPUs held, from when the jobs that were running at the start of a log have left it."""
    times = jobs["submit"]
    start, until = (times.min() + pd.Timedelta(warm_up)).ceil("D"), times.max().floor("D")
    return _largest(Panel.from_long(usage_series(jobs, by=by, freq=freq, value="gpus", start=start, until=until)))


def _largest(panel: Panel) -> Panel:
    half = np.nansum(panel.values[:, : panel.values.shape[1] // 2], axis=1)
    rows = np.sort(np.argsort(-half, kind="stable")[: min(_LARGEST, int((half > 0).sum()))])
    return Panel(panel.ids[rows], panel.times, panel.values[rows], panel.freq, panel.attrs)


def _of_log(jobs: Callable[[Path], pd.DataFrame], by: str | None, data: Path) -> Iterator[Case]:
    log = jobs(data)
    for freq, group in (("h", None), ("D", None), *((("h", by), ("D", by)) if by else ())):
        panel = held(log, group, freq, "14D" if by != "user" or len(log) > 20_000 else "2D")
        yield _case(f"{group or 'total'} {freq}", panel, freq)


def _case(name: str, panel: Panel, freq: str, season: int | None = None, horizons: tuple[int, ...] = ()) -> Case:
    steps = horizons or _HORIZONS[freq]
    fitting = tuple(h for h in steps if 5 * h <= len(panel.times) and h * panel.values.size <= _CELLS)
    return Case(name, panel, fitting, season)


def _daily(panel: Panel) -> Panel:
    wide = pd.DataFrame(panel.values.T, panel.times, panel.ids).resample("D").mean()
    return Panel(panel.ids, wide.index, wide.to_numpy().T.copy(), wide.index.freq, panel.attrs)


def _spot(data: Path) -> Iterator[Case]:
    for name, panel in zip(("total", "types"), load.spot(data), strict=True):
        yield _case(f"{name} h", panel, "h")
        yield _case(f"{name} D", _daily(panel), "D")


def _venus_submitted(data: Path) -> Iterator[Case]:
    """GPUs submitted per hour, the throughput that Lucid forecasts."""
    log = _venus_jobs(data)
    submitted = log.set_index("submit")["gpus"].loc["2020-04-01":].resample("h").sum()[:-1]
    yield _case("submitted h", load.panel(submitted.to_frame("total"), submitted.index[0], "h"), "h")


def _dlrm(data: Path) -> Iterator[Case]:
    log = _csv(data, "traces", "alibaba-dlrm-v2025", "disaggregated_DLRM_trace.csv.gz")
    log = log[log["gpu_request"] > 0]
    last = log[["creation_time", "deletion_time"]].max().max()
    start = load.SPOT_START.tz_localize("UTC")
    first = start + pd.to_timedelta(log["creation_time"].fillna(0.0), unit="s")
    seconds = log["deletion_time"].fillna(last) - log["creation_time"].fillna(0.0)
    jobs = _jobs(first, seconds, log["gpu_request"], group=log["app_name"].astype(str))
    until = (start + pd.to_timedelta(last, unit="s")).floor("D")
    for name, by in (("total", None), ("services", "group")):
        usage = usage_series(jobs, by=by, freq="h", value="gpus", start=start, until=until)
        yield _case(f"{name} h", _largest(Panel.from_long(usage)), "h", horizons=(24, 72))


def _genai(data: Path) -> Iterator[Case]:
    log = _csv(data, "traces", "alibaba-genai-v2026", "lora_request_trace.csv.gz")
    hour = pd.to_datetime(log["gmt_create"]).dt.floor("h")
    wide = log.pivot_table(index=hour, columns="groupId", values="exec_time_seconds", aggfunc="sum", fill_value=0.0)
    wide = wide.reindex(pd.date_range(hour.min().ceil("D"), hour.max().floor("D"), freq="h")[:-1], fill_value=0.0)
    yield _case("total h", load.panel(wide.sum(axis=1).to_frame("total"), wide.index[0], "h"), "h", horizons=(24, 72))
    yield _case("users h", _largest(load.panel(wide, wide.index[0], "h")), "h", horizons=(24,))
    yield _case("users D", _largest(users.gentd(data)), "D", horizons=(1, 3))


def _nodes(data: Path) -> Iterator[Case]:
    panel = load.philly_nodes(data)
    wide = pd.DataFrame(panel.values.T, panel.times, panel.ids).resample("h").max()
    yield _case("nodes h", load.panel(wide, wide.index[0], "h"), "h", horizons=(24, 168))


def _m4(data: Path) -> Iterator[Case]:
    panel = load.m4_hourly(data)[0]
    rows = np.random.default_rng(0).permutation(len(panel.ids))[: 2 * _LARGEST]
    yield _case("hourly", Panel(panel.ids[rows], panel.times, panel.values[rows], panel.freq, {}), "h", None, (24, 48))
    weekly = _csv(data, "series", "m4-hourly-weekly", "Weekly-train.csv").iloc[:, 1:].to_numpy(dtype=float)
    known = [row[~np.isnan(row)][-520:] for row in weekly[np.random.default_rng(0).permutation(len(weekly))[:80]]]
    yield _case("weekly", load.ragged([f"w{place}" for place in range(len(known))], known, "7D"), "7D")


def _hangzhou(data: Path) -> Iterator[Case]:
    with (data / "series" / "transdim-traffic" / "hangzhou_tensor.mat").open("rb") as file:
        tensor = loadmat(file)["tensor"].astype(float)
    hourly = tensor.reshape(*tensor.shape[:2], -1, 6).sum(axis=3).reshape(len(tensor), -1)
    wide = pd.DataFrame(hourly.T, columns=[f"s{place:02d}" for place in range(len(hourly))])
    yield _case("stations", load.panel(wide, load.SPOT_START, "h"), "h", 18, (6, 18))


def _monthly(data: Path, file: str) -> Iterator[Case]:
    frame = _csv(data, "series", "hospital-carparts", file).set_index("Unnamed: 0")
    rows = np.random.default_rng(0).permutation(len(frame))[:200]
    panel = load.panel(frame.iloc[rows].T, pd.Timestamp("2000-01-01"), "MS")
    yield _case("monthly", panel, "MS")


def _cdnow(data: Path) -> Iterator[Case]:
    panel = load.cdnow(data)
    rows = np.random.default_rng(0).permutation(len(panel.ids))[:1000]
    some = Panel(panel.ids[rows], panel.times, panel.values[rows], panel.freq, panel.attrs)
    yield _case("customers", some, "7D", None, (1, 4, 10))
    total = Panel(pd.Index(["total"], name="unique_id"), panel.times, panel.values.sum(axis=0)[None], panel.freq, {})
    yield _case("total", total, "7D", None, (1, 4, 10))


#: Sources, the unit of the split into halves: panels of one source share their time and their events.
SOURCES: Mapping[str, Callable[[Path], Iterator[Case]]] = {
    "spot": _spot,
    "Venus": partial(_of_log, _venus_jobs, None),
    "Venus submitted": _venus_submitted,
    "Venus users": partial(
        _of_log, partial(_extract, file="helios_data_training.csv.gz", start=users.VENUS_START), "user"
    ),
    "Philly": partial(_of_log, _philly_jobs, "group"),
    "Philly users": partial(
        _of_log, partial(_extract, file="philly_data_training.csv.gz", start=users.PHILLY_START), "user"
    ),
    "Philly nodes": _nodes,
    "DLRM": _dlrm,
    "GenAI": _genai,
    "PAI": partial(_of_log, pai_jobs, None),
    "KTH-SP2": partial(_of_log, _kth_jobs, "user"),
    "Atlas": partial(_of_log, _atlas_jobs, "user"),
    "M4": _m4,
    "Hangzhou": _hangzhou,
    "carparts": partial(_monthly, file="carparts.csv"),
    "hospital": partial(_monthly, file="hospital.csv"),
    "CDNOW": _cdnow,
}

#: Job logs by name.
LOGS: Mapping[str, Callable[[Path], pd.DataFrame]] = {
    "KTH-SP2": _kth_jobs,
    "LLNL Atlas": _atlas_jobs,
    "Venus": _venus_jobs,
    "Philly": _philly_jobs,
    "DIR-LAB Venus": partial(_extract, file="helios_data_training.csv.gz", start=users.VENUS_START),
    "DIR-LAB Philly": partial(_extract, file="philly_data_training.csv.gz", start=users.PHILLY_START),
}
