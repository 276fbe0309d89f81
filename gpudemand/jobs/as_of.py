"""A job log as of a past time, and the intervals in which jobs hold GPUs."""

from __future__ import annotations

import pandas as pd

from gpudemand._typing import STRING, BoolArray, FloatArray, IntArray
from gpudemand.jobs.schema import FINISHED
from gpudemand.jobs.table import check_jobs


def as_of(jobs: pd.DataFrame, time: pd.Timestamp) -> pd.DataFrame:
    """Return the log as it stood at a time, without any later information.

    Jobs submitted later are dropped; jobs that had not started are pending, and jobs that had not ended are running.

    Parameters
    ----------
    jobs : DataFrame
        Job table; see `check_jobs`.
    time : Timestamp
        With a zone.

    Returns
    -------
    DataFrame
        The rows submitted before `time`, sorted by ``submit``, with later times and outcomes removed, and
        ``used_gpu_seconds`` removed from jobs that had not ended.

    Examples
    --------
    >>> from gpudemand.jobs.table import as_jobs
    >>> times = pd.to_datetime(["2026-03-01 00:00", "2026-03-01 05:00"], utc=True)
    >>> jobs = as_jobs(pd.DataFrame({"submit": times[:1], "end": times[1:], "gpus": 2}), kind="measured")
    >>> as_of(jobs, pd.Timestamp("2026-03-01 03:00", tz="UTC"))[["end", "status"]].to_dict("records")
    [{'end': NaT, 'status': 'running'}]
    """
    return checked_as_of(check_jobs(jobs, allow_unknown=True), time)


def checked_as_of(jobs: pd.DataFrame, time: pd.Timestamp) -> pd.DataFrame:
    """`as_of` for a table that `check_jobs` returned."""
    # A finished job whose end is unknown held nothing that is known, as in `usage_series`.
    unknown = jobs["end"].isna() & jobs["status"].isin(FINISHED)
    log = jobs.assign(end=jobs["end"].mask(unknown, jobs["start"].fillna(jobs["submit"])))
    past = log[log["submit"] < time].sort_values("submit", kind="stable", ignore_index=True)
    # Where a log has no start times, jobs start at the submit unless their status says that they are pending.
    pending = (past["start"] >= time) | (past["start"].isna() & past["status"].eq("pending"))
    running = ~pending & (past["end"].isna() | (past["end"] > time))
    unfinished = pending | running
    known = past.assign(
        status=past["status"].astype(STRING).mask(pending, "pending").mask(running, "running"),
        start=past["start"].mask(pending),
        end=past["end"].mask(unfinished),
        used_gpu_seconds=past["used_gpu_seconds"].mask(unfinished),
    )
    # Runs of one job that were requeued later were one waiting job.
    again = pending & known["job_id"].notna() & known.duplicated(["cluster", "job_id", "start", "submit"])
    known = known[~again].reset_index(drop=True) if again.any() else known
    known.attrs = dict(log.attrs)
    return known


def start_times(jobs: pd.DataFrame) -> pd.Series:
    """Time from which each job holds GPUs: its start, or the submit where the start is unknown; NaT while pending."""
    pending = jobs["start"].isna() & jobs["status"].eq("pending")
    return jobs["start"].fillna(jobs["submit"]).mask(pending)


def seconds_since(times: pd.Series, since: pd.Series | pd.Timestamp) -> FloatArray:
    """Seconds from `since` to each of `times`; NaN where either is missing."""
    return (times - since).dt.total_seconds().to_numpy(dtype=float)


def wall_clock_seconds(times: pd.Series, tz: object) -> FloatArray:
    """Local wall-clock time as seconds since 1970, for hours and weekdays; NaN where missing."""
    wall = times.dt.tz_convert(tz).dt.tz_localize(None)
    return ((wall - pd.Timestamp("1970-01-01")) / pd.Timedelta("1s")).to_numpy(dtype=float)


def gave_up(jobs: pd.DataFrame) -> BoolArray:
    """Jobs that were cancelled while they waited, which readers of logs let start at their end."""
    over = jobs["end"] <= jobs["start"].fillna(jobs["submit"])
    return (jobs["status"].eq("cancelled") & over).to_numpy(dtype=bool)


def to_nanoseconds(times: pd.Series) -> IntArray:
    """Nanoseconds since 1970 of times without missing ones."""
    return times.dt.as_unit("ns").astype("int64").to_numpy()
