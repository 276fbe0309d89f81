"""`EventForecaster`: forecasts that know public holidays, closures and deadlines ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from sklearn.base import clone

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.forecast.base.external import as_forecaster
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.panel import Panel, row_means, week_length
from gpudemand.forecast.calendar import Calendar
from gpudemand.forecast.combination.combined import CombinedForecaster

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
        return CombinedForecaster() if self.forecaster is None else as_forecaster(self.forecaster)

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
    padded = np.concatenate([np.full(2 * week, np.nan), y, np.full(2 * week, np.nan)])
    around = [padded[2 * week + week * n :][: y.size] for n in _WEEKS]
    known = np.sum([~np.isnan(values) for values in around], axis=0)
    return np.where(known > 0, np.nansum(around, axis=0) / np.maximum(known, 1), np.nan)


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
