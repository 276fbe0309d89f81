"""GPUs that a window of four weeks needs: in the past, by simulated queues, and their distribution to come.

The need of a window is the fewest GPUs with which a share of its jobs starts in time, or, of usage without jobs, the
most that were held at once. What is forecast is this number itself, not a mean demand that a model of waits then
inflates: bursts decide it, and a mean does not tell them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit
from scipy.stats import norm

from gpudemand._array import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_number
from gpudemand.jobs.table import gave_up, seconds_since, start_times
from gpudemand.planning.quantiles import Z95
from gpudemand.planning.queue_kernels import NEVER, POLICIES, QueuedJobs, simulate_events, within
from gpudemand.units import WEEK, format_seconds, parse_duration, plural

_DAY_S, _WEEK_S = 86400.0, 7 * 86400.0
#: Length of a window: from one look at the plan to the next.
_WINDOW_WEEKS = 4
WINDOW_S = _WINDOW_WEEKS * _WEEK_S
WINDOW = pd.Timedelta(seconds=WINDOW_S)
#: Precision of the fewest GPUs: this share of them, or one. A quarter of it moves requirements by at most .1 %, and 2.5
#: times it by .5 % (`constants` in ``benchmarks/planning/orders.py``).
RESOLUTION = 0.002
#: Windows, one ending each day of the last four weeks, whose largest need is the recent one.
_MOST_ENDS = round(WINDOW_S / _DAY_S) + 1
#: Past windows that tell how the need of this log moves: a year.
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
    """The share of jobs that start in time."""

    wait_s: float  # longest wait that is in time
    share: float
    of: str = "jobs"  # or "gpu_hours": whether jobs count alike or by their GPU-hours
    largest: float = np.inf  # only jobs of at most so many GPUs count

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

    def is_met(self, window: Window, gpus: float, policy: str = "easy") -> bool:
        """Whether so many GPUs are enough for a window: for the mean that is wanted, and for jobs to start in time."""
        return gpus >= window.mean_wanted and self.share_in_time(window, window.waits_s(gpus, policy)) >= self.share

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


#: Microseconds.
_HOUR = 3_600_000_000


class Window(NamedTuple):
    """Jobs of a window and of the week before it, in the order of their submission."""

    jobs: QueuedJobs  # times in microseconds since the beginning of that week
    counted: BoolArray  # (n_jobs,), jobs of the window, whose waits count
    rows: IntArray = np.zeros(0, dtype=np.int64)  # (n_jobs,), of the job table that `JobTimes` is of
    length_s: float = WINDOW_S

    @property
    def mean_wanted(self) -> float:
        """Mean GPUs wanted in the window."""
        return float(self.hours_wanted().sum()) * 3600.0 / self.length_s

    def hours_wanted(self) -> FloatArray:
        """GPU-hours that each job wants within the window, from its submission, for as long as it runs."""
        begin, end = np.int64(1e6 * _WEEK_S), np.int64(1e6 * (_WEEK_S + self.length_s))
        first, last = (np.clip(times, begin, end) for times in (self.jobs.submit, self.jobs.submit + self.jobs.run))
        return np.asarray((last - first) / 3.6e9 * self.jobs.gpus)

    def of_jobs(self, places: IntArray) -> Window:
        """Some of its jobs alone, of which all count: of long ones, few or none may have been submitted in it."""
        jobs, counted = QueuedJobs._make(column[places] for column in self.jobs), np.ones(len(places), dtype=bool)
        return self._replace(jobs=jobs, counted=counted, rows=self.rows[places])

    def changed(self, factor: FloatArray, longer: FloatArray, user: IntArray, seed: int) -> Window:
        """More or fewer of its jobs, `factor` times each on average, `longer` times as long; all of them count.

        Those of one `user` (numbered from 0) that come within an hour are left out or repeated together, so that bursts
        stay bursts. What is repeated comes in another week of the window, for each user as many weeks later, and of the
        week before it on another day. Of jobs that run as the window begins, long and short ones are so many more that
        would still run then.
        """
        rng, jobs, week = np.random.default_rng(seed), self.jobs, round(1e6 * _WEEK_S)
        running = jobs.submit == 0
        factor = np.where(running, factor * longer, factor)
        _, burst = np.unique(np.stack([user, jobs.submit // _HOUR]), axis=1, return_inverse=True)
        copies = np.floor(np.round(factor, 9) + rng.random(len(user))[burst.ravel()]).astype(np.int64)
        longest = np.flatnonzero(running)[np.argsort(-jobs.run[running], kind="stable")]
        copies[longest] = np.diff(np.floor(np.cumsum(np.r_[rng.random(), factor[longest]])))
        place = np.repeat(np.arange(len(copies)), copies)
        number = np.arange(len(place)) - np.repeat(np.cumsum(copies) - copies, copies)
        weeks, users = max(round(self.length_s / _WEEK_S), 1), int(user.max(initial=0)) + 1
        others = max(weeks - 1, 1)
        later = (rng.integers(others, size=users)[user][place] + number) % others + 1
        submit = jobs.submit[place]
        inside = week + (submit - week + later * week) % (weeks * week)
        moved = np.where(submit >= week, inside, (submit + later * 24 * _HOUR) % week)
        submit = np.where((number > 0) & ~running[place], moved, submit)
        order = np.argsort(submit, kind="stable")
        place, submit = place[order], submit[order]
        run, requested = (np.round(time[place] * longer[place]).astype(np.int64) for time in (jobs.run, jobs.requested))
        found = QueuedJobs(submit, run, requested, jobs.started[place], jobs.gpus[place])
        return self._replace(jobs=found, counted=np.ones(len(place), dtype=bool), rows=self.rows[place])

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
    """Jobs of a log in the order of submission, (n_jobs,) each, in seconds before (negative) its end."""

    submit_s: FloatArray
    run_s: FloatArray
    requested_s: FloatArray
    gpus: FloatArray
    length_s: float  # of the log
    stuck: int  # left out, as they waited longer than any that started: held back, or for what is no GPU
    rows: IntArray  # of the job table

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
        return Window(jobs, submit_s >= end_s - length_s, self.rows[rows], length_s)

    def mean_wanted(self, end_s: float, length_s: float = WINDOW_S) -> float:
        """Mean GPUs wanted in a window."""
        return self.window(end_s, length_s).mean_wanted


def _typical_run_s(log: pd.DataFrame, run_s: FloatArray, unfinished: BoolArray) -> FloatArray:
    """Median run time of the finished jobs of each job's user, or of all."""
    runs = pd.Series(np.where(unfinished, np.nan, run_s), log.index)
    of_user = runs.groupby(log["user"], dropna=False).transform("median")
    middle = runs.median()
    return of_user.fillna(0.0 if np.isnan(middle) else middle).to_numpy(dtype=float)


