"""Cold-start forecasts of new users, from the early histories of other users."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from gpudemand._array import FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.forecast.forecaster import positive_int
from gpudemand.forecast.intervals import check_levels
from gpudemand.forecast.panel import Panel


class AnalogueForecaster(BaseEstimator):
    """Quantile forecasts of new users by nearest neighbours (analogues).

    Histories are aligned at the first use. A user with ``m`` bins of history is compared with the first ``m`` bins of
    all training users, by level, share of active bins and newest bin relative to the level. The later bins of the
    nearest ones, relative to their level, are the predictive distribution relative to the level of the new user.

    Parameters
    ----------
    n_analogues : int, default=50
        Number of neighbours, a third of all users at most; all users for a user without history.

    Attributes
    ----------
    panel_ : Panel
        The training series.
    aligned_ : ndarray of shape (n_users, n_times)
        Use by bins since the first use of each user, NaN beyond the end of the history.

    Examples
    --------
    Users who begin small stay small:

    >>> rng, ds = np.random.default_rng(0), pd.date_range("2026-03-01", periods=10)
    >>> y = np.repeat([1.0, 100.0], 50)[:, None] * rng.uniform(0.5, 1.5, (100, 10))
    >>> wide = pd.DataFrame(y, index=[f"u{i:02d}" for i in range(100)], columns=ds).rename_axis(columns="ds")
    >>> usage = wide.rename_axis("unique_id").stack().rename("y").reset_index()
    >>> new = pd.DataFrame({"unique_id": "new", "ds": ds[-1:], "y": 2.0})
    >>> found = AnalogueForecaster(n_analogues=30).fit(usage).predict(new, h=2, level=80)
    >>> bool(found["AnalogueForecaster-hi-80"].max() < 6)
    True
    """

    def __init__(self, n_analogues: int = 50) -> None:
        self.n_analogues = n_analogues

    def fit(self, usage: pd.DataFrame, freq: object = None) -> AnalogueForecaster:
        """Align the training histories at their first use.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y``.
        freq : str or offset, optional
            Frequency of the timestamps; inferred when not given.
        """
        self.panel_ = Panel.from_long(usage, freq, allow_missing=True)
        y = np.nan_to_num(self.panel_.values)
        y = y[(y != 0).any(axis=1)]
        if not len(y):
            raise InputError("usage has no series with any use, so there is nothing to learn from.")
        self.aligned_ = _aligned(y, (y != 0).argmax(axis=1))
        return self

    def predict(self, usage: pd.DataFrame, h: int, level: Sequence[float] | float | None = None) -> pd.DataFrame:
        """Forecast new users.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y`` of the new users until the newest bin; a user without any use begins with
            the next bin.
        h : int
            Horizon in bins.
        level : sequence of float, optional
            Interval levels in percent.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds``, ``AnalogueForecaster`` (the median), and ``AnalogueForecaster-lo-80`` and so on.

        Raises
        ------
        InputError
            If the horizon is longer than the training period, or no training user has a history of that length.
        """
        check_is_fitted(self, "aligned_")
        h, levels = positive_int("h", h), check_levels(level)
        panel = Panel.from_long(usage, self.panel_.freq, allow_missing=True)
        probabilities = [0.5, *(0.5 + sign * value / 200 for value in levels for sign in (-1, 1))]
        found = self.quantiles(np.nan_to_num(panel.values), h, probabilities)
        name = type(self).__name__
        ends = [f"{name}-{side}-{value:g}" for value in levels for side in ("lo", "hi")]
        return panel.long_frame(panel.future(h), dict(zip([name, *ends], found, strict=True)))

    def quantiles(self, y: FloatArray, h: int, probabilities: Sequence[float]) -> FloatArray:
        """Quantiles of the next bins.

        Parameters
        ----------
        y : ndarray of shape (n_users, n_times)
            Histories of new users.
        h : int
        probabilities : sequence of float in (0, 1)

        Returns
        -------
        ndarray of shape (len(probabilities), n_users, h)
        """
        h, longest = positive_int("h", h), self.aligned_.shape[1]
        if h > longest:
            raise InputError(f"no training user has {h} bins; use a shorter horizon, of at most {longest}.")
        age = np.where((y != 0).any(axis=1), y.shape[1] - (y != 0).argmax(axis=1), 0)
        age = np.minimum(age, longest - h)
        out = np.empty((len(probabilities), len(y), h))
        for m in np.unique(age):
            members = age == m
            out[:, members] = self._at_age(y[members, y.shape[1] - m :], h, probabilities)
        return out

    def _at_age(self, y: FloatArray, h: int, probabilities: Sequence[float]) -> FloatArray:
        """Quantiles for users with equally long histories, shape (len(probabilities), n_users, h)."""
        m = y.shape[1]
        others = self.aligned_[~np.isnan(self.aligned_[:, : m + h]).any(axis=1), : m + h]
        if not len(others) or others.shape[1] < m + h:
            raise InputError(f"no training user has {h} bins after the first {m}; use a shorter horizon.")
        if not m:
            return np.repeat(np.quantile(others, probabilities, axis=0)[:, None], len(y), axis=1)
        past, later = others[:, :m], others[:, m:]
        level = past.mean(axis=1)
        near = _nearest(_features(past), _features(y), positive_int("n_analogues", self.n_analogues))
        outcomes = (later / level[:, None])[near] * y.mean(axis=1)[:, None, None]
        return np.asarray(np.quantile(outcomes, probabilities, axis=1))


def _aligned(y: FloatArray, first: IntArray) -> FloatArray:
    """Shift each row to its first use."""
    place = first[:, None] + np.arange(y.shape[1])
    aged = np.take_along_axis(y, np.minimum(place, y.shape[1] - 1), axis=1)
    return np.where(place < y.shape[1], aged, np.nan)


def _features(past: FloatArray) -> FloatArray:
    """Log of the level, twice the share of active bins, and the newest bin relative to the level."""
    level = past.mean(axis=1)
    newest = past[:, -1] / np.where(level > 0, level, 1.0)
    return np.column_stack([np.log(np.maximum(level, 1e-9)), 2 * (past != 0).mean(axis=1), newest])


def _nearest(known: FloatArray, new: FloatArray, n: int) -> IntArray:
    """Indices of the nearest rows of `known` for each row of `new`, shape (n_new, n)."""
    n = min(n, max(len(known) // 3, 10), len(known))
    blocks = np.array_split(new, max(len(new) * len(known) // 5_000_000, 1))
    distances = (np.square(block[:, None] - known[None]).sum(axis=2) for block in blocks)
    return np.concatenate([np.argpartition(distance, n - 1, axis=1)[:, :n] for distance in distances])
