"""What several GPUs add to a step: gradients to reduce, over links of known bandwidth."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.cost.graph.op_graph import OpGraph

#: Bytes a second between machines where nothing better is known: ten gigabits.
_NETWORK = 1.25e9
_GRADIENT_BYTES = 4.0


def parallel_terms(graph: OpGraph, jobs: pd.DataFrame, compute: FloatArray) -> dict[str, FloatArray]:
    """Seconds that data parallelism adds at the peaks of the links; all zero on one GPU.

    Each GPU sends and receives ``2 (n - 1) / n`` times the gradients in a ring all-reduce; what travels between
    machines goes over the network instead.

    Parameters
    ----------
    graph : OpGraph
        The network whose gradients are reduced.
    jobs : DataFrame
        ``n_gpus``, ``device_interconnect_gb_s`` and, where there is more than one machine, ``n_nodes``.
    compute : ndarray of shape (n_jobs,)
        Seconds of the rest of the step at the peaks: the backward pass hides a part of the reduction, and the slowest
        GPU keeps the others waiting.

    Returns
    -------
    dict of str to ndarray
        ``reduce``, ``network``, ``messages`` (a launch for each layer and doubling of GPUs), ``straggle``.

    References
    ----------
    Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69, 2009.

    Examples
    --------
    >>> graph = OpGraph.from_operators([], [], n_trainable=25_000_000)
    >>> jobs = pd.DataFrame({"n_gpus": [1, 4], "device_interconnect_gb_s": [64.0, 64.0]})
    >>> parallel_terms(graph, jobs, np.zeros(2))["reduce"].round(4).tolist()
    [0.0, 0.0047]
    """
    gpus = jobs["n_gpus"].to_numpy(dtype=float)
    nodes = jobs["n_nodes"].to_numpy(dtype=float) if "n_nodes" in jobs.columns else np.ones(len(jobs))
    link = np.nan_to_num(jobs["device_interconnect_gb_s"].to_numpy(dtype=float), nan=32.0) * 1e9 / 2.0
    gradients = _GRADIENT_BYTES * graph.n_trainable
    doublings = np.log2(np.maximum(gpus, 1.0))
    return {
        "reduce": gradients * _ring(gpus) / link,
        "network": gradients * _ring(nodes) / _NETWORK,
        "messages": 1e-5 * graph.n_layers * doublings,
        "straggle": 0.1 * compute * doublings,
    }


def _ring(members: FloatArray) -> FloatArray:
    return 2.0 * (members - 1.0) / np.maximum(members, 1.0)
