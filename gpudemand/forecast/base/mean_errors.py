"""Errors of the mean over a horizon, and how they grow with its length."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls
from scipy.special import stdtrit

from gpudemand._typing import FloatArray
from gpudemand.forecast.base.intervals import PastErrors

#: Lengths at which errors are compared, and degrees of freedom that the shorter ones add to those of the longest.
_LENGTHS, _FROM_SHORTER = 8, 2.0


def mean_error_quantiles(past: PastErrors, shares: FloatArray, shortest: int) -> FloatArray:
    """Predictive quantiles of the error of the mean over the whole horizon, by series.

    The variance of the mean error over ``k`` bins is fitted by ``a / k + b + c k``, no coefficient below zero: noise of
    single bins, which averages out, a wrong level, and a level that wanders like a random walk. Mean squared errors at
    several lengths are weighted by the disjoint spans behind them, and their relation is pooled over series; so errors
    at the length of the horizon count where the history has them, and the curve extends the shorter ones where it has
    none. Quantiles are those of Student's t, as the variance is estimated from few spans.

    Parameters
    ----------
    past : PastErrors
    shares : ndarray of shape (m,)
        Inside (0, 1).
    shortest : int
        Shortest length, in bins, to learn from: a season, within which errors are dependent.

    Returns
    -------
    ndarray of shape (m, n_series)

    Examples
    --------
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
