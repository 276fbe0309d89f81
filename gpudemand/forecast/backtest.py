"""Rolling-origin evaluation of forecasters."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from sklearn.base import clone

from gpudemand import _parallel
from gpudemand._array import FloatArray, IntArray, one_thread
from gpudemand._validation import InputError, UnlikelyUsageWarning, told
from gpudemand.forecast.forecaster import Forecaster, ShortHistoryWarning, adapt, positive_int, warn_long_season
from gpudemand.forecast.panel import Panel, warn_unlikely


@told("Backtesting")
def cross_validation(
    model: Forecaster | Sequence[Forecaster],
    usage: pd.DataFrame,
    h: int,
    n_windows: int = 1,
    step_size: int | None = None,
    level: Sequence[float] | None = None,
    progress: Callable[[int, int], None] | None = None,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Forecast from several origins at the end of a history, refitting at each.

    Parameters
    ----------
    model : forecaster or sequence of forecasters
        Cloned and fitted at each origin; also those of other libraries, as `adapt` takes them. Those that estimate no
        parameters, such as `CombinedForecaster`, are forecast in one pass for all origins, equal to rounding.
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``.
    h : int
        Horizon in bins.
    n_windows : int, default=1
        Number of origins; the newest is followed by exactly `h` bins.
    step_size : int, optional
        Bins between origins; `h` by default.
    level : sequence of float, optional
        Interval levels in percent.
    progress : callable, optional
        Called after each window with the number of windows done and of all.
    n_jobs : int or None, default=None
        Processes, a window each; None is 1, or the setting of ``joblib.parallel_config``. Dask's workers while a
        ``dask.distributed.Client`` is active.

    Returns
    -------
    DataFrame
        ``unique_id``, ``ds``, ``cutoff`` (the newest bin known), ``y``, and the columns of each model.

    Raises
    ------
    InputError
        If the history is too short, or two models have one name; ``adapt(model, name=...)`` gives another.

    Examples
    --------
    >>> from gpudemand.forecast.naive import Naive
    >>> ds = pd.date_range("2026-03-01", periods=6, freq="D")
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": ds, "y": [3.0, 1.0, 4.0, 1.0, 5.0, 9.0]})
    >>> cross_validation(Naive(), usage, h=1, n_windows=2)[["cutoff", "y", "Naive"]]
          cutoff    y  Naive
    0 2026-03-04  5.0    1.0
    1 2026-03-05  9.0    5.0
    """
    models = [adapt(one) for one in (model if isinstance(model, (list, tuple)) else [model])]
    _check_names(models)
    h, n_windows = positive_int("h", h), positive_int("n_windows", n_windows)
    step = h if step_size is None else positive_int("step_size", step_size)
    panel = Panel.from_long(usage, allow_missing=True)
    warn_unlikely(usage, panel)
    for model in models:
        warn_long_season(model, len(panel.times))
    origins = _origins(len(panel.times), h, n_windows, step)
    fits = zip(*(_in_one_pass(one, panel, h, level, origins) for one in models), strict=True)
    windows = []
    for window in _parallel.stream(partial(_window, panel, h, level), zip(origins, fits, strict=True), n_jobs):
        windows.append(window)
        if progress is not None:
            progress(len(windows), len(origins))
    backtest = pd.concat(windows, ignore_index=True)
    backtest.attrs = dict(panel.attrs)
    return backtest


def _origins(n_times: int, h: int, n_windows: int, step: int) -> list[int]:
    if n_times - h - step * (n_windows - 1) < 2:
        most = max((n_times - h - 2) // step + 1, 0)
        hint = f"use n_windows of at most {most}" if most else f"use a horizon below {max(n_times - 1, 1)}"
        raise InputError(
            f"{n_windows} windows of {h} every {step} bins need {h + step * (n_windows - 1) + 2} bins; "
            f"the history has {n_times}: {hint}, a finer frequency or a longer log."
        )
    return [n_times - h - step * back for back in reversed(range(n_windows))]


def _check_names(models: Sequence[Forecaster]) -> None:
    names = [model.column_name() for model in models]
    if not names:
        raise InputError("there is no forecaster to backtest; give at least one.")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two forecasters are called {twice!r}; name one with adapt(model, name=...).")


#: Most numbers of the histories, and of the forecasts, of one pass: some methods hold twenty times as many.
_ONE_PASS = 4e6


@dataclass(frozen=True)
class _Pass:
    """Forecasts of one pass over a history: what a `PathsFunction` gives of its earlier parts."""

    origins: IntArray
    paths: FloatArray  # (n_series, n_origins, h)

    def __call__(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        return self.paths[:, self.origins.searchsorted(origins)]


def _in_one_pass(
    model: Forecaster, panel: Panel, h: int, level: Sequence[float] | None, origins: Sequence[int]
) -> Sequence[Forecaster]:
    """The method at each origin, with the forecasts of one pass where nothing is fitted and no series is missing."""
    unfitted, past = [model] * len(origins), level is not None
    missing = np.isnan(panel.values[:, [origin - 1 for origin in origins]]).any()
    too_large = panel.values.size * len(origins) > _ONE_PASS
    if len(origins) == 1 or missing or too_large or not model._fits_nothing:
        return unfitted
    fits = [_fitted(model, panel, origin) for origin in origins]
    needed, last = [fit._forecast_origins(past=past) for fit in fits], fits[-1]
    y, ahead, places = last.panel_.values, last._steps_ahead(h), np.unique(np.concatenate(needed))
    alike = all(
        fit._method() == last._method()
        and fit._steps_ahead(h) == ahead
        and np.array_equal(fit.panel_.values, y[:, : fit.panel_.values.shape[1]], equal_nan=True)
        for fit in fits
    )
    if not alike or len(y) * places.size * ahead > _ONE_PASS:
        return unfitted
    with one_thread():
        paths = last._past_paths(y, places, ahead)
    for fit, own in zip(fits, needed, strict=True):
        fit._known_paths = _Pass(own, paths[:, places.searchsorted(own)])
    return fits


def _fitted(model: Forecaster, panel: Panel, origin: int) -> Forecaster:
    known = panel.until(origin)
    history = known.long_frame(known.times, {"y": known.values}).dropna(subset="y")
    with warnings.catch_warnings(action="ignore", category=UnlikelyUsageWarning):
        return clone(model).fit(history, freq=panel.freq)


def _window(
    panel: Panel, h: int, level: Sequence[float] | None, window: tuple[int, Sequence[Forecaster]]
) -> pd.DataFrame:
    origin, models = window
    known = panel.until(origin)
    begun = ~np.isnan(known.values).all(axis=1)
    times = panel.times[origin : origin + h]
    future = panel.long_frame(times, {"y": panel.values[:, origin : origin + h]})
    frame = future.assign(cutoff=known.times[-1])[["unique_id", "ds", "cutoff", "y"]]
    # Where the newest bins are missing in all series, as in an outage, forecasts begin before the cutoff.
    missing = int(np.asarray(np.isnan(known.values).all(axis=0))[::-1].argmin())
    for model in models:
        fitted = model if getattr(model, "_known_paths", None) else _fitted(model, panel, origin)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnlikelyUsageWarning)
            # How often the intervals of early origins, with short histories, are right is what a backtest shows.
            warnings.simplefilter("ignore", ShortHistoryWarning)
            forecast = fitted.predict(h + missing, level=level)
        frame = frame.merge(forecast, on=["unique_id", "ds"], how="left")
    # Series that begin after the cutoff cannot be forecast.
    return frame[frame["unique_id"].isin(panel.ids[begun])]
