"""Whether the purchase that costs least at an origin is also the one that costs least in hindsight.

At each origin of a log, options are compared from what is known then; afterwards, each costs what it bought, the energy
of that, and the hours that the jobs rented which came in the four weeks after the order's arrival.
``python -m benchmarks.planning --data DIR --only purchases``
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.planning import orders
from gpudemand import Purchase, Study
from gpudemand.jobs.table import check_jobs
from gpudemand.planning.need import WINDOW_S, JobTimes, wait_target
from gpudemand.planning.purchases import FleetWindow
from gpudemand.study.purchases import Option, PurchaseComparison

#: Days from the order to its arrival, days of log before the first origin, and days between origins.
LEAD, FIRST, STEP = 28, 56, 14
#: What is compared: prices whose order depends on how bursty the work is. A share of the GPUs of today is kept.
OPTIONS = {
    "same": Purchase(buy="A100", price=10_000, years=4),
    "twice as fast": Purchase(buy="H100", price=19_000, years=4, speed=0.5),
    "same and rent": Purchase(buy="A100", price=10_000, years=4, rent="A100", rent_price=1.5),
    "rent": Purchase(rent="A100", rent_price=0.6),
}


def backtest(name: str, jobs: pd.DataFrame) -> pd.DataFrame:
    """A row an origin: the option chosen, its cost in hindsight over that of the best, and those of fixed choices."""
    jobs = check_jobs(jobs).assign(gpu_type="A100")
    end, rows = jobs["submit"].max(), []
    for origin in _origins(jobs, end):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows.append(_row(jobs, origin) | {"log": name, "origin": origin})
    return pd.DataFrame(rows)


def _origins(jobs: pd.DataFrame, end: pd.Timestamp) -> Iterator[pd.Timestamp]:
    first = jobs["submit"].min().ceil("D") + pd.Timedelta(days=FIRST)
    yield from pd.date_range(first, end - pd.Timedelta(days=LEAD + 28), freq=f"{STEP}D")


def _row(jobs: pd.DataFrame, origin: pd.Timestamp) -> dict[str, object]:
    held = Study(jobs, until=origin, lead_time=f"{LEAD}D", horizon=28)
    installed = round(0.5 * held.need.forecast.recent)
    study = Study(jobs, until=origin, lead_time=f"{LEAD}D", horizon=28, installed={"A100": installed})
    comparison = PurchaseComparison(study, OPTIONS)
    arrival = origin + pd.Timedelta(days=LEAD)
    planned = {option.name: option.expected_cost(option.to_buy) for option in comparison.options}
    truth = {option.name: _hindsight(option, jobs, arrival) for option in comparison.options}
    best = min(truth.values())
    chosen = min(planned, key=lambda name: planned[name])
    row: dict[str, object] = {"chosen": chosen, "best": min(truth, key=lambda name: truth[name])}
    return row | {"over_best": truth[chosen] / best} | {f"always {name}": cost / best for name, cost in truth.items()}


def _hindsight(option: Option, jobs: pd.DataFrame, arrival: pd.Timestamp) -> float:
    """Cost a year of an option, with the GPUs that it bought, for the jobs that came."""
    until = arrival + pd.Timedelta(seconds=WINDOW_S)
    window = JobTimes.from_log(jobs, until).window(0.0)
    target = wait_target(str(option.study.settings.wait), option.study.settings.wait_share)
    known = option.fleet
    n_jobs, speed = len(window.counted), (option.purchase.run_time or (1.0,))[0]
    run_time = np.ones((n_jobs, len(known.types)))
    if option.purchase.buy == "H100":
        run_time[:, -1] = speed
    order = np.argsort(run_time[0], kind="stable")[None, :]
    rented = np.full(n_jobs, np.nan if option.purchase.rent is None else 1.0)
    kind = np.zeros(n_jobs, dtype=np.int64)
    came = FleetWindow(
        window, target, known.types, run_time, np.zeros_like(run_time), np.ones_like(run_time), kind, order, rented
    )
    bought = option.to_buy
    option.__dict__["fleet"] = came
    option._known.clear()
    return option.cost(bought, 1.0)


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """By log: origins, share in which the choice costs at most 5 % more than the best, and the mean excess."""
    fixed = [name for name in table if name.startswith("always ")]
    return pd.DataFrame(
        {
            log: {
                "origins": len(rows),
                "within 5 %": (rows["over_best"] <= 1.05).mean(),
                "mean": rows["over_best"].mean(),
            }
            | {name: rows[name].mean() for name in fixed}
            for log, rows in table.groupby("log")
        }
    ).T


def run(data: Path) -> pd.DataFrame:
    """Backtest two logs that queue; KTH's processors count as GPUs."""
    logs = {"KTH": orders.kth(data), "Venus": orders.venus(data)}
    return summary(pd.concat([backtest(name, jobs) for name, jobs in logs.items()], ignore_index=True))
