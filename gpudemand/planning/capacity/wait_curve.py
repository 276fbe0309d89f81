"""Waits by number of GPUs: medians and bands over futures at the levels of a forecast."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from gpudemand import _parallel
from gpudemand._typing import FloatArray
from gpudemand.planning.capacity.mean_demand import mean_demand
from gpudemand.planning.capacity.quantiles import QuantileTable
from gpudemand.planning.capacity.wait_target import WaitTarget
from gpudemand.planning.queue.futures import Future, Futures, Steps, Weeks
from gpudemand.planning.queue.work import WEEK_S, Work

#: Jobs of a future, beyond which it is of fewer weeks than the forecast, but not of fewer than these: on the bundled
#: sample (3,800 jobs a week) four of 17 move what is required by up to 2 %, as another seed does.
_MOST_JOBS, _FEWEST_WEEKS = 500_000, 4
#: Jobs of all futures that steps are compared on, beyond which there are fewer futures, but not fewer than these.
_MOST_COMPARED, _FEWEST_FUTURES = 5_000_000, 5
#: GPUs of the curve, relative to the requirement; at least those wanted in the median future, below which queues only
#: grow, with waits as long as the simulation.
_CURVE = (0.6, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25)
#: A node more or less than the requirement, whose chances the curve also tells.
_STEP = 8


def draw_futures(
    quantiles: QuantileTable,
    jobs: pd.DataFrame,
    until: pd.Timestamp,
    step: pd.Timedelta,
    n: int,
    random_state: int,
    availability: float = 1.0,
    work: Work | None = None,
) -> Futures:
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
    random_state : int
    availability : float, default=1.0
        Share of the GPUs that runs jobs.
    work : Work, optional
        Jobs that are known to come, which the forecast counts too.

    Returns
    -------
    Futures
    """
    past, seeds = Weeks.from_log(jobs, until), np.random.SeedSequence(random_state)
    n_weeks = max(int(np.ceil(len(quantiles.values) * step.total_seconds() / WEEK_S)), 1)
    n_weeks = min(n_weeks, max(int(_MOST_JOBS / (len(past.week) / past.n_weeks)), _FEWEST_WEEKS))
    levels = mean_demand(
        quantiles, np.random.default_rng(random_state).permutation((np.arange(n) + 0.5) / n), jobs, until, step
    )
    return Futures(past, n_weeks, levels, seeds.spawn(n), availability, work)


def curve_gpus(required: float, wanted: float, others: Sequence[float]) -> FloatArray:
    """Numbers of GPUs of a curve, ascending: around those required, from those wanted on, and others."""
    near = [max(required - _STEP, 1.0), required + _STEP]
    return np.unique(np.ceil(np.r_[np.maximum(np.multiply(_CURVE, required), wanted), near, others]))


def wait_curve(at: FloatArray, futures: Futures, target: WaitTarget, policy: str) -> pd.DataFrame:
    """Medians and bands over the futures, a row a number of GPUs."""
    ones = [futures.take(np.array([place])) for place in range(len(futures))]
    # What 8 GPUs beyond the last number save takes one more.
    beyond = np.append(at, at[-1] + _STEP)
    outcomes = np.stack(_parallel.run(partial(_outcomes, at=beyond, target=target, policy=policy), ones))
    # A queue may start fewer jobs in time on more GPUs; who has more may leave some idle.
    outcomes[:, :, 0] = np.maximum.accumulate(outcomes[:, :, 0], axis=1)
    rows = [_row(*outcomes[:, place].T) for place in range(len(beyond))]
    curve = pd.DataFrame({"gpus": beyond}).join(pd.DataFrame(rows))
    later = np.interp(beyond + _STEP, beyond, curve["waited_hours"])
    return curve.assign(saved_hours=curve["waited_hours"] - later).iloc[:-1]


def _outcomes(one: Futures, at: FloatArray, target: WaitTarget, policy: str) -> list[tuple[float, float, float]]:
    """Outcomes of one future, which is drawn once, on each number of GPUs."""
    (future,) = one
    return [_outcome(future, gpus, target, policy) for gpus in at]


def _row(share: FloatArray, mean: FloatArray, waited: FloatArray) -> dict[str, float]:
    row: dict[str, float] = {}
    for name, values in (("share_in_time", share), ("mean_wait_s", mean)):
        low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
        row |= {name: float(middle), f"{name}-lo-80": float(low), f"{name}-hi-80": float(high)}
    return row | {"waited_hours": float(np.mean(waited))}


def _outcome(future: Future, gpus: float, target: WaitTarget, policy: str) -> tuple[float, float, float]:
    """Share in time, mean wait (s), and hours waited for a week's jobs."""
    waits = future.waits_s(gpus, policy)
    # Jobs that are too large wait for ever; the others' waits are told without them.
    able = waits[np.isfinite(waits)]
    weeks = max(round(future.jobs.submit.max(initial=0) / 1e6 / WEEK_S - 1), 1)
    return target.share_in_time(future, waits), float(able.mean()) if able.size else 0.0, able.sum() / 3600 / weeks


def mean_waits(
    futures: Futures, plans: Sequence[Steps], spans: Sequence[tuple[float, float]], policy: str
) -> FloatArray:
    """Mean waits (s) on GPUs that change with time, medians over futures, of jobs submitted in some spans of time.

    Parameters
    ----------
    futures : Futures
        At least as long as the spans.
    plans : sequence of Steps
        Those are compared on the jobs that all of them have room for at some time.
    spans : sequence of (float, float)
        Seconds since the beginning of the time ahead.
    policy : str

    Returns
    -------
    ndarray of shape (n_plans, n_spans)
        NaN where some never start, such as known ones that are larger.
    """
    per_future = len(futures.past.week) / futures.past.n_weeks * futures.n_weeks * len(plans)
    n = int(np.clip(_MOST_COMPARED / max(per_future, 1.0), min(_FEWEST_FUTURES, len(futures)), len(futures)))
    places = ((np.arange(n) + 0.5) * len(futures) / n).astype(int)
    ones = [futures.take(np.array([place])) for place in np.argsort(futures.levels, kind="stable")[places]]
    found = np.median(_parallel.run(partial(_mean_waits, plans=plans, spans=spans, policy=policy), ones), axis=0)
    return np.where(np.isfinite(found), found, np.nan)


def _mean_waits(one: Futures, plans: Sequence[Steps], spans: Sequence[tuple[float, float]], policy: str) -> FloatArray:
    (future,) = one
    most = np.array([steps.gpus.max() for steps in plans])
    waits = np.stack([future.waits_s(steps, policy) for steps in plans])
    waits[most < future.fewest] = np.inf
    submit_s, able = future.submit_s(), future.jobs.gpus[future.counted] <= most.min()
    spanned = [able & (submit_s >= begin) & (submit_s < end) for begin, end in spans]
    return np.stack([waits[:, jobs].mean(axis=1) if jobs.any() else np.zeros(len(plans)) for jobs in spanned], axis=1)
