"""`TrainingJob`: what is trained, how, and on what."""

from __future__ import annotations

import functools
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from gpudemand._validation import InputError, check_choice, check_number, stack_level
from gpudemand.cost._surroundings import content_of, fields_of
from gpudemand.cost.graph import OpGraph
from gpudemand.cost.graph_features import OPTIMIZER_STATES, OPTIMIZERS
from gpudemand.cost.host import check_host_seconds
from gpudemand.cost.operators import HALF
from gpudemand.cost.parallel import LoRA, Parallel
from gpudemand.cost.tracing import plain_shape, read_inputs
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


def tracer_of(model: Any) -> Callable[..., OpGraph]:
    """What traces networks of its framework."""
    return OpGraph.from_keras if framework_of(model) == "keras" else OpGraph.from_torch


def fingerprint(model: Any, framework: str) -> Hashable:
    """What the graph of a model depends on, which may be changed after a first trace.

    Of a Keras model the shapes and types of its weights, and the types that its layers compute in; of a module all that
    it holds: modes, options, functions, and the layout of tensors.
    """
    if framework == "keras":
        weights = tuple((tuple(weight.shape), str(weight.dtype), weight.trainable) for weight in model.weights)
        return weights, tuple(str(layer.compute_dtype) for layer in model._flatten_layers())
    return tuple(_described(model))


def _described(model: Any) -> Iterator[Hashable]:
    """What a module and the objects that it holds are, each once; of tensors not the values."""
    import torch

    plain = (*_PLAIN, torch.dtype, torch.device, torch.memory_format, torch.layout)
    waiting, seen = [model], set[int]()
    while waiting:
        one = waiting.pop()
        kind: Any = type(one)
        if kind in plain:
            yield kind, one
        elif id(one) not in seen:
            seen.add(id(one))
            yield kind
            if isinstance(one, torch.Tensor):
                # A lazy parameter has no shape yet.
                yield None if hasattr(one, "materialize") else (tuple(one.shape), one.dtype, one.requires_grad)
            elif isinstance(one, (type, ModuleType, CodeType)):
                yield id(one)
            else:
                waiting += _held(one)


def _held(one: Any) -> Iterable[Any]:
    """What an object refers to, in order."""
    if isinstance(one, dict):
        return [*one, *one.values()]
    if isinstance(one, (list, tuple, set, frozenset, deque)):
        return one
    if isinstance(one, FunctionType):
        return [one.__code__, *map(content_of, one.__closure__ or ()), *(one.__defaults__ or ())]
    if isinstance(one, functools.partial):
        return one.func, one.args, one.keywords
    if isinstance(one, MethodType):
        return one.__func__, one.__self__
    fields = fields_of(one) or {}
    return [*fields, *fields.values()]


