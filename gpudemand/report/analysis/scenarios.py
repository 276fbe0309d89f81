"""What if: growth, a departure, arrivals, each planned like the base case and put beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.planning import WhatIf
from gpudemand.planning.scenarios.changes import Change, Growth, MoreUsers, RemoveGroup
from gpudemand.report.analysis.requirement import Need, plan_need
from gpudemand.report.analysis.risk import dated
from gpudemand.report.analysis.settings import Settings
from gpudemand.report.analysis.skipped_sections import Gaps
from gpudemand.report.analysis.usage import MEAN, PEAK
from gpudemand.report.analysis.user_segments import Crowd

BASE = "as forecast"
_GROWTH, _ARRIVALS = 0.2, 10
#: Days of jobs that a change acts on.
_DAYS = 28


@dataclass(frozen=True)
class Scenarios:
    """Plans under changed circumstances.

    Parameters
    ----------
    table : DataFrame
        The base case, then a row a scenario: ``scenario``, ``required``, ``against_base`` (GPUs more), ``shortfall``,
        ``first_crossing``, ``order_by``, ``share_over`` (of the plan that decides).
    gaps : Gaps
        Scenarios that the log does not allow, each with a sentence.
    """

    table: pd.DataFrame
    gaps: Gaps


def try_scenarios(
    jobs: pd.DataFrame, forecast: pd.DataFrame, need: Need, crowd: Crowd | None, settings: Settings
) -> Scenarios:
    """Plan for 20 % growth, for the largest group leaving and for ten more users of the largest segment.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table; the last 28 days before the forecast stand for the work that changes.
    forecast : DataFrame
        Of the series ``mean`` and ``peak``.
    need : Need
        The plan without a change.
    crowd : Crowd or None
        Segments of the users, if there are any.
    settings : Settings

    Returns
    -------
    Scenarios

    Raises
    ------
    InputError
        If no job was submitted in the last 28 days.
    """
    what_ifs = {basis: _what_if(jobs, forecast, basis, need.installed) for basis in (MEAN, PEAK)}
    work, gaps = what_ifs[MEAN].workload, Gaps()
    rows = [_row(BASE, need, need)]
    for what, choose in (
        ("growth", _growth),
        ("departure", partial(_departure, work)),
        ("arrivals", partial(_arrivals, work, crowd)),
    ):
        found = gaps.attempt(what, choose)
        if found is not None:
            name, change = found
            changed = pd.concat(_changed(what_ifs, change), ignore_index=True)
            rows.append(_row(name, plan_need(changed, need.installed, settings), need))
    return Scenarios(dated(pd.DataFrame(rows).astype({"scenario": STRING}), forecast["ds"]), gaps)


def _what_if(jobs: pd.DataFrame, forecast: pd.DataFrame, basis: str, installed: float) -> WhatIf:
    # Both series are of the whole cluster, whatever they count.
    mine = forecast[forecast["unique_id"] == basis].assign(unique_id="total")
    try:
        return WhatIf(jobs, mine, installed=installed, days=_DAYS)
    except InputError as error:
        raise InputError(
            f"no job submitted in the {_DAYS} days before the forecast held a GPU, so there is no work to change."
        ) from error


def _changed(what_ifs: dict[str, WhatIf], change: Change) -> Iterator[pd.DataFrame]:
    for basis, what_if in what_ifs.items():
        yield what_if.changed_forecast(change).assign(unique_id=basis)


def _row(name: str, need: Need, base: Need) -> dict[str, object]:
    deciding = need.table.set_index("basis").loc[need.deciding]
    return {
        "scenario": name,
        "required": deciding["required"],
        "against_base": deciding["required"] - base.table["required"].max(),
        "shortfall": deciding["shortfall"],
        "first_crossing": need.first_crossing,
        "order_by": need.order_by,
        "share_over": deciding["share_over"],
    }


def _growth() -> tuple[str, Change]:
    return f"{100 * _GROWTH:.0f}% growth", Growth(1 + _GROWTH)


def _departure(work: pd.DataFrame) -> tuple[str, Change]:
    for column in ("group", "user"):
        if len(work[column].dropna().unique()) > 1:
            name = _largest(work, work[column])
            return f"{column} {name} leaves", RemoveGroup(name, by=column)
    raise InputError("the recent jobs name one group and one user at most, so nobody can leave and others stay.")


def _arrivals(work: pd.DataFrame, crowd: Crowd | None) -> tuple[str, Change]:
    if work["user"].isna().all():
        raise InputError("the recent jobs name no users, so it is not known what ten more would do.")
    if crowd is not None and len(crowd.profiles) > 1:
        segment_of = crowd.segment_of
        name = _largest(work, work["user"].astype(str).map(segment_of))
        return f"{_ARRIVALS} more users like segment {name}", MoreUsers(_ARRIVALS, name, by=segment_of)
    users = work["user"].dropna().astype(str)
    everyone = dict.fromkeys(users, "everyone")
    return f"{_ARRIVALS} more users like those there are", MoreUsers(_ARRIVALS, "everyone", by=everyone)


def _largest(work: pd.DataFrame, names: pd.Series) -> str:
    """Name with the most GPU-hours in the recent work."""
    hours = work["gpu_hours"].groupby(names).sum()
    if hours.empty:
        raise InputError("no user of a segment submitted a job recently, so it is not known what ten more would do.")
    return str(hours.idxmax())
