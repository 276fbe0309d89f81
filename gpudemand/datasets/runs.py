"""What the jobs of a synthetic cluster run, on which GPUs, and for how long."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._typing import STRING, FloatArray, IntArray
from gpudemand._validation import InputError, check_columns
from gpudemand.datasets.archetypes import LONGEST_H, mean_duration, traits
from gpudemand.datasets.steptime import GPUS, NETWORKS, PRECISIONS, true_step_time


class Team(NamedTuple):
    """A group of users: its relative size and what it trains."""

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
#: Standard deviation of the logarithm of the run time around its law.
RUN_NOISE = 0.02
#: Share of jobs by how they end; the rest completes.
FAILED, CANCELLED, TIMEOUT = 0.14, 0.12, 0.04
#: Mean share of the wanted run time that is really run: a third of a failed job, half of a cancelled one.
KEPT = 1 - FAILED * 2 / 3 - CANCELLED / 2 - TIMEOUT * 0.35
#: Nobody trains for longer than this; who has the time takes more data.
MOST_EPOCHS = 300
#: Time limits people ask for, in hours.
LIMITS_H = np.array([1, 2, 4, 8, 12, 24, 48, 72, 120, 168, 336, 504, 1008], dtype=float)
#: Shares of the GPU types (in the order of `GPUS`) at the start, and how they stand a year later.
OLD_MIX = np.array([0.34, 0.44, 0.20, 0.02])
NEW_MIX = np.array([0.12, 0.38, 0.36, 0.14])
#: Shares of the precisions (in the order of `PRECISIONS`): V100, and everything newer.
V100_PRECISION = np.array([0.50, 0.00, 0.00, 0.50])
NEWER_PRECISION = np.array([0.06, 0.29, 0.50, 0.15])
#: Spread, in powers of two, of the GPUs of a job around what its user typically asks for; 64 is the most.
GPU_SPREAD = 0.9
POWERS = np.arange(7)


def gpu_hours_per_job(users: pd.DataFrame) -> FloatArray:
    """Return the expected GPU-hours of one job of each user."""
    hours = mean_duration(users["duration_h"].to_numpy(), traits(users["archetype"].tolist(), "tail"))
    return KEPT * hours * (_gpu_chances(users) * 2.0**POWERS).sum(axis=1)


def true_run_time(jobs: pd.DataFrame, truth: pd.DataFrame) -> FloatArray:
    """Seconds that jobs of a synthetic cluster take when nothing stops them, without noise.

    Parameters
    ----------
    jobs, truth : DataFrame
        As made by `make_cluster`.

    Returns
    -------
    ndarray of shape (n_jobs,)
        ``STARTUP_S + epochs * ceil(samples / (batch_size * gpus)) * step time * efficiency of the user``. Jobs with
        status ``completed`` ran for this long within some 2 %; those that failed, were cancelled or timed out less.

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
    check_columns(jobs, ("user", "epochs", "samples"), "jobs")
    check_columns(truth, ("user", "efficiency"), "truth")
    efficiency = jobs["user"].map(truth.set_index("user")["efficiency"]).to_numpy(dtype=float)
    if np.isnan(efficiency).any():
        raise InputError("jobs holds users that truth lacks; pass the two frames of one make_cluster call.")
    return STARTUP_S + _training_time(jobs, true_step_time(jobs) * efficiency)


def _training_time(jobs: pd.DataFrame, step_s: FloatArray) -> FloatArray:
    steps = np.ceil(jobs["samples"].to_numpy() / (jobs["batch_size"] * jobs["gpus"]).to_numpy())
    return jobs["epochs"].to_numpy() * steps * step_s


