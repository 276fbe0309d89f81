"""Model selection for the forecast of the total: rolling origins, earlier ones for selection, later for evaluation."""

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
#: Fewest bins before the first window from which combination weights are estimated.
_MIN_COMBINATION_BINS = 28
#: Rows times horizon above which backtesting the combination takes minutes.
_MAX_COMBINATION_CELLS = 1.5e6
_METRICS = ("wape", "rmsse", "bias", "coverage")
#: Interval levels in percent; the outer ones give the P90, P95 and P99 of a plan.
LEVELS = (50.0, 80.0, 90.0, 95.0, 98.0)
SCORED_LEVELS = (80, 95)
_MAX_WINDOWS = 6


@dataclass(frozen=True)
class BacktestWindows:
    """Number of rolling origins: the earlier ones select the model, the later ones evaluate it."""

    n_selection: int
    n_evaluation: int

    @property
    def n_total(self) -> int:
        """All windows."""
        return self.n_selection + self.n_evaluation


def split_windows(n_bins: int, horizon: int) -> BacktestWindows:
    """Number of selection and evaluation windows that fit into a history, at most six.

    Parameters
    ----------
    n_bins : int
        Length of the history.
    horizon : int
        Length of a window.

    Returns
    -------
    BacktestWindows
        At least one of either; a third of all windows evaluate.

    Raises
    ------
    InputError
        If the history is shorter than four horizons: two to fit on, one to select on, one to evaluate on.

    Examples
    --------
    >>> split_windows(270, 28)
    BacktestWindows(n_selection=4, n_evaluation=2)
    >>> split_windows(100, 28)
    Traceback (most recent call last):
        ...
    gpudemand._validation.InputError: horizon 28 needs at least 112 bins of history; the log has 100; ...
    """
    needed = max(4 * horizon, 8)
    if n_bins < needed:
        shorter = f"use --horizon {n_bins // 4} or less, or a finer --freq" if n_bins >= 8 else "use a finer --freq"
        raise InputError(f"horizon {horizon} needs at least {needed} bins of history; the log has {n_bins}; {shorter}.")
    total = min(_MAX_WINDOWS, (n_bins - 2 * horizon) // horizon)
    n_evaluation = max(1, total // 3)
    return BacktestWindows(total - n_evaluation, n_evaluation)


@dataclass(frozen=True)
class SelectedForecast:
    """A selected model, its backtest and those of the other candidates, and its forecast.

    Parameters
    ----------
    model : str
        The candidate with the smallest WAPE on the selection windows, both series pooled.
    windows : BacktestWindows
    scores : DataFrame
        A row per series and model: ``series``, ``model``, ``naive``, ``wape_selection`` (selection windows), then
        ``wape``, ``rmsse``, ``bias``, ``coverage_80`` and ``coverage_95`` on the evaluation windows.
    backtest : DataFrame
        ``unique_id``, ``ds``, ``cutoff``, ``y`` and the models' columns.
    forecast, baseline : DataFrame
        Forecast of the selected model at `LEVELS`, and that of the best naive method.
    """

    model: str
    windows: BacktestWindows
    scores: pd.DataFrame
    backtest: pd.DataFrame
    forecast: pd.DataFrame
    baseline: pd.DataFrame

    def score(self, series: str) -> pd.Series:
        """Row of `scores` for one series and the selected model."""
        return self.scores[(self.scores["series"] == series) & (self.scores["model"] == self.model)].iloc[0]

    def best_naive(self, series: str) -> pd.Series:
        """Row of `scores` for the naive method with the smallest WAPE on the evaluation windows."""
        rows = self.scores[(self.scores["series"] == series) & self.scores["naive"]]
        return rows.sort_values("wape", kind="stable").iloc[0]


def select_and_forecast(usage: pd.DataFrame, horizon: int, service_level: float = 0.95) -> SelectedForecast:
    """Select a forecaster on rolling origins, evaluate it on later ones, and forecast with it.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``; whole bins only.
    horizon : int
        Bins to forecast.
    service_level : float, default=0.95
        Quantile that the forecast has to hold, besides `LEVELS`.

    Returns
    -------
    SelectedForecast

    Raises
    ------
    InputError
        If the history is too short for the horizon.
    """
    windows = split_windows(usage["ds"].nunique(), horizon)
    backtest, evaluates = run_backtest(usage, horizon, windows)
    model = best_model(backtest[~evaluates])
    naive = str(_wape_by_model(backtest[evaluates])[NAIVE_NAMES].idxmin())
    scores = _score(backtest[~evaluates], backtest[evaluates], usage)
    level = levels_for(service_level)
    forecasts = (make_candidate(name).fit(usage).predict(horizon, level=level) for name in (model, naive))
    return SelectedForecast(model, windows, scores, backtest, *forecasts)


def levels_for(service_level: float) -> list[float]:
    """`LEVELS`, and the level of the interval whose upper bound is the service level.

    Examples
    --------
    >>> levels_for(0.995)
    [50.0, 80.0, 90.0, 95.0, 98.0, 99.0]
    """
    return sorted({*LEVELS, round(100 * (2 * service_level - 1), 6)})


def run_backtest(usage: pd.DataFrame, horizon: int, windows: BacktestWindows) -> tuple[pd.DataFrame, pd.Series]:
    """Backtest the candidates at the origins of all windows.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``.
    horizon : int
        Length of a window in bins.
    windows : BacktestWindows

    Returns
    -------
    backtest : DataFrame
        See `gpudemand.forecast.cross_validation`.
    evaluates : Series of bool
        Rows of the evaluation windows; the others are for selection.
    """
    candidates = make_candidates(usage, horizon, windows)
    backtest = cross_validation(
        candidates, usage, h=horizon, n_windows=windows.n_total, step_size=horizon, level=SCORED_LEVELS
    )
    return backtest, evaluation_rows(backtest, windows)


def evaluation_rows(backtest: pd.DataFrame, windows: BacktestWindows) -> pd.Series:
    """Whether each row of a backtest belongs to an evaluation window, as a Series of bool."""
    cutoffs = backtest["cutoff"].drop_duplicates().sort_values()
    return backtest["cutoff"].isin(cutoffs.tail(windows.n_evaluation))


def best_model(backtest: pd.DataFrame) -> str:
    """Name of the model with the smallest WAPE, all series pooled."""
    return str(_wape_by_model(backtest).idxmin())


def make_candidates(usage: pd.DataFrame, horizon: int, windows: BacktestWindows) -> list[Forecaster]:
    """Construct the candidates; without the combination where the history is too short or too large for it.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``.
    horizon : int
        Length of a window in bins.
    windows : BacktestWindows

    Returns
    -------
    list of Forecaster
    """
    n_before = usage["ds"].nunique() - windows.n_total * horizon
    combines = n_before >= _MIN_COMBINATION_BINS and len(usage) * horizon <= _MAX_COMBINATION_CELLS
    return [candidate() for candidate in CANDIDATES if combines or candidate is not CombinedForecaster]


def make_candidate(model: str) -> Forecaster:
    """Construct the candidate of a name."""
    return {candidate.__name__: candidate for candidate in CANDIDATES}[model]()


def _wape_by_model(backtest: pd.DataFrame) -> pd.Series:
    """WAPE of each model, all series pooled; infinite where it is undefined."""
    return evaluate(backtest, ["wape"])["wape"].fillna(float("inf"))


def _score(selection: pd.DataFrame, evaluation: pd.DataFrame, history: pd.DataFrame) -> pd.DataFrame:
    """`SelectedForecast.scores`; `history` gives RMSSE its scale."""
    scores = evaluate(evaluation, _METRICS, history=history, by="unique_id")
    scores.insert(0, "wape_selection", evaluate(selection, ["wape"], by="unique_id")["wape"])
    table = scores.rename_axis(["model", "series"]).reset_index()
    table.insert(1, "naive", table["model"].isin(NAIVE_NAMES))
    order = ["series", *[name for name in table.columns if name != "series"]]
    return table[order].sort_values(["series", "wape_selection"], kind="stable", ignore_index=True)
