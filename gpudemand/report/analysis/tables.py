"""Tables of a job log: what was read, who uses how much, on which GPUs."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from gpudemand._typing import STRING
from gpudemand.jobs.table import STATUSES
from gpudemand.report.analysis.settings import Settings
from gpudemand.usage.series import usage_series

_FINISHED = [status for status in STATUSES if status not in ("pending", "running")]
_LARGEST = (1, 3, 10, 30, 100)


def begin_of(jobs: pd.DataFrame) -> pd.Series:
    """When each job began to hold GPUs: its start, or its submit where no start is known."""
    return jobs["start"].fillna(jobs["submit"])


def until_of(usage: pd.DataFrame) -> pd.Timestamp:
    """End of the period that `usage_series` covered, from its ``attrs``."""
    return pd.Timestamp(usage.attrs["until"])


def series_names(names: pd.Series) -> pd.Series:
    """Name series as `usage_series` does, so that tables of jobs and of usage can be joined.

    Examples
    --------
    >>> import pandas as pd
    >>> series_names(pd.Series(["a/b", None])).tolist()
    ['a%2Fb', 'unknown']
    """
    text = names.astype(STRING)
    return text.where(text.str.len() > 0).fillna("unknown").str.replace("/", "%2F", regex=False)


def written_names(jobs: pd.DataFrame, by: str) -> dict[str, str]:
    """Map the names of series back to what the log wrote.

    Examples
    --------
    >>> import pandas as pd
    >>> written_names(pd.DataFrame({"group": ["a/b", "a/b"]}), "group")
    {'a%2Fb': 'a/b'}
    """
    wrote = jobs[by].drop_duplicates()
    named = series_names(wrote)
    return dict(zip(named, wrote.astype(STRING).where(named != "unknown", "unknown"), strict=True))


def what_was_read(jobs: pd.DataFrame, peak: pd.DataFrame, gpu_hours: float, tz: str) -> pd.DataFrame:
    """Sum a log up in one row.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.
    peak : DataFrame
        Most GPUs held per bin by all, as `usage_series` returns it.
    gpu_hours : float
        Of all jobs together.
    tz : str
        Zone in which the period is stated.

    Returns
    -------
    DataFrame of one row
        ``kind``, ``source``, ``jobs``, ``rejected``, ``first``, ``last``, ``users``, ``groups``, ``clusters``,
        ``gpu_types``, ``gpu_hours``, ``most_held`` (GPUs held at once), ``unknown_gpus``, ``unknown_end``, ``running``.
    """
    return pd.DataFrame(
        {
            "kind": str(jobs.attrs.get("kind", "")),
            "source": str(jobs.attrs.get("source", "")),
            "jobs": len(jobs),
            "rejected": sum(jobs.attrs.get("rejected", {}).values()),
            "first": begin_of(jobs).min().tz_convert(tz),
            "last": until_of(peak).tz_convert(tz),
            "users": jobs["user"].nunique(),
            "groups": jobs["group"].nunique(),
            "clusters": jobs["cluster"].nunique(),
            "gpu_types": jobs["gpu_type"].nunique(),
            "gpu_hours": gpu_hours,
            "most_held": float(peak["y"].max()),
            "unknown_gpus": int(peak.attrs.get("unknown_gpus", 0)),
            "unknown_end": int(peak.attrs.get("unknown_end", 0)),
            "running": int((jobs["status"] == "running").sum()),
        },
        index=[0],
    )


def rejected_rows(jobs: pd.DataFrame) -> pd.DataFrame:
    """Count the rows that were left out of a log, by reason, the commonest first.

    Examples
    --------
    >>> import pandas as pd
    >>> jobs = pd.DataFrame()
    >>> jobs.attrs["rejected"] = {"end before start": 3}
    >>> rejected_rows(jobs).values.tolist()
    [['end before start', 3]]
    """
    counts = sorted(jobs.attrs.get("rejected", {}).items(), key=lambda item: -item[1])
    return pd.DataFrame(
        {
            "reason": pd.array([reason for reason, _ in counts], dtype=STRING),
            "rows": np.array([count for _, count in counts], dtype="int64"),
        }
    )


def who_uses(jobs: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """List users (or groups, clusters, GPU types) by GPU-hours, the largest first.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.
    settings : Settings
        ``by``, ``tz`` and ``until`` are read.

    Returns
    -------
    DataFrame
        Column ``by``, ``gpu_hours``, ``share`` (of all GPU-hours), ``running_share`` (this row and those above),
        ``jobs``, ``median_wait_h`` and ``mean_wait_h`` (submit to start, hours), ``completed`` (share of the finished
        jobs that completed), ``last_use``.
    """
    usage = usage_series(jobs, by=settings.by, freq="MS", until=settings.until, tz=settings.tz)
    hours = usage.groupby("unique_id")["y"].sum().sort_values(ascending=False, kind="stable")
    total = hours.sum()
    facts = _facts(jobs, settings.by, until_of(usage)).groupby("name")
    table = pd.DataFrame({"gpu_hours": hours, "share": hours / total if total else 0.0})
    table["running_share"] = table["share"].cumsum()
    table["jobs"] = facts.size().reindex(hours.index)
    table["median_wait_h"] = facts["wait_h"].median()
    table["mean_wait_h"] = facts["wait_h"].mean()
    table["completed"] = facts["completed"].sum() / facts["finished"].sum()
    table["last_use"] = facts["last_use"].max().dt.tz_convert(settings.tz)
    return table.rename(index=written_names(jobs, settings.by)).rename_axis(settings.by).reset_index()


def _facts(jobs: pd.DataFrame, by: str, until: pd.Timestamp) -> pd.DataFrame:
    begin = begin_of(jobs)
    running = jobs["end"].isna() & (jobs["status"] == "running")
    last = jobs["end"].fillna(begin).mask(running, until)
    last = last.where(last <= until, until)
    return pd.DataFrame(
        {
            "name": series_names(jobs[by]),
            "wait_h": (jobs["start"] - jobs["submit"]).dt.total_seconds() / 3600,
            "completed": jobs["status"].eq("completed").fillna(False).astype(float),
            "finished": jobs["status"].isin(_FINISHED).astype(float),
            "last_use": last,
        }
    )


def concentration(who: pd.DataFrame) -> pd.DataFrame:
    """Read points off the Lorenz curve: what share of the GPU-hours the largest ones hold.

    Parameters
    ----------
    who : DataFrame
        As `who_uses` returns it.

    Returns
    -------
    DataFrame
        ``largest`` (how many of the largest), ``of`` (how many there are) and ``share`` of the GPU-hours.

    Examples
    --------
    >>> import pandas as pd
    >>> concentration(pd.DataFrame({"running_share": [0.5, 0.8, 0.9, 1.0]})).values.tolist()
    [[1.0, 4.0, 0.5], [3.0, 4.0, 0.9], [4.0, 4.0, 1.0]]
    """
    n = len(who)
    counts = [count for count in _LARGEST if count < n] + [n]
    share = who["running_share"].to_numpy()
    return pd.DataFrame({"largest": counts, "of": n, "share": [float(share[count - 1]) for count in counts]})


def by_gpu_type(jobs: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """Sum usage up by type of GPU; no rows where the log names no types.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.
    settings : Settings
        ``tz`` and ``until`` are read.

    Returns
    -------
    DataFrame
        ``gpu_type``, ``gpu_hours``, ``share``, ``jobs``, ``gpus_peak`` (most held at once), the largest first.
    """
    columns = ["gpu_type", "gpu_hours", "share", "jobs", "gpus_peak"]
    if jobs["gpu_type"].isna().all():
        return pd.DataFrame(columns=columns)
    monthly = partial(usage_series, jobs, by="gpu_type", freq="MS", until=settings.until, tz=settings.tz)
    hours = monthly(value="gpu_hours").groupby("unique_id")["y"].sum()
    peak = monthly(value="gpus_peak").groupby("unique_id")["y"].max()
    table = pd.DataFrame({"gpu_hours": hours, "share": hours / (hours.sum() or 1.0), "gpus_peak": peak})
    table["jobs"] = series_names(jobs["gpu_type"]).value_counts()
    table = table.sort_values("gpu_hours", ascending=False, kind="stable")
    table = table.rename(index=written_names(jobs, "gpu_type"))
    return table.rename_axis("gpu_type").reset_index()[columns]
