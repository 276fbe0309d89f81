"""Run time of a factorization of a hundred thousand users."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.forecast.origins import Origins
from gpudemand.forecast import factorization as trmf
from gpudemand.forecast.factorization import Data, Penalties, ResidualAR

TITLE = "100,000 users x 730 days, 16 factors, 20 sweeps; loops over times and users as in public codes, extrapolated"
AIM = "under 60 s on 2 cores"
N_USERS, N_TIMES, N_FACTORS, N_SWEEPS = 100_000, 730, 16, 20
LAGS = (1, 2, 3, 4, 6, 7, 8, 9, 13, 14, 15, 16)
#: Users and times of the extrapolated loops.
SLICE = 200


def run(data: Path, origins: Origins | None = None) -> pd.DataFrame:
    """Time the package's factorization, and loops with explicit inverses on a slice; the arguments are ignored."""
    y = made(N_USERS, N_TIMES)
    began, used = time.perf_counter(), time.process_time()
    factors = trmf.fit(y, N_FACTORS, LAGS, Penalties(10.0, 10.0, weights=2.0), n_sweeps=N_SWEEPS, tolerance=0.0)
    rows = {"factorization": (time.perf_counter() - began, time.process_time() - used)}
    ResidualAR.fit(Data.of(y), factors, 300.0)
    rows["and residual autoregressions"] = (time.perf_counter() - began, time.process_time() - used)
    loops = _loops(y[:SLICE, :SLICE]) * N_SWEEPS
    rows["loops over users and times, one core"] = (loops, loops)
    return pd.DataFrame(rows, index=["seconds", "of processors"]).T


def made(n_users: int, n_times: int) -> np.ndarray:  # type: ignore[type-arg]
    """Users who share sixteen weekly and slow cycles, of unit variance."""
    rng, t = np.random.default_rng(0), np.arange(n_times)
    periods = np.r_[7 / np.arange(1, 4), np.geomspace(20, 400, N_FACTORS - 3)]
    latent = np.sin(2 * np.pi * t / periods[:, None] + rng.uniform(0, 6, (N_FACTORS, 1)))
    y = rng.normal(size=(n_users, N_FACTORS)) @ latent
    y += 0.5 * rng.standard_normal(y.shape, dtype=np.float32)
    y /= y.std(axis=1, keepdims=True)
    return y


def _loops(y: np.ndarray) -> float:  # type: ignore[type-arg]
    """Processor seconds of one sweep at full size, with a small inverse for every user and every time, in Python."""
    rng = np.random.default_rng(0)
    rows, columns = rng.normal(size=(len(y), N_FACTORS)), rng.normal(size=(y.shape[1], N_FACTORS))
    eye = np.eye(N_FACTORS)
    began = time.process_time()
    for user, series in enumerate(y):
        rows[user] = np.linalg.inv(columns.T @ columns + eye) @ (columns.T @ series)
    users = time.process_time() - began
    began = time.process_time()
    for place, values in enumerate(y.T):
        columns[place] = np.linalg.inv(rows.T @ rows + eye) @ (rows.T @ values)
    times = time.process_time() - began
    # Products grow with times and users; the small inverse, which dominates here, does not.
    return users * N_USERS / len(y) + times * N_TIMES / y.shape[1] * (N_USERS / len(y))
