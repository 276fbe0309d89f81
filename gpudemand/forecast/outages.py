"""Detection of outages, drains and truncated ends of a trace, which look like zero demand."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import BoolArray, FloatArray
from gpudemand._validation import check_columns, check_number
from gpudemand.forecast.base.panel import Panel, season_length

KINDS = ("gap", "outage", "drain", "end")
#: Shares of the expected level below which a cluster is down, and is draining.
DOWN, _DRAINING = 0.1, 0.75
#: Most bins of a drain.
_LONGEST_DRAIN = 2


def find_outages(usage: pd.DataFrame, freq: object = None, *, min_level: float = 5.0) -> pd.DataFrame:
    """Find times that were probably not recorded, or only in part, in the sum of all series.

    A bin is down when the sum is below a tenth of its expectation: the median of the season around it, or of the same
    phase in the seasons before and after, whichever is less, so that a cluster may be empty every night or weekend.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``; missing rows are allowed, and reported.
    freq : str or offset, optional
        Frequency of the timestamps; inferred when not given.
    min_level : float, default=5
        Expected sum below which nothing is reported, because small clusters are often idle.

    Returns
    -------
    DataFrame
        A row an incident: ``start``, ``end`` (the first bin after it), ``bins``, ``kind`` and ``share``, the sum
        relative to its expectation. Kinds: ``"gap"`` (no rows), ``"outage"`` (down, then up again), ``"drain"``
        (decline before an outage), ``"end"`` (down or declining until the end: jobs that still ran are missing).

    Examples
    --------
    >>> y = np.tile(np.r_[np.full(12, 90.0), np.full(12, 110.0)], 10)
    >>> y[100:104] = 0
    >>> ds = pd.date_range("2026-03-01", periods=y.size, freq="h")
    >>> find_outages(pd.DataFrame({"unique_id": "total", "ds": ds, "y": y}))
                    start                 end  bins    kind  share
    0 2026-03-05 04:00:00 2026-03-05 08:00:00     4  outage    0.0
    """
    check_number("min_level", min_level, 0)
    panel = Panel.from_long(usage, freq, allow_missing=True)
    total, unrecorded = np.nansum(panel.values, axis=0), np.asarray(np.isnan(panel.values).all(axis=0))
    expected = _expected(total, season_length(panel.freq))
    share = total / np.maximum(expected, np.finfo(float).tiny)
    down = (share < DOWN) & (expected >= min_level) & ~unrecorded
    rows = [_incident(panel, first, last, "gap", 0.0) for first, last in _runs(unrecorded)]
    for first, last in _runs(down):
        rows += _with_decline(panel, share, first, last)
    if not down[-1] and expected[-1] >= min_level:
        # A decline that does not reach zero must be below the usual range of the series.
        rows += _decline(panel, share, share.size, "end", min(_DRAINING, float(np.quantile(share, 0.02))))
    table = pd.DataFrame(rows, columns=["start", "end", "bins", "kind", "share"])
    return table.sort_values("start", ignore_index=True)


def mask_outages(usage: pd.DataFrame, outages: pd.DataFrame) -> pd.DataFrame:
    """Replace the values during outages by missing values.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``.
    outages : DataFrame
        ``start`` and ``end`` (the first bin after it), as from `find_outages`.

    Returns
    -------
    DataFrame
        The same rows.
    """
    usage = check_columns(usage, ("unique_id", "ds", "y"), "usage")
    outages = check_columns(outages, ("start", "end"), "outages")
    lost = np.zeros(len(usage), dtype=bool)
    for start, end in zip(outages["start"], outages["end"], strict=True):
        lost |= ((usage["ds"] >= start) & (usage["ds"] < end)).to_numpy()
    masked = usage.assign(y=usage["y"].where(~lost))
    masked.attrs = dict(usage.attrs)
    return masked


def _expected(total: FloatArray, season: int) -> FloatArray:
    """Median of the season around each bin, or of the same phase in the seasons around it, whichever is less."""
    series = pd.Series(total)
    near = series.rolling(max(season, 5), center=True, min_periods=1).median()
    seasons = [series.shift(lag * season) for lag in (-3, -2, -1, 1, 2, 3)]
    phase = pd.concat(seasons, axis=1).median(axis=1).fillna(near)
    # A long outage lowers the median around it; the expectation before it is carried forward.
    before = near.where(near > DOWN * near.median()).ffill().bfill()
    return np.minimum(before, phase.where(phase > DOWN * near.median(), before)).fillna(0.0).to_numpy()


def _runs(flags: BoolArray) -> list[tuple[int, int]]:
    """First bin and first bin after each run of True."""
    edges = np.flatnonzero(np.diff(np.r_[False, flags, False].astype(int)))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]


def _with_decline(panel: Panel, share: FloatArray, first: int, last: int) -> list[tuple[object, ...]]:
    at_end = last == share.size
    incident = _incident(panel, first, last, "end" if at_end else "outage", float(share[first:last].mean()))
    return [*_decline(panel, share, first, "end" if at_end else "drain", _DRAINING), incident]


def _decline(panel: Panel, share: FloatArray, end: int, kind: str, limit: float) -> list[tuple[object, ...]]:
    """Bins just before `end` that decline from one to the next, below a limit."""
    first = end
    while first > max(end - _LONGEST_DRAIN, 1) and share[first - 1] < min(limit, share[first - 2]):
        first -= 1
    return [_incident(panel, first, end, kind, float(share[first:end].mean()))] if first < end else []


def _incident(panel: Panel, first: int, last: int, kind: str, share: float) -> tuple[object, ...]:
    start = panel.times[first]
    end = panel.times[last] if last < len(panel.times) else panel.times[-1] + panel.freq
    return start, end, last - first, kind, share
