"""Where the usage of a study comes from: one interface above job logs and above usage without jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeAlias, TypeVar

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.jobs.as_of import checked_as_of, gave_up, start_times
from gpudemand.jobs.schema import FINISHED
from gpudemand.jobs.time_parser import parse_timestamp
from gpudemand.stages.sources.by_pool import reserved_price
from gpudemand.stages.sources.settings import Settings
from gpudemand.stages.sources.type_aliases import rename_types
from gpudemand.stages.sources.unlikely import unlikely_jobs
from gpudemand.usage.bins import bin_edges
from gpudemand.usage.idle import checked_idle_table
from gpudemand.usage.series import checked_usage, drop_last_bin, end_of_record
from gpudemand.usage.slices import mark_fractions

#: A column, or the part that each user belongs to; None is the total.
Key: TypeAlias = str | Mapping[str, str] | None
_NOT_OVER = ("pending", "running", "requeued", "resized")
Self = TypeVar("Self", bound="JobSource")


class Source(Protocol):
    """Usage by any key in bins of any width, with the names of the log; see `JobSource`.

    What a source does not know raises an `InputError` with the reason.
    """

    @property
    def settings(self) -> Settings:
        """``by``, ``tz``, ``until`` and ``installed`` with what the source says of them."""
        ...

    @property
    def attrs(self) -> Mapping[str, object]:
        """``kind``, ``source`` and ``rejected`` of the data."""
        ...

    @property
    def unit(self) -> str:
        """Key of those who use GPUs: users of jobs; namespaces, users or groups of usage without jobs."""
        ...

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys that divide the total into parts, the preferred first."""
        ...

    @property
    def jobs(self) -> pd.DataFrame:
        """Canonical job table."""
        ...

    @property
    def begin(self) -> pd.Timestamp:
        """First time of the period."""
        ...

    @property
    def demand(self) -> str:
        """What demand is: GPUs ``wanted``, or those held (``gpus``) where it is not known when they were asked for."""
        ...

    def names(self, by: str) -> list[str]:
        """Names in the column of a key; none where it is not known."""
        ...

    def usage(self, by: Key, freq: str, value: str, *, partial: bool = False) -> pd.DataFrame:
        """``unique_id``, ``ds``, ``y`` as `usage_series` defines them; NaN where nothing was recorded."""
        ...

    def gpu_hours(self, by: str) -> pd.Series:
        """GPU-hours that were recorded, by name."""
        ...

    def most_held(self, by: Key) -> pd.Series:
        """Most GPUs held at once, by name."""
        ...

    def facts(self, by: str) -> pd.DataFrame:
        """What else is known of each name, of the columns of `gpudemand.stages.log_tables.usage_shares`."""
        ...

    def counts(self) -> dict[str, int | None]:
        """Numbers of jobs, users, ..., as `gpudemand.stages.log_tables.log_summary` names them."""
        ...

    def idle(self, by: str) -> pd.DataFrame:
        """GPU-hours held at little utilization, as `gpudemand.usage.idle.idle_table` gives them."""
        ...

    def workload(self, since: pd.Timestamp) -> pd.DataFrame:
        """Work since a time, which scenarios change, as a job table."""
        ...

    def gaps(self) -> list[tuple[pd.Timestamp, pd.Timestamp]]:
        """Periods in which nothing was recorded."""
        ...

    def unlikely(self) -> list[str]:
        """Sentences on jobs that are likely entered wrong."""
        ...

    def with_fractions_apart(self) -> Source:
        """The same, but for the GPU types of jobs on fractions of GPUs, as `mark_fractions` names them."""
        ...


