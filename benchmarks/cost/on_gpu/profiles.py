"""Steps of networks of timm, torchvision, transformers and the zoo, with kernels and the host's part told apart.

    python -m benchmarks.cost.on_gpu.profiles steps --out ROWS.csv [--device cuda] [--minutes 6]
    python -m benchmarks.cost.on_gpu.profiles edge --out EDGE.csv [--minutes 1.5]
    python -m benchmarks.cost.on_gpu.profiles shared --out SHARED.csv

A row of ``steps`` holds the step time by CUDA events, the seconds until the host has issued forward pass, backward pass
and update (nothing waits for the device), what each launches, the device's seconds by operator, and how fast the host
was at that moment (``launch_s``), as it may drift (`benchmarks.cost.h200.host_drift`). Networks come in a random order,
so that those measured when the time is over are a random sample. ``edge``: batches up to the first that does not fit.
``shared``: two processes on one GPU.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.cost.networks import build
from benchmarks.cost.on_gpu.foreign import FOREIGN, key_of
from benchmarks.cost.on_gpu.kernels import NETWORKS
from benchmarks.measure.child import failed
from benchmarks.measure.meter import GIB, RowFile
from benchmarks.measure.torch_session import _make_optimizer

_PHASES = ("forward", "backward", "update")
_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaMemsetAsync", "cudaMemcpyAsync", "cudaLaunchCooperativeKernel")


@dataclass(frozen=True)
class Setting:
    """What is run: a network by its key, and how."""

    network: str
    mode: str
    batch_size: int
    precision: str
    optimizer: str
    layout: str

    @property
    def trains(self) -> bool:
        """Whether there is a backward pass."""
        return self.mode == "train"


def settings(seed: int = 0) -> list[Setting]:
    """Those of the zoo, then three of each network of the libraries: a small and a large batch, and inference."""
    draw = random.Random(seed)
    found = [
        Setting(f"zoo:{name}", mode, 8, "bf16", "sgd" if mode == "train" else "", "contiguous")
        for name in NETWORKS
        for mode in ("train", "infer")
    ]
    names = list(FOREIGN)
    draw.shuffle(names)
    for name in names:
        for mode, batches in (("train", (4, 8, 16)), ("train", (32, 64, 128)), ("infer", (1, 4, 16, 64, 256))):
            precision = draw.choice(("fp32", "tf32", "tf32", "bf16", "bf16"))
            optimizer = draw.choice(("sgd", "momentum", "adam", "adamw")) if mode == "train" else ""
            layout = draw.choice(("contiguous", "channels_last"))
            found.append(Setting(name, mode, draw.choice(batches), precision, optimizer, layout))
    return found


class Run:
    """A network in one setting, ready for steps."""

    def __init__(self, setting: Setting, net: nn.Module, shape: tuple[int, ...], dtype: Any, device: str) -> None:
        self.setting, self.device, self.net = setting, device, net.train(setting.trains)
        tf32 = setting.precision == "tf32"
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        size = (setting.batch_size, *shape)
        self.x = torch.randint(1000, size, device=device) if dtype else torch.randn(size, device=device)
        last = setting.layout == "channels_last" and self.x.ndim == 4
        self.net.to(memory_format=torch.channels_last if last else torch.contiguous_format)
        self.x = self.x.to(memory_format=torch.channels_last) if last else self.x
        self.optimizer = _make_optimizer(setting.optimizer, net) if setting.trains else None
        self.host = dict.fromkeys(_PHASES, 0.0)

    def step(self) -> None:
        """Issue one step; the host's seconds of each phase are kept."""
        marks, profiled = [time.perf_counter()], torch.profiler.record_function
        with profiled("phase:forward"):
            loss = self._forward()
        marks.append(time.perf_counter())
        with profiled("phase:backward"):
            if self.setting.trains:
                loss.backward()
        marks.append(time.perf_counter())
        with profiled("phase:update"):
            if self.optimizer:
                self.optimizer.step()
        marks.append(time.perf_counter())
        self.host = dict(zip(_PHASES, np.diff(marks).tolist(), strict=True))

    def _forward(self) -> Any:
        if self.optimizer:
            self.optimizer.zero_grad(set_to_none=True)
        with self._autocast(), nullcontext() if self.setting.trains else torch.inference_mode():
            out = tensor_of(self.net(self.x))
            return loss_of(out) if self.setting.trains else out

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device, torch.bfloat16) if self.setting.precision == "bf16" else nullcontext()

    def timed(self) -> float:
        """Seconds of a step by CUDA events, or by the clock on a CPU."""
        if self.device != "cuda":
            start = time.perf_counter()
            self.step()
            return time.perf_counter() - start
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.step()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000


