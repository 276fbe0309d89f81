"""What every forecaster shares: fit on a long frame, predict a long frame, intervals from its own past errors."""

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
from gpudemand.forecast.base.intervals import PastErrors, bands, check_levels
from gpudemand.forecast.base.panel import Panel, season_length

Self = TypeVar("Self", bound="Forecaster")


class Forecaster(BaseEstimator):
    """Base of the forecasters: a subclass says how one path follows from a history.

    Subclasses implement ``_path(y, h)``, a pure function from a history of shape (n_series, n_times) to forecasts of
    shape (n_series, h), or ``_paths(y, origins, h)``, the same from several origins at once; everything else is here.
    Because it is pure, the same function run at earlier origins gives the
    errors from which the intervals are made, and nothing after an origin can reach a forecast made there.

    Attributes
    ----------
    panel_ : Panel
        The training series.
    season_length_ : int
        Bins in the season that the method uses.
    """

    #: Origins inside the history at which past errors are measured; few for methods that are slow to refit.
    _max_origins = 60
    #: Whether the method leaves missing values out; others refuse them.
    _allow_missing = False

    def fit(self: Self, usage: pd.DataFrame, freq: object = None) -> Self:
        """Remember the training series.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y``: dense, though a series may begin later than others.
        freq : str or offset, optional
            Frequency of the stamps; inferred when not given.

        Returns
        -------
        self
        """
        self._remember(Panel.from_long(usage, freq, allow_missing=self._allow_missing))
        return self

    def _remember(self, panel: Panel) -> None:
        self.panel_ = panel
        self.season_length_ = self._season()
        self._made: dict[int, tuple[FloatArray, PastErrors]] = {}

    def _season(self) -> int:
        given = getattr(self, "season_length", None)
        return (
            season_length(self.panel_.freq)
            if given is None
            else int(check_number("season_length", given, 1, integer=True))
        )

    @one_thread()
    def predict(self, h: int, level: Sequence[float] | float | None = None) -> pd.DataFrame:
        """Forecast the next bins.

        Parameters
        ----------
        h : int
            How many bins.
        level : sequence of float, optional
            Interval levels in percent, for example ``[80, 95]``.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds``, a column named after the class, and ``<class>-lo-80``, ``<class>-hi-80``, ...
        """
        check_is_fitted(self, "panel_")
        h = int(check_number("h", h, 1, integer=True))
        wanted = check_levels(level)
        name, floor = type(self).__name__, self._floor(self.panel_.values)
        path, errors = self._rehearsed(h) if wanted else (self._path(self.panel_.values, h), None)
        columns = {name: np.maximum(path, floor)}
        if errors is not None:
            ends = bands(columns[name], errors, wanted, floor)
            columns.update({f"{name}-{end}": matrix for end, matrix in ends.items()})
        return self.panel_.long_frame(self.panel_.future(h), columns)

    @one_thread()
    def forecast_from(self, panel: Panel, origins: IntArray, h: int) -> FloatArray:
        """Forecast from many places of a panel, each with what is known there, in one pass where the method has one.

        Parameters
        ----------
        panel : Panel
            Series; what lies after an origin has no effect on what is forecast there.
        origins : ndarray of int, shape (n_origins,)
            Bins known at each, ascending.
        h : int
            How many bins.

        Returns
        -------
        ndarray of shape (n_series, n_origins, h)
        """
        origins = np.asarray(origins, dtype=np.int64)
        known = panel.until(int(origins.min()))
        usage = known.long_frame(known.times, {"y": known.values})
        model = clone(self).fit(usage if self._allow_missing else usage.dropna(), freq=panel.freq)
        y = panel.values[:, : origins.max()]
        return np.maximum(model._paths(y, origins, h), self._floors(y, origins)[..., None])

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        return self._paths(y, np.array([y.shape[1]]), h)[:, 0]

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        """Forecasts from several origins in one history, shape (n_series, n_origins, h); each as if made there."""
        # At its end a history stays the same object, so that what was fitted to it need not be fitted again.
        return np.stack([self._path(y[:, :o] if o < y.shape[1] else y, h) for o in origins], axis=1)

    def _floor(self, y: FloatArray) -> FloatArray:
        return self._floors(y, np.array([y.shape[1]]))

    @staticmethod
    def _floors(y: FloatArray, origins: IntArray) -> FloatArray:
        """Lowest forecast that makes sense, shape (n_series, n_origins), from what is known at each origin."""
        # Demand is never negative; a series that has been negative is something else and is left alone.
        lowest = np.minimum.accumulate(np.where(np.isnan(y), np.inf, y), axis=1)[:, origins - 1]
        return np.where(lowest < 0, -np.inf, 0.0)

    def _rehearsed(self, h: int) -> tuple[FloatArray, PastErrors]:
        """Forecast of shape (n_series, h), and what was wrong with earlier ones."""
        if h not in self._made:
            y = self.panel_.values
            if y.shape[1] < 3:
                raise InputError(
                    f"intervals need at least 3 bins of history; this one has {y.shape[1]}. Predict with level=None."
                )
            min_train = min(2 * self.season_length_, y.shape[1] // 2)
            self._made[h] = PastErrors.of(
                self._paths, y, h, min_train=min_train, max_origins=self._max_origins, season=self.season_length_
            )
        return self._made[h]


def last_known(y: FloatArray) -> FloatArray:
    """Newest value of each series, shape (n_series, 1); 0 where a series has none."""
    known = ~np.isnan(y)
    newest = y.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    return np.where(known.any(axis=1), y[np.arange(len(y)), newest], 0.0)[:, None]
