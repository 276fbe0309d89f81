"""Regressions on lagged values: `RidgeAutoregression`, `LagRegression`, direct regressions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.signal import lfilter

from gpudemand._array import BoolArray, FloatArray, IntArray, compiled, one_thread, solve_each
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.forecast.forecaster import Forecaster, SeasonalForecaster, positive_int
from gpudemand.forecast.panel import (
    Seasonality,
    fill_missing,
    mean_step,
    phase_mean,
    rolling_mean,
    season_length,
    shifted,
    week_length,
    week_of,
)

#: Lagged values in memory at once.
_CHUNK = 2e7


def default_lags(season: int, freq: pd.offsets.BaseOffset, n_times: int) -> tuple[int, ...]:
    """The newest bins, and one season, one week and both together with their neighbours, up to half of the history.

    >>> default_lags(7, pd.offsets.Day(), 60)
    (1, 2, 3, 4, 6, 7, 8, 9, 13, 14, 15, 16)
    """
    week = max(season, week_of(season, freq))
    centres = {0, season, week, week + season} if season > 1 else {0}
    lags = {centre + step for centre in centres for step in (-1, 0, 1, 2)} | {3, 4}
    return tuple(sorted(lag for lag in lags if lag >= 1 and 2 * lag <= n_times)) or (1,)


def lagged(x: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """Values at each lag of every time that has them all, shape (n_lags, ..., n_times - max(lags))."""
    longest, n = max(lags), x.shape[-1]
    return np.stack([x[..., longest - lag : n - lag] for lag in lags])


def fit_weights(x: FloatArray, lags: tuple[int, ...], penalty: float) -> FloatArray:
    """Ridge autoregressions of the rows of `x`, (n_rows, n_lags); the penalty is in units of the variance of a row."""
    past, now = lagged(x, lags), x[:, max(lags) :]
    gram = np.einsum("art,brt->rab", past, past, optimize=True)
    right = np.einsum("art,rt->ra", past, now, optimize=True)
    size = np.maximum(np.square(x).mean(axis=1), np.finfo(float).tiny)
    return solve_each(gram + penalty * size[:, None, None] * np.eye(len(lags)), right)


def fit_shrunk(x: FloatArray, lags: tuple[int, ...], penalty: float) -> tuple[FloatArray, FloatArray]:
    """Autoregressions of the rows of `x`, (n_rows, n_lags), shrunk towards the shared one of all rows, (n_lags,).

    The penalty, in units of the variance of a row, is about the worth of the shared weights as a number of values.
    """
    if x.shape[1] <= max(lags):
        return np.zeros((len(x), len(lags))), np.zeros(len(lags))
    n_rows = max(int(_CHUNK / (len(lags) * x.shape[1])), 1)
    parts = [_normal_equations(x[first : first + n_rows], lags) for first in range(0, len(x), n_rows)]
    gram, right = (np.concatenate(part) for part in zip(*parts, strict=True))
    ridge = np.eye(len(lags))
    shared = np.linalg.solve(gram.sum(axis=0) + ridge, right.sum(axis=0))
    weights = solve_each(gram + penalty * ridge, right + penalty * shared)
    return weights, shared


def _normal_equations(x: FloatArray, lags: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """Gram matrices of the lagged values and their products with the present, each row scaled to unit variance."""
    size = np.square(x).mean(axis=1)[:, None]
    past, now = lagged(x, lags).swapaxes(0, 1), x[:, max(lags) :]
    unit = 1 / np.where(size > 0, size, 1.0)
    return past @ past.swapaxes(1, 2) * unit[..., None], (past @ now[..., None])[..., 0] * unit


def is_stable(weights: FloatArray, lags: tuple[int, ...]) -> BoolArray:
    """Whether autoregressions, shape (..., n_lags), are stationary.

    Levinson's recursion takes ``max(lags)`` steps, where eigenvalues of the companion matrix would take their cube.

    >>> is_stable(np.array([[0.5, 0.4], [1.2, 0.0]]), (1, 7))
    array([ True, False])
    """
    full = np.zeros((*weights.shape[:-1], max(lags) + 1))
    full[..., 0] = 1.0
    full[..., list(lags)] = -weights
    return _levinson(full.reshape(-1, full.shape[-1])).reshape(weights.shape[:-1])


@compiled
def _levinson(rows: FloatArray) -> BoolArray:
    """Whether the zeros of each polynomial, highest power first, lie inside the unit circle; overwrites `rows`."""
    stable = np.ones(len(rows), dtype=np.bool_)
    for row in range(len(rows)):
        full = rows[row]
        for length in range(full.size - 1, 0, -1):
            last = full[length]
            if not abs(last) < 1:
                stable[row] = False
                break
            full[:length] = (full[:length] - last * full[length:0:-1]) / (1 - last * last)
    return stable


def stabilise(weights: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """Scale autoregressions, shape (n_rows, n_lags), down until they are stable; stable rows are unchanged.

    All weights of a row shrink by one factor. Scaling the roots instead would multiply the weight at lag l by the l-th
    power of the factor, which removes seasonal lags.
    """
    # Weights whose absolute values sum to less than one are stable, which spares most rows the recursion.
    unstable = np.flatnonzero(np.abs(weights).sum(axis=1) >= 1)
    unstable = unstable[~is_stable(weights[unstable], lags)]
    low, high = np.zeros((unstable.size, 1)), np.ones((unstable.size, 1))
    for _ in range(20):
        middle = (low + high) / 2
        stable = is_stable(weights[unstable] * middle, lags)[:, None]
        low, high = np.where(stable, middle, low), np.where(stable, high, middle)
    out = weights.copy()
    out[unstable] *= low
    return out


def extrapolate(x: FloatArray, weights: FloatArray, lags: tuple[int, ...], h: int) -> FloatArray:
    """Recursive forecasts of each row of `x`, shape (n_rows, n_times), for `h` steps; 0 before the first value."""
    return extrapolate_from(x, weights, lags, h, np.array([x.shape[1]]))[:, 0]


def extrapolate_from(
    x: FloatArray, weights: FloatArray, lags: tuple[int, ...], h: int, origins: IntArray
) -> FloatArray:
    """Recursive forecasts of each row from several origins, shape (n_rows, n_origins, h)."""
    first = max(int(origins.min()) - max(lags), 0)
    past = np.concatenate([np.zeros((len(x), max(lags))), x[:, first:]], axis=1)
    now = origins - first + max(lags)
    path = np.empty((len(x), origins.size, h))
    for step in range(h):
        known = (past[:, now + step - lag] if lag > step else path[:, :, step - lag] for lag in lags)
        path[:, :, step] = sum(weights[:, place, None] * values for place, values in enumerate(known))
    return path


#: Values of a block of rows: 256 KiB.
_CACHED = 1 << 15


def innovations(x: FloatArray, weights: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """One-step errors of each row's autoregression, shape (n_rows, n_times - max(lags))."""
    errors = x[:, max(lags) :].copy()
    for rows in _row_blocks(x):
        for place, lag in enumerate(lags):
            errors[rows] -= weights[rows, place, None] * x[rows, max(lags) - lag : x.shape[1] - lag]
    return errors


