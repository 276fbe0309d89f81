"""Calendar bins, and exact overlaps of job intervals with them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray, IntArray
from gpudemand._validation import InputError, shorten

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


def bin_edges(begin: pd.Timestamp, until: pd.Timestamp, freq: object, tz: str) -> pd.DatetimeIndex:
    """Edges of the bins of local calendar time that cover ``[begin, until)``.

    Days of 23 and 25 hours, months and weeks have their true length; bins below a day are equally long.

    `begin`, `until`: with a zone; ``begin <= until``. At least one bin is returned. `freq`: any pandas frequency that
    names the start of a period. `tz`: zone of the calendar.
    """
    offset, start = parse_freq(freq), pd.Timestamp("2001-01-01")
    width = (start + offset) - start
    is_tick = isinstance(offset, pd.offsets.Tick) or offset.freqstr.endswith("D")
    # Ticks start at a local midnight, so that hours are those of the wall clock in zones with a half-hour offset.
    midnight = begin.tz_convert(tz).tz_localize(None).normalize()
    wall = midnight if is_tick else offset.rollback(midnight)
    first = wall.tz_localize(begin.tz_convert(tz).tz, ambiguous=True, nonexistent="shift_forward")
    last = until.tz_convert(tz) + (pd.Timedelta("1D") if is_tick else 2 * offset) + 2 * width
    if (last - first) / width > 20_000_000:  # a mistyped frequency
        span = f"{begin:%Y-%m-%d} to {until:%Y-%m-%d}"
        raise InputError(f"{span} holds too many bins of freq={freq!r}; use a coarser one.")
    edges = pd.date_range(first, last, freq=offset).as_unit("ns")
    low = max(int(edges.searchsorted(begin, side="right")) - 1, 0)
    high = max(int(edges.searchsorted(until, side="left")), low + 1)
    return edges[low : high + 1]


class BinnedGpuTime:
    """GPU time of intervals per key and bin, accumulated batch by batch.

    Each interval adds its exact overlap with its first and last bin; the bins between are a difference array, so the
    cost does not depend on the lengths of jobs.

    `edges`: shape (n_bins + 1,); bin edges in microseconds since 1970. `n_keys`: number of series.
    """

    def __init__(self, edges: IntArray, n_keys: int) -> None:
        self.edges = edges
        self.n_keys = n_keys
        cells = n_keys * edges.size
        self._partial = np.zeros(cells)
        self._steps = np.zeros(cells)
        self._whole = np.zeros(cells, dtype=np.int64)

    def add(self, key: IntArray, begin: IntArray, end: IntArray, gpus: FloatArray) -> None:
        """Add intervals ``[begin, end)`` in microseconds, clipped to the edges."""
        begin = np.clip(begin, self.edges[0], self.edges[-1])
        end = np.clip(end, begin, self.edges[-1])
        first = np.searchsorted(self.edges, begin, side="right") - 1
        last = np.searchsorted(self.edges, end, side="right") - 1
        row = key * self.edges.size
        spans = last > first
        stop = np.where(spans, self.edges[np.minimum(first + 1, self.edges.size - 1)], end)
        # In place: the batches are many, and the cells may be more than the intervals of one.
        np.add.at(self._partial, row + first, gpus * (stop - begin))
        inside, beyond, held = (row + first + 1)[spans], (row + last)[spans], gpus[spans]
        np.add.at(self._partial, beyond, held * (end - self.edges[last])[spans])
        np.add.at(self._steps, inside, held)
        np.subtract.at(self._steps, beyond, held)
        np.add.at(self._whole, inside, 1)
        np.subtract.at(self._whole, beyond, 1)

    def gpu_hours(self) -> FloatArray:
        """GPU-hours, shape (n_keys, n_bins)."""
        shape = (self.n_keys, self.edges.size)
        level = np.cumsum(self._steps.reshape(shape), axis=1)
        # Differences need not cancel to the last bit: where no job covers a whole bin, the level is zero.
        level[np.cumsum(self._whole.reshape(shape), axis=1) == 0] = 0.0
        whole = level[:, :-1] * np.diff(self.edges)
        return (self._partial.reshape(shape)[:, :-1] + whole) / 3.6e9


def bin_name(freq: object) -> str:
    """Name of one bin of frequency `freq`, for text.

    >>> bin_name("D"), bin_name("15min")
    ('day', '15min')
    """
    text = str(freq)
    return _NOUNS.get(text.split("-")[0], text)
