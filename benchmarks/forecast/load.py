"""Series of the data folder as panels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from gpudemand import usage_series
from gpudemand.forecast import Panel
from gpudemand.jobs.table import as_jobs

#: The spot trace has no dates; its hour 0 is set to this time.
SPOT_START = pd.Timestamp("2024-01-01")
VENUS_START = pd.Timestamp("2020-03-18 04:01:39", tz="UTC")
CDNOW_START = pd.Timestamp("1997-01-01")


def available(makers: Mapping[str, Callable[[Path], Panel]], data: Path) -> Iterator[tuple[str, Panel]]:
    """Panels whose data are found; raises FileNotFoundError where there are none."""
    missing = []
    for name, make in makers.items():
        try:
            made = make(data)
        except FileNotFoundError as problem:
            missing.append(problem)
        else:
            yield name, made
    if len(missing) == len(makers):
        raise missing[0]


def spot(data: Path) -> tuple[Panel, Panel]:
    """Requested GPUs in use, hourly: the total, and the six largest GPU models."""
    folder = data / "traces" / "alibaba-spot-v2026-derived"
    total = pd.read_csv(folder / "hourly_concurrency.csv", index_col="hour")[["gpus_active_requested"]]
    models = pd.read_csv(folder / "hourly_concurrency_top_models.csv", index_col="hour")
    return panel(total.set_axis(["total"], axis=1), SPOT_START, "h"), panel(models, SPOT_START, "h")


def venus(data: Path) -> Panel:
    """GPUs held per hour on Venus, every job from its submission for its run time."""
    log = pd.read_csv(data / "traces" / "helios-venus-gpu-jobs" / "helios_trace.csv.gz")
    submit = VENUS_START + pd.to_timedelta(log["arrival_s"], unit="s")
    end = submit + pd.to_timedelta(log["service_sec"], unit="s")
    jobs = as_jobs(pd.DataFrame({"submit": submit, "end": end, "gpus": log["gpu_count"]}), kind="public trace")
    until = (submit.max() + pd.Timedelta("1h")).floor("D")
    usage = usage_series(jobs, by=None, freq="h", value="gpus", start="2020-04-01", until=until)
    return Panel.from_long(usage)


def philly_nodes(data: Path) -> Panel:
    """Nodes with a busy GPU on Philly, 10-minute maximum; bins that were not recorded are missing, as are zeros."""
    log = pd.read_csv(data / "traces" / "philly-nodes-ces" / "philly_node_sequence.csv.gz", parse_dates=["time"])
    nodes = log.set_index("time")["active"].resample("10min").max()
    return panel(nodes.where(nodes > 0).to_frame("nodes"), nodes.index[0], "10min")


def cdnow(data: Path) -> Panel:
    """Spend per customer and week of seven days, every customer from the first week on."""
    return _cdnow(data, 7)


def cdnow_daily(data: Path) -> Panel:
    """Spend per customer and day."""
    return _cdnow(data, 1)


def _cdnow(data: Path, days: int) -> Panel:
    lines = pd.read_csv(data / "series" / "cdnow" / "cdnow.csv", parse_dates=["date"])
    lines["bin"] = (lines["date"] - CDNOW_START).dt.days // days
    whole = lines["bin"].max() + 1
    wide = lines.pivot_table(index="bin", columns="customer_id", values="price", aggfunc="sum", fill_value=0.0)
    wide.columns = [f"c{name:05d}" for name in wide.columns]
    return panel(wide.reindex(range(whole), fill_value=0.0), CDNOW_START, f"{days}D")


def m4_hourly(data: Path) -> tuple[Panel, int]:
    """The 414 hourly series of M4 with a common end, and the number of hours in the test."""
    folder = data / "series" / "m4-hourly-weekly"
    train, test = (pd.read_csv(folder / f"Hourly-{part}.csv", index_col=0) for part in ("train", "test"))
    rows = [
        np.r_[known[~np.isnan(known)], truth]
        for known, truth in zip(train.to_numpy(), test.loc[train.index].to_numpy(), strict=True)
    ]
    return ragged(list(train.index), rows, "h"), test.shape[1]


def ragged(names: list[str], rows: list[np.ndarray], freq: str) -> Panel:  # type: ignore[type-arg]
    """Series of different lengths with a common end."""
    longest = max(map(len, rows))
    values = np.vstack([np.r_[np.full(longest - len(row), np.nan), row] for row in rows]).T
    return panel(pd.DataFrame(values, columns=names), SPOT_START, freq)


def panel(wide: pd.DataFrame, start: pd.Timestamp, freq: str) -> Panel:
    """A panel from a frame of one column a series."""
    times = pd.date_range(start, periods=len(wide), freq=freq)
    ids = pd.Index(wide.columns.astype(str), name="unique_id")
    return Panel(ids, times, wide.to_numpy(dtype=float).T.copy(), times.freq, {"kind": "public trace"})
