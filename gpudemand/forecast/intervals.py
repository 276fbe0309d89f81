"""Intervals from the errors of forecasts at earlier origins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import nnls
from scipy.special import stdtrit

from gpudemand._array import BoolArray, FloatArray, IntArray
from gpudemand.forecast.panel import begun, row_means

_ENOUGH_ORIGINS = 20
#: Errors below this share of the largest value of a series are rounding.
_ROUNDING = 1e-9
#: Half-life, in origins, of an error in the volatility, and the prior weight of the mean error: on a plateau of the
#: development half of the panels track, where 2 to 8, and 3 to 30, change the mean deviation of coverage by 0.2 points.
_HALF_LIFE, _PRIOR_WEIGHT = 4.0, 10.0
#: Smallest effective sample size of a quantile.
_MIN_SAMPLE = 2.0
#: Effective errors for each disjoint span of overlapping ones: set by coverage on simulated clusters, seeds 0 to 23, of
#: forecasts 7 to 84 days ahead from 16 to 336 days. Three are too wide far ahead, and twelve too narrow after few days.
_OVERLAPPING = 6.0
#: Step of the adaptive share, fitted on the development half of the panels track (.02 to .05 are alike), and the series
#: and the earlier errors that it needs.
_RATE, _SAMPLE, _MIN_PAST = 0.03, 100, 20

#: Origins of a series up to which its errors may be small by chance: they count as at least those of others, in
#: relation to the level. A user of two equal days is not certain. On the users of seven public logs who had one to
#: three origins, 95 % intervals of the combination a week ahead cover 78 % without this and 95 % with 2 to 32; the
#: interval score is the smallest with 8 (37.7; with 2, 50.2, with 4, 38.1, with 16, 37.8).
_FEW_OWN = 8

#: Tails are heavy if more than half of its errors are below this share of their mean (of normal ones 16 % are):
#: .1 to .4 are alike on the development half of the panels track and on simulated clusters of which one type is full.
_HEAVY_TAIL = 0.25

#: Shares at which the errors of a series are compared with those of all: ends of intervals of 95, 80 and 50 percent.
_COMPARED = np.array([0.025, 0.1, 0.25, 0.75, 0.9, 0.975])

#: (history of shape (n, t), origins, horizon) -> forecasts of shape (n, n_origins, h)
PathsFunction = Callable[[FloatArray, IntArray, int], FloatArray]


@dataclass(frozen=True)
class PastErrors:
    """Errors of forecasts from earlier origins."""

    errors: FloatArray  # (n_series, n_origins, h), actual less forecast; NaN after the history and before a series
    origins: IntArray  # (n_origins,), bins known at each, ascending
    levels: FloatArray | None = None  # (n_series,), mean absolute value, for series without errors yet

    @classmethod
    def of(cls, paths: PathsFunction, y: FloatArray, h: int, origins: IntArray) -> tuple[FloatArray, PastErrors]:
        """Backtest a method inside a history and forecast from its end, shape (n_series, h), in one pass."""
        errors = np.full((y.shape[0], origins.size, h), np.nan)
        forecasts = paths(y, np.append(origins, y.shape[1]), h)
        for place, origin in enumerate(origins):
            actual = y[:, origin : origin + h]
            errors[:, place, : actual.shape[1]] = actual - forecasts[:, place, : actual.shape[1]]
        errors[~begun(y, origins)] = np.nan
        # Series are normalised below, which would turn rounding errors into ordinary ones.
        rounding = _ROUNDING * np.nan_to_num(np.abs(y)).max(axis=1, initial=0.0)[:, None, None]
        levels = row_means(np.abs(y))[:, 0]
        return forecasts[:, -1], cls(np.where(np.abs(errors) <= rounding, 0.0, errors), origins, levels)

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

        An exponentially weighted mean of the errors known at the time, shrunk towards that of all other origins.
        """
        n, _, h = self.errors.shape
        size = np.nan_to_num(np.abs(self.errors) / self.growth)
        known = self._known.astype(float)
        weights = self._recency_weights(h)
        mean = _mean_of_others(size.sum(axis=2), known.sum(axis=2))
        recent = size.reshape(n, -1) @ weights + _PRIOR_WEIGHT * mean
        scale = recent / (known.reshape(n, -1) @ weights + _PRIOR_WEIGHT)
        # Origins without errors say nothing about the scale of those at others.
        scale = np.where(scale > 0, scale, mean[:, -1:])
        count = self._known.any(axis=2).sum(axis=1)
        new = count < min(_FEW_OWN, count.max())
        if self.levels is not None and self.levels[~new].sum() > 0:
            relative = scale[~new].sum(axis=0) / self.levels[~new].sum()
            scale[new] = np.maximum(scale[new], self.levels[new, None] * relative)
        return scale

    def _recency_weights(self, h: int) -> FloatArray:
        """Weight of every error at each origin and now, shape (n_origins * h, n_origins + 1)."""
        step = np.diff(self.origins).mean() if self.origins.size > 1 else 1.0
        now = np.append(self.origins, self.origins[-1] + step)
        age = now - self.origins[:, None]
        known = age[:, None] > np.arange(h)[:, None]
        weights = known * 0.5 ** np.maximum(age / step / _HALF_LIFE, 0.0)[:, None] / h
        return weights.reshape(-1, now.size)

    def quantiles(self, shares: Sequence[float]) -> FloatArray:
        """Residual quantiles, (len(shares), n_series, h): of scaled errors, times the scale of series and step.

        Errors are scaled by the `volatility` of their series at their origin and by `growth`, and pooled over all
        series and steps. The quantiles of a series lie between its own and the pooled ones, the nearer to its own the
        surer it is that its errors are of another shape: a team that is always there has not the errors of users who
        come now and then. Errors of series with heavy tails are clipped to the largest of the others': a full cluster
        is forecast exactly but for its outages, which would give other series bounds beyond all that was ever seen. The
        share that is looked up follows the frequencies at past origins (adaptive conformal inference). Errors over
        overlapping spans are dependent, so the effective sample size is at most six for each disjoint span of a series,
        and at least two. Quantiles beyond the largest of n errors, which the next one exceeds with probability 1 / (n +
        1), follow Student's t.

        References
        ----------
        Gibbs and Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021; Vovk, Gammerman and
        Shafer, "Algorithmic Learning in a Random World", 2005.
        """
        own = np.sort(self._scaled.reshape(len(self.errors), -1), axis=1)
        pooled, sizes = np.sort(own, axis=None)[None], self._effective_sizes
        size, weight = max(float(sizes.sum()), _MIN_SAMPLE), self._own_weight(own, pooled, sizes)
        found = np.empty((len(shares), len(own), 1))
        for place, share in enumerate(self._adapted(np.asarray(shares, dtype=float))):
            of_all, of_own = (_predictive_quantile(rows, size, float(share)) for rows in (pooled, own))
            found[place, :, 0] = of_all + weight * (of_own - of_all)
        return found * self.growth * self.volatility[:, -1:]

    @cached_property
    def _scaled(self) -> FloatArray:
        scale = self.volatility[:, :-1, None] * self.growth
        scaled = np.divide(self.errors, scale, out=np.full_like(self.errors, np.nan), where=scale > 0)
        heavy = self._heavy_tailed
        largest = np.fmax.reduce(np.abs(scaled[~heavy]), axis=None, initial=0.0)
        if largest > 0:
            scaled[heavy] = scaled[heavy].clip(-largest, largest)
        return scaled

    @property
    def _heavy_tailed(self) -> BoolArray:
        """Series with many errors that are small beside their mean, shape (n_series,)."""
        size, count = np.abs(self.errors) / self.growth, self._known.sum(axis=(1, 2))
        mean = np.nansum(size, axis=(1, 2)) / np.maximum(count, 1)
        return np.asarray((size < _HEAVY_TAIL * mean[:, None, None]).sum(axis=(1, 2)) > count / 2)

    def _adapted(self, shares: FloatArray) -> FloatArray:
        """Shares at which the quantiles of earlier errors lay above `shares` of the next ones, origin by origin."""
        scaled = self._scaled[:: max(len(self.errors) // _SAMPLE, 1)]
        steps, known, now = np.arange(scaled.shape[2]), ~np.isnan(scaled), shares
        most = max(known.sum(axis=(0, 2)).max(), 1)
        for place in range(scaled.shape[1] // 3, scaled.shape[1]):
            past = known[:, :place] & (self.origins[:place, None] + steps < self.origins[place])
            earlier, new = scaled[:, :place][past], np.sort(scaled[:, place][known[:, place]])
            if earlier.size >= _MIN_PAST and new.size:
                limit = np.quantile(earlier, now)
                below, up_to = (np.searchsorted(new, limit, side) / new.size for side in ("left", "right"))
                # An origin counts as much as there are series that have begun.
                now = now + _RATE * new.size / most * (shares - np.where(shares < 0.5, below, up_to))
                now = np.clip(now, shares / 4, 1 - (1 - shares) / 4)
        return now

    @staticmethod
    def _own_weight(own: FloatArray, pooled: FloatArray, sizes: FloatArray) -> FloatArray:
        """Share of its own quantiles in those of a series, shape (n_series,), from sorted errors and effective sizes.

        With the statistic X of a chi-squared test that its errors are as those of all, on d degrees of freedom, 1 - d /
        X: the share of the squared differences that is more than chance, or 0 where X < d (positive-part shrinkage).
        """
        cuts = [_quantile(pooled, share)[0] for share in _COMPARED]
        expected, seen = (np.diff(_shares_below(rows, cuts), axis=1, prepend=0, append=1) for rows in (pooled, own))
        expected = np.where(expected > 0, expected, np.inf)  # cuts that are equal, as where most errors are 0
        freedom = np.isfinite(expected).sum() - 1
        statistic = sizes * (np.square(np.where(np.isfinite(expected), seen - expected, 0.0)) / expected).sum(axis=1)
        return np.maximum(statistic - freedom, 0.0) / np.maximum(statistic, 1.0)

    @property
    def _effective_sizes(self) -> FloatArray:
        """Effective number of independent errors of each series, which spends one on its scale."""
        known: BoolArray = np.asarray(self._known.any(axis=2))
        span = max(int(self._known.any(axis=(0, 1)).sum()), 1)
        first, last = known.argmax(axis=1), known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
        disjoint = 1 + _OVERLAPPING * (self.origins[last] - self.origins[first]) / span
        return np.maximum(np.minimum(disjoint, known.sum(axis=1)) - 1, 0)


def backtest_origins(n_times: int, min_train: int, max_origins: int, season: int) -> IntArray:
    """Origins inside a history from which errors are taken, ascending.

    They lie whole seasons before the end where there are enough of them, because errors depend on the phase of the
    origin; otherwise they are evenly spaced.
    """
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


def _mean_of_others(total: FloatArray, count: FloatArray) -> FloatArray:
    """Mean without each origin, and with all of them in the last place, shape (n_series, n_origins + 1).

    Scaled by a mean that it is part of, an error would look smaller than one that is still to come.
    """
    overall, counts = total.sum(axis=1, keepdims=True), count.sum(axis=1, keepdims=True)
    alone = count == counts
    others = (overall - np.where(alone, 0.0, total)) / np.maximum(counts - np.where(alone, 0.0, count), 1)
    return np.hstack([others, overall / np.maximum(counts, 1)])


def _shares_below(rows: FloatArray, cuts: Sequence[float]) -> FloatArray:
    """Shares of the values of each row below cuts, those at a cut counted half, shape (n_rows, len(cuts))."""
    count = np.maximum((~np.isnan(rows)).sum(axis=1), 1)
    return np.stack([((rows < cut).sum(axis=1) + (rows <= cut).sum(axis=1)) / 2 / count for cut in cuts], axis=1)


def _predictive_quantile(rows: FloatArray, size: float, share: float) -> FloatArray:
    """Predictive quantile of the next error from each sorted row, with an effective size of `size`; 0 from none."""
    middle = _quantile(rows, 0.5)
    if np.isclose(share, 0.5, rtol=0.0, atol=1e-9):
        return middle
    tail = max(share, 1 - share)
    reached = min(tail, size / (size + 1))
    at = 0.5 + np.sign(share - 0.5) * (reached - 0.5) * (size + 1) / size
    freedom = max(size - 1, 2)
    stretch = stdtrit(freedom, tail) / stdtrit(freedom, reached)
    return np.asarray(middle + (_quantile(rows, at) - middle) * stretch)


def _quantile(rows: FloatArray, share: float) -> FloatArray:
    """Hazen's quantile of each sorted row, whose missing values are last; 0 of a row without values."""
    last = np.maximum((~np.isnan(rows)).sum(axis=1) - 1, 0)
    place = np.clip(share * (last + 1) - 0.5, 0, last)
    low, row = place.astype(np.int64), np.arange(len(rows))
    below, above = rows[row, low], rows[row, np.minimum(low + 1, last)]
    return np.nan_to_num(below + (above - below) * (place - low))


def prediction_intervals(
    point: FloatArray, past: PastErrors, level: Sequence[float], floor: FloatArray, spread: FloatArray | float = 1.0
) -> dict[str, FloatArray]:
    """Bounds ``"lo-80"``, ``"hi-80"``, ... of ascending levels in percent, nested around the point forecast.

    `floor`: shape (n_series, 1); smallest bound. `spread`: shape (h,); factor on the width of each step.
    """
    bounds: dict[str, FloatArray] = {}
    low = high = point
    tails = [0.5 - value / 200 for value in level]
    found = spread * past.quantiles([*tails, *(1 - tail for tail in tails)])
    for value, below, above in zip(level, found[: len(tails)], found[len(tails) :], strict=True):
        low, high = np.minimum(low, point + below), np.maximum(high, point + above)
        bounds[f"lo-{value:g}"], bounds[f"hi-{value:g}"] = np.maximum(low, floor), np.maximum(high, floor)
    return bounds


#: Lengths at which errors are compared, and degrees of freedom that the shorter ones add to those of the longest.
_LENGTHS, _FROM_SHORTER = 8, 2.0


def mean_error_quantiles(past: PastErrors, shares: FloatArray, shortest: int) -> FloatArray:
    """Predictive quantiles of the error of the mean over the whole horizon, shape (len(shares), n_series).

    The variance of the mean error over ``k`` bins is fitted by ``a / k + b + c k``, no coefficient below zero: noise of
    single bins, which averages out, a wrong level, and a level that wanders like a random walk. Mean squared errors at
    several lengths are weighted by the disjoint spans behind them, and their relation is pooled over series; so errors
    at the length of the horizon count where the history has them, and the curve extends the shorter ones where it has
    none. Quantiles are those of Student's t, as the variance is estimated from few spans. Within `shortest`, a season,
    errors are dependent, so that shorter lengths say nothing.

    Errors of a random walk from every week of a year: the variance of the mean over 90 days is near 90 / 3.

    >>> rng, origins = np.random.default_rng(0), np.arange(28, 3650, 7)
    >>> walk = np.cumsum(rng.normal(size=(1, 3740)), axis=1)
    >>> errors = walk[:, origins[:, None] + np.arange(90)] - walk[:, origins - 1][..., None]
    >>> found = mean_error_quantiles(PastErrors(errors, origins), np.array([0.5, 0.841]), shortest=7)
    >>> found.round().ravel().tolist()
    [0.0, 6.0]
    """
    errors = past.errors
    lengths = _compared_lengths(errors, shortest)
    means = np.cumsum(errors, axis=2)[:, :, lengths - 1] / lengths
    known = ~np.isnan(means)
    squares = np.square(np.nan_to_num(means)).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    first, last = known.argmax(axis=1), known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    spans = known.any(axis=1) * (1 + (past.origins[last] - past.origins[first]) / lengths)
    variance = _variance(squares, spans, lengths, errors.shape[2])
    longest = np.where(spans > 0, spans, np.inf).min(axis=1, initial=np.inf)
    freedom = np.where(np.isfinite(longest), longest, 0.0) + _FROM_SHORTER
    return np.asarray(stdtrit(freedom, np.asarray(shares)[:, None]) * np.sqrt(variance))


def _compared_lengths(errors: FloatArray, shortest: int) -> FloatArray:
    """Lengths of means, evenly spaced in their logarithm, up to the longest that the history shows."""
    known = int((~np.isnan(errors)).any(axis=(0, 1)).sum())
    return np.unique(np.geomspace(min(shortest, max(known, 1)), max(known, 1), _LENGTHS).round().astype(np.int64))


def _variance(squares: FloatArray, spans: FloatArray, lengths: FloatArray, h: int) -> FloatArray:
    """Variance of the mean over `h` bins by series: the level of its own, the growth with length pooled."""
    scale = (spans * squares).sum(axis=1) / np.maximum(spans.sum(axis=1), 1.0)
    relative = np.divide(squares, scale[:, None], out=np.zeros_like(squares), where=scale[:, None] > 0)
    weight = spans * (scale > 0)[:, None]
    total = np.maximum(weight.sum(axis=0), np.finfo(float).tiny)
    pooled, root = (weight * relative).sum(axis=0) / total, np.sqrt(weight.sum(axis=0))
    coefficients = nnls(_curve(lengths) * root[:, None], pooled * root)[0]
    return scale * float((_curve(np.array([h])) @ coefficients)[0])


def _curve(lengths: FloatArray) -> FloatArray:
    return np.stack([1 / lengths, np.ones(lengths.size), lengths], axis=1)
