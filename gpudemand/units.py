"""Parsing and formatting of durations, memory and GPU-hours; local times; slices and other parts of GPUs."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._array import STRING
from gpudemand._validation import InputError, shorten

SECONDS_PER_HOUR = 3600.0
#: Bytes.
GIB, MIB = 2.0**30, 2.0**20
DAY, WEEK = pd.Timedelta("1D"), pd.Timedelta("7D")
_SLURM_DURATION = re.compile(r"(?:(?P<days>\d+)-)?(?P<clock>\d+(?::\d+){0,2})(?:\.\d+)?$")
#: As NVIDIA writes a profile, and as sites do: ``1g.10gb``, ``mig-1g-5gb``, ``a100_1g5gb``, ``1g.10gb.a100``,
#: ``mig_3g20``; with engines for media (``+me``, ``+me.all``, ``-me``) or graphics (``+gfx``).
_SLICE = re.compile(
    r"(?:^|[^0-9])(?P<compute>[1-7])g[._-]?(?P<gb>\d+)(?:gb(?:[+._-](?:me(?:[._-]all)?|gfx))*)?(?![a-z0-9+])",
    re.IGNORECASE,
)
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


def wall_clock(times: pd.DatetimeIndex) -> pd.DatetimeIndex:
    """Local times without their zone; the first moment of a day whose midnight its clock skips is that midnight."""
    wall = times.tz_localize(None)
    if times.tz is None:
        return wall
    midnight = wall.normalize()
    return wall.where(on_calendar(midnight, times.tz) != times, midnight)


def on_calendar(wall: pd.DatetimeIndex, tz: Any) -> pd.DatetimeIndex:
    """Local times with their zone: of a time that its clock skips the next moment, of one that it repeats the first."""
    return wall.tz_localize(tz, ambiguous=np.ones(len(wall), dtype=bool), nonexistent="shift_forward")


def parse_duration(value: str | float | pd.Timedelta) -> pd.Timedelta:
    """Parse a duration.

    `value`: ``"90D"``, ``"36h"``, ``"2 weeks"``; a bare number is rejected because it has no unit.
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

    >>> [format_seconds(s) for s in (0, 0.0032, 0.9996, 12, 5400, 200000, 1e8)]
    ['0 s', '3.2 ms', '1 s', '12 s', '1.5 h', '2.31 d', '1,157 d']
    """
    if not math.isfinite(seconds):
        return "unknown"
    if seconds == 0:
        return "0 s"
    units = ((1000, 1e-3, "ms"), (120, 1, "s"), (60, 60, "min"), (48, 3600, "h"), (math.inf, 86400, "d"))
    return next(f"{number:,f} {unit}" for limit, size, unit in units if abs(number := _rounded(seconds / size)) < limit)


def format_gib(gib: float) -> str:
    """Format an amount of memory given in GiB.

    >>> [format_gib(gib) for gib in (0.0123, 0.98, 0.9999, 1500)]
    ['12.6 MiB', '1,004 MiB', '1 GiB', '1,500 GiB']
    """
    if not math.isfinite(gib):
        return "unknown"
    mib = _rounded(gib * 1024)
    return f"{mib:,f} MiB" if abs(mib) < 1024 else f"{_rounded(gib):,f} GiB"


def _rounded(value: float) -> Decimal:
    """A number with three digits, or with all before the decimal point, which never has an exponent."""
    return Decimal(f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}")


def format_count(value: float, digits: int = 0) -> str:
    """Format a number with thousands separators, or ``unknown`` if it is not finite.

    >>> format_count(978078.2)
    '978,078'
    """
    return f"{value:,.{digits}f}" if math.isfinite(value) else "unknown"


def plural(noun: str, value: float) -> str:
    """Noun for a number as `format_count` writes it.

    >>> plural("GPU", 1.2), plural("GPU", 0.0)
    ('GPU', 'GPUs')
    """
    return noun if format_count(value) == "1" else f"{noun}s"


def format_number_of(noun: str, value: float) -> str:
    """Format a number of things.

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
    """
    match = _SLICE.search(name)
    if match is None or ("gb" not in match[0].lower() and "mig" not in name.lower()):
        return None
    compute = Fraction(int(match["compute"]), 7)
    return _SHARES.get((int(match["compute"]), int(match["gb"])), (compute, compute))


#: Namespaces of pods that hold GPUs for those that take a fraction of one (KAI, Run:ai).
RESERVATIONS = r"(?:kai-resource|runai)-reservation"


def gpu_share(name: str) -> Fraction:
    """Share of a GPU that one device of a type is: 1 for whole GPUs, for slices the larger of compute and memory.

    So a GPU is full when no further slice of the profile fits on it: seven of ``1g.10gb``, two of ``3g.40gb``.
    """
    shares = slice_shares(name)
    return Fraction(1) if shares is None else max(shares)


#: Kinds by the names that types of parts without a card have.
_KINDS = {"shard": "shard", "mps": "MPS"}
_WHOLE, _FRACTION = "whole GPU", "fraction"
_MARK = f" ({_FRACTION})"
#: What sums of shares, such as a seventh, are off a whole number at most.
_ROUNDING = 1e-6


def mark_fractions(jobs: pd.DataFrame) -> pd.DataFrame:
    """Jobs, where those on no whole number of GPUs have a type of their own, if no slice tells them apart."""
    apart = (jobs["gpus"] - jobs["gpus"].round()).abs() > _ROUNDING
    if not apart.any():
        return jobs
    types = jobs["gpu_type"].astype(STRING).fillna("unknown")
    kinds = {name: _kind(name) for name in types.unique()}
    marked = jobs.assign(gpu_type=types.mask(apart & types.map(kinds).eq(_WHOLE), types + _MARK))
    marked.attrs = dict(jobs.attrs)
    return marked


def mark_type(series: str, place: int) -> str:
    """Name of a series of fractions: its part at a place is a GPU type.

    >>> mark_type("ml/a100", 1)
    'ml/a100 (fraction)'
    """
    parts = series.split("/", place + 1)
    parts[place] += _MARK
    return "/".join(parts)


def usage_by_slice(gpu_types: pd.DataFrame) -> pd.DataFrame:
    """Rows of those GPU types that are parts of GPUs, with their kind; none where all GPUs are whole.

    `gpu_types`: as of `usage_by_gpu_type`, in whole GPUs, of jobs with `mark_fractions`. ``kind``: ``"MIG slice"``;
    ``"shard"`` and ``"MPS"`` where no card was named, or else ``"fraction"``, as with time-slicing; several joined by
    ``" + "``. ``gpu_share``: that one slice is; missing of others, which are of any share.

    References
    ----------
    NVIDIA, "Multi-Instance GPU User Guide", section "Supported MIG Profiles"; see `gpudemand.units.slice_shares`.
    """
    kinds = gpu_types["gpu_type"].astype(object).map(_kind)
    rows = gpu_types.assign(kind=kinds)[kinds != _WHOLE].reset_index(drop=True)
    rows["gpu_type"] = rows["gpu_type"].astype(STRING).str.removesuffix(_MARK)
    rows["gpu_share"] = [float(gpu_share(name)) if slice_shares(name) else math.nan for name in rows["gpu_type"]]
    first = ["kind", "gpu_type", "gpu_share"]
    return rows[[*first, *rows.columns.difference(first, sort=False)]].astype({"kind": STRING, "gpu_share": float})


def is_whole(name: str) -> bool:
    """Whether a GPU type is of whole GPUs: no slice, shard or other part.

    >>> is_whole("a100"), is_whole("1g.10gb"), is_whole("shard")
    (True, False, False)
    """
    return _kind(name) == _WHOLE


def _kind(name: str) -> str:
    """Kind of a GPU type, or of several that are joined by ``+``.

    >>> _kind("a100"), _kind("1g.10gb+a100"), _kind("1g.12gb+me")
    ('whole GPU', 'MIG slice + whole GPU', 'MIG slice')
    """
    if name.endswith(_MARK):
        return _FRACTION
    parts = [name] if slice_shares(name) else name.split("+")
    return " + ".join(sorted({_KINDS.get(part, "MIG slice" if slice_shares(part) else _WHOLE) for part in parts}))
