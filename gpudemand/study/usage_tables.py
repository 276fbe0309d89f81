"""Tables of usage: the log, its gaps, its users, idle GPUs, drivers of change."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gpudemand._array import STRING, BoolArray
from gpudemand._validation import InputError, Skipped
from gpudemand.forecast import longest_horizon
from gpudemand.jobs.table import gave_up, start_times
from gpudemand.planning.need import WINDOW
from gpudemand.study.settings import Settings
from gpudemand.study.source import Source
from gpudemand.units import format_number_of, parse_duration, usage_by_slice
from gpudemand.usage.bins import bin_edges, bin_ends, calendar_range, parse_freq
from gpudemand.usage.series import to_wide

#: Points of the Lorenz curve that are listed: the share of the k largest.
_TOP_K = (1, 3, 10, 30, 100)


def log_tables(source: Source, held: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Tables of this module, by the stem of their files."""
    shares = usage_shares(source)
    types = usage_by_gpu_type(source)
    apart = source.with_fractions_apart()
    slices = usage_by_slice(types if apart is source else usage_by_gpu_type(apart))
    tables = {
        "log": log_summary(source, held, float(shares["gpu_hours"].sum())),
        "rejected": rejected_rows(source.attrs),
        "gaps": gap_table(source),
        "usage_shares": shares,
        "concentration": concentration(shares),
        "gpu_types": types,
    }
    return tables | ({} if slices.empty else {"slices": slices})


def period_end(usage: pd.DataFrame) -> pd.Timestamp:
    """End of the period that `usage_series` covered, from its ``attrs``."""
    return pd.Timestamp(usage.attrs["until"])


def log_summary(source: Source, held: pd.DataFrame, gpu_hours: float) -> pd.DataFrame:
    """Summarize a log in one row; numbers that are not known are missing.

    ``max_held``: whole GPUs held at once. ``unknown_start``: jobs that count as held from their submission.
    ``processors``: whether the log counts those.
    """
    tz = source.settings.tz
    return pd.DataFrame(
        {
            "kind": str(source.attrs.get("kind", "")),
            "source": str(source.attrs.get("source", "")),
            **source.counts(),
            "rejected": int(rejected_rows(source.attrs)["rows"].sum()),
            "first": source.begin.tz_convert(tz),
            "last": period_end(held).tz_convert(tz),
            "gpu_hours": gpu_hours,
            "max_held": whole_gpus(source.most_held(None).max()),
            "unknown_gpus": int(held.attrs.get("unknown_gpus", 0)),
            "unknown_end": int(held.attrs.get("unknown_end", 0)),
            # Only the Standard Workload Format, which counts processors, says how many the machine has.
            "processors": "max_procs" in source.attrs,
        },
        index=[0],
    )


def whole_gpus(gpus: float) -> float:
    """Whole GPUs that some are a part of, such as slices.

    >>> whole_gpus(65.3), whole_gpus(1 / 7 * 7 + 1e-12)
    (66.0, 1.0)
    """
    return float(np.ceil(np.round(gpus, 9)))


def rejected_rows(attrs: Mapping[str, object]) -> pd.DataFrame:
    """Count the rejected rows of a log by reason, the most frequent first.

    >>> rejected_rows({"rejected": {"end before start": 3}}).values.tolist()
    [['end before start', 3]]
    """
    rejected = attrs.get("rejected")
    counts = sorted(dict(rejected if isinstance(rejected, Mapping) else {}).items(), key=lambda item: -item[1])
    reasons = pd.array([reason for reason, _ in counts], dtype=STRING)
    return pd.DataFrame({"reason": reasons, "rows": np.array([count for _, count in counts], dtype="int64")})


def gap_table(source: Source) -> pd.DataFrame:
    """Periods in which nothing was recorded: ``begin``, ``end`` and ``hours``, the longest first."""
    gaps = [(begin, end, (end - begin) / pd.Timedelta("1h")) for begin, end in source.gaps()]
    table = pd.DataFrame(gaps, columns=["begin", "end", "hours"])
    return table.sort_values("hours", ascending=False, kind="stable", ignore_index=True)


def usage_shares(source: Source) -> pd.DataFrame:
    """Share of each user (or group, cluster, GPU type) in the GPU-hours, the largest first.

    Waits are from submission to start; ``completed`` is the share of the finished jobs that completed.
    """
    by = source.settings.by
    hours = source.gpu_hours(by).sort_values(ascending=False, kind="stable")
    total = hours.sum()
    table = pd.DataFrame({"gpu_hours": hours, "share": hours / total if total else 0.0})
    table["cumulative_share"] = table["share"].cumsum()
    return table.join(source.facts(by)).rename_axis(by).reset_index().astype({by: STRING})


