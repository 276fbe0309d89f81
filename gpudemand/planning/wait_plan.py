"""`plan_waits`: GPUs with which jobs start in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import binom

from gpudemand import _parallel
from gpudemand._array import FloatArray
from gpudemand._validation import InputError, check_choice, check_number, nearest, shorten
from gpudemand.jobs.table import check_jobs
from gpudemand.jobs.times import parse_timestamp
from gpudemand.planning.quantiles import QuantileTable, deviation, mean_demand, time_step
from gpudemand.planning.queue import pool_names
from gpudemand.planning.queue_kernels import POLICIES
from gpudemand.planning.waits import (
    WEEK_S,
    Future,
    Futures,
    Steps,
    Weeks,
    Work,
    unfinished_jobs,
    with_expected_ends,
)
from gpudemand.units import format_count, format_number_of, format_seconds, parse_duration, plural
from gpudemand.usage.series import end_of_record, series_codes, usage_series

#: Precision of the fewest GPUs that meet a target: this share of them, or a GPU.
RESOLUTION = 0.02
#: Futures of one parallel task.
_GROUP = 10


@dataclass(frozen=True)
class WaitTarget:
    """The share of jobs that start in time.

    `wait_s`: longest wait that is in time. `share`: share that is wanted. `of`: {"jobs", "gpu_hours"}; whether jobs
    count alike or by their GPU-hours. `largest`: only jobs of at most so many GPUs count.
    """

    wait_s: float
    share: float
    of: str = "jobs"
    largest: float = np.inf

    def __str__(self) -> str:
        of = "jobs" if self.of == "jobs" else "GPU-hours"
        size = f" of at most {self.largest:g} {plural('GPU', self.largest)}" if self.largest < np.inf else ""
        return f"{100 * self.share:.4g} % of the {of}{size} start within {format_seconds(self.wait_s)}"

    def check_counts(self, past: Weeks) -> None:
        """Raise if no job counts."""
        if self.largest < np.inf and not (past.gpus <= self.largest).any():
            raise InputError(
                f"no job of the log has at most {self.largest:g} {plural('GPU', self.largest)}; "
                "give a larger `largest`."
            )

    def share_in_time(self, future: Future, waits_s: FloatArray) -> float:
        """Share in time of the jobs of a future, 1 if none counts."""
        weight = self.weight(future)
        return float(weight[waits_s <= self.wait_s].sum() / weight.sum()) if weight.sum() > 0 else 1.0

    def excess(self, future: Future, gpus: float, policy: str) -> float:
        """Log odds of the share in time on a number of GPUs, relative to the target's; negative if it is missed."""
        # On fewer GPUs than a job that is known to come, the others would have room in its place.
        share = self.share_in_time(future, future.waits_s(gpus, policy)) if gpus >= future.fewest else 0.0
        # What is far from the target counts alike, since it says little about where the target is met.
        near = np.clip(share, self.share / 8, 1 - (1 - self.share) / 8)
        return float(np.log(near / (1 - near)) - np.log(self.share / (1 - self.share)))

    def weight(self, future: Future) -> FloatArray:
        """Weight of each counted job."""
        gpus = future.jobs.gpus[future.counted]
        weight = gpus * future.jobs.run[future.counted] if self.of == "gpu_hours" else np.ones(len(gpus))
        return np.where(gpus <= self.largest, weight, 0.0)


def wait_target(wait: str | pd.Timedelta, share: float, of: str = "jobs", largest: float | None = None) -> WaitTarget:
    """A target from checked arguments; see `gpudemand.planning.wait_plan.plan_waits`."""
    wait_s = parse_duration(wait).total_seconds()
    if wait_s <= 0:
        raise InputError(f"wait must be longer than 0 s; got {wait!r}. No number of GPUs starts every job at once.")
    check_number("wait_share", share, 0, 0.9999, open_low=True)
    most = np.inf if largest is None else check_number("largest", largest, 0, open_low=True)
    return WaitTarget(wait_s, share, of, most)


def gpus_needed(futures: Futures, target: WaitTarget, policy: str) -> FloatArray:
    """Fewest GPUs with which the target is met in each future, within `RESOLUTION` of it, shape (n_futures,).

    Futures are searched in groups, in parallel where ``joblib.parallel_config`` or a Dask client says so.
    """
    groups = [futures.take(places) for places in np.split(np.arange(len(futures)), range(_GROUP, len(futures), _GROUP))]
    return np.concatenate(_parallel.run(partial(_needed, target=target, policy=policy), groups))


