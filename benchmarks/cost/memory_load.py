"""Public measurements of memory as tables of one shape, and the simulated features of the networks behind them.

A row is one job and its peak memory as reported by the driver, in GiB. ``fits`` is whether the job ran on the device
that it was measured on; missing where the measurement broke off for an unknown reason.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.cost.libraries import vision
from benchmarks.cost.traced import TraceCache
from gpudemand.cost.graph import OpGraph
from gpudemand.cost.liveness import Setting
from gpudemand.cost.memory import memory_features
from gpudemand.cost.memory_model import LOADED
from gpudemand.cost.networks import family_of

_MIB = 1024.0
#: MiB: from here on a value on the 40 GB card is the ceiling and not a measurement (SOURCE.md of gpumemnet).
_CEILING = 38000
#: A smaller value than that of the batch before, by this factor, is a run that broke off.
_DROP = 0.98


def gpumemnet(folder: Path) -> pd.DataFrame:
    """Training of timm networks in single precision on a card of 40 GB; ``usable`` as in SOURCE.md."""
    rows = pd.read_csv(folder / "timm_memory_faketensor.csv").rename(columns={"timm_model": "network"})
    rows = rows.sort_values(["network", "batch_size"], ignore_index=True)
    measured = rows["max_gpu_memory_mib_measured"].astype(float)
    before = measured.groupby(rows["network"]).shift()
    ceiling = measured >= _CEILING
    broken = (ceiling | (measured < _DROP * before)).groupby(rows["network"]).cummax()
    # What breaks off although the batch before took less than half of the card did not run out of memory.
    full = (ceiling | (broken & (before > _CEILING / 2))).groupby(rows["network"]).cummax()
    return pd.DataFrame(
        {
            "graph": rows["network"].map(_timm_key),
            "network": rows["network"],
            "batch_size": rows["batch_size"].astype(float),
            "optimizer": "momentum",
            "device_name": "A100-40GB",
            "device_sms": 108.0,
            # The version is not told; its smallest networks hold 1.7 GiB.
            LOADED: 1.0,
            "memory_gib": measured / _MIB,
            "fake_tensor_gib": rows["faketensor_total_mib"] / _MIB,
            "usable": ~broken,
            "fits": np.where(full, 0.0, np.where(broken, np.nan, 1.0)),
        }
    )


def _timm_key(network: str) -> str:
    vision()
    import timm

    config = timm.get_pretrained_cfg(network)
    return f"timm-sdpa:{network}@{config.input_size[-1] if config is not None else 0}"


def schedtune(folder: Path) -> pd.DataFrame:
    """Training of torchvision networks on several generations of GPUs, identified in SOURCE.md by their SMs."""
    rows = pd.read_csv(folder / "model_stats.csv")
    return pd.DataFrame(
        {
            "graph": "torchvision:" + rows["model"] + "@224",
            "network": rows["model"],
            "batch_size": rows["batch_size"].astype(float),
            "optimizer": "momentum",
            "device_name": rows["gpu_inferred"],
            "device_sms": rows["sm_count"].astype(float),
            LOADED: 1.0,
            "memory_gib": rows["peak_mem_mib"] / _MIB,
            "usable": True,
            "fits": 1.0,
        }
    )


READERS = {"gpumemnet": gpumemnet, "schedtune": schedtune}


def public_memory(data: Path, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Features of the usable rows on an A100."""
    rows = gpumemnet(data / "gpumemnet")
    return described(rows[rows["usable"]], cache, trace=trace)


def described(rows: pd.DataFrame, cache: TraceCache, *, trace: bool = True) -> pd.DataFrame:
    """Add `memory_features` and the family; missing graphs are traced, networks without one are dropped."""
    if trace:
        cache.trace(rows["graph"].unique())
    rows = rows[rows["graph"].map(lambda key: key in cache)].reset_index(drop=True)
    features = _features(rows, cache)
    index = pd.MultiIndex.from_frame(rows[["graph", "optimizer", "batch_size"]])
    found = features.reindex(index).reset_index(drop=True)
    return pd.concat([rows.assign(family=rows["network"].map(family_of)), found], axis=1)


def _features(rows: pd.DataFrame, cache: TraceCache) -> pd.DataFrame:
    file = cache.folder / "memory.parquet"
    known = pd.read_parquet(file) if file.is_file() else pd.DataFrame()
    if set(known.columns) != set(memory_features(OpGraph.from_operators([], []), [1]).columns) - {"batch_size"}:
        known = pd.DataFrame()  # of another version
    keys = ["graph", "optimizer", "batch_size"]
    missing = rows.loc[~pd.MultiIndex.from_frame(rows[keys]).isin(known.index), keys].drop_duplicates()
    new = [
        memory_features(cache.graph(graph), sorted(jobs["batch_size"]), Setting(optimizer)).assign(
            graph=graph, optimizer=optimizer
        )
        for (graph, optimizer), jobs in missing.groupby(keys[:2])
    ]
    if new:
        known = pd.concat([known, pd.concat(new).set_index(keys)])
        known.to_parquet(file)
    return known
