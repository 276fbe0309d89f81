"""Combination weights on the simplex that minimise backtest errors (stacking)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudemand._linalg import solve_each
from gpudemand._typing import BoolArray, FloatArray, IntArray

#: Prior weight, in origins, of the whole horizon in the quadratic form of a part of it.
_HORIZON_POOLING = 12.0
#: Iterations of reweighted least squares for absolute errors.
_IRLS_ROUNDS = 2
#: Shrinkage towards the weights of all series, relative to the squared error of the best member, and the number of bins
#: with demand at which it doubles.
_SHRINKAGE, _PRIOR_EVENTS = 0.05, 100.0
#: Failures after which one weight is corrected at a time, most corrections, and the tolerance.
_TRIES, _MOST_PIVOTS, _ROUNDING = 3, 100, 1e-9


@dataclass(frozen=True)
class Spans:
    """Parts of a horizon that share weights.

    Attributes
    ----------
    of_step : ndarray of shape (h,)
        Part to which each step belongs.
    """

    of_step: IntArray

    @classmethod
    def of(cls, h: int, most: int = 4) -> Spans:
        """Split a horizon into at most `most` equal parts.

        Examples
        --------
        >>> Spans.of(6).of_step.tolist()
        [0, 0, 1, 2, 2, 3]
        """
        parts = min(h, most)
        return cls(np.arange(h) * parts // h)

    def sums(self, x: FloatArray) -> FloatArray:
        """Sum over the steps of each part, which are the last axis."""
        starts = np.flatnonzero(np.diff(self.of_step, prepend=-1))
        return np.add.reduceat(x, starts, axis=-1)


def stacking_weights(
    errors: FloatArray, spans: Spans, scale: FloatArray, evidence: FloatArray, absolute: BoolArray
) -> FloatArray:
    """Weights of members by series and part of the horizon.

    The squared error of a combination is a quadratic form of its weights in the mean products of the members' errors.
    The form of a part of the horizon is shrunk towards that of the whole; the weights of a series are shrunk towards
    those of all series, the more the fewer bins with demand it has.

    Parameters
    ----------
    errors : ndarray of shape (n_members, n_times, n_series, n_origins, h)
        Errors from earlier origins known at each of several times; NaN where unknown, for all members alike.
    spans : Spans
    scale : ndarray of shape (n_times, n_series)
        Scale of the errors of each series in the pooled form; infinite for a series without weight.
    evidence : ndarray of shape (n_times, n_series)
        Bins with demand on which the errors rest.
    absolute : ndarray of bool, shape (n_times, n_series)
        Series whose absolute errors are minimised instead of squared ones. Intermittent series are not among them:
        absolute errors would forecast them as zero.

    Returns
    -------
    ndarray of shape (n_times, n_series, n_spans, n_members)

    Examples
    --------
    Two members are equally good, the errors of the third are five times as large:

    >>> errors = np.random.default_rng(0).normal(size=(3, 1, 1, 400, 1)) * np.reshape([1, 1, 5], (3, 1, 1, 1, 1))
    >>> one = np.ones((1, 1))
    >>> stacking_weights(errors, Spans.of(1), one, 400 * one, one < 1)[0, 0, 0].round(1).tolist()
    [0.5, 0.5, 0.0]
    """
    known = ~np.isnan(errors[0])
    errors = np.moveaxis(np.where(known, errors / scale[..., None, None], 0.0), 0, -1).copy()
    n_known = np.maximum(known.sum(axis=(-2, -1), keepdims=True), 1)
    weights = _quadratic(errors, spans, evidence, known.astype(float))
    for _ in range(_IRLS_ROUNDS if absolute.any() else 0):
        residual = np.abs(np.einsum("gnohm,gnhm->gnoh", errors, weights[:, :, spans.of_step]))
        typical = np.maximum(residual.sum(axis=(-2, -1), keepdims=True) / n_known, np.finfo(float).tiny)
        counts = known * np.where(absolute[..., None, None], typical / np.maximum(residual, 0.3 * typical), 1.0)
        weights = _quadratic(errors, spans, evidence, counts, weights > 0)
    return weights


def _quadratic(
    errors: FloatArray, spans: Spans, evidence: FloatArray, counts: FloatArray, support: BoolArray | None = None
) -> FloatArray:
    """Weights under squared errors with sample weights `counts`, shape (n_times, n_series, n_spans, m).

    `errors` have the members last, and are 0 where unknown.
    """
    own, shared = _forms(errors, spans, counts)
    typical, m = _best_member_error(shared), errors.shape[-1]
    common = minimise_on_simplex(*_shrunk(shared, np.full((1, m), 1 / m), _SHRINKAGE * typical))
    events = evidence[..., None, None, None]
    # An inactive user is forecast without error by any zero forecast, which is no evidence for it.
    size = np.maximum(_best_member_error(own), typical / (1 + events))
    return minimise_on_simplex(*_shrunk(own, common, _SHRINKAGE * (1 + _PRIOR_EVENTS / (1 + events)) * size), support)


def _forms(errors: FloatArray, spans: Spans, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Quadratic forms of the combined error, (n_times, n_series, n_spans, m, m), and the mean of all series."""
    products, count = _products(errors, spans, counts), spans.sums(counts.sum(axis=2))
    whole, total = products.sum(axis=2, keepdims=True), count.sum(axis=2)[..., None, None, None]
    pooled = products.sum(axis=1, keepdims=True) / np.maximum(count.sum(axis=1, keepdims=True), 1)[..., None, None]
    borrowed = _HORIZON_POOLING * np.bincount(spans.of_step)[:, None, None]
    mean = np.where(total > 0, whole / np.maximum(total, 1), pooled)
    return (products + borrowed * mean) / (count[..., None, None] + borrowed), pooled


