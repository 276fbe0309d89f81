"""Intervals of a sum of series: from sample paths, from the sum of their bounds, and of the sum forecast by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.forecast.origins import Origins
from benchmarks.forecast.sources import SOURCES, Case, scored_origins
from gpudemand.forecast import CombinedForecaster, scale_samples, sum_samples

TITLE = "Sums of series: coverage of 80 and 95 % intervals in percent, and mean width of the first relative to demand"
AIM = "coverage of samples within three points, no wider than the sum of bounds"
#: Source, panel and horizon; the first two traces are of the development half of the panels track.
PANELS = (
    ("Philly", "group D", 7),
    ("Atlas", "user D", 7),
    ("spot", "types h", 24),
    ("spot", "types D", 7),
    ("KTH-SP2", "user D", 7),
)
_LEVELS, _SAMPLES, _ORIGINS = (80, 95), 400, 40


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """A row a panel; ``--origins`` is the number of them."""
    most = _ORIGINS if origins is None or origins.count is None else origins.count
    rows = {}
    for source, name, h in PANELS:
        case = next(case for case in SOURCES[source](data) if case.name == name)
        scores = pd.concat([pd.DataFrame(_scores(case, int(origin), h)).T for origin in scored_origins(case, h, most)])
        rows[f"{source}, {name}, {h}"] = scores.groupby(level=[0, 1]).mean()
    return pd.concat(rows)


def _scores(case: Case, origin: int, h: int) -> dict[tuple[str, str], dict[str, float]]:
    """Coverage and width by method, of the sum of all series and of sums of every other one."""
    known, coming = case.panel.until(origin), case.panel.values[:, origin : origin + h]
    usage = known.long_frame(known.times, {"y": known.values}).dropna()
    groups = {"all": dict.fromkeys(known.ids, "0"), "halves": {name: str(i % 2) for i, name in enumerate(known.ids)}}
    methods, found = _methods(usage, known.freq, h), {}
    for which, group in groups.items():
        truth = pd.DataFrame(coming).groupby(known.ids.map(group)).sum().to_numpy().ravel()
        for method, bounds_of in methods.items():
            bounds = bounds_of(group)
            if bounds is not None:
                found[which, method] = _row(bounds, truth)
    return found


def _row(bounds: pd.DataFrame, truth: np.ndarray) -> dict[str, float]:  # type: ignore[type-arg]
    row = {}
    for level in _LEVELS:
        low, high = (bounds.filter(like=f"-{side}-{level}").to_numpy()[:, 0] for side in ("lo", "hi"))
        row[f"{level} %"] = 100 * float(((low <= truth) & (truth <= high)).mean())
        row.setdefault("width", float((high - low).mean() / truth.mean()))
    return row


def _methods(usage: pd.DataFrame, freq: object, h: int) -> dict[str, Any]:
    """Bounds of the sums of groups by each method, sorted by group and time; None where it has none."""
    total = usage.groupby("ds", as_index=False)["y"].sum().assign(unique_id="0")
    model, of_total = CombinedForecaster().fit(usage, freq), CombinedForecaster().fit(total, freq)
    samples, bounds = model.sample(h, _SAMPLES), model.predict(h, level=_LEVELS)
    scaled = scale_samples(samples, of_total.sample(h, _SAMPLES))
    alone = of_total.predict(h, level=_LEVELS)
    return {
        "samples": lambda group: sum_samples(samples, group, _LEVELS),
        "samples scaled to the total": lambda group: sum_samples(scaled, group, _LEVELS),
        "sum of bounds": lambda group: bounds.groupby([bounds["unique_id"].map(group), "ds"]).sum(numeric_only=True),
        "total by itself": lambda group: alone if len(set(group.values())) == 1 else None,
    }
