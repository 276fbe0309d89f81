"""Direct regressions, one a step ahead, at many origins in one pass over the history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gpudemand._linalg import one_thread, solve_each
from gpudemand._typing import FloatArray, IntArray
from gpudemand.forecast.base.seasonality import Clock
from gpudemand.forecast.base.windows import without_gaps
from gpudemand.forecast.regression.regressors import Regressors

#: Cells (series x times x regressors) in memory at once; larger panels are learnt from a sample of their series.
_CELLS = 3e7
_REGRESSORS = 24
#: Least variation of a regressor, as a share of that of the one that varies most.
_ROUNDING = 1e-9
#: Numbers in the normal equations that are solved at once.
_BATCH = 2e6


class _Coefficients(NamedTuple):
    """Shared coefficients, shape (n_origins, p), departures (n_origins, n_series, p), and which series vary."""

    shared: FloatArray
    own: FloatArray
    varied: FloatArray


@dataclass(frozen=True)
class History:
    """Series without gaps, which of their values were known, and how much each varied up to any origin."""

    filled: FloatArray
    known: FloatArray

    @classmethod
    def of(cls, y: FloatArray, season: int) -> History:
        """Fill the gaps of a matrix with NaN."""
        return cls(without_gaps(y, season), (~np.isnan(y)).astype(float))

    @cached_property
    def begins(self) -> IntArray:
        """First known bin of every series."""
        return self.known.argmax(axis=1)

    def scales(self, origins: IntArray) -> FloatArray:
        """Standard deviation up to each origin, shape (n_series, n_origins); infinite where nothing varied."""
        count = np.maximum(np.cumsum(self.known, axis=1)[:, origins - 1], 1)
        shifted = (self.filled - self.filled[:, :1]) * self.known
        mean = np.cumsum(shifted, axis=1)[:, origins - 1] / count
        square = np.cumsum(np.square(shifted), axis=1)[:, origins - 1] / count
        spread = np.sqrt(np.maximum(square - mean**2, 0.0))
        size = np.maximum.accumulate(np.abs(self.filled), axis=1)[:, origins - 1]
        return np.where(spread > 1e-9 * size, spread, np.inf)

    def rows(self, chosen: slice) -> History:
        """Some of the series."""
        return History(self.filled[chosen], self.known[chosen])


@dataclass(frozen=True)
class Direct:
    """Regressions of every step on the regressors of a history, for forecasts from several origins.

    Attributes
    ----------
    history : History
    origins : ndarray of shape (n_origins,)
        Bins known at each, ascending.
    clock : Clock
    anchor : str
    penalty, own_penalty : float
    regressors : type of Regressors
    caution : float
        How much a history as long as there are regressors adds to the penalty; a longer one adds less.
    """

    history: History
    origins: IntArray
    clock: Clock
    anchor: str
    penalty: float
    own_penalty: float
    regressors: type[Regressors] = Regressors
    caution: float = 2.0

    def forecast(self, step: int) -> FloatArray:
        """Forecast `step` bins ahead from every origin, shape (n_series, n_origins)."""
        with one_thread():
            return self._forecast_large(step) if self._stride > 1 else self._forecast(step)

    def _forecast(self, step: int) -> FloatArray:
        x = self._regressors.at(step)
        anchor = self._regressors.anchor(self.anchor, step)
        coefficients = np.concatenate(
            [
                shared[:, None] * varied[..., None] + own
                for shared, own, varied in self._coefficients(x, anchor, self.history, step, self.own_penalty)
            ]
        )
        corrections = np.einsum("npo,onp->no", x[:, :, self.origins - 1], coefficients)
        return anchor[:, self.origins - 1] + corrections

    def _forecast_large(self, step: int) -> FloatArray:
        sample = self.history.rows(slice(None, None, self._stride))
        some = self._look(sample)
        batches = self._coefficients(some.at(step), some.anchor(self.anchor, step), sample, step, np.inf)
        shared = np.concatenate([shared for shared, _, _ in batches])
        parts = []
        for start in range(0, len(self.history.filled), len(sample.filled)):
            rows = self._look(self.history.rows(slice(start, start + len(sample.filled))))
            corrections = np.einsum("npo,op->no", rows.at(step)[:, :, self.origins - 1], shared)
            parts.append(rows.anchor(self.anchor, step)[:, self.origins - 1] + corrections)
        return np.concatenate(parts)

    @cached_property
    def _stride(self) -> int:
        return int(np.ceil(self.history.filled.size * _REGRESSORS / _CELLS))

    @cached_property
    def _regressors(self) -> Regressors:
        return self._look(self.history)

    @cached_property
    def _total(self) -> FloatArray | None:
        many = len(self.history.filled) > 1
        return self.history.filled.sum(axis=0, keepdims=True) if many else None

    def _look(self, history: History) -> Regressors:
        return self.regressors(history.filled, self.clock.season, self.clock.week, self._total)

    def _coefficients(
        self, x: FloatArray, anchor: FloatArray, history: History, step: int, own_penalty: float
    ) -> Iterator[_Coefficients]:
        """Coefficients at each origin from targets known there, a batch of origins at a time."""
        n, p, _ = x.shape
        stops = np.maximum(self.origins - step, 0)
        starts = np.append(0, stops[:-1])
        counts, scales = self._countable(history, step), history.scales(self.origins).T
        n_rows = np.cumsum(counts, axis=1)[:, stops - 1].T * (stops > 0)[:, None]
        # A short history supports less: the penalty falls with the rows to each regressor.
        penalty = self.penalty + self.caution * p / np.maximum((n_rows * np.isfinite(scales)).sum(axis=1), 1.0)
        gram, right = np.zeros((n, p, p)), np.zeros((n, p))
        width = max(int(_BATCH // (n * p * p)), 1)
        for first in range(0, stops.size, width):
            batch = slice(first, first + width)
            spans = list(zip(starts[batch].tolist(), stops[batch].tolist(), strict=True))
            grams, rights = np.empty((len(spans), n, p, p)), np.empty((len(spans), n, p))
            for place, (start, stop) in enumerate(spans):
                new = x[:, :, start:stop] * counts[:, None, start:stop]
                target = history.filled[:, start + step : stop + step] - anchor[:, start:stop]
                grams[place] = new @ new.transpose(0, 2, 1)
                rights[place] = (new @ target[..., None])[..., 0]
            grams[0] += gram
            rights[0] += right
            grams, rights = np.cumsum(grams, axis=0, out=grams), np.cumsum(rights, axis=0, out=rights)
            gram, right = grams[-1].copy(), rights[-1].copy()
            yield _solve(grams, rights, n_rows[batch], scales[batch], penalty[batch], own_penalty)

    def _countable(self, history: History, step: int) -> FloatArray:
        """1 for times that serve as origins in training, 0 where a series is too young or the target is unknown."""
        n_times = history.filled.shape[1]
        begun = np.arange(n_times) >= history.begins[:, None] + self._look(history).memory
        counts = begun.astype(float)
        ends = max(n_times - step, 0)
        counts[:, :ends] *= history.known[:, step:]
        return counts


def _solve(
    gram: FloatArray, right: FloatArray, n_rows: FloatArray, scale: FloatArray, penalty: FloatArray, own_penalty: float
) -> _Coefficients:
    """Ridge regression of every origin: shared coefficients, and the departures of each series from them.

    `gram` and `right`, shapes (n_origins, n_series, p, p) and (n_origins, n_series, p), are the normal equations.
    """
    n_origins, n, p = right.shape
    unit = 1 / np.square(scale)
    shared_gram = (unit[:, None] @ gram.reshape(n_origins, n, p * p)).reshape(n_origins, p, p)
    power = np.diagonal(shared_gram, axis1=1, axis2=2)
    # A regressor that has never varied gets no weight; without a ridge of ordinary size the system would be singular.
    largest = power.max(axis=1, keepdims=True)
    power = np.maximum(power, np.where(largest > 0, _ROUNDING * largest, 1.0))
    identity = np.eye(p)
    ridge = (power * penalty[:, None])[..., None] * identity
    shared = solve_each(shared_gram + ridge, (unit[:, None] @ right)[:, 0])
    # A series that has never varied keeps its anchor.
    varied = (unit > 0).astype(float)
    if n == 1 or not np.isfinite(own_penalty):
        return _Coefficients(shared, np.zeros((n_origins, n, p)), varied)
    seen = np.maximum((n_rows * varied).sum(axis=1), 1.0)
    pull = (power * (own_penalty / seen)[:, None])[:, None, :, None] * identity
    mismatch = right - (gram @ shared[:, None, :, None])[..., 0]
    own = solve_each(gram * unit[..., None, None] + pull, mismatch * unit[..., None])
    return _Coefficients(shared, own * varied[..., None], varied)
