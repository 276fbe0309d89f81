"""A programme that no log shows yet: plans with it, without it and from GPUs held, on the month that comes."""

from __future__ import annotations

import numpy as np
import pandas as pd

import gpudemand as gd
from gpudemand.datasets import make_cluster
from gpudemand.stages.usage_tables import WAIT

HISTORY, AHEAD = 168, 28
#: GPUs installed over the mean that history wants, and GPU-hours of the programme over those of history in as long.
TIGHT, SHARE = 1.15, 0.5
#: Relative error of the run time that a programme states.
ERROR = 0.1
#: Price of a GPU-hour waited over that of an idle one at which a service level of 95 % is the best.
PRICE = 0.95 / (1 - 0.95)


def compare(seed: int) -> pd.DataFrame:
    """Forecast and plans of one cluster, and what they cost in the month that comes.

    Returns
    -------
    DataFrame
        A row per plan: ``hours_error`` (forecast of the month's GPU-hours over the true ones, less 1), ``gpus``,
        ``idle`` and ``waited`` (GPU-hours over those that ran), and ``cost``: idle, and waited at the price that a
        service level of 95 % implies (the newsvendor's critical ratio), 19 times that of idle ones.
    """
    jobs, _ = make_cluster(n_users=60, n_days=HISTORY + AHEAD, random_state=seed)
    origin = jobs["submit"].min().normalize() + pd.Timedelta(days=HISTORY)
    past, coming = (jobs[rows].reset_index(drop=True) for rows in (jobs["submit"] < origin, jobs["submit"] >= origin))
    load = float((past["gpus"] * (past["end"] - past["start"]).dt.total_seconds()).sum()) / (86400 * HISTORY)
    log = gd.simulate_queue(past, max(np.ceil(TIGHT * load), past["gpus"].max()))
    log = log[log["submit"] < origin].assign(end=log["end"].where(log["end"] < origin))
    log["status"] = np.where(log["end"].isna(), np.where(log["start"] < origin, "running", "pending"), "completed")
    log["start"] = log["start"].where(log["start"] < origin)
    end = origin + pd.Timedelta(days=AHEAD)
    runs = int(np.ceil(SHARE * load * 24 * AHEAD / (12 * 8)))
    factor = float(np.random.default_rng(seed).normal(1, ERROR))
    stated, true = (gd.Programme("new", runs, origin, end, hours=hours, gpus=8) for hours in (12, 12 * factor))
    truth = pd.concat([coming, true.jobs(seed)], ignore_index=True)
    return pd.DataFrame(
        {name: _judge(study, basis, truth) for name, study, basis in _studies(log, stated, origin)}
    ).T.rename_axis("plan")


def _studies(log: pd.DataFrame, programme: gd.Programme, origin: pd.Timestamp) -> list[tuple[str, gd.Study, str]]:
    held = log.dropna(subset="start").assign(submit=lambda table: table["start"])
    options = {"horizon": AHEAD, "until": origin}
    with_programme = gd.Study(log, wait="1h", programmes=[programme], **options)
    return [
        ("held alone", gd.Study(held, **options), "mean"),
        ("study, no programme", gd.Study(log, **options), "mean"),
        ("study", with_programme, "mean"),
        ("study, for waits", with_programme, WAIT),
    ]


def _judge(study: gd.Study, basis: str, truth: pd.DataFrame) -> dict[str, float]:
    run = truth["gpus"] * (truth["end"] - truth["start"]).dt.total_seconds() / 3600
    total = study.forecast.set_index("unique_id").loc["total", "Study"].sum() * 24
    gpus = float(study.plan.set_index("basis").loc[basis, "required"])
    queued = gd.simulate_queue(truth, max(gpus, truth["gpus"].max()))
    waited = float((queued["gpus"] * (queued["start"] - queued["submit"]).dt.total_seconds()).sum()) / 3600
    idle = gpus * 24 * AHEAD - float(run.sum())
    shares = {"idle": max(idle, 0.0) / run.sum(), "waited": waited / run.sum()}
    return {
        "hours_error": total / run.sum() - 1,
        "gpus": gpus,
        **shares,
        "cost": shares["idle"] + PRICE * shares["waited"],
    }


def compare_all(n: int = 6) -> pd.DataFrame:
    """Means over clusters, and the root mean square of the errors of the month's GPU-hours."""
    runs = pd.concat({seed: compare(seed) for seed in range(n)}, names=["cluster"])
    table = runs.groupby("plan", sort=False).mean()
    table.insert(1, "rms_error", np.sqrt((runs["hours_error"] ** 2).groupby("plan", sort=False).mean()))
    return table
