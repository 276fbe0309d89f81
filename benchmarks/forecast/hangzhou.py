"""Passengers into 80 metro stations of Hangzhou, per ten minutes of an 18-hour day."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.io import loadmat

from benchmarks.forecast import load
from benchmarks.forecast.origins import Origins
from gpudemand._validation import InputError
from gpudemand.forecast import LagRegression, Panel, TemporalFactorization
from gpudemand.forecast.factorization import filter_step, one_step_ahead
from gpudemand.forecast.regression import extrapolate
from gpudemand.metrics import rmse

TITLE = "Hangzhou metro, exactly 2, 4 and 6 steps ahead from every origin of the last 7 days, RMSE where not zero"
AIM = (
    "TemporalFactorization 28 / 30 / 31 in under 3 s, with 40 % missing at random 30 / 32 / 33.5; "
    "the package's best 25.5 / 26.0 / 26.5"
)

STEPS = (2, 4, 6)
#: A day of the file has 108 bins. Lags: the newest bins, a day, a week, and both, with neighbours.
DAY, WEEK = 108, 7 * 108
LAGS = tuple(sorted({m + near for m in (0, DAY, WEEK, DAY + WEEK) for near in (-1, 0, 1, 2)} - {-1, 0} | {3, 4}))
PUBLISHED = {"TRMF (published)": (30.58, 32.63, 33.91), "TRMF, 40 % missing (published)": (35.77, 38.36, 40.39)}


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """Score the factorization beside last week and a ridge autoregression; ``--origins`` counts bins."""
    panel = stations(data)
    if origins is not None and origins.count is None:
        raise InputError(f"the file has no dates, so --origins cannot be {origins}; pass a number of bins.")
    n_scored = WEEK if origins is None or origins.count is None else origins.count
    rows: dict[str, tuple[float, ...]] = {name: (*scores, np.nan) for name, scores in PUBLISHED.items()}
    rows["week ago"] = _scored(panel, n_scored, _week_ago)
    rows["ridge on 11 lags"] = _scored(panel, n_scored, _ridge)
    rows["TemporalFactorization"] = _scored(panel, n_scored, _ours)
    rows["LagRegression"] = _scored(panel, n_scored, _lags)
    rows["mean of LagRegression and TemporalFactorization"] = _scored(panel, n_scored, _mean)
    for seed in range(3):
        rows[f"TemporalFactorization, 40 % missing ({seed})"] = _scored(panel, n_scored, _ours, seed)
    return pd.DataFrame(rows, index=[*(f"{h} steps" for h in STEPS), "seconds"]).T


def stations(data: Path) -> Panel:
    """The tensor as a panel: station by bin."""
    with (data / "series" / "transdim-traffic" / "hangzhou_tensor.mat").open("rb") as file:
        tensor = loadmat(file)["tensor"].astype(float)
    wide = tensor.reshape(len(tensor), -1)
    names = [f"s{place:02d}" for place in range(len(wide))]
    return load.panel(pd.DataFrame(wide.T, columns=names), load.SPOT_START, "10min")


def _scored(panel: Panel, n_scored: int, method, missing: int | None = None) -> tuple[float, ...]:  # type: ignore[no-untyped-def]
    """RMSE at each step over the newest `n_scored` bins, and seconds; `method` sees what is not missing."""
    truth, y = panel.values, panel.values.copy()
    if missing is not None:
        y[np.random.default_rng(missing).random(y.shape) < 0.4] = np.nan
    n_train = y.shape[1] - n_scored - max(STEPS) + 1
    began = time.perf_counter()
    paths = method(panel, y, n_train)
    seconds = time.perf_counter() - began
    scored = slice(y.shape[1] - n_scored, None)
    seen = truth[:, scored] != 0
    return (*(rmse(truth[:, scored][seen], path[:, scored][seen]) for path in paths), seconds)


def _ours(panel: Panel, y: np.ndarray, n_train: int) -> list[np.ndarray]:  # type: ignore[type-arg]
    usage = panel.long_frame(panel.times, {"y": y})
    model = TemporalFactorization(lags=LAGS).fit(usage[usage["ds"] < panel.times[n_train]], freq=panel.freq)
    rolled = rolling_paths(model, y[:, n_train:], max(STEPS))
    return [_placed(rolled[:, :, h - 1], y.shape, n_train + h - 1) for h in STEPS]


def rolling_paths(model: TemporalFactorization, y: np.ndarray, h: int) -> np.ndarray:  # type: ignore[type-arg]
    """Forecasts of a fitted factorization from every bin after training, shape (n_series, n_new + 1, h), not below 0.

    At every time of the data `y`, shape (n_series, n_new), the latent state is predicted and corrected as far as its
    penalty allows; the residuals follow. Loadings and autoregressions stay fixed. Later data also correct imputed
    values, so a forecast is made when the filter is at its origin.
    """
    factors, residual_ar, y = model.factors_, model.residual_ar_, y / model.scale_
    n_seen, n_residuals = factors.latent.shape[1], residual_ar.values.shape[1]
    latent = np.concatenate([factors.latent, np.empty((len(factors.latent), y.shape[1]))], axis=1)
    values = np.concatenate([residual_ar.values, np.nan_to_num(y)], axis=1)
    known = np.concatenate([residual_ar.known, ~np.isnan(y)], axis=1)
    path = np.empty((len(y), y.shape[1] + 1, h))
    for new in range(y.shape[1] + 1):
        past, residuals = latent[:, : n_seen + new], values[:, : n_residuals + new]
        ahead = extrapolate(past, factors.weights, factors.lags, h)
        path[:, new] = factors.loadings @ ahead
        path[:, new] += extrapolate(residuals, residual_ar.weights, residual_ar.lags, h)
        if new < y.shape[1]:
            time, predicted = n_residuals + new, one_step_ahead(residuals, residual_ar.weights, residual_ar.lags)
            state = one_step_ahead(past, factors.weights, factors.lags)
            seen = known[:, time]
            loadings = factors.loadings[seen]
            innovation = (values[:, time] - predicted - factors.intercepts)[seen] - loadings @ state
            gram = loadings.T @ loadings + model.latent_penalty * np.eye(state.size)
            latent[:, n_seen + new] = state + np.linalg.solve(gram, loadings.T @ innovation)
            values[:, time] -= factors.intercepts + factors.loadings @ latent[:, n_seen + new]
            filter_step(values, known, time, predicted, residual_ar.weights, residual_ar.lags)
    return np.maximum((path + factors.intercepts[:, None, None]) * model.scale_[..., None], 0.0)


def _lags(panel: Panel, y: np.ndarray, n_train: int) -> list[np.ndarray]:  # type: ignore[type-arg]
    """Refitted at every origin."""
    origins = np.arange(n_train, y.shape[1] - min(STEPS) + 1)
    path = LagRegression((DAY, WEEK)).forecast_from(replace(panel, values=y), origins, max(STEPS))
    return [_placed(path[:, :, h - 1], y.shape, n_train + h - 1) for h in STEPS]


def _mean(panel: Panel, y: np.ndarray, n_train: int) -> list[np.ndarray]:  # type: ignore[type-arg]
    both = (_lags(panel, y, n_train), _ours(panel, y, n_train))
    return [np.mean(pair, axis=0) for pair in zip(*both, strict=True)]


def _placed(path: np.ndarray, shape: tuple[int, ...], start: int) -> np.ndarray:  # type: ignore[type-arg]
    out = np.full(shape, np.nan)
    inside = path[:, : shape[1] - start]
    out[:, start : start + inside.shape[1]] = inside
    return out


def _week_ago(_: Panel, y: np.ndarray, n_train: int) -> list[np.ndarray]:  # type: ignore[type-arg]
    return [np.roll(y, WEEK, axis=1)] * len(STEPS)


def _ridge(_: Panel, y: np.ndarray, n_train: int) -> list[np.ndarray]:  # type: ignore[type-arg]
    """Direct regression of each station on the newest bins and those of a day and a week ago."""
    paths = []
    for h in STEPS:
        lags = [h, h + 1, h + 2, h + 3, DAY, DAY + 1, DAY + h, WEEK - 1, WEEK, WEEK + 1, WEEK + h]
        columns = np.stack([np.ones_like(y), *(np.roll(y, lag, axis=1) for lag in lags)], axis=-1)
        known, target = columns[:, WEEK + 1 : n_train], y[:, WEEK + 1 : n_train, None]
        gram = known.swapaxes(1, 2) @ known + 1e3 * np.eye(len(lags) + 1)
        paths.append((columns @ np.linalg.solve(gram, known.swapaxes(1, 2) @ target))[..., 0])
    return paths
