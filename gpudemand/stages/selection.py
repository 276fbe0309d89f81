"""Model selection for the forecast of the total: rolling origins, earlier ones for selection, later for evaluation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from sklearn.base import clone

from gpudemand._validation import InputError
from gpudemand.forecast import (
    ETS,
    CombinedForecaster,
    HorizonForecaster,
    Naive,
    SeasonallyAdjustedNaive,
    SeasonalNaive,
    ShortHistoryWarning,
    cross_validation,
)
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.panel import infer_freq, week_length
from gpudemand.metrics import evaluate, model_names

NAIVE = (Naive, SeasonalNaive, SeasonallyAdjustedNaive)
CANDIDATES = (*NAIVE, ETS, CombinedForecaster, HorizonForecaster)
#: Weeks ahead up to which the combination forecasts, and from which on the forecaster of long horizons.
_WEEKS = 4
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
    """Rolling origins: the earlier ones select the model, the later ones evaluate it.

    Parameters
    ----------
    n_selection, n_evaluation : int
    step : int, optional
        Bins between origins, if fewer than the horizon: windows overlap, so that none is left to select on.
    """

    n_selection: int
    n_evaluation: int
    step: int | None = None

    @property
    def n_total(self) -> int:
        """All windows."""
        return self.n_selection + self.n_evaluation


def split_windows(n_bins: int, horizon: int, week: int = 7) -> BacktestWindows:
    """Number of selection and evaluation windows that fit into a history, at most six.

    Windows are disjoint, after at least two horizons. A history shorter than four horizons has six that overlap, after
    at least half of what lies before the last; they all evaluate.

    Parameters
    ----------
    n_bins : int
        Length of the history.
    horizon : int
        Length of a window.
    week : int, default=7
        Bins of a week.

    Returns
    -------
    BacktestWindows
        At least one of either, a third of all evaluate; or none that selects.

    Raises
    ------
    InputError
        If the history is shorter than four horizons, and than two after four weeks.

    Examples
    --------
    >>> split_windows(270, 28)
    BacktestWindows(n_selection=4, n_evaluation=2, step=None)
    >>> split_windows(100, 48)
    Traceback (most recent call last):
        ...
    gpudemand._validation.InputError: horizon 48 needs at least 124 bins of history; the log has 100; ...
    >>> split_windows(270, 118)
    BacktestWindows(n_selection=0, n_evaluation=6, step=15)
    """
    if n_bins < max(min(4 * horizon, 2 * horizon + _WEEKS * week), 8):
        raise _too_short(n_bins, horizon, week)
    if n_bins < 4 * horizon:
        return BacktestWindows(0, _MAX_WINDOWS, max((n_bins - horizon) // (2 * (_MAX_WINDOWS - 1)), 1))
    total = min(_MAX_WINDOWS, (n_bins - 2 * horizon) // horizon)
    n_evaluation = max(1, total // 3)
    return BacktestWindows(total - n_evaluation, n_evaluation)


def _too_short(n_bins: int, horizon: int, week: int) -> InputError:
    needed, most = (
        max(min(4 * horizon, 2 * horizon + _WEEKS * week), 8),
        max(n_bins // 4, (n_bins - _WEEKS * week) // 2),
    )
    shorter = f"use --horizon {most} or less, or a finer --freq" if n_bins >= 8 else "use a finer --freq"
    return InputError(f"horizon {horizon} needs at least {needed} bins of history; the log has {n_bins}; {shorter}.")


@dataclass(frozen=True)
class SelectedForecast:
    """A selected model, its backtest and those of the other candidates, and its forecast.

    Parameters
    ----------
    model : str
        The candidate with the smallest WAPE on the selection windows, both series pooled; see `best_model`.
    windows : BacktestWindows
    scores : DataFrame
        A row per series and model: ``series``, ``model``, ``naive``, ``wape_selection`` (selection windows), then
        ``wape``, ``rmsse``, ``bias``, ``coverage_80`` and ``coverage_95`` on the evaluation windows.
    backtest : DataFrame
        ``unique_id``, ``ds``, ``cutoff``, ``y`` and the models' columns.
    forecast, baseline : DataFrame
        Forecast of the selected model at `LEVELS`, and that of the best naive method.
    others : tuple of Forecaster
        Candidates besides our own.
    """

    model: str
    windows: BacktestWindows
    scores: pd.DataFrame
    backtest: pd.DataFrame
    forecast: pd.DataFrame
    baseline: pd.DataFrame
    others: tuple[Forecaster, ...] = ()

    def score(self, series: str) -> pd.Series:
        """Row of `scores` for one series and the selected model."""
        return self.scores[(self.scores["series"] == series) & (self.scores["model"] == self.model)].iloc[0]

    def best_naive(self, series: str) -> pd.Series:
        """Row of `scores` for the naive method with the smallest WAPE on the evaluation windows."""
        rows = self.scores[(self.scores["series"] == series) & self.scores["naive"]]
        return rows.sort_values("wape", kind="stable").iloc[0]


def select_and_forecast(
    usage: pd.DataFrame, horizon: int, service_level: float = 0.95, others: Sequence[Forecaster] = ()
) -> SelectedForecast:
    """Select a forecaster on rolling origins, evaluate it on later ones, and forecast with it.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``; whole bins only.
    horizon : int
        Bins to forecast.
    service_level : float, default=0.95
        Quantile that the forecast has to hold, besides `LEVELS`.
    others : sequence of Forecaster
        Candidates besides our own.

    Returns
    -------
    SelectedForecast

    Raises
    ------
    InputError
        If the history is too short for the horizon.
    """
    windows = split_windows(usage["ds"].nunique(), horizon, _bins_of_week(usage))
    backtest, evaluates = run_backtest(usage, horizon, windows, others)
    model = best_model(backtest[~evaluates])
    naive = str(_wape_by_model(backtest[evaluates])[NAIVE_NAMES].idxmin())
    scores = _score(backtest[~evaluates], backtest[evaluates], usage)
    level = levels_for(service_level)
    forecast, baseline = (forecast_with(name, usage, horizon, level, others) for name in (model, naive))
    return SelectedForecast(model, windows, scores, backtest, forecast, baseline, tuple(others))


def levels_for(service_level: float) -> list[float]:
    """`LEVELS`, and the level of the interval whose upper bound is the service level.

    Examples
    --------
    >>> levels_for(0.995)
    [50.0, 80.0, 90.0, 95.0, 98.0, 99.0]
    """
    return sorted({*LEVELS, round(100 * (2 * service_level - 1), 6)})


def run_backtest(
    usage: pd.DataFrame, horizon: int, windows: BacktestWindows, others: Sequence[Forecaster] = ()
) -> tuple[pd.DataFrame, pd.Series]:
    """Backtest the candidates at the origins of all windows.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``.
    horizon : int
        Length of a window in bins.
    windows : BacktestWindows
    others : sequence of Forecaster
        Candidates besides our own.

    Returns
    -------
    backtest : DataFrame
        See `gpudemand.forecast.cross_validation`.
    evaluates : Series of bool
        Rows of the evaluation windows; the others are for selection.
    """
    candidates = [*others, *make_candidates(usage, horizon, windows)]
    step = windows.step or horizon
    with warnings.catch_warnings():
        # Early origins have short histories; that of the forecast is checked against the horizon.
        warnings.simplefilter("ignore", ShortHistoryWarning)
        backtest = cross_validation(
            candidates, usage, h=horizon, n_windows=windows.n_total, step_size=step, level=SCORED_LEVELS
        )
    return backtest, evaluation_rows(backtest, windows)


def evaluation_rows(backtest: pd.DataFrame, windows: BacktestWindows) -> pd.Series:
    """Whether each row of a backtest belongs to an evaluation window, as a Series of bool."""
    cutoffs = backtest["cutoff"].drop_duplicates().sort_values()
    return backtest["cutoff"].isin(cutoffs.tail(windows.n_evaluation))


def best_model(backtest: pd.DataFrame) -> str:
    """Name of the model with the smallest WAPE, all series pooled; without rows, the last one, the recommended."""
    return str(_wape_by_model(backtest).idxmin()) if len(backtest) else model_names(backtest)[-1]


def make_candidates(usage: pd.DataFrame, horizon: int, windows: BacktestWindows) -> list[Forecaster]:
    """Construct the candidates; without the combination where the history is too short or too large for it.

    Beyond four weeks the forecaster of long horizons, which contains the combination, takes its place.

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
    n_bins = usage["ds"].nunique()
    n_before = n_bins - horizon - (windows.n_total - 1) * (windows.step or horizon)
    others = [candidate() for candidate in CANDIDATES[:-2]]
    if n_before < _MIN_COMBINATION_BINS or len(usage) * horizon > _MAX_COMBINATION_CELLS:
        return others
    return [*others, HorizonForecaster() if horizon > _WEEKS * _bins_of_week(usage) else CombinedForecaster()]


