"""Series of equal frequency as a matrix, the input of the forecasters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError, check_usage, shorten
from gpudemand.usage.bins import parse_freq

_DAY = pd.Timedelta("1D")


@dataclass(frozen=True)
class Panel:
    """Series of equal frequency, aligned in time.

    Attributes
    ----------
    ids : Index
        Names of the series.
    times : DatetimeIndex of length n_times
        Every bin from the first to the last.
    values : ndarray of shape (n_series, n_times)
        NaN before a series begins (and where missing values are allowed).
    freq : offset
        Width of a bin.
    attrs : dict
        Metadata of the usage frame (kind of data, value, ...), copied to every frame made from the panel.
    zoned : DatetimeIndex or None
        Times with their zone, of a panel `on_local_clock`, whose times have none.
    """

    ids: pd.Index
    times: pd.DatetimeIndex
    values: FloatArray
    freq: pd.offsets.BaseOffset
    attrs: dict[Any, Any] = field(default_factory=dict)
    zoned: pd.DatetimeIndex | None = None

    @classmethod
    def from_long(cls, usage: pd.DataFrame, freq: object = None, *, allow_missing: bool = False) -> Panel:
        """Align a long frame in time.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y``. A series may begin late, but not stop early or pause.
        freq : str or offset, optional
            Inferred from the timestamps when not given.
        allow_missing : bool, default=False
            Accept missing rows and NaN as missing values.

        Raises
        ------
        InputError
            For irregular timestamps, or values missing inside a series.
        """
        frame = check_usage(usage, allow_missing=allow_missing)
        wide = frame.pivot(index="unique_id", columns="ds", values="y")
        offset = parse_freq(freq) if freq is not None else infer_freq(wide.columns)
        times = pd.date_range(wide.columns[0], wide.columns[-1], freq=offset)
        stray = wide.columns.difference(times)
        if len(stray):
            raise InputError(
                f"{len(stray)} timestamps are not multiples of freq={offset.freqstr!r}, the first {stray[0]}; "
                "use usage_series or resample."
            )
        wide = wide.reindex(columns=times)
        if not allow_missing:
            _check_dense(wide)
        return cls(wide.index, times, wide.to_numpy(dtype=float), offset, dict(frame.attrs))

    def until(self, n_times: int) -> Panel:
        """Keep the first `n_times` bins."""
        return replace(self, times=self.times[:n_times], values=self.values[:, :n_times], zoned=None)

    def on_local_clock(self) -> Panel:
        """The panel in local time, in which a day always has as many bins.

        It is unchanged in zones without changes of the clock, and for bins of days or longer, which follow it anyway.
        The hour that the clock skips repeats the value before it, and of the hour that it repeats the first is kept.

        Examples
        --------
        >>> ds = pd.date_range("2026-03-29", periods=4, freq="h", tz="Europe/Berlin")
        >>> panel = Panel.from_long(pd.DataFrame({"unique_id": "total", "ds": ds, "y": [0.0, 1.0, 3.0, 4.0]}))
        >>> panel.on_local_clock().values
        array([[0., 1., 1., 3., 4.]])
        """
        if not _clock_changes(self.times, self.freq):
            return self
        found, first = np.unique(_local_positions(self.times, self.freq), return_index=True)
        grid = np.arange(found[-1] + 1)
        values = self.values[:, first[np.searchsorted(found, grid, side="right") - 1]]
        times = pd.date_range(self.times[0].tz_localize(None), periods=grid.size, freq=self.freq)
        return replace(self, times=times, values=values, zoned=self.times)

    def local_positions(self, h: int) -> IntArray:
        """Place of every bin, and of the next `h`, on the local clock, from 0 for the first."""
        if not _clock_changes(self.times, self.freq):
            return np.arange(len(self.times) + h)
        return _local_positions(self.times.append(self.future(h)), self.freq)

    def local_steps(self, h: int) -> IntArray:
        """Steps on the local clock, from 0, of each of the next `h` bins of a panel `on_local_clock`."""
        if self.zoned is None:
            return np.arange(h)
        return np.maximum(_local_positions(self.future(h).insert(0, self.newest), self.freq)[1:] - 1, 0)

    @property
    def newest(self) -> pd.Timestamp:
        """Newest bin, with its zone."""
        return (self.times if self.zoned is None else self.zoned)[-1]

    def aligned(self, usage: pd.DataFrame) -> Panel:
        """Other series at the times of this panel, on its clock; missing where they have no value."""
        times = self.times if self.zoned is None else self.zoned
        wide = usage.pivot(index="unique_id", columns="ds", values="y").reindex(columns=times)
        panel = Panel(wide.index, times, wide.to_numpy(dtype=float), self.freq, dict(usage.attrs))
        return panel if self.zoned is None else panel.on_local_clock()

    def future(self, h: int) -> pd.DatetimeIndex:
        """The next `h` bins."""
        return pd.date_range(self.newest, periods=h + 1, freq=self.freq)[1:]

    def long_frame(self, times: pd.DatetimeIndex, columns: dict[str, FloatArray]) -> pd.DataFrame:
        """A long frame from matrices of shape (n_series, len(times))."""
        ds = times[np.tile(np.arange(len(times)), len(self.ids))]
        keys = {"unique_id": self.ids.repeat(len(times)), "ds": ds}
        frame = pd.DataFrame({**keys, **{name: matrix.ravel() for name, matrix in columns.items()}})
        frame.attrs = dict(self.attrs)
        return frame


def _clock_changes(times: pd.DatetimeIndex, freq: pd.offsets.BaseOffset) -> bool:
    # Zones with a fixed offset know it without a time.
    return times.tz is not None and times.tz.utcoffset(None) is None and mean_step(freq) < _DAY


def _local_positions(times: pd.DatetimeIndex, freq: pd.offsets.BaseOffset) -> IntArray:
    """Place of each bin on the local clock, as far as its changes are whole bins."""
    offset = times.tz_localize(None) - times.tz_convert("UTC").tz_localize(None)
    return np.arange(len(times)) + np.trunc((offset - offset[0]) / mean_step(freq)).to_numpy(dtype=np.int64)


def infer_freq(times: pd.DatetimeIndex) -> pd.offsets.BaseOffset:
    """Frequency of ascending timestamps, some of which may be missing: the most frequent step.

    Examples
    --------
    >>> infer_freq(pd.DatetimeIndex(["2026-01-01", "2026-02-01", "2026-03-01", "2026-06-01"]))
    <MonthBegin>
    """
    if len(times) < 2:
        raise InputError(
            "usage has fewer than two timestamps, so its frequency cannot be inferred; pass a longer history."
        )
    wall = times.tz_localize(None)
    days = pd.Series(wall).diff().mode().iloc[0] / _DAY
    first = wall[0]
    quarter, year = pd.offsets.QuarterBegin(startingMonth=first.month), pd.offsets.YearBegin(month=first.month)
    for longest, offset in ((31, pd.offsets.MonthBegin()), (92, quarter), (366, year)):
        if (wall.day == 1).all() and 28 <= days <= longest:
            return offset
    return parse_freq(f"{int(days)}D" if days == int(days) else pd.Series(times).diff().mode().iloc[0])


def _check_dense(wide: pd.DataFrame) -> None:
    missing = wide.isna().to_numpy()
    inside = missing & np.logical_or.accumulate(~missing, axis=1)
    if inside.any():
        row, column = np.argwhere(inside)[0]
        raise InputError(
            f"usage has {int(inside.sum())} gaps inside its series, the first at unique_id="
            f"{shorten(str(wide.index[row]))!r}, ds={wide.columns[column]}; fill them "
            "(a true zero is data, and usage_series writes it)."
        )


def season_length(freq: pd.offsets.BaseOffset) -> int:
    """Bins in the default season of a frequency: a day below daily, a week for days, a year above.

    Examples
    --------
    >>> [season_length(parse_freq(freq)) for freq in ("10min", "h", "6h", "D", "W-MON", "MS", "QS")]
    [144, 24, 4, 7, 52, 12, 4]
    """
    step = mean_step(freq)
    for season in (_DAY, 7 * _DAY, pd.Timedelta("365.25D")):
        n = season / step
        if n > 1.5:
            return round(n)
    return 1


def week_length(freq: pd.offsets.BaseOffset) -> int:
    """Bins in a week, for bins below a week; 1 for longer ones.

    Examples
    --------
    >>> [week_length(parse_freq(freq)) for freq in ("10min", "h", "D", "W-MON", "MS")]
    [1008, 168, 7, 1, 1]
    """
    return max(round(7 * _DAY / mean_step(freq)), 1)


@cache
def mean_step(freq: pd.offsets.BaseOffset) -> pd.Timedelta:
    """Mean width of the bins of a frequency."""
    start = pd.Timestamp("2001-01-01")
    return (start + 12 * freq - start) / 12


def row_means(y: FloatArray) -> FloatArray:
    """Mean of each row without its missing values, shape (n_series, 1); 0 for rows without a value.

    Examples
    --------
    >>> row_means(np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan]])).tolist()
    [[2.0], [0.0]]
    """
    known = ~np.isnan(y)
    total = np.where(known, y, 0.0).sum(axis=1, keepdims=True)
    return np.asarray(total / np.maximum(known.sum(axis=1, keepdims=True), 1))


def row_scales(y: FloatArray) -> FloatArray:
    """Standard deviation of each row without its missing values, shape (n_series, 1); 1 for constant rows."""
    mean = row_means(y)
    scale = np.sqrt(row_means(np.square(y - mean)))
    # A constant of a billion has a standard deviation of the order of its rounding error.
    return np.where(scale > 1e-12 * np.abs(mean), np.maximum(scale, np.finfo(float).tiny), 1.0)
