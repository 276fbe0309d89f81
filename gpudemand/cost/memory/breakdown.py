"""What the memory of a training step is for, as a printed table."""

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
from gpudemand.cost.memory.simulation import SimulatedMemory, simulate_memory
from gpudemand.cost.memory.workspace import conv_workspace
from gpudemand.units import format_gib

_GIB = 2.0**30
#: What cuBLAS takes for itself, through the allocator, on the first matrix product.
_CUBLAS = 8.125 * 2**20
#: Precisions that are mixed: products in 16 bits, weights in 32.
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
    """What memory is for at the peak of a training step.

    Parameters
    ----------
    parts : DataFrame
        ``part`` and ``gib``; the parts add up to `device_gib`.
    allocated_gib : float
        What tensors take at the peak.
    reserved_gib : float
        What the caching allocator holds of the device for them.
    device_gib : float
        What the process takes of the device.
    title : str
        What it is the memory of.
    """

    parts: pd.DataFrame
    allocated_gib: float
    reserved_gib: float
    device_gib: float
    title: str

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of the parts as a table: ``part``, ``gib``."""
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
    context_gib: float = 0.5,
) -> MemoryBreakdown:
    """Break the memory of a training step on a GPU down, without a GPU.

    Parameters
    ----------
    graph : OpGraph
        The network.
    batch_size : int
        Samples in a batch.
    optimizer : {"sgd", "momentum", "rmsprop", "adagrad", "adam", "adamw"}, default="sgd"
        What is trained with.
    precision : {"fp32", "tf32", "fp16", "bf16", "amp"}, default="fp32"
        The last three are mixed precision.
    checkpointing : bool, default=False
        Blocks keep only what they read, and are computed again in the backward pass.
    context_gib : float, default=0.5
        What driver and libraries take before the first tensor: from 0.3 on old cards to 0.9 on new ones, and more where
        all kernels are loaded at once.

    Returns
    -------
    MemoryBreakdown
        Simulated, not fitted to any measurement: `MemoryModel` predicts the total better.

    Raises
    ------
    InputError
        For an unknown optimizer or precision, or a batch size that is no positive whole number.

    Examples
    --------
    >>> from gpudemand.cost.graph.op_graph import Operator
    >>> dense = Operator("Gemm", "", "head", "linear", (1, 4096), 3.4e7, 2**24, 2.0**26, 16384.0, 16384.0, 16384.0)
    >>> about = {"n_parameters": 2**24, "n_trainable": 2**24, "parameter_bytes": 2.0**26, "name": "Head"}
    >>> memory_breakdown(OpGraph.from_operators([dense], [], **about), 1024, "adam")
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
    half = _MIXED[check_choice("precision", precision, _MIXED)]
    context = check_number("context_gib", context_gib, 0)
    found = simulate_memory(check_graph(graph), batch_size, Setting(optimizer, half, checkpointing))
    parts = {_NAMES[name]: value for name, value in found.parts.items() if name in _NAMES}
    parts["workspace"] = _workspace(graph, batch_size)
    parts["allocator slack"] = max(found.reserved - found.allocated - parts["workspace"], 0.0)
    parts["context"] = context * _GIB
    return _breakdown(parts, found, f"{graph.name}, a batch of {batch_size:,}, {optimizer}, {precision}")


def _workspace(graph: OpGraph, batch_size: int) -> float:
    fixed, each = conv_workspace(graph)["layout"]
    products = graph.nodes["type"].isin(["Gemm", "MatMul"]).any()
    return float((fixed + each * batch_size).max(initial=0.0)) + (_CUBLAS if products else 0.0)


def _breakdown(parts: dict[str, float], found: SimulatedMemory, title: str) -> MemoryBreakdown:
    table = pd.DataFrame({"part": pd.Series(list(parts), dtype=STRING), "gib": [b / _GIB for b in parts.values()]})
    total = sum(parts.values()) / _GIB
    return MemoryBreakdown(table, found.allocated / _GIB, total - parts["context"] / _GIB, total, title)
