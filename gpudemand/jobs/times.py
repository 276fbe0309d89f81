"""Times of logs: ISO 8601, seconds, zones, and hours that a clock repeats or skips."""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from gpudemand._array import BoolArray, FloatArray
from gpudemand._validation import InputError, nearest, shorten
from gpudemand.jobs.schema import EARLIEST, LATEST, OUTSIDE, ROUNDED, TIME

#: What logs write where there is no value, in lower case; the last is of MySQL.
NULL_MARKERS = ("", "none", "null", "nan", "nat", "na", "n/a", "unknown", "-", r"\n")
MILLISECONDS = "time in milliseconds? (seconds were expected)"
DAY_NUMBER = "time as the day number of a spreadsheet (write 2026-01-05 10:00)"
UNREADABLE_TIME = "unreadable time"
NO_SUCH_TIME = "local time that daylight saving skips"
#: Longer than any log, and short enough that adding it to a valid time still fits into 64 bits of nanoseconds.
MAX_SHIFT_S = 1.9e9
#: Time zero of epoch seconds.
EPOCH = pd.Timestamp(0, tz="UTC")

_DATE = r"^(19|20|21)\d\d-\d\d-\d\d"
_NAIVE = _DATE + r"([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?)?$"
_ZONED = _DATE + r"[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)? ?(Z|[+-]\d\d(:?\d\d)?)$"
_FIRST_MILLISECOND = 1e11
#: Numbers of the first and last plausible days in spreadsheets, which count from the end of 1899.
_DAY_NUMBERS = tuple((day - pd.Timestamp("1899-12-30", tz="UTC")).days for day in (EARLIEST, LATEST))


def parse_timezone(tz: object) -> dt.tzinfo | None:
    """Time zone from a name, an offset such as ``"+08:00"``, or a ``tzinfo``; None stays None."""
    if tz is None or isinstance(tz, dt.tzinfo):
        return tz
    hint = ""
    if isinstance(tz, str):
        offset = re.fullmatch(r"(?:UTC)?([+-])(\d\d):?(\d\d)", tz)
        if offset and int(offset[2]) < 24:
            length = dt.timedelta(hours=int(offset[2]), minutes=int(offset[3]))
            return dt.timezone(-length if offset[1] == "-" else length)
        try:
            return zoneinfo.ZoneInfo(tz)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            hint = nearest(tz, zoneinfo.available_timezones())
    raise InputError(f"tz={shorten(tz)!r} is not a time zone.{hint} Write one like 'Europe/Berlin' or '+08:00'.")


def read_timestamp(value: Any) -> pd.Timestamp:
    """Timestamp of a time or of ISO 8601 text; which number is the month of ``10.02.2026`` would be a guess.

    >>> read_timestamp("2026-02-10"), read_timestamp(dt.date(2026, 2, 10))
    (Timestamp('2026-02-10 00:00:00'), Timestamp('2026-02-10 00:00:00'))
    """
    if isinstance(value, (int, float, np.number)):
        raise TypeError("a number has no unit")
    if not isinstance(value, str):
        return pd.Timestamp(value)
    text = re.sub(r" ?UTC$", "Z", value.strip())
    if not text[:4].isdigit():  # pandas also takes words such as today
        raise ValueError("the year must be first")
    try:
        return pd.to_datetime(text, format="ISO8601")
    except pd.errors.OutOfBoundsDatetime:  # of nanoseconds, in pandas 2
        return pd.Timestamp(text)


def parse_timestamp(value: object, tz: object = "UTC", name: str = "") -> pd.Timestamp:
    """Timestamp with a zone from an argument; one without a zone is in `tz`.

    Of local times that daylight saving repeats, the first; where it skips one, the first after it.

    `name`: name of the argument, for the message.
    """
    try:
        time = read_timestamp(value)
        if not EARLIEST.year <= time.year < LATEST.year:
            raise ValueError("missing or outside")
    except (ValueError, TypeError) as error:
        given = f"{name}={shorten(value)!r}" if name else repr(shorten(value))
        message = f"{given} is not a time from 1985 to 2199; write '2026-03-01' or '2026-03-01 12:00+01:00'."
        raise InputError(message) from error
    return time if time.tzinfo else time.tz_localize(tz, ambiguous=True, nonexistent="shift_forward")


