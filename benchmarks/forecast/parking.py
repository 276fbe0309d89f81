"""Cars in 30 car parks of Birmingham, 18 half-hours a day, in which nights and some days have no rows.

The file is ``dataset.csv`` of "Parking Birmingham" (UCI Machine Learning Repository), kept as
``series/parking/dataset.csv``. It served no choice of a method.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.forecast.means import experts
from benchmarks.forecast.origins import Origins
from gpudemand.forecast import CombinedForecaster, DoubleSeasonalSmoothing, Forecaster, Panel, SeasonalNaive

TITLE = "Car parks, the 18 half-hours of the next day, from the end of every day of the second half: WAPE"
AIM = (
    "Combined, told that a day has 18 bins, at most .18 and 1.02 of the best naive; beside it at the times as they are"
)
#: Half-hours of a day; first day that is forecast; how many days lie between fits of the methods of statsforecast.
DAY, _FIRST, _EXPERTS = 18, 36, 6
_BIN = pd.offsets.Minute(30)


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """A row a method; statsforecast's methods from every sixth day only; ``--origins`` is the number of newest days."""
    cars = read(data)
    numbered = Panel(
        cars.columns, pd.date_range("2016-10-04", periods=len(cars), freq="30min"), cars.to_numpy().T, _BIN
    )
    days = len(cars) // DAY
    most = days - _FIRST if origins is None or origins.count is None else origins.count
    places = DAY * np.arange(max(_FIRST, days - most), days)
    actual = numbered.values[:, places[:, None] + np.arange(DAY)]
    paths = {name: model.forecast_from(numbered, places, DAY) for name, model in _methods().items()}
    clock = cars.asfreq(_BIN)
    real = Panel(cars.columns, clock.index, clock.to_numpy().T, _BIN)
    starts = clock.index.get_indexer(cars.index[places])
    paths["CombinedForecaster, times as they are"] = CombinedForecaster().forecast_from(real, starts, DAY)
    if find_spec("lightgbm"):
        paths["LightGBM on lags and clock"] = _boosted(numbered.values, cars.index, places)
    rows = {name: _scores(path, actual) for name, path in paths.items()}
    for model in experts(DAY):
        path = model.forecast_from(numbered, places[::_EXPERTS], DAY)
        rows[model.column_name()] = {"every sixth day": _wape(path, actual[:, ::_EXPERTS])}
    return pd.DataFrame(rows).T


def read(data: Path) -> pd.DataFrame:
    """Cars by half-hour and car park, with every half-hour of the days that have any."""
    rows = pd.read_csv(data / "series" / "parking" / "dataset.csv", parse_dates=["LastUpdated"])
    wide = rows.pivot_table(
        index=rows["LastUpdated"].dt.round("30min"), columns="SystemCodeNumber", values="Occupancy", aggfunc="mean"
    )
    days = wide.index.normalize().unique()
    opening = pd.timedelta_range("8h", periods=DAY, freq="30min")
    return wide.clip(lower=0).reindex(pd.DatetimeIndex([day + since for day in days for since in opening]))


def _methods() -> dict[str, Forecaster]:
    return {
        "SeasonalNaive, a day": SeasonalNaive(DAY),
        "SeasonalNaive, seven days": SeasonalNaive(7 * DAY),
        "DoubleSeasonalSmoothing": DoubleSeasonalSmoothing(DAY),
        "CombinedForecaster, told the season": CombinedForecaster(season_length=DAY),
        "CombinedForecaster, told nothing": CombinedForecaster(),
    }


def _boosted(y: np.ndarray, times: pd.DatetimeIndex, places: np.ndarray) -> np.ndarray:
    """Forecasts of a day by absolute error, from values of one, two, seven and fourteen days before and the clock."""
    from lightgbm import LGBMRegressor

    def features(at: np.ndarray) -> np.ndarray:
        lagged = [np.where(at >= n * DAY, y[:, np.maximum(at - n * DAY, 0)], np.nan) for n in (1, 2, 7, 14)]
        clock = [np.broadcast_to(of_time, lagged[0].shape) for of_time in (at % DAY, times[at].dayofweek)]
        return np.stack([*lagged, *clock, np.broadcast_to(np.arange(len(y))[:, None], lagged[0].shape)], axis=-1)

    paths = []
    for origin in places:
        past = np.arange(DAY, origin)
        known = ~np.isnan(y[:, past])
        model = LGBMRegressor(n_estimators=200, objective="l1", random_state=0, n_jobs=1, verbose=-1)
        model.fit(features(past)[known], y[:, past][known])
        ahead = features(np.arange(origin, origin + DAY))
        paths.append(model.predict(ahead.reshape(-1, ahead.shape[2])).reshape(len(y), DAY))
    return np.stack(paths, axis=1)


def _scores(path: np.ndarray, actual: np.ndarray) -> dict[str, float]:
    return {"WAPE": _wape(path, actual), "every sixth day": _wape(path[:, ::_EXPERTS], actual[:, ::_EXPERTS])}


def _wape(path: np.ndarray, actual: np.ndarray) -> float:
    return float(np.nansum(np.abs(path - actual)) / np.nansum(actual))
