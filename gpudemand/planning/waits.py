"""Waits that are expected: simulated futures, and what of the recorded waits GPUs explain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gpudemand._array import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_number
from gpudemand.jobs.table import check_jobs, gave_up, seconds_since, start_times
from gpudemand.jobs.times import parse_timestamp
from gpudemand.planning.queue import run_seconds, simulate_queue
from gpudemand.planning.queue_kernels import NEVER, POLICIES, QueuedJobs, simulate_events, within
from gpudemand.planning.run_time import RunTimeModel, person_periods
from gpudemand.units import DAY, WEEK
from gpudemand.usage.series import end_of_record


def expected_queueing(
    jobs: pd.DataFrame,
    capacities: Sequence[float],
    *,
    growth: float = 1.0,
    policy: str = "easy",
    start: object = None,
    run_time: RunTimeModel | None = None,
    random_state: int = 0,
) -> pd.DataFrame:
    """Simulated waits of the jobs of a log at several capacities.

    Parameters
    ----------
    jobs : DataFrame
        Job table of a representative period, such as the last four weeks.
    capacities : sequence of float
        GPUs installed.
    growth : float, default=1.0
        Number of submissions relative to the log's. Copies of jobs are submitted whole weeks (in a shorter log, days)
        before or after them, so that days and weeks keep their shape.
    policy : {"easy", "conservative", "fifo", "eager"}, default="easy"
        See `simulate_queue`.
    start : time-like, optional
        Jobs that started before it hold their GPUs at the beginning, and are not among the waits. By default the
        cluster is empty at first.
    run_time : RunTimeModel, optional
        Expects how long jobs without an end run; by default one that is fitted to `jobs`.
    random_state : int, default=0
        Seed of the jobs that `growth` draws.

    Returns
    -------
    DataFrame
        Index ``capacity``; ``utilization``, ``mean_wait_s``, ``p95_wait_s``, ``share_over_1h`` (share of jobs that wait
        longer than an hour), ``never`` (share of jobs too large to run, which are left out).

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster
    >>> jobs, _ = make_cluster(n_users=10, n_days=28, random_state=0)
    >>> waits = expected_queueing(jobs, [32, 128])["mean_wait_s"]
    >>> bool(waits[128] < waits[32])
    True
    """
    check_number("growth", growth, 0, 1000, open_low=True)
    log = with_expected_ends(check_jobs(jobs), run_time)
    log = log[(log["gpus"] > 0).to_numpy() & ~gave_up(log)]
    if log.empty:
        raise InputError("no job of the log held a GPU, so there is nothing to simulate.")
    begin = log["submit"].min() if start is None else parse_timestamp(start, name="start")
    log = log if growth == 1 else _grown(log, growth, begin, np.random.default_rng(random_state))
    rows = [_waits(log, check_number("capacities", gpus, 0, open_low=True), policy, begin) for gpus in capacities]
    return pd.DataFrame(rows, index=pd.Index(list(capacities), name="capacity"))


def with_expected_ends(
    jobs: pd.DataFrame, run_time: RunTimeModel | None = None, until: pd.Timestamp | None = None
) -> pd.DataFrame:
    """The log with the expected ends of jobs that had none, in new rows 0, 1, ...; see `run_seconds`.

    Those that wait start at its end, `until`, at the earliest.
    """
    log = jobs.reset_index(drop=True)
    unfinished, begin = log["end"].isna(), start_times(log)
    run = pd.to_timedelta(pd.Series(run_seconds(log, run_time), log.index), unit="s")
    end_of_log = end_of_record(log) if until is None else until
    start, end = log["start"].mask(begin.isna(), end_of_log), log["end"].fillna(begin.fillna(end_of_log) + run)
    return log.assign(start=start, end=end, status=log["status"].mask(unfinished, "completed"))


def _grown(jobs: pd.DataFrame, growth: float, begin: pd.Timestamp, rng: np.random.Generator) -> pd.DataFrame:
    """The jobs submitted from `begin` on in `growth` times their number, at the same times of other weeks or days."""
    later = jobs[jobs["submit"] >= begin]
    count = np.floor(growth) + (rng.random(len(later)) < growth % 1)
    copies = later.loc[later.index.repeat(count.astype(int))]
    is_copy = copies.index.duplicated()
    span = later["submit"].max() - begin
    step = WEEK if span >= 2 * WEEK else DAY
    n_steps = max(int(np.ceil(span / step)), 1)
    shift = np.where(is_copy, rng.integers(0, n_steps, len(copies)), 0)
    since = copies["submit"] - begin
    moved = (since + shift * step) % (n_steps * step) - since
    copies = copies.assign(**{name: copies[name] + moved for name in ("submit", "start", "end")}, job_id=None)
    return pd.concat([jobs[jobs["submit"] < begin], copies], ignore_index=True)


def _waits(jobs: pd.DataFrame, capacity: float, policy: str, begin: pd.Timestamp) -> dict[str, float]:
    able = jobs[jobs["gpus"] <= capacity]
    never = 1 - len(able) / len(jobs)
    ran = simulate_queue(able, capacity, policy, start=begin) if len(able) else able
    counted = ran[(ran["submit"] >= begin) & ran["start"].notna()]
    if counted.empty:
        return {"utilization": 0.0, "mean_wait_s": np.nan, "p95_wait_s": np.nan, "share_over_1h": 1.0, "never": never}
    wait = seconds_since(counted["start"], counted["submit"])
    return {
        "utilization": _utilization(ran, capacity, begin, counted["submit"].max()),
        **mean_and_p95(wait),
        "share_over_1h": float((wait > 3600).mean()),
        "never": never,
    }


def mean_and_p95(wait_s: FloatArray) -> dict[str, float]:
    """Mean and 95 % quantile of waits."""
    return {"mean_wait_s": float(wait_s.mean()), "p95_wait_s": float(np.quantile(wait_s, 0.95))}


def _utilization(jobs: pd.DataFrame, capacity: float, begin: pd.Timestamp, until: pd.Timestamp) -> float:
    length = max((until - begin).total_seconds(), 1.0)
    first, last = (np.clip(seconds_since(jobs[name], begin), 0, length) for name in ("start", "end"))
    return float(np.nansum((last - first) * jobs["gpus"].to_numpy(dtype=float)) / (capacity * length))


WEEK_S = 7 * 86400


class Work(NamedTuple):
    """Jobs that are known to come, beside those that are drawn.

    `submit_s`: shape (n_jobs,); since the beginning of the time ahead; those of the week before may still run then.
    `run_s`, `gpus`: shape (n_jobs,). `weeks`: weeks ahead. `mean`: mean GPUs wanted over the time ahead.
    """

    submit_s: FloatArray
    run_s: FloatArray
    gpus: FloatArray
    weeks: int
    mean: float

    @classmethod
    def from_jobs(cls, jobs: pd.DataFrame, begin: pd.Timestamp, ahead_s: float) -> Work:
        """Jobs of a time that begins at `begin`."""
        weeks, submit_s = int(np.ceil(ahead_s / WEEK_S)), seconds_since(jobs["submit"], begin)
        end_s, gpus = seconds_since(jobs["end"], begin), jobs["gpus"].to_numpy(dtype=float)
        held_s = np.clip(end_s, 0, ahead_s) - np.clip(submit_s, 0, ahead_s)
        there = submit_s >= -WEEK_S
        mean = float((held_s * gpus).sum() / ahead_s)
        return cls(submit_s[there], (end_s - submit_s)[there], gpus[there], weeks, mean)


#: Oldest weeks that are drawn.
_MOST_WEEKS = 26


class Weeks(NamedTuple):
    """Jobs of past weeks, the newest first.

    `week`: shape (n_jobs,). `submit_s`: shape (n_jobs,); since the start of the week. `run_s`, `requested_s`, `gpus`:
    shape (n_jobs,).
    """

    week: IntArray
    submit_s: FloatArray
    run_s: FloatArray
    requested_s: FloatArray
    gpus: FloatArray
    n_weeks: int

    @classmethod
    def from_log(cls, jobs: pd.DataFrame, until: pd.Timestamp) -> Weeks:
        """Whole weeks of a log, counted back from its end.

        `jobs`: canonical columns; every job has an end. `until`: end of the log.
        """
        log = jobs.sort_values("submit", kind="stable", ignore_index=True)
        back_s = -seconds_since(log["submit"], until)
        n_weeks = min(int((until - log["submit"].min()).total_seconds() // WEEK_S), _MOST_WEEKS)
        if n_weeks < 2:
            raise InputError("the log covers fewer than two weeks; waits to come are drawn from whole weeks of it.")
        week = np.maximum(np.ceil(back_s / WEEK_S) - 1, 0).astype(np.int64)
        used = (week < n_weeks) & (log["gpus"] > 0).to_numpy() & ~gave_up(log)
        run_s = seconds_since(log["end"], log["start"].fillna(log["submit"]))
        requested_s = np.maximum(log["requested_time"].fillna(0.0).to_numpy(dtype=float), run_s)
        columns = (week, WEEK_S * (week + 1) - back_s, run_s, requested_s, log["gpus"].to_numpy(dtype=float))
        return cls._make([*(column[used] for column in columns), n_weeks])


class Steps(NamedTuple):
    """GPUs that change with time.

    `since_s`: shape (n_steps,); since the beginning of the time ahead, ascending; the first are there before it too.
    `gpus`: shape (n_steps,).
    """

    since_s: FloatArray
    gpus: FloatArray


class Future(NamedTuple):
    """Jobs of weeks to come, in the order of their submission.

    `jobs`: times in microseconds. `counted`: shape (n_jobs,); jobs whose waits count: not those of the first week, in
    which the cluster fills, or from the log. `availability`: share of the GPUs that runs jobs; a job larger than that
    takes all of it, once there are as many GPUs. `fewest`: GPUs of the largest job that is known to come.
    """

    jobs: QueuedJobs
    counted: BoolArray
    availability: float = 1.0
    fewest: float = 0.0

    def gpus_wanted(self) -> float:
        """Mean GPUs wanted; what is left of jobs from before stands for the end of others."""
        weeks = np.ceil(self.jobs.submit.max(initial=1) / 1e6 / WEEK_S)
        return float((self.jobs.run * self.jobs.gpus)[self.jobs.submit > 0].sum() / 1e6 / (weeks * WEEK_S))

    def submit_s(self) -> FloatArray:
        """Submissions of the counted jobs, in seconds since the beginning of the time ahead."""
        return self.jobs.submit[self.counted] / 1e6 - WEEK_S

    def waits_s(self, gpus: float | Steps, policy: str = "easy") -> FloatArray:
        """Waits of the counted jobs on some GPUs, in seconds; infinite for those that never start.

        Jobs that are too large never do. Their work takes all GPUs for as much longer: were it left out, others would
        start sooner on fewer GPUs than on more.
        """
        steps = gpus if isinstance(gpus, Steps) else Steps(np.zeros(1), np.array([float(gpus)]))
        counts = np.unique(steps.gpus)
        if not counts[-1]:
            return np.full(int(self.counted.sum()), np.inf)
        able = self.jobs.gpus <= counts[-1]
        jobs = self.jobs if able.all() else within(self.jobs, counts[-1])
        if jobs.gpus.max(initial=0.0) > counts[0] * self.availability:
            enough = counts[np.searchsorted(counts, jobs.gpus)]
            jobs = jobs._replace(gpus=np.minimum(jobs.gpus, enough * self.availability))
        change_at = _microseconds(WEEK_S + steps.since_s)
        change_at[0] = np.iinfo(np.int64).min
        there, order = steps.gpus * self.availability, np.arange(len(jobs.gpus))
        starts = simulate_events(jobs, order, change_at, there, np.inf, POLICIES.index(policy))[self.counted]
        return np.where(able[self.counted] & (starts < NEVER), (starts - self.jobs.submit[self.counted]) / 1e6, np.inf)


def draw_future(past: Weeks, n_weeks: int, level: float, rng: np.random.Generator) -> Future:
    """Draw weeks of the past with all their jobs, and as many of these as make the GPUs wanted equal to a level.

    `n_weeks`: weeks to draw, beside one in which the cluster fills. `level`: mean GPUs wanted.
    """
    drawn = rng.integers(past.n_weeks, size=n_weeks + 1)
    rows = [np.flatnonzero(past.week == week) for week in drawn]
    row, place = np.concatenate(rows), np.repeat(np.arange(len(drawn)), [len(part) for part in rows])
    offered = (past.run_s[row] * past.gpus[row]).sum() / (len(drawn) * WEEK_S)
    growth = level / offered if offered > 0 else 0.0
    count = (np.floor(growth) + (rng.random(len(row)) < growth % 1)).astype(np.int64)
    drawn_job = np.repeat(np.arange(len(row)), count)
    is_copy = np.diff(drawn_job, prepend=-1) == 0
    row, place = row[drawn_job], place[drawn_job]
    # A job that comes twice comes the second time at the same hour of another week.
    place = np.where(is_copy, rng.integers(len(drawn), size=len(place)), place)
    submit_s = place * WEEK_S + past.submit_s[row]
    order = np.argsort(submit_s, kind="stable")
    row, submit_s = row[order], submit_s[order]
    submit, run, requested = map(_microseconds, (submit_s, past.run_s[row], past.requested_s[row]))
    jobs = QueuedJobs(submit, run, np.maximum(requested, run), np.full(len(row), NEVER), past.gpus[row])
    before = _running_on(jobs, len(drawn) * WEEK_S * 1_000_000)
    jobs = _joined(before, jobs)
    return Future(jobs, np.append(np.zeros(len(before.gpus), dtype=bool), submit_s >= WEEK_S))


def _joined(first: Iterable[Any], second: Iterable[Any]) -> QueuedJobs:
    return QueuedJobs._make(np.concatenate(pair) for pair in zip(first, second, strict=True))


def _running_on(jobs: QueuedJobs, span: int) -> QueuedJobs:
    """What is left of jobs that still run after a week, as if the weeks that are drawn had come before, time and again.

    Without it, work that runs for weeks would be missing in them.
    """
    count = np.maximum((jobs.submit + jobs.run - WEEK_S * 1_000_000 - 1) // span, 0)
    row, times = person_periods(count)
    gone = (1 + times) * span - jobs.submit[row]
    run, requested = (time[row] - gone for time in (jobs.run, jobs.requested))
    return QueuedJobs(np.zeros(len(row), dtype=np.int64), run, requested, jobs.started[row], jobs.gpus[row])


def unfinished_jobs(jobs: pd.DataFrame, until: pd.Timestamp) -> QueuedJobs:
    """Jobs that run or wait as a log ends, as those of a `Future` after its first week.

    `jobs`: canonical columns; every job has an end, of which those after `until` may be expected ones. `until`: end
    of the log. Returns first those that run, then those that wait in the order of their submission.
    """
    log = jobs[(jobs["submit"] < until) & (jobs["gpus"] > 0) & ~gave_up(jobs)].sort_values("submit", kind="stable")
    start = log["start"].fillna(log["submit"])
    runs, waits = (start < until) & (log["end"] > until), start >= until
    rows = np.r_[np.flatnonzero(runs), np.flatnonzero(waits)]
    log, start, n_running = log.iloc[rows], start.iloc[rows], int(runs.sum())
    run = _microseconds(seconds_since(log["end"], start))
    started = np.full(len(log), NEVER)
    started[:n_running] = _microseconds(WEEK_S + seconds_since(start.iloc[:n_running], until))
    requested = _microseconds(log["requested_time"].fillna(0.0).to_numpy(dtype=float))
    submit = _microseconds(np.full(len(log), float(WEEK_S)))
    return QueuedJobs(submit, run, np.maximum(requested, run), started, log["gpus"].to_numpy(dtype=float))


def begin_with(future: Future, unfinished: QueuedJobs) -> Future:
    """A future that begins with jobs that run or wait, instead of its first week."""
    jobs = _joined(unfinished, [column[future.counted] for column in future.jobs])
    return future._replace(jobs=jobs, counted=np.arange(len(jobs.gpus)) >= len(unfinished.gpus))


def add_work(future: Future, work: Work, n_weeks: int, rng: np.random.Generator) -> Future:
    """Add what is known to come, in the weeks of a future, to the jobs that were drawn for it."""
    since_s = WEEK_S * rng.integers(max(work.weeks - n_weeks, 0) + 1)
    submit_s = WEEK_S + work.submit_s - since_s
    there = (submit_s >= 0) & (submit_s < (n_weeks + 1) * WEEK_S)
    submit, run = (_microseconds(seconds[there]) for seconds in (submit_s, work.run_s))
    known = QueuedJobs(submit, run, run, np.full(len(run), NEVER), work.gpus[there])
    jobs = _joined(future.jobs, known)
    order = np.argsort(jobs.submit, kind="stable")
    counted = np.concatenate([future.counted, submit_s[there] >= WEEK_S])[order]
    return Future(QueuedJobs._make(column[order] for column in jobs), counted, fewest=known.gpus.max(initial=0.0))


@dataclass(frozen=True)
class Futures:
    """Futures at given levels, each drawn when it is asked for: together, those of a large log do not fit into memory.

    `n_weeks`: weeks of each future. `levels`: shape (n_futures,); mean GPUs wanted. `seeds`: one a future, which is
    the same whenever it is drawn. `availability`: share of the GPUs that runs jobs. `work`: jobs that are known to
    come. `unfinished`: jobs that run or wait at the beginning; by default a week is drawn in which the cluster fills.
    """

    past: Weeks
    n_weeks: int
    levels: FloatArray
    seeds: Sequence[np.random.SeedSequence]
    availability: float = 1.0
    work: Work | None = None
    unfinished: QueuedJobs | None = None

    def __len__(self) -> int:
        return len(self.levels)

    def __iter__(self) -> Iterator[Future]:
        for level, seed in zip(self.levels, self.seeds, strict=True):
            rng = np.random.default_rng(seed)
            known = 0.0 if self.work is None else self.work.mean
            future = draw_future(self.past, self.n_weeks, max(float(level) - known, 0.0), rng)
            if self.unfinished is not None:
                future = begin_with(future, self.unfinished)
            if self.work is not None:
                future = add_work(future, self.work, self.n_weeks, rng)
            yield future._replace(availability=self.availability)

    def take(self, places: IntArray) -> Futures:
        """Some of the futures."""
        return replace(self, levels=self.levels[places], seeds=[self.seeds[place] for place in places])


def _microseconds(seconds: FloatArray) -> IntArray:
    return np.round(1e6 * seconds).astype(np.int64)


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
