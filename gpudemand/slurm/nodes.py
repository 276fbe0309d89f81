"""GPUs installed over time, from the events of clusters and nodes that Slurm's accounting keeps."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pandas as pd

from gpudemand.units import gpu_share

#: What is asked for; the events of a whole cluster, which have no node, tell what all its nodes have.
EVENT_FIELDS = ("Cluster", "NodeName", "TimeStart", "TimeEnd", "State", "TRES")
_GPUS = re.compile(r"(?:^|,)gres/gpu(?::(?P<name>[^,=]+))?=(?P<count>\d+)")
#: GPUs whose type Slurm does not say.
UNKNOWN = "unknown"


def gpus_by_type(tres: str) -> dict[str, float]:
    """Count the GPUs of nodes by type, slices as shares; shards and MPS are parts of the same cards.

    Examples
    --------
    >>> gpus_by_type("cpu=8,gres/gpu=15,gres/gpu:1g.10gb=7,gres/gpu:a100=7,gres/shard=32")
    {'1g.10gb': 1.0, 'a100': 7.0, 'unknown': 1.0}
    """
    counts = {match["name"]: float(match["count"]) for match in _GPUS.finditer(tres)}
    untyped = counts.pop(None, 0.0) - sum(counts.values())
    shares = {name: float(Fraction(count) * gpu_share(name)) for name, count in counts.items()}
    return shares | ({UNKNOWN: untyped} if untyped > 0 else {})


def read_events(text: str) -> pd.DataFrame:
    r"""Read the answer of ``sacctmgr -P show event`` with the columns of `EVENT_FIELDS`.

    Returns
    -------
    DataFrame
        ``cluster``, ``node`` (empty for the whole cluster), ``begin``, ``end`` (NaT while it lasts), ``state``,
        ``gpu_type`` and ``gpus``: a row per event and GPU type; one of no GPUs for a cluster that has none.

    Examples
    --------
    >>> events = read_events("Cluster|NodeName|TimeStart|TimeEnd|State|TRES\nalps|n1|86400|Unknown|DOWN|gres/gpu=8")
    >>> events[["node", "begin", "gpu_type", "gpus"]].to_string(index=False, header=False)
    'n1 1970-01-02 00:00:00+00:00 unknown 8.0'
    """
    rows = []
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != len(EVENT_FIELDS) or not fields[2].isdecimal():
            continue
        cluster, node, begin, end, state, tres = fields
        counts = gpus_by_type(tres) or ({} if node else {UNKNOWN: 0.0})
        rows += [(cluster, node, begin, end, state, name, gpus) for name, gpus in counts.items()]
    events = pd.DataFrame(rows, columns=["cluster", "node", "begin", "end", "state", "gpu_type", "gpus"])
    for name in ("begin", "end"):
        seconds = pd.to_numeric(events[name].where(events[name].str.isdecimal().eq(True)), errors="coerce")
        events[name] = pd.to_datetime(seconds.astype(float), unit="s", utc=True)
    return events.astype({"gpus": float})


def installed_by_cluster(events: pd.DataFrame) -> dict[str, dict[str, dict[str, float]]]:
    r"""GPUs of each cluster by type, from each time on at which some type changed; of nodes that are down, too.

    A cluster whose controller is down keeps its nodes, so only the begin of an event counts.

    Examples
    --------
    >>> lines = ["Cluster|NodeName|TimeStart|TimeEnd|State|TRES", "alps||0|86400||gres/gpu=8,gres/gpu:a100=8"]
    >>> lines += ["alps||86400|Unknown||gres/gpu=12,gres/gpu:a100=8,gres/gpu:h100=4"]
    >>> installed_by_cluster(read_events("\n".join(lines)))["alps"]["h100"]
    {'1970-01-01T00:00:00+00:00': 0.0, '1970-01-02T00:00:00+00:00': 4.0}
    """
    whole = events[events["node"] == ""]
    found = {}
    for cluster, rows in whole.groupby("cluster"):
        wide = rows.pivot_table(index="begin", columns="gpu_type", values="gpus", aggfunc="sum").fillna(0.0)
        wide = wide.loc[:, wide.gt(0).any()]
        found[str(cluster)] = {str(name): changes(gpus) for name, gpus in wide.items()}
    return found


def gpus_down(events: pd.DataFrame) -> float:
    r"""Count the GPUs on nodes that are down or drained now.

    Examples
    --------
    >>> gpus_down(read_events("Cluster|NodeName|TimeStart|TimeEnd|State|TRES\nalps|n1|0|Unknown|DOWN|gres/gpu=8"))
    8.0
    """
    return float(events.loc[events["node"].ne("") & events["end"].isna(), "gpus"].sum())


def changes(gpus: pd.Series) -> dict[str, float]:
    """Numbers from each time on at which they changed, by the time in ISO form."""
    new = np.append(True, np.diff(gpus.to_numpy()) != 0)
    return {time.isoformat(): float(count) for time, count in gpus[new].items()}
