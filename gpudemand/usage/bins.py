"""Calendar bins, and exact overlaps of job intervals with them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray, IntArray
from gpudemand._validation import InputError, shorten

#: More bins than this are taken for a mistyped frequency.
_MAX_BINS = 20_000_000
_DAY = pd.Timedelta("1D")
_NOUNS = {"min": "minute", "h": "hour", "D": "day", "W": "week", "MS": "month", "QS": "quarter", "YS": "year"}


def parse_freq(freq: object) -> pd.offsets.BaseOffset:
    """Return the pandas offset of a frequency whose bins are named by their start.

    Examples
    --------
    >>> parse_freq("h")
    <Hour>
    """
    try:
        offset = pd.tseries.frequencies.to_offset(freq)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"freq={shorten(freq)!r} is not a frequency; use 'h', 'D', 'W-MON', 'MS' or '15min'."
        ) from error
    if offset is None or offset.n < 1:
        raise InputError(f"freq={shorten(freq)!r} must be a positive frequency such as 'h', 'D' or 'MS'.")
    if offset.freqstr.split("-")[0].endswith("E"):
        start = offset.freqstr.split("-")[0][:-1] + "S"
        raise InputError(
            f"freq={freq!r} names the end of a period, and bins are labelled by their start; use {start!r}."
        )
    return offset


def bin_edges(begin: pd.Timestamp, until: pd.Timestamp, freq: object, tz: str) -> pd.DatetimeIndex:
    """Edges of the bins of local calendar time that cover ``[begin, until)``.

    Days of 23 and 25 hours, months and weeks have their true length; bins below a day are equally long.

    `begin`, `until`: with a zone; ``begin <= until``. At least one bin is returned. `freq`: any pandas frequency that
    names the start of a period. `tz`: zone of the calendar.
    """
    offset = parse_freq(freq)
    first = _first_edge(begin.tz_convert(tz), offset)
    last = until.tz_convert(tz) + (_DAY if _is_tick(offset) else 2 * offset) + 2 * _width(offset)
    if (last - first) / _width(offset) > _MAX_BINS:
        raise InputError(
            f"{begin:%Y-%m-%d} to {until:%Y-%m-%d} holds too many bins of freq={freq!r}; use a coarser one."
        )
    edges = pd.date_range(first, last, freq=offset).as_unit("ns")
    low = max(int(edges.searchsorted(begin, side="right")) - 1, 0)
    high = max(int(edges.searchsorted(until, side="left")), low + 1)
    return edges[low : high + 1]


def _first_edge(begin: pd.Timestamp, offset: pd.offsets.BaseOffset) -> pd.Timestamp:
    # Ticks start at a local midnight, so that hours are those of the wall clock in zones with a half-hour offset.
    wall = begin.tz_localize(None).normalize()
    if not _is_tick(offset):
        wall = offset.rollback(wall)
    return wall.tz_localize(begin.tz, ambiguous=True, nonexistent="shift_forward")


def _is_tick(offset: pd.offsets.BaseOffset) -> bool:
    return isinstance(offset, pd.offsets.Tick) or offset.freqstr.endswith("D")


def _width(offset: pd.offsets.BaseOffset) -> pd.Timedelta:
    start = pd.Timestamp("2001-01-01")
    return (start + offset) - start


@dataclass
class BinnedGpuTime:
    """GPU time of intervals per key and bin, accumulated batch by batch.

    Each interval adds its exact overlap with its first and last bin; the bins between are a difference array, so the
    cost does not depend on the lengths of jobs.

    `edges`: shape (n_bins + 1,); bin edges in microseconds since 1970. `n_keys`: number of series.
    """

    edges: IntArray
    n_keys: int
    _partial: FloatArray = field(init=False, repr=False)
    _steps: FloatArray = field(init=False, repr=False)
    _whole: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        cells = self.n_keys * self.edges.size
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

    Examples
    --------
    >>> bin_name("D"), bin_name("15min")
    ('day', '15min')
    """
    text = str(freq)
    return _NOUNS.get(text.split("-")[0], text)
