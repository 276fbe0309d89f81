"""Combination of forecasts with weights from earlier origins: ridge regression of residuals, and a weighted average."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudemand._linalg import solve_each
from gpudemand._typing import FloatArray, IntArray
from gpudemand.planning.demand.rolling_origins import DAY, RollingOrigins

#: Ridge penalty relative to the mean diagonal of the Gram matrix.
_PENALTY = 0.1
#: Days in the training window.
TRAINING_DAYS = 120


@dataclass(frozen=True)
class RidgeCorrection:
    """Ridge regression, by hour ahead, of the residuals of a forecast on its differences from other forecasts.

    Trained at every origin on the errors known at it, pooled over series in units of their mean level. `gram` and
    `cross`, the products of the differences with one another and with the residuals, are cumulative over origins, so
    that one pass gives the coefficients at all of them.

    Attributes
    ----------
    base : ndarray of shape (n_series, n_origins, h)
    differences : ndarray of shape (n_series, n_origins, h, m)
    gram : ndarray of shape (n_origins + 1, h, m, m)
    cross : ndarray of shape (n_origins + 1, h, m)
    """

    origins: RollingOrigins
    base: FloatArray
    differences: FloatArray
    gram: FloatArray
    cross: FloatArray

    @classmethod
    def fit(cls, origins: RollingOrigins, base: FloatArray, others: list[FloatArray]) -> RidgeCorrection:
        """Accumulate the regressions over all origins; where another forecast is NaN it equals the base."""
        differences = np.nan_to_num(np.stack([np.broadcast_to(other, base.shape) - base for other in others], axis=-1))
        level = np.maximum(np.abs(origins.y).mean(axis=1), 1e-9)[:, None, None]
        residual = (origins.actual - base) / level
        known = np.isfinite(residual)
        rows = np.where(known[..., None], differences / level[..., None], 0.0)
        gram = np.einsum("sokm,sokn->okmn", rows, rows, optimize=True)
        cross = np.einsum("sokm,sok->okm", rows, np.where(known, residual, 0.0), optimize=True)
        return cls(origins, base, differences, _cumulative(gram), _cumulative(cross))

    def coefficients(self, place: int) -> FloatArray:
        """Coefficients by hour ahead, shape (h, m), from the errors known at the origin at `place`."""
        ahead, per_day = np.arange(self.origins.h), self.origins.per_day
        # Origins in the window whose hour ahead is known.
        last = np.maximum(place - ahead // (DAY // per_day), 0)
        first = np.maximum(last - TRAINING_DAYS * per_day, 0)
        gram, cross = (sums[last, ahead] - sums[first, ahead] for sums in (self.gram, self.cross))
        m = cross.shape[-1]
        ridge = _PENALTY * np.trace(gram, axis1=1, axis2=2) / m + 1e-12
        return solve_each(gram + ridge[:, None, None] * np.eye(m), cross)

    def predict(self, place: int) -> FloatArray:
        """Corrected forecast at the origin at `place`, shape (n_series, h)."""
        correction = (self.differences[:, place] * self.coefficients(place)).sum(axis=-1)
        return np.asarray(self.base[:, place] + correction)


def _cumulative(values: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])


#: Grid of weights, and fewest origins for other than equal weights.
_WEIGHTS = np.linspace(0, 1, 21)
_MIN_ORIGINS = 7
#: Weights with a loss within this factor of the least are averaged: the minimum is flat and its place uncertain.
_NEAR_MINIMUM = 1.03


def combination_weights(errors: FloatArray, other_errors: FloatArray, origins: IntArray, present: int) -> FloatArray:
    """Weight of a second forecast in an average, of least absolute error so far, at each origin and at the end.

    Parameters
    ----------
    errors, other_errors : ndarray of shape (n_series, n_origins, h)
        NaN where unknown.
    origins : ndarray of int, shape (n_origins,)
        Bins known at each, ascending.
    present : int
        Bins known at the end.

    Returns
    -------
    ndarray of shape (n_series, n_origins + 1)
        Weights from 0 to 1; one half at origins with few known errors.
    """
    n, _, h = errors.shape
    losses = np.stack([np.abs(errors + weight * (other_errors - errors)) for weight in _WEIGHTS])
    losses = np.nan_to_num(losses).mean(axis=-1)
    weights = np.full((n, origins.size + 1), 0.5)
    for place, now in enumerate(np.append(origins, present)):
        known = origins + h <= now
        if known.sum() >= _MIN_ORIGINS:
            total = losses[:, :, known].sum(axis=2)
            near = total <= _NEAR_MINIMUM * total.min(axis=0)
            weights[:, place] = (near * _WEIGHTS[:, None]).sum(axis=0) / near.sum(axis=0)
    return weights
