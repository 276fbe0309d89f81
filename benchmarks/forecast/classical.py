"""Errors of AutoETS, AutoTheta and MSTL on the panels, made where statsforecast is installed and kept as data.

python -m benchmarks.forecast.classical --data DIR [--out data/forecast/classical.csv]

Fits take seconds a series, so each panel has few origins, and hourly panels of several series are left out, as are
those with a series that is too short for a method. A run adds the panels that the file does not hold yet.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.forecast import anchors
from benchmarks.forecast.sources import SOURCES, Case, scored_origins
from gpudemand.datasets.registry import bundled_path
from gpudemand.forecast.panel import season_length, week_length

METHODS = ("AutoETS", "AutoTheta", "MSTL")
#: Newest bins that are fitted, origins of a single series and of a panel, and most series of a panel.
_WINDOW, _SINGLE, _ORIGINS, _MOST_SERIES = 1000, 10, 5, 40
_FILE = "forecast/classical.csv"

Path_ = Callable[[np.ndarray, int], np.ndarray]  # type: ignore[type-arg]


def stored() -> pd.DataFrame:
    """Sums of absolute errors, a row a panel, horizon and origin (bins known), a column a method."""
    return pd.read_csv(bundled_path(_FILE), index_col=["panel", "h", "origin"])


def errors(case: Case, h: int, origins: np.ndarray) -> pd.DataFrame:  # type: ignore[type-arg]
    """Sums of absolute errors over the series and steps, a row an origin."""
    y = case.panel.values
    rows = {}
    for origin in origins:
        actual = y[:, origin : origin + h]
        found = {name: path(y[:, :origin], h) for name, path in _methods(case).items()}
        rows[origin] = {name: np.nansum(np.abs(np.maximum(path, 0) - actual)) for name, path in found.items()}
    return pd.DataFrame.from_dict(rows, orient="index")


def _methods(case: Case) -> dict[str, Path_]:
    from statsforecast.models import MSTL, AutoETS, AutoTheta

    season, week = case.season or season_length(case.panel.freq), week_length(case.panel.freq)
    # Additive seasons are better and faster here; longer ones than 24 the method does not have.
    models = (
        AutoETS(season_length=season, model="AZA" if season <= 24 else "AZN"),
        AutoTheta(season_length=season),
        MSTL(season_length=[season, week] if week > season else [season]),
    )
    return {name: anchors.every_series(model, _WINDOW) for name, model in zip(METHODS, models, strict=True)}


def main() -> None:
    """Add the panels that are missing in the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with series/ and traces/")
    parser.add_argument("--out", type=Path, default=Path("data") / _FILE)
    options = parser.parse_args()
    done = pd.read_csv(options.out)[["panel", "h"]] if options.out.exists() else pd.DataFrame({"panel": [], "h": []})
    known = set(done.itertuples(index=False, name=None))
    for source, make in SOURCES.items():
        for case in make(options.data):
            if len(case.panel.ids) <= (1 if case.panel.freq.freqstr == "h" else _MOST_SERIES):
                for h in case.horizons:
                    if (f"{source}, {case.name}", h) not in known:
                        _add(options.out, source, case, h)


def _add(out: Path, source: str, case: Case, h: int) -> None:
    scored = scored_origins(case, h)
    most = _SINGLE if len(case.panel.ids) == 1 else _ORIGINS
    try:
        table = errors(case, h, scored[np.unique(np.linspace(0, scored.size - 1, most).round().astype(int))])
    except Exception as refused:  # statsforecast raises nothing narrower
        print(f"{source}, {case.name}, {h} is left out: {refused}")
        return
    table = table.rename_axis("origin").reset_index()
    table.insert(0, "h", h)
    table.insert(0, "panel", f"{source}, {case.name}")
    out.parent.mkdir(parents=True, exist_ok=True)
    table.round(4).to_csv(out, mode="a", header=not out.exists(), index=False)


if __name__ == "__main__":
    main()
