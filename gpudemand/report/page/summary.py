"""The first half-page: the question answered in a few sentences, each from numbers that a table below holds."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from gpudemand.report.analysis.gpu_types import ALL, Types, first_short
from gpudemand.report.analysis.parts import Parts
from gpudemand.report.analysis.scenarios import BASE, Scenarios
from gpudemand.report.page import sentences
from gpudemand.units import format_count
from gpudemand.usage.bins import bin_name

_PARTS = {"segment": "segment", "group": "group", "cluster": "cluster", "gpu_type": "GPU type"}
_HELD = {"mean": "a mean of {n} GPUs is expected to be held", "peak": "{n} GPUs are expected to be held at once"}


def brief(
    numbers: dict[str, Any], parts: Parts | None, scenarios: Scenarios | None, types: Types | None = None
) -> list[str]:
    """Answer the question of the page in a few sentences.

    Parameters
    ----------
    numbers : dict
        The headline with the numbers on risk.
    parts : Parts or None
    scenarios : Scenarios or None
    types : Types, optional

    Returns
    -------
    list of str
    """
    result = [sentences.basis(numbers), demand(numbers), risk(numbers)]
    if types is not None:
        result.append(which(types.table, numbers["service_level"]))
    if parts is not None:
        result.append(who_moves(parts))
    if scenarios is not None and len(scenarios.table) > 1:
        result.append(what_if(scenarios.table))
    return [*result, sentences.model(numbers)]


def demand(numbers: dict[str, Any]) -> str:
    """Say how much demand is expected in the bin that requires most, with its interval."""
    held = _HELD[numbers["basis"]].format(n=format_count(numbers["busiest_median"]))
    low, high = format_count(numbers["busiest_low_95"]), format_count(numbers["busiest_high_95"])
    return (
        f"The {bin_name(numbers['freq'])} that requires most is that of {sentences.moment(numbers['busiest'])}: "
        f"{held}, between {low} and {high} with a probability of 95%."
    )


def risk(numbers: dict[str, Any]) -> str:
    """Say how many GPUs are enough with which probability, and how often those that are there are not."""
    counts = {p: format_count(numbers[f"required_p{p}"]) for p in (50, 90, 95, 99)}
    there = "installed" if numbers["installed_from"] == "given" else "held so far"
    return (
        f"{counts[50]} GPUs are enough with a probability of 50%, {counts[90]} with 90%, {counts[95]} with 95% "
        f"and {counts[99]} with 99%. Demand exceeds the {format_count(numbers['installed'])} {there} for "
        f"{sentences.percent(numbers['share_over'], 1)} of the time ahead."
    )


def who_moves(parts: Parts) -> str:
    """Name the part that uses most and the one whose use changes most."""
    rows = parts.table.iloc[1:]
    what, total = _PARTS[parts.by], float(parts.table["next"].iloc[0])
    largest: Any = rows.loc[rows["next"].idxmax()]
    moving: Any = rows.loc[(rows["next"] - rows["last"]).abs().idxmax()]
    if not total:
        return f"No {what} is expected to hold a GPU."
    share = sentences.percent(largest["next"] / total)
    change = f"from {format_count(moving['last'])} to {format_count(moving['next'])} GPUs"
    begin = f"Of the mean demand ahead, {what} {sentences.short(largest['part'])} takes {share}"
    if abs(moving["next"] - moving["last"]) < 1:
        return f"{begin}; no {what} changes by a whole GPU."
    if moving["part"] == largest["part"]:
        return f"{begin}, and it changes most, {change}."
    return f"{begin}; what changes most is {what} {sentences.short(moving['part'])}, {change}."


def which(table: pd.DataFrame, service_level: float) -> str:
    """Say how many of each type of GPU are required, and which type runs short first."""
    rows = table[table["gpu_type"] != ALL]
    told = ", ".join(
        f"{sentences.short(row.gpu_type)} {format_count(row.required)}{_short(row)}" for row in rows.itertuples()
    )
    needed = (
        f"GPUs required by type, each type a pool of its own, at the {sentences.level(service_level)} service level: "
        f"{told}; together {format_count(rows['required'].sum())}"
    )
    first = first_short(table)
    if first is None:
        return f"{needed}."
    return (
        f"{needed}; {sentences.short(first['gpu_type'])} runs short first, on {sentences.day(first['first_crossing'])}."
    )


def _short(row: Any) -> str:
    return f" ({format_count(math.ceil(row.shortfall))} short)" if row.shortfall > 0 else ""


def what_if(table: pd.DataFrame) -> str:
    """Say what the scenarios require."""
    rows = table[table["scenario"] != BASE]
    told = [f"{sentences.short(row.scenario, 80)}: {format_count(row.required)}" for row in rows.itertuples()]
    return f"What if, instead of {format_count(table['required'].iloc[0])} GPUs: {'; '.join(told)}."
