"""What a log says was used: the series and tables that every section of the report reads."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.jobs.table import check_jobs
from gpudemand.report.analysis import tables
from gpudemand.report.analysis.settings import Settings
from gpudemand.usage.series import usage_series

#: The two series that are forecast: the mean of GPUs held in a bin, and the most held at once in it.
MEAN, PEAK = "mean", "peak"


@dataclass(frozen=True)
class Measured:
    """Series and tables of a log.

    Parameters
    ----------
    total : DataFrame
        ``unique_id`` (``mean`` and ``peak``), ``ds``, ``y``: GPUs held by all, whole bins only.
    groups : DataFrame
        ``unique_id`` (user, group, ...), ``ds``, ``y``: mean GPUs held per day, or per bin where that is longer.
    hourly : DataFrame
        ``unique_id``, ``ds``, ``y``: mean GPUs held by all per hour.
    most_held : float
        Most GPUs held at once, ever.
    tables : dict of str to DataFrame
        ``log``, ``rejected``, ``who``, ``concentration``, ``gpu_types``, by the name of their file.
    """

    total: pd.DataFrame
    groups: pd.DataFrame
    hourly: pd.DataFrame
    most_held: float
    tables: dict[str, pd.DataFrame]


def measure(jobs: pd.DataFrame, settings: Settings) -> Measured:
    """Add a log up.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.
    settings : Settings
        ``by``, ``freq``, ``tz`` and ``until`` are read.

    Returns
    -------
    Measured

    Raises
    ------
    InputError
        If `jobs` is no job table, has no rows, or names nobody in the column ``by``.
    """
    check_jobs(jobs)
    if settings.by == "total":
        # A log that names nobody has one holder: everyone.
        jobs = jobs.assign(total="total")
    peak = usage_series(jobs, by=None, freq=settings.freq, value="gpus_peak", until=settings.until, tz=settings.tz)
    if not peak["y"].max():
        raise InputError(
            "no job of this log held a GPU for any time (gpus is 0 or unknown throughout); nothing to forecast."
        )
    jobs = _begun_by(jobs, tables.until_of(peak))
    who = tables.who_uses(jobs, settings)
    return Measured(
        total=_total(jobs, settings),
        groups=_groups(jobs, settings),
        hourly=usage_series(jobs, by=None, freq="h", value="gpus", until=settings.until, tz=settings.tz, partial=False),
        most_held=float(peak["y"].max()),
        tables={
            "log": tables.what_was_read(jobs, peak, float(who["gpu_hours"].sum()), settings.tz),
            "rejected": tables.rejected_rows(jobs),
            "who": who,
            "concentration": tables.concentration(who),
            "gpu_types": tables.by_gpu_type(jobs, settings),
        },
    )


def _begun_by(jobs: pd.DataFrame, until: pd.Timestamp) -> pd.DataFrame:
    """Forget the jobs that came after the period."""
    known = jobs[tables.begin_of(jobs) <= until].reset_index(drop=True)
    known.attrs = dict(jobs.attrs)
    return known


def _groups(jobs: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    freq = _display_freq(settings)
    groups = usage_series(jobs, by=settings.by, freq=freq, value="gpus", until=settings.until, tz=settings.tz)
    groups["unique_id"] = groups["unique_id"].map(tables.written_names(jobs, settings.by)).astype(STRING)
    return groups


def _total(jobs: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    parts = [
        usage_series(
            jobs, by=None, freq=settings.freq, value=value, until=settings.until, tz=settings.tz, partial=False
        ).assign(unique_id=name)
        for name, value in ((MEAN, "gpus"), (PEAK, "gpus_peak"))
    ]
    total = pd.concat(parts, ignore_index=True)
    total.attrs = dict(parts[0].attrs) | {"value": "gpus"}
    return total


def _display_freq(settings: Settings) -> str:
    """Longer bins than asked for, where the area chart would have more of them than pixels."""
    start = pd.Timestamp("2001-01-01")
    finer = start + pd.tseries.frequencies.to_offset(settings.freq) < start + pd.Timedelta("1D")
    return "D" if finer else settings.freq
