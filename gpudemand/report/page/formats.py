"""Formats of dates, shares, durations and names on the page."""

from __future__ import annotations

from typing import Any

import pandas as pd

from gpudemand.units import format_count, format_seconds, parse_duration


def format_date(value: Any) -> str:
    """Format a timestamp as a date.

    Examples
    --------
    >>> format_date("2026-03-01T00:00:00+00:00")
    '1 Mar 2026'
    """
    time = pd.Timestamp(value)
    return f"{time.day} {time:%b %Y}"


def format_wait(seconds: float) -> str:
    """Format a simulated wait, of which parts of a second say nothing.

    Examples
    --------
    >>> format_wait(0.0), format_wait(0.27), format_wait(90)
    ('0 s', 'under 1 s', '90 s')
    """
    return "under 1 s" if 0 < seconds < 1 else format_seconds(seconds)


def format_time(value: Any) -> str:
    """Format a timestamp as a date, with the time of day unless it is midnight.

    Examples
    --------
    >>> format_time("2026-03-01T00:00:00+00:00"), format_time("2026-03-01T09:30:00+00:00")
    ('1 Mar 2026', '1 Mar 2026 09:30')
    """
    time = pd.Timestamp(value)
    return format_date(time) if time == time.normalize() else f"{format_date(time)} {time:%H:%M}"


def format_share(share: float, digits: int = 0) -> str:
    """Format a share in percent.

    Examples
    --------
    >>> format_share(0.0815, 1), format_share(float("nan"))
    ('8.2%', 'unknown')
    """
    return "unknown" if pd.isna(share) else f"{100 * share:.{digits}f}%"


def format_level(share: float) -> str:
    """Format a probability that was given as a parameter, with all its digits.

    Examples
    --------
    >>> format_level(0.95), format_level(0.975)
    ('95%', '97.5%')
    """
    return f"{100 * share:.4g}%"


def format_days(duration: str) -> str:
    """Format a duration in days.

    Examples
    --------
    >>> format_days("90D"), format_days("36h"), format_days("36500D")
    ('90 days', '1.5 days', '36,500 days')
    """
    days = parse_duration(duration) / pd.Timedelta("1D")
    return f"{format_count(days) if days >= 100 else f'{days:.3g}'} day{'' if days == 1 else 's'}"


def truncate(value: object, width: int = 40) -> str:
    """Truncate text from a log or a parameter to `width` characters.

    Examples
    --------
    >>> truncate("a name", 4), truncate("a name")
    ('a n…', 'a name')
    """
    text = str(value)
    return text if len(text) <= width else text[: width - 1] + "…"
