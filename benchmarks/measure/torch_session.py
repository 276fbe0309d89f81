"""Training session of a network in PyTorch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.measure.meter import GIB, Configuration, Environment, Peaks, machine_memory_gib
from gpudemand.cost.calibrate import cpu_model

LEARNING_RATE = 1e-3


class TorchSession:
    """Forward pass, loss, backward pass and optimizer step on synthetic data on the device; see `Session`."""

    def __init__(self, job: Configuration, build: Callable[[], Any]) -> None:
        self._job, self._build = job, build
        last = job.layout == "channels_last" and job.channels > 0
        self._memory_format = torch.channels_last if last else torch.preserve_format
        self._device = torch.device(job.device)
        self._prepare_process()
        self._model = self._make_model()
        self._optimizer = _make_optimizer(job.optimizer, self._model)
        self._x, self._y = self._make_batch()
        weights = list(self._model.parameters())
        self.parameters = sum(weight.numel() for weight in weights if weight.requires_grad)
        self.model_gib = sum(map(_bytes, [*weights, *self._model.buffers()])) / GIB
        self._forward = torch.compile(self._model) if job.execution == "compiled" else self._model

    def _prepare_process(self) -> None:
        torch.manual_seed(self._job.seed)
        if self._job.threads:
            torch.set_num_threads(self._job.threads)
        tf32 = self._job.precision == "tf32"
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        if self._device.type == "cuda":
            torch.backends.cudnn.allow_tf32 = tf32
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self._free_before = torch.cuda.mem_get_info()[0]

    def _make_model(self) -> Any:
        with self._device:
            return self._build().to(memory_format=self._memory_format)

    def _make_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        job, rows = self._job, self._job.batch_size
        if job.channels:
            x = torch.randn(rows, *job.input_shape, device=self._device).to(memory_format=self._memory_format)
        else:
            x = torch.randint(job.vocabulary, (rows, *job.input_shape), device=self._device)
        return x, self._make_labels()

    def _make_labels(self) -> torch.Tensor:
        job = self._job
        if job.network == "gpt":
            return torch.randint(job.vocabulary, (job.batch_size * job.input_size,), device=self._device)
        return torch.randint(job.n_classes, (job.batch_size,), device=self._device)

    def _step(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            logits = self._forward(self._x)
            loss: Any = functional.cross_entropy(logits.reshape(len(self._y), -1), self._y)
        loss.backward()
        self._optimizer.step()

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self._device.type, torch.bfloat16) if self._job.precision == "bf16" else nullcontext()

    def timed_step(self) -> float:
        """Train one step; return its seconds (by CUDA events on a GPU)."""
        if self._device.type == "cuda":
            return self._timed_on_device()
        start = time.perf_counter()
        self._step()
        return time.perf_counter() - start

    def _timed_on_device(self) -> float:
        event: Any = torch.cuda.Event
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        self._step()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000

    def peaks(self) -> Peaks:
        """Peaks of the CUDA allocator, or on a CPU those in the profile of one more step."""
        if self._device.type == "cuda":
            from benchmarks.measure.meter import process_memory_gib

            allocated, reserved = torch.cuda.max_memory_allocated() / GIB, torch.cuda.max_memory_reserved() / GIB
            whole = process_memory_gib(os.getpid(), torch.cuda.current_device())
            if whole is not None:
                return Peaks(allocated, reserved, whole, "nvml")
            return Peaks(allocated, reserved, (self._free_before - torch.cuda.mem_get_info()[0]) / GIB, "mem_get_info")
        return Peaks(allocated_gib=(self._held_since_start() + self._profiled_peak()) / GIB)

    def _held_since_start(self) -> int:
        """Bytes of optimizer state, allocated since the first step; gradients are counted by the profiled step."""
        states = [value for state in self._optimizer.state.values() for value in state.values()]
        return sum(_bytes(tensor) for tensor in states if isinstance(tensor, torch.Tensor))

    def _profiled_peak(self) -> int:
        """Peak of one step, in bytes beyond those held at its start."""
        cpu = torch.profiler.ProfilerActivity.CPU
        with torch.profiler.profile(activities=[cpu], profile_memory=True, acc_events=True) as profile:
            self._step()
        events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
        held = peak = 0
        for event in sorted(events, key=lambda event: event.start_ns()):
            held += event.nbytes()
            peak = max(peak, held)
        return peak

    def environment(self) -> Environment:
        """Return hardware and software of the session."""
        framework, threads = f"torch {torch.__version__}", torch.get_num_threads()
        if self._device.type == "cpu":
            return Environment(cpu_model(), machine_memory_gib(), "", framework, "", threads)
        from benchmarks.measure.meter import driver_version

        properties = torch.cuda.get_device_properties(self._device)
        cudnn: Any = torch.backends.cudnn
        backend = f"CUDA {torch.version.cuda}, cuDNN {cudnn.version()}"
        return Environment(
            properties.name, properties.total_memory / GIB, driver_version(), framework, backend, threads
        )


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _make_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if name in ("sgd", "momentum"):
        return torch.optim.SGD(weights, LEARNING_RATE, momentum=0.9 if name == "momentum" else 0.0)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name](weights, LEARNING_RATE)
