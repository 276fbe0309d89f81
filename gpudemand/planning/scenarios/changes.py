"""Changes to the work of a cluster: each takes a table of work and returns another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, check_number, nearest
from gpudemand.jobs.as_of import begins, known_at, seconds_until
from gpudemand.jobs.timestamps import moment

BY = ("user", "group", "cluster", "gpu_type", "network")


class Costs(Protocol):
    """What changes of hardware ask: `CostStepTime`, or anything that answers like it."""

    def costs(self, jobs: pd.DataFrame) -> pd.DataFrame:
        """``step_time_s``, ``memory_gib`` and ``fits`` of jobs."""
        ...


def work_table(jobs: pd.DataFrame, origin: pd.Timestamp, days: int) -> pd.DataFrame:
    """Jobs submitted in the days before a moment, with the GPU-hours that they had used by then.

    Returns
    -------
    DataFrame
        Columns of `jobs`, and ``gpu_hours``.
    """
    known = known_at(jobs, origin)
    recent = known[known["submit"] >= origin - pd.Timedelta(days=days)]
    ran = seconds_until(recent["end"].fillna(origin), begins(recent))
    hours = np.nan_to_num(ran) / 3600 * recent["gpus"].fillna(0).to_numpy(dtype=float)
    return recent.assign(gpu_hours=hours)


class Change:
    """Base of the changes: a subclass says what becomes of a table of work."""

    def apply(self, work: pd.DataFrame, costs: Costs | None) -> pd.DataFrame:
        """Return the changed work.

        Parameters
        ----------
        work : DataFrame
            As `work_table` returns it.
        costs : Costs or None
            Step times and memory, for changes of hardware.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Growth(Change):
    """Everyone, or some, submit more (or less) of the same.

    Parameters
    ----------
    factor : float
        1.2 is 20 % more.
    name : str, optional
        Of a user, group, ...; everyone by default.
    by : {"user", "group", "cluster", "gpu_type", "network"}, default="group"
    """

    factor: float
    name: str | None = None
    by: str = "group"

    def apply(self, work: pd.DataFrame, costs: Costs | None = None) -> pd.DataFrame:
        """Return the work, multiplied."""
        check_number("factor", self.factor, 0)
        here = np.ones(len(work), dtype=bool) if self.name is None else theirs(work, self.by, self.name)
        return work.assign(gpu_hours=work["gpu_hours"] * np.where(here, self.factor, 1.0))


@dataclass(frozen=True)
class MoreUsers(Change):
    """Further users arrive who are like those of a group or segment.

    Parameters
    ----------
    n : int
        How many; negative if they leave.
    like : str
        Name of the group (or of another column, or a segment's label if `by` is a mapping of users to labels).
    by : str or mapping of str to str, default="group"
        A column, or user -> segment.
    """

    n: int
    like: str
    by: str | Mapping[str, str] = "group"

    def apply(self, work: pd.DataFrame, costs: Costs | None = None) -> pd.DataFrame:
        """Return the work of the group, multiplied by how many more it is."""
        if isinstance(self.by, str):
            here = theirs(work, self.by, self.like)
        else:
            here = _is(work["user"].map({str(k): str(v) for k, v in self.by.items()}), "segment", str(self.like))
        users = work.loc[here, "user"].nunique()
        if users == 0:
            raise InputError(f"the log names no user of {self.like!r}, so it is not known what one more would do.")
        n = check_number("n", self.n, -users, integer=True)
        return work.assign(gpu_hours=work["gpu_hours"] * np.where(here, 1 + n / users, 1.0))


@dataclass(frozen=True)
class Leaves(Change):
    """A user, group or other part of the work goes away.

    Parameters
    ----------
    name : str
    by : {"user", "group", "cluster", "gpu_type", "network"}, default="user"
    """

    name: str
    by: str = "user"

    def apply(self, work: pd.DataFrame, costs: Costs | None = None) -> pd.DataFrame:
        """Return the work without theirs."""
        return work[~theirs(work, self.by, self.name)]


@dataclass(frozen=True)
class Mix(Change):
    """The shares of the work change, the whole stays.

    Parameters
    ----------
    shares : mapping of str to float
        Name -> share of all GPU-hours; what is not named shares the rest as before.
    by : {"user", "group", "cluster", "gpu_type", "network"}, default="group"
    """

    shares: Mapping[str, float]
    by: str = "group"

    def apply(self, work: pd.DataFrame, costs: Costs | None = None) -> pd.DataFrame:
        """Return the work with other shares."""
        total = sum(check_number(f"shares[{name!r}]", share, 0, 1) for name, share in self.shares.items())
        if total > 1 + 1e-9:
            raise InputError(f"the shares add up to {total:g}; they must be at most 1 together.")
        hours = work["gpu_hours"].to_numpy(dtype=float)
        factor, rest = np.ones(len(work)), np.ones(len(work), dtype=bool)
        for name, share in self.shares.items():
            here = theirs(work, self.by, name)
            factor[here] = share * hours.sum() / max(hours[here].sum(), 1e-9)
            rest &= ~here
        factor[rest] = (1 - total) * hours.sum() / max(hours[rest].sum(), 1e-9)
        return work.assign(gpu_hours=hours * factor)


@dataclass(frozen=True)
class StepEvent(Change):
    """A number of GPUs more (or less) from one date to another: a deadline, a new project, maintenance.

    Parameters
    ----------
    gpus : float
    start, end : str or Timestamp, optional
        Open by default.
    series : str, optional
        Which series; needed if there are several.
    """

    gpus: float
    start: Any = None
    end: Any = None
    series: str | None = None

    def apply(self, work: pd.DataFrame, costs: Costs | None = None) -> pd.DataFrame:
        """Return the work as it is: an event is not made of today's jobs."""
        return work

    def gpus_at(self, forecast: pd.DataFrame) -> FloatArray:
        """GPUs that the event adds to each row of a forecast."""
        ids = forecast["unique_id"].astype(str)
        names = list(ids.unique())
        if self.series is None and len(names) > 1:
            raise InputError(f"there are {len(names)} series; say which one the event adds to, with series=.")
        name = names[0] if self.series is None else check_choice("series", self.series, names)
        inside, ds = ids == name, forecast["ds"]
        if self.start is not None:
            inside &= ds >= moment(self.start, ds.dt.tz)
        if self.end is not None:
            inside &= ds < moment(self.end, ds.dt.tz)
        return np.where(inside, check_number("gpus", self.gpus), 0.0)


def theirs(work: pd.DataFrame, by: str, name: str) -> Any:
    """Rows of work whose column `by` is `name`, as an array of bool; a name that no row has is refused."""
    check_choice("by", by, [column for column in BY if column in work.columns])
    return _is(work[by], by, name)


def _is(values: pd.Series, what: str, name: str) -> Any:
    here = (values == name).fillna(False).to_numpy(dtype=bool)
    if not here.any():
        known = [str(value) for value in values.dropna().unique()]
        raise InputError(f"no recent job has the {what} {name!r}.{nearest(str(name), known)}")
    return here
