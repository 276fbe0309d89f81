"""Caveats: data kind, calibration of the backtest, rejected rows, what the forecast does not cover."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from gpudemand._validation import Skipped
from gpudemand.report.page.formats import format_date, format_days, format_share, format_time
from gpudemand.report.page.sentences import accuracy_warning, model_accuracy
from gpudemand.stages.scenarios import Scenarios
from gpudemand.stages.sources.windows import BacktestWindows
from gpudemand.units import format_count, format_number_of, parse_duration

_KINDS = {
    "measured": "The log was measured on a real cluster.",
    "public trace": "The log is a public trace of another cluster: the numbers describe that cluster.",
    "synthetic": "The log is synthetic: the report is an example, not a basis for a purchase.",
}
_TITLES = {
    "segments": "User segments",
    "parts": "Forecast by part",
    "gpu_type_plans": "Plan by GPU type",
    "cluster_plans": "Plan by cluster",
    "scenarios": "Scenarios",
    "waits": "Waits",
    "peak": "Peak of GPUs held",
    "week": "Weekly profile",
    "wait_plan": "Plan for waits",
    "drivers": "Change",
    "orders": "Orders",
    "purchase_mix": "Costs",
    "since": "Comparison with an earlier report",
    "since_forecast": "Score of the earlier forecast",
    "since_drivers": "Change since the earlier report",
}
_NO_JOB_DEMAND = (
    "Not part of this report: the forecast from single jobs and their run times (JobDemandModel), which improves "
    "mainly the first day ahead."
)
#: Tolerance on the coverage of the 95% interval before the page warns.
_COVERAGE_TOLERANCE = 0.05


def caveats(
    numbers: dict[str, Any],
    windows: BacktestWindows,
    tables: Mapping[str, pd.DataFrame],
    skipped: Skipped,
    scenarios: Scenarios | None = None,
) -> list[str]:
    """List the caveats of a report.

    Parameters
    ----------
    numbers : dict
        The headline.
    windows : BacktestWindows
        Number of windows that selected and evaluated the model.
    tables : mapping of str to DataFrame
        ``log`` and ``plan_backtest`` are read.
    skipped : Skipped
        Sections that the log does not support.
    scenarios : Scenarios, optional

    Returns
    -------
    list of str
    """
    log = tables["log"].iloc[0]
    return [
        _KINDS.get(numbers["data_kind"], "The kind of the data is not stated."),
        _backtest(numbers, windows),
        *_undercoverage(numbers),
        *backtest_of_plans(numbers, tables["plan_backtest"]),
        model_accuracy(numbers),
        *accuracy_warning(numbers),
        *_rejected(log),
        *_gaps(tables.get("gaps", pd.DataFrame())),
        *_unknown(log),
        "GPUs held are satisfied demand. Demand of jobs that waited or were not submitted because the cluster was full "
        "(censored demand) is not in them.",
        *_availability(numbers),
        *short_horizon(numbers),
        "Events without precedent in the log (a new team, a new model family) are not forecast.",
        *_skipped(skipped),
        *(f"Scenario skipped: {reason}" for reason in (scenarios.skipped if scenarios else {}).values()),
        *([] if pd.isna(log["jobs"]) else [_NO_JOB_DEMAND]),
    ]


def _backtest(numbers: dict[str, Any], windows: BacktestWindows) -> str:
    n_bins, horizon = windows.n_evaluation * numbers["horizon"], numbers["horizon"]
    chosen = (
        f"the model was selected on {format_number_of('window', windows.n_selection)} of {horizon} bins and evaluated "
        f"on {format_number_of('later window', windows.n_evaluation)}"
    )
    if windows.step is not None:
        chosen = (
            "the log is shorter than four horizons, which leaves no window to select a model on; the default one was "
            f"evaluated on {format_number_of('window', windows.n_evaluation)} of {horizon} bins that begin "
            f"{windows.step} bins apart, so they overlap and tell less than as many separate ones"
        )
    coverage = (format_share(numbers[f"coverage_{level}"]) for level in (80, 95))
    return (
        f"Backtest: {chosen}; of their {format_count(n_bins)} bins the 80% interval contained {next(coverage)} and the "
        f"95% interval {next(coverage)}."
    )


def _undercoverage(numbers: dict[str, Any]) -> list[str]:
    coverage = numbers["coverage_95"]
    if coverage is None or coverage >= 0.95 - _COVERAGE_TOLERANCE:
        return []
    return [
        f"The intervals are too narrow: the 95% interval contained {format_share(coverage)}. Plan at a higher service "
        "level."
    ]


def backtest_of_plans(numbers: dict[str, Any], plans: pd.DataFrame) -> list[str]:
    """Sentence on the backtest of the P95 plan for the binding series; none where demand was zero."""
    series = "peak" if numbers["basis"] == "peak" else "mean"
    rows = plans[(plans["series"] == series) & (plans["model"] == numbers["model"])]
    row: Any = rows.set_index("service_level").loc[0.95]
    if pd.isna(row["idle"]):
        return []
    return [
        f"P95 plans for the {series} made at the beginning of each evaluation window would have sufficed in "
        f"{format_share(row['held'], 1)} of its bins; idle GPUs were {format_share(row['idle'], 1)} of demand, unmet "
        f"demand {format_share(row['short'], 1)}."
    ]


def _rejected(log: pd.Series) -> list[str]:
    if pd.isna(log["jobs"]):
        return []
    if not log["rejected"]:
        return ["No row of the log was rejected."]
    total = log["rejected"] + log["jobs"]
    share = format_share(log["rejected"] / total, 1)
    return [
        f"{format_count(log['rejected'])} of {format_count(total)} rows ({share}) were rejected; see the reasons above."
    ]


def _skipped(skipped: Skipped) -> list[str]:
    """A sentence per reason, with all sections that it is the reason for."""
    titles = {reason: [_TITLES[name] for name in _TITLES if skipped.get(name) == reason] for reason in skipped.values()}
    return [f"{', '.join(names)} skipped: {reason}" for reason, names in titles.items() if names]


def _gaps(gaps: pd.DataFrame) -> list[str]:
    if gaps.empty:
        return []
    first = gaps.iloc[0]
    longest = f"{format_time(first['begin'])} to {format_time(first['end'])}"
    hours = f"{format_count(gaps['hours'].sum(), 1)} hours in {format_count(len(gaps))} gap{'s' * (len(gaps) > 1)}"
    return [
        f"Nothing was recorded for {hours}, the longest from {longest}: they count as unknown, not as zero, and a "
        "bin of which less than half was recorded is left out."
    ]


def _unknown(log: pd.Series) -> list[str]:
    texts = {
        "unknown_gpus": "without a stated number of GPUs: counted as none",
        "unknown_end": "finished at an unknown time: counted as zero time",
        "unknown_start": "started at an unknown time: counted as held from the submission, so that more GPUs may seem "
        "held at once than there were",
    }
    return [f"{format_number_of('job', log[name])} {text}." for name, text in texts.items() if log.get(name)]


def _availability(numbers: dict[str, Any]) -> list[str]:
    share = numbers.get("availability") or 1.0
    if share == 1.0:
        return []
    return [
        f"A simulated queue gives the waits of the last eight weeks on {format_share(share)} of the GPUs installed: "
        "nodes are down, reserved or limited. The plan for waits counts on the same share of those to come."
    ]


def short_horizon(numbers: dict[str, Any]) -> list[str]:
    """Warn of a horizon that ends before an order arrives."""
    ahead = pd.Timestamp(numbers["plan_end"]) - pd.Timestamp(numbers["log_end"])
    if ahead >= parse_duration(numbers["lead_time"]):
        return []
    return [
        f"The forecast ends on {format_date(numbers['plan_end'])}, before GPUs ordered as the log ends arrive (lead "
        f"time {format_days(numbers['lead_time'])}). A forecast up to then needs a longer horizon, and a log twice as "
        "long as that."
    ]
