"""Plans for waits: run time, and how often the GPUs that they name suffice in weeks that nobody has seen."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.planning.speed import START
from gpudemand.datasets import load_jobs_sample
from gpudemand.forecast import CombinedForecaster, SeasonallyAdjustedNaive, Theta
from gpudemand.jobs.table import as_jobs
from gpudemand.planning.quantiles import QuantileTable
from gpudemand.planning.queue import simulate_queue
from gpudemand.planning.queue_kernels import NEVER, QueuedJobs
from gpudemand.planning.wait_plan import WaitTarget, draw_futures, gpus_needed, plan_waits
from gpudemand.planning.waits import WEEK_S, Future, with_expected_ends
from gpudemand.usage.series import end_of_record, usage_series

_FORECASTERS = (SeasonallyAdjustedNaive, Theta, CombinedForecaster)
_TARGET = WaitTarget(3600.0, 0.9)


def sample_plan_seconds() -> pd.DataFrame:
    """CPU and wall time of plans for the bundled sample, 4 and 12 weeks ahead; code is compiled before."""
    jobs, rows = load_jobs_sample(), {}
    wanted = usage_series(jobs, by=None, value="wanted", partial=False)
    simulate_queue(jobs.head(10), 64)
    for days in (28, 84):
        forecast = SeasonallyAdjustedNaive().fit(wanted).predict(days, level=[80, 95])
        begin = time.process_time(), time.perf_counter()
        plan = plan_waits(forecast, jobs, installed=750)
        rows[f"{days} days"] = (time.process_time() - begin[0], time.perf_counter() - begin[1], plan.required)
    return pd.DataFrame.from_dict(rows, orient="index", columns=["CPU s", "wall s", "GPUs required"])


def required_by_weeks(n_seeds: int = 3) -> pd.DataFrame:
    """GPUs required for the bundled sample (95 %) by the weeks of a future, a column a seed.

    What `gpudemand.planning.wait_plan` gives up where a log has so many jobs that it draws fewer weeks.
    """
    jobs = load_jobs_sample()
    wanted = usage_series(jobs, by=None, value="wanted", partial=False)
    forecast = SeasonallyAdjustedNaive().fit(wanted).predict(118, level=[80, 95])
    log, until = with_expected_ends(jobs), end_of_record(jobs)
    quantiles = QuantileTable.from_forecast(forecast)
    table = pd.DataFrame(index=pd.Index([17, 8, 4, 2], name="weeks"), columns=range(n_seeds), dtype=float)
    for seed in table.columns:
        futures = draw_futures(quantiles, log, until, pd.Timedelta("1D"), 100, seed)
        for weeks in table.index:
            needed = gpus_needed(replace(futures, n_weeks=weeks), _TARGET, "easy")
            table.loc[weeks, seed] = np.quantile(needed, 0.95, method="higher")
    return table


class _Drawn(list):  # type: ignore[type-arg]
    """Futures that are there already, in the manner of `Futures`."""

    def take(self, places: Any) -> _Drawn:
        return _Drawn(self[place] for place in places)


def plan_coverage(n_clusters: int = 6, n_logs: int = 4, n_weeks: int = 12) -> pd.DataFrame:
    """Share of 100 independent futures in which the target is met on the GPUs required (95 %), and on 8 fewer.

    Pooled over clusters of users whose activity wanders and comes in bursts, and over logs of each. ``known`` is a
    forecast of the true level: the rest is what an unknown level costs.
    """
    rows = []
    for cluster in range(n_clusters):
        users = _users(cluster)
        futures = _Drawn(_future(_submissions(users, 5, np.random.default_rng([cluster, 1, n]))) for n in range(100))
        needed = gpus_needed(futures, _TARGET, "easy")
        level = float(np.mean([future.gpus_wanted() for future in futures]))
        for number in range(n_logs):
            log = _log(_submissions(users, n_weeks, np.random.default_rng([cluster, 2, number])))
            for name, forecast in _forecasts(log, n_weeks, level).items():
                required = plan_waits(forecast, log, installed=50).required
                met, fewer = ((needed <= gpus).mean() for gpus in (required, required - 8))
                rows.append((name, required / level, met, fewer))
    table = pd.DataFrame(rows, columns=["forecast", "required / level", "met", "met with 8 fewer"])
    return table.groupby("forecast", sort=False).mean()


def _forecasts(log: pd.DataFrame, n_weeks: int, level: float) -> dict[str, pd.DataFrame]:
    until = START + pd.Timedelta(weeks=n_weeks)
    wanted = usage_series(log, by=None, value="wanted", until=until, partial=False)
    made = {model.__name__: model().fit(wanted).predict(28, level=[80, 95]) for model in _FORECASTERS}
    spread = float((wanted["y"] - wanted["y"].groupby(wanted["ds"].dt.day_of_week).transform("mean")).std())
    known = {"unique_id": "total", "ds": next(iter(made.values()))["ds"], "known": level}
    for percent, reach in ((80, 1.2816), (95, 1.96)):
        known |= {f"known-lo-{percent}": level - reach * spread, f"known-hi-{percent}": level + reach * spread}
    return made | {"known": pd.DataFrame(known)}


def _users(seed: int) -> pd.DataFrame:
    """Jobs a week, logarithm of the run time, GPUs, and how activity wanders, by user."""
    rng = np.random.default_rng(1000 + seed)
    n = (10, 30, 60, 20, 40, 100)[seed % 6]
    users = {"jobs": np.exp(rng.normal(2.5, 1, n)), "run": rng.normal(8.3, 0.8, n)}
    users |= {"gpus": rng.choice([1.0, 2.0, 4.0, 8.0], n, p=[0.4, 0.2, 0.2, 0.2])}
    users |= {"kept": (0.0, 0.5, 0.8)[seed % 3], "spread": (0.3, 0.7, 1.0, 0.0, 0.5, 0.9)[seed % 6]}
    return pd.DataFrame(users | {"burst": (1, 3, 8)[seed // 2 % 3]})


def _submissions(users: pd.DataFrame, n_weeks: int, rng: np.random.Generator) -> pd.DataFrame:
    """Jobs of some weeks: seconds of submission and run, GPUs."""
    kept, spread, state = users["kept"], users["spread"], rng.normal(0, 1, len(users))
    weeks = []
    for week in range(n_weeks):
        rate = users["jobs"] / users["burst"] * np.exp(spread * state - spread**2 / 2)
        state = kept * state + np.sqrt(1 - kept**2) * rng.normal(0, 1, len(users))
        user = np.repeat(np.arange(len(users)), rng.poisson(rate))
        day = rng.choice(7, len(user), p=[0.19, 0.19, 0.19, 0.19, 0.14, 0.05, 0.05])
        first = week * WEEK_S + day * 86400 + rng.normal(14, 4, len(user)) % 24 * 3600
        size = rng.geometric(1 / users["burst"].to_numpy()[user])
        weeks.append(pd.DataFrame({"user": np.repeat(user, size), "submit": np.repeat(first, size)}))
    jobs = pd.concat(weeks, ignore_index=True)
    jobs["submit"] = (jobs["submit"] + rng.exponential(600, len(jobs))).round()
    jobs["run"] = np.exp(rng.normal(users["run"].to_numpy()[jobs["user"]], 1)).clip(10, 3 * 86400).round()
    jobs["gpus"] = users["gpus"].to_numpy()[jobs["user"]]
    return jobs.sort_values("submit", ignore_index=True)


def _log(jobs: pd.DataFrame) -> pd.DataFrame:
    submit = START + pd.to_timedelta(jobs["submit"], unit="s")
    end = submit + pd.to_timedelta(jobs["run"], unit="s")
    frame = {"user": "u" + jobs["user"].astype(str), "submit": submit, "end": end, "gpus": jobs["gpus"]}
    return as_jobs(pd.DataFrame(frame), kind="synthetic")


def _future(jobs: pd.DataFrame) -> Future:
    submit, run = (np.round(1e6 * jobs[name].to_numpy()).astype(np.int64) for name in ("submit", "run"))
    queued = QueuedJobs(submit, run, run, np.full(len(run), NEVER), jobs["gpus"].to_numpy())
    return Future(queued, jobs["submit"].to_numpy() >= WEEK_S)
