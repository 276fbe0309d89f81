"""Users of a simulated cluster: ground truth and expected demand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from gpudemand._typing import STRING, FloatArray, IntArray
from gpudemand.datasets.archetypes import active_periods, archetype_values, day_weights
from gpudemand.datasets.runs import TEAMS

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
