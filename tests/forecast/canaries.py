"""Checks for leakage, equivariance and intervals that apply to every forecaster, and test series."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.base import clone

from gpudemand.forecast import Forecaster, cross_validation

LEVELS = [80, 95]


def long(values, freq="h", start="2026-03-02", tz="UTC"):
    """A long frame from {series: values}."""
    frames = [
        pd.DataFrame(
            {
                "unique_id": name,
                "ds": pd.date_range(start, periods=len(y), freq=freq, tz=tz),
                "y": np.asarray(y, dtype=float),
            }
        )
        for name, y in values.items()
    ]
    return pd.concat(frames, ignore_index=True)


def frame(y, freq="h"):
    """A long frame from a matrix of shape (n_series, n_times)."""
    ds = pd.date_range("2026-03-01", periods=y.shape[1], freq=freq, name="ds")
    wide = pd.DataFrame(y, index=[f"u{i:03d}" for i in range(len(y))], columns=ds).rename_axis("unique_id")
    return wide.stack(future_stack=True).rename("y").reset_index()


def matrix(forecast, model="TemporalFactorization"):
    """A model's column as a matrix of shape (n_series, n_times)."""
    return forecast.pivot(index="unique_id", columns="ds", values=model).to_numpy()


def users(n_bins, season=24, seed=0):
    """A seasonal, a random-walk, an intermittent and a constant series."""
    rng = np.random.default_rng(seed)
    times = np.arange(n_bins)
    return {
        "seasonal": 50 + 20 * np.sin(2 * np.pi * times / season) + rng.normal(0, 3, n_bins),
        "walk": 300 + np.cumsum(rng.normal(0, 4, n_bins)),
        "intermittent": rng.exponential(8, n_bins) * (rng.random(n_bins) < 0.1),
        "constant": np.full(n_bins, 8.0),
    }


def numbers(frame):
    """The columns of a forecast other than its keys."""
    return frame.drop(columns=[name for name in ("unique_id", "ds", "cutoff", "y") if name in frame]).to_numpy()


def check_later_data_do_not_change_forecasts(model: Forecaster, usage: pd.DataFrame, h: int) -> None:
    """Forecasts are bit-identical with other test targets, and with and without the data after these."""
    times = np.sort(usage["ds"].unique())
    past = cross_validation(model, usage[usage["ds"] < times[-2 * h]], h=h, level=LEVELS)
    test = usage["ds"] > past["cutoff"].iloc[0]
    shuffled = usage["y"].sample(frac=1, random_state=0).to_numpy() + 100
    usage = usage.assign(y=usage["y"].where(~test, shuffled))
    later = cross_validation(model, usage, h=h, n_windows=2, step_size=2 * h, level=LEVELS)
    same = later[later["cutoff"].isin(past["cutoff"])].reset_index(drop=True)
    assert len(same) == len(past) > 0
    assert (past["y"] != same["y"]).all()
    pd.testing.assert_frame_equal(past.drop(columns="y"), same.drop(columns="y"), check_exact=True)


def check_scale(model: Forecaster, usage: pd.DataFrame, h: int, rtol: float, forecast: pd.DataFrame) -> None:
    """A series a thousand times as large has a forecast a thousand times as large."""
    one = numbers(forecast)
    thousand = numbers(clone(model).fit(usage.assign(y=1000 * usage["y"])).predict(h, level=LEVELS))
    size = np.abs(one).max()
    np.testing.assert_allclose(thousand / 1000, one, rtol=rtol, atol=rtol * size)


def check_order_of_series(model: Forecaster, usage: pd.DataFrame, h: int, rtol: float, forecast: pd.DataFrame) -> None:
    """Forecasts do not depend on names and the order of rows."""
    name, keys = type(model).__name__, usage["unique_id"].unique()
    other = {key: f"{9 - place}-{key}" for place, key in enumerate(keys)}
    renamed = usage.assign(unique_id=usage["unique_id"].map(other)).sample(frac=1, random_state=0)
    backward = clone(model).fit(renamed).predict(h)
    for key in keys:
        there = forecast.loc[forecast["unique_id"] == key, name].to_numpy()
        back = backward.loc[backward["unique_id"] == other[key], name].to_numpy()
        np.testing.assert_allclose(back, there, rtol=rtol, atol=rtol * np.abs(there).max())


def check_intervals(forecast: pd.DataFrame, name: str) -> None:
    """Bounds are nested around the forecast, finite and not negative."""
    columns = [f"{name}-lo-95", f"{name}-lo-80", name, f"{name}-hi-80", f"{name}-hi-95"]
    bounds = forecast[columns].to_numpy()
    assert np.isfinite(bounds).all()
    assert (np.diff(bounds, axis=1) >= 0).all()
    assert (bounds >= 0).all()


def residual_series():
    """Twenty series with a shared season and autocorrelated residuals."""
    rng, t = np.random.default_rng(0), np.arange(24 * 20)
    own = rng.normal(0, 0.3, (20, t.size))
    for time in range(1, t.size):
        own[:, time] += 0.9 * own[:, time - 1]
    return 10 + rng.uniform(1, 3, (20, 1)) * np.sin(2 * np.pi * t / 24) + own


def with_missing(y, share=0.3):
    """The same with values missing at random."""
    return np.where(np.random.default_rng(1).random(y.shape) < share, np.nan, y)
