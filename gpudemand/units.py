"""Parsing and formatting of durations, memory and GPU-hours; slices of a GPU as shares of it."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import pandas as pd

from gpudemand._validation import InputError, shorten

SECONDS_PER_HOUR = 3600.0
#: Bytes.
GIB = 2.0**30
DAY, WEEK = pd.Timedelta("1D"), pd.Timedelta("7D")
_SLURM_DURATION = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d+(?::\d+){0,2})(?:\.\d+)?$")
_SLICE = re.compile(r"(?:^|[^0-9])(?P<compute>[1-7])g[._](?P<gb>\d+)gb(?:[+._-]me)?$", re.IGNORECASE)
#: Parts of a card; the slices of one, as (parts of the compute, eighths of the memory); and GB of memory of these by
#: card. Of two cards with a profile of one name, the one that is named first counts.
_MIG = (
    (
        7,
        ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4), (7, 8)),
        {
            "A100 80 GB, H100 80 GB": (10, 20, 20, 40, 40, 80),
            "A100 40 GB": (5, 10, 10, 20, 20, 40),
            "H100 94 GB": (12, 24, 24, 47, 47, 94),
            "H100 96 GB, H20": (12, 24, 24, 48, 48, 96),
            "H200 141 GB": (18, 35, 35, 71, 71, 141),
            "GH200 144 GB": (18, 36, 36, 72, 72, 144),
            "B200 180 GB": (23, 45, 45, 90, 90, 180),
            "GB200 186 GB": (23, 47, 47, 93, 93, 186),
            "B300 288 GB": (34, 67, 67, 135, 135, 269),
        },
    ),
    (4, ((1, 2), (2, 4), (4, 8)), {"A30": (6, 12, 24), "RTX PRO 6000 Blackwell": (24, 48, 96)}),
)
_SHARES: dict[tuple[int, int], tuple[Fraction, Fraction]] = {}
for _parts, _profiles, _cards in _MIG:
    for _sizes in _cards.values():
        for (_compute, _eighths), _gb in zip(_profiles, _sizes, strict=True):
            _SHARES.setdefault((_compute, _gb), (Fraction(_compute, _parts), Fraction(_eighths, 8)))


def parse_duration(value: str | float | pd.Timedelta) -> pd.Timedelta:
    """Parse a duration.

    `value`: ``"90D"``, ``"36h"``, ``"2 weeks"``; a bare number is rejected because it has no unit.

    Examples
    --------
    >>> parse_duration("90D")
    Timedelta('90 days 00:00:00')
    """
    text = re.sub(r"(?i)(\d)\s*(?:weeks?|w)\b", lambda m: f"{m.group(1)}W", str(value))
    try:
        # pandas would take "90" for 90 nanoseconds.
        if isinstance(value, (int, float)) or re.fullmatch(r"\s*[+-]?[\d.]*[1-9][\d.]*\s*", text):
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


def plural(noun: str, value: float) -> str:
    """Noun for a number as `format_count` writes it.

    Examples
    --------
    >>> plural("GPU", 1.2), plural("GPU", 0.0)
    ('GPU', 'GPUs')
    """
    return noun if format_count(value) == "1" else f"{noun}s"


def format_number_of(noun: str, value: float) -> str:
    """Format a number of things.

    Examples
    --------
    >>> format_number_of("GPU", 1), format_number_of("GPU", 1004)
    ('1 GPU', '1,004 GPUs')
    """
    return f"{format_count(value)} {plural(noun, value)}"


def slice_shares(name: str) -> tuple[Fraction, Fraction] | None:
    """Shares of the compute and of the memory of a GPU that a slice (multi-instance GPU, MIG) has.

    `name`: name of a profile, or of a type of GPU that ends in one: ``1g.10gb``, ``a100_3g.20gb``,
    ``nvidia_com_mig_1g_5gb``. A profile of two cards is that of the larger one (``1g.10gb``: one of seven of 80 GB).
    One that is in no table has as much of the memory as of the compute. Returns none for a name of a whole GPU.

    References
    ----------
    NVIDIA, "Multi-Instance GPU User Guide", section "Supported MIG Profiles".

    Examples
    --------
    >>> slice_shares("a100_3g.20gb")
    (Fraction(3, 7), Fraction(1, 2))
    >>> slice_shares("a100")
    """
    match = _SLICE.search(name)
    if match is None:
        return None
    compute = Fraction(int(match["compute"]), 7)
    return _SHARES.get((int(match["compute"]), int(match["gb"])), (compute, compute))


def gpu_share(name: str) -> Fraction:
    """Share of a GPU that one device of a type is: 1 for whole GPUs, for slices the larger of compute and memory.

    So a GPU is full when no further slice of the profile fits on it: seven of ``1g.10gb``, two of ``3g.40gb``.

    Examples
    --------
    >>> gpu_share("h100"), gpu_share("1g.10gb"), gpu_share("3g.40gb")
    (Fraction(1, 1), Fraction(1, 7), Fraction(1, 2))
    """
    shares = slice_shares(name)
    return Fraction(1) if shares is None else max(shares)
