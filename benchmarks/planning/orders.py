"""Orders put to the test: the GPUs required at past origins against those that the weeks after their arrival needed.

``python -m benchmarks.planning.orders --data DIR`` prints plans and rules; ``--promises`` how often what was promised
came, and ``--margins`` the margins of `gpudemand.planning.need`, both from ``data/planning/need_windows.csv``, which
``--windows FILE`` makes.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
from scipy.optimize import linprog

from gpudemand._array import FloatArray
from gpudemand.datasets import make_cluster
from gpudemand.datasets.registry import data_folder
from gpudemand.forecast import ETS
from gpudemand.jobs.read import read_jobs
from gpudemand.jobs.table import as_jobs, check_jobs, checked_as_of
from gpudemand.planning import need as need_module
from gpudemand.planning.need import (
    FIT_LEADS,
    WINDOW_S,
    JobTimes,
    NeedForecast,
    fewest_gpus,
    forecast_need,
    forecast_peaks,
    wait_target,
)
from gpudemand.study.usage_tables import usual_most
from gpudemand.usage.series import end_of_record, usage_series

#: Margins by probability.
Margins: TypeAlias = "dict[float, tuple[float, float]]"
TARGET = wait_target("1h", 0.9)
LEADS, SHARE = (28, 90), 0.95
_DAY_S, _WEEK = 86400.0, pd.Timedelta("7D")


def kth(data: Path) -> pd.DataFrame:
    """KTH-SP2, 11 months."""
    return read_jobs(data / "traces/swf-kth-sp2/KTH-SP2-1996-2.swf.gz", format="swf")


def atlas(data: Path) -> pd.DataFrame:
    """LLNL Atlas, 6 months."""
    return read_jobs(data / "traces/swf-llnl-atlas/LLNL-Atlas-2006-2.1-cln.swf.gz", format="swf")


def venus(data: Path) -> pd.DataFrame:
    """Helios Venus, 5 months; it tells no starts."""
    log = pd.read_csv(data / "traces/helios-venus-gpu-jobs/helios_trace.csv.gz")
    return _of_runs("2020-03-18 04:01:39", log["arrival_s"], log["service_sec"], log["gpu_count"])


def philly(data: Path) -> pd.DataFrame:
    """Philly, 11 weeks; it tells no starts."""
    log = pd.read_csv(data / "traces/philly-jobs-pollux/philly.csv.gz", parse_dates=["timestamp"])
    log = log.sort_values("timestamp")
    since = (log["timestamp"] - log["timestamp"].iloc[0]).dt.total_seconds()
    return _of_runs(str(log["timestamp"].iloc[0]), since, log["duration"], log["num_gpus"])


def _of_runs(begin: str, submit_s: pd.Series, run_s: pd.Series, gpus: pd.Series) -> pd.DataFrame:
    submit = pd.Timestamp(begin, tz="UTC") + pd.to_timedelta(submit_s.to_numpy(), unit="s")
    end = submit + pd.to_timedelta(run_s.to_numpy(), unit="s")
    frame = pd.DataFrame({"submit": submit, "start": submit, "end": end, "gpus": gpus.to_numpy(dtype=float)})
    return as_jobs(frame[(run_s > 0).to_numpy()], kind="public trace")


def pai(data: Path) -> pd.DataFrame:
    """Alibaba PAI, a sample of 9 weeks; it tells no submissions."""
    log = pd.read_csv(data / "traces/alibaba-pai-v2020-sample/alibaba_trace_sub.csv.gz")
    return _of_runs("2020-01-01", log["arrival_s"] - log["arrival_s"].min(), log["service_sec"], log["gpu_count"])


def sdsc(data: Path) -> pd.DataFrame:
    """SDSC Paragon of 1995, a year."""
    log = pd.read_csv(data / "more/SDSC_95.csv")
    return _of_runs("1995-01-01", log["Interval"].cumsum(), log["Run_Time"], log["Number_of_Allocated_Processors"])


def theta(data: Path) -> pd.DataFrame:
    """Theta, nodes, 5 months; the first jobs, long before the others, left out."""
    log = pd.read_csv(data / "more/theta_data_training.csv")
    since = log["interval"].cumsum()
    log, since = log[since >= since.quantile(0.005)], since[since >= since.quantile(0.005)]
    return _of_runs("2022-01-01", since - since.iloc[0], log["run_time"], log["node_num"])


def nasa(data: Path) -> pd.DataFrame:
    """NASA iPSC, 13 weeks."""
    return read_jobs(data / "more/NASA-iPSC-1993-3.1-cln.swf.gz", format="swf")


def wagap(data: Path) -> pd.DataFrame:
    """A cluster of MetaCentrum, 13 weeks of 2013."""
    lines = (data / "more/wagap-2013.swf").read_text().splitlines()
    rows = np.array([line.split()[1:5] for line in lines if not line.startswith(";")], dtype=float)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    since, run, gpus = rows[:, 0] - rows[0, 0], rows[:, 2], rows[:, 3]
    return _of_runs("2013-01-01", pd.Series(since), pd.Series(run), pd.Series(gpus))


def _replayed(name: str) -> Callable[[Path], pd.DataFrame]:
    """A log of the Parallel Workloads Archive as dinesh121991/predictsim replays it: submissions and run times."""

    def load(data: Path) -> pd.DataFrame:
        return read_jobs(data / "more" / f"{name}.swf.gz", format="swf", origin="2000-01-01 00:00+00:00")

    return load


def spot(data: Path) -> pd.DataFrame:
    """GPUs of six types in use by the hour, and their sum, 21 weeks."""
    table = pd.read_csv(data / "traces/alibaba-spot-v2026-derived/hourly_concurrency_top_models.csv", index_col="hour")
    return table.assign(all=table.sum(axis=1))


#: Logs that orders are scored on, and further ones that the margins know.
LOGS: dict[str, Callable[[Path], pd.DataFrame]] = {"kth": kth, "atlas": atlas, "venus": venus}
FURTHER: dict[str, Callable[[Path], pd.DataFrame]] = {
    "philly": philly,
    "pai": pai,
    "sdsc": sdsc,
    "theta": theta,
    "nasa": nasa,
    "wagap": wagap,
    "ctc": _replayed("CTC-SP2"),
    "sdsc-sp2": _replayed("SDSC-SP2"),
    "sdsc-blue": _replayed("SDSC-BLUE"),
    "curie": _replayed("CEA-curie"),
}
#: Of these, what was held by the hour is a series of GPUs, too.
HELD = ("venus", "philly", "pai")


def windows(data: Path) -> pd.DataFrame:
    """Needs of the windows of four weeks that end on each day of each log; of series, the largest mean of an hour.

    Returns ``log``, ``kind``, ``day`` (since its begin), ``need`` and ``mean`` (GPUs).
    """
    tables = []
    for name, load in {**LOGS, **FURTHER}.items():
        jobs = load(data)
        tables.append(_of_jobs(name, check_jobs(jobs), end_of_record(jobs)))
        if name in HELD:
            held = usage_series(jobs, by=None, freq="h", value="wanted")["y"].to_numpy()
            tables.append(_of_hours(name, held))
    tables += [_of_hours(f"spot {name}", hours.to_numpy(dtype=float)) for name, hours in spot(data).items()]
    return pd.concat(tables, ignore_index=True).round(1)


def _of_jobs(name: str, jobs: pd.DataFrame, until: pd.Timestamp) -> pd.DataFrame:
    log, rows = JobTimes.from_log(jobs, until), []
    days = int((log.length_s - WINDOW_S) // _DAY_S)
    for ago in range(days - 7, -1, -1):  # the week before the first window fills the cluster
        need = fewest_gpus(log.window(-ago * _DAY_S), TARGET, guess=rows[-1][3] if rows else None)
        rows.append((name, "jobs", days - ago + 28, need, log.mean_wanted(-ago * _DAY_S)))
    return pd.DataFrame(rows, columns=_WINDOW_COLUMNS)


def _of_hours(name: str, hours: FloatArray) -> pd.DataFrame:
    days = hours[len(hours) % 24 :].reshape(-1, 24)
    rows = [
        (name, "series", end, days[end - 28 : end].max(), days[end - 28 : end].mean())
        for end in range(28, len(days) + 1)
    ]
    return pd.DataFrame(rows, columns=_WINDOW_COLUMNS)


_WINDOW_COLUMNS = ["log", "kind", "day", "need", "mean"]


def bundled_windows() -> pd.DataFrame:
    """What `windows` found."""
    return pd.read_csv(data_folder() / "planning" / "need_windows.csv")


def changes(table: pd.DataFrame, leads: tuple[int, ...]) -> pd.DataFrame:
    """Needs in relation to what the recent and the usual need and growth say, at weekly origins.

    `table`: as `windows` returns it, of one kind. Returns ``log``, ``lead`` (days), ``ratio`` (its logarithm), and
    ``recent``, the weight of the recent need.
    """
    rows = []
    for name, windows_of in table.groupby("log", sort=False):
        need = windows_of["need"].to_numpy(dtype=float)
        for day in range(len(need) - 1 - min(leads) - 28, -1, -7):
            then = need_at(windows_of, day)
            for lead in (lead for lead in leads if day + lead + 28 < len(need)):
                expected = then.level(lead) * then.growth(lead)
                if expected > 0 and need[day + lead + 28] > 0:
                    ratio = np.log(need[day + lead + 28] / expected)
                    rows.append((name, lead, ratio, then.weight(lead)))
    return pd.DataFrame(rows, columns=["log", "lead", "ratio", "recent"])


def margin(table: pd.DataFrame, share: float, *, one: bool) -> tuple[float, float]:
    """Margins at a probability over the recent and over the usual need; see `NeedForecast`.

    `table`: as `changes` returns it. `one`: the same over both.
    """
    # Windows of one log are alike: each log counts by the square root of their number.
    weight = 1 / np.sqrt(table.groupby(["log", "lead"])["log"].transform("size"))
    recent = table["recent"].to_numpy()
    terms = np.ones((len(table), 1)) if one else np.column_stack([recent, 1 - recent])
    found = _quantile_regression(terms, table["ratio"].to_numpy(), share, weight.to_numpy())
    return round(float(found[0]), 3), round(float(found[-1]), 3)


def _quantile_regression(X: FloatArray, y: FloatArray, share: float, weight: FloatArray) -> FloatArray:
    """Coefficients, by the dual linear programme (Koenker and Bassett), which has a constraint a coefficient only."""
    bounds = np.column_stack([(share - 1) * weight, share * weight])
    dual = linprog(-y, A_eq=X.T, b_eq=np.zeros(X.shape[1]), bounds=bounds, method="highs")
    return np.asarray(-dual.eqlin.marginals)


@cache
def margins(kind: str, without: str = "") -> Margins:
    """Margins by probability, from the bundled windows.

    `without`: log or series that is left out, so that the margins can be scored on it.
    """
    table = _ratios(kind)
    return {share: margin(table[table["log"] != without], share, one=kind == "series") for share in (0.05, 0.5, 0.95)}


@cache
def _ratios(kind: str) -> pd.DataFrame:
    table = bundled_windows()
    return changes(table[table["kind"] == kind], FIT_LEADS[kind])


#: Numbers of `gpudemand.planning.need` that are not fitted, and others to try.
OTHER_CONSTANTS_OF_PLANS: dict[str, tuple[object, ...]] = {
    "_HALF_LIFE": (4.0, 16.0),
    "_GROWTH_WEEKS": (18, 52),
    "_BELIEVED": (0.9, 0.99, 1.0),
    "_LEAST": (0.0, 0.7),
    "_FURTHEST": (1.5, np.inf),
    "_CREDIBILITY": ({"jobs": 4.0, "series": 2.0}, {"jobs": 16.0, "series": 8.0}, {"jobs": 1e9, "series": 1e9}),
}


def constants_of_plans(
    kind: str = "jobs",
    leads: tuple[int, ...] = LEADS,
    others: Mapping[str, Sequence[object]] = OTHER_CONSTANTS_OF_PLANS,
) -> pd.DataFrame:
    """Pinball loss over the need of plans with other constants, and as bundled, by lead.

    Means over logs, with margins that do not know the log and are fitted with the same constants.
    """
    found = {("as bundled", ""): _losses(kind, leads)}
    for name, values in others.items():
        bundled = getattr(need_module, name)
        for value in values:
            setattr(need_module, name, value)
            _forget()
            found[name, str(value[kind] if isinstance(value, dict) else value)] = _losses(kind, leads)
        setattr(need_module, name, bundled)
        _forget()
    return pd.DataFrame(found).T


def _forget() -> None:
    for each in (margins, _ratios):
        each.cache_clear()


def _losses(kind: str, leads: tuple[int, ...]) -> dict[int, float]:
    plans = {lead: unseen_plans(kind, lead, (SHARE,)) for lead in leads}
    return {
        lead: float(
            pd.Series(loss(np.ceil(each[SHARE].to_numpy()), each["need"].to_numpy())).groupby(each["log"]).mean().mean()
        )
        for lead, each in plans.items()
    }


def need_at(rows: pd.DataFrame, day: int) -> NeedForecast:
    """Forecast at a place among the windows of a log, of which one ends each day."""
    need, mean = (rows[column].to_numpy(dtype=float)[: day + 1][::-1] for column in ("need", "mean"))
    kind = str(rows["kind"].iloc[0])
    return NeedForecast(float(need[:29].max()), need[::7][:52], mean[::7][:52], kind)


def unseen_plans(kind: str, lead: int, shares: tuple[float, ...]) -> pd.DataFrame:
    """GPUs that suffice with some probabilities, at weekly origins of the bundled windows, by margins of other logs.

    Returns ``log``, ``day`` (place of the origin), ``lead``, ``need``, and a column a share.
    """
    rows, table = [], bundled_windows()
    for name, windows_of in table[table["kind"] == kind].groupby("log", sort=False):
        need = windows_of["need"].to_numpy(dtype=float)
        with margins_of(kind, margins(kind, str(name))):
            rows += [
                (name, day, lead, need[day + lead + 28], *need_at(windows_of, day).quantiles(np.array(shares), lead))
                for day in range(len(need) - 1 - lead - 28, -1, -7)
            ]
    return pd.DataFrame(rows, columns=["log", "day", "lead", "need", *shares])


def unseen(kind: str = "jobs", leads: tuple[int, ...] = LEADS) -> pd.DataFrame:
    """Scores of the plan and of the rule of one line on the bundled windows of each log, by lead.

    Margins do not know the log.
    """
    parts, table = {}, bundled_windows()
    for lead in leads:
        plans = unseen_plans(kind, lead, (0.05, SHARE)).rename(columns={0.05: "lo", SHARE: "hi"})
        for name, rows in plans.groupby("log", sort=False):
            of_log = table[(table["kind"] == kind) & (table["log"] == name)]
            rules = [need_at(of_log, day).rule for day in rows["day"]]
            parts[lead, "plan", name] = score(rows.assign(plan=np.ceil(rows["hi"])))
            parts[lead, "last weeks x 1.15", name] = score(rows.assign(plan=rules))
    found = pd.DataFrame(parts).T.rename_axis(["lead, days", "rule", "log"])
    means = found.groupby(level=[0, 1], sort=False).mean().assign(origins=found.groupby(level=[0, 1])["origins"].sum())
    means.index = pd.MultiIndex.from_tuples([(*each, "mean") for each in means.index], names=found.index.names)
    return pd.concat([found, means]).sort_index(level=[0, 1], sort_remaining=False)


PROMISES = (0.5, 0.8, 0.9, 0.95, 0.99)


def promises() -> pd.DataFrame:
    """How often the need was beyond GPUs that suffice with some probabilities, beside what was promised.

    By kind, lead and promised share: ``origins`` and ``logs``; ``came``, the share of origins whose four weeks needed
    more, and ``time``, that of the days from the arrival of the order to four weeks later from which on four weeks need
    more; ``error``, the standard error of `came`. Means over logs, with margins that do not know the log.
    """
    parts, table = [], bundled_windows()
    for kind in FIT_LEADS:
        needs = {name: rows["need"].to_numpy(dtype=float) for name, rows in table[table["kind"] == kind].groupby("log")}
        for lead in LEADS:
            plans = unseen_plans(kind, lead, PROMISES).melt(["log", "day", "lead", "need"], var_name="share")
            after = [needs[row.log][row.day + lead + 28 : row.day + lead + 56] for row in plans.itertuples()]
            over = [float((each > gpus).mean()) for each, gpus in zip(after, plans["value"], strict=True)]
            parts.append(plans.assign(kind=kind, came=plans["need"] > plans["value"], time=over))
    found = pd.concat(parts)
    by_log = found.groupby(["kind", "lead", "share", "log"]).agg(
        origins=("came", "size"), came=("came", "mean"), time=("time", "mean")
    )
    groups = by_log.groupby(level=[0, 1, 2])
    means = (
        groups[["came", "time"]]
        .mean()
        .assign(error=groups["came"].sem(), origins=groups["origins"].sum(), logs=groups.size())
    )
    means = means.reset_index()
    means.insert(2, "promised", 1 - means.pop("share").astype(float))
    return means


def _rules(need: NeedForecast, days: float) -> dict[str, float]:
    """GPUs required by the plan, and by rules of one line."""
    return {
        "plan": np.ceil(need.quantile(SHARE, days)),
        "last weeks x 1.15": need.rule,
        "past largest": need.weekly.max(),
        "last weeks / .85": np.ceil(need.weekly[0] / 0.85),
    }


def origins(jobs: pd.DataFrame, days: int, first_days: int) -> Iterator[tuple[pd.Timestamp, float]]:
    """Weekly origins, latest first, and what the four weeks needed that begin some days after each."""
    until, log = end_of_record(jobs), check_jobs(jobs)
    times = JobTimes.from_log(log, until)
    origin = until - pd.Timedelta(days=days + 28)
    while origin >= log["submit"].min() + pd.Timedelta(days=first_days):
        end_s = (origin - until).total_seconds() + days * _DAY_S + WINDOW_S
        yield origin, fewest_gpus(times.window(end_s), TARGET)
        origin -= _WEEK


def backtest(jobs: pd.DataFrame, days: int, others: Margins, first_days: int = 28) -> pd.DataFrame:
    """Plans at past origins, a row an origin and rule: ``rule``, ``origin``, ``plan``, ``need``, ``lo``, ``hi``.

    `others`: margins that other logs give, for the plan as it would be for a log that nobody has seen.
    """
    rows, log = [], check_jobs(jobs)
    for origin, needed in origins(jobs, days, first_days):
        need = forecast_need(checked_as_of(log, origin), TARGET, origin)
        with margins_of("jobs", others):
            band = need.quantile(0.05, days), need.quantile(0.95, days)
            unseen = np.ceil(need.quantile(SHARE, days))
        plans = {"plan, margins of the other logs": unseen, **_rules(need, days)}
        rows += [(rule, origin, gpus, needed, *band) for rule, gpus in plans.items()]
    return pd.DataFrame(rows, columns=["rule", "origin", "plan", "need", "lo", "hi"])


def loss(plans: FloatArray, need: FloatArray) -> FloatArray:
    """Pinball loss over the need."""
    short = need - plans
    return np.asarray(np.where(short > 0, SHARE * short, (SHARE - 1) * short) / need)


def by_past_loss(kind: str = "jobs") -> pd.DataFrame:
    """Pinball losses of the plan, of rules, and of what their own past losses choose or blend, by lead.

    ``chosen``: the one with the smallest mean loss at the origins of the log whose outcome is known; ``blended``: their
    mean, weighted by the inverse of that loss. Without such an origin both are the plan. Means over logs, with margins
    that do not know the log.
    """
    table, rows = bundled_windows(), []
    for lead in LEADS:
        for name, windows_of in table[table["kind"] == kind].groupby("log", sort=False):
            need = windows_of["need"].to_numpy(dtype=float)
            losses: list[tuple[int, FloatArray]] = []
            with margins_of(kind, margins(kind, str(name))):
                for day in range((len(need) - 1 - lead - 28) % 7, len(need) - lead - 28, 7):
                    plans = np.array(list(_rules(need_at(windows_of, day), lead).values()))
                    known = [each for then, each in losses if then + lead + 28 <= day]
                    weights = np.array([1.0, *np.zeros(len(plans) - 1)])
                    if known:
                        weights = 1 / np.maximum(np.mean(known, axis=0), 1e-4)
                    coming, best = need[day + lead + 28], plans[weights.argmax()]
                    losses.append((day, loss(plans, coming)))
                    blended = plans @ weights / weights.sum()
                    rows.append((lead, name, *loss(np.array([*plans, best, blended]), coming)))
    names = [*_rules(NeedForecast(1.0, np.ones(1)), 28), "chosen", "blended"]
    return pd.DataFrame(rows, columns=["lead", "log", *names]).groupby(["lead", "log"]).mean().groupby("lead").mean()


def continued_growth(lead: int = 28) -> pd.DataFrame:
    """Absolute errors of the logarithm of the median need some days beyond the lead, with and without growth.

    Means over logs with jobs, with margins that do not know the log.
    """
    table, rows = bundled_windows(), []
    for name, windows_of in table[table["kind"] == "jobs"].groupby("log", sort=False):
        need = windows_of["need"].to_numpy(dtype=float)
        with margins_of("jobs", margins("jobs", str(name))):
            for beyond in (28, 56, 84):
                for day in range(len(need) - 1 - lead - 28 - beyond, -1, -7):
                    then = need_at(windows_of, day)
                    error = float(np.log(need[day + lead + 28 + beyond] / then.quantile(0.5, lead)))
                    rows.append(
                        (beyond, name, abs(error), abs(error - np.log(then.growth(lead + beyond) / then.growth(lead))))
                    )
    found = pd.DataFrame(rows, columns=["beyond", "log", "level", "growth"])
    return found.groupby(["beyond", "log"]).mean().groupby("beyond").mean()


@contextmanager
def margins_of(kind: str, others: Margins) -> Iterator[None]:
    """Other margins than the bundled ones."""
    bundled = need_module._MARGINS[kind]
    need_module._MARGINS[kind] = {share: need_module._Margin(*margin) for share, margin in others.items()}
    try:
        yield
    finally:
        need_module._MARGINS[kind] = bundled


def score(plans: pd.DataFrame) -> pd.Series:
    """Share of origins where the plan sufficed, plan over need, idle share, pinball loss over need, and coverage."""
    plan, need = plans["plan"].to_numpy(dtype=float), plans["need"].to_numpy(dtype=float)
    short = need - plan
    return pd.Series(
        {
            "origins": len(plans),
            "sufficient": (short <= 0).mean(),
            "plan / need": (plan / need).mean(),
            "spare": (np.maximum(-short, 0) / plan).mean(),
            "pinball": loss(plan, need).mean(),
            "90 % band covers": plans["need"].between(plans["lo"], plans["hi"]).mean(),
        }
    )


def compare(data: Path) -> pd.DataFrame:
    """Scores by lead, rule and log."""
    parts = {}
    for name, load in LOGS.items():
        jobs, others = load(data), margins("jobs", name)
        for days in LEADS:
            plans = backtest(jobs, days, others)
            parts |= {(days, str(rule), name): score(rows) for rule, rows in plans.groupby("rule", sort=False)}
    table = pd.DataFrame(parts).T.rename_axis(["lead, days", "rule", "log"])
    return table.sort_index(level=[0, 1], sort_remaining=False)


def compare_series(data: Path) -> pd.DataFrame:
    """Scores of plans for peaks 28 days ahead, means over the spot series, and of the smoothing of daily peaks."""
    parts: dict[tuple[str, str], pd.Series] = {}
    for name, hours in spot(data).items():
        others, days = margins("series", f"spot {name}"), hours.to_numpy(dtype=float)
        days = days[len(days) % 24 :].reshape(-1, 24)
        rows = []
        for origin in range(len(days) - 56, 27, -7):
            past, needed = days[:origin], float(days[origin + 28 : origin + 56].max())
            need = forecast_peaks(past.max(axis=1), past.mean(axis=1))
            with margins_of("series", others):
                plans = {"plan, margins of the other series": need.quantile(SHARE, 28)}
            plans |= {
                "past largest": past.max(),
                "past largest + 10 %": 1.1 * past.max(),
                "ETS": _smoothed(past.max(axis=1)),
            }
            rows += [(rule, gpus, needed, 0.0, 0.0) for rule, gpus in plans.items()]
        table = pd.DataFrame(rows, columns=["rule", "plan", "need", "lo", "hi"])
        parts |= {(str(rule), str(name)): score(each) for rule, each in table.groupby("rule", sort=False)}
    return pd.DataFrame(parts).T.groupby(level=0).mean().drop(columns="90 % band covers")


def _smoothed(peaks: FloatArray) -> float:
    """Largest 95 % quantile that exponential smoothing gives the daily peaks from 28 to 56 days ahead."""
    ds = pd.date_range("2026-01-01", periods=len(peaks), freq="D")
    forecast = ETS().fit(pd.DataFrame({"unique_id": "total", "ds": ds, "y": peaks})).predict(56, level=[90])
    return float(forecast["ETS-hi-90"].tail(28).max())


def moves(jobs: pd.DataFrame, days: int = 90) -> pd.Series:
    """Relative changes of the requirement with what should not matter."""
    log, rng = check_jobs(jobs), np.random.default_rng(0)
    until = end_of_record(log)

    def required(table: pd.DataFrame, end: pd.Timestamp = until) -> float:
        return forecast_need(checked_as_of(table, end), TARGET, end).quantile(SHARE, days)

    base = required(log)
    changed = {
        "a day earlier": required(log, until - pd.Timedelta("1D")),
        "half a day earlier": required(log, until - pd.Timedelta("12h")),
        "1 % of the jobs dropped": required(log[rng.random(len(log)) > 0.01].reset_index(drop=True)),
        "submitted 2 s earlier": required(log.assign(submit=log["submit"] - pd.Timedelta("2s"))),
        "without requested times": required(log.assign(requested_time=np.nan)),
        "users renamed": required(log.assign(user="x" + pd.Series(pd.factorize(log["user"])[0]).astype(str))),
        "in another time zone": required(
            log.assign(**{name: log[name].dt.tz_convert("Asia/Tokyo") for name in ("submit", "start", "end")}),
            until.tz_convert("Asia/Tokyo"),
        ),
    }
    return pd.Series(changed) / base - 1


#: Numbers of `gpudemand.planning.need` that are not fitted, and others to try; of windows simulated, a tenth.
OTHER_CONSTANTS = {"RESOLUTION": (0.0005, 0.005), "_MOST_SIMULATED": (50_000, 1e12)}


def constants(data: Path) -> pd.DataFrame:
    """Relative changes of the requirement, 28 days ahead at three origins of each log, with other constants."""
    logs = [check_jobs(load(data)) for load in LOGS.values()]
    ends = [(log, end_of_record(log) - pd.Timedelta(days=days)) for log in logs for days in (0, 35, 70)]

    def required() -> FloatArray:
        return np.array([forecast_need(checked_as_of(log, end), TARGET, end).quantile(SHARE, 28) for log, end in ends])

    base, rows = required(), {}
    for name, values in OTHER_CONSTANTS.items():
        bundled = getattr(need_module, name)
        for value in values:
            setattr(need_module, name, value)
            change = required() / base - 1
            rows[name, value] = {"mean": change.mean(), "root mean square": np.sqrt((change**2).mean())}
            rows[name, value]["largest"] = np.abs(change).max()
        setattr(need_module, name, bundled)
    return pd.DataFrame(rows).T


def outcome_errors(data: Path) -> pd.Series:
    """Largest errors of the share of jobs in time between the numbers of GPUs that are simulated, by log and grid."""
    rows, fine = {}, np.geomspace(0.8, 1.6, 61)
    for name, load in LOGS.items():
        jobs = check_jobs(load(data))
        need, bundled = forecast_need(jobs, TARGET, end_of_record(jobs)), need_module._OUTCOMES
        grids = {"fine": fine, "all": bundled, "few": need_module._FEW_OUTCOMES}
        found = {}
        for grid, need_module._OUTCOMES in grids.items():
            table = need.outcomes(TARGET)
            found[grid] = np.interp(fine, table["ratio"], table["share_in_time"])
        need_module._OUTCOMES = bundled
        rows |= {(name, grid): np.abs(found[grid] - found["fine"]).max() for grid in ("all", "few")}
    return pd.Series(rows)


KINDS = ("flat", "weekly", "outage", "decline")
#: Growth of the logs that `dates` tries, a month.
GROWTH, _MONTH = 0.05, 365.25 / 12


#: Day on which a step is.
_STEP_DAY = 100


def steady_log(seed: int, kind: str, days: int = 240, jobs_a_day: int = 150, step: float = 1.0) -> pd.DataFrame:
    """Jobs of a cluster where nobody waits; of one that grows, `jobs_a_day` come in the end.

    `step`: times as many jobs come from `_STEP_DAY` on.
    """
    rng = np.random.default_rng(seed)
    day = np.sort(rng.uniform(0, days, jobs_a_day * days))
    share = (
        {
            "weekly": 0.6 + 0.4 * np.sin(2 * np.pi * day / 7),
            "decline": 1 - 0.5 * day / days,
            "growth": (1 + GROWTH) ** ((day - days) / _MONTH),
        }.get(kind, np.ones(len(day)))
        * np.where(day < _STEP_DAY, 1.0, step)
        / max(step, 1.0)
    )
    day = day[(rng.random(len(day)) < share) & ~((kind == "outage") & (day > 150) & (day < 156))]
    run = np.exp(rng.normal(9.3, 1.0, len(day))).clip(60, 4 * _DAY_S)
    return _of_runs(
        "2026-01-01",
        pd.Series(day * _DAY_S).round(),
        pd.Series(run).round(),
        pd.Series(rng.choice([1, 1, 2, 4, 8], len(day))),
    )


def needless_orders(n_seeds: int = 25, days: int = 90) -> pd.Series:
    """Orders out of `n_seeds` logs of each kind where nobody waits on the GPUs that are held at most."""
    found = dict.fromkeys(KINDS, 0)
    for kind in KINDS:
        for seed in range(n_seeds):
            log = steady_log(seed, kind)
            peaks = usage_series(log, by=None, freq="D", value="gpus_peak")["y"]
            installed = usual_most(peaks, float(peaks.max()))
            found[kind] += forecast_need(check_jobs(log), TARGET, end_of_record(log)).quantile(SHARE, days) > installed
    return pd.Series(found)


def after_a_step(steps: tuple[float, ...] = (0.8, 1.3, 1.6, 2.0), n_seeds: int = 6, lead: int = 90) -> pd.DataFrame:
    """Scores of plans 7 to 15 weeks after a step in logs of 20 and 26 weeks that are flat otherwise.

    By step: ``origins``; ``sufficient``, share of plans, and ``plan / need``, their mean; ``over 1.5``, share of plans
    of over 1.5 times the need; ``growth``, share of origins where the need is carried on by over 5 %.
    """
    rows = []
    for step, seed in itertools.product(steps, range(n_seeds)):
        log = check_jobs(steady_log(seed, "flat", 320, step=step))
        table = _of_jobs("", log, end_of_record(log))
        need = table["need"].to_numpy(dtype=float)
        for day, weeks in itertools.product(range(0, len(need) - lead - 28, 7), (20, 26)):
            known, n_windows = need_at(table, day), weeks - 3
            if 7 <= (day + 28 - _STEP_DAY) / 7 <= 15 and len(known.weekly) >= n_windows:
                then = replace(known, weekly=known.weekly[:n_windows], means=known.means[:n_windows])
                rows.append((step, np.ceil(then.quantile(SHARE, lead)) / need[day + lead + 28], then.growth(lead)))
    found = pd.DataFrame(rows, columns=["step", "plan / need", "growth"])
    ratio, carried = found["plan / need"], (found["growth"] - 1).abs() > 0.05
    scored = found.assign(sufficient=ratio >= 1, growth=carried, **{"over 1.5": ratio > 1.5}).groupby("step").mean()
    return scored.assign(origins=found.groupby("step").size())


def dates(jobs_a_day: int, n_seeds: int = 12, lead: int = 90, until_due: int = 60) -> pd.Series:
    """Orders on logs of 240 days that grow by 5 % a month, against the line through the needs of their later windows.

    Installed is what that line reaches `until_due` days and a lead after the end of the log, so that an order of what
    the line alone says is due in `until_due` days. ``gpus``: there. ``median``: the forecast at the arrival of an order
    placed now, over the line. ``sufficient``: share of plans for the four weeks from there on. ``days late``: mean of
    the orders, and ``largest``; negative is early. ``noise``: days of growth in one standard deviation of the needs
    around the line: nobody who sees only windows knows the day better.
    """
    days, after = 240, np.arange(0, until_due + lead + 1, 15)
    total = int(days + after[-1] + 28)
    needs, line = [], []
    for seed in range(n_seeds):
        log = check_jobs(steady_log(seed, "growth", total, jobs_a_day))
        end, until = log["submit"].min().floor("D") + pd.to_timedelta([total, days], unit="D")
        needs.append(forecast_need(checked_as_of(log, until), TARGET, until))
        times = JobTimes.from_log(log, end)
        later = [times.window((day + 28 - after[-1] - 28) * _DAY_S) for day in after]
        line.append([fewest_gpus(window, TARGET, guess=needs[-1].recent) for window in later])
    rate, level = np.polyfit(np.tile(after, n_seeds), np.log(line).ravel(), 1)
    needed, installed = np.exp(level + rate * np.array([lead, after[-1]]))
    coming = np.array(line)[:, after == lead].ravel()
    late = np.array([_due(need, installed, lead) - until_due for need in needs])
    return pd.Series(
        {
            "gpus": installed,
            "median": np.mean([need.quantile(0.5, lead) for need in needs]) / needed,
            "sufficient": np.mean([need.quantile(SHARE, lead) for need in needs] >= coming),
            "days late": late.mean(),
            "largest": np.abs(late).max(),
            "noise": (np.log(line) - level - rate * after).std() / rate,
        }
    )


def simulated_growth(growths: tuple[float, ...] = (0.0, 0.3, 1.0, 3.0), n_seeds: int = 2) -> pd.DataFrame:
    """Scores of plans on simulated clusters of 300 days that grow within a year by a share, with growth and without.

    By growth, lead and whether growth is told: ``sufficient``, ``plan / need`` and ``pinball``, means over clusters.
    """
    rows, bundled = [], need_module._BELIEVED
    for growth in growths:
        for seed in range(1, n_seeds + 1):
            jobs, _ = make_cluster(n_users=60, n_days=300, growth=growth, random_state=seed)
            table = _of_jobs(f"{seed}", check_jobs(jobs), end_of_record(jobs))
            need = table["need"].to_numpy(dtype=float)
            for told, need_module._BELIEVED in ((True, bundled), (False, 1.0)):
                for lead in LEADS:
                    days = np.arange(0, len(need) - lead - 28, 7)
                    plans = np.ceil([need_at(table, day).quantile(SHARE, lead) for day in days])
                    coming = need[days + lead + 28]
                    scores = (plans >= coming).mean(), (plans / coming).mean(), loss(plans, coming).mean()
                    rows.append((growth, lead, told, *scores))
    need_module._BELIEVED = bundled
    names = ["growth", "lead", "told", "sufficient", "plan / need", "pinball"]
    return pd.DataFrame(rows, columns=names).groupby(names[:3]).mean()


def _due(need: NeedForecast, gpus: float, lead: int, within: int = 180) -> int:
    """Days until the risk of the four weeks that an order can still help exceeds what is promised."""
    risks = (need.exceedance(gpus * need.growth(lead) / need.growth(lead + day), lead) for day in range(within))
    return next((day for day, risk in enumerate(risks) if risk > 1 - SHARE), within)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with traces/, and more/ for --windows")
    parser.add_argument("--windows", type=Path, help="write the needs of past windows of public logs to this file")
    parser.add_argument("--margins", action="store_true", help="print the margins that the bundled windows give")
    parser.add_argument("--promises", action="store_true", help="print how often what was promised came")
    args = parser.parse_args()
    if args.windows is not None:
        windows(args.data).to_csv(args.windows, index=False)
    elif args.data is not None:
        table = compare(args.data)
        print(f"GPUs required against those needed after their arrival\n{table.round(3).to_string()}\n")
        print(f"Means over logs\n{table.groupby(level=[0, 1]).mean().round(4).to_string()}\n")
        print(f"Peaks of series, 28 days ahead\n{compare_series(args.data).round(4).to_string()}\n")
        moved = pd.DataFrame({name: moves(load(args.data)) for name, load in LOGS.items()})
        print(f"Changes of the requirement with what should not matter\n{moved.map('{:+.1%}'.format).to_string()}\n")
        print(f"Changes of the requirement with other constants\n{constants(args.data).round(4).to_string()}\n")
        print(f"Errors of shares in time between simulated queues\n{outcome_errors(args.data).round(3).to_string()}\n")
        print(f"Orders of 25 logs where nobody waits\n{needless_orders().to_string()}")
        due = pd.DataFrame({size: dates(size) for size in (150, 450, 900)}).T.rename_axis("jobs a day")
        print(f"Orders on logs that grow by 5 % a month\n{due.round(3).to_string()}")
        print(f"Plans on simulated clusters that grow\n{simulated_growth().round(4).to_string()}")
        print(f"Plans after a step\n{after_a_step().round(3).to_string()}")
    if args.promises or args.data is not None:
        print(f"Plans by margins that do not know the log\n{unseen().round(3).to_string()}")
        print(f"Share of windows that need more, promised and what came\n{promises().round(3).to_string(index=False)}")
        print(f"Pinball loss of plans, and chosen by own past loss\n{by_past_loss().round(4).to_string()}")
        print(f"Error of the median beyond the lead\n{continued_growth().round(4).to_string()}")
    if args.margins:
        for kind in FIT_LEADS:
            print(kind, *(f"{share:g}: {found}" for share, found in margins(kind).items()), sep="\n  ")
            leads = LEADS if kind == "jobs" else (28, 56)
            print(f"Pinball loss with other constants\n{constants_of_plans(kind, leads).round(5).to_string()}")


if __name__ == "__main__":
    main()
