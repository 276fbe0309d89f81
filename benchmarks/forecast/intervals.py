"""Intervals of `ETS`, whose parameters are fitted at few origins, beside those of a fit at each, on public panels."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.forecast.origins import Origins
from benchmarks.forecast.score import LEVELS, ours
from benchmarks.forecast.sources import SOURCES, Case, scored_origins
from gpudemand.forecast import ETS
from gpudemand.forecast.smoothing import _fitted

TITLE = "Intervals of exponential smoothing, 42 panels: fitted at few earlier origins, and at each"
AIM = "interval scores within 2 %, coverage within a point, in a third of the processor time"
#: Series of a panel, the largest of its first half, and its origins that are scored.
_SERIES, _ORIGINS = 3, 3


class Refitted(ETS):
    """Exponential smoothing whose errors behind the intervals are those of a fit at each origin."""

    def _past_paths(self, y: np.ndarray, origins: np.ndarray, h: int) -> np.ndarray:  # type: ignore[type-arg]
        # One origin is the forecast itself.
        return super()._past_paths(y, origins, h) if origins.size == 1 else self._paths(y, origins, h)


class _Score(NamedTuple):
    """Coverage in percent and mean interval score, relative to demand, by level; processor seconds."""

    coverage: dict[int, float]
    score: dict[int, float]
    seconds: float


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """A row a panel, and their means: of the ratios of scores the geometric one, with its standard error."""
    table = pd.DataFrame(dict(_rows(data, origins.count if origins and origins.count else _ORIGINS))).T
    ratios = np.log(table.filter(like="score"))
    summary = table.mean()
    summary[ratios.columns] = np.exp(ratios.mean())
    error = (ratios.std() / np.sqrt(len(table))).reindex(table.columns)
    return pd.concat([table, pd.DataFrame({"mean": summary, "standard error": error}).T])


def _rows(data: Path, most: int) -> Iterator[tuple[str, dict[str, float]]]:
    for source, make in SOURCES.items():
        for case in make(data):
            few, each = (_score(case, model, most) for model in (ETS, Refitted))
            row = {f"score {level}, few / each": few.score[level] / each.score[level] for level in LEVELS}
            for name, of in (("few", few), ("each", each)):
                row |= {f"coverage {level}, {name}": of.coverage[level] for level in LEVELS}
                row[f"seconds, {name}"] = of.seconds
            yield f"{source}, {case.name}", row


def _score(case: Case, model: type[ETS], most: int) -> _Score:
    _fitted.cache_clear()
    h, panel = case.horizons[min(1, len(case.horizons) - 1)], case.panel
    half = np.nansum(panel.values[:, : panel.values.shape[1] // 2], axis=1)
    largest = np.argsort(-half, kind="stable")[:_SERIES]
    panel = replace(panel, ids=panel.ids[largest], values=panel.values[largest])
    inside, scores, began = {level: [] for level in LEVELS}, {level: [] for level in LEVELS}, time.process_time()
    for origin in scored_origins(case._replace(panel=panel), h, most):
        known = panel.until(int(origin))
        found, actual = ours(model(season_length=case.season))(known, h), panel.values[:, origin : origin + h]
        for level in LEVELS:
            low, high, tail = found[f"lo-{level}"], found[f"hi-{level}"], 2 / (1 - level / 100)
            missed = np.maximum(low - actual, 0) + np.maximum(actual - high, 0)
            seen = ~np.isnan(actual)
            inside[level].append((missed == 0)[seen])
            scores[level].append((high - low + tail * missed)[seen])
    unit = np.nanmean(np.abs(panel.values))
    return _Score(
        {level: 100 * float(np.concatenate(found).mean()) for level, found in inside.items()},
        {level: float(np.concatenate(found).mean() / unit) for level, found in scores.items()},
        time.process_time() - began,
    )
