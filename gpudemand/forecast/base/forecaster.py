"""Base class of the forecasters: long frames in and out, prediction intervals from backtest errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from gpudemand._linalg import one_thread
from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError, check_number
from gpudemand.forecast.base.intervals import PastErrors, check_levels, prediction_intervals
from gpudemand.forecast.base.panel import Panel, season_length
from gpudemand.forecast.base.samples import SAMPLE, joint_samples

Self = TypeVar("Self", bound="Forecaster")


def positive_int(name: str, value: object) -> int:
    """Return a parameter that must be a whole number of at least 1."""
    return int(check_number(name, value, 1, integer=True))


class Forecaster(BaseEstimator):
    """Base class of the forecasters.

    A subclass implements ``_path(y, h)``, a pure function from a history of shape (n_series, n_times) to forecasts of
    shape (n_series, h), or ``_paths(y, origins, h)``, the same from several origins at once. Run at earlier origins,
    it gives the errors behind the prediction intervals; nothing after an origin can reach a forecast made there.

    Attributes
    ----------
    panel_ : Panel
        The training series; in local time where the clock changes.
    season_length_ : int
        Bins in the season that the method uses.
    """

    #: Most origins of the backtest behind the intervals; few for methods that are slow to fit.
    _max_origins = 60
    #: Whether missing values are accepted.
    _allow_missing = False
    #: Whether seasons follow local time where clocks change; otherwise they are counted in bins.
    _local_clock = True

    def fit(self: Self, usage: pd.DataFrame, freq: object = None) -> Self:
        """Fit to the training series.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y``: dense, though a series may begin later than others.
        freq : str or offset, optional
            Frequency of the timestamps; inferred when not given.

        Returns
        -------
        self

        Raises
        ------
        InputError
            For an invalid parameter or series, or a history that is too short for the method.
        """
        panel = Panel.from_long(usage, freq, allow_missing=self._allow_missing)
        self._fit_panel(panel.on_local_clock() if self._local_clock else panel)
        return self

    def _fit_panel(self, panel: Panel) -> None:
        """Fit to a panel; subclasses that estimate parameters extend this method, not `fit`."""
        self.panel_ = panel
        self.season_length_ = self._season()
        self._backtests: dict[int, tuple[FloatArray, PastErrors]] = {}

    def column_name(self) -> str:
        """Name of the column of forecasts: that of the class."""
        return type(self).__name__

    def _season(self) -> int:
        given = getattr(self, "season_length", None)
        return season_length(self.panel_.freq) if given is None else positive_int("season_length", given)

    @one_thread()
    def predict(self, h: int, level: Sequence[float] | float | None = None) -> pd.DataFrame:
        """Forecast the next bins.

        Parameters
        ----------
        h : int
            Horizon in bins.
        level : sequence of float, optional
            Levels of the prediction intervals in percent, for example ``[80, 95]``.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds``, a column named after the class, and ``<class>-lo-80``, ``<class>-hi-80``, ...
        """
        check_is_fitted(self, "panel_")
        h, levels = positive_int("h", h), check_levels(level)
        name, y, steps = self.column_name(), self.panel_.values, self.panel_.local_steps(h)
        floor, ahead = self._floors(y, np.array([y.shape[1]])), int(steps.max()) + 1
        if not levels:
            columns = {name: np.maximum(self._path(y, ahead), floor)}
        else:
            path, errors = self._backtested(ahead)
            columns = {name: np.maximum(path, floor)}
            bounds = prediction_intervals(columns[name], errors, levels, floor, self._spread(ahead))
            columns |= {f"{name}-{side}": matrix for side, matrix in bounds.items()}
        columns = {column: matrix[:, steps] for column, matrix in columns.items()}
        return self.panel_.long_frame(self.panel_.future(h), columns)

    @one_thread()
    def sample(self, h: int, n_samples: int = 200, random_state: int = 0) -> pd.DataFrame:
        """Draw paths of all series together, with the distributions of the intervals and the dependence of past errors.

        Sums of series in each sample have the distribution of the sum (`sum_samples`), which sums of bounds have not.

        Parameters
        ----------
        h : int
            Horizon in bins.
        n_samples : int, default=200
            Paths; each takes the ranks of the errors from one earlier origin, of which there are at most sixty.
        random_state : int, default=0

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds``, ``sample`` and a column named after the class, n_samples x n_series x h rows.
        """
        check_is_fitted(self, "panel_")
        h, n_samples = positive_int("h", h), positive_int("n_samples", n_samples)
        y, steps = self.panel_.values, self.panel_.local_steps(h)
        ahead = int(steps.max()) + 1
        (path, past), floor = self._backtested(ahead), self._floors(y, np.array([y.shape[1]]))
        drawn = joint_samples(np.maximum(path, floor), past, floor, self._spread(ahead), n_samples, random_state)
        one = self.panel_.long_frame(self.panel_.future(h), {})
        frame = pd.concat([one] * n_samples, ignore_index=True)
        frame[SAMPLE] = np.repeat(np.arange(n_samples), len(one))
        frame[self.column_name()] = drawn[:, :, steps].ravel()
        frame.attrs = dict(self.panel_.attrs)
        return frame

    @one_thread()
    def forecast_from(self, panel: Panel, origins: IntArray, h: int) -> FloatArray:
        """Forecast from many origins, in one pass where the method has one.

        Parameters
        ----------
        panel : Panel
            Series; values after an origin do not affect the forecast from it.
        origins : ndarray of int, shape (n_origins,)
            Number of bins known at each origin, ascending.
        h : int
            Horizon in bins.

        Returns
        -------
        ndarray of shape (n_series, n_origins, h)
        """
        origins = np.asarray(origins, dtype=np.int64)
        known = panel.until(int(origins.min()))
        usage = known.long_frame(known.times, {"y": known.values})
        model = clone(self).fit(usage if self._allow_missing else usage.dropna(), freq=panel.freq)
        places = panel.local_positions(h) if self._local_clock else np.arange(len(panel.times) + h)
        ends = places[origins - 1] + 1
        steps = np.maximum(places[origins[:, None] + np.arange(h)] - ends[:, None], 0)
        ends, which = np.unique(ends, return_inverse=True)
        y = (panel.on_local_clock() if self._local_clock else panel).values[:, : ends.max()]
        paths = np.maximum(model._paths(y, ends, int(steps.max()) + 1), self._floors(y, ends)[..., None])
        return np.take_along_axis(paths[:, which], steps[None], axis=2)

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        return self._paths(y, np.array([y.shape[1]]), h)[:, 0]

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        """Forecasts from several origins of one history, shape (n_series, n_origins, h)."""
        # The whole history is passed as the same object, so that a subclass can recognise its training data.
        return np.stack([self._path(y[:, :o] if o < y.shape[1] else y, h) for o in origins], axis=1)

    @staticmethod
    def _floors(y: FloatArray, origins: IntArray) -> FloatArray:
        """Lower bound of the forecasts, shape (n_series, n_origins): 0, or none for series with negative values."""
        lowest = np.minimum.accumulate(np.where(np.isnan(y), np.inf, y), axis=1)[:, origins - 1]
        return np.where(lowest < 0, -np.inf, 0.0)

    def _backtested(self, h: int) -> tuple[FloatArray, PastErrors]:
        """Forecast, shape (n_series, h), and the errors of forecasts from earlier origins."""
        if h not in self._backtests:
            self._check_reach(h)
            y, season = self.panel_.values, self.season_length_
            if y.shape[1] < 3:
                raise InputError(
                    f"intervals need at least 3 bins of history; this one has {y.shape[1]}. Predict with level=None."
                )
            self._backtests[h] = PastErrors.of(
                self._paths, y, h, min_train=self._min_train(), max_origins=self._max_origins, season=season
            )
        return self._backtests[h]

    def _spread(self, h: int) -> FloatArray | float:
        """Factor on the width of the intervals at each step."""
        return 1.0

    def _check_reach(self, h: int) -> None:
        """Warn if the history shows no errors as far ahead."""

    def _min_train(self) -> int:
        """Bins before the first origin of the backtest."""
        return min(2 * self.season_length_, self.panel_.values.shape[1] // 2)


def last_known(y: FloatArray) -> FloatArray:
    """Newest value of each series, shape (n_series, 1); 0 for a series without any.

    Examples
    --------
    >>> last_known(np.array([[1.0, 2.0, np.nan], [np.nan, np.nan, np.nan]])).tolist()
    [[2.0], [0.0]]
    """
    known = ~np.isnan(y)
    newest = y.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    return np.where(known.any(axis=1), y[np.arange(len(y)), newest], 0.0)[:, None]
