"""GPU-hours that were held and hardly used."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError, check_columns, check_number
from gpudemand.jobs.table import check_jobs
from gpudemand.store import is_store
from gpudemand.usage.pulled import pulled_usage

#: Utilization below which GPUs count as hardly used, in per cent.
UNDER = (5, 20, 50)


def idle_table(
    jobs: pd.DataFrame | str | os.PathLike[str],
    by: str = "user",
    *,
    price: float | None = None,
    until: pd.Timestamp | None = None,
) -> pd.DataFrame:
    """GPU-hours held at little utilization, by user, group, partition, ...

    Parameters
    ----------
    jobs : DataFrame or path-like
        Job table (of any library) with ``used_gpu_seconds``, whose jobs count at their mean utilization; or a store of
        samples from Prometheus, in which each GPU counts at each sample (`by` is ``namespace`` or ``gpu_type``).
    by : str, default="user"
        Column of the table.
    price : float, optional
        Of a GPU-hour, in any currency.
    until : Timestamp, optional
        Samples of a store from this time on are left out.

    Returns
    -------
    DataFrame
        A row a value of `by`, those with most GPU-hours under 5 % first: ``gpu_hours`` held by ended jobs, ``measured``
        (those of them whose utilization is known), ``utilization`` (mean of these, 0 to 1), ``under_5``, ``under_20``
        and ``under_50`` (GPU-hours held at less than so many per cent), and with a `price` ``cost_under_5``, ...

    Raises
    ------
    InputError
        If the utilization of no job is known, or there is no such column.

    Notes
    -----
    Utilization is the share of time in which a GPU ran anything, not how well it was used: a job at 100 % may leave
    most of the arithmetic of its GPUs idle, and one at 20 % may wait for data that it cannot have earlier.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-03-01 00:00", "2026-03-01 10:00"], utc=True)
    >>> jobs = pd.DataFrame({"user": ["ada", "bob"], "start": times[0], "end": times[1], "gpus": [2.0, 1.0]})
    >>> idle_table(jobs.assign(used_gpu_seconds=[36000.0, 360.0]))[["unique_id", "gpu_hours", "under_5", "under_50"]]
      unique_id  gpu_hours  under_5  under_50
    0       bob       10.0     10.0      10.0
    1       ada       20.0      0.0       0.0
    """
    if isinstance(jobs, (str, os.PathLike)) and is_store(Path(jobs)):
        table = _of_samples(Path(jobs), by, until)
    elif isinstance(jobs, (str, os.PathLike)):
        raise InputError(f"{str(jobs)!r} is no store; read a log with read_jobs, and give its table.")
    else:
        table = _of_jobs(check_jobs(jobs, allow_unknown=True), by)
    return _priced(table, price)


def checked_idle_table(log: pd.DataFrame, by: str, price: float | None) -> pd.DataFrame:
    """`idle_table` of what `check_jobs` has returned."""
    return _priced(_of_jobs(log, by), price)


def _priced(table: pd.DataFrame, price: float | None) -> pd.DataFrame:
    names = [f"under_{percent}" for percent in UNDER]
    if price is not None:
        rate = check_number("price", price, 0)
        table = table.assign(**{f"cost_{name}": table[name] * rate for name in names})
    return table.sort_values([*names, "unique_id"], ascending=[False] * len(names) + [True], ignore_index=True)


def _of_jobs(jobs: pd.DataFrame, by: str) -> pd.DataFrame:
    log = check_columns(jobs, (by,), "jobs")
    hours = (log["end"] - log["start"].fillna(log["submit"])).dt.total_seconds() * log["gpus"] / 3600
    share = log["used_gpu_seconds"] / 3600 / hours.where(hours > 0)
    if not share.notna().any():
        raise InputError("this log tells the utilization of no job (used_gpu_seconds), so what is idle is not known.")
    known = share.notna()
    parts = {
        "gpu_hours": hours.fillna(0.0),
        "measured": hours.where(known, 0.0),
        "used": (share * hours).where(known, 0.0),
        **{f"under_{percent}": hours.where(share < percent / 100, 0.0) for percent in UNDER},
    }
    sums = pd.DataFrame(parts).groupby(log[by].astype(STRING).fillna("unknown")).sum()
    return _with_mean(sums)


def _of_samples(store: Path, by: str, until: pd.Timestamp | None) -> pd.DataFrame:
    sums = {}
    for measure in ("held", "measured", "used", *(f"under_{percent}" for percent in UNDER)):
        usage = pulled_usage(store, measure, by)
        usage = usage if until is None else usage[usage["ds"] < until]
        step = pd.Timedelta(usage.attrs["step"]) / pd.Timedelta("1h")
        sums["gpu_hours" if measure == "held" else measure] = usage.groupby("unique_id")["y"].sum() * step
    return _with_mean(pd.DataFrame(sums).fillna(0.0))


def _with_mean(sums: pd.DataFrame) -> pd.DataFrame:
    utilization = (sums["used"] / sums["measured"].where(sums["measured"] > 0)).astype(float)
    table = sums.assign(utilization=utilization).rename_axis("unique_id").reset_index()
    columns = ["unique_id", "gpu_hours", "measured", "utilization", *(f"under_{percent}" for percent in UNDER)]
    return table[columns].astype(dict.fromkeys(columns[1:], np.float64))
