"""Work that will be submitted, by user, group or job class: past days drawn again, with what each job takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.jobs.as_of import begins, seconds_until

BY = ("user", "group", "cluster", "gpu_type", "gpus")
#: e-folding time (days) of what a past day tells, and how far back days are drawn from.
MEMORY_DAYS = 45.0
_FURTHEST = 180
_DRAWS = 400


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

    Days are drawn with replacement from the past, recent ones more often, each with all jobs that were submitted on it
    and what they take. Users who work together on a day stay together, and a day without jobs is as likely as it was.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table; only submissions before `origin` are read.
    gpu_hours : ndarray of shape (n_jobs,)
        What each job takes: predicted, or observed.
    origin : Timestamp
        With a zone; days are counted back from here.
    days : int, default=30
    by : str or sequence of str, default="user"
        Of ``user``, ``group``, ``cluster``, ``gpu_type``, ``gpus``.
    level : float, default=80
        Interval level in percent.
    random_state : int, default=0

    Returns
    -------
    DataFrame
        Index `by`; ``jobs``, ``gpu_hours_per_job``, ``gpu_hours`` (expected), ``gpu_hours-lo-80``, ``gpu_hours-hi-80``;
        the largest first.

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
    index, count, work = _by_day(jobs, keys, gpu_hours, origin)
    chance = np.exp(-np.arange(count.shape[1]) / MEMORY_DAYS)
    chance /= chance.sum()
    drawn = np.random.default_rng(random_state).multinomial(days, chance, size=_DRAWS)
    low, high = np.quantile(work @ drawn.T, [0.5 - level / 200, 0.5 + level / 200], axis=1)
    expected, total = days * (count @ chance), days * (work @ chance)
    each = np.divide(total, expected, out=np.zeros_like(total), where=expected > 0)
    columns = {"jobs": expected, "gpu_hours_per_job": each, "gpu_hours": total}
    ends = {f"gpu_hours-lo-{level:g}": low, f"gpu_hours-hi-{level:g}": high}
    return pd.DataFrame(columns | ends, index=index).sort_values("gpu_hours", ascending=False, kind="stable")


def _by_day(
    jobs: pd.DataFrame, keys: list[str], gpu_hours: FloatArray, origin: pd.Timestamp
) -> tuple[pd.Index, FloatArray, FloatArray]:
    """Groups, and by group and day, counted back from the origin: jobs, and what they take."""
    back = np.ceil((origin - jobs["submit"]) / pd.Timedelta("1D")).to_numpy(dtype=float) - 1
    past = (jobs["submit"] < origin).to_numpy() & (back < _FURTHEST) & np.isfinite(gpu_hours)
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
    """GPU-hours that jobs took, or are expected to take if they have not ended, shape (n_jobs,).

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table; cut it with `known_at` where it goes on after the origin.
    mean_run_time_s : ndarray of shape (n_jobs,)
        Expected run times.
    """
    took = seconds_until(jobs["end"], begins(jobs))
    return np.where(np.isfinite(took), took, mean_run_time_s) / 3600 * jobs["gpus"].to_numpy(dtype=float)
