"""Who uses GPUs alike: the users of a log in segments."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.report.analysis import tables
from gpudemand.report.analysis.settings import Settings
from gpudemand.segments import TopologicalSegmenter, segment_profiles
from gpudemand.usage.series import to_wide, usage_series

#: Below these a segment is an anecdote.
_FEWEST_USERS, _FEWEST_DAYS = 8, 28


@dataclass(frozen=True)
class Crowd:
    """Users and the segments that they are in.

    Parameters
    ----------
    wide : DataFrame, shape (n_users, n_days)
        GPU-hours per day of the users with any use, under the names that the log wrote.
    labels : Series of int
        Number of the segment by user; 0 has the most GPU-hours.
    profiles : DataFrame
        ``segment`` (its name) and the columns of `gpudemand.segments.segment_profiles`, the largest segment first.
    """

    wide: pd.DataFrame
    labels: pd.Series
    profiles: pd.DataFrame

    @property
    def members(self) -> pd.DataFrame:
        """Who is in which segment: ``user``, ``segment``."""
        names = self.profiles["segment"].to_numpy()[self.labels.to_numpy()]
        frame = pd.DataFrame({"user": self.labels.index, "segment": names})
        return frame.astype(STRING)

    @property
    def segment_of(self) -> dict[str, str]:
        """User -> name of the segment."""
        members = self.members
        return dict(zip(members["user"].astype(str), members["segment"].astype(str), strict=True))


def find_segments(jobs: pd.DataFrame, settings: Settings) -> Crowd:
    """Tell users apart by the shape of their daily use.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.
    settings : Settings
        ``tz`` and ``until`` are read.

    Returns
    -------
    Crowd

    Raises
    ------
    InputError
        If the log names too few users, or covers too few days, to tell anybody apart.
    """
    named = jobs[jobs["user"].notna()]
    if named.empty:
        raise InputError("the log names no users, so there is nobody to tell apart.")
    named.attrs = dict(jobs.attrs)
    wide = to_wide(usage_series(named, by="user", freq="D", value="gpu_hours", until=settings.until, tz=settings.tz))
    wide = wide[(wide > 0).any(axis=1)].rename(index=tables.written_names(named, "user"))
    wide.attrs = dict(jobs.attrs) | {"value": "gpu_hours", "freq": "D"}
    _check_enough(*wide.shape)
    labels = TopologicalSegmenter(random_state=0).fit(wide).labels_
    profiles = segment_profiles(wide, labels).rename(columns={"name": "segment", "gpu_hours_share": "share"})
    return Crowd(wide, pd.Series(labels, index=wide.index), profiles.reset_index(drop=True))


def _check_enough(users: int, days: int) -> None:
    if users < _FEWEST_USERS:
        raise InputError(f"segments need at least {_FEWEST_USERS} users with any use; the log has {users}.")
    if days < _FEWEST_DAYS:
        raise InputError(f"segments need at least {_FEWEST_DAYS} days of history; the log has {days}.")
