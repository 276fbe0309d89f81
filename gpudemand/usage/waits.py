"""How long jobs waited: from their submission to their start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from gpudemand._array import STRING, FloatArray
from gpudemand._validation import InputError, as_pandas, check_choice, told
from gpudemand.jobs.table import check_jobs, gave_up, seconds_since, start_times, wall_clock_seconds
from gpudemand.jobs.times import parse_timezone

#: Columns that `_with_waits` reads, and that waits can be grouped by.
_READ = ("submit", "start", "end", "gpus", "status")
_COLUMNS = ("user", "group", "cluster", "gpu_type", "partition", "queue", "qos", "reason")


@told("Computing waits")
def wait_table(jobs: pd.DataFrame, by: str | None = None, *, tz: object = None) -> pd.DataFrame:
    """Waits of the jobs of a log, all together or by group.

    Parameters
    ----------
    jobs : DataFrame
        Job table with ``submit`` and ``start``: a log as it was, or what `simulate_queue` returns.
    by : str, optional
        ``"size"`` (GPUs, up to the next power of two), ``"hour"`` or ``"weekday"`` of submission, or a column:
        ``"user"``, ``"group"``, ``"cluster"``, ``"gpu_type"``, ``"partition"``, ``"queue"``, ``"qos"``, ``"reason"``:
        what the scheduler says delayed a job, GPUs that others hold (Slurm's ``Resources``, ``Priority``), or limits of
        one's own (``QOSMaxGRESPerUser``, ``AssocGrpGRES`` ...).
    tz : str or tzinfo, optional
        Zone of the hour and the weekday, by default UTC, and of times that have none.

    Returns
    -------
    DataFrame
        Index `by` (``all`` without): ``jobs`` that started, ``mean_wait_s``, ``median_wait_s``, ``p95_wait_s``,
        ``share_over_1h``, ``waited_gpu_hours`` (wait times GPUs), ``bounded_slowdown`` (mean of wait and run over the
        run, both of at least 10 s; of ended jobs), ``waiting`` (jobs that had not started) and ``gave_up`` (cancelled
        while they waited), of which no wait is known. Jobs without GPUs are left out.

    Raises
    ------
    InputError
        If submissions or starts are unknown, or `by` is.

    References
    ----------
    Feitelson and Rudolph, "Metrics and benchmarking for parallel job scheduling", JSSPP 1998, for bounded slowdown.

    Examples
    --------
    >>> submit = pd.to_datetime(["2026-03-01 00:00", "2026-03-01 00:00", "2026-03-01 09:00"], utc=True)
    >>> start = submit + pd.to_timedelta([0, 120, 30], unit="min")
    >>> log = pd.DataFrame({"submit": submit, "start": start, "end": start + pd.Timedelta("1h"), "gpus": [1, 8, 8]})
    >>> wait_table(log, by="size")[["jobs", "mean_wait_s", "share_over_1h", "bounded_slowdown"]]
          jobs  mean_wait_s  share_over_1h  bounded_slowdown
    size
    1        1          0.0            0.0              1.00
    5-8      2       4500.0            0.5              2.25
    """
    given = as_pandas(jobs, "jobs")
    _check_times(given)
    log = check_jobs(given, tz=tz, allow_unknown=True)
    return checked_wait_tables(log[given["submit"].notna().to_numpy()], [by], tz)[0]


def checked_wait_tables(jobs: pd.DataFrame, keys: Sequence[str | None], tz: object) -> list[pd.DataFrame]:
    """`wait_table` by several keys, of what `check_jobs` has returned."""
    _check_times(jobs)
    log = _with_waits(jobs)
    return [_table(log, by, tz) for by in keys]


def _table(log: pd.DataFrame, by: str | None, tz: object) -> pd.DataFrame:
    groups = _groups(log, by, tz)
    started = log[["wait_s", "slowdown", "gpus"]][log["wait_s"].notna()]
    rows = started.groupby(groups, observed=True)
    wait, every = rows["wait_s"], log.groupby(groups, observed=True)
    columns = {
        "jobs": wait.size(),
        "mean_wait_s": wait.mean(),
        "median_wait_s": wait.median(),
        "p95_wait_s": wait.quantile(0.95),
        "share_over_1h": (started["wait_s"] > 3600).groupby(groups, observed=True).mean(),
        "waited_gpu_hours": (started["wait_s"] * started["gpus"] / 3600).groupby(groups, observed=True).sum(),
        "bounded_slowdown": rows["slowdown"].mean(),
        "waiting": every["is_waiting"].sum(),
        "gave_up": every["gave_up"].sum(),
    }
    counts = ["jobs", "waiting", "gave_up"]
    table = pd.DataFrame(columns).fillna(dict.fromkeys(counts, 0)).astype(dict.fromkeys(counts, int))
    table.attrs = {"kind": str(log.attrs.get("kind", "")), "by": by or "all"}
    return table.sort_index() if by not in _COLUMNS else table.sort_values("waited_gpu_hours", ascending=False)


def bounded_slowdown(wait_s: FloatArray, run_s: FloatArray) -> FloatArray:
    """Time from submission to end relative to the run time, with runs of at least ten seconds, and at least 1.

    >>> bounded_slowdown(np.array([60.0, 60.0, 0.0]), np.array([60.0, 1.0, 1.0]))
    array([2. , 6.1, 1. ])
    """
    return np.maximum((wait_s + run_s) / np.maximum(run_s, 10.0), 1.0)


def _check_times(jobs: pd.DataFrame) -> None:
    for name in ("submit", "start"):
        if name not in jobs or jobs[name].isna().all():
            raise InputError(f"the log has no {name} times, so how long jobs waited is unknown; add them.")


def _with_waits(jobs: pd.DataFrame) -> pd.DataFrame:
    """Jobs with GPUs, in new rows, and what is known of their waits."""
    read = [name for name in (*_READ, *_COLUMNS) if name in jobs]
    log = jobs[read][(jobs["gpus"] > 0) & jobs["submit"].notna()].reset_index(drop=True)
    log.attrs = dict(jobs.attrs)
    if log.empty:
        raise InputError("no job of the log has GPUs and a submit time, so nobody waited for any.")
    log["gave_up"] = gave_up(log)
    wait = seconds_since(log["start"], log["submit"])
    log["wait_s"] = np.where(log["gave_up"], np.nan, wait)
    log["is_waiting"] = log["start"].isna() & log["end"].isna()
    log["slowdown"] = bounded_slowdown(log["wait_s"].to_numpy(), seconds_since(log["end"], start_times(log)))
    return log


def _groups(log: pd.DataFrame, by: str | None, tz: object) -> pd.Series:
    if by is None:
        return pd.Series("all", index=log.index, name="jobs of")
    check_choice("by", by, ("size", "hour", "weekday", *_COLUMNS))
    if by == "size":
        return _sizes(log["gpus"])
    if by in ("hour", "weekday"):
        wall = pd.to_datetime(wall_clock_seconds(log["submit"], parse_timezone(tz) or "UTC"), unit="s")
        if by == "hour":
            return pd.Series(wall.hour, log.index, name="hour")
        names = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
        days = pd.Categorical.from_codes(wall.day_of_week, names, ordered=True)
        return pd.Series(days, log.index, name="weekday")
    if by not in log or log[by].isna().all():
        raise InputError(f"this log names no {by!r} for any job; group its waits by size, hour or weekday.")
    return log[by].astype(STRING).fillna("unknown")


def _sizes(gpus: pd.Series) -> pd.Series:
    """Ranges of GPUs up to powers of two: ``1``, ``2``, ``3-4``, ``5-8``."""
    power = np.ceil(np.log2(np.maximum(gpus.to_numpy(dtype=float), 0.5)))
    powers = np.unique(power).astype(int)
    names = ["below 1" if p < 0 else str(2**p) if p < 2 else f"{2 ** (p - 1) + 1}-{2**p}" for p in powers]
    codes = np.searchsorted(powers, power)
    return pd.Series(pd.Categorical.from_codes(codes, names, ordered=True), gpus.index, name="size")


#: Sizes of jobs that are told apart; more are rounded up to powers of two.
_MOST_SIZES = 64


def share_beside_idle(jobs: pd.DataFrame, installed: float | Mapping[str, float]) -> float:
    """Share of the time that jobs waited while as many GPUs as they wanted were idle; NaN where none waited.

    They waited behind larger jobs that the scheduler kept GPUs for, which more GPUs end, or for limits, dependencies,
    placement and nodes out of service, which they do not: a log does not tell one from the other. A queue without any
    limits has such waits, too.

    `jobs`: canonical job table. `installed`: GPUs in service, or by ``gpu_type``, whose jobs then take no others.

    >>> time = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta([0, 1, 1, 3, 3], unit="h")
    >>> log = pd.DataFrame({"submit": time[[0, 1, 2]], "start": time[[0, 3, 4]], "gpus": [6.0, 2.0, 8.0]})
    >>> log = log.assign(end=time[3] + pd.Timedelta("2h"), status="completed")
    >>> share_beside_idle(log, 8)
    0.5
    >>> share_beside_idle(log.assign(gpu_type=["A100", "H100", "A100"]), {"A100": 8, "H100": 1})
    0.0
    """
    read = [name for name in (*_READ, "gpu_type") if name in jobs]
    log = jobs[read][(jobs["gpus"] > 0) & jobs["submit"].notna() & jobs["start"].notna() & ~gave_up(jobs)]
    if log.empty or not (log["start"] > log["submit"]).any():
        return float("nan")
    if isinstance(installed, Mapping):
        pools = [(log[log["gpu_type"].eq(name).fillna(False)], count) for name, count in installed.items()]
    else:
        pools = [(log, installed)]
    idle, waited = np.sum([_beside_idle(of_pool, count) for of_pool, count in pools if len(of_pool)], axis=0)
    return float(idle / waited) if waited else float("nan")


def _beside_idle(log: pd.DataFrame, installed: float) -> tuple[float, float]:
    """Seconds that jobs waited beside as many idle GPUs as they wanted, and all that they waited."""
    origin = log["submit"].min()
    submit, start, end = (seconds_since(log[name], origin) for name in ("submit", "start", "end"))
    gpus, end = log["gpus"].to_numpy(dtype=float), np.where(np.isnan(end), np.nanmax(np.append(end, start)), end)
    times = np.concatenate([start, end])
    order = np.argsort(times, kind="stable")
    times, free = times[order], installed - np.cumsum(np.concatenate([gpus, -gpus])[order])
    sizes = gpus if len(np.unique(gpus)) <= _MOST_SIZES else 2.0 ** np.ceil(np.log2(gpus))
    edges = np.append(min(times[0], 0.0), times)
    free, widths, idle = np.append(installed, free[:-1]), np.diff(edges), 0.0  # before the first event, and after each
    for size in np.unique(sizes):
        mine = sizes == size
        known = np.append(0.0, np.cumsum(widths * (free >= size - 1e-9)))
        idle += float((np.interp(start[mine], edges, known) - np.interp(submit[mine], edges, known)).sum())
    return idle, float((start - submit).sum())
