"""GPU-hours that were held and hardly used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from gpudemand._array import STRING
from gpudemand._validation import InputError, check_columns, check_number, told
from gpudemand.jobs.columns import name_of_part
from gpudemand.jobs.plausibility import without_impossible_use
from gpudemand.jobs.table import check_jobs, warn_doubts
from gpudemand.store import is_store
from gpudemand.usage.read import pulled_usage

#: Utilization below which GPUs count as hardly used, in per cent.
_UNDER = (5, 20, 50)


@told("Computing idle GPUs")
def idle_table(
    jobs: pd.DataFrame | str | os.PathLike[str],
    by: str = "user",
    *,
    price: float | Mapping[str, float] | None = None,
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
    price : float or mapping of str to float, optional
        Of a GPU-hour, in any currency, or by GPU type; GPUs of another type count at the mean of those that are known.
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

    Warns
    -----
    UnlikelyJobsWarning
        Of ``used_gpu_seconds`` below 0, or more than 2 % above GPUs times run time, which are unknown.

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
    by_type = isinstance(price, Mapping)
    if isinstance(jobs, (str, os.PathLike)) and is_store(Path(jobs)):
        sums = _of_samples(Path(jobs), by, until, by_type=by_type)
    elif isinstance(jobs, (str, os.PathLike)):
        raise InputError(f"{str(jobs)!r} is no store; read a log with read_jobs, and give its table.")
    else:
        log, said = without_impossible_use(check_jobs(jobs, allow_unknown=True))
        warn_doubts(said, "jobs")
        sums = _of_jobs(log, by, "gpu_type" if by_type else None)
    return _table(sums, price)


def checked_idle_table(
    log: pd.DataFrame, by: str, price: float | Mapping[str, float] | None, pool: str = "gpu_type"
) -> pd.DataFrame:
    """`idle_table` of what `check_jobs` has returned; prices may be by any column."""
    return _table(_of_jobs(without_impossible_use(log)[0], by, pool if isinstance(price, Mapping) else None), price)


def _table(sums: pd.DataFrame, price: float | Mapping[str, float] | None) -> pd.DataFrame:
    """Sums by name and pool as a table by name."""
    names = [f"under_{percent}" for percent in _UNDER]
    costs = [] if price is None else [f"cost_{name}" for name in names]
    if price is not None:
        rates = _rates(sums, price)
        sums = sums.assign(**{f"cost_{name}": sums[name] * rates for name in names})
    sums = sums.groupby("unique_id").sum()
    utilization = (sums["used"] / sums["measured"].where(sums["measured"] > 0)).astype(float)
    table = sums.assign(utilization=utilization).reset_index()
    columns = ["unique_id", "gpu_hours", "measured", "utilization", *names, *costs]
    table = table[columns].astype(dict.fromkeys(columns[1:], np.float64))
    return table.sort_values([*names, "unique_id"], ascending=[False] * len(names) + [True], ignore_index=True)


def _rates(sums: pd.DataFrame, price: float | Mapping[str, float]) -> pd.Series:
    """Price of a GPU-hour in each row; where the pool has none, the mean by GPU-hours of those that have."""
    if not isinstance(price, Mapping):
        return pd.Series(check_number("price", price, 0), index=sums.index)
    pools = sums.index.get_level_values("pool").to_series(index=sums.index)
    known = {name: check_number(f"price[{name!r}]", rate, 0) for name, rate in price.items()}
    rates = pools.map(known).astype(float)
    if not rates.notna().any():
        raise InputError(f"price has no value for any GPU type that was used; it has {', '.join(known)}.")
    hours = sums["gpu_hours"].where(rates.notna(), 0.0)
    return rates.fillna(float((rates * hours).sum() / hours.sum()) if hours.sum() else 0.0)


def _of_jobs(jobs: pd.DataFrame, by: str, pool: str | None) -> pd.DataFrame:
    log = check_columns(jobs, (by,), "jobs")
    hours = (log["end"] - log["start"].fillna(log["submit"])).dt.total_seconds() * log["gpus"] / 3600
    share = (log["used_gpu_seconds"] / 3600 / hours.where(hours > 0)).clip(upper=1.0)  # clocks differ
    if not share.notna().any():
        raise InputError("this log tells the utilization of no job (used_gpu_seconds), so what is idle is not known.")
    known = share.notna()
    parts = {
        "gpu_hours": hours.fillna(0.0),
        "measured": hours.where(known, 0.0),
        "used": (share * hours).where(known, 0.0),
        **{f"under_{percent}": hours.where(share < percent / 100, 0.0) for percent in _UNDER},
    }
    keys = {"unique_id": log[by].astype(STRING).fillna("unknown")}
    keys["pool"] = keys["unique_id"] if pool is None else log[pool].astype(STRING).fillna("unknown")
    return pd.DataFrame(parts).assign(**keys).groupby(list(keys)).sum()


def _of_samples(store: Path, by: str, until: pd.Timestamp | None, *, by_type: bool) -> pd.DataFrame:
    sums = {}
    for measure in ("held", "measured", "used", *(f"under_{percent}" for percent in _UNDER)):
        usage = pulled_usage(store, measure, f"{by}/gpu_type" if by_type else by)
        usage = usage if until is None else usage[usage["ds"] < until]
        step = pd.Timedelta(usage.attrs["step"]) / pd.Timedelta("1h")
        sums["gpu_hours" if measure == "held" else measure] = usage.groupby("unique_id")["y"].sum() * step
    table = pd.DataFrame(sums).fillna(0.0).rename_axis("unique_id").reset_index().assign(pool="")
    if by_type:
        names = table["unique_id"].astype(str).str.rsplit("/", n=1, expand=True)
        table = table.assign(unique_id=names[0].astype(STRING), pool=names[1].map(name_of_part))
    return table.set_index(["unique_id", "pool"])
