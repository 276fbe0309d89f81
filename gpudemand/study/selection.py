"""The forecast of a study: candidates, windows, and the selection between them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pandas as pd
from scipy.stats import t
from sklearn.base import clone

from gpudemand._array import STRING
from gpudemand._validation import InputError
from gpudemand.forecast import (
    ETS,
    CombinedForecaster,
    EventForecaster,
    HorizonForecaster,
    Naive,
    SeasonallyAdjustedNaive,
    SeasonalNaive,
    ShortHistoryWarning,
    cross_validation,
    public_holidays,
)
from gpudemand.forecast.events import Calendar
from gpudemand.forecast.forecaster import Forecaster
from gpudemand.forecast.panel import infer_freq, week_length
from gpudemand.metrics import evaluate, model_names
from gpudemand.planning.programmes import PlannedWork, add_programmes
from gpudemand.study.settings import Settings
from gpudemand.study.usage_tables import MEAN
from gpudemand.usage.bins import calendar_range

NAIVE = (Naive, SeasonalNaive, SeasonallyAdjustedNaive)
CANDIDATES = (*NAIVE, ETS, CombinedForecaster, HorizonForecaster)
NAIVE_NAMES = [model.__name__ for model in NAIVE]
OWN_NAMES = [model.__name__ for model in CANDIDATES]
#: Those that are taken unless another is better beyond noise.
RECOMMENDED = OWN_NAMES[-2:]
#: Weeks ahead up to which the combination forecasts, and from which on the forecaster of long horizons.
WEEKS = 4
#: Fewest bins before the first window from which combination weights are estimated.
_MIN_COMBINATION_BINS = 28
#: Rows times horizon above which backtesting the combination takes minutes.
_MAX_COMBINATION_CELLS = 1.5e6


class Candidates(NamedTuple):
    """Forecasters of the user's, besides our own, and events that all of them know.

    `events`: see `EventForecaster`.
    """

    others: Sequence[Forecaster] = ()
    events: pd.DataFrame | None = None

    def for_history(self, usage: pd.DataFrame, horizon: int, n_before: int) -> list[Forecaster]:
        """Those for a history; no combination where it is too short or too large for it.

        Beyond four weeks the forecaster of long horizons, which contains the combination, takes its place. `n_before`:
        bins before the first window of the backtest.
        """
        own = [candidate() for candidate in CANDIDATES[:-2]]
        if n_before >= _MIN_COMBINATION_BINS and len(usage) * horizon <= _MAX_COMBINATION_CELLS:
            own.append(HorizonForecaster() if horizon > WEEKS * bins_of_week(usage) else CombinedForecaster())
        return self._knowing_events([*self.others, *own])

    def named(self, model: str) -> Forecaster:
        """The one whose column has a name."""
        every = self._knowing_events([*self.others, *(candidate() for candidate in CANDIDATES)])
        return next(candidate for candidate in every if candidate.column_name() == model)

    def _knowing_events(self, models: list[Forecaster]) -> list[Forecaster]:
        return models if self.events is None else [EventForecaster(model, self.events) for model in models]


OURS = Candidates()


def bins_of_week(usage: pd.DataFrame) -> int:
    """Bins in a week of a usage frame; 1 where they are longer."""
    times = pd.DatetimeIndex(usage["ds"].unique()).sort_values()
    return week_length(infer_freq(times)) if len(times) > 1 else 1


_MAX_WINDOWS = 6


@dataclass(frozen=True)
class BacktestWindows:
    """Rolling origins: the earlier ones select the model, the later ones evaluate it.

    `step`: bins between origins, if fewer than the horizon: windows overlap, so that none is left to select on.
    """

    n_selection: int
    n_evaluation: int
    step: int | None = None

    @property
    def n_total(self) -> int:
        """All windows."""
        return self.n_selection + self.n_evaluation


def split_windows(n_bins: int, horizon: int, week: int = 7) -> BacktestWindows:
    """Number of selection and evaluation windows that fit into a history of some bins, at most six.

    Windows are disjoint, after at least two horizons, and a third of all evaluate, at least one; a history shorter than
    four horizons has six that overlap, after at least half of what lies before the last; they all evaluate.

    >>> split_windows(270, 28)
    BacktestWindows(n_selection=4, n_evaluation=2, step=None)
    >>> split_windows(100, 48)
    Traceback (most recent call last):
        ...
    gpudemand._validation.InputError: horizon 48 needs at least 124 bins of history; the log has 100; ...
    >>> split_windows(270, 118)
    BacktestWindows(n_selection=0, n_evaluation=6, step=15)
    """
    if n_bins < max(min(4 * horizon, 2 * horizon + WEEKS * week), 8):
        raise _too_short(n_bins, horizon, week)
    if n_bins < 4 * horizon:
        return BacktestWindows(0, _MAX_WINDOWS, max((n_bins - horizon) // (2 * (_MAX_WINDOWS - 1)), 1))
    total = min(_MAX_WINDOWS, (n_bins - 2 * horizon) // horizon)
    n_evaluation = max(1, total // 3)
    return BacktestWindows(total - n_evaluation, n_evaluation)


def _too_short(n_bins: int, horizon: int, week: int) -> InputError:
    needed, most = (
        max(min(4 * horizon, 2 * horizon + WEEKS * week), 8),
        max(n_bins // 4, (n_bins - WEEKS * week) // 2),
    )
    shorter = f"use --horizon {most} or less, or a finer --freq" if n_bins >= 8 else "use a finer --freq"
    return InputError(f"horizon {horizon} needs at least {needed} bins of history; the log has {n_bins}; {shorter}.")


def evaluation_rows(backtest: pd.DataFrame, windows: BacktestWindows) -> pd.Series:
    """Whether each row of a backtest belongs to an evaluation window, as a Series of bool."""
    cutoffs = backtest["cutoff"].drop_duplicates().sort_values()
    return backtest["cutoff"].isin(cutoffs.tail(windows.n_evaluation))


_METRICS = ("wape", "rmsse", "bias", "coverage")
#: Interval levels in percent; the outer ones give the P90, P95 and P99 of a plan.
LEVELS = (50.0, 80.0, 90.0, 95.0, 98.0)
SCORED_LEVELS = (80, 95)


@dataclass(frozen=True)
class SelectedForecast:
    """A selected model, its backtest and those of the other candidates, and its forecast.

    `model`: the recommended candidate, unless another was better on the selection windows; see `model_beyond_noise`.
    `scores`: a row per series and model; ``wape_selection`` on the selection windows, the others on the evaluation
    windows. `forecast`, `baseline`: of the selected model at `LEVELS`, and of the best naive method.
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

    def scaled(self, factor: float) -> SelectedForecast:
        """The forecast of so many times as much work."""
        values = [name for name in self.forecast.columns if str(name).startswith(self.model)]
        return replace(self, forecast=self.forecast.assign(**(self.forecast[values] * factor)))

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
    give the mean bounds beyond all that was ever held. `service_level`: quantile that the forecast has to hold, besides
    `LEVELS`.
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

    >>> levels_for(0.995)
    [50.0, 80.0, 90.0, 95.0, 98.0, 99.0]
    """
    return sorted({*LEVELS, round(100 * (2 * service_level - 1), 6)})


def run_backtest(
    usage: pd.DataFrame, horizon: int, windows: BacktestWindows, candidates: Candidates = OURS
) -> tuple[pd.DataFrame, pd.Series]:
    """Backtest the candidates at the origins of all windows; and which of its rows evaluate rather than select."""
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


_COLUMNS = ["event", "bins_past", "bins_ahead", "first_ahead", "effect", "effect_from"]


def known_events(usage: pd.DataFrame, settings: Settings) -> pd.DataFrame | None:
    """Events from the begin of the usage to the end of the horizon, with public holidays; None if there are none."""
    tables = [] if settings.events is None else [settings.events]
    if settings.holidays is not None:
        end = calendar_range(usage["ds"].max(), freq=settings.freq, periods=settings.horizon + 2)[-1]
        tables.append(public_holidays(settings.holidays, usage["ds"].min(), end))
    return pd.concat(tables, ignore_index=True) if tables else None


def event_table(usage: pd.DataFrame, events: pd.DataFrame, horizon: int) -> pd.DataFrame:
    """Effect of each event that is known, past or ahead.

    ``bins_past``, ``bins_ahead``: of the history and of the horizon, with some of it. ``effect``: relative change of
    demand, ``"stated"``, from ``"history"``, or ``"none shown"`` beyond chance.
    """
    model, calendar = EventForecaster(events=events).fit(usage), Calendar.of(events)
    panel, n_times = model.panel_, len(model.panel_.times)
    taken = calendar.shares(panel, horizon) > 0
    future = panel.future(horizon)
    rows = []
    for name, stated, effect, bins in zip(calendar.names, calendar.effects, model.effects_, taken, strict=True):
        ahead = bins[n_times:]
        source = "stated" if not pd.isna(stated) else "history" if effect else "none shown"
        first = future[ahead.argmax()] if ahead.any() else pd.NaT
        rows.append((name, int(bins[:n_times].sum()), int(ahead.sum()), first, effect, source))
    table = pd.DataFrame(rows, columns=_COLUMNS)
    return table.astype({"event": STRING, "effect_from": STRING})