#: Share of jobs beyond the wait, over the share that may be, below which less tells nothing.
_LEAST_LATE = 0.01


def fewest_gpus(window: Window, target: WaitTarget, policy: str = "easy", guess: float | None = None) -> float:
    """Fewest GPUs with which a window's jobs start in time, within `RESOLUTION` of it; 0 where none is wanted.

    So many are enough, and fewer by `RESOLUTION` are not. A queue may start fewer jobs in time on more GPUs; where that
    makes several such numbers, `guess`, from which the search begins, decides.
    No fewer than the mean that is wanted: small jobs pass large ones that never start, and services that were submitted
    long ago wait for nothing, yet hold their GPUs. In public logs the need is at least 1.12 times the mean.
    """
    floor = math.ceil(window.mean_wanted - 1e-9)
    if not target.weight(window).any():
        return float(floor)

    def excess(gpus: int) -> float:
        """Log of the share of jobs beyond the wait over that which may be: about linear; over 0 where not met."""
        share = target.share_in_time(window, window.waits_s(gpus, policy))
        ratio = float(np.log(max((1.0 - share) / (1.0 - target.share), _LEAST_LATE)))
        return min(ratio, 0.0) if share >= target.share else max(ratio, -np.log(_LEAST_LATE) * 1e-9)

    gpus, step = max(round(guess or 1.25 * window.mean_wanted), 1), 1.03 if guess else 1.25
    known = {0: -float(np.log(1.0 - target.share))}  # without GPUs all are late
    low, high = 0, 0
    while True:
        known[gpus] = excess(gpus)
        low, high = (low, gpus) if known[gpus] <= 0 else (gpus, high)
        allowed = max(1.0, RESOLUTION * high)
        if 0 < high <= low + allowed or high == 1:
            return float(max(high, floor))
        if low == 0 or high == 0:
            gpus, step = (max(int(high / step), 1) if high else max(int(low * step), low + 1)), min(step**2, 2.0)
        else:
            # Between the two, a little above where the line crosses, so that the next trial is from the other side.
            part = known[low] / (known[low] - known[high])
            gpus = max(low + 1, int(min(np.ceil(low + part * (high - low) + allowed / 2), high - allowed)))