def innovations_adjoint(errors: FloatArray, weights: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """Transpose of the linear map `innovations`, shape (n_rows, n_times)."""
    x = np.hstack([np.zeros((len(errors), max(lags))), errors])
    for rows in _row_blocks(x):
        for place, lag in enumerate(lags):
            x[rows, max(lags) - lag : x.shape[1] - lag] -= weights[rows, place, None] * errors[rows]
    return x


def _row_blocks(x: FloatArray) -> list[slice]:
    """Blocks of rows that stay in the cache while each lag passes over them."""
    n_rows = max(_CACHED // max(x.shape[1], 1), 1)
    return [slice(first, first + n_rows) for first in range(0, len(x), n_rows)]


#: Seasons, and weeks, in a profile.
SEASONS, WEEKS = 28, 4
_RECENT_SEASONS = 7


@dataclass(frozen=True)
class Regressors:
    """Regressors at every time as an origin, each from values up to that time only."""

    y: FloatArray  # (n_series, n_times), without missing values
    season: int
    week: int  # the season where there is no second one
    total: FloatArray | None = None  # (1, n_times), over all series, of which `y` may be a part

    @property
    def warm_up(self) -> int:
        """Bins of history before the first training row of a series."""
        return self.week

    @cached_property
    def level(self) -> FloatArray:
        """Mean of the newest four weeks, which is subtracted from every other regressor."""
        return rolling_mean(self.y, WEEKS * self.week if self.week > 1 else SEASONS)

    @cached_property
    def _profile(self) -> FloatArray:
        return phase_mean(self.y, self.season, SEASONS)

    @cached_property
    def _recent_profile(self) -> FloatArray:
        return phase_mean(self.y, self.season, _RECENT_SEASONS)

    @cached_property
    def _week_profile(self) -> FloatArray:
        return phase_mean(self.y, self.week, WEEKS)

    @cached_property
    def _season_mean(self) -> FloatArray:
        return rolling_mean(self.y, self.season)

    @cached_property
    def _week_profile_mean(self) -> FloatArray:
        return rolling_mean(self._week_profile, self.season)

    def anchor(self, name: str, step: int) -> FloatArray:
        """Forecast `step` bins ahead from every time that the regression corrects, shape (n_series, n_times).

        ``"value"`` is the newest value plus the change of the season's profile, ``"level"`` the week's profile shifted
        to the level of the newest season (the mean of the newest bins where there is no season).
        """
        if name == "level" and self.week == 1:
            return self.level
        if name == "value":
            return self.y + shifted(self._profile, self._in_phase(step, self.season)) - self._profile
        return (
            shifted(self._week_profile, self._in_phase(step, self.week)) + self._season_mean - self._week_profile_mean
        )

    @staticmethod
    def _in_phase(step: int, season: int) -> int:
        """Lag, before the origin, of the newest bin in phase with the target."""
        return -step % season

    def design(self, step: int) -> FloatArray:
        """Regressors of a target `step` bins ahead, shape (n_series, n_regressors, n_times), about 0 on average."""
        shares = [] if self._regressors_of_total is None else self._regressors_of_total.relative(step)
        moving = [*(column - self.level for column in self._at_target(step)), *(share * self.level for share in shares)]
        return np.stack([*self._at_origin.swapaxes(0, 1), *moving], axis=1)

    @cached_property
    def _at_origin(self) -> FloatArray:
        widths = {3, 6, max(self.season // 4, 2), max(self.season // 2, 2), self.season, 2 * self.season, self.week}
        columns = [self.y, shifted(self.y, 1), *(rolling_mean(self.y, width) for width in sorted(widths - {1}))]
        if self.season > 1:
            columns += [self._profile, self._recent_profile]
        if self.week > self.season:
            columns += [self._week_profile, self._week_profile_mean]
        return np.stack([column - self.level for column in columns], axis=1)

    def _at_target(self, step: int) -> list[FloatArray]:
        """Values and profiles in phase with the target."""
        in_season, in_week = self._in_phase(step, self.season), self._in_phase(step, self.week)
        columns = []
        if self.season > 1:
            columns += [shifted(y, in_season) for y in (self.y, self._profile, self._recent_profile)]
        if self.week > self.season:
            columns += [shifted(y, in_week) for y in (self.y, self._week_profile)]
        return columns

    @cached_property
    def _regressors_of_total(self) -> Regressors | None:
        return None if self.total is None else Regressors(self.total, self.season, self.week)

    def relative(self, step: int) -> list[FloatArray]:
        """Newest value, mean of the newest season and values in phase with the target, relative to the level."""
        columns = [self.y, self._season_mean]
        columns += [shifted(self.y, self._in_phase(step, season)) for season in sorted({self.season, self.week} - {1})]
        return [(column - self.level) / np.where(self.level > 0, self.level, 1.0) for column in columns]


#: Half-lives of the decayed means, in days, and the share of their mean square that is the ridge.
HALF_LIVES, _MEANS_RIDGE = (1.0, 2.0, 4.0, 7.0, 14.0, 28.0, 56.0), 0.01
#: Origins in a horizon, and most origins, that the regression on decayed means is fitted to.
_PER_HORIZON, _MOST_MEANS = 4, 60


class DecayedMeanRegression(Forecaster):
    """Mean over the horizon by one ridge regression over all series, on exponentially decayed means of each.

    The regressors are means with half-lives of 1 to 56 days (of as many bins, if these are longer) and the mean of all
    values. The coefficients, shrunk towards equal ones, are those that fit the means over a horizon from earlier
    origins, of all series together, weighted by one over their level. It is the same at every step.

    Examples
    --------
    Users who leave are followed sooner than by their mean of four weeks:

    >>> rng, ds = np.random.default_rng(0), pd.date_range("2026-03-01", periods=200)
    >>> y = rng.poisson(5, (40, 200)) * (np.arange(200) < rng.integers(20, 400, (40, 1)))
    >>> wide = pd.DataFrame(y.astype(float), index=[f"u{i:02d}" for i in range(40)], columns=ds)
    >>> usage = wide.rename_axis("unique_id").melt(ignore_index=False, var_name="ds", value_name="y").reset_index()
    >>> model = DecayedMeanRegression().fit(usage[usage["ds"] < ds[172]])
    >>> found = model.predict(28).groupby("unique_id")["DecayedMeanRegression"].mean().to_numpy()
    >>> error = np.square(found - y[:, 172:].mean(axis=1)).mean()
    >>> bool(error < 0.8 * np.square(y[:, 144:172].mean(axis=1) - y[:, 172:].mean(axis=1)).mean())
    True
    """

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        known = ~np.isnan(y)
        total = np.cumsum(np.where(known, y, 0.0), axis=1)
        count = np.cumsum(known, axis=1)
        earlier = [np.arange(origin - h, 0, -max(h // _PER_HORIZON, 1))[:_MOST_MEANS] for origin in origins]
        # A mean depends on nothing later, so that one pass serves all origins.
        needed = np.unique(np.concatenate([origins, *earlier]))
        means = self._decayed_means(y, needed)
        out = np.empty((len(y), origins.size, h))
        for place, (origin, past) in enumerate(zip(origins, earlier, strict=True)):
            weights = _mean_weights(means[:, needed.searchsorted(past)], total, count, past, h)
            out[:, place] = (means[:, needed.searchsorted(origin)] @ weights)[:, None]
        return out

    def _decayed_means(self, y: FloatArray, origins: IntArray) -> FloatArray:
        """Regressors at each origin, shape (n_series, n_origins, n_regressors); 0 for a series that has not begun."""
        known = ~np.isnan(y)
        filled, bins = np.where(known, y, 0.0), max(pd.Timedelta("1D") / mean_step(self.panel_.freq), 1.0)
        out = np.zeros((len(y), origins.size, len(HALF_LIVES) + 1))
        for column, half_life in enumerate((*HALF_LIVES, np.inf)):
            kept = 0.5 ** (1 / (half_life * bins))
            sums, weights = (lfilter([1.0], [1.0, -kept], x.astype(float), axis=1) for x in (filled, known))
            at = origins - 1
            np.divide(sums[:, at], weights[:, at], out=out[..., column], where=weights[:, at] > 0)
        return out


def _mean_weights(means: FloatArray, total: FloatArray, count: FloatArray, origins: IntArray, h: int) -> FloatArray:
    """Coefficients of the decayed means, (n_regressors,), from earlier origins, whose horizons are known."""
    even = np.full(means.shape[-1], 1 / means.shape[-1])
    ends = origins + h - 1
    n_known = count[:, ends] - count[:, origins - 1]
    level = means[..., -1]
    use = (n_known > 0) & (level > 0)
    if not use.any():
        return even
    actual = (total[:, ends] - total[:, origins - 1])[use] / n_known[use]
    root = np.sqrt(level[use])
    x = means[use] / root[:, None]
    gram = x.T @ x
    ridge = _MEANS_RIDGE * np.trace(gram) / even.size * np.eye(even.size)
    return np.asarray(even + np.linalg.solve(gram + ridge, x.T @ (actual / root - x @ even)))


#: Series x times x regressors in memory at once; larger panels share the coefficients of a sample of their series.
_CELLS = 1e7
_REGRESSORS = 24
#: Numbers in the normal equations that are solved at once.
_BATCH = 2e6
#: Least variance of a regressor relative to the largest one.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class History:
    """Series with their missing values filled."""

    filled: FloatArray  # (n_series, n_times)
    known: FloatArray  # 1 where a value was not missing, else 0

    @classmethod
    def of(cls, y: FloatArray, season: int) -> History:
        """Fill the missing values of a matrix with NaN."""
        return cls(fill_missing(y, season), (~np.isnan(y)).astype(float))

    @cached_property
    def begins(self) -> IntArray:
        """First known bin of every series."""
        return self.known.argmax(axis=1)

    def scales(self, origins: IntArray) -> FloatArray:
        """Standard deviation up to each origin, shape (n_series, n_origins); infinite for constant series."""
        count = np.maximum(np.cumsum(self.known, axis=1)[:, origins - 1], 1)
        shifted = (self.filled - self.filled[:, :1]) * self.known
        mean = np.cumsum(shifted, axis=1)[:, origins - 1] / count
        square = np.cumsum(np.square(shifted), axis=1)[:, origins - 1] / count
        deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
        size = np.maximum.accumulate(np.abs(self.filled), axis=1)[:, origins - 1]
        return np.where(deviation > 1e-9 * size, deviation, np.inf)

    def rows(self, chosen: slice) -> History:
        """Some of the series."""
        return History(self.filled[chosen], self.known[chosen])


class _Coefficients(NamedTuple):
    """Of ridge regressions from several origins."""

    shared: FloatArray  # (n_origins, p)
    own: FloatArray  # (n_origins, n_series, p), departures of each series
    varied: FloatArray  # (n_origins, n_series), 1 for series that are not constant, else 0


@dataclass(frozen=True)
class DirectRegression:
    """Ridge regressions of every step on the regressors of a history, with partial pooling over its series."""

    history: History
    origins: IntArray  # bins known at each, ascending
    seasonality: Seasonality
    anchor: str
    penalty: float
    series_penalty: float
    regressors: type[Regressors] = Regressors
    #: Addition to the penalty when there are as many rows as regressors; it falls with the number of rows.
    small_sample_penalty: float = 2.0

    def forecast(self, h: int) -> FloatArray:
        """Forecasts from every origin, shape (n_series, n_origins, h)."""
        with one_thread():
            if self._stride > 1:
                return self._forecast_from_sample(h)
            regressors = self._regressors_of(self.history)
            return np.stack([self._step_ahead(regressors, step) for step in range(1, h + 1)], axis=-1)

    def _step_ahead(self, regressors: Regressors, step: int) -> FloatArray:
        x, anchor = regressors.design(step), regressors.anchor(self.anchor, step)
        batches = self._coefficients(x, anchor, self.history, step, self.series_penalty)
        coefficients = np.concatenate(
            [found.shared[:, None] * found.varied[..., None] + found.own for found in batches]
        )
        corrections = np.einsum("npo,onp->no", x[:, :, self.origins - 1], coefficients)
        return anchor[:, self.origins - 1] + corrections

    def _forecast_from_sample(self, h: int) -> FloatArray:
        """Forecasts with shared coefficients, fitted to some of the series; one part of all series at a time."""
        sample, steps = self.history.rows(slice(None, None, self._stride)), range(1, h + 1)
        regressors, shared = self._regressors_of(sample), []
        for step in steps:
            x, anchor = regressors.design(step), regressors.anchor(self.anchor, step)
            batches = self._coefficients(x, anchor, sample, step, np.inf)
            shared.append(np.concatenate([found.shared for found in batches]))
        out = np.empty((len(self.history.filled), self.origins.size, h))
        for start in range(0, len(out), len(sample.filled)):
            part = slice(start, start + len(sample.filled))
            rows = self._regressors_of(self.history.rows(part))
            for step, coefficients in zip(steps, shared, strict=True):
                out[part, :, step - 1] = self._corrected(rows, step, coefficients)
        return out

    def _corrected(self, regressors: Regressors, step: int, shared: FloatArray) -> FloatArray:
        """Anchor at every origin plus its correction with shared coefficients."""
        x = regressors.design(step)[:, :, self.origins - 1]
        return regressors.anchor(self.anchor, step)[:, self.origins - 1] + np.einsum("npo,op->no", x, shared)

    @cached_property
    def _stride(self) -> int:
        return int(np.ceil(self.history.filled.size * _REGRESSORS / _CELLS))

    def _regressors_of(self, history: History) -> Regressors:
        return self.regressors(history.filled, self.seasonality.season, self.seasonality.week, self._total)

    @cached_property
    def _total(self) -> FloatArray | None:
        if len(self.history.filled) == 1:
            return None
        # A series that begins late would bring a later value, or a jump, into the total.
        return np.asarray(self.history.filled[self.history.begins == 0].sum(axis=0, keepdims=True))

    def _coefficients(
        self, x: FloatArray, anchor: FloatArray, history: History, step: int, series_penalty: float
    ) -> Iterator[_Coefficients]:
        """Coefficients at each origin from targets known there, a batch of origins at a time."""
        stops = np.maximum(self.origins - step, 0)
        mask, scales = self._training_mask(history, step), history.scales(self.origins).T
        n_rows = np.cumsum(mask, axis=1)[:, stops - 1].T * (stops > 0)[:, None]
        rows_in_all = (n_rows * np.isfinite(scales)).sum(axis=1)
        penalty = self.penalty + self.small_sample_penalty * x.shape[1] / np.maximum(rows_in_all, 1.0)
        target = np.zeros_like(anchor)
        target[:, : max(anchor.shape[1] - step, 0)] = history.filled[:, step:]
        for batch, gram, right in _equations_by_stop(x, target - anchor, mask, stops):
            yield _solve(gram, right, n_rows[batch], scales[batch], penalty[batch], series_penalty)

    def _training_mask(self, history: History, step: int) -> FloatArray:
        """1 for times that are origins in training, 0 where a series is too young or the target is unknown."""
        n_times = history.filled.shape[1]
        mask = (np.arange(n_times) >= history.begins[:, None] + self._regressors_of(history).warm_up).astype(float)
        mask[:, : max(n_times - step, 0)] *= history.known[:, step:]
        return mask


def _equations_by_stop(
    x: FloatArray, target: FloatArray, mask: FloatArray, stops: IntArray
) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
    """Gram matrices, (n_stops, n_series, p, p), and right-hand sides of the times before each stop, in batches."""
    n, p, _ = x.shape
    starts, width = np.append(0, stops[:-1]), max(int(_BATCH // (n * p * p)), 1)
    total_gram, total_right = np.zeros((n, p, p)), np.zeros((n, p))
    for first in range(0, stops.size, width):
        batch = slice(first, first + width)
        spans = [slice(*ends) for ends in zip(starts[batch].tolist(), stops[batch].tolist(), strict=True)]
        gram, right = np.empty((len(spans), n, p, p)), np.empty((len(spans), n, p))
        for place, span in enumerate(spans):
            rows = x[:, :, span] * mask[:, None, span]
            total_gram += rows @ rows.transpose(0, 2, 1)
            total_right += (rows @ target[:, span, None])[..., 0]
            gram[place], right[place] = total_gram, total_right
        yield batch, gram, right


def _solve(
    gram: FloatArray,
    right: FloatArray,
    n_rows: FloatArray,
    scale: FloatArray,
    penalty: FloatArray,
    series_penalty: float,
) -> _Coefficients:
    """Ridge regressions of several origins from normal equations, which it overwrites, weighted by 1 / scale ** 2."""
    n_origins, n, p = right.shape
    weight = 1 / np.square(scale)
    shared_gram = (weight[:, None] @ gram.reshape(n_origins, n, p * p)).reshape(n_origins, p, p)
    power = np.diagonal(shared_gram, axis1=1, axis2=2)
    # A regressor that has never varied gets no weight; without a ridge of ordinary size the system would be singular.
    largest = power.max(axis=1, keepdims=True)
    power = np.maximum(power, np.where(largest > 0, _ROUNDING * largest, 1.0))
    ridge = (power * penalty[:, None])[..., None] * np.eye(p)
    shared = solve_each(shared_gram + ridge, (weight[:, None] @ right)[:, 0])
    # A series that has never varied keeps its anchor.
    varied = (weight > 0).astype(float)
    if n == 1 or not np.isfinite(series_penalty):
        return _Coefficients(shared, np.zeros((n_origins, n, p)), varied)
    seen = np.maximum((n_rows * varied).sum(axis=1), 1.0)
    mismatch = right - (gram @ shared[:, None, :, None])[..., 0]
    # Every series has a system of its own, so they are scaled and penalised in place.
    gram *= weight[..., None, None]
    gram.reshape(n_origins, n, p * p)[..., :: p + 1] += (power * (series_penalty / seen)[:, None])[:, None]
    own = solve_each(gram, mismatch * weight[..., None])
    return _Coefficients(shared, own * varied[..., None], varied)


ANCHORS = ("level", "value")


class RidgeAutoregression(SeasonalForecaster):
    """Direct ridge regression of every step on lags, rolling means and seasonal profiles, pooled over series.

    A simple forecast, the anchor, is corrected by a linear function of lags, rolling means, daily and weekly profiles
    and the panel's total. Each step has a regression of its own, so errors do not accumulate as in a recursion. The
    coefficients are shared by all series, each scaled by its standard deviation; the departures of a series are
    penalised (partial pooling).

    Parameters
    ----------
    anchor : {"value", "level"}, default="value"
        Forecast that is corrected: the newest value plus the change of the season's mean profile (for demand close to a
        random walk, such as training), or the week's profile at the level of the newest season (for demand with a
        regular pattern, such as serving).
    penalty : float, default=0.3
        On squared coefficients, in units of the variance of their regressor.
    series_penalty : float, default=100
        On the departures of a series from the shared coefficients, in bins of history.
    season_length : int, optional
        Bins in a season; by default a day for bins below a day, a week for days, a year above.

    Notes
    -----
    Missing values are filled from earlier ones to make regressors, and are not used as targets.

    Examples
    --------
    A daily pattern on a random walk, of which a seasonal naive forecast does not know the level:

    >>> import pandas as pd
    >>> from gpudemand.forecast import SeasonalNaive, cross_validation
    >>> hours, rng = np.arange(24 * 60), np.random.default_rng(0)
    >>> y = 100 + 20 * np.sin(hours * np.pi / 12) + np.cumsum(rng.normal(0, 2, hours.size))
    >>> ds = pd.date_range("2026-03-01", periods=hours.size, freq="h")
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": ds, "y": y})
    >>> models = [RidgeAutoregression(), SeasonalNaive()]
    >>> test = cross_validation(models, usage, h=24, n_windows=5)
    >>> error = test[["RidgeAutoregression", "SeasonalNaive"]].sub(test["y"], axis=0).abs().mean()
    >>> bool(error["RidgeAutoregression"] < 0.8 * error["SeasonalNaive"])
    True
    """

    def __init__(
        self,
        anchor: str = "value",
        *,
        penalty: float = 0.3,
        series_penalty: float = 100.0,
        season_length: int | None = None,
    ) -> None:
        self.anchor = anchor
        self.penalty = penalty
        self.series_penalty = series_penalty
        self.season_length = season_length

    def _seasonal_paths(self, y: FloatArray, origins: IntArray, h: int, seasonality: Seasonality) -> FloatArray:
        anchor, history = check_choice("anchor", self.anchor, ANCHORS), History.of(y, seasonality.season)
        shared = check_number("penalty", self.penalty, 0, open_low=True)
        own = check_number("series_penalty", self.series_penalty, 0, open_low=True)
        return DirectRegression(history, origins, seasonality, anchor, shared, own).forecast(h)


#: Newest bins, and bins before the same phase of earlier seasons, that are regressors one by one.
_NEWEST = 4
#: Seasons in the mean season of `LagRegressors` where there is no longer one.
_SHORT_SEASONS = 4
#: See `DirectRegression`. The first two are as the penalties of `RidgeAutoregression`.
_LAG_PENALTIES, _SMALL_SAMPLE_PENALTY = (1e-4, 30.0), 0.02


@dataclass(frozen=True)
class LagRegressors(Regressors):
    """Values at lags of the origin and of the target, minus the mean of the longer season."""

    @property
    def warm_up(self) -> int:
        """Bins of history before the first training row of a series."""
        return self.week + self.season + _NEWEST

    @cached_property
    def level(self) -> FloatArray:
        """Mean of the newest long season."""
        return rolling_mean(self.y, self.week)

    def anchor(self, name: str, step: int) -> FloatArray:
        """The level, for any `name`."""
        return self.level

    def design(self, step: int) -> FloatArray:
        """Regressors of a target `step` bins ahead, shape (n_series, n_regressors, n_times), about 0 on average."""
        columns = [shifted(self.y, lag) for lag in self._lags(step)]
        if self.season > 1:
            n_seasons = self.week // self.season if self.week > self.season else _SHORT_SEASONS
            profile = phase_mean(self.y, self.season, n_seasons)
            columns.append(shifted(profile, self._in_phase(step, self.season)))
        return np.stack([*(column - self.level for column in columns), *self._of_total()], axis=1)

    def _lags(self, step: int) -> list[int]:
        """Bins before the origin: the newest, those around the target's phase, and the newest of earlier seasons."""
        lags = list(range(_NEWEST))
        for season in sorted({self.season, self.week} - {1}):
            lags += [self._in_phase(step + near, season) for near in (-1, 0, 1)]
            lags += [season + lag for lag in range(_NEWEST)]
        if self.season > 1:
            lags += [self._in_phase(step, 2 * self.season), self._in_phase(step, self.season + self.week)]
        return list(dict.fromkeys(lags))

    def _of_total(self) -> list[FloatArray]:
        """The total now and a long season ago, relative to its level."""
        if self.total is None:
            return []
        level = rolling_mean(self.total, self.week)
        unit = np.where(level > 0, level, 1.0)
        return [(shifted(self.total, lag) - level) / unit * self.level for lag in sorted({0, self.week})]


class LagRegression(SeasonalForecaster):
    """Direct ridge regression of every step on plain lags of one or two seasons of any length.

    Regressors are the newest four values; for each season, the values around the target's phase one season before and
    the newest values of that season; the values two seasons, and both seasons together, before the target; the mean
    season; and the total of all series. Coefficients are partially pooled as in `RidgeAutoregression`, which suits
    demand with a wandering level; this one suits series that repeat themselves closely.

    Parameters
    ----------
    season_length : int or (int, int), optional
        Bins in a season, or in a shorter and a longer one: ``(108, 756)`` for days of 18 hours in steps of ten minutes.
        By default those of the calendar. A season is used when the history holds two of it.

    Notes
    -----
    Missing values are filled from earlier ones to make regressors, and are not used as targets.

    Examples
    --------
    Days of ten bins, six days a week, with a wandering level:

    >>> import pandas as pd
    >>> from gpudemand.forecast import SeasonalNaive, cross_validation
    >>> bins, rng = np.arange(60 * 18), np.random.default_rng(0)
    >>> y = 50 + 30 * np.sin(bins * np.pi / 5) * (bins // 10 % 6 < 5) + np.cumsum(rng.normal(0, 1, bins.size))
    >>> ds = pd.date_range("2026-03-02", periods=bins.size, freq="h")
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": ds, "y": y})
    >>> models = [LagRegression((10, 60)), SeasonalNaive(60)]
    >>> test = cross_validation(models, usage, h=10, n_windows=5)
    >>> error = test[["LagRegression", "SeasonalNaive"]].sub(test["y"], axis=0).abs().mean()
    >>> bool(error["LagRegression"] < 0.6 * error["SeasonalNaive"])
    True
    """

    def __init__(self, season_length: int | Sequence[int] | None = None) -> None:
        self.season_length = season_length

    def _season(self) -> int:
        return self._seasons().season

    def _seasons(self) -> Seasonality:
        if self.season_length is None:
            season = season_length(self.panel_.freq)
            return Seasonality(season, max(season, week_length(self.panel_.freq)))
        given = [positive_int("season_length", n) for n in np.atleast_1d(self.season_length)]
        if len(given) not in (1, 2) or given[0] > given[-1]:
            raise InputError(
                f"season_length={self.season_length!r} must be a number of bins, or a shorter and a longer one, "
                "such as (24, 168)."
            )
        return Seasonality(given[0], given[-1])

    def _seasonal_paths(self, y: FloatArray, origins: IntArray, h: int, seasonality: Seasonality) -> FloatArray:
        options = (*_LAG_PENALTIES, LagRegressors, _SMALL_SAMPLE_PENALTY)
        return DirectRegression(History.of(y, seasonality.season), origins, seasonality, "level", *options).forecast(h)

    def _observable(self, origins: IntArray) -> Iterator[tuple[Seasonality, BoolArray]]:
        """Group origins by the seasons of which they hold two."""
        full = self._seasons()
        season = np.where(origins >= 2 * full.season, full.season, 1)
        week = np.where((origins >= 2 * full.week) & (season > 1), full.week, season)
        for pair in sorted(set(zip(season.tolist(), week.tolist(), strict=True))):
            yield Seasonality(*pair), (season == pair[0]) & (week == pair[1])
