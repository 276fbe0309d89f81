"""Events, holidays and outages, and what they change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone

from gpudemand._array import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_columns, check_number, nearest, shorten
from gpudemand.forecast.combination import CombinedForecaster
from gpudemand.forecast.forecaster import Forecaster, adapt
from gpudemand.forecast.panel import Panel, row_means, season_length, week_length
from gpudemand.jobs.times import parse_timestamp, read_timestamp
from gpudemand.usage.bins import calendar_range

HOLIDAY = "public holiday"


class Calendar(NamedTuple):
    """Checked events."""

    names: pd.Index  # each event once
    effects: FloatArray  # (n_events,), relative change of demand where it was stated, else NaN
    table: pd.DataFrame  # ``event``, ``start``, ``end``

    @classmethod
    def of(cls, events: pd.DataFrame) -> Calendar:
        """Check a table of events, as `EventForecaster` takes it."""
        table = check_columns(events, ("event", "start", "end"), "events").reset_index(drop=True)
        given = table[["start", "end"]].astype(object)
        table = table.assign(**{side: [_time(value) for value in given[side]] for side in given})
        effects = table["effect"] if "effect" in table else [None] * len(table)
        table = table.assign(
            event=table["event"].astype(str), effect=list(map(_stated_effect, table["event"], effects))
        )
        for row, (name, start, end) in enumerate(zip(table["event"], table["start"], table["end"], strict=True)):
            if not (start is not None and end is not None and _utc(start) < _utc(end)):
                got = " and ".join(str(shorten(side)) for side in given.iloc[row])
                raise InputError(
                    f"event {shorten(name)!r} needs a start and, after it, an end, such as 2026-03-01; got {got}."
                )
        pairs = table[["event", "effect"]].drop_duplicates()
        if (several := pairs["event"].duplicated()).any():
            name = shorten(str(pairs.loc[several, "event"].iloc[0]))
            raise InputError(f"event {name!r} has several effects; call events that differ by different names.")
        return cls(pd.Index(pairs["event"], name="event"), pairs["effect"].to_numpy(float, copy=True), table)

    def shares(self, panel: Panel, h: int) -> FloatArray:
        """Share of every bin of a panel, and of the next `h`, that each event takes, shape (n_events, n_times + h)."""
        edges = calendar_range(panel.times[0], periods=panel.values.shape[1] + h + 1, freq=panel.freq)
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
    bounds = (parse_timestamp(time, name=name) for name, time in (("start", start), ("end", end)))
    first, last = (time.tz_localize(None).normalize() for time in bounds)
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
        time = read_timestamp(value)
    except (ValueError, TypeError):
        return None
    return None if time is pd.NaT else time


def _utc(time: pd.Timestamp) -> pd.Timestamp:
    return time.tz_localize("UTC") if time.tz is None else time


def _stated_effect(name: object, value: Any) -> float:
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


#: Weeks around an event, of which the same phases are what would have been without it.
_WEEKS = (-2, -1, 1, 2)


class EventForecaster(Forecaster):
    """Forecaster of demand without events, and what events that are known ahead change in it.

    The effect of an event is the relative change of the sum of all series against the same phases of the two weeks
    before and after it, over its past occurrences, of which it needs two. It is shrunk (positive-part James-Stein) by
    its variance: that of the same estimate at other times, or between occurrences, whichever is larger. So an event
    that the history does not show to matter changes nothing. Forecasts during an event, and their intervals, are
    multiplied by one and its effect; past events are taken out of the history by the effects that were known when they
    began.

    Parameters
    ----------
    forecaster : Forecaster, optional
        Of demand without events; `CombinedForecaster` by default.
    events : DataFrame
        ``event`` (name), ``start`` and ``end`` (the first moment after it), past and coming; without a zone in that of
        the usage. In ``effect``, where it is known, the relative change of demand (-1: nothing runs); by default it is
        estimated. See `public_holidays`.

    Attributes
    ----------
    effects_ : Series
        Effect by event at the end of the history.

    Notes
    -----
    Knowing public holidays changes the error of the mean GPUs held on them, a week ahead by day, by -21 % on Venus,
    -7 % on KTH-SP2, 0 on LLNL Atlas and Philly, and +3 % on PAI, a log of 49 days; on other days, by at most 1 %
    (``make bench-forecast ARGS="--track holidays"``). The rule was chosen on the first three.

    References
    ----------
    Efron and Morris, "Stein's estimation rule and its competitors: an empirical Bayes approach", JASA 68 (1973).

    Examples
    --------
    Two fifths of the demand are missing on holidays, two of them past, one to come:

    >>> days, rng = pd.date_range("2026-03-02", periods=100), np.random.default_rng(0)
    >>> y = 100 + rng.normal(0, 5, days.size)
    >>> y[[32, 60]] *= 0.6
    >>> start = pd.DatetimeIndex([days[32], days[60], pd.Timestamp("2026-06-11")])
    >>> events = pd.DataFrame({"event": "holiday", "start": start, "end": start + pd.Timedelta("1D")})
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": days, "y": y})
    >>> model = EventForecaster(events=events).fit(usage)
    >>> model.effects_.round(1).to_dict()
    {'holiday': -0.4}
    >>> model.predict(3)["CombinedForecaster"].round(-1).tolist()
    [100.0, 60.0, 100.0]
    """

    def __init__(self, forecaster: Forecaster | None = None, events: pd.DataFrame | None = None) -> None:
        self.forecaster = forecaster
        self.events = events

    @property
    def _allow_missing(self) -> bool:  # type: ignore[override]
        return self._inner()._allow_missing

    @property
    def _max_origins(self) -> int:  # type: ignore[override]
        return self._inner()._max_origins

    def column_name(self) -> str:
        """Name of the column of forecasts, that of `forecaster`."""
        return self._inner().column_name()

    def _inner(self) -> Forecaster:
        return CombinedForecaster() if self.forecaster is None else adapt(self.forecaster)

    def _fit_panel(self, panel: Panel) -> None:
        if self.events is None:
            raise InputError("events is missing; pass a table with event, start and end, as public_holidays makes it.")
        self._calendar = Calendar.of(self.events)
        shares = self._calendar.shares(panel, 0)
        self.forecaster_ = clone(self._inner())
        self.forecaster_._fit_panel(replace(panel, values=self._without_events(panel.values, shares, panel)))
        super()._fit_panel(panel)
        effects = self._effects(panel.values, shares, week_length(panel.freq))
        self.effects_ = pd.Series(effects, index=self._calendar.names, name="effect")

    def _season(self) -> int:
        return self.forecaster_.season_length_

    def _check_reach(self, h: int) -> None:
        self.forecaster_._check_reach(h)

    def _min_train(self) -> int:
        return self.forecaster_._min_train()

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        panel, week = replace(self.panel_, values=y), week_length(self.panel_.freq)
        shares = self._calendar.shares(panel, h)
        usual = self._without_events(y, shares[:, : y.shape[1]], panel)
        paths = self.forecaster_._paths(usual, origins, h).copy()
        for place, origin in enumerate(origins):
            effects = self._effects(y[:, :origin], shares[:, :origin], week)
            paths[:, place] *= _factors(effects, shares[:, origin : origin + h])
        return paths

    def _spread(self, h: int) -> FloatArray:
        return _factors(self.effects_.to_numpy(), self._calendar.shares(self.panel_, h)[:, -h:])

    def _without_events(self, y: FloatArray, shares: FloatArray, panel: Panel) -> FloatArray:
        """History without the effects of events, as they were known when each of them began."""
        week, out = week_length(panel.freq), y.copy()
        for first, last in _runs(_any(shares)):
            effects = self._effects(y[:, :first], shares[:, :first], week)
            lost = 1 - _factors(effects, shares[:, first:last])
            out[:, first:last] += lost * _same_phases(out[:, :first], week, last - first)
        return out

    def _effects(self, y: FloatArray, shares: FloatArray, week: int) -> FloatArray:
        """Relative change by each event that a history shows, shape (n_events,)."""
        effects, event = self._calendar.effects.copy(), _any(shares)
        total = np.where(np.isnan(y).all(axis=0), np.nan, np.nansum(y, axis=0))
        usual = _usual(np.where(event, np.nan, total), week)
        for row in np.flatnonzero(np.isnan(effects)):
            effects[row] = _shrunk_effect(total, usual, shares[row], event)
        return effects


def _any(shares: FloatArray) -> BoolArray:
    return np.asarray((shares > 0).any(axis=0))


def _factors(effects: FloatArray, shares: FloatArray) -> FloatArray:
    return np.asarray((1 + shares * effects[:, None]).prod(axis=0))


def _usual(y: FloatArray, week: int) -> FloatArray:
    """Mean of the same phase in the weeks before and after each bin, without missing ones, shape (n_times,)."""
    return pd.concat([pd.Series(y).shift(week * n) for n in _WEEKS], axis=1).mean(axis=1).to_numpy()


def _same_phases(y: FloatArray, week: int, h: int) -> FloatArray:
    """Mean of the same phases of the two weeks before, or of all there is where it is less, shape (n_series, h)."""
    if y.shape[1] < 2 * week:
        return np.repeat(row_means(y), h, axis=1)
    weeks = y[:, -2 * week :].reshape(len(y), 2, week)
    mean = np.stack([row_means(phase) for phase in weeks.transpose(2, 0, 1)], axis=1)[..., 0]
    return mean[:, np.arange(h) % week]


def _shrunk_effect(total: FloatArray, usual: FloatArray, share: FloatArray, event: BoolArray) -> float:
    occurrences = _runs(share > 0)
    if len(occurrences) < 2:
        return 0.0
    # The same pattern at other times, which meet no event, shows what chance does.
    step = max(last - first for first, last in occurrences)
    moved = (np.roll(share, offset) for offset in range(step, share.size, step))
    by_chance = np.array([_effect(total, usual, other) for other in moved if not other[event].any()])
    if by_chance.size < 2:
        return 0.0
    effect = _effect(total, usual, share)
    others = np.repeat(share[None], len(occurrences), axis=0)
    for row, (first, last) in zip(others, occurrences, strict=True):
        row[first:last] = 0.0
    jackknife = (len(others) - 1) * np.var([_effect(total, usual, other) for other in others])
    variance = max(float(by_chance.var()), float(jackknife))
    return effect * (1 - variance / effect**2) if variance < effect**2 else 0.0


def _effect(total: FloatArray, usual: FloatArray, share: FloatArray) -> float:
    """Least-squares change by an event that takes shares of bins, whose variance is in proportion to the usual."""
    # What rounding makes of no demand is no measure of a change.
    least = np.finfo(float).eps * np.fmax.reduce(total, initial=0.0)
    at = (share > 0) & (usual > least) & ~np.isnan(total)
    weight = float((share[at] ** 2 * usual[at]).sum())
    return float((share[at] * (total[at] - usual[at])).sum() / weight) if weight > 0 else 0.0


def _runs(flags: BoolArray) -> list[tuple[int, int]]:
    """First bin and first bin after each run of True."""
    edges = np.flatnonzero(np.diff(np.r_[False, flags, False].astype(int)))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]


#: Shares of the expected level below which a cluster is down, and is draining.
DOWN, _DRAINING = 0.1, 0.75
#: Most bins of a drain.
_LONGEST_DRAIN = 2
#: Expected level below which no outage is told from an idle cluster.
_LEAST_LEVEL = 5.0


def find_outages(usage: pd.DataFrame) -> pd.DataFrame:
    """Find times that were probably not recorded, or only in part, in the sum of all series.

    A bin is down when the sum is below a tenth of its expectation: the median of the season around it, or of the same
    phase in the seasons before and after, whichever is less, so that a cluster may be empty every night or weekend.
    Where that is below 5, nothing is reported, because small clusters are often idle.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``; missing rows are allowed, and reported.

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
    panel = Panel.from_long(usage, allow_missing=True)
    total, unrecorded = np.nansum(panel.values, axis=0), np.asarray(np.isnan(panel.values).all(axis=0))
    expected = _expected(total, season_length(panel.freq))
    share = total / np.maximum(expected, np.finfo(float).tiny)
    down = (share < DOWN) & (expected >= _LEAST_LEVEL) & ~unrecorded
    rows = [_incident(panel, first, last, "gap", 0.0) for first, last in _runs(unrecorded)]
    for first, last in _runs(down):
        rows += _with_decline(panel, share, first, last)
    if not down[-1] and expected[-1] >= _LEAST_LEVEL:
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
    end = panel.times[last] if last < len(panel.times) else panel.future(1)[0]
    return start, end, last - first, kind, share
