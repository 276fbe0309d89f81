"""Ground truth of a simulated cluster: run times of its jobs, and the demand expected of its users."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray
from gpudemand._validation import InputError, check_columns
from gpudemand.datasets.simulate import STARTUP_S, expected_demand, setting_of, true_step_time
from gpudemand.jobs.table import training_steps


def true_run_time(jobs: pd.DataFrame, truth: pd.DataFrame) -> FloatArray:
    """Return the noise-free run time in seconds of jobs of a simulated cluster that complete.

    Parameters
    ----------
    jobs, truth : DataFrame
        As made by `make_cluster`.

    Returns
    -------
    ndarray of shape (n_jobs,)
        ``STARTUP_S + epochs * ceil(samples / (batch_size * gpus)) * step time * efficiency of the user``. Completed
        jobs ran for this time within about 2 %; failed, cancelled and timed-out ones for less.

    Raises
    ------
    InputError
        If a job's user is not in `truth`.

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster
    >>> jobs, truth = make_cluster(n_users=5, n_days=30, random_state=0)
    >>> done = jobs[jobs["status"] == "completed"]
    >>> ran = (done["end"] - done["start"]).dt.total_seconds()
    >>> bool((ran / true_run_time(done, truth)).between(0.88, 1.12).all())
    True
    """
    jobs = check_columns(jobs, ("user", "epochs", "samples"), "jobs")
    truth = check_columns(truth, ("user", "efficiency"), "truth")
    efficiency = jobs["user"].map(truth.set_index("user")["efficiency"]).to_numpy(dtype=float)
    if np.isnan(efficiency).any():
        raise InputError("jobs holds users that truth lacks; pass the two frames of one make_cluster call.")
    return STARTUP_S + training_steps(jobs) * (true_step_time(jobs) * efficiency)


def expected_usage(truth: pd.DataFrame) -> pd.DataFrame:
    """Return the expected demand submitted by each user of a simulated cluster on each day.

    Parameters
    ----------
    truth : DataFrame
        The second result of `make_cluster`, with its ``attrs``.

    Returns
    -------
    DataFrame
        ``unique_id`` (user), ``ds`` (local day, no time zone) and ``y``: expected GPU-hours of the jobs submitted on
        that day, which they may use on later days.

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster
    >>> jobs, truth = make_cluster(1, 7, archetypes=["weekday"], signal_to_noise=np.inf, random_state=0)
    >>> expected_usage(truth)["y"].round(1).tolist()
    [62.1, 68.4, 68.4, 68.5, 56.1, 7.5, 5.0]
    """
    setting = setting_of(truth)
    signal, noise = expected_demand(truth, setting)
    days = pd.date_range(setting["start"], periods=setting["n_days"], freq="D")
    return pd.DataFrame(
        {
            "unique_id": truth["user"].repeat(len(days)).reset_index(drop=True),
            "ds": np.tile(days.to_numpy(), len(truth)),
            "y": (signal + noise).ravel(),
        }
    )
