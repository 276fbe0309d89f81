"""`TemporalFactorization`: many series as mixtures of a few that follow autoregressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_number
from gpudemand.forecast import trmf
from gpudemand.forecast.base import Forecaster
from gpudemand.forecast.panel import Panel
from gpudemand.forecast.trmf import Data, Factors, Penalties


class TemporalFactorization(Forecaster):
    """Temporal regularized matrix factorization (TRMF): a few latent series, mixed differently for every user.

    Each series is an intercept plus its loadings times latent series that all series share; each latent series follows
    an autoregression on a set of lags. Fitted by exact alternating updates, every one of which lowers the objective.
    Series are scaled by their standard deviation in training; missing values are left out, and a zero is a value.

    Parameters
    ----------
    n_factors : int, default=8
        Latent series; at most as many as there are series.
    lags : sequence of int, optional
        By default one and two bins, and one season and one week with their neighbours, as far as the history reaches
        three times.
    loading_penalty, latent_penalty, weight_penalty : float, default=1, 1, 10
        On the loadings, on what the autoregressions get wrong, and on their weights.
    non_negative : bool, default=False
        Keep loadings at zero or above, so that each series is a sum of parts.
    n_sweeps : int, default=20
        Most rounds of updates; fewer when a round lowers the objective by less than a ten-thousandth.
    random_state : int, default=0
        Of the randomized singular value decomposition at the start.

    Attributes
    ----------
    factors_ : Factors
        Loadings, intercepts, latent series and weights, in units of `scale_`.
    scale_ : ndarray of shape (n_series, 1)
        Standard deviation of each series in training.
    lags_ : tuple of int
    objective_ : tuple of float
        After each round; never rising.

    References
    ----------
    Yu, Rao and Dhillon, "Temporal Regularized Matrix Factorization for High-dimensional Time Series Prediction",
    NeurIPS 2016.

    Examples
    --------
    Fifty users share a daily rhythm, and a third of all values is missing:

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

    _allow_missing = True
    _max_origins = 6

    def __init__(
        self,
        n_factors: int = 8,
        lags: Sequence[int] | None = None,
        *,
        loading_penalty: float = 1.0,
        latent_penalty: float = 1.0,
        weight_penalty: float = 10.0,
        non_negative: bool = False,
        n_sweeps: int = 20,
        random_state: int = 0,
    ) -> None:
        self.n_factors = n_factors
        self.lags = lags
        self.loading_penalty = loading_penalty
        self.latent_penalty = latent_penalty
        self.weight_penalty = weight_penalty
        self.non_negative = non_negative
        self.n_sweeps = n_sweeps
        self.random_state = random_state

    def fit(self, usage: pd.DataFrame, freq: object = None) -> TemporalFactorization:
        """Factorize the training series.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y``; rows may be missing, and so may values.
        freq : str or offset, optional
            Frequency of the stamps; inferred when not given.

        Returns
        -------
        TemporalFactorization
            This object.

        Raises
        ------
        InputError
            For an illegal parameter, or a history that is not longer than the longest lag.
        """
        super().fit(usage, freq)
        self.lags_ = self._lags(self.panel_.values.shape[1])
        self._adopt(*self._factorize(self.panel_.values))
        return self

    def update(self, usage: pd.DataFrame, n_sweeps: int = 3) -> TemporalFactorization:
        """Take a longer history in, starting from what is known: a warm refit at a new origin.

        Parameters
        ----------
        usage : DataFrame
            All series from their beginning, the new bins included; new series may appear.
        n_sweeps : int, default=3
            Rounds of updates.

        Returns
        -------
        TemporalFactorization
            This object.

        Raises
        ------
        InputError
            If `usage` begins at another time, or lacks a series.
        """
        check_is_fitted(self, "factors_")
        panel = Panel.from_long(usage, self.panel_.freq, allow_missing=True)
        if panel.times[0] != self.panel_.times[0] or not self.panel_.ids.isin(panel.ids).all():
            raise InputError("update needs all series from their beginning, and the new bins; fit anew otherwise.")
        start = self._for_rows(self.panel_.ids.get_indexer(panel.ids))
        self.panel_, self._errors = panel, {}
        self._adopt(*self._factorize(panel.values, start, n_sweeps))
        return self

    def predict_new(self, usage: pd.DataFrame, h: int) -> pd.DataFrame:
        """Forecast series that were not in training, from their own history and the latent series.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y`` of the new series, on the clock of the training series; what lies outside the
            training period does not count.
        h : int
            Bins after the training period.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds`` and ``TemporalFactorization``. A series without a value in the training period is
            forecast as zero.
        """
        check_is_fitted(self, "factors_")
        h = int(check_number("h", h, 1, integer=True))
        wide = usage.pivot(index="unique_id", columns="ds", values="y").reindex(columns=self.panel_.times)
        y = wide.to_numpy(dtype=float)
        scale = _scale(y)
        folded = trmf.update_loadings(Data.of(y / scale), self.factors_, self._penalties(), self.non_negative)
        path = np.maximum(folded.forecast(h) * scale, 0.0)
        panel = Panel(wide.index, self.panel_.times, y, self.panel_.freq, dict(usage.attrs))
        return panel.long_frame(panel.future(h), {type(self).__name__: path})

    @property
    def objective_(self) -> tuple[float, ...]:
        """Value of the objective after each round."""
        return self.factors_.objective

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        if y is self.panel_.values:
            return self.factors_.forecast(h) * self.scale_
        factors, scale = self._factorize(y)
        return factors.forecast(h) * scale

    def _adopt(self, factors: Factors, scale: FloatArray) -> None:
        self.factors_, self.scale_ = factors, scale

    def _factorize(
        self, y: FloatArray, start: Factors | None = None, n_sweeps: int | None = None
    ) -> tuple[Factors, FloatArray]:
        lags = tuple(lag for lag in self.lags_ if lag < y.shape[1]) or (1,)
        if y.shape[1] < 2:
            raise InputError(f"a factorization needs at least 2 bins of history; this one has {y.shape[1]}.")
        scale = _scale(y)
        n_factors = min(int(check_number("n_factors", self.n_factors, 1, integer=True)), *y.shape)
        sweeps = int(check_number("n_sweeps", self.n_sweeps if n_sweeps is None else n_sweeps, 1, integer=True))
        factors = trmf.fit(
            y / scale,
            n_factors,
            lags,
            self._penalties(),
            n_sweeps=sweeps,
            non_negative=self.non_negative,
            start=start,
            random_state=self.random_state,
        )
        return factors, scale

    def _penalties(self) -> Penalties:
        names = ("loading_penalty", "latent_penalty", "weight_penalty")
        loadings, latent, weights = (check_number(name, getattr(self, name), 0, open_low=True) for name in names)
        return Penalties(loadings, latent, weights=weights)

    def _lags(self, n_times: int) -> tuple[int, ...]:
        if self.lags is None:
            return _default_lags(self.season_length_, n_times)
        lags = tuple(sorted({int(check_number("lags", lag, 1, integer=True)) for lag in self.lags}))
        if not lags or lags[-1] >= n_times:
            raise InputError(f"lags={self.lags!r} must be shorter than the history, which has {n_times} bins.")
        return lags

    def _for_rows(self, rows: np.ndarray) -> Factors:  # type: ignore[type-arg]
        """The factors with their series in another order; -1 is a series not known yet."""
        known = rows >= 0
        factors = self.factors_
        return replace(
            factors,
            loadings=np.where(known[:, None], factors.loadings[rows], 0.0),
            intercepts=np.where(known, factors.intercepts[rows], 0.0),
        )


def _scale(y: FloatArray) -> FloatArray:
    """Standard deviation of each row over what is known, shape (n_series, 1); 1 for rows that do not vary."""
    known = ~np.isnan(y)
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    mean = np.where(known, y, 0.0).sum(axis=1, keepdims=True) / count
    spread = np.sqrt(np.square(np.where(known, y - mean, 0.0)).sum(axis=1, keepdims=True) / count)
    # Beyond rounding: a constant of a billion has a spread of its own last digit.
    return np.where(spread > 1e-12 * np.abs(mean), np.maximum(spread, np.finfo(float).tiny), 1.0)


def _default_lags(season: int, n_times: int) -> tuple[int, ...]:
    near = {1, 2}
    for length in (season, 7 * season if season >= 4 else season):
        near |= {length - 1, length, length + 1}
    return tuple(sorted(lag for lag in near if lag >= 1 and 3 * lag <= n_times)) or (1,)
