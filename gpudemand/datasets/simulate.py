"""`make_cluster`: a simulated cluster whose users, run times and step times are known.

The constants of this module define the ground truth of simulated logs; none is an estimate, and none predicts real
hardware, as `gpudemand.cost` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from gpudemand._array import STRING, BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, as_numbers, check_choice, check_columns, check_number, shorten
from gpudemand.jobs.schema import EARLIEST, LATEST
from gpudemand.jobs.table import as_jobs, training_steps
from gpudemand.jobs.times import read_timestamp


class Archetype(NamedTuple):
    """Activity pattern and run times of one class of users."""

    week: tuple[float, ...]  #: relative demand, Monday to Sunday
    hour: float  #: local hour around which jobs are submitted
    hour_std: float  #: standard deviation of that hour; 24 and more is uniform
    active_share: float  #: probability that the user submits on a day with demand
    duration_h: float  #: median run time
    log_std: float  #: standard deviation of the log run time
    regular: bool  #: submissions evenly spaced rather than at random


WEEKDAYS = (1.0, 1.1, 1.1, 1.1, 0.9, 0.12, 0.08)
EVERY_DAY = (1.0,) * 7

ARCHETYPES: dict[str, Archetype] = {
    "steady": Archetype(EVERY_DAY, 12.0, 24.0, 1.0, 40.0, 0.5, True),
    "nightly": Archetype((1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5), 21.5, 0.7, 1.0, 6.0, 0.35, True),
    "weekday": Archetype(WEEKDAYS, 14.0, 3.0, 0.55, 1.4, 1.6, False),
    "burst": Archetype((1.0, 1.0, 1.0, 1.0, 1.0, 0.7, 0.7), 15.0, 4.0, 0.9, 2.2, 1.6, False),
    "ramp": Archetype((1.0, 1.0, 1.0, 1.0, 1.0, 0.4, 0.4), 15.0, 3.5, 0.85, 2.2, 1.5, False),
    "sporadic": Archetype((1.0, 1.0, 1.0, 1.0, 1.0, 0.4, 0.4), 15.0, 4.0, 0.12, 1.2, 1.7, False),
    "seasonal": Archetype(WEEKDAYS, 15.0, 3.5, 0.85, 2.2, 1.5, False),
}

#: Shares that match the concentration and the idle days of public traces.
DEFAULT_SHARES: dict[str, float] = {
    "steady": 0.06,
    "nightly": 0.08,
    "weekday": 0.27,
    "burst": 0.18,
    "ramp": 0.06,
    "sporadic": 0.25,
    "seasonal": 0.10,
}

#: Maximum run time in hours, a common limit of long queues.
MAX_DURATION_H = 336.0


def read_shares(archetypes: Mapping[str, float] | Sequence[str] | None) -> dict[str, float]:
    """Normalize shares of any positive scale by archetype, equal ones of names, or `DEFAULT_SHARES`."""
    chosen = DEFAULT_SHARES if archetypes is None else archetypes
    if isinstance(chosen, str) or not isinstance(chosen, (Mapping, Sequence)):
        raise InputError(f"archetypes must be a list of names or a dict of name to share; got {chosen!r}.")
    shares = dict(chosen) if isinstance(chosen, Mapping) else dict.fromkeys(chosen, 1.0)
    for name, share in shares.items():
        check_number(f"archetypes[{check_choice('archetype', name, ARCHETYPES)!r}]", share, 0)
    total = sum(shares.values())
    if total <= 0:
        raise InputError("archetypes holds no positive share; give at least one archetype a share above 0.")
    return {name: share / total for name, share in shares.items()}


def draw_archetypes(shares: Mapping[str, float], n_users: int, rng: np.random.Generator) -> list[str]:
    """Draw the archetype of each user by systematic sampling, in random order."""
    edges = np.cumsum(list(shares.values())) * n_users
    seats = (np.arange(n_users) + rng.random()) % n_users
    kinds = np.minimum(np.searchsorted(edges, seats, side="right"), len(edges) - 1)
    names = list(shares)
    return [names[kind] for kind in kinds[np.argsort(rng.random(n_users), kind="stable")]]


def archetype_values(archetype: Sequence[str], field: str) -> FloatArray:
    """A field of each user's archetype; ``week`` has shape (n_users, 7)."""
    return np.array([getattr(ARCHETYPES[name], field) for name in archetype], dtype=float)


