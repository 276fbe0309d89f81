"""Waits with an order now, later, and none, against those of futures that nobody has seen, by load."""

from __future__ import annotations

import numpy as np
import pandas as pd

import gpudemand as gd
from benchmarks.planning.speed import START
from benchmarks.planning.wait_plans import _log, _submissions, _users
from gpudemand.jobs.table import as_of

LOADS = (0.7, 1.0, 1.3)
WEEKS, LEAD = 12, "60D"
#: Weeks of a future: the lead time, 30 days until the later order, and 28 days after it is there.
_AHEAD = 17
#: Hours added to waits before their logarithm is taken.
_ADDED_H = 0.1


def waits_of_orders(n_clusters: int = 6, n_futures: int = 20) -> pd.DataFrame:
    """Mean waits by load and order: as the study says, the median of independent futures, and the ratio of both.

    Returns
    -------
    DataFrame
        ``predicted_h`` and ``true_h`` (medians over clusters), ``ratio`` (geometric mean of predicted over true) and
        ``log_error`` (mean absolute difference of logarithms).
    """
    rows = [_cluster(load, seed, n_futures) for load in LOADS for seed in range(n_clusters)]
    table = pd.concat(rows, ignore_index=True)
    logs = np.log(table[["predicted_h", "true_h"]] + _ADDED_H)
    table["log"] = logs["predicted_h"] - logs["true_h"]
    groups = table.groupby(["load", "order"], sort=False)
    result = groups[["predicted_h", "true_h"]].median()
    return result.assign(
        ratio=np.exp(groups["log"].mean()), log_error=groups["log"].apply(lambda log: float(log.abs().mean()))
    )


def _cluster(load: float, seed: int, n_futures: int) -> pd.DataFrame:
    """A row an order, of one cluster whose users want `load` times the GPUs there are, on average."""
    users = _users(seed).assign(spread=0.0)
    futures = [_submissions(users, _AHEAD, np.random.default_rng([seed, 3, n])) for n in range(n_futures)]
    level = float(np.mean([(jobs["run"] * jobs["gpus"]).sum() for jobs in futures])) / (_AHEAD * 7 * 86400)
    gpus, origin = max(round(level / load), 8), START + pd.Timedelta(weeks=WEEKS)
    past = gd.simulate_queue(_log(_submissions(users, WEEKS, np.random.default_rng([seed, 4]))), gpus)
    study = gd.Study(as_of(past, origin), installed=gpus, lead_time=LEAD, wait="1h", until=origin)
    orders = study.orders.assign(label=["none", "now", "later"][: len(study.orders)])
    end = origin + pd.Timedelta(LEAD) + pd.Timedelta("58D")
    true = [_true_waits(past, jobs, gpus, orders, origin, end) for jobs in futures]
    waits = {"predicted_h": orders["mean_wait_h"], "true_h": np.median(true, axis=0)}
    return pd.DataFrame({"load": load, "order": orders["label"], **waits})


def _true_waits(
    past: pd.DataFrame, jobs: pd.DataFrame, gpus: float, orders: pd.DataFrame, origin: pd.Timestamp, end: pd.Timestamp
) -> list[float]:
    """Mean waits (h) of the jobs of one future, behind those that ran and waited."""
    coming = _log(jobs.assign(submit=jobs["submit"] + (origin - START).total_seconds()))
    log, waits = pd.concat([past[past["end"] > origin], coming], ignore_index=True), []
    for order, arrival in zip(orders["order"], orders["in_service"], strict=True):
        steps = pd.Series({origin - pd.Timedelta(weeks=WEEKS + 1): float(gpus)})
        if pd.notna(arrival):
            steps[arrival] = float(gpus + order)
        ran = gd.simulate_queue(log, steps, start=origin)
        new = ran[(ran["submit"] >= origin) & (ran["submit"] < end)]
        waits.append(float((new["start"] - new["submit"]).dt.total_seconds().mean()) / 3600)
    return waits
