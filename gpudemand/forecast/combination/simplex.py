"""Quadratic programmes on the simplex, many at once."""

from __future__ import annotations

import numpy as np

from gpudemand._linalg import solve_each
from gpudemand._typing import BoolArray, FloatArray

#: Failures after which one weight is corrected at a time, most corrections, and the tolerance.
_TRIES, _MOST_PIVOTS, _ROUNDING = 3, 100, 1e-9


def minimise_on_simplex(form: FloatArray, slope: FloatArray) -> FloatArray:
    """Minimise ``w' form w / 2 - slope' w`` over weights that are not negative and sum to one, many forms at once.

    On the simplex the slope can be made part of the form. The resulting linear complementarity problem is solved by
    block principal pivoting: all negative weights and multipliers are exchanged at once while their number falls, and
    one at a time after that.

    Parameters
    ----------
    form : ndarray of shape (..., m, m)
        Symmetric, positive definite (or 0).
    slope : ndarray of shape (..., m)

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
    inside = np.ones(flat.shape[:2], dtype=bool)
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
