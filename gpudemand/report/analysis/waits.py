"""How long jobs waited, and how many GPUs they wanted, as the report shows it."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from gpudemand._typing import STRING
from gpudemand.report.analysis.log_tables import period_end
from gpudemand.report.analysis.settings import Settings
from gpudemand.report.analysis.usage_tables import MEAN, UsageTables
from gpudemand.units import SECONDS_PER_HOUR
from gpudemand.usage.series import usage_series
from gpudemand.usage.waits import wait_table

ALL = "all"
_SECONDS = ("median_wait_s", "mean_wait_s", "p95_wait_s")


@dataclass(frozen=True)
class Waits:
    """Waits of the jobs of a log, and the GPUs that they wanted.

    Parameters
    ----------
    by_size : DataFrame
        As `wait_table` returns it, by size.
    table : DataFrame
        ``size`` (GPUs of the job; the first row ``all``), ``jobs``, ``median_wait_h``, ``mean_wait_h``, ``p95_wait_h``,
        ``share_over_1h``, ``waited_gpu_hours``, ``waiting`` and ``gave_up``.
    wanted : DataFrame
        ``ds``, and the mean GPUs ``held`` and ``wanted`` per bin: what would be held if every job had started when it
        was submitted.
    """

    by_size: pd.DataFrame
    table: pd.DataFrame
    wanted: pd.DataFrame


def compute_waits(jobs: pd.DataFrame, usage: UsageTables, settings: Settings) -> Waits:
    """Sum up the waits until the end of the period.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.
    usage : UsageTables
        Its ``total`` is read.
    settings : Settings
        ``freq``, ``tz`` and ``until`` are read.

    Returns
    -------
    Waits

    Raises
    ------
    InputError
        If the log has no submit times.
    """
    held, attrs = usage.total[usage.total["unique_id"] == MEAN], jobs.attrs
    wanted = usage_series(
        jobs, by=None, freq=settings.freq, value="wanted", until=settings.until, tz=settings.tz, partial=False
    )
    jobs = jobs[jobs["submit"] <= period_end(usage.total)].reset_index(drop=True)
    jobs.attrs = attrs
    by_size = wait_table(jobs, "size", tz=settings.tz)
    table = pd.concat([wait_table(jobs, tz=settings.tz), by_size.set_axis(by_size.index.astype(STRING))])
    hours = (table[list(_SECONDS)] / SECONDS_PER_HOUR).rename(columns=lambda name: name.replace("_s", "_h"))
    others = table.drop(columns=["jobs", *_SECONDS])
    table = pd.concat([table[["jobs"]], hours, others], axis=1).rename_axis("size").reset_index()
    both = held[["ds", "y"]].merge(wanted[["ds", "y"]], on="ds", suffixes=("_held", "_wanted"))
    return Waits(by_size, table, both.set_axis(["ds", "held", "wanted"], axis=1))
