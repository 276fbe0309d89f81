"""Changes of the workload of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_choice, check_number, nearest
from gpudemand.jobs.as_of import as_of, seconds_since, start_times
from gpudemand.jobs.time_parser import parse_timestamp

BY = ("user", "group", "cluster", "gpu_type", "network")


class JobCosts(Protocol):
    """Interface of a source of step times and memory, such as `CostStepTime`."""

    def costs(self, jobs: pd.DataFrame) -> pd.DataFrame:
        """``step_time_s``, ``memory_gib`` and ``fits`` of jobs."""
        ...


class NetworkCosts(JobCosts, Protocol):
    """Step times and memory of jobs whose networks are known, such as `CostStepTime`."""

    def knows(self, jobs: pd.DataFrame) -> NDArray[np.bool_]:
        """Whether it has the costs of each job."""
        ...

    def __call__(self, jobs: pd.DataFrame) -> FloatArray:
        """Seconds of one step of each job."""
        ...


def recent_workload(jobs: pd.DataFrame, origin: pd.Timestamp, days: int) -> pd.DataFrame:
    """Jobs submitted in the days before an origin, with the GPU-hours that they had used by then.

    Returns
    -------
    DataFrame
        Columns of `jobs`, and ``gpu_hours``.
    """
    known = as_of(jobs, origin)
    recent = known[known["submit"] >= origin - pd.Timedelta(days=days)]
    ran = seconds_since(recent["end"].fillna(origin), start_times(recent))
    hours = np.nan_to_num(ran) / 3600 * recent["gpus"].fillna(0).to_numpy(dtype=float)
    return recent.assign(gpu_hours=hours)


class Change:
    """Base class of changes of the workload."""

    def apply(self, workload: pd.DataFrame, costs: JobCosts | None) -> pd.DataFrame:
        """Return the changed workload.

        Parameters
        ----------
        workload : DataFrame
            As returned by `recent_workload`.
        costs : JobCosts or None
            Step times and memory, for changes of hardware.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Growth(Change):
    """Scale the workload of all or some jobs.

    Parameters
    ----------
    factor : float
        1.2 is 20 % more.
    name : str, optional
        Name of a user, group, ...; all jobs by default.
    by : {"user", "group", "cluster", "gpu_type", "network"}, default="group"
    """

    factor: float
    name: str | None = None
    by: str = "group"

    def apply(self, workload: pd.DataFrame, costs: JobCosts | None = None) -> pd.DataFrame:
        """Return the scaled workload."""
        check_number("factor", self.factor, 0)
        selected = np.ones(len(workload), dtype=bool) if self.name is None else rows_of(workload, self.by, self.name)
        return workload.assign(gpu_hours=workload["gpu_hours"] * np.where(selected, self.factor, 1.0))


@dataclass(frozen=True)
class MoreUsers(Change):
    """Add (or remove) users like those of a group or segment.

    Parameters
    ----------
    n : int
        Number of users; negative to remove them.
    like : str
        Name of the group (or value of another column, or label of a segment if `by` is a mapping).
    by : str or mapping of str to str, default="group"
        A column, or user -> segment.
    """

    n: int
    like: str
    by: str | Mapping[str, str] = "group"

    def apply(self, workload: pd.DataFrame, costs: JobCosts | None = None) -> pd.DataFrame:
        """Return the workload with that of the group scaled by its new number of users."""
        if isinstance(self.by, str):
            selected = rows_of(workload, self.by, self.like)
        else:
            selected = _equals(
                workload["user"].map({str(k): str(v) for k, v in self.by.items()}), "segment", str(self.like)
            )
        users = workload.loc[selected, "user"].nunique()
        if users == 0:
            raise InputError(f"the log names no user of {self.like!r}, so it is not known what one more would do.")
        n = check_number("n", self.n, -users, integer=True)
        return workload.assign(gpu_hours=workload["gpu_hours"] * np.where(selected, 1 + n / users, 1.0))


@dataclass(frozen=True)
class RemoveGroup(Change):
    """Remove the workload of a user, group or other part.

    Parameters
    ----------
    name : str
    by : {"user", "group", "cluster", "gpu_type", "network"}, default="user"
    """

    name: str
    by: str = "user"

    def apply(self, workload: pd.DataFrame, costs: JobCosts | None = None) -> pd.DataFrame:
        """Return the workload without the part."""
        return workload[~rows_of(workload, self.by, self.name)]


@dataclass(frozen=True)
class Reweight(Change):
    """Change the shares of the workload at a constant total.

    Parameters
    ----------
    shares : mapping of str to float
        Name -> share of all GPU-hours; the others keep their proportions in the rest.
    by : {"user", "group", "cluster", "gpu_type", "network"}, default="group"
    """

    shares: Mapping[str, float]
    by: str = "group"

    def apply(self, workload: pd.DataFrame, costs: JobCosts | None = None) -> pd.DataFrame:
        """Return the workload with other shares."""
        total = sum(check_number(f"shares[{name!r}]", share, 0, 1) for name, share in self.shares.items())
        if total > 1 + 1e-9:
            raise InputError(f"the shares add up to {total:g}; they must be at most 1 together.")
        hours = workload["gpu_hours"].to_numpy(dtype=float)
        factor, rest = np.ones(len(workload)), np.ones(len(workload), dtype=bool)
        for name, share in self.shares.items():
            selected = rows_of(workload, self.by, name)
            factor[selected] = share * hours.sum() / max(hours[selected].sum(), 1e-9)
            rest &= ~selected
        factor[rest] = (1 - total) * hours.sum() / max(hours[rest].sum(), 1e-9)
        return workload.assign(gpu_hours=hours * factor)


@dataclass(frozen=True)
class StepEvent(Change):
    """Add a constant number of GPUs between two dates: a deadline, a new project, maintenance.

    Parameters
    ----------
    gpus : float
    start, end : str or Timestamp, optional
        Open by default.
    series : str, optional
        Series to change; required if there are several.
    """

    gpus: float
    start: Any = None
    end: Any = None
    series: str | None = None

    def apply(self, workload: pd.DataFrame, costs: JobCosts | None = None) -> pd.DataFrame:
        """Return the workload unchanged: the event is added to the forecast."""
        return workload

    def added_gpus(self, forecast: pd.DataFrame) -> FloatArray:
        """GPUs that the event adds to each row of a forecast."""
        ids = forecast["unique_id"].astype(str)
        names = list(ids.unique())
        if self.series is None and len(names) > 1:
            raise InputError(f"there are {len(names)} series; say which one the event adds to, with series=.")
        name = names[0] if self.series is None else check_choice("series", self.series, names)
        inside, ds = ids == name, forecast["ds"]
        if self.start is not None:
            inside &= ds >= parse_timestamp(self.start, ds.dt.tz)
        if self.end is not None:
            inside &= ds < parse_timestamp(self.end, ds.dt.tz)
        return np.where(inside, check_number("gpus", self.gpus), 0.0)


def rows_of(workload: pd.DataFrame, by: str, name: str) -> Any:
    """Mask of the rows whose column `by` is `name`; raises if there is none."""
    check_choice("by", by, [column for column in BY if column in workload.columns])
    return _equals(workload[by], by, name)


def _equals(values: pd.Series, what: str, name: str) -> Any:
    selected = (values == name).fillna(False).to_numpy(dtype=bool)
    if not selected.any():
        known = [str(value) for value in values.dropna().unique()]
        raise InputError(f"no recent job has the {what} {name!r}.{nearest(str(name), known)}")
    return selected
