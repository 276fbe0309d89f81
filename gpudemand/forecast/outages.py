"""When nothing was recorded: outages, drains and the end of a trace, which look like demand that fell to zero."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import BoolArray, FloatArray
from gpudemand._validation import check_number
from gpudemand.forecast.base.panel import Panel, season_length

KINDS = ("gap", "outage", "drain", "end")
#: Of the level around it: below the first it is down, below the second on its way.
_DOWN, _FALLING = 0.1, 0.75
#: Most bins that a cluster takes to empty before an outage, or a trace before its end.
_LONGEST_DRAIN = 2


def find_outages(usage: pd.DataFrame, freq: object = None, *, min_level: float = 5.0) -> pd.DataFrame:
    """Report times that were probably not recorded, or not recorded whole.

    Looks at the sum of all series: one user who pauses is no outage, all of them at once are. A bin is down when the
    sum is below a tenth of what the season around it and the same phase of the seasons before and after let expect,
    whichever is less: a cluster that empties every night or weekend is not down then.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``; gaps are allowed, and reported.
    freq : str or offset, optional
        Frequency of the stamps; inferred when not given.
    min_level : float, default=5
        Expected sum below which nothing can be told: a cluster of two users is often idle.

    Returns
    -------
    DataFrame
        A row an incident: ``start``, ``end`` (the first bin after it), ``bins``, ``kind`` and ``share``, the sum during
        it as a share of what was expected. Kinds: ``"gap"`` (no rows at all), ``"outage"`` (down and back again),
        ``"drain"`` (the slide before an outage), ``"end"`` (down or sliding until the history ends: the trace ends,
        and jobs that still ran are missing).

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
    total, gone = _total(panel.values)
    expected = _expected(total, season_length(panel.freq))
    share = total / np.maximum(expected, np.finfo(float).tiny)
    down = (share < _DOWN) & (expected >= min_level) & ~gone
    rows = [_incident(panel, first, last, "gap", 0.0) for first, last in _runs(gone)]
    for first, last in _runs(down):
        rows += _with_slide(panel, share, first, last)
    if not down[-1] and expected[-1] >= min_level:
        # Without a fall to nothing behind it, a slide has to be lower than this series otherwise goes.
        rows += _slide(panel, share, share.size, "end", min(_FALLING, float(np.quantile(share, 0.02))))
    table = pd.DataFrame(rows, columns=["start", "end", "bins", "kind", "share"])
    return table.sort_values("start", ignore_index=True)


def mask_outages(usage: pd.DataFrame, outages: pd.DataFrame) -> pd.DataFrame:
    """Put missing values where `find_outages` says that nothing was recorded.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``.
    outages : DataFrame
        ``start`` and ``end`` (the first bin after it).

    Returns
    -------
    DataFrame
        The same rows; forecasters that take missing values, such as `TemporalFactorization`, leave them out.
    """
    lost = np.zeros(len(usage), dtype=bool)
    for start, end in zip(outages["start"], outages["end"], strict=True):
        lost |= ((usage["ds"] >= start) & (usage["ds"] < end)).to_numpy()
    masked = usage.assign(y=usage["y"].where(~lost))
    masked.attrs = dict(usage.attrs)
    return masked


def _total(values: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Sum of all series, and where none of them has a value."""
    return np.nansum(values, axis=0), np.asarray(np.isnan(values).all(axis=0))


def _expected(total: FloatArray, season: int) -> FloatArray:
    """Median of the values around each bin and of the same phase in the seasons around it, whichever is less."""
    series = pd.Series(total)
    near = series.rolling(max(season, 5), center=True, min_periods=1).median()
    seasons = [series.shift(lag * season) for lag in (-3, -2, -1, 1, 2, 3)]
    phase = pd.concat(seasons, axis=1).median(axis=1).fillna(near)
    # A long outage takes the median around it down with it; what came before it does not forget so soon.
    before = near.where(near > _DOWN * near.median()).ffill().bfill()
    return np.minimum(before, phase.where(phase > _DOWN * near.median(), before)).fillna(0.0).to_numpy()


def _runs(flags: BoolArray) -> list[tuple[int, int]]:
    """First bin and first bin after each run of True."""
    edges = np.flatnonzero(np.diff(np.r_[False, flags, False].astype(int)))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]


def _with_slide(panel: Panel, share: FloatArray, first: int, last: int) -> list[tuple[object, ...]]:
    at_end = last == share.size
    incident = _incident(panel, first, last, "end" if at_end else "outage", float(share[first:last].mean()))
    return [*_slide(panel, share, first, "end" if at_end else "drain", _FALLING), incident]


def _slide(panel: Panel, share: FloatArray, end: int, kind: str, limit: float) -> list[tuple[object, ...]]:
    """Bins just before `end` that fall from one to the next, below a limit."""
    first = end
    while first > max(end - _LONGEST_DRAIN, 1) and share[first - 1] < min(limit, share[first - 2]):
        first -= 1
    return [_incident(panel, first, end, kind, float(share[first:end].mean()))] if first < end else []


def _incident(panel: Panel, first: int, last: int, kind: str, share: float) -> tuple[object, ...]:
    start = panel.times[first]
    end = panel.times[last] if last < len(panel.times) else panel.times[-1] + panel.freq
    return start, end, last - first, kind, share
