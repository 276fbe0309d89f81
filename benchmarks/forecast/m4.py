"""Hourly series of the M4 competition, two days ahead."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.forecast import load, score
from benchmarks.forecast.baselines import WeekProfile
from benchmarks.forecast.origins import Origins
from gpudemand.forecast import (
    CombinedForecaster,
    DoubleSeasonalSmoothing,
    RidgeAutoregression,
    SeasonalNaive,
)

TITLE = "M4 hourly, 414 series, 48 h ahead (published: AutoARIMA 1.03, the winner 0.89)"
AIM = "MASE 0.95 in under 60 s"


def methods() -> dict[str, score.Method]:
    """Methods of the package."""
    models = [SeasonalNaive(), WeekProfile(), DoubleSeasonalSmoothing(), RidgeAutoregression("level")]
    single = {type(model).__name__: score.ours(model, ()) for model in models}
    return single | {"CombinedForecaster": score.ours(CombinedForecaster())}


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """Score every method on the test of the competition, or from other origins."""
    panel, h = load.m4_hourly(data)
    places = (origins or Origins(count=1)).of(panel, h, step=h, phase=None)
    backtest, seconds = score.rolling(methods(), panel, places, h)
    history = panel.until(places[0])
    past = history.long_frame(history.times, {"y": history.values}).dropna()
    return score.table(backtest, seconds, ("mase", "smape", "coverage"), history=past, season_length=24)