#: Types of values that are compared as they are.
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
#: Model -> fingerprint and inputs -> graph, for as long as the model lives.
_GRAPHS: WeakKeyDictionary[Any, dict[Hashable, OpGraph]] = WeakKeyDictionary()
#: Names that an option may have.
_NAMES: dict[str, tuple[str, ...]] = {
    "layout": ("contiguous", "channels_last"),
    "execution": ("eager", "compiled"),
    "offload": ("optimizer", "parameters", "all", "activations"),
    "attention": ("flash", "flash-1", "flash-2", "flash-3", "eager"),
    "cross_entropy": ("plain", "fused", "fused_linear"),
    "kernels": ("plain", "fused"),
    "experts": ("loop", "grouped"),
}
_OF_TRANSFORMERS = ("adapter", "offload", "attention", "cross_entropy", "kernels", "experts", "stack_year")
#: Samples a step of a traced network, if nobody names them.
_DEFAULT_BATCH = 32
#: Samples a replica takes at once that are tried where the number is not known.
_MICRO_BATCHES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, eq=False, repr=False)
class TrainingJob:
    """A network, how it is trained, and on which device.

    Parameters
    ----------
    model : torch.nn.Module, keras.Model, OpGraph or Transformer
        The network, on any device including the meta device; it is not changed. `from_config` makes a `Transformer`.
    input_shape : tuple of int, or a list or dict of such tuples, default=None
        Of one sample, without the batch. A Keras model that declares its inputs, and an `OpGraph`, need none.
        Example tensors, which include the batch, are as for `OpGraph.from_torch`; those without it count once.
    batch_size : int, optional
        Samples a step on each GPU, by default 32; of a `Transformer` on each replica, by default unknown.
    optimizer : {"sgd", "momentum", "rmsprop", "adagrad", "adam", "adamw"}, default="sgd"
        ``momentum`` is SGD with momentum; no weight decay, which would copy gradients. Of a `Transformer` also
        ``adamw_bf16``, ``adamw_8bit``, ``adafactor`` and ``muon``; None is AdamW with states of unknown precision.
    precision : {"fp32", "tf32", "fp16", "amp", "bf16", "fp8", "fp4"}, default="fp32"
        ``fp16`` (also called ``amp``) and ``bf16`` are automatic mixed precision: weights stay in single precision.
        ``fp8`` and ``fp4`` are for the linear layers of a `Transformer`. A network that is itself in half precision
        (``module.bfloat16()``, Keras' policies) computes in it, without casts, whatever stands here; operators in
        double precision do, too, at the peak of fp64.
    device : str or Device, default="H200"
        A name of `gpudemand.datasets.devices.devices`, in any of its spellings, or a `Device`.
    n_gpus : int, default=1
        GPUs; each holds a copy of the network (data parallelism) unless `parallel` says otherwise.
    layout : {"contiguous", "channels_last"}, optional
        Memory order of images; by default that of the framework.
    execution : {"eager", "compiled"}, optional
        By default ``compiled`` for Keras and for what ``torch.compile`` returned, else ``eager``.
    checkpointing : {"none", "selective", "full"} or bool, optional
        Recompute activations in the backward pass instead of saving them; True is ``"full"``, False ``"none"``. Left
        out, it is ``"none"``, of a `Transformer` unknown.
    framework_version : str, optional
        Such as ``"2.6.0"``; None is the newest in the training data.
    input_dtype : str, or a list or dict of str, optional
        As for `OpGraph.from_torch`.
    mode : {"training", "inference"}, default="training"
        A training step, with a cross-entropy of the outputs, or a forward pass in evaluation mode without gradients
        (``torch.inference_mode``), which `optimizer` has no part in.
    parallel : Parallel, optional
        Layout over the GPUs. None is data parallelism, of a `Transformer` on several GPUs unknown.
    micro_batch, accumulate : int, optional
        Samples that a replica takes at once, and how often before a step; with `batch_size`, two of the three. Of a
        `Transformer` they may be unknown; `micro_batch` alone is a step of a layout without a pipeline.
    global_batch : int, optional
        Samples a step on all GPUs together. Of a `Transformer` whose step is unknown, steps are weighed that public
        trainings take on as many GPUs, and intervals say so.
    adapter : LoRA, optional
        Of a `Transformer`, low-rank adapters that are trained instead of its weights.
    offload : {"optimizer", "parameters", "all", "activations"}, optional
        Of a `Transformer`, what waits in the memory of the host; all is parameters and states of the optimizer.
    attention : {"flash", "flash-1", "flash-2", "flash-3", "eager"}, optional
        Of a `Transformer`, fused attention, with its version if known, or not; by default fused where the device has
        bf16. An unknown version is 3 (or cuDNN's, as fast) in stacks with fused kernels and 2 in plain ones.
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
    stack_year : float, optional
        Of a `Transformer`, the year in which its software was released: fused stacks become faster year by year.
    host : float or str, optional
        Of a traced network on GPUs, the machine that launches its kernels, as for `CostModel.load`: seconds a launch,
        or a GPU whose measured hosts it is like. None is that of the cost model. Of a GPU that was calibrated, the
        measured host counts.

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
    stack_year: float | None = None
    host: float | str | None = None

    def __post_init__(self) -> None:
        self._set("device", device(self.device))
        self._set("input_shape", plain_shape(self.input_shape))
        self._set("precision", "fp16" if self.precision == "amp" else self.precision)
        level = self.checkpointing
        self._set("checkpointing", "full" if level is True else False if level == "none" else level)
        self._check_options()
        if isinstance(self.model, Transformer):
            self._check_transformer()
        else:
            self._check_traced()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the class is frozen

    def _check_options(self) -> None:
        for name in ("batch_size", "n_gpus", "micro_batch", "accumulate", "global_batch"):
            if getattr(self, name) is not None:
                self._set(name, int(check_number(name, getattr(self, name), 1, integer=True)))
        for name, kind in (("parallel", Parallel), ("adapter", LoRA)):
            given = getattr(self, name)
            if given is not None and not isinstance(given, kind):
                raise InputError(f"{name} must be a {kind.__name__}; got {type(given).__name__}.")
        for name, names in _NAMES.items():
            if getattr(self, name) is not None:
                check_choice(name, getattr(self, name), names)
        if self.checkpointing not in (None, False, "selective", "full"):
            raise InputError(f"checkpointing={self.checkpointing!r} is not known; it is 'none', 'selective' or 'full'.")

    def _check_transformer(self) -> None:
        if self.host is not None:
            raise InputError(
                "host is for traced networks; formulas of jobs from a configuration know none: leave it out."
            )
        if self.mode != "training":
            raise InputError("serving is not predicted from a configuration; trace the module for one forward pass.")
        if self.hardware.kind == "cpu":
            raise InputError(f"{self.hardware.name} is a CPU; jobs from a configuration run on GPUs.")
        if self.optimizer is not None:
            check_choice("optimizer", self.optimizer, OPTIMIZERS)
        self.hardware.peak(check_choice("precision", self.precision, (*PRECISIONS, "fp8", "fp4")))
        if self.experts is not None and not self.model.routed_experts:
            raise InputError(f"experts={self.experts!r} is for mixtures of experts; {self.model.name} has none.")
        if self.stack_year is not None:
            check_number("stack_year", self.stack_year, 2016, 2100)
        if self.adapter is not None:
            self.adapter.check_targets(self.model)
        self._set("attention", self.attention or ("flash" if "bf16" in self.hardware.precisions else "eager"))
        self._set("layout", "contiguous")
        self._set("execution", self.execution or "eager")
        assert self.run is not None  # made here: it raises for a layout or a batch that does not suit
        self.run.check_positions()

    def _check_traced(self) -> None:
        for name in _OF_TRANSFORMERS:
            if getattr(self, name) is not None:
                raise InputError(f"{name} is for jobs from a configuration; leave it out for a traced network.")
        keras = self.framework == "keras"
        compiled = keras or hasattr(self.model, "_orig_mod")
        self._set("layout", self.layout or ("channels_last" if keras else "contiguous"))
        self._set("execution", self.execution or ("compiled" if compiled else "eager"))
        check_choice("mode", self.mode, ("training", "inference"))
        check_choice("optimizer", self.optimizer, OPTIMIZER_STATES)
        self.hardware.peak(check_choice("precision", self.precision, PRECISIONS))
        if self.checkpointing == "selective":
            raise InputError("selective checkpointing is for jobs from a configuration.")
        self._set("checkpointing", self.checkpointing == "full")
        if self.global_batch is not None:
            raise InputError("global_batch is for jobs from a configuration; give batch_size=, of one GPU.")
        self._check_gpus()
        self._check_host()
        if self.mode == "inference":
            self._check_inference()
        if self.input_shape is not None:
            read_inputs(self.input_shape, self.input_dtype)
        elif not (keras or isinstance(self.model, OpGraph)):
            raise InputError("a PyTorch model needs input_shape=, the shape of one sample, such as (3, 224, 224).")
        check_keras(self.framework, self.layout, self.execution)
        micro, times = self._replica_batch(self.batch_size or (None if self.micro_batch else _DEFAULT_BATCH))
        if self.micro_batch is not None or self.accumulate is not None:
            self._set("accumulate", times or 1)
        assert micro is not None
        self._set("batch_size", micro * (times or 1))

    def _check_gpus(self) -> None:
        if self.n_gpus > 1 and self.hardware.kind == "cpu":
            raise InputError(f"{self.hardware.name} is a CPU; n_gpus must be 1, got {self.n_gpus}.")
        layout = Parallel() if self.parallel is None else self.parallel.resolved(self.n_gpus)
        if layout.sharding is None:
            raise InputError("the sharding of a traced network has to be known; give Parallel(sharding=...).")
        if layout.model * layout.expert_degree * (layout.expert_tensor or 1) > 1:
            raise InputError(
                "a traced network can be sharded and accumulated, but not split by tensor, pipeline, context or "
                "expert; a job from a configuration can."
            )

    def _check_host(self) -> None:
        if self.host is None:
            return
        if self.hardware.kind == "cpu":
            raise InputError(
                f"{self.hardware.name} is a CPU, which launches no kernels on another device; state no host."
            )
        if isinstance(self.host, str):
            device(self.host)  # raises for an unknown name; whether a host was measured with it, the cost model knows
        else:
            check_host_seconds(self.host)

    def _check_inference(self) -> None:
        if self.checkpointing:
            raise InputError("inference saves no activations; leave out checkpointing.")
        if self.n_gpus > 1:
            raise InputError(f"in inference each GPU works on its own; n_gpus must be 1, got {self.n_gpus}.")
        if self.micro_batch is not None or self.accumulate is not None:
            raise InputError("inference takes a batch at once; leave out micro_batch= and accumulate=.")

    def _replica_batch(self, batch: int | None) -> tuple[int | None, int | None]:
        """Samples at once and how often before a step, from the samples a step on a replica if these are named."""
        once = 1 if batch is not None and self.micro_batch is None else None
        return split_batch("batch_size", batch, self.micro_batch, self.accumulate or once)

    @classmethod
    def from_config(cls, config: Any, seq_len: int | tuple[int, ...] | None = None, **options: Any) -> TrainingJob:
        """Training of a transformer from its configuration, without weights or code.

        Parameters
        ----------
        config : str, path-like, mapping, transformers configuration or Transformer
            The name of a published model (``"llama-3-8b"``), a ``config.json``, or what it holds.
        seq_len : int or (int, int), optional
            Tokens of a sample; of an encoder-decoder the source's and the target's (one number is both, or the target
            where the model fixes the source, as Whisper does). By default what the model fixes, patches of an image, or
            unknown: usual lengths are weighed, and intervals say so.
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
        return cls(model, _sample_shape(model, seq_len), **{"precision": half, "optimizer": None, **options})

    @property
    def hardware(self) -> Device:
        """The device as a `Device`."""
        return device(self.device)

    @property
    def compute_precision(self) -> str:
        """Precision of a traced network: `precision`, but of one that is itself in half precision its own.

        Raises
        ------
        InputError
            If the device lacks it.
        """
        own = HALF.get(self.graph.compute_dtype)
        if own is None or self.precision in HALF.values():
            return self.precision
        if own not in self.hardware.precisions:
            has = ", ".join(self.hardware.precisions)
            raise InputError(
                f"{self.graph.name} is in {self.graph.compute_dtype}, which {self.hardware.name} cannot train in; "
                f"convert it to fp32, or name another device (this one has {has})."
            )
        return own

    @functools.cached_property
    def run(self) -> TrainingRun | None:
        """What follows for a `Transformer`; None for a network that is traced."""
        if not isinstance(self.model, Transformer):
            return None
        lengths = _sample_lengths(self.model, self.input_shape)
        batch = (*self._replica_batch(self.batch_size), self.global_batch)
        run = TrainingRun(self, self.model, *lengths, self.n_gpus, None, *batch, self.optimizer, self.checkpointing)
        run = run.laid_out(self.parallel)
        # Frameworks accumulate where they are told to; a pipeline has to.
        if run.micro_batch and run.has_open_batch and run.parallel is not None and run.layout.pipeline == 1:
            return run.with_batch(run.micro_batch, 1)
        return run

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
        mode = {"train": False} if self.mode == "inference" else {}
        return tracer_of(self.model)(self.model, self.input_shape, input_dtype=self.input_dtype, **mode)

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


