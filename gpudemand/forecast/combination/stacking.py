"""Weights of a blend: not negative, summing to one, and as good as possible on past errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudemand._linalg import solve_each
from gpudemand._typing import BoolArray, FloatArray, IntArray

#: Origins' worth of evidence that a part of the horizon takes from the whole.
_FROM_SPANS = 12.0
#: Rounds of reweighting that turn squared errors into absolute ones.
_ROUNDS = 2
#: Pull towards the weights that serve all series, as a share of the best member's squared error, and the number of bins
#: with demand at which it doubles.
_PULL, _FEW = 0.05, 100.0
#: Failures after which one weight is corrected at a time, most corrections, and what is as good as zero.
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


def blend_weights(
    errors: FloatArray, spans: Spans, scale: FloatArray, evidence: FloatArray, absolute: BoolArray
) -> FloatArray:
    """Weights of members by series and part of the horizon.

    The squared error of a blend is a quadratic form of its weights in the mean products of the members' errors. The
    form of a part of the horizon is shrunk towards the one of the whole; the weights of a series are pulled towards
    those that serve all series, the harder the less has happened in it.

    Parameters
    ----------
    errors : ndarray of shape (n_members, n_times, n_series, n_origins, h)
        What was known of earlier origins at each of several times; NaN where unknown, for all members alike.
    spans : Spans
    scale : ndarray of shape (n_times, n_series)
        Unit of each series' errors, where series are counted together; infinite for one that does not count.
    evidence : ndarray of shape (n_times, n_series)
        Bins with demand on which the errors rest.
    absolute : ndarray of bool, shape (n_times, n_series)
        Series whose absolute errors count instead of squared ones: not for those that are often zero, which absolute
        errors would have forecast as zero.

    Returns
    -------
    ndarray of shape (n_times, n_series, n_spans, n_members)

    Examples
    --------
    Two members are equally good, the third errs five times as much:

    >>> errors = np.random.default_rng(0).normal(size=(3, 1, 1, 400, 1)) * np.reshape([1, 1, 5], (3, 1, 1, 1, 1))
    >>> one = np.ones((1, 1))
    >>> blend_weights(errors, Spans.of(1), one, 400 * one, one < 1)[0, 0, 0].round(1).tolist()
    [0.5, 0.5, 0.0]
    """
    known = ~np.isnan(errors[0])
    errors = np.moveaxis(np.where(known, errors / scale[..., None, None], 0.0), 0, -1).copy()
    n_known = np.maximum(known.sum(axis=(-2, -1), keepdims=True), 1)
    weights = _quadratic(errors, spans, evidence, known.astype(float))
    for _ in range(_ROUNDS if absolute.any() else 0):
        left = np.abs(np.einsum("gnohm,gnhm->gnoh", errors, weights[:, :, spans.of_step]))
        usual = np.maximum(left.sum(axis=(-2, -1), keepdims=True) / n_known, np.finfo(float).tiny)
        counts = known * np.where(absolute[..., None, None], usual / np.maximum(left, 0.3 * usual), 1.0)
        weights = _quadratic(errors, spans, evidence, counts, weights > 0)
    return weights


def _quadratic(
    errors: FloatArray, spans: Spans, evidence: FloatArray, counts: FloatArray, support: BoolArray | None = None
) -> FloatArray:
    """Weights under squared errors, each of which counts `counts` times, shape (n_times, n_series, n_spans, m).

    `errors` have the members last, and are 0 where they do not count.
    """
    own, shared = _forms(errors, spans, counts)
    typical, m = _best(shared), errors.shape[-1]
    common = minimise_on_simplex(*_pulled(shared, np.full((1, m), 1 / m), _PULL * typical))
    events = evidence[..., None, None, None]
    # A user who sleeps is forecast without error by anything that says zero, which is no reason to believe it.
    size = np.maximum(_best(own), typical / (1 + events))
    return minimise_on_simplex(*_pulled(own, common, _PULL * (1 + _FEW / (1 + events)) * size), support)


def _forms(errors: FloatArray, spans: Spans, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Quadratic forms of the blend's error: (n_times, n_series, n_spans, m, m), and the mean of all series."""
    products, count = _products(errors, spans, counts), spans.sums(counts.sum(axis=2))
    whole, total = products.sum(axis=2, keepdims=True), count.sum(axis=2)[..., None, None, None]
    pooled = products.sum(axis=1, keepdims=True) / np.maximum(count.sum(axis=1, keepdims=True), 1)[..., None, None]
    borrowed = _FROM_SPANS * np.bincount(spans.of_step)[:, None, None]
    mean = np.where(total > 0, whole / np.maximum(total, 1), pooled)
    return (products + borrowed * mean) / (count[..., None, None] + borrowed), pooled


def _pulled(form: FloatArray, towards: FloatArray, strength: FloatArray) -> tuple[FloatArray, FloatArray]:
    return form + strength * np.eye(form.shape[-1]), strength[..., 0] * towards


def _best(form: FloatArray) -> FloatArray:
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

    Where weights sum to one, the slope can be written as a part of the form. What is left is a linear complementarity
    problem: its support is guessed, solved for, and corrected wherever a weight or a multiplier is negative, all at
    once as long as that helps and the last one after that, which cannot go on for ever.

    Parameters
    ----------
    form : ndarray of shape (..., m, m)
        Symmetric, positive definite (or 0).
    slope : ndarray of shape (..., m)
    support : ndarray of bool, shape (..., m), optional
        First guess of which weights are not 0; all by default.

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
        found, wrong = _solved(flat[left], inside[left])
        weights[left] = np.maximum(found, 0.0)
        left, wrong = left[wrong.any(axis=1)], wrong[wrong.any(axis=1)]
        if not left.size:
            break
        n_wrong = wrong.sum(axis=1)
        fewer = n_wrong < fewest[left]
        tries[left] = np.where(fewer, _TRIES, tries[left] - 1)
        fewest[left] = np.minimum(n_wrong, fewest[left])
        only_last = np.arange(m) == m - 1 - wrong[:, ::-1].argmax(axis=1)[:, None]
        inside[left] ^= np.where(tries[left, None] >= 0, wrong, only_last)
    return (weights / weights.sum(axis=1, keepdims=True)).reshape(slope.shape)


def _homogeneous(form: FloatArray, slope: FloatArray) -> FloatArray:
    """A positive definite form without a slope that differs from the given ones by a constant on the simplex."""
    own = np.diagonal(form, axis1=1, axis2=2)
    largest, best = own.max(axis=1, keepdims=True), np.where(own > 0, own, np.inf).min(axis=1, keepdims=True)
    # Beside one that has gone astray all other members would look alike, so the unit is that of the best one.
    unit = np.where(largest > 0, np.maximum(best, _ROUNDING**2 * largest), 1.0)
    # Members that are never wrong, or always alike, leave the form singular.
    ridge = _ROUNDING * (1 + own / unit)
    form, slope = form / unit[..., None] + ridge[..., None] * np.eye(form.shape[-1]), slope / unit
    reach = 1 + 2 * np.einsum("bi,bi->b", slope, solve_each(form, slope))
    return form - slope[:, None] - slope[..., None] + reach[:, None, None]


def _solved(form: FloatArray, inside: BoolArray) -> tuple[FloatArray, BoolArray]:
    """Weights of a support, up to their sum, and which of them, or of the multipliers outside, are negative."""
    both = inside[:, :, None] & inside[:, None]
    found = solve_each(np.where(both, form, np.eye(form.shape[-1])), inside.astype(float))
    slack = np.einsum("bij,bj->bi", form, found) - 1
    return found, np.where(inside, found, slack) < -_ROUNDING
