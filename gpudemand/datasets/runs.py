"""Jobs of a simulated cluster: network, GPUs, waiting time, run time and outcome."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._typing import STRING, FloatArray, IntArray
from gpudemand._validation import InputError, as_numbers, check_columns
from gpudemand.datasets.archetypes import MAX_DURATION_H, archetype_values, mean_duration
from gpudemand.datasets.steptime import GPUS, NETWORKS, PRECISIONS, true_step_time


class Team(NamedTuple):
    """A group of users: relative size, and networks it trains."""

    size: float
    networks: tuple[str, str, str]


TEAMS: dict[str, Team] = {
    "vision": Team(8, ("resnet50", "convnext_tiny", "vit_b_16")),
    "language": Team(7, ("bert_base", "gpt2_small", "gpt2_small")),
    "speech": Team(4, ("bert_base", "resnet18", "gpt2_small")),
    "robotics": Team(4, ("mobilenet_v2", "efficientnet_b0", "resnet18")),
    "medical": Team(3, ("densenet121", "resnet152", "efficientnet_b0")),
    "video": Team(3, ("vit_b_16", "resnet152", "convnext_tiny")),
    "ads": Team(2, ("bert_base", "efficientnet_b0", "mobilenet_v2")),
    "platform": Team(1, ("vgg16", "resnet50", "resnet152")),
}

CLUSTER = "demo"
#: Seconds before the first step: container, imports, data.
STARTUP_S = 60.0
#: Standard deviation of the log run time around its expectation.
RUN_NOISE = 0.02
#: Shares of jobs by outcome; the rest completes.
FAILED, CANCELLED, TIMEOUT = 0.14, 0.12, 0.04
#: Expected share of the full run time that is executed: a third of a failed job, half of a cancelled one.
EXPECTED_RUN_SHARE = 1 - FAILED * 2 / 3 - CANCELLED / 2 - TIMEOUT * 0.35
#: Maximum number of epochs; longer jobs train on more samples.
MAX_EPOCHS = 300
#: Requested time limits, in hours.
LIMITS_H = np.array([1, 2, 4, 8, 12, 24, 48, 72, 120, 168, 336, 504, 1008], dtype=float)
#: Shares of the GPU types (in the order of `GPUS`) at the start and a year later.
OLD_MIX = np.array([0.34, 0.44, 0.20, 0.02])
NEW_MIX = np.array([0.12, 0.38, 0.36, 0.14])
#: Shares of the precisions (in the order of `PRECISIONS`) on V100 and on newer GPUs.
V100_PRECISION = np.array([0.50, 0.00, 0.00, 0.50])
NEWER_PRECISION = np.array([0.06, 0.29, 0.50, 0.15])
#: Standard deviation of log2 of the GPUs of a job around the user's typical number; the maximum is 64.
GPU_LOG2_STD = 0.9
POWERS = np.arange(7)


def gpu_hours_per_job(users: pd.DataFrame) -> FloatArray:
    """Return the expected GPU-hours of one job of each user."""
    hours = mean_duration(users["duration_h"].to_numpy(), archetype_values(users["archetype"].tolist(), "log_std"))
    return EXPECTED_RUN_SHARE * hours * (_gpu_chances(users) * 2.0**POWERS).sum(axis=1)


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
    return STARTUP_S + _training_time(jobs, true_step_time(jobs) * efficiency)


def _training_time(jobs: pd.DataFrame, step_s: FloatArray) -> FloatArray:
    needed = ("gpus", "batch_size", "epochs", "samples")
    gpus, batch, epochs, samples = (as_numbers(jobs[name], f"jobs[{name!r}]") for name in needed)
    return np.asarray(epochs * np.ceil(samples / (batch * gpus)) * step_s)


def make_runs(
    users: pd.DataFrame,
    user: IntArray,
    day: IntArray,
    submit: pd.DatetimeIndex,
    end_of_log: pd.Timestamp,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Draw network, GPUs, waiting time, run time and outcome of each submission (user number, day, time)."""
    runs = _configurations(users, user, day, rng)
    step_s = true_step_time(runs) * users["efficiency"].to_numpy()[user]
    log_std = archetype_values(users["archetype"].tolist(), "log_std")[user]
    wanted_h = users["duration_h"].to_numpy()[user] * np.exp(log_std * rng.standard_normal(len(user)))
    runs = _training_lengths(runs, np.minimum(wanted_h, MAX_DURATION_H) * 3600, step_s)
    full_s = STARTUP_S + _training_time(runs, step_s) * np.exp(RUN_NOISE * rng.standard_normal(len(user)))
    runs["status"], ran_s, runs["requested_time"] = _endings(full_s, rng)
    runs["submit"] = submit
    runs["start"] = submit + pd.to_timedelta(_waits(runs["gpus"].to_numpy(), rng), unit="s")
    runs["end"] = runs["start"] + pd.to_timedelta(ran_s, unit="s")
    runs["job_id"] = pd.Series(np.arange(100_001, 100_001 + len(runs))).astype(STRING)
    return _censored(runs, end_of_log)


