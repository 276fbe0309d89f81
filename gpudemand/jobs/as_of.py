"""What a log had told at a moment: the log cut so that nothing later can be read from it."""

from __future__ import annotations

import pandas as pd

from gpudemand._typing import STRING, FloatArray
from gpudemand.jobs.table import check_jobs


def known_at(jobs: pd.DataFrame, moment: pd.Timestamp) -> pd.DataFrame:
    """Return the log as it stood at a moment.

    Jobs submitted later are gone; what had not started waits, what had not ended runs, and how it will end is open.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.
    moment : Timestamp
        With a zone.

    Returns
    -------
    DataFrame
        The rows submitted before `moment`, sorted by ``submit``, with later times and outcomes removed. What was used
        in all (``used_gpu_seconds``) is removed from jobs that still run.

    Examples
    --------
    >>> from gpudemand.jobs.table import as_jobs
    >>> times = pd.to_datetime(["2026-03-01 00:00", "2026-03-01 05:00"], utc=True)
    >>> jobs = as_jobs(pd.DataFrame({"submit": times[:1], "end": times[1:], "gpus": 2}), kind="measured")
    >>> known_at(jobs, pd.Timestamp("2026-03-01 03:00", tz="UTC"))[["end", "status"]].to_dict("records")
    [{'end': NaT, 'status': 'running'}]
    """
    log = check_jobs(jobs)
    seen = log[log["submit"] < moment].sort_values("submit", kind="stable", ignore_index=True)
    # A log that never says when jobs started (the start is unknown, not in the future) starts them at the submit.
    waits = (seen["start"] >= moment) | (seen["start"].isna() & seen["status"].eq("pending"))
    runs = ~waits & (seen["end"].isna() | (seen["end"] > moment))
    status = seen["status"].astype(STRING).mask(waits, "pending").mask(runs, "running")
    open_end = waits | runs
    known = seen.assign(
        status=status,
        start=seen["start"].mask(waits),
        end=seen["end"].mask(open_end),
        used_gpu_seconds=seen["used_gpu_seconds"].mask(open_end),
    )
    known.attrs = dict(jobs.attrs)
    return known


def begins(jobs: pd.DataFrame) -> pd.Series:
    """When each job began to hold GPUs: its start, or the submit where the start is unknown; NaT while it waits."""
    waiting = jobs["start"].isna() & jobs["status"].eq("pending")
    return jobs["start"].fillna(jobs["submit"]).mask(waiting)


def seconds_until(times: pd.Series, since: pd.Series | pd.Timestamp) -> FloatArray:
    """Seconds from `since` to each of `times`; NaN where either is missing."""
    return (times - since).dt.total_seconds().to_numpy(dtype=float)


def local_seconds(times: pd.Series, tz: object) -> FloatArray:
    """Local wall clock as seconds since 1970, for hours and weekdays; NaN where missing."""
    wall = times.dt.tz_convert(tz).dt.tz_localize(None)
    return ((wall - pd.Timestamp("1970-01-01")) / pd.Timedelta("1s")).to_numpy(dtype=float)
