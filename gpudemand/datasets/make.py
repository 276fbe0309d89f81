"""Simulation of a GPU cluster: job log and ground truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_columns, check_number, shorten
from gpudemand.datasets.archetypes import archetype_values, draw_archetypes, read_shares
from gpudemand.datasets.population import expected_demand, local_times, make_users
from gpudemand.datasets.runs import gpu_hours_per_job, make_runs
from gpudemand.jobs.schema import EARLIEST, LATEST
from gpudemand.jobs.table import as_jobs

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
        seconds, with 2 % of noise; see `true_run_time`. Jobs running at the end of the log have no end.
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
    >>> jobs, truth = make_cluster(1, 7, archetypes=["weekday"], signal_to_noise=np.inf, random_state=0)
    >>> expected_usage(truth)["y"].round(1).tolist()
    [62.1, 68.4, 68.4, 68.5, 56.1, 7.5, 5.0]
    """
    setting = _setting(truth)
    signal, noise = expected_demand(truth, setting)
    days = pd.date_range(setting["start"], periods=setting["n_days"], freq="D")
    return pd.DataFrame(
        {
            "unique_id": truth["user"].repeat(len(days)).reset_index(drop=True),
            "ds": np.tile(days.to_numpy(), len(truth)),
            "y": (signal + noise).ravel(),
        }
    )


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
        day = pd.Timestamp(start)
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


def _setting(truth: pd.DataFrame) -> dict[str, Any]:
    truth = check_columns(truth, ("user", "archetype", "gpu_hours_per_day", "first_day", "last_day"), "truth")
    if "signal_to_noise" not in truth.attrs:
        raise InputError(
            "truth has lost its attrs (start, n_days, growth ...); pass the frame of make_cluster unchanged."
        )
    return {str(name): value for name, value in truth.attrs.items()}


def _jobs(users: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    setting = _setting(users)
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
