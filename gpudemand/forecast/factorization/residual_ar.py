"""What factors leave of each series: its own part, which follows an autoregression of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudemand._typing import BoolArray, FloatArray
from gpudemand.forecast.factorization.trmf import Data, Factors
from gpudemand.forecast.regression.autoregression import fit_shrunk, run_forward, stabilised

#: Rounds of guessing missing values and fitting weights to what is known and guessed.
_ROUNDS = 3


@dataclass(frozen=True)
class Leftover:
    """Series minus what the factors say of them, and how that goes on.

    Attributes
    ----------
    values : ndarray of shape (n_series, n_times)
        The newest ones, at least `max(lags)` where there are as many.
    known : ndarray of bool, shape (n_series, n_times)
        Which of them were recorded; the others are as the autoregression has it.
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
    def none(cls, n_series: int, lags: tuple[int, ...]) -> Leftover:
        """Series of which the factors leave nothing that goes on."""
        weights, values = np.zeros((n_series, len(lags))), np.zeros((n_series, max(lags)))
        return cls(values, np.ones(values.shape, dtype=bool), weights, weights[0], lags)

    def forecast(self, h: int) -> FloatArray:
        """Continue each series' own part, shape (n_series, h)."""
        return run_forward(self.values, self.weights, self.lags, h)


def fit(data: Data, now: Factors, penalty: float) -> Leftover:
    """Fit what the factors leave, after them.

    Parameters
    ----------
    data : Data
    now : Factors
    penalty : float
        How many values the shared weights are worth to each series.

    Returns
    -------
    Leftover
    """
    own = _rest(data, now)
    weights, shared = fit_shrunk(own, now.lags, penalty)
    for _ in range(0 if data.known is None else _ROUNDS):
        own = _filled(own, data.known, weights, now.lags)
        weights, shared = fit_shrunk(own, now.lags, penalty)
    return _newest(own, data.known, stabilised(weights, now.lags), shared, now.lags)


def fold_in(data: Data, now: Factors, shared: FloatArray) -> Leftover:
    """Take the shared weights for series that were not there when they were fitted."""
    weights = stabilised(np.tile(shared, (len(data.values), 1)), now.lags)
    return _newest(_filled(_rest(data, now), data.known, weights, now.lags), data.known, weights, shared, now.lags)


def _newest(
    own: FloatArray, known: BoolArray | None, weights: FloatArray, shared: FloatArray, lags: tuple[int, ...]
) -> Leftover:
    values = own[:, -max(lags) :].copy()
    recorded = np.ones(values.shape, dtype=bool) if known is None else known[:, -max(lags) :]
    return Leftover(values, recorded, weights, shared, lags)


def _rest(data: Data, now: Factors) -> FloatArray:
    """Data minus what the factors say, 0 where nothing is known."""
    own = data.values - now.intercepts[:, None] - now.loadings @ now.latent
    return own if data.known is None else own * data.known


def _filled(own: FloatArray, known: BoolArray | None, weights: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """Guess what is not known from what is, from the beginning on."""
    if known is None:
        return own
    filled = own.copy()
    for time in range(own.shape[1]):
        foreseen = expected(filled[:, :time], weights, lags)
        take_in(filled, known, time, foreseen, weights, lags)
    return filled


def expected(past: FloatArray, weights: FloatArray, lags: tuple[int, ...]) -> FloatArray:
    """Next value of each row, shape (n_rows,)."""
    places = [place for place, lag in enumerate(lags) if lag <= past.shape[1]]
    return np.einsum("nl,nl->n", weights[:, places], past[:, [-lags[place] for place in places]])


def take_in(
    values: FloatArray, known: BoolArray, time: int, foreseen: FloatArray, weights: FloatArray, lags: tuple[int, ...]
) -> None:
    """Take one time in, in place: it is recorded or as foreseen, and corrects the guesses that it was foreseen from.

    A surprise is shared out between the news and the guesses as in a Kalman filter whose guesses are as uncertain as
    the news and independent of one another.
    """
    surprise = np.where(known[:, time], values[:, time] - foreseen, 0.0)
    values[:, time] = foreseen + surprise
    places = [place for place, lag in enumerate(lags) if lag <= time]
    columns = [time - lags[place] for place in places]
    blame = np.where(known[:, columns], 0.0, weights[:, places])
    values[:, columns] += blame * (surprise / (1 + np.square(blame).sum(axis=1)))[:, None]
