"""The numerics of temporal regularized matrix factorization: alternating least squares on plain matrices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.utils.extmath import randomized_svd

from gpudemand._linalg import solve_each
from gpudemand._typing import BoolArray, FloatArray
from gpudemand.forecast.regression.autoregression import (
    fit_weights,
    innovations,
    pull_back,
    run_forward,
    solve_with_penalty,
    stabilised,
)

#: Work of one banded solve (n_times * longest_lag ** 2) above which conjugate gradients take over.
_BANDED_WORK = 5e7
_CG_STEPS = 30


class Penalties(NamedTuple):
    """Weights of the penalties of `fit`; data have unit variance, so the same values suit many data sets."""

    loadings: float = 1.0
    latent: float = 1.0
    ridge: float = 0.01
    weights: float = 1.0


@dataclass(frozen=True)
class Factors:
    """Series as loadings times a few latent series that follow autoregressions, plus an intercept.

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
        """Run the latent series forward and load them, shape (n_series, h)."""
        ahead = run_forward(self.latent, self.weights, self.lags, h)
        return self.intercepts[:, None] + self.loadings @ ahead


class Data(NamedTuple):
    """A matrix of series with zeros where nothing is known, and what is known; `known` is None when all is."""

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

    by exact updates of one block after the other, none of which can raise the objective.

    Parameters
    ----------
    y : ndarray of shape (n_series, n_times)
        Of about unit variance; NaN is missing, and 0 is a value.
    n_factors : int
    lags : tuple of int
        Ascending; the longest is shorter than the history.
    penalties : Penalties
    n_sweeps : int, default=20
        Most sweeps over all blocks.
    tolerance : float, default=1e-4
        A sweep that lowers the objective by less than this share is the last.
    non_negative : bool, default=False
        Keep loadings at zero or above.
    start : Factors, optional
        Where to begin; its latent series may be shorter and are then run forward.
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
    now = _first(data, n_factors, lags, random_state) if start is None else _continued(start, y.shape[1])
    values: list[float] = []
    for _ in range(n_sweeps):
        now = update_loadings(data, now, penalties, non_negative)
        now = update_latent(data, now, penalties)
        now = replace(now, weights=fit_weights(now.latent, lags, penalties.weights))
        values.append(objective(data, now, penalties))
        if len(values) > 1 and values[-2] - values[-1] < tolerance * values[-2]:
            break
    return replace(now, weights=stabilised(now.weights, lags), objective=tuple(values))


def _first(data: Data, n_factors: int, lags: tuple[int, ...], random_state: int) -> Factors:
    """Leading singular vectors, with missing values at their series' mean."""
    count = data.values.shape[1] if data.known is None else np.maximum(data.known.sum(axis=1), 1)
    means = data.values.sum(axis=1) / count
    centred = data.values - means[:, None] if data.known is None else (data.values - means[:, None]) * data.known
    left, size, right = randomized_svd(centred, n_factors, n_iter=4, random_state=random_state)
    share = np.sqrt(np.maximum(size, np.finfo(float).eps))
    latent = right * share[:, None]
    return Factors(left * share, means, latent, fit_weights(latent, lags, 1.0), lags)


def _continued(start: Factors, n_times: int) -> Factors:
    missing = n_times - start.latent.shape[1]
    if missing <= 0:
        return replace(start, latent=start.latent[:, :n_times])
    ahead = run_forward(start.latent, start.weights, start.lags, missing)
    return replace(start, latent=np.concatenate([start.latent, ahead], axis=1))


def update_loadings(data: Data, now: Factors, penalties: Penalties, non_negative: bool = False) -> Factors:
    """Solve for loadings and intercepts, given the latent series."""
    ridge = np.append(np.full(len(now.latent), penalties.loadings), 1e-6)
    rows = np.vstack([now.latent, np.ones(now.latent.shape[1])])
    right = data.values @ rows.T
    gram = _gram(rows, data.known)
    if non_negative:
        start = np.column_stack([np.maximum(now.loadings, 0.0), now.intercepts])
        solved = _coordinate_descent(gram, right, ridge, start)
    else:
        solved = _solve(gram + np.diag(ridge), right)
    return replace(now, loadings=solved[:, :-1], intercepts=solved[:, -1])


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


def _solve(gram: FloatArray, right: FloatArray) -> FloatArray:
    if gram.ndim == 2:
        return np.asarray(np.linalg.solve(gram, right.T).T, dtype=np.float64)
    return solve_each(gram, right)