def make_runs(
    users: pd.DataFrame,
    user: IntArray,
    day: IntArray,
    submit: pd.DatetimeIndex,
    end_of_log: pd.Timestamp,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Give each submission (user number, day, time) a network, GPUs, a wait, a run time and an end."""
    runs = _what(users, user, day, rng)
    step_s = true_step_time(runs) * users["efficiency"].to_numpy()[user]
    tail = traits(users["archetype"].tolist(), "tail")[user]
    wanted_h = users["duration_h"].to_numpy()[user] * np.exp(tail * rng.standard_normal(len(user)))
    runs = _how_long(runs, np.minimum(wanted_h, LONGEST_H) * 3600, step_s)
    full_s = STARTUP_S + _training_time(runs, step_s) * np.exp(RUN_NOISE * rng.standard_normal(len(user)))
    runs["status"], ran_s, runs["requested_time"] = _endings(full_s, rng)
    runs["submit"] = submit
    runs["start"] = submit + pd.to_timedelta(_waits(runs["gpus"].to_numpy(), rng), unit="s")
    runs["end"] = runs["start"] + pd.to_timedelta(ran_s, unit="s")
    runs["job_id"] = pd.Series(np.arange(100_001, 100_001 + len(runs))).astype(STRING)
    return _cut(runs, end_of_log)


def _what(users: pd.DataFrame, user: IntArray, day: IntArray, rng: np.random.Generator) -> pd.DataFrame:
    """Draw what each job trains, and on which GPUs."""
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
    """Draw one column number a row, with the chances of that row (or of the one row given)."""
    edges = np.cumsum(chances, axis=-1)[..., :-1]
    return (rng.random(len(chances) if n_rows is None else n_rows)[:, None] >= edges).sum(axis=1)


def _gpu_chances(users: pd.DataFrame) -> FloatArray:
    """Return the chance of 1, 2, 4 ... 64 GPUs for a job of each user."""
    distance = POWERS - np.log2(users["typical_gpus"].to_numpy())[:, None]
    weight = np.exp(-((distance / GPU_SPREAD) ** 2) / 2)
    return weight / weight.sum(axis=1, keepdims=True)


def _networks(users: pd.DataFrame, user: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw the favourite of the user, or another of the team's."""
    number = {name: position for position, name in enumerate(NETWORKS)}
    teams = np.array([[number[name] for name in TEAMS[group].networks] for group in users["group"]])
    favourite = users["network"].map(number).to_numpy(dtype=np.int64)
    other = np.floor(3 * rng.random(len(user))).astype(np.int64)
    return np.where(rng.random(len(user)) < 0.6, favourite[user], teams[user, other])


def _gpu_types(n_users: int, user: IntArray, day: IntArray, rng: np.random.Generator) -> IntArray:
    """Draw a GPU type: a user mostly stays with one, and the mix of the cluster drifts to newer ones."""
    loyal = rng.random(n_users)[user]
    draw = np.where(rng.random(len(user)) < 0.7, loyal, rng.random(len(user)))
    age = np.minimum(day / 365, 1.0)[:, None]
    edges = np.cumsum(OLD_MIX + (NEW_MIX - OLD_MIX) * age, axis=1)[:, :-1]
    return (draw[:, None] >= edges).sum(axis=1)


def _how_long(runs: pd.DataFrame, wanted_s: FloatArray, step_s: FloatArray) -> pd.DataFrame:
    """Choose samples and epochs whose training time comes close to the wanted one.

    A short job trains on a part of the usual set, a long one on a set ten, a hundred ... times as large.
    """
    per_step = (runs["batch_size"] * runs["gpus"]).to_numpy()
    steps = np.maximum(np.floor((wanted_s - STARTUP_S) / step_s), 1)
    usual = np.array([NETWORKS[name].samples for name in NETWORKS])
    usual = usual[pd.Categorical(runs["network"], categories=list(NETWORKS)).codes]
    larger = 10 ** np.maximum(np.ceil(np.log10(steps * per_step / (usual * MOST_EPOCHS))), 0)
    samples = np.minimum(usual * larger, steps * per_step)
    epochs = np.maximum(np.round(steps / np.ceil(samples / per_step)), 1)
    return runs.assign(epochs=epochs.astype(np.int64), samples=samples.astype(np.int64))


def _endings(full_s: FloatArray, rng: np.random.Generator) -> tuple[pd.Series, FloatArray, FloatArray]:
    """Draw how each job ends, after how many whole seconds, and the time limit it was given (s)."""
    chances = np.array([FAILED, CANCELLED, TIMEOUT, 1 - FAILED - CANCELLED - TIMEOUT])
    ending = _pick(chances, rng, len(full_s))
    part = rng.random(len(full_s))
    share = np.choose(ending, [part**2, part, 0.4 + 0.5 * part, np.ones_like(part)])
    ran_s = np.maximum(np.round(full_s * share), 1)
    limit = LIMITS_H[np.minimum(np.searchsorted(LIMITS_H, 1.2 * ran_s / 3600), len(LIMITS_H) - 1)] * 3600
    return _text(["failed", "cancelled", "timeout", "completed"], ending), ran_s, np.where(ending == 2, ran_s, limit)


def _waits(gpus: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw the whole seconds in the queue: most jobs start at once, large ones can wait for hours."""
    draw = rng.random(len(gpus))
    long = 600 * np.sqrt(gpus) * np.exp(1.3 * rng.standard_normal(len(gpus)))
    return np.floor(np.where(draw < 0.6, 1 + 20 * draw, np.minimum(long, 172_800)))


def _cut(runs: pd.DataFrame, end_of_log: pd.Timestamp) -> pd.DataFrame:
    """Forget what the log could not know at its end."""
    running, pending = runs["end"] > end_of_log, runs["start"] > end_of_log
    runs["status"] = runs["status"].mask(running, "running").mask(pending, "pending")
    runs["end"] = runs["end"].mask(running)
    runs["start"] = runs["start"].mask(pending)
    return runs
