"""Model selection for the forecast of the total: rolling origins, earlier ones for selection, later for evaluation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd
from scipy.stats import t
from sklearn.base import clone

from gpudemand.forecast import ShortHistoryWarning, cross_validation
from gpudemand.metrics import evaluate, model_names
from gpudemand.planning.scenarios.programme import PlannedWork, add_programmes
from gpudemand.stages.sources.candidates import (
    NAIVE_NAMES,
    OURS,
    OWN_NAMES,
    RECOMMENDED,
    Candidates,
    bins_of_week,
)
from gpudemand.stages.sources.windows import BacktestWindows, evaluation_rows, split_windows
from gpudemand.stages.usage_tables import MEAN

_METRICS = ("wape", "rmsse", "bias", "coverage")
#: Interval levels in percent; the outer ones give the P90, P95 and P99 of a plan.
LEVELS = (50.0, 80.0, 90.0, 95.0, 98.0)
SCORED_LEVELS = (80, 95)


@dataclass(frozen=True)
class SelectedForecast:
    """A selected model, its backtest and those of the other candidates, and its forecast.

    Parameters
    ----------
    model : str
        The recommended candidate, unless another was better on the selection windows; see `model_beyond_noise`.
    windows : BacktestWindows
    scores : DataFrame
        A row per series and model: ``series``, ``model``, ``naive``, ``wape_selection`` (selection windows), then
        ``wape``, ``rmsse``, ``bias``, ``coverage_80`` and ``coverage_95`` on the evaluation windows.
    backtest : DataFrame
        ``unique_id``, ``ds``, ``cutoff``, ``y`` and the models' columns.
    forecast, baseline : DataFrame
        Forecast of the selected model at `LEVELS`, and that of the best naive method.
    candidates : Candidates
    """

    model: str
    windows: BacktestWindows
    scores: pd.DataFrame
    backtest: pd.DataFrame
    forecast: pd.DataFrame
    baseline: pd.DataFrame
    candidates: Candidates = OURS

    def score(self, series: str) -> pd.Series:
        """Row of `scores` for one series and the selected model."""
        return self.scores[(self.scores["series"] == series) & (self.scores["model"] == self.model)].iloc[0]

    def best_naive(self, series: str) -> pd.Series:
        """Row of `scores` for the naive method with the smallest WAPE on the evaluation windows."""
        rows = self.scores[(self.scores["series"] == series) & self.scores["naive"]]
        return rows.sort_values("wape", kind="stable").iloc[0]

    def with_programmes(self, programmes: Sequence[PlannedWork]) -> SelectedForecast:
        """Add work to come to the forecasts of the mean and of the peak."""
        forecast = self.forecast
        for series in forecast["unique_id"].unique() if programmes else ():
            forecast = add_programmes(forecast, programmes, series, peak=series != MEAN)
        return replace(self, forecast=forecast)


def select_and_forecast(
    usage: pd.DataFrame, horizon: int, service_level: float = 0.95, candidates: Candidates = OURS
) -> SelectedForecast:
    """Select a forecaster on rolling origins, evaluate it on later ones, and forecast with it.

    Series are forecast one by one: errors of the peak of a full cluster are nearly all zero and a few large, and would
    give the mean bounds beyond all that was ever held.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``; whole bins only.
    horizon : int
        Bins to forecast.
    service_level : float, default=0.95
        Quantile that the forecast has to hold, besides `LEVELS`.
    candidates : Candidates, optional

    Returns
    -------
    SelectedForecast

    Raises
    ------
    InputError
        If the history is too short for the horizon.
    """
    windows = split_windows(usage["ds"].nunique(), horizon, bins_of_week(usage))
    series = [rows for _, rows in usage.groupby("unique_id")]
    backtest = pd.concat([run_backtest(rows, horizon, windows, candidates)[0] for rows in series], ignore_index=True)
    evaluates = evaluation_rows(backtest, windows)
    model = model_beyond_noise(backtest[~evaluates])
    naive = str(_wape_by_model(backtest[evaluates])[NAIVE_NAMES].idxmin())
    scores = _score(backtest[~evaluates], backtest[evaluates], usage)
    level = levels_for(service_level)
    forecast, baseline = (
        pd.concat([forecast_with(name, rows, horizon, level, candidates) for rows in series], ignore_index=True)
        for name in (model, naive)
    )
    return SelectedForecast(model, windows, scores, backtest, forecast, baseline, candidates)


def levels_for(service_level: float) -> list[float]:
    """`LEVELS`, and the level of the interval whose upper bound is the service level.

    Examples
    --------
    >>> levels_for(0.995)
    [50.0, 80.0, 90.0, 95.0, 98.0, 99.0]
    """
    return sorted({*LEVELS, round(100 * (2 * service_level - 1), 6)})


def run_backtest(
    usage: pd.DataFrame, horizon: int, windows: BacktestWindows, candidates: Candidates = OURS
) -> tuple[pd.DataFrame, pd.Series]:
    """Backtest the candidates at the origins of all windows.

    Parameters
    ----------
    usage : DataFrame
        ``unique_id``, ``ds``, ``y``.
    horizon : int
        Length of a window in bins.
    windows : BacktestWindows
    candidates : Candidates, optional

    Returns
    -------
    backtest : DataFrame
        See `gpudemand.forecast.cross_validation`.
    evaluates : Series of bool
        Rows of the evaluation windows; the others are for selection.
    """
    step = windows.step or horizon
    n_before = usage["ds"].nunique() - horizon - (windows.n_total - 1) * step
    models = candidates.for_history(usage, horizon, n_before)
    with warnings.catch_warnings():
        # Early origins have short histories; that of the forecast is checked against the horizon.
        warnings.simplefilter("ignore", ShortHistoryWarning)
        backtest = cross_validation(
            models, usage, h=horizon, n_windows=windows.n_total, step_size=step, level=SCORED_LEVELS
        )
    return backtest, evaluation_rows(backtest, windows)


def best_model(backtest: pd.DataFrame) -> str:
    """Name of the model with the smallest WAPE, all series pooled; without rows, the last one, the recommended."""
    return str(_wape_by_model(backtest).idxmin()) if len(backtest) else model_names(backtest)[-1]


def model_beyond_noise(backtest: pd.DataFrame) -> str:
    """Name of the combination, or of the model with the smallest WAPE where it is better beyond noise.

    A few windows tell little: the smallest of several WAPEs is often that of a method that was lucky on them. Another
    than the combination has to win a paired t test at 5 %, unless it is the user's. Without a combination, the smallest
    WAPE decides; without rows, the last model.

    Parameters
    ----------
    backtest : DataFrame
        ``unique_id``, ``ds``, ``cutoff``, ``y`` and the models' columns.

    References
    ----------
    Harvey, Leybourne and Newbold, "Testing the equality of prediction mean squared errors", International Journal of
    Forecasting 13 (1997); with windows that do not overlap.

    Examples
    --------
    >>> cutoffs = pd.to_datetime(["2026-03-01", "2026-03-08", "2026-03-15"])
    >>> table = pd.DataFrame({"unique_id": "mean", "ds": cutoffs, "cutoff": cutoffs, "y": 100.0, "ETS": 99.0})
    >>> model_beyond_noise(table.assign(CombinedForecaster=[98.9, 99.1, 98.6]))
    'CombinedForecaster'
    >>> model_beyond_noise(table.assign(CombinedForecaster=[91.0, 92.0, 92.0]))
    'ETS'
    """
    best, recommended = best_model(backtest), model_names(backtest)[-1]
    if best == recommended or recommended not in RECOMMENDED or best not in OWN_NAMES:
        return best
    errors = backtest[[recommended, best]].sub(backtest["y"], axis=0).abs().groupby(backtest["cutoff"]).sum()
    gain = errors[recommended] - errors[best]
    return best if gain.mean() > t.ppf(0.95, len(gain) - 1) * gain.sem() else recommended


def forecast_with(
    model: str, usage: pd.DataFrame, horizon: int, level: list[float], candidates: Candidates = OURS
) -> pd.DataFrame:
    """Forecast by the candidate of a name, fitted to all of the history."""
    return clone(candidates.named(model)).fit(usage).predict(horizon, level=level)


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