def active_periods(archetype: Sequence[str], n_days: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Draw the first day and the day after the last one of each user.

    About a third of the users start late and a sixth leave early; bursts last 10 to 35 days; steady and nightly users
    are active from the first to the last day.
    """
    kinds = np.array(archetype)
    joins, leaves = rng.random(len(kinds)), rng.random(len(kinds))
    partial = ~np.isin(kinds, ["steady", "nightly"])
    burst = kinds == "burst"
    late = np.where(burst, joins * 0.9, np.clip((joins - 0.65) / 0.35, 0, 1) * 0.55)
    early = np.clip((leaves - 0.85) / 0.15, 0, 1) * 0.4
    first = partial * late * n_days
    last = np.where(burst, first + 10 + 25 * leaves, (1 - partial * early) * n_days)
    begin = np.minimum(np.floor(first), n_days - 1).astype(np.int64)
    return begin, np.clip(np.ceil(last).astype(np.int64), begin + 1, n_days)


def day_weights(users: pd.DataFrame, weekdays: IntArray, growth: float) -> FloatArray:
    """Relative demand, shape (n_users, n_days): week x active period x archetype x growth over 365 days."""
    day = np.arange(len(weekdays))[None, :]
    first, last = (users[name].to_numpy()[:, None] for name in ("first_day", "last_day"))
    week = archetype_values(users["archetype"].tolist(), "week")[:, weekdays]
    present = (day >= first) & (day < last)
    since = np.where(present, day - first, 0)
    return week * present * _shape(users, since, last - first) * (1 + growth * day / 365)


def _shape(users: pd.DataFrame, since: IntArray, length: IntArray) -> FloatArray:
    """Return the ramp or the on-off pattern of the archetype within the active period."""
    kind = users["archetype"].to_numpy(dtype=object)[:, None]
    on, off = (users[name].to_numpy()[:, None] for name in ("on_days", "off_days"))
    ramp = np.where(kind == "ramp", 0.1 + 1.9 * since / length, 1.0)
    return np.where((kind == "seasonal") & (since % (on + off) >= on), 0.0, ramp)


def mean_duration(median_h: FloatArray, log_std: FloatArray) -> FloatArray:
    """Mean in hours of a lognormal run time censored at `MAX_DURATION_H`."""
    room = np.log(MAX_DURATION_H / median_h)
    below: FloatArray = median_h * np.exp(log_std**2 / 2) * ndtr(room / log_std - log_std)
    return below + MAX_DURATION_H * ndtr(-room / log_std)


class Network(NamedTuple):
    """Figures of a network at its usual input size, and usual training settings."""

    gmacs: float  #: multiply-adds of the forward pass of one sample, in billions
    activations_m: float  #: values written by the forward pass of one sample, in millions
    params_m: float  #: parameters, in millions
    operators: int  #: operators of the forward pass, one kernel launch each
    batch: int  #: usual batch size per GPU
    samples: int  #: usual size of the training set


class Gpu(NamedTuple):
    """Figures of a GPU from its data sheet (dense matrix arithmetic)."""

    fp32: float  #: peak in TFLOP/s
    tf32: float  #: 0 where not supported
    half: float  #: fp16 and bf16
    bf16: bool  #: whether bf16 is supported
    bandwidth: float  #: of the memory, GB/s
    link: float  #: between the GPUs of one machine, GB/s in one direction


#: Sources: torchvision and timm tables (images of 224 px); BERT at 128 and GPT-2 at 1,024 tokens from their layers.
NETWORKS: dict[str, Network] = {
    "resnet18": Network(1.82, 2.48, 11.7, 60, 256, 50_000),
    "resnet50": Network(4.11, 11.11, 25.6, 160, 128, 1_281_167),
    "resnet152": Network(11.56, 22.56, 60.2, 470, 64, 1_281_167),
    "vgg16": Network(15.5, 13.56, 138.4, 38, 64, 1_281_167),
    "densenet121": Network(2.87, 6.90, 8.0, 430, 64, 112_120),
    "mobilenet_v2": Network(0.31, 6.68, 3.5, 150, 256, 118_287),
    "efficientnet_b0": Network(0.40, 6.75, 5.3, 240, 256, 1_281_167),
    "convnext_tiny": Network(4.47, 13.44, 28.6, 180, 128, 1_281_167),
    "vit_b_16": Network(17.58, 23.90, 86.6, 150, 128, 1_281_167),
    "bert_base": Network(11.2, 23.6, 110.0, 200, 32, 3_668_000),
    "gpt2_small": Network(147.0, 302.0, 124.0, 170, 8, 8_000_000),
}

GPUS: dict[str, Gpu] = {
    "V100": Gpu(15.7, 0.0, 125.0, False, 900.0, 150.0),
    "A100": Gpu(19.5, 156.0, 312.0, True, 1555.0, 300.0),
    "H100": Gpu(67.0, 494.0, 989.0, True, 3350.0, 450.0),
    "H200": Gpu(67.0, 494.0, 989.0, True, 4800.0, 450.0),
}

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")

#: Achieved share of peak arithmetic, by precision.
EFFICIENCY = {"fp32": 0.5, "tf32": 0.22, "bf16": 0.25, "fp16": 0.25}
MEMORY_EFFICIENCY = 0.7
#: The backward pass costs twice the forward pass; a multiply-add is two operations.
OPERATIONS_PER_MAC = 3 * 2
#: Each activation is written and read forward, and read, and its gradient written and read, backward.
PASSES = 5
#: Weight, gradient and two moments are read and three of them written, in four bytes.
OPTIMIZER_BYTES = 7 * 4
LAUNCH_S = 6e-6
GPUS_PER_NODE = 8
#: Between machines, GB/s a GPU.
NETWORK_LINK = 25.0


def true_step_time(jobs: pd.DataFrame) -> FloatArray:
    """Return the noise-free step time in seconds of the roofline model of `make_cluster`.

    ``max(arithmetic, memory traffic, kernel launches) + all-reduce``, where arithmetic is three times the forward
    pass over the peak of the GPU times `EFFICIENCY`, memory traffic is activations and optimizer state over the
    bandwidth, and the all-reduce is a ring over the link inside a machine (up to 8 GPUs) or between machines.

    Parameters
    ----------
    jobs : DataFrame
        Columns ``network``, ``batch_size`` (per GPU), ``precision``, ``gpu_type`` and ``gpus``.

    Returns
    -------
    ndarray of shape (n_jobs,)
        Seconds.

    Raises
    ------
    InputError
        For an unknown network, GPU or precision, or a precision that the GPU lacks.

    Examples
    --------
    ResNet-50 on one V100 in fp32, 128 images a step, in images a second:

    >>> job = pd.DataFrame({"network": ["resnet50"], "batch_size": [128], "precision": ["fp32"],
    ...                     "gpu_type": ["V100"], "gpus": [1]})
    >>> [round(float(128 / seconds)) for seconds in true_step_time(job)]
    [318]
    """
    jobs = check_columns(jobs, ("network", "batch_size", "precision", "gpu_type", "gpus"), "jobs")
    network = _look_up(jobs["network"], NETWORKS, "network")
    gpu = _look_up(jobs["gpu_type"], GPUS, "gpu_type")
    half = jobs["precision"].isin(["bf16", "fp16"]).to_numpy(dtype=bool)
    width = np.where(half, 2.0, 4.0)
    batch, gpus = (as_numbers(jobs[name], f"jobs[{name!r}]") for name in ("batch_size", "gpus"))
    arithmetic = batch * network["gmacs"] * OPERATIONS_PER_MAC * 1e9 / _achieved_flops(jobs["precision"], gpu)
    traffic = batch * network["activations_m"] * PASSES * width + network["params_m"] * OPTIMIZER_BYTES
    memory = traffic * 1e6 / (gpu["bandwidth"] * MEMORY_EFFICIENCY * 1e9)
    launches = 3 * network["operators"] * LAUNCH_S
    busy = np.maximum.reduce([arithmetic, memory, launches])
    return busy + _all_reduce(network["params_m"] * 1e6 * width, gpus, gpu["link"])


def _all_reduce(gradient_bytes: FloatArray, gpus: FloatArray, link: FloatArray) -> FloatArray:
    slowest = np.where(gpus > GPUS_PER_NODE, NETWORK_LINK, link) * 1e9
    return 2 * (gpus - 1) / np.maximum(gpus, 1) * gradient_bytes / slowest


def _achieved_flops(precision: pd.Series, gpu: Mapping[str, FloatArray]) -> FloatArray:
    peak = np.full(len(precision), np.nan)
    for name in pd.unique(precision):
        check_choice("precision", name, PRECISIONS)
        rows = (precision == name).to_numpy(dtype=bool)
        column = gpu["half"] * gpu["bf16"] if name == "bf16" else gpu["half" if name == "fp16" else name]
        peak[rows] = column[rows] * EFFICIENCY[name] * 1e12
    if (peak == 0).any():
        raise InputError(
            f"precision={precision.iloc[int(np.argmax(peak == 0))]!r} does not run on that job's GPU type."
        )
    return peak


def _look_up(names: pd.Series, table: Mapping[str, Network | Gpu], what: str) -> dict[str, FloatArray]:
    codes, seen = pd.factorize(names)
    rows = [table[check_choice(what, name, table)] for name in seen]
    if (codes < 0).any():
        raise InputError(f"{what} is missing in {int((codes < 0).sum())} jobs; drop them.")
    fields = next(iter(table.values()))._fields
    return {field: np.array([float(getattr(row, field)) for row in rows])[codes] for field in fields}


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
    full_s = STARTUP_S + training_steps(runs) * step_s * np.exp(RUN_NOISE * rng.standard_normal(len(user)))
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


#: Standard deviation of the log demand of users; of 100 users the ten largest hold some 55 % of the GPU-hours.
SIZE_LOG_STD = 1.5
_DRAWN = ["rhythm_hour", "gpu_hours_per_day", "duration_h", "efficiency"]


def make_users(
    archetype: list[str], mean_hours: float, setting: dict[str, Any], rng: np.random.Generator
) -> pd.DataFrame:
    """Draw the users: the ``truth`` of `gpudemand.datasets.make_cluster`."""
    n_users, users = len(archetype), _draw_calendars(archetype, setting, rng)
    load = day_weights(users, weekdays(setting), setting["growth"]).mean(axis=1)
    load = np.maximum(load * archetype_values(archetype, "active_share"), 0.01)
    users["gpu_hours_per_day"] = _sizes(load, mean_hours, rng)
    intensity = users["gpu_hours_per_day"].to_numpy() / load
    log2_gpus = 0.5 * np.log2(intensity / 12) + 0.8 * rng.standard_normal(n_users)
    users["typical_gpus"] = 2 ** np.clip(np.round(log2_gpus), 0, 4)
    users["duration_h"] = archetype_values(archetype, "duration_h") * np.exp(0.3 * rng.standard_normal(n_users))
    users["network"] = _favourites(users["group"], rng)
    users["efficiency"] = np.exp(0.15 * rng.standard_normal(n_users))
    # Rounded, because the last bit of exp differs between processors.
    users[_DRAWN] = users[_DRAWN].round(6)
    users.attrs.update(setting)
    return users


def _draw_calendars(archetype: list[str], setting: dict[str, Any], rng: np.random.Generator) -> pd.DataFrame:
    """Draw the group, active period, lengths of on and off periods in days, and hour of the day of each user."""
    n_users = len(archetype)
    first, last = active_periods(archetype, setting["n_days"], rng)
    return pd.DataFrame(
        {
            "user": [f"user-{number:03d}" for number in range(1, n_users + 1)],
            "group": _teams(n_users, rng),
            "archetype": archetype,
            "active_from": local_times(setting, first),
            "active_to": local_times(setting, last),
            "first_day": first,
            "last_day": last,
            "on_days": 14 + np.floor(29 * rng.random(n_users)).astype(np.int64),
            "off_days": 14 + np.floor(36 * rng.random(n_users)).astype(np.int64),
            "rhythm_hour": (archetype_values(archetype, "hour") + rng.standard_normal(n_users)) % 24,
        }
    ).astype({"user": STRING, "group": STRING, "archetype": STRING})


def _teams(n_users: int, rng: np.random.Generator) -> list[str]:
    """Draw the group of each user; small clusters have fewer groups."""
    names = list(TEAMS)[: max(1, min(len(TEAMS), n_users // 4))]
    size = np.array([TEAMS[name].size for name in names])
    picks = np.searchsorted(np.cumsum(size) / size.sum(), rng.random(n_users), side="right")
    return [names[pick] for pick in picks]


def _favourites(group: pd.Series, rng: np.random.Generator) -> pd.Series:
    picks = np.floor(rng.random(len(group)) * 3).astype(int)
    return pd.Series([TEAMS[name].networks[pick] for name, pick in zip(group, picks, strict=True)], dtype=STRING)


def _sizes(load: FloatArray, mean_hours: float, rng: np.random.Generator) -> FloatArray:
    """Assign lognormal quantiles of expected GPU-hours a day to users, by a random score that rises with their load."""
    score = rng.standard_normal(len(load)) + np.log(load)
    rank = np.argsort(np.argsort(score, kind="stable"), kind="stable")
    size = np.exp(SIZE_LOG_STD * ndtri((rank + 0.5) / len(load)))
    return size * mean_hours / size.mean()


def expected_demand(users: pd.DataFrame, setting: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
    """Return the expected GPU-hours submitted by user and day: by the pattern of the archetype, and uniformly."""
    ratio = setting["signal_to_noise"]
    share = 1.0 if ratio == np.inf else ratio / (1 + ratio)
    hours = users["gpu_hours_per_day"].to_numpy()[:, None]
    pattern = day_weights(users, weekdays(setting), setting["growth"])
    day = np.arange(setting["n_days"])
    present = (day >= users["first_day"].to_numpy()[:, None]) & (day < users["last_day"].to_numpy()[:, None])
    return share * hours * _unit_mean(pattern), (1 - share) * hours * _unit_mean(present.astype(float))


def _unit_mean(weights: FloatArray) -> FloatArray:
    mean = weights.mean(axis=1, keepdims=True)
    return np.divide(weights, mean, out=np.zeros_like(weights), where=mean > 0)


def weekdays(setting: dict[str, Any]) -> IntArray:
    """Return the weekday of each day of the log, Monday being 0."""
    return (pd.Timestamp(setting["start"]).weekday() + np.arange(setting["n_days"])) % 7


def local_times(setting: dict[str, Any], day: IntArray, hour: FloatArray | float = 0.0) -> pd.DatetimeIndex:
    """Return UTC times of local days and hours, to the second."""
    seconds = np.asarray(day, dtype=np.int64) * 86400 + np.floor(np.asarray(hour) * 3600).astype(np.int64)
    local = pd.Timestamp(setting["start"]).to_datetime64().astype("datetime64[ns]") + seconds.astype("timedelta64[s]")
    zoned = pd.DatetimeIndex(local).tz_localize(
        setting["tz"], ambiguous=np.zeros(len(seconds), dtype=bool), nonexistent="shift_forward"
    )
    return zoned.tz_convert("UTC").as_unit("ns")


#: Probability that a user submits jobs outside its pattern on a given day.
NOISE_DAY_SHARE = 0.06
MAX_DAYS = 36_500
MAX_USER_DAYS = 50_000_000


def make_cluster(
    n_users: int = 100,
    n_days: int = 180,
    *,
    archetypes: Mapping[str, float] | Sequence[str] | None = None,
    signal_to_noise: float = 6.0,
    gpus_per_user: float = 2.0,
    growth: float = 0.3,
    start: str | pd.Timestamp = "2026-01-05",
    tz: str = "UTC",
    random_state: int | np.random.Generator | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Simulate the job log of a GPU cluster with known ground truth.

    Users belong to seven archetypes: ``steady`` (services, long consecutive jobs), ``nightly`` (evening batches),
    ``weekday`` (office hours), ``burst`` (a few busy weeks), ``ramp`` (a growing project), ``sporadic`` (occasional
    jobs) and ``seasonal`` (on for weeks, then off). Demand is lognormal over users; the default shares, the
    concentration and the idle days follow public traces of GPU clusters. The cluster is empty before the first day and
    never full: waiting times are drawn, not simulated.

    Parameters
    ----------
    n_users, n_days : int
        At least one each.
    archetypes : mapping of str to float, or sequence of str, optional
        Archetype -> share, or names with equal shares.
    signal_to_noise : float, default=6.0
        Expected GPU-hours that follow the pattern of the archetype over expected GPU-hours at uniformly random times
        between the user's first and last day. ``numpy.inf`` is the pattern alone, 0 none of it.
    gpus_per_user : float, default=2.0
        Mean number of GPUs held by a user, over all users and the whole log.
    growth : float, default=0.3
        Growth of demand over 365 days, relative to the first day; at least 0.
    start : str or Timestamp
        First day, at midnight in `tz`.
    tz : str
        Time zone of the users. Times of jobs are in UTC.
    random_state : int, Generator or None
        An integer makes the log reproducible.

    Returns
    -------
    jobs : DataFrame
        A canonical job table (`gpudemand.jobs.schema.COLUMNS`) sorted by ``submit``, with the additional columns
        ``network``, ``batch_size`` (per GPU), ``epochs``, ``samples`` (of the training set) and ``precision``.
        Completed jobs ran for ``STARTUP_S + epochs * ceil(samples / (batch_size * gpus)) * step time * efficiency``
        seconds, with 2 % of noise. Jobs running at the end of the log have no end.
    truth : DataFrame
        One row a user: ``user``, ``group``, ``archetype``, ``active_from``, ``active_to`` (UTC), ``first_day``,
        ``last_day`` (in days since the start, the last one excluded), ``on_days``, ``off_days`` (of seasonal users),
        ``rhythm_hour`` (local hour of submissions), ``gpu_hours_per_day`` (expected, over the whole log),
        ``typical_gpus``, ``duration_h`` (median run time), ``network`` (preferred), ``efficiency`` (factor on the step
        time).

    Raises
    ------
    InputError
        For arguments outside their range, unknown archetypes, time zones or start days.

    Examples
    --------
    >>> jobs, truth = make_cluster(n_users=3, n_days=14, random_state=0)
    >>> truth[["user", "archetype", "active_from", "typical_gpus"]]
           user archetype               active_from  typical_gpus
    0  user-001  sporadic 2026-01-08 00:00:00+00:00           2.0
    1  user-002     burst 2026-01-16 00:00:00+00:00           2.0
    2  user-003   weekday 2026-01-05 00:00:00+00:00           4.0
    >>> len(jobs)
    156
    """
    count, days = _extent(n_users, n_days)
    setting: dict[str, Any] = {
        "kind": "synthetic",
        "start": _first_day(start, tz),
        "n_days": days,
        "tz": tz,
        "signal_to_noise": _ratio(signal_to_noise),
        "growth": check_number("growth", growth, 0, 100),
    }
    mean_hours = 24 * check_number("gpus_per_user", gpus_per_user, 0, 1000, open_low=True)
    rng = _generator(random_state)
    truth = make_users(draw_archetypes(read_shares(archetypes), count, rng), mean_hours, setting, rng)
    return _jobs(truth, rng), truth


def _extent(n_users: int, n_days: int) -> tuple[int, int]:
    users = int(check_number("n_users", n_users, 1, 1_000_000, integer=True))
    days = int(check_number("n_days", n_days, 1, MAX_DAYS, integer=True))
    if users * days > MAX_USER_DAYS:
        raise InputError(f"{users:,} users over {days:,} days do not fit; at most {MAX_USER_DAYS:,} user-days do.")
    return users, days


def _ratio(signal_to_noise: float) -> float:
    if isinstance(signal_to_noise, float) and signal_to_noise == np.inf:
        return signal_to_noise
    return check_number("signal_to_noise", signal_to_noise, 0)


def _generator(random_state: int | np.random.Generator | None) -> np.random.Generator:
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"random_state must be a whole number of at least 0, a numpy Generator or None; got {random_state!r}."
        ) from error


