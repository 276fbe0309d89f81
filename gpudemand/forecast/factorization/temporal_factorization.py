"""`TemporalFactorization`: many series as mixtures of a few that follow autoregressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError, check_number
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.panel import Panel, spread
from gpudemand.forecast.factorization import residual_ar, rolling, trmf
from gpudemand.forecast.factorization.residual_ar import Leftover
from gpudemand.forecast.factorization.trmf import Data, Factors, Penalties
from gpudemand.forecast.regression.autoregression import default_lags


class Fitted(NamedTuple):
    """Factors, what they leave of each series, and the unit of each series, shape (n_series, 1)."""

    factors: Factors
    own: Leftover
    scale: FloatArray

    def forecast(self, h: int) -> FloatArray:
        """Forecast every series, shape (n_series, h), in its own unit."""
        return (self.factors.forecast(h) + self.own.forecast(h)) * self.scale


class TemporalFactorization(Forecaster):
    """Temporal regularized matrix factorization (TRMF): a few latent series, mixed differently for every user.

    Each series is an intercept plus its loadings times latent series that all series share; each latent series follows
    an autoregression on a set of lags. Fitted by exact alternating updates, every one of which lowers the objective.
    What the factors leave of a series follows an autoregression on the same lags, shrunk towards one that all series
    share. Series are scaled by their standard deviation in training; missing values are left out; a zero is a value.

    Parameters
    ----------
    n_factors : int, default=8
        Latent series; at most as many as there are series.
    lags : sequence of int, optional
        By default the newest four bins, and one day, one week, and both together (which says "yesterday, and what
        changed from that weekday to this one a week ago") with their neighbours, as far as history reaches twice.
    loading_penalty, latent_penalty, weight_penalty : float, default=10, 10, 2
        On the loadings, on what the autoregressions get wrong, and on their weights.
    own_penalty : float or None, default=300
        How many values of its history the shared autoregression is worth to what the factors leave of each series;
        None leaves that part out, as the paper does.
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
    own_ : Leftover
        What the factors leave of each series and how that goes on, in units of `scale_`.
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
        loading_penalty: float = 10.0,
        latent_penalty: float = 10.0,
        weight_penalty: float = 2.0,
        own_penalty: float | None = 300.0,
        non_negative: bool = False,
        n_sweeps: int = 20,
        random_state: int = 0,
    ) -> None:
        self.n_factors = n_factors
        self.lags = lags
        self.loading_penalty = loading_penalty
        self.latent_penalty = latent_penalty
        self.weight_penalty = weight_penalty
        self.own_penalty = own_penalty
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
        self._keep(self.factorize(self.panel_.values))
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
        self.panel_, self._made = panel, {}
        self._keep(self.factorize(panel.values, start, n_sweeps))
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
        scale = spread(y)
        data = Data.of(y / scale)
        folded = trmf.update_loadings(data, self.factors_, self._penalties(), self.non_negative)
        fitted = Fitted(folded, residual_ar.fold_in(data, folded, self.own_.shared), scale)
        panel = Panel(wide.index, self.panel_.times, y, self.panel_.freq, dict(usage.attrs))
        return panel.long_frame(panel.future(h), {type(self).__name__: np.maximum(fitted.forecast(h), 0.0)})

    def predict_rolling(self, usage: pd.DataFrame, h: int, step_size: int = 1) -> pd.DataFrame:
        """Forecast from many origins after the training period, without fitting anything again.

        At each origin the latent series and what they leave of each series follow what has become known; loadings and
        autoregressions stay as they were learned.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y`` of the training series; only what follows the training period counts.
        h : int
            Bins ahead.
        step_size : int, default=1
            Bins between origins; the first one is the end of the training period.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds``, ``cutoff``, ``y`` and ``TemporalFactorization``, as `cross_validation` returns them;
            origins that are followed by `h` bins only.
        """
        check_is_fitted(self, "factors_")
        h, step_size = (int(check_number(n, v, 1, integer=True)) for n, v in (("h", h), ("step_size", step_size)))
        wide = usage.pivot(index="unique_id", columns="ds", values="y").reindex(index=self.panel_.ids)
        later = wide.columns[wide.columns > self.panel_.times[-1]]
        if len(later) < h:
            raise InputError(f"usage has {len(later)} bins after the training period, which a horizon of {h} exceeds.")
        times = pd.date_range(self.panel_.times[-1], later[-1], freq=self.panel_.freq)
        y = wide.reindex(columns=times[1:]).to_numpy(dtype=float)
        known = np.arange(0, y.shape[1] - h + 1, step_size)
        path = rolling.paths(self.factors_, self.own_, y / self.scale_, h, known, self._penalties())
        path = np.maximum(path * self.scale_[..., None], self._floor(self.panel_.values)[..., None])
        return rolling.long_frame(self.panel_, times, known, y, {type(self).__name__: path})

    @property
    def objective_(self) -> tuple[float, ...]:
        """Value of the objective after each round."""
        return self.factors_.objective

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        return (self.fitted_ if y is self.panel_.values else self.factorize(y)).forecast(h)

    @property
    def fitted_(self) -> Fitted:
        """Factors, what they leave, and units, together."""
        return Fitted(self.factors_, self.own_, self.scale_)

    def _keep(self, fitted: Fitted) -> None:
        self.factors_, self.own_, self.scale_ = fitted

    def factorize(self, y: FloatArray, start: Factors | None = None, n_sweeps: int | None = None) -> Fitted:
        """Factorize a matrix of series, shape (n_series, n_times), with the parameters and lags of this object."""
        lags = tuple(lag for lag in self.lags_ if lag < y.shape[1]) or (1,)
        if y.shape[1] < 2:
            raise InputError(f"a factorization needs at least 2 bins of history; this one has {y.shape[1]}.")
        scale = spread(y)
        n_factors = min(int(check_number("n_factors", self.n_factors, 1, integer=True)), *y.shape)
        sweeps = int(check_number("n_sweeps", self.n_sweeps if n_sweeps is None else n_sweeps, 1, integer=True))
        scaled = y / scale
        factors = trmf.fit(
            scaled,
            n_factors,
            lags,
            self._penalties(),
            n_sweeps=sweeps,
            non_negative=self.non_negative,
            start=start,
            random_state=self.random_state,
        )
        return Fitted(factors, self._leftover(Data.of(scaled), factors), scale)

    def _leftover(self, data: Data, factors: Factors) -> Leftover:
        if self.own_penalty is None:
            return Leftover.none(len(data.values), factors.lags)
        return residual_ar.fit(data, factors, check_number("own_penalty", self.own_penalty, 0))

    def _penalties(self) -> Penalties:
        names = ("loading_penalty", "latent_penalty", "weight_penalty")
        loadings, latent, weights = (check_number(name, getattr(self, name), 0, open_low=True) for name in names)
        return Penalties(loadings, latent, weights=weights)

    def _lags(self, n_times: int) -> tuple[int, ...]:
        if self.lags is None:
            return default_lags(self.season_length_, self.panel_.freq, n_times)
        lags = tuple(sorted({int(check_number("lags", lag, 1, integer=True)) for lag in self.lags}))
        if not lags or lags[-1] >= n_times:
            raise InputError(f"lags={self.lags!r} must be shorter than the history, which has {n_times} bins.")
        return lags

    def _for_rows(self, rows: IntArray) -> Factors:
        """The factors with their series in another order; -1 is a series not known yet."""
        known = rows >= 0
        factors = self.factors_
        return replace(
            factors,
            loadings=np.where(known[:, None], factors.loadings[rows], 0.0),
            intercepts=np.where(known, factors.intercepts[rows], 0.0),
        )