@dataclass(frozen=True, eq=False)
class JobSource:
    """Usage of the jobs of a log.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table, as `check_jobs` returns it.
    settings : Settings
        ``tz`` and ``until`` are read.

    Examples
    --------
    >>> from gpudemand.datasets import make_cluster
    >>> jobs, _ = make_cluster(n_users=3, n_days=30, random_state=0)
    >>> source = JobSource.of(jobs, Settings())
    >>> source.unit, len(source.names("user"))
    ('user', 3)
    """

    jobs: pd.DataFrame
    settings: Settings
    unit: str = "user"
    keys: tuple[str, ...] = ("group", "cluster", "gpu_type")

    @classmethod
    def of(cls: type[Self], jobs: pd.DataFrame, settings: Settings) -> Self:
        """The log as it stood at ``settings.until``, or all of it where it stops being complete before that."""
        jobs = rename_types(jobs, settings.type_aliases)
        until = end = end_of_record(jobs)
        if settings.until is not None:
            until = parse_timestamp(settings.until, settings.tz, "until")
            _check_begun(jobs, until)
        source = cls(checked_as_of(jobs, until) if until < end else jobs, replace(settings, until=until))
        return replace(source, settings=source.settings.with_pulled(jobs.attrs, source.names))

    @property
    def attrs(self) -> Mapping[str, object]:
        """``kind``, ``source`` and ``rejected`` of the log."""
        return {str(name): value for name, value in self.jobs.attrs.items()}

    @cached_property
    def begin(self) -> pd.Timestamp:
        """First start, or submission where the start is unknown."""
        return begin_times(self.jobs).min()

    @cached_property
    def demand(self) -> str:
        """``wanted``, or ``gpus`` where the log does not tell when jobs were submitted."""
        return "wanted" if tells_waits(self.jobs) else "gpus"

    def names(self, by: str) -> list[str]:
        """Names in a column; none where there is no such column."""
        return sorted(self.jobs[by].dropna().astype(str).unique()) if by in self.jobs else []

    def usage(self, by: Key, freq: str, value: str, *, partial: bool = False) -> pd.DataFrame:
        """Usage as `usage_series` computes it, under the names of the log; kept where `by` is a column."""
        place = (None if by == "total" else by, freq, value)
        if isinstance(by, Mapping):
            usage = self._usage(by, freq, value)
        elif (usage := self._computed.get(place)) is None:
            usage = self._computed[place] = self._usage(by, freq, value)
        last = usage["ds"].iloc[-1]
        end = bin_edges(last, last + pd.Timedelta("1s"), freq, self.settings.tz)[-1]
        return usage.copy() if partial or self.settings.until >= end else drop_last_bin(usage)

    @cached_property
    def _computed(self) -> dict[Any, pd.DataFrame]:
        return {}

    def _usage(self, by: Key, freq: str, value: str) -> pd.DataFrame:
        jobs, key = self._keyed(by)
        usage = checked_usage(jobs, key, freq, value, until=self.settings.until, tz=self.settings.tz)
        if key is not None:
            attrs = usage.attrs
            usage = usage.assign(unique_id=usage["unique_id"].map(original_names(jobs, key)).astype(STRING))
            usage.attrs = attrs
        return usage

    def _keyed(self, by: Key) -> tuple[pd.DataFrame, str | None]:
        """Jobs and the column by which they are split; parts take the place of the group."""
        if isinstance(by, str) or by is None:
            return self.jobs, None if by == "total" else by
        jobs = self.jobs.assign(group=self.jobs["user"].astype(str).map(by).astype(STRING))
        jobs.attrs = dict(self.jobs.attrs)
        return jobs, "group"

    def gpu_hours(self, by: str) -> pd.Series:
        """GPU-hours by name."""
        return self.usage(by, "D", "gpu_hours", partial=True).groupby("unique_id")["y"].sum()

    def most_held(self, by: Key) -> pd.Series:
        """Most GPUs held at once, by name."""
        return self.usage(by, self.settings.freq, "gpus_peak", partial=True).groupby("unique_id")["y"].max()

    def facts(self, by: str) -> pd.DataFrame:
        """``jobs``, ``median_wait_h``, ``mean_wait_h``, ``completed`` and ``last_use`` by name."""
        jobs, until = self.jobs, pd.Timestamp(str(self.settings.until))
        running = _is_running(jobs)
        last = jobs["end"].fillna(start_times(jobs)).mask(running, until).mask(gave_up(jobs))
        finished = jobs["status"].isin([status for status in FINISHED if status not in _NOT_OVER])
        table = pd.DataFrame(
            {
                "wait_h": (jobs["start"] - jobs["submit"]).dt.total_seconds() / 3600,
                "completed": jobs["status"].eq("completed").fillna(False).astype(float),
                "finished": finished.astype(float),
                "last_use": last.mask(last > until, until),
            }
        )
        names = pd.Series("total", index=jobs.index) if by == "total" else jobs[by].fillna("unknown")
        groups = table.groupby(names)
        facts = pd.DataFrame({"jobs": groups.size(), "median_wait_h": groups["wait_h"].median()})
        facts["mean_wait_h"] = groups["wait_h"].mean()
        facts["completed"] = groups["completed"].sum() / groups["finished"].sum()
        return facts.assign(last_use=groups["last_use"].max().dt.tz_convert(self.settings.tz))

    def counts(self) -> dict[str, int | None]:
        """``jobs``, ``users``, ``groups``, ``clusters``, ``gpu_types``, ``running`` and ``unknown_start``."""
        named = {f"{name}s": int(self.jobs[name].nunique()) for name in ("user", "group", "cluster", "gpu_type")}
        held = (
            self.jobs["start"].isna() & start_times(self.jobs).notna() & self.jobs["gpus"].gt(0) & ~gave_up(self.jobs)
        )
        running = int(_is_running(self.jobs).sum())
        return {"jobs": len(self.jobs), **named, "running": running, "unknown_start": int(held.sum())}

    def idle(self, by: str) -> pd.DataFrame:
        """Of jobs that ended, where the log tells their utilization."""
        return checked_idle_table(self.jobs, by, reserved_price(self.settings.prices), self.settings.pool)

    def workload(self, since: pd.Timestamp) -> pd.DataFrame:
        """The jobs that were submitted since."""
        recent = self.jobs[self.jobs["submit"] >= since]
        recent.attrs = dict(self.jobs.attrs)
        return recent

    def gaps(self) -> list[tuple[pd.Timestamp, pd.Timestamp]]:
        """None: a log of jobs does not tell them."""
        return []

    def unlikely(self) -> list[str]:
        """Jobs whose times or GPUs are far from those of all others; see `unlikely_jobs`."""
        return unlikely_jobs(self.jobs, self.settings)

    def with_fractions_apart(self) -> Source:
        """Itself, if no job has a fraction."""
        marked = mark_fractions(self.jobs)
        return self if marked is self.jobs else replace(self, jobs=marked)


