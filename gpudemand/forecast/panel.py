"""`Panel`: long series as arrays, their seasons and windows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gpudemand._array import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, UnlikelyUsageWarning, as_pandas, check_usage, shorten, stack_level
from gpudemand.units import wall_clock
from gpudemand.usage.bins import calendar_range, parse_freq

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
            For irregular timestamps, values missing inside a series, a series without any, or values beyond 1e100.
        """
        frame = check_usage(usage, allow_missing=allow_missing)
        wide = frame.pivot(index="unique_id", columns="ds", values="y")
        _check_values(wide)
        offset = parse_freq(freq) if freq is not None else _with_days_off(infer_freq(wide.columns), wide.columns)
        _check_span(wide.columns, offset, inferred=freq is None)
        times = calendar_range(wide.columns[0], wide.columns[-1], freq=offset)
        stray = wide.columns.difference(times)
        if len(stray):
            zone = " If they are midnights of UTC: usage['ds'].dt.tz_convert('UTC')." if wide.columns.tz else ""
            raise InputError(
                f"{len(stray)} timestamps are not multiples of freq={offset.freqstr!r}, the first {stray[0]}; "
                f"use usage_series or resample.{zone}"
            )
        wide = wide.reindex(columns=times)
        if not allow_missing:
            _check_dense(wide)
        return cls(wide.index, times, wide.to_numpy(dtype=float), offset, dict(frame.attrs))

    def until(self, n_times: int) -> Panel:
        """Keep the first `n_times` bins."""
        return replace(self, times=self.times[:n_times], values=self.values[:, :n_times], zoned=None)

    def with_history(self, y: FloatArray) -> Panel:
        """The panel with another, shorter or longer, history from its first bin on."""
        times = calendar_range(self.times[0], periods=y.shape[1], freq=self.freq)
        return replace(self, times=times, values=y)

    def wide(self) -> pd.DataFrame:
        """A wide frame, a row a series."""
        return pd.DataFrame(self.values, self.ids, self.times)

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

    def on_calendar(self) -> Panel:
        """The panel at its times with their zone, of which `on_local_clock` is the panel again."""
        if self.zoned is None:
            return self
        return replace(
            self, times=self.zoned, values=self.values[:, _local_positions(self.zoned, self.freq)], zoned=None
        )

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

    def future(self, h: int) -> pd.DatetimeIndex:
        """The next `h` bins."""
        return calendar_range(self.newest, periods=h + 1, freq=self.freq)[1:]

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

    >>> infer_freq(pd.DatetimeIndex(["2026-01-01", "2026-02-01", "2026-03-01", "2026-06-01"]))
    <MonthBegin>
    """
    if len(times) < 2:
        raise InputError(
            "usage has fewer than two timestamps, so its frequency cannot be inferred; pass a longer history."
        )
    wall = wall_clock(times)
    step = pd.Series(times).diff().mode().iloc[0]
    if step < pd.Timedelta("1s") and times[0].year == 1970:
        raise InputError(
            f"the times of usage are {step / pd.Timedelta('1ns'):,.0f} ns apart, from {times[0]} on: numbers "
            "that were converted without their unit. Give it, as in pd.to_datetime(numbers, unit='s'), or count from "
            "a first day: pd.Timestamp('2026-01-01') + pd.to_timedelta(numbers, unit='D')."
        )
    days = pd.Series(wall).diff().mode().iloc[0] / _DAY
    if days >= 28 and ((wall + _DAY).day == 1).all():
        period = "M" if days <= 31 else "Q" if days <= 92 else "Y"
        raise InputError(
            "the times of usage['ds'] are ends of months, and bins are labelled by their start: "
            f"usage['ds'].dt.to_period('{period}').dt.start_time."
        )
    if (wall.day == 1).all() and days >= 28:
        months, first = int(pd.Series(12 * wall.year + wall.month).diff().mode().iloc[0]), wall[0].month
        named = {3: pd.offsets.QuarterBegin(startingMonth=first), 12: pd.offsets.YearBegin(month=first)}
        return named.get(months, pd.offsets.MonthBegin(months))
    return parse_freq(f"{int(days)}D" if days == int(days) else pd.Series(times).diff().mode().iloc[0])


#: Bins for each time that occurs, from which a frequency cannot be meant: inferred, and given.
_MOST_EMPTY = 20, 1000


def _check_span(times: pd.DatetimeIndex, freq: pd.offsets.BaseOffset, *, inferred: bool) -> None:
    """Raise an `InputError` where a frequency has far more bins than there are times, as of times to the second."""
    step = mean_step(freq)
    if (times[-1] - times[0]) / step > _MOST_EMPTY[not inferred] * len(times):
        raise InputError(
            f"usage['ds'] has {len(times)} times from {times[0]} to {times[-1]}, which leaves nearly all bins of "
            f"freq={freq.freqstr!r} without a row; repair times that are far from all others, sum what falls into one "
            "bin, with usage['ds'].dt.floor('D') for days, or write zeros where nothing was used."
        )


#: Largest value whose squares can still be summed.
_LARGEST = 1e100


def _check_values(wide: pd.DataFrame) -> None:
    values = wide.to_numpy(dtype=float)
    beyond = np.abs(values) > _LARGEST
    if beyond.any():
        row, column = np.argwhere(beyond)[0]
        raise InputError(
            f"usage is {values[row, column]:g} for {shorten(str(wide.index[row]))!r} at "
            f"{wide.columns[column]}, beyond what can be computed with; repair it, or write NaN where the value is "
            "not known."
        )
    empty = np.isnan(values).all(axis=1)
    if empty.any():
        name, cure = wide.index[empty][0], "usage[usage['y'].notna().groupby(usage['unique_id']).transform('any')]"
        raise InputError(
            f"{int(empty.sum())} series have no value at all, the first {shorten(str(name))!r}; write 0 where "
            f"nothing was used, or leave them out: {cure}."
        )


def _with_days_off(freq: pd.offsets.BaseOffset, times: pd.DatetimeIndex) -> pd.offsets.BaseOffset:
    """Business days in place of days where no time is on a weekend, of which there were two or more."""
    weekends = (times[-1] - times[0]) / _DAY > 14 and mean_step(freq) == _DAY
    return pd.offsets.BDay() if weekends and (times.day_of_week < 5).all() else freq


#: Share of the bins without a row in any series from which they are no outage but times that are never recorded.
_NEVER_RECORDED = 0.1
#: A value that is so many times as large as any other of a series with so many values that are not 0 is likely wrong.
_OUTLIER, _FEWEST_OTHERS = 1000.0, 20
_CURE = "usage = gd.to_long(gd.to_wide(usage, fill_value=0))"


def warn_unlikely(usage: object, panel: Panel) -> None:
    """Warn of what is likely missing or wrong in a table of usage, of which the panel was made."""
    table = as_pandas(usage, "usage")
    known = ~np.isnan(panel.values)
    rows = _with_rows(table, panel, known)
    sentences = _unused(table), _ended(panel, known, rows), _holes(panel, known, rows), _never(panel, rows)
    for sentence in (*sentences, _outlier(panel), _alike(panel)):
        if sentence is not None:
            warnings.warn(sentence, UnlikelyUsageWarning, stacklevel=stack_level())


def _unused(table: pd.DataFrame) -> str | None:
    others = [str(shorten(str(name))) for name in table.columns if name not in ("unique_id", "ds", "y")]
    if not others:
        return None
    return (
        f"The columns {', '.join(others[:5])} of usage are not used. What is known ahead reaches a model of another "
        "library by adapt(model, regressors=...), and planned events by EventForecaster; drop the others."
    )


def _with_rows(table: pd.DataFrame, panel: Panel, known: BoolArray) -> BoolArray:
    """Bins of each series that the table has a row of, be its value known or not."""
    rows, unknown = known.copy(), table[table["y"].isna()]
    times = pd.DatetimeIndex(unknown["ds"].infer_objects())
    rows[panel.ids.get_indexer(pd.Index(unknown["unique_id"])), panel.times.get_indexer(times)] = True
    return rows


def _ended(panel: Panel, known: BoolArray, rows: BoolArray) -> str | None:
    n_times = len(panel.times)
    end, last = n_times - rows[:, ::-1].argmax(axis=1), n_times - known[:, ::-1].argmax(axis=1)
    # What is written as not known is, for up to a season.
    early = (end < n_times) | (last < n_times - season_length(panel.freq))
    early &= last < last.max()
    if not early.any():
        return None
    row = int(early.argmax())
    return (
        f"{int(early.sum())} of {len(early)} series end before {panel.times[-1]}, the first "
        f"{shorten(str(panel.ids[row]))!r} at {panel.times[last[row] - 1]}, and are forecast as if only their "
        f"record had stopped. If they used nothing since, say so: {_CURE}."
    )


def _holes(panel: Panel, known: BoolArray, rows: BoolArray) -> str | None:
    """Sentence about bins that a series lacks between its first and its last value, and another has."""
    if rows.all():
        return None
    place = np.arange(len(panel.times))
    first, last = known.argmax(axis=1), len(place) - known[:, ::-1].argmax(axis=1)
    inside = (place > first[:, None]) & (place < last[:, None])
    holes = inside & ~rows & rows.any(axis=0)
    if not holes.any():
        return None
    row, column = np.argwhere(holes)[0]
    return (
        f"{int(holes.sum())} bins inside series have no row, the first at {shorten(str(panel.ids[row]))!r}, "
        f"{panel.times[column]}; they are filled from the season before. If nothing was used then, say so: {_CURE}."
    )


def _never(panel: Panel, rows: BoolArray) -> str | None:
    """Sentence about bins that no series has."""
    never = ~rows.any(axis=0)
    if not never.any():
        return None
    first = panel.times[never.argmax()]
    if never.mean() > _NEVER_RECORDED:
        return (
            f"{never.mean():.0%} of the bins have no row in any series, the first at {first}, "
            "but are forecast like all others. Drop these times from the forecast, or number the bins that are "
            "recorded without gaps and give their number in a day as season_length."
        )
    return (
        f"{int(never.sum())} bins have no row in any series, the first at {first}; they are "
        "filled from the season before. If nothing was used then, write zeros."
    )


def _outlier(panel: Panel) -> str | None:
    """Sentence about a value that is far beyond all others of its series."""
    size = np.abs(np.nan_to_num(panel.values))
    if size.shape[1] <= _FEWEST_OTHERS:
        return None
    second = np.partition(size, -2, axis=1)[:, -2]
    beyond = (size.max(axis=1) > _OUTLIER * second) & ((size > 0).sum(axis=1) > _FEWEST_OTHERS)
    if not beyond.any():
        return None
    row = int(beyond.argmax())
    column = int(size[row].argmax())
    return (
        f"{int(beyond.sum())} series have one value that is more than {_OUTLIER:,.0f} times as large as any other, the "
        f"first {shorten(str(panel.ids[row]))!r} with {panel.values[row, column]:g} at {panel.times[column]}; "
        "forecasts and intervals follow it. If it is wrong, repair it or write NaN."
    )


def _alike(panel: Panel) -> str | None:
    """Sentence about names that differ by spaces around them only."""
    twice = panel.ids.astype(str).str.strip().duplicated(keep=False)
    if not twice.any():
        return None
    cure = "usage['unique_id'].str.strip()"
    return (
        f"{int(twice.sum())} names differ by spaces around them only, the first {shorten(str(panel.ids[twice][0]))!r}, "
        f"and are forecast as different series. If they are the same, repair them, {cure}, and sum."
    )


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

    >>> [week_length(parse_freq(freq)) for freq in ("10min", "h", "D", "W-MON", "MS")]
    [1008, 168, 7, 1, 1]
    """
    return max(round(7 * _DAY / mean_step(freq)), 1)


