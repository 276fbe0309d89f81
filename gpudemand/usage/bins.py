"""Calendar bins, and exact overlaps of job intervals with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray, IntArray, compiled_in_place
from gpudemand._validation import InputError, shorten
from gpudemand.units import on_calendar, wall_clock

_NOUNS = {"min": "minute", "h": "hour", "D": "day", "W": "week", "MS": "month", "QS": "quarter", "YS": "year"}


def parse_freq(freq: object) -> pd.offsets.BaseOffset:
    """Return the pandas offset of a frequency whose bins are named by their start."""
    try:
        offset = pd.tseries.frequencies.to_offset(freq)
    except (TypeError, ValueError) as error:
        choice = "use 'h', 'D', 'W-MON', 'MS' or '15min'"
        raise InputError(f"freq={shorten(freq)!r} is not a frequency; {choice}.") from error
    if offset is None or offset.n < 1:
        raise InputError(f"freq={shorten(freq)!r} must be a positive frequency such as 'h', 'D' or 'MS'.")
    period = offset.freqstr.split("-")[0]
    if period.endswith("E"):
        problem = f"freq={freq!r} names the end of a period, and bins are labelled by their start"
        raise InputError(f"{problem}; use {period[:-1] + 'S'!r}.")
    return offset


def is_tick(freq: pd.offsets.BaseOffset) -> bool:
    """Whether bins are equally long, not days or longer periods of the calendar."""
    return isinstance(freq, pd.offsets.Tick) and not isinstance(freq, pd.offsets.Day)  # a tick before pandas 3


def calendar_range(
    first: pd.Timestamp, last: pd.Timestamp | None = None, *, freq: object, periods: int | None = None
) -> pd.DatetimeIndex:
    """`pandas.date_range`, also in zones whose clock changes at midnight: bins begin at the first moment that exists.

    >>> calendar_range(pd.Timestamp("2024-04-25", tz="Africa/Cairo"), periods=3, freq="D").hour.tolist()
    [0, 1, 0]
    """
    offset = parse_freq(freq)
    if first.tz is None or is_tick(offset):
        return pd.date_range(first, last, periods, offset)
    bounds = [None if time is None else wall_clock(pd.DatetimeIndex([time]))[0] for time in (first, last)]
    return on_calendar(pd.date_range(*bounds, periods, offset), first.tz)


def bin_ends(starts: pd.DatetimeIndex, freq: object) -> pd.DatetimeIndex:
    """End of each bin, by the clock of its zone.

    >>> days = pd.DatetimeIndex(["2026-03-28", "2026-03-29"], tz="Europe/Berlin")
    >>> ((bin_ends(days, "D") - days) / pd.Timedelta("1h")).tolist()
    [24.0, 23.0]
    """
    offset = parse_freq(freq)
    if starts.tz is None or is_tick(offset):
        return starts + offset
    return on_calendar(wall_clock(starts) + offset, starts.tz)


def bin_edges(begin: pd.Timestamp, until: pd.Timestamp, freq: object, tz: Any) -> pd.DatetimeIndex:
    """Edges of the bins of local calendar time that cover ``[begin, until)``.

    Days of 23 and 25 hours, months and weeks have their true length; bins below a day are equally long.

    `begin`, `until`: with a zone; ``begin <= until``. At least one bin is returned. `freq`: any pandas frequency that
    names the start of a period. `tz`: zone of the calendar.
    """
    offset, start = parse_freq(freq), pd.Timestamp("2001-01-01")
    width = (start + offset) - start
    by_days = isinstance(offset, (pd.offsets.Tick, pd.offsets.Day))
    # These start at a local midnight, so that hours are those of the wall clock in zones with a half-hour offset.
    midnight = begin.tz_convert(tz).tz_localize(None).normalize()
    wall = midnight if by_days else offset.rollback(midnight)
    last = until.tz_convert(tz).tz_localize(None) + (pd.Timedelta("1D") if by_days else 2 * offset) + 2 * width
    if (last - wall) / width > 20_000_000:  # a mistyped frequency
        span = f"{begin:%Y-%m-%d} to {until:%Y-%m-%d}"
        raise InputError(f"{span} holds too many bins of freq={freq!r}; use a coarser one.")
    first, last = on_calendar(pd.DatetimeIndex([wall, last]), begin.tz_convert(tz).tz)
    edges = calendar_range(first, last, freq=offset).as_unit("ns")
    low = int(edges.searchsorted(begin, side="right")) - 1
    assert low >= 0, f"the first bin of {offset.freqstr!r} begins after {begin}"
    high = max(int(edges.searchsorted(until, side="left")), low + 1)
    return edges[low : high + 1]


def are_midnights(times: pd.DatetimeIndex) -> bool:
    """Whether all times are those at which days of their zone begin.

    >>> days = pd.date_range("2026-03-28", periods=3, tz="Europe/Berlin")
    >>> are_midnights(days), are_midnights(days.tz_convert("UTC"))
    (True, False)
    """
    wall = wall_clock(times)
    return bool((wall == wall.normalize()).all())


def bins_of(times: pd.DatetimeIndex, freq: object) -> tuple[pd.DatetimeIndex, IntArray]:
    """Bins that hold ascending times, and the bin of each time.

    >>> bins, place = bins_of(pd.DatetimeIndex(["2026-03-01 09:00", "2026-03-03"]), "D")
    >>> bins.day.tolist(), place.tolist()
    ([1, 2, 3], [0, 2])
    """
    zoned = times.tz_localize("UTC") if times.tz is None else times
    bins = bin_edges(zoned[0], zoned[-1] + pd.Timedelta("1us"), freq, zoned.tz)[:-1]
    return bins.tz_localize(None) if times.tz is None else bins, bins.searchsorted(zoned, side="right") - 1


class BinnedGpuTime:
    """GPU time of intervals per key and bin, accumulated batch by batch.

    Each interval adds its exact overlap with its first and last bin; the bins between are a difference array, so the
    cost does not depend on the lengths of jobs.

    `edges`: shape (n_bins + 1,); bin edges in microseconds since 1970. `n_keys`: number of series.
    """

    def __init__(self, edges: IntArray, n_keys: int) -> None:
        self.edges = edges
        self.n_keys = n_keys
        # Of each key and edge, side by side as they change together: GPU time within the bin; and from it on, change of
        # the GPUs held, and of the number of jobs.
        self._sums = np.zeros((n_keys * edges.size, 3))

    def add(self, key: IntArray, begin: IntArray, end: IntArray, gpus: FloatArray) -> None:
        """Add intervals ``[begin, end)`` in microseconds, clipped to the edges."""
        _add(self.edges, self._sums, key, begin, end, gpus)

    def gpu_hours(self) -> FloatArray:
        """GPU-hours, shape (n_keys, n_bins)."""
        partial, steps, jobs = np.moveaxis(self._sums.reshape(self.n_keys, self.edges.size, 3)[:, :-1], 2, 0)
        # Differences need not cancel to the last bit: where no job covers a whole bin, the level is zero.
        level = np.where(np.cumsum(jobs, axis=1) > 0, np.cumsum(steps, axis=1), 0.0)
        return np.asarray((partial + level * np.diff(self.edges)) / 3.6e9)


@compiled_in_place
def _add(edges: IntArray, sums: FloatArray, key: IntArray, begin: IntArray, end: IntArray, gpus: FloatArray) -> None:
    for job in range(len(key)):
        start = min(max(begin[job], edges[0]), edges[-1])
        stop = min(max(end[job], start), edges[-1])
        first, last, cell = _bin_of(edges, start), _bin_of(edges, stop), key[job] * len(edges)
        sums[cell + first, 0] += gpus[job] * ((edges[first + 1] if last > first else stop) - start)
        if last > first:
            sums[cell + last, 0] += gpus[job] * (stop - edges[last])
            for place, sign in ((first + 1, 1), (last, -1)):
                sums[cell + place, 1] += sign * gpus[job]
                sums[cell + place, 2] += sign


@compiled_in_place
def _bin_of(edges: IntArray, time: int) -> int:
    """Last edge that is not later than a time; bins are about equally long."""
    place = int((time - edges[0]) / (edges[-1] - edges[0]) * (len(edges) - 1))
    while edges[place] > time:
        place -= 1
    while place + 1 < len(edges) and edges[place + 1] <= time:
        place += 1
    return place


def bin_name(freq: object) -> str:
    """Name of one bin of frequency `freq`, for text.

    >>> bin_name("D"), bin_name("15min")
    ('day', '15min')
    """
    text = str(freq)
    return _NOUNS.get(text.split("-")[0], text)
