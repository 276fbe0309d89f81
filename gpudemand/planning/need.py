"""GPUs that a window of four weeks needs: in the past, by simulated queues, and their distribution to come.

The need of a window is the fewest GPUs with which a share of its jobs starts in time, or, of usage without jobs, the
most that were held at once. What is forecast is this number itself, not a mean demand that a model of waits then
inflates: bursts decide it, and a mean does not tell them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm

from gpudemand._array import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_number
from gpudemand.jobs.table import gave_up, seconds_since, start_times
from gpudemand.planning.queue_kernels import NEVER, POLICIES, QueuedJobs, simulate_events, within
from gpudemand.units import WEEK, format_seconds, parse_duration, plural

_DAY_S, _WEEK_S = 86400.0, 7 * 86400.0
#: Length of a window: from one look at the plan to the next.
WINDOW_S = 28 * _DAY_S
#: Precision of the fewest GPUs: this share of them, or one. A quarter of it moves requirements by at most .1 %, and 2.5
#: times it by .5 % (`constants` in ``benchmarks/planning/orders.py``).
RESOLUTION = 0.002
#: Ends of windows, each day of a week, over which the present need is averaged, so that a day more or less of the log,
#: which a burst may begin or end in, moves it by a part of that only.
_MOST_ENDS = 7
#: Past windows that tell how the need of this log moves: a year, as of the longest public log that this was tried on.
_MOST_WEEKS = 52
#: Jobs times windows beyond which fewer windows are simulated, as each takes several simulations. On a log of 1.6
#: million jobs and its four GPU types this moves requirements by at most .8 %.
_MOST_SIMULATED = 500_000
#: Numbers of GPUs, relative to the need of the last window, on which outcomes are known; and of a window of more jobs.
#: Where the shares in time are steepest, and the queue itself jumps, they are off by .03 to .12 between two of the
#: first, .03 to .15 of the second (`outcome_errors` in the same file).
_OUTCOMES, _MANY_JOBS = np.geomspace(0.25, 4.0, 41), 50_000
_FEW_OUTCOMES = np.r_[0.25, 0.4, 0.6, np.geomspace(0.8, 1.6, 8), 2.5, 4.0]


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

    def check_counts(self, gpus: FloatArray) -> None:
        """Raise if no job counts."""
        if self.largest < np.inf and not (gpus <= self.largest).any():
            raise InputError(
                f"no job of the log has at most {self.largest:g} {plural('GPU', self.largest)}; "
                "give a larger `largest`."
            )

    def share_in_time(self, window: Window, waits_s: FloatArray) -> float:
        """Share in time of the jobs of a window, 1 if none counts."""
        weight = self.weight(window)
        return float(weight[waits_s <= self.wait_s].sum() / weight.sum()) if weight.sum() > 0 else 1.0

    def weight(self, window: Window) -> FloatArray:
        """Weight of each counted job."""
        gpus = window.jobs.gpus[window.counted]
        weight = gpus * window.jobs.run[window.counted] if self.of == "gpu_hours" else np.ones(len(gpus))
        return np.where(gpus <= self.largest, weight, 0.0)


def wait_target(wait: str | pd.Timedelta, share: float, of: str = "jobs", largest: float | None = None) -> WaitTarget:
    """A target from checked arguments; see `gpudemand.planning.wait_plan.plan_waits`."""
    wait_s = parse_duration(wait).total_seconds()
    if wait_s <= 0:
        raise InputError(f"wait must be longer than 0 s; got {wait!r}. No number of GPUs starts every job at once.")
    check_number("wait_share", share, 0, 0.9999, open_low=True)
    most = np.inf if largest is None else check_number("largest", largest, 0, open_low=True)
    return WaitTarget(wait_s, share, of, most)


class Window(NamedTuple):
    """Jobs of a window and of the week before it, in the order of their submission.

    `jobs`: times in microseconds since the beginning of that week. `counted`: shape (n_jobs,); jobs of the window,
    whose waits count. `rows`: shape (n_jobs,); their rows in the job table that `JobTimes` is of.
    """

    jobs: QueuedJobs
    counted: BoolArray
    rows: IntArray = np.zeros(0, dtype=np.int64)

    def gpus_wanted(self) -> float:
        """Mean GPUs wanted."""
        length = max(float(self.jobs.submit.max(initial=1)), 1.0)
        return float((np.minimum(self.jobs.run, length) * self.jobs.gpus).sum() / length)

    def waits_s(self, gpus: float, policy: str = "easy") -> FloatArray:
        """Waits of the counted jobs on a number of GPUs, in seconds; infinite for those that never start.

        Jobs that are too large never do. Their work takes all GPUs for as much longer: were it left out, others would
        start sooner on fewer GPUs than on more.
        """
        able = self.jobs.gpus <= gpus
        jobs = self.jobs if able.all() else within(self.jobs, gpus)
        always = np.array([np.iinfo(np.int64).min])
        order, where = np.arange(len(jobs.gpus)), POLICIES.index(policy)
        starts = simulate_events(jobs, order, always, np.array([float(gpus)]), np.inf, where)[self.counted]
        return np.where(able[self.counted] & (starts < NEVER), (starts - self.jobs.submit[self.counted]) / 1e6, np.inf)


class JobTimes(NamedTuple):
    """Jobs of a log in the order of submission, in seconds before (negative) its end.

    `submit_s`, `run_s`, `requested_s`, `gpus`: shape (n_jobs,). `length_s`: of the log. `stuck`: jobs left out, as they
    have waited for longer than any job that started: held back, or waiting for what is no GPU. `rows`: shape (n_jobs,);
    rows of the job table.
    """

    submit_s: FloatArray
    run_s: FloatArray
    requested_s: FloatArray
    gpus: FloatArray
    length_s: float
    stuck: int
    rows: IntArray

    @classmethod
    def from_log(cls, jobs: pd.DataFrame, until: pd.Timestamp) -> JobTimes:
        """Jobs of a canonical table that were submitted before `until` and not cancelled while they waited.

        A job that runs is taken to run for as long again as it has so far, at most as it requested; one that waits, as
        long as the median finished job of its user.
        """
        rows = np.flatnonzero((jobs["submit"] < until) & (jobs["gpus"] > 0) & ~gave_up(jobs))
        rows = rows[np.argsort(jobs["submit"].array.asi8[rows], kind="stable")]
        log = jobs.iloc[rows].reset_index(drop=True)
        submit_s = seconds_since(log["submit"], until)
        start = start_times(log)
        start_s = seconds_since(start.fillna(until), until).clip(max=0.0)
        waiting = (start.isna() & log["end"].isna()).to_numpy()
        waited_s = start_s - submit_s
        late = waiting | (start >= until).to_numpy(dtype=bool)  # its start, if any, is an expected one
        stuck = late & (waited_s > max(waited_s[~late].max(initial=0.0), _DAY_S))
        run_s = seconds_since(log["end"].fillna(until), start.fillna(log["submit"]))
        requested_s = log["requested_time"].fillna(0.0).to_numpy(dtype=float)
        open_, known = log["end"].isna().to_numpy(), requested_s > 0
        run_s = np.where(open_ & ~waiting, 2 * np.maximum(run_s, 1.0), run_s)
        run_s = np.where(waiting, _typical_run_s(log, run_s, open_), run_s)
        run_s = np.where(open_ & known, np.minimum(run_s, np.maximum(requested_s, -start_s)), run_s)
        columns = (submit_s, run_s, np.maximum(requested_s, run_s), log["gpus"].to_numpy(dtype=float))
        submit_s, run_s, requested_s, gpus = (column[~stuck] for column in columns)
        length_s = float(-submit_s.min(initial=0.0))
        return cls(submit_s, run_s, requested_s, gpus, length_s, int(stuck.sum()), rows[~stuck])

    def window(self, end_s: float, length_s: float = WINDOW_S) -> Window:
        """Jobs of a window as the queue takes them, behind those of the week before, in which the cluster fills."""
        begin_s = end_s - length_s - _WEEK_S
        ends_s, first = self.submit_s + self.run_s, int(np.searchsorted(self.submit_s, begin_s))
        last = int(np.searchsorted(self.submit_s, end_s))
        before = np.flatnonzero(ends_s[:first] > begin_s)
        rows = np.r_[before, np.arange(first, last)]
        submit_s = np.maximum(self.submit_s[rows], begin_s)
        gone_s = submit_s - self.submit_s[rows]
        times = (submit_s - begin_s, self.run_s[rows] - gone_s, np.maximum(self.requested_s[rows] - gone_s, 0.0))
        submit, run, requested = (np.round(1e6 * seconds).astype(np.int64) for seconds in times)
        started = np.full(len(rows), NEVER)
        jobs = QueuedJobs(submit, run, np.maximum(requested, run), started, self.gpus[rows])
        return Window(jobs, submit_s >= end_s - length_s, self.rows[rows])

    def mean_wanted(self, end_s: float, length_s: float = WINDOW_S) -> float:
        """Mean GPUs wanted in a window: each job from its submission, for as long as it runs."""
        first, last = (np.clip(times, end_s - length_s, end_s) for times in (self.submit_s, self.submit_s + self.run_s))
        return float(((last - first) * self.gpus).sum() / length_s)


def _typical_run_s(log: pd.DataFrame, run_s: FloatArray, unfinished: BoolArray) -> FloatArray:
    """Median run time of the finished jobs of each job's user, or of all."""
    runs = pd.Series(np.where(unfinished, np.nan, run_s), log.index)
    of_user = runs.groupby(log["user"], dropna=False).transform("median")
    middle = runs.median()
    return of_user.fillna(0.0 if np.isnan(middle) else middle).to_numpy(dtype=float)


