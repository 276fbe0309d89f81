"""`TemporalFactorization`: temporal regularized matrix factorization (TRMF)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg
from sklearn.utils.extmath import randomized_svd

from gpudemand._array import BoolArray, FloatArray, solve_each
from gpudemand._validation import InputError, check_number, check_seed
from gpudemand.forecast.forecaster import Forecaster, positive_int
from gpudemand.forecast.panel import Panel, row_scales
from gpudemand.forecast.regression import (
    default_lags,
    extrapolate,
    fit_shrunk,
    fit_weights,
    innovations,
    innovations_adjoint,
    stabilise,
)

#: Most steps of conjugate gradients, which begin where the last ones ended.
_CG_STEPS = 30


class Penalties(NamedTuple):
    """Weights of the penalties of `fit`, for data of unit variance."""

    loadings: float = 1.0
    latent: float = 1.0
    ridge: float = 0.01
    weights: float = 1.0


@dataclass(frozen=True)
class Factors:
    """Intercepts, loadings, and latent series that follow autoregressions."""

    loadings: FloatArray  # (n_series, n_factors)
    intercepts: FloatArray  # (n_series,)
    latent: FloatArray  # (n_factors, n_times)
    weights: FloatArray  # (n_factors, n_lags)
    lags: tuple[int, ...]
    objective: tuple[float, ...] = ()  # after each sweep

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
        return cls(np.where(missing, 0.0, y), ~missing) if missing.any() else cls(y, None)

    def masked(self, matrix: FloatArray) -> FloatArray:
        """A matrix with zeros for what is missing here."""
        return matrix if self.known is None else matrix * self.known


def fit(
    y: FloatArray,
    n_factors: int,
    lags: tuple[int, ...],
    penalties: Penalties,
    *,
    n_sweeps: int = 20,
    tolerance: float = 1e-4,
    random_state: int = 0,
) -> Factors:
    """Factorize a matrix of series.

    Minimises, over loadings F, intercepts b, latent series X and autoregressive weights W, half of::

        |known * (Y - b - F X)|^2 + loadings |F|^2 + latent (|X's innovations|^2 + ridge |X|^2) + weights |W|^2

    by updates of one block of parameters after the other, none of which can raise the objective.

    `y`, of about unit variance, may hold NaN; `lags` ascend, the longest shorter than the history.
    """
    data = Data.of(y)
    factors = _svd(data, n_factors, lags, random_state)
    values: list[float] = []
    for _ in range(n_sweeps):
        factors = update_loadings(data, factors, penalties)
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
    centred = data.masked(data.values - means[:, None])
    left, size, right = randomized_svd(centred, n_factors, n_iter=4, random_state=random_state)
    share = np.sqrt(np.maximum(size, np.finfo(float).eps))
    latent = right * share[:, None]
    return Factors(left * share, means, latent, fit_weights(latent, lags, 1.0), lags)


def update_loadings(data: Data, factors: Factors, penalties: Penalties) -> Factors:
    """Solve for loadings and intercepts given the latent series."""
    ridge = np.append(np.full(len(factors.latent), penalties.loadings), 1e-6)
    rows = np.vstack([factors.latent, np.ones(factors.latent.shape[1])])
    right = data.values @ rows.T
    gram = _gram(rows, data.known)
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


def update_latent(data: Data, factors: Factors, penalties: Penalties) -> Factors:
    """Lower the objective over the latent series given loadings, intercepts and weights."""
    n_times, transposed = data.values.shape[1], factors.loadings.T
    if data.known is None:
        centred = transposed @ data.values - (transposed @ factors.intercepts)[:, None]
        gram = np.broadcast_to(_gram(transposed, None), (n_times, *(len(transposed),) * 2))
    else:
        centred = transposed @ (data.values - factors.intercepts[:, None] * data.known)
        gram = _gram(transposed, data.known.T)
    return replace(factors, latent=_solve_by_gradients(gram, centred, factors, penalties))


def _ridge(factors: Factors, penalties: Penalties) -> FloatArray:
    """Penalty on the squared latent values; that of the weights is in units of the variance of a latent series."""
    weighted = penalties.weights * np.square(factors.weights).sum(axis=1) / factors.latent.shape[1]
    return penalties.latent * (penalties.ridge + weighted)


def _solve_by_gradients(gram: FloatArray, right: FloatArray, factors: Factors, penalties: Penalties) -> FloatArray:
    """Preconditioned conjugate gradients over all latent series at once, from their current values."""
    if not right.any():  # SciPy before 1.12 would divide by zero
        return np.zeros_like(right)
    ridge = _ridge(factors, penalties)
    own = penalties.latent * (1 + np.square(factors.weights).sum(axis=1)) + ridge
    # Without missing values all times share one matrix, which is broadcast.
    shared = gram[:1] if gram.strides[0] == 0 else gram
    inverse: FloatArray = np.asarray(np.linalg.inv(shared + np.diag(own)), dtype=np.float64)

    def apply(blocks: FloatArray, x: FloatArray) -> FloatArray:
        """Multiply each time's values by its matrix."""
        return blocks[0] @ x if len(blocks) == 1 else np.einsum("tfg,gt->ft", blocks, x)

    def curve(flat: FloatArray) -> FloatArray:
        """Multiply by the matrix of the system: data, autoregressive and ridge terms."""
        x = flat.reshape(right.shape)
        smooth = innovations_adjoint(innovations(x, factors.weights, factors.lags), factors.weights, factors.lags)
        return (apply(shared, x) + penalties.latent * smooth + ridge[:, None] * x).ravel()

    def precondition(flat: FloatArray) -> FloatArray:
        """Multiply by the inverse of each time's block of that matrix."""
        return apply(inverse, flat.reshape(right.shape)).ravel()

    size = (right.size, right.size)
    operators = (LinearOperator(size, matvec=product, dtype=np.float64) for product in (curve, precondition))
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


#: Iterations of imputing missing residuals and fitting the weights.
_ITERATIONS = 3


@dataclass(frozen=True)
class ResidualAR:
    """Residuals of a factorization, and the autoregression that forecasts them."""

    values: FloatArray  # (n_series, n_times), the newest ones, as many as the longest lag; missing ones are imputed
    known: BoolArray  # which of them were observed
    weights: FloatArray  # (n_series, n_lags), shrunk towards the shared ones
    lags: tuple[int, ...]

    @classmethod
    def fit(cls, data: Data, factors: Factors, penalty: float | None) -> ResidualAR:
        """Fit the residuals of a factorization; without a penalty they are forecast as zero."""
        residuals, lags = _residuals(data, factors), factors.lags
        weights = np.zeros((len(residuals), len(lags)))
        if penalty is not None:
            weights = fit_shrunk(residuals, lags, penalty)[0]
            for _ in range(0 if data.known is None else _ITERATIONS):
                residuals = _imputed(residuals, data.known, weights, lags)
                weights = fit_shrunk(residuals, lags, penalty)[0]
        values = residuals[:, -max(lags) :].copy()
        known = np.ones(values.shape, dtype=bool) if data.known is None else data.known[:, -max(lags) :]
        return cls(values, known, stabilise(weights, lags), lags)

    def forecast(self, h: int) -> FloatArray:
        """Forecast of the residuals, shape (n_series, h)."""
        return extrapolate(self.values, self.weights, self.lags, h)


def _residuals(data: Data, factors: Factors) -> FloatArray:
    """Data minus factors, 0 where missing."""
    return data.masked(data.values - factors.intercepts[:, None] - factors.loadings @ factors.latent)


def _imputed(residuals: FloatArray, known: BoolArray | None, weights: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """Residuals with missing values imputed by filtering from the beginning on."""
    if known is None:
        return residuals
    filled = residuals.copy()
    for time in range(residuals.shape[1]):
        filter_step(filled, known, time, one_step_ahead(filled[:, :time], weights, lags), weights, lags)
    return filled


def one_step_ahead(past: FloatArray, weights: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """Forecast of the next value of each row, shape (n_rows,)."""
    places = [place for place, lag in enumerate(lags) if lag <= past.shape[1]]
    return np.einsum("nl,nl->n", weights[:, places], past[:, [-lags[place] for place in places]])


def filter_step(
    values: FloatArray, known: BoolArray, time: int, predicted: FloatArray, weights: FloatArray, lags: tuple[int, ...]
) -> None:
    """Update `values` in place with one time: observed or predicted, correcting the imputed values it depends on.

    The innovation is divided among the new value and the imputed ones as in a Kalman filter in which imputed values are
    independent and as uncertain as the new one.
    """
    innovation = np.where(known[:, time], values[:, time] - predicted, 0.0)
    values[:, time] = predicted + innovation
    places = [place for place, lag in enumerate(lags) if lag <= time]
    columns = [time - lags[place] for place in places]
    gain = np.where(known[:, columns], 0.0, weights[:, places])
    values[:, columns] += gain * (innovation / (1 + np.square(gain).sum(axis=1)))[:, None]


class Fitted(NamedTuple):
    """Factors, autoregression of their residuals, and scale of each series, shape (n_series, 1)."""

    factors: Factors
    residual_ar: ResidualAR
    scale: FloatArray

    def forecast(self, h: int) -> FloatArray:
        """Forecast of every series in its own unit, shape (n_series, h)."""
        return (self.factors.forecast(h) + self.residual_ar.forecast(h)) * self.scale


class TemporalFactorization(Forecaster):
    """Temporal regularized matrix factorization (TRMF): every series is a combination of a few latent autoregressions.

    Each series is an intercept plus its loadings times latent series that all series share; each latent series follows
    an autoregression on a set of lags. Fitted by alternating updates, every one of which lowers the objective.
    The residuals of a series follow an autoregression on the same lags, shrunk towards one that all series share.
    Series are scaled by their standard deviation in training; missing values are left out; a zero is a value.

    Parameters
    ----------
    n_factors : int, default=8
        Latent series; at most as many as there are series.
    lags : sequence of int, optional
        By default the newest four bins, and one day, one week, and both together with their neighbours, up to half of
        the history.
    loading_penalty, latent_penalty, weight_penalty : float, default=10, 10, 2
        On the loadings, on the innovations of the latent autoregressions, and on their weights.
    residual_penalty : float or None, default=300
        Weight of the shared autoregression of the residuals in each series, as a number of values; None forecasts no
        residuals, as in the paper: RMSE 3.6 % larger on users of Philly and Venus by hour, .8 % smaller on GenTD26
        (``make bench-forecast ARGS="--track clusterwise"``).
    n_sweeps : int, default=20
        Maximum number of sweeps; fewer when one lowers the objective by less than a ten-thousandth.
    random_state : int, default=0
        Of the randomized singular value decomposition at the start.

    Attributes
    ----------
    factors_ : Factors
        Loadings, intercepts, latent series and weights, in units of `scale_`.
    residual_ar_ : ResidualAR
        Autoregression of the residuals, in units of `scale_`.
    scale_ : ndarray of shape (n_series, 1)
        Standard deviation of each series in training.
    lags_ : tuple of int
    objective_ : tuple of float
        After each sweep; never rising.

    References
    ----------
    Yu, Rao and Dhillon, "Temporal Regularized Matrix Factorization for High-dimensional Time Series Prediction",
    NeurIPS 2016.

    Examples
    --------
    Fifty users share a daily pattern, and a third of all values is missing:

    >>> import pandas as pd
    >>> hours, rng = np.arange(24 * 15), np.random.default_rng(0)
    >>> share = rng.uniform(1, 5, (50, 1))
    >>> y = share * (2 + np.sin(2 * np.pi * hours / 24)) + rng.normal(0, 0.1, (50, hours.size))
    >>> y[:, :-24][rng.random((50, hours.size - 24)) < 0.3] = np.nan
    >>> ds = pd.date_range("2026-03-01", periods=hours.size, freq="h", name="ds")
    >>> usage = pd.DataFrame(y, columns=ds).rename_axis("unique_id").stack(future_stack=True).rename("y").reset_index()
    >>> model = TemporalFactorization(n_factors=2).fit(usage[usage["ds"] < ds[-24]])
    >>> forecast = model.predict(h=24)["TemporalFactorization"].to_numpy().reshape(50, 24)
    >>> bool(np.abs(forecast - y[:, -24:]).mean() < 0.15)
    True
    """

    _max_origins = 6

    def __init__(
        self,
        n_factors: int = 8,
        lags: Sequence[int] | None = None,
        *,
        loading_penalty: float = 10.0,
        latent_penalty: float = 10.0,
        weight_penalty: float = 2.0,
        residual_penalty: float | None = 300.0,
        n_sweeps: int = 20,
        random_state: int = 0,
    ) -> None:
        self.n_factors = n_factors
        self.lags = lags
        self.loading_penalty = loading_penalty
        self.latent_penalty = latent_penalty
        self.weight_penalty = weight_penalty
        self.residual_penalty = residual_penalty
        self.n_sweeps = n_sweeps
        self.random_state = random_state

    def _fit_panel(self, panel: Panel) -> None:
        super()._fit_panel(panel)
        self.lags_ = self._lags(self.panel_.values.shape[1])
        self.fitted_ = self.factorize(self.panel_.values)
        self.objective_ = self.fitted_.factors.objective
        self.factors_, self.residual_ar_, self.scale_ = self.fitted_

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        return (self.fitted_ if y is self.panel_.values else self.factorize(y)).forecast(h)

    def factorize(self, y: FloatArray) -> Fitted:
        """Factorize a matrix of series, shape (n_series, n_times), with the parameters and lags of this object."""
        lags = tuple(lag for lag in self.lags_ if lag < y.shape[1]) or (1,)
        if y.shape[1] < 2:
            raise InputError(f"a factorization needs at least 2 bins of history; this one has {y.shape[1]}.")
        scale = row_scales(y)
        n_factors = min(positive_int("n_factors", self.n_factors), *y.shape)
        scaled = y / scale
        n_sweeps, seed = positive_int("n_sweeps", self.n_sweeps), check_seed(self.random_state)
        factors = fit(scaled, n_factors, lags, self._penalties(), n_sweeps=n_sweeps, random_state=seed)
        penalty = self.residual_penalty
        if penalty is not None:
            check_number("residual_penalty", penalty, 0)
        return Fitted(factors, ResidualAR.fit(Data.of(scaled), factors, penalty), scale)

    def _penalties(self) -> Penalties:
        names = ("loading_penalty", "latent_penalty", "weight_penalty")
        loadings, latent, weights = (check_number(name, getattr(self, name), 0, open_low=True) for name in names)
        return Penalties(loadings, latent, weights=weights)

    def _lags(self, n_times: int) -> tuple[int, ...]:
        if self.lags is None:
            return default_lags(self.season_length_, self.panel_.freq, n_times)
        lags = tuple(sorted({positive_int("lags", lag) for lag in self.lags}))
        if not lags or lags[-1] >= n_times:
            raise InputError(f"lags={self.lags!r} must be shorter than the history, which has {n_times} bins.")
        return lags