def _shrunk(form: FloatArray, towards: FloatArray, strength: FloatArray) -> tuple[FloatArray, FloatArray]:
    return form + strength * np.eye(form.shape[-1]), strength[..., 0] * towards


def _best_member_error(form: FloatArray) -> FloatArray:
    return np.diagonal(form, axis1=-2, axis2=-1).min(axis=-1)[..., None, None]


def _products(errors: FloatArray, spans: Spans, counts: FloatArray) -> FloatArray:
    """Sums of products of the members' errors, (n_times, n_series, n_spans, m, m)."""
    n_times, n, _, _, m = errors.shape
    parts = []
    for span in range(int(spans.of_step[-1]) + 1):
        part = spans.of_step == span
        rows = errors[:, :, :, part].reshape(n_times, n, -1, m)
        parts.append(rows.swapaxes(2, 3) @ (rows * counts[:, :, :, part].reshape(n_times, n, -1, 1)))
    return np.stack(parts, axis=2)


def minimise_on_simplex(form: FloatArray, slope: FloatArray, support: BoolArray | None = None) -> FloatArray:
    """Minimise ``w' form w / 2 - slope' w`` over weights that are not negative and sum to one, many forms at once.

    On the simplex the slope can be made part of the form. The resulting linear complementarity problem is solved by
    block principal pivoting: all negative weights and multipliers are exchanged at once while their number falls, and
    one at a time after that.

    Parameters
    ----------
    form : ndarray of shape (..., m, m)
        Symmetric, positive definite (or 0).
    slope : ndarray of shape (..., m)
    support : ndarray of bool, shape (..., m), optional
        Initial guess of the non-zero weights; all by default.

    Returns
    -------
    ndarray of shape (..., m)

    References
    ----------
    Júdice and Pires, "A block principal pivoting algorithm for large-scale strictly monotone linear complementarity
    problems", Computers and Operations Research 21 (1994).

    Examples
    --------
    >>> minimise_on_simplex(np.diag([1.0, 3.0, 99.0]), np.array([0.0, 0.0, -9.0])).round(2).tolist()
    [0.75, 0.25, 0.0]
    """
    m = form.shape[-1]
    flat = _homogeneous(form.reshape(-1, m, m), slope.reshape(-1, m))
    inside = np.ones(flat.shape[:2], dtype=bool) if support is None else support.reshape(-1, m).copy()
    inside[~inside.any(axis=1)] = True
    weights, fewest, tries = np.zeros(flat.shape[:2]), np.full(len(flat), m + 1), np.full(len(flat), _TRIES)
    left = np.arange(len(flat))
    for _ in range(_MOST_PIVOTS):
        found, violated = _solved(flat[left], inside[left])
        weights[left] = np.maximum(found, 0.0)
        left, violated = left[violated.any(axis=1)], violated[violated.any(axis=1)]
        if not left.size:
            break
        n_violated = violated.sum(axis=1)
        fewer = n_violated < fewest[left]
        tries[left] = np.where(fewer, _TRIES, tries[left] - 1)
        fewest[left] = np.minimum(n_violated, fewest[left])
        only_last = np.arange(m) == m - 1 - violated[:, ::-1].argmax(axis=1)[:, None]
        inside[left] ^= np.where(tries[left, None] >= 0, violated, only_last)
    return (weights / weights.sum(axis=1, keepdims=True)).reshape(slope.shape)


def _homogeneous(form: FloatArray, slope: FloatArray) -> FloatArray:
    """Positive definite form without slope that equals the given objective on the simplex up to a constant."""
    own = np.diagonal(form, axis1=1, axis2=2)
    largest, best = own.max(axis=1, keepdims=True), np.where(own > 0, own, np.inf).min(axis=1, keepdims=True)
    # Scaled by the best member: beside a diverging one all others would be equal within rounding.
    unit = np.where(largest > 0, np.maximum(best, _ROUNDING**2 * largest), 1.0)
    # Members without errors, or with equal ones, make the form singular.
    ridge = _ROUNDING * (1 + own / unit)
    form, slope = form / unit[..., None] + ridge[..., None] * np.eye(form.shape[-1]), slope / unit
    reach = 1 + 2 * np.einsum("bi,bi->b", slope, solve_each(form, slope))
    return form - slope[:, None] - slope[..., None] + reach[:, None, None]


def _solved(form: FloatArray, inside: BoolArray) -> tuple[FloatArray, BoolArray]:
    """Weights of a support, up to their sum, and mask of negative weights inside and negative multipliers outside."""
    both = inside[:, :, None] & inside[:, None]
    found = solve_each(np.where(both, form, np.eye(form.shape[-1])), inside.astype(float))
    slack = np.einsum("bij,bj->bi", form, found) - 1
    return found, np.where(inside, found, slack) < -_ROUNDING
