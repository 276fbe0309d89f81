"""Tables and numbers as the page shows them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from gpudemand.planning.capacity import SHARES
from gpudemand.units import SECONDS_PER_HOUR, format_count, format_seconds, parse_duration, wall_clock


def format_date(value: Any) -> str:
    """Format a timestamp as a date.

    >>> format_date("2026-03-01T00:00:00+00:00")
    '1 Mar 2026'
    """
    time = pd.Timestamp(value)
    return f"{time.day} {time:%b %Y}"


def format_wait(seconds: float) -> str:
    """Format a simulated wait, of which parts of a second say nothing.

    >>> format_wait(0.0), format_wait(0.27), format_wait(90)
    ('0 s', 'under 1 s', '90 s')
    """
    return "under 1 s" if 0 < seconds < 1 else format_seconds(seconds)


def format_time(value: Any) -> str:
    """Format a timestamp as a date, with the time of day unless it is midnight.

    >>> format_time("2026-03-01T00:00:00+00:00"), format_time("2026-03-01T09:30:00+00:00")
    ('1 Mar 2026', '1 Mar 2026 09:30')
    """
    time = pd.Timestamp(value)
    clock = wall_clock(pd.DatetimeIndex([time]))[0]
    return format_date(time) if clock == clock.normalize() else f"{format_date(time)} {time:%H:%M}"


def format_share(share: float, digits: int = 0) -> str:
    """Format a share in percent.

    >>> format_share(0.0815, 1), format_share(float("nan"))
    ('8.2%', 'unknown')
    """
    return "unknown" if pd.isna(share) else f"{share:.{digits}%}"


def format_risk(risk: float) -> str:
    """Format a probability, of which less than a hundredth is not known.

    >>> format_risk(0.0004), format_risk(0.034)
    ('below 1%', '3%')
    """
    return "below 1%" if risk < 0.01 else format_share(risk)


def unbroken(text: str) -> str:
    """Join numbers and what they count, and the parts of dates, by spaces at which no line is broken.

    >>> unbroken("within 1 h from 1 Aug 2026 on").replace("\N{NO-BREAK SPACE}", "_")
    'within 1_h from 1_Aug_2026 on'
    """
    return _COUNTED.sub("\N{NO-BREAK SPACE}", text)


#: A space before a unit, a noun or a month after a number, and before the year after a month.
_COUNTED = re.compile(
    r"(?<=\d) (?=(?:GPUs?|h|min|s|days?|weeks?|jobs?|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec))\b)"
    r"|(?<=\d (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)) (?=\d{4})"
)


def format_level(share: float) -> str:
    """Format a probability that was given as a parameter, with all its digits.

    >>> format_level(0.95), format_level(0.975)
    ('95%', '97.5%')
    """
    return f"{100 * share:.4g}%"


def format_days(duration: str) -> str:
    """Format a duration in days.

    >>> format_days("90D"), format_days("36h"), format_days("36500D")
    ('90 days', '1.5 days', '36,500 days')
    """
    days = parse_duration(duration) / pd.Timedelta("1D")
    return f"{format_count(days) if days >= 100 else f'{days:.3g}'} day{'' if days == 1 else 's'}"


def truncate(value: object, width: int = 40) -> str:
    """Truncate text from a log or a parameter to `width` characters.

    >>> truncate("a name", 4), truncate("a name")
    ('a n…', 'a name')
    """
    text = str(value)
    return text if len(text) <= width else text[: width - 1] + "…"


MISSING = "\N{EN DASH}"


def _naive(value: Any) -> str:
    return "naive" if value else ""


def _hours(value: float) -> str:
    return format_wait(value * SECONDS_PER_HOUR)


def _duration(value: str) -> str:
    return format_seconds(parse_duration(value).total_seconds())


def _signed_count(value: float) -> str:
    return f"{value:+,.0f}" if round(value) else "0"


def signed_count(value: float) -> str:
    """Format a change of a count.

    >>> signed_count(123.4), signed_count(-1.26), signed_count(0.01)
    ('+123', '-1.3', '0')
    """
    return _signed_count(value) if abs(value) >= 100 or not round(value, 1) else f"{value:+.1f}"


def _small_count(value: float) -> str:
    return format_count(value, 0 if value >= 100 else 1)


def _level(value: float) -> str:
    return f"P{100 * value:.4g}"


_percent, _signed_percent, _signed = "{:.1%}".format, "{:+.1%}".format, "{:+.2f}".format
_two_decimals, _long_text = partial(format_count, digits=2), partial(truncate, width=80)
_Format = Callable[[Any], str]


def _as_named(form: _Format, *names: str) -> dict[str, tuple[str, _Format]]:
    """Columns of one format whose names are their headings."""
    return {name: (name.replace("_", " "), form) for name in names}


#: Heading and format by column. Text is aligned left, numbers right.
_COLUMNS: dict[str, tuple[str, _Format]] = {
    **_as_named(truncate, "reason", "user", "group", "cluster", "kind", "series", "model", "basis"),
    **_as_named(truncate, "segment", "part", "best_naive", "event", "partition", "qos", "namespace", "node", "total"),
    **_as_named(format_count, "rows", "jobs", "bins", "largest", "of", "installed"),
    **_as_named(
        format_count, "required", "shortfall", "to_order", "users", "idle_days", "reserve", "cost", "bins_ahead"
    ),
    **_as_named(format_count, "plan", "need", "rule"),
    **_as_named(truncate, "programme"),
    **_as_named(format_count, "runs"),
    **_as_named(_percent, "utilization", "cumulative_share", "completed", "target_utilization"),
    **_as_named(format_time, "begin", "end", "first_crossing"),
    **_as_named(format_date, "last_use", "in_service", "first_ahead", "origin", "order_by", "order_arrives"),
    **_as_named(_signed_percent, "bias", "change"),
    **_as_named(_level, "probability"),
    "gpu_type": ("GPU type", truncate),
    "gpu_share": ("share of a GPU", _percent),
    "measured": ("with known utilization", format_count),
    "hours": ("hours", _small_count),
    "gpu_hours": ("GPU-hours", format_count),
    "run_gpus": ("GPUs of a run", format_count),
    "run_hours": ("hours of a run", _small_count),
    "run_hours-lo-90": ("at least", _small_count),
    "run_hours-hi-90": ("at most", _small_count),
    **_as_named(truncate, "option", "against"),
    "to_buy": ("GPUs to buy", format_count),
    "to_buy-lo-90": ("5%", format_count),
    "to_buy-hi-90": ("95%", format_count),
    "run_time": ("run time there", _two_decimals),
    "run_time-lo-90": ("its 5%", _two_decimals),
    "run_time-hi-90": ("its 95%", _two_decimals),
    "input": ("changed", truncate),
    "cost-low": ("cost at the lower end", format_count),
    "cost-high": ("at the upper end", format_count),
    "late_share": ("jobs late", _percent),
    "rented_gpu_hours": ("GPU-hours rented a year", format_count),
    "energy_mwh": ("MWh a year", format_count),
    "cost_year": ("cost a year", format_count),
    "cost_year-lo-90": ("at least", format_count),
    "cost_year-hi-90": ("at most", format_count),
    "cost_gpu_hour": ("cost of a GPU-hour of work", _two_decimals),
    "work": ("times the work", _two_decimals),
    "price": ("price of one below", _two_decimals),
    "known": ("if known", truncate),
    "required_lo": ("GPUs, 5%", format_count),
    "required_hi": ("GPUs, 95%", format_count),
    "range_share": ("share of the range", _percent),
    "share": ("share of GPU-hours", _percent),
    "median_wait_h": ("median wait", _hours),
    "mean_wait_h": ("mean wait", _hours),
    "order": ("GPUs ordered", format_count),
    "risk": ("risk", format_risk),
    "step": ("step", _long_text),
    "peak_utilization": ("largest need over installed", _percent),
    "wait": ("start within", _duration),
    "required_80": ("80% of the jobs", format_count),
    "required_90": ("90%", format_count),
    "required_95": ("95%", format_count),
    "size": ("GPUs of the job", truncate),
    "p95_wait_h": ("95% wait at most", _hours),
    "share_over_1h": ("over an hour", _percent),
    "waited_gpu_hours": ("GPU-hours waited", format_count),
    "waiting": ("waiting at the end", format_count),
    "gave_up": ("cancelled while waiting", format_count),
    "log_end": ("log to", format_date),
    "mean_forecast": ("GPUs forecast", _small_count),
    "mean_actual": ("GPUs, actual", _small_count),
    "wape_since": ("WAPE", _percent),
    "gpus_peak": ("peak held", format_count),
    "naive": ("kind", _naive),
    "wape_selection": ("WAPE, selection", _percent),
    "wape": ("WAPE, evaluation", _percent),
    "rmsse": ("RMSSE", _two_decimals),
    "coverage_80": ("80% coverage", _percent),
    "coverage_95": ("95% coverage", _percent),
    "share_over": ("time with too few", _percent),
    "active_share": ("active days", _percent),
    "span_share": ("active span", _percent),
    "weekday_excess": ("weekdays only", _percent),
    "trend": ("trend", _signed),
    "ratio": ("observed over predicted", _two_decimals),
    "low": ("at least", _two_decimals),
    "high": ("at most", _two_decimals),
    "last": ("GPUs, last horizon", _small_count),
    "next": ("GPUs, next horizon", _small_count),
    "width_80": ("width of 80%", _small_count),
    "best_naive_wape": ("WAPE, best naive", _percent),
    "required_both": ("required for this report's weeks", format_count),
    "required_mean": ("required, mean", format_count),
    "required_peak": ("required, peak", format_count),
    "required_wait": ("required, waits", format_count),
    "break_even_share": ("break-even share", _percent),
    "on_demand_gpu_hours": ("on-demand GPU-hours", format_count),
    "order_on": ("ordered on", format_date),
    "idle_share": ("GPUs idle", _percent),
    "unmet_share": ("demand unmet", _percent),
    "driver": ("change by", _long_text),
    "count": ("names", format_count),
    "before": ("GPUs before", _small_count),
    "after": ("GPUs after", _small_count),
    "change_gpus": ("change", signed_count),
    "most": ("largest change", truncate),
    "gpus": ("GPUs", format_count),
    "share_in_time": ("in time", _percent),
    "p_met": ("target met", _percent),
    "mean_wait_s": ("mean wait", format_wait),
    "mean_wait_s-hi-80": ("mean wait, P90", format_wait),
    "saved_hours": ("next 8 GPUs save, hours a week", format_count),
    "cost_reserved": ("all reserved", format_count),
    "cost_on_demand": ("all on demand", format_count),
    "scenario": ("scenario", _long_text),
    "change_from_base": ("change from base", _signed_count),
    "bins_past": ("bins so far", format_count),
    "effect": ("change of demand", _signed_percent),
    "effect_from": ("from", truncate),
    **{f"under_{limit}": (f"under {limit}%", format_count) for limit in (5, 20, 50)},
    **{f"cost_under_{limit}": (f"cost, under {limit}%", format_count) for limit in (5, 20, 50)},
    **{f"required_{share}": (share.upper(), format_count) for share in SHARES},
}
_LEFT = (truncate, _long_text, _naive, _level)


#: What a table shows, for those who do not see where it stands.
_CAPTIONS = {
    "rejected": "Rejected rows by reason",
    "gaps": "Periods in which nothing was recorded",
    "usage_shares": "GPU-hours by name, the largest first",
    "concentration": "Share of the largest in the GPU-hours",
    "gpu_types": "Usage by GPU type",
    "slices": "Usage by parts of GPUs",
    "waits": "Waits by GPUs of the job",
    "segments": "Segments of users",
    "models": "Errors of each forecasting method",
    "events": "Events and their effects",
    "parts": "Forecast by part",
    "run_time_ratios": "Observed over predicted run times",
    "programmes": "Programmes",
    "order_range": "What the GPUs needed depend on",
    "requirement_steps": "How the requirement comes about",
    "periods": "Requirement by period",
    "plan_summary": "Capacity plans, for the mean and for the target",
    "targets": "GPUs required for other targets for waits",
    "wait_plan": "Waits by number of GPUs",
    "risk": "GPUs required by probability",
    "cluster_plans": "Plans by cluster",
    "gpu_type_plans": "Plans by GPU type",
    "purchases": "Purchases compared",
    "break_even": "Where another purchase costs less",
    "purchase_mix": "Costs of reserved and on-demand GPUs",
    "orders": "What no order, one now and one later lead to",
    "order_backtest": "Plans at earlier times against what was needed",
    "drivers": "Change of demand by what drives it",
    "since_requirement": "Requirement then and now",
    "since_scores": "Errors of the earlier forecast",
    "since_drivers": "Change of demand since the earlier report",
    "scenarios": "GPUs required by scenario",
}


@dataclass(frozen=True)
class FormattedTable:
    """Table as text; `name`: stem of its files, `left`: columns aligned left, `n_hidden`: rows in the files only."""

    name: str
    headings: list[str]
    left: list[bool]
    rows: list[list[str]]
    n_hidden: int

    @property
    def caption(self) -> str:
        """What the table shows."""
        return _CAPTIONS.get(self.name) or self.name.replace("idle_", "GPU-hours at little utilization by ")

    @property
    def narrow(self) -> bool:
        """Whether the table has too few columns for the width of the page."""
        return len(self.headings) <= 5


def format_table(
    name: str, frame: pd.DataFrame, columns: Sequence[str] | None = None, limit: int = 15
) -> FormattedTable:
    """Format a frame as text; by default all columns that have a heading.

    >>> import pandas as pd
    >>> format_table("usage_shares", pd.DataFrame({"user": ["ada"], "gpu_hours": [12345.6]})).rows
    [['ada', '12,346']]
    """
    # Without prices, or a target for waits.
    empty = frame.columns[frame.isna().all()] if name in ("orders", "purchases") else ()
    shown = [column for column in (columns or frame.columns) if column in _COLUMNS and column not in empty]
    headings, formats = [_COLUMNS[column][0] for column in shown], [_COLUMNS[column][1] for column in shown]
    rows = [
        [MISSING if pd.isna(value) else form(value) for value, form in zip(row, formats, strict=True)]
        for row in frame[shown].head(limit).itertuples(index=False, name=None)
    ]
    return FormattedTable(name, headings, [form in _LEFT for form in formats], rows, max(len(frame) - limit, 0))
