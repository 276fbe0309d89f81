"""Forecasts, run times and scores of several methods from the same origins."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from sklearn.base import clone

from gpudemand.forecast import Forecaster, Panel
from gpudemand.metrics import evaluate

LEVELS = (80, 95)

#: Maps a history and a horizon to matrices of shape (n_series, h): ``""`` is the point forecast, ``"lo-80"`` a bound.
Method = Callable[[Panel, int], dict[str, np.ndarray]]  # type: ignore[type-arg]


def ours(model: Forecaster, level: Sequence[float] = LEVELS, window: int | None = None) -> Method:
    """A forecaster of the package with its intervals, fitted to the newest `window` bins."""

    def forecast(history: Panel, h: int) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
        start = 0 if window is None else max(len(history.times) - window, 0)
        times, values = history.times[start:], history.values[:, start:]
        usage = history.long_frame(times, {"y": values}).dropna(subset="y")
        frame = clone(model).fit(usage, freq=history.freq).predict(h, level=level or None)
        frame = frame.set_index("unique_id").loc[history.ids].reset_index()
        name = type(model).__name__
        columns = {column.removeprefix(name).removeprefix("-"): column for column in frame if column.startswith(name)}
        return {end: frame[column].to_numpy().reshape(len(history.ids), h) for end, column in columns.items()}

    return forecast


def point(path: Callable[[np.ndarray, int], np.ndarray]) -> Method:  # type: ignore[type-arg]
    """A function from values (n_series, n_times) and a horizon to forecasts."""
    return lambda history, h: {"": path(history.values, h)}


def rolling(
    methods: Mapping[str, Method], panel: Panel, origins: Sequence[int], h: int
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Run every method at every origin.

    Returns
    -------
    DataFrame
        ``unique_id, ds, cutoff, y`` and the columns of each method.
    dict of str to float
        Seconds of each method over all origins.
    """
    seconds = dict.fromkeys(methods, 0.0)
    windows = []
    for origin in origins:
        known = panel.until(origin)
        columns = {"y": panel.values[:, origin : origin + h]}
        for name, method in methods.items():
            began = time.perf_counter()
            found = method(known, h)
            seconds[name] += time.perf_counter() - began
            columns |= {f"{name}-{end}" if end else name: matrix for end, matrix in found.items()}
        frame = panel.long_frame(panel.times[origin : origin + h], columns)
        windows.append(frame.assign(cutoff=known.times[-1]))
    return pd.concat(windows, ignore_index=True), seconds


def table(
    backtest: pd.DataFrame,
    seconds: Mapping[str, float],
    metrics: Sequence[str] = ("wape", "bias", "coverage"),
    history: pd.DataFrame | None = None,
    season_length: int = 1,
) -> pd.DataFrame:
    """Scores of every method, pooled over series and origins, and seconds."""
    scores = evaluate(backtest, metrics, history=history, season_length=season_length)
    return scores.assign(seconds=pd.Series(seconds))
