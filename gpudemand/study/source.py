"""What a study is of: a job log, or usage series."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np
import pandas as pd

from gpudemand._array import STRING
from gpudemand._tables import printable
from gpudemand._validation import (
    InputError,
    UnlikelyJobsWarning,
    UnlikelyUsageWarning,
    as_pandas,
    check_usage,
    stack_level,
)
from gpudemand.forecast.panel import infer_freq, mean_step
from gpudemand.jobs.columns import name_of_part, path_part
from gpudemand.jobs.plausibility import complete_period_of, doubts, unlikely_jobs
from gpudemand.jobs.schema import COLUMNS, DOUBTS, FINISHED
from gpudemand.jobs.table import as_jobs, begin_times, check_jobs, checked_as_of, gave_up, start_times
from gpudemand.jobs.times import parse_timestamp
from gpudemand.planning.need import WINDOW, NeedForecast, WaitTarget, forecast_need, forecast_peaks, wait_target
from gpudemand.study.pools import of_aliases, rename_series, rename_types, reserved_price
from gpudemand.study.settings import BY, DEFAULT_SHARE, DEFAULT_WAIT, EACH, Aliases, Settings
from gpudemand.units import format_number_of, mark_fractions, mark_type
from gpudemand.usage.bins import are_midnights, bin_edges, bin_ends, parse_freq
from gpudemand.usage.idle import checked_idle_table, idle_table
from gpudemand.usage.read import binned_means, check_days, gaps_between, pulled_usage, tells
from gpudemand.usage.runs import Runs, RunsQuery
from gpudemand.usage.series import checked_usage, end_of_record, key_columns, to_long, whole_bins

#: A column, or the part that each user belongs to; None is the total.
Key: TypeAlias = str | Mapping[str, str] | None
_NOT_OVER = ("pending", "running", "requeued", "resized")


@dataclass(frozen=True, eq=False)
class JobSource:
    """Usage of the jobs of a log, by any key in bins of any width, with the names of the log.

    `settings`: with what the log says of them. `unit`: key of those who use GPUs. `keys`: those that divide the total
    into parts, the preferred first.

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
    def of(cls, jobs: pd.DataFrame, settings: Settings) -> Self:
        """The log as it stood at ``settings.until``, or all of it where it stops being complete before that."""
        jobs = rename_types(jobs, settings.type_aliases)
        until = end = end_of_record(jobs)
        if settings.until is not None:
            until = parse_timestamp(settings.until, settings.tz, "until")
            _check_begun(jobs, until)
        # A log that names nobody has its total; another key is the reader's own choice and must be there.
        by = "total" if settings.by == "user" and jobs["user"].isna().all() else settings.by
        settings = replace(settings, until=until, by=by, wait=settings.wait or DEFAULT_WAIT)
        source = cls(checked_as_of(jobs, until) if until < end else jobs, settings)
        return replace(source, settings=source.settings.with_pulled(jobs.attrs, source.names))

    @property
    def attrs(self) -> Mapping[str, object]:
        """``kind``, ``source`` and ``rejected`` of the log."""
        return {str(name): value for name, value in self.jobs.attrs.items()}

    @cached_property
    def begin(self) -> pd.Timestamp:
        """First start, or submission where the start is unknown."""
        return self._complete_from or begin_times(self.jobs).min()

    @cached_property
    def _complete_from(self) -> pd.Timestamp | None:
        return complete_period_of(self.jobs)[0]

    @cached_property
    def demand(self) -> str:
        """``wanted``, or ``gpus`` where the log does not tell when jobs were submitted."""
        return "wanted" if tells_waits(self.jobs) else "gpus"

    def need(self, target: WaitTarget | None, by: str | None = None, name: str = "") -> NeedForecast:
        """GPUs that windows of the log need so that the target for waits is met, or one of its pools alone.

        All targets move as the default one: each with the noise of a growth of its own, a stricter one could require
        fewer.
        """
        assert target is not None
        jobs = self.jobs if by is None else self.jobs[(self.jobs[by] == name).fillna(False).to_numpy(dtype=bool)]
        usual = wait_target(DEFAULT_WAIT, DEFAULT_SHARE)
        if (like := self._usual_needs.get((by, name))) is None:
            like = self._usual_needs[by, name] = forecast_need(jobs, usual, self.settings.end)
        return like if target == usual else replace(forecast_need(jobs, target, self.settings.end), like=like)

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
        return usage.copy() if partial else self._whole(usage, freq)

    def _whole(self, usage: pd.DataFrame, freq: str) -> pd.DataFrame:
        """Usage without bins that the log covers only in part."""
        times, begin = pd.DatetimeIndex(usage["ds"].unique()), self._complete_from
        end = bin_edges(times[-1], times[-1] + pd.Timedelta("1s"), freq, self.settings.tz)[-1:]
        until, first = pd.Timestamp(str(self.settings.until)), self.jobs[["submit", "start"]].min().min()
        bins = whole_bins(times.append(end), begin or first, until, known=begin is not None)
        inside = usage["ds"].between(times[bins][0], times[bins][-1])
        whole = usage[inside].reset_index(drop=True)
        whole.attrs = dict(usage.attrs)
        return whole

    @cached_property
    def _usual_needs(self) -> dict[tuple[str | None, str], NeedForecast]:
        return {}

    @cached_property
    def _computed(self) -> dict[Any, pd.DataFrame]:
        return {}

    @cached_property
    def _runs(self) -> Runs:
        return Runs.of(self.jobs)

    @cached_property
    def _queries(self) -> dict[str | None, RunsQuery]:
        return {}

    def _query(self, key: str | None) -> RunsQuery:
        """Queries of the log by a column, kept."""
        if key not in self._queries:
            self._queries[key] = RunsQuery(self.jobs, key_columns(key), self._runs)
        return self._queries[key]

    def _usage(self, by: Key, freq: str, value: str) -> pd.DataFrame:
        jobs, key = self._keyed(by)
        log = self._query(key) if jobs is self.jobs else RunsQuery(jobs, key_columns(key), self._runs)
        usage = checked_usage(jobs, key, freq, value, until=self.settings.until, tz=self.settings.tz, log=log)
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
        jobs, until = self.jobs, self.settings.end
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

    def gaps(self) -> list[tuple[pd.Timestamp, pd.Timestamp]]:
        """None: a log of jobs does not tell them."""
        return []

    def unlikely(self) -> list[str]:
        """What `read_jobs` doubts, and what is unlikely in the jobs themselves; see `unlikely_jobs`."""
        said = [*doubts(self.jobs.attrs), *unlikely_jobs(self.jobs, self.settings.total_installed), *self.silence()]
        return list(dict.fromkeys(said))

    def silence(self) -> list[str]:
        """Sentence on a last window of the period in which nothing was recorded, as never before for so long."""
        jobs, until = self.jobs, self.settings.end
        newest = jobs[["submit", "start", "end"]].max().max()
        last = max(newest, complete_period_of(jobs)[1] or newest)
        # Of one cluster the log may go on with others; what only says what runs was looked at then.
        part = self.settings.cluster not in (None, EACH)
        told = jobs["end"].isna().all() and jobs["status"].eq("running").any()
        if part or told or until - last <= WINDOW or until - last <= _longest_pause(jobs):
            return []
        n_open = _is_running(jobs).sum()
        still = f", and {format_number_of('job', n_open)} without an end as running until then" * bool(n_open)
        return [
            f"until={until:%Y-%m-%d} is {(until - last).days} days after the last time of this log, {last:%Y-%m-%d}, "
            "longer than the window of four weeks by which it is judged what is needed: it counts as if nobody wanted "
            f"GPUs since{still}. Leave until out, or add the jobs since."
        ]

    def with_fractions_apart(self) -> JobSource:
        """With GPU types of their own for jobs on fractions of GPUs, as `mark_fractions` names them."""
        marked = mark_fractions(self.jobs)
        return self if marked is self.jobs else replace(self, jobs=marked)


