"""`TrainingJob`: a network, its hyper-parameters and its device; and the features of jobs."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import pandas as pd

from gpudemand._typing import STRING
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.cost.devices import device
from gpudemand.cost.graph.features import OPTIMIZER_STATES
from gpudemand.cost.graph.op_graph import OpGraph
from gpudemand.cost.hardware import PRECISIONS, Device
from gpudemand.cost.measuring.configuration import CHOICES, check_keras
from gpudemand.cost.regression.feature_table import CATEGORIES, NUMBERS, features_of_graphs
from gpudemand.cost.tracing.inputs import read_inputs

#: Model -> fingerprint and inputs -> graph, for as long as the model lives.
_GRAPHS: WeakKeyDictionary[Any, dict[Hashable, OpGraph]] = WeakKeyDictionary()
#: What a job does with the network.
MODES = ("training", "inference")
_DEVICE_NUMBERS = ("bandwidth_gb_s", "fp32_tflops", "sms", "boost_clock_mhz", "l2_mib", "year")


@dataclass(frozen=True, eq=False, repr=False)
class TrainingJob:
    """A network, how it is trained, and on which device.

    Parameters
    ----------
    model : torch.nn.Module, keras.Model or OpGraph
        The network, on any device including the meta device; it is not changed.
    input_shape : tuple of int, or a list or dict of such tuples, default=None
        Of one sample, without the batch. A Keras model that declares its inputs, and an `OpGraph`, need none.
    batch_size : int, default=32
        Samples a step on each GPU.
    optimizer : {"sgd", "momentum", "rmsprop", "adagrad", "adam", "adamw"}, default="sgd"
        ``momentum`` is SGD with momentum.
    precision : {"fp32", "tf32", "fp16", "amp", "bf16"}, default="fp32"
        ``fp16`` (also called ``amp``) and ``bf16`` are automatic mixed precision: weights stay in single precision.
    device : str or Device, default="H200"
        A name of `gpudemand.cost.devices.devices`, in any of its spellings, or a `Device`.
    n_gpus : int, default=1
        GPUs that each hold a copy of the network (data parallelism).
    layout : {"contiguous", "channels_last"}, optional
        Memory order of images; by default that of the framework.
    execution : {"eager", "compiled"}, optional
        By default ``compiled`` for Keras and for what ``torch.compile`` returned, else ``eager``.
    checkpointing : bool, default=False
        Recompute activations in the backward pass instead of saving them.
    framework_version : str, optional
        Such as ``"2.6.0"``; None is the newest in the training data.
    input_dtype : str, or a list or dict of str, optional
        As for `OpGraph.from_torch`.
    mode : {"training", "inference"}, default="training"
        A training step, or a forward pass in evaluation mode without gradients, which `optimizer` has no part in.

    Raises
    ------
    InputError
        For an object that is no model, a number out of range, an unknown device, a precision that it lacks, or
        checkpointing or several GPUs in inference.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten())
    >>> job = TrainingJob(net, (3, 32, 32), batch_size=64, precision="amp", device="RTX 3090")
    >>> job
    TrainingJob(Sequential on 3x32x32: batch 64, sgd, fp16, contiguous, eager, GeForce RTX 3090)
    >>> job.graph.flops
    388800.0
    """

    model: Any
    input_shape: Any = None
    batch_size: int = 32
    optimizer: str = "sgd"
    precision: str = "fp32"
    device: str | Device = "H200"
    n_gpus: int = 1
    layout: str | None = None
    execution: str | None = None
    checkpointing: bool = False
    framework_version: str | None = None
    input_dtype: Any = None
    mode: str = "training"

    def __post_init__(self) -> None:
        keras = self.framework == "keras"
        compiled = keras or hasattr(self.model, "_orig_mod")
        self._set("device", device(self.device))
        self._set("precision", "fp16" if self.precision == "amp" else self.precision)
        self._set("layout", self.layout or ("channels_last" if keras else "contiguous"))
        self._set("execution", self.execution or ("compiled" if compiled else "eager"))
        for name in ("batch_size", "n_gpus"):
            self._set(name, int(check_number(name, getattr(self, name), 1, integer=True)))
        check_choice("optimizer", self.optimizer, OPTIMIZER_STATES)
        check_choice("precision", self.precision, PRECISIONS)
        for name in ("layout", "execution"):
            check_choice(name, getattr(self, name), CHOICES[name])
        check_choice("mode", self.mode, MODES)
        self._check_shape()
        self._check_combination()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the class is frozen

    def _check_shape(self) -> None:
        if self.input_shape is not None:
            read_inputs(self.input_shape, self.input_dtype)
        elif self.framework == "torch" and not isinstance(self.model, OpGraph):
            raise InputError("a PyTorch model needs input_shape, the shape of one sample, such as (3, 224, 224).")

    def _check_combination(self) -> None:
        self.hardware.peak(self.precision)  # raises for a precision that the device lacks
        if self.n_gpus > 1 and self.hardware.kind == "cpu":
            raise InputError(f"{self.hardware.name} is a CPU; n_gpus must be 1, got {self.n_gpus}.")
        if self.mode == "inference" and self.checkpointing:
            raise InputError("inference saves no activations; leave out checkpointing.")
        if self.mode == "inference" and self.n_gpus > 1:
            raise InputError(f"in inference each GPU works on its own; n_gpus must be 1, got {self.n_gpus}.")
        check_keras(self.framework, self.layout, self.execution)

    @property
    def hardware(self) -> Device:
        """The device as a `Device`."""
        return device(self.device)

    @functools.cached_property
    def framework(self) -> str:
        """Either ``torch`` or ``keras``."""
        return _framework(self.model)

    @functools.cached_property
    def inputs_key(self) -> Hashable:
        """Hashable description of the inputs; example tensors by their shape and type."""
        if isinstance(self.model, OpGraph) or self.input_shape is None:
            return None
        specs = read_inputs(self.input_shape, self.input_dtype)
        return tuple((spec.name, spec.shape, spec.dtype, str(getattr(spec.example, "dtype", ""))) for spec in specs)

    @functools.cached_property
    def graph(self) -> OpGraph:
        """The operator graph, traced at first access, once for all jobs of one model on one input shape.

        Raises
        ------
        InputError
            If the forward pass fails on that input shape.
        """
        if isinstance(self.model, OpGraph):
            return self.model
        known = _GRAPHS.setdefault(self.model, {})
        key = (self.inputs_key, self.mode, _fingerprint(self.model, self.framework))
        if key not in known:
            known[key] = self._trace()
        return known[key]

    def _trace(self) -> OpGraph:
        tracer = OpGraph.from_keras if self.framework == "keras" else OpGraph.from_torch
        mode = {"train": False} if self.mode == "inference" else {}
        return tracer(self.model, self.input_shape, input_dtype=self.input_dtype, **mode)

    def __repr__(self) -> str:
        name = self.model.name if isinstance(self.model, OpGraph) else type(self.model).__name__
        options = [f"batch {self.batch_size}", self.optimizer, self.precision, self.layout, self.execution]
        options += ["checkpointing"] * self.checkpointing
        if self.mode == "inference":
            options[1] = "inference"
        count = f"{self.n_gpus} x " if self.n_gpus > 1 else ""
        return f"TrainingJob({name}{self._input_text()}: {', '.join(map(str, options))}, {count}{self.hardware.name})"

    def _input_text(self) -> str:
        shape = self.input_shape
        if isinstance(shape, tuple):
            return f" on {'x'.join(map(str, shape))}"
        return "" if shape is None else f" on {len(shape)} inputs"


def features_from_jobs(jobs: TrainingJob | Iterable[TrainingJob]) -> pd.DataFrame:
    """Features of jobs: hyper-parameters, graphs and devices, never a network's name.

    Parameters
    ----------
    jobs : TrainingJob or iterable of TrainingJob
        Each network is traced once.

    Returns
    -------
    DataFrame
        A row a job. The columns of `gpudemand.cost.features_from_rows` (``device`` is ``cpu`` or ``cuda``), ``n_gpus``,
        ``checkpointing`` (0 or 1), ``framework_version``, and of the device ``device_name``, ``device_die``,
        ``device_memory_gib`` (usable by processes), ``device_peak_tflops`` (at the job's precision),
        ``device_interconnect_gb_s``, ``device_bandwidth_gb_s``, ``device_fp32_tflops``, ``device_sms``,
        ``device_boost_clock_mhz``, ``device_l2_mib`` and ``device_year``.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Linear(64, 10)
    >>> jobs = [TrainingJob(net, (64,), batch_size=n, device="T4") for n in (8, 16)]
    >>> features_from_jobs(jobs)[["framework", "batch_size", "flops", "device_peak_tflops"]]
      framework  batch_size   flops  device_peak_tflops
    0     torch           8  1280.0                8.14
    1     torch          16  1280.0                8.14
    """
    listed = [jobs] if isinstance(jobs, TrainingJob) else list(jobs)
    for job in listed:
        if not isinstance(job, TrainingJob):
            raise InputError(f"jobs must hold TrainingJobs; got {type(job).__name__}.")
    if not listed:
        raise InputError("jobs is empty.")
    own = pd.DataFrame([{**_job_features(job), **_device_features(job.hardware, job.precision)} for job in listed])
    graphs, positions = distinct_graphs(listed)
    described = features_of_graphs(graphs).iloc[positions].reset_index(drop=True)
    text = {name: STRING for name in own.columns if name in _TEXT}
    table = pd.concat([own.astype(text), described], axis=1)
    return table[[*_FIRST, *described.columns, *(name for name in own.columns if name not in _FIRST)]]


_FIRST = [*CATEGORIES, *NUMBERS, "optimizer_states"]
_TEXT = {*CATEGORIES, "framework_version", "device_name", "device_die"}


def distinct_graphs(jobs: list[TrainingJob]) -> tuple[list[OpGraph], list[int]]:
    """Distinct graphs, and the position of each job's graph among them."""
    position: dict[Hashable, int] = {}
    graphs: list[OpGraph] = []
    rows = []
    for job in jobs:
        key = (id(job.model), job.inputs_key, job.mode)
        if key not in position:
            position[key] = len(graphs)
            graphs.append(job.graph)
        rows.append(position[key])
    return graphs, rows


def _job_features(job: TrainingJob) -> dict[str, Any]:
    return {
        "framework": job.framework,
        "optimizer": job.optimizer,
        "precision": job.precision,
        "layout": job.layout,
        "execution": job.execution,
        "device": "cpu" if job.hardware.kind == "cpu" else "cuda",
        "batch_size": job.batch_size,
        "threads": 0,
        "optimizer_states": float(OPTIMIZER_STATES[job.optimizer]),
        "n_gpus": job.n_gpus,
        "checkpointing": float(job.checkpointing),
        "framework_version": job.framework_version,
    }


@functools.lru_cache(maxsize=1024)
def _device_features(hardware: Device, precision: str) -> dict[str, Any]:
    return {
        "device_name": hardware.name,
        "device_die": hardware.die,
        "device_memory_gib": hardware.usable_memory_gib,
        "device_peak_tflops": hardware.peak(precision) / 1e12,
        "device_interconnect_gb_s": hardware.interconnect_bandwidth / 1e9,
        **{f"device_{name}": getattr(hardware, name) for name in _DEVICE_NUMBERS},
    }


def _framework(model: Any) -> str:
    if isinstance(model, OpGraph):
        return "keras" if model.framework == "keras" else "torch"
    if isinstance(model, type):
        raise InputError(f"model must be an instance; got the class {model.__name__}: call it.")
    # By name, so that neither framework is imported.
    roots = {parent.__module__.split(".")[0] for parent in type(model).__mro__ if parent is not object}
    if "keras" in roots:
        return "keras"
    if any(
        (parent.__module__, parent.__name__) == ("torch.nn.modules.module", "Module") for parent in type(model).__mro__
    ):
        return "torch"
    raise InputError(f"model must be a torch.nn.Module, a keras.Model or an OpGraph; got {type(model).__name__}.")


def _fingerprint(model: Any, framework: str) -> Hashable:
    """Types, modes and shapes of the layers, which may be frozen, added or replaced after a first trace."""
    if framework == "keras":
        return tuple((tuple(weight.shape), weight.trainable) for weight in model.weights)
    parts = tuple((type(part), part.training) for part in model.modules())
    return parts, tuple((tuple(weight.shape), weight.requires_grad) for weight in model.parameters())
