"""`HorizonForecaster`: hours, weeks and quarters ahead as one forecast, with intervals of the mean over a horizon."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from gpudemand._linalg import one_thread
from gpudemand._typing import FloatArray, IntArray
from gpudemand.forecast.base.forecaster import Forecaster, positive_int
from gpudemand.forecast.base.intervals import PastErrors, check_levels
from gpudemand.forecast.base.mean_errors import mean_error_quantiles
from gpudemand.forecast.base.panel import Panel, mean_step, row_means, week_length
from gpudemand.forecast.base.seasonality import Seasonality
from gpudemand.forecast.base.windows import begun, fill_missing
from gpudemand.forecast.combination.combined import CombinedForecaster

#: Disjoint spans of errors that a horizon needs, and reach of a short-term forecaster.
_SPANS, _SHORT_TERM = 2, pd.Timedelta("2D")


class ShortHistoryWarning(UserWarning):
    """The intervals reach further than the errors that the history shows."""


class ShortTermForecaster(Protocol):
    """What `HorizonForecaster.fit` takes as `short_term`: a fitted `JobDemandModel`, or any forecaster."""

    def predict(self, h: int, level: Sequence[float] | float | None = None) -> pd.DataFrame:
        """Forecast the next bins in long format."""


class HorizonForecaster(Forecaster):
    """Weeks from a combination of methods, a quarter and more from the level and the trend, joined without a step.

    Up to four weeks ahead the pattern is that of `weeks`; further ahead its last season is repeated. Its level is
    moved, fully from the first week on, to the median of six: the means of the newest season (a week), of four weeks
    (which has two votes), and of all; the linear trend of the whole history; and the level of `weeks`. So a trend
    counts only as far as another of them bears it out, which damps it. What is forecast for a bin does not depend on
    how much further one looks.

    Parameters
    ----------
    weeks : Forecaster, optional
        Of the first four weeks; `CombinedForecaster` by default.
    season_length : int, optional
        Bins in a season; by default a day for bins below a day, a week for days, a year above.
    random_state : int, default=0
        Passed to `weeks` where it has one.

    Attributes
    ----------
    weeks_ : Forecaster

    Notes
    -----
    The mean of four weeks is the naive method that is hardest to beat a quarter ahead, hence its two votes. Weights
    from past errors at the same distance, a trend damped by a factor, and one shrunk by its standard error did not make
    the median better on the development half of ``make bench-planning ARGS="--only horizon"``.

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

    _allow_missing = True

    def __init__(
        self, weeks: Forecaster | None = None, *, season_length: int | None = None, random_state: int = 0
    ) -> None:
        self.weeks = weeks
        self.season_length = season_length
        self.random_state = random_state

    def fit(
        self, usage: pd.DataFrame, freq: object = None, short_term: ShortTermForecaster | None = None
    ) -> HorizonForecaster:
        """Fit to the training series.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y``; missing values are filled from the season before.
        freq : str or offset, optional
            Frequency of the timestamps; inferred when not given.
        short_term : fitted JobDemandModel, optional
            Forecaster of the first two days, fitted to the same usage. It is averaged with this one by the inverse
            squared widths of their 80 % intervals, which come from errors at that distance, and fades out.

        Returns
        -------
        HorizonForecaster
            This object.

        Raises
        ------
        InputError
            For an invalid parameter or series.
        """
        super().fit(usage, freq)
        self.short_term_ = short_term
        return self

    def predict(self, h: int, level: Sequence[float] | float | None = None) -> pd.DataFrame:
        """Forecast the next bins.

        Parameters
        ----------
        h : int
            Horizon in bins.
        level : sequence of float, optional
            Levels of the prediction intervals of single bins in percent, for example ``[80, 95]``.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds``, ``HorizonForecaster``, ``HorizonForecaster-lo-80``, ``HorizonForecaster-hi-80``, ...
        """
        frame = super().predict(h, level)
        if self.short_term_ is None:
            return frame
        n_near = min(h, max(round(_SHORT_TERM / mean_step(self.panel_.freq)), 1))
        levels = sorted({80.0, *check_levels(level)})
        return _joined(frame, super().predict(n_near, levels), self.short_term_.predict(n_near, level=levels))

    def _fit_panel(self, panel: Panel) -> None:
        super()._fit_panel(panel)
        y, ends = panel.values, np.arange(1, panel.values.shape[1] + 1)
        # Gaps are filled, which keeps means over a horizon comparable; what lies before a series stays unknown.
        self.panel_ = replace(panel, values=np.where(begun(y, ends), fill_missing(y, self.season_length_), np.nan))
        self.weeks_ = clone(CombinedForecaster() if self.weeks is None else self.weeks)
        for name in {"season_length", "random_state"} & set(self.weeks_.get_params(deep=False)):
            self.weeks_.set_params(**{name: getattr(self, name)})
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
        h, levels = positive_int("h", h), check_levels(level)
        name, panel = type(self).__name__, self.panel_
        mean = self.predict(h)[name].to_numpy().reshape(len(panel.ids), h).mean(axis=1)
        future = panel.future(h)
        frame = pd.DataFrame({"unique_id": panel.ids, "start": future[0], "end": future[-1], name: mean})
        if levels:
            tails = np.array([0.5 + value / 200 for value in levels])
            floor = self._floors(panel.values, np.array([panel.values.shape[1]]))[:, 0]
            widths = mean_error_quantiles(self._backtested(h)[1], tails, self._period(panel.values.shape[1]))
            for value, width in zip(levels, widths, strict=True):
                frame[f"{name}-lo-{value:g}"] = np.maximum(mean - width, floor)
                frame[f"{name}-hi-{value:g}"] = mean + width
        frame.attrs = dict(panel.attrs)
        return frame

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        reach = max(4 * self._week, self.season_length_)
        near = self.weeks_._paths(y, origins, reach)
        return np.stack([self._path_from(y[:, :o], near[:, place], h) for place, o in enumerate(origins)], axis=1)

    def _path_from(self, y: FloatArray, near: FloatArray, h: int) -> FloatArray:
        """Forecast from one origin, shape (n_series, h); `near` is that of the first weeks."""
        period = self._period(y.shape[1])
        path, smooth = _with_level(near, period, h)
        month = row_means(y[:, -max(4 * self._week, period) :])
        levels = [row_means(y[:, -period:]), month, month, row_means(y), _linear_trend(y, h), smooth]
        level = np.median(np.stack([np.broadcast_to(values, smooth.shape) for values in levels]), axis=0)
        share = np.minimum(np.arange(1, h + 1) / self._week, 1.0)
        return np.asarray(path + share * (level - smooth))

    def _backtested(self, h: int) -> tuple[FloatArray, PastErrors]:
        if h not in self._backtests:
            n_times = self.panel_.values.shape[1]
            longest = _longest_horizon(n_times, self._week)
            if h > longest:
                message = (
                    f"The history of {n_times} bins shows errors {longest} bins ahead at least twice, not {h}: "
                    "intervals further ahead extend the growth of the errors with distance, so leave a margin."
                )
                warnings.warn(message, ShortHistoryWarning, stacklevel=4)
        return super()._backtested(h)

    def _min_train(self) -> int:
        return _first_origin(self.panel_.values.shape[1], self._week)

    @property
    def _week(self) -> int:
        return week_length(self.panel_.freq)

    def _period(self, n_times: int) -> int:
        """Bins after which the pattern repeats, as far as the history shows it."""
        return Seasonality.observable(n_times, self.season_length_, self.panel_.freq).week