class _Margin(NamedTuple):
    """Logarithm of the need of a window at one probability, over the recent need, and over the usual one."""

    recent: float
    usual: float


#: Leads in days at which margins are fitted: of series those that all are long enough for.
FIT_LEADS = {"jobs": (7, 14, 28, 42, 56, 70, 90, 105, 120, 150, 180), "series": (14, 28, 42, 56)}
#: Probability -> margin, by quantile regression over public logs and series, each of which counts by the square root of
#: its windows: made by ``python -m benchmarks.planning.orders --margins``.
_MARGINS = {
    "jobs": {0.05: _Margin(-0.288, -0.312), 0.5: _Margin(-0.074, -0.003), 0.95: _Margin(0.125, 0.310)},
    "series": {0.05: _Margin(-0.248, -0.248), 0.5: _Margin(0.026, 0.026), 0.95: _Margin(0.480, 0.480)},
}
#: Weeks in which what a window says of the usual need halves. Half and twice as many move the pinball loss of plans 90
#: days ahead by 3 % and less (`constants_of_plans` in ``benchmarks/planning/orders.py``, as of those that follow).
_HALF_LIFE = 8.0
#: Weeks whose windows tell the growth, and how many lie side by side at least: two say nothing of their scatter.
_GROWTH_WEEKS, _FEWEST = 26, 3
#: Probability with which growth must be beyond scatter to be believed at all, and the fastest that is carried on:
#: fourfold a year. Three windows ask for 6.3 standard errors, those of half a year for 2.0.
_BELIEVED, _FASTEST = 0.95, float(np.log(4) / 52)
#: A cluster that begins, moves or stands still is no scatter: a past need counts as half of the recent one at least,
#: and what would have been said of one as two of its standard deviations off at most.
_LEAST, _FURTHEST = 0.5, 2.0
#: Past windows side by side of its own with which a log counts as much as others. They say little on public logs, where
#: half and twice as many move the loss by 4 % and less, but what has been flat for a year is known better.
_CREDIBILITY = {"jobs": 8.0, "series": 4.0}
#: The rule of one line that stands beside the plan: so many times the need of the last eight weeks.
_RULE = 1.15


