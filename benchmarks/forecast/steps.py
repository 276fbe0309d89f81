"""How fast the combined forecast and its members follow a step of level, on simulated series."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.forecast.load import panel
from benchmarks.forecast.origins import Origins
from benchmarks.forecast.panels import member_names
from gpudemand.forecast import CombinedForecaster, HistoricMean, Panel

TITLE = (
    "Bins until the mean forecast has followed 80 % of a step of 50 % in level; in brackets, bins of the step missed"
)
AIM = "Combined no slower than the mean of 7 days"
_START, _N_SERIES, _LEVEL, _FOLLOWED = pd.Timestamp("2026-01-05"), 4, 100.0, 0.8


class Setting(NamedTuple):
    """Frequency, bins in a week, and before and after the step, the horizon, and bins between origins."""

    freq: str
    week: int
    before: int
    after: int
    h: int
    every: int


SETTINGS = {
    "hours, 24 ahead": Setting("h", 168, 1344, 336, 24, 24),
    "days, 7 ahead": Setting("D", 7, 120, 28, 7, 1),
    "days of a year, 7 ahead": Setting("D", 7, 365, 28, 7, 1),
}


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """A row a method, a column a setting and direction; the arguments are ignored."""
    columns = {}
    for name, setting in SETTINGS.items():
        for step in (0.5, -0.5):
            followed = response(setting, step)
            columns[f"{name}, {step:+.0%}"] = {method: _summary(share, setting) for method, share in followed.items()}
    return pd.DataFrame(columns)


def response(setting: Setting, step: float) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    """Share of a step in the mean forecast of each method, by origin from the step on; series are forecast alone."""
    origins = np.arange(setting.before, setting.before + setting.after + 1, setting.every)
    shares = []
    for seed in range(_N_SERIES):
        plain = _series(setting, seed)
        moved = plain + step * _LEVEL * (np.arange(plain.size) >= setting.before)
        found = [_forecasts(setting, y, origins) for y in (moved, plain)]
        shares.append({name: (found[0][name] - found[1][name]) / (step * _LEVEL) for name in found[0]})
    return {name: np.mean([share[name] for share in shares], axis=0) for name in shares[0]}


def _series(setting: Setting, seed: int) -> np.ndarray:  # type: ignore[type-arg]
    """Level, day, quieter weekends, and errors with an autocorrelation of .8."""
    rng, n = np.random.default_rng(seed), setting.before + setting.after + setting.h
    hours = np.arange(n) * (168 // setting.week)
    pattern = _LEVEL * (1 + 0.2 * np.sin(hours * np.pi / 12) - 0.15 * (hours // 24 % 7 >= 5))
    errors = pd.Series(rng.normal(0, 0.05 * _LEVEL, n)).ewm(alpha=0.2, adjust=False).mean() / 0.2
    return np.asarray(pattern + errors)


def _forecasts(setting: Setting, y: np.ndarray, origins: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    """Mean forecast over the horizon of every method at every origin."""
    series: Panel = panel(pd.DataFrame({"total": y}), _START, setting.freq)
    usage, values = series.long_frame(series.times, {"y": series.values}), series.values
    model, week = (method.fit(usage) for method in (CombinedForecaster(), HistoricMean(setting.week)))
    members = model._member_paths(values, origins, setting.h)
    paths = dict(zip(member_names(model), members, strict=True)) | {
        "mean of 7 days": week._paths(values, origins, setting.h),
        "Combined": model._paths(values, origins, setting.h),
    }
    return {name: path[0].mean(axis=-1) for name, path in paths.items()}


def _summary(share: np.ndarray, setting: Setting) -> str:  # type: ignore[type-arg]
    missed = setting.every * np.abs(1 - share[: 2 * setting.week // setting.every]).sum()
    reached = setting.every * int(np.argmax(share >= _FOLLOWED)) if (share >= _FOLLOWED).any() else "never"
    return f"{reached} ({missed:.1f})"