def _check_begun(jobs: pd.DataFrame, until: pd.Timestamp) -> None:
    first = begin_times(jobs).min()
    if until <= first:
        raise InputError(f"until={until} is before the log begins, at {first}; nothing is left of it.")


def _longest_pause(jobs: pd.DataFrame) -> pd.Timedelta:
    """Longest time without a submission, start or end between the first and the last."""
    times = np.sort(np.concatenate([jobs[name].dropna().array.asi8 for name in ("submit", "start", "end")]))
    return pd.Timedelta(int(np.diff(times).max(initial=0)), unit=jobs["submit"].dt.unit)


def _is_running(jobs: pd.DataFrame) -> pd.Series:
    """Jobs that began and have no end, unless their state tells that they are over."""
    return jobs["end"].isna() & start_times(jobs).notna() & ~jobs["status"].isin(FINISHED)


def tells_waits(jobs: pd.DataFrame) -> bool:
    """Whether some job was submitted before it started; where a log has no submit times, they are set to the starts."""
    return bool((jobs["start"].isna() | (jobs["submit"] < jobs["start"])).any())


def original_names(jobs: pd.DataFrame, by: str) -> dict[str, str]:
    """Map the names of series, as `usage_series` encodes them, to the names in the log.

    >>> original_names(pd.DataFrame({"group": ["a/b", None]}), "group")
    {'a%2Fb': 'a/b', 'unknown': 'unknown'}
    """
    original = jobs[by].drop_duplicates().astype(STRING)
    original = original.where(original.str.len() > 0).fillna("unknown")
    return {path_part(name): name for name in original}