def _first_day(start: str | pd.Timestamp, tz: str) -> str:
    """Validate day and time zone; return the day as text, so that ``attrs`` survive a Parquet file."""
    try:
        day = read_timestamp(start)
    except (TypeError, ValueError) as error:  # OutOfBoundsDatetime is a ValueError
        raise InputError(f"start={shorten(start)!r} is not a day; write '2026-01-05'.") from error
    if pd.isna(day) or day.tz is not None or day != day.normalize():
        raise InputError(f"start={str(start)!r} must be a day without clock time or time zone; write '2026-01-05'.")
    if not EARLIEST <= day.tz_localize("UTC") < LATEST - pd.Timedelta(days=MAX_DAYS):
        raise InputError(f"start={day.date()} is too far away; choose a day of 1985 to 2099.")
    try:
        day.tz_localize(ZoneInfo(tz), ambiguous=False, nonexistent="shift_forward")
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise InputError(f"tz={shorten(tz)!r} is not a known time zone; write 'UTC' or 'Europe/Berlin'.") from error
    return str(day.date())


def setting_of(truth: pd.DataFrame) -> dict[str, Any]:
    """What `make_cluster` was called with, from its ground truth."""
    truth = check_columns(truth, ("user", "archetype", "gpu_hours_per_day", "first_day", "last_day"), "truth")
    if "signal_to_noise" not in truth.attrs:
        raise InputError(
            "truth has lost its attrs (start, n_days, growth ...); pass the frame of make_cluster unchanged."
        )
    return {str(name): value for name, value in truth.attrs.items()}


