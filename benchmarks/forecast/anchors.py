"""Standard methods from statsforecast where it is installed, else from statsmodels."""

from __future__ import annotations

import warnings
from importlib.util import find_spec

import numpy as np

from benchmarks.forecast.score import Method, ours, point
from gpudemand.forecast import ETS, Naive, SeasonallyAdjustedNaive, SeasonalNaive

HAS_STATSFORECAST = find_spec("statsforecast") is not None
NOTE = "" if HAS_STATSFORECAST else "statsforecast is not installed: methods of statsmodels are used instead."


def naive(n_seasons: int = 28) -> dict[str, Method]:
    """Naive methods."""
    return {
        "Naive": ours(Naive(), ()),
        "SeasonalNaive": ours(SeasonalNaive(), ()),
        "SeasonallyAdjustedNaive": ours(SeasonallyAdjustedNaive(n_seasons=n_seasons), ()),
    }


def standard(window: int | None = None, season: int = 24, week: int = 168) -> dict[str, Method]:
    """AutoETS (additive, which is better and faster here), Theta and MSTL, or ETS of statsmodels."""
    if not HAS_STATSFORECAST:
        return {"ETS": ours(ETS(season_length=season), (), window)}
    from statsforecast.models import MSTL, AutoETS, AutoTheta

    models = {
        "AutoETS": AutoETS(season_length=season, model="AZA"),
        "Theta": AutoTheta(season_length=season),
        "MSTL": MSTL(season_length=[season, week]),
    }
    return {name: point(every_series(model, window)) for name, model in models.items()}


def every_series(model, window: int | None):  # type: ignore[no-untyped-def]
    """A statsforecast model as a function from a matrix of series to forecasts."""

    def path(y: np.ndarray, h: int) -> np.ndarray:  # type: ignore[type-arg]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.vstack([model.forecast(_recent(row, window), h)["mean"] for row in y])

    return path


def _recent(row: np.ndarray, window: int | None) -> np.ndarray:  # type: ignore[type-arg]
    row = row[~np.isnan(row)]
    return row if window is None else row[-window:]
