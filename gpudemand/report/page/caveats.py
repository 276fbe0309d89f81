"""How far to trust the answer: what a reader should know before believing it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from gpudemand.report.analysis.scenarios import Scenarios
from gpudemand.report.analysis.selection import Windows
from gpudemand.report.analysis.skipped_sections import Gaps
from gpudemand.report.page.sentences import caution, model, percent, span
from gpudemand.units import format_count, parse_duration

_KINDS = {
    "measured": "The log was measured on a real cluster.",
    "public trace": "The log is a public trace of somebody else's cluster: it says how this kind of cluster behaves, "
    "not what yours will need.",
    "synthetic": "The log is synthetic: it shows what this report looks like, and no purchase should rest on it.",
}
#: What a section is called where the reader is told that it is missing.
_SECTIONS = {
    "segments": "Segments",
    "parts": "Forecast by part",
    "types": "Plan by type of GPU",
    "scenarios": "Scenarios",
    "money": "Money",
}
#: How far below its promise an interval may cover before the page says so.
_SLACK = 0.05


def trust(
    numbers: dict[str, Any],
    windows: Windows,
    tables: Mapping[str, pd.DataFrame],
    gaps: Gaps,
    scenarios: Scenarios | None = None,
) -> list[str]:
    """List what a reader should know before believing the answer.

    Parameters
    ----------
    numbers : dict
        The headline.
    windows : Windows
        How many windows chose and scored the model.
    tables : mapping of str to DataFrame
        ``log`` and ``past_plans`` are read.
    gaps : Gaps
        Sections that could not be made.
    scenarios : Scenarios, optional

    Returns
    -------
    list of str
    """
    log = tables["log"].iloc[0]
    scored = windows.score * numbers["horizon"]
    return [
        _KINDS.get(numbers["data_kind"], "Nobody said where the log comes from."),
        f"Backtest: {windows.choose} windows of {numbers['horizon']} bins chose the model and the last {windows.score} "
        f"scored it; of their {format_count(scored)} bins {percent(numbers['coverage_80'])} fell into the 80% interval "
        f"and {percent(numbers['coverage_95'])} into the 95% interval.",
        *_too_narrow(numbers),
        *_held(numbers, tables["past_plans"]),
        model(numbers),
        *caution(numbers),
        _rejected(log),
        *_unknown(log),
        "GPUs held are what ran. What users wanted and did not get, because the queue was long, is not in them: a full "
        "cluster hides demand.",
        *_beyond(numbers),
        "Events without a precedent in the log (a new team, a new model family) are in no forecast; add them by hand.",
        *_left_out(gaps, scenarios),
    ]


def _too_narrow(numbers: dict[str, Any]) -> list[str]:
    covered = numbers["coverage_95"]
    if covered is None or covered >= 0.95 - _SLACK:
        return []
    return [
        f"The intervals were too narrow there: {percent(covered)} where 95% were promised. Read P95 as less than it "
        "says, and add room."
    ]


def _held(numbers: dict[str, Any], plans: pd.DataFrame) -> list[str]:
    """Say whether plans of the past would have held, for the series that decides."""
    mine = plans[(plans["series"] == numbers["basis"]) & (plans["model"] == numbers["model"])]
    row: Any = mine.set_index("service_level").loc[0.95]
    if pd.isna(row["idle"]):
        return []
    return [
        f"A P95 plan made at the beginning of each scored window would have been enough in {percent(row['held'], 1)} "
        f"of its bins, with {percent(row['idle'], 1)} of demand bought and not needed, and {percent(row['short'], 1)} "
        "needed and not there."
    ]


def _left_out(gaps: Gaps, scenarios: Scenarios | None) -> list[str]:
    wanting = [f"{_SECTIONS[name]} left out: {why}" for name, why in gaps.items()]
    untried = [] if scenarios is None else [f"A scenario left out: {why}" for why in scenarios.gaps.values()]
    return [
        *wanting,
        *untried,
        "Left out by choice: the forecast from single jobs and their run times (JobDemandModel): it takes "
        "about as long as all the rest, and is at its best on the first day ahead.",
    ]


def _rejected(log: pd.Series) -> str:
    if not log["rejected"]:
        return "No row of the log was left out."
    read = log["rejected"] + log["jobs"]
    share = percent(log["rejected"] / read, 1)
    return (
        f"{format_count(log['rejected'])} of {format_count(read)} rows ({share}) were left out, for the reasons above."
    )


def _unknown(log: pd.Series) -> list[str]:
    facts = {
        "unknown_gpus": "do not say how many GPUs they had and count as none",
        "unknown_end": "finished at an unknown time and count as no time",
    }
    return [f"{format_count(log[name])} jobs {text}." for name, text in facts.items() if log[name]]


def _beyond(numbers: dict[str, Any]) -> list[str]:
    ahead = pd.Timestamp(numbers["plan_end"]) - pd.Timestamp(numbers["log_end"])
    if ahead >= parse_duration(numbers["lead_time"]):
        return []
    return [
        f"The forecast ends before GPUs ordered today would arrive ({span(numbers['lead_time'])}): it shows what to "
        "expect until then, not how many to order. A longer horizon shows that."
    ]