#: Share of jobs beyond the wait, over the share that may be, below which less tells nothing.
_LEAST_LATE = 0.01


def fewest_gpus(window: Window, target: WaitTarget, policy: str = "easy", guess: float | None = None) -> float:
    """Fewest GPUs with which a window's jobs start in time, within `RESOLUTION` of it; 0 where no job counts."""
    if not target.weight(window).any():
        return 0.0

    def excess(gpus: int) -> float:
        """Log of the share of jobs beyond the wait over that which may be: about linear; over 0 where not met."""
        share = target.share_in_time(window, window.waits_s(gpus, policy))
        ratio = float(np.log(max((1.0 - share) / (1.0 - target.share), _LEAST_LATE)))
        return min(ratio, 0.0) if share >= target.share else max(ratio, -np.log(_LEAST_LATE) * 1e-9)

    gpus, step = max(round(guess or window.gpus_wanted() * 1.25), 1), 1.03 if guess else 1.25
    known = {0: -float(np.log(1.0 - target.share))}  # without GPUs all are late
    low, high = 0, 0
    while True:
        known[gpus] = excess(gpus)
        low, high = (low, gpus) if known[gpus] <= 0 else (gpus, high)
        allowed = max(1.0, RESOLUTION * high)
        if 0 < high <= low + allowed or high == 1:
            return float(high)
        if low == 0 or high == 0:
            gpus, step = (max(int(high / step), 1) if high else max(int(low * step), low + 1)), min(step**2, 2.0)
        else:
            # Between the two, a little above where the line crosses, so that the next trial is from the other side.
            part = known[low] / (known[low] - known[high])
            gpus = max(low + 1, int(min(np.ceil(low + part * (high - low) + allowed / 2), high - allowed)))


