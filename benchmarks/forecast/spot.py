"""GPUs in use on a spot cluster, per hour, a day ahead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.forecast import anchors, load, score
from benchmarks.forecast.baselines import WeekProfile
from benchmarks.forecast.origins import Origins
from gpudemand.forecast import (
    CombinedForecaster,
    DoubleSeasonalSmoothing,
    Panel,
    RidgeAutoregression,
)

TITLE = "Spot GPUs, hourly, 24 h ahead, 28 daily origins"
AIM = "WAPE 8 % below the best of the others, for the total and for six models pooled, in a tenth of AutoETS' time"
_WINDOW = 8 * 168


def methods() -> dict[str, score.Method]:
    """Methods of the package and the standard ones."""
    standard = anchors.naive() | anchors.standard(_WINDOW) | {"HourOfWeek": score.ours(WeekProfile())}
    models = [DoubleSeasonalSmoothing(), RidgeAutoregression("level", penalty=0.1), CombinedForecaster()]
    return standard | {type(model).__name__: score.ours(model) for model in models}


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """Score every method on the total and on the GPU models."""
    names = ("total", "models")
    tables = [_scores(panel, origins) for panel in load.spot(data)]
    return pd.concat(dict(zip(names, tables, strict=True)), axis=1)


def _scores(panel: Panel, origins: Origins | None) -> pd.DataFrame:
    places = (origins or Origins(count=28)).of(panel, h=24, step=24)
    backtest, seconds = score.rolling(methods(), panel, places, h=24)
    six = ["SeasonalNaive", "SeasonallyAdjustedNaive", *anchors.standard(), "HourOfWeek"]
    backtest["MedianOfThese"] = np.median(backtest[six], axis=1)
    return score.table(backtest, seconds)