def concentration(shares: pd.DataFrame) -> pd.DataFrame:
    """Points of the Lorenz curve: share of the GPU-hours that the k largest hold.

    >>> import pandas as pd
    >>> concentration(pd.DataFrame({"cumulative_share": [0.5, 0.8, 0.9, 1.0]})).values.tolist()
    [[1.0, 4.0, 0.5], [3.0, 4.0, 0.9], [4.0, 4.0, 1.0]]
    """
    n = len(shares)
    counts = [count for count in _TOP_K if count < n] + [n]
    cumulative = shares["cumulative_share"].to_numpy()
    return pd.DataFrame({"largest": counts, "of": n, "share": [float(cumulative[count - 1]) for count in counts]})


def usage_by_gpu_type(source: Source) -> pd.DataFrame:
    """Sum usage by GPU type, the largest first; no rows where the log names no types."""
    if not source.names("gpu_type"):
        return pd.DataFrame(columns=["gpu_type", "gpu_hours", "share", "jobs", "gpus_peak"])
    hours = source.gpu_hours("gpu_type")
    table = pd.DataFrame({"gpu_hours": hours, "share": hours / (hours.sum() or 1.0)})
    table = table.join(source.facts("gpu_type").filter(items=["jobs"])).assign(gpus_peak=source.most_held("gpu_type"))
    table = table.sort_values("gpu_hours", ascending=False, kind="stable")
    return table.rename_axis("gpu_type").reset_index().astype({"gpu_type": STRING})


#: Names of the two forecast series, the mean demand of a bin and the most GPUs held at once in it, and of the
#: requirement by a target for waits.
MEAN, PEAK, WAIT = "mean", "peak", "wait"
#: Name of the profile of the week among what is skipped.
HOURLY = "week"


@dataclass(frozen=True)
class UsageTables:
    """Usage series and tables of a job log.

    `total`: ``mean`` of the GPUs wanted (held where the log has no submit times) and ``peak`` of the GPUs held, where
    it is known; `held`: their mean; both of whole bins only. `groups`: mean GPUs held per day, or per bin where that is
    longer. `hourly`: by all jobs, where it is known. `max_held`: see `usual_most_held`.
    """

    total: pd.DataFrame
    held: pd.DataFrame
    groups: pd.DataFrame
    hourly: pd.DataFrame | None
    max_held: float
    tables: dict[str, pd.DataFrame]


def compute_usage_tables(source: Source, skipped: Skipped | None = None) -> UsageTables:
    """Series and tables of a source; `skipped` gets the reason where peaks within a bin are not known."""
    freq, by = source.settings.freq, source.settings.by
    held = source.usage(None, freq, "gpus")
    if not source.most_held(None).max():
        raise InputError(_nothing_held(source.jobs))
    mean = held if source.demand == "gpus" else source.usage(None, freq, source.demand)
    series = {MEAN: mean}
    attempt = (Skipped() if skipped is None else skipped).attempt
    if (peak := attempt(PEAK, lambda: source.usage(None, freq, "gpus_peak"))) is not None:
        series[PEAK] = peak
    total = pd.concat([rows.assign(unique_id=name) for name, rows in series.items()], ignore_index=True)
    total.attrs = dict(mean.attrs)
    groups = source.usage(by, _display_freq(source.settings), "gpus", partial=True)
    hourly = attempt(HOURLY, lambda: source.usage(None, "h", "gpus"))
    most = whole_gpus(usual_most_held(source).max())
    return UsageTables(total, held, groups, hourly, most, log_tables(source, held))


def _nothing_held(jobs: pd.DataFrame) -> str:
    """Why no job of a log held a GPU, and what to do."""
    started = start_times(jobs).notna() & ~gave_up(jobs)
    if not started.any():
        return (
            "no job of this log has started, so none held a GPU; nothing to forecast. Take a log that goes further "
            "back, or, if some did start, give the column of their starts."
        )
    if jobs["gpus"][started].gt(0).any():
        return "every job of this log that has GPUs ended as it started, so none was held; nothing to forecast."
    return (
        "no job of this log held a GPU (gpus is 0 or unknown of all that started); nothing to forecast. Of Slurm, "
        "`gpudemand pull slurm --command-only` shows a command whose output has the GPUs of jobs."
    )


def usual_most_held(source: Source, by: str | None = None) -> pd.Series:
    """GPUs that stand for those installed where no number is given, of all or by name: see `usual_most`."""
    most = source.most_held(by)
    daily: dict[str, pd.Series] = {}
    for value in ("gpus_peak", "gpus"):  # of usage in steps of a day, its values are the peaks; longer steps have none
        with suppress(InputError):
            daily = {str(name): rows for name, rows in source.usage(by, "D", value).groupby("unique_id")["y"]}
            break
    none = pd.Series(dtype=float)
    return pd.Series({name: usual_most(daily.get(str(name), none), held) for name, held in most.items()}, dtype=float)


