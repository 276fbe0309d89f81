"""Usage series and tables, as read by every section of the report."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from gpudemand._validation import InputError, Skipped
from gpudemand.forecast import longest_horizon
from gpudemand.stages import log_tables
from gpudemand.stages.sources.settings import Settings
from gpudemand.stages.sources.source import Source
from gpudemand.units import parse_duration
from gpudemand.usage.bins import bin_edges, parse_freq

#: Names of the two forecast series, the mean demand of a bin and the most GPUs held at once in it, and of the
#: requirement by a target for waits.
MEAN, PEAK, WAIT = "mean", "peak", "wait"
#: Name of the profile of the week among what is skipped.
HOURLY = "week"
#: From one look at the plan to the next.
_REVIEW = pd.Timedelta("28D")


@dataclass(frozen=True)
class UsageTables:
    """Usage series and tables of a job log.

    Parameters
    ----------
    total : DataFrame
        ``unique_id`` (``mean`` and ``peak``), ``ds``, ``y``, whole bins only: the mean of the GPUs wanted, or held
        where the log has no submit times, and the peak of the GPUs held, where it is known.
    held : DataFrame
        ``ds``, ``y``: mean of the GPUs held per bin, whole bins only.
    groups : DataFrame
        ``unique_id`` (user, group, ...), ``ds``, ``y``: mean GPUs held per day, or per bin where that is longer.
    hourly : DataFrame or None
        ``unique_id``, ``ds``, ``y``: mean GPUs held by all jobs per hour, where it is known.
    max_held : float
        Maximum of the GPUs held at once.
    tables : dict of str to DataFrame
        Those of `gpudemand.stages.log_tables`, by the stem of their files.
    """

    total: pd.DataFrame
    held: pd.DataFrame
    groups: pd.DataFrame
    hourly: pd.DataFrame | None
    max_held: float
    tables: dict[str, pd.DataFrame]


def compute_usage_tables(source: Source, skipped: Skipped | None = None) -> UsageTables:
    """Aggregate the usage of a source to series and summary tables.

    Parameters
    ----------
    source : Source
    skipped : Skipped, optional
        Gets the reason where peaks within a bin are not known.

    Returns
    -------
    UsageTables

    Raises
    ------
    InputError
        If no job held a GPU, or there is no name in the column ``by``.
    """
    freq, by = source.settings.freq, source.settings.by
    held = source.usage(None, freq, "gpus")
    max_held = log_tables.whole_gpus(source.most_held(None).max())
    if not max_held:
        raise InputError(
            "no job of this log held a GPU (gpus is 0 or unknown throughout); nothing to forecast. Of Slurm, "
            "`gpudemand pull slurm --command-only` shows a command whose output has the GPUs of jobs."
        )
    mean = held if source.demand == "gpus" else source.usage(None, freq, source.demand)
    series = {MEAN: mean}
    attempt = (Skipped() if skipped is None else skipped).attempt
    if (peak := attempt(PEAK, lambda: source.usage(None, freq, "gpus_peak"))) is not None:
        series[PEAK] = peak
    total = pd.concat([rows.assign(unique_id=name) for name, rows in series.items()], ignore_index=True)
    total.attrs = dict(mean.attrs)
    groups = source.usage(by, _display_freq(source.settings), "gpus", partial=True)
    hourly = attempt(HOURLY, lambda: source.usage(None, "h", "gpus"))
    return UsageTables(total, held, groups, hourly, max_held, log_tables.log_tables(source, held))


def held_and_wanted(usage: UsageTables) -> pd.DataFrame:
    """Mean GPUs per bin: ``ds``, ``held``, ``wanted``.

    Wanted by jobs is what would be held if each had started when it was submitted; by pods, what they hold or wait for.
    """
    wanted = usage.total[usage.total["unique_id"] == MEAN]
    both = usage.held[["ds", "y"]].merge(wanted[["ds", "y"]], on="ds", suffixes=("_held", "_wanted"))
    return both.set_axis(["ds", "held", "wanted"], axis=1)


def default_horizon(source: Source) -> int:
    """Bins of the lead time and of four weeks after it, or as many as the log bears.

    An order today is used from the lead time on, and looked at again a month later.
    """
    settings, begin = source.settings, source.begin
    until = pd.Timestamp(str(settings.until))
    edges = bin_edges(begin, max(begin, until), settings.freq, settings.tz)
    times = edges[: max(len(edges) - 1 - (until < edges[-1]), 2)]
    first = edges[min(len(times), len(edges) - 1)]
    ahead = first + parse_duration(settings.longest_lead_time) + _REVIEW
    wanted = len(pd.date_range(first, ahead, freq=parse_freq(settings.freq), inclusive="left"))
    return max(min(wanted, longest_horizon(pd.DataFrame({"unique_id": "", "ds": times, "y": 0.0}))), 1)


def hourly_demand(source: Source, settings: Settings) -> pd.DataFrame | None:
    """Demand by hour; None where bins are hours or shorter, where there is only one, or where hours are not known."""
    start = pd.Timestamp("2001-01-01")
    if settings.horizon < 2 or start + parse_freq(settings.freq) <= start + pd.Timedelta("1h"):
        return None
    return Skipped().attempt(HOURLY, lambda: source.usage(None, "h", source.demand).dropna(subset="y"))


def _display_freq(settings: Settings) -> str:
    """At least a day: an area chart of finer bins would have more of them than pixels."""
    start = pd.Timestamp("2001-01-01")
    finer = start + pd.tseries.frequencies.to_offset(settings.freq) < start + pd.Timedelta("1D")
    return "D" if finer else settings.freq