def _needed(futures: Futures, target: WaitTarget, policy: str) -> FloatArray:
    """Each search begins where the one before ended, relative to the GPUs wanted, and with its slope."""
    needed, ratio, slope = np.zeros(len(futures)), 1.25, 10.0
    for number, future in enumerate(futures):
        if target.weight(future).any():
            wanted = future.gpus_wanted()
            needed[number], slope = _search(future, target, policy, max(round(ratio * wanted), 1), slope)
            ratio = needed[number] / wanted
        needed[number] = max(needed[number], np.ceil(future.fewest))
    return needed


def _search(future: Future, target: WaitTarget, policy: str, gpus: int, slope: float) -> tuple[int, float]:
    """Root of the excess from a guess on, and the slope of the excess by the logarithm of the GPUs.

    Evaluations are a little beyond the root as seen from the nearest, at first by the given slope, then by secants, of
    which an end that stays twice counts half (the Illinois method). Done is what lies so near to one that the rest is
    interpolated; fewer than a hundred GPUs are counted one by one.
    """
    low, high, at_low, at_high, side = 0, 0, -1.0, 0.0, 0
    while True:
        excess = target.excess(future, gpus, policy)
        if excess >= 0:
            high, at_high, at_low, side = gpus, excess, at_low / (2 if side > 0 else 1), 1
        else:
            low, at_low, at_high, side = gpus, excess, at_high / (2 if side < 0 else 1), -1
        if high != 1 and not (low and high):
            beyond = np.exp(-excess / slope) * (1 - side * RESOLUTION / 4)
            gpus, slope = _other(gpus, float(np.clip(beyond, 0.5, 2.0))), slope / 2
            continue
        root, near = low + (high - low) * at_low / (at_low - at_high), RESOLUTION * high / 2
        if high - low <= 1 or (min(root - low, high - root) <= near and near >= 1):
            return int(np.ceil(root)), (at_high - at_low) / np.log(high / low) if low else slope
        beyond = np.ceil(root + near / 2) if root - low < high - root else np.floor(root - near / 2)
        gpus = int(np.clip(beyond, low + 1, high - 1))


def _other(gpus: int, factor: float) -> int:
    """A multiple of a number of GPUs, at least one more or fewer."""
    return max(int(gpus * factor), gpus + 1) if factor > 1 else max(min(int(gpus * factor), gpus - 1), 1)


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

    `quantiles`: GPUs wanted by bin. `jobs`: canonical job table, of which weeks are drawn. `until`: end of the log.
    `step`: width of a bin. `availability`: share of the GPUs that runs jobs. `work`: jobs that are known to come,
    which the forecast counts too.
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

    `futures`: at least as long as the spans. `plans`: those are compared on the jobs that all of them have room for
    at some time. `spans`: seconds since the beginning of the time ahead. Returns shape (n_plans, n_spans): naN where
    some never start, such as known ones that are larger.
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


