"""Forecasters of other libraries among ours: those of statsforecast's manner, and of sktime's."""

from __future__ import annotations

import inspect
from copy import deepcopy
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_columns
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.panel import Panel
from gpudemand.forecast.base.windows import fill_missing

_KEYS = ("unique_id", "ds")


class ExternalForecaster(Forecaster):
    """A forecaster of another library, fitted anew at each origin, with intervals from its errors at earlier ones.

    Parameters
    ----------
    model : object
        In the manner of statsforecast, ``fit(df)`` and ``predict(h)``, with one model; or of sktime, ``fit(y, fh=fh)``
        and ``predict(fh)``, fitted series by series. It is copied, and sees times without a zone.
    name : str, optional
        Of the column of its forecasts; by default what the library calls it.
    regressors : DataFrame, optional
        ``ds`` and columns known ahead (holidays, planned runs), also ``unique_id`` where they differ by series. They
        reach the model as further columns of ``df`` and as ``X_df``, or as ``X``.

    Examples
    --------
    >>> class Mean:
    ...     def fit(self, y, X=None, fh=None):
    ...         self.mean = y.mean()
    ...         return self
    ...
    ...     def predict(self, fh, X=None):
    ...         return pd.Series(self.mean, index=range(len(fh)))
    >>> usage = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2026-03-01", periods=4), "y": [1.0, 3, 1, 3]})
    >>> ExternalForecaster(Mean()).fit(usage).predict(2)
      unique_id         ds  Mean
    0         a 2026-03-05   2.0
    1         a 2026-03-06   2.0
    """

    _allow_missing = True
    _local_clock = False
    _max_origins = 8

    def __init__(self, model: Any, *, name: str | None = None, regressors: pd.DataFrame | None = None) -> None:
        self.model = model
        self.name = name
        self.regressors = regressors

    def column_name(self) -> str:
        """Name of the column of forecasts."""
        inner = getattr(self.model, "models", None)
        if self.name is None and isinstance(inner, (list, tuple)) and len(inner) == 1:
            return str(inner[0])
        return self.name or type(self.model).__name__

    def _fit_panel(self, panel: Panel) -> None:
        if protocol(self.model) is None:
            raise InputError(
                f"{type(self.model).__name__} is no forecaster: it has neither statsforecast's fit(df) and predict(h) "
                "nor sktime's fit(y, fh) and predict(fh)."
            )
        super()._fit_panel(panel)

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        n_times = y.shape[1]
        known, begins = self.panel_.until(n_times), np.isnan(y).cumprod(axis=1).sum(axis=1)
        filled = fill_missing(y, self.season_length_)
        # A regular clock without a zone, which every library takes.
        clock = pd.date_range(known.times[0].tz_localize(None), periods=n_times + h, freq=known.freq)
        extra = self._known_ahead(known.times.append(known.future(h)))
        by_table = protocol(self.model) == "h"
        return (_by_table if by_table else _by_series)(self.model, self.panel_.ids, clock, filled, begins, extra)

    def _known_ahead(self, times: pd.DatetimeIndex) -> list[pd.DataFrame] | None:
        """Regressors of each series at some times, all of which must be known."""
        if self.regressors is None:
            return None
        table = check_columns(self.regressors, ("ds",), "regressors")
        found = []
        for name in self.panel_.ids:
            own = table[table["unique_id"] == name] if "unique_id" in table else table
            rows = own.drop(columns="unique_id", errors="ignore").set_index("ds").reindex(times)
            unknown = rows.isna().any()
            if unknown.any() or rows.empty:
                column = unknown.idxmax()
                first = rows.index[rows[column].isna()][0]
                raise InputError(
                    f"the regressor {column!r} is not known at {first}; give its values over the whole history and "
                    "horizon, or leave it out if it is not known ahead."
                )
            found.append(rows.reset_index(drop=True))
        return found


def as_forecaster(model: Any) -> Forecaster:
    """Return a forecaster of ours, or one of another library in an `ExternalForecaster`."""
    return model if isinstance(model, Forecaster) else ExternalForecaster(model)


def protocol(model: Any) -> str | None:
    """``"h"`` for the manner of statsforecast, ``"fh"`` for that of sktime, None for neither."""
    if not callable(getattr(model, "fit", None)) or not callable(getattr(model, "predict", None)):
        return None
    names = inspect.signature(model.predict).parameters
    return next((name for name in ("fh", "h") if name in names), None)


def _by_table(
    model: Any, ids: pd.Index, clock: pd.DatetimeIndex, y: FloatArray, begins: Any, extra: list[pd.DataFrame] | None
) -> FloatArray:
    n_times, frames = y.shape[1], []
    for place, name in enumerate(ids):
        columns = {} if extra is None else dict(extra[place].items())
        frames.append(pd.DataFrame({"unique_id": name, "ds": clock, **columns}))
    past = [
        frame.iloc[begin:n_times].assign(y=row[begin:]) for frame, row, begin in zip(frames, y, begins, strict=True)
    ]
    fitted = deepcopy(model)
    fitted.fit(pd.concat(past, ignore_index=True))
    ahead = {} if extra is None else {"X_df": pd.concat([frame.iloc[n_times:] for frame in frames], ignore_index=True)}
    found = fitted.predict(h=len(clock) - n_times, **ahead)
    names = [name for name in found.columns if name not in _KEYS and "-lo-" not in name and "-hi-" not in name]
    if len(names) != 1:
        raise InputError(f"{type(model).__name__} forecasts {len(names)} columns; give it one model at a time.")
    found = found if "unique_id" in found else found.reset_index()
    wide = found.pivot(index="unique_id", columns="ds", values=names[0])
    return wide.reindex(ids).to_numpy(dtype=float)


def _by_series(
    model: Any, ids: pd.Index, clock: pd.DatetimeIndex, y: FloatArray, begins: Any, extra: list[pd.DataFrame] | None
) -> FloatArray:
    n_times, steps, rows = y.shape[1], np.arange(1, len(clock) - y.shape[1] + 1), []
    for place, begin in enumerate(begins):
        fitted, past, ahead = deepcopy(model), {}, {}
        if extra is not None:
            table = extra[place].set_axis(clock)
            past, ahead = {"X": table.iloc[begin:n_times]}, {"X": table.iloc[n_times:]}
        series = pd.Series(y[place, begin:], index=clock[begin:n_times], name=str(ids[place]))
        fitted.fit(series, fh=steps, **past)
        rows.append(np.asarray(fitted.predict(fh=steps, **ahead), dtype=float).ravel())
    return np.vstack(rows)
