"""Futures of logs with very many jobs."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd

from gpudemand.planning import wait_plan as wait_curve
from gpudemand.planning.quantiles import QuantileTable
from gpudemand.planning.wait_plan import WaitTarget, gpus_needed
from gpudemand.planning.waits import Futures, Weeks
from tests.planning.test_wait_plan import BEGIN, forecast_of, stationary_log

DAY = pd.Timedelta("1D")


def drawn(n_jobs_at_most, monkeypatch):
    monkeypatch.setattr(wait_curve, "_MOST_JOBS", n_jobs_at_most)
    log = stationary_log(12, seed=0)
    quantiles = QuantileTable.from_forecast(forecast_of(20.0, 2.0, days=70))
    return wait_curve.draw_futures(quantiles, log, BEGIN + 12 * 7 * DAY, DAY, 8, 0)


def test_futures_of_many_jobs_are_of_fewer_weeks(monkeypatch):
    futures = drawn(500_000, monkeypatch)
    per_week = len(futures.past.week) / futures.past.n_weeks
    assert futures.n_weeks == 10
    assert drawn(6.5 * per_week, monkeypatch).n_weeks == 6
    assert drawn(per_week, monkeypatch).n_weeks == 4


def test_one_future_is_in_memory_at_a_time():
    log = stationary_log(6, seed=0)
    past = Weeks.from_log(log, BEGIN + 6 * 7 * DAY)
    few, many = (Futures(past, 10, np.full(n, 20.0), np.random.SeedSequence(0).spawn(n)) for n in (2, 10))
    # The first call compiles, which takes memory too.
    gpus_needed(few, WaitTarget(3600.0, 0.9), "easy")
    peaks = []
    for futures in (few, many):
        tracemalloc.start()
        gpus_needed(futures, WaitTarget(3600.0, 0.9), "easy")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]
