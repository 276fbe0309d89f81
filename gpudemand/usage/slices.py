"""Usage of parts of GPUs by kind: MIG slices, shards and MPS."""

from __future__ import annotations

import math

import pandas as pd

from gpudemand._typing import STRING
from gpudemand.units import gpu_share, slice_shares

#: Kinds by the names that types of parts without a card have.
_KINDS = {"shard": "shard", "mps": "MPS"}
_SLICE, _WHOLE = "MIG slice", "whole GPU"


def usage_by_slice(gpu_types: pd.DataFrame) -> pd.DataFrame:
    """Rows of those GPU types that are parts of GPUs, with their kind.

    Shards and MPS that were asked for by the type of their card are with that type.

    Parameters
    ----------
    gpu_types : DataFrame
        As `gpudemand.stages.log_tables.usage_by_gpu_type` returns it, in whole GPUs.

    Returns
    -------
    DataFrame
        ``kind`` (``"MIG slice"``, ``"shard"``, ``"MPS"``, several joined by ``" + "``, with ``"whole GPU"`` if there
        are such in the same jobs), ``gpu_type``, ``gpu_share`` (that one slice is; missing of others, which are of any
        share), and the other columns. No rows where all GPUs are whole.

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
    rows["gpu_share"] = [float(gpu_share(name)) if slice_shares(name) else math.nan for name in rows["gpu_type"]]
    first = ["kind", "gpu_type", "gpu_share"]
    return rows[[*first, *rows.columns.difference(first, sort=False)]].astype({"kind": STRING, "gpu_share": float})


def _kind(name: str) -> str:
    """Kind of a GPU type, or of several that are joined by ``+``.

    Examples
    --------
    >>> _kind("a100"), _kind("1g.10gb+a100"), _kind("1g.12gb+me")
    ('whole GPU', 'MIG slice + whole GPU', 'MIG slice')
    """
    parts = [name] if slice_shares(name) else name.split("+")
    return " + ".join(sorted({_KINDS.get(part, _SLICE if slice_shares(part) else _WHOLE) for part in parts}))
