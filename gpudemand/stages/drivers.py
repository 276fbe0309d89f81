"""What changed in demand: users who came, left, grew and shrank, and GPU types."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.stages.sources.source import Source
from gpudemand.usage.series import to_wide

#: Period that is compared with the one before it.
_DAYS = 28


def explain_change(source: Source, days: int = _DAYS) -> pd.DataFrame:
    """Split the change of mean demand between the last period and the one before it.

    Parameters
    ----------
    source : Source
    days : int, default=28
        Length of a period; half the log where that is shorter.

    Returns
    -------
    DataFrame
        ``driver``: ``total``; ``users who came``, ``left``, ``grew``, ``shrank`` (where users are named; of usage
        without jobs ``namespaces that came``, ..., but not of GPU types), which sum to the total; a row per GPU type
        where there are several.
        ``count`` (of users; 1 for a GPU type), ``before``, ``after`` and ``change_gpus``: mean GPUs; ``most``: the name
        with the largest change. ``attrs["days"]`` is the length of a period.

    Raises
    ------
    InputError
        If the log is shorter than two days.
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


def _means(source: Source, by: str | None, days: int) -> pd.DataFrame:
    """Mean GPUs ``before`` and ``after`` by name, the largest first."""
    wide = to_wide(source.usage(by, "D", source.demand))
    days = min(days, wide.shape[1] // 2)
    if days < 1:
        raise InputError("the log is shorter than two whole days, so there is no change to explain.")
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
