"""`TrainingRun`: training of a large transformer on many GPUs, with its parallelism and adapters."""

from __future__ import annotations

import copy
import functools
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.cost.transformer import Matrix, Transformer

if TYPE_CHECKING:
    from gpudemand.datasets.devices import Device


#: What is divided among the GPUs of data parallelism: optimizer states (``zero1``), also gradients (``zero2``), also
#: parameters (``zero3``, ``fsdp``; ``hsdp`` within a node only).
SHARDING = ("none", "zero1", "zero2", "zero3", "fsdp", "hsdp")
_DEGREES = ("tensor", "pipeline", "virtual_pipeline", "context", "expert")
#: Names of groups of matrices that adapters are put on.
_GROUPS = {
    "all-linear": None,
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj"),
    "qv": ("q_proj", "v_proj", "qkv_proj"),
    "qkv": ("q_proj", "k_proj", "v_proj", "qkv_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj", "gate_up_proj"),
}


@dataclass(frozen=True)
class Parallel:
    """Layout of a training job over its GPUs.

    Parameters
    ----------
    data : int, optional
        Replicas of the model; by default the GPUs over the product of the degrees below.
    tensor, pipeline, virtual_pipeline, context, expert : int, default=1
        GPUs that share each matrix, that hold a part of the layers each, parts of the layers on each of these, GPUs
        that share each sequence, and GPUs (of those of data and context parallelism) that share the experts.
    sharding : {"none", "zero1", "zero2", "zero3", "fsdp", "hsdp"} or None, default="none"
        What data parallelism divides: nothing, the optimizer states, also gradients, also parameters (of ``hsdp``
        within a node only); None is unknown. Megatron's distributed optimizer is ``zero1``.
    sequence : bool, default=True
        With tensor parallelism, activations between the matrix products are divided too.

    Raises
    ------
    InputError
        For a degree that is no whole number of at least 1, an unknown sharding, parts of a pipeline without one, or
        parameters that both a pipeline and sharding would divide.

    Examples
    --------
    >>> Parallel(tensor=8, sharding="zero1").resolved(64)
    Parallel(data=8, tensor=8, zero1)
    """

    data: int | None = None
    tensor: int = 1
    pipeline: int = 1
    virtual_pipeline: int = 1
    context: int = 1
    expert: int = 1
    sharding: str | None = "none"
    sequence: bool = True

    def __post_init__(self) -> None:
        for name in _DEGREES:
            check_number(name, getattr(self, name), 1, integer=True)
        if self.data is not None:
            check_number("data", self.data, 1, integer=True)
        if self.sharding is not None:
            check_choice("sharding", self.sharding, SHARDING)
        if self.virtual_pipeline > 1 and self.pipeline == 1:
            raise InputError("virtual_pipeline divides the stages of a pipeline; give pipeline, or leave it out.")
        if self.shards_parameters and self.pipeline > 1:
            raise InputError(f"sharding={self.sharding!r} gathers all layers; with pipeline use 'zero1' or 'none'.")

    @property
    def model(self) -> int:
        """GPUs that hold one replica."""
        return self.tensor * self.pipeline * self.context

    @property
    def shards_parameters(self) -> bool:
        """Whether parameters are divided among replicas."""
        return self.sharding in ("zero3", "fsdp", "hsdp")

    def resolved(self, n_gpus: int) -> Parallel:
        """The layout with `data` filled in.

        Raises
        ------
        InputError
            If the degrees do not multiply to `n_gpus`, or the experts do not divide the replicas.
        """
        data = self.data or n_gpus // self.model
        if data * self.model != n_gpus:
            shown = f"tensor {self.tensor} x pipeline {self.pipeline} x context {self.context}"
            raise InputError(f"{shown} x data {self.data or '?'} is not n_gpus={n_gpus}; change one of them.")
        if (data * self.context * self.tensor) % self.expert:
            raise InputError(f"expert={self.expert} does not divide the {data * self.context} GPUs that share experts.")
        # One replica has nothing to divide.
        return replace(self, data=data, sharding=self.sharding or ("none" if data * self.context == 1 else None))

    def check_model(self, model: Transformer) -> None:
        """Raise an `InputError` if a model has too few layers, heads or experts for the layout."""
        if self.pipeline * self.virtual_pipeline > model.depth:
            raise InputError(f"{model.name} has {model.depth} layers, fewer than the parts of this pipeline.")
        for heads in (stack.heads for stack in model.stacks if stack.heads % self.tensor):
            raise InputError(f"tensor={self.tensor} does not divide the {heads} heads of {model.name}.")
        if self.expert > 1 and (not model.experts or model.experts % self.expert):
            has = f"{model.experts} experts" if model.experts else "no experts"
            raise InputError(f"expert={self.expert} does not suit {model.name}, which has {has}.")

    def __repr__(self) -> str:
        degrees = [
            f"{name}={getattr(self, name)}" for name in ("data", *_DEGREES) if getattr(self, name) not in (1, None)
        ]
        shown = [*degrees, self.sharding or "sharding unknown"]
        return f"Parallel({', '.join(shown)})"


