"""Noisy series of six known classes: synthetic data independent of the cluster simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

SIX = ("steady", "nightly", "weekday", "burst", "fading", "sporadic")
Array = NDArray[Any]


def noisy_series(
    n_users: int, n_days: int, freq: str, signal_to_noise: float, seed: int, kinds: tuple[str, ...] = SIX
) -> tuple[pd.DataFrame, Array]:
    """Signal of a class plus Gaussian noise of ``1 / signal_to_noise`` its power, clipped at zero, lognormal scale."""
    rng = np.random.default_rng(seed)
    times = pd.date_range("2026-01-05", periods=n_days * (24 if freq == "h" else 1), freq=freq)
    labels = rng.permutation(np.resize(kinds, n_users))
    rows = []
    for kind in labels:
        signal = _signal(kind, times, rng)
        power = np.sqrt((signal**2).mean()) if kind == "steady" else signal.std()
        rows.append(np.maximum(signal / power + rng.normal(size=len(times)) / np.sqrt(signal_to_noise), 0.0))
    sizes = rng.lognormal(0.0, 1.5, (n_users, 1))
    return pd.DataFrame(np.array(rows) * sizes, columns=times, index=[f"u{i:04d}" for i in range(n_users)]), labels


def _signal(kind: str, times: pd.DatetimeIndex, rng: np.random.Generator) -> Array:
    n = len(times)
    place = np.arange(n) / n
    if kind == "steady":
        return 1 + 0.1 * np.sin(2 * np.pi * (place * rng.uniform(0.5, 2) + rng.random()))
    if kind == "nightly":
        # In daily bins a nightly batch is every other day.
        daily = ((times - times[0]).days + rng.integers(2)) % 2 == 0
        return ((times.hour - rng.integers(20, 24)) % 24 < 6 if times.freqstr == "h" else daily).astype(float)
    if kind == "weekday":
        office = np.abs(times.hour - 13 + rng.integers(-1, 2)) < 5 if times.freqstr == "h" else True
        return ((times.day_of_week < 5) & office).astype(float)
    if kind == "burst":
        begins = rng.uniform(0, 0.9, rng.integers(1, 4))
        return np.max([(place >= b) & (place < b + rng.uniform(0.05, 0.12)) for b in begins], axis=0).astype(float)
    if kind == "fading":
        return 1 - place
    days = (times - times[0]).days.to_numpy()
    return (
        np.isin(days, rng.choice(days[-1] + 1, max(3, int(days[-1] * rng.uniform(0.04, 0.08))), replace=False))
        * (rng.uniform(0.5, 2.0, days[-1] + 1)[days])
    )
