"""Summary tables of a job log: totals, usage shares, concentration, GPU types."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from gpudemand._typing import STRING
from gpudemand.jobs.schema import STATUSES
from gpudemand.stages.settings import Settings
from gpudemand.usage.series import usage_series

_FINISHED = [status for status in STATUSES if status not in ("pending", "running", "requeued", "resized")]
#: Points of the Lorenz curve that are listed: the share of the k largest.
_TOP_K = (1, 3, 10, 30, 100)


def log_tables(jobs: pd.DataFrame, peak: pd.DataFrame, settings: Settings) -> dict[str, pd.DataFrame]:
    """Compute all tables of this module.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.
    peak : DataFrame
        Peak of the GPUs held per bin, as `usage_series` returns it.
    settings : Settings
        ``by``, ``tz`` and ``until`` are read.

    Returns
    -------
    dict of str to DataFrame
        ``log``, ``rejected``, ``usage_shares``, ``concentration``, ``gpu_types``.
    """
    shares = usage_shares(jobs, settings)
    return {
        "log": log_summary(jobs, peak, float(shares["gpu_hours"].sum()), settings.tz),
        "rejected": rejected_rows(jobs),
        "usage_shares": shares,
        "concentration": concentration(shares),
        "gpu_types": usage_by_gpu_type(jobs, settings),
    }


def begin_times(jobs: pd.DataFrame) -> pd.Series:
    """Start of each job; its submission where the start is unknown."""
    return jobs["start"].fillna(jobs["submit"])


def period_end(usage: pd.DataFrame) -> pd.Timestamp:
    """End of the period that `usage_series` covered, from its ``attrs``."""
    return pd.Timestamp(usage.attrs["until"])


def series_names(names: pd.Series) -> pd.Series:
    """Encode names as `usage_series` does, so that job tables and usage can be joined.

    Examples
    --------
    >>> import pandas as pd
    >>> series_names(pd.Series(["a/b", None])).tolist()
    ['a%2Fb', 'unknown']
    """
    text = names.astype(STRING)
    return text.where(text.str.len() > 0).fillna("unknown").str.replace("/", "%2F", regex=False)


def original_names(jobs: pd.DataFrame, by: str) -> dict[str, str]:
    """Map the names of series to the names in the log; the inverse of `series_names`.

    Examples
    --------
    >>> import pandas as pd
    >>> original_names(pd.DataFrame({"group": ["a/b", "a/b"]}), "group")
    {'a%2Fb': 'a/b'}
    """
    original = jobs[by].drop_duplicates()
    encoded = series_names(original)
    return dict(zip(encoded, original.astype(STRING).where(encoded != "unknown", "unknown"), strict=True))


def log_summary(jobs: pd.DataFrame, peak: pd.DataFrame, gpu_hours: float, tz: str) -> pd.DataFrame:
    """Summarize a log in one row.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.
    peak : DataFrame
        Peak of the GPUs held per bin, as `usage_series` returns it.
    gpu_hours : float
        Sum over all jobs.
    tz : str
        Zone in which the period is stated.

    Returns
    -------
    DataFrame of one row
        ``kind``, ``source``, ``jobs``, ``rejected``, ``first``, ``last``, ``users``, ``groups``, ``clusters``,
        ``gpu_types``, ``gpu_hours``, ``max_held`` (GPUs held at once), ``unknown_gpus``, ``unknown_end``, ``running``.
    """
    return pd.DataFrame(
        {
            "kind": str(jobs.attrs.get("kind", "")),
            "source": str(jobs.attrs.get("source", "")),
            "jobs": len(jobs),
            "rejected": sum(jobs.attrs.get("rejected", {}).values()),
            "first": begin_times(jobs).min().tz_convert(tz),
            "last": period_end(peak).tz_convert(tz),
            **{f"{name}s": jobs[name].nunique() for name in ("user", "group", "cluster", "gpu_type")},
            "gpu_hours": gpu_hours,
            "max_held": float(peak["y"].max()),
            "unknown_gpus": int(peak.attrs.get("unknown_gpus", 0)),
            "unknown_end": int(peak.attrs.get("unknown_end", 0)),
            "running": int((jobs["status"] == "running").sum()),
        },
        index=[0],
    )


def rejected_rows(jobs: pd.DataFrame) -> pd.DataFrame:
    """Count the rejected rows of a log by reason, the most frequent first.

    Examples
    --------
    >>> import pandas as pd
    >>> jobs = pd.DataFrame()
    >>> jobs.attrs["rejected"] = {"end before start": 3}
    >>> rejected_rows(jobs).values.tolist()
    [['end before start', 3]]
    """
    counts = sorted(jobs.attrs.get("rejected", {}).items(), key=lambda item: -item[1])
    reasons = pd.array([reason for reason, _ in counts], dtype=STRING)
    return pd.DataFrame({"reason": reasons, "rows": np.array([count for _, count in counts], dtype="int64")})


def usage_shares(jobs: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """Share of each user (or group, cluster, GPU type) in the GPU-hours, the largest first.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.
    settings : Settings
        ``by``, ``tz`` and ``until`` are read.

    Returns
    -------
    DataFrame
        Column ``by``, ``gpu_hours``, ``share`` (of all GPU-hours), ``cumulative_share``, ``jobs``, ``median_wait_h``
        and ``mean_wait_h`` (submit to start, hours), ``completed`` (share of the finished jobs that completed),
        ``last_use``.
    """
    usage = usage_series(jobs, by=settings.by, freq="MS", until=settings.until, tz=settings.tz)
    hours = usage.groupby("unique_id")["y"].sum().sort_values(ascending=False, kind="stable")
    total = hours.sum()
    by_name = _job_facts(jobs, settings.by, period_end(usage)).groupby("name")
    table = pd.DataFrame({"gpu_hours": hours, "share": hours / total if total else 0.0})
    table["cumulative_share"] = table["share"].cumsum()
    table["jobs"] = by_name.size().reindex(hours.index)
    table["median_wait_h"] = by_name["wait_h"].median()
    table["mean_wait_h"] = by_name["wait_h"].mean()
    table["completed"] = by_name["completed"].sum() / by_name["finished"].sum()
    table["last_use"] = by_name["last_use"].max().dt.tz_convert(settings.tz)
    return table.rename(index=original_names(jobs, settings.by)).rename_axis(settings.by).reset_index()


def _job_facts(jobs: pd.DataFrame, by: str, until: pd.Timestamp) -> pd.DataFrame:
    running = jobs["end"].isna() & (jobs["status"] == "running")
    last = jobs["end"].fillna(begin_times(jobs)).mask(running, until)
    return pd.DataFrame(
        {
            "name": series_names(jobs[by]),
            "wait_h": (jobs["start"] - jobs["submit"]).dt.total_seconds() / 3600,
            "completed": jobs["status"].eq("completed").fillna(False).astype(float),
            "finished": jobs["status"].isin(_FINISHED).astype(float),
            "last_use": last.where(last <= until, until),
        }
    )


def concentration(shares: pd.DataFrame) -> pd.DataFrame:
    """Points of the Lorenz curve: share of the GPU-hours that the k largest hold.

    Parameters
    ----------
    shares : DataFrame
        As `usage_shares` returns it.

    Returns
    -------
    DataFrame
        ``largest`` (k), ``of`` (how many there are) and ``share`` of the GPU-hours.

    Examples
    --------
    >>> import pandas as pd
    >>> concentration(pd.DataFrame({"cumulative_share": [0.5, 0.8, 0.9, 1.0]})).values.tolist()
    [[1.0, 4.0, 0.5], [3.0, 4.0, 0.9], [4.0, 4.0, 1.0]]
    """
    n = len(shares)
    counts = [count for count in _TOP_K if count < n] + [n]
    cumulative = shares["cumulative_share"].to_numpy()
    return pd.DataFrame({"largest": counts, "of": n, "share": [float(cumulative[count - 1]) for count in counts]})


def usage_by_gpu_type(jobs: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """Sum usage by GPU type; no rows where the log names no types.

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
    table = table.rename(index=original_names(jobs, "gpu_type"))
    return table.rename_axis("gpu_type").reset_index()[columns]