@dataclass(frozen=True)
class WaitPlan:
    """GPUs required against installed so that jobs start in time; prints the answer and the curve around it.

    Printed are medians over the futures, and of the mean wait also the 90 % quantile.

    Attributes
    ----------
    required, installed : float
        GPUs.
    target : WaitTarget
    service_level : float
    curve : DataFrame
        See `to_frame`.
    needed : ndarray of shape (n_futures,)
        GPUs that meet the target in each future.
    attrs : dict
        Metadata of the forecast.
    unique_id : str
        Name of the pool, or ``total``.
    availability : float
        Share of the GPUs that runs jobs.
    ahead : Futures, optional
        Of `mean_waits`.
    policy : str
    until : Timestamp
        End of the log.
    """

    required: float
    installed: float
    target: WaitTarget
    service_level: float
    curve: pd.DataFrame = field(repr=False)
    needed: FloatArray = field(repr=False)
    attrs: dict[str, object] = field(default_factory=dict, repr=False)
    unique_id: str = "total"
    availability: float = 1.0
    ahead: Futures | None = field(default=None, repr=False)
    policy: str = "easy"
    until: pd.Timestamp = pd.NaT

    @property
    def required_range(self) -> tuple[float, float]:
        """The 80 % confidence interval of the requirement, of which only so many futures are a sample."""
        n = len(self.needed)
        low, high = (int(rank) for rank in binom.ppf([0.1, 0.9], n, self.service_level))
        order = np.sort(self.needed)
        return float(order[max(low - 1, 0)]), float(order[min(high, n - 1)])

    def to_frame(self) -> pd.DataFrame:
        """Waits by number of GPUs.

        Returns
        -------
        DataFrame
            ``gpus``; ``share_in_time``, the median over futures, and its band ``share_in_time-lo-80``, ``-hi-80``;
            ``p_met``, the share of futures in which the target is met; ``mean_wait_s`` with its band;
            ``waited_hours``, the sum of the waits of a week's jobs, and ``saved_hours``, what the next 8 GPUs save of
            it (in between linearly).
        """
        return self.curve.copy()

    def mean_waits(
        self, installed: Sequence[pd.Series], spans: Sequence[tuple[pd.Timestamp, pd.Timestamp]]
    ) -> FloatArray:
        """Mean waits of the jobs to come behind those that run and wait as the log ends, with GPUs that change in time.

        Parameters
        ----------
        installed : sequence of Series
            GPUs installed, by the time from which on there are so many. Compared are the waits of the jobs that all of
            them have room for at some time.
        spans : sequence of (Timestamp, Timestamp)
            Times in which the jobs are submitted, after the end of the log.

        Returns
        -------
        ndarray of shape (n_installed, n_spans)
            Seconds, medians over the futures; NaN where some jobs never start, such as those of a larger programme.
        """
        assert self.ahead is not None
        steps = [Steps(self._seconds(gpus.index), gpus.to_numpy(dtype=float)) for gpus in installed]
        bounds = [(float(begin), float(end)) for begin, end in (self._seconds(pd.Index(span)) for span in spans)]
        weeks = max(int(np.ceil(max(end for _, end in bounds) / WEEK_S)), 1)
        return mean_waits(replace(self.ahead, n_weeks=weeks), steps, bounds, self.policy)

    def _seconds(self, times: pd.Index) -> FloatArray:
        return ((pd.DatetimeIndex(times) - self.until) / pd.Timedelta("1s")).to_numpy(dtype=float)

    @property
    def summary(self) -> pd.DataFrame:
        """Installed and required GPUs, shortfall, and the probability to meet the target with those installed."""
        row = {
            "installed": self.installed,
            "required": self.required,
            "shortfall": max(self.required - self.installed, 0.0),
            "p_met_installed": float((self.needed <= self.installed).mean()),
        }
        return pd.DataFrame([row], index=pd.Index([self.unique_id], name="unique_id"))

    def __repr__(self) -> str:
        low, high = self.required_range
        between = f"{format_count(low)} to {format_number_of('GPU', high)}"
        return (
            f"Wait plan: {format_number_of('GPU', self.required)} so that {self.target}, with probability "
            f"{100 * self.service_level:.4g} % ({between}); {format_count(self.installed)} installed\n"
            f"{self._printed().to_string(index=False)}"
        )

    def _repr_html_(self) -> str:
        headline, *_ = repr(self).splitlines()
        return f"<p>{headline}</p>{self._printed().to_html(index=False)}"

    def _printed(self) -> pd.DataFrame:
        percent = "{:.0%}".format
        return pd.DataFrame(
            {
                "GPUs": self.curve["gpus"].map(format_count),
                "in time": self.curve["share_in_time"].map(percent),
                "target met": self.curve["p_met"].map(percent),
                "mean wait, P50": self.curve["mean_wait_s"].map(format_seconds),
                "P90": self.curve["mean_wait_s-hi-80"].map(format_seconds),
                "next 8 save, h/week": self.curve["saved_hours"].map(format_count),
            }
        )


@dataclass(frozen=True)
class PooledWaitPlan:
    """Wait plans of several pools; prints a row a pool.

    Attributes
    ----------
    plans : dict of str to WaitPlan
        By name of the pool.
    """

    plans: dict[str, WaitPlan]

    def to_frame(self) -> pd.DataFrame:
        """The curves of `WaitPlan.to_frame`, with ``unique_id``, the name of the pool, before them."""
        curves = {name: plan.to_frame() for name, plan in self.plans.items()}
        return pd.concat(curves, names=["unique_id", None]).reset_index("unique_id").reset_index(drop=True)

    @property
    def summary(self) -> pd.DataFrame:
        """The summaries of `WaitPlan.summary`, a row a pool."""
        return pd.concat([plan.summary for plan in self.plans.values()])

    def __repr__(self) -> str:
        return f"{self._headline()}\n{self._printed().to_string()}"

    def _repr_html_(self) -> str:
        return f"<p>{self._headline()}</p>{self._printed().to_html()}"

    def _headline(self) -> str:
        plan = next(iter(self.plans.values()))
        return f"Wait plan: GPUs so that {plan.target}, in each pool with probability {100 * plan.service_level:.4g} %"

    def _printed(self) -> pd.DataFrame:
        summary = self.summary.rename_axis(None)
        counts = {name: summary[name].map(format_count) for name in ("installed", "required", "shortfall")}
        return pd.DataFrame(
            {**counts, "target met with those installed": summary["p_met_installed"].map("{:.0%}".format)}
        )


_TOTAL = "total"


class WaitPool(NamedTuple):
    """Interchangeable GPUs, the jobs that want them, and how many these will want.

    `jobs`: canonical columns; every job has an end. `quantiles`: GPUs wanted by bin.
    """

    name: str
    installed: float
    jobs: pd.DataFrame
    quantiles: QuantileTable