class _Margin(NamedTuple):
    """Logarithm of the need of a window over the present one, at one probability: ``level + slope * burst``.

    ``slope``: change with the logarithm of need over mean demand. Where the need is far above the mean, bursts decide
    it, and the largest of the past does not come again soon; where it is near, the mean does, which grows.
    """

    level: float
    slope: float = 0.0

    def __call__(self, burst: float) -> float:
        return self.level + self.slope * float(np.clip(burst, 0.0, _LARGEST_BURST))


#: Of public logs; beyond it nothing is known.
_LARGEST_BURST = 0.86
#: Probability -> margin, by quantile regression over public logs and series, each of which counts by the square root of
#: its windows: made by ``python -m benchmarks.planning.orders --margins``, as are the next three.
_MARGINS = {
    "jobs": {0.05: _Margin(-0.285), 0.5: _Margin(0.015, -0.240), 0.95: _Margin(0.177, -0.141)},
    "series": {0.05: _Margin(-0.214), 0.5: _Margin(0.081), 0.95: _Margin(0.548)},
}
#: Windows of its own that a log needs for them to count as much as those of others, 28 days ahead: the variance of
#: ratios within public logs over that between their means, by the same script.
_CREDIBILITY = {"jobs": 3.6, "series": 5.0}
#: Power of the time from the last window to the one to come with which the variance between logs grows: they drift
#: apart, while each keeps to its own mean. Of lasting trends it would be 2.
_DRIFT = 1.75
#: Burst of a log with no window before the last one, at most: the median of public logs. What lies four weeks back is
#: then unknown, and a log that begins with an empty cluster shows a low mean.
_USUAL_BURST = 0.42
_Z95 = float(norm.ppf(0.95))
#: The rule of one line that stands beside the plan: so many times the need of the last eight weeks.
_RULE = 1.15


