"""Summary tables of a job log: totals, usage shares, concentration, GPU types."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from gpudemand._typing import STRING
from gpudemand.stages.sources.source import Source
from gpudemand.usage.slices import usage_by_slice

#: Points of the Lorenz curve that are listed: the share of the k largest.
_TOP_K = (1, 3, 10, 30, 100)


def log_tables(source: Source, held: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Compute all tables of this module.

    Parameters
    ----------
    source : Source
    held : DataFrame
        GPUs held per bin, as `Source.usage` returns it.

    Returns
    -------
    dict of str to DataFrame
        ``log``, ``rejected``, ``gaps``, ``usage_shares``, ``concentration``, ``gpu_types``; ``slices`` where some GPUs
        are parts of one.
    """
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
    """Summarize a log in one row.

    Parameters
    ----------
    source : Source
    held : DataFrame
        GPUs held per bin, as `Source.usage` returns it.
    gpu_hours : float
        Sum of all.

    Returns
    -------
    DataFrame of one row
        ``kind``, ``source``, ``jobs`` (missing where they are not known), ``rejected``, ``users``, ``groups``,
        ``clusters``, ``gpu_types``, ``running``, ``first``, ``last``, ``gpu_hours``, ``max_held`` (whole GPUs held at
        once), ``unknown_gpus``, ``unknown_end``, ``unknown_start`` (jobs that count as held from their submission),
        ``processors`` (whether the log counts those).
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

    Examples
    --------
    >>> whole_gpus(65.3), whole_gpus(1 / 7 * 7 + 1e-12)
    (66.0, 1.0)
    """
    return float(np.ceil(np.round(gpus, 9)))


def rejected_rows(attrs: Mapping[str, object]) -> pd.DataFrame:
    """Count the rejected rows of a log by reason, the most frequent first.

    Examples
    --------
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

    Parameters
    ----------
    source : Source

    Returns
    -------
    DataFrame
        Column ``by``, ``gpu_hours``, ``share`` (of all GPU-hours), ``cumulative_share``, ``last_use``, and where jobs
        are known ``jobs``, ``median_wait_h`` and ``mean_wait_h`` (submit to start, hours) and ``completed`` (share of
        the finished jobs that completed).
    """
    by = source.settings.by
    hours = source.gpu_hours(by).sort_values(ascending=False, kind="stable")
    total = hours.sum()
    table = pd.DataFrame({"gpu_hours": hours, "share": hours / total if total else 0.0})
    table["cumulative_share"] = table["share"].cumsum()
    return table.join(source.facts(by)).rename_axis(by).reset_index().astype({by: STRING})


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


def usage_by_gpu_type(source: Source) -> pd.DataFrame:
    """Sum usage by GPU type; no rows where the log names no types.

    Parameters
    ----------
    source : Source

    Returns
    -------
    DataFrame
        ``gpu_type``, ``gpu_hours``, ``share``, ``jobs`` (where they are known), ``gpus_peak`` (most held at once), the
        largest first.
    """
    if not source.names("gpu_type"):
        return pd.DataFrame(columns=["gpu_type", "gpu_hours", "share", "jobs", "gpus_peak"])
    hours = source.gpu_hours("gpu_type")
    table = pd.DataFrame({"gpu_hours": hours, "share": hours / (hours.sum() or 1.0)})
    table = table.join(source.facts("gpu_type").filter(items=["jobs"])).assign(gpus_peak=source.most_held("gpu_type"))
    table = table.sort_values("gpu_hours", ascending=False, kind="stable")
    return table.rename_axis("gpu_type").reset_index().astype({"gpu_type": STRING})