def tensor_of(out: Any) -> Tensor:
    """First tensor of an output."""
    while not isinstance(out, Tensor):
        out = next(iter(out.values())) if hasattr(out, "values") else out[0]
    return out


def loss_of(out: Tensor) -> Tensor:
    """Cross-entropy over the last axis of logits, or the channels of maps, with class 0 everywhere."""
    if out.ndim >= 4:
        return functional.cross_entropy(out, torch.zeros_like(out[:, 0], dtype=torch.long))
    flat = out.reshape(-1, out.shape[-1])
    return functional.cross_entropy(flat, torch.zeros(len(flat), dtype=torch.long, device=out.device))


def launch_seconds(device: str, launches: int = 80, repeats: int = 5) -> float:
    """Seconds in which the host now issues one addition of one number; so many launches do not fill the queue."""
    number, seconds = torch.zeros(1, device=device), []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(launches):
            number.add_(1.0)
        seconds.append((time.perf_counter() - begin) / launches)
        if device == "cuda":
            torch.cuda.synchronize()
    return float(np.median(seconds))


def measured(run: Run, warmup: int = 3, seconds: float = 0.25) -> dict[str, Any]:
    """Times of steps, memory, and the profile of one more step."""
    cuda, times, hosts = run.device == "cuda", [], []
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    first = run.timed()
    for _ in range(warmup - 1):
        run.timed()
    while len(times) < 6 or (sum(times) < seconds and len(times) < 200):
        times.append(run.timed())
        hosts.append(list(run.host.values()))
    low, middle, high = map(float, np.quantile(times, [0.1, 0.5, 0.9]))
    host = dict(zip((f"host_{name}_s" for name in _PHASES), np.median(hosts, axis=0).tolist(), strict=True))
    row = {"step_time_s": middle, "step_time_p10_s": low, "step_time_p90_s": high, "n_steps": len(times)}
    row |= {"first_step_s": first, "launch_s": launch_seconds(run.device)}
    return {**row, **host, **_memory(run), **profiled(run)}


def _memory(run: Run) -> dict[str, Any]:
    weights = list(run.net.parameters())
    sizes = {
        "parameters": sum(weight.numel() for weight in weights if weight.requires_grad),
        "parameter_tensors": sum(weight.requires_grad for weight in weights),
        "model_gib": sum(each.numel() * each.element_size() for each in [*weights, *run.net.buffers()]) / GIB,
    }
    if run.device != "cuda":
        return sizes
    free, total = torch.cuda.mem_get_info()
    peaks = {"allocated_gib": torch.cuda.max_memory_allocated(), "reserved_gib": torch.cuda.max_memory_reserved()}
    return {**sizes, **{name: value / GIB for name, value in peaks.items()}, "device_gib": (total - free) / GIB}


def profiled(run: Run) -> dict[str, Any]:
    """Launches by phase, kernels, and device seconds by operator, of one step."""
    kind = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kind.CPU, *([kind.CUDA] if run.device == "cuda" else [])]) as profile:
        run.timed()
    events = list(profile.events())
    starts = {event.name[6:]: event.time_range.start for event in events if event.name.startswith("phase:")}
    on_cpu = [event for event in events if str(event.device_type).endswith("CPU")]
    launched, by_operator = dict.fromkeys(_PHASES, 0), defaultdict[str, list[float]](lambda: [0, 0.0])
    for event in on_cpu:
        phase = [name for name in _PHASES if starts[name] <= event.time_range.start][-1:] or ["forward"]
        launched[phase[0]] += event.name.startswith(_LAUNCHES)
        for kernel in event.kernels:
            by_operator[event.name][0] += 1
            by_operator[event.name][1] += kernel.duration
    return {
        **{f"launched_{name}": n for name, n in launched.items()},
        "kernels": sum(n for n, _ in by_operator.values()),
        "kernel_s": 1e-6 * sum(us for _, us in by_operator.values()),
        "by_operator": json.dumps({name: [n, round(us, 1)] for name, (n, us) in by_operator.items()}),
    }


def rows(device: str, minutes: float, known: set[str]) -> Iterator[dict[str, Any]]:
    """A row a setting that is not known, until the time is over; each network is built once."""
    end, name, net = time.monotonic() + 60 * minutes, "", None
    for setting in settings():
        key = json.dumps(asdict(setting))
        if key in known:
            continue
        if time.monotonic() > end:
            return
        start, ready = time.monotonic(), 0.0
        try:
            if setting.network != name:
                net, name = None, setting.network
                with torch.device(device):
                    net, shape, dtype = build(key_of(name))
            ready = time.monotonic() - start
            row = {"status": "ok", **measured(Run(setting, net, shape, dtype, device))}
        except Exception as error:  # any exception of training is the result of this row
            row = failed(error)
        if isinstance(net, nn.Module):
            net.zero_grad(set_to_none=True)
        yield {"setting": key, **row, "build_s": ready, "wall_s": time.monotonic() - start}