@dataclass(frozen=True)
class NeedForecast:
    """Distribution of the GPUs that a window to come will need, from those that past windows needed.

    The present need is the larger one of the last four weeks and the four before, averaged over the ends of a week.
    What a window needs in relation to it is lognormal on either side of its median, as among public logs (`_MARGINS`),
    and as among the past windows of this log at the same lead, which count by their number.

    Attributes
    ----------
    base : float
        GPUs needed at present.
    burst : float
        Logarithm of the need over the mean GPUs wanted.
    weekly : ndarray of shape (n_weeks,)
        Needs of the windows that end 0, 1, 2, ... weeks before the end of the log.
    means : ndarray of shape (n_weeks,), optional
        Mean GPUs wanted in these windows.
    kind : {"jobs", "series"}
    window : Window, optional
        Jobs of the last window, `last` their need.
    stuck : int
        Jobs that were left out.

    Examples
    --------
    >>> need = NeedForecast(base=100.0, burst=0.2, weekly=np.full(12, 100.0))
    >>> [round(need.quantile(share, 28)) for share in (0.05, 0.5, 0.95)]
    [80, 98, 113]
    >>> round(need.exceedance(110, 28), 2)
    0.09
    """

    base: float
    burst: float
    weekly: FloatArray
    means: FloatArray = field(default_factory=lambda: np.zeros(0))
    kind: str = "jobs"
    last: float = 0.0
    window: Window | None = None
    stuck: int = 0

    @classmethod
    def none(cls) -> NeedForecast:
        """Of a log without jobs."""
        no, never = np.zeros(0), np.zeros(0, dtype=np.int64)
        jobs = QueuedJobs(never, never, never, never, no)
        return cls(0.0, 0.0, np.zeros(1), window=Window(jobs, np.zeros(0, dtype=bool)))

    @property
    def headroom(self) -> FloatArray:
        """Logarithms of past needs over the mean GPUs wanted; 0 if none is known."""
        known = (self.weekly > 0) & (self.means > 0) if self.means.size else np.zeros(len(self.weekly), dtype=bool)
        return np.log(self.weekly[known] / self.means[known]) if known.any() else np.zeros(1)

    def own_ratios(self, days: float) -> FloatArray:
        """Logarithms of past needs over those that were the present ones `days` and four weeks before, latest first."""
        ahead = max(round((days + 28) / 7), 1)
        now = self.weekly[ahead:]
        before = np.maximum(now, np.append(now[4:], np.zeros(min(4, len(now)))))
        ratios = self.weekly[: len(now)], before
        known = (ratios[0] > 0) & (ratios[1] > 0)
        return np.log(ratios[0][known] / ratios[1][known])

    def _moments(self, days: float) -> tuple[float, float, float]:
        """Median of the logarithm of the margin, and its standard deviations below and above."""
        low, middle, high = (margin(self.burst) for margin in _MARGINS[self.kind].values())
        own, ratio = self.own_ratios(days), _CREDIBILITY[self.kind]
        n, share = _side_by_side(own.size), self.own_weight(days)
        variance = float(own.var()) * n / max(n - 1, 0.25) if own.size else 0.0  # around the mean of these
        mean = float(own.mean()) if own.size else 0.0
        # Spread of others is that within logs and that between their means, of which own ratios leave a part.
        between = 1 + (1 - share) * _drift(days) / ratio
        within = [(1 - share) * (each / _Z95) ** 2 * ratio / (1 + ratio) for each in (middle - low, high - middle)]
        below, above = (float(np.sqrt((each + share * variance) * between)) for each in within)
        return (1 - share) * middle + share * mean, below, above

    def own_weight(self, days: float) -> float:
        """Weight of the past windows of this log, some days apart, against those of others."""
        return self._credibility(self.own_ratios(days).size, days)

    def _credibility(self, n_ratios: int, days: float = 28) -> float:
        """Weight of some weekly ratios of this log, some days apart, against those of others."""
        n = _side_by_side(n_ratios)
        return n / (n + _CREDIBILITY[self.kind] / _drift(days))

    def quantile(self, share: float, days: float) -> float:
        """GPUs that suffice with a probability for the four weeks that begin some days after the end of the log."""
        return float(self.quantiles(np.array([share]), days)[0])

    def quantiles(self, shares: FloatArray, days: float) -> FloatArray:
        """GPUs that suffice with each of some probabilities."""
        middle, below, above = self._moments(days)
        z = norm.ppf(shares)
        return np.asarray(self.base * np.exp(middle + z * np.where(z < 0, below, above)))

    @property
    def rule(self) -> float:
        """GPUs by a rule of one line: the larger need of the last two windows, times 1.15."""
        return float(np.ceil(_RULE * self.weekly[[0, 4] if len(self.weekly) > 4 else [0]].max()))

    def growth(self, days: float) -> float:
        """Ratio of the median need some days later, at the rate at which past needs changed."""
        known = np.flatnonzero(self.weekly > 0)
        if len(known) < 2:
            return 1.0
        rate = np.polyfit(known, np.log(self.weekly[known]), 1)[0]
        return float(np.exp(-self._credibility(len(known)) * rate * days / 7))

    def exceedance(self, gpus: float, days: float) -> float:
        """Probability that those weeks need more than a number of GPUs."""
        if gpus <= 0 or self.base <= 0:
            return float(gpus < self.base)
        middle, below, above = self._moments(days)
        distance = np.log(gpus / self.base) - middle
        spread = below if distance < 0 else above
        return float(norm.sf(distance / spread)) if spread > 0 else float(distance < 0)

    def outcomes(self, target: WaitTarget, policy: str = "easy") -> pd.DataFrame:
        """What the jobs of the last window would have met on a number of GPUs, relative to its need.

        Returns ``ratio`` (of GPUs to the need), ``share_in_time``, ``mean_wait_s`` (of the jobs that are not too
        large), and ``waited_hours`` a week.
        """
        assert self.window is not None
        weeks = WINDOW_S / WEEK.total_seconds()
        rows = []
        for ratio in _OUTCOMES if len(self.window.counted) <= _MANY_JOBS else _FEW_OUTCOMES:
            waits = self.window.waits_s(max(ratio * self.last, 1.0), policy)
            able = waits[np.isfinite(waits)]
            share, mean = target.share_in_time(self.window, waits), float(able.mean()) if able.size else 0.0
            rows.append((ratio, share, mean, float(able.sum()) / 3600 / weeks))
        table = pd.DataFrame(rows, columns=["ratio", "share_in_time", "mean_wait_s", "waited_hours"])
        # A queue may start fewer jobs in time on more GPUs; who has more may leave some idle.
        return table.assign(share_in_time=np.maximum.accumulate(table["share_in_time"]))

    def backtest(self, share: float, days: float) -> pd.DataFrame:
        """What this forecast would have said at earlier times, and what was needed: a row an origin, the latest first.

        Returns ``weeks_ago`` (the origin), ``plan`` (the quantile at `share` for the window that begins `days` later),
        ``need`` of that window, and what the ``rule`` of one line would have said.
        """
        ahead, rows = max(round((days + 28) / 7), 1), []
        for weeks_ago in range(ahead, len(self.weekly)):
            needed, then = float(self.weekly[weeks_ago - ahead]), self._before(weeks_ago)
            if then.base > 0 and needed > 0:
                rows.append((weeks_ago, float(np.ceil(then.quantile(share, days))), needed, then.rule))
        return pd.DataFrame(rows, columns=["weeks_ago", "plan", "need", "rule"])

    def _before(self, weeks_ago: int) -> NeedForecast:
        """The forecast from the windows that were over some weeks ago."""
        weekly, means = self.weekly[weeks_ago:], self.means[weeks_ago:]
        pair = [0, 4] if len(weekly) > 4 else [0]
        base = float(weekly[pair].max())
        burst = _burst(base, float(means[pair].max()), len(pair)) if means.size else self.burst
        return replace(self, base=base, burst=burst, weekly=weekly, means=means)

    def extra_gpus(self, work: pd.DataFrame, begin: pd.Timestamp, target: WaitTarget, policy: str = "easy") -> float:
        """GPUs that known work adds to the need of a window with the jobs of the last one, which begins at a time.

        `work`: ``submit``, ``end`` and ``gpus`` of jobs to come, as `Programme.jobs` returns them.
        """
        assert self.window is not None
        added = _joined(self.window, work, begin)
        if added is self.window:
            return 0.0
        return max(fewest_gpus(added, target, policy, self.last) - self.last, 0.0)


