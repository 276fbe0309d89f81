"""Run times of settings that are new to their user, corrected by what other runs of the user took, in several ways."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.planning.synthetic import FlawedStepTime
from gpudemand.datasets import make_cluster
from gpudemand.jobs.table import seconds_since, start_times, training_steps
from gpudemand.planning.training_run_time import OTHERS, run_time_ratios, training_settings

#: Spread of the errors of predicted step times by network, days of the log, and seconds before the first step.
_SPREAD, _KNOWN, _STARTUP_S = 0.4, "92D", 60.0


def new_settings(n_clusters: int = 40, first_seed: int = 100) -> pd.DataFrame:
    """RMS log error by method, each setting with one vote, and how much better random effects are in mean square."""
    errors = pd.DataFrame([_mean_squares(seed) for seed in range(first_seed, first_seed + n_clusters)])
    gain = errors.sub(errors["random effects"], axis=0)
    table = {"RMS log error": np.sqrt(errors.mean()), "mean square, more": gain.mean()}
    table |= {"+-": gain.std() / np.sqrt(n_clusters), "clusters": (gain > 0).sum()}
    return pd.DataFrame(table).rename_axis("method")


def _mean_squares(seed: int) -> dict[str, float]:
    """Mean squared log error by method on one simulated cluster."""
    jobs, _ = make_cluster(n_users=60, n_days=120, random_state=seed)
    costs, cut = FlawedStepTime(_SPREAD, seed), jobs["submit"].min() + pd.Timedelta(_KNOWN)
    predicted = training_steps(jobs) * np.asarray(costs(jobs), dtype=float)
    ran = seconds_since(jobs["end"], start_times(jobs)) - _STARTUP_S
    done = (jobs["status"] == "completed").to_numpy() & (predicted > 0) & (ran > 0)
    value = np.log(np.where(done, ran, 1.0) / np.where(done, predicted, 1.0))
    runs = pd.DataFrame({"user": jobs["user"].astype(str), "setting": training_settings(jobs), "value": value})
    known, coming = runs[done & (jobs["end"] < cut)], runs[done & (jobs["submit"] >= cut)]
    new = coming.groupby(["user", "setting"])["value"].median()
    new = new[~new.index.isin(known.groupby(["user", "setting"]).groups)]
    ratios = run_time_ratios(jobs[jobs["end"] < cut], costs, _STARTUP_S).set_index("user")["ratio"]
    plain = np.exp(known.groupby(["user", "setting"])["value"].median().groupby("user").mean())
    common, none = float(np.exp(known["value"].median())), pd.Series(dtype=float)
    methods = {
        "random effects": (ratios, ratios[OTHERS]),
        "ratio of the user": (plain, common),
        "one ratio": (none, common),
        "uncorrected": (none, 1.0),
    }
    users = new.index.get_level_values("user").to_series()
    corrections = {name: users.map(own).fillna(others).astype(float) for name, (own, others) in methods.items()}
    return {name: float(np.mean((new.to_numpy() - np.log(ratio)) ** 2)) for name, ratio in corrections.items()}
