"""`TrainingJob`: what is trained, how, and on what."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.cost.graph import OpGraph
from gpudemand.cost.graph_features import OPTIMIZER_STATES
from gpudemand.cost.large_runs import (
    LoRA,
    Parallel,
    TrainingRun,
    check_traced,
    check_transformer,
    sample_lengths,
    sample_shape,
    split_batch,
)
from gpudemand.cost.meter import CHOICES, check_keras
from gpudemand.cost.tracing import read_inputs
from gpudemand.cost.transformer import Transformer
from gpudemand.cost.transformer_configs import architecture
from gpudemand.datasets.devices import PRECISIONS, Device, device


def framework_of(model: Any) -> str:
    """Either ``torch`` or ``keras``."""
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


def fingerprint(model: Any, framework: str) -> Hashable:
    """Types, modes and shapes of the layers, which may be frozen, added or replaced after a first trace."""
    if framework == "keras":
        return tuple((tuple(weight.shape), weight.trainable) for weight in model.weights)
    parts = tuple((type(part), part.training) for part in model.modules())
    # A lazy parameter has no shape yet.
    shapes = (None if hasattr(weight, "materialize") else tuple(weight.shape) for weight in model.parameters())
    return parts, tuple(zip(shapes, (weight.requires_grad for weight in model.parameters()), strict=True))


#: Model -> fingerprint and inputs -> graph, for as long as the model lives.
_GRAPHS: WeakKeyDictionary[Any, dict[Hashable, OpGraph]] = WeakKeyDictionary()
#: What a job does with the network.
MODES = ("training", "inference")


@dataclass(frozen=True, eq=False, repr=False)
class TrainingJob:
    """A network, how it is trained, and on which device.

    Parameters
    ----------
    model : torch.nn.Module, keras.Model, OpGraph or Transformer
        The network, on any device including the meta device; it is not changed. `from_config` makes a `Transformer`.
    input_shape : tuple of int, or a list or dict of such tuples, default=None
        Of one sample, without the batch. A Keras model that declares its inputs, and an `OpGraph`, need none.
    batch_size : int, optional
        Samples a step on each GPU, by default 32; of a `Transformer` on each replica, by default unknown.
    optimizer : {"sgd", "momentum", "rmsprop", "adagrad", "adam", "adamw"}, default="sgd"
        ``momentum`` is SGD with momentum. Of a `Transformer` also ``adamw_bf16``, ``adamw_8bit``, ``adafactor`` and
        ``muon``; None is AdamW with states of unknown precision.
    precision : {"fp32", "tf32", "fp16", "amp", "bf16", "fp8"}, default="fp32"
        ``fp16`` (also called ``amp``) and ``bf16`` are automatic mixed precision: weights stay in single precision.
        ``fp8`` is for the linear layers of a `Transformer`.
    device : str or Device, default="H200"
        A name of `gpudemand.datasets.devices.devices`, in any of its spellings, or a `Device`.
    n_gpus : int, default=1
        GPUs; each holds a copy of the network (data parallelism) unless `parallel` says otherwise.
    layout : {"contiguous", "channels_last"}, optional
        Memory order of images; by default that of the framework.
    execution : {"eager", "compiled"}, optional
        By default ``compiled`` for Keras and for what ``torch.compile`` returned, else ``eager``.
    checkpointing : {False, "selective", "full"}, optional
        Recompute activations in the backward pass instead of saving them; True is ``"full"``. None is False, of a
        `Transformer` unknown.
    framework_version : str, optional
        Such as ``"2.6.0"``; None is the newest in the training data.
    input_dtype : str, or a list or dict of str, optional
        As for `OpGraph.from_torch`.
    mode : {"training", "inference"}, default="training"
        A training step, or a forward pass in evaluation mode without gradients, which `optimizer` has no part in.
    parallel : Parallel, optional
        Layout over the GPUs. None is data parallelism, of a `Transformer` on several GPUs unknown.
    micro_batch, accumulate : int, optional
        Samples that a replica takes at once, and how often before a step; with `batch_size`, two of the three. Of a
        `Transformer` they may be unknown.
    global_batch : int, optional
        Samples a step on all GPUs together.
    adapter : LoRA, optional
        Of a `Transformer`, low-rank adapters that are trained instead of its weights.
    offload : {"optimizer", "parameters", "all", "activations"}, optional
        Of a `Transformer`, what waits in the memory of the host; all is parameters and states of the optimizer.
    attention : {"flash", "eager"}, optional
        Of a `Transformer`, fused attention or not; by default fused where the device has bf16.
    cross_entropy : {"plain", "fused", "fused_linear"}, optional
        Of a `Transformer`, whether its loss copies the logits to single precision, holds them once in half precision
        (kernels of Apex, torchtune's chunked output), or never whole, fused with the head (Liger, Cut Cross-Entropy).
        None is as `kernels`.
    kernels : {"plain", "fused"}, optional
        Of a `Transformer`, whether it runs on PyTorch's own kernels or on fused ones, as of Megatron and Transformer
        Engine. None is fused where the layout is one that such stacks offer.
    experts : {"loop", "grouped"}, optional
        Of a `Transformer` with experts, whether those of a layer compute one after another (Transformers before version
        5) or in one kernel for all. None is a loop in plain kernels that are not compiled, unless experts are divided.

    Raises
    ------
    InputError
        For an object that is no model, a number out of range, an unknown device, a precision that it lacks,
        checkpointing or several GPUs in inference, or options that do not go together.

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
    batch_size: int = None  # type: ignore[assignment]  # filled in for a traced network
    optimizer: str = "sgd"
    precision: str = "fp32"
    device: str | Device = "H200"
    n_gpus: int = 1
    layout: str | None = None
    execution: str | None = None
    checkpointing: bool | str | None = None
    framework_version: str | None = None
    input_dtype: Any = None
    mode: str = "training"
    parallel: Parallel | None = None
    micro_batch: int | None = None
    accumulate: int | None = None
    global_batch: int | None = None
    adapter: LoRA | None = None
    offload: str | None = None
    attention: str | None = None
    cross_entropy: str | None = None
    kernels: str | None = None
    experts: str | None = None

    def __post_init__(self) -> None:
        self._set("device", device(self.device))
        self._set("precision", "fp16" if self.precision == "amp" else self.precision)
        if isinstance(self.model, Transformer):
            for name, value in check_transformer(self).items():
                self._set(name, value)
            return
        for name, value in check_traced(self).items():
            self._set(name, value)
        keras = self.framework == "keras"
        compiled = keras or hasattr(self.model, "_orig_mod")
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

    @classmethod
    def from_config(cls, config: Any, seq_len: int | tuple[int, ...] | None = None, **options: Any) -> TrainingJob:
        """Training of a transformer from its configuration, without weights or code.

        Parameters
        ----------
        config : str, path-like, mapping, transformers configuration or Transformer
            The name of a published model (``"llama-3-8b"``) or, if timm is installed, of one of its vision
            transformers (``"timm:vit_base_patch16_224"``), a ``config.json``, or what it holds.
        seq_len : int or (int, int), optional
            Tokens of a sample; of an encoder-decoder the source's and the target's (one number is both, or the target
            where the model fixes the source, as Whisper does). By default what the model fixes: patches of an image.
        **options
            Parameters of `TrainingJob` but `model` and `input_shape`. Defaults differ: `precision` is ``bf16``, or
            ``fp16`` where the device lacks it; `optimizer` is AdamW with states of unknown precision; layout,
            micro-batch and checkpointing are unknown if they are left out, and intervals say so.

        Returns
        -------
        TrainingJob

        Raises
        ------
        InputError
            For an unknown name, a configuration that is none, and as `TrainingJob` raises it.

        Examples
        --------
        >>> layout = Parallel(tensor=8, sharding="zero1")
        >>> job = TrainingJob.from_config("llama-3-8b", 4096, device="H100", n_gpus=64, parallel=layout, micro_batch=2)
        >>> job
        TrainingJob(llama-3-8b on 4096 tokens: 2 at once x 1, adamw, bf16, data=8, tensor=8, zero1, 64 x H100 SXM5)
        """
        hardware = device(options.get("device", "H200"))
        half = "bf16" if "bf16" in hardware.precisions else "fp16"
        model = architecture(config)
        return cls(model, sample_shape(model, seq_len), **{"precision": half, "optimizer": None, **options})

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
    def run(self) -> TrainingRun | None:
        """All that time and memory of a `Transformer` depend on; None for a network that is traced."""
        if not isinstance(self.model, Transformer):
            return None
        names = ["n_gpus", "parallel", "global_batch", "precision", "optimizer", "checkpointing"]
        names += ["adapter", "offload", "attention", "cross_entropy", "kernels", "experts"]
        options = {name: getattr(self, name) for name in names}
        micro, times = split_batch(self.batch_size, self.micro_batch, self.accumulate)
        seq_len, source_len = sample_lengths(self.input_shape)
        options |= {"micro_batch": micro, "accumulate": times, "source_len": source_len}
        return TrainingRun(self.model, self.hardware, seq_len, compiled=self.execution == "compiled", **options)

    @property
    def samples_per_step(self) -> int:
        """Samples a step on all GPUs together; of a `Transformer` without any, one of each replica."""
        return self.batch_size * self.n_gpus if self.run is None else self.run.samples

    @functools.cached_property
    def framework(self) -> str:
        """Either ``torch`` or ``keras``."""
        return framework_of(self.model)

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
        if isinstance(self.model, Transformer):
            raise InputError(
                f"{self.model.name} comes from a configuration, which has no operator graph; trace a module."
            )
        known = _GRAPHS.setdefault(self.model, {})
        key = (self.inputs_key, self.mode, fingerprint(self.model, self.framework))
        if key not in known:
            known[key] = self._trace()
        return known[key]

    def _trace(self) -> OpGraph:
        tracer = OpGraph.from_keras if self.framework == "keras" else OpGraph.from_torch
        mode = {"train": False} if self.mode == "inference" else {}
        return tracer(self.model, self.input_shape, input_dtype=self.input_dtype, **mode)

    def __repr__(self) -> str:
        if self.run is not None:
            return f"TrainingJob({self.run})"
        name = self.model.name if isinstance(self.model, OpGraph) else type(self.model).__name__
        options = [f"batch {self.batch_size}", self.optimizer, self.precision, self.layout, self.execution]
        options += [] if self.parallel is None else [str(self.parallel)]
        options += ["checkpointing"] * bool(self.checkpointing)
        if self.mode == "inference":
            options[1] = "inference"
        count = f"{self.n_gpus} x " if self.n_gpus > 1 else ""
        return f"TrainingJob({name}{self._input_text()}: {', '.join(map(str, options))}, {count}{self.hardware.name})"

    def _input_text(self) -> str:
        shape = self.input_shape
        if isinstance(shape, tuple):
            return f" on {'x'.join(map(str, shape))}"
        return "" if shape is None else f" on {len(shape)} inputs"
