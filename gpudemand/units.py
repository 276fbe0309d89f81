"""Parsing and formatting of durations, memory and GPU-hours."""

from __future__ import annotations

import math
import re

import pandas as pd

from gpudemand._validation import InputError, shorten

SECONDS_PER_HOUR = 3600.0
_SLURM_DURATION = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d+(?::\d+){0,2})(?:\.\d+)?$")


def parse_duration(value: str | float | pd.Timedelta) -> pd.Timedelta:
    """Parse a duration.

    Parameters
    ----------
    value : str, float or Timedelta
        ``"90D"``, ``"36h"``, ``"2 weeks"``; a bare number is rejected because it has no unit.

    Raises
    ------
    InputError
        If the text is not a length of time, or the length is not finite.

    Examples
    --------
    >>> parse_duration("90D")
    Timedelta('90 days 00:00:00')
    """
    text = re.sub(r"(?i)(\d)\s*(?:weeks?|w)\b", lambda m: f"{m.group(1)}W", str(value))
    try:
        if isinstance(value, (int, float)):
            raise ValueError("a number has no unit")
        length = pd.Timedelta(text)
    except ValueError as error:
        raise InputError(f"{shorten(value)!r} is not a length of time; write '90D', '36h' or '15min'.") from error
    if pd.isna(length):
        raise InputError("a length of time is missing; write '90D', '36h' or '15min'.")
    return length


def parse_slurm_seconds(text: str) -> float:
    """Seconds of a duration in Slurm's ``[days-]hours:minutes:seconds`` (and shorter) notation; NaN if it is none.

    Slurm reads ``MM``, ``MM:SS``, ``HH:MM:SS``, ``D-HH``, ``D-HH:MM`` and ``D-HH:MM:SS``.

    Examples
    --------
    >>> parse_slurm_seconds("1-02:03:04")
    93784.0
    >>> parse_slurm_seconds("UNLIMITED")
    nan
    """
    match = _SLURM_DURATION.match(text.strip())
    if match is None:
        return math.nan
    parts = [float(part) for part in match["clock"].split(":")]
    if match["days"] is not None:
        hours, minutes, seconds = (*parts, 0.0, 0.0)[:3]
        return float(match["days"]) * 86400 + hours * 3600 + minutes * 60 + seconds
    hours, minutes, seconds = (0.0, *parts, 0.0)[:3] if len(parts) < 3 else parts
    return hours * 3600 + minutes * 60 + seconds


def format_seconds(seconds: float) -> str:
    """Format a duration in the most readable unit.

    Examples
    --------
    >>> [format_seconds(s) for s in (0, 0.0032, 12, 5400, 200000)]
    ['0 s', '3.2 ms', '12 s', '1.5 h', '2.31 d']
    """
    if not math.isfinite(seconds):
        return "unknown"
    if seconds == 0:
        return "0 s"
    for limit, size, unit in ((1, 1e-3, "ms"), (120, 1, "s"), (3600, 60, "min"), (172800, 3600, "h")):
        if abs(seconds) < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86400:.3g} d"


def format_gib(gib: float) -> str:
    """Format an amount of memory given in GiB.

    Examples
    --------
    >>> format_gib(0.25), format_gib(79.64)
    ('256 MiB', '79.6 GiB')
    """
    return f"{gib * 1024:.3g} MiB" if abs(gib) < 1 else f"{gib:.3g} GiB"


def format_count(value: float, digits: int = 0) -> str:
    """Format a number with thousands separators, or ``unknown`` if it is not finite.

    Examples
    --------
    >>> format_count(978078.2)
    '978,078'
    """
    return f"{value:,.{digits}f}" if math.isfinite(value) else "unknown"


def format_gpu_hours(gpu_hours: float) -> str:
    """Format an amount of GPU time.

    Examples
    --------
    >>> format_gpu_hours(978078.2), format_gpu_hours(0.5)
    ('978,078 GPU-hours', '0.5 GPU-hours')
    """
    return f"{format_count(gpu_hours) if abs(gpu_hours) >= 100 else f'{gpu_hours:.3g}'} GPU-hours"
