"""Intervals from past errors: what the same method got wrong, at the same distance, at earlier origins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import stdtrit

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_number

_ENOUGH_ORIGINS = 20
#: Errors below this share of a series' largest value are none.
_ROUNDING = 1e-9
#: Origins after which an error counts half in what is usual of late, and what the mean of all errors counts for.
_HALF_LIFE, _USUAL = 4.0, 10.0
#: Errors that a quantile counts as one from at least: a single one says nothing of how far they spread.
_FEWEST = 2.0
#: As how many errors those over overlapping spans count, by disjoint span: set by coverage on simulated clusters, seeds
#: 0 to 23, of forecasts 8 weeks, 28 and 84 days ahead.
_OVERLAPPING = 3.0

#: (history of shape (n, t), origins, horizon) -> forecasts of shape (n, n_origins, h)
PathsFunction = Callable[[FloatArray, IntArray, int], FloatArray]


def check_levels(level: Sequence[float] | float | None) -> list[float]:
    """Return interval levels in percent, ascending, each inside (0, 100)."""
    if level is None:
        return []
    wanted: list[float] = list(np.atleast_1d(np.asarray(level, dtype=object)))
    for value in wanted:
        check_number("level", value, 0, 99.9, open_low=True)
    if wanted and max(wanted) <= 1:
        raise InputError(f"level={level!r} looks like a share; levels are percents, such as 80 and 95.")
    return sorted(float(value) for value in wanted)


@dataclass(frozen=True)
class PastErrors:
    """What a method got wrong at earlier origins.

    Attributes
    ----------
    errors : ndarray of shape (n_series, n_origins, h)
        Actual minus forecast; NaN beyond the end of the history and before a series begins.
    origins : ndarray of shape (n_origins,)
        Bins known at each origin, ascending.
    """

    errors: FloatArray
    origins: IntArray

    @classmethod
    def of(
        cls, paths: PathsFunction, y: FloatArray, h: int, *, min_train: int, max_origins: int, season: int
    ) -> tuple[FloatArray, PastErrors]:
        """Run a method at origins inside a history and at its end, in one pass.

        Parameters
        ----------
        paths : callable
            The forecaster as a pure function of the history and the origins in it.
        y : ndarray of shape (n_series, n_times)
            History.
        h : int
            Horizon.
        min_train : int
            Fewest bins before an origin.
        max_origins : int
            Most origins to use.
        season : int
            Origins lie whole seasons before the end where there are enough of them: a method that starts from the
            newest value errs differently at midnight and at noon. Otherwise they are spread evenly.

        Returns
        -------
        point : ndarray of shape (n_series, h)
            What the method forecasts from the end.
        errors : PastErrors
        """
        origins = _origins(y.shape[1], min_train, max_origins, season)
        errors = np.full((y.shape[0], origins.size, h), np.nan)
        forecasts = paths(y, np.append(origins, y.shape[1]), h)
        for place, origin in enumerate(origins):
            actual = y[:, origin : origin + h]
            errors[:, place, : actual.shape[1]] = actual - forecasts[:, place, : actual.shape[1]]
        # What is left by rounding would count as much as any error where series are given the same weight.
        rounding = _ROUNDING * np.nan_to_num(np.abs(y)).max(axis=1, initial=0.0)[:, None, None]
        return forecasts[:, -1], cls(np.where(np.abs(errors) <= rounding, 0.0, errors), origins)

    @cached_property
    def growth(self) -> FloatArray:
        """How errors grow with the horizon: the power law through their size, between flat and linear, shape (h,)."""
        steps = np.arange(1, self.errors.shape[2] + 1)
        count = self._known.sum(axis=(0, 1))
        squares = np.square(np.nan_to_num(_unit_scale(self.errors))).sum(axis=(0, 1))
        size = np.sqrt(squares / np.maximum(count, 1))
        fit = size > 0
        if fit.sum() < 2:
            return np.ones(steps.size)
        slope = np.polyfit(np.log(steps[fit]), np.log(size[fit]), 1, w=np.sqrt(count[fit]))[0]
        return steps ** float(np.clip(slope, 0.0, 1.0))

    @property
    def _known(self) -> BoolArray:
        return ~np.isnan(self.errors)

    @cached_property
    def turbulence(self) -> FloatArray:
        """Size of each series' errors as of late, at every origin and now, shape (n_series, n_origins + 1).

        A mean over the errors known at the time, of which those before the newest weigh less, pulled towards the mean
        of all of them; 1 for a series that was never wrong.
        """
        n, _, h = self.errors.shape
        size = np.nan_to_num(np.abs(self.errors) / self.growth).reshape(n, -1)
        known = self._known.reshape(n, -1).astype(float)
        weights = self._lately(h)
        usual = size.sum(axis=1, keepdims=True) / np.maximum(known.sum(axis=1, keepdims=True), 1)
        lately = (size @ weights + _USUAL * usual) / (known @ weights + _USUAL)
        return np.where(usual > 0, lately, 1.0)

    def _lately(self, h: int) -> FloatArray:
        """Weight of every past error at each origin and now, shape (n_origins * h, n_origins + 1), in origins."""
        step = np.diff(self.origins).mean() if self.origins.size > 1 else 1.0
        # What is forecast now continues the row of past origins.
        now = np.append(self.origins, self.origins[-1] + step)
        age = now - self.origins[:, None]
        known = age[:, None] > np.arange(h)[:, None]
        weights = known * 0.5 ** np.maximum(age / step / _HALF_LIFE, 0.0)[:, None] / h
        return weights.reshape(-1, now.size)

    def quantiles(self, shares: Sequence[float], *, min_sample: int = 40) -> FloatArray:
        """Quantiles of the errors by horizon, as wide as the errors of late ask for and the evidence allows.

        A horizon borrows from its neighbours, rescaled by `growth`, until it has `min_sample` errors, and errors of
        calm and turbulent times are compared by their `turbulence`. Errors over overlapping spans repeat one another,
        so a quantile counts as one from at most three errors by disjoint span of the series (two, if it has fewer). Of
        n errors the largest is exceeded by the next with a probability of 1 / (n + 1); what lies beyond is extrapolated
        with Student's t.

        Parameters
        ----------
        shares : sequence of float in (0, 1)
        min_sample : int, default=40

        Returns
        -------
        ndarray of shape (len(shares), n_series, h)

        References
        ----------
        Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005.
        """
        n, _, h = self.errors.shape
        scaled, known = self.errors / self.growth / self.turbulence[:, :-1, None], self._known
        count = known.any(axis=0).sum(axis=0)
        found = np.zeros((len(shares), n, h))
        for step in range(h):
            reach = _reach(count, step, min_sample)
            near = slice(max(step - reach, 0), step + reach + 1)
            sample = np.sort(scaled[:, :, near].reshape(n, -1), axis=1)
            size = self._independent(np.any(known[:, :, near], axis=2), step + 1)
            for place, share in enumerate(shares):
                found[place, :, step] = _predictive(sample, size, share)
        return found * self.growth * self.turbulence[:, -1:]

    def _independent(self, known: BoolArray, span: int) -> FloatArray:
        """How many independent errors those of the known origins of each series amount to, shape (n_series,)."""
        first, last = known.argmax(axis=1), known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
        apart = 1 + _OVERLAPPING * (self.origins[last] - self.origins[first]) / span
        return np.asarray(np.maximum(np.minimum(apart, known.sum(axis=1)), _FEWEST))


def _origins(n_times: int, min_train: int, max_origins: int, season: int) -> IntArray:
    last = n_times - 1
    first = min(max(min_train, 1), last)
    in_phase = np.arange(n_times - season, first - 1, -season, dtype=np.int64)[:max_origins][::-1]
    if in_phase.size >= min(_ENOUGH_ORIGINS, max_origins):
        return in_phase
    return np.unique(np.linspace(first, last, min(max_origins, last - first + 1)).round().astype(np.int64))


def _unit_scale(errors: FloatArray) -> FloatArray:
    """Give every series the same weight, whatever its level."""
    known = np.maximum((~np.isnan(errors)).sum(axis=(1, 2), keepdims=True), 1)
    size = np.nan_to_num(np.abs(errors)).sum(axis=(1, 2), keepdims=True) / known
    return errors / np.where(size > 0, size, 1.0)


def _reach(count: IntArray, step: int, min_sample: int) -> int:
    for reach in range(count.size):
        if count[max(step - reach, 0) : step + reach + 1].sum() >= min_sample:
            return reach
    return int(count.size)


def _predictive(sample: FloatArray, size: FloatArray, share: float) -> FloatArray:
    """Value that the next error stays below with a probability, from each sorted row as if of `size` errors."""
    middle = _quantile(sample, np.full(1, 0.5))
    if share == 0.5:
        return middle
    tail = max(share, 1 - share)
    # Most series have been there equally long.
    sizes, which = np.unique(size, return_inverse=True)
    reached = np.minimum(tail, sizes / (sizes + 1))
    at = 0.5 + np.sign(share - 0.5) * (reached - 0.5) * (sizes + 1) / sizes
    freedom = np.maximum(sizes - 1, 2)
    stretch = stdtrit(freedom, tail) / stdtrit(freedom, reached)
    return middle + (_quantile(sample, at[which]) - middle) * stretch[which]


def _quantile(sample: FloatArray, share: FloatArray) -> FloatArray:
    """Quantile of each sorted row without its NaN, which come last; 0 where there is nothing else."""
    count = (~np.isnan(sample)).sum(axis=1, keepdims=True)
    at = np.clip(share[:, None] * count - 0.5, 0, np.maximum(count - 1, 0))
    below = at.astype(np.int64)
    low, high = (np.take_along_axis(sample, place, axis=1) for place in (below, np.ceil(at).astype(np.int64)))
    return np.asarray(np.nan_to_num(low + (at - below) * (high - low))[:, 0])


def bands(point: FloatArray, past: PastErrors, level: Sequence[float], floor: FloatArray) -> dict[str, FloatArray]:
    """Lower and upper ends by level, nested around the point forecast and never below a floor.

    Parameters
    ----------
    point : ndarray of shape (n_series, h)
    past : PastErrors
    level : sequence of float
        Percents, ascending.
    floor : ndarray of shape (n_series, 1)
        Lowest value that makes sense, 0 for demand.

    Returns
    -------
    dict of str to ndarray of shape (n_series, h)
        ``"lo-80"``, ``"hi-80"``, ...
    """
    ends: dict[str, FloatArray] = {}
    low = high = point
    for value in level:
        tail = 0.5 - value / 200
        below, above = past.quantiles([tail, 1 - tail])
        low, high = np.minimum(low, point + below), np.maximum(high, point + above)
        ends[f"lo-{value:g}"], ends[f"hi-{value:g}"] = np.maximum(low, floor), np.maximum(high, floor)
    return ends