@dataclass(frozen=True)
class TimeParser:
    """Conversion of the times of one log to UTC.

    `tz`: zone of times that are written without one. `start`: UTC time from which relative seconds count; `EPOCH` for
    seconds since 1970. `source`: name of the log, for messages. `hint`: what is known about the zone or the start,
    for messages.
    """

    tz: dt.tzinfo | None = None
    start: pd.Timestamp | None = None
    source: str = "this log"
    hint: str = ""

    @classmethod
    def from_arguments(cls, tz: object, origin: object, source: str, hint: str = "") -> TimeParser:
        """Validate the arguments `tz` and `origin` of a reader."""
        tzinfo = parse_timezone(tz)
        if origin is None:
            return cls(tzinfo, None, source, hint)
        try:
            start = read_timestamp(origin)
        except (ValueError, TypeError) as error:
            raise InputError(f"origin={shorten(origin)!r} is not a time; write '2020-01-01 00:00+00:00'.") from error
        if start == pd.Timestamp(0):
            start = EPOCH  # by its definition in UTC, wherever the log is from
        if start.tzinfo is None and tzinfo is None:
            raise InputError(f"origin={str(origin)!r} has no time zone; write one into it or pass tz=.")
        start = start if start.tzinfo else start.tz_localize(tzinfo, ambiguous=True)
        if pd.isna(start) or not (EARLIEST <= start <= LATEST or start == EPOCH):
            raise InputError(f"origin={str(origin)!r} is not a time between 1985 and 2200, nor 1970-01-01.")
        return cls(tzinfo, start.tz_convert("UTC").as_unit("ns"), source, hint)

    def origin(self) -> pd.Timestamp:
        """Time from which relative seconds count; an `InputError` if none was given."""
        if self.start is None:
            message = f"the times in {self.source!r} are seconds from a start that the file does not name; pass origin="
            raise InputError(f"{message}, such as origin='2020-01-01 00:00+00:00'.{self.hint}")
        return self.start

    def localize(self, naive: pd.DatetimeIndex) -> pd.DatetimeIndex:
        """UTC of local times: the first of two that daylight saving repeats, NaT for one that it skips."""
        if self.tz is None:
            message = f"the times in {self.source!r} have no time zone; pass tz="
            raise InputError(f"{message}, such as tz='Europe/Berlin' or tz='UTC'.{self.hint}")
        # Days without a change of the offset are shifted as a whole: 50 times as fast as converting each time.
        codes, days = naive.normalize().factorize()
        shift = pd.to_timedelta([*(_constant_offset(day, self.tz) for day in days), pd.NaT])[codes]
        utc = pd.Series((naive - shift).tz_localize("UTC"))
        changing = np.asarray(shift.isna() & naive.notna())
        first = np.ones(changing.sum(), dtype=bool)
        utc[changing] = naive[changing].tz_localize(self.tz, ambiguous=first, nonexistent="NaT").tz_convert("UTC")
        return pd.DatetimeIndex(utc).as_unit("ns")

    def again(self, text: pd.Series) -> pd.Series:
        """Text of times that were there already: with its offset where daylight saving repeats the hour."""
        if self.tz is None:
            return text
        local = _iso(text.where(text.str.match(_NAIVE)), utc=False)
        second = local.tz_localize(self.tz, ambiguous=np.zeros(len(local), dtype=bool), nonexistent="NaT")
        repeated = second.notna() & (second.tz_convert("UTC") != self.localize(local))
        return text.mask(repeated, second.map(pd.Timestamp.isoformat, na_action="ignore"))

    def in_order(self, jobs: pd.DataFrame) -> pd.DataFrame:
        """Jobs with the second of two local times that daylight saving repeats, where the first is too early.

        A job that starts at 02:50 and ends at 02:10 has ended within the repeated hour. One that starts less than a
        second before its submission, of which only one is rounded, started at once.

        `jobs`: ``submit``, ``start`` and ``end``, as `localize` gives them.
        """
        early = jobs["start"] < jobs["submit"]
        if early.any() and (early := early & (jobs["submit"] - jobs["start"] < ROUNDED)).any():
            jobs = jobs.assign(submit=jobs["submit"].mask(early, jobs["start"]))
        if self.tz is None:
            return jobs
        for name, first in (("start", "submit"), ("end", "start")):
            early = jobs[name] < jobs[first].fillna(jobs["submit"])
            if early.any():
                second = self._second(jobs.loc[early, name])
                jobs = jobs.assign(**{name: jobs[name].mask(early, second.reindex(jobs.index))})
        return jobs

    def _second(self, times: pd.Series) -> pd.Series:
        """The second of two local times that daylight saving repeats, for either of them."""
        local = times.dt.tz_convert(self.tz).dt.tz_localize(None)
        return local.dt.tz_localize(self.tz, ambiguous=np.zeros(len(local), dtype=bool)).dt.tz_convert("UTC")

    def of_length(
        self, submit: pd.Series, start: pd.Series, end: pd.Series, seconds: pd.Series
    ) -> tuple[pd.Series, pd.Series]:
        """Starts and ends with the second of two local times that daylight saving repeats, where these fit a length.

        `submit`, `start`, `end`: as `localize` gives them. `seconds`: from start to end; NaN where it is not known.
        """
        if self.tz is not None and (early := start < submit).any():
            # Later parts of a resized job start before the submission, whichever of the two times that is.
            second = self._second(start[early])
            start = start.mask((second >= submit[early]).reindex(start.index, fill_value=False), second)
        apart = ((end - start).dt.total_seconds() - seconds).abs() > 1
        if self.tz is None or not apart.any():
            return start, end
        first, second = ([each[apart], self._second(each[apart])] for each in (start, end))
        for begin, over in product(first, second):
            fits = ((over - begin).dt.total_seconds() - seconds[apart]).abs() <= 1
            start, end = (
                each.mask(fits.reindex(each.index, fill_value=False), new.reindex(each.index))
                for each, new in ((start, begin), (end, over))
            )
        return start, end

    def parse(self, text: pd.Series) -> tuple[pd.Series, dict[str, BoolArray]]:
        """Read times written as ISO text, each in its own zone, or as epoch seconds.

        `text`: missing values are allowed and stay missing. Returns `invalid`, reason -> rows that could not be read.
        """
        raw = pa.array(text, type=pa.string(), from_pandas=True)
        raw = raw.combine_chunks() if isinstance(raw, pa.ChunkedArray) else raw
        patterns = (_NAIVE, _ZONED, _DATE, r"^[+-]?\d{4,}-\d\d-\d\d", r"^\d+(\.\d*)?$")
        naive, zoned, dated, other, epoch = (
            pc.fill_null(pc.match_substring_regex(raw, regex), False).to_numpy(zero_copy_only=False)
            for regex in patterns
        )
        seconds = pd.to_numeric(text.where(epoch), errors="coerce").to_numpy(dtype=float, na_value=np.nan)
        implausible = (seconds < EARLIEST.timestamp()) | (seconds > LATEST.timestamp())
        outside = (other & ~dated) | implausible
        day_number = (seconds >= _DAY_NUMBERS[0]) & (seconds <= _DAY_NUMBERS[1])
        times = pd.Series(pd.NaT, index=text.index, dtype=TIME)
        since_1970 = np.where(implausible, np.nan, seconds)[epoch]
        stamps = pd.DatetimeIndex(_microseconds(since_1970).astype("datetime64[us]"), tz="UTC").as_unit("ns")
        times[epoch] = stamps.where(~np.isnan(since_1970))
        times[zoned] = _iso(text[zoned], utc=True)
        local = _iso(text[naive], utc=False)
        times[naive] = self.localize(local) if naive.any() else local.tz_localize("UTC")
        skipped = np.zeros(len(text), dtype=bool)
        skipped[naive] = np.asarray(local.notna()) & times[naive].isna().to_numpy()
        unread = text.notna().to_numpy() & times.isna().to_numpy()
        return times, {
            MILLISECONDS: seconds >= _FIRST_MILLISECOND,
            DAY_NUMBER: day_number,
            OUTSIDE: outside & ~(seconds >= _FIRST_MILLISECOND) & ~day_number,
            NO_SUCH_TIME: skipped,
            UNREADABLE_TIME: unread & ~outside & ~skipped,
        }


