"""Data parallelism: seconds of gradient reduction at the peaks of the links."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.cost.graph.op_graph import OpGraph

#: GB/s between machines of unknown bandwidth: 10 Gbit Ethernet.
_NETWORK_GB_S = 1.25
#: GB/s of a link of unknown bandwidth: PCIe 4.0 x16.
_LINK_GB_S = 32.0
_GRADIENT_BYTES = 4.0
#: Bytes of gradients that PyTorch's DistributedDataParallel reduces together (``bucket_cap_mb``).
_BUCKET_BYTES = 25 * 2**20
#: Share of the step, at the peaks, behind which reduction hides: eight GPUs are predicted alike with 0.1 to 0.5.
_HIDING = 0.25
#: Share of the step by which the slowest GPU is later, per doubling, before its coefficient.
_STRAGGLE = 0.01
#: Columns of `parallel_terms`.
PARALLEL_TERMS = ("allreduce", "network", "messages", "straggle")
#: Seconds from one kernel launch to the next when nothing else takes time.
LAUNCH_S = 1e-5


def parallel_terms(graph: OpGraph, jobs: pd.DataFrame, compute: FloatArray) -> dict[str, FloatArray]:
    """Seconds that data parallelism adds at the peaks of the links; zero on one GPU.

    In a ring all-reduce each GPU sends and receives ``2 (n - 1) / n`` times the gradients; between machines, over the
    network. Gradients are reduced in buckets while the backward pass goes on; the last one has nothing to hide behind.

    Parameters
    ----------
    graph : OpGraph
        The network.
    jobs : DataFrame
        ``n_gpus``, ``device_interconnect_gb_s`` and, with several machines, ``n_nodes`` and, where it is known,
        ``network_gb_s`` between them.
    compute : ndarray of shape (n_jobs,)
        Seconds of the rest of the step at the peaks, behind which reduction hides and with which stragglers scale.

    Returns
    -------
    dict of str to ndarray
        ``allreduce``, ``network`` (what the backward pass does not hide), ``messages`` (a launch per layer and doubling
        of GPUs), ``straggle`` (of the slowest GPU, per doubling).

    References
    ----------
    Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69, 2009.
    Li et al., "PyTorch Distributed: experiences on accelerating data parallel training", VLDB 13(12), 2020.

    Examples
    --------
    >>> graph = OpGraph.from_operators([], [], n_trainable=25_000_000)
    >>> jobs = pd.DataFrame({"n_gpus": [1, 4], "device_interconnect_gb_s": [64.0, 64.0]})
    >>> parallel_terms(graph, jobs, np.zeros(2))["allreduce"].round(4).tolist()
    [0.0, 0.0047]
    >>> parallel_terms(graph, jobs, np.full(2, 0.01))["allreduce"].round(4).tolist()
    [0.0, 0.0022]
    """
    gpus = jobs["n_gpus"].to_numpy(dtype=float)
    nodes = jobs["n_nodes"].to_numpy(dtype=float) if "n_nodes" in jobs.columns else np.ones(len(jobs))
    link = np.nan_to_num(jobs["device_interconnect_gb_s"].to_numpy(dtype=float), nan=_LINK_GB_S) * 1e9 / 2.0
    between = 1e9 * (jobs["network_gb_s"].to_numpy(dtype=float) if "network_gb_s" in jobs.columns else _NETWORK_GB_S)
    gradients = _GRADIENT_BYTES * (graph.n_trainable - graph.n_sparse)
    doublings = np.log2(np.maximum(gpus, 1.0))
    allreduce, network = gradients * _ring(gpus) / link, gradients * _ring(nodes) / between
    exposed = _exposed(allreduce + network, gradients, compute)
    messages, straggle = LAUNCH_S * graph.n_layers * doublings, _STRAGGLE * compute * doublings
    return dict(zip(PARALLEL_TERMS, (exposed * allreduce, exposed * network, messages, straggle), strict=True))


def _exposed(reduction: FloatArray, gradients: float, compute: FloatArray) -> FloatArray:
    """Share of the reduction that the backward pass does not hide: at least that of the last bucket."""
    last = min(1.0, _BUCKET_BYTES / gradients) if gradients else 1.0
    return np.maximum(last, 1.0 - _HIDING * compute / np.where(reduction > 0, reduction, np.inf))


def _ring(members: FloatArray) -> FloatArray:
    return 2.0 * (members - 1.0) / np.maximum(members, 1.0)
