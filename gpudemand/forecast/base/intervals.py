"""Prediction intervals from the quantiles of backtest errors, by horizon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import stdtrit

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_number

_ENOUGH_ORIGINS = 20
#: Errors below this share of the largest value of a series are rounding.
_ROUNDING = 1e-9
#: Half-life, in origins, of an error in the volatility, and the prior weight of the mean error.
_HALF_LIFE, _PRIOR_WEIGHT = 4.0, 10.0
#: Smallest effective sample size of a quantile.
_MIN_SAMPLE = 2.0
#: Effective errors for each disjoint span of overlapping ones: set by coverage on simulated clusters, seeds 0 to 23, of
#: forecasts 8 weeks, 28 and 84 days ahead.
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
    """Errors of forecasts from earlier origins.

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
        """Backtest a method inside a history and forecast from its end, in one pass.

        Parameters
        ----------
        paths : callable
            The forecaster as a pure function of the history and the origins in it.
        y : ndarray of shape (n_series, n_times)
            History.
        h : int
            Horizon.
        min_train : int
            Bins before the first origin.
        max_origins : int
            Most origins to use.
        season : int
            Origins lie whole seasons before the end where there are enough of them, because errors depend on the
            phase of the origin; otherwise they are evenly spaced.

        Returns
        -------
        point : ndarray of shape (n_series, h)
            Forecast from the end.
        errors : PastErrors
        """
        origins = _origins(y.shape[1], min_train, max_origins, season)
        errors = np.full((y.shape[0], origins.size, h), np.nan)
        forecasts = paths(y, np.append(origins, y.shape[1]), h)
        for place, origin in enumerate(origins):
            actual = y[:, origin : origin + h]
            errors[:, place, : actual.shape[1]] = actual - forecasts[:, place, : actual.shape[1]]
        # Series are normalised below, which would turn rounding errors into ordinary ones.
        rounding = _ROUNDING * np.nan_to_num(np.abs(y)).max(axis=1, initial=0.0)[:, None, None]
        return forecasts[:, -1], cls(np.where(np.abs(errors) <= rounding, 0.0, errors), origins)

    @cached_property
    def growth(self) -> FloatArray:
        """Growth of the errors with the horizon: a fitted power law with an exponent in [0, 1], shape (h,)."""
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
    def volatility(self) -> FloatArray:
        """Recent absolute error of each series at every origin and now, shape (n_series, n_origins + 1).

        An exponentially weighted mean of the errors known at the time, shrunk towards the mean of all of them; 1 for a
        series without errors.
        """
        n, _, h = self.errors.shape
        size = np.nan_to_num(np.abs(self.errors) / self.growth).reshape(n, -1)
        known = self._known.reshape(n, -1).astype(float)
        weights = self._recency_weights(h)
        mean = size.sum(axis=1, keepdims=True) / np.maximum(known.sum(axis=1, keepdims=True), 1)
        recent = (size @ weights + _PRIOR_WEIGHT * mean) / (known @ weights + _PRIOR_WEIGHT)
        return np.where(mean > 0, recent, 1.0)

    def _recency_weights(self, h: int) -> FloatArray:
        """Weight of every error at each origin and now, shape (n_origins * h, n_origins + 1)."""
        step = np.diff(self.origins).mean() if self.origins.size > 1 else 1.0
        now = np.append(self.origins, self.origins[-1] + step)
        age = now - self.origins[:, None]
        known = age[:, None] > np.arange(h)[:, None]
        weights = known * 0.5 ** np.maximum(age / step / _HALF_LIFE, 0.0)[:, None] / h
        return weights.reshape(-1, now.size)

    def quantiles(self, shares: Sequence[float], *, min_sample: int = 40) -> FloatArray:
        """Residual quantiles by horizon, scaled by recent volatility, with Student-t tails.

        A horizon is pooled with its neighbours, rescaled by `growth`, until it has `min_sample` errors; errors are
        normalised by the `volatility` at their origin. Errors over overlapping spans are dependent, so the effective
        sample size is at most three for each disjoint span of the series, and at least two. Quantiles beyond the
        largest of n errors, which the next one exceeds with probability 1 / (n + 1), follow Student's t.

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
        scaled, known = self.errors / self.growth / self.volatility[:, :-1, None], self._known
        count = known.any(axis=0).sum(axis=0)
        found = np.zeros((len(shares), n, h))
        for step in range(h):
            reach = _bandwidth(count, step, min_sample)
            pooled = slice(max(step - reach, 0), step + reach + 1)
            sample = np.sort(scaled[:, :, pooled].reshape(n, -1), axis=1)
            size = self._effective_size(np.any(known[:, :, pooled], axis=2), step + 1)
            for place, share in enumerate(shares):
                found[place, :, step] = _predictive_quantile(sample, size, share)
        return found * self.growth * self.volatility[:, -1:]

    def _effective_size(self, known: BoolArray, span: int) -> FloatArray:
        """Effective number of independent errors at the known origins of each series, shape (n_series,)."""
        first, last = known.argmax(axis=1), known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
        disjoint = 1 + _OVERLAPPING * (self.origins[last] - self.origins[first]) / span
        return np.asarray(np.maximum(np.minimum(disjoint, known.sum(axis=1)), _MIN_SAMPLE))


def _origins(n_times: int, min_train: int, max_origins: int, season: int) -> IntArray:
    last = n_times - 1
    first = min(max(min_train, 1), last)
    in_phase = np.arange(n_times - season, first - 1, -season, dtype=np.int64)[:max_origins][::-1]
    if in_phase.size >= min(_ENOUGH_ORIGINS, max_origins):
        return in_phase
    return np.unique(np.linspace(first, last, min(max_origins, last - first + 1)).round().astype(np.int64))


def _unit_scale(errors: FloatArray) -> FloatArray:
    """Errors of each series divided by their mean absolute value."""
    known = np.maximum((~np.isnan(errors)).sum(axis=(1, 2), keepdims=True), 1)
    size = np.nan_to_num(np.abs(errors)).sum(axis=(1, 2), keepdims=True) / known
    return errors / np.where(size > 0, size, 1.0)


def _bandwidth(count: IntArray, step: int, min_sample: int) -> int:
    for reach in range(count.size):
        if count[max(step - reach, 0) : step + reach + 1].sum() >= min_sample:
            return reach
    return int(count.size)


def _predictive_quantile(sample: FloatArray, size: FloatArray, share: float) -> FloatArray:
    """Predictive quantile of the next error from each sorted row, with an effective sample size of `size`."""
    middle = _quantile(sample, np.full(1, 0.5))
    if share == 0.5:
        return middle
    tail = max(share, 1 - share)
    # Few sizes are distinct.
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


def prediction_intervals(
    point: FloatArray, past: PastErrors, level: Sequence[float], floor: FloatArray
) -> dict[str, FloatArray]:
    """Lower and upper bounds by level, nested around the point forecast.

    Parameters
    ----------
    point : ndarray of shape (n_series, h)
    past : PastErrors
    level : sequence of float
        Percents, ascending.
    floor : ndarray of shape (n_series, 1)
        Smallest bound, 0 for demand.

    Returns
    -------
    dict of str to ndarray of shape (n_series, h)
        ``"lo-80"``, ``"hi-80"``, ...
    """
    bounds: dict[str, FloatArray] = {}
    low = high = point
    for value in level:
        tail = 0.5 - value / 200
        below, above = past.quantiles([tail, 1 - tail])
        low, high = np.minimum(low, point + below), np.maximum(high, point + above)
        bounds[f"lo-{value:g}"], bounds[f"hi-{value:g}"] = np.maximum(low, floor), np.maximum(high, floor)
    return bounds
