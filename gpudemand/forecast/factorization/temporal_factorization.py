"""`TemporalFactorization`: many series as combinations of a few latent autoregressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError, check_number
from gpudemand.forecast.base.forecaster import Forecaster, positive_int
from gpudemand.forecast.base.panel import Panel, row_scales
from gpudemand.forecast.factorization import trmf
from gpudemand.forecast.factorization.residual_ar import ResidualAR
from gpudemand.forecast.factorization.rolling import backtest_frame, rolling_paths
from gpudemand.forecast.factorization.trmf import Data, Factors, Penalties
from gpudemand.forecast.regression.autoregression import default_lags


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
    an autoregression on a set of lags. Fitted by exact alternating updates, every one of which lowers the objective.
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
        residuals, as in the paper.
    non_negative : bool, default=False
        Constrain loadings to zero or above, so that each series is a sum of parts.
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
        residual_penalty: float | None = 300.0,
        non_negative: bool = False,
        n_sweeps: int = 20,
        random_state: int = 0,
    ) -> None:
        self.n_factors = n_factors
        self.lags = lags
        self.loading_penalty = loading_penalty
        self.latent_penalty = latent_penalty
        self.weight_penalty = weight_penalty
        self.residual_penalty = residual_penalty
        self.non_negative = non_negative
        self.n_sweeps = n_sweeps
        self.random_state = random_state

    def _fit_panel(self, panel: Panel) -> None:
        super()._fit_panel(panel)
        self.lags_ = self._lags(self.panel_.values.shape[1])
        self._set_fitted(self.factorize(self.panel_.values))

    def update(self, usage: pd.DataFrame, n_sweeps: int = 3) -> TemporalFactorization:
        """Refit to a longer history with a warm start.

        Parameters
        ----------
        usage : DataFrame
            All series from their beginning, the new bins included; new series may appear.
        n_sweeps : int, default=3
            Maximum number of sweeps.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If `usage` begins at another time, or lacks a series.
        """
        check_is_fitted(self, "factors_")
        panel = Panel.from_long(usage, self.panel_.freq, allow_missing=True).on_local_clock()
        if panel.times[0] != self.panel_.times[0] or not self.panel_.ids.isin(panel.ids).all():
            raise InputError("update needs all series from their beginning, and the new bins; fit anew otherwise.")
        start = self._for_rows(self.panel_.ids.get_indexer(panel.ids))
        self.panel_, self._backtests = panel, {}
        self._set_fitted(self.factorize(panel.values, start, n_sweeps))
        return self

    def predict_new(self, usage: pd.DataFrame, h: int) -> pd.DataFrame:
        """Forecast series that were not in training, from their own history and the latent series.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y`` of the new series, at the timestamps of the training series; others are
            ignored.
        h : int
            Bins after the training period.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds`` and ``TemporalFactorization``. A series without a value in the training period is
            forecast as zero.
        """
        check_is_fitted(self, "factors_")
        h = positive_int("h", h)
        panel = self.panel_.aligned(usage)
        steps = panel.local_steps(h)
        path = np.maximum(self.fold_in(panel.values).forecast(int(steps.max()) + 1), 0.0)
        return panel.long_frame(panel.future(h), {type(self).__name__: path[:, steps]})

    def fold_in(self, y: FloatArray) -> Fitted:
        """Fit new series, shape (n_series, n_times), to the latent series of training."""
        scale = row_scales(y)
        data = Data.of(y / scale)
        folded = trmf.update_loadings(data, self.factors_, self._penalties(), self.non_negative)
        return Fitted(folded, ResidualAR.fold_in(data, folded, self.residual_ar_.shared), scale)

    def predict_rolling(self, usage: pd.DataFrame, h: int, step_size: int = 1) -> pd.DataFrame:
        """Forecast from many origins after the training period, without refitting.

        Latent series and residuals are filtered with the new data; loadings and autoregressions stay fixed.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y`` of the training series; only bins after the training period are used.
        h : int
            Bins ahead.
        step_size : int, default=1
            Bins between origins; the first one is the end of the training period.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds``, ``cutoff``, ``y`` and ``TemporalFactorization``, as `cross_validation` returns them,
            from the origins that are followed by `h` bins.
        """
        check_is_fitted(self, "factors_")
        h, step_size = positive_int("h", h), positive_int("step_size", step_size)
        wide = usage.pivot(index="unique_id", columns="ds", values="y").reindex(index=self.panel_.ids)
        later = wide.columns[wide.columns > self.panel_.newest]
        if len(later) < h:
            raise InputError(f"usage has {len(later)} bins after the training period, which a horizon of {h} exceeds.")
        times = pd.date_range(self.panel_.newest, later[-1], freq=self.panel_.freq)
        panel = Panel(wide.index, times, wide.reindex(columns=times).to_numpy(dtype=float), self.panel_.freq)
        y, known = panel.values[:, 1:], np.arange(0, len(times) - h, step_size)
        places = panel.local_positions(0)
        steps = np.maximum(places[known[:, None] + 1 + np.arange(h)] - places[known][:, None] - 1, 0)
        new, ahead = panel.on_local_clock().values[:, 1:] / self.scale_, int(steps.max()) + 1
        path = rolling_paths(self.factors_, self.residual_ar_, new, ahead, places[known], self._penalties())
        path = np.take_along_axis(path, steps[None], axis=2)
        floor = self._floors(self.panel_.values, np.array([self.panel_.values.shape[1]]))
        path = np.maximum(path * self.scale_[..., None], floor[..., None])
        return backtest_frame(self.panel_, times, known, y, {type(self).__name__: path})

    @property
    def objective_(self) -> tuple[float, ...]:
        """Value of the objective after each sweep."""
        return self.factors_.objective

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        return (self.fitted_ if y is self.panel_.values else self.factorize(y)).forecast(h)

    @property
    def fitted_(self) -> Fitted:
        """Factors, autoregression of the residuals and scales."""
        return Fitted(self.factors_, self.residual_ar_, self.scale_)

    def _set_fitted(self, fitted: Fitted) -> None:
        self.factors_, self.residual_ar_, self.scale_ = fitted

    def factorize(self, y: FloatArray, start: Factors | None = None, n_sweeps: int | None = None) -> Fitted:
        """Factorize a matrix of series, shape (n_series, n_times), with the parameters and lags of this object."""
        lags = tuple(lag for lag in self.lags_ if lag < y.shape[1]) or (1,)
        if y.shape[1] < 2:
            raise InputError(f"a factorization needs at least 2 bins of history; this one has {y.shape[1]}.")
        scale = row_scales(y)
        n_factors = min(positive_int("n_factors", self.n_factors), *y.shape)
        n_sweeps = positive_int("n_sweeps", self.n_sweeps if n_sweeps is None else n_sweeps)
        scaled = y / scale
        factors = trmf.fit(
            scaled,
            n_factors,
            lags,
            self._penalties(),
            n_sweeps=n_sweeps,
            non_negative=self.non_negative,
            start=start,
            random_state=self.random_state,
        )
        return Fitted(factors, self._residual_ar(Data.of(scaled), factors), scale)

    def _residual_ar(self, data: Data, factors: Factors) -> ResidualAR:
        if self.residual_penalty is None:
            return ResidualAR.none(len(data.values), factors.lags)
        return ResidualAR.fit(data, factors, check_number("residual_penalty", self.residual_penalty, 0))

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

    def _for_rows(self, rows: IntArray) -> Factors:
        """The factors with their series in another order; -1 is a new series."""
        known = rows >= 0
        factors = self.factors_
        return replace(
            factors,
            loadings=np.where(known[:, None], factors.loadings[rows], 0.0),
            intercepts=np.where(known, factors.intercepts[rows], 0.0),
        )
