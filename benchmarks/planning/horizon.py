"""The mean of the next 28, 56 and 90 days beside naive forecasts, and how often its intervals cover it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.forecast import load
from benchmarks.forecast.sources import LOGS
from gpudemand import usage_series
from gpudemand.forecast import CombinedForecaster, HorizonForecaster, ShortHistoryWarning, longest_horizon

DISTANCES = (28, 56, 90)
HALVES = ("development", "scoring")
NAIVE = ("last value", "four weeks", "linear trend")
#: Days between origins, and before the first one. The method was chosen on the first half of the origins of every log
#: and distance, and scored once on the second.
_STEP, _FIRST = 5, 28
_LEVELS, BANDS = (80, 95), (80, 90, 95)
#: Days until the jobs have left that ran when a log began; those of Philly in which all of its jobs were recorded.
_WARM_UP, _PHILLY = "14D", ("2017-10-01", "2017-12-14")


def demand(data: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """GPUs held by day of every log, and GPUs wanted where jobs wait in it."""
    for name, read in LOGS.items():
        jobs = read(data)
        jobs = jobs[jobs["gpus"] > 0]
        held = _daily(name, jobs, "gpus")
        yield f"{name}, held", held
        wanted = _daily(name, jobs, "wanted")
        if not np.allclose(wanted["y"], held["y"]):
            yield f"{name}, wanted", wanted
    total = load.spot(data)[0]
    days = pd.Series(total.values[0], total.times).resample("D").mean()[:-1]
    yield "spot, held", days.rename("y").rename_axis("ds").reset_index().assign(unique_id="total")


def _daily(name: str, jobs: pd.DataFrame, value: str) -> pd.DataFrame:
    submit = jobs["submit"]
    # The extracts of DIR-LAB are too short to lose two weeks.
    start = (submit.min() + pd.Timedelta("2D" if name.startswith("DIR-LAB") else _WARM_UP)).ceil("D")
    start, until = (pd.Timestamp(day, tz="UTC") for day in _PHILLY) if name == "Philly" else (start, submit.max())
    return usage_series(jobs, by=None, freq="D", value=value, start=start, until=until.floor("D"))


def run(data: Path, half: str) -> pd.DataFrame:
    """A row a log, distance and origin of one half: the mean that came, and the forecasts of it."""
    rows: list[dict[str, Any]] = []
    for name, usage in demand(data):
        for h in DISTANCES:
            rows += [{"log": name, "h": h, **row} for row in _windows(usage, h, half)]
    return pd.DataFrame(rows)


def bears(data: Path) -> pd.Series:
    """Days of every log, and how far ahead it bears a forecast."""
    rows = {name: {"days": len(usage), "bears": longest_horizon(usage)} for name, usage in demand(data)}
    return pd.DataFrame(rows).T


def _windows(usage: pd.DataFrame, h: int, half: str) -> Iterator[dict[str, Any]]:
    origins = range(_FIRST, len(usage) - h + 1, _STEP)
    middle = len(origins) // 2
    for origin in origins[:middle] if half == HALVES[0] else origins[middle:]:
        known, coming = usage.iloc[:origin], usage["y"].iloc[origin : origin + h]
        y = known["y"].to_numpy()
        line = np.polyval(np.polyfit(np.arange(origin), y, 1), np.arange(origin, origin + h))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShortHistoryWarning)
            mean = HorizonForecaster().fit(known).predict_mean(h, level=_LEVELS).iloc[0, 3:]
        yield {
            "origin": origin,
            "y": coming.mean(),
            "last value": y[-1],
            "four weeks": y[-28:].mean(),
            "linear trend": np.maximum(line, 0).mean(),
            "Combined": CombinedForecaster().fit(known).predict(h)["CombinedForecaster"].mean(),
            **mean.rename(lambda name: name.removesuffix("Forecaster").replace("Forecaster-", "-")),
        }


def daily_bands(data: Path, h: int = 28, history: int = 100, step: int = 9) -> pd.DataFrame:
    """Share of days inside the bands of single days, from origins all over each log with as long a history."""
    rows = []
    for name, usage in demand(data):
        for origin in range(history, len(usage) - h + 1, step):
            known, y = usage.iloc[origin - history : origin], usage["y"].iloc[origin : origin + h].to_numpy()
            for model in (CombinedForecaster(), HorizonForecaster()):
                bands = model.fit(known).predict(h, level=BANDS)
                side = {
                    level: [bands[f"{model.column_name()}-{end}-{level}"] for end in ("lo", "hi")] for level in BANDS
                }
                inside = {level: ((y >= low) & (y <= high)).mean() for level, (low, high) in side.items()}
                rows.append({"model": model.column_name(), "log": name, **inside})
    return pd.DataFrame(rows).groupby(["model", "log"]).mean()


def errors(windows: pd.DataFrame) -> pd.DataFrame:
    """WAPE of the mean by log and distance, and of ours relative to the best naive one, with its standard error.

    The standard error is that of the difference of the absolute errors, over as many spans as do not overlap.
    """
    rows = {key: _row(group, int(key[1])) for key, group in windows.groupby(["log", "h"], sort=False)}
    return pd.DataFrame(rows).T.rename_axis(["log", "h"])


def _row(group: pd.DataFrame, h: int) -> dict[str, float]:
    methods, total = [*NAIVE, "Combined", "Horizon"], group["y"].sum()
    absolute = group[methods].sub(group["y"], axis=0).abs()
    wape = absolute.sum() / total
    best = absolute[NAIVE[int(np.argmin(wape[list(NAIVE)]))]]
    spans = 1 + (group["origin"].max() - group["origin"].min()) / h
    noise = (absolute["Horizon"] - best).std() / best.mean() / np.sqrt(spans)
    bias = float((group["Horizon"] - group["y"]).sum() / total)
    ratio = {"of best naive": absolute["Horizon"].mean() / best.mean(), "+-": noise}
    return {"spans": spans, **wape, "bias": bias, **ratio, **coverage(group)}


def coverage(windows: pd.DataFrame) -> pd.Series:
    """Share of means inside the intervals, and the median half-width of those of 80 %, relative to the mean."""
    inside = {
        f"cover {level}": windows["y"].between(windows[f"Horizon-lo-{level}"], windows[f"Horizon-hi-{level}"]).mean()
        for level in _LEVELS
    }
    width = (windows["Horizon-hi-80"] - windows["Horizon-lo-80"]) / 2 / windows["y"]
    return pd.Series({**inside, "width 80": width.median()})