@dataclass(frozen=True)
class LoRA:
    """Low-rank adapters: two thin matrices beside each target, and all other weights frozen.

    Parameters
    ----------
    rank : int, default=16
    targets : str or collection of str, default="all-linear"
        Names of matrices (``q_proj``, ``down_proj`` ...) or one of ``all-linear``, ``attention``, ``qkv``, ``qv``,
        ``mlp``.
    bits : {16, 8, 4}, default=16
        Of a frozen weight; 4 and 8 are quantised (QLoRA).
    quantizer : {"bitsandbytes", "gptq"}, default="bitsandbytes"
        What made the quantised weights: those of GPTQ take longer to use.

    Examples
    --------
    >>> LoRA(8, "qv").n_parameters(Transformer(4096, 32, 32, 14336, 128256, kv_heads=8))
    3407872

    References
    ----------
    Hu et al., LoRA, arXiv:2106.09685; Dettmers et al., QLoRA, arXiv:2305.14314.
    """

    rank: int = 16
    targets: str | Collection[str] = "all-linear"
    bits: int = 16
    quantizer: str = "bitsandbytes"

    def __post_init__(self) -> None:
        check_number("rank", self.rank, 1, integer=True)
        if isinstance(self.targets, str):
            check_choice("targets", self.targets, [*_GROUPS, *(_GROUPS["attention"] or ()), *(_GROUPS["mlp"] or ())])
        if self.bits not in (16, 8, 4):
            raise InputError(f"bits of frozen weights are 16, 8 or 4; got {self.bits!r}.")
        check_choice("quantizer", self.quantizer, ("bitsandbytes", "gptq"))

    def __repr__(self) -> str:
        quantizer = f", quantizer={self.quantizer!r}" if self.quantizer != "bitsandbytes" else ""
        return f"LoRA(rank={self.rank}, targets={self.targets!r}, bits={self.bits}{quantizer})"

    def covers(self, matrix: Matrix) -> bool:
        """Whether a matrix has an adapter; routers and routed experts have none."""
        if matrix.copies > 1 or matrix.name in ("router", "shared_gate"):
            return False
        names = _GROUPS.get(self.targets, (self.targets,)) if isinstance(self.targets, str) else self.targets
        return names is None or matrix.name in names

    def layer_parameters(self, model: Transformer, *, sparse: bool) -> int:
        """Trained parameters of one layer."""
        found = [matrix for matrix in model.matrices(sparse=sparse) if self.covers(matrix)]
        return sum(self.rank * (matrix.inputs + matrix.outputs) for matrix in found)

    def input_bytes(self, model: Transformer, *, sparse: bool) -> float:
        """Bytes of the inputs of the adapters of a layer for one token, in half precision."""
        return 2.0 * sum(matrix.inputs for matrix in model.matrices(sparse=sparse) if self.covers(matrix))

    def n_parameters(self, model: Transformer) -> int:
        """Trained parameters."""
        kinds = [(stack, sparse, count) for stack in model.stacks for sparse, count in stack.layer_kinds]
        return sum(count * self.layer_parameters(stack, sparse=sparse) for stack, sparse, count in kinds)

    def check_targets(self, model: Transformer) -> None:
        """Raise an `InputError` if a name among the targets, or a whole group of them, is of no matrix of a model."""
        matrices = [
            m for stack in model.stacks for sparse, _ in stack.layer_kinds for m in stack.matrices(sparse=sparse)
        ]
        known = {matrix.name for matrix in matrices}
        unknown = [] if isinstance(self.targets, str) else [name for name in self.targets if name not in known]
        if unknown or not self.n_parameters(model):
            wrong = unknown[0] if unknown else self.targets
            raise InputError(f"targets: {wrong!r} is no matrix of {model.name}; it has {', '.join(sorted(known))}.")


