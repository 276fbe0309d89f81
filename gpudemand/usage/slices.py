"""Usage of parts of GPUs by kind: MIG slices, shards, MPS, and other fractions of cards."""

from __future__ import annotations

import math

import pandas as pd

from gpudemand._array import STRING
from gpudemand.units import gpu_share, slice_shares

#: Kinds by the names that types of parts without a card have.
_KINDS = {"shard": "shard", "mps": "MPS"}
_SLICE, _WHOLE, _FRACTION = "MIG slice", "whole GPU", "fraction"
_MARK = f" ({_FRACTION})"
#: What sums of shares, such as a seventh, are off a whole number at most.
_ROUNDING = 1e-6


def mark_fractions(jobs: pd.DataFrame) -> pd.DataFrame:
    """Jobs, where those on a number of GPUs that is not whole have a type of their own, if no slice tells them apart.

    Examples
    --------
    >>> jobs = pd.DataFrame({"gpus": [2.0, 0.5, 1 / 7], "gpu_type": ["a100", "a100", "1g.10gb"]})
    >>> mark_fractions(jobs)["gpu_type"].tolist()
    ['a100', 'a100 (fraction)', '1g.10gb']
    """
    apart = (jobs["gpus"] - jobs["gpus"].round()).abs() > _ROUNDING
    if not apart.any():
        return jobs
    types = jobs["gpu_type"].astype(STRING).fillna("unknown")
    kinds = {name: _kind(name) for name in types.unique()}
    marked = jobs.assign(gpu_type=types.mask(apart & types.map(kinds).eq(_WHOLE), types + _MARK))
    marked.attrs = dict(jobs.attrs)
    return marked


def mark_type(series: str, place: int) -> str:
    """Name of a series of fractions: its part at a place is a GPU type.

    Examples
    --------
    >>> mark_type("ml/a100", 1)
    'ml/a100 (fraction)'
    """
    parts = series.split("/", place + 1)
    parts[place] += _MARK
    return "/".join(parts)


def usage_by_slice(gpu_types: pd.DataFrame) -> pd.DataFrame:
    """Rows of those GPU types that are parts of GPUs, with their kind.

    `gpu_types`: as `gpudemand.study.usage_tables.usage_by_gpu_type` returns it, in whole GPUs, of jobs with
    `mark_fractions`. Returns ``kind`` (``"MIG slice"``; ``"shard"`` and ``"MPS"`` where no card was named, or else
    ``"fraction"``, as with time-slicing; several joined by ``" + "``, with ``"whole GPU"`` if there are such in the
    same jobs), ``gpu_type``, ``gpu_share`` (that one slice is; missing of others, which are of any share), and the
    other columns. No rows where all GPUs are whole.

    References
    ----------
    NVIDIA, "Multi-Instance GPU User Guide", section "Supported MIG Profiles"; see `gpudemand.units.slice_shares`.

    Examples
    --------
    >>> types = pd.DataFrame({"gpu_type": ["a100", "1g.10gb", "shard"], "gpu_hours": [50.0, 7.0, 2.0]})
    >>> usage_by_slice(types)[["kind", "gpu_share", "gpu_hours"]].round(3).values.tolist()
    [['MIG slice', 0.143, 7.0], ['shard', nan, 2.0]]
    """
    kinds = gpu_types["gpu_type"].astype(object).map(_kind)
    rows = gpu_types.assign(kind=kinds)[kinds != _WHOLE].reset_index(drop=True)
    rows["gpu_type"] = rows["gpu_type"].astype(STRING).str.removesuffix(_MARK)
    rows["gpu_share"] = [float(gpu_share(name)) if slice_shares(name) else math.nan for name in rows["gpu_type"]]
    first = ["kind", "gpu_type", "gpu_share"]
    return rows[[*first, *rows.columns.difference(first, sort=False)]].astype({"kind": STRING, "gpu_share": float})


def is_whole(name: str) -> bool:
    """Whether a GPU type is of whole GPUs: no slice, shard or other part.

    Examples
    --------
    >>> is_whole("a100"), is_whole("1g.10gb"), is_whole("shard")
    (True, False, False)
    """
    return _kind(name) == _WHOLE


def _kind(name: str) -> str:
    """Kind of a GPU type, or of several that are joined by ``+``.

    Examples
    --------
    >>> _kind("a100"), _kind("1g.10gb+a100"), _kind("1g.12gb+me")
    ('whole GPU', 'MIG slice + whole GPU', 'MIG slice')
    """
    if name.endswith(_MARK):
        return _FRACTION
    parts = [name] if slice_shares(name) else name.split("+")
    return " + ".join(sorted({_KINDS.get(part, _SLICE if slice_shares(part) else _WHOLE) for part in parts}))
