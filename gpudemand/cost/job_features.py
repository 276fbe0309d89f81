"""Features of jobs: hyper-parameters, graphs and devices, a row a job."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterable
from typing import Any

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError
from gpudemand.cost.graph.features import OPTIMIZER_STATES
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.hardware import Device
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.regression.feature_table import CATEGORIES, NUMBERS, features_of_graphs
from gpudemand.cost.roofline.interconnect import group_bandwidth

_DEVICE_NUMBERS = ("bandwidth_gb_s", "fp32_tflops", "sms", "boost_clock_mhz", "l2_mib", "year")


def features_from_jobs(jobs: TrainingJob | Iterable[TrainingJob]) -> pd.DataFrame:
    """Features of jobs: hyper-parameters, graphs and devices, never a network's name.

    Parameters
    ----------
    jobs : TrainingJob or iterable of TrainingJob
        Each network is traced once.

    Returns
    -------
    DataFrame
        A row a job. The columns of `gpudemand.cost.features_from_rows` (``device`` is ``cpu`` or ``cuda``), ``n_gpus``,
        ``n_nodes`` (machines), ``network_gb_s`` (of a ring among the GPUs, a direction), ``checkpointing`` (0 or 1),
        ``framework_version``, and of the device ``device_name``, ``device_die``, ``device_memory_gib`` (usable by
        processes), ``device_peak_tflops`` (at the job's precision), ``device_interconnect_gb_s``,
        ``device_bandwidth_gb_s``, ``device_fp32_tflops``, ``device_sms``, ``device_boost_clock_mhz``, ``device_l2_mib``
        and ``device_year``.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Linear(64, 10)
    >>> jobs = [TrainingJob(net, (64,), batch_size=n, device="T4") for n in (8, 16)]
    >>> features_from_jobs(jobs)[["framework", "batch_size", "flops", "device_peak_tflops"]]
      framework  batch_size   flops  device_peak_tflops
    0     torch           8  1280.0                8.14
    1     torch          16  1280.0                8.14
    """
    listed = [jobs] if isinstance(jobs, TrainingJob) else list(jobs)
    for job in listed:
        if not isinstance(job, TrainingJob):
            raise InputError(f"jobs must hold TrainingJobs; got {type(job).__name__}.")
    if not listed:
        raise InputError("jobs is empty.")
    own = pd.DataFrame([{**_job_features(job), **_device_features(job.hardware, job.precision)} for job in listed])
    graphs, positions = distinct_graphs(listed)
    described = features_of_graphs(graphs).iloc[positions].reset_index(drop=True)
    text = {name: STRING for name in own.columns if name in _TEXT}
    table = pd.concat([own.astype(text), described], axis=1)
    return table[[*_FIRST, *described.columns, *(name for name in own.columns if name not in _FIRST)]]


_FIRST = [*CATEGORIES, *NUMBERS, "optimizer_states"]
_TEXT = {*CATEGORIES, "framework_version", "device_name", "device_die"}


def distinct_graphs(jobs: list[TrainingJob]) -> tuple[list[OpGraph], list[int]]:
    """Distinct graphs, and the position of each job's graph among them."""
    position: dict[Hashable, int] = {}
    graphs: list[OpGraph] = []
    rows = []
    for job in jobs:
        key = (id(job.model), job.inputs_key, job.mode)
        if key not in position:
            position[key] = len(graphs)
            graphs.append(job.graph)
        rows.append(position[key])
    return graphs, rows


def _job_features(job: TrainingJob) -> dict[str, Any]:
    return {
        "framework": job.framework,
        "optimizer": job.optimizer,
        "precision": job.precision,
        "layout": job.layout,
        "execution": job.execution,
        "device": "cpu" if job.hardware.kind == "cpu" else "cuda",
        "batch_size": job.batch_size,
        "threads": 0,
        "optimizer_states": float(OPTIMIZER_STATES[job.optimizer]),
        "n_gpus": job.n_gpus,
        # Jobs fill their machines.
        "n_nodes": math.ceil(job.n_gpus / job.hardware.node_gpus),
        "network_gb_s": group_bandwidth(job.hardware, job.n_gpus) / 1e9,
        "checkpointing": float(bool(job.checkpointing)),
        "framework_version": job.framework_version,
    }


@functools.lru_cache(maxsize=1024)
def _device_features(hardware: Device, precision: str) -> dict[str, Any]:
    return {
        "device_name": hardware.name,
        "device_die": hardware.die,
        "device_memory_gib": hardware.usable_memory_gib,
        "device_peak_tflops": hardware.peak(precision) / 1e12,
        "device_interconnect_gb_s": hardware.interconnect_bandwidth / 1e9,
        **{f"device_{name}": getattr(hardware, name) for name in _DEVICE_NUMBERS},
    }