def _side_by_side(n_weekly: int) -> float:
    """Windows that do not overlap, of some that end a week apart: they tell as much."""
    return (n_weekly - 1) / 4 + 1 if n_weekly else 0.0


def _drift(days: float) -> float:
    """Variance between the means of logs some days ahead, relative to that at 28 days."""
    return float(((days + 28) / 56) ** _DRIFT)


def _joined(window: Window, work: pd.DataFrame, begin: pd.Timestamp) -> Window:
    """A window with further jobs, if some of them are there at its time."""
    submit_s, end_s = (seconds_since(work[name], begin) + _WEEK_S for name in ("submit", "end"))
    rows = (end_s > 0) & (submit_s < WINDOW_S + _WEEK_S)
    if not rows.any():
        return window
    came_s = np.maximum(submit_s[rows], 0.0)
    submit, run = (np.round(1e6 * seconds).astype(np.int64) for seconds in (came_s, end_s[rows] - came_s))
    columns = (submit, run, run, np.full(len(run), NEVER), work["gpus"].to_numpy(dtype=float)[rows])
    jobs = [np.concatenate(pair) for pair in zip(window.jobs, columns, strict=True)]
    order = np.argsort(jobs[0], kind="stable")
    # Also those that run already as it begins: without others, nothing else tells that they need their GPUs.
    counted = np.concatenate([window.counted, end_s[rows] > _WEEK_S])[order]
    return Window(QueuedJobs(*(column[order] for column in jobs)), counted)


