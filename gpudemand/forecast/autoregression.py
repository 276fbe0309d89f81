"""Autoregressions on a set of lags: fitted, kept stable, run forward, and as a penalty on a series."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solveh_banded

from gpudemand._typing import FloatArray


def lagged(x: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """Return ``x`` at each lag for every time that has them all, shape (n_lags, ..., n_times - max(lags))."""
    longest, n = max(lags), x.shape[-1]
    return np.stack([x[..., longest - lag : n - lag] for lag in lags])


def fit_weights(x: FloatArray, lags: tuple[int, ...], penalty: float) -> FloatArray:
    """Fit an autoregression to each row by ridge regression.

    Parameters
    ----------
    x : ndarray of shape (n_rows, n_times)
    lags : tuple of int
        Ascending.
    penalty : float
        On the squared weights, for each row in units of its own variance.

    Returns
    -------
    ndarray of shape (n_rows, n_lags)
    """
    past, now = lagged(x, lags), x[:, max(lags) :]
    gram = np.einsum("art,brt->rab", past, past, optimize=True)
    right = np.einsum("art,rt->ra", past, now, optimize=True)
    size = np.maximum(np.square(x).mean(axis=1), np.finfo(float).tiny)
    ridge = penalty * size[:, None, None] * np.eye(len(lags))
    return np.linalg.solve(gram + ridge, right[..., None])[..., 0]


def is_stable(weights: FloatArray, lags: tuple[int, ...]) -> bool:
    """Whether every root of an autoregression lies inside the unit circle, so that what it starts with fades.

    Levinson's recursion backwards: stable if and only if every reflection coefficient is below one. It takes
    ``max(lags)`` steps, where eigenvalues of the companion matrix would take their cube.

    Examples
    --------
    >>> is_stable(np.array([0.5, 0.4]), (1, 7)), is_stable(np.array([1.2]), (1,))
    (True, False)
    """
    full = np.zeros(max(lags) + 1)
    full[0] = 1.0
    full[list(lags)] = -weights
    while full.size > 1:
        last = full[-1]
        if not abs(last) < 1:
            return False
        full = (full[:-1] - last * full[:0:-1]) / (1 - last * last)
    return True


def stabilised(weights: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """Scale autoregressions down until they are stable.

    All weights of a row shrink by one factor. Moving every root by the same factor instead would multiply the weight at
    lag l by its l-th power, and so wipe out the seasonal lags.

    Parameters
    ----------
    weights : ndarray of shape (n_rows, n_lags)
    lags : tuple of int

    Returns
    -------
    ndarray of shape (n_rows, n_lags)
        Rows that are stable come back as they are.
    """
    return np.array([row * _factor(row, lags) for row in weights])


def _factor(weights: FloatArray, lags: tuple[int, ...]) -> float:
    if is_stable(weights, lags):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if is_stable(weights * middle, lags) else (low, middle)
    return low


def run_forward(x: FloatArray, weights: FloatArray, lags: tuple[int, ...], h: int) -> FloatArray:
    """Continue each row of `x`, shape (n_rows, n_times), for `h` steps; a row too short counts as 0 before it began."""
    longest = max(lags)
    path = np.concatenate([np.zeros((len(x), max(longest - x.shape[1], 0))), x[:, -longest:], np.zeros((len(x), h))], 1)
    for step in range(longest, longest + h):
        path[:, step] = sum(weights[:, place] * path[:, step - lag] for place, lag in enumerate(lags))
    return path[:, longest:]


def innovations(x: FloatArray, weights: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """What each row's autoregression gets wrong, shape (n_rows, n_times - max(lags))."""
    return x[:, max(lags) :] - np.einsum("ra,art->rt", weights, lagged(x, lags), optimize=True)


def pull_back(errors: FloatArray, weights: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """Apply the transpose of `innovations`, shape (n_rows, n_times)."""
    longest, n = max(lags), errors.shape[1]
    out = np.zeros((len(errors), n + longest))
    out[:, longest:] = errors
    for place, lag in enumerate(lags):
        out[:, longest - lag : longest - lag + n] -= weights[:, place, None] * errors
    return out


def solve_with_penalty(
    diagonal: FloatArray, right: FloatArray, weights: FloatArray, lags: tuple[int, ...], penalty: float
) -> FloatArray:
    """Solve ``(diag(diagonal) + penalty * A'A) x = right`` by banded Cholesky, A taking one row's innovations.

    Parameters
    ----------
    diagonal, right : ndarray of shape (n_times,)
    weights : ndarray of shape (n_lags,)
    lags : tuple of int
    penalty : float

    Returns
    -------
    ndarray of shape (n_times,)
    """
    longest, n = max(lags), right.size
    band = np.zeros((longest + 1, n))
    terms = [(0, 1.0), *zip(lags, -weights, strict=True)]
    for far, a in terms:
        for near, b in terms:
            if far >= near:
                band[far - near, longest - far : n - far] += a * b
    band *= penalty
    band[0] += diagonal
    return solveh_banded(band, right, lower=True, overwrite_ab=True, check_finite=False)
