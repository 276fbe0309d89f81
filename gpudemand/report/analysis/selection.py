"""How much next: which forecaster to trust, chosen on earlier windows and scored on later ones."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from gpudemand._validation import InputError
from gpudemand.forecast import (
    ETS,
    CombinedForecaster,
    Naive,
    SeasonallyAdjustedNaive,
    SeasonalNaive,
    cross_validation,
)
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.metrics import evaluate

NAIVE = (Naive, SeasonalNaive, SeasonallyAdjustedNaive)
CANDIDATES = (*NAIVE, ETS, CombinedForecaster)
NAIVE_NAMES = [model.__name__ for model in NAIVE]
#: Bins before the first window from which a blend of methods has something to weigh them by.
_BLEND_FROM = 28
#: Rows times horizon above which the blend, run at many origins, would take minutes.
_BLEND_CELLS = 1.5e6
_METRICS = ("wape", "rmsse", "bias", "coverage")
#: Levels in per cent; the outer ones are there for the P90, P95 and P99 of a plan.
LEVELS = (50.0, 80.0, 90.0, 95.0, 98.0)
SCORED_LEVELS = (80, 95)
_MOST_WINDOWS = 6


@dataclass(frozen=True)
class Windows:
    """Rolling origins of a backtest: the earlier ones choose the model, the later ones score it."""

    choose: int
    score: int

    @property
    def total(self) -> int:
        """All windows."""
        return self.choose + self.score


def rolling_windows(n_bins: int, horizon: int) -> Windows:
    """Lay as many windows of one horizon over the end of a log as leave enough to learn from, at most six.

    Parameters
    ----------
    n_bins : int
        Length of the log.
    horizon : int
        Length of a window.

    Returns
    -------
    Windows
        At least one to choose and one to score; a third of all of them score.

    Raises
    ------
    InputError
        If the log is shorter than four horizons: two to learn from, one to choose on, one to score on.

    Examples
    --------
    >>> rolling_windows(270, 28)
    Windows(choose=4, score=2)
    >>> rolling_windows(100, 28)
    Traceback (most recent call last):
        ...
    gpudemand._validation.InputError: horizon 28 needs at least 112 bins of history; the log has 100; ...
    """
    needed = max(4 * horizon, 8)
    if n_bins < needed:
        shorter = f"use --horizon {n_bins // 4} or less, or a finer --freq" if n_bins >= 8 else "use a finer --freq"
        raise InputError(f"horizon {horizon} needs at least {needed} bins of history; the log has {n_bins}; {shorter}.")
    total = min(_MOST_WINDOWS, (n_bins - 2 * horizon) // horizon)
    score = max(1, total // 3)
    return Windows(total - score, score)


@dataclass(frozen=True)
class Outlook:
    """A chosen forecaster, how it and the others did, and what it says about the time ahead.

    Parameters
    ----------
    model : str
        The candidate with the smallest WAPE on the windows that choose, both series pooled.
    windows : Windows
        How many windows chose and scored.
    models : DataFrame
        A row per series and model: ``series``, ``model``, ``naive``, ``wape_choosing`` (windows that chose), then
        ``wape``, ``rmsse``, ``bias``, ``coverage_80`` and ``coverage_95`` on the windows that nothing was chosen on.
    backtest : DataFrame
        ``unique_id``, ``ds``, ``cutoff``, ``y`` and the models' columns.
    forecast, baseline : DataFrame
        The chosen model's forecast at `LEVELS`, and that of the best naive method.
    """

    model: str
    windows: Windows
    models: pd.DataFrame
    backtest: pd.DataFrame
    forecast: pd.DataFrame
    baseline: pd.DataFrame

    def score(self, series: str, model: str | None = None) -> pd.Series:
        """Row of `models` for one series and the chosen (or another) model."""
        rows = self.models[(self.models["series"] == series) & (self.models["model"] == (model or self.model))]
        return rows.iloc[0]

    def best_naive(self, series: str) -> pd.Series:
        """Row of `models` for the naive method that did best on the scored windows: the hardest one to beat."""
        rows = self.models[(self.models["series"] == series) & self.models["naive"]]
        return rows.sort_values("wape", kind="stable").iloc[0]


def look_ahead(usage: pd.DataFrame, horizon: int, service_level: float = 0.95) -> Outlook:
    """Choose a forecaster on rolling origins, score it on later ones, and forecast with it.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``, without a bin that is only partly covered.
    horizon : int
        Bins to look ahead.
    service_level : float, default=0.95
        Quantile that the forecast has to hold, besides `LEVELS`.

    Returns
    -------
    Outlook

    Raises
    ------
    InputError
        If the history is too short for the horizon.
    """
    windows = rolling_windows(usage["ds"].nunique(), horizon)
    backtest, scores = past_windows(usage, horizon, windows)
    model = best_of(backtest[~scores])
    naive = str(_wapes(backtest[scores])[NAIVE_NAMES].idxmin())
    models = compare(backtest[~scores], backtest[scores], usage)
    level = levels_for(service_level)
    forecasts = (named(name).fit(usage).predict(horizon, level=level) for name in (model, naive))
    return Outlook(model, windows, models, backtest, *forecasts)


def levels_for(service_level: float) -> list[float]:
    """`LEVELS`, and the interval whose upper bound is the service level.

    Examples
    --------
    >>> levels_for(0.995)
    [50.0, 80.0, 90.0, 95.0, 98.0, 99.0]
    """
    return sorted({*LEVELS, round(100 * (2 * service_level - 1), 6)})


def past_windows(usage: pd.DataFrame, horizon: int, windows: Windows) -> tuple[pd.DataFrame, pd.Series]:
    """Run the candidates at the origins of all windows.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``.
    horizon : int
        Length of a window in bins.
    windows : Windows

    Returns
    -------
    backtest : DataFrame
        See `gpudemand.forecast.cross_validation`.
    scores : Series of bool
        Rows of the windows that score; the others choose.
    """
    candidates = candidates_for(usage, horizon, windows)
    backtest = cross_validation(
        candidates, usage, h=horizon, n_windows=windows.total, step_size=horizon, level=SCORED_LEVELS
    )
    return backtest, scoring_rows(backtest, windows)


def scoring_rows(backtest: pd.DataFrame, windows: Windows) -> pd.Series:
    """Rows of a backtest that belong to the windows that score, as a Series of bool."""
    cutoffs = backtest["cutoff"].drop_duplicates().sort_values()
    return backtest["cutoff"].isin(cutoffs.tail(windows.score))


def best_of(backtest: pd.DataFrame) -> str:
    """Name of the model with the smallest WAPE, all series pooled."""
    return str(_wapes(backtest).idxmin())


def candidates_for(usage: pd.DataFrame, horizon: int, windows: Windows) -> list[Forecaster]:
    """Make the candidates, without the blend where that has too little to weigh methods by, or would take minutes.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``.
    horizon : int
        Length of a window in bins.
    windows : Windows

    Returns
    -------
    list of Forecaster
    """
    before = usage["ds"].nunique() - windows.total * horizon
    blends = before >= _BLEND_FROM and len(usage) * horizon <= _BLEND_CELLS
    return [candidate() for candidate in CANDIDATES if blends or candidate is not CombinedForecaster]


def named(model: str) -> Forecaster:
    """Make the candidate of a name."""
    return {candidate.__name__: candidate for candidate in CANDIDATES}[model]()


def _wapes(backtest: pd.DataFrame) -> pd.Series:
    """WAPE of each model, all series pooled; a model that cannot be scored comes last."""
    return evaluate(backtest, ["wape"])["wape"].fillna(float("inf"))


def compare(choosing: pd.DataFrame, scoring: pd.DataFrame, history: pd.DataFrame) -> pd.DataFrame:
    """Put the candidates side by side, for each series; see `Outlook`.

    Parameters
    ----------
    choosing, scoring : DataFrame
        The earlier and the later part of a backtest.
    history : DataFrame
        ``unique_id``, ``ds``, ``y``: gives RMSSE its scale.

    Returns
    -------
    DataFrame
    """
    scores = evaluate(scoring, _METRICS, history=history, by="unique_id")
    scores.insert(0, "wape_choosing", evaluate(choosing, ["wape"], by="unique_id")["wape"])
    models = scores.rename_axis(["model", "series"]).reset_index()
    models.insert(1, "naive", models["model"].isin(NAIVE_NAMES))
    order = ["series", *[name for name in models.columns if name != "series"]]
    return models[order].sort_values(["series", "wape_choosing"], kind="stable", ignore_index=True)
