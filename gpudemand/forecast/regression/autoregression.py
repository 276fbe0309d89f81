"""Autoregressions on sets of lags: ridge estimates, stability, recursive forecasts and penalised smoothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.linalg import solveh_banded

from gpudemand._linalg import solve_each
from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand.forecast.base.panel import week_length

#: Lagged values in memory at once.
_CHUNK = 2e7


def default_lags(season: int, freq: pd.offsets.BaseOffset, n_times: int) -> tuple[int, ...]:
    """The newest bins, and one season, one week and both together with their neighbours, up to half of the history.

    Examples
    --------
    >>> default_lags(7, pd.offsets.Day(), 60)
    (1, 2, 3, 4, 6, 7, 8, 9, 13, 14, 15, 16)
    """
    week = max(season, week_length(freq))
    centres = {0, season, week, week + season} if season > 1 else {0}
    lags = {centre + step for centre in centres for step in (-1, 0, 1, 2)} | {3, 4}
    return tuple(sorted(lag for lag in lags if lag >= 1 and 2 * lag <= n_times)) or (1,)


def lagged(x: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """Values at each lag of every time that has them all, shape (n_lags, ..., n_times - max(lags))."""
    longest, n = max(lags), x.shape[-1]
    return np.stack([x[..., longest - lag : n - lag] for lag in lags])


def fit_weights(x: FloatArray, lags: tuple[int, ...], penalty: float) -> FloatArray:
    """Ridge autoregressions, shape (n_rows, n_lags), of the rows of `x`, shape (n_rows, n_times).

    The penalty on the squared weights is in units of the variance of a row.
    """
    past, now = lagged(x, lags), x[:, max(lags) :]
    gram = np.einsum("art,brt->rab", past, past, optimize=True)
    right = np.einsum("art,rt->ra", past, now, optimize=True)
    size = np.maximum(np.square(x).mean(axis=1), np.finfo(float).tiny)
    ridge = penalty * size[:, None, None] * np.eye(len(lags))
    return solve_each(gram + ridge, right)


def fit_shrunk(x: FloatArray, lags: tuple[int, ...], penalty: float) -> tuple[FloatArray, FloatArray]:
    """Autoregressions of the rows of `x`, shrunk towards the one that is fitted to all rows together.

    The penalty on the squared distance from the shared weights is in units of the variance of a row: about their worth
    as a number of values. Rows that are zero throughout get the shared weights.

    Returns the weights, shape (n_rows, n_lags), and the shared ones, shape (n_lags,).
    """
    if x.shape[1] <= max(lags):
        return np.zeros((len(x), len(lags))), np.zeros(len(lags))
    n_rows = max(int(_CHUNK / (len(lags) * x.shape[1])), 1)
    parts = [_normal_equations(x[first : first + n_rows], lags) for first in range(0, len(x), n_rows)]
    gram, right = (np.concatenate(part) for part in zip(*parts, strict=True))
    ridge = np.eye(len(lags))
    shared = np.linalg.solve(gram.sum(axis=0) + ridge, right.sum(axis=0))
    weights = solve_each(gram + penalty * ridge, right + penalty * shared)
    return weights, shared


def _normal_equations(x: FloatArray, lags: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """Gram matrices of the lagged values and their products with the present, each row scaled to unit variance."""
    size = np.square(x).mean(axis=1)[:, None]
    past, now = lagged(x, lags).swapaxes(0, 1), x[:, max(lags) :]
    unit = 1 / np.where(size > 0, size, 1.0)
    return past @ past.swapaxes(1, 2) * unit[..., None], (past @ now[..., None])[..., 0] * unit


def is_stable(weights: FloatArray, lags: tuple[int, ...]) -> BoolArray:
    """Whether autoregressions, shape (..., n_lags), are stationary: all reflection coefficients are below one.

    Levinson's recursion takes ``max(lags)`` steps, where eigenvalues of the companion matrix would take their cube.

    Examples
    --------
    >>> is_stable(np.array([[0.5, 0.4], [1.2, 0.0]]), (1, 7))
    array([ True, False])
    """
    full = np.zeros((*weights.shape[:-1], max(lags) + 1))
    full[..., 0] = 1.0
    full[..., list(lags)] = -weights
    stable = np.ones(weights.shape[:-1], dtype=bool)
    while full.shape[-1] > 1:
        last = full[..., -1:]
        stable &= np.abs(last[..., 0]) < 1
        # Avoids division by zero where the answer is known.
        last = np.where(stable[..., None], last, 0.0)
        full = (full[..., :-1] - last * full[..., :0:-1]) / (1 - last * last)
    return stable


def stabilise(weights: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """Scale autoregressions, shape (n_rows, n_lags), down until they are stable; stable rows are unchanged.

    All weights of a row shrink by one factor. Scaling the roots instead would multiply the weight at lag l by the l-th
    power of the factor, which removes seasonal lags.
    """
    # Weights whose absolute values sum to less than one are stable, which spares most rows the recursion.
    unstable = np.flatnonzero(np.abs(weights).sum(axis=1) >= 1)
    unstable = unstable[~is_stable(weights[unstable], lags)]
    low, high = np.zeros((unstable.size, 1)), np.ones((unstable.size, 1))
    for _ in range(20):
        middle = (low + high) / 2
        stable = is_stable(weights[unstable] * middle, lags)[:, None]
        low, high = np.where(stable, middle, low), np.where(stable, high, middle)
    out = weights.copy()
    out[unstable] *= low
    return out


def extrapolate(x: FloatArray, weights: FloatArray, lags: tuple[int, ...], h: int) -> FloatArray:
    """Recursive forecasts of each row of `x`, shape (n_rows, n_times), for `h` steps; 0 before the first value."""
    return extrapolate_from(x, weights, lags, h, np.array([x.shape[1]]))[:, 0]


def extrapolate_from(
    x: FloatArray, weights: FloatArray, lags: tuple[int, ...], h: int, origins: IntArray
) -> FloatArray:
    """Recursive forecasts of each row from several origins, shape (n_rows, n_origins, h).

    An origin is the number of times known there, at most ``n_times``.
    """
    first = max(int(origins.min()) - max(lags), 0)
    past = np.concatenate([np.zeros((len(x), max(lags))), x[:, first:]], axis=1)
    now = origins - first + max(lags)
    path = np.empty((len(x), origins.size, h))
    for step in range(h):
        known = (past[:, now + step - lag] if lag > step else path[:, :, step - lag] for lag in lags)
        path[:, :, step] = sum(weights[:, place, None] * values for place, values in enumerate(known))
    return path


def innovations(x: FloatArray, weights: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """One-step errors of each row's autoregression, shape (n_rows, n_times - max(lags))."""
    return x[:, max(lags) :] - np.einsum("ra,art->rt", weights, lagged(x, lags), optimize=True)


def innovations_adjoint(errors: FloatArray, weights: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """Transpose of the linear map `innovations`, shape (n_rows, n_times)."""
    longest, n = max(lags), errors.shape[1]
    out = np.zeros((len(errors), n + longest))
    out[:, longest:] = errors
    for place, lag in enumerate(lags):
        out[:, longest - lag : longest - lag + n] -= weights[:, place, None] * errors
    return out


def solve_with_penalty(
    diagonal: FloatArray, right: FloatArray, weights: FloatArray, lags: tuple[int, ...], penalty: float
) -> FloatArray:
    """Solve ``(diag(diagonal) + penalty * A'A) x = right`` by banded Cholesky, A the innovations of one row."""
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
