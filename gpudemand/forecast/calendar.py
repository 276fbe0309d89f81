"""Events that are known ahead: their table, public holidays, and the share of each bin that they take."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_columns, check_number, nearest, shorten
from gpudemand.forecast.base.panel import Panel

HOLIDAY = "public holiday"


class Calendar(NamedTuple):
    """Checked events.

    Attributes
    ----------
    names : Index
        Each event once.
    effects : ndarray of shape (n_events,)
        Relative change of demand where it was stated, else NaN.
    table : DataFrame
        ``event``, ``start``, ``end``.
    """

    names: pd.Index
    effects: FloatArray
    table: pd.DataFrame

    @classmethod
    def of(cls, events: pd.DataFrame) -> Calendar:
        """Check a table of events, as `EventForecaster` takes it.

        Raises
        ------
        InputError
            For a missing column, a time that is none, an end that is not after its start, an effect below -1, or two
            effects of one event.
        """
        table = check_columns(events, ("event", "start", "end"), "events").reset_index(drop=True)
        table = table.assign(**{side: [_time(value) for value in table[side]] for side in ("start", "end")})
        effects = table["effect"] if "effect" in table else [None] * len(table)
        table = table.assign(event=table["event"].astype(str), effect=list(map(_effect, table["event"], effects)))
        for name, start, end in zip(table["event"], table["start"], table["end"], strict=True):
            if not (start is not None and end is not None and _utc(start) < _utc(end)):
                raise InputError(f"event {shorten(name)!r} needs a start and, after it, an end; got {start} and {end}.")
        pairs = table[["event", "effect"]].drop_duplicates()
        if (several := pairs["event"].duplicated()).any():
            name = shorten(str(pairs.loc[several, "event"].iloc[0]))
            raise InputError(f"event {name!r} has several effects; call events that differ by different names.")
        return cls(pd.Index(pairs["event"], name="event"), pairs["effect"].to_numpy(float, copy=True), table)

    def shares(self, panel: Panel, h: int) -> FloatArray:
        """Share of every bin of a panel, and of the next `h`, that each event takes, shape (n_events, n_times + h)."""
        edges = pd.date_range(panel.times[0], periods=panel.values.shape[1] + h + 1, freq=panel.freq)
        begin, width = _seconds(edges[:-1]), np.diff(_seconds(edges))
        zone = panel.newest.tz
        sides = [
            _seconds(pd.DatetimeIndex([_on_clock(time, zone, edges.tz is None) for time in self.table[side]]))
            for side in ("start", "end")
        ]
        shares = np.zeros((len(self.names), begin.size))
        for row, start, end in zip(self.names.get_indexer(self.table["event"]), *sides, strict=True):
            shares[row] += np.clip(np.minimum(end, begin + width) - np.maximum(start, begin), 0, None) / width
        return np.minimum(shares, 1.0)


def public_holidays(place: str, start: object, end: object) -> pd.DataFrame:
    """Public holidays of a country or region as events, from the package ``holidays``.

    Parameters
    ----------
    place : str
        ISO 3166 code of a country, ``"DE"``, or of a region of it, ``"DE-BY"``.
    start, end : time-like
        First and last day.

    Returns
    -------
    DataFrame
        A row a day: ``event`` (one name for all, so that one effect is estimated), ``start`` and ``end`` in local time
        without a zone, and ``holiday``, its own name in English where it is translated.

    Raises
    ------
    InputError
        For an unknown country or region, a last day before the first, or if the package is not installed.

    Examples
    --------
    >>> public_holidays("DE", "2026-12-01", "2026-12-31")[["start", "holiday"]]  # doctest: +SKIP
           start                  holiday
    0 2026-12-25            Christmas Day
    1 2026-12-26  Second Day of Christmas
    """
    try:
        import holidays
    except ImportError as error:
        raise InputError("public holidays need the package holidays: pip install holidays.") from error
    country, _, region = place.partition("-")
    known = holidays.list_supported_countries()
    if country not in known:
        hint = nearest(country, known) or " Write 'DE' or 'DE-BY'."
        raise InputError(f"no public holidays are known of country {shorten(country)!r}.{hint}")
    if region and region not in known[country]:
        has = ", ".join(known[country]) or "none"
        raise InputError(f"no public holidays are known of region {shorten(region)!r} of {country}; it has {has}.")
    first, last = (pd.Timestamp(time).tz_localize(None).normalize() for time in (start, end))
    if last < first:
        raise InputError(f"end={shorten(end)!r} is before start={shorten(start)!r}; exchange them.")
    years = range(first.year, last.year + 1)
    found = holidays.country_holidays(country, region or None, years=years, language="en_US")
    days = sorted(day for day in map(pd.Timestamp, found) if first <= day <= last)
    starts = pd.DatetimeIndex(days, dtype="datetime64[ns]")
    names = [found[day.date()] for day in days]
    return pd.DataFrame({"event": HOLIDAY, "start": starts, "end": starts + pd.Timedelta("1D"), "holiday": names})


def _time(value: Any) -> pd.Timestamp | None:
    try:
        time = pd.Timestamp(value)
    except (ValueError, TypeError):
        return None
    return None if time is pd.NaT else time


def _utc(time: pd.Timestamp) -> pd.Timestamp:
    return time.tz_localize("UTC") if time.tz is None else time


def _effect(name: object, value: Any) -> float:
    unknown = value is None or (isinstance(value, float) and np.isnan(value))
    return np.nan if unknown else check_number(f"the effect of event {shorten(str(name))!r}", value, -1)


def _on_clock(time: pd.Timestamp, zone: Any, naive: bool) -> pd.Timestamp:
    """Time of an event on the clock of a panel; one without a zone is in that of the panel."""
    if zone is None:
        return time.tz_localize(None)
    if time.tz is None:
        time = time.tz_localize(zone, ambiguous=True, nonexistent="shift_forward")
    time = time.tz_convert(zone)
    return time.tz_localize(None) if naive else time


def _seconds(times: pd.DatetimeIndex) -> FloatArray:
    return np.asarray(times.as_unit("ns").asi8 / 1e9)