COLUMNS = (
    *("setting", "status", "message", "step_time_s", "step_time_p10_s", "step_time_p90_s", "n_steps", "first_step_s"),
    *("host_forward_s", "host_backward_s", "host_update_s", "launched_forward", "launched_backward", "launched_update"),
    *("kernels", "kernel_s", "parameters", "parameter_tensors", "model_gib", "allocated_gib", "reserved_gib"),
    *("device_gib", "launch_s", "build_s", "wall_s", "by_operator"),
)
EDGE_COLUMNS = (
    *("setting", "status", "message", "step_time_s", "parameters", "parameter_tensors", "model_gib", "allocated_gib"),
    *("reserved_gib", "device_gib"),
)


EDGES = (
    "zoo:resnet50",
    "zoo:bert",
    "timm:vit_base_patch16_224",
    "timm:hrnet_w18",
    "transformers:gpt2",
    "zoo:densenet121",
)


def edge(device: str, minutes: float) -> Iterator[dict[str, Any]]:
    """Batches up to the first that does not fit, and seven between, of six networks with Adam in bf16."""
    end = time.monotonic() + 60 * minutes
    for name in EDGES:
        with torch.device(device):
            net, shape, dtype = build(key_of(name))
        low, high, batch = 0, 0, 64
        while time.monotonic() < end and (not high or high - low > max(high // 32, 1)):
            setting = Setting(name, "train", batch, "bf16", "adam", "contiguous")
            yield (row := {"setting": json.dumps(asdict(setting)), **_tried(setting, net, shape, dtype, device)})
            low, high = (batch, high) if row["status"] == "ok" else (low, batch)
            batch = (low + high) // 2 if high else 2 * low


def _tried(setting: Setting, net: nn.Module, shape: Any, dtype: Any, device: str) -> dict[str, Any]:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    try:
        run = Run(setting, net, shape, dtype, device)
        times = [run.timed() for _ in range(3)]
        return {"status": "ok", "step_time_s": times[-1], **_memory(run)}
    except Exception as error:  # any exception of training is the result of this row
        return failed(error)
    finally:
        net.zero_grad(set_to_none=True)


SHARED = (("zoo:resnet50", 32), ("zoo:resnet50", 128), ("zoo:vit_tiny", 8), ("zoo:bert", 64), ("zoo:mobilenet_v2", 64))


def shared() -> list[dict[str, Any]]:
    """Step times of networks alone, and beside a second process that trains the same."""
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    barrier, queue = context.Barrier(2), context.Queue()
    both = [context.Process(target=_sharing, args=(place, barrier, queue)) for place in (0, 1)]
    for process in both:
        process.start()
    found = [queue.get(timeout=100) for _ in range(2 * 2 * len(SHARED))]
    for process in both:
        process.join()
    return found


def _sharing(place: int, barrier: Any, queue: Any) -> None:
    for name, batch in SHARED:
        with torch.device("cuda"):
            net, shape, dtype = build(key_of(name))
        run = Run(Setting(name, "train", batch, "bf16", "sgd", "contiguous"), net, shape, dtype, "cuda")
        for _ in range(3):
            run.timed()
        for turn, runs in (("alone", place == 0), ("alone", place == 1), ("beside", True)):
            barrier.wait()
            if runs:
                about = {"network": name, "batch_size": batch, "turn": turn, "process": place}
                queue.put({**about, **_for_a_second(run)})
        barrier.wait()


def _for_a_second(run: Run) -> dict[str, float]:
    times, end = list[float](), time.monotonic() + 1.0
    while time.monotonic() < end:
        times.append(run.timed())
    return {"step_time_s": float(np.median(times)), "mean_s": float(np.mean(times))}


SHARED_COLUMNS = ("network", "batch_size", "turn", "process", "step_time_s", "mean_s")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["steps", "edge", "shared"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=6.0)
    options = parser.parse_args()
    columns = {"steps": COLUMNS, "edge": EDGE_COLUMNS, "shared": SHARED_COLUMNS}[options.what]
    with RowFile(options.out, columns) as file:
        if options.what == "shared":
            found: Any = shared()
        elif options.what == "edge":
            found = edge(options.device, options.minutes)
        else:
            found = rows(options.device, options.minutes, {row["setting"] for row in file.read()})
        for row in found:
            file.append(row)


if __name__ == "__main__":
    main()