_HOUR = pd.Timedelta("1h")


def is_usage(table: pd.DataFrame) -> bool:
    """Whether a table holds usage over time rather than jobs."""
    return {"unique_id", "ds", "y"} <= set(table.columns) and "gpus" not in table.columns


@dataclass(frozen=True, eq=False)
class SeriesSource:
    """GPUs held over time, by whom, where jobs are not known.

    Waits, sizes and run times of jobs, and peaks within a sample raise an `InputError`. `wide`: shape (n_times,
    n_series); a sample stands for the time until `step` later. NaN is not known; a time that is missing is a gap.
    `keys`: what the parts of the name of a series are, separated by ``/``. `wanted`: GPUs held and those that pods
    waited for at the times of `wide`, also of those who held none; None where it is not known.

    >>> ds = pd.date_range("2026-03-01", periods=4, freq="12h", tz="UTC")
    >>> usage = pd.DataFrame({"unique_id": "ml", "ds": ds, "y": [2.0, 4.0, None, 8.0]})
    >>> source = SeriesSource.of(usage, Settings(by="group"))
    >>> source.usage("group", "D", "gpus")["y"].tolist(), [(a.day, b - a) for a, b in source.gaps()]
    ([3.0, 8.0], [(2, Timedelta('0 days 12:00:00'))])
    """

    wide: pd.DataFrame
    keys: tuple[str, ...]
    step: pd.Timedelta
    settings: Settings
    attrs: Mapping[str, object]
    wanted: pd.DataFrame | None = None

    @classmethod
    def of(cls, usage: object, settings: Settings, tz: str | None = None) -> SeriesSource:
        """Source of a long table, in the zone `tz`, or else that of its times.

        A series without a row has 0 where another has one, and NaN is not known; before its first value it is 0. The
        attributes that `pulled_usage` gives say what series are, how long a sample is, and what is installed.
        """
        table = check_usage(as_pandas(usage, "usage"), allow_missing=True)
        attrs, times = {str(name): value for name, value in table.attrs.items()}, table["ds"]
        if times.dt.tz is None and tz is None:
            raise InputError("the times of usage have no time zone; pass tz=.")
        if (value := attrs.get("value", "gpus")) not in ("gpus", "wanted"):
            raise InputError(f"this usage is in {value}, not in mean GPUs; make it with value='gpus' (--value gpus).")
        zone = tz or str(times.dt.tz)
        local = times.dt.tz_localize(zone) if times.dt.tz is None else times.dt.tz_convert(zone)
        check_days(are_midnights(pd.DatetimeIndex(times)), pd.DatetimeIndex(local), str(attrs.get("source", "usage")))
        wide = _samples(table.assign(ds=local))
        last, freq = wide.index[-1:], None if "step" in attrs else infer_freq(wide.index)
        step = pd.Timedelta(str(attrs["step"])) if freq is None else mean_step(freq)
        keys = tuple(str(attrs.get("by", settings.by)).split("/"))
        keys = keys if set(keys) <= {*BY} - {"total"} else ("user",)
        wide = rename_series(wide, keys, settings.type_aliases, attrs)
        end = (last + step if freq is None else bin_ends(last, freq))[0]
        until = end if settings.until is None else min(parse_timestamp(settings.until, zone, "until"), end)
        recorded = parse_timestamp(attrs.get("until", end), zone)  # the last bin of `usage_series` may not be whole
        if until > recorded:
            until, attrs = recorded, _warned_of_rows_after(recorded, local, attrs)
        by = settings.by if settings.by == "total" or settings.by in keys else keys[0]
        wide = wide[wide.index < until]
        if wide.empty or not wide.max(axis=None) > 0:
            raise InputError("no series of this usage holds a GPU in the period; nothing to forecast.")
        wanted = _wanted(wide, keys, attrs, settings.type_aliases)
        source = cls(wide, keys, step, replace(settings, tz=zone, until=until, by=by, wait=None), attrs, wanted)
        return replace(source, settings=source.settings.with_pulled(attrs, source.names))

    @property
    def unit(self) -> str:
        """First key."""
        return self.keys[0]

    @property
    def jobs(self) -> pd.DataFrame:
        """Refused."""
        raise InputError("this is usage over time and no jobs, so waits, sizes and run times of jobs are not known.")

    @property
    def begin(self) -> pd.Timestamp:
        """First sample."""
        return self.wide.index[0]

    @property
    def demand(self) -> str:
        """``wanted`` where pods that waited were pulled, or else ``gpus``: only held ones are known."""
        return "gpus" if self.wanted is None else "wanted"

    @cached_property
    def _parts(self) -> pd.DataFrame:
        """Names of each series, a column per key."""
        columns = self.wide.columns if self.wanted is None else self.wanted.columns
        names = columns.to_series().astype(str)
        several = len(self.keys) - 1
        parts = names.str.split("/", n=several, expand=True) if several else names.to_frame()
        return parts.set_axis(self.keys, axis=1).map(name_of_part)

    def _by_key(self, by: Key, value: str = "gpus") -> pd.DataFrame:
        """Samples summed by name; unknown where a part of the sum is."""
        wide = self.wide
        if value == "wanted":
            if self.wanted is None:
                raise InputError("this is usage of GPUs held and no jobs, so the GPUs wanted are not known.")
            wide = self.wanted
        if by is None or by == "total":
            return wide.sum(axis=1, skipna=False).to_frame("total")
        if isinstance(by, str) and by not in self.keys:
            raise InputError(f"this usage is by {' and '.join(self.keys)}, so it cannot be split by {by}.")
        parts = self._parts.loc[wide.columns]
        names = parts[by] if isinstance(by, str) else parts[self.unit].map(by)
        known = wide.T.groupby(names.to_numpy())
        return known.sum(min_count=1).where(known.count().eq(known.size(), axis=0)).T

    def need(self, target: WaitTarget | None, by: str | None = None, name: str = "") -> NeedForecast:
        """The most GPUs held (and waited for) at once in windows of the record, or in one of its pools alone."""
        samples = self._by_key(by, "gpus" if self.wanted is None else self.demand)
        samples = samples[name if by else "total"]
        days = (self.settings.end - samples.index - self.step) // pd.Timedelta("1D")
        daily = samples.groupby(np.maximum(days, 0)).agg(["max", "mean"])
        daily = daily.reindex(range(int(daily.index.max()), -1, -1))
        if (width := int(self.step / pd.Timedelta("1D"))) > 1:  # a sample stands for all of its days
            daily = daily.bfill(limit=width - 1)
        return forecast_peaks(daily["max"].to_numpy(), daily["mean"].to_numpy())

    def names(self, by: str) -> list[str]:
        """Names of a key; none of another one, or where it is not known."""
        return sorted({*self._parts.loc[self.wide.columns, by]} - {"unknown"}) if by in self.keys else []

    def usage(self, by: Key, freq: str, value: str, *, partial: bool = False) -> pd.DataFrame:
        """Mean GPUs (``gpus``), ``gpu_hours`` at that mean, or the largest sample (``gpus_peak``) of each bin."""
        start = pd.Timestamp("2001-01-01")
        width, samples = start + parse_freq(freq) - start, self._by_key(by, value)
        if width < self.step or (value == "gpus_peak" and width < 2 * self.step):
            what = f"in bins of {freq}" if width < self.step else f"at most within bins of {freq}"
            raise InputError(f"usage is known as means over {_words(self.step)}, so it is not known {what}.")
        edges = bin_edges(self.begin, self.settings.until, freq, self.settings.tz)
        bins = binned_means(samples, freq, self.step).iloc[: len(edges) - 1]  # some days have less than 24 hours
        if value == "gpus_peak":
            most = samples.groupby(edges.searchsorted(samples.index, side="right") - 1).max()
            bins = most.set_axis(edges[:-1][most.index]).reindex(bins.index).where(bins.notna())
        if value == "gpu_hours":
            bins = bins.mul((edges[1:] - edges[:-1]) / _HOUR, axis=0)
        whole = bins if partial or self.settings.until >= edges[-1] or len(bins) == 1 else bins.iloc[:-1]
        return self._long(whole.loc[whole.notna().any(axis=1).idxmax() :], freq, value)

    def _long(self, wide: pd.DataFrame, freq: str, value: str) -> pd.DataFrame:
        table = to_long(wide.T.rename_axis("unique_id"))
        table["unique_id"] = table["unique_id"].astype(STRING)
        table.attrs = {"kind": self.attrs.get("kind", ""), "value": value, "freq": freq}
        table.attrs["until"] = self.settings.end.isoformat()
        return table

    def gpu_hours(self, by: str) -> pd.Series:
        """GPU-hours of the samples, by name."""
        return self._by_key(by).sum() * (self.step / _HOUR)

    def most_held(self, by: Key) -> pd.Series:
        """Largest sample, by name."""
        return self._by_key(by).max()

    def facts(self, by: str) -> pd.DataFrame:
        """``last_use`` by name."""
        held = self._by_key(by) > 0
        last = held[::-1].idxmax().where(held.any()) + self.step
        return pd.DataFrame({"last_use": last.clip(upper=self.settings.until)})

    def counts(self) -> dict[str, int | None]:
        """Number of names by key; that of jobs is not known."""
        keys = dict.fromkeys(("user", "group", "cluster", "gpu_type", *self.keys))
        return {"jobs": None, **{f"{key}s": len(self.names(key)) for key in keys}, "running": 0, "unknown_start": 0}

    def idle(self, by: str) -> pd.DataFrame:
        """Of the samples of the store that the usage was read from."""
        if "store" not in self.attrs:
            raise InputError("this usage is only that of GPUs held, so what is idle is not known.")
        price = of_aliases(reserved_price(self.settings.prices), self.settings.type_aliases)
        return idle_table(str(self.attrs["store"]), by, price=price, until=self.settings.end)

    def workload(self, since: pd.Timestamp) -> pd.DataFrame:
        """Each day of each series as if it were one job; those who use GPUs take the place of the users."""
        recent = self.wide[self.wide.index >= since]
        daily = to_long(binned_means(recent, "D", self.step).T).set_axis(["series", "start", "gpus"], axis=1)
        daily = daily[daily["gpus"] > 0].reset_index(drop=True)
        named = self._parts.loc[daily["series"]].reset_index(drop=True)
        named = named.assign(user=named[self.unit]).filter(items=list(COLUMNS))
        end = bin_ends(pd.DatetimeIndex(daily["start"]), "D")
        return as_jobs(pd.concat([daily, named], axis=1).assign(end=end), kind=str(self.attrs.get("kind", "")))

    def gaps(self) -> list[tuple[pd.Timestamp, pd.Timestamp]]:
        """Periods without a sample, or in which one is not known."""
        times = self.wide.dropna().index
        return gaps_between(times, self.step) if len(times) else []

    def unlikely(self) -> list[str]:
        """What the source of the samples doubts."""
        return doubts(self.attrs)

    def silence(self) -> list[str]:
        """None: the period ends with the last sample."""
        return []

    def with_fractions_apart(self) -> SeriesSource:
        """Series of time-sliced GPUs apart from those of whole ones, where a store tells them; or else itself."""
        if "gpu_type" not in self.keys or not _tells(self.attrs, "shared"):
            return self
        shared = _pulled(self.wide, self.keys, self.attrs, "shared", self.settings.type_aliases)
        whole = self.wide.sub(shared, fill_value=0.0)[self.wide.columns]
        marked = shared.rename(columns=lambda name: mark_type(str(name), self.keys.index("gpu_type")))
        return replace(self, wide=pd.concat([whole, marked], axis=1), wanted=None)


