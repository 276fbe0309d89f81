"""Clusterwise forecasts beside naive, global and combined ones, and beside clusters of other origins; errors pooled."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.forecast import load, score, users
from benchmarks.forecast.origins import Origins
from gpudemand.forecast import (
    ClusterwiseFactorization,
    ClusterwiseForecaster,
    CombinedForecaster,
    HistoricMean,
    Naive,
    Panel,
    SeasonallyAdjustedNaive,
    SeasonalNaive,
    TemporalFactorization,
    Zero,
)
from gpudemand.metrics import evaluate
from gpudemand.segments import TopologicalSegmenter

TITLE = "Clusterwise forecasts: RMSE, MASE, WAPE and bias, pooled over users and origins"
AIM = "RMSE at most 1 % above the better of one regression for all and the factorization alone, on every set"


class Case(NamedTuple):
    """Horizon, origins and season of a data set, and the bins in the mean of the last seasons."""

    h: int
    n_origins: int
    step: int
    season: int
    mean: int


SETS = {
    "CDNOW weekly": load.cdnow,
    "GenTD26 daily": users.gentd,
    "Philly hourly": users.philly,
    "Venus hourly": users.venus,
    "M4 hourly": lambda data: load.m4_hourly(data)[0],
}
CASES = {
    "CDNOW weekly": Case(10, 1, 10, 1, 28),
    "GenTD26 daily": Case(3, 4, 1, 1, 28),
    "Philly hourly": Case(24, 3, 24, 24, 168),
    "Venus hourly": Case(24, 3, 24, 24, 168),
    # Two similar series dominate the squared error, so several origins are averaged.
    "M4 hourly": Case(48, 3, 48, 24, 168),
}


def methods(case: Case, ids: pd.Index) -> dict[str, score.Method]:
    """Controls without clusters, clusterwise regression, and the same from given initial partitions."""
    given = {
        "random clusters": pd.Series(np.random.default_rng(0).integers(0, 4, len(ids)), ids),
        "topology segments": TopologicalSegmenter(random_state=0),
    }
    models = {
        "zero": Zero(),
        "last value": Naive(),
        "last season": SeasonalNaive(case.season),
        "last value + season": SeasonallyAdjustedNaive(case.season),
        "mean of the last seasons": HistoricMean(case.mean),
        "combined": CombinedForecaster(),
        "factorization alone": TemporalFactorization(),
        "factorization, no residuals": TemporalFactorization(residual_penalty=None),
        "factorization by random clusters": ClusterwiseFactorization(segmenter=given["random clusters"], max_passes=0),
        "factorization by topology": ClusterwiseFactorization(segmenter=given["topology segments"], max_passes=0),
        "the same, reassigned": ClusterwiseFactorization(segmenter=given["topology segments"]),
        "clusterwise factorization": ClusterwiseFactorization(4),
        "one regression for all": ClusterwiseForecaster(n_clusters=(), horizon=case.h),
        "clusterwise": ClusterwiseForecaster(horizon=case.h),
        **{f"clusterwise from {name}": ClusterwiseForecaster(start, horizon=case.h) for name, start in given.items()},
    }
    return {name: score.ours(model, ()) for name, model in models.items()}


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """Score every method on every set."""
    return pd.concat({name: scores(panel, CASES[name], origins) for name, panel in load.available(SETS, data)})


def scores(panel: Panel, case: Case, origins: Origins | None = None) -> pd.DataFrame:
    """Pooled errors of every method, its RMSE relative to the better global method, and seconds.

    ``moved`` is the share of the users whom the reassignment takes out of the segments of topology.
    """
    places = (origins or Origins(count=case.n_origins)).of(panel, case.h, case.step, phase=None)
    backtest, seconds = score.rolling(methods(case, panel.ids), panel, places, case.h)
    history = panel.until(places[0])
    usage = history.long_frame(history.times, {"y": history.values}).dropna(subset="y")
    table = evaluate(backtest, ["rmse", "mase", "wape", "bias"], history=usage, season_length=case.season)
    moved = ClusterwiseFactorization(segmenter=TopologicalSegmenter(random_state=0)).fit(usage, freq=panel.freq)
    table.loc["the same, reassigned", "moved"] = moved.n_moved_ / len(moved.fitted_.clusters.labels)
    anchor = table.loc[["factorization alone", "one regression for all"], "rmse"].min()
    return table.assign(**{"rmse / better global": table["rmse"] / anchor, "seconds": pd.Series(seconds)})
