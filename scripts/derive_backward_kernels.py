"""Backward work as multiples of forward work by kind of kernel: ``python -m scripts.derive_backward_kernels``.

Prints the medians over the PyTorch networks of the zoo that `gpudemand.cost.graph_features` uses for frameworks whose
backward pass is not recorded.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from benchmarks import zoo
from gpudemand.cost import OpGraph

_AMOUNTS = ["flops", "bytes", "calls"]


def backward_ratios(graphs: Iterable[OpGraph]) -> pd.DataFrame:
    """Median ratio of backward to forward operations, bytes and calls, a row a kind of kernel."""
    ratios = []
    for graph in graphs:
        kernels = graph.kernels
        totals = kernels[["flops"]].assign(bytes=kernels["bytes"] + kernels["fixed_bytes"])
        totals = totals.mul(kernels["calls"], axis=0).assign(calls=kernels["calls"])
        passes = totals[~kernels["is_autocast"]].groupby([kernels["kind"], kernels["backward"]]).sum().unstack()
        ratios.append(passes.xs(True, axis=1, level=1) / passes.xs(False, axis=1, level=1))
    table = pd.concat(ratios).replace([np.inf], np.nan).groupby(level=0)[_AMOUNTS]
    return table.median().assign(networks=table.size())


def zoo_graphs() -> list[OpGraph]:
    """Graphs of the PyTorch networks of the zoo, at their default sizes."""
    import torch

    graphs = []
    for name in zoo.names():
        shape = (3, 64, 64) if zoo.kind(name) == "image" else (64,)
        with torch.device("meta"):
            graphs.append(OpGraph.from_torch(zoo.build(name, "torch", shape), shape))
    return graphs


if __name__ == "__main__":
    print(backward_ratios(zoo_graphs()).round(2).to_string())