def _configurations(users: pd.DataFrame, user: IntArray, day: IntArray, rng: np.random.Generator) -> pd.DataFrame:
    """Draw network, GPUs, batch size and precision of each job."""
    network = _networks(users, user, rng)
    gpu = _gpu_types(len(users), user, day, rng)
    precision = _pick(np.where((gpu == 0)[:, None], V100_PRECISION, NEWER_PRECISION), rng)
    batch = np.array([row.batch for row in NETWORKS.values()])[network]
    size = _pick(np.array([0.25, 0.5, 0.25]), rng, len(user))
    return pd.DataFrame(
        {
            "user": _text(users["user"].tolist(), user),
            "group": _text(users["group"].tolist(), user),
            "cluster": _text([CLUSTER], np.zeros_like(user)),
            "gpus": 2.0 ** _pick(_gpu_chances(users)[user], rng),
            "gpu_type": _text(list(GPUS), gpu),
            "network": _text(list(NETWORKS), network),
            "batch_size": (batch * 2.0 ** (size - 1)).astype(np.int64),
            "precision": _text(list(PRECISIONS), precision),
        }
    )


def _text(names: list[str], codes: IntArray) -> pd.Series:
    return pd.Series(names, dtype=STRING).take(codes).reset_index(drop=True)


def _pick(chances: FloatArray, rng: np.random.Generator, n_rows: int | None = None) -> IntArray:
    """Draw a column index per row, with the probabilities of that row (or of the single row given)."""
    edges = np.cumsum(chances, axis=-1)[..., :-1]
    return (rng.random(len(chances) if n_rows is None else n_rows)[:, None] >= edges).sum(axis=1)


def _gpu_chances(users: pd.DataFrame) -> FloatArray:
    """Return the probability of 1, 2, 4 ... 64 GPUs for a job of each user."""
    distance = POWERS - np.log2(users["typical_gpus"].to_numpy())[:, None]
    weight = np.exp(-((distance / GPU_LOG2_STD) ** 2) / 2)
    return weight / weight.sum(axis=1, keepdims=True)


def _networks(users: pd.DataFrame, user: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw the user's preferred network with probability 0.6, else one of the group's."""
    number = {name: position for position, name in enumerate(NETWORKS)}
    teams = np.array([[number[name] for name in TEAMS[group].networks] for group in users["group"]])
    favourite = users["network"].map(number).to_numpy(dtype=np.int64)
    other = np.floor(3 * rng.random(len(user))).astype(np.int64)
    return np.where(rng.random(len(user)) < 0.6, favourite[user], teams[user, other])


def _gpu_types(n_users: int, user: IntArray, day: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw GPU types: persistent for a user, with a mix that drifts to newer types."""
    own = rng.random(n_users)[user]
    draw = np.where(rng.random(len(user)) < 0.7, own, rng.random(len(user)))
    age = np.minimum(day / 365, 1.0)[:, None]
    edges = np.cumsum(OLD_MIX + (NEW_MIX - OLD_MIX) * age, axis=1)[:, :-1]
    return (draw[:, None] >= edges).sum(axis=1)


def _training_lengths(runs: pd.DataFrame, wanted_s: FloatArray, step_s: FloatArray) -> pd.DataFrame:
    """Choose samples and epochs so that the training time is close to `wanted_s`.

    Short jobs use a part of the usual training set, long ones a set larger by a power of ten.
    """
    per_step = (runs["batch_size"] * runs["gpus"]).to_numpy()
    steps = np.maximum(np.floor((wanted_s - STARTUP_S) / step_s), 1)
    usual = np.array([NETWORKS[name].samples for name in NETWORKS])
    usual = usual[pd.Categorical(runs["network"], categories=list(NETWORKS)).codes]
    larger = 10 ** np.maximum(np.ceil(np.log10(steps * per_step / (usual * MAX_EPOCHS))), 0)
    samples = np.minimum(usual * larger, steps * per_step)
    epochs = np.maximum(np.round(steps / np.ceil(samples / per_step)), 1)
    return runs.assign(epochs=epochs.astype(np.int64), samples=samples.astype(np.int64))


def _endings(full_s: FloatArray, rng: np.random.Generator) -> tuple[pd.Series, FloatArray, FloatArray]:
    """Draw the outcome of each job, its run time in whole seconds, and its time limit (s)."""
    chances = np.array([FAILED, CANCELLED, TIMEOUT, 1 - FAILED - CANCELLED - TIMEOUT])
    ending = _pick(chances, rng, len(full_s))
    part = rng.random(len(full_s))
    share = np.choose(ending, [part**2, part, 0.4 + 0.5 * part, np.ones_like(part)])
    ran_s = np.maximum(np.round(full_s * share), 1)
    limit = LIMITS_H[np.minimum(np.searchsorted(LIMITS_H, 1.2 * ran_s / 3600), len(LIMITS_H) - 1)] * 3600
    return _text(["failed", "cancelled", "timeout", "completed"], ending), ran_s, np.where(ending == 2, ran_s, limit)


def _waits(gpus: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw whole seconds in the queue: most jobs start at once, large ones can wait for hours."""
    draw = rng.random(len(gpus))
    long = 600 * np.sqrt(gpus) * np.exp(1.3 * rng.standard_normal(len(gpus)))
    return np.floor(np.where(draw < 0.6, 1 + 20 * draw, np.minimum(long, 172_800)))


def _censored(runs: pd.DataFrame, end_of_log: pd.Timestamp) -> pd.DataFrame:
    """Censor jobs that are running or pending at the end of the log."""
    running, pending = runs["end"] > end_of_log, runs["start"] > end_of_log
    runs["status"] = runs["status"].mask(running, "running").mask(pending, "pending")
    runs["end"] = runs["end"].mask(running)
    runs["start"] = runs["start"].mask(pending)
    return runs