def _check_begun(jobs: pd.DataFrame, until: pd.Timestamp) -> None:
    first = begin_times(jobs).min()
    if until <= first:
        raise InputError(f"until={until} is before the log begins, at {first}; nothing is left of it.")


def _is_running(jobs: pd.DataFrame) -> pd.Series:
    """Jobs that began and have no end, unless their state tells that they are over."""
    return jobs["end"].isna() & start_times(jobs).notna() & ~jobs["status"].isin(FINISHED)


def begin_times(jobs: pd.DataFrame) -> pd.Series:
    """Start of each job; its submission where the start is unknown."""
    return jobs["start"].fillna(jobs["submit"])


def tells_waits(jobs: pd.DataFrame) -> bool:
    """Whether some job was submitted before it started; where a log has no submit times, they are set to the starts."""
    return bool((jobs["start"].isna() | (jobs["submit"] < jobs["start"])).any())


def original_names(jobs: pd.DataFrame, by: str) -> dict[str, str]:
    """Map the names of series, as `usage_series` encodes them, to the names in the log.

    Examples
    --------
    >>> original_names(pd.DataFrame({"group": ["a/b", None]}), "group")
    {'a%2Fb': 'a/b', 'unknown': 'unknown'}
    """
    original = jobs[by].drop_duplicates().astype(STRING)
    original = original.where(original.str.len() > 0).fillna("unknown")
    return dict(zip(original.str.replace("/", "%2F", regex=False), original, strict=True))
