"""Public measurements as features of `StepTimeModel`."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.cost.traced import TraceCache
from gpudemand._validation import InputError
from gpudemand.cost.graph_features import OPTIMIZER_STATES
from gpudemand.cost.networks import family_of
from gpudemand.cost.roofline import step_terms
from gpudemand.datasets.devices import Device, device

log = logging.getLogger(__name__)
#: Single precision without TF32; elsewhere ``fp32`` is TF32 on GPUs that have it, the default at the time.
_STRICT = "fp32-strict"
_PRECISIONS = {"amp": "fp16", _STRICT: "fp32"}
_NUMBERS = ("bandwidth_gb_s", "fp32_tflops", "sms", "boost_clock_mhz", "l2_mib", "year")


def jobs_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Features of the jobs in rows of `benchmarks.cost.load`; rows on unknown devices are logged and left out.

    Returns
    -------
    DataFrame
        Columns of `gpudemand.cost.features_from_jobs`, ``mode`` and ``n_nodes``; for grouping only ``graph``,
        ``network``, ``family``, ``host``, ``source``; ``step_time_s``.
    """
    known = np.array([_find(name) is not None for name in rows["device"]], dtype=bool)
    _log_left_out("device", rows.loc[~known, "device"])
    rows = rows[known]
    hardware = [_find(name) for name in rows["device"]]
    precision = [_precision(*pair) for pair in zip(rows["precision"], hardware, strict=True)]
    table = pd.DataFrame(
        {
            "framework": rows["framework"].replace({"pytorch": "torch"}),
            "precision": precision,
            "layout": rows["layout"].replace({"nchw": "contiguous", "nhwc": "channels_last"}),
            "execution": np.where(rows["compiled"], "compiled", "eager"),
            "device": ["cpu" if found.kind == "cpu" else "cuda" for found in hardware],
            "framework_version": rows["version"].map(lambda number: f"{int(number)}.{round(number % 1 * 100)}"),
            "optimizer_states": rows["optimizer"].map(OPTIMIZER_STATES).astype(float),
            **{name: rows[name] for name in ("mode", "batch_size", "n_gpus", "n_nodes")},
            **{f"device_{name}": [getattr(found, name) for found in hardware] for name in _NUMBERS},
            "device_name": [found.name for found in hardware],
            "device_die": [found.die for found in hardware],
            "device_interconnect_gb_s": [found.interconnect_bandwidth / 1e9 for found in hardware],
            "device_peak_tflops": [_peak(found, name) for found, name in zip(hardware, precision, strict=True)],
            **{name: rows[name] for name in ("graph", "network", "host", "source", "step_time_s")},
        }
    )
    families = {name: family_of(name) for name in table["network"].unique()}
    table["family"] = table["network"].map(families)
    supported = np.isfinite(table["device_peak_tflops"])
    _log_left_out("precision on the device", table["precision"][~supported] + " on " + table["device_name"][~supported])
    return table[supported].reset_index(drop=True)


def _log_left_out(what: str, values: pd.Series) -> None:
    counts = values.value_counts()
    if len(counts):
        named = ", ".join(f"{name} ({count})" for name, count in counts.items())
        log.warning("%d rows are left out, with no known %s: %s", len(values), what, named)


def with_terms(jobs: pd.DataFrame, cache: TraceCache) -> pd.DataFrame:
    """Add the work of every job (`step_terms`); rows whose network has no graph are dropped."""
    graphs = {key: cache.graph(key) for key in jobs["graph"].unique() if key in cache}
    jobs = jobs[jobs["graph"].isin(list(graphs))].reset_index(drop=True)
    return pd.concat([jobs, step_terms(jobs, [graphs[key] for key in jobs["graph"]])], axis=1)


@cache
def _find(name: str) -> Any:
    for spelling in (name, name.replace("_", " "), name.replace("NVIDIA_", "").replace("_", " ")):
        try:
            return device(spelling)
        except InputError:
            continue
    return None


def _precision(name: str, hardware: Device) -> str:
    if name == "fp32" and "tf32" in hardware.precisions:
        return "tf32"
    return _PRECISIONS.get(name, name)


def _peak(hardware: Device, precision: str) -> float:
    try:
        return hardware.peak(precision) / 1e12
    except InputError:
        return float("nan")
