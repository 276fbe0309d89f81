"""Training session of a network in Keras."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from benchmarks.measure.meter import (
    GIB,
    Configuration,
    Environment,
    Peaks,
    installed_version,
    machine_memory_gib,
)
from gpudemand.cost.calibrate import cpu_model

LEARNING_RATE = 1e-3


class KerasSession:
    """The compiled step of ``keras.Model.fit`` on synthetic data, on the current backend of Keras; see `Session`."""

    def __init__(self, job: Configuration, build: Callable[[], Any]) -> None:
        self._job = job
        _set_threads(job.threads)
        keras.utils.set_random_seed(job.seed)
        keras.mixed_precision.set_global_policy("mixed_bfloat16" if job.precision == "bf16" else "float32")
        self._model = _compiled(build(), job.optimizer)
        self._x, self._y = (keras.ops.convert_to_tensor(array) for array in _make_batch(job))
        self.parameters = sum(math.prod(weight.shape) for weight in self._model.trainable_weights)
        self.model_gib = sum(4 * math.prod(weight.shape) for weight in self._model.weights) / GIB
        self._held_before = _allocator("reset")

    def timed_step(self) -> float:
        """Train one step; return its seconds. Reading the loss synchronises."""
        start = time.perf_counter()
        self._model.train_on_batch(self._x, self._y)
        return time.perf_counter() - start

    def peaks(self) -> Peaks:
        """Peak of TensorFlow's allocator, which on a CPU counts only blocks of 256 KiB and more."""
        if self._job.device == "cpu":
            return Peaks(allocated_gib=(_allocator("peak") - self._held_before) / GIB)
        from benchmarks.measure.meter import process_memory_gib

        whole = process_memory_gib(os.getpid(), 0)
        return Peaks(
            _allocator("peak") / GIB, device_gib=math.nan if whole is None else whole, device_gib_source="nvml"
        )

    def environment(self) -> Environment:
        """Return hardware and software of the session."""
        backend = keras.backend.backend()
        versions = f"keras {keras.__version__}", f"{backend} {installed_version(backend)}"
        if self._job.device == "cpu":
            return Environment(cpu_model(), machine_memory_gib(), "", *versions, _threads())
        from benchmarks.measure.meter import driver_version, name_and_memory_gib

        return Environment(*name_and_memory_gib(0), driver_version(), *versions, _threads())


def _compiled(model: Any, optimizer: str) -> Any:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=_make_optimizer(optimizer), loss=loss)
    return model


def _make_optimizer(name: str) -> Any:
    if name in ("sgd", "momentum"):
        return keras.optimizers.SGD(LEARNING_RATE, momentum=0.9 if name == "momentum" else 0.0)
    return {"adam": keras.optimizers.Adam, "adamw": keras.optimizers.AdamW}[name](LEARNING_RATE)


def _make_batch(job: Configuration) -> tuple[Any, Any]:
    random, rows = np.random.default_rng(job.seed), job.batch_size
    labels = random.integers(job.n_classes, size=rows, dtype=np.int32)
    if job.channels:
        return random.standard_normal((rows, job.input_size, job.input_size, job.channels), dtype=np.float32), labels
    tokens = random.integers(job.vocabulary, size=(2, rows, job.input_size), dtype=np.int32)
    return tokens[0], tokens[1] if job.network == "gpt" else labels


def _set_threads(threads: int) -> None:
    if not threads:
        return
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if tf.config.threading.get_intra_op_parallelism_threads() != threads:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)
    elif keras.backend.backend() == "torch":
        import torch

        torch.set_num_threads(threads)


def _threads() -> int:
    """Threads that were set; 0 if the backend chose."""
    if keras.backend.backend() != "tensorflow":
        return 0
    import tensorflow as tf

    return int(tf.config.threading.get_intra_op_parallelism_threads())


def _allocator(what: str) -> float:
    """Bytes of TensorFlow's allocator: the ``peak``, or the current ones after a ``reset``; NaN if it counts none.

    On a CPU, only the allocator that comes with oneDNN does, which TensorFlow leaves out without AVX-512.
    """
    if keras.backend.backend() != "tensorflow":
        return math.nan
    import tensorflow as tf

    device = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"
    try:
        if what == "reset":
            tf.config.experimental.reset_memory_stats(device)
            what = "current"
        return float(tf.config.experimental.get_memory_info(device)[what])
    except ValueError:
        return math.nan
