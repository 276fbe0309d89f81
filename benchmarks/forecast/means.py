"""Means over four weeks of every user of a log, and of their sum: expected values beside forecasts near the median."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.forecast import load
from benchmarks.forecast.baselines import Theta
from benchmarks.forecast.origins import Origins
from benchmarks.forecast.sources import USER_LOGS
from gpudemand import usage_series
from gpudemand.forecast import CombinedForecaster, Forecaster, Naive, Panel, SeasonalNaive, adapt
from gpudemand.forecast.panel import rolling_mean
from gpudemand.forecast.regression import DecayedMeanRegression
from gpudemand.jobs import read_jobs

TITLE = "Users by day, 28 days ahead: errors of the mean over the horizon of each, and of the days of their sum"
AIM = (
    "mean, on logs that served no choice: RMSE of users 4 % below Combined, WAPE at most 1 % above; of the sum WAPE at "
    "most 1.03 times the best of Naive and Theta of the sum, bias within 3 %"
)
_H, _ORIGINS, _MOST_USERS = 28, 6, 300
#: Logs under ``more/``: of the Parallel Workloads Archive as dinesh121991/predictsim replays them, with the users,
#: submissions and run times of the log, and starts by EASY backfilling. Half-lives, ridge and weights were chosen on
#: KTH-SP2, Atlas and CDNOW. The first two of these, which that rule had not seen, showed that the sum must be forecast
#: by itself, too. The last two served no choice.
_MORE = ("CTC-SP2", "SDSC-SP2", "SDSC-BLUE", "CEA-curie")


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """A row a log and method; ``--origins`` is the number of them."""
    most = _ORIGINS if origins is None or origins.count is None else origins.count
    return pd.concat({name: _scores(_largest(panel), most) for name, panel in panels_of_users(data).items()})


def panels_of_users(data: Path) -> dict[str, Panel]:
    """Users by day of each log that is there."""
    panels = {name: _held(read(data)) for name, read in USER_LOGS.items()} | {"CDNOW": load.cdnow_daily(data)}
    for name in _MORE:
        if (path := data / "more" / f"{name}.swf.gz").exists():
            panels[name] = _held(read_jobs(path, format="swf", origin="2000-01-01 00:00+00:00"))
    return panels


def _held(jobs: pd.DataFrame) -> Panel:
    """GPUs held by user and day."""
    start, until = (jobs["submit"].min() + pd.Timedelta("14D")).ceil("D"), jobs["submit"].max().floor("D")
    return Panel.from_long(usage_series(jobs, by="user", freq="D", value="gpus", start=start, until=until))


def _largest(panel: Panel) -> Panel:
    """Users of the first half, the largest where there are many."""
    first = panel.values[:, : panel.values.shape[1] // 2].sum(axis=1)
    rows = np.sort(np.argsort(-first, kind="stable")[: min(_MOST_USERS, int((first > 0).sum()))])
    return Panel(panel.ids[rows], panel.times, panel.values[rows], panel.freq)


def _scores(panel: Panel, most: int) -> pd.DataFrame:
    n_times = len(panel.times)
    origins = np.unique(np.linspace(n_times // 2, n_times - _H, most).round().astype(np.int64))
    actual = panel.values[:, origins[:, None] + np.arange(_H)]
    total = Panel(pd.Index(["total"], name="unique_id"), panel.times, panel.values.sum(axis=0)[None], panel.freq)
    models = [Naive(), SeasonalNaive(7), Theta(), *experts(7)]
    of_total = {model.column_name(): model.forecast_from(total, origins, _H) for model in models}
    combined = CombinedForecaster()
    combined._fit_panel(panel.until(int(origins[0])))
    paths = {
        "mean of 28 days": np.repeat(rolling_mean(panel.values, 28)[:, origins - 1][..., None], _H, axis=2),
        "DecayedMeanRegression": DecayedMeanRegression().forecast_from(panel, origins, _H),
        "CombinedForecaster": CombinedForecaster().forecast_from(panel, origins, _H),
    }
    paths["CombinedForecaster-mean"] = combined.expected_paths(panel, origins, _H)
    if find_spec("lightgbm"):
        paths["LightGBM"] = np.repeat(_boosted_means(panel, origins)[..., None], _H, axis=2)
    rows = {
        name: _of_users(path, actual) | _of_sum(path.sum(axis=0), actual.sum(axis=0)) for name, path in paths.items()
    }
    rows |= {f"{name} of the sum": _of_sum(path[0], actual.sum(axis=0)) for name, path in of_total.items()}
    return pd.DataFrame(rows).T


def experts(season: int) -> list[Forecaster]:
    """Methods of statsforecast where it is installed."""
    if not find_spec("statsforecast"):
        return []
    from statsforecast.models import AutoCES, AutoETS, DynamicOptimizedTheta

    return [adapt(method(season_length=season)) for method in (AutoETS, AutoCES, DynamicOptimizedTheta)]


def boosted(x: np.ndarray, target: np.ndarray, now: np.ndarray, labels: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """LightGBM on logs of the decayed means, (n_users, n_past, p) and now (n_users, p), and a label of each user."""
    from lightgbm import LGBMRegressor

    table = np.concatenate([np.log1p(x), np.repeat(labels[:, None, None], x.shape[1], axis=1)], axis=2)
    model = LGBMRegressor(n_estimators=60, num_leaves=15, min_child_samples=30, random_state=0, n_jobs=1, verbose=-1)
    model.fit(table.reshape(-1, table.shape[2]), target.ravel(), categorical_feature=[x.shape[2]])
    return np.asarray(model.predict(np.column_stack([np.log1p(now), labels])))


def past_means(panel: Panel, origin: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Decayed means at earlier origins, what came there, and decayed means at an origin, as `boosted` takes them."""
    past = np.arange(origin - _H, 0, -_H // 4)[:12]
    model = DecayedMeanRegression()
    model._fit_panel(panel)
    x = model._decayed_means(panel.values, np.append(past, origin))
    return x[:, :-1], np.stack([panel.values[:, o : o + _H].mean(axis=1) for o in past], axis=1), x[:, -1]


def _boosted_means(panel: Panel, origins: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    alike = np.zeros(len(panel.ids))
    return np.stack([np.maximum(boosted(*past_means(panel, int(o)), alike), 0) for o in origins], axis=1)


def _of_users(path: np.ndarray, actual: np.ndarray) -> dict[str, float]:  # type: ignore[type-arg]
    error = path.mean(axis=2) - actual.mean(axis=2)
    return {
        "users": float(len(actual)),
        "RMSE of means": float(np.sqrt(np.square(error).mean())),
        "WAPE of means": float(np.abs(error).sum() / actual.mean(axis=2).sum()),
        "WAPE of days": float(np.abs(path - actual).sum() / actual.sum()),
    }


def _of_sum(path: np.ndarray, actual: np.ndarray) -> dict[str, float]:  # type: ignore[type-arg]
    error = path - actual
    spread = error.sum(axis=1).std(ddof=1) * np.sqrt(len(error))
    return {
        "WAPE of the sum": float(np.abs(error).sum() / actual.sum()),
        "bias of the sum": float(error.sum() / actual.sum()),
        "standard error": float(spread / actual.sum()),
    }
