"""Kernels that a training step launches, counted by the profiler, beside those that the tracer records."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.autograd import DeviceType

from benchmarks import zoo
from benchmarks.measure.meter import Configuration
from benchmarks.measure.torch_session import TorchSession
from gpudemand.cost import OpGraph
from gpudemand.cost.graph_features import step_kernels

#: Twenty networks of all kinds of blocks; of each a small batch, where the number of kernels decides the time.
NETWORKS = (
    *("alexnet", "vgg16", "resnet18", "resnet50", "resnext50", "se_resnet18", "densenet121", "googlenet"),
    *("inception_v3", "mobilenet_v2", "mobilenet_v3_large", "shufflenet_v2", "efficientnet_b0", "nasnet_mobile"),
    *("regnetx_400mf", "convnext_tiny", "vit_tiny", "bert", "gpt", "lstm"),
)
COLUMNS = ["network", "precision", "optimizer", "launched", "recorded", "kernel_s", "step_s"]


def plan(device: str) -> list[Configuration]:
    """A configuration of each network."""
    first = Configuration("torch", "resnet18", 224, batch_size=8, precision="bf16", device=device)
    tokens: dict[str, Any] = {"input_size": 128, "channels": 0, "vocabulary": 8000}
    return [replace(first, network=name, **(tokens if name in ("bert", "gpt", "lstm") else {})) for name in NETWORKS]


def measure(job: Configuration) -> dict[str, Any]:
    """Launched and recorded kernels of a step, their summed seconds, and those of the step."""
    session = TorchSession(job, partial(job.build, zoo))
    seconds = sorted(session.timed_step() for _ in range(7))[3]
    kind = DeviceType.CUDA if job.device == "cuda" else DeviceType.CPU
    activity = torch.profiler.ProfilerActivity
    activities = [activity.CPU, activity.CUDA] if job.device == "cuda" else [activity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        session.timed_step()
    # On a CPU an operator without others inside stands for a kernel.
    events = [event for event in profile.events() if event.device_type == kind and not event.cpu_children]
    kernel_s = sum(event.time_range.elapsed_us() for event in events) / 1e6
    return {
        "network": job.network,
        "precision": job.precision,
        "optimizer": job.optimizer,
        "launched": len(events),
        "recorded": recorded(job),
        "kernel_s": kernel_s,
        "step_s": seconds,
    }


def recorded(job: Configuration) -> float:
    """Kernels of forward and backward pass that the tracer records; the loss and the update come on top."""
    with torch.device("meta"):
        net = job.build(zoo)
    graph = OpGraph.from_torch(net, job.input_shape, input_dtype=None if job.channels else "int64")
    rows = step_kernels(graph)
    half = job.precision == "bf16"
    return float(rows.loc[half | ~rows["is_autocast"].astype(bool), "calls"].sum())
