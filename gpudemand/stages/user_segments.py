"""Segments of users by the shape of their daily usage."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.forecast.base.windows import fill_missing
from gpudemand.segments import ExtrapolationWarning, TopologicalSegmenter, segment_profiles
from gpudemand.stages.sources.source import Source
from gpudemand.usage.series import to_wide

#: Smallest sample that is segmented.
_MIN_USERS, _MIN_DAYS, _WEEK = 8, 28, 7
_EXTRAPOLATED = (
    "Most {unit}s use GPUs unlike those on whose histories the distances between {unit}s were fitted: the segments may "
    "mean little."
)


@dataclass(frozen=True)
class UserSegments:
    """Users and their segments.

    Parameters
    ----------
    wide : DataFrame, shape (n_users, n_days)
        GPU-hours per day of the users with non-zero usage; index: names as in the log.
    labels : Series of int
        Segment number by user; 0 has the most GPU-hours.
    profiles : DataFrame
        ``segment`` (its name) and the columns of `gpudemand.segments.segment_profiles`, the largest segment first.
    notes : tuple of str
        What to beware of.
    """

    wide: pd.DataFrame
    labels: pd.Series
    profiles: pd.DataFrame
    notes: tuple[str, ...] = ()

    @property
    def members(self) -> pd.DataFrame:
        """Membership table: ``user``, ``segment``."""
        names = self.profiles["segment"].to_numpy()[self.labels.to_numpy()]
        return pd.DataFrame({"user": self.labels.index, "segment": names}).astype(STRING)

    @property
    def segment_of(self) -> dict[str, str]:
        """Name of the segment by user."""
        members = self.members.astype(str)
        return dict(zip(members["user"], members["segment"], strict=True))


def segment_users(source: Source) -> UserSegments:
    """Cluster users by the shape of their daily usage.

    Parameters
    ----------
    source : Source
        Days that were not recorded count like the same day of the week before.

    Returns
    -------
    UserSegments

    Raises
    ------
    InputError
        If the log names too few users or covers too few days.
    """
    names = source.names(source.unit)
    if not names:
        raise InputError("the log names no users, so there are no segments.")
    daily = to_wide(source.usage(source.unit, "D", "gpu_hours", partial=True))
    wide = daily[daily.index.isin(names) & (daily > 0).any(axis=1)].astype(float)
    wide = wide.set_axis(wide.index.astype(STRING)).where(wide.notna(), fill_missing(wide.to_numpy(), _WEEK))
    wide.attrs = dict(source.attrs) | {"value": "gpu_hours", "freq": "D"}
    n_users, n_days = wide.shape
    if n_users < _MIN_USERS:
        raise InputError(f"segments need at least {_MIN_USERS} {source.unit}s with usage; the log has {n_users}.")
    if n_days < _MIN_DAYS:
        raise InputError(f"segments need at least {_MIN_DAYS} days of history; the log has {n_days}.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ExtrapolationWarning)
        labels = TopologicalSegmenter(random_state=0).fit(wide).labels_
    extrapolates = any(warning.category is ExtrapolationWarning for warning in caught)
    profiles = segment_profiles(wide, labels).rename(columns={"name": "segment", "gpu_hours_share": "share"})
    notes = (_EXTRAPOLATED.format(unit=source.unit),) if extrapolates else ()
    return UserSegments(wide, pd.Series(labels, index=wide.index), profiles.reset_index(drop=True), notes)
