"""Many series on one clock: the matrix that forecasters work on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
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
        Metadata of the usage frame (kind of data, value, ...), handed on to every frame made from the panel.
    """

    ids: pd.Index
    times: pd.DatetimeIndex
    values: FloatArray
    freq: pd.offsets.BaseOffset
    attrs: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def from_long(cls, usage: pd.DataFrame, freq: object = None, *, allow_missing: bool = False) -> Panel:
        """Align a long frame; complain about gaps and irregular stamps.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y``. A series may begin late, but not stop early or pause.
        freq : str or offset, optional
            Inferred from the stamps when not given; needs three of them.
        allow_missing : bool, default=False
            Take gaps and NaN as missing values instead of refusing them.
        """
        frame = check_usage(usage, allow_missing=allow_missing)
        wide = frame.pivot(index="unique_id", columns="ds", values="y")
        offset = parse_freq(freq) if freq is not None else infer_freq(wide.columns)
        times = pd.date_range(wide.columns[0], wide.columns[-1], freq=offset)
        stray = wide.columns.difference(times)
        if len(stray):
            raise InputError(
                f"{len(stray)} stamps are not on the clock of freq={offset.freqstr!r}, the first {stray[0]}; "
                "use usage_series or resample."
            )
        wide = wide.reindex(columns=times)
        if not allow_missing:
            _refuse_gaps(wide)
        return cls(wide.index, times, wide.to_numpy(dtype=float), offset, dict(usage.attrs))

    def until(self, n_times: int) -> Panel:
        """Keep the first `n_times` bins."""
        return replace(self, times=self.times[:n_times], values=self.values[:, :n_times])

    def future(self, h: int) -> pd.DatetimeIndex:
        """The next `h` bins."""
        return pd.date_range(self.times[-1], periods=h + 1, freq=self.freq)[1:]

    def long_frame(self, times: pd.DatetimeIndex, columns: dict[str, FloatArray]) -> pd.DataFrame:
        """A long frame from matrices of shape (n_series, len(times))."""
        ds = times[np.tile(np.arange(len(times)), len(self.ids))]
        keys = {"unique_id": self.ids.repeat(len(times)), "ds": ds}
        frame = pd.DataFrame({**keys, **{name: matrix.ravel() for name, matrix in columns.items()}})
        frame.attrs = dict(self.attrs)
        return frame


def infer_freq(times: pd.DatetimeIndex) -> pd.offsets.BaseOffset:
    """Frequency of ascending stamps that may have gaps: the commonest step, as a calendar unit where it is one.

    Examples
    --------
    >>> infer_freq(pd.DatetimeIndex(["2026-01-01", "2026-02-01", "2026-03-01", "2026-06-01"]))
    <MonthBegin>
    """
    if len(times) < 2:
        raise InputError("usage has fewer than two stamps, so its frequency cannot be told; pass a longer history.")
    wall = times.tz_localize(None)
    days = pd.Series(wall).diff().mode().iloc[0] / _DAY
    first = wall[0]
    quarter, year = pd.offsets.QuarterBegin(startingMonth=first.month), pd.offsets.YearBegin(month=first.month)
    for longest, offset in ((31, pd.offsets.MonthBegin()), (92, quarter), (366, year)):
        if (wall.day == 1).all() and 28 <= days <= longest:
            return offset
    return parse_freq(f"{int(days)}D" if days == int(days) else pd.Series(times).diff().mode().iloc[0])


def _refuse_gaps(wide: pd.DataFrame) -> None:
    missing = wide.isna().to_numpy()
    began = np.logical_or.accumulate(~missing, axis=1)
    gaps = missing & began
    if gaps.any():
        row, column = np.argwhere(gaps)[0]
        raise InputError(
            f"usage has {int(gaps.sum())} gaps inside its series, the first at unique_id="
            f"{shorten(str(wide.index[row]))!r}, ds={wide.columns[column]}; fill them "
            "(a true zero is data, and usage_series writes it)."
        )


def season_length(freq: pd.offsets.BaseOffset) -> int:
    """Bins in the natural season of a frequency: a day below daily, a week for days, a year above.

    Examples
    --------
    >>> [season_length(parse_freq(freq)) for freq in ("10min", "h", "6h", "D", "W-MON", "MS", "QS")]
    [144, 24, 4, 7, 52, 12, 4]
    """
    start = pd.Timestamp("2001-01-01")
    step = (start + 12 * freq - start) / 12
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
    start = pd.Timestamp("2001-01-01")
    return max(round(7 * _DAY / ((start + 12 * freq - start) / 12)), 1)


def known_mean(y: FloatArray) -> FloatArray:
    """Mean of each row over what is known, shape (n_series, 1); 0 for rows without a value.

    Examples
    --------
    >>> known_mean(np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan]])).tolist()
    [[2.0], [0.0]]
    """
    known = ~np.isnan(y)
    total = np.where(known, y, 0.0).sum(axis=1, keepdims=True)
    return np.asarray(total / np.maximum(known.sum(axis=1, keepdims=True), 1))


def spread(y: FloatArray) -> FloatArray:
    """Standard deviation of each row over what is known, shape (n_series, 1); 1 for rows that do not vary."""
    mean = known_mean(y)
    spread = np.sqrt(known_mean(np.square(y - mean)))
    # Beyond rounding: a constant of a billion has a spread of its own last digit.
    return np.where(spread > 1e-12 * np.abs(mean), np.maximum(spread, np.finfo(float).tiny), 1.0)
