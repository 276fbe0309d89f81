"""Busy nodes on Philly per 10 minutes, one and three hours ahead from every bin."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.forecast import load
from benchmarks.forecast.origins import Origins
from gpudemand.forecast import CombinedForecaster, DoubleSeasonalSmoothing, Panel, RidgeAutoregression
from gpudemand.metrics import smape

TITLE = "Philly, nodes with a busy GPU per 10 minutes, 2017-12-01 to 14 (CES: 5.31 % sMAPE one hour ahead)"
AIM = "sMAPE 2.2 % an hour and 3.2 % three hours ahead, from fixed origins"
_WINDOW = Origins(first="2017-12-01", last="2017-12-14 23:50")
#: Panel, origins and horizon in; forecasts of shape (n_series, n_origins, h) out.
Forecasts = Callable[[Panel, np.ndarray, int], np.ndarray]  # type: ignore[type-arg]
_STEPS = {"1h": 6, "3h": 18}


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """Score every method at targets of the window, each forecast from exactly 6 and 18 bins before it.

    Bins that were not recorded are missing values, and no targets; the columns that end in ``with_outages`` count them
    as zero, as published comparisons do.
    """
    panel = load.philly_nodes(data)
    # A target in bin p is forecast from the origin p - steps + 1.
    targets = np.array((origins or _WINDOW).of(panel, h=1, step=1))
    models = [DoubleSeasonalSmoothing(), RidgeAutoregression(), CombinedForecaster(max_origins=28)]
    rows = {"Naive": _scores(_last_value, panel, targets)}
    rows |= {type(model).__name__: _scores(model.forecast_from, panel, targets) for model in models}
    return pd.DataFrame.from_dict(rows, orient="index")


def _last_value(panel: Panel, origins: np.ndarray, h: int) -> np.ndarray:  # type: ignore[type-arg]
    newest = pd.Series(panel.values[0]).ffill().to_numpy()[origins - 1]
    return np.repeat(newest[None, :, None], h, axis=2)


def _scores(forecast_from: Forecasts, panel: Panel, targets: np.ndarray) -> dict[str, float]:  # type: ignore[type-arg]
    began = time.perf_counter()
    found: dict[str, float] = {}
    for name, steps in _STEPS.items():
        forecast = forecast_from(panel, targets - steps + 1, steps)[0, :, -1]
        found |= _errors(panel.values[0, targets], forecast, name)
    return {**found, "seconds": time.perf_counter() - began}


def _errors(y: np.ndarray, forecast: np.ndarray, name: str) -> dict[str, float]:  # type: ignore[type-arg]
    known = ~np.isnan(y)
    return {
        f"smape_{name}": smape(y[known], forecast[known]),
        f"smape_{name}_with_outages": smape(np.nan_to_num(y), forecast),
    }
