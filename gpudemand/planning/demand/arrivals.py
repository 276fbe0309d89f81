"""Forecast of submitted jobs and GPU-hours by user, group or job class: a weighted bootstrap of past days."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.jobs.as_of import seconds_since, start_times
from gpudemand.jobs.table import check_jobs
from gpudemand.jobs.time_parser import parse_timestamp

BY = ("user", "group", "cluster", "gpu_type", "gpus")
#: e-folding time (days) of the recency weights, oldest day, and number of bootstrap samples.
_DECAY_DAYS = 45.0
_OLDEST_DAYS = 180
_SAMPLES = 400


def forecast_submissions(
    jobs: pd.DataFrame,
    gpu_hours: FloatArray,
    origin: pd.Timestamp,
    *,
    days: int = 30,
    by: str | Sequence[str] = "user",
    level: float = 80,
    random_state: int = 0,
) -> pd.DataFrame:
    """Forecast jobs and GPU-hours that will be submitted in the next days.

    Past days are resampled with weights that decay with age, each with all its jobs and their GPU-hours, which keeps
    the correlation between users and the frequency of days without jobs.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table; only submissions before `origin` are read.
    gpu_hours : ndarray of shape (n_jobs,)
        GPU-hours of each job: predicted, or observed.
    origin : Timestamp
        With a zone; days are counted back from it.
    days : int, default=30
    by : str or sequence of str, default="user"
        Any of ``user``, ``group``, ``cluster``, ``gpu_type``, ``gpus``.
    level : float, default=80
        Interval level in percent.
    random_state : int, default=0

    Returns
    -------
    DataFrame
        Index `by`; ``jobs``, ``gpu_hours_per_job``, ``gpu_hours`` (expected), ``gpu_hours-lo-80``, ``gpu_hours-hi-80``;
        sorted by ``gpu_hours``, descending.

    Examples
    --------
    >>> from gpudemand.jobs.table import as_jobs
    >>> submit = pd.date_range("2026-03-01", periods=20, freq="D", tz="UTC")
    >>> jobs = as_jobs(pd.DataFrame({"user": "ada", "submit": submit, "gpus": 1}), kind="measured")
    >>> origin = pd.Timestamp("2026-03-21", tz="UTC")
    >>> forecast_submissions(jobs, np.full(20, 3.0), origin, days=10).reset_index().round(1)
      user  jobs  gpu_hours_per_job  gpu_hours  gpu_hours-lo-80  gpu_hours-hi-80
    0  ada  10.0                3.0       30.0             30.0             30.0
    """
    days = int(check_number("days", days, 1, 3660, integer=True))
    check_number("level", level, 0, 99.9, open_low=True)
    keys = [check_choice("by", name, BY) for name in ([by] if isinstance(by, str) else by)]
    table, work_h = check_jobs(jobs, allow_unknown=True), np.asarray(gpu_hours, dtype=float)
    index, count, work = _by_day(table, keys, work_h, parse_timestamp(origin, name="origin"))
    weight = np.exp(-np.arange(count.shape[1]) / _DECAY_DAYS)
    weight /= weight.sum()
    drawn = np.random.default_rng(random_state).multinomial(days, weight, size=_SAMPLES)
    low, high = np.quantile(work @ drawn.T, [0.5 - level / 200, 0.5 + level / 200], axis=1)
    expected, total = days * (count @ weight), days * (work @ weight)
    each = np.divide(total, expected, out=np.zeros_like(total), where=expected > 0)
    columns = {"jobs": expected, "gpu_hours_per_job": each, "gpu_hours": total}
    ends = {f"gpu_hours-lo-{level:g}": low, f"gpu_hours-hi-{level:g}": high}
    return pd.DataFrame(columns | ends, index=index).sort_values("gpu_hours", ascending=False, kind="stable")


def _by_day(
    jobs: pd.DataFrame, keys: list[str], gpu_hours: FloatArray, origin: pd.Timestamp
) -> tuple[pd.Index, FloatArray, FloatArray]:
    """Groups, and by group and day back from the origin: number of jobs and their GPU-hours."""
    back = np.ceil((origin - jobs["submit"]) / pd.Timedelta("1D")).to_numpy(dtype=float) - 1
    past = (jobs["submit"] < origin).to_numpy() & (back < _OLDEST_DAYS) & np.isfinite(gpu_hours)
    if not past.any():
        raise InputError(f"no job was submitted before {origin}; choose a later origin.")
    groups = jobs.loc[past, keys].fillna({key: "unknown" for key in keys if key != "gpus"}).groupby(keys, sort=False)
    n_days = int(back[past].max()) + 1
    cell = groups.ngroup().to_numpy() * n_days + back[past].astype(int)
    count, work = (
        np.bincount(cell, weights, minlength=groups.ngroups * n_days).reshape(-1, n_days).astype(float)
        for weights in (None, gpu_hours[past])
    )
    return groups.size().index, count, work


def observed_gpu_hours(jobs: pd.DataFrame, mean_run_time_s: FloatArray) -> FloatArray:
    """Observed GPU-hours of ended jobs, and those of the others from expected run times, shape (n_jobs,)."""
    run_s = seconds_since(jobs["end"], start_times(jobs))
    return np.where(np.isfinite(run_s), run_s, mean_run_time_s) / 3600 * jobs["gpus"].to_numpy(dtype=float)
