"""A programme that no log shows yet: plans with it, without it and from GPUs held, on the month that comes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

import gpudemand as gd
from benchmarks.planning.synthetic import FlawedStepTime
from gpudemand._array import BoolArray, FloatArray
from gpudemand.cost.job import TrainingJob
from gpudemand.datasets import make_cluster
from gpudemand.study.usage_tables import WAIT

#: Days of the log, of the month planned, and those simulated after it, in which its jobs end.
HISTORY, AHEAD, AFTER = 168, 28, 28
#: GPUs installed over the mean that history wants, and GPU-hours of the programme over those of history in as long.
TIGHT, SHARE = 1.15, 0.5
#: Spreads of the logarithms of the errors of predicted run times: common to all of a cluster, and by network.
COMMON, NETWORK = 0.4, 0.1
#: True hours and GPUs of a run of the programme.
RUN_HOURS, RUN_GPUS = 12.0, 8
#: Price of a GPU-hour waited over that of an idle one at which a service level of 95 % is the best.
PRICE = 0.95 / (1 - 0.95)
#: Error of the month's GPU-hours that is aimed at.
WITHIN = 0.1
PLANS = ("held alone", "no programme", "no programme, waits", "uncalibrated", "study", "study, waits")


class Month(NamedTuple):
    """What comes: jobs that run or wait at the origin, those submitted in the month, and those of the programme."""

    origin: pd.Timestamp
    waiting: pd.DataFrame
    wanted: pd.DataFrame
    programme: pd.DataFrame

    @property
    def end(self) -> pd.Timestamp:
        """End of the month."""
        return self.origin + pd.Timedelta(days=AHEAD)

    def hours(self, jobs: pd.DataFrame) -> float:
        """GPU-hours that jobs hold within the month."""
        held = jobs["end"].clip(upper=self.end) - jobs["start"].clip(lower=self.origin)
        return float((jobs["gpus"] * held.dt.total_seconds().clip(lower=0)).sum()) / 3600


class BiasedCosts(FlawedStepTime):
    """Step times with an error by network, GPU and precision, and one that all of a cluster share."""

    def __init__(self, common: float, seed: int) -> None:
        super().__init__(NETWORK, seed)
        self.common = common

    def knows(self, jobs: pd.DataFrame) -> BoolArray:
        """All of them."""
        return np.ones(len(jobs), dtype=bool)

    def __call__(self, jobs: pd.DataFrame) -> FloatArray:
        """Seconds of one step."""
        return super().__call__(jobs) / self.common

    def costs(self, jobs: pd.DataFrame) -> pd.DataFrame:
        """Step time, and memory that always fits."""
        return pd.DataFrame({"step_time_s": self(jobs), "memory_gib": 1.0, "fits": 1.0}, index=jobs.index)


def compare(seed: int) -> pd.DataFrame:
    """Forecast and plans of one cluster, and what they cost in the month that comes.

    Run times of the programme are predicted, with the same errors as those of the log's jobs; its user has an
    efficiency of their own. In the month begin the jobs that run, then those that wait, on the GPUs of each plan.

    Returns
    -------
    DataFrame
        A row per plan: ``hours_error`` (forecast of the month's GPU-hours over those wanted, less 1), its addends
        ``log_error`` (of the log's work) and ``programme_error``, ``gpus``, ``idle`` and ``waited`` (GPU-hours over
        those wanted), and ``cost``: idle, and waited at the price that a service level of 95 % implies (the
        newsvendor's critical ratio), 19 times that of idle ones. ``best`` is the plan of the least cost in hindsight.
    """
    jobs, users = make_cluster(n_users=60, n_days=HISTORY + AHEAD + AFTER, random_state=seed)
    log, month, load = _split(jobs)
    rng = np.random.default_rng([seed, 21])
    common, network = (float(np.exp(spread * rng.standard_normal())) for spread in (COMMON, NETWORK))
    user = str(log["user"].value_counts().index[rng.integers(10)])
    efficiency = float(users.set_index("user").loc[user, "efficiency"])
    job = TrainingJob.from_config("llama-3-8b", 4096, device="H100", n_gpus=RUN_GPUS, micro_batch=1)
    runs = int(np.ceil(SHARE * load * 24 * AHEAD / (RUN_HOURS * RUN_GPUS)))
    dates = (month.origin, month.end)
    step_hours = gd.Programme("new", 1, *dates, job=job, steps=1000).run.hours / 1000
    steps = RUN_HOURS / (step_hours * common * efficiency * network)
    stated = gd.Programme("new", runs, *dates, job=job, steps=steps, user=user)
    true = gd.Programme("new", runs, *dates, hours=RUN_HOURS, gpus=RUN_GPUS)
    month = month._replace(programme=true.jobs(random_state=seed))
    studies = _studies(log, stated, BiasedCosts(common, seed), month.origin)
    rows = {name: _judge(study, basis, month) for name, (study, basis) in zip(PLANS, studies, strict=True)}
    return pd.DataFrame({**rows, "best": _best(month)}).T.rename_axis("plan")


def _split(jobs: pd.DataFrame) -> tuple[pd.DataFrame, Month, float]:
    """Log of a tight cluster up to the origin, the month after it, and the mean number of GPUs that the log wants."""
    origin = jobs["submit"].min().normalize() + pd.Timedelta(days=HISTORY)
    end = origin + pd.Timedelta(days=AHEAD)
    past = jobs[jobs["submit"] < origin].reset_index(drop=True)
    coming = jobs[(jobs["submit"] >= origin) & (jobs["submit"] < end)].reset_index(drop=True)
    load = float((past["gpus"] * (past["end"] - past["start"]).dt.total_seconds()).sum()) / (86400 * HISTORY)
    queued = gd.simulate_queue(past, max(np.ceil(TIGHT * load), past["gpus"].max()))
    left = queued[queued["end"] > origin].sort_values("start")
    begin = left["start"].clip(lower=origin)
    left = left.assign(submit=origin, start=origin, end=origin + (left["end"] - begin))
    # Wanted are the run times from the submission on, whatever the queue.
    wanted = pd.concat([past.assign(start=past["submit"], end=past["submit"] + (past["end"] - past["start"])), coming])
    log = queued.assign(end=queued["end"].where(queued["end"] < origin))
    open_status = np.where(log["start"] < origin, "running", "pending")
    log["status"] = log["status"].where(log["end"].notna(), open_status)
    log["start"] = log["start"].where(log["start"] < origin)
    return log, Month(origin, pd.concat([left, coming], ignore_index=True), wanted, coming.iloc[:0]), load


def _studies(
    log: pd.DataFrame, programme: gd.Programme, costs: BiasedCosts, origin: pd.Timestamp
) -> list[tuple[gd.Study, str]]:
    held = log.dropna(subset="start").assign(submit=lambda table: table["start"])
    options = {"horizon": AHEAD, "until": origin}
    without = gd.Study(log, wait="1h", **options)
    study = gd.Study(log, wait="1h", programmes=[programme], step_costs=costs, **options)
    return [
        (gd.Study(held, **options), "mean"),
        (without, "mean"),
        (without, WAIT),
        (gd.Study(log, programmes=[programme], **options), "mean"),
        (study, "mean"),
        (study, WAIT),
    ]


def _judge(study: gd.Study, basis: str, month: Month) -> dict[str, float]:
    logged, new = month.hours(month.wanted), month.hours(month.programme)
    forecast = study.forecast.groupby("unique_id")["Study"].sum() * 24
    added = forecast.get("total/new", 0.0)
    errors = {"log_error": forecast["total"] - added - logged, "programme_error": added - new}
    shares = {name: error / (logged + new) for name, error in errors.items()}
    gpus = float(study.plan.set_index("basis").loc[basis, "required"])
    return {"hours_error": sum(shares.values()), **shares, **_cost(gpus, month)}


def _cost(gpus: float, month: Month) -> dict[str, float]:
    jobs = pd.concat([month.waiting, month.programme], ignore_index=True).sort_values("submit", kind="stable")
    queued = gd.simulate_queue(jobs, max(gpus, jobs["gpus"].max()))
    wanted = month.hours(month.wanted) + month.hours(month.programme)
    waited = month.hours(queued.assign(start=queued["submit"], end=queued["start"])) / wanted
    idle = (gpus * 24 * AHEAD - month.hours(queued)) / wanted
    return {"gpus": gpus, "idle": idle, "waited": waited, "cost": idle + PRICE * waited}


def _best(month: Month) -> dict[str, float]:
    mean = (month.hours(month.wanted) + month.hours(month.programme)) / (24 * AHEAD)
    costs = [_cost(gpus, month) for gpus in np.round(mean * np.arange(1.0, 3.0, 0.04))]
    return {"hours_error": 0.0, **min(costs, key=lambda row: row["cost"])}


def compare_all(n: int = 18, first_seed: int = 0) -> pd.DataFrame:
    """Table of `summarize` for `n` clusters."""
    seeds = range(first_seed, first_seed + n)
    return summarize(pd.concat({seed: compare(seed) for seed in seeds}, names=["cluster"]))


def summarize(runs: pd.DataFrame) -> pd.DataFrame:
    """Means over clusters, root mean squares of errors, and clusters on which the study's plans cost less.

    Parameters
    ----------
    runs : DataFrame
        As `compare` returns it, by ``cluster`` and ``plan``.

    Returns
    -------
    DataFrame
        A row per plan: ``rms_error``, ``rms_log`` and ``rms_programme`` (of ``hours_error`` and its addends),
        ``within`` (clusters with the month's GPU-hours within 10 %), means of the columns of `compare`, ``median_cost``
        (some clusters end the month in a queue that grew throughout, and decide the mean), and for both plans of the
        study the number of clusters on which they cost less than the plan of the row.
    """
    plans = runs.groupby("plan", sort=False)
    errors = {"rms_error": "hours_error", "rms_log": "log_error", "rms_programme": "programme_error"}
    squares = {name: np.sqrt((runs[column] ** 2).groupby("plan", sort=False).mean()) for name, column in errors.items()}
    within = (runs["hours_error"].abs() <= WITHIN).groupby("plan", sort=False).sum()
    cost = runs["cost"].unstack("plan")
    cheaper = {f"{name} cheaper": cost.gt(cost[name], axis=0).sum() for name in ("study", "study, waits")}
    table = pd.DataFrame({**squares, "within": within, **plans.mean(), "median_cost": plans["cost"].median()})
    return table.assign(**cheaper).rename_axis("plan")
