"""Features of jobs and of measured rows, as tables."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from gpudemand._array import STRING
from gpudemand._validation import InputError, check_columns, check_list, stack_level
from gpudemand.cost.graph import OpGraph, per_graph, structural_matrix
from gpudemand.cost.graph_features import OPTIMIZER_STATES, features_by_name
from gpudemand.cost.job import TrainingJob
from gpudemand.cost.memory import memory_summary
from gpudemand.cost.roofline import group_bandwidth
from gpudemand.datasets.devices import Device

#: Columns that determine the graph of a measured network: the index of `load_architectures`.
ARCHITECTURE = ("framework", "network", "input_size", "channels", "n_classes", "vocabulary", "width", "depth")
#: Hyper-parameters beside the network.
CATEGORIES = ("framework", "optimizer", "precision", "layout", "execution", "device")
NUMBERS = ("batch_size", "threads")
EDGE = "edge:"


def features_from_rows(rows: pd.DataFrame, traced: pd.DataFrame) -> pd.DataFrame:
    """Features of the jobs in measured rows: hyper-parameters and graph, never a network's name.

    Parameters
    ----------
    rows : DataFrame
        Such as `load_measurements` returns: `ARCHITECTURE`, `CATEGORIES` and `NUMBERS`.
    traced : DataFrame
        Features of at least these architectures, such as `load_architectures` returns.

    Returns
    -------
    DataFrame
        Index of `rows`; `CATEGORIES` (text), `NUMBERS`, ``optimizer_states`` (copies of the weights that the optimizer
        keeps), totals of the graph (``flops``, ``depth``, ...), amounts by operator class (``flops_<class>``, ...),
        the columns of `memory_summary`, and ``edge:<type>-><type>``, the entries of the structural matrix that occur.

    Raises
    ------
    InputError
        If there are no rows, columns are missing, or `traced` lacks an architecture.
    """
    rows = check_columns(rows, (*ARCHITECTURE, *CATEGORIES, *NUMBERS), "rows")
    if rows.empty:
        raise InputError("rows has no jobs; there is nothing to describe.")
    graphs = traced.reindex(pd.MultiIndex.from_frame(rows[list(ARCHITECTURE)]))
    missing = int(graphs["flops"].isna().sum())
    if missing:
        raise InputError(f"{missing} rows have an architecture that is not in `traced`; drop them, or trace it.")
    _warn_of_several_gpus(rows)
    edges = [name for name in graphs.columns if name.startswith(EDGE)]
    graphs = graphs.drop(columns=[name for name in edges if not graphs[name].any()])
    job = rows[[*CATEGORIES, *NUMBERS]].reset_index(drop=True)
    job["optimizer_states"] = job["optimizer"].map(OPTIMIZER_STATES).astype(float)
    return pd.concat([job, graphs.reset_index(drop=True)], axis=1).set_axis(rows.index)


def _warn_of_several_gpus(rows: pd.DataFrame) -> None:
    names = rows["device_name"].dropna().unique() if "device_name" in rows.columns else []
    if len(names) > 1:
        message = (
            f"rows are of {len(names)} devices ({', '.join(map(str, names[:5]))}), which these features do not tell "
            "apart; take the rows of one, or features_from_jobs of the jobs."
        )
        warnings.warn(message, stacklevel=stack_level())


def features_of_graphs(graphs: Iterable[OpGraph], index: pd.Index | None = None) -> pd.DataFrame:
    """`graph_features`, `memory_summary` and edge counts, ``edge:<type>-><type>``, a row a graph."""
    table = pd.DataFrame([_features_of_graph(graph) for graph in graphs], index=index)
    return table.fillna({name: 0.0 for name in table.columns if name.startswith(EDGE)})


@per_graph
def _features_of_graph(graph: OpGraph) -> dict[str, float]:
    counts = structural_matrix(graph).stack()
    counts = counts[counts > 0]
    edges = {f"{EDGE}{producer}->{consumer}": float(n) for (producer, consumer), n in counts.items()}
    return {**features_by_name(graph), **memory_summary(graph), **edges}


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
        processes), ``device_peak_tflops`` (at the job's precision, or that of a network in half precision),
        ``device_fp64_tflops`` (of its fastest units), ``device_interconnect_gb_s``,
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
    listed = listed_jobs(jobs)
    precisions = [job.compute_precision for job in listed]
    own = pd.DataFrame(
        [
            {**_job_features(job, precision), **_device_features(job.hardware, precision)}
            for job, precision in zip(listed, precisions, strict=True)
        ]
    )
    graphs, positions = distinct_graphs(listed)
    described = features_of_graphs(graphs).iloc[positions].reset_index(drop=True)
    text = {name: STRING for name in own.columns if name in _TEXT}
    table = pd.concat([own.astype(text), described], axis=1)
    return table[[*_FIRST, *described.columns, *(name for name in own.columns if name not in _FIRST)]]


def listed_jobs(jobs: TrainingJob | Iterable[TrainingJob]) -> list[TrainingJob]:
    """One or more jobs as a list."""
    listed = [jobs] if isinstance(jobs, TrainingJob) else check_list("jobs", jobs, "TrainingJobs")
    for job in listed:
        if not isinstance(job, TrainingJob):
            raise InputError(f"jobs must hold TrainingJobs; got {type(job).__name__}.")
    return listed


_FIRST = [*CATEGORIES, *NUMBERS, "optimizer_states"]
_TEXT = {*CATEGORIES, "framework_version", "device_name", "device_die"}


def distinct_graphs(jobs: list[TrainingJob]) -> tuple[list[OpGraph], list[int]]:
    """Distinct graphs, and the position of each job's graph among them."""
    # Not by model: one that is changed in between, as by freezing, has a graph for each state.
    graphs = {id(job.graph): job.graph for job in jobs}
    position = {key: place for place, key in enumerate(graphs)}
    return list(graphs.values()), [position[id(job.graph)] for job in jobs]


def _job_features(job: TrainingJob, precision: str) -> dict[str, Any]:
    return {
        "framework": job.framework,
        "optimizer": job.optimizer,
        "precision": precision,
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
        "device_fp64_tflops": float(np.fmax(hardware.fp64_tflops, hardware.fp64_tensor_tflops)),
        "device_interconnect_gb_s": hardware.interconnect_bandwidth / 1e9,
        **{f"device_{name}": getattr(hardware, name) for name in _DEVICE_NUMBERS},
    }
