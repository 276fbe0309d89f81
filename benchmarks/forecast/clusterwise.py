"""Clusterwise forecasts beside one global model and beside random and simple clusters, errors pooled."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.forecast import load, score, users
from benchmarks.forecast.origins import Origins
from gpudemand.forecast import ClusterwiseForecaster, Panel, TemporalFactorization
from gpudemand.forecast.clusterwise.initial_partition import BaselineSegmenter
from gpudemand.metrics import evaluate
from gpudemand.segments import TopologicalSegmenter

TITLE = "Clusterwise forecasts: RMSE pooled over users, and MASE"
AIM = "never more than 1 % worse than one global model, and at least 5 % better on two of the four sets"


class Case(NamedTuple):
    """Horizon, origins and season of a data set."""

    h: int
    n_origins: int
    step: int
    season: int


SETS = {
    "CDNOW weekly": load.cdnow,
    "GenTD26 daily": users.gentd,
    "Philly hourly": users.philly,
    "M4 hourly": lambda data: load.m4_hourly(data)[0],
}
CASES = {
    "CDNOW weekly": Case(10, 1, 10, 1),
    "GenTD26 daily": Case(3, 4, 1, 1),
    "Philly hourly": Case(24, 3, 24, 24),
    # Two similar series dominate the squared error, so several origins are averaged.
    "M4 hourly": Case(48, 3, 48, 24),
}


def methods(h: int, season: int) -> dict[str, score.Method]:
    """Global models, clusterwise regression, and controls with a given initial partition."""
    options = {"season_length": max(season, 7)}
    given = {
        "random clusters": BaselineSegmenter("random", 8, **options),
        "RFM clusters": BaselineSegmenter("rfm", 8, **options),
        "spectrum clusters": BaselineSegmenter("spectrum", 8, **options),
        "topology segments": TopologicalSegmenter(random_state=0),
    }
    return {
        "zero": score.point(lambda y, h: np.zeros((len(y), h))),
        "factorization": score.ours(TemporalFactorization(), ()),
        "global regression": score.ours(ClusterwiseForecaster(n_clusters=(), horizon=h), ()),
        "clusterwise": score.ours(ClusterwiseForecaster(horizon=h), ()),
        **{name: score.ours(ClusterwiseForecaster(start, horizon=h), ()) for name, start in given.items()},
    }


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """Score every method on every set; topology is left out where there are more than 1,000 users."""
    return pd.concat({name: _scores(panel, CASES[name], origins) for name, panel in load.available(SETS, data)})


def _scores(panel: Panel, case: Case, origins: Origins | None) -> pd.DataFrame:
    chosen = methods(case.h, case.season)
    if len(panel.ids) > 1000:
        chosen.pop("topology segments")
    places = (origins or Origins(count=case.n_origins)).of(panel, case.h, case.step, phase=None)
    backtest, seconds = score.rolling(chosen, panel, places, case.h)
    history = panel.until(places[0])
    usage = history.long_frame(history.times, {"y": history.values}).dropna(subset="y")
    table = evaluate(backtest, ["rmse", "mae", "bias", "mase"], history=usage, season_length=case.season)
    for name, other in product(("rmse", "mase"), ("factorization", "global regression")):
        table[f"{name} / {other}"] = table[name] / table.loc[other, name]
    return table.assign(seconds=pd.Series(seconds))
