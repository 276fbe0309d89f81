"""Orders put to the test: the GPUs required at past origins against those that the weeks after their arrival needed.

``python -m benchmarks.planning.orders --data DIR`` prints plans and rules; ``--margins`` the margins of
`gpudemand.planning.need`, from ``data/planning/need_windows.csv``, which ``--windows FILE`` makes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
from sklearn.linear_model import QuantileRegressor

from gpudemand._array import FloatArray
from gpudemand.datasets.registry import data_folder
from gpudemand.forecast import ETS
from gpudemand.jobs.read import read_jobs
from gpudemand.jobs.table import as_jobs, check_jobs, checked_as_of
from gpudemand.planning import need as need_module
from gpudemand.planning.need import (
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
#: Leads in days at which margins are fitted: those near 28 days, and later ones.
_NEAR, _FAR = (14, 28, 42), (42, 56, 70, 90, 105)


def changes(table: pd.DataFrame) -> pd.DataFrame:
    """Needs in relation to the present ones, at weekly origins.

    `table`: as `windows` returns it, of one kind. Returns ``log``, ``lead`` (days), ``ratio`` (its logarithm), and what
    `gpudemand.planning.need` explains it by: ``longer`` and ``burst``.
    """
    parts = []
    for name, rows in table.groupby("log", sort=False):
        need, mean = (np.log(rows.set_index("day")[column].clip(lower=1e-9)) for column in ("need", "mean"))
        present, level = (np.fmax(each, each.shift(28)).rolling(7, min_periods=1).mean() for each in (need, mean))
        for lead in sorted({*_NEAR, *_FAR}):
            ratio = (need.shift(-lead - 28) - present)[::-7].dropna()
            burst = (present - level)[ratio.index]
            longer = np.sqrt((lead + 28) / 56) - 1
            parts.append(pd.DataFrame({"log": name, "lead": lead, "ratio": ratio, "longer": longer, "burst": burst}))
    found = pd.concat(parts, ignore_index=True)
    return found[found.groupby(["log", "lead"])["log"].transform("size") > 1].reset_index(drop=True)


def margins(table: pd.DataFrame, share: float) -> tuple[float, float, float]:
    """Margin at 28 days, its change with the lead, and of that with the burst, at a probability; see `NeedForecast`.

    `table`: as `changes` returns it.
    """
    near, far = (table[table["lead"].isin(leads)] for leads in (_NEAR, _FAR))
    at_28 = _quantile_fit(near, np.zeros((len(near), 1)), near["ratio"], share, intercept=True)[0]
    terms = np.column_stack([far["longer"], far["longer"] * far["burst"]])
    return (at_28, *_quantile_fit(far, terms, far["ratio"] - at_28, share, intercept=False)[1:])


def _quantile_fit(
    rows: pd.DataFrame, terms: FloatArray, y: pd.Series, share: float, *, intercept: bool
) -> tuple[float, ...]:
    # Windows of one log are alike: each log counts by the square root of their number.
    weight = 1 / np.sqrt(rows.groupby(["log", "lead"])["log"].transform("size"))
    model = QuantileRegressor(quantile=share, alpha=1e-4, fit_intercept=intercept, solver="highs")
    model.fit(terms, y.to_numpy(), sample_weight=weight.to_numpy())
    return (float(model.intercept_), *(float(slope) for slope in model.coef_))


def all_margins(without: str = "") -> dict[str, dict[float, tuple[float, ...]]]:
    """Margins by kind and probability, from the bundled windows; of series, one that no lead or burst changes.

    `without`: log or series that is left out, so that the margins can be scored on it.
    """
    table = pd.read_csv(data_folder() / "planning" / "need_windows.csv")
    table = table[table["log"] != without]
    found: dict[str, dict[float, tuple[float, ...]]] = {}
    for kind, rows in table.groupby("kind"):
        known = changes(rows)
        fitted = {share: margins(known, share) for share in (0.05, 0.5, 0.95)}
        if kind == "series":
            zero = np.zeros((len(known), 1))
            fitted = {share: _quantile_fit(known, zero, known["ratio"], share, intercept=True)[:1] for share in fitted}
        found[str(kind)] = {share: tuple(round(each, 3) for each in margin) for share, margin in fitted.items()}
    return found


def short_burst() -> float:
    """Lower quartile over public logs of the logarithm of need over mean demand."""
    table = pd.read_csv(data_folder() / "planning" / "need_windows.csv")
    jobs = table[table["kind"] == "jobs"]
    return float(np.log(jobs["need"] / jobs["mean"]).groupby(jobs["log"]).mean().quantile(0.25))


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


#: Margins by probability.
Margins: TypeAlias = "dict[float, tuple[float, ...]]"


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


@contextmanager
def margins_of(kind: str, margins: Margins) -> Iterator[None]:
    """Other margins than the bundled ones."""
    bundled = need_module._MARGINS[kind]
    need_module._MARGINS[kind] = {share: need_module._Margin(*margin) for share, margin in margins.items()}
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
            "pinball": (np.where(short > 0, SHARE * short, (SHARE - 1) * short) / need).mean(),
            "90 % band covers": plans["need"].between(plans["lo"], plans["hi"]).mean(),
        }
    )


def compare(data: Path) -> pd.DataFrame:
    """Scores by lead, rule and log."""
    parts = {}
    for name, load in LOGS.items():
        jobs, others = load(data), all_margins(without=name)["jobs"]
        for days in LEADS:
            plans = backtest(jobs, days, others)
            parts |= {(days, str(rule), name): score(rows) for rule, rows in plans.groupby("rule", sort=False)}
    table = pd.DataFrame(parts).T.rename_axis(["lead, days", "rule", "log"])
    return table.sort_index(level=[0, 1], sort_remaining=False)


def compare_series(data: Path) -> pd.DataFrame:
    """Scores of plans for peaks 28 days ahead, means over the spot series, and of the smoothing of daily peaks."""
    parts: dict[tuple[str, str], pd.Series] = {}
    for name, hours in spot(data).items():
        others, days = all_margins(without=f"spot {name}")["series"], hours.to_numpy(dtype=float)
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
    }
    return pd.Series(changed) / base - 1


KINDS = ("flat", "weekly", "outage", "decline")


def steady_log(seed: int, kind: str, days: int = 240) -> pd.DataFrame:
    """Jobs of a cluster where nobody waits."""
    rng = np.random.default_rng(seed)
    day = np.sort(rng.uniform(0, days, 150 * days))
    share = {"weekly": 0.6 + 0.4 * np.sin(2 * np.pi * day / 7), "decline": 1 - 0.5 * day / days}.get(
        kind, np.ones(len(day))
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


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with traces/, and more/ for --windows")
    parser.add_argument("--windows", type=Path, help="write the needs of past windows of public logs to this file")
    parser.add_argument("--margins", action="store_true", help="print the margins that the bundled windows give")
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
        print(f"Orders of 25 logs where nobody waits\n{needless_orders().to_string()}")
    if args.margins:
        for kind, found in all_margins().items():
            print(kind, *(f"{share:g}: {margin}" for share, margin in found.items()), sep="\n  ")
        print(f"burst of a short log, at most: {short_burst():.2f}")


if __name__ == "__main__":
    main()