def split_pools(
    forecast: pd.DataFrame,
    jobs: pd.DataFrame,
    installed: float | Mapping[str, float],
    until: pd.Timestamp,
    model: str | None,
) -> list[WaitPool]:
    """Jobs and forecast of each pool.

    `forecast`: of one series, or of one a pool. One series of several pools is split by their shares of the GPU-hours
    wanted; the intervals are widened, relatively, as much as demand around its profile is in the pool. `jobs`:
    canonical columns; every job has an end. `until`: end of the log.
    """
    series = {str(name): rows.sort_values("ds") for name, rows in forecast.groupby("unique_id", sort=False)}
    tables = {name: QuantileTable.from_forecast(rows, model) for name, rows in series.items()}
    name, one = next(iter(tables.items()))
    if not isinstance(installed, (Mapping, pd.Series)):
        gpus = check_number("installed", installed, 0, open_low=True)
        if len(tables) > 1:
            raise InputError(f"the forecast has {len(tables)} series; give installed= by pool, or plan each by itself.")
        return [WaitPool(_TOTAL, gpus, jobs[series_codes(jobs, [name]) == 0], one)]
    counts = {str(pool): check_number(f"installed[{pool!r}]", n, 0, open_low=True) for pool, n in installed.items()}
    names = pool_names(jobs, counts, "installed")
    parts = {pool: jobs[names == pool] for pool in counts}
    if len(tables) == 1 and name not in counts:
        step = time_step(forecast["ds"])
        tables = {pool: _share_of(one, part, jobs, until, step) for pool, part in parts.items()}
    missing = [pool for pool in counts if pool not in tables]
    if missing:
        hint = nearest(missing[0], tables)
        raise InputError(f"the forecast has no series of the pool {shorten(missing[0])!r}.{hint} It needs one a pool.")
    return [WaitPool(pool, counts[pool], parts[pool], tables[pool]) for pool in counts]


def _share_of(
    total: QuantileTable, part: pd.DataFrame, jobs: pd.DataFrame, until: pd.Timestamp, step: pd.Timedelta
) -> QuantileTable:
    share = _wanted(part, until) / _wanted(jobs, until)
    own, all_, middle = deviation(part, until, step), deviation(jobs, until, step), total.quantile(0.5)[:, None]
    wider = max(np.sqrt(own / all_), share) if all_ > 0 else share
    return QuantileTable(total.z, share * middle + wider * (total.values - middle))


def _wanted(jobs: pd.DataFrame, until: pd.Timestamp) -> float:
    return float(usage_series(jobs, by=None, value="wanted", until=until)["y"].sum())


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
    log = check_jobs(jobs)
    end = end_of_record(log) if until is None else parse_timestamp(until, name="until")
    log = with_expected_ends(log, until=end)
    step, kind = time_step(forecast["ds"]), dict(forecast.attrs)
    begin = forecast["ds"].min()
    known = None if work is None else Work.from_jobs(work, begin, (forecast["ds"].max() + step - begin).total_seconds())
    plans = {}
    for pool in split_pools(forecast, log, installed, end, model):
        futures = draw_futures(pool.quantiles, pool.jobs, end, step, n_futures, random_state, share, known)
        plans[pool.name] = _plan_pool(pool, futures, target, service_level, policy, also, kind, end)
    return PooledWaitPlan(plans) if isinstance(installed, (Mapping, pd.Series)) else plans["total"]


def _plan_pool(
    pool: WaitPool,
    futures: Futures,
    target: WaitTarget,
    service_level: float,
    policy: str,
    capacities: Sequence[float],
    attrs: dict[str, object],
    until: pd.Timestamp,
) -> WaitPlan:
    target.check_counts(futures.past)
    needed = gpus_needed(futures, target, policy)
    required = float(np.quantile(needed, service_level, method="higher"))
    full = float(np.median(futures.levels)) / futures.availability
    at = curve_gpus(required, full, [pool.installed, *capacities])
    places = np.arange(_CURVE_FUTURES) + np.random.default_rng(0).random(_CURVE_FUTURES)
    ranks = np.unique((places * len(futures) / _CURVE_FUTURES).astype(int))
    strata = futures.take(np.argsort(futures.levels)[ranks])
    curve = wait_curve(at, strata, target, policy)
    curve.insert(4, "p_met", [float((needed <= count).mean()) for count in at])
    found = (required, pool.installed, target, service_level, curve, needed, attrs, pool.name)
    there = unfinished_jobs(pool.jobs, until)
    # A log of finished jobs does not tell which others ran as it ended.
    ahead = replace(strata, unfinished=there if len(there.gpus) else None)
    return WaitPlan(*found, futures.availability, ahead, policy, until)