def week_of(season: int, freq: pd.offsets.BaseOffset) -> int:
    """Bins in a week; in one of days of `season` bins, where these are fewer than the calendar's, as of opening hours.

    >>> half_hours = parse_freq("30min")
    >>> [week_of(season, half_hours) for season in (48, 336, 18, 1)]
    [336, 336, 126, 336]
    """
    return 7 * season if 1 < season < season_length(freq) and mean_step(freq) < _DAY else week_length(freq)


@cache
def mean_step(freq: pd.offsets.BaseOffset) -> pd.Timedelta:
    """Mean width of the bins of a frequency."""
    start = pd.Timestamp("2001-01-01")
    return (start + 12 * freq - start) / 12


def row_means(y: FloatArray) -> FloatArray:
    """Mean of each row without its missing values, shape (n_series, 1); 0 for rows without a value.

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


def fill_missing(y: FloatArray, season: int) -> FloatArray:
    """Fill missing values with the same phase of the previous season, else with the previous value.

    Values before the first one are backfilled, so that a series has not `begun` at origins before it; a series without
    any value is 0.

    >>> fill_missing(np.array([[np.nan, 1.0, 2.0, 3.0, np.nan]]), season=2)
    array([[1., 1., 2., 3., 2.]])
    """
    if not np.isnan(y).any():
        return y
    n, n_times = y.shape
    filled = _forward_fill(_by_phase(y, season, np.nan), axis=1).reshape(n, -1)[:, :n_times]
    filled = _forward_fill(filled, axis=1)
    return np.nan_to_num(_forward_fill(filled[:, ::-1], axis=1)[:, ::-1])


def fill_gaps(y: FloatArray, season: int) -> FloatArray:
    """As `fill_missing`, which keeps phases where they are; but what lies before a series stays unknown."""
    return np.where(begun(y, np.arange(1, y.shape[1] + 1)), fill_missing(y, season), np.nan)


def begun(y: FloatArray, origins: IntArray) -> BoolArray:
    """Whether each series has a value before each origin, shape (n_series, n_origins).

    >>> begun(np.array([[np.nan, 1.0, 2.0]]), np.array([1, 2, 3]))
    array([[False,  True,  True]])
    """
    return np.asarray(np.logical_or.accumulate(~np.isnan(y), axis=1)[:, origins - 1])


def _by_phase(y: FloatArray, season: int, padding: float) -> FloatArray:
    """Series as (n_series, n_seasons, season), the last season padded."""
    n, n_times = y.shape
    pad = np.full((n, -n_times % season), padding)
    return np.concatenate([y, pad], axis=1).reshape(n, -1, season)


def _forward_fill(y: FloatArray, axis: int) -> FloatArray:
    shape = [1] * y.ndim
    shape[axis] = -1
    newest = np.where(np.isnan(y), 0, np.arange(y.shape[axis]).reshape(shape))
    return np.take_along_axis(y, np.maximum.accumulate(newest, axis=axis), axis=axis)


def rolling_mean(y: FloatArray, width: int) -> FloatArray:
    """Mean of the newest `width` values at every time, of fewer at the beginning.

    >>> rolling_mean(np.array([[1.0, 3.0, 5.0]]), 2)
    array([[1., 2., 4.]])
    """
    total = np.concatenate([np.zeros((len(y), 1)), np.cumsum(y, axis=1)], axis=1)
    stop = np.arange(1, y.shape[1] + 1)
    start = np.maximum(stop - width, 0)
    return (total[:, stop] - total[:, start]) / (stop - start)


def phase_mean(y: FloatArray, season: int, n_seasons: int) -> FloatArray:
    """Mean, at every time, of the newest `n_seasons` values of the same phase, the current one included.

    >>> phase_mean(np.array([[1.0, 2.0, 3.0, 4.0]]), season=2, n_seasons=2)
    array([[1., 2., 2., 3.]])
    """
    n, n_times = y.shape
    flat = _by_phase(y, season, 0.0).transpose(0, 2, 1).reshape(n * season, -1)
    means = rolling_mean(flat, n_seasons).reshape(n, season, -1).transpose(0, 2, 1)
    return means.reshape(n, -1)[:, :n_times]


def shifted(y: FloatArray, lag: int) -> FloatArray:
    """Value `lag` bins before every time; the first value where there is none."""
    if lag == 0:
        return y
    lag = min(lag, y.shape[1])
    return np.concatenate([np.repeat(y[:, :1], lag, axis=1), y[:, : y.shape[1] - lag]], axis=1)


class Seasonality(NamedTuple):
    """Lengths of a season and of a week in bins; equal where there is no second season, and 1 where there is none."""

    season: int
    week: int

    @classmethod
    def observable(cls, n_times: int, season: int, freq: pd.offsets.BaseOffset) -> Seasonality:
        """Seasons shown by a history of `n_times` bins: a season twice, a week three times.

        >>> hourly = pd.tseries.frequencies.to_offset("h")
        >>> [tuple(Seasonality.observable(n, 24, hourly)) for n in (30, 60, 600)]
        [(1, 1), (24, 24), (24, 168)]
        """
        week = week_of(season, freq)
        season = season if n_times >= 2 * season else 1
        return cls(season, week if 1 < season < week and 3 * week <= n_times else season)


def group_by_seasonality(
    origins: IntArray, season: int, freq: pd.offsets.BaseOffset
) -> Iterator[tuple[Seasonality, BoolArray]]:
    """Group origins by the seasons that can be observed there: each seasonality and a mask of its origins."""
    observed = [Seasonality.observable(int(origin), season, freq) for origin in origins]
    for seasonality in dict.fromkeys(observed):
        yield seasonality, np.array([other == seasonality for other in observed])