#: Optimizer -> bytes of its states a parameter, and whether weights are kept in single precision besides.
OPTIMIZERS = {
    "sgd": (0.0, True),
    "momentum": (4.0, True),
    "rmsprop": (4.0, True),
    "adagrad": (4.0, True),
    "adam": (8.0, True),
    "adamw": (8.0, True),
    "adamw_bf16": (4.0, False),
    "adamw_8bit": (2.0, False),
    "adafactor": (0.02, False),
    "muon": (4.0, True),
}
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
CHECKPOINTING = (False, "selective", "full")
OFFLOAD = (None, "optimizer", "parameters", "all", "activations")
#: Whether logits are held whole with their copies in single precision, once, or never.
CROSS_ENTROPIES = ("plain", "fused", "fused_linear")
#: Kernels of PyTorch, or those that Megatron and Transformer Engine fuse.
KERNELS = ("plain", "fused")
#: Whether experts compute one after another, or all in one kernel.
EXPERTS = ("loop", "grouped")
#: Samples a replica takes at once that are tried where the number is not known.
_MICRO_BATCHES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class TrainingRun:
    """A large model, its device and how it is trained; None is unknown.

    `seq_len`: tokens of a sample; of an encoder-decoder those of the target. `parallel`: unknown if None and there
    are several GPUs. `micro_batch`, `accumulate`: samples a replica takes at once, and how often before a step; of
    these two and `global_batch`, one follows. `global_batch`: samples a step, on all replicas together. `precision`:
    {"fp32", "tf32", "fp16", "bf16", "fp8"}. `optimizer`: a key of `OPTIMIZERS`; None is AdamW with states of unknown
    precision. Of ``adamw_bf16``, ``adamw_8bit`` and ``adafactor``, weights are kept in half precision only.
    `checkpointing`: {False, "selective", "full"}. `offload`: {"optimizer", "parameters", "all", "activations"}; what
    waits in the memory of the host; all is parameters and states of the optimizer. `attention`: {"flash", "eager"}.
    `source_len`: tokens that the encoder of an encoder-decoder takes, by default `seq_len`, or what the model fixes.
    `cross_entropy`: {"plain", "fused", "fused_linear"}; loss with copies of the logits in single precision; with one
    in half precision (kernels of Apex and FlashAttention, torchtune's chunked output); or computed with the head a
    chunk at a time, without whole logits (Liger, Cut Cross-Entropy). None is as `kernels`. `kernels`: {"plain",
    "fused"}; of PyTorch, or fused as in Megatron and Transformer Engine. None is fused where the layout, or fp8
    without PyTorch's sharding, is one that such stacks offer. `experts`: {"loop", "grouped"}; whether the experts of
    a layer compute one after another (Transformers before version 5) or in one kernel for all. None is a loop in
    plain kernels that are not compiled, unless `expert` parallelism divides them.
    """

    model: Transformer
    device: Device
    seq_len: int
    n_gpus: int = 1
    parallel: Parallel | None = None
    micro_batch: int | None = None
    accumulate: int | None = None
    global_batch: int | None = None
    precision: str = "bf16"
    optimizer: str | None = "adamw"
    checkpointing: bool | str | None = None
    adapter: LoRA | None = None
    offload: str | None = None
    attention: str = "flash"
    compiled: bool = False
    source_len: int | None = None
    cross_entropy: str | None = None
    kernels: str | None = None
    experts: str | None = None

    def __post_init__(self) -> None:
        for name in ("seq_len", "n_gpus"):
            check_number(name, getattr(self, name), 1, integer=True)
        for name in ("micro_batch", "accumulate", "global_batch"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 1, integer=True)
        check_choice("precision", self.precision, PRECISIONS)
        if self.experts is not None and not self.model.experts:
            raise InputError(f"experts={self.experts!r} is for mixtures of experts; {self.model.name} has none.")
        if self.optimizer is not None:
            check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("attention", self.attention, ("flash", "eager"))
        for name, choices in (("cross_entropy", CROSS_ENTROPIES), ("kernels", KERNELS), ("experts", EXPERTS)):
            if getattr(self, name) is not None:
                check_choice(name, getattr(self, name), choices)
        object.__setattr__(self, "checkpointing", checked_checkpointing(self.checkpointing))
        if self.offload not in OFFLOAD:
            names = "'optimizer', 'parameters', 'all' or 'activations'"
            raise InputError(f"offload={self.offload!r} is not known; it is {names}.")
        self._check_source()
        self._check_layout()

    def _check_source(self) -> None:
        if not self.model.source_share:
            if self.source_len is not None:
                raise InputError(f"{self.model.name} has no encoder; give one length, the tokens of a sample.")
            return
        fixed = self.model.parts[0].tokens
        source = int(check_number("source_len", self.source_len or fixed or self.seq_len, 1, integer=True))
        object.__setattr__(self, "source_len", source)

    def _check_layout(self) -> None:
        if self.parallel is None and self.n_gpus == 1:
            object.__setattr__(self, "parallel", Parallel(1))
        if self.parallel is not None:
            object.__setattr__(self, "parallel", self.parallel.resolved(self.n_gpus))
            self.layout.check_model(self.model)
            self._derive_batch()
        if self.adapter is not None:
            self.adapter.check_targets(self.model)

    def _derive_batch(self) -> None:
        """Of samples at once, accumulation and samples a step, the one that follows from the others."""
        assert self.parallel is not None
        micro, times, total = self.micro_batch, self.accumulate, self.global_batch
        replicas = self.parallel.data or 1
        if total is None:
            times = times or 1
            total = micro * times * replicas if micro else None
        elif micro is None and times is not None:
            micro = total // (times * replicas)
        elif micro is not None:
            times = times or total // (micro * replicas)
        if micro is not None and total != micro * (times or 1) * replicas:
            shown = f"micro_batch={micro} x accumulate={times} x data={replicas}"
            raise InputError(f"{shown} is not global_batch={total}; change one of them, or leave one out.")
        for name, value in (("micro_batch", micro), ("accumulate", times), ("global_batch", total)):
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        at_once = f"{self.micro_batch or '?'} at once x {self.accumulate or '?'}"
        parts = [at_once, self.optimizer or "adamw", self.precision]
        parts += [repr(self.adapter)] if self.adapter is not None else []
        parts += [f"checkpointing {self.checkpointing}"] if self.checkpointing else []
        parts += [f"{self.offload} in host memory"] if self.offload else []
        parts += [f"{self.cross_entropy} loss"] if self.cross_entropy else []
        parts += [f"{self.kernels} kernels"] if self.kernels else []
        parts += [f"{self.experts} experts"] if self.experts else []
        if self.n_gpus > 1:
            parts.append("layout unknown" if self.parallel is None else repr(self.parallel)[len("Parallel(") : -1])
        count = f"{self.n_gpus} x " if self.n_gpus > 1 else ""
        length = self.seq_len if self.source_len is None else f"{self.source_len} + {self.seq_len}"
        return f"{self.model.name} on {length} tokens: {', '.join(parts)}, {count}{self.device.name}"

    @property
    def layout(self) -> Parallel:
        """The layout; only of a run whose layout is known."""
        if self.parallel is None:
            raise InputError("the layout of this run is not known; give parallel.")
        return self.parallel

    @property
    def is_known(self) -> bool:
        """Whether layout, micro-batch and checkpointing are known."""
        return None not in (self.parallel, self.micro_batch, self.checkpointing) and self.layout.sharding is not None

    @property
    def trained_share(self) -> float:
        """Trained over all parameters."""
        return 1.0 if self.adapter is None else self.adapter.n_parameters(self.model) / self.model.n_parameters

    @property
    def is_mixed(self) -> bool:
        """Whether products are in lower precision than the weights that the optimizer updates."""
        return self.precision in ("fp16", "bf16", "fp8")

    @property
    def is_tuned(self) -> bool:
        """Whether kernels are fused; if nothing is said, whether only stacks that have them offer the layout."""
        if self.kernels is not None:
            return self.kernels == "fused"
        layout = self.layout
        split = self.precision == "fp8" or layout.tensor * layout.pipeline * layout.expert > 1
        return split and layout.sharding not in ("fsdp", "hsdp")

    @property
    def loops_over_experts(self) -> bool:
        """Whether experts compute one after another; if nothing is said, in plain stacks that do not divide them."""
        if self.experts is not None:
            return self.experts == "loop"
        return not (self.is_tuned or self.compiled or self.layout.expert > 1)

    @property
    def local_experts(self) -> float:
        """Experts of a layer on one GPU."""
        return self.model.experts / self.layout.expert

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
    def sample_flops(self) -> float:
        """Operations of forward and backward pass of a sample, nothing recomputed."""
        return sum(one.model.model_flops(one.seq_len) * one.seq_len for one in self.stacks)

    @functools.cached_property
    def stacks(self) -> tuple[TrainingRun, ...]:
        """The run of each stack of the model, on the tokens that pass it."""
        if not self.model.parts:
            return (self,)
        main, *parts = self.model.stacks
        main = replace(main, source_share=(self.source_len or 0) / self.seq_len)
        return (self._of(main, self.seq_len), *(self._of(one, self._length(one)) for one in parts))

    def _length(self, part: Transformer) -> int:
        return part.tokens or self.source_len or self.seq_len

    def _of(self, model: Transformer, seq_len: int) -> TrainingRun:
        """The run of one stack; what is checked of the whole model need not hold for it."""
        found = copy.copy(self)
        for name, value in (("model", model), ("seq_len", seq_len), ("source_len", None)):
            object.__setattr__(found, name, value)
        return found

    @property
    def tokens_at_once(self) -> float:
        """Tokens of a micro-batch on one GPU, before tensor parallelism."""
        return (self.micro_batch or 1) * self.seq_len / self.layout.context

    def with_batch(self, micro_batch: int) -> TrainingRun:
        """The run with other samples at once and, where they divide, the same samples a step."""
        replicas, total = self.layout.data or 1, self.global_batch
        times = total // (micro_batch * replicas) if total and total % (micro_batch * replicas) == 0 else 1
        return replace(self, micro_batch=micro_batch, accumulate=max(times, 1), global_batch=None)

    def micro_batches(self) -> list[int]:
        """Samples at once that the run may have: the given one, or those that divide the samples a step."""
        if self.micro_batch is not None:
            return [self.micro_batch]
        replicas = self.layout.data or 1
        share = max((self.global_batch or replicas * _MICRO_BATCHES[-1]) // replicas, 1)
        return [size for size in _MICRO_BATCHES if share % size == 0] or [share]


def checked_checkpointing(value: object) -> bool | str | None:
    """``False``, ``"selective"``, ``"full"`` (also for True) or None for unknown; anything else raises an error."""
    if value is not None and value not in (True, *CHECKPOINTING):
        raise InputError(f"checkpointing={value!r} is not known; it is False, 'selective' or 'full'.")
    return "full" if value is True else value


#: Samples a step of a traced network, if nobody names them.
_DEFAULT_BATCH = 32


def check_transformer(job: Any) -> dict[str, Any]:
    """Options of a job with a `Transformer`, as they are stored."""
    if job.mode != "training":
        raise InputError("serving is not predicted from a configuration; trace the module for one forward pass.")
    if job.device.kind == "cpu":
        raise InputError(f"{job.device.name} is a CPU; jobs from a configuration run on GPUs.")
    seq_len, source_len = sample_lengths(job.input_shape)
    _check_types(job)
    job.device.peak(job.precision)  # raises for a precision that the device lacks
    fused = "flash" if "bf16" in job.device.precisions else "eager"
    micro, times = split_batch(job.batch_size, job.micro_batch, job.accumulate)
    level = checked_checkpointing(job.checkpointing)
    options: dict[str, Any] = {"attention": job.attention or fused, "checkpointing": level}
    names = ["n_gpus", "parallel", "global_batch", "precision", "optimizer", "adapter", "offload"]
    names += ["cross_entropy", "kernels", "experts"]
    given = {name: getattr(job, name) for name in names}
    batch: dict[str, Any] = {"micro_batch": micro, "accumulate": times, "source_len": source_len}
    TrainingRun(job.model, job.device, seq_len, **batch, **given, **options)
    return {**options, "layout": "contiguous", "execution": job.execution or "eager"}


def sample_lengths(shape: Any) -> tuple[int, int | None]:
    """Tokens of a sample, and of its source if an encoder takes it, from ``(seq_len,)`` or ``(source, target)``."""
    if not isinstance(shape, tuple) or len(shape) not in (1, 2):
        raise InputError(
            f"the input of a transformer is (seq_len,), or (source, target) with an encoder; got {shape!r}."
        )
    return shape[-1], shape[0] if len(shape) == 2 else None


def sample_shape(model: Transformer, seq_len: Any) -> tuple[int, ...]:
    """Input of a job with a model, whose own tokens count where none are given."""
    if seq_len is not None:
        return tuple(seq_len) if isinstance(seq_len, (tuple, list)) else (seq_len,)
    fixed = model.tokens or (model.positions if model.source_share and model.parts[0].tokens else 0)
    if not fixed:
        raise InputError(f"give seq_len (in the shell --seq), the tokens of a sample of {model.name}.")
    return (fixed,)


def _check_types(job: Any) -> None:
    if job.parallel is not None and not isinstance(job.parallel, Parallel):
        raise InputError(f"parallel must be a Parallel; got {type(job.parallel).__name__}.")
    if job.adapter is not None and not isinstance(job.adapter, LoRA):
        raise InputError(f"adapter must be a LoRA; got {type(job.adapter).__name__}.")


def split_batch(batch: int | None, micro: int | None, times: int | None) -> tuple[int | None, int | None]:
    """Samples at once and how often before a step, from the samples a step on a replica where these were named."""
    for name, value in (("batch_size", batch), ("micro_batch", micro), ("accumulate", times)):
        if value is not None:
            check_number(name, value, 1, integer=True)
    if batch is not None:
        times = times or (1 if micro is None else max(batch // micro, 1))
        micro = micro or batch // times
        if micro * times != batch:
            shown = f"micro_batch={micro} x accumulate={times}" if micro else f"a multiple of accumulate={times}"
            raise InputError(f"batch_size={batch} is not {shown}; change one of them, or leave one out.")
    return micro, times


def check_traced(job: Any) -> dict[str, Any]:
    """Options of a job with a traced network, as they are stored."""
    _check_types(job)
    for name in ("adapter", "offload", "attention", "cross_entropy", "kernels", "experts"):
        if getattr(job, name) is not None:
            raise InputError(f"{name} is for jobs made by TrainingJob.from_config; leave it out for a traced network.")
    level = checked_checkpointing(job.checkpointing)
    if level == "selective":
        raise InputError("a traced network is recomputed as a whole or not; checkpointing is 'full' or False.")
    if job.global_batch is not None:
        raise InputError("global_batch is for jobs made by TrainingJob.from_config; give batch_size, of one GPU.")
    if job.parallel is not None:
        _check_data_parallel(job.parallel.resolved(job.n_gpus))
    options = {"checkpointing": level == "full"}
    if job.micro_batch is None and job.accumulate is None:
        return {**options, "batch_size": _DEFAULT_BATCH if job.batch_size is None else job.batch_size}
    if job.mode == "inference":
        raise InputError("inference takes a batch at once; leave out micro_batch and accumulate.")
    batch = _DEFAULT_BATCH if job.batch_size is None and job.micro_batch is None else job.batch_size
    micro, times = split_batch(batch, job.micro_batch, job.accumulate)
    assert micro is not None
    return {**options, "accumulate": times or 1, "batch_size": micro * (times or 1)}


def _check_data_parallel(layout: Parallel) -> None:
    if layout.sharding is None:
        raise InputError("the sharding of a traced network has to be known; give Parallel(sharding=...).")
    if layout.model * layout.expert > 1:
        raise InputError(
            "a traced network can be sharded and accumulated, but not split by tensor, pipeline, context or expert; "
            "make the job with TrainingJob.from_config."
        )
