"""Simulated memory of a training step by category."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import pandas as pd

from gpudemand._printing import aligned
from gpudemand._typing import STRING
from gpudemand._validation import check_choice, check_number
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.graph.structural_matrix import check_graph
from gpudemand.cost.memory.liveness import Setting
from gpudemand.cost.memory.simulation import simulate_memory
from gpudemand.cost.memory.workspace import conv_workspace
from gpudemand.units import GIB, format_gib

#: Default workspace of cuBLAS, ``:4096:2:16:8`` KiB, allocated at the first matrix product.
_CUBLAS = 8.125 * 2**20
#: Whether a precision is mixed: products in half precision, weights in single.
_MIXED = {"fp32": False, "tf32": False, "fp16": True, "bf16": True, "amp": True}
_NAMES = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer_state": "optimizer state",
    "input": "the batch",
    "activations": "activations",
    "transient": "transient",
}


@dataclass(frozen=True, eq=False, repr=False)
class MemoryBreakdown:
    """Memory at the peak of a training step by category.

    Parameters
    ----------
    parts : DataFrame
        Columns ``part`` and ``gib``, which add up to `device_gib`.
    allocated_gib : float
        Memory of tensors at the peak.
    reserved_gib : float
        Memory that the caching allocator has taken from the device.
    device_gib : float
        Device memory of the process.
    title : str
        Network, batch size, optimizer and precision.
    """

    parts: pd.DataFrame
    allocated_gib: float
    reserved_gib: float
    device_gib: float
    title: str

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of `parts`."""
        return self.parts.copy()

    def __repr__(self) -> str:
        return f"{self.title}\n\n{aligned(self._table())}\n\n{self._totals()}"

    def _repr_html_(self) -> str:
        table = self._table().to_html(index=False, border=0, justify="left")
        return f"<div><pre>{escape(self.title)}</pre>{table}<pre>{escape(self._totals())}</pre></div>"

    def _table(self) -> pd.DataFrame:
        share = 100 * self.parts["gib"] / max(self.parts["gib"].sum(), 1e-12)
        columns = {"part": self.parts["part"], "": "", "memory": self.parts["gib"].map(format_gib)}
        return pd.DataFrame({**columns, "share": share.map("{:.0f} %".format)}).astype(str)

    def _totals(self) -> str:
        totals = (self.allocated_gib, self.reserved_gib, self.device_gib)
        return "allocated {}, reserved {}, on the device {}".format(*map(format_gib, totals))


def memory_breakdown(
    graph: OpGraph,
    batch_size: int,
    optimizer: str = "sgd",
    precision: str = "fp32",
    *,
    checkpointing: bool = False,
    inference: bool = False,
    shards: tuple[int, int, int] = (1, 1, 1),
    context_gib: float = 0.5,
) -> MemoryBreakdown:
    """Simulate the memory of a training step, or of inference, on a GPU, by category.

    Parameters
    ----------
    graph : OpGraph
        The network.
    batch_size : int
        Samples in a batch.
    optimizer : {"sgd", "momentum", "rmsprop", "adagrad", "adam", "adamw"}, default="sgd"
        ``"momentum"`` is SGD with momentum.
    precision : {"fp32", "tf32", "fp16", "bf16", "amp"}, default="fp32"
        The last three are mixed precision.
    checkpointing : bool, default=False
        Blocks save only their inputs and are recomputed in the backward pass.
    inference : bool, default=False
        A forward pass without gradients instead of a training step; `optimizer` has no part in it.
    shards : tuple of three int, default=(1, 1, 1)
        GPUs that optimizer states, gradients and parameters are each divided over.
    context_gib : float, default=0.5
        Memory of driver and libraries before the first tensor: 0.3 on old cards to 0.9 on new ones, more without lazy
        loading of kernels.

    Returns
    -------
    MemoryBreakdown
        Simulated, not fitted to measurements; `MemoryModel` predicts the total more accurately.

    Raises
    ------
    InputError
        If the optimizer or precision is unknown, or the batch size is not a positive whole number.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 4096), 3.4e7, 2**24, 2.0**26, 16384.0, 16384.0, 16384.0)
    >>> sizes = {"n_parameters": 2**24, "n_trainable": 2**24, "parameter_bytes": 2.0**26, "name": "Head"}
    >>> memory_breakdown(OpGraph.from_operators([dense], [], **sizes), 1024, "adam")
    Head, a batch of 1,024, adam, fp32
    <BLANKLINE>
    part                 memory  share
    parameters           64 MiB    7 %
    gradients            64 MiB    7 %
    optimizer state     128 MiB   14 %
    the batch             0 MiB    0 %
    activations           0 MiB    0 %
    transient            64 MiB    7 %
    workspace          8.12 MiB    1 %
    allocator slack    57.9 MiB    6 %
    context             512 MiB   57 %
    <BLANKLINE>
    allocated 320 MiB, reserved 386 MiB, on the device 898 MiB
    """
    mixed = _MIXED[check_choice("precision", precision, _MIXED)]
    context = check_number("context_gib", context_gib, 0)
    setting = Setting(optimizer, mixed, checkpointing, inference=inference, shards=shards)
    peak = simulate_memory(check_graph(graph), batch_size, setting)
    parts = {label: peak.parts[name] for name, label in _NAMES.items()}
    parts["workspace"] = _workspace(graph, batch_size)
    parts["allocator slack"] = max(peak.reserved - peak.allocated - parts["workspace"], 0.0)
    parts["context"] = context * GIB
    table = pd.DataFrame({"part": pd.Series(list(parts), dtype=STRING), "gib": [b / GIB for b in parts.values()]})
    total = sum(parts.values()) / GIB
    what = "inference" if inference else optimizer
    title = f"{graph.name}, a batch of {batch_size:,}, {what}, {precision}"
    return MemoryBreakdown(table, peak.allocated / GIB, total - context, total, title)


def _workspace(graph: OpGraph, batch_size: int) -> float:
    fixed, per_sample = conv_workspace(graph)["layout"]
    products = graph.nodes["type"].isin(["Gemm", "MatMul"]).any()
    return float((fixed + per_sample * batch_size).max(initial=0.0)) + (_CUBLAS if products else 0.0)
