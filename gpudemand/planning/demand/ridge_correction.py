"""Correct one forecast by others, with weights learnt at earlier origins: ridge regression of every hour ahead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudemand._linalg import solve_each
from gpudemand._typing import FloatArray, IntArray
from gpudemand.planning.demand.origins import DAY, Origins

#: On squared weights: as a share of the evidence, and as a number of origins' worth of it.
_SHARE, _ORIGINS = 0.1, 100.0
#: Days of the past that are learnt from.
_WINDOW_DAYS = 120
#: Hours ahead, to either side, that share their weights.
_HALF = 2


@dataclass(frozen=True)
class Blend:
    """A base forecast plus a weighted sum of how other forecasts differ from it.

    With no evidence the weights are zero and the base forecast stands; the more past origins there are, the more the
    weights follow them. All series share them, each in units of its own level.

    Attributes
    ----------
    gram : ndarray of shape (n_origins + 1, h, m, m)
        Products of the differences, summed over origins.
    right : ndarray of shape (n_origins + 1, h, m)
        Their products with what the base forecast missed.
    differences : ndarray of shape (n_series, n_origins, h, m)
    """

    origins: Origins
    base: FloatArray
    differences: FloatArray
    gram: FloatArray
    right: FloatArray

    @classmethod
    def of(cls, origins: Origins, base: FloatArray, others: list[FloatArray]) -> Blend:
        """Collect the evidence at all origins.

        Parameters
        ----------
        origins : Origins
        base : ndarray of shape (n_series, n_origins, h)
        others : list of ndarray of that shape
            Where one is NaN it does not differ from the base.
        """
        differences = np.nan_to_num(np.stack([np.broadcast_to(other, base.shape) - base for other in others], axis=-1))
        level = np.maximum(np.abs(origins.y).mean(axis=1), 1e-9)[:, None, None]
        missed = (origins.actual - base) / level
        known = np.isfinite(missed)
        rows = np.where(known[..., None], differences / level[..., None], 0.0)
        gram = np.einsum("sokm,sokn->okmn", rows, rows, optimize=True)
        right = np.einsum("sokm,sok->okm", rows, np.where(known, missed, 0.0), optimize=True)
        return cls(origins, base, differences, _summed(gram), _summed(right))

    def weights(self, place: int) -> FloatArray:
        """Weights by hour ahead, shape (h, m), from what was known at the origin at `place`."""
        gram, right = self._evidence(self.gram, place), self._evidence(self.right, place)
        m = right.shape[-1]
        size = np.trace(gram, axis1=1, axis2=2) / m
        count = np.maximum(self._count(place), 1)
        ridge = size * (_SHARE + _ORIGINS * self.origins.per_day / DAY / count) + 1e-12
        return solve_each(gram + ridge[:, None, None] * np.eye(m), right)

    def path(self, place: int) -> FloatArray:
        """Forecast at the origin at `place`, shape (n_series, h)."""
        correction = (self.differences[:, place] * self.weights(place)).sum(axis=-1)
        return np.asarray(self.base[:, place] + correction)

    def _known(self, place: int) -> tuple[IntArray, IntArray]:
        """First and last (excluded) origin whose hour ahead had come by the origin at `place`, by hour ahead."""
        step = DAY // self.origins.per_day
        last = np.maximum(place - np.arange(self.origins.h) // step, 0)
        return np.maximum(last - _WINDOW_DAYS * self.origins.per_day, 0), last

    def _count(self, place: int) -> FloatArray:
        first, last = self._known(place)
        return _pooled((last - first).astype(float))

    def _evidence(self, sums: FloatArray, place: int) -> FloatArray:
        first, last = self._known(place)
        ahead = np.arange(self.origins.h)
        return _pooled(sums[last, ahead] - sums[first, ahead])


#: Shares that are tried, and the fewest origins for any but the even one.
_SHARES = np.linspace(0, 1, 21)
_FEWEST = 7
#: A total loss within this factor of the least is as good as the least.
_CLOSE = 1.03


def best_shares(errors: FloatArray, other_errors: FloatArray, origins: IntArray, present: int) -> FloatArray:
    """Share of a second forecast in the average with the least absolute error so far, at each origin and now.

    Parameters
    ----------
    errors, other_errors : ndarray of shape (n_series, n_origins, h)
        Of both forecasts at past origins; NaN where unknown.
    origins : ndarray of int, shape (n_origins,)
        Bins known at each, ascending.
    present : int
        Bins known now.

    Returns
    -------
    ndarray of shape (n_series, n_origins + 1)
        From 0 to 1. Errors that had not been seen at an origin do not count there; with few origins, one half.
    """
    n, _, h = errors.shape
    losses = np.stack([np.abs(errors + share * (other_errors - errors)) for share in _SHARES])
    known = np.nan_to_num(losses).mean(axis=-1)
    shares = np.full((n, origins.size + 1), 0.5)
    for place, now in enumerate(np.append(origins, present)):
        seen = origins + h <= now
        if seen.sum() >= _FEWEST:
            total = known[:, :, seen].sum(axis=2)
            # Of shares that do about as well, the mean: the minimum is flat and its place a matter of chance.
            close = total <= _CLOSE * total.min(axis=0)
            shares[:, place] = (close * _SHARES[:, None]).sum(axis=0) / close.sum(axis=0)
    return shares


def _summed(values: FloatArray) -> FloatArray:
    return np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])


def _pooled(values: FloatArray) -> FloatArray:
    """Sum over neighbouring hours ahead."""
    h = len(values)
    sums = _summed(values)
    ahead = np.arange(h)
    return np.asarray(sums[np.minimum(ahead + _HALF + 1, h)] - sums[np.maximum(ahead - _HALF, 0)])
