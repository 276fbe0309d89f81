"""Direct multi-step regressions, one a step, for many origins in one pass over the history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gpudemand._linalg import one_thread, solve_each
from gpudemand._typing import FloatArray, IntArray
from gpudemand.forecast.base.seasonality import Seasonality
from gpudemand.forecast.base.windows import fill_missing
from gpudemand.forecast.regression.regressors import Regressors

#: Series x times x regressors in memory at once; larger panels share the coefficients of a sample of their series.
_CELLS = 1e7
_REGRESSORS = 24
#: Numbers in the normal equations that are solved at once.
_BATCH = 2e6
#: Least variance of a regressor relative to the largest one.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class History:
    """Series with missing values filled, and a mask, 1 or 0, of those that were known; both (n_series, n_times)."""

    filled: FloatArray
    known: FloatArray

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
    """Shared coefficients, shape (n_origins, p), departures (n_origins, n_series, p), and which series vary."""

    shared: FloatArray
    own: FloatArray
    varied: FloatArray


@dataclass(frozen=True)
class DirectRegression:
    """Ridge regressions of every step on the regressors of a history, with partial pooling over its series.

    Attributes
    ----------
    history : History
    origins : ndarray of shape (n_origins,)
        Bins known at each, ascending.
    seasonality : Seasonality
    anchor : str
        Forecast that is corrected; see `Regressors.anchor`.
    penalty : float
        On squared coefficients, relative to the variance of their regressor.
    series_penalty : float
        On the departures of a series from the shared coefficients, in bins of history.
    regressors : type of Regressors
    small_sample_penalty : float
        Addition to the penalty when there are as many rows as regressors; it falls with the number of rows.
    """

    history: History
    origins: IntArray
    seasonality: Seasonality
    anchor: str
    penalty: float
    series_penalty: float
    regressors: type[Regressors] = Regressors
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
        for batch, gram, right in _normal_equations(x, target - anchor, mask, stops):
            yield _solve(gram, right, n_rows[batch], scales[batch], penalty[batch], series_penalty)

    def _training_mask(self, history: History, step: int) -> FloatArray:
        """1 for times that are origins in training, 0 where a series is too young or the target is unknown."""
        n_times = history.filled.shape[1]
        mask = (np.arange(n_times) >= history.begins[:, None] + self._regressors_of(history).warm_up).astype(float)
        mask[:, : max(n_times - step, 0)] *= history.known[:, step:]
        return mask


def _normal_equations(
    x: FloatArray, target: FloatArray, mask: FloatArray, stops: IntArray
) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
    """Gram matrices and right-hand sides of the times before each stop, a batch of stops at a time.

    Shapes (n_stops, n_series, p, p) and (n_stops, n_series, p).
    """
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
