"""How long jobs waited, and the GPUs that are needed so that they do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd
from joblib import cpu_count
from scipy.stats import norm

from gpudemand._array import STRING, FloatArray
from gpudemand._validation import InputError
from gpudemand.jobs.table import seconds_since, start_times
from gpudemand.metrics import levels
from gpudemand.planning.capacity import SHARES
from gpudemand.planning.need import NeedForecast, WaitTarget, wait_target
from gpudemand.planning.programmes import PlannedWork, Programme
from gpudemand.planning.purchases import work_that_needs
from gpudemand.planning.quantiles import Z95, pick_model
from gpudemand.planning.wait_plan import WaitPlan, curve_gpus, wait_curve
from gpudemand.study.selection import SelectedForecast
from gpudemand.study.settings import Settings
from gpudemand.study.source import Source, tells_waits
from gpudemand.study.usage_tables import MEAN, PEAK, WAIT, UsageTables, period_end, usual_most_held
from gpudemand.units import SECONDS_PER_HOUR, parse_duration
from gpudemand.usage.bins import calendar_range
from gpudemand.usage.waits import checked_wait_tables, share_beside_idle

#: After the arrival of an order, the requirement is told for so long.
_AFTER, _WEEK = pd.Timedelta("84D"), pd.Timedelta("7D")
#: Equally likely windows that stand for their distribution.
_SHARES = (np.arange(100) + 0.5) / 100
#: Those between which the work is interpolated.
_WORK_QUANTILES = np.array([0.0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0])
#: Standard normal deviates that a distribution is summed over.
_Z = np.linspace(-4.0, 4.0, 321)
_SECONDS = ("median_wait_s", "mean_wait_s", "p95_wait_s")


@dataclass(frozen=True)
class Waits:
    """Waits of the jobs of a log.

    `by_size`, `table`: by GPUs of the job; the first row of `table` is ``all``. `beside_idle`: share of the time that
    jobs waited beside as many idle GPUs as they wanted.
    """

    by_size: pd.DataFrame
    table: pd.DataFrame
    beside_idle: float = float("nan")


def compute_waits(source: Source, usage: UsageTables, settings: Settings) -> Waits:
    """Sum up the waits until the end of the period."""
    jobs = source.jobs
    _check_tells_waits(jobs)
    attrs = jobs.attrs
    jobs = jobs[jobs["submit"] <= period_end(usage.total)].reset_index(drop=True)
    jobs.attrs = attrs
    every, by_size = checked_wait_tables(jobs, [None, "size"], settings.tz)
    table = pd.concat([every, by_size.set_axis(by_size.index.astype(STRING))])
    hours = (table[list(_SECONDS)] / SECONDS_PER_HOUR).rename(columns=lambda name: name.replace("_s", "_h"))
    others = table.drop(columns=["jobs", *_SECONDS])
    table = pd.concat([table[["jobs"]], hours, others], axis=1).rename_axis("size").reset_index()
    return Waits(by_size, table, share_beside_idle(jobs, _in_service(source, usage, settings)))


def _in_service(source: Source, usage: UsageTables, settings: Settings) -> float | dict[str, float]:
    """GPUs installed, as far as one number tells them, or by type, where jobs name several, else as `usual_most_held`.

    Types that held more than a stated total, each at its own time, are no parts of it that stand apart.
    """
    given, held = settings.installed, {}
    if len(source.names("gpu_type")) > 1:
        held = {str(name): float(most) for name, most in usual_most_held(source, "gpu_type").items()}
    if isinstance(given, Mapping) and settings.pool == "gpu_type":
        held |= {name: float(count) for name, count in given.items() if not isinstance(count, pd.Series)}
    if isinstance(given, (int, float)) and sum(held.values()) > given:
        return float(given)
    total = settings.total_installed
    return held or (usage.max_held if total is None or isinstance(total, pd.Series) else total)


def _check_tells_waits(jobs: pd.DataFrame) -> None:
    if not tells_waits(jobs):
        raise InputError("the log tells no waits: it has no submit times, or every job started when it was submitted.")


@dataclass(frozen=True)
class Need:
    """GPUs that windows of four weeks need, of the log and of work that is known to come.

    `forecast`: of the log. `target`: for waits; None of usage without jobs, whose peaks count. `programmes`: work to
    come, whose costs are uncertain. `log_end`, `lead_time`: the requirement is told from the arrival of an order on
    that is placed as the log ends. `availability`: share of the GPUs that runs jobs. `shared`: need of all pools, of
    whose further work this one has a share. `spread`: standard deviation of the logarithm of the log's need over the
    usual one. `costs_known`: whether programmes count as exactly as expected. `ratio`: need of the log's work, if that
    changes, over that of the log.
    """

    forecast: NeedForecast
    target: WaitTarget | None
    programmes: tuple[PlannedWork, ...]
    log_end: pd.Timestamp
    lead_time: pd.Timedelta
    availability: float = 1.0
    shared: Need | None = None
    share: float = 0.0
    spread: float = 1.0
    costs_known: bool = False
    ratio: float = 1.0
    _added: dict[pd.Timestamp, FloatArray] = field(default_factory=dict, repr=False, compare=False)
    _works: dict[pd.Timestamp, FloatArray] = field(default_factory=dict, repr=False, compare=False)

    @property
    def basis(self) -> str:
        """Name of the requirement: for waits, or for peaks."""
        return PEAK if self.target is None else WAIT

    def quantiles(self, shares: FloatArray, ds: pd.DatetimeIndex) -> FloatArray:
        """GPUs that suffice with some probabilities for the four weeks from each time on, shape (n_times, n_shares).

        What an order can no longer change has the uncertainty of its lead; what comes after an order that is placed
        now, that of its arrival, since later orders will know more.
        """
        arrival = self.log_end + self.lead_time
        width = ds[1] - ds[0] if len(ds) > 1 else pd.Timedelta(0)
        # The bin of the arrival is already after it.
        weeks, of_time = np.unique(np.floor((ds + width - arrival) / _WEEK), return_inverse=True)
        return np.array([self.samples(arrival + week * _WEEK, shares) for week in weeks])[of_time]

    def at(self, begin: pd.Timestamp, share: float) -> float:
        """GPUs that suffice with a probability for the four weeks from a time on."""
        return float(self.samples(begin, np.array([share]))[0])

    def samples(self, begin: pd.Timestamp, shares: FloatArray = _SHARES) -> FloatArray:
        """GPUs that suffice with some probabilities; by default equally likely needs, ascending."""
        days, growth = self._lead(begin)
        extra, chances = self._extra_values(begin)
        if len(extra) == 1:
            return (growth * self._of_log(shares, days) + extra[0]) / self.availability
        sums = np.add.outer(growth * self._of_log(norm.cdf(_Z), days), extra).ravel()
        order, weights = np.argsort(sums, kind="stable"), np.outer(_density(_Z), chances).ravel()
        reached = np.cumsum(weights[order]) - weights[order] / 2
        return np.asarray(np.interp(shares, reached, sums[order]) / self.availability)

    def _of_log(self, shares: FloatArray, days: float) -> FloatArray:
        quantiles, middle = self.forecast.quantiles(shares, days), self.forecast.quantile(0.5, days)
        return quantiles if self.spread == 1.0 or not middle else middle * (quantiles / middle) ** self.spread

    def risk(self, gpus: float, begin: pd.Timestamp) -> float:
        """Probability that the four weeks from a time on need more than a number of GPUs."""
        days, growth = self._lead(begin)
        extra, chances = self._extra_values(begin)
        each = [
            self.forecast.exceedance((gpus * self.availability - more) / max(growth, 1e-300), days) for more in extra
        ]
        return float(np.dot(chances, each))

    def without(self, *names: str) -> Need:
        """The need without some of the programmes."""
        return self.with_programmes([each for each in self.programmes if each.name not in names])

    def with_programmes(self, programmes: Sequence[PlannedWork]) -> Need:
        """The need of the log with other programmes."""
        return replace(self, programmes=tuple(programmes), _added={}, _works={})

    def works(self, begin: pd.Timestamp) -> FloatArray:
        """Equally likely amounts of work of the four weeks from a time on: times as fast as jobs came in the last ones.

        That the GPUs needed are as many as `samples` says, on a cluster like today's.
        """
        if begin not in self._works:
            window, needed = self.forecast.window, self.samples(begin) * self.availability
            assert window is not None
            assert self.target is not None
            at = np.quantile(needed, _WORK_QUANTILES)
            found = [work_that_needs(window, self.target, gpus, gpus / self.forecast.last) for gpus in at]
            self._works[begin] = np.interp(needed, at, np.maximum.accumulate(found))
        return self._works[begin]

    def _lead(self, begin: pd.Timestamp) -> tuple[float, float]:
        """Lead in days whose spread the weeks from a time on have, and the growth of the median beyond it."""
        days, lead = (begin - self.log_end) / pd.Timedelta("1D"), self.lead_time / pd.Timedelta("1D")
        if days <= lead:
            return max(days, 0.0), self.ratio
        return lead, self.ratio * self.forecast.growth(days) / self.forecast.growth(lead)

    def _extra_values(self, begin: pd.Timestamp) -> tuple[FloatArray, FloatArray]:
        """GPUs that known work adds, and their probabilities: normal on either side of the median."""
        low, middle, high = self._extra(begin)
        if self.costs_known or low == high:
            return np.array([middle]), np.ones(1)
        z = _Z[:: len(_Z) // 40]
        reach = np.where(z < 0, middle - low, high - middle) / Z95
        return np.maximum(middle + z * reach, 0.0), _density(z)

    def _extra(self, begin: pd.Timestamp) -> FloatArray:
        """GPUs that known work adds, by simulated queues, so each time once: 5 % quantile, median, 95 % quantile."""
        if begin not in self._added:
            shared = 0.0 if self.shared is None else self.share * self.shared._extra(begin)
            self._added[begin] = shared + self._own_extra(begin)
        return self._added[begin]

    def _own_extra(self, begin: pd.Timestamp) -> FloatArray:
        low, middle, high = self._work
        expected = self._added_by(middle, begin)
        if low is middle:
            return np.full(3, expected)
        return np.array(
            [min(self._added_by(low, begin), expected), expected, max(self._added_by(high, begin), expected)]
        )

    def _added_by(self, work: pd.DataFrame | None, begin: pd.Timestamp) -> float:
        if work is None or not ((work["end"] > begin) & (work["submit"] < begin + 4 * _WEEK)).any():
            return 0.0
        return _most_held(work, begin) if self.target is None else self.forecast.extra_gpus(work, begin, self.target)

    @cached_property
    def _work(self) -> tuple[pd.DataFrame | None, ...]:
        """Jobs of the programmes at the 5 % quantile of their work, its median and its 95 % quantile.

        Errors of programmes are independent: where the sum is at a quantile, each deviates by its part of the variance.
        """
        if not self.programmes:
            return None, None, None
        spreads = np.array([_spread(each) for each in self.programmes])
        total = float(np.sqrt(np.square(spreads).sum())) or 1.0
        middle = pd.concat([each.jobs() for each in self.programmes], ignore_index=True)
        if not spreads.any():
            return middle, middle, middle
        low, high = (
            pd.concat([each.jobs(side * part / total) for each, part in zip(self.programmes, spreads, strict=True)])
            for side in (-Z95, Z95)
        )
        return low, middle, high

    @property
    def rule(self) -> int:
        """GPUs by a rule of one line: 1.15 times the larger need of the last two windows of the log."""
        return int(np.ceil(self.forecast.rule / self.availability))

    def backtest(self, share: float) -> pd.DataFrame:
        """Plans at earlier times with the same lead; see `NeedForecast.backtest`."""
        table = self.forecast.backtest(share, self.lead_time / pd.Timedelta("1D"))
        table.insert(0, "origin", self.log_end - table.pop("weeks_ago").astype(float) * _WEEK)
        return table


def _spread(work: PlannedWork) -> float:
    """Width of the 90 % interval of the GPU-hours of a programme."""
    begin, end = work.period
    _, low, high = work.gpus_range(pd.Series([begin, end]))
    return float((high[0] - low[0]) * ((end - begin) / pd.Timedelta("1h")))


def _density(z: FloatArray) -> FloatArray:
    weights = norm.pdf(z)
    return np.asarray(weights / weights.sum())


def _most_held(work: pd.DataFrame, begin: pd.Timestamp) -> float:
    """Most GPUs of known jobs at once in the four weeks from a time on."""
    there = work[(work["end"] > begin) & (work["submit"] < begin + 4 * _WEEK)]
    steps = pd.concat(
        [pd.Series(there["gpus"].to_numpy(), there["submit"]), pd.Series(-there["gpus"].to_numpy(), there["end"])]
    )
    return float(steps.groupby(level=0).sum().sort_index().cumsum().max())


def needed_gpus(
    source: Source, programmes: Sequence[PlannedWork], settings: Settings, by: str | None = None, name: str = ""
) -> Need:
    """Need of the log, or of one of its pools (none of one that is not used), and of the programmes."""
    wait = source.settings.wait
    target = None if wait is None else wait_target(wait, settings.wait_share)
    try:
        forecast = source.need(target, by, name)
    except InputError:
        if by is None:
            raise
        forecast = NeedForecast.none()
    log_end, lead_time = source.settings.end, parse_duration(settings.longest_lead_time)
    return Need(forecast, target, tuple(programmes), log_end, lead_time, settings.availability)


def recent_shares_in_time(need: Need, source: Source, settings: Settings) -> tuple[float | None, float | None]:
    """Share of the last window's jobs in time as recorded, and in the simulated queue on the GPUs installed.

    None where no number of GPUs was given, where they change, or where the log tells no waits.
    """
    given, window = settings.total_installed, need.forecast.window
    if need.target is None or window is None or not isinstance(given, (int, float)) or not tells_waits(source.jobs):
        return None, None
    jobs, rows = source.jobs, window.rows[window.counted]
    waits_s = seconds_since(start_times(jobs).fillna(need.log_end), jobs["submit"])[rows]
    simulated_s = window.waits_s(given * need.availability)
    return need.target.share_in_time(window, waits_s), need.target.share_in_time(window, simulated_s)


def plan_for_waits(need: Need, installed: float, settings: Settings) -> WaitPlan:
    """GPUs with which jobs start in time in the four weeks after the arrival of an order, and waits on others."""
    if need.target is None:
        raise InputError("this is usage over time and no jobs, so how long they would wait is not known.")
    needed = need.samples(need.log_end + need.lead_time)
    required = float(np.ceil(need.at(need.log_end + need.lead_time, settings.service_level)))
    outcomes = need.forecast.outcomes(need.target)
    curve = wait_curve(curve_gpus(required, [installed]), needed, outcomes)
    found = (required, installed, need.target, settings.service_level, curve, needed)
    return WaitPlan(*found, outcomes=outcomes)


def with_need(demand: SelectedForecast, need: Need, freq: str) -> pd.DataFrame:
    """The forecast of the mean, and the GPUs needed as one: what a requirement is planned for."""
    mean = demand.forecast[demand.forecast["unique_id"] == MEAN]
    return pd.concat([mean, as_forecast(need, demand.forecast, freq)], ignore_index=True)


def as_forecast(need: Need, forecast: pd.DataFrame, freq: str) -> pd.DataFrame:
    """GPUs needed until weeks after the arrival of an order, as a forecast with the model and levels of another."""
    model, bins = pick_model(forecast, None), pd.DatetimeIndex(forecast["ds"].unique()).sort_values()
    end = (need.log_end + need.lead_time + _AFTER).tz_convert(bins.tz)
    ds = bins.append(calendar_range(bins[-1], end, freq=freq)[1:])
    shares = {model: 0.5}
    for level in levels(forecast, model):
        shares |= {f"{model}-lo-{level:g}": 0.5 - level / 200, f"{model}-hi-{level:g}": 0.5 + level / 200}
    found = need.quantiles(np.array(list(shares.values())), ds)
    result = pd.DataFrame({"unique_id": need.basis, "ds": ds, **dict(zip(shares, found.T, strict=True))})
    result.attrs = dict(forecast.attrs)
    return result


#: Targets that are told beside the one that is planned for.
_WAITS, _SHARES_IN_TIME = ("10min", "1h", "4h", "24h"), (0.8, 0.9, 0.95)
#: Jobs of a window beyond which that takes too long.
_MOST_JOBS = 100_000


def target_grid(needs: Mapping[tuple[str, float], Need], service_level: float) -> pd.DataFrame:
    """GPUs required for each of some targets: ``wait``, ``share``, ``probability`` and ``required``."""
    probabilities = sorted({*SHARES.values(), service_level})
    rows = [
        (*pair, probability, required)
        for pair, need in needs.items()
        for probability, required in zip(
            probabilities, np.ceil(need.samples(need.log_end + need.lead_time, np.array(probabilities))), strict=True
        )
    ]
    return pd.DataFrame(rows, columns=["wait", "share", "probability", "required"]).astype({"wait": STRING})


def target_needs(need: Need, source: Source, settings: Settings) -> dict[tuple[str, float], Need]:
    """GPUs needed for other waits and shares of the jobs in time, and for the stated ones."""
    window, stated = need.forecast.window, settings.stated_target
    if need.target is None or window is None or not need.forecast.last:
        raise InputError("this is usage over time and no jobs, so how long they would wait is not known.")
    if len(window.counted) > _MOST_JOBS:
        raise InputError("the log has too many jobs for the queue to be simulated for each of several targets.")
    waits = sorted({*_WAITS, stated[0]}, key=parse_duration)
    pairs = [(wait, share) for wait in waits for share in sorted({*_SHARES_IN_TIME, stated[1]})]
    others = [pair for pair in pairs if pair != stated]
    with ThreadPoolExecutor(min(cpu_count(), len(others))) as pool:
        found = dict(zip(others, pool.map(lambda pair: _with_target(need, source, *pair), others), strict=True))
    needs = {pair: found.get(pair, need) for pair in pairs}
    return _in_order(needs, stated)


def _in_order(needs: dict[tuple[str, float], Need], stated: tuple[str, float]) -> dict[tuple[str, float], Need]:
    """The same, where looser targets never needed more than stricter ones, and the stated one needed what it did.

    A queue may start fewer jobs in time on more GPUs, by which the fewest of a window may be fewer for a stricter
    target.
    """
    waits = list(dict.fromkeys(wait for wait, _ in needs))
    row, column = divmod(list(needs).index(stated), len(needs) // len(waits))
    past = np.array([[each.forecast.recent, *each.forecast.weekly] for each in needs.values()])
    past = past.reshape(len(waits), -1, past.shape[1])
    looser, stricter = (slice(row, None), slice(column + 1)), (slice(row + 1), slice(column, None))
    past[looser] = np.minimum(past[looser], past[row, column])
    past[stricter] = np.maximum(past[stricter], past[row, column])
    past = np.maximum.accumulate(np.maximum.accumulate(past[::-1], axis=0)[::-1], axis=1)
    found = {}
    for (pair, each), (recent, *weekly) in zip(needs.items(), past.reshape(len(needs), -1), strict=True):
        forecast = replace(each.forecast, recent=float(recent), weekly=np.array(weekly))
        found[pair] = each if pair == stated else replace(each, forecast=forecast)
    return found


def _with_target(need: Need, source: Source, wait: str, share: float) -> Need:
    target = wait_target(wait, share)
    return replace(need, forecast=source.need(target), target=target, _added={}, _works={})


def other_targets(grid: pd.DataFrame, service_level: float) -> pd.DataFrame:
    """Rows of `target_grid` at one probability: ``wait``, ``required_80``, ``required_90`` and ``required_95``."""
    rows = grid[(grid["probability"] == service_level) & grid["share"].isin(_SHARES_IN_TIME)]
    wide = rows.pivot(index="wait", columns="share", values="required").loc[rows["wait"].unique()]
    return wide.set_axis([f"required_{100 * share:.0f}" for share in wide.columns], axis=1).reset_index()


def requirement_by_period(
    need: Need, installed: Sequence[float], begins: pd.Series, service_level: float
) -> pd.DataFrame:
    """GPUs required for the four weeks from each time on, and the ``risk`` that the fewest `installed` are too few."""
    rows = [
        {
            "begin": begin,
            "required_p50": np.ceil(need.at(begin, 0.5)),
            "required": np.ceil(need.at(begin, service_level)),
            "installed": there,
            "risk": need.risk(there, begin),
        }
        for begin, there in zip(begins, installed, strict=True)
    ]
    return pd.DataFrame(rows)


def requirement_steps(need: Need, service_level: float) -> pd.DataFrame:
    """From what the log needed to the GPUs required for the four weeks after the arrival of an order.

    ``attrs``: ``recent_weight``, that of the recent need against the usual one, and ``growth``, the ratio of the need
    at the arrival of the order to that of now, as far as past needs show growth.
    """
    log, begin, days = need.forecast, need.log_end + need.lead_time, need.lead_time / pd.Timedelta("1D")
    steps = {f"needed in {'the last four weeks' if len(log.weekly) > 1 else 'the log'}": log.weekly[0]}
    steps["recent: the largest need of four weeks that ended in the last four"] = log.recent
    steps["usual: the mean of past needs, of which the last eight weeks are half"] = log.usual
    steps["between both, the nearer to the usual the longer the lead"] = log.level(days)
    if log.rate:
        steps["with the growth of past needs until then"] = log.level(days) * log.growth(days)
    if need.programmes:
        steps["programmes add (median)"] = need._extra(begin)[1]
    for share in (0.05, 0.5, service_level):
        steps[f"suffice with probability {100 * share:.4g}%"] = need.at(begin, share)
    table = pd.DataFrame({"step": list(steps), "gpus": np.ceil(list(steps.values()))})
    table.attrs = {"recent_weight": log.weight(days), "growth": log.growth(days)}
    return table.astype({"step": STRING})


def programme_table(need: Need, service_level: float) -> pd.DataFrame:
    """What each programme takes, and what the requirement falls by without it."""
    begin = need.log_end + need.lead_time
    required = np.ceil(need.at(begin, service_level))
    rows = []
    for work in need.programmes:
        row: dict[str, object] = {"programme": work.name}
        if isinstance(work, Programme):
            hours, low, high = work.run
            row |= {"runs": work.runs, "run_gpus": work.run_gpus, "run_hours": hours}
            row |= {"run_hours-lo-90": low, "run_hours-hi-90": high, "gpu_hours": work.gpu_hours}
        rows.append(row | {"required": required - np.ceil(need.without(work.name).at(begin, service_level))})
    if not rows:
        raise InputError("there are no programmes.")
    return pd.DataFrame(rows).astype({"programme": STRING})


def range_by_source(need: Need) -> pd.DataFrame:
    """How much of the range of the GPUs needed comes from costs, from demand and from bursts.

    Each source is switched off in turn. Costs: programmes take exactly what is predicted. Demand: what is left of the
    variation of past needs where the mean demand of the same window is known (by regression of the changes of their
    logarithms over the lead); bursts: only what mean demand explains of it. A share is what the variance of the need
    falls by, over the sum of these falls.
    """
    begin, log = need.log_end + need.lead_time, need.forecast
    ahead = max(round(need.lead_time / _WEEK) + 4, 1)
    pairs = np.array([log.weekly, log.means]) if log.means.size else np.empty((2, 0))
    after, before = pairs[:, :-ahead], pairs[:, ahead:]
    known = (after > 0).all(axis=0) & (before > 0).all(axis=0)
    needs, means = np.log(after[:, known] / before[:, known])
    if len(needs) < _FEWEST or not (needs.std() > 0 and means.std() > 0):
        raise InputError("the log has too few weeks to tell bursts from demand.")
    explained = float(np.corrcoef(needs, means)[0, 1] ** 2)
    off = {"nothing": need, "costs": replace(need, costs_known=True)}
    off |= {"demand": replace(need, spread=(1.0 - explained) ** 0.5), "bursts": replace(need, spread=explained**0.5)}
    samples = {name: each.samples(begin) for name, each in off.items()}
    falls = {name: max(float(samples["nothing"].var() - each.var()), 0.0) for name, each in samples.items()}
    rows = [
        (name, *np.ceil(off[name].samples(begin, np.array([0.05, 0.95]))), falls[name] / (sum(falls.values()) or 1.0))
        for name in off
    ]
    table = pd.DataFrame(rows, columns=["known", "required_lo", "required_hi", "range_share"]).astype({"known": STRING})
    table.loc[0, "range_share"] = np.nan
    return table


#: Changes that a regression needs.
_FEWEST = 8
