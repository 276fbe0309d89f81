"""Archetypes of users in a simulated cluster: activity by day, week and hour.

The constants of this module, `population`, `runs` and `steptime` define the simulator; none is an estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError, check_choice, check_number


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
    """Validate and normalize the shares of the archetypes.

    Parameters
    ----------
    archetypes : mapping of str to float, sequence of str, or None
        Name -> share (any positive scale), names with equal shares, or None for `DEFAULT_SHARES`.

    Raises
    ------
    InputError
        For an unknown name, a negative share, or no positive share.

    Examples
    --------
    >>> read_shares(["steady", "burst"])
    {'steady': 0.5, 'burst': 0.5}
    """
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
    """Return a field of each user's archetype; ``week`` has shape (n_users, 7).

    Examples
    --------
    >>> archetype_values(["nightly", "weekday"], "hour")
    array([21.5, 14. ])
    """
    table = {name: getattr(row, field) for name, row in ARCHETYPES.items()}
    return np.array([table[name] for name in archetype], dtype=float)


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
    """Return the relative demand by user and day: week x active period x archetype x growth.

    Parameters
    ----------
    users : DataFrame
        Columns ``archetype``, ``first_day``, ``last_day``, ``on_days``, ``off_days``.
    weekdays : ndarray of shape (n_days,)
        Monday is 0.
    growth : float
        Relative growth of demand over 365 days.

    Returns
    -------
    ndarray of shape (n_users, n_days)
    """
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
    """Return the mean in hours of a lognormal run time censored at `MAX_DURATION_H`.

    Examples
    --------
    >>> mean_duration(np.array([2.0]), np.array([1.0])).round(2)
    array([3.3])
    """
    room = np.log(MAX_DURATION_H / median_h)
    below: FloatArray = median_h * np.exp(log_std**2 / 2) * ndtr(room / log_std - log_std)
    return below + MAX_DURATION_H * ndtr(-room / log_std)
