"""Users of public logs as panels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.forecast import load
from gpudemand import usage_series
from gpudemand.forecast import Panel
from gpudemand.jobs.table import as_jobs

#: Unix time of the first second of the extracts.
PHILLY_START, VENUS_START = 1502100181, 1590595106
_DAY = 86400


def gentd(data: Path) -> Panel:
    """GPU-seconds per user and day of a Stable Diffusion service."""
    log = pd.read_csv(data / "traces" / "alibaba-genai-v2026" / "lora_request_trace.csv.gz", parse_dates=["gmt_create"])
    log["day"] = log["gmt_create"].dt.floor("D")
    wide = log.pivot_table(index="day", columns="groupId", values="exec_time_seconds", aggfunc="sum", fill_value=0.0)
    days = pd.date_range(log["day"].min(), log["day"].max())
    return load.panel(wide.reindex(days, fill_value=0.0), days[0], "D")


def philly(data: Path) -> Panel:
    """GPUs held per user and hour on Philly, over the dense last weeks of the extract."""
    return _held(data, "philly_data_training.csv.gz", PHILLY_START)


def venus(data: Path) -> Panel:
    """GPUs held per user and hour on Venus, over the last weeks of the extract."""
    return _held(data, "helios_data_training.csv.gz", VENUS_START)


def _held(data: Path, file: str, clock: int) -> Panel:
    """GPUs held per user and hour over the last 16 days of an extract whose clock starts at `clock`."""
    log = pd.read_csv(data / "traces" / "dirlab-gen-parallel" / file)
    submit = pd.to_datetime(clock + log["interval"].cumsum(), unit="s", utc=True)
    end = submit + pd.to_timedelta(log["run_time"], unit="s")
    columns = {"submit": submit, "end": end, "gpus": log["gpu_num"], "user": log["user"].astype(str)}
    jobs = as_jobs(pd.DataFrame(columns)[log["gpu_num"] > 0], kind="public trace")
    until = submit.max().floor("D")
    start = until - pd.Timedelta("16D")
    return Panel.from_long(usage_series(jobs, by="user", freq="h", value="gpus", start=start, until=until))


def dlrm(data: Path) -> Panel:
    """GPUs per recommendation service and day, from when its instances were created and deleted."""
    folder = data / "traces" / "alibaba-dlrm-v2025"
    log = pd.read_csv(folder / "disaggregated_DLRM_trace.csv.gz")
    log = log[log["gpu_request"] > 0]
    n_days = int(np.ceil(log[["creation_time", "deletion_time"]].max().max() / _DAY))
    first = log["creation_time"].fillna(0.0).to_numpy()[:, None] / _DAY
    last = log["deletion_time"].fillna(n_days * _DAY).to_numpy()[:, None] / _DAY
    day = np.arange(n_days)
    held = np.clip(np.minimum(last, day + 1) - np.maximum(first, day), 0, None) * log[["gpu_request"]].to_numpy()
    wide = pd.DataFrame(held).groupby(log["app_name"].to_numpy()).sum().T
    return load.panel(wide, load.SPOT_START, "D")