def usual_most(peaks: pd.Series, most: float) -> float:
    """GPUs held at once on at least three days, from the peaks of days; if fewer had any, the least of these.

    The most ever held, which may be one mistyped job, is taken of fewer than four weeks.

    >>> usual_most(pd.Series([64.0] * 30 + [8000.0]), 8000.0), usual_most(pd.Series([8.0, 64.0]), 64.0)
    (64.0, 64.0)
    """
    held = peaks[peaks > 0]
    return most if peaks.count() < 28 or held.empty else float(held.nlargest(3).iloc[-1])


def held_and_wanted(usage: UsageTables) -> pd.DataFrame:
    """Mean GPUs per bin: ``ds``, ``held``, ``wanted``.

    Wanted by jobs is what would be held if each had started when it was submitted; by pods, what they hold or wait for.
    """
    wanted = usage.total[usage.total["unique_id"] == MEAN]
    both = usage.held[["ds", "y"]].merge(wanted[["ds", "y"]], on="ds", suffixes=("_held", "_wanted"))
    return both.set_axis(["ds", "held", "wanted"], axis=1)


def default_horizon(source: Source) -> int:
    """Bins of the lead time and of four weeks after it, or as many as the log bears.

    An order today is used from the lead time on, and looked at again a month later.
    """
    settings = source.settings
    try:
        times = pd.DatetimeIndex(source.usage(None, settings.freq, source.demand)["ds"])
    except InputError:  # which is raised again where the history is needed
        return 1
    if len(times) < 2:
        return 1
    first = bin_ends(times[-1:], settings.freq)[0]
    ahead = first + parse_duration(settings.longest_lead_time) + WINDOW
    wanted = int((calendar_range(first, ahead, freq=settings.freq) < ahead).sum())
    return max(min(wanted, longest_horizon(pd.DataFrame({"unique_id": "", "ds": times, "y": 0.0}))), 1)


def hourly_demand(source: Source, settings: Settings) -> pd.DataFrame | None:
    """Demand by hour; None where bins are hours or shorter, where there is only one, or where hours are not known."""
    start = pd.Timestamp("2001-01-01")
    if settings.horizon < 2 or start + parse_freq(settings.freq) <= start + pd.Timedelta("1h"):
        return None
    return Skipped().attempt(HOURLY, lambda: source.usage(None, "h", source.demand).dropna(subset="y"))


def _display_freq(settings: Settings) -> str:
    """At least a day: an area chart of finer bins would have more of them than pixels."""
    start = pd.Timestamp("2001-01-01")
    finer = start + pd.tseries.frequencies.to_offset(settings.freq) < start + pd.Timedelta("1D")
    return "D" if finer else settings.freq


_KEYS = ("user", "group", "partition", "namespace")


def idle_hours(source: Source) -> dict[str, pd.DataFrame]:
    """GPU-hours held at little utilization, by user, group and partition, or by namespace; see `idle_table`."""
    keys = [key for key in _KEYS if source.names(key)]
    if not keys:
        raise InputError("the log names no users, groups or partitions, so it is not known whose GPUs were idle.")
    tables = {key: source.idle(key).rename(columns={"unique_id": key}) for key in keys}
    return {key: table.astype({key: STRING}) for key, table in tables.items()}


#: Period that is compared with the one before it.
_DAYS = 28


def explain_change(source: Source, days: int = _DAYS) -> pd.DataFrame:
    """Split the change of mean demand between the last period and the one before it.

    `days`: length of a period; half the log where that is shorter. Users who came, left, grew and shrank (where they
    are named) sum to the total; then a row per GPU type where there are several. ``most``: the name with the largest
    change.
    """
    named = {by: _means(source, by, days) for by in dict.fromkeys((source.unit, "gpu_type")) if source.names(by)}
    users = None if source.unit == "gpu_type" else named.get(source.unit)
    whose = f"{source.unit}s {'who' if source.unit == 'user' else 'that'}"
    total = _means(source, None, days) if users is None else users
    rows = [_row("total", total)]
    if users is not None:
        rows += [_row(f"{whose} {what}", users[selected]) for what, selected in _kinds(users).items()]
    if len(types := named.get("gpu_type", pd.DataFrame())) > 1:
        rows += [_row(f"GPU type {name}", types.loc[[name]]) for name in types.index]
    table = pd.DataFrame(rows).astype({"driver": STRING, "most": STRING})
    table.attrs = dict(total.attrs)
    return table


_NO_CHANGE = "the log is shorter than two whole days, so there is no change to explain."


