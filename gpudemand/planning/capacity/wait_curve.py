"""Waits by number of GPUs: medians and bands over futures at the levels of a forecast."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from gpudemand import _parallel
from gpudemand._typing import FloatArray
from gpudemand.planning.capacity.mean_demand import mean_demand
from gpudemand.planning.capacity.quantiles import QuantileTable
from gpudemand.planning.capacity.wait_target import WaitTarget
from gpudemand.planning.queue.futures import WEEK_S, Future, Weeks, draw_future


def draw_futures(
    quantiles: QuantileTable,
    jobs: pd.DataFrame,
    until: pd.Timestamp,
    step: pd.Timedelta,
    n: int,
    rng: np.random.Generator,
) -> list[Future]:
    """Futures at levels at evenly spaced probabilities of a forecast, in random order.

    Parameters
    ----------
    quantiles : QuantileTable
        GPUs wanted by bin.
    jobs : DataFrame
        Canonical job table, of which weeks are drawn.
    until : Timestamp
        End of the log.
    step : Timedelta
        Width of a bin.
    n : int
    rng : Generator

    Returns
    -------
    list of Future
    """
    past = Weeks.from_log(jobs, until)
    n_weeks = max(int(np.ceil(len(quantiles.values) * step.total_seconds() / WEEK_S)), 1)
    levels = mean_demand(quantiles, rng.permutation((np.arange(n) + 0.5) / n), jobs, until, step)
    return [draw_future(past, n_weeks, float(level), own) for level, own in zip(levels, rng.spawn(n), strict=True)]


def wait_curve(at: FloatArray, futures: list[Future], target: WaitTarget, policy: str) -> pd.DataFrame:
    """Medians and bands over the futures, a row a number of GPUs."""
    rows = _parallel.run(partial(_row, futures=futures, target=target, policy=policy), at)
    curve = pd.DataFrame({"gpus": at}).join(pd.DataFrame(rows))
    later = np.interp(at + 8, at, curve["waited_hours"])
    return curve.assign(saved_hours=curve["waited_hours"] - later)


def _row(gpus: float, futures: list[Future], target: WaitTarget, policy: str) -> dict[str, float]:
    outcomes = [(future, future.waits_s(gpus, policy)) for future in futures]
    share = [target.share_in_time(future, waits) for future, waits in outcomes]
    # Jobs that are too large wait for ever; the others' waits are told without them.
    able = [waits[np.isfinite(waits)] for _, waits in outcomes]
    mean = [float(waits.mean()) if waits.size else 0.0 for waits in able]
    weeks = [max(future.jobs.submit.max(initial=0) / 1e6 / WEEK_S - 1, 1e-9) for future, _ in outcomes]
    waited = [waits.sum() / 3600 / max(round(n), 1) for waits, n in zip(able, weeks, strict=True)]
    row: dict[str, float] = {}
    for name, values in (("share_in_time", share), ("mean_wait_s", mean)):
        low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
        row |= {name: float(middle), f"{name}-lo-80": float(low), f"{name}-hi-80": float(high)}
    return row | {"waited_hours": float(np.mean(waited))}
