"""Direct regressions, one a step ahead, at many origins in one pass over the history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

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
        weights = list(self._weights(x, anchor, self.history, step, self.own_penalty))
        corrections = [
            np.einsum("np,np->n", x[:, :, at - 1], own) for at, own in zip(self.origins, weights, strict=True)
        ]
        return anchor[:, self.origins - 1] + np.stack(corrections, axis=1)

    def _forecast_large(self, step: int) -> FloatArray:
        sample = self.history.rows(slice(None, None, self._stride))
        some = self._look(sample)
        weights = list(self._weights(some.at(step), some.anchor(self.anchor, step), sample, step, np.inf))
        shared = np.stack([own[0] for own in weights])
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

    def _weights(
        self, x: FloatArray, anchor: FloatArray, history: History, step: int, own_penalty: float
    ) -> Iterator[FloatArray]:
        """Weights at each origin, shape (n_series, n_regressors) each, from targets known there."""
        n, p, _ = x.shape
        gram, right, rows = np.zeros((n, p, p)), np.zeros((n, p)), np.zeros(n)
        counts = self._countable(history, step)
        scales, done = history.scales(self.origins), 0
        for place, origin in enumerate(self.origins):
            stop = max(int(origin) - step, done)
            new = x[:, :, done:stop] * counts[:, None, done:stop]
            target = history.filled[:, done + step : stop + step] - anchor[:, done:stop]
            gram += new @ new.transpose(0, 2, 1)
            right += (new @ target[..., None])[..., 0]
            rows += counts[:, done:stop].sum(axis=1)
            done = stop
            # A short history bears out less: the penalty falls with the rows there are to each regressor.
            penalty = self.penalty + self.caution * p / max(float(rows @ np.isfinite(scales[:, place])), 1.0)
            yield _solve(gram, right, rows, scales[:, place], penalty, own_penalty)

    def _countable(self, history: History, step: int) -> FloatArray:
        """1 for times that serve as origins in training, 0 where a series is too young or the target is unknown."""
        n_times = history.filled.shape[1]
        begun = np.arange(n_times) >= history.begins[:, None] + self._look(history).memory
        counts = begun.astype(float)
        ends = max(n_times - step, 0)
        counts[:, :ends] *= history.known[:, step:]
        return counts


def _solve(
    gram: FloatArray, right: FloatArray, rows: FloatArray, scale: FloatArray, penalty: float, own_penalty: float
) -> FloatArray:
    """Shared weights, and what each series departs from them, shape (n_series, n_regressors)."""
    n = len(right)
    unit = 1 / np.square(scale)
    shared_gram, shared_right = np.einsum("npq,n->pq", gram, unit), unit @ right
    power = np.diag(shared_gram)
    # A regressor that has never varied gets no weight; without a pull of ordinary size the system would be singular.
    power = np.maximum(power, _ROUNDING * power.max() if power.any() else 1.0)
    seen = float(rows @ (unit > 0))
    ridge = np.diag(power * penalty)
    shared = np.linalg.solve(shared_gram + ridge, shared_right)
    # A series that has never varied keeps its anchor.
    varied: FloatArray = np.where(unit > 0, 1.0, 0.0)[:, None]
    if n == 1 or not np.isfinite(own_penalty) or seen == 0:
        return np.multiply(varied, shared, dtype=np.float64)
    pull = np.diag(power) * own_penalty / seen
    mismatch = right - np.einsum("npq,q->np", gram, shared)
    own = solve_each(gram * unit[:, None, None] + pull, mismatch * unit[:, None])
    return varied * (shared + own)
