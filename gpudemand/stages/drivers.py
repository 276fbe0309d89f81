"""What changed in demand: users who came, left, grew and shrank, and GPU types."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.stages.log_tables import original_names
from gpudemand.stages.settings import Settings
from gpudemand.stages.usage_tables import demand_value
from gpudemand.usage.series import to_wide, usage_series

#: Longest period that is compared with the one before it.
_DAYS = 28


def explain_change(jobs: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """Split the change of mean demand between the last period and the one before it.

    Periods have 28 days, or half the log where that is shorter.

    Parameters
    ----------
    jobs : DataFrame
        Canonical job table.
    settings : Settings
        ``tz`` and ``until`` are read.

    Returns
    -------
    DataFrame
        ``driver``: ``total``; ``users who came``, ``left``, ``grew``, ``shrank`` (where users are named), which sum to
        the total; a row per GPU type where there are several. ``count`` (of users; 1 for a GPU type), ``before``,
        ``after`` and ``change_gpus``: mean GPUs; ``most``: the name with the largest change.

    Raises
    ------
    InputError
        If the log is shorter than two days.
    """
    named = {by: _means(jobs, by, settings) for by in ("user", "gpu_type") if jobs[by].notna().any()}
    users = named.get("user")
    rows = [_row("total", _means(jobs, None, settings) if users is None else users)]
    if users is not None:
        rows += [_row(f"users who {what}", users[selected]) for what, selected in _kinds(users).items()]
    if len(types := named.get("gpu_type", pd.DataFrame())) > 1:
        rows += [_row(f"GPU type {name}", types.loc[[name]]) for name in types.index]
    return pd.DataFrame(rows).astype({"driver": STRING, "most": STRING})


def _means(jobs: pd.DataFrame, by: str | None, settings: Settings) -> pd.DataFrame:
    """Mean GPUs ``before`` and ``after`` by name, the largest first."""
    value = demand_value(jobs)
    usage = usage_series(jobs, by=by, freq="D", value=value, until=settings.until, tz=settings.tz, partial=False)
    wide = to_wide(usage)
    days = min(_DAYS, wide.shape[1] // 2)
    if days < 1:
        raise InputError("the log is shorter than two whole days, so there is no change to explain.")
    means = {"before": wide.iloc[:, -2 * days : -days].mean(axis=1), "after": wide.iloc[:, -days:].mean(axis=1)}
    table = pd.DataFrame(means).rename(index={} if by is None else original_names(jobs, by))
    return table[table.any(axis=1)].sort_values("after", ascending=False, kind="stable")


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