def forecast_need(jobs: pd.DataFrame, target: WaitTarget, until: pd.Timestamp, policy: str = "easy") -> NeedForecast:
    """Needs of past windows of a job log, by simulated queues, and the distribution of those to come.

    `jobs`: canonical job table. `until`: end of the log.
    """
    log = JobTimes.from_log(jobs, until)
    target.check_counts(log.gpus)
    length_s = min(WINDOW_S, max(log.length_s, _DAY_S))
    known: dict[float, float] = {}
    guess: list[float] = []

    def need(end_s: float) -> float:
        if end_s not in known:
            known[end_s] = fewest_gpus(log.window(end_s, length_s), target, policy, guess[-1] if guess else None)
            guess.append(known[end_s])
        return known[end_s]

    per_window = max(len(log.gpus) * min(length_s / max(log.length_s, length_s), 1.0), 1.0)
    affordable = max(int(_MOST_SIMULATED / per_window), 4)
    last = need(0.0)
    ends, weeks = _ends(log.length_s, length_s, affordable), _weeks(log.length_s, length_s)
    pairs = [(end, end - WINDOW_S) if log.length_s + end - WINDOW_S >= length_s else (end,) for end in ends]
    base = _mean_of_largest(need, pairs)
    mean = _mean_of_largest(lambda end_s: log.mean_wanted(end_s, length_s), pairs)
    # Windows of one week after another share three of their four weeks: those between are interpolated.
    step = int(np.clip(np.ceil(weeks / affordable), 1, 4))
    simulated = np.union1d(np.arange(0, weeks, step), weeks - 1)
    weekly = np.interp(np.arange(weeks), simulated, [need(-_WEEK_S * week) for week in simulated])
    means = np.array([log.mean_wanted(-_WEEK_S * week, length_s) for week in range(weeks)])
    burst, window = _burst(base, mean, len(pairs[0])), log.window(0.0, length_s)
    return NeedForecast(base, burst, weekly, means, "jobs", last, window, log.stuck)


