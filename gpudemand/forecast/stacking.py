"""Weights of a blend: not negative, summing to one, and as good as possible on past errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudemand._typing import BoolArray, FloatArray, IntArray

#: Origins' worth of evidence that a part of the horizon takes from the whole.
_FROM_SPANS = 12.0
#: Rounds of reweighting that turn squared errors into absolute ones.
_ROUNDS = 2
#: Pull towards the weights that serve all series, as a share of the best member's squared error, and the number of bins
#: with demand at which it doubles.
_PULL, _FEW = 0.05, 100.0


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
    errors = errors / scale[..., None, None]
    n_known = np.maximum((~np.isnan(errors[0])).sum(axis=(-2, -1), keepdims=True), 1)
    weights = _quadratic(errors, spans, evidence, np.ones(errors.shape[1:]))
    for _ in range(_ROUNDS if absolute.any() else 0):
        left = np.abs(np.einsum("gnhm,mgnoh->gnoh", weights[:, :, spans.of_step], np.nan_to_num(errors)))
        usual = np.maximum(left.sum(axis=(-2, -1), keepdims=True) / n_known, np.finfo(float).tiny)
        counts = np.where(absolute[..., None, None], usual / np.maximum(left, 0.3 * usual), 1.0)
        weights = _quadratic(errors, spans, evidence, counts)
    return weights


def _quadratic(errors: FloatArray, spans: Spans, evidence: FloatArray, counts: FloatArray) -> FloatArray:
    """Weights under squared errors, each of which counts `counts` times, shape (n_times, n_series, n_origins, h)."""
    own, shared = _forms(errors, spans, counts)
    typical, m = _best(shared), len(errors)
    common = minimise_on_simplex(*_pulled(shared, np.full((1, m), 1 / m), _PULL * typical))
    events = evidence[..., None, None, None]
    # A user who sleeps is forecast without error by anything that says zero, which is no reason to believe it.
    size = np.maximum(_best(own), typical / (1 + events))
    return minimise_on_simplex(*_pulled(own, common, _PULL * (1 + _FEW / (1 + events)) * size))


def _forms(errors: FloatArray, spans: Spans, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Quadratic forms of the blend's error: (n_times, n_series, n_spans, m, m), and the mean of all series."""
    products, count = _products(errors, spans, counts)
    whole, total = products.sum(axis=2, keepdims=True), count.sum(axis=2)[..., None, None, None]
    pooled = products.sum(axis=1, keepdims=True) / np.maximum(count.sum(axis=1, keepdims=True), 1)[..., None, None]
    borrowed = _FROM_SPANS * np.bincount(spans.of_step)[:, None, None]
    mean = np.where(total > 0, whole / np.maximum(total, 1), pooled)
    return (products + borrowed * mean) / (count[..., None, None] + borrowed), pooled


def _pulled(form: FloatArray, towards: FloatArray, strength: FloatArray) -> tuple[FloatArray, FloatArray]:
    return form + strength * np.eye(form.shape[-1]), strength[..., 0] * towards


def _best(form: FloatArray) -> FloatArray:
    return np.diagonal(form, axis1=-2, axis2=-1).min(axis=-1)[..., None, None]


def _products(errors: FloatArray, spans: Spans, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sums of products of the members' errors, (n_times, n_series, n_spans, m, m), and how many."""
    known = ~np.isnan(errors[0])
    filled = np.where(known, errors, 0.0)
    counts = counts * known
    n_spans, m = int(spans.of_step[-1]) + 1, len(filled)
    products = np.empty((*filled.shape[1:3], n_spans, m, m))
    for i, weighed in enumerate(filled * counts):
        for j in range(i + 1):
            product = spans.sums(np.einsum("gnoh,gnoh->gnh", weighed, filled[j]))
            products[..., i, j] = products[..., j, i] = product
    return products, spans.sums(counts.sum(axis=2))


def minimise_on_simplex(form: FloatArray, slope: FloatArray, n_steps: int = 150) -> FloatArray:
    """Minimise ``w' form w / 2 - slope' w`` over weights that are not negative and sum to one, many forms at once.

    Nesterov's accelerated projected gradients, from equal weights.

    Parameters
    ----------
    form : ndarray of shape (..., m, m)
        Symmetric, without negative eigenvalues.
    slope : ndarray of shape (..., m)
    n_steps : int, default=150

    Returns
    -------
    ndarray of shape (..., m)
    """
    m = form.shape[-1]
    weights = ahead = np.full(form.shape[:-1], 1 / m)
    size = np.trace(form, axis1=-2, axis2=-1)[..., None]
    step = 1 / np.where(size > 0, size, 1.0)
    momentum = 1.0
    for _ in range(n_steps):
        moved = project_on_simplex(ahead - step * ((form @ ahead[..., None])[..., 0] - slope))
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = moved + (momentum - 1) / following * (moved - weights)
        weights, momentum = moved, following
    return weights


def project_on_simplex(v: FloatArray) -> FloatArray:
    """Nearest weights that are not negative and sum to one, along the last axis.

    Examples
    --------
    >>> project_on_simplex(np.array([0.9, 0.5, -2.0])).round(2).tolist()
    [0.7, 0.3, 0.0]
    """
    falling = -np.sort(-v, axis=-1)
    excess = np.cumsum(falling, axis=-1) - 1
    rank = np.arange(1, v.shape[-1] + 1)
    last = (falling * rank > excess).sum(axis=-1, keepdims=True)
    return np.maximum(v - np.take_along_axis(excess, last - 1, axis=-1) / last, 0.0)
