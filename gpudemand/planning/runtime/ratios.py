"""Observed over predicted run times of the training jobs of a log, by user."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import norm, t

from gpudemand._typing import STRING
from gpudemand._validation import InputError, check_number
from gpudemand.jobs.as_of import seconds_since, start_times
from gpudemand.jobs.table import check_jobs
from gpudemand.planning.runtime.random_effects import random_effects, variance_within
from gpudemand.planning.runtime.training import StepTime, settings_of, training_steps

#: Name of the row that stands for users without one.
OTHERS = "other users"
#: Two-sided: 90 % intervals.
_TAIL = 0.95


def run_time_ratios(jobs: pd.DataFrame, step_time: StepTime, startup_s: float = 60.0) -> pd.DataFrame:
    """Ratios of observed to predicted run times of completed training jobs, by user.

    Of each user and setting (a network on a GPU type in a precision) counts the median, so that many runs of one
    network, which share the error of its prediction, are not taken for many networks. Ratios of users are shrunk
    towards their mean by their evidence, as in a random-effects meta-analysis of their logarithms.

    Parameters
    ----------
    jobs : DataFrame
        Canonical columns and those of `training_steps` and of `step_time`.
    step_time : callable
        Jobs -> predicted seconds of a step: a `CostStepTime`, or any function of the job table.
    startup_s : float, default=60
        Seconds before the first step.

    Returns
    -------
    DataFrame
        ``user``, ``jobs`` (completed), ``ratio``, ``low``, ``high`` (90 % interval). The first row, ``other users``,
        stands for users without a row, if there are at least three to learn from; its interval is one of prediction
        (Higgins, Thompson and Spiegelhalter, J. R. Stat. Soc. A 172, 2009). Then the users, those with most jobs first.

    Raises
    ------
    InputError
        If a column is missing, or no job of a user completed with a predicted time.

    Notes
    -----
    On settings that are new to their user, in 40 simulated clusters, the RMS log error is .406; .412 with the plain
    ratio of the user, .421 without correction (``make bench-planning ARGS="--data DIR --only ratios"``).

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster, true_step_time
    >>> jobs, truth = make_cluster(n_users=10, n_days=60, random_state=0)
    >>> ratios = run_time_ratios(jobs, true_step_time).set_index("user")
    >>> efficiency = truth.set_index("user")["efficiency"]
    >>> bool((ratios["ratio"] / efficiency).dropna().between(0.9, 1.1).all())
    True
    """
    check_number("startup_s", startup_s, 0)
    log = check_jobs(jobs)
    predicted = training_steps(log) * np.asarray(step_time(log), dtype=float)
    ran = seconds_since(log["end"], start_times(log)) - startup_s
    done = (log["status"].fillna("completed") == "completed").to_numpy() & log["user"].notna().to_numpy()
    done &= (predicted > 0) & (ran > 0)
    if not done.any():
        raise InputError("no completed job has a user and a predicted run time, so predictions cannot be compared.")
    known = pd.DataFrame({"user": log["user"].astype(str), "setting": settings_of(log)})[done]
    return _ratios(known.assign(value=np.log(ran[done] / predicted[done])))


def _ratios(known: pd.DataFrame) -> pd.DataFrame:
    """Table of ratios from ``user``, ``setting`` and ``value``, the logarithm of the ratio of a job."""
    settings = known.groupby(["user", "setting"])["value"].median().groupby("user")
    users = pd.DataFrame({"jobs": known.groupby("user").size(), "value": settings.mean(), "settings": settings.size()})
    users = users.sort_values("jobs", ascending=False, kind="stable")
    value, noise = users["value"].to_numpy(), variance_within([settings]) / users["settings"].to_numpy(dtype=float)
    effects = random_effects(value, noise)
    mean, error = effects.shrunk(value, noise)
    rows = [users.assign(mean=mean, reach=norm.ppf(_TAIL) * np.sqrt(error))]
    if len(users) > 2:
        reach = t.ppf(_TAIL, len(users) - 2) * np.sqrt(effects.between + effects.error)
        rows = [
            pd.DataFrame({"jobs": users["jobs"].sum(), "mean": effects.mean, "reach": reach}, index=[OTHERS]),
            *rows,
        ]
    table = pd.concat(rows)
    bounds = {"ratio": table["mean"], "low": table["mean"] - table["reach"], "high": table["mean"] + table["reach"]}
    columns = {"user": table.index, "jobs": table["jobs"], **{name: np.exp(log) for name, log in bounds.items()}}
    return pd.DataFrame(columns).astype({"user": STRING, "jobs": int}).reset_index(drop=True)
