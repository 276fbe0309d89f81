"""Autoregressions of the factorization's residuals, shrunk towards one that all series share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudemand._typing import BoolArray, FloatArray
from gpudemand.forecast.factorization.trmf import Data, Factors
from gpudemand.forecast.regression.autoregression import extrapolate, fit_shrunk, stabilise

#: Iterations of imputing missing residuals and fitting the weights.
_ITERATIONS = 3


@dataclass(frozen=True)
class ResidualAR:
    """Residuals of a factorization, and the autoregression that forecasts them.

    Attributes
    ----------
    values : ndarray of shape (n_series, n_times)
        The newest residuals, `max(lags)` of them where there are as many; missing ones are imputed.
    known : ndarray of bool, shape (n_series, n_times)
        Which of them were observed.
    weights : ndarray of shape (n_series, n_lags)
        Autoregression of each series, shrunk towards the shared one.
    shared : ndarray of shape (n_lags,)
    lags : tuple of int
    """

    values: FloatArray
    known: BoolArray
    weights: FloatArray
    shared: FloatArray
    lags: tuple[int, ...]

    @classmethod
    def none(cls, n_series: int, lags: tuple[int, ...]) -> ResidualAR:
        """Residuals that are forecast as zero."""
        weights, values = np.zeros((n_series, len(lags))), np.zeros((n_series, max(lags)))
        return cls(values, np.ones(values.shape, dtype=bool), weights, weights[0], lags)

    @classmethod
    def fit(cls, data: Data, factors: Factors, penalty: float) -> ResidualAR:
        """Fit the residuals of a factorization.

        Parameters
        ----------
        data : Data
        factors : Factors
        penalty : float
            Weight of the shared autoregression in each series, as a number of values.
        """
        residuals, lags = _residuals(data, factors), factors.lags
        weights, shared = fit_shrunk(residuals, lags, penalty)
        for _ in range(0 if data.known is None else _ITERATIONS):
            residuals = _imputed(residuals, data.known, weights, lags)
            weights, shared = fit_shrunk(residuals, lags, penalty)
        return cls._newest(residuals, data.known, stabilise(weights, lags), shared, lags)

    @classmethod
    def fold_in(cls, data: Data, factors: Factors, shared: FloatArray) -> ResidualAR:
        """Residuals of series that were not fitted, forecast by the shared autoregression."""
        lags = factors.lags
        weights = stabilise(np.tile(shared, (len(data.values), 1)), lags)
        residuals = _imputed(_residuals(data, factors), data.known, weights, lags)
        return cls._newest(residuals, data.known, weights, shared, lags)

    @classmethod
    def _newest(
        cls,
        residuals: FloatArray,
        known: BoolArray | None,
        weights: FloatArray,
        shared: FloatArray,
        lags: tuple[int, ...],
    ) -> ResidualAR:
        values = residuals[:, -max(lags) :].copy()
        observed = np.ones(values.shape, dtype=bool) if known is None else known[:, -max(lags) :]
        return cls(values, observed, weights, shared, lags)

    def forecast(self, h: int) -> FloatArray:
        """Forecast of the residuals, shape (n_series, h)."""
        return extrapolate(self.values, self.weights, self.lags, h)


def _residuals(data: Data, factors: Factors) -> FloatArray:
    """Data minus factors, 0 where missing."""
    residuals = data.values - factors.intercepts[:, None] - factors.loadings @ factors.latent
    return residuals if data.known is None else residuals * data.known


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