def _bins_of_week(usage: pd.DataFrame) -> int:
    times = pd.DatetimeIndex(usage["ds"].unique()).sort_values()
    return week_length(infer_freq(times)) if len(times) > 1 else 1


def forecast_with(
    model: str, usage: pd.DataFrame, horizon: int, level: list[float], others: Sequence[Forecaster] = ()
) -> pd.DataFrame:
    """Forecast by the candidate of a name, fitted to all of the history."""
    candidates = [*others, *(candidate() for candidate in CANDIDATES)]
    chosen = next(candidate for candidate in candidates if candidate.column_name() == model)
    return clone(chosen).fit(usage).predict(horizon, level=level)


def _wape_by_model(backtest: pd.DataFrame) -> pd.Series:
    """WAPE of each model, all series pooled; infinite where it is undefined."""
    return evaluate(backtest, ["wape"])["wape"].fillna(float("inf"))


def _score(selection: pd.DataFrame, evaluation: pd.DataFrame, history: pd.DataFrame) -> pd.DataFrame:
    """`SelectedForecast.scores`; `history` gives RMSSE its scale."""
    scores = evaluate(evaluation, _METRICS, history=history, by="unique_id")
    selected = evaluate(selection, ["wape"], by="unique_id")["wape"] if len(selection) else float("nan")
    scores.insert(0, "wape_selection", selected)
    table = scores.rename_axis(["model", "series"]).reset_index()
    table.insert(1, "naive", table["model"].isin(NAIVE_NAMES))
    order = ["series", *[name for name in table.columns if name != "series"]]
    return table[order].sort_values(["series", "wape_selection", "wape"], kind="stable", ignore_index=True)