def _constant_offset(day: pd.Timestamp, tz: dt.tzinfo) -> pd.Timedelta:
    """Offset from UTC through a whole local day, NaT if it changes."""
    begin, end = (tz.utcoffset(time.to_pydatetime()) for time in (day, day + pd.Timedelta(days=1)))
    return pd.Timedelta(begin) if begin == end else pd.NaT


def _iso(text: pd.Series, *, utc: bool) -> pd.DatetimeIndex:
    values = text.astype(object).to_numpy()
    return pd.DatetimeIndex(pd.to_datetime(values, format="ISO8601", errors="coerce", utc=utc)).as_unit("ns")


def _microseconds(seconds: FloatArray) -> FloatArray:
    return np.round(np.nan_to_num(seconds) * 1e6).astype("int64")


def add_seconds(times: pd.Series, seconds: pd.Series) -> pd.Series:
    """Times plus seconds; NaT where either is missing or the shift is longer than `MAX_SHIFT_S`.

    >>> add_seconds(pd.Series(pd.to_datetime(["2020-01-01"], utc=True)), pd.Series([90.5]))[0]
    Timestamp('2020-01-01 00:01:30.500000+0000', tz='UTC')
    """
    shift = seconds.where(seconds.abs() <= MAX_SHIFT_S).to_numpy(dtype=float, na_value=np.nan)
    lengths = pd.TimedeltaIndex(_microseconds(shift).astype("timedelta64[us]"))
    return (times + pd.Series(lengths.as_unit("ns"), index=times.index)).where(~np.isnan(shift))