def _ends(length_s: float, window_s: float, affordable: int) -> FloatArray:
    """Ends of the windows that the present need is averaged over, as far as the log and time allow."""
    most = int(np.clip(affordable // 4, 1, _MOST_ENDS))
    days = np.linspace(0, _MOST_ENDS - 1, most).round()
    return -_DAY_S * days[_DAY_S * days <= max(length_s - window_s, 0.0)]


def _weeks(length_s: float, window_s: float) -> int:
    """Past windows, a week apart, that the log holds."""
    return int(np.clip((length_s - window_s) // _WEEK_S + 1, 1, _MOST_WEEKS))


def _mean_of_largest(measure: Callable[[float], float], pairs: Sequence[tuple[float, ...]]) -> float:
    """Geometric mean over ends of the larger of a window and the one before it; ends without jobs tell nothing."""
    largest = np.array([max(measure(end_s) for end_s in pair) for pair in pairs])
    return float(np.exp(np.log(largest[largest > 0]).mean())) if (largest > 0).any() else 0.0


def _burst(need: float, mean: float, n_windows: int) -> float:
    burst = float(np.log(max(need / mean, 1.0))) if mean > 0 else 0.0
    return burst if n_windows > 1 else min(burst, _USUAL_BURST)


def forecast_peaks(peaks: FloatArray, means: FloatArray) -> NeedForecast:
    """The most GPUs held at once in past windows of usage without jobs, and the distribution of those to come.

    `peaks`, `means`: shape (n_days,); of the days before the end of the record; NaN is not known.
    """
    days = min(28, len(peaks))
    most = pd.Series(peaks).rolling(days, min_periods=1).max().fillna(0.0).to_numpy()
    mean = pd.Series(means).rolling(days, min_periods=1).mean().fillna(0.0).to_numpy()
    length_s, window_s = len(peaks) * _DAY_S, days * _DAY_S
    ends = _ends(length_s, window_s, 4 * _MOST_ENDS)
    pairs = [(end, end - WINDOW_S) if length_s + end - WINDOW_S >= window_s else (end,) for end in ends]
    base = _mean_of_largest(lambda end_s: float(most[_day(end_s)]), pairs)
    level = _mean_of_largest(lambda end_s: float(mean[_day(end_s)]), pairs)
    weeks = [_day(-_WEEK_S * week) for week in range(_weeks(length_s, window_s))]
    burst = _burst(base, level, len(pairs[0]))
    return NeedForecast(base, burst, most[weeks], mean[weeks], "series", float(most[-1]))


def _day(end_s: float) -> int:
    """Place, from the end, of the last day before a time."""
    return round(end_s / _DAY_S) - 1