def _warned_of_rows_after(until: pd.Timestamp, times: pd.Series, attrs: dict[str, object]) -> dict[str, object]:
    """Attributes of usage; warns, and records in them, how many rows begin after the end that they name."""
    beyond = times[times >= until]
    if beyond.empty:
        return attrs
    said = (
        f"{len(beyond):,} of {format_number_of('row', len(times))} of this usage, from {beyond.min()} on, do not "
        f"count: its attrs['until'], {until}, says that it was recorded until then. If they are right, remove that: "
        "usage.attrs.pop('until')."
    )
    warnings.warn(said, UnlikelyUsageWarning, stacklevel=stack_level())
    return attrs | {DOUBTS: [*doubts(attrs), said]}


def _samples(table: pd.DataFrame) -> pd.DataFrame:
    """Times by series: 0 where others have a row, NaN where a value is missing after the first."""
    wide = table.pivot(index="ds", columns="unique_id", values="y")
    missing = table.assign(y=table["y"].isna()).pivot(index="ds", columns="unique_id", values="y").eq(True)
    samples = wide.fillna(0.0).mask(missing & wide.ffill().notna())
    return samples[wide.notna().any(axis=1)].rename_axis(index=None, columns=None)


def _wanted(
    wide: pd.DataFrame, keys: tuple[str, ...], attrs: Mapping[str, object], aliases: Aliases
) -> pd.DataFrame | None:
    """GPUs held and those of pods that waited, where the usage is what a store has of held ones."""
    if not _tells(attrs, "pending"):
        return None
    pending = _pulled(wide, keys, attrs, "pending", aliases)
    every = [*wide.columns, *pending.columns.difference(wide.columns)]
    pending = pending.reindex(columns=every, fill_value=0.0)
    return wide.reindex(columns=every).fillna(dict.fromkeys(every[wide.shape[1] :], 0.0)).add(pending)