@dataclass(frozen=True)
class TrainingRun:
    """A job with a `Transformer`, or with a stack of one, and what follows from its options; None is unknown.

    Other layouts, batches, optimizers and checkpointing may stand here than in the job, but nothing else.
    `length`: tokens of a sample; of an encoder-decoder those of the target, and `source_len` those of the source.
    `parallel` has its `data`. `micro_batch`, `accumulate`: samples a replica takes at once, and how often before a
    step; of these two and `global_batch`, samples a step on all replicas together, one follows where the layout is
    known. `optimizer`: None is AdamW with states of unknown precision.
    """

    job: TrainingJob
    model: Transformer
    length: int | None
    source_len: int | None
    n_gpus: int
    parallel: Parallel | None
    micro_batch: int | None
    accumulate: int | None
    global_batch: int | None
    optimizer: str | None
    checkpointing: bool | str | None

    def laid_out(self, parallel: Parallel | None) -> TrainingRun:
        """The run on a layout, and with the batch that follows; raises an `InputError` if these do not suit it."""
        if parallel is None and self.n_gpus > 1:
            return replace(self, parallel=None)
        layout = (parallel or Parallel()).resolved(self.n_gpus).for_model(self.model)
        data, total = layout.data or 1, self.global_batch
        micro, times = split_batch("global_batch", total, self.micro_batch, self.accumulate, data)
        if total is None and micro and times:
            total = micro * times * data
        return replace(self, parallel=layout, micro_batch=micro, accumulate=times, global_batch=total)

    def __str__(self) -> str:
        times = f" x {self.accumulate or '?'}"
        at_once = "any number at once" if self.micro_batch is None else f"{self.micro_batch} at once{times}"
        parts = [at_once, self.optimizer or "adamw", self.job.precision]
        parts += [repr(self.job.adapter)] if self.job.adapter is not None else []
        parts += [f"checkpointing {self.checkpointing}"] if self.checkpointing else []
        parts += [f"{self.job.offload} in host memory"] if self.job.offload else []
        parts += [f"{self.job.cross_entropy} loss"] if self.job.cross_entropy else []
        parts += [f"{self.job.kernels} kernels"] if self.job.kernels else []
        parts += [f"{self.job.experts} experts"] if self.job.experts else []
        if self.n_gpus > 1:
            parts.append("layout unknown" if self.parallel is None else repr(self.parallel)[len("Parallel(") : -1])
        count = f"{self.n_gpus} x " if self.n_gpus > 1 else ""
        length = self.length or "any number of" if self.source_len is None else f"{self.source_len} + {self.length}"
        return f"{self.model.name} on {length} tokens: {', '.join(parts)}, {count}{self.job.hardware.name}"

    @property
    def seq_len(self) -> int:
        """Tokens of a sample; only of a run whose length is known."""
        if self.length is None:
            raise InputError(f"give seq_len (in the shell --seq), the tokens of a sample of {self.model.name}.")
        return self.length

    def with_length(self, length: int) -> TrainingRun:
        """The run on samples of a length; of an encoder-decoder of source and target, where the model fixes neither."""
        source = self.model.parts[0].tokens or length if self.model.source_share else None
        return replace(self, length=length, source_len=source)

    @property
    def layout(self) -> Parallel:
        """The layout; only of a run whose layout is known."""
        if self.parallel is None:
            raise InputError("the layout of this run is not known; give parallel.")
        return self.parallel

    @property
    def is_known(self) -> bool:
        """Whether layout, batch and checkpointing are known."""
        batch = self.micro_batch, self.global_batch
        return None not in (self.parallel, *batch, self.checkpointing) and self.layout.is_known

    @property
    def has_open_batch(self) -> bool:
        """Whether the samples a step are unknown, and how often a replica takes some."""
        return self.global_batch is None and self.accumulate is None

    @property
    def trained_share(self) -> float:
        """Trained over all parameters."""
        return 1.0 if self.job.adapter is None else self.job.adapter.n_parameters(self.model) / self.model.n_parameters

    @property
    def is_mixed(self) -> bool:
        """Whether products are in lower precision than the weights that the optimizer updates."""
        return self.job.precision in ("fp16", "bf16") or self.is_quantised

    @property
    def is_quantised(self) -> bool:
        """Whether products of the linear layers are in 8 or 4 bits."""
        return self.job.precision in ("fp8", "fp4")

    @property
    def is_tuned(self) -> bool:
        """Whether kernels are fused; if nothing is said, whether only stacks that have them offer the layout."""
        if self.job.kernels is not None:
            return self.job.kernels == "fused"
        layout = self.layout
        split = self.is_quantised or layout.tensor * layout.pipeline * layout.expert_degree > 1
        return split and layout.sharding not in ("fsdp", "hsdp")

    @property
    def is_fused(self) -> bool:
        """Whether kernels are fused, by hand or by a compiler."""
        return self.is_tuned or self.job.execution == "compiled"

    @property
    def flash_version(self) -> int:
        """Version of FlashAttention, where nothing is said what stacks such as this have; 0 without fused attention."""
        if self.job.attention == "eager":
            return 0
        stated = (self.job.attention or "").removeprefix("flash-")
        return int(stated) if stated.isdigit() else 3 if self.is_tuned and self.job.execution != "compiled" else 2

    @property
    def loops_over_experts(self) -> bool:
        """Whether experts compute one after another; if nothing is said, in plain stacks that do not divide them."""
        if self.job.experts is not None:
            return self.job.experts == "loop"
        return not (self.is_fused or self.layout.expert_degree > 1)

    @property
    def local_experts(self) -> float:
        """Experts of a layer on one GPU."""
        return self.model.experts / self.layout.expert_degree

    @property
    def samples(self) -> int:
        """Samples a step on all GPUs together; if unknown, one of each replica."""
        replicas = self.n_gpus if self.parallel is None else self.parallel.data or 1
        return self.global_batch or replicas * (self.micro_batch or 1) * (self.accumulate or 1)

    @property
    def tokens(self) -> int:
        """Tokens a step, on all GPUs together; of an encoder-decoder those of the source."""
        return self.samples * (self.source_len or self.seq_len)

    @property
    def units(self) -> int:
        """Tokens a step, or its samples where their length is not known."""
        return self.samples if self.length is None else self.tokens

    @property
    def sample_flops(self) -> float:
        """Operations of forward and backward pass of a sample, nothing recomputed."""
        return sum(one.model.model_flops(one.seq_len) * one.seq_len for one in self.stacks)

    def check_positions(self) -> None:
        """Warn if a sample is longer than the learned positions of a stack, which it cannot train on."""
        for one in self.stacks if self.length is not None else ():
            if 0 < one.model.longest < one.seq_len:
                message = (
                    f"{one.model.name} has {one.model.longest:,} learned positions, too few for {one.seq_len:,} "
                    "tokens; give shorter samples (seq_len), or a configuration with more positions."
                )
                warnings.warn(message, stacklevel=stack_level())

    @functools.cached_property
    def stacks(self) -> tuple[TrainingRun, ...]:
        """The run of each stack of the model, on the tokens that pass it."""
        if not self.model.parts:
            return (self,)
        main, *parts = self.model.stacks
        main = replace(main, source_share=(self.source_len or 0) / self.seq_len)
        lengths = [self.seq_len, *(part.tokens or self.source_len or self.seq_len for part in parts)]
        return tuple(map(self._of, (main, *parts), lengths))

    def _of(self, model: Transformer, seq_len: int) -> TrainingRun:
        return replace(self, model=model, length=seq_len, source_len=None)

    @property
    def tokens_at_once(self) -> float:
        """Tokens of a micro-batch on one GPU, before tensor parallelism."""
        return (self.micro_batch or 1) * self.seq_len / self.layout.context

    def with_batch(self, micro_batch: int, accumulate: int | None = None) -> TrainingRun:
        """The run with other samples at once; by default, where they divide, with the same samples a step."""
        at_once, total = micro_batch * (self.layout.data or 1), self.global_batch
        times = accumulate or (total // at_once if total and total % at_once == 0 else self.accumulate or 1)
        return replace(self, micro_batch=micro_batch, accumulate=times, global_batch=times * at_once)

    def micro_batches(self) -> list[int]:
        """Samples at once that the run may have: the given one, or those that divide the samples a step."""
        if self.micro_batch is not None:
            return [self.micro_batch]
        replicas = self.layout.data or 1
        share = max((self.global_batch or replicas * _MICRO_BATCHES[-1]) // replicas, 1)
        return [size for size in _MICRO_BATCHES if share % size == 0] or [share]


def check_keras(framework: str, layout: str | None, execution: str | None) -> None:
    """Raise `InputError` for a layout or an execution that Keras does not have."""
    if framework == "keras" and (layout, execution) != ("channels_last", "compiled"):
        raise InputError(
            f"keras trains with layout 'channels_last' and execution 'compiled'; got {layout!r} and {execution!r}."
        )


def split_batch(
    name: str, total: int | None, micro: int | None, times: int | None, replicas: int = 1
) -> tuple[int | None, int | None]:
    """Samples at once and how often before a step, one of which may follow from the samples a step, called `name`."""
    if total is None:
        return micro, times
    given = {"micro_batch": micro, "accumulate": times, "data": replicas if replicas > 1 else None}
    if micro is not None:
        times = times or max(total // (micro * replicas), 1)
    elif times is not None:
        micro = total // (times * replicas)
    if micro is not None and micro * (times or 1) * replicas != total:
        shown = " x ".join(f"{option}={number}" for option, number in given.items() if number is not None)
        some = "" if given["micro_batch"] and given["accumulate"] else "a multiple of "
        raise InputError(f"{name}={total} is not {some}{shown}; change one of them, or leave one out.")
    return micro, times


def _sample_lengths(model: Transformer, shape: Any) -> tuple[int | None, int | None]:
    """Tokens of a sample, and of its source if an encoder takes it, from ``(seq_len,)`` or ``(source, target)``."""
    if shape is None:
        return None, None
    if not isinstance(shape, tuple) or len(shape) not in (1, 2):
        raise InputError(f"the input of a transformer is its length, or (source, target); got {shape!r}.")
    seq_len = int(check_number("seq_len", shape[-1], 1, integer=True))
    if not model.source_share:
        if len(shape) == 2:
            raise InputError(f"{model.name} has no encoder; give one length, the tokens of a sample.")
        return seq_len, None
    source = shape[0] if len(shape) == 2 else model.parts[0].tokens or seq_len
    return seq_len, int(check_number("source_len", source, 1, integer=True))


def _sample_shape(model: Transformer, seq_len: Any) -> tuple[int, ...] | None:
    """Input of a job with a model, whose own tokens count where none are given; None if it fixes none."""
    if seq_len is not None:
        return tuple(seq_len) if isinstance(seq_len, (tuple, list)) else (seq_len,)
    fixed = model.tokens or (model.longest if model.source_share and model.parts[0].tokens else 0)
    return (fixed,) if fixed else None
