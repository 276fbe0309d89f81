"""Sentences on times in which nothing ran: closures, gaps of a record, and an end that is later than the log's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from gpudemand.forecast.outages import DOWN, find_outages
from gpudemand.report.page.formats import format_date
from gpudemand.stages.usage_tables import MEAN


def times_without_use(numbers: dict[str, Any], tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Sentences on the end of the log and on times before it, from the headline and the tables of a report."""
    silence = silent_end(numbers, tables.get("usage_shares"))
    return [*silence, *without_use(_held(tables), ended=bool(silence))]


def silent_end(numbers: dict[str, Any], shares: pd.DataFrame | None) -> list[str]:
    """Warn where the period ends more than a week after the last use, as a later `until` than the log's end makes it.

    Examples
    --------
    >>> shares = pd.DataFrame({"last_use": pd.to_datetime(["2026-03-02"], utc=True)})
    >>> silent_end({"log_end": "2026-06-30T00:00:00+00:00"}, shares)
    ['The last use of a GPU was on 2 Mar 2026; the 120 days after it count as without demand.']
    """
    if shares is None or pd.isna(last := shares.get("last_use", pd.Series(pd.NaT)).max()):
        return []
    days = (pd.Timestamp(numbers["log_end"]) - last).days
    if days <= 7:
        return []
    return [f"The last use of a GPU was on {format_date(last)}; the {days} days after it count as without demand."]


def _held(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
    """Mean GPUs held per bin: ``ds``, ``y``; None without usage."""
    if "wanted" in tables:
        return tables["wanted"].rename(columns={"held": "y"})[["ds", "y"]]
    usage = tables.get("usage")
    return None if usage is None else usage.loc[usage["unique_id"] == MEAN, ["ds", "y"]]


def without_use(held: pd.DataFrame | None, *, ended: bool = False) -> list[str]:
    """Say when next to no GPU was held for more than three days, which a closure or a gap in the record makes.

    Parameters
    ----------
    held : DataFrame or None
        ``ds``, ``y``: mean GPUs held per bin.
    ended : bool, default=False
        Whether another sentence says so of the end.

    Examples
    --------
    >>> ds = pd.date_range("2026-03-01", periods=40, tz="UTC")
    >>> held = pd.DataFrame({"ds": ds, "y": 90.0})
    >>> held.loc[30:35, "y"] = 0.0
    >>> print(*without_use(held))
    Next to no GPU was held from 31 Mar 2026 to 5 Apr 2026: 6 days that count as without demand. Listed as an event \
(events), a closure is not taken for the usual level.
    """
    if held is None:
        return []
    found = find_outages(held.assign(unique_id="held"))
    found = found[found["kind"].isin(["outage", "end"][: 2 - ended]) & (found["share"] < DOWN)]
    # A log holds little before jobs are recorded that began earlier; a long weekend is no closure.
    found = found[(found["start"] > held["ds"].min()) & (found["end"] - found["start"] > pd.Timedelta("3D"))]
    spans = [(row.start, row.end - pd.Timedelta("1h"), (row.end - row.start).days) for row in found.itertuples()]
    if not spans:
        return []
    first, last, days = max(spans, key=lambda span: span[2])
    longest = f", the longest of {len(spans)} such times" if len(spans) > 1 else ""
    return [
        f"Next to no GPU was held from {format_date(first)} to {format_date(last)}{longest}: {days} days that count as "
        "without demand. Listed as an event (events), a closure is not taken for the usual level."
    ]