def _jobs(users: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    setting = setting_of(users)
    signal, noise = expected_demand(users, setting)
    per_job = gpu_hours_per_job(users)[:, None]
    regular = _pattern_counts(users, signal / per_job, rng)
    random = rng.poisson(_concentrate(noise / per_job, NOISE_DAY_SHARE, rng))
    user, day, in_pattern = _rows(regular, random)
    hour = np.where(in_pattern, _hours(users, user, rng), 24 * rng.random(len(user)))
    submit = local_times(setting, day, hour)
    order = np.argsort(submit.asi8, kind="stable")
    end_of_log = local_times(setting, np.array([setting["n_days"]]))[0]
    runs = make_runs(users, user[order], day[order], submit[order], end_of_log, rng)
    return as_jobs(runs, kind="synthetic", source="gpudemand.datasets.make_cluster")


def _pattern_counts(users: pd.DataFrame, rate: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw jobs by user and day that follow the pattern: evenly spaced, or Poisson on active days."""
    archetype = users["archetype"].tolist()
    regular = archetype_values(archetype, "regular") > 0
    active = archetype_values(archetype, "active_share")[:, None]
    random = rng.poisson(_concentrate(rate, active, rng))
    total = np.cumsum(rate, axis=1) + rng.random((len(users), 1))
    even = np.diff(np.floor(total), axis=1, prepend=0).astype(np.int64)
    return np.where(regular[:, None], even, random)


def _concentrate(rate: FloatArray, chance: float | FloatArray, rng: np.random.Generator) -> FloatArray:
    """Concentrate a rate on a random `chance` of the days, preserving its mean."""
    return rate * (rng.random(rate.shape) < chance) / chance


def _rows(regular: IntArray, random: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
    """Return user, day and whether it follows the pattern, for every job."""
    n_users, n_days = regular.shape
    cells = np.arange(n_users * n_days)
    cell = np.concatenate([np.repeat(cells, regular.ravel()), np.repeat(cells, random.ravel())])
    return cell // n_days, cell % n_days, np.arange(len(cell)) < regular.sum()


def _hours(users: pd.DataFrame, user: IntArray, rng: np.random.Generator) -> FloatArray:
    std = archetype_values(users["archetype"].tolist(), "hour_std")[user]
    return (users["rhythm_hour"].to_numpy()[user] + std * rng.standard_normal(len(user))) % 24