@dataclass(frozen=True)
class NeedForecast:
    """Distribution of the GPUs that a window to come will need, from those that past windows needed.

    A month ahead, it follows the recent need: the largest of the windows that ended in the last four weeks. The longer
    the lead, the more it follows the usual one, a mean of past windows in logarithms; the recent need weighs 56 days
    over those from the middle of the last window to that of the window to come. Growth is added as far as it is beyond
    what the scatter of windows could make, and lasted. Around that, needs are lognormal on either side of their
    median, as among public logs (`_MARGINS`), and as among what this forecast would have said of past windows.

    >>> need = NeedForecast(recent=100.0, weekly=np.full(12, 100.0))
    >>> [round(need.quantile(share, 28)) for share in (0.05, 0.5, 0.95)]
    [77, 94, 113]
    >>> round(need.exceedance(110, 28), 2)
    0.08
    """

    recent: float  # largest need of the windows that ended in the last four weeks
    weekly: FloatArray  # (n_weeks,), needs of the windows that end 0, 1, 2, ... weeks before the end of the log
    means: FloatArray = field(default_factory=lambda: np.zeros(0))  # (n_weeks,), GPUs wanted in these windows
    kind: str = "jobs"  # or "series"
    last: float = 0.0  # need of `window`
    window: Window | None = None  # of the last jobs
    stuck: int = 0  # jobs that were left out
    like: NeedForecast | None = None  # of the same jobs for another target, whose growth and spread hold here, too

    @classmethod
    def none(cls) -> NeedForecast:
        """Of a log without jobs."""
        no, never = np.zeros(0), np.zeros(0, dtype=np.int64)
        jobs = QueuedJobs(never, never, never, never, no)
        return cls(0.0, np.zeros(1), window=Window(jobs, np.zeros(0, dtype=bool)))

    @property
    def headroom(self) -> FloatArray:
        """Logarithms of past needs over the mean GPUs wanted; 0 if none is known."""
        known = (self.weekly > 0) & (self.means > 0) if self.means.size else np.zeros(len(self.weekly), dtype=bool)
        return np.log(self.weekly[known] / self.means[known]) if known.any() else np.zeros(1)

    @cached_property
    def usual(self) -> float:
        """Geometric mean of past needs, of which the last eight weeks are half; windows without jobs tell nothing."""
        weeks = np.flatnonzero(self.weekly > 0)
        if not len(weeks):
            return 0.0
        needs = np.maximum(self.weekly[weeks], _LEAST * self.recent)
        return float(np.exp(np.average(np.log(needs), weights=0.5 ** (weeks / _HALF_LIFE))))

    @property
    def tells_growth(self) -> bool:
        """Whether past windows are enough to tell growth from scatter: those of twelve weeks."""
        return _side_by_side(int(np.count_nonzero(self.weekly[:_GROWTH_WEEKS]))) >= _FEWEST

    @cached_property
    def rate(self) -> float:
        """Growth of the need a week, in logarithms, as far as past windows show that it lasts.

        The slope of a line through the windows of half a year, times 1 - (least / slope) ** 2 or 0 where it is below
        `least`, which scatter alone exceeds with a probability of 5 % (positive-part shrinkage, after James and Stein),
        and times the probability that it is a line and no step (`_share_of_line`); at most `_FASTEST`. A fall is not
        carried on: it saves little, and who plans for one that has ended is short.
        """
        if self.like is not None:
            return self.like.rate
        needs = self.weekly[:_GROWTH_WEEKS]
        slope, least = _slope(needs) if self.tells_growth else (0.0, np.inf)
        if not slope > least:
            return 0.0
        return float(min(slope * (1 - (least / slope) ** 2) * _share_of_line(needs), _FASTEST))

    def weight(self, days: float) -> float:
        """Weight of the recent need against the usual one, some days ahead."""
        return min(2 * WINDOW_S / (days * _DAY_S + WINDOW_S), 1.0)

    def level(self, days: float) -> float:
        """Recent and usual need, weighted for a window that begins some days after the end of the log."""
        weight = self.weight(days)
        return float(self.recent**weight * self.usual ** (1 - weight))

    @cached_property
    def own(self) -> tuple[float, float]:
        """Shift of the median of logarithms, and spread over that of other logs, as past windows of this log tell.

        They tell it by what would have been said of them 28 days ahead, and count by how many lie side by side.
        """
        if self.like is not None:
            return self.like.own
        said = []
        for weeks_ago in range(8, len(self.weekly)):
            median, below, above = self._before(weeks_ago)._as_others(28)
            if median > 0 and self.weekly[weeks_ago - 8] > 0:
                error = np.log(self.weekly[weeks_ago - 8] / median)
                said.append((np.clip(error, -_FURTHEST * below, _FURTHEST * above), below, above))
        if not said:
            return 0.0, 1.0
        errors, below, above = np.array(said).T
        others, windows = _CREDIBILITY[self.kind], _side_by_side(len(errors))
        shift = windows / (windows + others) * float(errors.mean())
        left = errors - shift
        squares = np.square(left / np.where(left < 0, below, above))
        return shift, float(np.sqrt((others + windows * squares.mean()) / (others + windows)))

    def _moments(self, days: float) -> tuple[float, float, float]:
        """Median, and standard deviations of the logarithm below and above it."""
        median, below, above = self._as_others(days)
        shift, spread = self.own
        return median * float(np.exp(shift)), spread * below, spread * above

    def _as_others(self, days: float) -> tuple[float, float, float]:
        """The same as if nothing but other logs told how needs change."""
        weight = self.weight(days)
        low, middle, high = (
            weight * margin.recent + (1 - weight) * margin.usual for margin in _MARGINS[self.kind].values()
        )
        median = self.level(days) * self.growth(days) * float(np.exp(middle))
        return median, (middle - low) / Z95, (high - middle) / Z95

    def quantile(self, share: float, days: float) -> float:
        """GPUs that suffice with a probability for the four weeks that begin some days after the end of the log."""
        return float(self.quantiles(np.array([share]), days)[0])

    def quantiles(self, shares: FloatArray, days: float) -> FloatArray:
        """GPUs that suffice with each of some probabilities."""
        median, below, above = self._moments(days)
        z = norm.ppf(shares)
        return np.asarray(median * np.exp(z * np.where(z < 0, below, above)))

    @property
    def rule(self) -> float:
        """GPUs by a rule of one line: the larger need of the last two windows, times 1.15."""
        return float(np.ceil(_RULE * self.weekly[[0, 4] if len(self.weekly) > 4 else [0]].max()))

    def growth(self, days: float) -> float:
        """Ratio of the need of the window that begins some days after the log to the present one.

        Growth is carried on for as long as it was looked for, half a year, and no further.
        """
        return float(np.exp(self.rate * min((days * _DAY_S + WINDOW_S) / _WEEK_S, _GROWTH_WEEKS)))

    def exceedance(self, gpus: float, days: float) -> float:
        """Probability that those weeks need more than a number of GPUs."""
        median, below, above = self._moments(days)
        if gpus <= 0 or median <= 0:
            return float(gpus < median)
        distance = np.log(gpus / median)
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
            if then.recent > 0 and needed > 0:
                rows.append((weeks_ago, float(np.ceil(then.quantile(share, days))), needed, then.rule))
        return pd.DataFrame(rows, columns=["weeks_ago", "plan", "need", "rule"])

    def _before(self, weeks_ago: int) -> NeedForecast:
        """The forecast from the windows that were over some weeks ago."""
        weekly, like = self.weekly[weeks_ago:], self.like and self.like._before(weeks_ago)
        return replace(self, recent=float(weekly[:5].max()), weekly=weekly, means=self.means[weeks_ago:], like=like)

    def extra_gpus(self, work: pd.DataFrame, begin: pd.Timestamp, target: WaitTarget) -> float:
        """GPUs that known work (as of `Programme.jobs`) adds to the need of the last jobs, from a time on."""
        assert self.window is not None
        added = _joined(self.window, work, begin)
        if added is self.window:
            return 0.0
        return max(fewest_gpus(added, target, guess=self.last) - self.last, 0.0)


