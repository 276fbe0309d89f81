"""Usage series and tables of a job log, as read by every section of the report."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.forecast import longest_horizon
from gpudemand.jobs.table import check_jobs
from gpudemand.jobs.time_parser import parse_timestamp
from gpudemand.planning.capacity.inputs import check_lead_time
from gpudemand.stages import log_tables
from gpudemand.stages.settings import Settings
from gpudemand.usage.bins import bin_edges, parse_freq
from gpudemand.usage.series import usage_series

#: Names of the two forecast series, the mean demand of a bin and the most GPUs held at once in it, and of the
#: requirement by a target for waits.
MEAN, PEAK, WAIT = "mean", "peak", "wait"
#: From one look at the plan to the next.
_REVIEW = pd.Timedelta("28D")


@dataclass(frozen=True)
class UsageTables:
    """Usage series and tables of a job log.

    Parameters
    ----------
    total : DataFrame
        ``unique_id`` (``mean`` and ``peak``), ``ds``, ``y``, whole bins only: the mean of the GPUs wanted, or held
        where the log has no submit times, and the peak of the GPUs held.
    held : DataFrame
        ``ds``, ``y``: mean of the GPUs held per bin, whole bins only.
    groups : DataFrame
        ``unique_id`` (user, group, ...), ``ds``, ``y``: mean GPUs held per day, or per bin where that is longer.
    hourly : DataFrame
        ``unique_id``, ``ds``, ``y``: mean GPUs held by all jobs per hour.
    max_held : float
        Maximum of the GPUs held at once.
    tables : dict of str to DataFrame
        ``log``, ``rejected``, ``usage_shares``, ``concentration``, ``gpu_types``, by the stem of their files.
    """

    total: pd.DataFrame
    held: pd.DataFrame
    groups: pd.DataFrame
    hourly: pd.DataFrame
    max_held: float
    tables: dict[str, pd.DataFrame]


def compute_usage_tables(jobs: pd.DataFrame, settings: Settings) -> UsageTables:
    """Aggregate a job log to usage series and summary tables.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.
    settings : Settings
        ``by``, ``freq``, ``tz`` and ``until`` are read.

    Returns
    -------
    UsageTables

    Raises
    ------
    InputError
        If `jobs` is no job table, has no rows, or has no name in the column ``by``.
    """
    jobs = check_jobs(jobs, allow_unknown=True)
    if settings.by == "total":
        jobs = jobs.assign(total="total")
    series = partial(usage_series, until=settings.until, tz=settings.tz)
    peak = series(jobs, by=None, freq=settings.freq, value="gpus_peak")
    if not peak["y"].max():
        raise InputError("no job of this log held a GPU (gpus is 0 or unknown throughout); nothing to forecast.")
    attrs = dict(jobs.attrs)
    jobs = jobs[log_tables.begin_times(jobs) <= log_tables.period_end(peak)].reset_index(drop=True)
    jobs.attrs = attrs
    whole = partial(series, jobs, by=None, freq=settings.freq, partial=False)
    held, peak_whole = whole(value="gpus"), whole(value="gpus_peak")
    mean = held if demand_value(jobs) == "gpus" else whole(value="wanted")
    total = pd.concat([mean.assign(unique_id=MEAN), peak_whole.assign(unique_id=PEAK)], ignore_index=True)
    total.attrs = dict(mean.attrs)
    groups = series(jobs, by=settings.by, freq=_display_freq(settings), value="gpus")
    groups["unique_id"] = groups["unique_id"].map(log_tables.original_names(jobs, settings.by)).astype(STRING)
    hourly = series(jobs, by=None, freq="h", value="gpus", partial=False)
    return UsageTables(total, held, groups, hourly, float(peak["y"].max()), log_tables.log_tables(jobs, peak, settings))


def default_horizon(jobs: pd.DataFrame, settings: Settings) -> int:
    """Bins of the lead time and of four weeks after it, or as many as the log bears.

    An order today is used from the lead time on, and looked at again a month later.
    """
    begin, until = log_tables.begin_times(jobs).min(), parse_timestamp(settings.until, settings.tz, "until")
    edges = bin_edges(begin, max(begin, until), settings.freq, settings.tz)
    times = edges[: max(len(edges) - 1 - (until < edges[-1]), 2)]
    end = times[-1] + check_lead_time(settings.lead_time) + _REVIEW
    wanted = len(pd.date_range(times[-1], end, freq=parse_freq(settings.freq)))
    return max(min(wanted - 1, longest_horizon(pd.DataFrame({"unique_id": "", "ds": times, "y": 0.0}))), 1)


def tells_waits(jobs: pd.DataFrame) -> bool:
    """Whether some job was submitted before it started; where a log has no submit times, they are set to the starts."""
    return bool((jobs["start"].isna() | (jobs["submit"] < jobs["start"])).any())


def demand_value(jobs: pd.DataFrame) -> str:
    """What demand is: GPUs wanted, or those held (``gpus``) where the log does not tell when jobs were submitted."""
    return "wanted" if tells_waits(jobs) else "gpus"


def hourly_demand(jobs: pd.DataFrame, settings: Settings) -> pd.DataFrame | None:
    """GPUs wanted (or held: see `demand_value`) by hour; None where bins are hours or shorter, or there is only one."""
    start = pd.Timestamp("2001-01-01")
    if settings.horizon < 2 or start + parse_freq(settings.freq) <= start + pd.Timedelta("1h"):
        return None
    return usage_series(
        jobs, by=None, freq="h", value=demand_value(jobs), partial=False, until=settings.until, tz=settings.tz
    )


def _display_freq(settings: Settings) -> str:
    """At least a day: an area chart of finer bins would have more of them than pixels."""
    start = pd.Timestamp("2001-01-01")
    finer = start + pd.tseries.frequencies.to_offset(settings.freq) < start + pd.Timedelta("1D")
    return "D" if finer else settings.freq
