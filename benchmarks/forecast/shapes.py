"""Intervals from errors of a shape of their own where a series has one, beside those of one shape for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.forecast.origins import Origins
from benchmarks.forecast.panels import development_half
from benchmarks.forecast.sources import SOURCES, Case, late_origins, origin_grid
from gpudemand.forecast import CombinedForecaster, Forecaster, HistoricMean
from gpudemand.forecast.intervals import PastErrors, prediction_intervals
from gpudemand.forecast.panel import season_length

TITLE = "Intervals with quantiles of errors between a series' own and those of all, relative to those of all alone"
AIM = "interval scores no worse on the mean of panels, and the coverage of single series nearer to its level"
_LEVELS = (50, 80, 95)
#: Origins that are scored of a panel, and earlier ones behind an interval.
_ORIGINS, _PAST = 16, 60
Array = np.ndarray  # type: ignore[type-arg]


class _OneShape(PastErrors):
    """Errors of one shape for all series."""

    @staticmethod
    def _own_weight(own: Array, pooled: Array, sizes: Array) -> Array:
        return np.zeros(len(own))


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """A row a method and half: geometric means of ratios of interval scores, and misses of coverage by series."""
    most = _ORIGINS if origins is None or origins.count is None else origins.count
    scores = pd.DataFrame(dict(_rows(data, most))).T
    scores.index.names = ["method", "half", "panel"]
    ratios = scores.filter(like="score").apply(np.log).groupby(["method", "half"]).mean().apply(np.exp)
    return ratios.join(scores.drop(columns=ratios.columns).groupby(["method", "half"]).mean())


def _rows(data: Path, most: int) -> Iterator[tuple[tuple[str, str, str], dict[str, float]]]:
    development = development_half()
    for source, make in SOURCES.items():
        half = "development" if source.split()[0] in development else "scoring"
        for case in make(data):
            if len(case.panel.ids) > 1:
                for h in case.horizons:
                    for model in (CombinedForecaster(), HistoricMean()):
                        name = (type(model).__name__, half, f"{source}, {case.name}, {h}")
                        yield name, _score(model, case, h, most)


def _score(model: Forecaster, case: Case, h: int, most: int) -> dict[str, float]:
    panel, grid = case.panel, origin_grid(case, h)
    y, steps, floor = panel.values, np.arange(h), np.where(np.nanmin(panel.values, axis=1) < 0, -np.inf, 0.0)[:, None]
    if isinstance(model, CombinedForecaster):
        model = CombinedForecaster(season_length=case.season or season_length(panel.freq))
    paths = model.fit(panel.long_frame(panel.times, {"y": y}), freq=panel.freq)._paths(y, grid, h)
    actual = np.concatenate([y, np.full((len(y), h), np.nan)], axis=1)[:, grid[:, None] + steps]
    places = late_origins(case, grid)
    places = places[places >= min(_PAST, grid.size // 2)]
    bounds: dict[str, list[dict[str, Array]]] = {"own": [], "one": []}
    chosen = places[np.unique(np.linspace(0, places.size - 1, min(most, places.size)).round().astype(int))]
    for place in chosen:
        past = np.arange(max(place - _PAST, 0), place)
        errors = np.where(grid[past, None] + steps < grid[place], actual[:, past] - paths[:, past], np.nan)
        level = np.nanmean(np.abs(y[:, : grid[place]]), axis=1)
        for name, kind in (("own", PastErrors), ("one", _OneShape)):
            known = kind(errors, grid[past], level)
            bounds[name].append(prediction_intervals(np.maximum(paths[:, place], floor), known, _LEVELS, floor))
    truth, found = actual[:, chosen], {}
    for level in _LEVELS:
        scores = {}
        for name, parts in bounds.items():
            low, high = (np.stack([part[f"{end}-{level}"] for part in parts], axis=1) for end in ("lo", "hi"))
            outside = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
            scores[name] = float(np.nanmean(high - low + outside / (0.5 - level / 200)))
            inside = np.nanmean(np.where(np.isnan(truth), np.nan, outside == 0), axis=(1, 2))
            found[f"miss {level}, {name}"] = float(100 * np.nanmean(np.abs(inside - level / 100)))
            found[f"coverage {level}, {name}"] = float(100 * np.nanmean(inside))
        found[f"score {level}"] = scores["own"] / scores["one"]
    return found
