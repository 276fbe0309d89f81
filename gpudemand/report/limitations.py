"""What a report does not know: limitations of the log, the forecast and the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from gpudemand._validation import Skipped
from gpudemand.forecast.events import DOWN, find_outages
from gpudemand.planning.need import FIT_LEADS
from gpudemand.report.tables import (
    format_date,
    format_days,
    format_share,
    format_time,
)
from gpudemand.study.scenarios import Scenarios
from gpudemand.study.selection import BacktestWindows
from gpudemand.study.usage_tables import MEAN
from gpudemand.units import format_count, format_number_of, parse_duration
from gpudemand.usage.bins import bin_ends

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
    """Caveats that its summary does not say, from the headline, the tables by their stems, and what was skipped."""
    log = tables["log"].iloc[0]
    sentences = [
        _KINDS.get(numbers["data_kind"], "The kind of the data is not stated."),
        _backtest(numbers, windows),
        _undercoverage(numbers),
        _rejected(log),
        _gaps(tables.get("gaps", pd.DataFrame())),
        *_unknown(log),
        _censored(wanted="wanted" in tables),
        _availability(numbers),
        _stuck(numbers["stuck_jobs"]),
        _long_lead(numbers, log),
        "Events without precedent in the log (a new team, a new model family) are not forecast.",
        *_skipped(skipped),
        *(f"Scenario skipped: {reason}" for reason in (scenarios.skipped if scenarios else {}).values()),
        "" if pd.isna(log["jobs"]) else _NO_JOB_DEMAND,
    ]
    return [*filter(None, sentences)]


def _backtest(numbers: dict[str, Any], windows: BacktestWindows) -> str:
    evaluated, horizon = windows.n_evaluation, numbers["horizon"]
    chosen = (
        f"the model was selected on {format_number_of('window', windows.n_selection)} of {horizon} bins and evaluated "
        f"on {format_number_of('later window', evaluated)}"
    )
    if windows.step is not None:
        chosen = (
            "the log is shorter than four horizons, which leaves no window to select a model on; the default one was "
            f"evaluated on {format_number_of('window', evaluated)} of {horizon} bins that begin {windows.step} bins "
            "apart, so they overlap and tell less than as many separate ones"
        )
    return (
        f"Backtest: {chosen}; of their {format_count(evaluated * horizon)} bins the 80% interval contained "
        f"{format_share(numbers['coverage_80'])} and the 95% interval {format_share(numbers['coverage_95'])}."
    )


def _undercoverage(numbers: dict[str, Any]) -> str:
    coverage = numbers["coverage_95"]
    if coverage is None or coverage >= 0.95 - _COVERAGE_TOLERANCE:
        return ""
    return (
        f"The intervals are too narrow: the 95% interval contained {format_share(coverage)}. Plan at a higher service "
        "level."
    )


def _rejected(log: pd.Series) -> str:
    if pd.isna(log["jobs"]):
        return ""
    if not log["rejected"]:
        return "No row of the log was rejected."
    total = log["rejected"] + log["jobs"]
    share = format_share(log["rejected"] / total, 1)
    return (
        f"{format_count(log['rejected'])} of {format_count(total)} rows ({share}) were rejected; see the reasons above."
    )


def _skipped(skipped: Skipped) -> list[str]:
    """A sentence per reason, with all sections that it is the reason for."""
    titles = {reason: [_TITLES[name] for name in _TITLES if skipped.get(name) == reason] for reason in skipped.values()}
    return [f"{', '.join(names)} skipped: {reason}" for reason, names in titles.items() if names]


def _gaps(gaps: pd.DataFrame) -> str:
    if gaps.empty:
        return ""
    first = gaps.iloc[0]
    longest = f"{format_time(first['begin'])} to {format_time(first['end'])}"
    hours = f"{format_count(gaps['hours'].sum(), 1)} hours in {format_count(len(gaps))} gap{'s' * (len(gaps) > 1)}"
    return (
        f"Nothing was recorded for {hours}, the longest from {longest}: they count as unknown, not as zero, and a "
        "bin of which less than half was recorded is left out."
    )


def _unknown(log: pd.Series) -> list[str]:
    texts = {
        "unknown_gpus": "without a stated number of GPUs: counted as none",
        "unknown_end": "finished at an unknown time: counted as zero time",
    }
    return [f"{format_number_of('job', log[name])} {text}." for name, text in texts.items() if log.get(name)]


def _censored(*, wanted: bool) -> str:
    """Demand that no log knows; `wanted`: whether it tells what waited."""
    if wanted:
        return "What was not submitted because the cluster was full (censored demand) is not known."
    return (
        "GPUs held are satisfied demand: what waited, or was not submitted, because the cluster was full (censored "
        "demand) is not in them."
    )


def _availability(numbers: dict[str, Any]) -> str:
    share = numbers["availability"]
    return "" if share == 1 else f"Of the GPUs installed and required, {format_share(share)} are counted on, as stated."


def _stuck(jobs: int) -> str:
    """Jobs that do not count among those that need GPUs.

    >>> _stuck(0), _stuck(1)
    ('', '1 job that has waited for longer than any that started is left out of what is needed: held back, ...')
    """
    if not jobs:
        return ""
    has, is_ = ("has", "is") if jobs == 1 else ("have", "are")
    return (
        f"{format_number_of('job', jobs)} that {has} waited for longer than any that started {is_} left out of what is "
        "needed: held back, or waiting for what is no GPU."
    )


def short_horizon(numbers: dict[str, Any]) -> str:
    """Warn of a horizon that ends before an order arrives."""
    last, begin = (pd.Timestamp(numbers[name]).tz_localize(None) for name in ("plan_end", "log_end"))
    end = bin_ends(pd.DatetimeIndex([last]), numbers["freq"])[0]
    if end >= begin + parse_duration(numbers["lead_time"]):
        return ""
    return (
        f"The forecast ends on {format_date(end - pd.Timedelta(1))}, before GPUs ordered as the log ends arrive (lead "
        f"time {format_days(numbers['lead_time'])}). A forecast up to then needs a longer horizon, and a log twice as "
        "long as that."
    )


def _long_lead(numbers: dict[str, Any], log: pd.Series) -> str:
    most = max(FIT_LEADS["series" if pd.isna(log["jobs"]) else "jobs"])
    if parse_duration(numbers["lead_time"]) <= pd.Timedelta(days=most):
        return ""
    return (
        f"How needs change over a lead of {format_days(numbers['lead_time'])} no log has told: the range of the GPUs "
        f"required is about that of {most} days, and likely too narrow."
    )


def times_without_use(numbers: dict[str, Any], tables: Mapping[str, pd.DataFrame], *, ended: bool = False) -> list[str]:
    """Sentences on the end of the log and on times before it, from the headline and the tables of a report.

    `ended`: whether another sentence says that the log ends before the period does.
    """
    silence = "" if ended else silent_end(numbers, tables.get("usage_shares"))
    return [*filter(None, (silence, without_use(_held(tables), ended=ended or bool(silence))))]


def silent_end(numbers: dict[str, Any], shares: pd.DataFrame | None) -> str:
    """Warn where the period ends more than a week after the last use, as a later `until` than the log's end makes it.

    >>> shares = pd.DataFrame({"last_use": pd.to_datetime(["2026-03-02"], utc=True)})
    >>> silent_end({"log_end": "2026-06-30T00:00:00+00:00"}, shares)
    'The last use of a GPU was on 2 Mar 2026; the 120 days after it count as without demand.'
    """
    if shares is None or pd.isna(last := shares.get("last_use", pd.Series(pd.NaT)).max()):
        return ""
    days = (pd.Timestamp(numbers["log_end"]) - last).days
    if days <= 7:
        return ""
    return f"The last use of a GPU was on {format_date(last)}; the {days} days after it count as without demand."


def _held(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
    """Mean GPUs held per bin: ``ds``, ``y``; None without usage."""
    if "wanted" in tables:
        return tables["wanted"].rename(columns={"held": "y"})[["ds", "y"]]
    usage = tables.get("usage")
    return None if usage is None else usage.loc[usage["unique_id"] == MEAN, ["ds", "y"]]


def without_use(held: pd.DataFrame | None, *, ended: bool = False) -> str:
    """Say when next to no GPU was held for more than three days, which a closure or a gap in the record makes.

    `held`: mean GPUs per bin (``ds``, ``y``). `ended`: whether another sentence says so of the end.

    >>> ds = pd.date_range("2026-03-01", periods=40, tz="UTC")
    >>> held = pd.DataFrame({"ds": ds, "y": 90.0})
    >>> held.loc[30:35, "y"] = 0.0
    >>> print(without_use(held))
    Next to no GPU was held from 31 Mar 2026 to 5 Apr 2026: 6 days that count as without demand. Listed as an event \
(events), a closure is not taken for the usual level.
    """
    if held is None:
        return ""
    found = find_outages(held.assign(unique_id="held"))
    found = found[found["kind"].isin(["outage", "end"][: 2 - ended]) & (found["share"] < DOWN)]
    # A log holds little before jobs are recorded that began earlier; a long weekend is no closure.
    found = found[(found["start"] > held["ds"].min()) & (found["end"] - found["start"] > pd.Timedelta("3D"))]
    spans = [(row.start, row.end - pd.Timedelta("1h"), (row.end - row.start).days) for row in found.itertuples()]
    if not spans:
        return ""
    first, last, days = max(spans, key=lambda span: span[2])
    longest = f", the longest of {len(spans)} such times" if len(spans) > 1 else ""
    return (
        f"Next to no GPU was held from {format_date(first)} to {format_date(last)}{longest}: {days} days that count as "
        "without demand. Listed as an event (events), a closure is not taken for the usual level."
    )
