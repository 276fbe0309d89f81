"""GPUs held on Venus, per hour, a day ahead from every midnight."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.forecast import anchors, load, score
from benchmarks.forecast.origins import Origins
from gpudemand.forecast import CombinedForecaster, DoubleSeasonalSmoothing, RidgeAutoregression, SeasonalNaive

TITLE = "Venus, GPUs held, hourly, 24 h ahead, every midnight of August 2020"
AIM = "WAPE 12 % below the best of last value, yesterday, last week, last value + profile"
_AUGUST = Origins(first="2020-08-01", last="2020-08-31")


def methods() -> dict[str, score.Method]:
    """Methods of the package and the naive ones."""
    week = {"LastWeek": score.ours(SeasonalNaive(season_length=168), ())}
    models = [DoubleSeasonalSmoothing(), RidgeAutoregression(), CombinedForecaster()]
    return anchors.naive() | week | {type(model).__name__: score.ours(model) for model in models}


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """Score every method."""
    panel = load.venus(data)
    places = (origins or _AUGUST).of(panel, h=24, step=24)
    return score.table(*score.rolling(methods(), panel, places, h=24))
