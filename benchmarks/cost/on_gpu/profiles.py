"""Steps of networks of timm, torchvision, transformers and the zoo, with kernels and the host's part told apart.

    python -m benchmarks.cost.on_gpu.profiles steps --out ROWS.csv [--device cuda] [--minutes 6]
    python -m benchmarks.cost.on_gpu.profiles launches --out HOST.json
    python -m benchmarks.cost.on_gpu.profiles edge --out EDGE.csv [--minutes 1.5]
    python -m benchmarks.cost.on_gpu.profiles shared --out SHARED.csv

A row of ``steps`` holds the step time by CUDA events, the seconds until the host has issued forward pass, backward pass
and update (nothing waits for the device), what each launches, and the device's seconds by operator. Networks come in a
random order, so that those measured when the time is over are a random sample.
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

from benchmarks.cost.on_gpu.foreign import FOREIGN, built

ZOO = (
    *("alexnet", "vgg16", "resnet18", "resnet50", "resnext50", "se_resnet18", "densenet121", "googlenet"),
    *("inception_v3", "mobilenet_v2", "mobilenet_v3_large", "shufflenet_v2", "efficientnet_b0", "nasnet_mobile"),
    *("regnetx_400mf", "convnext_tiny", "vit_tiny", "bert", "gpt", "lstm"),
)
GIB = 2**30
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
        for name in ZOO
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
        self.optimizer = _optimizer(setting.optimizer, net)
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


def _optimizer(name: str, net: nn.Module) -> Any:
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    made: Any = {
        "sgd": lambda: torch.optim.SGD(weights, 1e-4),
        "momentum": lambda: torch.optim.SGD(weights, 1e-4, momentum=0.9),
        "adam": lambda: torch.optim.Adam(weights, 1e-5),
        "adamw": lambda: torch.optim.AdamW(weights, 1e-5),
    }
    return made[name]() if name else None


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
    return {**row, "first_step_s": first, **host, **_memory(run), **profiled(run)}


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
    """Launches by phase, device seconds by operator and by kernel, of one step."""
    kind = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kind.CPU, *([kind.CUDA] if run.device == "cuda" else [])]) as profile:
        run.timed()
    events = list(profile.events())
    starts = {event.name[6:]: event.time_range.start for event in events if event.name.startswith("phase:")}
    on_cpu = [event for event in events if str(event.device_type).endswith("CPU")]
    launched, operators = dict.fromkeys(_PHASES, 0), dict.fromkeys(_PHASES, 0)
    for event in on_cpu:
        phase = [name for name in _PHASES if starts.get(name, 0) <= event.time_range.start][-1:] or ["forward"]
        launched[phase[0]] += event.name.startswith(_LAUNCHES)
        operators[phase[0]] += event.name.startswith("aten::") and event.cpu_parent is None
    by_operator, by_kernel = defaultdict(lambda: [0, 0.0]), defaultdict(lambda: [0, 0.0])
    for event in on_cpu:
        for kernel in event.kernels:
            _add(by_operator[event.name], kernel.duration)
    notes = ("phase:", "Optimizer.", "ProfilerStep")
    for event in events:
        if str(event.device_type).endswith("CUDA") and not event.name.startswith(notes):
            _add(by_kernel[event.name[:90]], event.time_range.elapsed_us())
    return {
        **{f"launched_{name}": n for name, n in launched.items()},
        **{f"operators_{name}": n for name, n in operators.items()},
        "kernels": sum(n for n, _ in by_kernel.values()),
        "kernel_s": 1e-6 * sum(us for _, us in by_kernel.values()),
        "by_operator": json.dumps({name: [n, round(us, 1)] for name, (n, us) in by_operator.items()}),
        "by_kernel": json.dumps({name: [n, round(us, 1)] for name, (n, us) in by_kernel.items()}),
    }


def _add(total: list[Any], us: float) -> None:
    total[0] += 1
    total[1] += us


def rows(device: str, minutes: float, known: set[str], *, least: bool = False) -> Iterator[dict[str, Any]]:
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
                    net, shape, dtype = built(name)
            ready = time.monotonic() - start
            row = {"status": "ok", **measured(Run(setting, net, shape, dtype, device))}
        except Exception as error:  # any exception of training is the result of this row
            row = {"status": "error", "message": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
            if "out of memory" in row["message"]:
                row["status"] = "oom"
        if isinstance(net, nn.Module):
            net.zero_grad(set_to_none=True)
        yield {"setting": key, **row, "build_s": ready, "wall_s": time.monotonic() - start}


COLUMNS = (
    *("setting", "status", "message", "step_time_s", "step_time_p10_s", "step_time_p90_s", "n_steps", "first_step_s"),
    *("host_forward_s", "host_backward_s", "host_update_s", "launched_forward", "launched_backward", "launched_update"),
    *("operators_forward", "operators_backward", "operators_update", "kernels", "kernel_s", "parameters"),
    *("parameter_tensors", "model_gib", "allocated_gib", "reserved_gib", "device_gib", "build_s", "wall_s"),
    *("by_operator", "by_kernel"),
)


def launches(device: str) -> dict[str, Any]:
    """Seconds of issuing simple operators, without and with a backward pass, and of what a step does besides."""
    found: dict[str, Any] = {"torch": torch.__version__, "device": device}
    if device == "cuda":
        found |= {"name": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    x, weight = torch.ones(8, 8, device=device), torch.ones(8, 8, device=device, requires_grad=True)
    image = torch.ones(1, 8, 8, 8, device=device)
    conv, norm, linear = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 8)
    for module in (conv, norm, linear):
        module.to(device)
    calls: dict[str, Any] = {
        "add_": lambda: x.add_(1.0),
        "add": lambda: x + 1.0,
        "matmul": lambda: x @ x,
        "linear": lambda: linear(x),
        "conv2d": lambda: conv(image),
        "batch_norm": lambda: norm(image),
        "relu_with_graph": lambda: weight.relu(),
    }
    for name, call in calls.items():
        found[name] = _issue(call, device)
    chain = nn.Sequential(*(nn.Linear(8, 8) for _ in range(200))).to(device)
    found["linear_backward"] = _issue(lambda: chain(x).sum().backward(), device, n=5) / 200
    found["empty_step"] = _issue(lambda: None, device)
    return found


def _issue(call: Any, device: str, n: int = 300) -> float:
    for _ in range(max(n // 5, 2)):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(n):
            call()
        times.append((time.perf_counter() - start) / n)
        if device == "cuda":
            torch.cuda.synchronize()
    return float(np.median(times))


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
            net, shape, dtype = built(name)
        low, high = 0, 0
        batch = 64
        while time.monotonic() < end and (not high or high - low > max(high // 32, 1)):
            row = _tried(Setting(name, "train", batch, "bf16", "adam", "contiguous"), net, shape, dtype, device)
            yield row
            low, high = (batch, high) if row["status"] == "ok" else (low, batch)
            batch = (low + high) // 2 if high else 2 * low
        del net


def _tried(setting: Setting, net: nn.Module, shape: Any, dtype: Any, device: str) -> dict[str, Any]:
    row: dict[str, Any] = {"setting": json.dumps(asdict(setting))}
    try:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        run = Run(setting, net, shape, dtype, device)
        times = [run.timed() for _ in range(3)]
        row |= {"status": "ok", "step_time_s": times[-1], **_memory(run)}
    except Exception as error:  # any exception of training is the result of this row
        row |= {
            "status": "oom" if "out of memory" in str(error) else "error",
            "message": " ".join(str(error).split())[:150],
        }
    net.zero_grad(set_to_none=True)
    return row


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
            net, shape, dtype = built(name)
        run = Run(Setting(name, "train", batch, "bf16", "sgd", "contiguous"), net, shape, dtype, "cuda")
        for _ in range(3):
            run.timed()
        for turn in ("alone", "beside"):
            for who in (0, 1):
                barrier.wait()
                if turn == "beside" and who == 1:
                    continue
                if turn == "beside" or who == place:
                    times, end = [], time.monotonic() + 1.0
                    while time.monotonic() < end:
                        times.append(run.timed())
                    queue.put(
                        {
                            "network": name,
                            "batch_size": batch,
                            "turn": turn,
                            "process": place,
                            "step_time_s": float(np.median(times)),
                            "mean_s": float(np.mean(times)),
                        }
                    )
            barrier.wait()


def main() -> None:
    """Measure."""
    import csv

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["steps", "launches", "edge", "shared"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=6.0)
    options = parser.parse_args()
    if options.what == "launches":
        options.out.write_text(json.dumps(launches(options.device), indent=1) + "\n")
        return
    if options.what == "shared":
        found: Any = shared()
        columns: tuple[str, ...] = tuple(found[0])
    elif options.what == "edge":
        found, columns = edge(options.device, options.minutes), COLUMNS[:20] + COLUMNS[20:25]
    else:
        known = set()
        if options.out.exists():
            with options.out.open() as file:
                known = {row["setting"] for row in csv.DictReader(file)}
        found, columns = rows(options.device, options.minutes, known), COLUMNS
    new = not options.out.exists()
    with options.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        if new:
            writer.writeheader()
        for row in found:
            writer.writerow(row)
            file.flush()


if __name__ == "__main__":
    main()
