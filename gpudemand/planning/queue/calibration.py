"""Calibration of a simulated queue to the waits that a log records."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._validation import InputError, check_number
from gpudemand.jobs.as_of import gave_up, seconds_since
from gpudemand.jobs.table import check_jobs
from gpudemand.jobs.time_parser import parse_timestamp
from gpudemand.planning.queue.expected import with_expected_ends
from gpudemand.planning.queue.simulate import simulate_queue
from gpudemand.planning.runtime.run_time import RunTimeModel

#: Least share of the installed GPUs that is considered, and the precision of the share.
_LEAST, _PRECISION = 0.3, 0.005


def effective_capacity(
    jobs: pd.DataFrame,
    installed: float,
    *,
    start: object,
    until: object,
    policy: str = "easy",
    run_time: RunTimeModel | None = None,
) -> float:
    """GPUs with which a simulation gives the mean wait that a log records over a period.

    They are fewer than those installed where nodes are down, reserved or limited, or GPUs are fragmented: simulated on
    all of them, waits come out too short. The result is what to simulate other jobs of that cluster with.

    Parameters
    ----------
    jobs : DataFrame
        Job table with ``submit`` and ``start``.
    installed : float
        GPUs installed.
    start, until : time-like
        Period of the submissions, some weeks. Jobs that ran or waited at its start do so in the simulation too.
    policy : {"easy", "conservative", "fifo", "eager"}, default="easy"
        See `simulate_queue`.
    run_time : RunTimeModel, optional
        Expects how long jobs without an end run; by default one that is fitted to `jobs`.

    Returns
    -------
    float
        From 30 % of `installed` to all. Jobs that are larger are taken to request all there are; those that have not
        started by `until`, in the log or simulated, to have waited until then.

    Raises
    ------
    InputError
        If no job that was submitted in the period has started.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> submit = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(np.sort(rng.integers(0, 86400, 300)), unit="s")
    >>> log = pd.DataFrame({"submit": submit, "end": submit + pd.Timedelta("1h"), "gpus": 1.0})
    >>> log = simulate_queue(log, 13)
    >>> round(effective_capacity(log, 20, start="2026-03-01", until="2026-03-02"))
    13
    """
    most = check_number("installed", installed, 0, open_low=True)
    begin, end = parse_timestamp(start, name="start"), parse_timestamp(until, name="until")
    log = with_expected_ends(check_jobs(jobs), run_time)
    log = log[(log["submit"] < end) & ((log["end"] > begin) | (log["submit"] >= begin)) & ~gave_up(log)]
    # With expected ends, what waits at the beginning, and still does at the end, would else seem to run.
    log = log.assign(status=log["status"].mask(log["start"].isna(), "pending"))
    recorded = mean_wait_s(log, begin, end)
    if np.isnan(recorded):
        raise InputError(f"no job submitted from {begin} to {end} has started; choose another period.")
    low, high = _LEAST * most, most
    if _simulated_wait_s(log, high, begin, end, policy) >= recorded:
        return most
    while high - low > _PRECISION * most:
        middle = (low + high) / 2
        is_too_long = _simulated_wait_s(log, middle, begin, end, policy) > recorded
        low, high = (middle, high) if is_too_long else (low, middle)
    return high


def mean_wait_s(jobs: pd.DataFrame, begin: pd.Timestamp, until: pd.Timestamp | None = None) -> float:
    """Mean wait (s) of the jobs with GPUs that were submitted from `begin` on and have started; NaN without any.

    With `until`, as far as they have waited by then, and also of those that still do: of the jobs of a queue that
    grows, those that have started are the ones that waited for a short time.
    """
    counted = jobs[(jobs["submit"] >= begin) & (jobs["gpus"] > 0)]
    started = counted["start"].notna()
    if not started.any():
        return np.nan
    start = counted["start"][started] if until is None else counted["start"].fillna(until).clip(upper=until)
    return float(np.mean(seconds_since(start, counted["submit"].loc[start.index])))


def _simulated_wait_s(jobs: pd.DataFrame, gpus: float, begin: pd.Timestamp, until: pd.Timestamp, policy: str) -> float:
    able = jobs.assign(gpus=np.minimum(jobs["gpus"], gpus))
    return mean_wait_s(simulate_queue(able, gpus, policy, start=begin), begin, until)
