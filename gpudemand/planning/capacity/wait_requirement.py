"""GPUs so that jobs start in time: coming weeks drawn from a log, at the level of a forecast, through the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.jobs.table import check_jobs
from gpudemand.jobs.time_parser import parse_timestamp
from gpudemand.planning.capacity.mean_demand import time_step
from gpudemand.planning.capacity.wait_curve import curve_gpus, draw_futures, wait_curve
from gpudemand.planning.capacity.wait_plan import PooledWaitPlan, WaitPlan
from gpudemand.planning.capacity.wait_pools import WaitPool, split_pools
from gpudemand.planning.capacity.wait_target import WaitTarget, gpus_needed, wait_target
from gpudemand.planning.queue.events import POLICIES
from gpudemand.planning.queue.expected import with_expected_ends
from gpudemand.planning.queue.futures import unfinished_jobs
from gpudemand.planning.queue.work import Work
from gpudemand.usage.series import end_of_record

#: Futures behind the curve, one from each stratum of the GPUs wanted, which decide most of the waits: its quantiles are
#: as precise as with twice as many drawn from all. The requirement and the probabilities rest on all futures.
_CURVE_FUTURES = 20


def plan_waits(
    forecast: pd.DataFrame,
    jobs: pd.DataFrame,
    *,
    installed: float | Mapping[str, float],
    wait: str | pd.Timedelta = "1h",
    wait_share: float = 0.9,
    of: str = "jobs",
    largest: float | None = None,
    service_level: float = 0.95,
    policy: str = "easy",
    model: str | None = None,
    availability: float = 1.0,
    n_futures: int = 100,
    random_state: int = 0,
    until: object = None,
    work: pd.DataFrame | None = None,
    capacities: Sequence[float] = (),
) -> WaitPlan | PooledWaitPlan:
    """GPUs required so that a share of the jobs starts within a time.

    Futures are weeks drawn from the log with all jobs of all users, so that bursts and quiet stay, with as many jobs as
    make the GPUs wanted equal to a level drawn from the forecast. Each is simulated at several numbers of GPUs, after a
    week in which the cluster fills; the requirement meets the target in more than a share `service_level` of them. Jobs
    that wait as the log ends do not raise it, as they are gone some time after: `WaitPlan.mean_waits` has them.

    Parameters
    ----------
    forecast : DataFrame
        GPUs wanted (``usage_series(jobs, value="wanted")``): ``unique_id``, ``ds``, and one model's point and interval
        columns, of one series, or of one a pool.
    jobs : DataFrame
        Job table of at least two weeks before the forecast; the newest 26 are used.
    installed : float or mapping of str to float
        GPUs installed; of several pools, by ``gpu_type``, ``partition`` or ``cluster``, whichever column holds the
        names. Of a forecast of the total, each pool gets its share of the GPU-hours wanted in the log.
    wait : str or Timedelta, default="1h"
        Longest wait that is in time.
    wait_share : float in (0, 1), default=0.9
        Share that is to start in time.
    of : {"jobs", "gpu_hours"}, default="jobs"
        Share of jobs, or of their GPU-hours.
    largest : float, optional
        Only jobs of at most so many GPUs count.
    service_level : float in (0.5, 1), default=0.95
        Probability with which the target is met over the weeks of the forecast, in each pool.
    policy : {"easy", "conservative", "fifo", "eager"}, default="easy"
        See `simulate_queue`.
    model : str, optional
        Model to use, if the forecast has several.
    availability : float in (0, 1], default=1.0
        Share of the GPUs that runs jobs; nodes are down, reserved or limited. `effective_capacity` over the GPUs
        installed is what a log's waits tell of it.
    n_futures : int, default=100
        Their number is what limits the precision of the requirement: see `WaitPlan.required_range`.
    random_state : int, default=0
        Seed; futures are the same at every number of GPUs.
    until : time-like, optional
        End of the log, where `jobs` may have expected ends after it; by default where the log stops being complete.
    work : DataFrame, optional
        Jobs to come (``submit``, ``end``, ``gpus``) that are known, as of `Programme.jobs`. The forecast counts their
        GPUs too; the other jobs are drawn to make up what it has beyond them. Of one pool.
    capacities : sequence of float, default=()
        Numbers of GPUs that the curve tells the waits of, besides those installed and those around the requirement.

    Returns
    -------
    WaitPlan, or of several pools a PooledWaitPlan

    Raises
    ------
    InputError
        For a target that cannot be met, such as a wait of nothing, and other arguments that cannot be used.

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster
    >>> from gpudemand.forecast import SeasonallyAdjustedNaive
    >>> from gpudemand.usage import usage_series
    >>> jobs, _ = make_cluster(n_users=10, n_days=56, random_state=0)
    >>> usage = usage_series(jobs, by=None, value="wanted", partial=False)
    >>> forecast = SeasonallyAdjustedNaive().fit(usage).predict(14, level=[80, 95])
    >>> plan = plan_waits(forecast, jobs, installed=64, wait="1h", n_futures=20)
    >>> curve = plan.to_frame()
    >>> bool(curve["share_in_time"].is_monotonic_increasing)
    True
    """
    check_choice("policy", policy, POLICIES)
    check_choice("of", of, ("jobs", "gpu_hours"))
    check_number("service_level", service_level, 0.5, 0.9999, open_low=True)
    n_futures = int(check_number("n_futures", n_futures, 2, 100_000, integer=True))
    share = check_number("availability", availability, 0, 1, open_low=True)
    if work is not None and isinstance(installed, (Mapping, pd.Series)):
        raise InputError("work= is for one pool; give one number of GPUs installed.")
    target = wait_target(wait, wait_share, of, largest)
    also = [check_number("capacities", gpus, 0, open_low=True) for gpus in capacities]
    settings = _Settings(target, service_level, policy, share, n_futures, random_state, also)
    log = check_jobs(jobs)
    end = end_of_record(log) if until is None else parse_timestamp(until, name="until")
    log = with_expected_ends(log, until=end)
    step, kind = time_step(forecast["ds"]), dict(forecast.attrs)
    begin = forecast["ds"].min()
    known = None if work is None else Work.from_jobs(work, begin, (forecast["ds"].max() + step - begin).total_seconds())
    plans = {
        pool.name: settings.plan(pool, end, step, kind, known)
        for pool in split_pools(forecast, log, installed, end, model)
    }
    return PooledWaitPlan(plans) if isinstance(installed, (Mapping, pd.Series)) else plans["total"]


@dataclass(frozen=True)
class _Settings:
    target: WaitTarget
    service_level: float
    policy: str
    availability: float
    n_futures: int
    random_state: int
    capacities: Sequence[float]

    def plan(
        self, pool: WaitPool, until: pd.Timestamp, step: pd.Timedelta, attrs: dict[str, object], work: Work | None
    ) -> WaitPlan:
        """Plan of one pool."""
        futures = draw_futures(
            pool.quantiles, pool.jobs, until, step, self.n_futures, self.random_state, self.availability, work
        )
        self.target.check_counts(futures.past)
        needed = gpus_needed(futures, self.target, self.policy)
        required = float(np.quantile(needed, self.service_level, method="higher"))
        full = float(np.median(futures.levels)) / self.availability
        at = curve_gpus(required, full, [pool.installed, *self.capacities])
        places = np.arange(_CURVE_FUTURES) + np.random.default_rng(0).random(_CURVE_FUTURES)
        ranks = np.unique((places * len(futures) / _CURVE_FUTURES).astype(int))
        strata = futures.take(np.argsort(futures.levels)[ranks])
        curve = wait_curve(at, strata, self.target, self.policy)
        curve.insert(4, "p_met", [float((needed <= count).mean()) for count in at])
        found = (required, pool.installed, self.target, self.service_level, curve, needed, attrs, pool.name)
        there = unfinished_jobs(pool.jobs, until)
        # A log of finished jobs does not tell which others ran as it ended.
        ahead = replace(strata, unfinished=there if len(there.gpus) else None)
        return WaitPlan(*found, self.availability, ahead, self.policy, until)
