"""Who works on a synthetic cluster: the users, their sizes, and the demand expected of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from gpudemand._typing import STRING, FloatArray, IntArray
from gpudemand.datasets.archetypes import day_weights, membership, traits
from gpudemand.datasets.runs import TEAMS

#: Spread of the logarithm of the users' sizes; with 100 users the ten largest hold some 55 % of the GPU-hours.
SIZE_SPREAD = 1.5
_DRAWN = ["rhythm_hour", "gpu_hours_per_day", "duration_h", "efficiency"]


def make_users(
    archetype: list[str], mean_hours: float, setting: dict[str, Any], rng: np.random.Generator
) -> pd.DataFrame:
    """Draw the users of a cluster: the ``truth`` of `gpudemand.datasets.make_cluster`."""
    n_users, n_days = len(archetype), setting["n_days"]
    first, last = membership(archetype, n_days, rng)
    users = pd.DataFrame(
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
            "rhythm_hour": (traits(archetype, "hour") + rng.standard_normal(n_users)) % 24,
        }
    ).astype({"user": STRING, "group": STRING, "archetype": STRING})
    busy = day_weights(users, weekdays(setting), setting["growth"]).mean(axis=1)
    busy = np.maximum(busy * traits(archetype, "days_at_work"), 0.01)
    users["gpu_hours_per_day"] = _sizes(busy, mean_hours, rng)
    intensity = users["gpu_hours_per_day"].to_numpy() / busy
    wish = 0.5 * np.log2(intensity / 12) + 0.8 * rng.standard_normal(n_users)
    users["typical_gpus"] = 2 ** np.clip(np.round(wish), 0, 4)
    users["duration_h"] = traits(archetype, "duration_h") * np.exp(0.3 * rng.standard_normal(n_users))
    users["network"] = _favourites(users["group"], rng)
    users["efficiency"] = np.exp(0.15 * rng.standard_normal(n_users))
    # The last bit of exp differs between processors: rounded, the same seed gives the same truth everywhere.
    users[_DRAWN] = users[_DRAWN].round(6)
    users.attrs.update(setting)
    return users


def _teams(n_users: int, rng: np.random.Generator) -> list[str]:
    """Draw groups of uneven size; a small cluster has fewer of them."""
    names = list(TEAMS)[: max(1, min(len(TEAMS), n_users // 4))]
    size = np.array([TEAMS[name].size for name in names])
    picks = np.searchsorted(np.cumsum(size) / size.sum(), rng.random(n_users), side="right")
    return [names[pick] for pick in picks]


def _favourites(group: pd.Series, rng: np.random.Generator) -> pd.Series:
    picks = np.floor(rng.random(len(group)) * 3).astype(int)
    return pd.Series([TEAMS[name].networks[pick] for name, pick in zip(group, picks, strict=True)], dtype=STRING)


def _sizes(busy: FloatArray, mean_hours: float, rng: np.random.Generator) -> FloatArray:
    """Draw expected GPU-hours a day, lognormal over the users; who is rarely there is rarely among the largest.

    The quantiles are fixed and only their owners are drawn: the concentration of a cluster then hardly depends on luck.
    """
    score = rng.standard_normal(len(busy)) + np.log(busy)
    rank = np.argsort(np.argsort(score, kind="stable"), kind="stable")
    size = np.exp(SIZE_SPREAD * ndtri((rank + 0.5) / len(busy)))
    return size * mean_hours / size.mean()


def expected_demand(users: pd.DataFrame, setting: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
    """Return the expected GPU-hours submitted by user and day: along the rhythm, and at random."""
    ratio = setting["signal_to_noise"]
    share = 1.0 if ratio == np.inf else ratio / (1 + ratio)
    hours = users["gpu_hours_per_day"].to_numpy()[:, None]
    rhythm = day_weights(users, weekdays(setting), setting["growth"])
    day = np.arange(setting["n_days"])
    there = (day >= users["first_day"].to_numpy()[:, None]) & (day < users["last_day"].to_numpy()[:, None])
    return share * hours * _mean_one(rhythm), (1 - share) * hours * _mean_one(there.astype(float))


def _mean_one(weights: FloatArray) -> FloatArray:
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
