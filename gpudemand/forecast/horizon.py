"""`HorizonForecaster`: hours, weeks and quarters ahead as one forecast, with intervals of the mean over a horizon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from gpudemand._array import FloatArray, IntArray, one_thread
from gpudemand._validation import check_levels
from gpudemand.forecast.combination import CombinedForecaster, PastLosses, inverse_loss_weights, weighted_trimmed_mean
from gpudemand.forecast.forecaster import Forecaster, check_horizon, shown_twice
from gpudemand.forecast.intervals import mean_error_quantiles
from gpudemand.forecast.panel import Panel, Seasonality, fill_gaps, row_means, week_length

#: Weeks in a quarter; first weights of the means of a week and of four, the trend, and the combination.
_QUARTER, _FIRST_WEIGHTS = 13, np.array([1.0, 2.0, 1.0, 1.0])
#: Power of the inverse errors, which changes nothing on the development half of the logs, and follows growth that has
#: lasted.
_POWER = 4.0


def continued(near: FloatArray, period: int, h: int) -> tuple[FloatArray, FloatArray]:
    """A forecast continued by its last period, and its centred mean over a period, both of shape (n_series, h)."""
    reach, before, n = near.shape[1], period // 2, max(near.shape[1], h) + period
    steps = np.arange(n)
    path = near[:, np.where(steps < reach, steps, reach - period + (steps - reach) % period)]
    total = np.concatenate([np.zeros((len(near), 1)), np.cumsum(path, axis=1)], axis=1)
    first = np.maximum(np.arange(h) - before, 0)
    return path[:, :h], (total[:, first + period] - total[:, first]) / period


def linear_trend(y: FloatArray, h: int) -> FloatArray:
    """Least-squares line through each series, continued, shape (n_series, h)."""
    known, t = ~np.isnan(y), np.arange(y.shape[1] + h, dtype=float)
    middle = row_means(np.where(known, t[: y.shape[1]], np.nan))
    mean, away = row_means(y), np.where(known, t[: y.shape[1]] - middle, 0.0)
    spread = np.square(away).sum(axis=1, keepdims=True)
    slope = (away * np.nan_to_num(y)).sum(axis=1, keepdims=True) / np.where(spread > 0, spread, 1.0)
    return np.asarray(mean + slope * (t[y.shape[1] :] - middle))


class HorizonForecaster(Forecaster):
    """Weeks from a combination of methods, a quarter and more from the level and the trend, joined without a step.

    Up to four weeks ahead the pattern is that of `weeks`; further ahead its last season is repeated. Its level is
    moved, fully from the first week on, to a weighted trimmed mean of four: the means of the newest season (a week) and
    of four weeks, the linear trend of the history, and the level of `weeks`. All begin with the weight one, the mean of
    four weeks with two; errors of the means of past quarters shift the weights, the more the more quarters there are.
    So a trend counts as far as past growth or another of the four bears it out, which damps it. What is forecast for a
    bin does not depend on how much further one looks.

    Parameters
    ----------
    weeks : Forecaster, optional
        Of the first four weeks; `CombinedForecaster` by default.
    season_length : int, optional
        Bins in a season; by default a day for bins below a day, a week for days, a year above.

    Notes
    -----
    The mean of four weeks is the naive method that is hardest to beat a quarter ahead, hence its weight. On the
    scoring half of ``make bench-planning ARGS="--data DIR --only horizon"``, 28 to 90 days of sixteen logs and
    distances, the mean WAPE is .110, of the mean of four weeks .113, of `CombinedForecaster` .113, of the last value
    .169 and of a linear trend .188; intervals of 80 and 95 % cover 80 and 93 %. A log alone holds few quarters: on 12
    of the 16 the best of the three naive forecasts, known in hindsight, has an error more than 3 % smaller. A trend
    damped by a factor, one shrunk by its standard error, the mean of all history as a fifth level, and weighted means
    without trimming were not better on the development half.

    Examples
    --------
    A level that has risen, and then stays:

    >>> rng = np.random.default_rng(0)
    >>> y = np.r_[np.full(70, 60.0), np.full(98, 100.0)] + rng.normal(0, 5, 168)
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": pd.date_range("2026-01-01", periods=168), "y": y})
    >>> model = HorizonForecaster().fit(usage)
    >>> mean = model.predict_mean(56, level=80).iloc[0]
    >>> bool(97 < mean["HorizonForecaster"] < 103 and mean["HorizonForecaster-lo-80"] < 100)
    True
    >>> longest_horizon(usage)
    70
    """

    def __init__(self, weeks: Forecaster | None = None, *, season_length: int | None = None) -> None:
        self.weeks = weeks
        self.season_length = season_length

    def _fit_panel(self, panel: Panel) -> None:
        super()._fit_panel(panel)
        # Means over a horizon are comparable without gaps.
        self.panel_ = replace(panel, values=fill_gaps(panel.values, self.season_length_))
        self.weeks_ = CombinedForecaster(season_length=self.season_length) if self.weeks is None else clone(self.weeks)
        self.weeks_._fit_panel(self.panel_)

    @one_thread()
    def predict_mean(self, h: int, level: Sequence[float] | float | None = None) -> pd.DataFrame:
        """Forecast the mean over the next bins, with intervals from errors of such means at earlier origins.

        Parameters
        ----------
        h : int
            Bins in the mean.
        level : sequence of float, optional
            Levels of the prediction intervals in percent, for example ``[80, 95]``.

        Returns
        -------
        DataFrame
            A row a series: ``unique_id``, ``start`` and ``end`` (first and last bin), ``HorizonForecaster``,
            ``HorizonForecaster-lo-80``, ``HorizonForecaster-hi-80``, ...
        """
        check_is_fitted(self, "panel_")
        h, levels = check_horizon(h, len(self.panel_.times)), check_levels(level)
        name, panel = type(self).__name__, self.panel_
        mean = self.predict(h)[name].to_numpy().reshape(len(panel.ids), h).mean(axis=1)
        future = panel.future(h)
        frame = pd.DataFrame({"unique_id": panel.ids, "start": future[0], "end": future[-1], name: mean})
        if levels:
            tails = np.array([0.5 + value / 200 for value in levels])
            floor = self._floors(panel.values)[:, 0]
            widths = mean_error_quantiles(self._backtested(h)[1], tails, self._period(panel.values.shape[1]))
            for value, width in zip(levels, widths, strict=True):
                frame[f"{name}-lo-{value:g}"] = np.maximum(mean - width, floor)
                frame[f"{name}-hi-{value:g}"] = mean + width
        frame.attrs = dict(panel.attrs)
        return frame

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        earlier = [np.arange(origin - self._week, max(origin // 2, 1) - 1, -self._week) for origin in origins]
        places = np.unique(np.concatenate([origins, *earlier]))
        near = self.weeks_._paths(y, places, max(4 * self._week, min(self.season_length_, y.shape[1])))
        sums, unit = np.zeros((len(_FIRST_WEIGHTS), len(y), places.size, _QUARTER)), np.full(len(y), np.inf)
        losses = PastLosses(sums, places, (~np.isnan(y)).argmax(axis=1))
        out = np.empty((len(y), origins.size, h))
        for place, known in enumerate(places):
            path, levels = self._levels(y[:, :known], near[:, place], max(h, _QUARTER * self._week))
            coming = np.nan_to_num(y[:, known:][:, : _QUARTER * self._week])
            errors = np.cumsum(coming - levels[..., : coming.shape[1]], axis=-1)[..., self._week - 1 :: self._week]
            sums[:, :, place, : errors.shape[-1]] = np.abs(errors)
            for target in np.flatnonzero(origins == known):
                # Only its own earlier origins: the forecast is the same whatever else is forecast beside it.
                past, span = losses.known(int(known), np.searchsorted(places, earlier[target]), self._week)
                # A scale without bounds leaves every series to its own errors.
                weights = inverse_loss_weights(past, span / (_QUARTER * self._week), unit, _POWER)
                level = weighted_trimmed_mean(levels[..., :h], (_FIRST_WEIGHTS[:, None] * weights)[..., None])
                # The level of the first week passes from that of the combination to that of all.
                share = np.minimum(np.arange(1, h + 1) / self._week, 1.0)
                out[:, target] = path[:, :h] + share * (level - levels[-1, :, :h])
        return out

    def _levels(self, y: FloatArray, near: FloatArray, h: int) -> tuple[FloatArray, FloatArray]:
        """Forecast of `weeks` continued, shape (n_series, h), and the four levels, shape (4, n_series, h)."""
        period = self._period(y.shape[1])
        path, level = continued(near, period, h)
        means = [row_means(y[:, -width:]) for width in (period, max(4 * self._week, period))]
        return path, np.stack([*(np.repeat(mean, h, axis=1) for mean in means), linear_trend(y, h), level])

    @property
    def _fits_nothing(self) -> bool:
        return self.weeks is None or self.weeks._fits_nothing

    def _method(self) -> list[Any]:
        return [*super()._method(), type(self.weeks_), self.weeks_._method()]

    def _min_train(self) -> int:
        return _first_origin(self.panel_.values.shape[1], self._week)

    @property
    def _week(self) -> int:
        return week_length(self.panel_.freq)

    def _period(self, n_times: int) -> int:
        """Bins after which the pattern repeats, as far as the history shows it."""
        return Seasonality.observable(n_times, self.season_length_, self.panel_.freq).week


def longest_horizon(usage: pd.DataFrame) -> int:
    """Longest horizon that a history bears: errors at that distance are seen twice, without overlap, after four weeks.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``.

    Returns
    -------
    int
        Bins; at least 1.

    Raises
    ------
    InputError
        For irregular timestamps.

    Examples
    --------
    >>> ds = pd.date_range("2026-01-01", periods=208)
    >>> longest_horizon(pd.DataFrame({"unique_id": "total", "ds": ds, "y": 1.0}))
    90
    """
    panel = Panel.from_long(usage, allow_missing=True)
    return _longest_horizon(len(panel.times), week_length(panel.freq))


def _longest_horizon(n_times: int, week: int) -> int:
    return shown_twice(n_times, _first_origin(n_times, week))


def _first_origin(n_times: int, week: int) -> int:
    return min(4 * week, (n_times + 1) // 2)
