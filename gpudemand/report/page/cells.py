"""How the page writes a table: a heading, an alignment and a format for every column name, in one place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gpudemand.planning.capacity.plan import SHARES
from gpudemand.report.page.sentences import day, moment, short
from gpudemand.units import SECONDS_PER_HOUR, format_count, format_seconds

MISSING = "\N{EN DASH}"


def _text(value: Any) -> str:
    return short(value)


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def _hours(value: float) -> str:
    return format_seconds(value * SECONDS_PER_HOUR)


def _yes(value: Any) -> str:
    return "naive" if value else ""


def _decimal(value: float) -> str:
    return format_count(value, 2)


def _signed(value: float) -> str:
    return f"{100 * value:+.1f}%"


def _signed_decimal(value: float) -> str:
    return f"{value:+.2f}"


def _signed_count(value: float) -> str:
    return f"{value:+,.0f}" if value else "0"


def _few(value: float) -> str:
    return format_count(value) if value >= 100 else format_count(value, 1)


def _level(value: float) -> str:
    return f"P{100 * value:.4g}"


def _long_text(value: Any) -> str:
    return short(value, 80)


_Format = Callable[[Any], str]
#: Column -> heading and format. Text stands left, numbers right.
_COLUMNS: dict[str, tuple[str, _Format]] = {
    "reason": ("reason", _text),
    "rows": ("rows", format_count),
    "user": ("user", _text),
    "group": ("group", _text),
    "cluster": ("cluster", _text),
    "gpu_type": ("GPU type", _text),
    "gpu_hours": ("GPU-hours", format_count),
    "share": ("share of GPU-hours", _percent),
    "running_share": ("running share", _percent),
    "jobs": ("jobs", format_count),
    "median_wait_h": ("median wait", _hours),
    "mean_wait_h": ("mean wait", _hours),
    "completed": ("completed", _percent),
    "last_use": ("last use", day),
    "largest": ("largest", format_count),
    "of": ("of", format_count),
    "gpus_peak": ("most held at once", format_count),
    "series": ("series", _text),
    "model": ("model", _text),
    "naive": ("", _yes),
    "wape_choosing": ("WAPE, choosing", _percent),
    "wape": ("WAPE, scored", _percent),
    "rmsse": ("RMSSE", _decimal),
    "bias": ("bias", _signed),
    "coverage_80": ("in 80% interval", _percent),
    "coverage_95": ("in 95% interval", _percent),
    "basis": ("basis", _text),
    "target_utilization": ("target utilization", _percent),
    "installed": ("installed", format_count),
    "required": ("required", format_count),
    "shortfall": ("shortfall", format_count),
    "first_crossing": ("first crossing", moment),
    "order_by": ("order by", moment),
    "peak_utilization": ("peak utilization", _percent),
    "share_over": ("share of time over", _percent),
    "segment": ("segment", _text),
    "users": ("users", format_count),
    "active_share": ("days in use", _percent),
    "span_share": ("of the period", _percent),
    "weekday_excess": ("weekdays only", _percent),
    "trend": ("trend", _signed_decimal),
    "idle_days": ("idle days", format_count),
    "part": ("part", _text),
    "last": ("GPUs, last horizon", _few),
    "next": ("GPUs, next horizon", _few),
    "change": ("change", _signed),
    "best_naive": ("best naive", _text),
    "best_naive_wape": ("its WAPE", _percent),
    "probability": ("probability", _level),
    "required_mean": ("by the mean", format_count),
    "required_peak": ("by the peak", format_count),
    **{f"required_{share}": (share.upper(), format_count) for share in SHARES},
    "break_even_share": ("break-even share", _percent),
    "reserve": ("reserve", format_count),
    "on_demand_gpu_hours": ("on-demand GPU-hours", format_count),
    "cost": ("cost of the mix", format_count),
    "cost_reserved": ("all reserved", format_count),
    "cost_on_demand": ("all on demand", format_count),
    "scenario": ("scenario", _long_text),
    "against_base": ("against base", _signed_count),
    "service_level": ("plan", _level),
    "coverage": ("bins within", _percent),
    "held": ("bins within the plan", _percent),
    "idle": ("idle", _percent),
    "short": ("short", _percent),
    "regret": ("regret", _percent),
}
_LEFT = (_text, _long_text, _yes, _level)


@dataclass(frozen=True)
class Cells:
    """A table as the page writes it.

    Parameters
    ----------
    name : str
        Stem of the files that hold all of it.
    headings : list of str
    left : list of bool
        Which columns are text and stand left.
    rows : list of list of str
    hidden : int
        Rows that are in the files only.
    """

    name: str
    headings: list[str]
    left: list[bool]
    rows: list[list[str]]
    hidden: int

    @property
    def narrow(self) -> bool:
        """Whether the table looks lost across the whole page."""
        return len(self.headings) <= 5


def cells(name: str, frame: pd.DataFrame, columns: Sequence[str] | None = None, limit: int = 15) -> Cells:
    """Write a frame as text; columns that the page has no heading for are left to the files.

    Parameters
    ----------
    name : str
        Stem of its files.
    frame : DataFrame
    columns : sequence of str, optional
        Which columns, in which order; all that have a heading by default.
    limit : int, default=15
        Most rows.

    Returns
    -------
    Cells

    Examples
    --------
    >>> import pandas as pd
    >>> cells("who", pd.DataFrame({"user": ["ada"], "gpu_hours": [12345.6]})).rows
    [['ada', '12,346']]
    """
    shown = [column for column in (columns or frame.columns) if column in _COLUMNS]
    formats = [_COLUMNS[column][1] for column in shown]
    rows = [
        [MISSING if pd.isna(value) else form(value) for value, form in zip(row, formats, strict=True)]
        for row in frame[shown].head(limit).itertuples(index=False, name=None)
    ]
    headings = [_COLUMNS[column][0] for column in shown]
    return Cells(name, headings, [form in _LEFT for form in formats], rows, max(len(frame) - limit, 0))