def _slope(needs: FloatArray) -> tuple[float, float]:
    """Slope of the logarithm of weekly needs, the latest first, and the least that is beyond their scatter.

    Scatter is that of Student's t with as many observations as windows lie side by side.
    """
    weeks = np.flatnonzero(needs > 0)
    slope, level = np.polyfit(-weeks, logs := np.log(needs[weeks]), 1)
    apart = _side_by_side(len(weeks))
    error = float(np.sqrt(((logs - level + slope * weeks) ** 2).mean() / (apart - 2)) / weeks.std())
    return float(slope), error * float(stdtrit(apart - 2, _BELIEVED))


def _share_of_line(needs: FloatArray) -> float:
    """Likelihood of a line through the logarithms of weekly needs, the latest first, over that and the best step's.

    A step that falls into a window is a part of it, so that needs rise over four windows that end a week apart. Each
    likelihood is that of normal errors of as many windows as lie side by side (Akaike weights; Burnham and Anderson,
    "Model Selection and Multimodel Inference", Springer 2002, section 2.9).
    """
    weeks = np.flatnonzero(needs > 0)
    steps = np.arange(_WINDOW_WEEKS, weeks[-1])  # weeks ago, of which windows tell both levels
    shapes = np.vstack([-weeks, np.clip((steps[:, None] - weeks) / _WINDOW_WEEKS, 0.0, 1.0)])
    shapes = shapes - shapes.mean(axis=1, keepdims=True)
    logs = np.log(needs[weeks]) - np.log(needs[weeks]).mean()
    scatter = max(float((logs**2).sum()), np.finfo(float).tiny)
    left = 1.0 - (shapes @ logs) ** 2 / ((shapes**2).sum(axis=1) * scatter)
    line, step = np.maximum([left[0], left[1:].min(initial=1.0)], 1e-9)
    return float(1.0 / (1.0 + (line / step) ** (_side_by_side(len(weeks)) / 2)))


