"""Sentences on what changed since an earlier report, and on how its forecast did."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from gpudemand.report.history.comparison import past_score
from gpudemand.report.history.earlier import EarlierReport
from gpudemand.report.page.formats import format_date, format_share
from gpudemand.units import format_count, format_number_of


def since_sentences(tables: Mapping[str, pd.DataFrame], earlier: EarlierReport, changed: list[str]) -> list[str]:
    """Sentences on the requirement then and now, on settings that changed, and on the earlier forecast.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        ``since_requirement`` and ``since_scores`` are read.
    earlier : EarlierReport
    changed : list of str
        Names of the settings that differ.

    Returns
    -------
    list of str
    """
    result = [requirement_then_and_now(tables["since_requirement"])]
    if changed:
        result.append(f"Both are not alike in their settings, which matters: {', '.join(changed).replace('_', ' ')}.")
    if "since_scores" in tables:
        result.append(past_forecast_sentence(tables["since_scores"], earlier))
    return result


def requirement_then_and_now(table: pd.DataFrame) -> str:
    """The requirement of both reports, and in the bins that both plan for."""
    then, now = table.iloc[0], table.iloc[1]
    text = (
        f"The report on the log to {format_date(then['log_end'])} required {format_number_of('GPU', then['required'])} "
        f"by {format_date(then['plan_end'])}; this one requires {format_count(now['required'])} by "
        f"{format_date(now['plan_end'])}"
    )
    if pd.isna(then["required_both"]):
        return f"{text}."
    both = f"{format_count(then['required_both'])} then and {format_count(now['required_both'])} now"
    return f"{text}. For the time that both plan for it is {both}."


def past_forecast_sentence(scores: pd.DataFrame, earlier: EarlierReport) -> str:
    """The earlier forecast of the mean beside the actual values, and beside the last value.

    Examples
    --------
    >>> from pathlib import Path
    >>> row = {"series": "mean", "model": "ETS", "bins": 30, "mean_forecast": 96.0, "mean_actual": 100.0}
    >>> own = {**row, "wape_since": 0.08, "bias": -0.04, "coverage_80": 0.8, "coverage_95": 0.9}
    >>> naive = {**row, "model": "last value", "wape_since": 0.1}
    >>> earlier = EarlierReport(Path(), {"headline": {"log_end": "2026-03-01T00:00:00+00:00"}})
    >>> past_forecast_sentence(pd.DataFrame([own, naive]), earlier)
    'Of the 30 bins since 1 Mar 2026 a mean of 96 GPUs was forecast, and 100 came: ...'
    """
    own, naive = past_score(scores)
    inside = (format_share(own[f"coverage_{level}"]) for level in (80, 95))
    return (
        f"Of the {format_number_of('bin', own['bins'])} since {format_date(earlier.log_end)} a mean of "
        f"{format_number_of('GPU', own['mean_forecast'])} was forecast, and {format_count(own['mean_actual'])} came: "
        f"WAPE {format_share(own['wape_since'], 1)} (last value {format_share(naive['wape_since'], 1)}), bias "
        f"{format_share(own['bias'], 1)}; the 80% interval contained {next(inside)} of them, the 95% interval "
        f"{next(inside)}."
    )