def _means(source: Source, by: str | None, days: int) -> pd.DataFrame:
    """Mean GPUs ``before`` and ``after`` by name, the largest first."""
    edges = bin_edges(source.begin, max(source.begin, source.settings.end), "D", source.settings.tz)
    if len(edges) - 1 - bool(source.settings.end < edges[-1]) < 2:
        raise InputError(_NO_CHANGE)
    wide = to_wide(source.usage(by, "D", source.demand))
    days = min(days, wide.shape[1] // 2)
    if days < 1:
        raise InputError(_NO_CHANGE)
    means = {"before": wide.iloc[:, -2 * days : -days].mean(axis=1), "after": wide.iloc[:, -days:].mean(axis=1)}
    table = pd.DataFrame(means).fillna(0.0)
    table = table[table.any(axis=1)].sort_values("after", ascending=False, kind="stable")
    table.attrs = {"days": days}
    return table


def _kinds(users: pd.DataFrame) -> dict[str, pd.Series]:
    before, after = users["before"], users["after"]
    stayed = (before > 0) & (after > 0)
    return {
        "came": (before == 0) & (after > 0),
        "left": (before > 0) & (after == 0),
        "grew": stayed & (after >= before),
        "shrank": stayed & (after < before),
    }


def _row(driver: str, part: pd.DataFrame) -> dict[str, object]:
    change = part["after"] - part["before"]
    most = "" if change.empty else str(change.abs().idxmax())
    sums = {name: float(np.sum(part[name])) for name in ("before", "after")}
    return {"driver": driver, "count": len(part), **sums, "change_gpus": sums["after"] - sums["before"], "most": most}


#: Months before the end of the log that are told one by one.
_MONTHS = 12


def demand_by_period(source: Source) -> pd.DataFrame:
    """Mean demand of each user, group, cluster and GPU type: of the log, its last 28 days, its last twelve months.

    Of a log of fewer than 56 days, its second half stands for the last 28. ``change_gpus``: since the period before, of
    as many days, or the month before. Of each period the largest first.
    """
    keys = {key: len(source.names(key)) for key in (source.settings.by, source.unit, *source.keys)}
    shown = [key for key, names in keys.items() if names > 1] or [key for key, names in keys.items() if names][:1]
    if not shown:
        raise InputError("the log names no users, groups or GPU types, so it is not known whose demand it is.")
    table = pd.concat([_by_period(source, key) for key in shown], ignore_index=True)
    return table.astype({"by": STRING, "name": STRING, "period": STRING})


def _by_period(source: Source, by: str) -> pd.DataFrame:
    wide = to_wide(source.usage(by, "D", source.demand))
    days = pd.DatetimeIndex(wide.columns)
    months = days.tz_localize(None).to_period("M")
    named = {_month(month, int((months == month).sum())): month for month in months.unique()[-_MONTHS:][::-1]}
    chosen = {name: (months == month, months == month - 1) for name, month in named.items()}
    age, recent = np.arange(len(days), 0, -1), max(min(_DAYS, len(days) // 2), 1)
    chosen = {
        f"last {format_number_of('day', recent)}": (age <= recent, (age > recent) & (age <= 2 * recent)),
        "whole log": (age > 0, age < 0),
        **chosen,
    }
    return pd.concat([_period(wide, by, name, *days) for name, days in chosen.items()])


def _month(month: pd.Period, days: int) -> str:
    """Name of a month, of which the log has some days.

    >>> _month(pd.Period("2026-07"), 31), _month(pd.Period("2026-07"), 1)
    ('July 2026', 'July 2026 (1 day)')
    """
    return month.strftime("%B %Y") + (f" ({format_number_of('day', days)})" if days < month.days_in_month else "")


def _period(wide: pd.DataFrame, by: str, period: str, inside: BoolArray, before: BoolArray) -> pd.DataFrame:
    """Rows of a period; `inside`, `before`: of shape (n_days,)."""
    gpus, earlier = wide.loc[:, inside].mean(axis=1).fillna(0.0), wide.loc[:, before].mean(axis=1)
    table = pd.DataFrame({"gpus": gpus, "share": gpus / (gpus.sum() or 1.0)})
    table["change_gpus"] = gpus - earlier.fillna(0.0) if before.any() else np.nan
    table = table[gpus.gt(0) | table["change_gpus"].lt(0)].sort_values("gpus", ascending=False, kind="stable")
    days = pd.DatetimeIndex(wide.columns[inside])
    table.insert(0, "end", bin_ends(days[-1:], "D")[0])
    table.insert(0, "begin", days[0])
    table.insert(0, "period", period)
    table.insert(0, "by", by)
    return table.rename_axis("name").reset_index()
