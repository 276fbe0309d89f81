"""Moments that a person writes."""

from __future__ import annotations

import pandas as pd

from gpudemand._validation import InputError, shorten


def moment(value: object, tz: object = "UTC") -> pd.Timestamp:
    """Read a moment; one without a zone is in `tz`.

    Examples
    --------
    >>> moment("2026-03-01", "Asia/Shanghai")
    Timestamp('2026-03-01 00:00:00+0800', tz='Asia/Shanghai')
    """
    try:
        time = pd.Timestamp(value)
        if pd.isna(time):
            raise ValueError("missing")
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{shorten(value)!r} is not a time; write '2026-03-01' or '2026-03-01 12:00+01:00'."
        ) from error
    return time.tz_localize(tz) if time.tzinfo is None else time
