"""Temporal regularized matrix factorization by alternating least squares, on plain matrices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.utils.extmath import randomized_svd

from gpudemand._linalg import solve_each
from gpudemand._typing import BoolArray, FloatArray
from gpudemand.forecast.regression.autoregression import (
    extrapolate,
    fit_weights,
    innovations,
    innovations_adjoint,
    solve_with_penalty,
    stabilise,
)

#: Cost of a banded solve (n_times * longest_lag ** 2) above which conjugate gradients are used.
_BANDED_WORK = 5e7
_CG_STEPS = 30


class Penalties(NamedTuple):
    """Weights of the penalties of `fit`, for data of unit variance."""

    loadings: float = 1.0
    latent: float = 1.0
    ridge: float = 0.01
    weights: float = 1.0


@dataclass(frozen=True)
class Factors:
    """Intercepts, loadings, and latent series that follow autoregressions.

    Attributes
    ----------
    loadings : ndarray of shape (n_series, n_factors)
    intercepts : ndarray of shape (n_series,)
    latent : ndarray of shape (n_factors, n_times)
    weights : ndarray of shape (n_factors, n_lags)
    lags : tuple of int
    objective : tuple of float
        Value of the objective after each sweep.
    """

    loadings: FloatArray
    intercepts: FloatArray
    latent: FloatArray
    weights: FloatArray
    lags: tuple[int, ...]
    objective: tuple[float, ...] = ()

    def forecast(self, h: int) -> FloatArray:
        """Forecasts from the extrapolated latent series, shape (n_series, h)."""
        ahead = extrapolate(self.latent, self.weights, self.lags, h)
        return self.intercepts[:, None] + self.loadings @ ahead


class Data(NamedTuple):
    """A matrix of series with zeros for missing values, and the mask of known ones, None when all are known."""

    values: FloatArray
    known: BoolArray | None

    @classmethod
    def of(cls, y: FloatArray) -> Data:
        """Split a matrix with NaN."""
        missing = np.isnan(y)
        if not missing.any():
            return cls(y, None)
        return cls(np.where(missing, 0.0, y), ~missing)


def fit(
    y: FloatArray,
    n_factors: int,
    lags: tuple[int, ...],
    penalties: Penalties,
    *,
    n_sweeps: int = 20,
    tolerance: float = 1e-4,
    non_negative: bool = False,
    start: Factors | None = None,
    random_state: int = 0,
) -> Factors:
    """Factorize a matrix of series.

    Minimises, over loadings F, intercepts b, latent series X and autoregressive weights W, half of::

        |known * (Y - b - F X)|^2 + loadings |F|^2 + latent (|X's innovations|^2 + ridge |X|^2) + weights |W|^2

    by exact updates of one block of parameters after the other, none of which can raise the objective.

    Parameters
    ----------
    y : ndarray of shape (n_series, n_times)
        Of about unit variance; NaN is missing, and 0 is a value.
    n_factors : int
    lags : tuple of int
        Ascending; the longest is shorter than the history.
    penalties : Penalties
    n_sweeps : int, default=20
        Maximum number of sweeps.
    tolerance : float, default=1e-4
        Relative decrease of the objective in a sweep below which the iteration stops.
    non_negative : bool, default=False
        Keep loadings at zero or above.
    start : Factors, optional
        Warm start; its latent series may be shorter and are then extrapolated.
    random_state : int, default=0
        Of the randomized singular value decomposition at the start.

    Returns
    -------
    Factors

    References
    ----------
    Yu, Rao and Dhillon, "Temporal Regularized Matrix Factorization for High-dimensional Time Series Prediction",
    NeurIPS 2016.
    """
    data = Data.of(y)
    factors = _svd(data, n_factors, lags, random_state) if start is None else _extended(start, y.shape[1])
    values: list[float] = []
    for _ in range(n_sweeps):
        factors = update_loadings(data, factors, penalties, non_negative)
        factors = update_latent(data, factors, penalties)
        factors = replace(factors, weights=fit_weights(factors.latent, lags, penalties.weights))
        values.append(objective(data, factors, penalties))
        if len(values) > 1 and values[-2] - values[-1] < tolerance * values[-2]:
            break
    return replace(factors, weights=stabilise(factors.weights, lags), objective=tuple(values))


def _svd(data: Data, n_factors: int, lags: tuple[int, ...], random_state: int) -> Factors:
    """Leading singular vectors, with missing values at the mean of their series."""
    count = data.values.shape[1] if data.known is None else np.maximum(data.known.sum(axis=1), 1)
    means = data.values.sum(axis=1) / count
    centred = data.values - means[:, None] if data.known is None else (data.values - means[:, None]) * data.known
    left, size, right = randomized_svd(centred, n_factors, n_iter=4, random_state=random_state)
    share = np.sqrt(np.maximum(size, np.finfo(float).eps))
    latent = right * share[:, None]
    return Factors(left * share, means, latent, fit_weights(latent, lags, 1.0), lags)


def _extended(start: Factors, n_times: int) -> Factors:
    missing = n_times - start.latent.shape[1]
    if missing <= 0:
        return replace(start, latent=start.latent[:, :n_times])
    ahead = extrapolate(start.latent, start.weights, start.lags, missing)
    return replace(start, latent=np.concatenate([start.latent, ahead], axis=1))


def update_loadings(data: Data, factors: Factors, penalties: Penalties, non_negative: bool = False) -> Factors:
    """Solve for loadings and intercepts given the latent series."""
    ridge = np.append(np.full(len(factors.latent), penalties.loadings), 1e-6)
    rows = np.vstack([factors.latent, np.ones(factors.latent.shape[1])])
    right = data.values @ rows.T
    gram = _gram(rows, data.known)
    if non_negative:
        start = np.column_stack([np.maximum(factors.loadings, 0.0), factors.intercepts])
        solved = _coordinate_descent(gram, right, ridge, start)
    else:
        penalised = gram + np.diag(ridge)
        solved = solve_each(penalised, right) if gram.ndim > 2 else np.asarray(np.linalg.solve(penalised, right.T).T)
    return replace(factors, loadings=solved[:, :-1], intercepts=solved[:, -1])


def _gram(rows: FloatArray, known: BoolArray | None) -> FloatArray:
    """Sum of outer products of the columns of `rows`: one matrix, or one for each row of `known`."""
    if known is None:
        return rows @ rows.T
    n = len(rows)
    upper = np.triu_indices(n)
    products = rows[upper[0]] * rows[upper[1]]
    packed = known.astype(float) @ products.T
    gram = np.empty((len(known), n, n))
    gram[:, upper[0], upper[1]] = packed
    gram[:, upper[1], upper[0]] = packed
    return gram


def _coordinate_descent(gram: FloatArray, right: FloatArray, ridge: FloatArray, x: FloatArray) -> FloatArray:
    """Coordinate descent of the quadratic with all columns but the last at zero or above."""
    x = x.copy()
    shared = gram if gram.ndim == 3 else gram[None]
    for _ in range(3):
        for column in range(x.shape[1]):
            slope = right[:, column] - np.einsum("ns,ns->n", np.broadcast_to(shared[:, column], x.shape), x)
            curve = shared[:, column, column]
            best = (slope + curve * x[:, column]) / (curve + ridge[column])
            x[:, column] = best if column == x.shape[1] - 1 else np.maximum(best, 0.0)
    return x


def update_latent(data: Data, factors: Factors, penalties: Penalties) -> Factors:
    """Lower the objective over the latent series given loadings, intercepts and weights."""
    if data.known is None:
        centred = factors.loadings.T @ data.values - (factors.loadings.T @ factors.intercepts)[:, None]
        gram = np.broadcast_to(
            factors.loadings.T @ factors.loadings, (data.values.shape[1], *(factors.loadings.shape[1],) * 2)
        )
    else:
        centred = factors.loadings.T @ (data.values - factors.intercepts[:, None] * data.known)
        gram = _gram(factors.loadings.T, data.known.T)
    n_times, longest = data.values.shape[1], max(factors.lags)
    solve = _solve_banded if n_times * longest**2 <= _BANDED_WORK else _solve_by_gradients
    return replace(factors, latent=solve(gram, centred, factors, penalties))


def _ridge(factors: Factors, penalties: Penalties) -> FloatArray:
    """Penalty on the squared latent values; that of the weights is in units of the variance of a latent series."""
    weighted = penalties.weights * np.square(factors.weights).sum(axis=1) / factors.latent.shape[1]
    return penalties.latent * (penalties.ridge + weighted)


def _solve_banded(gram: FloatArray, right: FloatArray, factors: Factors, penalties: Penalties) -> FloatArray:
    """Exact solution for one latent series after the other."""
    latent, ridge = factors.latent.copy(), _ridge(factors, penalties)
    for factor, weights in enumerate(factors.weights):
        others = np.einsum("tf,ft->t", gram[:, factor], latent) - gram[:, factor, factor] * latent[factor]
        diagonal = gram[:, factor, factor] + ridge[factor]
        latent[factor] = solve_with_penalty(diagonal, right[factor] - others, weights, factors.lags, penalties.latent)
    return latent


def _solve_by_gradients(gram: FloatArray, right: FloatArray, factors: Factors, penalties: Penalties) -> FloatArray:
    """Preconditioned conjugate gradients over all latent series at once, from their current values."""
    ridge = _ridge(factors, penalties)
    own = penalties.latent * (1 + np.square(factors.weights).sum(axis=1)) + ridge
    # Without missing values all times share one matrix, which is broadcast.
    shared = gram[:1] if gram.strides[0] == 0 else gram
    inverse = np.broadcast_to(np.linalg.inv(shared + np.diag(own)), gram.shape)

    def curve(flat: FloatArray) -> FloatArray:
        """Multiply flat latent series by the matrix of the system: data, autoregressive and ridge terms."""
        x = flat.reshape(right.shape)
        smooth = innovations_adjoint(innovations(x, factors.weights, factors.lags), factors.weights, factors.lags)
        return (np.einsum("tfg,gt->ft", gram, x) + penalties.latent * smooth + ridge[:, None] * x).ravel()

    def precondition(flat: FloatArray) -> FloatArray:
        """Multiply flat latent series by the inverse of each time's block of that matrix, as a preconditioner."""
        return np.einsum("tfg,gt->ft", inverse, flat.reshape(right.shape)).ravel()

    size = (right.size, right.size)
    operators = (LinearOperator(size, matvec=apply, dtype=np.float64) for apply in (curve, precondition))
    solved, _ = cg(
        next(operators), right.ravel(), factors.latent.ravel(), atol=0.0, maxiter=_CG_STEPS, M=next(operators)
    )
    return solved.reshape(right.shape)


def objective(data: Data, factors: Factors, penalties: Penalties) -> float:
    """Objective that `fit` minimises."""
    smooth = np.square(innovations(factors.latent, factors.weights, factors.lags)).sum()
    parts = (
        _misfit(data, factors),
        penalties.loadings * np.square(factors.loadings).sum() + 1e-6 * np.square(factors.intercepts).sum(),
        penalties.latent * smooth,
        _ridge(factors, penalties) @ np.square(factors.latent).sum(axis=1),
    )
    return float(sum(parts)) / 2


def _misfit(data: Data, factors: Factors) -> float:
    """Squared distance between data and model; without missing values it needs no matrix of the model."""
    loadings = np.column_stack([factors.loadings, factors.intercepts])
    rows = np.vstack([factors.latent, np.ones(factors.latent.shape[1])])
    if data.known is not None:
        return float(np.square((data.values - loadings @ rows) * data.known).sum())
    cross = np.einsum("nf,nf->", loadings, data.values @ rows.T)
    own = np.einsum("fg,fg->", loadings.T @ loadings, rows @ rows.T)
    return float(np.einsum("nt,nt->", data.values, data.values) - 2 * cross + own)
