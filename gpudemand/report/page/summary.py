"""Summary at the top of the page: a few sentences, each from numbers of a table below."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from gpudemand.report.analysis.gpu_types import ALL, GpuTypePlans, first_shortfall
from gpudemand.report.analysis.parts import Parts
from gpudemand.report.analysis.scenarios import BASE, Scenarios
from gpudemand.report.analysis.waits import Waits
from gpudemand.report.page import sentences
from gpudemand.report.page.formats import format_date, format_level, format_share, format_time, truncate
from gpudemand.units import format_count
from gpudemand.usage.bins import bin_name

_PART_NOUNS = {"segment": "segment", "group": "group", "cluster": "cluster", "gpu_type": "GPU type"}
_HELD = {
    "mean": "the median forecast is a mean of {n} GPUs held",
    "peak": "the median forecast is {n} GPUs held at once",
}


def summarize(
    numbers: dict[str, Any],
    parts: Parts | None,
    scenarios: Scenarios | None,
    types: GpuTypePlans | None = None,
    waits: Waits | None = None,
) -> list[str]:
    """Sentences of the summary.

    Parameters
    ----------
    numbers : dict
        The headline with the numbers on risk.
    parts : Parts or None
    scenarios : Scenarios or None
    types : GpuTypePlans, optional
    waits : Waits, optional

    Returns
    -------
    list of str
    """
    result = [sentences.basis(numbers), demand_sentence(numbers), risk_sentence(numbers)]
    if waits is not None:
        result.append(sentences.waits(waits.table.iloc[0]))
    if types is not None:
        result.append(gpu_types_sentence(types.table, numbers["service_level"]))
    if parts is not None:
        result.append(parts_sentence(parts))
    if scenarios is not None and len(scenarios.table) > 1:
        result.append(scenarios_sentence(scenarios.table))
    return [*result, sentences.model_accuracy(numbers)]


def demand_sentence(numbers: dict[str, Any]) -> str:
    """Forecast of the bin with the largest requirement, with its 95% interval."""
    held = _HELD[numbers["basis"]].format(n=format_count(numbers["peak_bin_median"]))
    low, high = format_count(numbers["peak_bin_lo_95"]), format_count(numbers["peak_bin_hi_95"])
    return (
        f"The {bin_name(numbers['freq'])} with the largest requirement is {format_time(numbers['peak_bin'])}: {held}, "
        f"the 95% interval {low} to {high}."
    )


def risk_sentence(numbers: dict[str, Any]) -> str:
    """GPUs required by probability, and the share of bins whose mean, or peak, is above the GPUs."""
    counts = {p: format_count(numbers[f"required_p{p}"]) for p in (50, 90, 95, 99)}
    bins = f"{bin_name(numbers['freq'])}s ahead, by their {numbers['basis']}"
    what = "installed" if numbers["installed_from"] == "given" else "held so far"
    return (
        f"{counts[50]} GPUs suffice with probability 50%, {counts[90]} with 90%, {counts[95]} with 95% and "
        f"{counts[99]} with 99%. Demand is expected to exceed the {format_count(numbers['installed'])} GPUs {what} on "
        f"{format_share(numbers['share_over'], 1)} of the {bins}."
    )


def parts_sentence(parts: Parts) -> str:
    """The part with the largest forecast and the one with the largest change."""
    rows = parts.table.iloc[1:]
    noun, total = _PART_NOUNS[parts.by], float(parts.table["next"].iloc[0])
    largest: Any = rows.loc[rows["next"].idxmax()]
    changing: Any = rows.loc[(rows["next"] - rows["last"]).abs().idxmax()]
    if not total:
        return f"No {noun} is forecast to hold a GPU."
    change = f"from {format_count(changing['last'])} to {format_count(changing['next'])} GPUs"
    text = f"{noun} {truncate(largest['part'])} is {format_share(largest['next'] / total)} of the mean demand forecast"
    text = text[0].upper() + text[1:]
    if abs(changing["next"] - changing["last"]) < 1:
        return f"{text}; no {noun} changes by a whole GPU."
    if changing["part"] == largest["part"]:
        return f"{text}, and has the largest change, {change}."
    return f"{text}; the largest change is that of {noun} {truncate(changing['part'])}, {change}."


def gpu_types_sentence(table: pd.DataFrame, service_level: float) -> str:
    """GPUs required by type, and the first type to run short."""
    rows = table[table["gpu_type"] != ALL]
    by_type = ", ".join(
        f"{truncate(row.gpu_type)} {format_count(row.required)}"
        + (f" ({format_count(math.ceil(row.shortfall))} short)" if row.shortfall > 0 else "")
        for row in rows.itertuples()
    )
    text = (
        f"GPUs required by type, each a pool of its own, at the {format_level(service_level)} service level: "
        f"{by_type}; {format_count(rows['required'].sum())} in total"
    )
    first = first_shortfall(table)
    if first is None:
        return f"{text}."
    return f"{text}; {truncate(first['gpu_type'])} runs short first, on {format_date(first['first_crossing'])}."


def scenarios_sentence(table: pd.DataFrame) -> str:
    """GPUs required in each scenario."""
    rows = table[table["scenario"] != BASE]
    required = [f"{truncate(row.scenario, 80)}: {format_count(row.required)}" for row in rows.itertuples()]
    return f"GPUs required in scenarios (base case {format_count(table['required'].iloc[0])}): {'; '.join(required)}."