def _tells(attrs: Mapping[str, object], measure: str) -> bool:
    """Whether the usage is what a store has of held GPUs, which also has others."""
    return "store" in attrs and attrs.get("measure") == "held" and tells(str(attrs["store"]), measure)


def _pulled(
    wide: pd.DataFrame, keys: tuple[str, ...], attrs: Mapping[str, object], measure: str, aliases: Aliases
) -> pd.DataFrame:
    """Another measure of the same store at the times of `wide`."""
    found = pulled_usage(str(attrs["store"]), measure, "/".join(keys), tz=wide.index.tz)
    series = rename_series(found.pivot(index="ds", columns="unique_id", values="y"), keys, aliases, attrs)
    return series.reindex(wide.index, fill_value=0.0)


def _words(step: pd.Timedelta) -> str:
    days = step / pd.Timedelta("1D")
    return f"{days:.3g} days" if days >= 1 else f"{step / _HOUR:.3g} h"


#: What a study is of. What a source does not know raises an `InputError` with the reason.
Source: TypeAlias = JobSource | SeriesSource


def source_of(given: pd.DataFrame, settings: Settings, tz: str | None) -> Source:
    """Source of the stages from a job table, or from usage without jobs, as it was given."""
    if is_usage(given):
        names = printable(given[["unique_id"]])
        usage = given.assign(unique_id=names["unique_id"])
        usage.attrs = dict(given.attrs)
        return SeriesSource.of(usage, settings, tz)
    checked = check_jobs(given, tz=tz, allow_unknown=True)
    source = JobSource.of(printable(checked), settings)
    for sentence in source.unlikely():
        if sentence not in doubts(checked.attrs):  # of which its reader has warned
            warnings.warn(sentence, UnlikelyJobsWarning, stacklevel=stack_level())
    return source
