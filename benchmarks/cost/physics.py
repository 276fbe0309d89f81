"""Predicted step time against operations and bytes at realistic efficiency, for work that no training network does.

    python -m benchmarks.cost.physics [--model FOLDER] [--only NAME ...]

Fused attention over 512 to 65,536 tokens, recurrent layers, a U-Net, a mixture of experts, a recommender, a graph
network and a state-space model written as a loop, on three GPUs. The realistic time is that of the recorded kernels one
after the other, each as long as the longest of its operations, its bytes and its launch at the efficiencies below. For
predictions beyond a factor of 1.5 of it, the last column names the kinds of kernels whose prices differ most, in ms.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpudemand._array import FloatArray
from gpudemand.cost import CostModel, OpGraph, TrainingJob
from gpudemand.cost.graph_features import OPTIMIZER_STATES, step_kernels
from gpudemand.cost.model import step_time_inputs
from gpudemand.cost.operators import MATRIX_KINDS
from gpudemand.cost.roofline import LOWER_BOUND
from gpudemand.cost.step_time_model import FarFromTrainingWarning, StepTimeModel
from gpudemand.datasets.devices import Device

#: Device -> share of the peak of large products, 52 % in training on A100s (Narayanan et al., "Megatron-LM", SC 2021),
#: on Ada's L20 88 to 96 % alone (DefTruth, "CUDA-Learn-Notes"); of fused attention, 0.5 to 0.7 on A100s (Dao, ICLR
#: 2024), 0.35 on H100s (Shah et al., "FlashAttention-3", 2024), 0.9 forward on RTX 4090s (flash-attention, issue 1473).
DEVICES = {"H100 SXM5": (0.5, 0.45), "A100 SXM4 80GB": (0.5, 0.45), "RTX 4090": (0.8, 0.6)}
VECTOR_EFFICIENCY = 0.5  # of the other arithmetic units
#: Share of the bandwidth that element-wise kernels reach: 0.7 to 0.9 (Deakin et al., "BabelStream", 2018).
BANDWIDTH_EFFICIENCY = 0.7
#: Seconds from one kernel to the next in eager mode at best (PyTorch, "Accelerating PyTorch with CUDA Graphs", 2021).
LAUNCH_S = 5e-6
#: Kernels of a time step of cuDNN: the product of the state, and all gates at once (Appleyard, Kocisky, Blunsom,
#: "Optimizing performance of recurrent neural networks on GPUs", 2016).
RECURRENT_LAUNCHES = 2
TOLERANCE = 1.5
_COLUMNS = ["workload", "device", "batch", "TFLOP", "GB", "bound ms", "realistic ms", "predicted ms", "ratio",
            "90 % ms", "causes"]  # fmt: skip


class Workload(NamedTuple):
    """A training step, and operations of its forward pass for a sample, counted by hand."""

    name: str
    net: Callable[[], nn.Module]
    shape: Any
    batch: int
    flops: float
    precision: str = "bf16"
    optimizer: str = "adamw"
    dtype: Any = None
    steps: int = 0
    layout: str = "contiguous"


class _Attention(nn.Module):
    """Layers of fused self-attention with their projections."""

    def __init__(self, width: int = 768, heads: int = 12, layers: int = 12) -> None:
        super().__init__()
        parts = ((nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)) for _ in range(layers))
        self.layers, self.heads = nn.ModuleList(map(nn.ModuleList, parts)), heads

    def forward(self, x: Tensor) -> Tensor:
        for norm, inputs, outputs in (layer.children() for layer in self.layers):
            parts = inputs(norm(x)).chunk(3, -1)
            query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
            found = functional.scaled_dot_product_attention(query, key, value)
            x = x + outputs(found.transpose(1, 2).flatten(2))
        return x


class _UNet(nn.Module):
    """Four levels, two convolutions each, joined by transposed convolutions (Ronneberger et al., 2015)."""

    def __init__(self, width: int = 64, levels: int = 4) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(levels)]
        self.down = nn.ModuleList(_pair(*sizes) for sizes in itertools.pairwise([3, *widths]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * size, size, 2, 2) for size in widths[-2::-1])
        self.merge = nn.ModuleList(_pair(2 * size, size) for size in widths[-2::-1])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = [self.down[0](x)]
        for block in self.down[1:]:
            kept.append(block(functional.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for up, merge, skip in zip(self.up, self.merge, reversed(kept), strict=True):
            x = merge(torch.cat([skip, up(x)], 1))
        return self.head(x)


def _pair(inside: int, outside: int) -> nn.Module:
    parts = ((nn.Conv2d(size, outside, 3, padding=1), nn.BatchNorm2d(outside)) for size in (inside, outside))
    return nn.Sequential(*(nn.Sequential(*part, nn.ReLU(inplace=True)) for part in parts))


class _Experts(nn.Module):
    """Feed-forward layers of experts that choose their tokens (Zhou et al., 2022), each token two on average."""

    def __init__(self, width: int = 1024, experts: int = 8, layers: int = 6) -> None:
        super().__init__()
        self.gates = nn.ModuleList(nn.Linear(width, experts, bias=False) for _ in range(layers))
        self.up = nn.ParameterList(torch.empty(experts, width, 4 * width) for _ in range(layers))
        self.down = nn.ParameterList(torch.empty(experts, 4 * width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        for gate, up, down in zip(self.gates, self.up, self.down, strict=True):
            weight, chosen = gate(tokens).softmax(-1).t().topk(2 * len(tokens) // len(up))
            found = torch.bmm(functional.gelu(torch.bmm(tokens[chosen], up)), down) * weight.unsqueeze(-1)
            tokens = tokens.index_add(0, chosen.flatten(), found.flatten(0, 1).to(tokens.dtype))
        return tokens


class _Recommender(nn.Module):
    """Embedding tables, their pairwise products, and two dense stacks (DLRM, Naumov et al., 2019)."""

    def __init__(self, tables: int = 26, rows: int = 100_000, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom, self.top = _dense(13, 512, 256, width), _dense(width + (tables + 1) ** 2, 1024, 1024, 512, 256, 1)

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        dense = self.bottom(numbers)
        looked_up = [table(categories[:, column]) for column, table in enumerate(self.tables)]
        features = torch.stack([dense, *looked_up], 1)
        return self.top(torch.cat([dense, torch.bmm(features, features.transpose(1, 2)).flatten(1)], 1))


def _dense(*widths: int) -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(*pair), nn.ReLU()) for pair in itertools.pairwise(widths)))


class _GraphNetwork(nn.Module):
    """Sums over neighbours by gather and scatter (Hamilton et al., "GraphSAGE", 2017)."""

    def __init__(self, width: int = 128, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = (end.unsqueeze(-1).expand(-1, -1, nodes.shape[-1]) for end in edges.unbind(1))
        for layer in self.layers:
            messages = torch.zeros_like(nodes).scatter_add(1, target, nodes.gather(1, source))
            nodes = functional.relu(layer(torch.cat([nodes, messages], -1))).to(nodes.dtype)
        return nodes


class _StateSpace(nn.Module):
    """Selective state space, a step at a time (Gu and Dao, "Mamba", 2023, without its fused scan)."""

    def __init__(self, width: int = 1024, states: int = 16) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.empty(width, states))
        self.inputs, self.delta = nn.Linear(width, 2 * states), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        delta, (gain, read) = functional.softplus(self.delta(x)), self.inputs(x).chunk(2, -1)
        state, outputs = x.new_zeros(len(x), *self.decay.shape), []
        for step in range(x.shape[1]):
            now = delta[:, step, :, None]
            state = torch.exp(now * self.decay) * state + now * x[:, step, :, None] * gain[:, step, None]
            outputs.append((state * read[:, step, None]).sum(-1))
        return torch.stack(outputs, 1)


def _attention(tokens: int) -> Workload:
    flops = 12 * (2.0 * tokens * 4 * 768**2 + 4.0 * tokens**2 * 768)
    return Workload(f"attention {tokens:,}", _Attention, (tokens, 768), max(1, 16384 // tokens), flops)


def _recurrent(cell: Any, gates: int, width: int, batch: int) -> Workload:
    net = partial(cell, width, width, batch_first=True)
    flops = 2.0 * 2048 * 2 * gates * width**2
    return Workload(f"{cell.__name__} {width:,} wide", net, (2048, width), batch, flops, steps=2048)


def _unet_flops(width: int = 64, size: int = 256, levels: int = 4) -> float:
    widths = [width * 2**level for level in range(levels)]
    down = sum(18.0 * (size >> i) ** 2 * (a * b + b * b) for i, (a, b) in enumerate(itertools.pairwise([3, *widths])))
    up = sum((size >> i) ** 2 * (18.0 * 3 + 2.0 * 2) * b * b for i, b in enumerate(widths[:-1]))
    return down + up + 4.0 * size**2 * width


def _recommender(batch: int) -> Workload:
    stacks = ((13, 512, 256, 64), (64 + 27**2, 1024, 1024, 512, 256, 1))
    flops = sum(2.0 * a * b for stack in stacks for a, b in itertools.pairwise(stack)) + 2.0 * 27 * 27 * 64
    shape, dtype = {"numbers": (13,), "categories": (26,)}, {"numbers": "float32", "categories": "int64"}
    return Workload(f"recommender {batch:,}", _Recommender, shape, batch, flops, "tf32", "sgd", dtype)


def workloads() -> list[Workload]:
    """Every workload of the table."""
    return [
        *(_attention(2**power) for power in range(9, 17)),
        *(_recurrent(nn.LSTM, 4, *sizes) for sizes in ((4096, 256), (4096, 32), (512, 64))),
        *(_recurrent(nn.GRU, 3, *sizes) for sizes in ((4096, 256), (4096, 32), (512, 64))),
        Workload("U-Net", _UNet, (3, 256, 256), 16, _unet_flops(), layout="channels_last"),  # conversions: not recorded
        Workload("experts", _Experts, (1024, 1024), 8, 6 * 2.0 * 1024 * (1024 * 8 + 2 * 2 * 4 * 1024**2)),
        *map(_recommender, (2048, 65_536)),
        Workload("graph network", _GraphNetwork, {"nodes": (10_000, 128), "edges": (2, 100_000)}, 4, 6e4 * 256 * 128,
                 "tf32", "adamw", {"nodes": "float32", "edges": "int64"}),
        Workload("state space", _StateSpace, (2048, 1024), 8, 2.0 * 2048 * 1024 * (1024 + 32)),
    ]  # fmt: skip


def traced(work: Workload) -> OpGraph:
    """Trace the network; print the seconds that it takes, and operations that differ from the count by hand."""
    with torch.device("meta"):
        net = work.net()
    start = time.perf_counter()
    graph = OpGraph.from_torch(net, work.shape, input_dtype=work.dtype)
    seconds, rows = time.perf_counter() - start, step_kernels(graph)
    forward = (rows["flops"] * rows["calls"])[~rows["backward"].astype(bool)].sum()
    differs = "" if np.isclose(forward, work.flops, rtol=0.02) else f", {forward / work.flops:.3f} times those by hand"
    print(f"{work.name}: traced in {seconds:.1f} s, {forward / 1e9:.4g} GFLOP a sample forward{differs}", flush=True)
    return graph


def kernel_seconds(graph: OpGraph, work: Workload, hardware: Device) -> pd.DataFrame:
    """Operations and bytes of all kernels of a step by kind, and their seconds at realistic efficiency."""
    half = work.precision == "bf16"
    rows = step_kernels(graph).loc[lambda rows: half | ~rows["is_autocast"].astype(bool)]
    calls, kinds = rows["calls"].to_numpy(dtype=float), rows["kind"].to_numpy(dtype=object)
    moved, fixed = ("half_bytes", "fixed_half_bytes") if half else ("bytes", "fixed_bytes")
    flops = work.batch * rows["flops"].to_numpy(dtype=float) + rows["fixed_flops"].to_numpy(dtype=float)
    moved_bytes = work.batch * rows[moved].to_numpy(dtype=float) + rows[fixed].to_numpy(dtype=float)
    launch_s = np.where((kinds == "gemm") & (calls == work.steps), RECURRENT_LAUNCHES, 1.0) * LAUNCH_S
    bytes_s = moved_bytes / (BANDWIDTH_EFFICIENCY * hardware.bandwidth)
    seconds = np.maximum.reduce([flops / _speed(kinds, work.precision, hardware), bytes_s, launch_s])
    table = pd.DataFrame({"TFLOP": flops / 1e12, "GB": moved_bytes / 1e9, "seconds": seconds}).mul(calls, axis=0)
    table, update = table.groupby(kinds).sum(), 4.0 * graph.n_trainable * (3 + 2 * OPTIMIZER_STATES[work.optimizer])
    table.loc["update"] = [0.0, update / 1e9, update / (BANDWIDTH_EFFICIENCY * hardware.bandwidth)]
    return table


def _speed(kinds: Any, precision: str, hardware: Device) -> FloatArray:
    """Operations a second of each kind of kernel."""
    products, attention = next(shares for name, shares in DEVICES.items() if hardware.name.endswith(name))
    matrix = np.where(kinds == "attention", attention, products) * hardware.peak(precision)
    return np.where(np.isin(kinds, MATRIX_KINDS), matrix, VECTOR_EFFICIENCY * hardware.peak("fp32"))


def rows_of(model: StepTimeModel, work: Workload, graph: OpGraph) -> pd.DataFrame:
    """Rows of the table, one for each device, and the kinds that take most of the time."""
    rows = []
    for name in DEVICES:
        about = {option: getattr(work, option) for option in ("optimizer", "precision", "layout")}
        job = TrainingJob(graph, batch_size=work.batch, device=name, **about)
        inputs, kernels = step_time_inputs([job]), kernel_seconds(graph, work, job.hardware)
        predicted, low, high = 1e3 * model.predict_all(inputs, [90])[0]
        realistic = 1e3 * kernels["seconds"].sum()
        far = not 1 / TOLERANCE <= predicted / realistic <= TOLERANCE
        causes = _causes(model.coefficients_, inputs.iloc[0], kernels["seconds"]) if far else ""
        times = (1e3 * inputs[LOWER_BOUND].iloc[0], realistic, predicted, predicted / realistic)
        amounts = (work.batch, kernels["TFLOP"].sum(), kernels["GB"].sum(), *times)
        rows.append([work.name, name, *amounts, f"{low:.3g} to {high:.3g}", causes])
    return pd.DataFrame(rows, columns=_COLUMNS)


def _causes(coefficients: pd.Series, inputs: pd.Series, realistic: pd.Series) -> str:
    """The three kinds whose prices, before any correction, differ most from their realistic time, in ms."""
    terms = inputs.reindex(coefficients.index).fillna(0.0).astype(float) * coefficients
    priced = terms.groupby([name.split(":")[1] for name in terms.index]).sum()
    worst = priced.sub(realistic, fill_value=0.0).abs().nlargest(3).index
    both = 1e3 * pd.DataFrame({"priced": priced, "realistic": realistic}).reindex(worst).fillna(0.0)
    return "; ".join(f"{kind} {found.priced:.3g} for {found.realistic:.3g}" for kind, found in both.iterrows())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", help="folder of a saved model; the bundled one by default")
    parser.add_argument("--only", nargs="*", default=[""], help="words in the names of workloads")
    arguments = parser.parse_args()
    model = CostModel.load(arguments.model).models_["gpu", "step_time_s"]
    warnings.simplefilter("ignore", FarFromTrainingWarning)
    chosen = [work for work in workloads() if any(word in work.name for word in arguments.only)]
    table = pd.concat([rows_of(model, work, traced(work)) for work in chosen])
    print(table.to_string(index=False, float_format="{:.3g}".format))
    print(f"\n{(table['causes'] != '').sum()} of {len(table)} predictions are beyond a factor of {TOLERANCE}.")


if __name__ == "__main__":
    main()