def _coordinate_descent(gram: FloatArray, right: FloatArray, ridge: FloatArray, x: FloatArray) -> FloatArray:
    """Lower the same quadratic with all columns but the last at zero or above, one column after the other."""
    x = x.copy()
    shared = gram if gram.ndim == 3 else gram[None]
    for _ in range(3):
        for column in range(x.shape[1]):
            slope = right[:, column] - np.einsum("ns,ns->n", np.broadcast_to(shared[:, column], x.shape), x)
            curve = shared[:, column, column]
            best = (slope + curve * x[:, column]) / (curve + ridge[column])
            x[:, column] = best if column == x.shape[1] - 1 else np.maximum(best, 0.0)
    return x


def update_latent(data: Data, now: Factors, penalties: Penalties) -> Factors:
    """Lower the objective over the latent series, given loadings, intercepts and weights."""
    if data.known is None:
        centred = now.loadings.T @ data.values - (now.loadings.T @ now.intercepts)[:, None]
        gram = np.broadcast_to(now.loadings.T @ now.loadings, (data.values.shape[1], *(now.loadings.shape[1],) * 2))
    else:
        centred = now.loadings.T @ (data.values - now.intercepts[:, None] * data.known)
        gram = _gram(now.loadings.T, data.known.T)
    n_times, longest = data.values.shape[1], max(now.lags)
    solve = _solve_banded if n_times * longest**2 <= _BANDED_WORK else _solve_by_gradients
    return replace(now, latent=solve(gram, centred, now, penalties))


def _ridge(now: Factors, penalties: Penalties) -> FloatArray:
    """Penalty on the squared latent values; the one on the weights is in units of a latent series' variance."""
    weighted = penalties.weights * np.square(now.weights).sum(axis=1) / now.latent.shape[1]
    return penalties.latent * (penalties.ridge + weighted)


def _solve_banded(gram: FloatArray, right: FloatArray, now: Factors, penalties: Penalties) -> FloatArray:
    """Solve for one latent series after the other, exactly."""
    latent, ridge = now.latent.copy(), _ridge(now, penalties)
    for factor, weights in enumerate(now.weights):
        others = np.einsum("tf,ft->t", gram[:, factor], latent) - gram[:, factor, factor] * latent[factor]
        diagonal = gram[:, factor, factor] + ridge[factor]
        latent[factor] = solve_with_penalty(diagonal, right[factor] - others, weights, now.lags, penalties.latent)
    return latent


def _solve_by_gradients(gram: FloatArray, right: FloatArray, now: Factors, penalties: Penalties) -> FloatArray:
    """Conjugate gradients over all latent series at once, from where they are, preconditioned time by time."""
    ridge = _ridge(now, penalties)
    own = penalties.latent * (1 + np.square(now.weights).sum(axis=1)) + ridge
    # Where nothing is missing, all times share one matrix, seen as many.
    shared = gram[:1] if gram.strides[0] == 0 else gram
    inverse = np.broadcast_to(np.linalg.inv(shared + np.diag(own)), gram.shape)

    def curve(flat: FloatArray) -> FloatArray:
        x = flat.reshape(right.shape)
        smooth = pull_back(innovations(x, now.weights, now.lags), now.weights, now.lags)
        return (np.einsum("tfg,gt->ft", gram, x) + penalties.latent * smooth + ridge[:, None] * x).ravel()

    def precondition(flat: FloatArray) -> FloatArray:
        return np.einsum("tfg,gt->ft", inverse, flat.reshape(right.shape)).ravel()

    size = (right.size, right.size)
    operators = (LinearOperator(size, matvec=apply, dtype=np.float64) for apply in (curve, precondition))
    solved, _ = cg(next(operators), right.ravel(), now.latent.ravel(), atol=0.0, maxiter=_CG_STEPS, M=next(operators))
    return solved.reshape(right.shape)


def objective(data: Data, now: Factors, penalties: Penalties) -> float:
    """Value of what `fit` minimises."""
    smooth = np.square(innovations(now.latent, now.weights, now.lags)).sum()
    parts = (
        _misfit(data, now),
        penalties.loadings * np.square(now.loadings).sum() + 1e-6 * np.square(now.intercepts).sum(),
        penalties.latent * smooth,
        _ridge(now, penalties) @ np.square(now.latent).sum(axis=1),
    )
    return float(sum(parts)) / 2


def _misfit(data: Data, now: Factors) -> float:
    """Squared distance between data and model; without the model's own matrix where nothing is missing."""
    loadings = np.column_stack([now.loadings, now.intercepts])
    rows = np.vstack([now.latent, np.ones(now.latent.shape[1])])
    if data.known is not None:
        return float(np.square((data.values - loadings @ rows) * data.known).sum())
    cross = np.einsum("nf,nf->", loadings, data.values @ rows.T)
    own = np.einsum("fg,fg->", loadings.T @ loadings, rows @ rows.T)
    return float(np.einsum("nt,nt->", data.values, data.values) - 2 * cross + own)