def _side_by_side(n_weekly: int) -> float:
    """Windows that do not overlap, of some that end a week apart: they tell as much."""
    return (n_weekly - 1) / 4 + 1 if n_weekly else 0.0


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
    return window._replace(jobs=QueuedJobs(*(column[order] for column in jobs)), counted=counted)


def forecast_need(jobs: pd.DataFrame, target: WaitTarget, until: pd.Timestamp, policy: str = "easy") -> NeedForecast:
    """Needs of past windows of a job log, by simulated queues, and the distribution of those after `until`, its end."""
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
    weeks = _weeks(log.length_s, length_s)
    # Windows of one week after another share three of their four weeks: those between are interpolated.
    step = int(np.clip(np.ceil(weeks / affordable), 1, 4))
    simulated = np.union1d(np.arange(0, weeks, step), weeks - 1)
    weekly = np.interp(np.arange(weeks), simulated, [need(-_WEEK_S * week) for week in simulated])
    means = np.array([log.mean_wanted(-_WEEK_S * week, length_s) for week in range(weeks)])
    recent = max(gpus for end_s, gpus in known.items() if end_s >= -WINDOW_S)
    for end_s in _ends(log.length_s, length_s, affordable):
        window = log.window(end_s, length_s)
        # One queue tells whether a window needs more than the largest so far; only then how much is searched.
        if end_s not in known and not target.is_met(window, recent, policy):
            recent = max(recent, need(end_s))
    return NeedForecast(recent, weekly, means, "jobs", last, log.window(0.0, length_s), log.stuck)


def _ends(length_s: float, window_s: float, affordable: int = _MOST_ENDS) -> FloatArray:
    """Ends, a day apart, of the windows that ended in the last four weeks, as far as the log and time allow."""
    days = np.linspace(0, _MOST_ENDS - 1, min(affordable, _MOST_ENDS)).round()
    return -_DAY_S * days[_DAY_S * days <= max(length_s - window_s, 0.0)]


def _weeks(length_s: float, window_s: float) -> int:
    """Past windows, a week apart, that the log holds."""
    return int(np.clip((length_s - window_s) // _WEEK_S + 1, 1, _MOST_WEEKS))


def forecast_peaks(peaks: FloatArray, means: FloatArray) -> NeedForecast:
    """The most GPUs held at once in past windows of usage without jobs, and the distribution of those to come.

    `peaks`, `means`: shape (n_days,); of the days before the end of the record; NaN is not known.
    """
    days = min(28, len(peaks))
    most = pd.Series(peaks).rolling(days, min_periods=1).max().fillna(0.0).to_numpy()
    mean = pd.Series(means).rolling(days, min_periods=1).mean().fillna(0.0).to_numpy()
    length_s, window_s = len(peaks) * _DAY_S, days * _DAY_S
    recent = max(float(most[_day(end_s)]) for end_s in _ends(length_s, window_s))
    weeks = [_day(-_WEEK_S * week) for week in range(_weeks(length_s, window_s))]
    return NeedForecast(recent, most[weeks], mean[weeks], "series", float(most[-1]))


def _day(end_s: float) -> int:
    """Place, from the end, of the last day before a time."""
    return round(end_s / _DAY_S) - 1
