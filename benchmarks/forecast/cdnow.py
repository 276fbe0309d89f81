"""Weekly spend of customers most of whom buy once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.forecast import load, score
from benchmarks.forecast.origins import Origins
from gpudemand.forecast import SBA, TSB, CombinedForecaster, HistoricMean, Naive, RidgeAutoregression, Zero
from gpudemand.metrics import rmse, wape

TITLE = "CDNOW, weekly spend of each customer, the newest 10 weeks"
AIM = "RMSE below all others, bias within 0.10, WAPE of the sum at most 0.10"


def methods() -> dict[str, score.Method]:
    """Methods of the package, and standard ones for intermittent demand."""
    simple = {
        "Zero": Zero(),
        "Mean": HistoricMean(),
        "MeanOf26Weeks": HistoricMean(26),
        "Naive": Naive(),
        "TSB": TSB(),
        "SBA": SBA(),
    }
    own = {"RidgeAutoregression": RidgeAutoregression("level", penalty=3.0, series_penalty=1e4)}
    found = {name: score.ours(model, ()) for name, model in {**simple, **own}.items()}
    return found | {"CombinedForecaster": score.ours(CombinedForecaster())}


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """Score every method, the sum of all customers too."""
    panel = load.cdnow(data)
    places = (origins or Origins(count=1)).of(panel, h=10, step=10, phase=None)
    backtest, seconds = score.rolling(methods(), panel, places, h=10)
    scores = score.table(backtest, seconds, ("rmse", "bias", "pinball", "coverage"))
    sums = backtest.drop(columns="unique_id").groupby(["cutoff", "ds"]).sum()
    extra = [_extra(backtest, sums, name) for name in scores.index]
    table = pd.concat([scores, pd.DataFrame(extra, index=scores.index)], axis=1)
    # The best constant forecast of the sum.
    best = sums["y"].groupby("cutoff").transform("median")
    table.loc["best level in hindsight", "wape_of_sum"] = wape(sums["y"].to_numpy(), best.to_numpy())
    return table


def _extra(backtest: pd.DataFrame, sums: pd.DataFrame, name: str) -> dict[str, float]:
    # A single purchase of 99 discs dominates the squared errors, so they are also given without it.
    others = backtest["y"] < backtest["y"].max()
    return {
        "rmse_without_largest": rmse(*(backtest.loc[others, column].to_numpy(dtype=float) for column in ("y", name))),
        "wape_of_sum": wape(*(np.asarray(sums[column], dtype=float) for column in ("y", name))),
    }