def _joined(frame: pd.DataFrame, own: pd.DataFrame, near: pd.DataFrame) -> pd.DataFrame:
    """A forecast whose first bins are averaged with those of another; both have the same levels, 80 among them."""
    names = own.columns[2:]
    keys = pd.MultiIndex.from_frame(own[["unique_id", "ds"]])
    other = near.set_index(["unique_id", "ds"]).set_axis(names, axis=1).reindex(keys).to_numpy(dtype=float)
    mine = own[names].to_numpy(dtype=float)
    lower, upper = (names.get_loc(f"{names[0]}-{side}-80") for side in ("lo", "hi"))
    widths = [np.square(values[:, upper] - values[:, lower]) for values in (mine, other)]
    step = own.groupby("unique_id").cumcount().to_numpy()
    fade = 1 - step / (step.max() + 1)
    both = widths[0] + widths[1]
    share = fade * np.divide(widths[0], both, out=np.full(len(own), 0.5), where=both > 0)
    # Series that the other does not forecast keep this one.
    blend = pd.DataFrame(mine + np.nan_to_num(share[:, None] * (other - mine)), keys, names)
    joined, first = frame.copy(), frame.groupby("unique_id").cumcount().to_numpy() < step.max() + 1
    joined.loc[first, frame.columns[2:]] = blend[frame.columns[2:]].to_numpy()
    return joined


def longest_horizon(usage: pd.DataFrame, freq: object = None) -> int:
    """Longest horizon that a history bears: errors at that distance are seen twice, without overlap, after four weeks.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``.
    freq : str or offset, optional
        Frequency of the timestamps; inferred when not given.

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
    panel = Panel.from_long(usage, freq, allow_missing=True)
    return _longest_horizon(len(panel.times), week_length(panel.freq))


def _longest_horizon(n_times: int, week: int) -> int:
    return max((n_times - _first_origin(n_times, week)) // _SPANS, 1)


def _first_origin(n_times: int, week: int) -> int:
    return min(4 * week, n_times // 2)


def _with_level(near: FloatArray, period: int, h: int) -> tuple[FloatArray, FloatArray]:
    """A forecast continued by its last period, and its centred mean over a period, both of shape (n_series, h)."""
    reach, before, n = near.shape[1], period // 2, max(near.shape[1], h) + period
    steps = np.arange(n)
    path = near[:, np.where(steps < reach, steps, reach - period + (steps - reach) % period)]
    total = np.concatenate([np.zeros((len(near), 1)), np.cumsum(path, axis=1)], axis=1)
    first = np.maximum(np.arange(h) - before, 0)
    return path[:, :h], (total[:, first + period] - total[:, first]) / period


def _linear_trend(y: FloatArray, h: int) -> FloatArray:
    """Least-squares line through each series, continued, shape (n_series, h)."""
    known, t = ~np.isnan(y), np.arange(y.shape[1] + h, dtype=float)
    middle = row_means(np.where(known, t[: y.shape[1]], np.nan))
    mean, away = row_means(y), np.where(known, t[: y.shape[1]] - middle, 0.0)
    spread = np.square(away).sum(axis=1, keepdims=True)
    slope = (away * np.nan_to_num(y)).sum(axis=1, keepdims=True) / np.where(spread > 0, spread, 1.0)
    return np.asarray(mean + slope * (t[y.shape[1] :] - middle))
